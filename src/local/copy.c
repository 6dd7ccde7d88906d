/* SPDX-License-Identifier: BSD-2-Clause */
#include "local/copy.h"

#include <errno.h>
#include <string.h>

#include "local/mapped.h"

/* ---- the peer's memory ---- */

void vb_peer_bytes(struct vb_ranges *out, struct vb_peer *peer, uint32_t rkey, uint64_t va, uint64_t bytes,
		   bool writes)
{
	void *here = vb_mapped_at(peer, rkey, va, bytes, writes);
	vb_ranges_of_bytes(out, here ? here : (void *)(uintptr_t)va, bytes);
	out->stop = here ? &peer->in->cut : NULL;
	if (vb_unlikely(!here))
		vb_mapped_miss(peer, rkey, bytes);
}

/* Which entry of the list the ranges begin with. */
static unsigned first_entry(const struct ibv_sge *sge, uint64_t skip)
{
	unsigned i = 0;
	for (; skip >= sge[i].length; i++)
		skip -= sge[i].length;
	return i;
}

/* All of the ranges or none: false. */
static bool map_list(struct vb_ranges *r, struct vb_peer *peer, const struct ibv_sge *sge, uint64_t skip,
		     bool writes)
{
	void *here[VB_MAX_SGE];
	unsigned e = r->count ? first_entry(sge, skip) : 0;
	for (unsigned i = 0; i < r->count; i++, e++) {
		while (!sge[e].length)
			e++;
		here[i] = vb_mapped_at(peer, sge[e].lkey, (uintptr_t)r->iov[i].iov_base, r->iov[i].iov_len,
				       writes);
		if (!here[i]) {
			vb_mapped_miss(peer, sge[e].lkey, r->iov[i].iov_len);
			return false;
		}
	}
	for (unsigned i = 0; i < r->count; i++)
		r->iov[i].iov_base = here[i];
	r->stop = &peer->in->cut;
	return true;
}

enum vb_key_fault vb_peer_list(struct vb_ranges *out, struct vb_peer *peer, struct vb_sg_list list,
			       uint64_t skip, uint64_t bytes, bool writes)
{
	enum vb_key_fault fault = vb_ranges_of_list(out, peer->arena, list, skip, bytes,
						    writes ? IBV_ACCESS_LOCAL_WRITE : 0);
	if (vb_likely(fault == VB_KEY_OK) && peer->mapped)
		map_list(out, peer, list.sge, skip, writes);
	return fault;
}

/*
 * Sequentially consistent, behind the start of the busy section: pairs with the owner, who sets it and then
 * waits for that section.
 */
static bool is_moving(const struct vb_peer *peer)
{
	return atomic_load(&peer->arena->moving);
}

/*
 * It has died, as far as this side knows, and its memory may be another program's by now: a process that
 * calls exec keeps its number.
 */
static bool is_gone(const struct vb_peer *peer)
{
	return atomic_load_explicit(&peer->state, memory_order_relaxed) == VB_PEER_DEAD;
}

/* ---- copies ---- */

int vb_copy_out(const struct vb_peer *peer, struct vb_ranges *theirs, const struct vb_ranges *ours)
{
	size_t done;
	if (theirs->stop || peer->copy == VB_COPY_SAME)
		return vb_ranges_copy(theirs, ours);
	if (vb_unlikely(is_gone(peer)))
		return -ESRCH;
	if (is_moving(peer))
		return -EAGAIN;
	vb_ranges_split_last(theirs);
	return vb_copy_to_peer(peer->pid, ours->iov, ours->count, theirs->iov, theirs->count, &peer->in->cut,
			       &done);
}

int vb_copy_in(const struct vb_peer *peer, const struct vb_ranges *ours, const struct vb_ranges *theirs)
{
	size_t done;
	if (theirs->stop || peer->copy == VB_COPY_SAME)
		return vb_ranges_copy(ours, theirs);
	if (vb_unlikely(is_gone(peer)))
		return -ESRCH;
	if (is_moving(peer))
		return -EAGAIN;
	return vb_copy_from_peer(peer->pid, ours->iov, ours->count, theirs->iov, theirs->count,
				 &peer->in->cut, &done);
}

/* ---- streams ---- */

/* The request (or response) stream of this side, made at first use; NULL if the arena is full. */
static uint8_t *stage(struct vb_local_qp *l, enum vb_stream stream)
{
	if (l->stage[stream])
		return l->stage[stream];
	uint64_t offset = vb_arena_alloc(VB_STAGE_BYTES);
	if (!offset)
		return NULL;
	l->stage[stream] = vb_arena_at(offset);
	atomic_store_explicit(&l->mine->stages[stream], offset, memory_order_release);
	return l->stage[stream];
}

uint64_t vb_stream_available(struct vb_local_qp *l, enum vb_stream stream)
{
	const struct vb_shm_qp *theirs = atomic_load_explicit(&l->theirs, memory_order_relaxed);
	uint64_t n = atomic_load_explicit(&theirs->put[stream], memory_order_acquire) -
		     atomic_load_explicit(&l->mine->taken[stream], memory_order_relaxed);
	return n <= VB_STAGE_BYTES ? n : UINT64_MAX;
}

uint64_t vb_stream_room(struct vb_local_qp *l, enum vb_stream stream)
{
	const struct vb_shm_qp *theirs = atomic_load_explicit(&l->theirs, memory_order_relaxed);
	uint64_t n = atomic_load_explicit(&l->mine->put[stream], memory_order_relaxed) -
		     atomic_load_explicit(&theirs->taken[stream], memory_order_acquire);
	return n <= VB_STAGE_BYTES ? VB_STAGE_BYTES - n : UINT64_MAX;
}

/* Up to two ranges of a ring of VB_STAGE_BYTES at base, from position on. */
static void ranges_of_ring(struct vb_ranges *out, const uint8_t *base, uint64_t position, uint64_t bytes)
{
	uint64_t at = position % VB_STAGE_BYTES;
	uint64_t first = vb_min_u64(bytes, VB_STAGE_BYTES - at);
	vb_ranges_of_bytes(out, base + at, first);
	out->bytes = bytes;
	if (bytes > first)
		out->iov[out->count++] = (struct iovec){ (void *)(uintptr_t)base, bytes - first };
}

int vb_stream_take(struct vb_local_qp *l, enum vb_stream stream, const struct vb_ranges *to)
{
	const struct vb_shm_qp *theirs = atomic_load_explicit(&l->theirs, memory_order_relaxed);
	const uint8_t *base = vb_peer_range(
		l->peer, atomic_load_explicit(&theirs->stages[stream], memory_order_acquire), VB_STAGE_BYTES);
	uint64_t taken = atomic_load_explicit(&l->mine->taken[stream], memory_order_relaxed);
	struct vb_ranges from;
	if (!base)
		return -EPROTO;
	ranges_of_ring(&from, base, taken, to->bytes);
	int err = vb_ranges_copy(to, &from);
	if (!err)
		atomic_store_explicit(&l->mine->taken[stream], taken + to->bytes, memory_order_release);
	return err;
}

int vb_stream_put(struct vb_local_qp *l, enum vb_stream stream, const struct vb_ranges *from)
{
	uint8_t *base = stage(l, stream);
	uint64_t put = atomic_load_explicit(&l->mine->put[stream], memory_order_relaxed);
	struct vb_ranges to;
	if (!base)
		return -ENOMEM;
	ranges_of_ring(&to, base, put, from->bytes);
	int err = vb_ranges_copy(&to, from);
	if (!err)
		atomic_store_explicit(&l->mine->put[stream], put + from->bytes, memory_order_release);
	return err;
}
