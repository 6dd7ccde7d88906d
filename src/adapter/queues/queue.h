/* SPDX-License-Identifier: BSD-2-Clause */
/* The work queues as the paths use them. */
#ifndef VB_ADAPTER_QUEUE_H
#define VB_ADAPTER_QUEUE_H

#include <errno.h>

#include "adapter/object.h"

/*
 * Copies an entry member by member, as programs write it: one wide load of members that were just stored
 * defeats store forwarding.
 */
static inline void vb_sge_copy(struct ibv_sge *to, const struct ibv_sge *from)
{
	const volatile struct ibv_sge *f = from; /* else the compiler makes one load of them */
	to->addr = f->addr;
	to->length = f->length;
	to->lkey = f->lkey;
}

/* ---- receive queues ---- */

int vb_rq_init(struct vb_rq *rq, struct vb_pd *pd, uint32_t max_wr, uint32_t max_sge);
void vb_rq_fini(struct vb_rq *rq);
void vb_rq_reset(struct vb_rq *rq);
/* A receive may have been posted. In the error state it is flushed; else a starved responder goes on. */
void vb_qp_notice_receive(struct vb_qp *qp);
/* Does the QP accept packets in this state? */
static inline bool vb_qp_listens(const struct vb_qp *qp)
{
	enum ibv_qp_state state = atomic_load(&qp->state);
	return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

/* Receives that messages for qp would find now: a hint. */
uint32_t vb_receives_waiting(const struct vb_qp *qp);
/*
 * Takes the oldest receive for qp's responder: from its SRQ if it has one. False: none there, and the QP is
 * noted as starved.
 */
bool vb_receive_take(struct vb_qp *qp, struct vb_rwqe *out);
enum vb_fit { VB_FIT_NONE, VB_FIT_SHORT, VB_FIT_TAKEN };
/* The same without waiting for a receive. A receive with too little room stays queued; *out describes it. */
enum vb_fit vb_receive_take_if_fits(struct vb_qp *qp, uint64_t bytes, struct vb_rwqe *out);
/*
 * The same of an SRQ whose lock is held. *limit_hit: the caller raises the event (vb_srq_raise_limit) when it
 * has let go.
 */
bool vb_srq_take_locked(struct vb_qp *qp, struct vb_rwqe *out, bool *limit_hit);
void vb_srq_raise_limit(struct vb_srq *srq);
/* A receiving XRC queue pair lets its queue go, if it has one. resp_lock is held. */
void vb_srq_release(struct vb_qp *qp);
/* The same with the receive's completion, to the queue's own CQ. */
void vb_srq_complete(struct vb_qp *qp, const struct vb_cqe *cqe);
/* Schedules the responders that wait for a post to an SRQ. */
void vb_srq_wake_starved(struct vb_srq *srq);
/* A receive as it lies in its queue. */
struct vb_receive {
	uint64_t wr_id;
	uint32_t nsge;
	uint32_t reserved;
	struct ibv_sge sge[];
};

static inline struct vb_receive *vb_receive_at(const struct vb_rq *rq, uint32_t position)
{
	return (struct vb_receive *)(rq->entries + (size_t)(position & rq->mask) * rq->stride);
}

/* 0, or the errno value with which a receive is refused that would be posted at this position. */
static inline int vb_rq_refusal(const struct vb_rq *rq, const struct ibv_recv_wr *wr, uint32_t position)
{
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
		return EINVAL;
	return position - atomic_load_explicit(&rq->polled, memory_order_acquire) >= rq->max_wr ? ENOMEM : 0;
}

static inline int vb_rq_post_one_locked(struct vb_rq *rq, const struct ibv_recv_wr *wr)
{
	uint32_t tail = atomic_load_explicit(&rq->tail, memory_order_acquire);
	int err = vb_rq_refusal(rq, wr, tail);
	if (err)
		return err;
	struct vb_receive *s = vb_receive_at(rq, tail);
	s->wr_id = wr->wr_id;
	s->nsge = wr->num_sge;
	for (int i = 0; i < wr->num_sge; i++)
		vb_sge_copy(&s->sge[i], &wr->sg_list[i]);
	atomic_store_explicit(&rq->tail, tail + 1, memory_order_release);
	return 0;
}

/* What vb_rq_post's errno value means for the program's call of this name. */
void vb_rq_explain(const struct vb_rq *rq, const char *call, int err) __attribute__((cold));
/* 0 or an errno value, *bad the first request not taken. */
static inline int vb_rq_post(struct vb_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err = 0;
	vb_lock(&rq->lock);
	for (; wr; wr = wr->next) {
		err = vb_rq_post_one_locked(rq, wr);
		if (vb_unlikely(err)) {
			*bad = wr;
			break;
		}
	}
	vb_unlock(&rq->lock);
	return err;
}

/*
 * The oldest receive of the QP's own queue, in place until vb_receive_pass takes it; NULL: none, or they are
 * an SRQ's. resp_lock is held.
 */
static inline const struct vb_receive *vb_receive_peek(const struct vb_qp *qp)
{
	const struct vb_rq *rq = &qp->rq;
	uint32_t head = atomic_load_explicit(&rq->head, memory_order_relaxed);
	if (vb_unlikely(head == atomic_load_explicit(&rq->tail, memory_order_acquire)))
		return NULL; /* as the queue of a QP with an SRQ always is */
	return vb_receive_at(rq, head);
}

static inline void vb_receive_pass(struct vb_qp *qp)
{
	struct vb_rq *rq = &qp->rq;
	atomic_store_explicit(&rq->head, atomic_load_explicit(&rq->head, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	if (vb_unlikely(atomic_load_explicit(&rq->starved, memory_order_relaxed)))
		atomic_store_explicit(&rq->starved, false, memory_order_relaxed);
}

/* The domain that the keys of qp's receives are of. */
static inline uint32_t vb_receive_domain(const struct vb_qp *qp)
{
	return (vb_unlikely(qp->srq != NULL) ? qp->srq->pd : qp->pd)->number;
}

/* Takes the oldest of a queue; false if it is empty. */
bool vb_rq_take(struct vb_rq *rq, struct vb_rwqe *out);
/* Does a receive of these or earlier laps name any of the bytes? */
bool vb_rq_names(struct vb_rq *rq, uint64_t addr, uint64_t bytes);
/* Receives that are posted and not taken. */
uint32_t vb_rq_waiting(const struct vb_rq *rq);

/* The protection domain that the peer's accesses are checked against; 0: none now. resp_lock is held. */
static inline uint32_t vb_qp_domain(const struct vb_qp *qp)
{
	if (vb_likely(qp->pd != NULL))
		return qp->pd->number;
	return qp->srq ? qp->srq->pd->number : 0;
}

/* ---- send queues ---- */

static inline struct vb_sqe *vb_sq_at(const struct vb_sq *sq, uint32_t position)
{
	return (struct vb_sqe *)(sq->entries + (size_t)(position & sq->mask) * sq->stride);
}

/*
 * How many of the program's entries are in use: their places are not free yet. There are at most max_wr of
 * them, so 16 bits of each position are enough. sq.lock is held.
 */
static inline uint16_t vb_sq_in_use(const struct vb_sq *sq)
{
	return (uint16_t)(sq->tail - sq->own_posted -
			  atomic_load_explicit(&sq->retired, memory_order_acquire));
}

/* Has anything begun that has not ended? sq.lock is held. */
static inline bool vb_sq_is_busy(const struct vb_sq *sq) { return sq->head != sq->sent || sq->begun; }

/* Of a UD queue pair. */
static inline struct vb_datagram_to *vb_sqe_to(const struct vb_sq *sq, const struct vb_sqe *sqe)
{
	return (struct vb_datagram_to *)((uint8_t *)sqe + sq->stride - sizeof(struct vb_datagram_to));
}

/* Where an XRC queue pair's entry, at its end, names the peer's shared receive queue that it is for. */
static inline uint32_t *vb_sqe_srqn_at(const struct vb_sq *sq, const struct vb_sqe *sqe)
{
	return (uint32_t *)((uint8_t *)(uintptr_t)sqe + sq->stride - sizeof(uint32_t));
}

/* The queue's number; 0 for queue pairs of other types. */
static inline uint32_t vb_sqe_srqn(const struct vb_qp *qp, const struct vb_sqe *sqe)
{
	return vb_unlikely(qp->type == IBV_QPT_XRC_SEND) ? *vb_sqe_srqn_at(&qp->sq, sqe) : 0;
}

/* Of a segment that is to be cut up. */
static inline uint8_t *vb_sqe_header(const struct vb_sq *sq, const struct vb_sqe *sqe)
{
	return (uint8_t *)(uintptr_t)sqe + sq->stride - sq->header_room;
}

/* The atomics whose answer is what was there; opcode: enum ibv_wr_opcode. */
static inline bool vb_wr_is_atomic(unsigned opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Does the answer to such a request bring data? */
static inline bool vb_wr_fetches(unsigned opcode)
{
	return opcode == IBV_WR_RDMA_READ || vb_wr_is_atomic(opcode);
}

/* Marks a posted request as one that fails on this side, whatever the peer answers. */
static inline void vb_sqe_fail(struct vb_sqe *sqe, enum ibv_wc_status status) { sqe->status = status; }

/*
 * Does this side alone execute it (a window's bind or invalidation)? It waits until all before it is
 * complete.
 */
static inline bool vb_sqe_is_local(const struct vb_sqe *sqe)
{
	return sqe->opcode == IBV_WR_BIND_MW || sqe->opcode == IBV_WR_LOCAL_INV;
}

/*
 * Carries out and completes the oldest entry, which is local and not sent yet; false: the QP has failed over
 * it. sq.lock is held.
 */
bool vb_sq_execute(struct vb_qp *qp);

/*
 * max_rd_atomic has become 0: READs and atomics that wait in the queue fail as those that are posted from now
 * on. sq.lock is held.
 */
void vb_sq_forbid_reads(struct vb_qp *qp);

/* Has one of its CQs overrun? Then its completions get lost, and it cannot go on. */
static inline bool vb_qp_loses_completions(const struct vb_qp *qp)
{
	return vb_cq_is(qp->send_cq, VB_CQ_OVERRUN) || vb_cq_is(qp->recv_cq, VB_CQ_OVERRUN);
}

/* Does the program get a completion if it succeeds? */
static inline bool vb_sq_signals(const struct vb_qp *qp, unsigned send_flags)
{
	return qp->sq_sig_all || (send_flags & IBV_SEND_SIGNALED);
}
/* Completes the oldest entry successfully; sq.lock is held. */
void vb_sq_complete(struct vb_qp *qp);
/*
 * The QP goes to the error state: what the peer has finished completes, the oldest entry that it has not
 * fails with this status, the rest is flushed. why: a sentence for the log, or NULL. sq.lock is held.
 */
void vb_qp_fail(struct vb_qp *qp, enum ibv_wc_status status, const char *why);
/*
 * The same where a send error leaves the receives alone (UD): the send queue is flushed and stops, the QP is
 * in SQE. sq.lock is held.
 */
void vb_qp_fail_sends(struct vb_qp *qp, enum ibv_wc_status status, const char *why);
/*
 * The responder found an error that breaks the connection (no lock held); raises event
 * (IBV_EVENT_QP_ACCESS_ERR, …) unless it is -1.
 */
void vb_qp_break(struct vb_qp *qp, int event);
/*
 * A request of the peer was executed: raises COMM_EST if the program has not gone on to RTS yet. resp_lock is
 * held.
 */
void vb_qp_established(struct vb_qp *qp);
/*
 * The peer has gone: what it had finished counts, the oldest entry that it had not finished fails as after
 * the last retry. No lock held.
 */
void vb_qp_peer_lost(struct vb_qp *qp);
/* Completes a receive: fills in whose it is; imm in network order. */
void vb_receive_complete(struct vb_qp *qp, struct vb_cqe *e);
/* The error state: receives that wait complete as flushed. resp_lock is held. */
void vb_receives_flush(struct vb_qp *qp);

#endif
