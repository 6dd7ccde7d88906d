/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shortcuts: what was found out about a queue pair's last WRITEs, or READs, so that the next one between the same two regions is a few
 * comparisons and a copy. A path that carries them out by loads and stores makes it (local/shortcut.c), under sq.lock; posts take it, under the
 * same lock (sq.c).
 *
 * Nothing is checked less than on the long way. All that the long way looks at, and that changes without sq.lock, is covered by the revisions of
 * two arenas (adapter/arena.h), this process's and the peer's. They are read before all that is noted here is looked at, and are
 * looked at again where a use would look at the key:
 *
 *	user of memory                        who revokes
 *	busy = odd                            key = 0, or whatever ends
 *	light fence                           revision + 1
 *	are the revisions as they were?       heavy fence
 *	loads, stores                         is it busy? waits
 *	busy = even
 *	has the link been cut? Then redo       (local/cut.h)
 *
 * Of what changes under sq.lock, the queue's positions are looked at each time, and who ends the connection forgets its shortcut.
 */
#ifndef VB_ADAPTER_SHORTCUT_H
#define VB_ADAPTER_SHORTCUT_H

#include "adapter/arena.h"
#include "adapter/busy.h"
#include "adapter/queue.h"
#include "adapter/ranges.h"

enum { VB_SHORTCUT_BYTES = 1 << 20 }; /* of a request, at most: no call blocks for long */

static inline void vb_shortcut_forget(struct vb_shortcut *s)
{
	s->their_bytes = 0;
}

/* Does it lead to where this request goes? */
static inline bool vb_shortcut_reaches(const struct vb_shortcut *s, const struct ibv_send_wr *wr)
{
	uint32_t length = wr->sg_list->length;
	return wr->wr.rdma.rkey == s->rkey && length - 1 < VB_SHORTCUT_BYTES &&
	       vb_is_within(wr->wr.rdma.remote_addr - s->theirs, length, s->their_bytes);
}

/* Does it lie in what was found of a region of this process's? */
static inline bool vb_piece_is_known(const struct ibv_sge *piece, uint32_t lkey, uint64_t start, uint32_t bytes)
{
	return piece->lkey == lkey && vb_is_within(piece->addr - start, piece->length, bytes);
}

/* And from where its bytes are, or shall be? */
static inline bool vb_shortcut_covers(const struct vb_shortcut *s, const struct ibv_sge *piece)
{
	return vb_piece_is_known(piece, s->lkey, s->ours, s->our_bytes);
}

static inline bool vb_shortcut_fits_write(const struct vb_shortcut *s, const struct ibv_send_wr *wr, uint32_t max_inline)
{
	return wr->opcode == IBV_WR_RDMA_WRITE && vb_wr_is_single(wr, max_inline) && vb_shortcut_reaches(s, wr) &&
	       ((wr->send_flags & IBV_SEND_INLINE) || vb_shortcut_covers(s, wr->sg_list));
}

/* Never one with IBV_SEND_INLINE, which is no READ. */
static inline bool vb_shortcut_fits_read(const struct vb_shortcut *s, const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_RDMA_READ && !(wr->send_flags & IBV_SEND_INLINE) && vb_wr_is_single(wr, 0) && vb_shortcut_reaches(s, wr) &&
	       vb_shortcut_covers(s, wr->sg_list);
}

/* False: the owner of the memory could not wait for this, and has ended the link that `cut` belongs to; the request is not carried out. */
static inline bool vb_shortcut_leave(const struct vb_shortcut *s, const _Atomic(uint32_t) *cut)
{
	vb_busy_word_end(s->busy);
	return vb_likely(!atomic_load_explicit(&s->their_arena->cuts, memory_order_acquire)) || !atomic_load_explicit(cut, memory_order_relaxed);
}

/* Where the peer's bytes are of a request that fits; the caller copies and leaves. NULL: something has changed since. */
static inline uint8_t *vb_shortcut_enter(const struct vb_shortcut *s, const struct ibv_send_wr *wr)
{
	vb_busy_word_begin_lightly(s->busy);
	if (vb_likely(atomic_load_explicit(&vb_arena->revision, memory_order_acquire) == s->our_revision) &&
	    vb_likely(atomic_load_explicit(&s->their_arena->revision, memory_order_acquire) == s->their_revision))
		return s->there + (wr->wr.rdma.remote_addr - s->theirs);
	vb_busy_word_end(s->busy);
	return NULL;
}

#endif
