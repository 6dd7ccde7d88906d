/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>

#include "adapter/queues/queue.h"

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
