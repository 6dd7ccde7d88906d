/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Gather/scatter lists as memory ranges. A list is translated through the key table of the process that owns
 * it, which is the access check; the ranges are good while the memory is held, inside a busy section
 * (local/qp.h) or between vb_memory_hold and vb_memory_release (hold.h).
 */
#ifndef VB_ADAPTER_RANGES_H
#define VB_ADAPTER_RANGES_H

#include <sys/uio.h>

#include "adapter/memory/key.h"
#include "adapter/object.h"

/* Memory ranges in one address space, in order. */
struct vb_ranges {
	unsigned count;
	bool on_demand; /* some pages may be absent: the kernel must copy */
	/*
	 * Ranges of another process, by their addresses in this one: once this word is not 0 nothing is
	 * copied from or to them. Else NULL.
	 */
	const _Atomic(uint32_t) *stop;
	unsigned bad; /* of a list that was refused: the entry that is wrong */
	uint64_t bytes;
	struct iovec iov[VB_MAX_SGE + 1];
};

/* A work request's gather/scatter list, and the protection domain that its keys are of. */
struct vb_sg_list {
	const struct ibv_sge *sge;
	unsigned n;
	uint32_t pd;
};

static inline struct vb_sg_list vb_sg_list_of_send(const struct vb_qp *qp, const struct vb_sqe *sqe)
{
	return (struct vb_sg_list){ .sge = sqe->sge, .n = sqe->nsge, .pd = qp->pd->number };
}

static inline struct vb_sg_list vb_sg_list_of_receive(const struct vb_rwqe *w)
{
	return (struct vb_sg_list){ .sge = w->sge, .n = w->nsge, .pd = w->pd };
}

/*
 * Bytes [skip, skip + bytes) of a gather/scatter list as ranges of its owner's address space. An entry of
 * which a byte is used is checked as a whole. VB_KEY_OK, or what is wrong with entry out->bad; VB_KEY_BOUNDS
 * with out->bad == list.n: the list is too short. bytes is at most VB_NULL_BYTES where the list may have a
 * null region. arena: its owner's.
 */
enum vb_key_fault vb_ranges_of_list(struct vb_ranges *out, const struct vb_arena_head *arena,
				    struct vb_sg_list list, uint64_t skip, uint64_t bytes, unsigned access);
void vb_ranges_of_bytes(struct vb_ranges *out, const void *address, uint64_t bytes);

/*
 * Copies between ranges of this process, which are equally long; the last bytes of each become visible last.
 * 0. -EFAULT: some memory is not there, on demand or unmapped (host/memory/touch.h), and an unknown part was
 * copied. Of another process's ranges also -ECANCELED: it has forbidden it; and -EPERM: this thread cannot.
 */
int vb_ranges_copy(const struct vb_ranges *to, const struct vb_ranges *from) VB_MUST_USE;
/*
 * Puts the last bytes into a range of their own, if there is room: the kernel copies range by range, in
 * order.
 */
void vb_ranges_split_last(struct vb_ranges *to);
/* Is all of it mapped in this process (and writable)? After a failed copy this tells whose fault it was. */
bool vb_ranges_are_mapped(const struct vb_ranges *ours, bool writable);

/* Returns the index of the first entry whose memory is unmapped or lacks `access`; list.n if none is. */
unsigned vb_ranges_find_unmapped(struct vb_sg_list list, unsigned access);
/* Why memory that a list names could not be used: what vb_key_explain says of that entry. */
const char *vb_ranges_explain_unmapped(struct vb_sg_list list, unsigned access);

#endif
