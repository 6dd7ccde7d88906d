/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * FLUSH: a peer wants its writes globally visible, or persistent. Requests are executed in order and memory
 * is coherent, so writes are globally visible already, and only the rights need a check. No region has the
 * right to be persistent.
 */
#ifndef VB_ADAPTER_FLUSH_H
#define VB_ADAPTER_FLUSH_H

#include "adapter/memory/key.h"

/* The rights that a placement (enum ibv_placement_type) needs; 0: there is no such placement. */
static inline unsigned vb_flush_rights(unsigned placement)
{
	if (!placement || placement & ~(unsigned)(IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT))
		return 0;
	return (placement & IBV_FLUSH_GLOBAL ? IBV_ACCESS_FLUSH_GLOBAL : 0) |
	       (placement & IBV_FLUSH_PERSISTENT ? IBV_ACCESS_FLUSH_PERSISTENT : 0);
}

/* May a range of this process's memory be flushed, or the region that it is of? */
static inline enum vb_key_fault vb_flush_check(uint32_t rkey, uint64_t addr, uint64_t length, bool whole,
					       unsigned rights, uint32_t pd, uint32_t qpn)
{
	const struct vb_key *table = vb_key_table(vb_arena);
	uint64_t va;
	if (whole) {
		addr = atomic_load_explicit(&vb_key_at(table, rkey)->iova, memory_order_relaxed);
		length = 0;
	}
	return vb_key_check(table, rkey, addr, length, rights, pd, qpn, &va);
}

#endif
