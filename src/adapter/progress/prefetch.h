/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prefetching for programs with many queue pairs. Thousands do not fit into a near cache, so a post waits
 * mostly for the queue pair's own memory. Programs go through their queue pairs in much the same order again
 * and again. So each queue pair has a hint: the queue pair that was posted to after it, and the addresses
 * that its post touches. They are fetched some posts ahead.
 *
 * A hint is a guess, and its queue pair may be gone: addresses in it are fetched, never looked at. Hints
 * live as long as the process, one for each queue pair number. Programs with few queue pairs, or that post
 * to the same one again and again, do not come here.
 */
#ifndef VB_ADAPTER_PREFETCH_H
#define VB_ADAPTER_PREFETCH_H

#include "adapter/object.h"

enum { VB_PREFETCH_LINES = 5 }; /* of a path's memory that a post writes, at most */

struct vb_prefetch_hint {
	_Atomic(struct vb_prefetch_hint *) next;
	_Atomic(const void *) qp;
	/* by path->hint_prefetch: lines that the next post writes, up to a NULL, and one that it reads */
	_Atomic(const void *) written[VB_PREFETCH_LINES], read;
};

/*
 * The hint of a queue pair that exists in this process. It outlives the queue pair: the next one with this
 * number gets it.
 */
struct vb_prefetch_hint *vb_prefetch_hint_of(uint32_t qpn);
/* A post to qp. sq.lock is held. */
void vb_prefetch_next(struct vb_qp *qp, enum ibv_wr_opcode opcode);

/*
 * Queue pairs of one CQ, twice where it has their receives, too: so many at least do not stay in a near
 * cache. A hint.
 */
enum { VB_MANY_QPS = 32 };

static inline bool vb_qp_is_one_of_many(const struct vb_qp *qp)
{
	return vb_unlikely(atomic_load_explicit(&qp->send_cq->refs, memory_order_relaxed) >= VB_MANY_QPS);
}

/* Addresses change seldom: their line stays shared where they do not. */
static inline void vb_prefetch_note(_Atomic(const void *) *place, const void *at)
{
	if (atomic_load_explicit(place, memory_order_relaxed) != at)
		atomic_store_explicit(place, at, memory_order_relaxed);
}

/* What a call of the program or an arrival looks at first. */
static inline void vb_prefetch_qp(const void *qp)
{
	const char *at = qp;
	vb_fetch_to_write(at);
	vb_fetch_to_write(at + sizeof(struct vb_qp)); /* counts, and the program's part (verbs/verbs.h) */
}

/* Of what a path keeps for it: there, too, what a message looks at comes first. */
static inline void vb_prefetch_path_state(const void *state)
{
	const char *at = state;
	vb_fetch_to_write(at);
	vb_fetch_to_write(at + VB_CACHE_LINE);
}

#endif
