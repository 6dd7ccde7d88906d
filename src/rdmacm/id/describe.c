/* SPDX-License-Identifier: BSD-2-Clause */
/* The ids of this process for inspection (adapter/inspection/inspect.h). */
#include <string.h>

#include "adapter/inspection/inspect.h"
#include "rdmacm/agent/channel.h"
#include "rdmacm/id/id.h"

static void describe_addresses(const struct vb_cma_id *id, struct vb_record_cm_id *r)
{
	memcpy(r->source, &id->src.ip, sizeof(r->source));
	memcpy(r->destination, &id->dst.ip, sizeof(r->destination));
	r->source_scope = id->src.scope;
	r->destination_scope = id->dst.scope;
	r->source_port = id->src.port;
	r->destination_port = id->dst.port;
}

/*
 * rdma(8) prints the kernel's states. The kernel has none for failures, nor for an id that has accepted and
 * is not established yet.
 */
static uint32_t kernel_state(enum vb_cma_state state)
{
	enum { IDLE, ADDR_QUERY, ADDR_RESOLVED, ROUTE_QUERY, ROUTE_RESOLVED, CONNECT, DISCONNECT, ADDR_BOUND,
		LISTEN };
	static const uint8_t states[] = {
		[VB_CMA_IDLE] = IDLE,
		[VB_CMA_BOUND] = ADDR_BOUND,
		[VB_CMA_RESOLVING] = ADDR_QUERY,
		[VB_CMA_ADDR_RESOLVED] = ADDR_RESOLVED,
		[VB_CMA_ROUTE_RESOLVED] = ROUTE_RESOLVED,
		[VB_CMA_CONNECTING] = CONNECT,
		[VB_CMA_LISTENING] = LISTEN,
		[VB_CMA_REQUESTED] = CONNECT,
		[VB_CMA_ACCEPTED] = CONNECT,
		[VB_CMA_CONNECTED] = CONNECT,
		[VB_CMA_CLOSED] = DISCONNECT,
		[VB_CMA_FAILED] = DISCONNECT,
	};

	return (unsigned)state < VB_ARRAY_LEN(states) ? states[state] : IDLE;
}

static void describe_id(const struct vb_cma_id *id, struct vb_record_cm_id *r)
{
	r->serial = id->serial;
	VB_RECORD_NAME(r->state, vb_cma_state_text(id->state));
	if (id->device)
		VB_RECORD_NAME(r->device, ibv_get_device_name(id->device->verbs->device));
	r->port_space = id->pub.ps;
	r->qp_type = id->pub.qp_type;
	r->qpn = id->qpn;
	r->is_sync = id->sync;
	r->kernel_state = kernel_state(id->state);
	r->events_told = id->events_taken;
	r->events_acked = id->events_acked;
	describe_addresses(id, r);
}

static bool describe_ids(struct vb_dump *dump, uint64_t *cursor)
{
	struct vb_cma_id *id;
	bool more = false;

	vb_cma_lock();
	vb_list_for_each(id, vb_cma_ids_locked(), node) {
		if (id->serial <= *cursor)
			continue;
		struct vb_record_cm_id *r = vb_dump_add(dump, VB_RECORD_CM_ID, sizeof(*r));
		more = !r;
		if (more)
			break;
		describe_id(id, r);
		*cursor = id->serial;
	}
	vb_cma_unlock();
	return more;
}

__attribute__((constructor)) static void offer(void)
{
	vb_inspect_offer(VB_RECORD_CM_ID, describe_ids);
}
