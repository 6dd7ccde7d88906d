/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receive queues, a QP's own and shared ones. A receive is copied out when it is taken, so entries are a
 * plain ring for both.
 */
#include <errno.h>
#include <string.h>

#include "adapter/progress/progress.h"
#include "adapter/queues/completion.h"
#include "adapter/queues/noted.h"
#include "base/log.h"

int vb_rq_init(struct vb_rq *rq, struct vb_pd *pd, uint32_t max_wr, uint32_t max_sge)
{
	memset(rq, 0, sizeof(*rq));
	vb_lock_init(&rq->lock);
	rq->max_wr = max_wr;
	rq->max_sge = max_sge;
	rq->mask = vb_pow2_at_least(max_wr) - 1;
	rq->stride = sizeof(struct vb_receive) + max_sge * sizeof(struct ibv_sge);
	rq->pd = pd;
	int err = vb_queue_memory_take(&rq->memory, pd, max_wr ? (size_t)(rq->mask + 1) * rq->stride : 0);
	rq->entries = rq->memory.at;
	return err;
}

void vb_rq_fini(struct vb_rq *rq)
{
	vb_queue_memory_give(&rq->memory, rq->pd);
	rq->entries = NULL;
}

void vb_rq_reset(struct vb_rq *rq)
{
	vb_lock(&rq->lock);
	atomic_store(&rq->tail, 0);
	atomic_store(&rq->head, 0);
	atomic_store(&rq->polled, 0);
	atomic_store_explicit(&rq->starved, false, memory_order_relaxed);
	vb_unlock(&rq->lock);
}

static uint32_t tail_of(const struct vb_rq *rq)
{
	return atomic_load_explicit(&rq->tail, memory_order_acquire);
}
static uint32_t head_of(const struct vb_rq *rq)
{
	return atomic_load_explicit(&rq->head, memory_order_relaxed);
}
static uint32_t waiting_in(const struct vb_rq *rq) { return tail_of(rq) - head_of(rq); }

uint32_t vb_receives_waiting(const struct vb_qp *qp)
{
	return waiting_in(qp->srq ? &qp->srq->rq : &qp->rq);
}

static inline void copy_out(const struct vb_receive *r, struct vb_rwqe *out)
{
	out->wr_id = r->wr_id;
	out->nsge = r->nsge;
	out->length = 0;
	for (uint32_t i = 0; i < r->nsge; i++) {
		out->sge[i] = r->sge[i];
		out->length += r->sge[i].length;
	}
}

/* Of a queue that is not empty; its head is the caller's. */
static inline void take(struct vb_rq *rq, struct vb_rwqe *out)
{
	uint32_t head = head_of(rq);
	copy_out(vb_receive_at(rq, head), out);
	atomic_store_explicit(&rq->head, head + 1, memory_order_relaxed);
}

bool vb_rq_take(struct vb_rq *rq, struct vb_rwqe *out)
{
	vb_lock(&rq->lock);
	bool there = waiting_in(rq);
	if (there)
		take(rq, out);
	vb_unlock(&rq->lock);
	return there;
}

bool vb_rq_names(struct vb_rq *rq, uint64_t addr, uint64_t bytes)
{
	bool found = false;
	vb_lock(&rq->lock);
	uint32_t n = rq->entries ? vb_min_u32(tail_of(rq), rq->mask + 1) : 0;
	for (uint32_t i = 0; i < n && !found; i++) {
		const struct vb_receive *s = vb_receive_at(rq, i);
		for (uint32_t k = 0; k < s->nsge && !found; k++)
			found = addr < s->sge[k].addr + s->sge[k].length && s->sge[k].addr < addr + bytes;
	}
	vb_unlock(&rq->lock);
	return found;
}

uint32_t vb_rq_waiting(const struct vb_rq *rq)
{
	return waiting_in(rq);
}

/* Under the lock the next post finds that the responder waits. */
static bool starve(struct vb_rq *rq, struct vb_rwqe *out)
{
	vb_lock(&rq->lock);
	bool there = waiting_in(rq);
	if (there)
		take(rq, out);
	atomic_store_explicit(&rq->starved, !there, memory_order_relaxed);
	vb_unlock(&rq->lock);
	return there;
}

static bool take_own(struct vb_qp *qp, struct vb_rwqe *out)
{
	struct vb_rq *rq = &qp->rq;
	out->pd = qp->pd->number;
	const struct vb_receive *oldest = vb_receive_peek(qp);
	if (vb_unlikely(!oldest))
		return starve(rq, out);
	copy_out(oldest, out);
	vb_receive_pass(qp);
	return true;
}

static inline bool srq_take_locked(struct vb_qp *qp, struct vb_rwqe *out, bool *limit_hit)
{
	struct vb_srq *srq = qp->srq;
	struct vb_rq *rq = &srq->rq;
	bool there = waiting_in(rq);
	if (there) {
		take(rq, out);
		*limit_hit = srq->limit && waiting_in(rq) < srq->limit;
		if (*limit_hit)
			srq->limit = 0;
	} else if (vb_list_is_empty(&qp->srq_node)) {
		vb_list_add_tail(&srq->starved, &qp->srq_node);
		atomic_store_explicit(&rq->starved, true, memory_order_relaxed);
	}
	return there;
}

bool vb_srq_take_locked(struct vb_qp *qp, struct vb_rwqe *out, bool *limit_hit)
{
	return srq_take_locked(qp, out, limit_hit);
}

void vb_srq_raise_limit(struct vb_srq *srq)
{
	vb_async_raise(srq->ctx, IBV_EVENT_SRQ_LIMIT_REACHED, VB_ASYNC_SRQ, srq, &srq->async, 0);
}

static bool take_shared(struct vb_qp *qp, struct vb_rwqe *out)
{
	struct vb_srq *srq = qp->srq;
	bool limit_hit = false;
	out->pd = srq->pd->number;
	vb_lock(&srq->rq.lock);
	bool there = srq_take_locked(qp, out, &limit_hit);
	vb_unlock(&srq->rq.lock);
	if (limit_hit)
		vb_srq_raise_limit(srq);
	return there;
}

bool vb_receive_take(struct vb_qp *qp, struct vb_rwqe *out)
{
	return qp->srq ? take_shared(qp, out) : take_own(qp, out);
}

static enum vb_fit take_own_if_fits(struct vb_qp *qp, uint64_t bytes, struct vb_rwqe *out)
{
	const struct vb_receive *oldest = vb_receive_peek(qp);
	if (!oldest)
		return VB_FIT_NONE;
	out->pd = qp->pd->number;
	copy_out(oldest, out);
	if (out->length < bytes)
		return VB_FIT_SHORT;
	vb_receive_pass(qp);
	return VB_FIT_TAKEN;
}

static enum vb_fit take_shared_if_fits(struct vb_qp *qp, uint64_t bytes, struct vb_rwqe *out)
{
	struct vb_srq *srq = qp->srq;
	struct vb_rq *rq = &srq->rq;
	bool limit_hit = false;
	enum vb_fit fit = VB_FIT_NONE;
	out->pd = srq->pd->number;
	vb_lock(&rq->lock);
	if (waiting_in(rq)) {
		copy_out(vb_receive_at(rq, head_of(rq)), out);
		fit = out->length < bytes ? VB_FIT_SHORT : VB_FIT_TAKEN;
	}
	if (fit == VB_FIT_TAKEN)
		srq_take_locked(qp, out, &limit_hit);
	vb_unlock(&rq->lock);
	if (limit_hit)
		vb_srq_raise_limit(srq);
	return fit;
}

enum vb_fit vb_receive_take_if_fits(struct vb_qp *qp, uint64_t bytes, struct vb_rwqe *out)
{
	return qp->srq ? take_shared_if_fits(qp, bytes, out) : take_own_if_fits(qp, bytes, out);
}

/* A right program may post until a queue is full, if there is room for anything. */
void vb_rq_explain(const struct vb_rq *rq, const char *call, int err)
{
	if (err == EINVAL)
		vb_explain(call, "num_sge is beyond the queue's max_recv_sge (of an SRQ: max_sge), which is %u",
			   rq->max_sge);
	else if (!rq->max_wr)
		vb_explain(call, "the queue was made with max_recv_wr 0: it has room for no request");
	else
		vb_explain_limit(call,
				 "the queue is full: max_recv_wr (of an SRQ: max_wr) requests, %u, wait to be "
				 "used and polled",
				 rq->max_wr);
}

/* ---- shared receive queues ---- */

/*
 * Makes room for max_wr receives, keeping those that wait (a limit that is armed is not beyond these). Places
 * of earlier ones are empty: vb_rq_names looks at them, too.
 */
static int resize(struct vb_srq *srq, uint32_t max_wr)
{
	struct vb_rq grown;
	if (!max_wr || max_wr > VB_MAX_WR)
		return -EINVAL;
	int err = vb_rq_init(&grown, srq->pd, max_wr, srq->rq.max_sge);
	if (err)
		return err;
	memset(grown.entries, 0, (size_t)(grown.mask + 1) * grown.stride);
	struct vb_rq *rq = &srq->rq;
	vb_lock(&rq->lock);
	bool fits = tail_of(rq) - atomic_load(&rq->polled) <= max_wr;
	struct vb_queue_memory unwanted = grown.memory;
	if (fits) {
		for (uint32_t i = head_of(rq); i != tail_of(rq); i++)
			memcpy(vb_receive_at(&grown, i), vb_receive_at(rq, i), rq->stride);
		unwanted = rq->memory;
		rq->memory = grown.memory;
		rq->entries = grown.entries;
		rq->mask = grown.mask;
		rq->max_wr = max_wr;
	}
	vb_unlock(&rq->lock);
	vb_queue_memory_give(&unwanted, srq->pd);
	return fits ? 0 : -EINVAL;
}

int vb_srq_modify(struct vb_srq *srq, const struct ibv_srq_attr *attr, int mask)
{
	int err = 0;
	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return -EINVAL;
	if ((mask & IBV_SRQ_LIMIT) &&
	    attr->srq_limit > (mask & IBV_SRQ_MAX_WR ? attr->max_wr : srq->rq.max_wr))
		return -EINVAL;
	if (mask & IBV_SRQ_MAX_WR)
		err = resize(srq, attr->max_wr);
	if (err || !(mask & IBV_SRQ_LIMIT))
		return err;
	vb_lock(&srq->rq.lock);
	bool hit = attr->srq_limit && waiting_in(&srq->rq) < attr->srq_limit;
	srq->limit = hit ? 0 : attr->srq_limit;
	vb_unlock(&srq->rq.lock);
	if (hit)
		vb_srq_raise_limit(srq);
	return 0;
}

void vb_srq_query(struct vb_srq *srq, struct ibv_srq_attr *attr)
{
	vb_lock(&srq->rq.lock);
	attr->max_wr = srq->rq.max_wr;
	attr->max_sge = srq->rq.max_sge;
	attr->srq_limit = srq->limit;
	vb_unlock(&srq->rq.lock);
}

/* Responders that find no receive wait again. */
static __attribute__((noinline)) void feed_starved(struct vb_srq *srq)
{
	vb_lock(&srq->rq.lock);
	atomic_store_explicit(&srq->rq.starved, false, memory_order_relaxed);
	for (struct vb_list *node; (node = vb_list_pop(&srq->starved));)
		vb_progress_schedule(vb_container_of(node, struct vb_qp, srq_node));
	vb_unlock(&srq->rq.lock);
}

static inline void wake_starved(struct vb_srq *srq)
{
	if (vb_unlikely(atomic_load_explicit(&srq->rq.starved, memory_order_relaxed)))
		feed_starved(srq);
}

void vb_srq_wake_starved(struct vb_srq *srq) { wake_starved(srq); }

static int srq_post(struct vb_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err = vb_rq_post(&srq->rq, wr, bad);
	wake_starved(srq);
	if (vb_unlikely(err))
		vb_rq_explain(&srq->rq, "ibv_post_srq_recv", err);
	return err;
}

/* The time first: a message may take the receive at once. */
static __attribute__((noinline, cold)) int srq_post_and_note(struct vb_srq *srq, struct ibv_recv_wr *wr,
							     struct ibv_recv_wr **bad)
{
	struct vb_capture_moment moment = vb_capture_begin();
	int err = srq_post(srq, wr, bad);
	vb_note_posted_receives(moment, (struct vb_noted_post){ .srq = srq, .err = err }, wr, bad);
	return err;
}

int vb_srq_post_recv(struct vb_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return vb_capture_is_on() ? srq_post_and_note(srq, wr, bad) : srq_post(srq, wr, bad);
}

void vb_srq_release(struct vb_qp *qp)
{
	struct vb_srq *srq = qp->srq;
	if (!srq)
		return;
	vb_lock(&srq->rq.lock);
	vb_list_del(&qp->srq_node);
	vb_unlock(&srq->rq.lock);
	qp->srq = NULL;
	atomic_fetch_sub(&srq->refs, 1);
}

/* The queue can be destroyed as soon as the completion can be polled. */
void vb_srq_complete(struct vb_qp *qp, const struct vb_cqe *cqe)
{
	struct vb_srq *srq = qp->srq;
	atomic_fetch_add(&srq->cq_users, 1);
	vb_srq_release(qp);
	vb_cq_push(srq->cq, cqe);
	atomic_fetch_sub(&srq->cq_users, 1);
}
