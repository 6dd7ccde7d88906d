/* SPDX-License-Identifier: BSD-2-Clause */
#include "local/later.h"

/* Under vb_progress_lock. */
static struct vb_list owing = VB_LIST_INIT(owing); /* vb_local_qp.owing_node */
static atomic_uint count;

bool vb_later_put_off(struct vb_local_qp *l)
{
	vb_lock(&vb_progress_lock);
	bool may = vb_progress_is_ticking();
	if (may) {
		atomic_store(&l->resp.owes_bell, true);
		if (vb_list_is_empty(&l->owing_node)) {
			vb_list_add_tail(&owing, &l->owing_node);
			atomic_fetch_add(&count, 1);
		}
	}
	vb_unlock(&vb_progress_lock);
	return may;
}

/* With a reference. */
static struct vb_qp *next_owing(void)
{
	vb_lock(&vb_progress_lock);
	struct vb_list *node = vb_list_pop(&owing);
	struct vb_qp *qp = node ? vb_container_of(node, struct vb_local_qp, owing_node)->qp : NULL;
	if (qp) {
		atomic_fetch_sub(&count, 1);
		vb_qp_ref(qp);
	}
	vb_unlock(&vb_progress_lock);
	return qp;
}

void vb_later_ring_all(void)
{
	for (struct vb_qp *qp; vb_unlikely(atomic_load(&count)) && (qp = next_owing());) {
		if (atomic_load(&vb_local_of(qp)->resp.owes_bell))
			vb_watch_ring(vb_local_of(qp));
		vb_qp_unref(qp);
	}
}

void vb_later_forget_locked(struct vb_local_qp *l)
{
	if (vb_list_is_empty(&l->owing_node))
		return;
	vb_list_del(&l->owing_node);
	atomic_fetch_sub(&count, 1);
}

void vb_later_reset(void)
{
	vb_list_init(&owing);
	atomic_store(&count, 0);
}
