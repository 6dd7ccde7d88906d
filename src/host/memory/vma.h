/* SPDX-License-Identifier: BSD-2-Clause */
/* The process's mappings, from /proc/self/maps and smaps. Allocates nothing; one reader at a time. */
#ifndef VB_HOST_VMA_H
#define VB_HOST_VMA_H

#include <stdbool.h>
#include <stdint.h>

enum {
	VB_VMA_HUGE = 1,     /* MADV_HUGEPAGE */
	VB_VMA_NO_HUGE = 2,  /* MADV_NOHUGEPAGE */
	VB_VMA_NO_DUMP = 4,  /* MADV_DONTDUMP */
	VB_VMA_SPECIAL = 8,  /* anything but these and what all private anonymous memory has */
};

struct vb_vma {
	uintptr_t start, end;
	uint64_t offset;     /* in its file */
	uint64_t device;     /* as makedev */
	uint64_t inode;      /* 0: no file */
	int prot;            /* PROT_* */
	bool shared;
	bool is_stack, is_aio;
	unsigned flags;      /* VB_VMA_*, only if asked for */
};

/*
 * Calls visit for each mapping in the order of addresses, until it returns false. flags: fills vma->flags,
 * which costs a walk of the page tables. 0 or a negative errno.
 */
int vb_vma_each(bool flags, bool (*visit)(void *arg, const struct vb_vma *vma), void *arg);

#endif
