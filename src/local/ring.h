/* SPDX-License-Identifier: BSD-2-Clause */
/* Where entries are, and what polls look for: a few loads each. */
#ifndef VB_LOCAL_RING_H
#define VB_LOCAL_RING_H

#include "local/doorbell.h"

/* Of this side's ring. */
static inline struct vb_shm_entry *vb_entry_ours(const struct vb_local_qp *l, uint32_t position)
{
	size_t at = (size_t)(position & l->qp->sq.mask) * l->req.entry_bytes;
	return (struct vb_shm_entry *)(l->req.ring + at);
}

/* Of the peer's. */
static inline const struct vb_shm_entry *vb_entry_theirs(const struct vb_local_qp *l, uint32_t position)
{
	const uint8_t *ring = atomic_load_explicit(&l->resp.ring, memory_order_relaxed);
	size_t at = (size_t)(position & l->resp.ring_mask) * l->resp.entry_bytes;
	return (const struct vb_shm_entry *)(ring + at);
}

static inline bool vb_entry_fits(uint16_t entry_bytes, uint32_t length)
{
	return length <= entry_bytes - offsetof(struct vb_shm_entry, data);
}

/*
 * Has the next entry been written? ThreadSanitizer must not look: a peer in this process may use its ring's
 * memory for something else by now.
 */
__attribute__((no_sanitize("thread"))) static inline bool vb_entry_has_come(const struct vb_local_qp *l)
{
	uint32_t next = atomic_load_explicit(&l->resp.next, memory_order_relaxed);
	return vb_shm_head_tag(atomic_load_explicit(&vb_entry_theirs(l, next)->head, memory_order_acquire)) ==
	       next + 1;
}

/* ---- sending: sq.lock is held ---- */

/*
 * The ack for the peer's requester, if its epoch is the one that this requester is bound to: as flags of
 * the entry.
 */
static inline int vb_entry_piggyback_ack(struct vb_local_qp *l, struct vb_shm_entry *entry)
{
	entry->executed = atomic_load_explicit(&l->resp.next, memory_order_acquire);
	return atomic_load_explicit(&l->resp.their_epoch, memory_order_acquire) == l->req.bound_epoch ?
		       VB_SHM_ACKS :
		       0;
}

/* What an entry says beside its request; as flags of its head. send_flags: the program's. */
static inline unsigned vb_entry_finish(struct vb_local_qp *l, struct vb_shm_entry *entry, uint32_t srqn,
				      unsigned send_flags)
{
	unsigned flags = send_flags & IBV_SEND_SOLICITED ? VB_SHM_SOLICITED : 0;
	if (vb_likely(l->qp->type != IBV_QPT_XRC_SEND))
		return flags | (unsigned)vb_entry_piggyback_ack(l, entry);
	entry->srqn = srqn;
	return flags;
}

/* The peer may see the entry from here on. */
static inline void vb_entry_post(struct vb_local_qp *l, struct vb_shm_entry *entry, unsigned flags,
				unsigned opcode, unsigned nsge, bool is_awaited)
{
	l->req.published++;
	atomic_store_explicit(&l->req.pending, true, memory_order_relaxed);
	atomic_store_explicit(&l->req.ack_polls, 0, memory_order_relaxed);
	if (is_awaited)
		atomic_store_explicit(&l->req.awaited, l->req.published, memory_order_relaxed);
	atomic_store_explicit(&entry->head, vb_shm_head(l->req.published, opcode, flags, nsge),
			      memory_order_release);
}

/* ---- without locks: hints ---- */

/*
 * As vb_responder_has_news, without a request that waits for what will ring: a receive, the byte stream, the
 * beginning of an epoch.
 */
static inline bool vb_responder_is_called(const struct vb_local_qp *l)
{
	if (!atomic_load_explicit(&l->resp.serving, memory_order_acquire))
		return false;
	return vb_unlikely(atomic_load_explicit(&l->resp.active, memory_order_relaxed)) ?
		       !atomic_load_explicit(&l->resp.waits, memory_order_relaxed) :
		       vb_entry_has_come(l);
}

/* Does something depend on an ack that has not come yet? */
static inline bool vb_requester_awaits(const struct vb_local_qp *l)
{
	return (int32_t)(atomic_load_explicit(&l->req.awaited, memory_order_relaxed) -
			 atomic_load_explicit(&l->req.acked, memory_order_relaxed)) > 0;
}

/* Has an entry of the peer acknowledged it? */
static inline bool vb_requester_has_piggybacked_ack(const struct vb_local_qp *l)
{
	uint32_t ack = atomic_load_explicit(&l->req.piggybacked_ack, memory_order_relaxed);
	return (int32_t)(ack - atomic_load_explicit(&l->req.acked, memory_order_relaxed)) > 0 &&
	       vb_requester_awaits(l);
}

/* Has the peer's ack changed? */
static inline bool vb_requester_has_news(struct vb_local_qp *l)
{
	const struct vb_shm_qp *t = atomic_load_explicit(&l->theirs, memory_order_acquire);
	return t && vb_requester_awaits(l) && !vb_ack_skips_poll(l) &&
	       atomic_load_explicit(&t->ack, memory_order_relaxed) !=
		       atomic_load_explicit(&l->req.seen_ack, memory_order_relaxed);
}

#endif
