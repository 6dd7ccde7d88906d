/* SPDX-License-Identifier: BSD-2-Clause */
#include "local/copy.h"

#include <errno.h>
#include <string.h>

/* ---- copies ---- */

/* The kernel copies range by range, in order: a range of its own keeps the last bytes last. */
static void split_last(struct vb_ranges *r)
{
	struct iovec *last = &r->iov[r->count - 1];
	if (last->iov_len <= 8 || r->count == VB_ARRAY_LEN(r->iov))
		return;
	last->iov_len -= 8;
	last[1] = (struct iovec){ (char *)last->iov_base + last->iov_len, 8 };
	r->count++;
}

int vb_copy_out(const struct vb_peer *peer, struct vb_ranges *theirs, const struct vb_ranges *ours)
{
	size_t done;
	if (peer->copy == VB_COPY_SAME) {
		vb_ranges_copy(theirs, ours);
		return 0;
	}
	split_last(theirs);
	return vb_copy_to_peer(peer->pid, ours->iov, ours->count, theirs->iov, theirs->count, &done);
}

int vb_copy_in(const struct vb_peer *peer, const struct vb_ranges *ours, const struct vb_ranges *theirs)
{
	size_t done;
	if (peer->copy == VB_COPY_SAME) {
		vb_ranges_copy(ours, theirs);
		return 0;
	}
	return vb_copy_from_peer(peer->pid, ours->iov, ours->count, theirs->iov, theirs->count, &done);
}

/* ---- streams ---- */

uint8_t *vb_stage(struct vb_local_qp *l, enum vb_stream stream)
{
	if (l->stage[stream])
		return l->stage[stream];
	uint64_t offset = vb_arena_alloc(VB_STAGE_BYTES);
	if (!offset)
		return NULL;
	l->stage_offset[stream] = offset;
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

bool vb_stream_take(struct vb_local_qp *l, enum vb_stream stream, const struct vb_ranges *to)
{
	const struct vb_shm_qp *theirs = atomic_load_explicit(&l->theirs, memory_order_relaxed);
	const uint8_t *base = vb_peer_range(l->peer, atomic_load_explicit(&theirs->stages[stream], memory_order_acquire), VB_STAGE_BYTES);
	uint64_t taken = atomic_load_explicit(&l->mine->taken[stream], memory_order_relaxed);
	struct vb_ranges from;
	if (!base)
		return false;
	ranges_of_ring(&from, base, taken, to->bytes);
	vb_ranges_copy(to, &from);
	atomic_store_explicit(&l->mine->taken[stream], taken + to->bytes, memory_order_release);
	return true;
}

bool vb_stream_put(struct vb_local_qp *l, enum vb_stream stream, const struct vb_ranges *from)
{
	uint8_t *base = vb_stage(l, stream);
	uint64_t put = atomic_load_explicit(&l->mine->put[stream], memory_order_relaxed);
	struct vb_ranges to;
	if (!base)
		return false;
	ranges_of_ring(&to, base, put, from->bytes);
	vb_ranges_copy(&to, from);
	atomic_store_explicit(&l->mine->put[stream], put + from->bytes, memory_order_release);
	return true;
}
