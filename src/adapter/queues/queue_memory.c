/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "adapter/queues/queue.h"
#include "host/memory/lines.h"

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
	m->bytes = (uint32_t)bytes;
	m->at = vb_lines_take(bytes);
	return m->at ? 0 : -ENOMEM;
}

void vb_queue_memory_give(struct vb_queue_memory *m, struct vb_pd *pd)
{
	if (m->is_given)
		pd->give(pd, m->at);
	else
		vb_lines_give(m->at, m->bytes);
	*m = (struct vb_queue_memory){ .at = NULL };
}
