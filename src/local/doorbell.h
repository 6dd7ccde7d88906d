/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Doorbells and acks between two processes: which of them a message needs, and when.
 *
 * An entry or an ack is in place before its doorbell rings. The doorbell tells the peer which QP to look at,
 * and wakes it if it sleeps. Three rules save cache lines and system calls where the peer finds the news
 * anyway:
 *
 * Polled QPs need no doorbell. When a program's polls find news of a QP time after time, the QP's control
 * block says `polled`, and each round of polls looks at it. When the program stops to poll, this process
 * takes the word back and looks once more:
 *
 *	peer                        this process, about to sleep
 *	entry, or ack                polled = 0
 *	light fence                 heavy fence
 *	polled? else ring           is there an entry, or an ack?
 *
 * Delayed doorbells: a program that answers a message and then sleeps would wake a sleeping peer twice, for
 * the ack and for the answer. While vb_progress_is_ticking, the ack's doorbell waits for the next entry of
 * that QP, which rings anyhow, until the program waits, or for the next tick.
 *
 * Ack polling interval: each entry carries an ack for the opposite direction (piggybacked acks), so while
 * answers come the ack's own line need not be read. A poll that read it would slow the responder at its next
 * ack. So it is read once in VB_ACK_INTERVAL polls since the last entry. After an ack that no entry carried,
 * the interval is halved.
 *
 * A change of state, byte streams and refusals always ring.
 */
#ifndef VB_LOCAL_DOORBELL_H
#define VB_LOCAL_DOORBELL_H

#include "local/qp.h"

/* ---- ringing: a lock of the QP is held ---- */

/* Tells the peer's QP that there is an entry or an ack, unless its owner polls it. */
static inline void vb_doorbell_ring(struct vb_local_qp *l)
{
	const struct vb_shm_qp *theirs = atomic_load_explicit(&l->theirs, memory_order_relaxed);
	if (vb_unlikely(atomic_load_explicit(&l->resp.is_bell_delayed, memory_order_relaxed)))
		atomic_store(&l->resp.is_bell_delayed, false);
	if (vb_likely(vb_fence_is_light()))
		atomic_signal_fence(memory_order_seq_cst);
	else
		atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load_explicit(&theirs->polled, memory_order_relaxed))
		vb_peer_ring(l->peer, l->their_qpn);
}

/*
 * False: ticking has ended. Then nothing may be delayed, because the progress thread rings all delayed
 * doorbells at that moment.
 */
bool vb_doorbell_delay(struct vb_local_qp *l);

/* Of an ack: now or later. resp_lock is held. */
static inline void vb_doorbell_ring_for_ack(struct vb_local_qp *l)
{
	if (vb_likely(!vb_progress_is_ticking()) || !vb_peer_is_asleep(l->peer) || !vb_doorbell_delay(l))
		vb_doorbell_ring(l);
}

/* Rings all that were delayed. No lock held. */
void vb_doorbell_ring_delayed(void);

/* ---- polled QPs ---- */

/* Polls have found news of the QP time after time; one of its locks is held. */
void vb_doorbell_poll_begin(struct vb_local_qp *l);
/* A poll has. */
static inline void vb_doorbell_note_news(struct vb_local_qp *l)
{
	if (vb_unlikely(!atomic_load_explicit(&l->mine->polled, memory_order_relaxed)))
		vb_doorbell_poll_begin(l);
}

/*
 * Queues the polled QPs that have news, and those that bells name; true if there were some. vb_progress_lock
 * is held.
 */
bool vb_doorbell_look_locked(void);
/* Are there bells, or datagrams? No lock held. */
bool vb_doorbell_is_pending(void);
/* Peers must ring from its return on; what they have done before is queued. No lock held. */
void vb_doorbell_poll_end(void);

/*
 * Ends the polling of a queue pair that serves no requester any more: polls would not see the next one begin.
 * From the return on the peer must ring. resp_lock is held.
 */
void vb_doorbell_poll_end_of(struct vb_local_qp *l);

/* ---- how often the ack's line is read ---- */

enum { VB_ACK_INTERVAL = 12 }; /* polls; 8 to 12 were best of 0 to 64, 4 % before 0 (ping-pong of 8 bytes) */

/* Does this poll leave the line alone? */
static inline bool vb_ack_skips_poll(struct vb_local_qp *l)
{
	unsigned interval = atomic_load_explicit(&l->req.ack_interval, memory_order_relaxed);
	unsigned polls = atomic_load_explicit(&l->req.ack_polls, memory_order_relaxed);
	if (polls >= interval)
		return false;
	atomic_store_explicit(&l->req.ack_polls, polls + 1, memory_order_relaxed);
	return true;
}

static inline void vb_ack_set_interval(struct vb_local_qp *l, unsigned polls)
{
	if (atomic_load_explicit(&l->req.ack_interval, memory_order_relaxed) != polls)
		atomic_store_explicit(&l->req.ack_interval, polls, memory_order_relaxed);
}

static inline void vb_ack_came_by_itself(struct vb_local_qp *l)
{
	vb_ack_set_interval(l, atomic_load_explicit(&l->req.ack_interval, memory_order_relaxed) / 2);
}

static inline void vb_ack_came_piggybacked(struct vb_local_qp *l) { vb_ack_set_interval(l, VB_ACK_INTERVAL); }

/* ---- ends ---- */

/* The QP stops. vb_progress_lock is held. */
void vb_doorbell_forget_locked(struct vb_local_qp *l);
/* In a forked child, which has no QPs. */
void vb_doorbell_reset(void);

#endif
