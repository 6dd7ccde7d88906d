/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes shortcuts (adapter/shortcut.h) of WRITEs and READs that this side has carried out by loads and stores, and permits (local/permit.h). */
#include "adapter/show.h"
#include "adapter/turn.h"
#include "host/touch.h"
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

/* Where this process may read, or write, at the addresses that requests have. */
static struct span span_here(const struct vb_local_qp *l, uint32_t lkey, uint64_t used, unsigned access)
{
	struct span span = span_of(vb_key_at(vb_key_table(vb_arena), lkey), used);
	struct ibv_sge all = { .addr = span.start, .length = span.bytes, .lkey = lkey };
	const void *here = span.bytes ? vb_key_find(&all, access, l->qp->pd->number) : NULL;
	if (!here || (uintptr_t)here != span.start)
		span.bytes = 0;
	return span;
}

static void find_theirs(struct vb_shortcut *s, struct vb_local_qp *l, uint64_t used, bool writes)
{
	struct span span = span_of(vb_key_at(vb_key_table(l->peer->arena), s->rkey), used);
	s->there = span.bytes ? vb_express_reach(l, s->rkey, span.start, span.bytes, writes) : NULL;
	s->theirs = span.start;
	s->their_bytes = s->there ? span.bytes : 0;
}

/* The revisions first: what ends behind them is noticed by who goes by them. False: they say nothing, or something is special. */
static bool note_revisions(const struct vb_local_qp *l, uint32_t *ours, uint32_t *theirs)
{
	*ours = atomic_load(&vb_arena->revision);
	*theirs = atomic_load(&l->peer->arena->revision);
	return *ours != VB_REVISION_LAST && *theirs != VB_REVISION_LAST && !vb_qp_loses_completions(l->qp) && !vb_qp_is_shown(l->qp);
}

static void make(struct vb_shortcut *s, struct vb_local_qp *l, const struct ibv_send_wr *wr)
{
	s->busy = &l->mine->busy[VB_STREAM_REQUEST];
	s->their_arena = l->peer->arena;
	l->qp->cut = &l->peer->in->cut;
	if (!note_revisions(l, &s->our_revision, &s->their_revision) || !vb_busy_is_light(l))
		return;
	if (l->peer->copy == VB_COPY_SAME && vb_touch_is_lost())
		return; /* this program can take the memory away, which a store would not survive; what is mapped stays */
	bool writes = wr->opcode == IBV_WR_RDMA_WRITE;
	struct span here = span_here(l, s->lkey, wr->sg_list->addr, writes ? 0 : IBV_ACCESS_LOCAL_WRITE);
	s->ours = here.start;
	s->our_bytes = here.bytes;
	find_theirs(s, l, wr->wr.rdma.remote_addr, writes);
}

/* Making one takes some times as long as a small request, and some can have none: so it is made for what comes again and again. */
void vb_shortcut_learn(struct vb_local_qp *l, const struct ibv_send_wr *wr)
{
	struct vb_shortcut *s = wr->opcode == IBV_WR_RDMA_WRITE ? &l->qp->to_write : &l->qp->to_read;
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

/* *permitted: what is set as long as there is one. */
static void learn(struct vb_local_qp *l, struct vb_permit *p, bool *permitted, const struct ibv_sge *piece, unsigned access)
{
	if (p->lkey != piece->lkey) {
		*permitted = false;
		*p = (struct vb_permit){ .lkey = piece->lkey };
	} else if (++p->alike % ALIKE == 0) {
		*permitted = note_revisions(l, &p->our_revision, &p->their_revision) && vb_busy_is_light(l);
		struct span span = span_here(l, p->lkey, piece->addr, access);
		p->start = span.start;
		p->bytes = span.bytes;
	}
}

void vb_permit_learn_to_send(struct vb_local_qp *l, const struct ibv_send_wr *wr)
{
	if (vb_qp_is_in_crowd(l->qp))
		return;
	struct ibv_sge piece = *wr->sg_list;
	if (wr->send_flags & IBV_SEND_INLINE)
		piece.lkey = l->to_send.lkey;
	learn(l, &l->to_send, &l->qp->sq.repeats, &piece, 0);
}

void vb_permit_learn_to_receive(struct vb_local_qp *l, const struct ibv_sge *piece)
{
	if (!vb_qp_is_in_crowd(l->qp))
		learn(l, &l->to_receive, &l->resp.is_permitted, piece, IBV_ACCESS_LOCAL_WRITE);
}
