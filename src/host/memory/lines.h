/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory in whole cache lines, for what queue pairs are made of. Blocks follow each other without headers and
 * gaps. malloc has a header before each aligned block, and leaves the pieces that it cuts off around it: a
 * fifth of the memory of thousands of queue pairs.
 *
 * A block that was given back serves the next one of its size. The process keeps the memory.
 */
#ifndef VB_HOST_LINES_H
#define VB_HOST_LINES_H

#include <stddef.h>

/* Aligned to a cache line, and not cleared; NULL: there is no memory. */
void *vb_lines_take(size_t bytes);
/* bytes: what vb_lines_take was called with. block: may be NULL. */
void vb_lines_give(void *block, size_t bytes);
/* Starts over in a forked child: at the fork, another thread may have been in one of these calls. */
void vb_lines_forget(void);

#endif
