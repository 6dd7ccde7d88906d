/* SPDX-License-Identifier: BSD-2-Clause */
#include "local/translation.h"

#include "adapter/inspection/packet_view.h"
#include "adapter/queues/queue.h"
#include "host/memory/touch.h"
#include "local/reach.h"
#include "local/serve.h"

/*
 * Making one costs as much as some small requests, and some can have none: it is tried once in so many that
 * come with the same keys.
 */
enum { TRY_EACH = 16 };

/*
 * As much of a region as counts in 32 bits: from its beginning, or else from the address that was just used.
 */
struct span {
	uint64_t start;
	uint32_t bytes;
};

static struct span span_of(const struct vb_arena_head *arena, uint32_t key, uint64_t used)
{
	const struct vb_key *k = vb_key_at(vb_key_table(arena), key);
	uint64_t start = atomic_load_explicit(&k->iova, memory_order_relaxed),
		 length = atomic_load_explicit(&k->length, memory_order_relaxed);
	uint64_t skip = length > UINT32_MAX ? used - start : 0;
	return (struct span){ start + skip, skip < length ? vb_min_u64(length - skip, UINT32_MAX) : 0 };
}

static void find_ours(struct vb_translation *t, uint32_t pd, uint64_t used, unsigned access)
{
	struct span span = span_of(vb_arena, t->lkey, used);
	struct ibv_sge all = { .addr = span.start, .length = span.bytes, .lkey = t->lkey };
	const void *here = span.bytes ? vb_key_find(&all, access, pd) : NULL;
	t->ours = span.start;
	t->our_bytes = here && (uintptr_t)here == span.start ? span.bytes : 0;
}

/*
 * This program can take its own memory away, which a store would not survive once it has the signals; what is
 * mapped stays.
 */
static bool may_vanish(const struct vb_local_qp *l)
{
	return l->peer->copy == VB_COPY_SAME && vb_touch_is_lost();
}

static void find_theirs(struct vb_remote_translation *t, struct vb_local_qp *l, uint64_t used, bool writes)
{
	struct span span = span_of(l->peer->arena, t->rkey, used);
	t->there = span.bytes && !may_vanish(l) ? vb_peer_reach(l, t->rkey, span.start, span.bytes, writes) :
						  NULL;
	t->theirs = span.start;
	t->their_bytes = t->there ? span.bytes : 0;
}

/*
 * The generations first: a user who goes by them notices what ends behind them. So what was checked before is
 * checked once more by the caller. False: they say nothing, or something is special.
 */
static bool begin(struct vb_translation *t, const struct vb_local_qp *l)
{
	t->our_generation = atomic_load(&vb_arena->generation);
	t->their_generation = atomic_load(&l->peer->arena->generation);
	return t->our_generation != VB_GENERATION_LAST && t->their_generation != VB_GENERATION_LAST &&
	       !vb_qp_is_captured(l->qp);
}

static bool is_due(struct vb_translation *t, uint32_t lkey)
{
	if (t->lkey == lkey)
		return ++t->streak % TRY_EACH == 0;
	*t = (struct vb_translation){ .lkey = lkey };
	return false;
}

/* Inline data has no key. */
static uint32_t lkey_of(const struct vb_translation *t, const struct ibv_send_wr *wr)
{
	return (wr->send_flags & IBV_SEND_INLINE) || !wr->num_sge ? t->lkey : wr->sg_list->lkey;
}

void vb_translation_learn_move(struct vb_local_qp *l, struct vb_remote_translation *t,
			       const struct ibv_send_wr *wr, bool writes)
{
	struct vb_translation *local = &t->local;
	uint32_t lkey = lkey_of(local, wr);
	if (t->rkey != wr->wr.rdma.rkey) {
		*t = (struct vb_remote_translation){ .local.lkey = lkey, .rkey = wr->wr.rdma.rkey };
		return;
	}
	if (!is_due(local, lkey))
		return;
	local->is_made = begin(local, l);
	find_ours(local, l->qp->pd->number, wr->sg_list->addr, writes ? 0 : IBV_ACCESS_LOCAL_WRITE);
	find_theirs(t, l, wr->wr.rdma.remote_addr, writes);
}

void vb_translation_learn_send(struct vb_local_qp *l, const struct ibv_send_wr *wr)
{
	struct vb_translation *t = &l->to_send;
	if (!is_due(t, lkey_of(t, wr)))
		return;
	t->is_made = begin(t, l) && vb_peer_responds(l);
	find_ours(t, l->qp->pd->number, wr->sg_list->addr, 0);
}

void vb_translation_learn_receive(struct vb_local_qp *l, const struct ibv_sge *piece)
{
	struct vb_translation *t = &l->to_receive;
	if (!is_due(t, piece->lkey))
		return;
	t->is_made = begin(t, l) && vb_serve_goes_on(l);
	find_ours(t, vb_receive_domain(l->qp), piece->addr, IBV_ACCESS_LOCAL_WRITE);
}
