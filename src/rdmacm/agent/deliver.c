/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From the machine's events to the program's, usually in the progress thread. event.c does the rest in the
 * thread that takes the event.
 */
#include <stdlib.h>
#include <string.h>

#include "rdmacm/agent/agent.h"
#include "wire/ip_cm.h"

static void fill_conn(struct rdma_conn_param *p, uint32_t qpn, uint8_t peer_responder_resources,
		      uint8_t peer_initiator_depth, bool flow_control, uint8_t rnr_retry_count, bool srq)
{
	p->qp_num = qpn;
	p->responder_resources = peer_initiator_depth;
	p->initiator_depth = peer_responder_resources;
	p->flow_control = flow_control;
	p->rnr_retry_count = rnr_retry_count;
	p->srq = srq;
}

static void set_ece(struct vb_cma_event *event, const struct vb_cm_ece *ece)
{
	event->ece.vendor_id = ece->vendor_id;
	event->ece.options = ece->attr_mod;
}

/* The private data begins with addresses that the program does not see. */
static void hide_addresses(struct vb_cma_event *event, const struct vb_cm_blob *data)
{
	if (data->len > VB_IP_CM_BYTES)
		vb_cma_event_set_private_data(event, data->bytes + VB_IP_CM_BYTES,
					      data->len - VB_IP_CM_BYTES);
}

/* The event was made together with the id (id.c). */
static void deliver_request_locked(struct vb_cma_id *child, const struct vb_cm_event *e)
{
	struct vb_cma_event *event = child->request;

	hide_addresses(event, &e->private_data);
	if (e->type == VB_CM_EV_REQUEST) {
		const struct vb_cm_req_info *req = &e->info.req;
		fill_conn(&event->pub.param.conn, req->qpn, req->responder_resources, req->initiator_depth,
			  req->flow_control, req->rnr_retry_count, req->srq);
		event->pub.param.conn.retry_count = req->retry_count;
		set_ece(event, &req->ece);
	}
	child->request = NULL;
	child->listener->backlog_left--;
	vb_cma_event_queue_locked(event);
}

static void deliver_rep_locked(struct vb_cma_id *id, const struct vb_cm_event *e)
{
	const struct vb_cm_rep_info *rep = &e->info.rep;
	struct vb_cma_event *event = vb_cma_event_create(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);

	id->agreed.remote_qpn = rep->qpn;
	id->agreed.remote_psn = rep->starting_psn;
	id->agreed.responder_resources = rep->initiator_depth;
	id->agreed.initiator_depth = rep->responder_resources;
	id->agreed.rnr_retry_count = rep->rnr_retry_count;
	if (!event)
		return;
	fill_conn(&event->pub.param.conn, rep->qpn, rep->responder_resources, rep->initiator_depth,
		  rep->flow_control, rep->rnr_retry_count, rep->srq);
	set_ece(event, &rep->ece);
	vb_cma_event_set_private_data(event, e->private_data.bytes, e->private_data.len);
	vb_cma_event_queue_locked(event);
}

static void deliver_reject_locked(struct vb_cma_id *id, const struct vb_cm_event *e)
{
	struct vb_cma_event *event = vb_cma_event_create(id, RDMA_CM_EVENT_REJECTED, e->status);

	if (!event)
		return;
	vb_cma_event_set_private_data(event, e->private_data.bytes, e->private_data.len);
	vb_cma_event_queue_locked(event);
}

static void deliver_sidr_rep_locked(struct vb_cma_id *id, const struct vb_cm_event *e)
{
	bool found = e->status == VB_CM_SIDR_SUCCESS;
	enum rdma_cm_event_type type = found ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_UNREACHABLE;
	struct vb_cma_event *event = vb_cma_event_create(id, type, e->status);
	union ibv_gid dgid;

	id->state = found ? VB_CMA_CONNECTED : VB_CMA_FAILED;
	if (!event)
		return;
	if (found) {
		event->pub.param.ud.qp_num = e->info.sidr_rep.qpn;
		event->pub.param.ud.qkey = e->info.sidr_rep.qkey;
		memcpy(dgid.raw, &id->dst.ip, sizeof(dgid.raw));
		vb_cma_fill_ah(id, &dgid, &event->pub.param.ud.ah_attr);
	}
	set_ece(event, &e->info.sidr_rep.ece);
	vb_cma_event_set_private_data(event, e->private_data.bytes, e->private_data.len);
	vb_cma_event_queue_locked(event);
}

/*
 * Is the program still to answer the request of this id? It may not know the id yet, whose context is the
 * listener's until then. So the id's end is not reported, and rdma_accept fails.
 */
static bool is_unanswered(const struct vb_cma_id *id, const struct vb_cm_event *e)
{
	return id->state == VB_CMA_REQUESTED && e->type != VB_CM_EV_REQUEST &&
	       e->type != VB_CM_EV_SIDR_REQUEST;
}

void vb_cma_deliver_locked(const struct vb_cm_event *e)
{
	if (e->type == VB_CM_EV_RELEASE) {
		free(e->conn);
		return;
	}
	struct vb_cma_id *id = e->conn->user;
	if (!id)
		return; /* destroyed */
	if (is_unanswered(id, e)) {
		id->state = VB_CMA_FAILED;
		id->was_withdrawn = true;
		return;
	}
	switch (e->type) {
	case VB_CM_EV_REQUEST:
	case VB_CM_EV_SIDR_REQUEST:
		deliver_request_locked(id, e);
		return;
	case VB_CM_EV_REP:
		deliver_rep_locked(id, e);
		return;
	case VB_CM_EV_SIDR_REP:
		deliver_sidr_rep_locked(id, e);
		return;
	case VB_CM_EV_ESTABLISHED:
		id->state = VB_CMA_CONNECTED;
		vb_cma_event_raise_locked(id, RDMA_CM_EVENT_ESTABLISHED, e->status);
		return;
	case VB_CM_EV_REJECTED:
		id->state = VB_CMA_FAILED;
		deliver_reject_locked(id, e);
		return;
	case VB_CM_EV_UNREACHABLE:
		id->state = VB_CMA_FAILED;
		vb_cma_event_raise_locked(id, RDMA_CM_EVENT_UNREACHABLE, e->status);
		return;
	case VB_CM_EV_DISCONNECTED:
		id->state = VB_CMA_CLOSED;
		if (e->status == -EHOSTUNREACH)
			vb_explain(
				"rdma_cm",
				"the peer has ended without a word: no process has the RoCE port at its host any more, which that says by ICMP");
		/* To a peer a dead process is one that disconnected. */
		vb_cma_event_raise_locked(id, RDMA_CM_EVENT_DISCONNECTED,
					  e->status == -ETIMEDOUT ? e->status : 0);
		return;
	case VB_CM_EV_TIMEWAIT_EXIT:
		vb_cma_event_raise_locked(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
		return;
	case VB_CM_EV_RELEASE:
	case VB_CM_EV_COUNT:
		return;
	}
}
