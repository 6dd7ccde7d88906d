/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a completion gets into its CQ. Hot producers build it in place, between vb_cq_open and vb_cq_close:
 * copying it from the stack defeats store forwarding.
 */
#ifndef VB_ADAPTER_COMPLETION_H
#define VB_ADAPTER_COMPLETION_H

#include "adapter/queues/queue.h"

/* vb_cq_close for completions that need more than a store. cq->lock is held, and released. */
void vb_cq_push_and_unlock(struct vb_cq *cq, const struct vb_cqe *cqe);

/* Where the next completion goes. cq->lock is held from its return on, until vb_cq_close. */
static inline struct vb_cqe *vb_cq_open(struct vb_cq *cq)
{
	vb_lock(&cq->lock);
	if (vb_unlikely(cq->armed || vb_cq_is(cq, VB_CQ_ANY) || cq->tail - cq->head >= cq->capacity))
		return &cq->spare;
	return &cq->ring[cq->tail & cq->mask];
}

/*
 * The caller has written all of it but qp_num. On overrun the completion is lost, the CQ is broken for good,
 * IBV_EVENT_CQ_ERR is raised, and the queue pairs that use the CQ go to the error state soon.
 */
static inline void vb_cq_close(struct vb_cq *cq, struct vb_cqe *cqe)
{
	if (vb_unlikely(cqe == &cq->spare)) {
		vb_cq_push_and_unlock(cq, cqe);
		return;
	}
	cqe->qp_num = cqe->qp->qpn;
	cq->hot = cqe->qp;
	cq->tail++;
	vb_unlock(&cq->lock);
}

static inline void vb_cq_push(struct vb_cq *cq, const struct vb_cqe *cqe)
{
	struct vb_cqe *to = vb_cq_open(cq);
	*to = *cqe;
	vb_cq_close(cq, to);
}

/* Of the program's request before sq.head; opcode: enum ibv_wc_opcode. */
static inline void vb_cq_push_send(struct vb_qp *qp, uint64_t wr_id, unsigned opcode, uint32_t bytes,
				   enum ibv_wc_status status)
{
	struct vb_cqe *e = vb_cq_open(qp->send_cq);
	*e = (struct vb_cqe){ .wr_id = wr_id, .qp = qp, .status = status, .opcode = opcode, .byte_len = bytes,
			      .sq_position = qp->sq.head - qp->sq.own_done };
	vb_cq_close(qp->send_cq, e);
}

/*
 * As vb_sq_complete, faster if the entry is a SEND of the program's whose completion calls for nothing else.
 */
static inline void vb_sq_complete_likely_send(struct vb_qp *qp, const struct vb_sqe *sqe)
{
	if (vb_unlikely(sqe->opcode != IBV_WR_SEND || (sqe->flags & VB_SQE_OWN) || qp->after_send)) {
		vb_sq_complete(qp);
		return;
	}
	qp->sq.head++;
	vb_traffic_add(&qp->done[VB_TRAFFIC_SEND], sqe->length);
	if (vb_sq_signals(qp, sqe->flags))
		vb_cq_push_send(qp, sqe->wr_id, IBV_WC_SEND, sqe->length, IBV_WC_SUCCESS);
}

#endif
