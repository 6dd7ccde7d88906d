/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moves a program's private anonymous pages into a memfd in place, and back, so that another process can map
 * them. The program sees neither: its memory keeps its address and its contents.
 *
 *	in    trap the range; mremap its pages away, leaving it empty; copy them into the memfd; map the memfd over the range; wake
 *	back  trap writes; copy the memfd into private pages; mremap these over the range; wake
 *
 * The trap is userfaultfd of the full kind: whoever touches the range meanwhile, in a system call too, sleeps
 * until it is over. So that is safe beside any thread (VB_REMAP_ANYTIME). Where it cannot be had, pages are
 * moved only while no other thread runs (VB_REMAP_ALONE): the program has one thread, and that one waits in
 * vb_loop_call.
 *
 * A trap does not stop a device or the kernel's direct I/O into a page that is pinned. So nothing is moved
 * while the process has what pins pages: files open with O_DIRECT, asynchronous I/O contexts, io_uring,
 * pinned memory (VmPin).
 *
 * While a range is trapped a thread may sleep in it with any lock of the program's held, malloc's included.
 * So the trapped parts here allocate nothing, take no lock and touch no memory but their stack and static
 * storage. They run in the progress thread, whose stack is not the program's; one call at a time.
 */
#ifndef VB_HOST_REMAP_H
#define VB_HOST_REMAP_H

#include "host/host.h"

enum vb_remap_way { VB_REMAP_ALONE, VB_REMAP_ANYTIME };

/* What this process can do; found out at the first call. */
enum vb_remap_way vb_remap_way(void);
/*
 * With VB_REMAP_ALONE, before the only thread of the program waits in vb_loop_call for pages to be
 * moved: those that its thread-local storage is in stay, because it cannot wait without them. No
 * stack needs this: none is moved.
 */
void vb_remap_spare_caller(void);
/* Can pages be moved now? Also while the only thread of the program waits in vb_loop_call. */
bool vb_remap_may_now(void);

enum { VB_REMAP_PIECES = 32, VB_REMAP_SLICE = 16 << 20 };

struct vb_remap_piece {
	uintptr_t at;
	size_t bytes;
};

/* What stands in the way of nothing: a range of whole pages, by the mappings that it consists of. */
struct vb_remap_plan {
	unsigned advice; /* private: of madvise, to be given again */
	unsigned pieces;
	struct vb_remap_piece piece[VB_REMAP_PIECES];
};

/*
 * May these whole pages be moved? -EFAULT: not mapped all over; -EPERM: not private anonymous memory that can
 * be read and written, or a stack, locked, huge pages or with other properties that a memfd's mapping would
 * not have, or the caller's (vb_remap_spare_caller).
 */
int vb_remap_check(uintptr_t at, size_t bytes, struct vb_remap_plan *plan);

/*
 * Is any of it on the stack of the calling thread, if that is not the main one? What the kernel waits on
 * there must stay private.
 */
bool vb_remap_is_own_stack(const void *addr, size_t bytes);

/* A memfd for so many bytes, the host's. */
int vb_remap_open(size_t bytes, int *fd);
/*
 * Moves the pages of one piece, or a part of it of at most VB_REMAP_SLICE, to fd's offset. -EBUSY: pages may
 * be pinned; -EFAULT: the program unmapped some of them meanwhile, or mapped others there. After an error
 * everything is as before.
 */
int vb_remap_in(uintptr_t at, size_t bytes, unsigned advice, int fd, uint64_t offset);
/*
 * After all was moved: the memfd keeps its size; unless `writable` nobody else can map it writable or write
 * it.
 */
int vb_remap_seal(int fd, bool writable);

/*
 * Makes what the process still has mapped of fd private memory again, wherever that is. After an error
 * (-EBUSY: may be pinned) what was not moved back stays as it was, and works.
 */
int vb_remap_back(int fd, unsigned advice);

/*
 * For a fork while memory could not be moved back: copies that the child puts in their places. Between the
 * two nothing else is called. vb_remap_child_restore is async-signal-safe.
 */
int vb_remap_fork_copy(int fd);
void vb_remap_fork_restore(void);
void vb_remap_fork_drop(void);

#endif
