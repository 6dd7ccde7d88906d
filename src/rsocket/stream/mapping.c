/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that the program maps for its peer (riomap): registered, in a list of its socket. */
#include <stdlib.h>

#include "rsocket/stream/stream.h"

static bool is_index_taken(struct vb_rs *s, int index)
{
	struct vb_rs_mapping *m;

	vb_list_for_each(m, &s->mappings, node)
		if (m->index == index)
			return true;
	return false;
}

/* -ENOSPC: the peer's map is full. */
static int free_index(struct vb_rs *s)
{
	uint32_t n = vb_rs_stream_peer_iomap(&s->stream);

	for (uint32_t i = 0; i < n; i++)
		if (!is_index_taken(s, (int)i))
			return (int)i;
	return -ENOSPC;
}

int vb_rs_mapping_add_locked(struct vb_rs *s, void *buf, size_t len, int prot, uint64_t offset)
{
	int access = IBV_ACCESS_LOCAL_WRITE | (prot & PROT_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0);
	int index = prot & PROT_WRITE ? free_index(s) : VB_RS_NOT_OFFERED;

	if (prot & PROT_WRITE && index < 0)
		return -ENOMEM;
	struct vb_rs_mapping *m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->mr = ibv_reg_mr(s->id->pd, buf, len, access);
	if (!m->mr) {
		int err = -errno;
		free(m);
		return err;
	}
	m->offset = offset;
	m->index = index;
	m->is_new = index >= 0;
	s->has_new_mappings |= m->is_new;
	vb_list_add_tail(&s->mappings, &m->node);
	return 0;
}

static void free_mapping(struct vb_rs_mapping *m)
{
	vb_list_del(&m->node);
	ibv_dereg_mr(m->mr);
	free(m);
}

int vb_rs_mapping_remove_locked(struct vb_rs *s, const void *buf, size_t len)
{
	struct vb_rs_mapping *m;

	vb_list_for_each(m, &s->mappings, node) {
		if (m->mr->addr == buf && m->mr->length == len) {
			free_mapping(m);
			return 0;
		}
	}
	return -EINVAL;
}

void vb_rs_mappings_free(struct vb_rs *s)
{
	struct vb_rs_mapping *m;

	vb_list_for_each(m, &s->mappings, node)
		free_mapping(m);
}
