/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The arena: the memory that a process shares with its peers, a sealed memfd. Its owner alone writes it.
 * Peers map it read-only, so they cannot corrupt it, and check what they read before they use it.
 *
 *	page 0            struct vb_arena_head
 *	VB_ARENA_KEYS     the key table, VB_KEY_COUNT entries
 *	VB_ARENA_QPS      per slot of the process VB_SLOT_QPS control blocks of VB_QP_BLOCK bytes (format: local/shared.h)
 *	VB_ARENA_HEAP     blocks of a power of two of bytes, handed out by vb_arena_alloc: queues, bells, stages
 *
 * Only touched pages cost memory. Tools that read all writable memory of a process (valgrind's leak check)
 * would touch all of it, so even the owner can write only what it has opened. Offsets, never pointers, cross
 * the process boundary.
 *
 * It has 16 GiB, or less where the address space is small: peers map all of it, and hundreds must fit.
 */
#ifndef VB_ADAPTER_ARENA_H
#define VB_ADAPTER_ARENA_H

#include "base/base.h"
#include "host/host.h"

#define VB_ARENA_MAGIC   0x314e455241425656ull /* "VVBAREN1" */
#define VB_ARENA_SLOTS   64u /* slots that one process can hold */
#define VB_KEY_COUNT     (1u << 20)
#define VB_KEY_BYTES     64u
#define VB_QP_BLOCK      512u

#define VB_ARENA_KEYS  4096ull
#define VB_ARENA_QPS   (VB_ARENA_KEYS + (uint64_t)VB_KEY_COUNT * VB_KEY_BYTES)
#define VB_ARENA_HEAP  (VB_ARENA_QPS + (uint64_t)VB_ARENA_SLOTS * VB_SLOT_QPS * VB_QP_BLOCK)
#define VB_ARENA_MOST  (16ull << 30)
#define VB_ARENA_LEAST (512ull << 20)

enum { VB_ASLEEP_LEADER = 1 }; /* a bit of asleep */

struct vb_arena_head {
	uint64_t magic;
	uint32_t version;                            /* VB_LINK_VERSION */
	uint32_t reserved;
	/* random: names this process's arena, whatever happens to pids and slots */
	uint64_t nonce;
	/*
	 * pages of the owner's memory move: peers must not touch it, and try again (adapter/memory/segment.h)
	 */
	_Atomic(uint32_t) moving;
	/* the owner makes a heavy fence before it waits for its users (host/memory/fence.h) */
	_Atomic(uint32_t) fences;
	/*
	 * Goes up when what allows an access may have ended, and in the end stays VB_GENERATION_LAST, which
	 * never holds (local/translation.h).
	 */
	_Atomic(uint32_t) generation;
	/*
	 * Links that the owner has ended because it could not wait for their peers: these look whether theirs
	 * is among them (local/cut.h).
	 */
	_Atomic(uint32_t) cuts;
	/*
	 * The owner is being captured: peers leave to its responders what they could carry out themselves, so
	 * that the capture shows it.
	 */
	_Atomic(uint32_t) captured;
	uint32_t reserved2[5];
	_Atomic(uint32_t) slots[VB_ARENA_SLOTS];     /* slot numbers in the order taken; 0: none */
	/*
	 * 0: the owner looks for work by itself. Else: it sleeps; ring once for each new value, with
	 * VB_ASLEEP_LEADER the eventfd of the thread that leads, without it the progress thread's.
	 */
	VB_ALIGNED_LINE _Atomic(uint32_t) asleep;
};
_Static_assert(sizeof(struct vb_arena_head) <= 4096, "one page");
_Static_assert(offsetof(struct vb_arena_head, slots) == 64, "layout");
_Static_assert(offsetof(struct vb_arena_head, asleep) == 320, "layout");

#define VB_GENERATION_LAST UINT32_MAX

/*
 * This process's arena, made by vb_arena_start. NULL before, and in a forked child until it starts its own.
 */
extern struct vb_arena_head *vb_arena;

int vb_arena_start(void);
/* Busy sections that begin after this do not rely on earlier checks. */
void vb_arena_next_generation(void);
/* True: vb_arena may be used. For callers that may run before vb_arena_start has returned. */
bool vb_arena_is_made(void);
int vb_arena_fd(void);
/* The size of this process's arena: VB_ARENA_LEAST to VB_ARENA_MOST. */
uint64_t vb_arena_bytes(void);
/*
 * Without address space for further arenas of peers, this process and new peers take the wire to each other.
 */
void vb_arena_look_for_room(void);

/*
 * Opens [offset, offset + bytes), a key's or a control block's place, for good. 0 or -ENOMEM. The head and
 * blocks of the heap are open.
 */
int vb_arena_open(uint64_t offset, size_t bytes);

static inline void *vb_arena_at(uint64_t offset) { return (char *)vb_arena + offset; }
static inline uint64_t vb_arena_offset(const void *at)
{
	return (uint64_t)((const char *)at - (const char *)vb_arena);
}

/*
 * A zeroed block of at least `bytes`, aligned to a cache line; its offset, or 0 if the arena is full. Blocks
 * keep their memory when freed, for the next of their size.
 */
uint64_t vb_arena_alloc(size_t bytes);
void vb_arena_free(uint64_t offset, size_t bytes);
/* Bytes of the heap that were handed out at some time. */
uint64_t vb_arena_in_use(void);

#endif
