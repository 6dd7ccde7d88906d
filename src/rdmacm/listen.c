/* SPDX-License-Identifier: BSD-2-Clause */
/* Listening, and the ids of requests for synchronous listeners. */
#include <string.h>

#include "rdmacm/agent/channel.h"
#include "rdmacm/calls.h"
#include "rdmacm/id/id.h"

enum { MAX_BACKLOG = 16384 };

static int bind_to_listen(struct vb_cma_id *id, const char *call)
{
	struct vb_cma_addr addr;
	int err = 0;

	if (vb_cma_id_state(id) == VB_CMA_IDLE) {
		vb_cma_addr_any(AF_INET, &addr);
		err = vb_cma_id_bind(id, call, &addr);
	}
	if (err || id->port)
		return err;
	/* A reusable address: now it is taken. */
	addr = id->src;
	err = vb_cma_port_bind(id->pub.ps, &addr, id->afonly, &id->port);
	if (err)
		vb_explain(call, "port %u: %s", id->src.port, strerror(-err));
	return err;
}

static int listen_on(struct vb_cma_id *id, const char *call, int backlog)
{
	int err = bind_to_listen(id, call);

	if (err)
		return err;
	vb_cma_lock();
	id->backlog_left =
		backlog > 0 && backlog < MAX_BACKLOG ? (unsigned)backlog : MAX_BACKLOG;
	vb_cma_listener_add_locked(id);
	vb_cma_unlock();
	err = vb_cma_port_listen(id->port, vb_cma_packet_arrived, (void *)(uintptr_t)id->src.scope);
	if (!err)
		return 0;
	vb_explain(call, "port %u: %s", id->src.port, strerror(-err));
	vb_cma_lock();
	vb_cma_listener_remove_locked(id);
	id->state = VB_CMA_BOUND;
	vb_cma_unlock();
	return err;
}

VB_EXPORT int rdma_listen(struct rdma_cm_id *pub, int backlog)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!pub)
		return vb_cma_fail(EINVAL, "id is NULL");
	struct vb_cma_id *id = vb_cma_id_of(pub);

	enum vb_cma_state state = vb_cma_id_state(id);
	if (state != VB_CMA_BOUND && state != VB_CMA_IDLE)
		return vb_cma_fail(EINVAL, "the id is %s; only a bound one can listen",
				   vb_cma_state_text(state));
	int err = listen_on(id, __func__, backlog);
	if (!err)
		return 0;
	errno = -err;
	return -1;
}

VB_EXPORT int rdma_get_request(struct rdma_cm_id *pub, struct rdma_cm_id **out)
{
	struct rdma_cm_event *event;

	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!pub || !out)
		return vb_cma_fail(EINVAL, "id or the place for the new one is NULL");
	struct vb_cma_id *id = vb_cma_id_of(pub);
	if (!id->sync)
		return vb_cma_fail(EINVAL, "the id has an event channel: its requests come as events");
	if (vb_cma_id_state(id) != VB_CMA_LISTENING)
		return vb_cma_fail(EINVAL, "the id is %s, it does not listen", vb_cma_id_state_text(id));
	vb_cma_release_event(id);
	if (rdma_get_cm_event(pub->channel, &event))
		return -1;
	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		pub->event = event;
		return vb_cma_fail(EINVAL, "%s instead of a request", rdma_event_str(event->event));
	}
	struct rdma_cm_id *child = event->id;
	vb_cma_lock();
	vb_cma_event_give_locked(event, vb_cma_id_of(child));
	vb_cma_unlock();
	child->event = event;
	struct ibv_qp_init_attr *attr = id->child_qp_attr;
	struct ibv_qp_init_attr own = attr ? *attr : (struct ibv_qp_init_attr){ 0 };
	if (attr && rdma_create_qp(child, pub->pd, &own)) {
		int err = errno;
		vb_cma_destroy(vb_cma_id_of(child));
		errno = err;
		return -1;
	}
	*out = child;
	return 0;
}
