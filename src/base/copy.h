/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies of a request's bytes, which programs may look at while they come. Any lengths and alignments; no
 * overlap.
 */
#ifndef VB_COPY_H
#define VB_COPY_H

#include <stdatomic.h>
#include <string.h>

#include "base/base.h"

/*
 * The last eight bytes in one store, behind all others, and so are four; else the last byte is behind the
 * others: programs poll on them. n is not 0.
 */
static inline void vb_copy_ordered(void *to, const void *from, size_t n)
{
	size_t tail = n == 4 ? 4 : n < 8 ? 1 : 8;
	if (vb_likely(n == 8)) {
		memcpy(to, from, 8);
		return;
	}
	if (n > tail)
		memcpy(to, from, n - tail);
	atomic_thread_fence(memory_order_release);
	to = (char *)to + n - tail;
	from = (const char *)from + n - tail;
	if (tail == 8)
		memcpy(to, from, 8);
	else if (tail == 4)
		memcpy(to, from, 4);
	else
		memcpy(to, from, 1);
}

/*
 * Requests take their turns: what one stores, and what the program had stored before it, is seen before what
 * the next one stores; and what is loaded behind one is not older than what it has loaded. On x86 that costs
 * nothing.
 */
static inline void vb_copy_begin(void) { atomic_thread_fence(memory_order_release); }
static inline void vb_copy_end(void) { atomic_thread_fence(memory_order_acquire); }

/* As vb_copy_ordered, of a request's bytes. */
static inline void vb_copy_in_turn(void *to, const void *from, size_t n)
{
	vb_copy_begin();
	vb_copy_ordered(to, from, n);
	vb_copy_end();
}

#endif
