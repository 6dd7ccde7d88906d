/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/xrc.h"

#include <errno.h>
#include <stdlib.h>

#include "adapter/progress.h"

enum { MAX_SRQS = 0xffffff };

/* Under vb_progress_lock: by number, NULL where none is. Number 0 is never used. */
static struct vb_srq **table;
static uint32_t room, next = 1;

static struct vb_srq *find_locked(uint32_t srqn, uint32_t xrcd)
{
	struct vb_srq *srq = srqn < room ? table[srqn] : NULL;
	return srq && srq->xrcd->number == xrcd ? srq : NULL;
}

/* ---- numbers ---- */

static bool grow(uint32_t to)
{
	struct vb_srq **grown = calloc(to, sizeof(*grown));
	if (!grown)
		return false;
	vb_lock(&vb_progress_lock);
	struct vb_srq **old = grown;
	if (to > room) {
		for (uint32_t i = 0; i < room; i++)
			grown[i] = table[i];
		old = table;
		table = grown;
		room = to;
	}
	vb_unlock(&vb_progress_lock);
	free(old);
	return true;
}

/* A number that has rested: they are handed out in turn. */
static bool place_locked(struct vb_srq *srq)
{
	for (uint32_t tried = 1; tried < room; tried++) {
		uint32_t n = next;
		next = next + 1 < room ? next + 1 : 1;
		if (table[n])
			continue;
		table[n] = srq;
		srq->number = n;
		return true;
	}
	return false;
}

int vb_xrc_srq_join(struct vb_srq *srq, struct vb_xrcd *xrcd, struct vb_cq *cq)
{
	srq->xrcd = xrcd;
	srq->cq = cq;
	for (;;) {
		vb_lock(&vb_progress_lock);
		bool placed = place_locked(srq);
		uint32_t had = room;
		vb_unlock(&vb_progress_lock);
		if (placed)
			break;
		if (had > MAX_SRQS / 2 || !grow(had ? 2 * had : 64))
			return -ENOMEM;
	}
	atomic_fetch_add(&xrcd->refs, 1);
	atomic_fetch_add(&cq->refs, 1);
	return 0;
}

bool vb_xrc_srq_leave(struct vb_srq *srq)
{
	vb_lock(&vb_progress_lock);
	bool idle = !atomic_load(&srq->refs);
	if (idle)
		table[srq->number] = NULL;
	vb_unlock(&vb_progress_lock);
	if (!idle)
		return false;
	vb_cq_purge_srq(srq->cq, srq);
	atomic_fetch_sub(&srq->xrcd->refs, 1);
	atomic_fetch_sub(&srq->cq->refs, 1);
	return true;
}

/* ---- receiving queue pairs ---- */

bool vb_xrc_select(struct vb_qp *qp, uint32_t srqn)
{
	if (qp->srq && qp->srq->number == srqn)
		return true;
	vb_xrc_release(qp);
	vb_lock(&vb_progress_lock);
	qp->srq = find_locked(srqn, qp->xrcd->number);
	if (qp->srq)
		atomic_fetch_add(&qp->srq->refs, 1);
	vb_unlock(&vb_progress_lock);
	return qp->srq;
}

void vb_xrc_release(struct vb_qp *qp)
{
	struct vb_srq *srq = qp->srq;
	if (!srq)
		return;
	vb_lock(&srq->rq.lock);
	vb_list_del(&qp->srq_node);
	vb_unlock(&srq->rq.lock);
	qp->srq = NULL;
	atomic_fetch_sub(&srq->refs, 1);
}

uint32_t vb_xrc_pd(const struct vb_qp *qp, uint32_t srqn)
{
	vb_lock(&vb_progress_lock);
	const struct vb_srq *srq = find_locked(srqn, qp->xrcd->number);
	uint32_t pd = srq ? srq->pd->number : 0;
	vb_unlock(&vb_progress_lock);
	return pd;
}

void vb_xrc_forget(struct vb_qp *qp)
{
	vb_lock(&vb_progress_lock);
	for (uint32_t i = 0; i < room; i++)
		if (table[i])
			vb_cq_forget(table[i]->cq, qp);
	vb_unlock(&vb_progress_lock);
}

/* A forked child has none of its parent's queues. */
static void forget_all(void)
{
	for (uint32_t i = 0; i < room; i++)
		table[i] = NULL;
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget_all);
}
