/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Permits: what was found out about a connection's last small SENDs, so that the next one from, or into, the same region needs no look at
 * keys, states and settings: two revisions (adapter/arena.h) tell that none of them has changed, as they do for shortcuts (adapter/shortcut.h).
 * What is read or written by a permit lies in this process's memory, and in the slots.
 *
 * They stand apart from what each message looks at: of many queue pairs' messages none should wait for a line more, so these have none.
 */
#ifndef VB_LOCAL_PERMIT_H
#define VB_LOCAL_PERMIT_H

#include "local/qp.h"

/* A requester's under sq.lock, a responder's under resp_lock in a busy section. */
static inline bool vb_permit_holds(const struct vb_local_qp *l, const struct vb_permit *p)
{
	return vb_likely(atomic_load_explicit(&vb_arena->revision, memory_order_acquire) == p->our_revision) &&
	       vb_likely(atomic_load_explicit(&l->peer->arena->revision, memory_order_acquire) == p->their_revision);
}

static inline bool vb_permit_covers(const struct vb_permit *p, const struct ibv_sge *piece)
{
	return vb_piece_is_known(piece, p->lkey, p->start, p->bytes);
}

#endif
