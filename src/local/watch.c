/* SPDX-License-Identifier: BSD-2-Clause */
#include "local/watch.h"

#include "local/slots.h"

enum {
	HITS = 16, /* news in a row that make a QP one to be watched, */
	MOST = 8,  /* of which there are so many */
};

/* Under vb_progress_lock. */
static struct vb_local_qp *watched[MOST];
static unsigned count;

/*
 * vb_progress_lock is held, under which those that are asleep have ended all watching. It costs a fence of all processors to end, so it is not
 * for programs that sleep again and again.
 */
static bool may_watch_locked(const struct vb_local_qp *l)
{
	return count < MOST && !atomic_load(&vb_arena->asleep) && !vb_progress_is_ticking() && atomic_load(&l->resp.serving) &&
	       (atomic_load(&l->mine->mode) & VB_SHM_RESPONDS) && !atomic_load(&l->mine->watched);
}

void vb_watch_begin(struct vb_local_qp *l)
{
	unsigned hits = atomic_load_explicit(&l->hits, memory_order_relaxed);
	atomic_store_explicit(&l->hits, hits + 1, memory_order_relaxed);
	if (hits < HITS || !atomic_load_explicit(&vb_arena->fences, memory_order_relaxed) || !vb_lock_try(&vb_progress_lock))
		return;
	if (may_watch_locked(l)) {
		watched[count++] = l;
		atomic_store(&l->mine->watched, 1);
	}
	vb_unlock(&vb_progress_lock);
	atomic_store_explicit(&l->hits, 0, memory_order_relaxed);
}

bool vb_watch_look_locked(void)
{
	bool found = false;
	for (unsigned i = 0; i < count; i++) {
		if (!vb_responder_is_called(watched[i]) && !vb_requester_has_news(watched[i]))
			continue;
		vb_progress_later_locked(watched[i]->qp);
		found = true;
	}
	return found;
}

void vb_watch_forget_locked(struct vb_local_qp *l)
{
	for (unsigned i = 0; i < count; i++) {
		if (watched[i] != l)
			continue;
		watched[i] = watched[--count];
		atomic_store(&l->mine->watched, 0);
		return;
	}
}

void vb_watch_end(void)
{
	vb_lock(&vb_progress_lock);
	for (unsigned i = 0; i < count; i++)
		atomic_store(&watched[i]->mine->watched, 0);
	if (count)
		vb_fence_users();
	while (count)
		vb_progress_later_locked(watched[--count]->qp);
	vb_unlock(&vb_progress_lock);
}

void vb_watch_reset(void)
{
	count = 0;
}
