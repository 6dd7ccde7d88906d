/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who does the adapter's work, and when (docs/architecture/progress.md). Threads that poll or post work
 * off what there is; the progress thread does so while nobody polls, and sleeps when there is nothing to do.
 *
 * vb_arena->asleep tells peers whether they must ring. It is 0 while a thread polls in a loop; the progress
 * thread then only looks in from time to time whether that thread still polls. A thread that arms a CQ is
 * about to sleep, so arming sets asleep again.
 *
 * A thread that waits for completion events may lead: do the progress thread's work while it waits
 * (docs/architecture/progress.md, "Leading").
 *
 * Work on a QP is queued with vb_progress_later. Whoever runs it says so, and others hold references, so that
 * a QP that was unlinked (vb_qpn_drop) is safe to free once vb_qp_drain has returned.
 */
#ifndef VB_ADAPTER_PROGRESS_H
#define VB_ADAPTER_PROGRESS_H

#include "adapter/object.h"

/* Peers can ring, and the progress thread has work, from here on; once the arena is there. */
void vb_progress_start(void);

/* Guards the run queue, the QPN table and the paths' arrival queues. Held for tens of ns. */
extern struct vb_lock vb_progress_lock;

/* A thread that polls has found news of the CQ's hot QP. True: it should make a round, too. */
bool vb_progress_is_due(void);
/*
 * One round by a thread that polls and found no completion. found: but news of the hot QP. False: nothing has
 * happened.
 */
bool vb_progress_poll(bool found);
/*
 * The calling thread leads from here on, until it calls vb_progress_lead_no_more: peers ring it instead of
 * the progress thread, and it makes the rounds, in vb_progress_lead_until. False: another thread does, or the
 * adapter is not there.
 */
bool vb_progress_lead(void);
/*
 * Works and sleeps until is_over: 0, or -EINTR as read(2). A cancellation point. is_over is called often,
 * without locks of this module.
 */
int vb_progress_lead_until(bool (*is_over)(void *arg), void *arg);
void vb_progress_lead_no_more(void);
/* Is the calling thread making the rounds of vb_progress_lead_until(…, arg)? */
bool vb_progress_leads_for(const void *arg);
extern atomic_bool vb_progress_ticks;
/*
 * Do threads lead now and then, so that the progress thread looks within 1 ms at what they leave undone?
 * Exact under vb_progress_lock for what is put off: once it is false, vb_path_settle will be called. Else a
 * hint.
 */
static inline bool vb_progress_is_ticking(void)
{
	return atomic_load_explicit(&vb_progress_ticks, memory_order_relaxed);
}
/* The calling thread may go to sleep on a completion channel now: peers must ring from here on. */
void vb_progress_arm(void);
/* Queues a QP for its path's run. */
void vb_progress_later(struct vb_qp *qp);
/*
 * The same for one whose turn it was, but another thread has the lock that it takes: that one is let run
 * first.
 */
void vb_progress_retry(struct vb_qp *qp);
void vb_progress_later_locked(struct vb_qp *qp);
/*
 * Does the progress thread count on a thread that polls in a loop? It looks in from time to time if it does.
 */
bool vb_progress_is_polled(void);
/* Rounds by threads that poll, modulo 2^32; a hint. */
unsigned vb_progress_polls(void);
/* Arrivals were taken. If it was the progress thread that did, nobody polled for them. */
void vb_progress_has_taken(void);
/* A thread that polls or posts does long work. So it has not gone, though its polls do not count up. */
void vb_progress_is_working(void);
/*
 * Waits until nobody uses the QP; takes it off the run queue. It must have been unlinked or stopped before.
 */
void vb_qp_drain(struct vb_qp *qp);

static inline void vb_qp_ref(struct vb_qp *qp) { atomic_fetch_add(&qp->refs, 1); }
static inline void vb_qp_unref(struct vb_qp *qp) { atomic_fetch_sub(&qp->refs, 1); }

#endif
