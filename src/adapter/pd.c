/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

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
