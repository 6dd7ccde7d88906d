/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moves a program's private anonymous pages into a memfd in place, and back, so that another process can map
 * them. The program notices nothing: its memory keeps its address and its contents.
 *
 *	in    trap the range; mremap its pages away, leaving it empty; copy them into the memfd; map the memfd over the range; wake
 *	back  trap writes; copy the memfd into private pages; mremap these over the range; wake
 *
 * The trap is userfaultfd of the full kind: a thread that touches the range meanwhile, in a system call too,
 * sleeps until the move is over. So moves are safe beside any thread (VB_REMAP_ANYTIME). Without userfaultfd,
 * pages are moved only while no other thread runs (VB_REMAP_ALONE): the program has one thread, and that one
 * waits in vb_loop_call.
 *
 * A trap does not stop a device or the kernel's direct I/O into a pinned page. So nothing is moved while the
 * process has something that pins pages: files open with O_DIRECT, asynchronous I/O contexts, io_uring,
 * pinned memory (VmPin).
 *
 * A thread may sleep in a trapped range while it holds any lock of the program's, malloc's included. So the
 * code that runs during a trap allocates nothing, takes no lock and touches no memory but its stack and
 * static storage. It runs in the progress thread, whose stack is not the program's; one call at a time.
 */
#ifndef VB_HOST_REMAP_H
#define VB_HOST_REMAP_H

#include "host/host.h"

enum vb_remap_way { VB_REMAP_ALONE, VB_REMAP_ANYTIME };

/* What this process can do. The first call finds it out. */
enum vb_remap_way vb_remap_way(void);
/*
 * With VB_REMAP_ALONE, to be called before the program's only thread waits in vb_loop_call for a move.
 * Excludes the pages of the caller's thread-local storage, which it needs for waiting. Stacks are never
 * moved.
 */
void vb_remap_exclude_caller(void);
/* Can pages be moved now? True also while the program's only thread waits in vb_loop_call. */
bool vb_remap_may_now(void);

/* A slice is there twice while it moves. It is as long as a huge page. */
enum { VB_REMAP_PIECES = 32, VB_REMAP_SLICE = 2 << 20 };

struct vb_remap_piece {
	uintptr_t at;
	size_t bytes;
};

/* A range of whole pages that can be moved, in pieces of one mapping each. */
struct vb_remap_plan {
	unsigned advice; /* private: of madvise, to be repeated */
	unsigned pieces;
	struct vb_remap_piece piece[VB_REMAP_PIECES];
};

/*
 * May these whole pages be moved? -EFAULT: some are not mapped. -EPERM: some are not private anonymous memory
 * that can be read and written; or a stack, locked, huge pages or with other properties that a memfd's
 * mapping would lack; or excluded (vb_remap_exclude_caller).
 */
int vb_remap_check(uintptr_t at, size_t bytes, struct vb_remap_plan *plan);

/*
 * Is any of it on the stack of the calling thread, if that is not the main one? Words there that the kernel
 * waits on (futexes) must stay private.
 */
bool vb_remap_is_own_stack(const void *addr, size_t bytes);

/* A memfd of so many bytes. The host owns the descriptor. -EFBIG: as vb_shm_create. */
int vb_remap_open(size_t bytes, int *fd);
/*
 * Moves the pages of one piece, or a part of it of at most VB_REMAP_SLICE, to fd's offset. -EBUSY: pages may
 * be pinned. -EFAULT: the program unmapped some of them meanwhile, or mapped others there. After an error all
 * is as before.
 */
int vb_remap_in(uintptr_t at, size_t bytes, unsigned advice, int fd, uint64_t offset);
/*
 * To be called when all was moved: the memfd keeps its size, and unless `writable` nobody else can write it
 * or map it writable.
 */
int vb_remap_seal(int fd, bool writable);

/*
 * Are these pages still fd's, from the offset on? The program may have unmapped them, and mapped others
 * there. In the thread that moves pages.
 */
bool vb_remap_is_at(int fd, uint64_t offset, uintptr_t at, size_t bytes);

/*
 * Makes all that the process still maps of fd private memory again, wherever that is. After an error (-EBUSY:
 * may be pinned) what was not moved back stays mapped, and works.
 */
int vb_remap_back(int fd, unsigned advice);

/*
 * For a fork while memory could not be moved back: copies, which the child puts in place (restore) and the
 * parent drops. No other call comes between. vb_remap_fork_restore is async-signal-safe.
 */
int vb_remap_fork_copy(int fd);
void vb_remap_fork_restore(void);
void vb_remap_fork_drop(void);

#endif
