/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bells for acks that may wait. Who answers a message and then sleeps would wake a sleeping peer twice: for the ack, and for the answer. While
 * vb_progress_is_ticking, the ack's bell is put off until the next slot for that QP rings anyhow, until the program waits, or until the next
 * tick. The ack itself is in place at once: only the bell is late, and a peer that is awake gets it as always.
 */
#ifndef VB_LOCAL_LATER_H
#define VB_LOCAL_LATER_H

#include "local/watch.h"

/* Nobody may put off anything once ticking has ended: pairs with the progress thread, which rings all after that. */
bool vb_later_put_off(struct vb_local_qp *l);
/* Rings for an ack, now or later. resp_lock is held. */
static inline void vb_later_ring(struct vb_local_qp *l)
{
	if (vb_likely(!vb_progress_is_ticking()) || !vb_peer_is_asleep(l->peer) || !vb_later_put_off(l))
		vb_watch_ring(l);
}

/* Rings all that was put off. No lock held. */
void vb_later_ring_all(void);
/* The QP stops. vb_progress_lock is held. */
void vb_later_forget_locked(struct vb_local_qp *l);
/* In a forked child, which has no QPs. */
void vb_later_reset(void);

#endif
