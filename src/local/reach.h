/* SPDX-License-Identifier: BSD-2-Clause */
/* What a requester asks of its peer before it touches that one's memory by itself. */
#ifndef VB_LOCAL_REACH_H
#define VB_LOCAL_REACH_H

#include "host/memory/touch.h"
#include "local/mapped.h"
#include "local/qp.h"

static inline const struct vb_shm_qp *vb_theirs_of(const struct vb_local_qp *l)
{
	/* with it comes what the link agreed on */
	return atomic_load_explicit(&l->theirs, memory_order_acquire);
}

/* Does it respond to us, in the epoch that we are bound to? Binds at first sight. */
static inline bool vb_peer_responds(struct vb_local_qp *l)
{
	uint32_t mode = atomic_load_explicit(&vb_theirs_of(l)->mode, memory_order_acquire);
	if (vb_unlikely(!(mode & VB_SHM_RESPONDS)))
		return false;
	return vb_likely(l->req.bound) ? vb_mode_epoch(mode) == l->req.bound_epoch :
					 vb_requester_bind(l, mode);
}

/* May this side carry out what it asks of the peer's memory? A peer that is captured does so itself. */
static inline bool vb_peer_leaves_it(const struct vb_local_qp *l)
{
	return vb_likely(!atomic_load_explicit(&l->peer->arena->captured, memory_order_relaxed));
}

/* The same check that the target's responder makes (responder.c, target), on the target's own tables. */
static inline bool vb_peer_grants(struct vb_local_qp *l, uint32_t rkey, uint64_t addr, uint64_t length,
				  unsigned access, uint64_t *va)
{
	const struct vb_shm_qp *t = vb_theirs_of(l);
	const struct vb_key_use use = { .key = rkey, .access = access, .addr = addr, .length = length,
					.pd = atomic_load_explicit(&t->pd, memory_order_relaxed),
					.qpn = l->their_qpn };
	return (atomic_load_explicit(&t->access, memory_order_relaxed) & access) &&
	       vb_key_check(vb_key_table(l->peer->arena), &use, va) == VB_KEY_OK;
}

/* Where this process has the target; NULL: it has not. */
static inline void *vb_peer_memory(struct vb_local_qp *l, uint32_t rkey, uint64_t va, uint64_t length,
				   bool writes)
{
	if (l->peer->copy != VB_COPY_SAME)
		return vb_mapped_at(l->peer, rkey, va, length, writes);
	return vb_key_is_on_demand(vb_key_table(l->peer->arena), rkey) ? NULL : (void *)(uintptr_t)va;
}

/* Between a piece of this process's memory and what vb_peer_memory found (vb_touch_copy_unless). */
static inline VB_MUST_USE int vb_peer_copy(const struct vb_peer *peer, void *to, const void *from,
					   size_t bytes)
{
	return vb_touch_copy_unless(peer->copy == VB_COPY_SAME ? NULL : &peer->in->cut, to, from, bytes);
}

/* May this side carry out a request by itself now, as far as its peer goes? access: IBV_ACCESS_REMOTE_* */
static inline bool vb_peer_allows(struct vb_local_qp *l, uint32_t rkey, uint64_t addr, uint64_t length,
				  unsigned access, uint64_t *va)
{
	return vb_peer_leaves_it(l) && vb_peer_responds(l) &&
	       vb_peer_grants(l, rkey, addr, length, access, va) &&
	       (access == IBV_ACCESS_REMOTE_WRITE ||
		atomic_load_explicit(&vb_theirs_of(l)->rd_atomic, memory_order_relaxed));
}

/*
 * Where this process can itself write, or read, a range of the peer's memory that the peer grants; NULL: the
 * request takes its way through the queue. In a busy section.
 */
static inline void *vb_peer_reach(struct vb_local_qp *l, uint32_t rkey, uint64_t addr, uint64_t length,
				  bool writes)
{
	uint64_t va;
	unsigned access = writes ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
	return vb_likely(vb_peer_allows(l, rkey, addr, length, access, &va)) ?
		       vb_peer_memory(l, rkey, va, length, writes) :
		       NULL;
}

/*
 * A READ by this side's own loads comes behind the WRITEs before it. Where these were its stores, others may
 * not see them yet while it loads: that takes a full fence, which READs that follow each other do not need.
 * sq.lock is held.
 */
static inline void vb_order_read(struct vb_local_qp *l)
{
	if (vb_likely(!l->req.has_stored))
		return;
	atomic_thread_fence(memory_order_seq_cst);
	l->req.has_stored = false;
}

#endif
