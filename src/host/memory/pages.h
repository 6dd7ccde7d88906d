/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mmap(2), munmap(2) and madvise(2) as system calls of our own; errno is as they have it. libc's functions of
 * these names are not only libc's:
 *
 * libfabric and UCX write over their code while the program runs, to hear of its memory. A thread that sleeps
 * in one of them just then, as the progress thread may, returns into what was written. And what we do with
 * our memory is not news for these libraries.
 *
 * The sanitizers wrap them, and would believe that the program has moved its memory when we move it.
 */
#ifndef VB_HOST_PAGES_H
#define VB_HOST_PAGES_H

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

/* 0, or -1 with errno. */
static inline int vb_advise_pages(void *at, size_t bytes, int advice)
{
	return (int)syscall(SYS_madvise, at, bytes, advice);
}

#endif
