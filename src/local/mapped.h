/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The peer's segments (adapter/memory/segment.h) that this process has mapped, and what it takes to get them.
 * Over the link go:
 *
 *	ASK   key             move the region's pages into a segment; or, if its entry names one, give it
 *	GIVE  serial, memfd   as an answer
 *	GONE  serial          the memory is private again: unmap it
 *
 * A move costs as much as some ten copies of the region. So the costs of each use by process_vm are added up,
 * and the peer is asked when they reach the costs of the move.
 *
 * A mapping is used only inside busy sections, after the key was checked there. Before the owner moves pages
 * back, it takes the segment's name from the key's entry and waits for busy sections. At GONE, this side
 * hides the mapping and waits for its own sections.
 *
 * Only links over which process_vm works have mappings: such a peer could read the process's memory anyway.
 * This side checks that the memfd has the size that was said and cannot shrink, so that no access to it can
 * fail. It takes no more segments than it has asked for, and only so many bytes of one peer.
 */
#ifndef VB_LOCAL_MAPPED_H
#define VB_LOCAL_MAPPED_H

#include "adapter/memory/ranges.h"
#include "local/peer.h"

enum { VB_MAPPINGS = 256, VB_USES = 64 };

struct vb_mapping {
	_Atomic(uint64_t) serial; /* 0: none; written last */
	uint8_t *base;
	uint64_t bytes;
	bool writable;
};

/*
 * How much a key was used without a mapping. Several threads may count at once: what gets lost does not
 * matter.
 */
struct vb_use {
	_Atomic(uint32_t) key;
	_Atomic(uint64_t) spent_ns, limit_ns; /* the peer is asked when spent reaches limit */
	_Atomic(uint64_t) asked;              /* for the segment of this number */
};

struct vb_mapped {
	struct vb_mapping mapping[VB_MAPPINGS]; /* by serial number */
	struct vb_use use[VB_USES];             /* by key */
	atomic_uint asked;                      /* so often, without an answer */
	uint64_t bytes;                         /* of all mappings; the progress thread's */
	/* which of our own segments this peer was given, by serial number */
	uint8_t given[VB_MAPPINGS];
};

struct vb_link_segment {
	uint64_t magic;
	uint32_t what;
	uint32_t key;
	uint64_t serial, bytes;
	uint32_t writable;
	uint32_t reserved;
};
_Static_assert(sizeof(struct vb_link_segment) == 40, "layout");

/* May this process's links have mappings? VERBATIM_COPY=process_vm and =link forbid it. */
bool vb_mapped_is_allowed(void);
void vb_mapped_open(struct vb_peer *peer);
void vb_mapped_close(struct vb_peer *peer);
/* A message on a link that has mappings; in the progress thread. */
int vb_mapped_take_message(struct vb_peer *peer, const struct vb_link_segment *m, const int *fds, int nfds);

/* A segment of ours is private memory again: tells the peer, if it was given it. In the progress thread. */
void vb_mapped_tell_gone(struct vb_peer *peer, uint64_t serial);

/* Counts a use of the key that could not be served by a mapping. */
void vb_mapped_miss(struct vb_peer *peer, uint32_t key, uint64_t bytes);

/*
 * Where [va, va + bytes) of the peer's address space is in this process, NULL if it is not. A key check
 * allowed the access, in the same busy section.
 */
static inline void *vb_mapped_at(const struct vb_peer *peer, uint32_t key, uint64_t va, uint64_t bytes,
				 bool writes)
{
	const struct vb_key *k = &vb_key_table(peer->arena)[(key >> 8) % VB_KEY_COUNT];
	uint64_t serial = atomic_load_explicit(&k->segment, memory_order_acquire);
	if (!serial || !peer->mapped)
		return NULL;
	const struct vb_mapping *m = &peer->mapped->mapping[serial % VB_MAPPINGS];
	/*
	 * Sequentially consistent, behind the start of the busy section: pairs with the hiding of a mapping
	 * before it is unmapped.
	 */
	if (atomic_load(&m->serial) != serial || (writes && !m->writable))
		return NULL;
	uint64_t at = va - atomic_load_explicit(&k->va, memory_order_relaxed) +
		      atomic_load_explicit(&k->segment_at, memory_order_relaxed);
	return vb_is_within(at, bytes, m->bytes) ? m->base + at : NULL;
}

#endif
