/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Busy words: odd while its one writer uses memory that its owner may revoke. Whoever revokes does so first,
 * and then waits until an odd word has changed; between, and between making it odd and checking that the use
 * is allowed, there are fences (host/memory/fence.h).
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

/* With a fence of its own: an addition alone would let later loads go before its store, by the C11
 * model and on ARM. */
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
