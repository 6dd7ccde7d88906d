/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Posted sends. Each is held until the adapter runs the queue pair next (held.c). The post notes its place,
 * and the checksum of its bytes. When the send is released, the bytes must still have that checksum. Nothing
 * has been done with the request by then, so the program had no reason to believe it done.
 *
 * Bytes that something else may write meanwhile are left out: those that any request for incoming data
 * names, now or a while ago. Threading: all of it under the QP's sq.lock.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/progress/path.h"
#include "adapter/progress/qpn.h"
#include "adapter/queues/queue.h"
#include "adapter/queues/status.h"
#include "adapter/queues/observer.h"
#include "check/check.h"

/* ---- what is posted ---- */

static bool has_list(const struct vb_sqe *sqe)
{
	return !(sqe->flags & (IBV_SEND_INLINE | VB_SQE_OWN)) && sqe->nsge && !vb_sqe_is_local(sqe) &&
	       sqe->opcode != IBV_WR_FLUSH;
}

enum { SUMMED_MOST = 4 << 20 }; /* bytes at the beginning of a range, and at its end */

/* Without ThreadSanitizer: concurrent writes are what this looks for. */
__attribute__((no_sanitize("thread"))) static uint64_t sum_bytes(uint64_t sum, const uint8_t *at, size_t n)
{
	uint64_t word;
	for (; n >= sizeof(word); at += sizeof(word), n -= sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		sum = (sum ^ word) * 0x100000001b3u + (sum >> 47);
	}
	for (; n; at++, n--)
		sum = (sum ^ *at) * 0x100000001b3u;
	return sum;
}

static uint64_t sum_range(uint64_t sum, const uint8_t *at, size_t n)
{
	if (n <= 2 * (size_t)SUMMED_MOST)
		return sum_bytes(sum, at, n);
	return sum_bytes(sum_bytes(sum, at, SUMMED_MOST), at + n - SUMMED_MOST, SUMMED_MOST);
}

/* False: some of it cannot be read, or is no longer registered. */
static bool sum_list(const struct vb_qp *qp, const struct vb_sqe *sqe, uint64_t *sum)
{
	*sum = 0;
	for (unsigned i = 0; i < sqe->nsge; i++) {
		const struct ibv_sge *s = &sqe->sge[i];
		struct vb_key_use use = vb_key_use_of_sge(s, 0, qp->pd->number);
		uint64_t va;
		if (!s->length)
			continue;
		if (vb_key_check(vb_key_table(vb_arena), &use, &va) != VB_KEY_OK ||
		    (atomic_load(&vb_key_entry(s->lkey)->access) & VB_KEY_NULL) ||
		    vb_mem_check((void *)(uintptr_t)va, s->length, false))
			return false;
		*sum = sum_range(*sum, (const uint8_t *)(uintptr_t)va, s->length);
	}
	return true;
}

static void check_list(struct vb_qp *qp, const struct vb_sqe *sqe)
{
	char what[96];
	snprintf(what, sizeof(what), "QP 0x%06x, send wr_id 0x%llx", qp->qpn, (unsigned long long)sqe->wr_id);
	vb_check_list(vb_sg_list_of_send(qp, sqe), vb_wr_fetches(sqe->opcode) ? IBV_ACCESS_LOCAL_WRITE : 0,
		      what);
}

/* The size of the ring of positions. */
static size_t places(const struct vb_qp *qp) { return (size_t)qp->sq.mask + 1; }

static void note_one(struct vb_qp *qp, struct vb_checked_qp *c, uint32_t position, const struct vb_trace *at)
{
	const struct vb_sqe *sqe = vb_sq_at(&qp->sq, position);
	struct vb_posted *p = &c->posted[position & qp->sq.mask];
	bool is_over = (int32_t)(position - qp->sq.head) < 0; /* flushed, in the send queue error state */
	*p = (struct vb_posted){ .at = *at };
	if (sqe->flags & VB_SQE_OWN) {
		c->own++;
	} else {
		c->signals_before[(position - c->own) & qp->sq.mask] = c->signals;
		c->signals += vb_sq_signals(qp, sqe->flags);
	}
	if (is_over || !has_list(sqe) || sqe->status != VB_SQE_PENDING)
		return;
	check_list(qp, sqe);
	p->is_summed = !vb_wr_fetches(sqe->opcode) && sum_list(qp, sqe, &p->sum);
}

static bool make_room(const struct vb_qp *qp, struct vb_checked_qp *c)
{
	c->posted = calloc(places(qp), sizeof(*c->posted) + sizeof(*c->signals_before));
	if (c->posted)
		c->signals_before = (uint32_t *)(c->posted + places(qp));
	return c->posted;
}

static void note(struct vb_qp *qp, struct vb_checked_qp *c)
{
	struct vb_trace here;
	if (c->seen == qp->sq.tail || (!c->posted && !make_room(qp, c)))
		return;
	vb_trace_take(&here);
	for (; c->seen != qp->sq.tail; c->seen++)
		note_one(qp, c, c->seen, &here);
}

const struct vb_trace *vb_check_posted_at(const struct vb_qp *qp, uint32_t position)
{
	const struct vb_checked_qp *c = qp->checked;
	bool noted = c && c->posted && c->seen - position - 1 < places(qp);
	return noted ? &c->posted[position & qp->sq.mask].at : NULL;
}

uint32_t vb_check_awaited(const struct vb_qp *qp)
{
	const struct vb_checked_qp *c = qp->checked;
	uint32_t retired = atomic_load(&qp->sq.retired);
	if (!c || !c->posted)
		return 0;
	uint16_t unpolled = (uint16_t)(c->seen - c->own - retired); /* as vb_sq_in_use */
	return unpolled && unpolled <= places(qp) ?
		       c->signals - c->signals_before[retired & qp->sq.mask] :
		       0;
}

/* ---- other writers ---- */

static bool overlaps(const struct ibv_sge *a, const struct ibv_sge *b)
{
	return a->addr < b->addr + b->length && b->addr < a->addr + a->length;
}

static bool list_overlaps(const struct vb_sqe *sent, const struct ibv_sge *list, unsigned n)
{
	for (unsigned i = 0; i < sent->nsge; i++)
		for (unsigned k = 0; k < n; k++)
			if (overlaps(&sent->sge[i], &list[k]))
				return true;
	return false;
}

/*
 * Looks at all slots of the queue, also at those that were released lately. If another thread holds the
 * queue's lock, the answer is yes.
 */
static bool is_read_into(struct vb_qp *other, bool is_locked, const struct vb_sqe *sent)
{
	bool found = false;
	if (!is_locked && !vb_lock_try(&other->sq.lock))
		return true;
	for (size_t i = 0; !found && other->sq.entries && i < places(other); i++) {
		const struct vb_sqe *sqe = vb_sq_at(&other->sq, (uint32_t)i);
		found = sqe != sent && vb_wr_fetches(sqe->opcode) && has_list(sqe) &&
			sqe->nsge <= other->sq.max_sge && list_overlaps(sent, sqe->sge, sqe->nsge);
	}
	if (!is_locked)
		vb_unlock(&other->sq.lock);
	return found;
}

static bool is_received_into(struct vb_rq *rq, const struct vb_sqe *sent)
{
	bool found = false;
	for (unsigned i = 0; i < sent->nsge && !found; i++)
		found = sent->sge[i].length && vb_rq_names(rq, sent->sge[i].addr, sent->sge[i].length);
	return found;
}

static bool may_be_incoming(struct vb_qp *qp, const struct vb_sqe *sent)
{
	struct vb_qp *other;
	uint64_t cursor = 0;
	bool found = false, more = true;
	while (!found && more) {
		more = vb_qpn_next(&cursor, &other);
		if (!other)
			continue;
		/* XRC messages go to queues that are no queue pair's. */
		found = other->xrcd || is_read_into(other, other == qp, sent) ||
			is_received_into(other->srq ? &other->srq->rq : &other->rq, sent);
		vb_qp_unref(other);
	}
	return found;
}

/* ---- releasing ---- */

static bool is_remotely_writable(const struct vb_sqe *sqe)
{
	for (unsigned i = 0; i < sqe->nsge; i++)
		if (sqe->sge[i].length &&
		    (atomic_load(&vb_key_entry(sqe->sge[i].lkey)->access) & VB_REMOTE_WRITES))
			return true;
	return false;
}

static void compare_one(struct vb_qp *qp, uint32_t position)
{
	const struct vb_sqe *sqe = vb_sq_at(&qp->sq, position);
	struct vb_posted *p = &qp->checked->posted[position & qp->sq.mask];
	uint64_t sum;
	if (!p->is_summed || !sum_list(qp, sqe, &sum) || sum == p->sum || may_be_incoming(qp, sqe))
		return;
	vb_check_report(
		VB_CHECK_SEND_BUFFER, NULL, &(struct vb_place){ "posted", &p->at }, qp,
		"QP 0x%06x, send wr_id 0x%llx: its %u bytes at 0x%llx were changed%s after they were "
		"posted and before they were sent: a buffer belongs to the adapter until its completion "
		"is polled",
		qp->qpn, (unsigned long long)sqe->wr_id, sqe->length, (unsigned long long)sqe->sge[0].addr,
		is_remotely_writable(sqe) ? " (by the program, or by a peer that may write there)" : "");
}

/* sq.lock is held. */
static void compare(struct vb_qp *qp)
{
	struct vb_checked_qp *c = qp->checked;
	if (!c || !c->posted)
		return;
	if ((int32_t)(qp->sq.sent - c->compared) > 0)
		c->compared = qp->sq.sent;
	for (; (int32_t)(c->seen - c->compared) > 0; c->compared++)
		compare_one(qp, c->compared);
}

/* ---- wrappers of the paths ---- */

enum { MOST_PATHS = 8 };

static struct {
	struct vb_path_ops *path, original;
} wrapped[MOST_PATHS];

static const struct vb_path_ops *original_of(const struct vb_path_ops *path)
{
	for (unsigned i = 0; i < MOST_PATHS; i++)
		if (wrapped[i].path == path)
			return &wrapped[i].original;
	return NULL;
}

static void held_send(struct vb_qp *qp)
{
	const struct vb_path_ops *path = atomic_load(&qp->path);
	if (!qp->checked) {
		original_of(path)->send(qp);
		return;
	}
	note(qp, qp->checked);
	vb_check_hold(qp->checked);
}

/* sq.lock is held. */
static void release(struct vb_qp *qp, const struct vb_path_ops *path)
{
	compare(qp);
	if (path && qp->sq.sent != qp->sq.tail && atomic_load(&qp->state) == IBV_QPS_RTS)
		original_of(path)->send(qp);
}

static void held_run(struct vb_qp *qp)
{
	const struct vb_path_ops *path = atomic_load(&qp->path);
	if (qp->checked && vb_check_is_held(qp->checked))
		return;
	if (!vb_lock_try(&qp->sq.lock)) {
		vb_progress_retry(qp);
		return;
	}
	bool is_there = path && atomic_load(&qp->path) == path;
	if (is_there)
		release(qp, path);
	vb_unlock(&qp->sq.lock);
	if (!is_there)
		return;
	vb_check_compare_to_peer(qp);
	original_of(path)->run(qp);
}

static void held_receive(struct vb_qp *qp)
{
	const struct vb_path_ops *path = atomic_load(&qp->path);
	vb_check_release_sends(qp);
	if (path)
		original_of(path)->receive(qp);
}

static void held_take_news(struct vb_qp *qp, enum vb_claim claim)
{
	const struct vb_path_ops *path = atomic_load(&qp->path);
	if (claim == VB_CLAIM_SENDS)
		compare(qp);
	original_of(path)->take_news(qp, claim);
}

static void wrap_path(struct vb_path_ops *path)
{
	static unsigned count;
	wrapped[count].path = path;
	wrapped[count++].original = *path;
	path->send = held_send;
	path->try_post = NULL;
	path->run = held_run;
	path->receive = path->receive ? held_receive : NULL;
	path->take_news = path->take_news ? held_take_news : NULL;
}

void vb_check_release_all_sends(void)
{
	struct vb_qp *qp;
	uint64_t cursor = 0;
	for (bool more = vb_arena != NULL; more;) {
		more = vb_qpn_next(&cursor, &qp);
		if (!qp)
			continue;
		vb_check_release_sends(qp);
		vb_qp_unref(qp);
	}
}

void vb_check_hold_all_sends(void)
{
	vb_path_change_all(wrap_path);
	/* Requests posted before exit are sent, as hardware would send them. */
	atexit(vb_check_release_all_sends);
}

void vb_check_release_sends(struct vb_qp *qp)
{
	vb_lock(&qp->sq.lock);
	release(qp, atomic_load(&qp->path));
	vb_unlock(&qp->sq.lock);
}

/* ---- failures ---- */

/*
 * The keys were checked at the post, and a deregistration since then is reported by itself. If the keys are
 * still good, the memory is not there.
 */
static void report_unmapped(struct vb_qp *qp, const struct vb_sqe *sqe, const struct vb_trace *at)
{
	unsigned access = vb_wr_fetches(sqe->opcode) ? IBV_ACCESS_LOCAL_WRITE : 0;
	struct vb_sg_list list = vb_sg_list_of_send(qp, sqe);
	struct vb_ranges ranges;
	if (!has_list(sqe) ||
	    vb_ranges_of_list(&ranges, vb_arena, list, 0, sqe->length, access) != VB_KEY_OK)
		return;
	vb_check_report(VB_CHECK_LKEY, NULL, &(struct vb_place){ "posted", at }, qp,
			"QP 0x%06x, send wr_id 0x%llx: %s", qp->qpn, (unsigned long long)sqe->wr_id,
			vb_ranges_explain_unmapped(list, access));
}

void vb_check_send_failed(struct vb_qp *qp, const struct vb_sqe *sqe, enum ibv_wc_status status,
			  const char *why)
{
	if (!qp->checked || (why && !strcmp(why, VB_PEER_GONE)))
		return;
	uint32_t position = (uint32_t)(((const uint8_t *)sqe - qp->sq.entries) / qp->sq.stride);
	const struct vb_trace *at =
		qp->checked->posted ? &qp->checked->posted[position & qp->sq.mask].at : NULL;
	if (status == IBV_WC_LOC_PROT_ERR) {
		report_unmapped(qp, sqe, at);
		return;
	}
	vb_check_report(VB_CHECK_COMPLETION, NULL, &(struct vb_place){ "posted", at }, qp,
			"QP 0x%06x, send wr_id 0x%llx: %s%s%s", qp->qpn, (unsigned long long)sqe->wr_id,
			vb_wc_status_name(status), why ? ": " : "", why ? why : "");
}

/* ---- deregistration ---- */

/* A send of the queue pair that is not complete and names the key. sq.lock is held. */
static bool find_send(struct vb_qp *qp, uint32_t key, uint32_t *position)
{
	for (*position = qp->sq.head; *position != qp->sq.tail; ++*position) {
		const struct vb_sqe *sqe = vb_sq_at(&qp->sq, *position);
		for (unsigned i = 0; !(sqe->flags & IBV_SEND_INLINE) && i < sqe->nsge; i++)
			if (sqe->sge[i].length && sqe->sge[i].lkey == key)
				return true;
	}
	return false;
}

static void check_sends(struct vb_qp *qp, const struct vb_mr *mr, bool is_anew)
{
	struct vb_trace at = { 0 };
	uint32_t position = 0;
	uint64_t wr_id = 0;
	vb_lock(&qp->sq.lock);
	enum ibv_qp_state state = atomic_load(&qp->state);
	bool found = (state == IBV_QPS_RTS || state == IBV_QPS_SQD) && find_send(qp, mr->key, &position);
	const struct vb_trace *posted = found ? vb_check_posted_at(qp, position) : NULL;
	if (found)
		wr_id = vb_sq_at(&qp->sq, position)->wr_id;
	if (posted)
		at = *posted;
	vb_unlock(&qp->sq.lock);
	if (found)
		vb_check_report(
			VB_CHECK_DEREGISTERED, is_anew ? "ibv_rereg_mr" : NULL,
			&(struct vb_place){ "the request was posted", &at }, qp,
			"key 0x%x (%llu bytes at 0x%llx) is %s while QP 0x%06x, send wr_id "
			"0x%llx, uses it: a region must stay until the completions of all requests that "
			"name it are polled",
			mr->key, (unsigned long long)mr->length, (unsigned long long)mr->iova,
			is_anew ? "registered anew" : "deregistered", qp->qpn,
			(unsigned long long)wr_id);
}

void vb_check_key_end(const struct vb_mr *mr, bool is_anew)
{
	struct vb_qp *qp;
	uint64_t cursor = 0;
	for (bool more = true; more;) {
		more = vb_qpn_next(&cursor, &qp);
		if (!qp)
			continue;
		vb_check_release_sends(qp);
		check_sends(qp, mr, is_anew);
		vb_qp_unref(qp);
	}
}
