/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "adapter/memory/hold.h"
#include "adapter/memory/segment.h"
#include "adapter/memory/window.h"
#include "adapter/object.h"
#include "adapter/start.h"
#include "host/memory/memory.h"
#include "host/memory/remap.h"

enum { KNOWN_ACCESS = VB_ACCESS_FLAGS & ~IBV_ACCESS_FLUSH_PERSISTENT };

/* The whole address space, for which only memory on demand can be asked. */
static bool is_implicit(uint64_t va, uint64_t length)
{
	return !va && length == UINT64_MAX;
}

static int check_range(uint64_t va, uint64_t length, uint64_t iova, unsigned access)
{
	if (access & ~(unsigned)KNOWN_ACCESS)
		return -EINVAL;
	if ((access & VB_REMOTE_WRITES) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	if (is_implicit(va, length))
		return (access & IBV_ACCESS_ON_DEMAND) && !iova ? 0 : -EINVAL;
	if (va + length < va || iova + length < iova)
		return -EINVAL;
	return length && !(access & IBV_ACCESS_ON_DEMAND) ?
		       vb_mem_check((void *)(uintptr_t)va, length, access & IBV_ACCESS_LOCAL_WRITE) :
		       0;
}

static void publish(const struct vb_mr *mr, unsigned more)
{
	vb_key_publish(mr->key, &(struct vb_key_meaning){ .va = mr->va,
							  .iova = mr->iova,
							  .length = mr->length,
							  .pd = mr->pd->number,
							  .access = mr->access | VB_KEY_LOCAL | more,
							  .stays = mr->is_on_stack });
}

static int take_key(struct vb_mr *mr, struct vb_pd *pd, unsigned more)
{
	int err = vb_key_take(&mr->key);
	if (err)
		return err;
	publish(mr, more);
	atomic_fetch_add(&pd->refs, 1);
	return 0;
}

int vb_mr_init(struct vb_mr *mr, struct vb_pd *pd, void *addr, uint64_t length, uint64_t iova,
	       unsigned access)
{
	*mr = (struct vb_mr){ .pd = pd,
			      .va = (uintptr_t)addr,
			      .iova = iova,
			      .length = length,
			      .access = access,
			      .is_on_stack = vb_remap_is_own_stack(addr, length) };
	int err = vb_adapter_open();
	if (!err)
		err = check_range(mr->va, mr->length, mr->iova, mr->access);
	if (!err)
		err = take_key(mr, pd, 0);
	if (err)
		return err;
	vb_segment_yield();
	return 0;
}

/* Zeros that are never written, and behind them memory that is never read. */
int vb_mr_init_null(struct vb_mr *mr, struct vb_pd *pd)
{
	void *pages;
	int err = vb_adapter_open();
	if (!err)
		err = vb_null_pages(2 * VB_NULL_BYTES, &pages);
	if (err)
		return err;
	*mr = (struct vb_mr){
		.pd = pd, .va = (uintptr_t)pages, .length = UINT64_MAX, .access = IBV_ACCESS_LOCAL_WRITE
	};
	return take_key(mr, pd, VB_KEY_NULL);
}

int vb_mr_fini(struct vb_mr *mr)
{
	if (!vb_region_end(mr->key))
		return -EBUSY;
	vb_memory_quiesce();
	vb_segment_leave(mr->key);
	vb_key_release(mr->key);
	atomic_fetch_sub(&mr->pd->refs, 1);
	return 0;
}

int vb_mr_change(struct vb_mr *mr, int flags, struct vb_pd *pd, void *addr, uint64_t length, unsigned access)
{
	struct vb_mr next = *mr;
	if (flags & IBV_REREG_MR_CHANGE_PD)
		next.pd = pd;
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		next.access = access;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		next.va = (uintptr_t)addr;
		next.iova = next.access & IBV_ACCESS_ZERO_BASED ? 0 : next.va;
		next.length = length;
		next.is_on_stack = vb_remap_is_own_stack(addr, length);
	}
	int err = flags == IBV_REREG_MR_CHANGE_PD ? 0 :
						    check_range(next.va, next.length, next.iova, next.access);
	if (err)
		return err;
	unsigned more = atomic_load(&vb_key_at(vb_key_table(vb_arena), mr->key)->access) & VB_KEY_NULL;
	if (!vb_region_end(mr->key))
		return -EBUSY;
	vb_memory_quiesce();
	vb_segment_leave(mr->key);
	publish(&next, more);
	atomic_fetch_add(&next.pd->refs, 1);
	atomic_fetch_sub(&mr->pd->refs, 1);
	*mr = next;
	return 0;
}

/* ---- advice ---- */

static int advise_one(const struct vb_pd *pd, const struct ibv_sge *sge, bool populate, bool writable,
		      bool must)
{
	const struct vb_key *table = vb_key_table(vb_arena);
	struct vb_key_use use =
		vb_key_use_of_sge(sge, writable ? IBV_ACCESS_LOCAL_WRITE : 0, pd->number);
	uint64_t va;
	if (!sge->length)
		return 0;
	if (vb_key_check(table, &use, &va) != VB_KEY_OK ||
	    !vb_key_is_on_demand(table, sge->lkey))
		return -EFAULT;
	int err = populate ? vb_mem_populate((void *)(uintptr_t)va, sge->length, writable) : 0;
	return must ? err : 0;
}

int vb_mr_advise(struct vb_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		 const struct ibv_sge *list, uint32_t n)
{
	bool writable = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
	     populate = advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
	int err = 0;
	if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return -ENOTSUP;
	if ((flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH) || !n)
		return -EINVAL;
	for (uint32_t i = 0; i < n && !err; i++)
		err = advise_one(pd, &list[i], populate, writable, flags & IBV_ADVISE_MR_FLAG_FLUSH);
	return err;
}

/* ---- by key ---- */

int vb_mr_find(uint32_t key, uint32_t pd, uint64_t *length)
{
	const struct vb_key *k = vb_key_at(vb_key_table(vb_arena), key);
	bool found = key && atomic_load(&k->key) == key && atomic_load(&k->pd) == pd &&
		     (atomic_load(&k->access) & VB_KEY_LOCAL);
	*length = found ? atomic_load(&k->length) : 0;
	return found ? 0 : -ENOENT;
}
