/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>

#include "adapter/object.h"

int vb_pd_init(struct vb_pd *pd, struct vb_context *ctx)
{
	static atomic_uint last;
	*pd = (struct vb_pd){ .ctx = ctx };
	do
		pd->number = atomic_fetch_add(&last, 1) + 1;
	while (!pd->number);
	vb_registry_add(VB_REGISTRY_PDS, &pd->registered);
	return 0;
}

void vb_pd_init_alias(struct vb_pd *pd, struct vb_context *ctx, uint32_t number)
{
	*pd = (struct vb_pd){ .ctx = ctx, .number = number };
}

int vb_pd_fini(struct vb_pd *pd)
{
	if (atomic_load(&pd->refs))
		return -EBUSY;
	vb_registry_remove(&pd->registered);
	return 0;
}

/* ---- the memory of queues ---- */

int vb_queue_memory_take(struct vb_queue_memory *m, struct vb_pd *pd, size_t bytes)
{
	*m = (struct vb_queue_memory){ .at = NULL };
	if (!bytes)
		return 0;
	if (pd && pd->take) {
		m->at = pd->take(pd, bytes, VB_CACHE_LINE);
		m->is_given = m->at && m->at != VB_USE_DEFAULT;
		if (m->at != VB_USE_DEFAULT)
			return m->at ? 0 : -ENOMEM;
	}
	m->at = aligned_alloc(VB_CACHE_LINE, vb_align_up(bytes, VB_CACHE_LINE));
	return m->at ? 0 : -ENOMEM;
}

void vb_queue_memory_give(struct vb_queue_memory *m, struct vb_pd *pd)
{
	if (m->is_given)
		pd->give(pd, m->at);
	else
		free(m->at);
	*m = (struct vb_queue_memory){ .at = NULL };
}
