/* SPDX-License-Identifier: BSD-2-Clause */
#include "local/doorbell.h"

#include "local/slots.h"

/* ---- polled QPs ---- */

enum {
	HITS = 16, /* news in a row that make a QP a polled one, */
	MOST = 8,  /* of which there are so many */
};

/* Under vb_progress_lock. */
static struct vb_local_qp *polled[MOST];
static unsigned npolled;

/*
 * vb_progress_lock is held, under which those that are asleep have ended all polling. It costs a fence of all
 * processors to end, so it is not for programs that sleep again and again.
 */
static bool may_poll_locked(const struct vb_local_qp *l)
{
	return npolled < MOST && !atomic_load(&vb_arena->asleep) && !vb_progress_is_ticking() &&
	       atomic_load(&l->resp.serving) && (atomic_load(&l->mine->mode) & VB_SHM_RESPONDS) &&
	       !atomic_load(&l->mine->polled);
}

void vb_doorbell_poll_begin(struct vb_local_qp *l)
{
	unsigned hits = atomic_load_explicit(&l->hits, memory_order_relaxed);
	atomic_store_explicit(&l->hits, hits + 1, memory_order_relaxed);
	if (hits < HITS || !atomic_load_explicit(&vb_arena->fences, memory_order_relaxed) ||
	    !vb_lock_try(&vb_progress_lock))
		return;
	if (may_poll_locked(l)) {
		polled[npolled++] = l;
		atomic_store(&l->mine->polled, 1);
	}
	vb_unlock(&vb_progress_lock);
	atomic_store_explicit(&l->hits, 0, memory_order_relaxed);
}

bool vb_doorbell_poll_locked(void)
{
	bool found = false;
	for (unsigned i = 0; i < npolled; i++) {
		if (!vb_responder_is_called(polled[i]) && !vb_requester_has_news(polled[i]))
			continue;
		vb_progress_schedule_locked(polled[i]->qp);
		found = true;
	}
	return found;
}

void vb_doorbell_poll_end(void)
{
	vb_lock(&vb_progress_lock);
	for (unsigned i = 0; i < npolled; i++)
		atomic_store(&polled[i]->mine->polled, 0);
	if (npolled)
		vb_fence_users();
	while (npolled)
		vb_progress_schedule_locked(polled[--npolled]->qp);
	vb_unlock(&vb_progress_lock);
}

static void end_polling_locked(struct vb_local_qp *l)
{
	for (unsigned i = 0; i < npolled; i++) {
		if (polled[i] != l)
			continue;
		polled[i] = polled[--npolled];
		atomic_store(&l->mine->polled, 0);
		return;
	}
}

/* ---- delayed doorbells ---- */

/* Under vb_progress_lock. */
static struct vb_list delayed = VB_LIST_INIT(delayed); /* vb_local_qp.delayed_node */
static atomic_uint ndelayed;

bool vb_doorbell_delay(struct vb_local_qp *l)
{
	vb_lock(&vb_progress_lock);
	bool may = vb_progress_is_ticking();
	if (may) {
		atomic_store(&l->resp.is_bell_delayed, true);
		if (vb_list_is_empty(&l->delayed_node)) {
			vb_list_add_tail(&delayed, &l->delayed_node);
			atomic_fetch_add(&ndelayed, 1);
		}
	}
	vb_unlock(&vb_progress_lock);
	return may;
}

/* With a reference. */
static struct vb_qp *next_delayed(void)
{
	vb_lock(&vb_progress_lock);
	struct vb_list *node = vb_list_pop(&delayed);
	struct vb_qp *qp = node ? vb_container_of(node, struct vb_local_qp, delayed_node)->qp : NULL;
	if (qp) {
		atomic_fetch_sub(&ndelayed, 1);
		vb_qp_ref(qp);
	}
	vb_unlock(&vb_progress_lock);
	return qp;
}

void vb_doorbell_ring_delayed(void)
{
	for (struct vb_qp *qp; vb_unlikely(atomic_load(&ndelayed)) && (qp = next_delayed());) {
		if (atomic_load(&vb_local_of(qp)->resp.is_bell_delayed))
			vb_doorbell_ring(vb_local_of(qp));
		vb_qp_unref(qp);
	}
}

static void end_delay_locked(struct vb_local_qp *l)
{
	if (vb_list_is_empty(&l->delayed_node))
		return;
	vb_list_del(&l->delayed_node);
	atomic_fetch_sub(&ndelayed, 1);
}

/* ---- ends ---- */

void vb_doorbell_forget_locked(struct vb_local_qp *l)
{
	end_polling_locked(l);
	end_delay_locked(l);
}

void vb_doorbell_reset(void)
{
	npolled = 0;
	vb_list_init(&delayed);
	atomic_store(&ndelayed, 0);
}
