/* SPDX-License-Identifier: BSD-2-Clause */
/* The user's calls: check the arguments, then take one step. */
#include "base/nanoseconds.h"
#include "proto/cm/cm_internal.h"

#include <errno.h>
#include <string.h>

#define MAX_EXPONENT 31

enum { RETURNED_FOR_GOOD = 3 }; /* the first time may be a process that is just being started anew */
#define HELD_BACK_NS (68 * VB_NS_PER_S) /* how long a kernel's CM tries: 16 times 4.3 s */

static struct vb_cm_step begin(struct vb_cm_table *t, uint64_t now_ns, struct vb_cm_out *out)
{
	out->num_sends = out->num_events = 0;
	return (struct vb_cm_step){ .t = t, .now_ns = now_ns, .out = out };
}

static bool fits(struct vb_cm_data data, size_t max) { return data.len <= max && (data.bytes || !data.len); }

static bool is_legal(const struct vb_cm_conn *c, enum vb_cm_input input)
{
	return !c->destroyed && vb_cm_move(input, c->state)->kind != VB_CM_MOVE_ILLEGAL;
}

static int take_step(struct vb_cm_conn *c, enum vb_cm_input input, struct vb_cm_step *s)
{
	return is_legal(c, input) ? vb_cm_step(c, input, s) : -EINVAL;
}

/* Whether a fresh connection may begin under this id. */
static int check_begin(const struct vb_cm_table *t, const struct vb_cm_conn *c, enum vb_cm_input input,
		       const struct vb_cm_endpoint *ep)
{
	if (!ep->comm_id || !is_legal(c, input))
		return -EINVAL;
	return vb_cm_conns_by_id(t, ep->comm_id) ? -EEXIST : 0;
}

static bool is_path_valid(const struct vb_cm_path *p)
{
	return p->flow_label < 1u << 20 && p->mtu >= 1 && p->mtu <= 5 && p->rate < 64 && p->sl < 16 &&
	       p->packet_lifetime <= MAX_EXPONENT && p->local_ack_timeout <= MAX_EXPONENT;
}

static bool is_req_valid(const struct vb_cm_req_info *r)
{
	return r->qpn < 1u << 24 && r->starting_psn < 1u << 24 && r->transport <= VB_CM_XRC &&
	       r->transport != VB_CM_RD && r->retry_count <= 7 && r->rnr_retry_count <= 7 &&
	       r->local_cm_response_timeout <= MAX_EXPONENT &&
	       r->remote_cm_response_timeout <= MAX_EXPONENT && r->max_cm_retries <= 15 &&
	       r->ece.vendor_id < 1u << 24 && is_path_valid(&r->path);
}

static bool is_rep_valid(const struct vb_cm_rep_info *r)
{
	return r->qpn < 1u << 24 && r->starting_psn < 1u << 24 && r->target_ack_delay <= MAX_EXPONENT &&
	       r->failover <= 2 && r->rnr_retry_count <= 7 && r->ece.vendor_id < 1u << 24;
}

int vb_cm_connect(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns,
		  const struct vb_cm_endpoint *ep, const struct vb_cm_route *to,
		  const struct vb_cm_req_info *info, struct vb_cm_data private_data, struct vb_cm_out *out)
{
	struct vb_cm_step s = begin(t, now_ns, out);
	int rc = check_begin(t, c, VB_CM_IN_CONNECT, ep);

	if (rc)
		return rc;
	if (!is_req_valid(info) || !fits(private_data, vb_cm_req_msg_private_data_bytes))
		return -EINVAL;
	s.ep = ep;
	s.to = to;
	s.req = info;
	s.private_data = private_data;
	return take_step(c, VB_CM_IN_CONNECT, &s);
}

int vb_cm_sidr_connect(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns,
		       const struct vb_cm_endpoint *ep, const struct vb_cm_route *to,
		       const struct vb_cm_sidr_info *info, struct vb_cm_data private_data,
		       struct vb_cm_out *out)
{
	struct vb_cm_step s = begin(t, now_ns, out);
	int rc = check_begin(t, c, VB_CM_IN_SIDR_CONNECT, ep);

	if (rc)
		return rc;
	if (!info->timeout_ns || info->max_retries > 15 ||
	    !fits(private_data, vb_cm_sidr_req_msg_private_data_bytes))
		return -EINVAL;
	s.ep = ep;
	s.to = to;
	s.sidr = info;
	s.private_data = private_data;
	return take_step(c, VB_CM_IN_SIDR_CONNECT, &s);
}

int vb_cm_request(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns,
		  const struct vb_cm_endpoint *ep, const struct vb_cm_rx *rx, uint8_t packet_lifetime,
		  struct vb_cm_out *out)
{
	struct vb_cm_step s = begin(t, now_ns, out);
	bool sidr = rx->msg.attribute == VB_CM_ATTR_SIDR_REQ;
	enum vb_cm_input input = sidr ? VB_CM_IN_SIDR_REQUEST : VB_CM_IN_REQUEST;
	int rc = check_begin(t, c, input, ep);

	if (rc)
		return rc;
	if ((!sidr && rx->msg.attribute != VB_CM_ATTR_REQ) || packet_lifetime > MAX_EXPONENT)
		return -EINVAL;
	if (vb_cm_conns_by_remote(t, sidr, rx->src_gid, vb_cm_msg_sender_id(&rx->msg)))
		return -EEXIST;
	s.ep = ep;
	s.rx = rx;
	s.packet_lifetime = packet_lifetime;
	return take_step(c, input, &s);
}

int vb_cm_mra(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns, uint8_t service_timeout,
	      struct vb_cm_data private_data, struct vb_cm_out *out)
{
	struct vb_cm_step s = begin(t, now_ns, out);

	if (service_timeout > MAX_EXPONENT || !fits(private_data, vb_cm_mra_msg_private_data_bytes))
		return -EINVAL;
	s.service_timeout = service_timeout;
	s.private_data = private_data;
	return take_step(c, VB_CM_IN_MRA, &s);
}

int vb_cm_accept(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns,
		 const struct vb_cm_rep_info *info, struct vb_cm_data private_data, struct vb_cm_out *out)
{
	struct vb_cm_step s = begin(t, now_ns, out);

	if (!is_rep_valid(info) || !fits(private_data, vb_cm_rep_msg_private_data_bytes))
		return -EINVAL;
	s.rep = info;
	s.private_data = private_data;
	return take_step(c, VB_CM_IN_ACCEPT, &s);
}

int vb_cm_reject(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns, enum vb_cm_rej_reason reason,
		 struct vb_cm_data additional, struct vb_cm_data private_data, struct vb_cm_out *out)
{
	struct vb_cm_step s = begin(t, now_ns, out);

	if ((unsigned)reason - 1 >= 0xffff || !fits(additional, vb_cm_rej_msg_ari_bytes) ||
	    !fits(private_data, vb_cm_rej_msg_private_data_bytes))
		return -EINVAL;
	s.reason = reason;
	s.additional = additional;
	s.private_data = private_data;
	return take_step(c, VB_CM_IN_REJECT, &s);
}

int vb_cm_establish(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns,
		    struct vb_cm_data private_data, struct vb_cm_out *out)
{
	struct vb_cm_step s = begin(t, now_ns, out);

	if (!fits(private_data, vb_cm_rtu_msg_private_data_bytes))
		return -EINVAL;
	s.private_data = private_data;
	return take_step(c, VB_CM_IN_ESTABLISH, &s);
}

int vb_cm_notify_established(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns,
			     struct vb_cm_out *out)
{
	struct vb_cm_step s = begin(t, now_ns, out);

	return take_step(c, VB_CM_IN_NOTIFY, &s);
}

int vb_cm_disconnect(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns,
		     struct vb_cm_data private_data, struct vb_cm_out *out)
{
	struct vb_cm_step s = begin(t, now_ns, out);
	size_t max = c->state == VB_CM_DREQ_RCVD ? vb_cm_drep_msg_private_data_bytes
						 : vb_cm_dreq_msg_private_data_bytes;

	if (!fits(private_data, max))
		return -EINVAL;
	s.private_data = private_data;
	return take_step(c, VB_CM_IN_DISCONNECT, &s);
}

bool vb_cm_repeat_dreq(struct vb_cm_conn *c, struct vb_cm_out *out)
{
	struct vb_cm_step s = begin(NULL, 0, out);

	if (c->state != VB_CM_DREQ_SENT)
		return false;
	vb_cm_repeat(c, &s);
	return true;
}

bool vb_cm_repeat_drep(struct vb_cm_conn *c, struct vb_cm_out *out)
{
	struct vb_cm_step s = begin(NULL, 0, out);

	if (c->state != VB_CM_TIMEWAIT || !c->has_last || vb_mad_attribute_id(&c->last) != VB_CM_ATTR_DREP)
		return false;
	vb_cm_repeat(c, &s);
	return true;
}

void vb_cm_destroy(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns, struct vb_cm_out *out)
{
	struct vb_cm_step s = begin(t, now_ns, out);

	if (c->destroyed)
		return;
	if (c->state == VB_CM_IDLE) {
		vb_cm_out_event(out, c, VB_CM_EV_RELEASE, 0);
		c->state = VB_CM_CLOSED;
		return;
	}
	vb_cm_conns_mark_destroyed(t, c);
	/* A later DREQ is answered at once, because no user will do so. */
	c->auto_drep = true;
	s.reason = VB_CM_REJ_CONSUMER_DEFINED;
	s.sidr_status = VB_CM_SIDR_REJECT;
	/* The row has no illegal cell (tested). */
	(void)!vb_cm_step(c, VB_CM_IN_DESTROY, &s);
	vb_cm_conns_evict(t, out);
}

void vb_cm_peer_died(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns, struct vb_cm_out *out)
{
	struct vb_cm_step s = begin(t, now_ns, out);

	s.status = -ECONNRESET;
	(void)!vb_cm_step(c, VB_CM_IN_PEER_DIED, &s);
}

void vb_cm_held_back(struct vb_cm_table *t, uint64_t now_ns, uint32_t repeats)
{
	struct vb_cm_conn *c = vb_cm_conns_by_id(t, repeats);

	if (c && !c->retries_left && now_ns - c->asked_ns < HELD_BACK_NS)
		c->retries_left = 1;
}

/* If the peer has sent messages on this connection, ICMP alone ends it only when it is over anyway. */
static bool may_be_gone(const struct vb_cm_conn *c)
{
	return c->state == VB_CM_REQ_SENT || c->state == VB_CM_SIDR_REQ_SENT || c->state == VB_CM_DREQ_SENT;
}

/* Only somebody who has seen the message knows the numbers in the quotation. */
static bool is_its_message(const struct vb_cm_conn *c, const struct vb_cm_msg *msg, const uint8_t host[16])
{
	return c->has_last && !memcmp(&c->last, &msg->mad, sizeof(c->last)) &&
	       !memcmp(c->peer_gid, host, sizeof(c->peer_gid));
}

void vb_cm_returned(struct vb_cm_table *t, uint64_t now_ns, const struct vb_cm_msg *msg,
		    const uint8_t host[16], struct vb_cm_out *out)
{
	struct vb_cm_step s = begin(t, now_ns, out);
	struct vb_cm_conn *c = vb_cm_conns_by_id(t, vb_cm_msg_sender_id(msg));

	if (!c || !is_its_message(c, msg, host))
		return;
	vb_cm_keepalive_returned(t, c, now_ns);
	if (!may_be_gone(c) || ++c->returned < RETURNED_FOR_GOOD)
		return;
	s.status = -EHOSTUNREACH;
	(void)!vb_cm_step(c, VB_CM_IN_PEER_DIED, &s);
}

void vb_cm_packet_returned(struct vb_cm_table *t, uint64_t now_ns, uint32_t remote_qpn,
			   const uint8_t host[16])
{
	struct vb_cm_conn *c = vb_cm_conns_by_qpn(t, host, remote_qpn);

	if (c)
		vb_cm_keepalive_returned(t, c, now_ns);
}

int vb_cm_sidr_reply(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns,
		     const struct vb_cm_sidr_reply *reply, struct vb_cm_data private_data,
		     struct vb_cm_out *out)
{
	struct vb_cm_step s = begin(t, now_ns, out);
	struct vb_cm_sidr_rep_info info = { .qpn = reply->qpn, .qkey = reply->qkey, .ece = reply->ece };

	if ((unsigned)reply->status > 0xff || reply->qpn >= 1u << 24 ||
	    !fits(reply->additional, vb_cm_sidr_rep_msg_additional_info_bytes) ||
	    !fits(private_data, vb_cm_sidr_rep_msg_private_data_bytes))
		return -EINVAL;
	s.sidr_status = reply->status;
	s.sidr_rep = &info;
	s.additional = reply->additional;
	s.private_data = private_data;
	return take_step(c, VB_CM_IN_SIDR_REPLY, &s);
}

const char *vb_cm_event_name(enum vb_cm_event_type type)
{
	static const char *const names[VB_CM_EV_COUNT] = {
#define X(name, text) text,
		VB_CM_EVENTS(X)
#undef X
	};

	return type < VB_CM_EV_COUNT ? names[type] : "?";
}
