/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Taking events. The thread that takes one does what could not be done under the lock when it was queued: it
 * ties a new id to its device, and moves the QP, which may call into libibverbs.
 *
 * A synchronous id, created without a channel, has one of its own. A call that leads to an event waits for
 * the event, which stays at id->event until the next such call.
 */
#include <stdio.h>
#include <string.h>

#include "host/ipc/capture.h"
#include "rdmacm/agent/agent.h"
#include "rdmacm/calls.h"
#include "rdmacm/id/id.h"

/* The addresses in a request are without the interface that a link-local one needs. */
static int attach_child(struct vb_cma_id *child)
{
	struct vb_cma_addr src = child->src, dst = child->dst;
	int err = vb_cma_id_attach(child);

	if (err)
		return err;
	src.scope = IN6_IS_ADDR_LINKLOCAL(&src.ip) ? child->ifindex : 0;
	dst.scope = IN6_IS_ADDR_LINKLOCAL(&dst.ip) ? child->ifindex : 0;
	vb_cma_lock();
	vb_cma_id_set_src_locked(child, &src);
	vb_cma_id_set_dst_locked(child, &dst);
	vb_cma_unlock();
	return child->agreed.path.mtu > (uint8_t)child->mtu ? -EMSGSIZE : 0;
}

static void reject_locked(struct vb_cma_id *id, enum vb_cm_rej_reason reason)
{
	struct vb_cm_out out;

	if (id->conn && !vb_cm_reject(vb_cma_table_locked(), id->conn, vb_now_ns(), reason, VB_CM_NO_DATA,
				      VB_CM_NO_DATA, &out))
		vb_cma_agent_run_locked(&out);
}

static bool finish_request(struct vb_cma_event *event)
{
	struct vb_cma_id *child = vb_cma_id_of(event->pub.id);
	char text[VB_CMA_TEXT];
	int err = attach_child(child);

	if (!err && event->owner->sync)
		err = vb_cma_id_migrate(child, NULL);
	child->remote_ece = event->ece;
	if (!err)
		return true;
	vb_explain("rdma_get_cm_event", "a request for %s is refused: %s",
		   vb_cma_addr_text(&child->src, text), strerror(-err));
	vb_cma_lock();
	if (err == -EMSGSIZE) /* both ends must cut messages into equal packets, and the REP has no MTU */
		reject_locked(child, VB_CM_REJ_INVALID_MTU);
	vb_cma_id_discard_locked(child);
	vb_cma_unlock();
	return false;
}

int vb_cma_establish(struct vb_cma_id *id)
{
	struct vb_cm_out out;
	int err = -EINVAL;

	vb_cma_lock();
	if (id->state == VB_CMA_CONNECTING && id->conn)
		err = vb_cm_establish(vb_cma_table_locked(), id->conn, vb_now_ns(), VB_CM_NO_DATA, &out);
	if (!err) {
		id->state = VB_CMA_CONNECTED;
		vb_cma_agent_run_locked(&out);
	}
	vb_cma_unlock();
	return err;
}

static void refuse_response(struct vb_cma_id *id)
{
	id->qp_failed = true;
	vb_cma_qp_fail(id);
	vb_cma_lock();
	reject_locked(id, VB_CM_REJ_CONSUMER_DEFINED);
	id->state = VB_CMA_FAILED;
	vb_cma_unlock();
}

static bool finish_response(struct vb_cma_event *event)
{
	struct vb_cma_id *id = event->owner;

	id->remote_ece = event->ece;
	if (!id->pub.qp)
		return true;
	int err = vb_cma_qp_connect(id);
	if (!err) {
		event->pub.event = RDMA_CM_EVENT_ESTABLISHED;
		return vb_cma_establish(id) == 0; /* if it is gone, the event that says so follows */
	}
	refuse_response(id);
	event->pub.event = RDMA_CM_EVENT_CONNECT_ERROR;
	event->pub.status = err;
	return true;
}

static bool finish_end(struct vb_cma_event *event)
{
	struct vb_cma_id *id = event->owner;

	if (id->qp_failed)
		return false;
	/* Until rdma_disconnect our end stays: what has arrived completes, nothing is flushed. */
	if (event->pub.event == RDMA_CM_EVENT_DISCONNECTED)
		id->is_end_known = true;
	else
		vb_cma_qp_fail(id);
	return true;
}

static bool finish(struct vb_cma_event *event)
{
	switch (event->pub.event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return finish_request(event);
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		return finish_response(event);
	case RDMA_CM_EVENT_ADDR_ERROR:
		vb_cma_id_unresolve(event->owner);
		return true;
	case RDMA_CM_EVENT_MULTICAST_JOIN:
		return vb_cma_group_joined(event);
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_DISCONNECTED:
		return finish_end(event);
	default: /* the other types need nothing more */
		return true;
	}
}

/* For a capture. */
static void note(const struct rdma_cm_event *event)
{
	char text[64];

	snprintf(text, sizeof(text), event->status ? "%s, status %d" : "%s", rdma_event_str(event->event),
		 event->status);
	vb_capture_event(&(struct vb_capture_event){ .event = VB_EVENT_CM,
						     .qpn = event->id->qp ? vb_cma_id_of(event->id)->qpn : 0,
						     .opcode = event->event,
						     .status = (uint32_t)event->status },
			 text);
}

/* ---- the calls ---- */

VB_EXPORT int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **out)
{
	struct vb_cma_event *event;

	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!channel || !out)
		return vb_cma_fail(EINVAL, "channel or event pointer is NULL");
	for (;;) {
		int err = vb_cma_channel_take(channel, &event);
		if (err) {
			errno = -err; /* EAGAIN and EINTR need no explanation */
			return -1;
		}
		if (finish(event))
			break;
		vb_cma_event_acknowledge(event);
	}
	if (vb_capture_is_on())
		note(&event->pub);
	*out = &event->pub;
	return 0;
}

VB_EXPORT int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status,
				  uint64_t arg)
{
	if (!id)
		return vb_cma_fail(EINVAL, "id is NULL");
	if (type != RDMA_CM_EVENT_USER)
		return vb_cma_fail(EINVAL, "%s: only RDMA_CM_EVENT_USER is the program's to give",
				   rdma_event_str(type));
	vb_cma_lock();
	struct vb_cma_event *event = id->channel ? vb_cma_event_create(vb_cma_id_of(id), type, status) : NULL;
	if (event) {
		event->pub.param.arg = arg;
		vb_cma_event_queue_locked(event);
	}
	int err = event ? 0 : id->channel ? ENOMEM : EINVAL;
	vb_cma_unlock();
	return err ? vb_cma_fail(err,
				 err == EINVAL ? "the id's channel is gone" : "no memory for the event") :
		     0;
}

static int outcome(const struct rdma_cm_event *event)
{
	if (!event->status)
		return 0;
	if (event->event == RDMA_CM_EVENT_REJECTED)
		return ECONNREFUSED;
	return event->status < 0 ? -event->status : ECONNREFUSED;
}

int vb_cma_complete(struct vb_cma_id *id, const char *call)
{
	if (!id->sync)
		return 0;
	vb_cma_release_event(id);
	if (rdma_get_cm_event(id->pub.channel, &id->pub.event))
		return -1;
	int err = outcome(id->pub.event);
	if (!err)
		return 0;
	vb_explain(call, "%s, status %d", rdma_event_str(id->pub.event->event), id->pub.event->status);
	errno = err;
	return -1;
}
