/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/progress/prefetch.h"

#include "adapter/progress/path.h"

enum { AHEAD = 3 }; /* posts: one takes some tens of ns, what lies in memory alone takes a hundred to come */

static void note(_Atomic(const void *) *place, const void *at)
{
	if (atomic_load_explicit(place, memory_order_relaxed) != at)
		atomic_store_explicit(place, at, memory_order_relaxed);
}

static const void *at(_Atomic(const void *) *place) { return atomic_load_explicit(place, memory_order_relaxed); }

static struct vb_prefetch_hint *next_of(struct vb_prefetch_hint *turn) { return atomic_load_explicit(&turn->next, memory_order_relaxed); }

static void describe(struct vb_qp *qp, enum ibv_wr_opcode opcode, struct vb_prefetch_hint *turn)
{
	const struct vb_path_ops *path = atomic_load_explicit(&qp->path, memory_order_relaxed);
	note(&turn->qp, qp);
	note(&turn->state, qp->path_state);
	if (path && path->hint_prefetch)
		path->hint_prefetch(qp, opcode, turn);
}

static void fetch(struct vb_prefetch_hint *turn)
{
	vb_prefetch_qp(at(&turn->qp));
	vb_fetch_to_write((const char *)at(&turn->qp) + offsetof(struct vb_qp, sq));
	vb_prefetch_path_state(at(&turn->state));
	vb_fetch_to_write(at(&turn->there[0]));
	vb_fetch_to_write(at(&turn->there[1]));
	vb_fetch(at(&turn->there[2]));
}

void vb_prefetch_next(struct vb_qp *qp, enum ibv_wr_opcode opcode)
{
	_Atomic(uint32_t) *posted = &qp->send_cq->posted;
	struct vb_prefetch_hint *turn = vb_prefetch_hint_of(qp->qpn), *before = vb_prefetch_hint_of(atomic_load_explicit(posted, memory_order_relaxed));
	atomic_store_explicit(posted, qp->qpn, memory_order_relaxed);
	if (vb_unlikely(!turn))
		return;
	if (before && next_of(before) != turn)
		atomic_store_explicit(&before->next, turn, memory_order_relaxed);
	describe(qp, opcode, turn);
	for (int i = 0; turn && i < AHEAD; i++)
		turn = next_of(turn);
	if (turn)
		fetch(turn);
}
