/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/queues/tags.h"

#include <errno.h>
#include <infiniband/tm_types.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/queues/completion.h"
#include "adapter/progress/path.h"
#include "adapter/progress/progress.h"
#include "base/log.h"
#include "proto/tag_list.h"

/* The program's share of an entry of the list. */
struct buffer {
	uint64_t wr_id, bytes;
	uint32_t nsge;
	/* While it is taken for a rendezvous: */
	uint32_t app_ctx, rkey, length;
	uint64_t tag, address;
	int32_t next; /* of those that wait at the queue pair */
	struct ibv_sge sge[];
};

struct vb_tags {
	struct vb_tag_list list;
	struct vb_tag_entry *entries;
	uint8_t *buffers;
	size_t stride;
	/*
	 * Operations complete in this name: no queue pair's, number 0, never connected. Its receive queue
	 * counts those whose completions have not been polled.
	 */
	struct vb_qp operator;
};

enum fate {
	PLAIN,      /* no SEND: a WRITE's immediate data */
	NO_TAG,
	UNEXPECTED,
	MATCHED,
	UNREADABLE, /* a rendezvous request into the buffer of its tag */
	RENDEZVOUS,
};

enum { SYNC_LAG = 16384 }; /* unexpected messages that the program has not handled, when it is reminded */

struct vb_tag_receiver {
	enum fate fate;
	uint64_t tag, wr_id;
	uint32_t app_ctx;
	bool wants_sync;
	int entry; /* of a rendezvous */
	/* Rendezvous that wait, by entry; the first is looked at without the lock. */
	_Atomic(int32_t) first;
	int32_t last;
	uint32_t posted; /* under sq.lock */
	uint8_t head[VB_RENDEZVOUS_MAX_BYTES];
};

static struct buffer *buffer_at(const struct vb_tags *t, int entry)
{
	return (struct buffer *)(t->buffers + (size_t)entry * t->stride);
}

/* ---- the queue ---- */

static int check_cap(const struct ibv_tm_cap *cap)
{
	if (cap->max_num_tags && cap->max_num_tags <= VB_MAX_TAGS && cap->max_ops &&
	    cap->max_ops <= VB_MAX_TAG_OPS)
		return 0;
	vb_explain("ibv_create_srq_ex",
		   "tm_cap.max_num_tags %u, max_ops %u: the device has 1 to %u and 1 to %u",
		   cap->max_num_tags, cap->max_ops, VB_MAX_TAGS, VB_MAX_TAG_OPS);
	return -EINVAL;
}

int vb_tags_init(struct vb_srq *srq, struct vb_cq *cq, const struct ibv_tm_cap *cap)
{
	int err = check_cap(cap);
	struct vb_tags *t = err ? NULL : calloc(1, sizeof(*t));
	if (!t)
		return err ? err : -ENOMEM;
	t->stride = sizeof(struct buffer) + srq->rq.max_sge * sizeof(struct ibv_sge);
	t->entries = calloc(cap->max_num_tags, sizeof(*t->entries));
	t->buffers = calloc(cap->max_num_tags, t->stride);
	if (!t->entries || !t->buffers) {
		free(t->entries);
		free(t->buffers);
		free(t);
		return -ENOMEM;
	}
	vb_tag_list_init(&t->list, t->entries, cap->max_num_tags);
	t->operator.rq.max_wr = cap->max_ops;
	srq->tags = t;
	srq->cq = cq;
	atomic_fetch_add(&cq->refs, 1);
	return 0;
}

void vb_tags_fini(struct vb_srq *srq)
{
	struct vb_tags *t = srq->tags;
	vb_cq_purge(srq->cq, &t->operator);
	atomic_fetch_sub(&srq->cq->refs, 1);
	free(t->entries);
	free(t->buffers);
	free(t);
}

/* ---- operations ---- */

/* A right program may post until a queue or the list is full. */
static int refuse(int err, const char *why)
{
	if (err == ENOMEM)
		vb_explain_limit("ibv_post_srq_ops", "%s", why);
	else
		vb_explain("ibv_post_srq_ops", "%s", why);
	return err;
}

static int check_op(const struct vb_srq *srq, const struct ibv_ops_wr *wr)
{
	const struct vb_tags *t = srq->tags;
	const struct vb_rq *ops = &t->operator.rq;
	if (wr->opcode != IBV_WR_TAG_ADD && wr->opcode != IBV_WR_TAG_DEL && wr->opcode != IBV_WR_TAG_SYNC)
		return refuse(EINVAL, "unknown opcode");
	if (wr->flags & ~(IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC))
		return refuse(EINVAL, "unknown flags");
	if (ops->tail - atomic_load_explicit(&ops->polled, memory_order_acquire) >= ops->max_wr)
		return refuse(ENOMEM, "tm_cap.max_ops operations wait for their completions to be polled");
	if (wr->opcode != IBV_WR_TAG_ADD)
		return 0;
	if (wr->tm.add.num_sge < 0 || (uint32_t)wr->tm.add.num_sge > srq->rq.max_sge)
		return refuse(EINVAL, "num_sge is beyond the queue's max_sge");
	if (vb_tag_list_is_full(&t->list))
		return refuse(ENOMEM,
			      "the list is full: tm_cap.max_num_tags tags are in it, or being read for");
	return 0;
}

static void add(struct vb_tags *t, struct ibv_ops_wr *wr)
{
	int entry = vb_tag_list_add(&t->list, wr->tm.add.tag, wr->tm.add.mask, &wr->tm.handle);
	struct buffer *b = buffer_at(t, entry);
	b->wr_id = wr->tm.add.recv_wr_id;
	b->nsge = (uint32_t)wr->tm.add.num_sge;
	b->bytes = 0;
	for (uint32_t i = 0; i < b->nsge; i++) {
		b->sge[i] = wr->tm.add.sg_list[i];
		b->bytes += b->sge[i].length;
	}
}

static void complete_op(struct vb_srq *srq, uint64_t wr_id, enum ibv_wc_opcode opcode,
			enum ibv_wc_status status)
{
	struct vb_tags *t = srq->tags;
	t->operator.rq.tail++;
	vb_cq_push(srq->cq,
		   &(struct vb_cqe){ .wr_id = wr_id,
				     .qp = &t->operator,
				     .opcode = opcode,
				     .status = status,
				     .is_recv = 1,
				     .wc_flags = vb_tag_list_lag(&t->list) ? IBV_WC_TM_SYNC_REQ : 0 });
}

/* Its completion is there before that of a message that takes the tag. rq.lock is held. */
static void execute_op(struct vb_srq *srq, struct ibv_ops_wr *wr)
{
	static const enum ibv_wc_opcode completions[] = {
		[IBV_WR_TAG_ADD] = IBV_WC_TM_ADD, [IBV_WR_TAG_DEL] = IBV_WC_TM_DEL, [IBV_WR_TAG_SYNC] = IBV_WC_TM_SYNC,
	};
	struct vb_tags *t = srq->tags;
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	if (wr->flags & IBV_OPS_TM_SYNC)
		vb_tag_list_sync(&t->list, wr->tm.unexpected_cnt);
	if (wr->opcode == IBV_WR_TAG_ADD)
		add(t, wr);
	else if (wr->opcode == IBV_WR_TAG_DEL && vb_tag_list_remove(&t->list, wr->tm.handle) == VB_TAG_NONE)
		status = IBV_WC_TM_ERR;
	if ((wr->flags & IBV_OPS_SIGNALED) || status != IBV_WC_SUCCESS)
		complete_op(srq, wr->wr_id, completions[wr->opcode], status);
}

int vb_tags_post(struct vb_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad)
{
	int err = 0;
	vb_lock(&srq->rq.lock);
	for (; wr && !(err = check_op(srq, wr)); wr = wr->next)
		execute_op(srq, wr);
	vb_unlock(&srq->rq.lock);
	if (err)
		*bad = wr;
	vb_srq_wake_starved(srq);
	return err;
}

/* ---- receiving ---- */

int vb_tag_receiver_init(struct vb_qp *qp)
{
	struct vb_tag_receiver *r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->first = r->last = VB_TAG_NONE;
	qp->tags = r;
	return 0;
}

void vb_tag_receiver_fini(struct vb_qp *qp)
{
	free(qp->tags);
	qp->tags = NULL;
}

uint8_t *vb_tag_receiver_head(struct vb_qp *qp) { return qp->tags->head; }

/* What a message says of itself. */
struct request {
	enum { WITHOUT_TAG, EAGER, READS, MALFORMED } kind;
	uint64_t tag, address;
	uint32_t app_ctx, rkey, length;
};

static struct request parse(const uint8_t *head, size_t bytes, bool whole)
{
	const struct vb_tmh *tmh = (const struct vb_tmh *)head;
	const struct vb_rvh *rvh = (const struct vb_rvh *)(head + VB_TMH_BYTES);
	struct request q = { .kind = WITHOUT_TAG };
	if (bytes < VB_TMH_BYTES ||
	    (vb_tmh_opcode(tmh) != IBV_TMH_EAGER && vb_tmh_opcode(tmh) != IBV_TMH_RNDV))
		return q;
	q.tag = vb_tmh_tag(tmh);
	q.app_ctx = vb_tmh_app_ctx(tmh);
	q.kind = vb_tmh_opcode(tmh) == IBV_TMH_EAGER ? EAGER : MALFORMED;
	if (q.kind == EAGER || !whole || bytes < VB_RENDEZVOUS_BYTES || bytes > VB_RENDEZVOUS_MAX_BYTES)
		return q;
	q.address = vb_rvh_address(rvh);
	q.rkey = vb_rvh_rkey(rvh);
	q.length = vb_rvh_length(rvh);
	if (q.length <= VB_MAX_MSG)
		q.kind = READS;
	return q;
}

static void use_buffer(const struct buffer *b, struct vb_rwqe *out)
{
	out->nsge = b->nsge;
	out->length = b->bytes;
	memcpy(out->sge, b->sge, b->nsge * sizeof(*b->sge));
}

/* Until RTS it is not known whether the queue pair may read; a rendezvous waits for it. */
static bool may_read(const struct vb_qp *qp)
{
	return vb_qp_attr(qp, max_rd_atomic) || atomic_load(&qp->state) == IBV_QPS_RTR;
}

/* True: the entry is kept for what follows. */
static bool keep_for_reading(struct vb_qp *qp, struct buffer *b, const struct request *q, struct vb_rwqe *out)
{
	if (q->kind != READS || (q->length <= b->bytes && !may_read(qp))) {
		qp->tags->fate = q->kind == READS ? UNREADABLE : MATCHED;
		use_buffer(b, out);
		return false;
	}
	out->nsge = 0; /* nothing of the request itself is placed */
	out->length = 0;
	if (q->length > b->bytes) {
		/* longer than that, too: it fails as any message that does not fit */
		qp->tags->fate = UNREADABLE;
		return false;
	}
	qp->tags->fate = RENDEZVOUS;
	b->tag = q->tag;
	b->app_ctx = q->app_ctx;
	b->rkey = q->rkey;
	b->address = q->address;
	b->length = q->length;
	return true;
}

static bool take_tag_locked(struct vb_qp *qp, const struct request *q, struct vb_rwqe *out)
{
	struct vb_tags *t = qp->srq->tags;
	struct vb_tag_receiver *r = qp->tags;
	int entry = q->kind == EAGER || q->kind == READS ? vb_tag_list_match(&t->list, q->tag) : VB_TAG_NONE;
	if (entry == VB_TAG_NONE)
		return false;
	struct buffer *b = buffer_at(t, entry);
	r->entry = entry;
	r->tag = q->tag;
	r->app_ctx = q->app_ctx;
	out->wr_id = r->wr_id = b->wr_id;
	if (!keep_for_reading(qp, b, q, out))
		vb_tag_list_give(&t->list, entry);
	return true;
}

static bool take_receive_locked(struct vb_qp *qp, const struct request *q, struct vb_rwqe *out,
				bool *limit_hit)
{
	struct vb_tags *t = qp->srq->tags;
	if (!vb_srq_take_locked(qp, out, limit_hit))
		return false;
	qp->tags->fate = NO_TAG;
	if (q->kind == WITHOUT_TAG)
		return true;
	qp->tags->fate = UNEXPECTED;
	vb_tag_list_note_unexpected(&t->list);
	qp->tags->wants_sync = vb_tag_list_lag(&t->list) > SYNC_LAG;
	return true;
}

bool vb_tags_take(struct vb_qp *qp, const void *head, size_t bytes, bool whole, struct vb_rwqe *out)
{
	struct request q = parse(head, bytes, whole);
	struct vb_srq *srq = qp->srq;
	bool limit_hit = false;
	out->pd = srq->pd->number;
	vb_lock(&srq->rq.lock);
	bool there = take_tag_locked(qp, &q, out) || take_receive_locked(qp, &q, out, &limit_hit);
	vb_unlock(&srq->rq.lock);
	if (limit_hit)
		vb_srq_raise_limit(srq);
	return there;
}

uint64_t vb_tags_skip(const struct vb_qp *qp)
{
	switch (qp->tags->fate) {
	case RENDEZVOUS:
		return UINT64_MAX;
	case MATCHED:
		return VB_TMH_BYTES;
	case PLAIN:
	case NO_TAG:
	case UNEXPECTED:
	case UNREADABLE:
		break;
	}
	return 0;
}

/* ---- completions of receives ---- */

static void queue_read(struct vb_qp *qp, int entry)
{
	struct vb_tags *t = qp->srq->tags;
	struct vb_tag_receiver *r = qp->tags;
	vb_lock(&qp->srq->rq.lock);
	buffer_at(t, entry)->next = VB_TAG_NONE;
	if (r->first == VB_TAG_NONE)
		atomic_store(&r->first, entry);
	else
		buffer_at(t, r->last)->next = entry;
	r->last = entry;
	vb_unlock(&qp->srq->rq.lock);
	vb_progress_schedule(qp);
}

static void release_entry(struct vb_qp *qp, int entry)
{
	vb_lock(&qp->srq->rq.lock);
	vb_tag_list_give(&qp->srq->tags->list, entry);
	vb_unlock(&qp->srq->rq.lock);
	vb_srq_wake_starved(qp->srq);
}

static void fill_matched(const struct vb_tag_receiver *r, struct vb_cqe *e)
{
	e->is_srq = 0;
	e->tag = r->tag;
	e->app_ctx = r->app_ctx;
	e->wc_flags |= IBV_WC_TM_MATCH;
	if (r->fate != RENDEZVOUS)
		e->wc_flags |= IBV_WC_TM_DATA_VALID;
	if (r->fate == MATCHED)
		e->byte_len -= VB_TMH_BYTES;
}

static void complete_request(struct vb_qp *qp, struct vb_cqe *e)
{
	struct vb_tag_receiver *r = qp->tags;
	bool goes_on = e->status == IBV_WC_SUCCESS;
	e->byte_len = buffer_at(qp->srq->tags, r->entry)->length;
	vb_cq_push(qp->srq->cq, e);
	if (goes_on)
		queue_read(qp, r->entry);
	else
		release_entry(qp, r->entry);
}

void vb_tags_complete(struct vb_qp *qp, struct vb_cqe *e)
{
	struct vb_tag_receiver *r = qp->tags;
	enum fate fate = r->fate;
	if (fate == NO_TAG)
		e->opcode = IBV_WC_TM_NO_TAG;
	else if (fate != PLAIN)
		e->opcode = IBV_WC_TM_RECV;
	if (fate >= MATCHED)
		fill_matched(r, e);
	else if (fate == UNEXPECTED && r->wants_sync)
		e->wc_flags |= IBV_WC_TM_SYNC_REQ;
	if (fate == UNREADABLE && e->status == IBV_WC_SUCCESS)
		e->status = IBV_WC_TM_RNDV_INCOMPLETE;
	if (fate == RENDEZVOUS)
		complete_request(qp, e);
	else
		vb_cq_push(qp->srq->cq, e);
	r->fate = PLAIN;
}

/* ---- rendezvous ---- */

static int next_waiting(struct vb_qp *qp)
{
	struct vb_tag_receiver *r = qp->tags;
	vb_lock(&qp->srq->rq.lock);
	int entry = r->first;
	if (entry != VB_TAG_NONE)
		atomic_store(&r->first, buffer_at(qp->srq->tags, entry)->next);
	vb_unlock(&qp->srq->rq.lock);
	return entry;
}

static struct vb_sqe *own_entry(struct vb_sq *sq, enum ibv_wr_opcode opcode, unsigned flags)
{
	struct vb_sqe *sqe = vb_sq_at(sq, sq->tail++);
	sq->own_posted++;
	*sqe = (struct vb_sqe){ .opcode = opcode,
				.flags = VB_SQE_OWN | IBV_SEND_SIGNALED | flags,
				.status = VB_SQE_PENDING };
	return sqe;
}

static void post_read(struct vb_qp *qp, int entry, const struct buffer *b)
{
	struct vb_sqe *sqe = own_entry(&qp->sq, IBV_WR_RDMA_READ, 0);
	sqe->wr_id = (uint64_t)entry;
	sqe->remote_addr = b->address;
	sqe->rkey = b->rkey;
	sqe->length = b->length;
	uint32_t left = b->length;
	for (uint32_t i = 0; left && i < b->nsge; i++) {
		sqe->sge[sqe->nsge] = b->sge[i];
		sqe->sge[sqe->nsge].length = vb_min_u32(b->sge[i].length, left);
		left -= sqe->sge[sqe->nsge++].length;
	}
	if (!vb_qp_attr(qp, max_rd_atomic))
		vb_sqe_fail(sqe, IBV_WC_LOC_QP_OP_ERR);
}

/* Fenced: the sender may have its memory back only when it has been read. */
static void post_fin(struct vb_qp *qp, const struct buffer *b)
{
	struct vb_sqe *sqe = own_entry(&qp->sq, IBV_WR_SEND, IBV_SEND_INLINE | IBV_SEND_FENCE);
	struct vb_tmh *tmh = (struct vb_tmh *)sqe->inline_data;
	sqe->length = VB_TMH_BYTES;
	memset(tmh, 0, sizeof(*tmh));
	vb_tmh_set_opcode(tmh, IBV_TMH_FIN);
	vb_tmh_set_app_ctx(tmh, b->app_ctx);
	vb_tmh_set_tag(tmh, b->tag);
}

/* sq.lock is held. True: something was posted. */
static bool post_waiting(struct vb_qp *qp)
{
	struct vb_tag_receiver *r = qp->tags;
	bool posted = false;
	for (int entry; r->posted < VB_RENDEZVOUS_AT_ONCE && (entry = next_waiting(qp)) != VB_TAG_NONE;
	     posted = true) {
		const struct buffer *b = buffer_at(qp->srq->tags, entry);
		post_read(qp, entry, b);
		post_fin(qp, b);
		r->posted++;
	}
	return posted;
}

void vb_tags_run(struct vb_qp *qp)
{
	if (atomic_load_explicit(&qp->tags->first, memory_order_relaxed) == VB_TAG_NONE)
		return;
	vb_lock(&qp->sq.lock);
	const struct vb_path_ops *path = atomic_load(&qp->path);
	if (path && atomic_load(&qp->state) == IBV_QPS_RTS && post_waiting(qp))
		path->send(qp);
	vb_unlock(&qp->sq.lock);
}

/* The second completion of a rendezvous. */
static void complete_read(struct vb_qp *qp, int entry, enum ibv_wc_status status)
{
	const struct buffer *b = buffer_at(qp->srq->tags, entry);
	struct vb_cqe e = {
		.wr_id = b->wr_id,
		.qp = qp,
		.status = status,
		.opcode = IBV_WC_TM_RECV,
		.wc_flags = status == IBV_WC_SUCCESS ? IBV_WC_TM_DATA_VALID : 0,
		.byte_len = b->length,
		.src_qp = qp->attr.dest_qp_num,
		.is_recv = 1,
	};
	release_entry(qp, entry);
	vb_cq_push(qp->srq->cq, &e);
}

void vb_tags_sent(struct vb_qp *qp, const struct vb_sqe *sqe, enum ibv_wc_status status)
{
	struct vb_tag_receiver *r = qp->tags;
	qp->sq.own_done++;
	if (sqe->opcode == IBV_WR_RDMA_READ) {
		complete_read(qp, (int)sqe->wr_id, status);
		return;
	}
	r->posted--;
	if (status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR)
		vb_async_raise(qp->ctx, IBV_EVENT_QP_FATAL, VB_ASYNC_QP, qp, &qp->async, 0);
	if (atomic_load_explicit(&r->first, memory_order_relaxed) != VB_TAG_NONE)
		vb_progress_schedule(qp);
}

void vb_tags_flush(struct vb_qp *qp)
{
	for (int entry; (entry = next_waiting(qp)) != VB_TAG_NONE;)
		complete_read(qp, entry, IBV_WC_WR_FLUSH_ERR);
}

void vb_tags_forget(struct vb_qp *qp)
{
	for (int entry; (entry = next_waiting(qp)) != VB_TAG_NONE;)
		release_entry(qp, entry);
	for (uint32_t i = qp->sq.head; i != qp->sq.tail; i++) {
		const struct vb_sqe *sqe = vb_sq_at(&qp->sq, i);
		if ((sqe->flags & VB_SQE_OWN) && sqe->opcode == IBV_WR_RDMA_READ)
			release_entry(qp, (int)sqe->wr_id);
	}
	qp->tags->posted = 0;
	qp->tags->fate = PLAIN;
}
