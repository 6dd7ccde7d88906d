/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/queues/payload.h"

#include <string.h>

#include "adapter/memory/arena.h"
#include "adapter/memory/hold.h"
#include "adapter/memory/ranges.h"
#include "base/log.h"

void vb_payload_fail(struct vb_sqe *sqe, enum vb_key_fault fault, unsigned bad)
{
	const struct ibv_sge *sge = &sqe->sge[bad];
	vb_explain("requester",
		   "send wr_id 0x%llx, scatter/gather entry %u (address 0x%llx, length %u, lkey 0x%x): %s",
		   (unsigned long long)sqe->wr_id, bad, (unsigned long long)sge->addr, sge->length, sge->lkey,
		   vb_key_fault_text(fault));
	vb_sqe_fail(sqe, IBV_WC_LOC_PROT_ERR);
}

void vb_payload_fail_unmapped(const struct vb_qp *qp, struct vb_sqe *sqe)
{
	struct vb_sg_list list = vb_sg_list_of_send(qp, sqe);
	unsigned bad = vb_ranges_find_unmapped(list, vb_wr_fetches(sqe->opcode) ? IBV_ACCESS_LOCAL_WRITE : 0);
	vb_payload_fail(sqe, VB_KEY_UNMAPPED, bad < list.n ? bad : 0);
}

static bool carries_list(const struct vb_sqe *sqe)
{
	switch (sqe->opcode) {
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_FLUSH:
		return false;
	default:
		return !(sqe->flags & IBV_SEND_INLINE);
	}
}

bool vb_payload_is_readable(const struct vb_qp *qp, struct vb_sqe *sqe)
{
	struct vb_ranges list;
	if (!carries_list(sqe) ||
	    (sqe->nsge == 1 && vb_likely(vb_key_find(sqe->sge, 0, qp->pd->number) != NULL)))
		return true;
	enum vb_key_fault fault =
		vb_ranges_of_list(&list, vb_arena, vb_sg_list_of_send(qp, sqe), 0, sqe->length, 0);
	if (vb_unlikely(fault != VB_KEY_OK))
		vb_payload_fail(sqe, fault, list.bad);
	return fault == VB_KEY_OK;
}

static bool copy_listed(struct vb_qp *qp, struct vb_sqe *sqe, uint64_t offset, void *bytes, size_t n,
			bool into_list)
{
	struct vb_ranges list, flat;
	vb_ranges_of_bytes(&flat, bytes, n);
	unsigned held = vb_memory_hold();
	enum vb_key_fault fault = vb_ranges_of_list(&list, vb_arena, vb_sg_list_of_send(qp, sqe), offset, n,
						    into_list ? IBV_ACCESS_LOCAL_WRITE : 0);
	bool copied = vb_likely(fault == VB_KEY_OK) &&
		      vb_likely(!vb_ranges_copy(into_list ? &list : &flat, into_list ? &flat : &list));
	vb_memory_release(held);
	if (vb_unlikely(fault != VB_KEY_OK))
		vb_payload_fail(sqe, fault, list.bad);
	else if (vb_unlikely(!copied))
		vb_payload_fail_unmapped(qp, sqe);
	return copied;
}

bool vb_payload_gather(struct vb_qp *qp, struct vb_sqe *sqe, uint64_t offset, void *to, size_t bytes)
{
	if (!(sqe->flags & IBV_SEND_INLINE))
		return copy_listed(qp, sqe, offset, to, bytes, false);
	memcpy(to, sqe->inline_data + offset, bytes);
	return true;
}

bool vb_payload_place(struct vb_qp *qp, struct vb_sqe *sqe, uint64_t offset, const void *from, size_t bytes)
{
	return copy_listed(qp, sqe, offset, (void *)(uintptr_t)from, bytes, true);
}
