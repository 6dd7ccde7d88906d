/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "adapter/key.h"
#include "adapter/object.h"
#include "adapter/path.h"
#include "adapter/progress.h"
#include "adapter/segment.h"
#include "host/remap.h"

enum {
	REMOTE_WRITES = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	KNOWN_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
		       IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB |
		       IBV_ACCESS_OPTIONAL_RANGE,
};

static int check_range(uint64_t va, uint64_t length, uint64_t iova, unsigned access)
{
	if (access & ~(unsigned)KNOWN_ACCESS)
		return -EINVAL;
	if ((access & REMOTE_WRITES) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	if (va + length < va || iova + length < iova)
		return -EINVAL;
	return length ? vb_mem_check((void *)(uintptr_t)va, length, access & IBV_ACCESS_LOCAL_WRITE) : 0;
}

int vb_mr_init(struct vb_mr *mr, struct vb_pd *pd, void *addr, uint64_t length, uint64_t iova, unsigned access)
{
	*mr = (struct vb_mr){ .pd = pd, .va = (uintptr_t)addr, .iova = iova, .length = length, .access = access };
	int err = vb_adapter_start();
	if (!err)
		err = check_range(mr->va, mr->length, mr->iova, mr->access);
	if (!err)
		err = vb_key_publish(mr->va, mr->iova, mr->length, mr->access, pd->number, &mr->key);
	if (err)
		return err;
	if (vb_remap_is_own_stack(addr, length))
		vb_segment_refuse(mr->key);
	atomic_fetch_add(&pd->refs, 1);
	vb_segment_yield();
	return 0;
}

int vb_mr_fini(struct vb_mr *mr)
{
	vb_key_revoke(mr->key);
	vb_path_quiesce();
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
	}
	int err = check_range(next.va, next.length, next.iova, next.access);
	if (err)
		return err;
	vb_key_revoke(mr->key);
	vb_path_quiesce();
	vb_segment_leave(mr->key);
	vb_key_republish(mr->key, next.va, next.iova, next.length, next.access, next.pd->number);
	atomic_fetch_add(&next.pd->refs, 1);
	atomic_fetch_sub(&mr->pd->refs, 1);
	*mr = next;
	return 0;
}
