/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cached translations: where a connection's last requests of one kind had their memory, here and at the peer.
 * The next one like them looks at two generation numbers (adapter/memory/arena.h), this process's and the
 * peer's, and not at keys, rights and states.
 *
 * A translation holds while both generations are what they were before it was made. A process that revokes an
 * access raises its generation, and then waits for the users:
 *
 *	user of memory                        revoker
 *	busy = odd                            key = 0, or whatever ends
 *	light fence                           generation + 1
 *	are the generations as they were?     heavy fence
 *	loads, stores                         is it busy? waits
 *	busy = even
 *	has the link been cut? Then redo      (local/cut.h)
 *
 * A request outside the translation is checked as if there were none.
 */
#ifndef VB_LOCAL_TRANSLATION_H
#define VB_LOCAL_TRANSLATION_H

#include "local/qp.h"

/* Under the lock of the half that it belongs to; of memory that others revoke, in a busy section. */
static inline bool vb_translation_holds(const struct vb_local_qp *l, const struct vb_translation *t)
{
	return t->is_made &&
	       vb_likely(atomic_load_explicit(&vb_arena->generation, memory_order_acquire) ==
			 t->our_generation) &&
	       vb_likely(atomic_load_explicit(&l->peer->arena->generation, memory_order_acquire) ==
			 t->their_generation);
}

/* Where this process has the piece, of a translation that holds; NULL: not within it. */
static inline void *vb_translation_of_piece(const struct vb_translation *t, const struct ibv_sge *piece)
{
	bool within =
		piece->lkey == t->lkey && vb_is_within(piece->addr - t->ours, piece->length, t->our_bytes);
	return within ? (void *)(uintptr_t)piece->addr : NULL;
}

/* Where this process has a request's remote range; NULL: not within it. */
static inline void *vb_translation_of_target(const struct vb_remote_translation *t, uint32_t rkey,
					     uint64_t addr, uint32_t length)
{
	bool within = rkey == t->rkey && vb_is_within(addr - t->theirs, length, t->their_bytes);
	return within ? t->there + (addr - t->theirs) : NULL;
}

/*
 * A WRITE or READ was carried out here that the translation did not cover. sq.lock is held, in a busy
 * section.
 */
void vb_translation_learn_move(struct vb_local_qp *l, struct vb_remote_translation *t,
			       const struct ibv_send_wr *wr, bool writes);
/* A SEND was published. sq.lock is held. */
void vb_translation_learn_send(struct vb_local_qp *l, const struct ibv_send_wr *wr);
/* A small SEND was received in this piece. resp_lock is held, in a busy section. */
void vb_translation_learn_receive(struct vb_local_qp *l, const struct ibv_sge *piece);

#endif
