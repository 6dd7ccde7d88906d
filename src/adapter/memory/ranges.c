/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/memory/ranges.h"

#include <errno.h>
#include <string.h>

#include "base/copy.h"
#include "host/host.h"
#include "host/memory/touch.h"

/* All of a null region is the same few pages: zeros to read, others to write. */
static uint64_t null_at(const struct vb_key_region *region, unsigned access)
{
	return access & IBV_ACCESS_LOCAL_WRITE ? region->va + VB_NULL_BYTES : region->va;
}

/* Null regions and regions on demand: where the bytes are, or how they are touched. */
static inline uint64_t place_of(struct vb_ranges *out, const struct vb_key_region *region, unsigned access,
				uint64_t va)
{
	if (vb_likely(!(region->access & (VB_KEY_NULL | IBV_ACCESS_ON_DEMAND))))
		return va;
	out->on_demand |= (region->access & IBV_ACCESS_ON_DEMAND) != 0;
	return region->access & VB_KEY_NULL ? null_at(region, access) : va;
}

/* The region that the last entry named: most lists name one. */
struct opened {
	uint32_t key; /* 0: none */
	struct vb_key_region region;
};

/* Where bytes of one entry begin, which is checked as a whole. */
static inline enum vb_key_fault find_entry(struct opened *o, const struct vb_key *table, uint32_t pd,
					   const struct ibv_sge *s, unsigned access, uint64_t *va)
{
	const struct vb_key_use use = vb_key_use_of_sge(s, access, pd);
	enum vb_key_fault fault = VB_KEY_OK;
	if (vb_unlikely(use.key != o->key || !use.key))
		fault = vb_key_open(vb_key_at(table, use.key), &use, &o->region);
	o->key = use.key;
	if (vb_likely(fault == VB_KEY_OK))
		fault = vb_key_reach(&o->region, &use, va);
	return fault;
}

enum vb_key_fault vb_ranges_of_list(struct vb_ranges *out, const struct vb_arena_head *arena,
				    struct vb_sg_list list, uint64_t skip, uint64_t bytes, unsigned access)
{
	const struct vb_key *table = vb_key_table(arena);
	struct opened o = { 0 };
	struct iovec *to = out->iov;
	enum vb_key_fault fault = VB_KEY_OK;
	const struct ibv_sge *s = list.sge, *end = list.sge + list.n;
	out->stop = NULL;
	out->bytes = bytes;
	out->on_demand = false;
	for (uint64_t va; bytes && s < end; s++) {
		if (skip >= s->length) {
			skip -= s->length;
			continue;
		}
		fault = find_entry(&o, table, list.pd, s, access, &va);
		if (vb_unlikely(fault != VB_KEY_OK))
			break;
		uint64_t part = vb_min_u64(s->length - skip, bytes);
		va = place_of(out, &o.region, access, va + skip);
		*to++ = (struct iovec){ (void *)(uintptr_t)va, part };
		bytes -= part;
		skip = 0;
	}
	out->count = (unsigned)(to - out->iov);
	out->bad = (unsigned)(s - list.sge);
	return bytes && fault == VB_KEY_OK ? VB_KEY_BOUNDS : fault;
}

void vb_ranges_of_bytes(struct vb_ranges *out, const void *address, uint64_t bytes)
{
	out->count = bytes ? 1 : 0;
	out->stop = NULL;
	out->bytes = bytes;
	out->on_demand = false;
	out->iov[0] = (struct iovec){ (void *)(uintptr_t)address, bytes };
}

bool vb_ranges_are_mapped(const struct vb_ranges *ours, bool writable)
{
	for (unsigned i = 0; i < ours->count; i++)
		if (vb_mem_check(ours->iov[i].iov_base, ours->iov[i].iov_len, writable))
			return false;
	return true;
}

static bool is_unmapped(const struct ibv_sge *s, unsigned access, uint32_t pd)
{
	const struct vb_key *table = vb_key_table(vb_arena);
	const struct vb_key_use use = vb_key_use_of_sge(s, access, pd);
	const _Atomic(uint32_t) *has = &vb_key_at(table, use.key)->access;
	uint64_t va;
	return vb_key_check(table, &use, &va) == VB_KEY_OK &&
	       !(atomic_load_explicit(has, memory_order_relaxed) & VB_KEY_NULL) &&
	       vb_mem_check((void *)(uintptr_t)va, s->length, access & IBV_ACCESS_LOCAL_WRITE);
}

unsigned vb_ranges_find_unmapped(struct vb_sg_list list, unsigned access)
{
	unsigned i = 0;
	while (i < list.n && !is_unmapped(&list.sge[i], access, list.pd))
		i++;
	return i;
}

const char *vb_ranges_explain_unmapped(struct vb_sg_list list, unsigned access)
{
	unsigned bad = vb_ranges_find_unmapped(list, access);
	if (bad == list.n)
		return vb_key_fault_text(VB_KEY_UNMAPPED);
	struct vb_key_use use = vb_key_use_of_sge(&list.sge[bad], access, list.pd);
	return vb_key_explain(VB_KEY_UNMAPPED, &use);
}

/* ---- copying ---- */

/* Where in a list of ranges a copy is. */
struct cursor {
	const struct iovec *next;
	char *place;
	size_t left; /* of this range */
};

static inline void find_bytes(struct cursor *c)
{
	if (c->left)
		return;
	c->place = c->next->iov_base;
	c->left = c->next++->iov_len;
}

static inline void advance(struct cursor *c, size_t n)
{
	c->place += n;
	c->left -= n;
}

static inline const _Atomic(uint32_t) *stop_of(const struct vb_ranges *to, const struct vb_ranges *from)
{
	return to->stop ? to->stop : from->stop;
}

typedef int copy_piece(const _Atomic(uint32_t) *stop, void *to, const void *from, size_t bytes);

/* Range by range, each with what a pair of them has in common. */
static inline int copy_with(copy_piece *copy, const struct vb_ranges *to, const struct vb_ranges *from)
{
	const _Atomic(uint32_t) *stop = stop_of(to, from);
	struct cursor t = { .next = to->iov }, f = { .next = from->iov };
	for (uint64_t rest = to->bytes; rest;) {
		find_bytes(&t);
		find_bytes(&f);
		size_t n = t.left < f.left ? t.left : f.left;
		int err = copy(stop, t.place, f.place, n);
		if (vb_unlikely(err))
			return err;
		advance(&t, n);
		advance(&f, n);
		rest -= n;
	}
	return 0;
}

static int copy_present(const struct vb_ranges *to, const struct vb_ranges *from)
{
	if (vb_likely(to->count == 1 && from->count == 1))
		return vb_touch_copy_unless(stop_of(to, from), to->iov->iov_base, from->iov->iov_base,
					    to->bytes);
	return copy_with(vb_touch_copy_unless, to, from);
}

static int copy_plainly(const _Atomic(uint32_t) *stop, void *to, const void *from, size_t bytes)
{
	vb_copy_between_fences(to, from, bytes);
	return 0;
}

void vb_ranges_split_last(struct vb_ranges *r)
{
	struct iovec *last = &r->iov[r->count - 1];
	if (last->iov_len <= 8 || r->count == VB_ARRAY_LEN(r->iov))
		return;
	last->iov_len -= 8;
	last[1] = (struct iovec){ (char *)last->iov_base + last->iov_len, 8 };
	r->count++;
}

/*
 * The kernel's copy fails where there are no pages. Where it may not copy at all, look whether they are
 * mapped.
 */
static int copy_by_kernel(const struct vb_ranges *to, const struct vb_ranges *from)
{
	const _Atomic(uint32_t) *stop = stop_of(to, from);
	struct vb_ranges target = *to;
	size_t done;
	vb_ranges_split_last(&target);
	int err = vb_copy_to_peer(vb_copy_self(), from->iov, from->count, target.iov, target.count, stop,
				  &done);
	if (err != -EPERM || stop)
		return err;
	if (!vb_ranges_are_mapped(to, true) || !vb_ranges_are_mapped(from, false))
		return -EFAULT;
	return vb_touch_is_lost() ? copy_with(copy_plainly, to, from) : copy_present(to, from);
}

/* If touching memory fails, the kernel decides: its own copy is tried. */
int vb_ranges_copy(const struct vb_ranges *to, const struct vb_ranges *from)
{
	if (vb_unlikely(!to->bytes))
		return 0;
	if (vb_likely(!to->on_demand && !from->on_demand) && vb_likely(!copy_present(to, from)))
		return 0;
	return copy_by_kernel(to, from);
}
