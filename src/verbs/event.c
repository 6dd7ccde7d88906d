/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion channels and asynchronous events. */
#include <stdlib.h>

#include "verbs/verbs.h"

/* ---- completion channels ---- */

VB_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	int err = vb_refuse_call(context, "ibv_create_comp_channel");
	if (err)
		return vb_fail_null(err);
	struct vb_verbs_channel *ch = calloc(1, sizeof(*ch));
	if (!ch)
		return vb_fail_null(-ENOMEM);
	err = vb_channel_init(&ch->ch);
	if (err) {
		vb_explain_limit("ibv_create_comp_channel", "no file descriptor for it: error %d", -err);
		free(ch);
		return vb_fail_null(err);
	}
	ch->pub.context = context;
	ch->pub.fd = ch->ch.notifier.fd;
	vb_verbs_context_hold(context);
	return &ch->pub;
}

/* A forked child only closes what it inherited. */
static int fini_channel(struct vb_verbs_channel *ch)
{
	if (!vb_is_inherited(ch->pub.context))
		return vb_channel_fini(&ch->ch);
	vb_notifier_fini(&ch->ch.notifier);
	return 0;
}

VB_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *pub)
{
	int fault = vb_fault_call("ibv_destroy_comp_channel", 0);
	if (fault)
		return vb_fail(fault);
	struct vb_verbs_channel *ch = vb_container_of(pub, struct vb_verbs_channel, pub);
	unsigned users = atomic_load(&ch->ch.refs);
	int err = fini_channel(ch);
	if (err) {
		vb_explain("ibv_destroy_comp_channel", "%u completion queues still use it", users);
		return vb_fail(err);
	}
	vb_verbs_context_release(pub->context);
	free(ch);
	return 0;
}

static int get_checked(struct vb_channel *ch, struct vb_cq **cq)
{
	struct vb_check_wait wait;
	int err;
	vb_check_wait_begin(&wait, ch);
	pthread_cleanup_push(vb_check_wait_end, &wait);
	err = vb_channel_get(ch, cq);
	pthread_cleanup_pop(true);
	return err;
}

VB_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct vb_verbs_channel *ch = vb_container_of(channel, struct vb_verbs_channel, pub);
	struct vb_cq *found;
	int err = vb_refuse_call(channel->context, "ibv_get_cq_event");
	if (!err)
		err = vb_check_enabled ? get_checked(&ch->ch, &found) : vb_channel_get(&ch->ch, &found);
	if (err)
		return vb_fail_minus1(err);
	*cq = &vb_container_of(found, struct vb_verbs_cq, cq)->pub;
	*cq_context = (*cq)->cq_context;
	return 0;
}

VB_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	if (nevents && !vb_is_inherited(cq->context))
		vb_cq_ack_events(vb_cq_of(cq), nevents);
}

/* ---- asynchronous events ---- */

static void show_event(const struct vb_async_event *e, struct ibv_async_event *pub)
{
	pub->event_type = e->type;
	switch (e->kind) {
	case VB_ASYNC_CQ:
		pub->element.cq = &vb_container_of(e->object, struct vb_verbs_cq, cq)->pub;
		break;
	case VB_ASYNC_QP:
		pub->element.qp = &vb_container_of(e->object, struct vb_verbs_qp, qp)->pub;
		break;
	case VB_ASYNC_SRQ:
		pub->element.srq = &vb_container_of(e->object, struct vb_verbs_srq, srq)->pub;
		break;
	case VB_ASYNC_PORT:
	case VB_ASYNC_DEVICE:
		pub->element.port_num = e->port;
		break;
	}
}

VB_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct vb_async_event *e;
	int err = vb_refuse_call(context, "ibv_get_async_event");
	if (!err)
		err = vb_async_get(&vb_verbs_context_of(context)->ctx, &e);
	if (err)
		return vb_fail_minus1(err);
	show_event(e, event);
	free(e);
	return 0;
}

static void ack(struct ibv_context *context, struct vb_async_source *source)
{
	if (!vb_is_inherited(context))
		vb_async_ack(&vb_verbs_context_of(context)->ctx, source);
}

VB_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		ack(event->element.cq->context, &vb_cq_of(event->element.cq)->async);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		ack(event->element.qp->context, &vb_qp_of(event->element.qp)->async);
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		ack(event->element.srq->context, &vb_srq_of(event->element.srq)->async);
		break;
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_DEVICE_SPEED_CHANGE:
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_WQ_FATAL:
		break; /* no object's destruction waits for these */
	}
}
