/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory keys. A key is an index into its owner's key table (upper 24 bits) and a tag that changes with each use of the
 * entry (lower 8 bits), so that a stale key is noticed. The table lies in the arena: the owner writes it, peers read it.
 * vb_key_check is the one check that every access to registered memory goes through, whoever makes it: local and remote
 * keys, on behalf of this process's program or of a peer.
 *
 * Revocation: whoever uses a translation is inside a busy section (local/shared.h) from before the check until the last
 * access. vb_key_revoke clears the key first; then vb_path_quiesce waits for all busy sections; only then is the entry free.
 */
#ifndef VB_ADAPTER_KEY_H
#define VB_ADAPTER_KEY_H

#include <infiniband/verbs.h>

#include "adapter/arena.h"

struct vb_key {
	_Atomic(uint32_t) key; /* 0: revoked or never used */
	_Atomic(uint32_t) pd;
	_Atomic(uint32_t) access;
	uint32_t reserved;
	_Atomic(uint64_t) iova, length, va;
	_Atomic(uint64_t) segment;    /* the serial number of the segment that the region is in (adapter/segment.h); 0: none */
	_Atomic(uint64_t) segment_at; /* where va is in it */
	uint64_t reserved2;
};
_Static_assert(sizeof(struct vb_key) == VB_KEY_BYTES, "layout");

/* A value of segment: there is none, and never will be. */
#define VB_KEY_NO_SEGMENT UINT64_MAX

/* Why an access was refused, and its sentence. */
#define VB_KEY_FAULTS(X)                                                          \
	X(OK, "fine")                                                             \
	X(UNKNOWN, "no memory region or window has this key (deregistered?)")     \
	X(PD, "the key belongs to another protection domain")                     \
	X(ACCESS, "the region was not registered with this access right")         \
	X(BOUNDS, "the range is not within the region")                           \
	X(UNMAPPED, "the region's memory is no longer mapped in its process")

enum vb_key_fault {
#define X(name, text) VB_KEY_##name,
	VB_KEY_FAULTS(X)
#undef X
};

const char *vb_key_fault_text(enum vb_key_fault fault);

static inline const struct vb_key *vb_key_table(const struct vb_arena_head *arena)
{
	return (const struct vb_key *)((const char *)arena + VB_ARENA_KEYS);
}

/*
 * May [addr, addr + length) be accessed through key with these rights (IBV_ACCESS_* bits; 0: local read) in domain pd? If so
 * *va is where addr is in the owner's address space. length must not be 0: an access to no bytes needs no key.
 */
static inline enum vb_key_fault vb_key_check(const struct vb_key *table, uint32_t key, uint64_t addr, uint64_t length,
					     unsigned access, uint32_t pd, uint64_t *va)
{
	const struct vb_key *k = &table[(key >> 8) & (VB_KEY_COUNT - 1)];
	if (vb_unlikely(!key || atomic_load_explicit(&k->key, memory_order_acquire) != key))
		return VB_KEY_UNKNOWN;
	if (vb_unlikely(atomic_load_explicit(&k->pd, memory_order_relaxed) != pd))
		return VB_KEY_PD;
	if (vb_unlikely(access & ~atomic_load_explicit(&k->access, memory_order_relaxed)))
		return VB_KEY_ACCESS;
	uint64_t offset = addr - atomic_load_explicit(&k->iova, memory_order_relaxed);
	uint64_t size = atomic_load_explicit(&k->length, memory_order_relaxed);
	if (vb_unlikely(offset > size || length > size - offset))
		return VB_KEY_BOUNDS;
	*va = atomic_load_explicit(&k->va, memory_order_relaxed) + offset;
	return VB_KEY_OK;
}

/* Takes an entry and publishes it. -ENOMEM if all are in use. */
int vb_key_publish(uint64_t va, uint64_t iova, uint64_t length, unsigned access, uint32_t pd, uint32_t *key);
/* Gives a revoked key that was not released another meaning, after quiescence. */
void vb_key_republish(uint32_t key, uint64_t va, uint64_t iova, uint64_t length, unsigned access, uint32_t pd);
/* From its return on vb_key_check refuses the key. */
void vb_key_revoke(uint32_t key);
/* Gives the entry back, after quiescence. */
void vb_key_release(uint32_t key);

/* The entry of a key in this process's table, whether it is in use or not. */
struct vb_key *vb_key_entry(uint32_t key);
/* Indexes from here on were never used. */
uint32_t vb_key_end(void);

#endif
