/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The trap that remap.h speaks of: whoever touches a trapped range sleeps until it is woken. Without
 * userfaultfd there is none (VB_REMAP_ALONE), and these functions do nothing and succeed.
 *
 * This header makes its system calls directly, not through libc: the sanitizers wrap mmap and mremap there,
 * and would believe that the program has moved its memory.
 */
#ifndef VB_HOST_TRAP_H
#define VB_HOST_TRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline void *vb_map_pages(void *at, size_t bytes, int prot, int flags, int fd, uint64_t offset)
{
	return (void *)syscall(SYS_mmap, at, bytes, prot, flags, fd, offset);
}

static inline void vb_unmap_pages(void *at, size_t bytes)
{
	syscall(SYS_munmap, at, bytes);
}

/* mode: UFFDIO_REGISTER_MODE_*. Negative errno. */
int vb_trap_begin(uintptr_t at, size_t bytes, uint64_t mode);
/* Traps writes to a range, or does so no longer. -ENOENT: it is no trapped one any more. */
int vb_trap_protect(uintptr_t at, size_t bytes, bool on);
/*
 * Is this still the empty range that was trapped? The program may have unmapped it meanwhile, or mapped
 * something else there.
 */
bool vb_trap_holds(uintptr_t at, size_t bytes);
/* Wakes whoever sleeps there. */
void vb_trap_wake(uintptr_t at, size_t bytes);
/* Ends the trap, and wakes. */
void vb_trap_end(uintptr_t at, size_t bytes);

#endif
