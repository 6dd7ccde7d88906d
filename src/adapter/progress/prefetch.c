/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/progress/prefetch.h"

#include "adapter/progress/path.h"

enum { AHEAD = 4 }; /* posts: one takes some tens of ns, what lies in memory alone takes a hundred to come */

static const void *at(_Atomic(const void *) *place)
{
	return atomic_load_explicit(place, memory_order_relaxed);
}

static struct vb_prefetch_hint *next_of(struct vb_prefetch_hint *hint)
{
	return atomic_load_explicit(&hint->next, memory_order_relaxed);
}

static void describe(struct vb_qp *qp, enum ibv_wr_opcode opcode, struct vb_prefetch_hint *hint)
{
	const struct vb_path_ops *path = atomic_load_explicit(&qp->path, memory_order_relaxed);
	vb_prefetch_note(&hint->qp, qp);
	if (path && path->hint_prefetch)
		path->hint_prefetch(qp, opcode, hint);
}

static void fetch(struct vb_prefetch_hint *hint)
{
	vb_fetch(next_of(hint)); /* the next post comes here */
	vb_prefetch_qp(at(&hint->qp));
	vb_fetch_to_write((const char *)at(&hint->qp) + offsetof(struct vb_qp, sq));
	const void *line;
	for (unsigned i = 0; i < VB_PREFETCH_LINES && (line = at(&hint->written[i])); i++)
		vb_fetch_to_write(line);
	if ((line = at(&hint->read)))
		vb_fetch(line);
}

void vb_prefetch_next(struct vb_qp *qp, enum ibv_wr_opcode opcode)
{
	_Atomic(struct vb_prefetch_hint *) *posted = &qp->send_cq->posted;
	struct vb_prefetch_hint *hint = vb_prefetch_hint_of(qp->qpn),
				*before = atomic_load_explicit(posted, memory_order_relaxed);
	if (hint == before || vb_unlikely(!hint))
		return;
	atomic_store_explicit(posted, hint, memory_order_relaxed);
	if (before && next_of(before) != hint)
		atomic_store_explicit(&before->next, hint, memory_order_relaxed);
	describe(qp, opcode, hint);
	for (int i = 0; hint && i < AHEAD; i++)
		hint = next_of(hint);
	if (hint)
		fetch(hint);
}
