/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Segments: memory of the program whose pages lie in a memfd, so that a peer can map them and reach
 * registered memory by loads and stores (host/memory/remap.h moves the pages). Registration knows nothing of
 * it: a region's pages move when a peer asks for them, having used the region for a while by other ways.
 *
 *	(none) -- wanted --> MOVING, slice by slice -- all moved --> READY: its keys name it -- last key gone --> (none), private memory again
 *	                          \----------- refused ----------/                            \-- may be pinned --> KEPT, tried again later
 *
 * A key's entry names its segment by a serial number that is never used again. What a peer does with mapped
 * memory it does in a busy section, after it has checked the key there, as with every other way.
 *
 * While pages move, vb_arena->moving is set, and peers leave this process's memory alone (they try again);
 * busy sections that began before are waited for. The process's own threads sleep in the trap or are known to
 * be elsewhere.
 *
 * Several regions can use one segment, if they are within it. A region that overlaps one otherwise has none.
 *
 * A fork turns all segments into private memory again first, and so does what it always does. Segments that
 * cannot be moved back then are copied for the child.
 *
 * Threading: segments are moved and looked up by the progress thread. All state is under one mutex, which is
 * held while a slice moves.
 */
#ifndef VB_ADAPTER_SEGMENT_H
#define VB_ADAPTER_SEGMENT_H

#include "adapter/memory/key.h"

struct vb_segment {
	uint64_t serial, bytes;
	int fd;
	bool writable; /* can a peer map it so? */
};

/* Set once; the progress thread calls it when a segment is gone. */
void vb_segment_on_retire(void (*retired)(uint64_t serial));

/* A peer asks for a key's pages. Any thread; the answer is in the key's entry, some time later or never. */
void vb_segment_want(uint32_t key);
/*
 * The segment that a key names. In the progress thread; the descriptor is good until that does something
 * else.
 */
bool vb_segment_find(uint32_t key, struct vb_segment *s);

/*
 * A key that was revoked, after quiescence. If no other uses its segment, the memory is private again on
 * return. No lock held.
 */
void vb_segment_leave(uint32_t key);

/*
 * Where pages can be moved only while the program's one thread waits, it does so here: called from within
 * verbs calls, with no lock held, if vb_segment_waits.
 */
extern atomic_bool vb_segment_waits;
void vb_segment_safe_point(void);

static inline void vb_segment_yield(void)
{
	if (vb_unlikely(atomic_load_explicit(&vb_segment_waits, memory_order_relaxed)))
		vb_segment_safe_point();
}

#endif
