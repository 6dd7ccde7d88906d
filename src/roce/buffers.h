/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for packets that arrived out of order: one pool for all connections of the process, which bounds
 * their memory together.
 */
#ifndef VB_ROCE_BUFFERS_H
#define VB_ROCE_BUFFERS_H

/* VB_RC_BUFFER_BYTES; NULL: the pool is used up. */
void *vb_buffer_take(void);
void vb_buffer_give(void *buffer);

#endif
