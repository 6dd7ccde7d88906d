/* SPDX-License-Identifier: BSD-2-Clause */
/* The receives of queue pairs: posting, completion, and what the error state makes of them. */
#include "adapter/progress/path.h"
#include "adapter/queues/completion.h"
#include "adapter/queues/counter.h"
#include "adapter/queues/noted.h"
#include "adapter/queues/queue.h"
#include "adapter/queues/tags.h"
#include "base/log.h"
#include "proto/ud.h"

/* ---- completion ---- */

void vb_receive_complete(struct vb_qp *qp, struct vb_cqe *e)
{
	e->qp = qp;
	e->is_recv = 1;
	e->is_srq = qp->srq != NULL;
	if (e->is_srq)
		e->srq = qp->srq;
	if (vb_likely(e->status == IBV_WC_SUCCESS))
		vb_traffic_add(&qp->received, e->byte_len - (e->wc_flags & IBV_WC_GRH ? VB_GRH_BYTES : 0));
	if (vb_unlikely(qp->counts_receives))
		vb_counter_add(qp, IBV_WC_RECV, e->status, e->byte_len);
	if (vb_unlikely(qp->tags != NULL)) {
		vb_tags_complete(qp, e);
		return;
	}
	if (vb_likely(qp->recv_cq != NULL))
		vb_cq_push(qp->recv_cq, e);
	else
		vb_srq_complete(qp, e);
}

void vb_receives_flush(struct vb_qp *qp)
{
	struct vb_rwqe rwqe;
	if (qp->xrcd) {
		vb_srq_release(qp);
		return;
	}
	if (qp->tags)
		vb_tags_flush(qp);
	if (qp->srq) {
		vb_async_raise(qp->ctx, IBV_EVENT_QP_LAST_WQE_REACHED, VB_ASYNC_QP, qp, &qp->async, 0);
		return;
	}
	while (vb_rq_take(&qp->rq, &rwqe))
		vb_receive_complete(qp, &(struct vb_cqe){ .wr_id = rwqe.wr_id, .status = IBV_WC_WR_FLUSH_ERR,
							  .opcode = IBV_WC_RECV });
}

/* ---- posting ---- */

/* Out of line: else every post would save the registers that it needs. */
__attribute__((noinline)) void vb_qp_notice_receive(struct vb_qp *qp)
{
	const struct vb_path_ops *path = atomic_load(&qp->path);
	if (atomic_load(&qp->state) == IBV_QPS_ERR) {
		vb_lock(&qp->resp_lock);
		vb_receives_flush(qp);
		vb_unlock(&qp->resp_lock);
	} else if (path && path->receive) {
		path->receive(qp);
	}
}

/* It notifies even if no request was posted: the responder then finds nothing. */
static inline int post(struct vb_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	if (vb_unlikely(qp->rq.is_closed ||
			atomic_load_explicit(&qp->state, memory_order_relaxed) == IBV_QPS_RESET)) {
		*bad = wr;
		vb_explain("ibv_post_recv", "%s",
			   qp->rq.is_closed ? "the queue pair takes its receives from an SRQ: post them there" :
					      "the queue pair is in RESET: move it to INIT first");
		return EINVAL;
	}
	int err = vb_rq_post(&qp->rq, wr, bad);
	if (vb_unlikely(err))
		vb_rq_explain(&qp->rq, "ibv_post_recv", err);
	if (vb_unlikely(atomic_load_explicit(&qp->rq.starved, memory_order_relaxed) ||
			atomic_load(&qp->state) == IBV_QPS_ERR))
		vb_qp_notice_receive(qp);
	return err;
}

/* The time first: a message may take the receive at once. */
static __attribute__((noinline, cold)) int post_and_note(struct vb_qp *qp, struct ibv_recv_wr *wr,
							 struct ibv_recv_wr **bad)
{
	struct vb_capture_moment moment = vb_capture_begin();
	int err = post(qp, wr, bad);
	vb_note_posted_receives(moment, (struct vb_noted_post){ .qp = qp, .err = err }, wr, bad);
	return err;
}

__attribute__((flatten)) int vb_qp_post_recv(struct vb_qp *qp, struct ibv_recv_wr *wr,
					     struct ibv_recv_wr **bad)
{
	return vb_qp_is_captured(qp) ? post_and_note(qp, wr, bad) : post(qp, wr, bad);
}
