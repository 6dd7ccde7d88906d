/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs and completion queues: at their end, and how full they get. */
#include <errno.h>
#include <stdlib.h>

#include "adapter/progress/progress.h"
#include "adapter/progress/qpn.h"
#include "adapter/queues/queue.h"
#include "adapter/queues/status.h"
#include "base/nanoseconds.h"
#include "check/check.h"

enum { LOOK_NS = VB_NS_PER_MS, ACKNOWLEDGED_NS = 500 * VB_NS_PER_MS, UNPOLLED_NS = VB_NS_PER_S };

/* ---- asynchronous events ---- */

static uint32_t unacknowledged_async(struct vb_context *ctx, const struct vb_async_source *source)
{
	pthread_mutex_lock(&ctx->async_lock);
	uint32_t n = source->raised - source->acked;
	pthread_mutex_unlock(&ctx->async_lock);
	return (int32_t)n > 0 ? n : 0;
}

/* Another thread may be about to acknowledge. */
static void check_async(struct vb_context *ctx, const struct vb_async_source *source, const char *what,
			const char *call)
{
	uint64_t until = vb_now_ns() + ACKNOWLEDGED_NS;
	uint32_t n;
	while ((n = unacknowledged_async(ctx, source)) && vb_now_ns() < until)
		vb_sleep_ns(LOOK_NS);
	if (n)
		vb_check_report_here(VB_CHECK_UNACKED_EVENT, "ibv_ack_async_event",
				     "%s is destroyed while %u asynchronous events of it that "
				     "ibv_get_async_event gave are not acknowledged: %s waits for that",
				     what, n, call);
}

void vb_check_srq_end(struct vb_srq *srq)
{
	if (!atomic_load(&srq->refs))
		check_async(srq->ctx, &srq->async, "a shared receive queue", "ibv_destroy_srq");
}

/* ---- queue pairs ---- */

void vb_check_qp_begin(struct vb_qp *qp, bool is_single_threaded)
{
	struct vb_checked_qp *c = calloc(1, sizeof(*c));
	if (!c)
		return;
	c->qp = qp;
	vb_list_init(&c->held);
	c->is_single_threaded = is_single_threaded;
	c->starving = (struct vb_timer){ .fire = vb_check_starving_fired, .arg = c };
	qp->checked = c;
}

void vb_check_qp_reset(struct vb_qp *qp)
{
	struct vb_checked_qp *c = qp->checked;
	if (!c)
		return;
	vb_lock(&qp->sq.lock);
	if (qp->sq.tail == 0)
		c->seen = c->compared = c->signals = c->own = c->most = 0;
	c->is_compared_to_peer = false;
	atomic_store(&c->full_since, 0);
	vb_unlock(&qp->sq.lock);
}

enum { LAST_LOOKS = 1000, MOST_LOOKS = 5 * LAST_LOOKS };

/* How long the process has waited for last acknowledgements. */
static atomic_uint looks;

/* Sends that a living peer has not taken. */
static uint32_t sends_under_way(struct vb_qp *qp)
{
	vb_lock(&qp->sq.lock);
	uint32_t n = atomic_load(&qp->state) == IBV_QPS_RTS ? qp->sq.tail - qp->sq.head : 0;
	vb_unlock(&qp->sq.lock);
	return n && vb_check_peer_responds(qp) ? n : 0;
}

static void report_lost(struct vb_qp *qp, uint32_t n)
{
	struct vb_trace at = { 0 };
	vb_lock(&qp->sq.lock);
	uint64_t wr_id = vb_sq_at(&qp->sq, qp->sq.head)->wr_id;
	const struct vb_trace *posted = vb_check_posted_at(qp, qp->sq.head);
	if (posted)
		at = *posted;
	vb_unlock(&qp->sq.lock);
	if (!vb_check_is_internal(&at))
		vb_check_report(VB_CHECK_LOST_SEND, NULL, &(struct vb_place){ "the oldest was posted", &at },
				qp,
				"QP 0x%06x is destroyed with %u sends under way (the oldest: wr_id 0x%llx), "
				"which the peer's queue pair has not taken: they are lost, and no completion "
				"tells",
				qp->qpn, n, (unsigned long long)wr_id);
}

/*
 * Sends that only wait for their acknowledgement get some time for it. If the process has spent too much on
 * that already, it is not known what they wait for.
 */
static void check_lost(struct vb_qp *qp)
{
	uint32_t n = 0;
	vb_check_release_sends(qp);
	for (int i = 0; i < LAST_LOOKS && (n = sends_under_way(qp)); i++) {
		if (atomic_fetch_add(&looks, 1) >= MOST_LOOKS)
			return;
		vb_progress_schedule(qp);
		vb_sleep_ns(LOOK_NS);
	}
	if (n && sends_under_way(qp))
		report_lost(qp, n);
}

/*
 * The first completion of the queue pair that waits in a queue and says that something went wrong. False:
 * none.
 */
static bool find_error(struct vb_cq *cq, const struct vb_qp *qp, struct vb_cqe *error)
{
	bool found = false;
	vb_lock(&cq->lock);
	for (uint32_t i = cq->head; i != cq->tail && !found; i++) {
		*error = cq->ring[i & cq->mask];
		/* That the peer is gone is expected at the end. */
		found = error->qp == qp && error->status != IBV_WC_SUCCESS &&
			error->status != IBV_WC_WR_FLUSH_ERR && error->status != IBV_WC_RETRY_EXC_ERR;
	}
	vb_unlock(&cq->lock);
	return found;
}

static void check_unseen(struct vb_qp *qp, struct vb_cq *cq)
{
	struct vb_cqe error;
	const struct vb_place made = { "the completion queue was made",
				       cq->checked ? &cq->checked->made : NULL };
	if (find_error(cq, qp, &error))
		vb_check_report(
			VB_CHECK_UNPOLLED, NULL, &made, qp,
			"QP 0x%06x is destroyed, and the program has not seen that its %s wr_id 0x%llx "
			"failed with %s: the completion was never polled",
			qp->qpn, error.is_recv ? "receive" : "send", (unsigned long long)error.wr_id,
			vb_wc_status_name(error.status));
}

void vb_check_qp_end(struct vb_qp *qp)
{
	if (!qp->checked)
		return;
	check_lost(qp);
	if (qp->send_cq)
		check_unseen(qp, qp->send_cq);
	if (qp->recv_cq && qp->recv_cq != qp->send_cq)
		check_unseen(qp, qp->recv_cq);
	if (!atomic_load(&qp->mcast))
		check_async(qp->ctx, &qp->async, "a queue pair", "ibv_destroy_qp");
	vb_timer_cancel(&qp->checked->starving);
	vb_check_hold_no_more(qp->checked);
}

void vb_check_qp_gone(struct vb_checked_qp *c)
{
	if (!c)
		return;
	vb_timer_cancel(&c->starving);
	vb_check_hold_no_more(c);
	free(c->posted);
	free(c);
}

/* ---- completion queues ---- */

void vb_check_cq_begin(struct vb_cq *cq)
{
	struct vb_checked_cq *c = calloc(1, sizeof(*c));
	if (!c)
		return;
	vb_trace_take(&c->made);
	__atomic_store_n(&cq->checked, c, __ATOMIC_RELEASE); /* events.c looks */
}

static uint32_t unacknowledged(struct vb_cq *cq)
{
	pthread_mutex_lock(&cq->channel->lock);
	uint32_t handed_out = cq->events_raised;
	pthread_mutex_unlock(&cq->channel->lock);
	pthread_mutex_lock(&cq->events_lock);
	uint32_t n = handed_out - cq->events_acked;
	pthread_mutex_unlock(&cq->events_lock);
	return (int32_t)n > 0 ? n : 0;
}

/* Another thread may be about to acknowledge. */
static void check_completion_events(struct vb_cq *cq)
{
	uint64_t until = vb_now_ns() + ACKNOWLEDGED_NS;
	uint32_t n;
	while ((n = unacknowledged(cq)) && vb_now_ns() < until)
		vb_sleep_ns(LOOK_NS);
	if (n)
		vb_check_report(
			VB_CHECK_UNACKED_EVENT, NULL,
			&(struct vb_place){ "the completion queue was made", &cq->checked->made }, cq,
			"a completion queue is destroyed while %u events that ibv_get_cq_event gave are "
			"not acknowledged: ibv_destroy_cq waits for that",
			n);
}

void vb_check_cq_end(struct vb_cq *cq)
{
	if (!cq->checked || atomic_load(&cq->refs))
		return;
	check_async(cq->ctx, &cq->async, "a completion queue", "ibv_destroy_cq");
	if (cq->channel)
		check_completion_events(cq);
}

void vb_check_cq_gone(struct vb_checked_cq *c)
{
	free(c);
}

/* ---- room ---- */

/* This queue pair's completions that are to come to a queue, or wait there. No lock is held. */
static uint32_t expected(struct vb_qp *qp, const struct vb_cq *cq)
{
	uint32_t n = 0;
	enum ibv_qp_state state = atomic_load(&qp->state);
	if (state == IBV_QPS_RESET || state == IBV_QPS_ERR)
		return 0;
	if (qp->recv_cq == cq && !qp->srq && !qp->xrcd)
		n = atomic_load(&qp->rq.tail) - atomic_load(&qp->rq.polled);
	if (qp->send_cq != cq)
		return n;
	vb_lock(&qp->sq.lock);
	n += vb_check_awaited(qp);
	vb_unlock(&qp->sq.lock);
	return n;
}

static uint32_t expected_of_all(const struct vb_cq *cq)
{
	struct vb_qp *qp;
	uint64_t cursor = 0;
	uint32_t n = 0;
	for (bool more = true; more;) {
		more = vb_qpn_next(&cursor, &qp);
		if (!qp)
			continue;
		n += expected(qp, cq);
		vb_qp_unref(qp);
	}
	return n;
}

static void check_room(struct vb_qp *qp, struct vb_cq *cq)
{
	uint32_t n = cq->ignores_overrun ? 0 : expected_of_all(cq);
	if (n > cq->capacity)
		vb_check_report_here(
			VB_CHECK_CQ_ROOM, NULL,
			"QP 0x%06x: %u completions are to come to a completion queue of %u entries: "
			"if they all come before the next poll, it overruns, and its queue pairs "
			"are broken",
			qp->qpn, n, cq->capacity);
}

/* Counts over all queue pairs only if this one has more under way than ever before. */
void vb_check_room(struct vb_qp *qp)
{
	struct vb_checked_qp *c = qp->checked;
	if (!c || !qp->send_cq)
		return;
	uint32_t n = expected(qp, qp->send_cq) + (qp->recv_cq == qp->send_cq ? 0 : expected(qp, qp->recv_cq));
	vb_lock(&qp->sq.lock);
	bool is_most = n > c->most;
	if (is_most)
		c->most = n;
	vb_unlock(&qp->sq.lock);
	if (!is_most)
		return;
	check_room(qp, qp->send_cq);
	if (qp->recv_cq != qp->send_cq)
		check_room(qp, qp->recv_cq);
}

static bool is_unpolled(const struct vb_cq *cq)
{
	return cq->checked && !atomic_load(&cq->checked->is_polled) && cq->tail != cq->head;
}

/* A program may post until the queue is full, and then poll, perhaps in another thread. */
static bool is_left_unpolled(struct vb_checked_qp *c)
{
	uint64_t now = vb_now_ns(), since = 0;
	return !atomic_compare_exchange_strong(&c->full_since, &since, now) && now - since >= UNPOLLED_NS;
}

void vb_check_send_refused(struct vb_qp *qp, int err)
{
	if (err != ENOMEM || !qp->checked)
		return;
	vb_lock(&qp->sq.lock);
	unsigned posted = vb_sq_in_use(&qp->sq);
	bool is_full = posted >= qp->sq.max_wr && qp->checked->posted;
	/* in the error states every request has a completion */
	bool is_stuck = is_full && atomic_load(&qp->state) == IBV_QPS_RTS && !vb_check_awaited(qp);
	vb_unlock(&qp->sq.lock);
	vb_lock(&qp->send_cq->lock);
	bool unpolled = is_full && is_unpolled(qp->send_cq);
	vb_unlock(&qp->send_cq->lock);
	if (is_stuck)
		vb_check_report_here(VB_CHECK_UNSIGNALED, NULL,
				     "QP 0x%06x: the send queue is full, and none of its %u requests has a "
				     "completion to come: their places are never free again. At least one in "
				     "max_send_wr requests must be signaled (IBV_SEND_SIGNALED), and its "
				     "completion be polled", qp->qpn, posted);
	else if (unpolled && is_left_unpolled(qp->checked))
		vb_check_report_here(VB_CHECK_UNPOLLED, NULL,
				     "QP 0x%06x: the send queue has been full for a second, and its "
				     "completion queue has never been polled: the places of %u requests are "
				     "free once their completions are polled", qp->qpn, posted);
}

void vb_check_cq_overran(struct vb_cq *cq, const struct vb_qp *qp)
{
	const struct vb_place made = { "the completion queue was made",
				       cq->checked ? &cq->checked->made : NULL };
	vb_check_report(
		VB_CHECK_CQ_ROOM, NULL, &made, cq,
		"a completion of QP 0x%06x found a full completion queue (%u entries): it is lost, and "
		"the queue with its queue pairs is broken. A queue needs room for all completions that "
		"can come between two polls",
		qp->qpn, cq->capacity);
}
