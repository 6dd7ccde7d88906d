/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "adapter/object.h"

int vb_pd_init(struct vb_pd *pd, struct vb_context *ctx)
{
	static atomic_uint last;
	pd->ctx = ctx;
	do
		pd->number = atomic_fetch_add(&last, 1) + 1;
	while (!pd->number);
	atomic_init(&pd->refs, 0);
	return 0;
}

int vb_pd_fini(struct vb_pd *pd)
{
	return atomic_load(&pd->refs) ? -EBUSY : 0;
}
