/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues: a ring under a lock that producers and pollers hold for a few entries' time. */
#include "adapter/queues/completion.h"

#include <errno.h>

#include "adapter/progress/path.h"
#include "adapter/progress/progress.h"
#include "adapter/queues/cq_events.h"
#include "adapter/queues/noted.h"
#include "adapter/queues/observer.h"
#include "base/log.h"

const struct vb_observer *vb_observer;

/* The places get other completions, of which none had an event. cq->lock is held. */
static void forget_report(struct vb_cq *cq)
{
	cq->backlog.reported_head = cq->backlog.reported_tail = cq->head;
}

int vb_cq_resize(struct vb_cq *cq, uint32_t cqe)
{
	if (!cqe || cqe > VB_MAX_CQE)
		return -EINVAL;
	uint32_t entries = vb_pow2_at_least(cqe);
	struct vb_queue_memory memory;
	int err = vb_queue_memory_take(&memory, cq->pd, entries * sizeof(*cq->ring));
	if (err)
		return err;
	struct vb_cqe *ring = memory.at;
	vb_lock(&cq->lock);
	uint32_t waiting = cq->tail - cq->head;
	bool fits = waiting <= cqe;
	struct vb_queue_memory unwanted = memory;
	if (fits) {
		for (uint32_t i = 0; i < waiting; i++)
			ring[i] = cq->ring[(cq->head + i) & cq->mask];
		unwanted = cq->memory;
		cq->memory = memory;
		cq->ring = ring;
		cq->mask = entries - 1;
		cq->capacity = cqe;
		cq->backlog.end -= cq->head;
		cq->head = 0;
		cq->tail = waiting;
		forget_report(cq);
	}
	vb_unlock(&cq->lock);
	vb_queue_memory_give(&unwanted, cq->pd);
	return fits ? 0 : -EINVAL;
}

/*
 * Gives the work request's place in its queue back to the program. cq->lock is held: it is the queue's only
 * consumer, an SRQ's aside.
 */
static inline void retire(const struct vb_cqe *e)
{
	if (!e->is_recv)
		atomic_store_explicit(&e->qp->sq.retired, e->sq_position, memory_order_release);
	else if (e->is_srq)
		atomic_fetch_add_explicit(&e->srq->rq.polled, 1, memory_order_release);
	else
		atomic_store_explicit(&e->qp->rq.polled,
				      atomic_load_explicit(&e->qp->rq.polled, memory_order_relaxed) + 1,
				      memory_order_release);
}

static void show(const struct vb_cqe *e, struct ibv_wc *wc)
{
	*wc = (struct ibv_wc){
		.wr_id = e->wr_id,
		.status = e->status,
		.opcode = e->opcode,
		.vendor_err = e->vendor_err,
		.byte_len = e->byte_len,
		.imm_data = e->imm,
		.qp_num = e->qp_num,
		.src_qp = e->src_qp,
		.wc_flags = e->wc_flags,
		.pkey_index = e->pkey_index,
		.sl = e->sl,
	};
}

/* Where a poll's completions go: one of the two. */
struct sink {
	struct vb_cqe *entries;
	struct ibv_wc *wcs;
};

/* cq->lock is held. */
static inline __attribute__((always_inline)) int take_locked(struct vb_cq *cq, uint32_t n, struct sink to)
{
	int got = 0;
	for (; (uint32_t)got < n && cq->head != cq->tail; got++) {
		const struct vb_cqe *e = &cq->ring[cq->head++ & cq->mask];
		retire(e);
		if (to.wcs)
			show(e, &to.wcs[got]);
		else
			to.entries[got] = *e;
	}
	return got;
}

/* News of the QP that had the last completion, which cannot go while it is hot. cq->lock is held. */
static inline enum vb_claim claim_news(struct vb_qp *hot)
{
	const struct vb_path_ops *path = hot ? atomic_load_explicit(&hot->path, memory_order_acquire) : NULL;
	return path && path->claim_news ? path->claim_news(hot) : VB_CLAIM_NONE;
}

/* Its path stays as long as the claim. */
static void take_news(struct vb_qp *hot, enum vb_claim claim)
{
	atomic_load_explicit(&hot->path, memory_order_relaxed)->take_news(hot, claim);
}

/*
 * Makes progress, and first at the QP that completed last. cq->lock is held, and released. False: nothing has
 * come.
 */
static __attribute__((noinline)) bool look_and_unlock(struct vb_cq *cq)
{
	struct vb_qp *hot = cq->hot;
	enum vb_claim claim = claim_news(hot);
	vb_unlock(&cq->lock);
	if (claim)
		take_news(hot, claim);
	return (claim && vb_likely(!vb_progress_is_due())) || vb_progress_poll(claim != VB_CLAIM_NONE);
}

/* The same of a queue that is special. cq->lock is held, and released. */
static __attribute__((noinline)) int poll_special(struct vb_cq *cq, uint32_t n, struct sink to)
{
	bool overrun = vb_cq_is(cq, VB_CQ_OVERRUN);
	if (cq->head == cq->tail && !overrun) {
		if (!look_and_unlock(cq))
			return 0;
		vb_lock(&cq->lock);
	}
	uint32_t first = cq->head;
	int got = take_locked(cq, n, to);
	if (vb_cq_is(cq, VB_CQ_CAPTURED))
		vb_note_polled(cq, first);
	vb_unlock(&cq->lock);
	vb_progress_note_completions();
	return !got && overrun ? -EIO : got;
}

static inline __attribute__((always_inline)) int poll(struct vb_cq *cq, uint32_t n, struct sink to)
{
	vb_lock(&cq->lock);
	if (vb_unlikely(vb_cq_is(cq, VB_CQ_ANY)))
		return poll_special(cq, n, to);
	if (cq->head == cq->tail) {
		if (!look_and_unlock(cq))
			return 0;
		vb_lock(&cq->lock);
	}
	int got = take_locked(cq, n, to);
	vb_unlock(&cq->lock);
	vb_progress_note_completions();
	return got;
}

int vb_cq_poll(struct vb_cq *cq, uint32_t n, struct vb_cqe *out)
{
	return poll(cq, n, (struct sink){ .entries = out });
}

int vb_cq_poll_wc(struct vb_cq *cq, uint32_t n, struct ibv_wc *out)
{
	return poll(cq, n, (struct sink){ .wcs = out });
}

/* ---- arrival ---- */

static void put(struct vb_cq *cq, const struct vb_cqe *cqe)
{
	struct vb_cqe *to = &cq->ring[cq->tail++ & cq->mask];
	*to = *cqe;
	to->qp_num = cqe->qp->qpn;
	if (vb_cq_is(cq, VB_CQ_TIMESTAMPS))
		to->timestamp_ns = vb_now_ns();
}

void vb_cq_push_and_unlock(struct vb_cq *cq, const struct vb_cqe *cqe)
{
	if (vb_unlikely(cq->tail - cq->head >= cq->capacity) && cq->ignores_overrun)
		retire(&cq->ring[cq->head++ & cq->mask]);
	struct vb_qp *qp = cqe->qp;
	bool lost = cq->tail - cq->head >= cq->capacity;
	bool first = lost && !vb_cq_is(cq, VB_CQ_OVERRUN);
	bool event = vb_cq_wants_event(cq, cqe) &&
		     (vb_likely(cq->moderate_count <= 1) || vb_cq_event_is_due(cq));
	if (vb_cq_is(cq, VB_CQ_CAPTURED) && !lost)
		vb_note_completion(cq, cqe);
	if (lost)
		vb_cq_mark(cq, VB_CQ_OVERRUN, true);
	else
		put(cq, cqe);
	if (event)
		cq->armed = 0;
	cq->hot = qp;
	vb_unlock(&cq->lock);
	if (vb_unlikely(lost))
		vb_timer_set(&cq->overrun, vb_now_ns());
	if (vb_unlikely(event) && cq->channel)
		vb_channel_notify(cq->channel, cq);
	if (vb_unlikely(first)) {
		vb_explain("completion",
			   "QP 0x%06x: its completion queue of %u entries is full: a completion is lost, the "
			   "queue is broken, and its queue pairs end",
			   qp->qpn, cq->capacity);
		if (vb_observer)
			vb_observer->cq_overran(cq, qp);
		vb_async_raise(cq->ctx, IBV_EVENT_CQ_ERR, VB_ASYNC_CQ, cq, &cq->async, 0);
	}
}

/* An XRC queue's stay when their queue pair goes, whose place in memory may be another one's by now. */
static bool is_of(const struct vb_cqe *e, const struct vb_qp *qp)
{
	return e->qp == qp && !(e->is_srq && e->srq->xrcd);
}

/* Takes out a QP's completions, or an SRQ's if qp is NULL. cq->lock is held. */
static void purge_locked(struct vb_cq *cq, const struct vb_qp *qp, const struct vb_srq *srq)
{
	uint32_t keep = cq->head;
	for (uint32_t i = cq->head; i != cq->tail; i++) {
		struct vb_cqe *e = &cq->ring[i & cq->mask];
		if (qp ? !is_of(e, qp) : !e->is_srq || e->srq != srq)
			cq->ring[keep++ & cq->mask] = *e;
		else if (e->is_srq)
			retire(e);
	}
	if (cq->tail != keep)
		forget_report(cq);
	cq->tail = keep;
}

void vb_cq_purge(struct vb_cq *cq, struct vb_qp *qp)
{
	vb_lock(&cq->lock);
	purge_locked(cq, qp, NULL);
	if (cq->hot == qp)
		cq->hot = NULL;
	vb_unlock(&cq->lock);
}

void vb_cq_forget(struct vb_cq *cq, struct vb_qp *qp)
{
	vb_lock(&cq->lock);
	if (cq->hot == qp)
		cq->hot = NULL;
	vb_unlock(&cq->lock);
}

/*
 * Clears `hot` whatever it is: an XRC_RECV QP that ends later visits only the CQs of SRQs that still exist.
 */
void vb_cq_purge_srq(struct vb_cq *cq, struct vb_srq *srq)
{
	vb_lock(&cq->lock);
	purge_locked(cq, NULL, srq);
	cq->hot = NULL;
	vb_unlock(&cq->lock);
}
