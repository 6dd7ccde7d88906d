/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds the connection that a received MAD is for. A message changes a connection only if it names our comm
 * id, the peer's comm id (where that is known; else the transaction id of what it answers), our QPN (where
 * it carries it), and comes from the peer's address. All other messages are dropped, or answered without
 * touching a connection.
 */
#include "proto/cm/cm_internal.h"

#include <errno.h>

static enum vb_cm_input input_of(const struct vb_cm_msg *msg)
{
	switch (msg->attribute) {
	case VB_CM_ATTR_REQ: return VB_CM_IN_RX_REQ;
	case VB_CM_ATTR_REJ: return VB_CM_IN_RX_REJ;
	case VB_CM_ATTR_REP: return VB_CM_IN_RX_REP;
	case VB_CM_ATTR_RTU: return VB_CM_IN_RX_RTU;
	case VB_CM_ATTR_DREQ: return VB_CM_IN_RX_DREQ;
	case VB_CM_ATTR_DREP: return VB_CM_IN_RX_DREP;
	case VB_CM_ATTR_SIDR_REQ: return VB_CM_IN_RX_SIDR_REQ;
	case VB_CM_ATTR_SIDR_REP: return VB_CM_IN_RX_SIDR_REP;
	case VB_CM_ATTR_LAP: return VB_CM_IN_RX_LAP;
	case VB_CM_ATTR_APR: return VB_CM_IN_RX_APR;
	case VB_CM_ATTR_MRA: break;
	}
	switch (vb_cm_mra_msg_message_mraed(vb_cm_mra_of(&msg->mad))) {
	case VB_CM_MRAED_REQ: return VB_CM_IN_RX_MRA_REQ;
	case VB_CM_MRAED_REP: return VB_CM_IN_RX_MRA_REP;
	}
	return VB_CM_IN_RX_APR;
}

static void step(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns, enum vb_cm_input input,
		 const struct vb_cm_rx *rx, enum vb_cm_rej_reason reason, struct vb_cm_out *out)
{
	struct vb_cm_step s = { .t = t, .now_ns = now_ns, .rx = rx, .reason = reason, .out = out,
				.service_timeout = t->config.mra_service_timeout };

	/* No received message is illegal: the rectangle has no such cell in these rows (tested). */
	(void)!vb_cm_step(c, input, &s);
}

/* ---- requests ---- */

/*
 * The peer acts as if this connection did not exist: so the connection is stale, and ends (12.9.8.3.1). The
 * sender may try again.
 */
static void refuse_stale(struct vb_cm_table *t, struct vb_cm_conn *old, uint64_t now_ns,
			 const struct vb_cm_rx *rx, struct vb_cm_out *out)
{
	t->counters.stale++;
	vb_cm_answer_rej(out, rx, VB_CM_REJ_STALE_CONN);
	step(t, old, now_ns, VB_CM_IN_STALE, NULL, 0, out);
}

/* A REQ with a known id is a repetition if it is about the same QP; else its sender was restarted. */
static bool is_repetition(const struct vb_cm_conn *c, const struct vb_cm_msg *msg)
{
	const struct vb_cm_req_msg *m = vb_cm_req_of(&msg->mad);

	return c->remote_qpn == vb_cm_req_msg_local_qpn(m) && c->remote_psn == vb_cm_req_msg_starting_psn(m);
}

static enum vb_cm_verdict receive_req(struct vb_cm_table *t, uint64_t now_ns, const struct vb_cm_rx *rx,
				      struct vb_cm_out *out)
{
	const struct vb_cm_msg *msg = &rx->msg;
	enum vb_cm_rej_reason fault = vb_cm_req_fault(&msg->mad);
	struct vb_cm_conn *c = vb_cm_conns_by_remote(t, false, rx->src_gid, vb_cm_msg_sender_id(msg));

	if (c && is_repetition(c, msg)) {
		step(t, c, now_ns, VB_CM_IN_RX_REQ, rx, 0, out);
		return VB_CM_HANDLED;
	}
	if (fault) {
		vb_cm_answer_rej(out, rx, fault);
		return VB_CM_HANDLED;
	}
	if (!c)
		c = vb_cm_conns_by_qpn(t, rx->src_gid, vb_cm_req_msg_local_qpn(vb_cm_req_of(&msg->mad)));
	if (!c)
		return VB_CM_NEW_REQUEST;
	refuse_stale(t, c, now_ns, rx, out);
	return VB_CM_HANDLED;
}

static enum vb_cm_verdict receive_sidr_req(struct vb_cm_table *t, uint64_t now_ns, const struct vb_cm_rx *rx,
					   struct vb_cm_out *out)
{
	struct vb_cm_conn *c = vb_cm_conns_by_remote(t, true, rx->src_gid, vb_cm_msg_sender_id(&rx->msg));

	if (!c)
		return VB_CM_NEW_SIDR_REQUEST;
	step(t, c, now_ns, VB_CM_IN_RX_SIDR_REQ, rx, 0, out);
	return VB_CM_HANDLED;
}

/* ---- messages to a comm id ---- */

static bool is_from_peer_address(const struct vb_cm_conn *c, const struct vb_cm_rx *rx)
{
	return vb_cm_gid_is_zero(c->peer_gid) || vb_cm_gid_is_zero(rx->src_gid) ||
	       !memcmp(c->peer_gid, rx->src_gid, sizeof(c->peer_gid));
}

/* Before the peer's comm id is known, only the receiver of our message knows its transaction id. */
static bool answers_us(const struct vb_cm_conn *c, const struct vb_cm_msg *msg)
{
	return c->remote_comm_id || vb_mad_transaction_id(&msg->mad) == c->tid;
}

static bool names_our_qpn(const struct vb_cm_conn *c, const struct vb_cm_msg *msg)
{
	if (msg->attribute == VB_CM_ATTR_DREQ)
		return vb_cm_dreq_msg_remote_qpn(vb_cm_dreq_of(&msg->mad)) == c->local_qpn;
	if (msg->attribute == VB_CM_ATTR_LAP)
		return vb_cm_lap_msg_remote_qpn(vb_cm_lap_of(&msg->mad)) == c->local_qpn;
	return true;
}

/*
 * Only an active side that gives up its REQ does not know our id. It identifies itself by its CA GUID. An
 * established connection ignores it.
 */
static struct vb_cm_conn *find_abandoned(const struct vb_cm_table *t, const struct vb_cm_rx *rx)
{
	const struct vb_cm_rej_msg *m = vb_cm_rej_of(&rx->msg.mad);
	struct vb_cm_conn *c;

	if (rx->msg.attribute != VB_CM_ATTR_REJ || vb_cm_rej_msg_reason(m) != VB_CM_REJ_TIMEOUT ||
	    vb_cm_rej_msg_reject_info_length(m) < 8)
		return NULL;
	c = vb_cm_conns_by_remote(t, false, rx->src_gid, vb_cm_msg_sender_id(&rx->msg));
	if (!c || c->ca_guid != vb_field_get(vb_cm_rej_msg_ari(m), 0, 64))
		return NULL;
	return vb_cm_move(VB_CM_IN_ACCEPT, c->state)->kind != VB_CM_MOVE_ILLEGAL ||
			       vb_cm_move(VB_CM_IN_NOTIFY, c->state)->kind != VB_CM_MOVE_ILLEGAL ? c : NULL;
}

/* NULL: unknown. SIDR and connections do not answer to each other's messages. */
static struct vb_cm_conn *find_addressee(const struct vb_cm_table *t, const struct vb_cm_rx *rx)
{
	uint32_t id = vb_cm_msg_destination_id(&rx->msg), sender = vb_cm_msg_sender_id(&rx->msg);
	struct vb_cm_conn *c;

	if (!id)
		return find_abandoned(t, rx);
	c = vb_cm_conns_by_id(t, id);
	if (!c || c->state == VB_CM_CLOSED || c->sidr != (rx->msg.attribute == VB_CM_ATTR_SIDR_REP))
		return NULL;
	if (!c->sidr && c->remote_comm_id && c->remote_comm_id != sender)
		return NULL;
	return c;
}

/* The connection that already uses the QP that a REP for c offers, if there is one. */
static struct vb_cm_conn *find_stale_by_rep(const struct vb_cm_table *t, const struct vb_cm_conn *c,
					    const struct vb_cm_rx *rx)
{
	struct vb_cm_rep_info info;
	struct vb_cm_conn *other;

	if (rx->msg.attribute != VB_CM_ATTR_REP || c->remote_comm_id)
		return NULL;
	vb_cm_get_rep(&rx->msg.mad, c->xrc, &info);
	other = vb_cm_conns_by_qpn(t, c->peer_gid, info.qpn);
	return other == c ? NULL : other;
}

static void receive_for_id(struct vb_cm_table *t, uint64_t now_ns, const struct vb_cm_rx *rx,
			   struct vb_cm_out *out)
{
	enum vb_cm_rej_reason reason = 0;
	struct vb_cm_conn *c = find_addressee(t, rx), *stale;

	if (!c) {
		t->counters.unknown_id++;
		vb_cm_answer_unknown(rx, out);
		return;
	}
	if (!is_from_peer_address(c, rx) || !answers_us(c, &rx->msg) || !names_our_qpn(c, &rx->msg)) {
		t->counters.wrong_peer++;
		return;
	}
	vb_cm_keepalive_heard(t, c);
	stale = find_stale_by_rep(t, c, rx);
	if (stale) {
		refuse_stale(t, stale, now_ns, rx, out);
		step(t, c, now_ns, VB_CM_IN_RX_REJ, rx, VB_CM_REJ_STALE_CONN, out);
		return;
	}
	if (rx->msg.attribute == VB_CM_ATTR_REJ)
		reason = (enum vb_cm_rej_reason)vb_cm_rej_msg_reason(vb_cm_rej_of(&rx->msg.mad));
	step(t, c, now_ns, input_of(&rx->msg), rx, reason, out);
}

enum vb_cm_verdict vb_cm_receive(struct vb_cm_table *t, uint64_t now_ns, const struct vb_cm_rx *rx,
				 struct vb_cm_out *out)
{
	vb_cm_out_reset(out);
	t->counters.received++;
	if (rx->msg.attribute == VB_CM_ATTR_REQ)
		return receive_req(t, now_ns, rx, out);
	if (rx->msg.attribute == VB_CM_ATTR_SIDR_REQ)
		return receive_sidr_req(t, now_ns, rx, out);
	receive_for_id(t, now_ns, rx, out);
	return VB_CM_HANDLED;
}

void vb_cm_request_preview(const struct vb_cm_rx *rx, struct vb_cm_event *event)
{
	memset(event, 0, sizeof(*event));
	vb_cm_get_request(&rx->msg, event);
}

bool vb_cm_expire(struct vb_cm_table *t, uint64_t now_ns, struct vb_cm_out *out)
{
	struct vb_heap_node *first = vb_heap_first(&t->timers);
	struct vb_cm_step s = { .t = t, .now_ns = now_ns, .out = out, .status = -ETIMEDOUT };

	vb_cm_out_reset(out);
	if (!first || first->key > now_ns)
		return false;
	(void)!vb_cm_step(vb_container_of(first, struct vb_cm_conn, timer), VB_CM_IN_TIMER, &s);
	return true;
}
