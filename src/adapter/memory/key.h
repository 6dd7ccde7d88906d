/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory keys. A key is an index into its owner's key table (20 bits) between the halves of a random tag (the
 * upper 4 bits, and the lower 8, which are the program's to choose where it binds a window of type 2). The
 * tag changes with each use of the entry, so a stale key is noticed, and where indexes begin is random, too:
 * a peer knows only keys that it was given. The table lies in the arena: the owner writes it, peers read it.
 *
 * vb_key_check is the one check that every access to registered memory goes through, whoever makes it: local
 * and remote keys, on behalf of this process's program or of a peer.
 *
 * Revocation: a translation is used inside a busy section (local/shared.h) or while memory is held (hold.h),
 * from before the check until the last access. vb_key_revoke clears the key, then vb_memory_quiesce waits for
 * these, and only then is the entry free.
 */
#ifndef VB_ADAPTER_KEY_H
#define VB_ADAPTER_KEY_H

#include <infiniband/verbs.h>

#include "adapter/memory/arena.h"

struct vb_key {
	_Atomic(uint32_t) key; /* 0: revoked or never used */
	_Atomic(uint32_t) pd;
	_Atomic(uint32_t) access;
	/* the only queue pair that it is for (a type 2 window); 0: any of its domain */
	_Atomic(uint32_t) qpn;
	_Atomic(uint64_t) iova, length, va;
	/* For windows (window.h), written under their lock. */
	_Atomic(uint32_t) window;      /* enum ibv_mw_type; 0: no window */
	union {
		_Atomic(uint32_t) region;  /* what a bound window shows: that region's key; 0: not bound */
		_Atomic(uint32_t) windows; /* of a region: how many are bound to it */
	};
	/* the serial number of the segment that the region is in (adapter/memory/segment.h); 0: none */
	_Atomic(uint64_t) segment;
	_Atomic(uint64_t) segment_at; /* where va is in it */
};
_Static_assert(sizeof(struct vb_key) == VB_KEY_BYTES, "layout");

/* A value of segment: there is none, and never will be. */
#define VB_KEY_NO_SEGMENT UINT64_MAX

/* Rights beside enum ibv_access_flags. */
#define VB_KEY_LOCAL (1u << 30) /* good as lkey: a region's key, not a window's */
/* va is VB_NULL_BYTES of zeros and as many to be overwritten, whatever the address */
#define VB_KEY_NULL  (1u << 31)

enum { VB_NULL_BYTES = 1 << 20 };

enum { VB_KEY_TAG_SHIFT = 28, VB_KEY_TAG_MAX = 0xfff };
_Static_assert(VB_KEY_COUNT << 8 == 1u << VB_KEY_TAG_SHIFT, "a key is its index between the tag's halves");

/* Why an access was refused, and its sentence. */
#define VB_KEY_FAULTS(X)                                                          \
	X(OK, "fine")                                                             \
	X(UNKNOWN, "no memory region or window has this key (deregistered?)")     \
	X(PD, "the key belongs to another protection domain")                     \
	X(QP, "the window was bound on another queue pair")                       \
	X(ACCESS, "the region or window was not made with this access right")     \
	X(BOUNDS, "the range is not within the region")                           \
	X(UNMAPPED, "the region's memory is no longer mapped in its process")

enum vb_key_fault {
#define X(name, text) VB_KEY_##name,
	VB_KEY_FAULTS(X)
#undef X
};

const char *vb_key_fault_text(enum vb_key_fault fault);

/*
 * An access to [addr, addr + length) through a key, in a protection domain, with IBV_ACCESS_* bits and
 * VB_KEY_LOCAL.
 */
struct vb_key_use {
	uint32_t key, pd;
	uint32_t qpn; /* of the queue pair that was asked, which a window may be for; of an lkey 0 */
	unsigned access;
	uint64_t addr, length;
};

static inline struct vb_key_use vb_key_use_of_sge(const struct ibv_sge *s, unsigned access, uint32_t pd)
{
	return (struct vb_key_use){ .key = s->lkey, .pd = pd, .access = access | VB_KEY_LOCAL,
				    .addr = s->addr, .length = s->length };
}

/*
 * Why a use of a key of this process was refused: the fault's sentence, or what the checks (src/check) know
 * beyond it. Good until the thread's next call.
 */
const char *vb_key_explain(enum vb_key_fault fault, const struct vb_key_use *use);
/* The checks' part of it: NULL, or set by a constructor. */
extern const char *(*vb_key_explain_more)(enum vb_key_fault fault, const struct vb_key_use *use);

static inline const struct vb_key *vb_key_table(const struct vb_arena_head *arena)
{
	return (const struct vb_key *)((const char *)arena + VB_ARENA_KEYS);
}

static inline const struct vb_key *vb_key_at(const struct vb_key *table, uint32_t key)
{
	return &table[(key >> 8) & (VB_KEY_COUNT - 1)];
}

/* The pages of such a region may come and go: in this address space only the kernel may touch them. */
static inline bool vb_key_is_on_demand(const struct vb_key *table, uint32_t key)
{
	return atomic_load_explicit(&vb_key_at(table, key)->access, memory_order_relaxed) &
	       IBV_ACCESS_ON_DEMAND;
}

/* What a key stands for, loaded once: good for several accesses in one busy section. */
struct vb_key_region {
	uint64_t iova, length, va;
	unsigned access;
};

/* The part of vb_key_check that is the same for all addresses. */
static inline enum vb_key_fault vb_key_open(const struct vb_key *k, const struct vb_key_use *use,
					    struct vb_key_region *region)
{
	if (vb_unlikely(!use->key || atomic_load_explicit(&k->key, memory_order_acquire) != use->key))
		return VB_KEY_UNKNOWN;
	if (vb_unlikely(atomic_load_explicit(&k->pd, memory_order_relaxed) != use->pd))
		return VB_KEY_PD;
	uint32_t only = atomic_load_explicit(&k->qpn, memory_order_relaxed);
	if (vb_unlikely(only && only != use->qpn))
		return VB_KEY_QP;
	region->access = atomic_load_explicit(&k->access, memory_order_relaxed);
	if (vb_unlikely(use->access & ~region->access))
		return VB_KEY_ACCESS;
	region->iova = atomic_load_explicit(&k->iova, memory_order_relaxed);
	region->length = atomic_load_explicit(&k->length, memory_order_relaxed);
	region->va = atomic_load_explicit(&k->va, memory_order_relaxed);
	return VB_KEY_OK;
}

/* And the part that is the address's. */
static inline enum vb_key_fault vb_key_reach(const struct vb_key_region *region,
					     const struct vb_key_use *use, uint64_t *va)
{
	uint64_t offset = use->addr - region->iova;
	if (vb_unlikely(!vb_is_within(offset, use->length, region->length)))
		return VB_KEY_BOUNDS;
	*va = region->va + offset;
	return VB_KEY_OK;
}

/*
 * May the memory be accessed so? If it may, *va is where use->addr is in the owner's address space.
 * use->length must not be 0: an access to no bytes needs no key.
 */
static inline enum vb_key_fault vb_key_check(const struct vb_key *table, const struct vb_key_use *use,
					     uint64_t *va)
{
	struct vb_key_region region;
	enum vb_key_fault fault = vb_key_open(vb_key_at(table, use->key), use, &region);
	return vb_likely(fault == VB_KEY_OK) ? vb_key_reach(&region, use, va) : fault;
}

/*
 * The same for one piece of this process's own memory; NULL also for regions that are null or on demand,
 * which vb_ranges_of_list handles.
 */
static inline void *vb_key_find(const struct ibv_sge *s, unsigned access, uint32_t pd)
{
	const struct vb_key_use use = vb_key_use_of_sge(s, access, pd);
	struct vb_key_region region;
	uint64_t va;
	if (vb_unlikely(vb_key_open(vb_key_at(vb_key_table(vb_arena), use.key), &use, &region)) ||
	    vb_unlikely(vb_key_reach(&region, &use, &va)))
		return NULL;
	bool is_special = region.access & (VB_KEY_NULL | IBV_ACCESS_ON_DEMAND);
	return vb_unlikely(is_special) ? NULL : (void *)(uintptr_t)va;
}

/* What a key stands for. */
struct vb_key_meaning {
	uint64_t va, iova, length;
	unsigned access;
	uint32_t pd, qpn;
	bool stays; /* its pages must not be moved (adapter/memory/segment.h) */
};

/* Takes an entry, which no check finds yet. -ENOMEM if all are in use. */
int vb_key_take(uint32_t *key);
/* Gives a taken or revoked key, with any tag, a meaning; after quiescence. */
void vb_key_publish(uint32_t key, const struct vb_key_meaning *meaning);
/* From its return on vb_key_check refuses the key. */
void vb_key_revoke(uint32_t key);
/* Another key of the same window, for its next binding. */
uint32_t vb_key_of_next_bind(uint32_t key);
/* Gives the entry back, after quiescence. */
void vb_key_release(uint32_t key);

/* The entry of a key in this process's table, whether it is in use or not. */
struct vb_key *vb_key_entry(uint32_t key);
/* The entries that were ever taken, in the order of their first use, are 1 to vb_key_end() - 1. */
uint32_t vb_key_end(void);
struct vb_key *vb_key_nth(uint32_t n);

#endif
