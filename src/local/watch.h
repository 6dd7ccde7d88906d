/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs that this process looks at by itself, in every round of its polls: their peers ring no bell for them, which saves both
 * sides the lines of the bells. It takes a QP that polls have found news of again and again, whose peer's requests are served, and a
 * program that polls in a loop. All end when it no longer does: the flag is taken back, and then each is looked at once more.
 *
 *	peer                        this process, about to sleep
 *	slot, or ack                watched = 0
 *	light fence                 heavy fence
 *	watched? else ring          is there a slot, or an ack?
 *
 * Bells are still rung for what a look does not see: a QP's change of state, byte streams, refusals.
 */
#ifndef VB_LOCAL_WATCH_H
#define VB_LOCAL_WATCH_H

#include "local/qp.h"

/* Polls have found news of the QP time after time; one of its locks is held. */
void vb_watch_begin(struct vb_local_qp *l);
/* A poll has. */
static inline void vb_watch_consider(struct vb_local_qp *l)
{
	if (vb_unlikely(!atomic_load_explicit(&l->mine->watched, memory_order_relaxed)))
		vb_watch_begin(l);
}

/* Queues those that have news; true if there were some. vb_progress_lock is held. */
bool vb_watch_look_locked(void);
/* The QP stops. vb_progress_lock is held. */
void vb_watch_forget_locked(struct vb_local_qp *l);
/* Peers must ring from its return on; what they have done before is queued. No lock held. */
void vb_watch_end(void);
/* In a forked child, which has no QPs. */
void vb_watch_reset(void);

/* Tells the peer's QP that there is a slot or an ack, unless it looks by itself. */
static inline void vb_watch_ring(struct vb_local_qp *l)
{
	const struct vb_shm_qp *theirs = atomic_load_explicit(&l->theirs, memory_order_relaxed);
	if (vb_unlikely(atomic_load_explicit(&l->resp.owes_bell, memory_order_relaxed)))
		atomic_store(&l->resp.owes_bell, false);
	if (vb_likely(vb_fence_is_light()))
		atomic_signal_fence(memory_order_seq_cst);
	else
		atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load_explicit(&theirs->watched, memory_order_relaxed))
		vb_peer_ring(l->peer, l->their_qpn);
}

#endif
