/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the moves of the rectangle do. Arguments are checked before (cm_calls.c, cm_receive.c): nothing fails
 * here.
 */
#include "proto/cm/cm_internal.h"

#include <errno.h>

uint64_t vb_cm_timeout_ns(uint8_t exponent)
{
	return UINT64_C(4096) << (exponent > 31 ? 31 : exponent);
}

/* For exponents that a peer chose. */
static uint64_t peer_timeout_ns(uint32_t exponent)
{
	return vb_cm_timeout_ns(exponent > VB_CM_MAX_PEER_TIMEOUT ? VB_CM_MAX_PEER_TIMEOUT :
								    (uint8_t)exponent);
}

/* ---- sending ---- */

static struct vb_mad *begin_message(struct vb_cm_conn *c, struct vb_cm_step *s,
				    enum vb_cm_attribute attribute)
{
	return vb_cm_out_send(s->out, &c->route, attribute, c->tid);
}

/* Remembers a message for repetition. */
static void keep(struct vb_cm_conn *c, const struct vb_mad *mad)
{
	c->last = *mad;
	c->has_last = true;
}

static void keep_for_retries(struct vb_cm_conn *c, struct vb_cm_step *s, const struct vb_mad *mad)
{
	keep(c, mad);
	c->asked_ns = s->now_ns;
	c->retries_left = c->max_retries;
	c->returned = 0;
}

void vb_cm_repeat(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	if (!c->has_last)
		return;
	vb_cm_out_send(s->out, &c->route, VB_CM_ATTR_REQ, 0);
	s->out->sends[s->out->num_sends - 1].mad = c->last;
	s->out->sends[s->out->num_sends - 1].repeats = c->local_comm_id;
}

static void send_mra(struct vb_cm_conn *c, struct vb_cm_step *s, enum vb_cm_mraed mraed)
{
	struct vb_mad *mad = begin_message(c, s, VB_CM_ATTR_MRA);
	struct vb_cm_mra_msg *m = vb_cm_mra_in(mad);

	vb_cm_mra_msg_set_local_comm_id(m, c->local_comm_id);
	vb_cm_mra_msg_set_remote_comm_id(m, c->remote_comm_id);
	vb_cm_mra_msg_set_message_mraed(m, mraed);
	vb_cm_mra_msg_set_service_timeout(m, s->service_timeout);
	vb_cm_mra_msg_set_private_data(m, s->private_data.bytes, s->private_data.len);
	/* The peer's repetitions may now come later by this. */
	c->linger_ns += vb_cm_timeout_ns(s->service_timeout) * (c->max_retries + 1u);
	keep(c, mad);
}

/* What a REJ from this state rejects. */
static enum vb_cm_rejected rejected_message(enum vb_cm_state state)
{
	switch (state) {
	case VB_CM_REQ_SENT:
	case VB_CM_MRA_REQ_RCVD:
	case VB_CM_REQ_RCVD:
	case VB_CM_MRA_REQ_SENT:
		return VB_CM_REJECTED_REQ;
	case VB_CM_REP_RCVD:
	case VB_CM_MRA_REP_SENT:
		return VB_CM_REJECTED_REP;
	case VB_CM_IDLE:
	case VB_CM_REP_SENT:
	case VB_CM_MRA_REP_RCVD:
	case VB_CM_ESTABLISHED:
	case VB_CM_DREQ_SENT:
	case VB_CM_DREQ_RCVD:
	case VB_CM_TIMEWAIT:
	case VB_CM_SIDR_REQ_SENT:
	case VB_CM_SIDR_REQ_RCVD:
	case VB_CM_LINGER:
	case VB_CM_CLOSED:
	case VB_CM_STATE_COUNT:
		break;
	}
	return VB_CM_REJECTED_OTHER;
}

static void send_rej(struct vb_cm_conn *c, struct vb_cm_step *s, enum vb_cm_rej_reason reason,
		     struct vb_cm_data additional)
{
	struct vb_mad *mad = begin_message(c, s, VB_CM_ATTR_REJ);
	struct vb_cm_rej_msg *m = vb_cm_rej_in(mad);

	vb_cm_rej_msg_set_local_comm_id(m, c->local_comm_id);
	vb_cm_rej_msg_set_remote_comm_id(m, c->remote_comm_id);
	vb_cm_rej_msg_set_message_rejected(m, rejected_message(c->state));
	vb_cm_rej_msg_set_reason(m, reason);
	vb_cm_rej_msg_set_reject_info_length(m, additional.len);
	vb_cm_rej_msg_set_ari(m, additional.bytes, additional.len);
	vb_cm_rej_msg_set_private_data(m, s->private_data.bytes, s->private_data.len);
	keep(c, mad);
}

/* A timeout names the CA GUID of the active side, since the other side may not know its id (table 109). */
static void send_rej_timeout(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	uint8_t guid[8];

	vb_field_set(guid, 0, 64, c->ca_guid);
	send_rej(c, s, VB_CM_REJ_TIMEOUT, VB_CM_DATA(guid, sizeof(guid)));
}

/* ---- beginning ---- */

static void begin_conn(struct vb_cm_conn *c, struct vb_cm_step *s, bool active)
{
	*c = (struct vb_cm_conn){
		.user = s->ep->user,
		.local_comm_id = s->ep->comm_id,
		.auto_drep = s->ep->auto_drep,
		.probes_peer = s->ep->probes_peer,
		.tid = s->ep->tid,
		.active = active,
	};
	vb_cm_conns_add(s->t, c);
}

bool vb_cm_do_nothing(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	(void)c, (void)s;
	return true;
}

bool vb_cm_do_send_req(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	const struct vb_cm_req_info *info = s->req;
	uint64_t path_ns = 2 * vb_cm_timeout_ns(info->path.packet_lifetime);
	struct vb_mad *mad;

	begin_conn(c, s, true);
	c->route = *s->to;
	memcpy(c->peer_gid, info->path.remote_gid, sizeof(c->peer_gid));
	c->local_qpn = info->qpn;
	c->service_id = info->service_id;
	c->ca_guid = info->ca_guid;
	c->xrc = info->transport == VB_CM_XRC;
	c->max_retries = info->max_cm_retries;
	c->timeout_ns = vb_cm_timeout_ns(info->remote_cm_response_timeout) + path_ns;
	c->timewait_ns = path_ns;
	/* As long as the peer may repeat its REP. */
	c->linger_ns = (vb_cm_timeout_ns(info->local_cm_response_timeout) + path_ns) * (c->max_retries + 2u);
	mad = begin_message(c, s, VB_CM_ATTR_REQ);
	vb_cm_put_req(mad, c, info);
	vb_cm_req_msg_set_private_data(vb_cm_req_in(mad), s->private_data.bytes, s->private_data.len);
	keep_for_retries(c, s, mad);
	return true;
}

bool vb_cm_do_send_sidr_req(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	struct vb_mad *mad;
	struct vb_cm_sidr_req_msg *m;

	begin_conn(c, s, true);
	c->sidr = true;
	c->route = *s->to;
	if (s->sidr->peer_gid)
		memcpy(c->peer_gid, s->sidr->peer_gid, sizeof(c->peer_gid));
	c->service_id = s->sidr->service_id;
	c->max_retries = s->sidr->max_retries;
	c->timeout_ns = s->sidr->timeout_ns;
	mad = begin_message(c, s, VB_CM_ATTR_SIDR_REQ);
	m = vb_cm_sidr_req_in(mad);
	vb_cm_sidr_req_msg_set_request_id(m, c->local_comm_id);
	vb_cm_sidr_req_msg_set_pkey(m, s->sidr->pkey);
	vb_cm_sidr_req_msg_set_service_id(m, c->service_id);
	vb_cm_sidr_req_msg_set_private_data(m, s->private_data.bytes, s->private_data.len);
	keep_for_retries(c, s, mad);
	return true;
}

static void begin_passive(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	const struct vb_cm_rx *rx = s->rx;
	struct vb_cm_event *ev;

	begin_conn(c, s, false);
	c->sidr = rx->msg.attribute == VB_CM_ATTR_SIDR_REQ;
	c->route = rx->from;
	memcpy(c->peer_gid, rx->src_gid, sizeof(c->peer_gid));
	c->tid = vb_mad_transaction_id(&rx->msg.mad);
	c->remote_comm_id = vb_cm_msg_sender_id(&rx->msg);
	c->service_id = vb_cm_msg_service_id(&rx->msg);
	vb_cm_conns_index_remote(s->t, c);
	ev = vb_cm_out_event(s->out, c, VB_CM_EV_REQUEST, 0);
	vb_cm_get_request(&rx->msg, ev);
}

bool vb_cm_do_take_req(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	uint64_t path_ns = 2 * vb_cm_timeout_ns(s->packet_lifetime);
	struct vb_cm_req_info info;

	begin_passive(c, s);
	vb_cm_get_req(&s->rx->msg.mad, &info);
	c->remote_qpn = info.qpn;
	c->remote_psn = info.starting_psn;
	c->ca_guid = info.ca_guid;
	c->xrc = info.transport == VB_CM_XRC;
	c->max_retries = info.max_cm_retries;
	c->timeout_ns = peer_timeout_ns(info.local_cm_response_timeout) + path_ns;
	c->timewait_ns = path_ns;
	/* As long as the peer may repeat its REQ. */
	c->linger_ns = (peer_timeout_ns(info.remote_cm_response_timeout) + path_ns) * (c->max_retries + 2u);
	vb_cm_conns_index_qpn(s->t, c);
	return true;
}

bool vb_cm_do_take_sidr_req(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	begin_passive(c, s);
	c->linger_ns = s->t->config.sidr_linger_ns;
	return true;
}

/* ---- the user's decisions ---- */

bool vb_cm_do_mra_req(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	send_mra(c, s, VB_CM_MRAED_REQ);
	return true;
}

bool vb_cm_do_mra_rep(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	send_mra(c, s, VB_CM_MRAED_REP);
	return true;
}

bool vb_cm_do_send_rep(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	struct vb_mad *mad = begin_message(c, s, VB_CM_ATTR_REP);

	c->local_qpn = s->rep->qpn;
	vb_cm_put_rep(mad, c, s->rep);
	vb_cm_rep_msg_set_private_data(vb_cm_rep_in(mad), s->private_data.bytes, s->private_data.len);
	keep_for_retries(c, s, mad);
	return true;
}

bool vb_cm_do_reject(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	send_rej(c, s, s->reason, s->additional);
	return true;
}

bool vb_cm_do_abort(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	send_rej_timeout(c, s);
	return true;
}

bool vb_cm_do_send_rtu(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	struct vb_mad *mad = begin_message(c, s, VB_CM_ATTR_RTU);
	struct vb_cm_rtu_msg *m = vb_cm_rtu_in(mad);

	vb_cm_rtu_msg_set_local_comm_id(m, c->local_comm_id);
	vb_cm_rtu_msg_set_remote_comm_id(m, c->remote_comm_id);
	vb_cm_rtu_msg_set_private_data(m, s->private_data.bytes, s->private_data.len);
	keep(c, mad);
	return true;
}

bool vb_cm_do_send_dreq(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	struct vb_mad *mad = begin_message(c, s, VB_CM_ATTR_DREQ);
	struct vb_cm_dreq_msg *m = vb_cm_dreq_in(mad);

	vb_cm_dreq_msg_set_local_comm_id(m, c->local_comm_id);
	vb_cm_dreq_msg_set_remote_comm_id(m, c->remote_comm_id);
	vb_cm_dreq_msg_set_remote_qpn(m, c->remote_qpn);
	vb_cm_dreq_msg_set_private_data(m, s->private_data.bytes, s->private_data.len);
	keep_for_retries(c, s, mad);
	return true;
}

bool vb_cm_do_send_drep(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	struct vb_mad *mad = begin_message(c, s, VB_CM_ATTR_DREP);
	struct vb_cm_drep_msg *m = vb_cm_drep_in(mad);

	vb_cm_drep_msg_set_local_comm_id(m, c->local_comm_id);
	vb_cm_drep_msg_set_remote_comm_id(m, c->remote_comm_id);
	vb_cm_drep_msg_set_private_data(m, s->private_data.bytes, s->private_data.len);
	keep(c, mad);
	return true;
}

bool vb_cm_do_send_sidr_rep(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	static const struct vb_cm_sidr_rep_info none;
	const struct vb_cm_sidr_rep_info *info = s->sidr_rep ? s->sidr_rep : &none;
	struct vb_mad *mad = begin_message(c, s, VB_CM_ATTR_SIDR_REP);
	struct vb_cm_sidr_rep_msg *m = vb_cm_sidr_rep_in(mad);

	vb_mad_set_attribute_modifier(mad, info->ece.attr_mod);
	vb_cm_sidr_rep_msg_set_vendor_id_high(m, info->ece.vendor_id >> 8);
	vb_cm_sidr_rep_msg_set_vendor_id_low(m, info->ece.vendor_id);
	vb_cm_sidr_rep_msg_set_request_id(m, c->remote_comm_id);
	vb_cm_sidr_rep_msg_set_status(m, s->sidr_status);
	vb_cm_sidr_rep_msg_set_qpn(m, info->qpn);
	vb_cm_sidr_rep_msg_set_qkey(m, info->qkey);
	vb_cm_sidr_rep_msg_set_service_id(m, c->service_id);
	vb_cm_sidr_rep_msg_set_additional_info_length(m, s->additional.len);
	vb_cm_sidr_rep_msg_set_additional_info(m, s->additional.bytes, s->additional.len);
	vb_cm_sidr_rep_msg_set_private_data(m, s->private_data.bytes, s->private_data.len);
	keep(c, mad);
	return true;
}

/* ---- events ---- */

/* An event with the private data of the message that caused it, if one did. NULL if the user gave up. */
static struct vb_cm_event *report(struct vb_cm_conn *c, struct vb_cm_step *s, enum vb_cm_event_type type,
				  int status)
{
	struct vb_cm_event *ev = vb_cm_out_event(s->out, c, type, status);
	const uint8_t *data;
	size_t len;

	if (ev && s->rx) {
		data = vb_cm_msg_private_data(&s->rx->msg, &len);
		vb_cm_blob_set(&ev->private_data, data, len);
	}
	return ev;
}

bool vb_cm_do_established(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	report(c, s, VB_CM_EV_ESTABLISHED, 0);
	return true;
}

bool vb_cm_do_unreachable(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	report(c, s, VB_CM_EV_UNREACHABLE, s->status);
	return true;
}

bool vb_cm_do_disconnected(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	report(c, s, VB_CM_EV_DISCONNECTED, s->status);
	return true;
}

bool vb_cm_do_timewait_exit(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	report(c, s, VB_CM_EV_TIMEWAIT_EXIT, 0);
	return true;
}

/* ---- received messages ---- */

bool vb_cm_do_mra_received(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	s->mra_wait_ns =
		peer_timeout_ns(vb_cm_mra_msg_service_timeout(vb_cm_mra_of(&s->rx->msg.mad))) + c->timeout_ns;
	return true;
}

/* The reason is an argument because a REP from a stale connection ends this one as well. */
bool vb_cm_do_rejected(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	struct vb_cm_event *ev = report(c, s, VB_CM_EV_REJECTED, (int)s->reason);

	if (ev && s->rx->msg.attribute == VB_CM_ATTR_REJ) {
		const struct vb_cm_rej_msg *m = vb_cm_rej_of(&s->rx->msg.mad);

		vb_cm_blob_set(&ev->additional, vb_cm_rej_msg_ari(m), vb_cm_rej_msg_reject_info_length(m));
	}
	c->has_last = false;
	return true;
}

bool vb_cm_do_rep_received(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	struct vb_cm_rep_info info;
	struct vb_cm_event *ev;

	vb_cm_get_rep(&s->rx->msg.mad, c->xrc, &info);
	c->route = s->rx->from; /* from here on the peer itself, no longer its listener */
	c->remote_comm_id = vb_cm_msg_sender_id(&s->rx->msg);
	c->remote_qpn = info.qpn;
	c->timewait_ns += peer_timeout_ns(info.target_ack_delay);
	c->has_last = false;
	vb_cm_conns_index_qpn(s->t, c);
	ev = report(c, s, VB_CM_EV_REP, 0);
	if (ev)
		vb_cm_get_rep(&s->rx->msg.mad, c->xrc, &ev->info.rep);
	return true;
}

bool vb_cm_do_dreq_received(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	report(c, s, VB_CM_EV_DISCONNECTED, 0);
	if (c->auto_drep) {
		vb_cm_answer_drep(s->out, s->rx);
		return false;
	}
	c->tid = vb_mad_transaction_id(&s->rx->msg.mad);
	return true;
}

/* The RTU was lost or overtaken: a peer that disconnects was connected. */
bool vb_cm_do_dreq_before_rtu(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	vb_cm_out_event(s->out, c, VB_CM_EV_ESTABLISHED, 0);
	return vb_cm_do_dreq_received(c, s);
}

bool vb_cm_do_dreq_crossed(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	report(c, s, VB_CM_EV_DISCONNECTED, 0);
	vb_cm_answer_drep(s->out, s->rx);
	return true;
}

bool vb_cm_do_sidr_rep_received(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	const struct vb_cm_sidr_rep_msg *m = vb_cm_sidr_rep_of(&s->rx->msg.mad);
	struct vb_cm_event *ev = report(c, s, VB_CM_EV_SIDR_REP, (int)vb_cm_sidr_rep_msg_status(m));

	if (ev) {
		vb_cm_get_sidr_rep(&s->rx->msg.mad, &ev->info.sidr_rep);
		vb_cm_blob_set(&ev->additional, vb_cm_sidr_rep_msg_additional_info(m),
			       vb_cm_sidr_rep_msg_additional_info_length(m));
	}
	return true;
}

/* A repeated REP reaches an established active side: its RTU was lost. */
bool vb_cm_do_repeat_rtu(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	if (c->active)
		vb_cm_repeat(c, s);
	return true;
}

bool vb_cm_do_stale_req(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	(void)c;
	s->t->counters.stale++;
	vb_cm_answer_rej(s->out, s->rx, VB_CM_REJ_STALE_CONN);
	return true;
}

bool vb_cm_do_stale_rep(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	if (c->active)
		vb_cm_do_stale_req(c, s);
	return true;
}

bool vb_cm_do_answer_dreq(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	(void)c;
	vb_cm_answer_drep(s->out, s->rx);
	return true;
}

bool vb_cm_do_answer_lap(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	(void)c;
	vb_cm_answer_apr(s->out, s->rx, VB_CM_AP_NOT_SUPPORTED);
	return true;
}

/* The peer's host knows no such connection. */
bool vb_cm_do_peer_unknown(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	vb_cm_keepalive_unknown(s->t, c, s->now_ns);
	return vb_cm_do_disconnected(c, s);
}

/* ---- timers ---- */

static bool retry(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	if (!c->retries_left) {
		s->t->counters.timeouts++;
		return false;
	}
	c->retries_left--;
	s->t->counters.retransmits++;
	vb_cm_repeat(c, s);
	return true;
}

bool vb_cm_do_retry(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	if (retry(c, s))
		return true;
	if (!c->sidr)
		send_rej_timeout(c, s);
	vb_cm_do_unreachable(c, s);
	return false;
}

bool vb_cm_do_retry_dreq(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	if (retry(c, s))
		return true;
	vb_cm_do_disconnected(c, s);
	return false;
}

bool vb_cm_do_probe(struct vb_cm_conn *c, struct vb_cm_step *s)
{
	if (!c->is_gone) {
		vb_cm_repeat(c, s);
		vb_cm_keepalive_probed(s->t, c, s->now_ns);
		return true;
	}
	s->status = -EHOSTUNREACH;
	vb_cm_do_disconnected(c, s);
	return false;
}
