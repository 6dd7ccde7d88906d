/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes shortcuts (adapter/shortcut.h) of WRITEs that this side has carried out by loads and stores. */
#include "adapter/show.h"
#include "local/mapped.h"
#include "local/qp.h"

enum { ALIKE = 16 };

/* As much of a region as counts in 32 bits: from its beginning, or else from the address that was just used. */
struct span {
	uint64_t start;
	uint32_t bytes;
};

static struct span span_of(const struct vb_key *k, uint64_t used)
{
	uint64_t start = atomic_load_explicit(&k->iova, memory_order_relaxed), length = atomic_load_explicit(&k->length, memory_order_relaxed);
	uint64_t skip = length > UINT32_MAX ? used - start : 0;
	return (struct span){ start + skip, skip < length ? vb_min_u64(length - skip, UINT32_MAX) : 0 };
}

/* Where this process may read, at the addresses that requests have. */
static void find_source(struct vb_shortcut *s, const struct vb_local_qp *l, uint64_t used)
{
	const struct vb_key *k = vb_key_at(vb_key_table(vb_arena), s->lkey);
	struct span span = span_of(k, used);
	struct ibv_sge all = { .addr = span.start, .length = span.bytes, .lkey = s->lkey };
	const void *here = span.bytes ? vb_key_find(&all, 0, l->qp->pd->number) : NULL;
	s->from = span.start;
	s->from_bytes = here && (uintptr_t)here == span.start ? span.bytes : 0;
}

static void find_target(struct vb_shortcut *s, struct vb_local_qp *l, uint64_t used)
{
	struct span span = span_of(vb_key_at(vb_key_table(l->peer->arena), s->rkey), used);
	s->there = span.bytes ? vb_requester_reach(l, s->rkey, span.start, span.bytes) : NULL;
	s->to = span.start;
	s->to_bytes = s->there ? span.bytes : 0;
}

/* The revisions first: what ends behind them is noticed by who takes the shortcut. */
static void make(struct vb_shortcut *s, struct vb_local_qp *l, const struct ibv_send_wr *wr)
{
	s->busy = &l->mine->busy[VB_STREAM_REQUEST];
	s->their_revision_at = &l->peer->arena->revision;
	s->our_revision = atomic_load(&vb_arena->revision);
	s->their_revision = atomic_load(s->their_revision_at);
	if (s->our_revision == VB_REVISION_LAST || s->their_revision == VB_REVISION_LAST || !vb_busy_is_light(l) ||
	    vb_qp_loses_completions(l->qp) || vb_qp_is_shown(l->qp))
		return;
	find_source(s, l, wr->sg_list->addr);
	find_target(s, l, wr->wr.rdma.remote_addr);
}

/* Making one takes some times as long as a WRITE, and some can have none: so it is made for what comes again and again. */
void vb_shortcut_learn(struct vb_local_qp *l, const struct ibv_send_wr *wr)
{
	struct vb_shortcut *s = &l->qp->shortcut;
	uint32_t lkey = wr->send_flags & IBV_SEND_INLINE ? s->lkey : wr->sg_list->lkey;
	if (vb_unlikely(s->rkey != wr->wr.rdma.rkey || s->lkey != lkey)) {
		vb_shortcut_forget(s);
		s->rkey = wr->wr.rdma.rkey;
		s->lkey = lkey;
		l->req.alike = 0;
	} else if (vb_unlikely(++l->req.alike % ALIKE == 0)) {
		vb_shortcut_forget(s);
		vb_busy_begin(l, VB_STREAM_REQUEST);
		make(s, l, wr);
		vb_busy_end(l, VB_STREAM_REQUEST);
	}
}
