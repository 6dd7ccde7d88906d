/* SPDX-License-Identifier: BSD-2-Clause */
/* How a completion gets into its CQ. Inline, so that it is written where it belongs and not first to the stack. */
#ifndef VB_ADAPTER_COMPLETION_H
#define VB_ADAPTER_COMPLETION_H

#include "adapter/object.h"

/* The rest of vb_cq_push where there is more to it than to put the completion there. cq->lock is held, and released. */
void vb_cq_push_locked(struct vb_cq *cq, const struct vb_cqe *cqe);

/* On overrun the completion is lost, the CQ is broken for good and IBV_EVENT_CQ_ERR is raised. */
static inline __attribute__((always_inline)) void vb_cq_push(struct vb_cq *cq, const struct vb_cqe *cqe)
{
	vb_lock(&cq->lock);
	if (vb_unlikely(cq->armed || cq->want_timestamp || cq->tail - cq->head >= cq->capacity)) {
		struct vb_cqe copy = *cqe; /* so that the other one needs no address */
		vb_cq_push_locked(cq, &copy);
		return;
	}
	struct vb_cqe *to = &cq->ring[cq->tail++ & cq->mask];
	*to = *cqe;
	to->qp_num = cqe->qp->qpn;
	cq->hot = cqe->qp;
	vb_unlock(&cq->lock);
}

#endif
