/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies of a request's bytes, which programs may read while they arrive. Any lengths and alignments; no
 * overlap.
 */
#ifndef VB_COPY_H
#define VB_COPY_H

#include <stdatomic.h>
#include <string.h>

#include "base/base.h"

/*
 * Programs poll on the last bytes. So the last eight bytes are one store, after all others; so are just four.
 * In shorter copies the last byte comes after the others. n is not 0.
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
 * Orders requests: the stores of one, and the program's stores before it, become visible before those of the
 * next; and later loads are not older than its loads. Free on x86.
 */
static inline void vb_copy_begin(void) { atomic_thread_fence(memory_order_release); }
static inline void vb_copy_end(void) { atomic_thread_fence(memory_order_acquire); }

/* vb_copy_ordered for one request among others. */
static inline void vb_copy_between_fences(void *to, const void *from, size_t n)
{
	vb_copy_begin();
	vb_copy_ordered(to, from, n);
	vb_copy_end();
}

#endif
