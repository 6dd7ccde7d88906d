/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Synchronous ids: created without a channel, they have one of their own, and a call that leads to an event
 * waits for it. The event stays at id->event until the next such call.
 */
#include <string.h>

#include "rdmacm/cma.h"

void vb_cma_release_event(struct vb_cma_id *id)
{
	struct rdma_cm_event *event = id->pub.event;

	id->pub.event = NULL;
	if (event)
		rdma_ack_cm_event(event);
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
