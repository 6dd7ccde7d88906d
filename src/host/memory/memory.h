/* SPDX-License-Identifier: BSD-2-Clause */
/* Pages of this process. Functions return 0 or a negative errno. */
#ifndef VB_HOST_MEMORY_H
#define VB_HOST_MEMORY_H

#include "base/base.h"

/*
 * Pages for all null regions of this process: the first half of `bytes` reads as zeros and cannot be written,
 * the second half can be. The same for each call, which must ask for the same size. They stay, and a forked
 * child has them too.
 */
int vb_null_pages(size_t bytes, void **pages);
/* Makes pages present, as a read or a write of each would. -EFAULT: some are not mapped, or not so. */
int vb_mem_populate(const void *addr, size_t bytes, bool writable);
/* Maps `bytes` of a file from a page boundary on. */
int vb_file_map(int fd, uint64_t offset, size_t bytes, bool writable, void **addr);
uint64_t vb_page_bytes(void);
/*
 * How much address space the kernel gives processes of this kind: 2^47 bytes on x86-64, from 2^36 to 2^48 on
 * 64-bit ARM. And how much this one may use of it (RLIMIT_AS).
 */
uint64_t vb_address_space(void);
uint64_t vb_address_limit(void);
void vb_unmap(void *addr, size_t bytes);

/*
 * A descriptor that is good for being recognised, however it was duplicated; inherited by forked children as
 * any.
 */
int vb_token_create(const char *name);
bool vb_token_is_same(int a, int b);
void vb_token_close(int fd);

#endif
