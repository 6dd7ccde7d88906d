/* SPDX-License-Identifier: BSD-2-Clause */
/* Pages of this process. Functions return 0 or a negative errno. */
#ifndef VB_HOST_MEMORY_H
#define VB_HOST_MEMORY_H

#include "base/base.h"

/*
 * The pages of all null regions of this process: the first half of `bytes` reads as zeros and cannot be
 * written, the second half can be. Each call returns the same pages, and must pass the same size. They stay
 * mapped, in a forked child too.
 */
int vb_null_pages(size_t bytes, void **pages);
/* Makes pages present, as a read or a write of each would. -EFAULT: some do not allow it. */
int vb_mem_populate(const void *addr, size_t bytes, bool writable);
/* Maps `bytes` of a file from a page boundary on. */
int vb_file_map(int fd, uint64_t offset, size_t bytes, bool writable, void **addr);
uint64_t vb_page_bytes(void);
/*
 * The address space of a process: 2^47 bytes on x86-64, from 2^36 to 2^48 on 64-bit ARM. And how much of it
 * this process may use (RLIMIT_AS).
 */
uint64_t vb_address_space(void);
uint64_t vb_address_limit(void);
/* The longest file that this process may make (RLIMIT_FSIZE). A longer one would get it SIGXFSZ. */
uint64_t vb_file_limit(void);
/* How much private memory that can be written this process may have (RLIMIT_DATA); UINT64_MAX: any. */
uint64_t vb_data_limit(void);
void vb_unmap(void *addr, size_t bytes);

/*
 * A descriptor whose duplicates can be recognised. Forked children inherit it.
 */
int vb_token_create(const char *name);
bool vb_token_is_same(int a, int b);
void vb_token_close(int fd);

#endif
