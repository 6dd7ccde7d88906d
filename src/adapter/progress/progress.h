/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who does the adapter's work, and when (docs/architecture/progress.md). Threads that poll or post do it. The
 * progress thread does it while nobody polls, and sleeps when there is none.
 *
 * vb_arena->asleep tells peers whether they must ring. It is 0 while a thread polls in a loop; the progress
 * thread then only checks from time to time that this thread still polls. A thread that arms a CQ is about to
 * sleep, so arming sets asleep again.
 *
 * A thread that waits for completion events may lead: it does the progress thread's work while it waits
 * (docs/architecture/progress.md, "Leading").
 *
 * vb_progress_schedule queues work on a QP. Threads that run it are known, and others hold references. So a
 * QP that was unlinked (vb_qpn_drop) is safe to free once vb_qp_drain has returned.
 */
#ifndef VB_ADAPTER_PROGRESS_H
#define VB_ADAPTER_PROGRESS_H

#include "adapter/memory/arena.h"
#include "adapter/object.h"

/* Peers can ring, and the progress thread has work, from here on; once the arena is there. */
void vb_progress_start(void);

/* Guards the run queue, the QPN table and the paths' arrival queues. Held for tens of ns. */
extern struct vb_lock vb_progress_lock;

/* A poll has found news of the CQ's hot QP. True: it should make a round, too. */
bool vb_progress_is_due(void);
/*
 * One round of a poll that found no completion. found: it found news of the hot QP. False: nothing has
 * happened.
 */
bool vb_progress_poll(bool found);
/* The progress thread works while the thread that polls in a loop lacks a processor. */
extern atomic_bool vb_progress_stands_in;
void vb_progress_note_poll(void);
/*
 * A poll found completions that were there. While the progress thread may have brought them, that counts as
 * a poll like any other.
 */
static inline void vb_progress_note_completions(void)
{
	if (vb_unlikely(atomic_load_explicit(&vb_progress_stands_in, memory_order_relaxed)) ||
	    vb_unlikely(vb_arena && atomic_load_explicit(&vb_arena->asleep, memory_order_relaxed)))
		vb_progress_note_poll();
}
/*
 * The calling thread leads from here on, until it calls vb_progress_lead_end: peers ring it instead of
 * the progress thread, and it makes the rounds, in vb_progress_lead_until. False: another thread does, or the
 * adapter is not there.
 */
bool vb_progress_lead(void);
/*
 * Works and sleeps until is_over: 0, or -EINTR as read(2). A cancellation point. is_over is called often,
 * without locks of this module.
 */
int vb_progress_lead_until(bool (*is_over)(void *arg), void *arg);
void vb_progress_lead_end(void);
/* Is the calling thread making the rounds of vb_progress_lead_until(…, arg)? */
bool vb_progress_leads_for(const void *arg);
extern atomic_bool vb_progress_ticks;
/*
 * Do threads lead now and then, so that the progress thread ticks each 1 ms for what they leave undone? Exact
 * under vb_progress_lock: once it is false, vb_path_ring_delayed will be called. Else a hint.
 */
static inline bool vb_progress_is_ticking(void)
{
	return atomic_load_explicit(&vb_progress_ticks, memory_order_relaxed);
}
/*
 * One round, before a CQ is armed. What it brings needs no event, since a program polls once more after it
 * has armed (ibv_req_notify_cq(3)). After the arming, the progress thread would have to be woken for it.
 */
void vb_progress_before_arming(void);
/* The calling thread may go to sleep on a completion channel now: peers must ring from here on. */
void vb_progress_arm(void);
/* Queues a QP for its path's run. */
void vb_progress_schedule(struct vb_qp *qp);
/* The same for a QP whose lock another thread holds: that thread gets the processor first. */
void vb_progress_retry(struct vb_qp *qp);
void vb_progress_schedule_locked(struct vb_qp *qp);
/* Does the progress thread leave the work to a thread that polls in a loop? */
bool vb_progress_is_polled(void);
/* Rounds by threads that poll, modulo 2^32; a hint. */
unsigned vb_progress_polls(void);
/* The calling thread has taken arrivals. If it is the progress thread, nobody polled for them. */
void vb_progress_note_arrivals(void);
/* A thread that polls or posts does long work: it counts as polling meanwhile. */
void vb_progress_note_work(void);
/*
 * Waits until nobody uses the QP; takes it off the run queue. It must have been unlinked or stopped before.
 */
void vb_qp_drain(struct vb_qp *qp);

static inline void vb_qp_ref(struct vb_qp *qp) { atomic_fetch_add(&qp->refs, 1); }
static inline void vb_qp_unref(struct vb_qp *qp) { atomic_fetch_sub(&qp->refs, 1); }

#endif
