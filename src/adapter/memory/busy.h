/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A busy word is odd while its one writer uses memory that the owner may revoke. The owner revokes first, and
 * then waits until an odd word has changed. The writer makes the word odd first, and then checks that the use
 * is allowed. Between the two steps each side makes a fence (host/memory/fence.h).
 */
#ifndef VB_ADAPTER_BUSY_H
#define VB_ADAPTER_BUSY_H

#include "base/base.h"

/* With the light fence, where that suffices. */
static inline void vb_busy_word_begin_lightly(_Atomic(uint32_t) *busy)
{
	atomic_store_explicit(busy, atomic_load_explicit(busy, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
}

/*
 * With a fence of its own: an addition alone would let later loads go before its store, by the C11 model and
 * on ARM.
 */
static inline void vb_busy_word_begin_fully(_Atomic(uint32_t) *busy)
{
	atomic_store_explicit(busy, atomic_load_explicit(busy, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
}

static inline void vb_busy_word_end(_Atomic(uint32_t) *busy)
{
	atomic_store_explicit(busy, atomic_load_explicit(busy, memory_order_relaxed) + 1,
			      memory_order_release);
}

#endif
