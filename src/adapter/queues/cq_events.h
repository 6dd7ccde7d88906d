/* SPDX-License-Identifier: BSD-2-Clause */
/* Events of completion queues, as the queues use them (the calls are in adapter/object.h). */
#ifndef VB_ADAPTER_CQ_EVENTS_H
#define VB_ADAPTER_CQ_EVENTS_H

#include "adapter/object.h"

/* What they need of a CQ whose channel is set. */
void vb_cq_events_init(struct vb_cq *cq);
/* Waits for its events to be acknowledged. */
void vb_cq_events_fini(struct vb_cq *cq);

/* Does the CQ's arming ask for an event of this completion? cq->lock is held, as below. */
static inline bool vb_cq_wants_event(const struct vb_cq *cq, const struct vb_cqe *e)
{
	return cq->armed == 1 ||
	       (cq->armed == 2 && ((e->is_recv && e->solicited) || e->status != IBV_WC_SUCCESS));
}

/* One more completion waits for a moderated event. True: as many wait as one event is for. */
bool vb_cq_event_is_due(struct vb_cq *cq);
/* Queues an event of cq. No lock held. */
void vb_channel_notify(struct vb_channel *ch, struct vb_cq *cq);
/* Before a CQ goes: drops its queued events and waits until those handed out are acknowledged. */
void vb_channel_forget(struct vb_channel *ch, struct vb_cq *cq);

#endif
