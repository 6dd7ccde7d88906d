/* SPDX-License-Identifier: BSD-2-Clause */
/* Creating and destroying ids. */
#include <string.h>

#include "rdmacm/agent/agent.h"
#include "rdmacm/calls.h"
#include "rdmacm/id/id.h"

static enum ibv_qp_type qp_type_of(enum rdma_port_space ps)
{
	return ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
}

int vb_cma_create(const char *call, struct rdma_event_channel *channel, void *context,
		  enum rdma_port_space ps, enum ibv_qp_type qp_type, struct vb_cma_id **id)
{
	if (ps != RDMA_PS_TCP && ps != RDMA_PS_UDP && ps != RDMA_PS_IPOIB && ps != RDMA_PS_IB) {
		vb_explain(call, "port space 0x%x: RDMA_PS_TCP, _UDP, _IB and _IPOIB exist", (unsigned)ps);
		return -EINVAL;
	}
	int err = vb_cma_id_create(channel, context, ps, qp_type, id);
	if (err)
		vb_explain(call, "no id: %s", strerror(-err));
	return err;
}

VB_EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **pub, void *context,
			     enum rdma_port_space ps)
{
	struct vb_cma_id *id;

	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!pub)
		return vb_cma_fail(EINVAL, "there is nowhere to put the id: the pointer is NULL");
	int err = vb_cma_create(__func__, channel, context, ps, qp_type_of(ps), &id);
	if (!err)
		*pub = &id->pub;
	return vb_cma_result(err);
}

void vb_cma_destroy(struct vb_cma_id *id)
{
	vb_cma_release_event(id);
	vb_cma_lock();
	struct vb_cma_port *port = id->port, *reservation = id->reservation;
	id->port = id->reservation = NULL;
	id->state = VB_CMA_CLOSED;
	vb_cma_listener_remove_locked(id);
	vb_cma_unlock();
	vb_cma_port_close(port); /* no request arrives any more */
	vb_cma_port_close(reservation);
	vb_cma_lock();
	vb_cma_neighbour_forget_locked(id);
	vb_cma_lookup_forget_locked(id);
	vb_cma_id_quiesce_locked(id); /* queued requests are rejected with it */
	vb_cma_unlock();
	vb_cma_agent_flush();
	vb_cma_groups_leave(id);
	if (id->sync)
		vb_cma_channel_destroy(id->pub.channel);
	vb_cma_id_free(id);
}

VB_EXPORT int rdma_destroy_id(struct rdma_cm_id *id)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!id)
		return vb_cma_fail(EINVAL, "id is NULL");
	vb_cma_destroy(vb_cma_id_of(id));
	return 0;
}
