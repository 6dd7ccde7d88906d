/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A spin lock for sections of tens of nanoseconds that never block. A waiter yields its processor after a short spin,
 * because the holder may have been preempted. Release is a plain store, so an uncontended pair costs one locked
 * instruction.
 */
#ifndef VB_LOCK_H
#define VB_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

struct vb_lock {
	atomic_uchar held;
};

#define VB_LOCK_INIT { 0 }

/* Tells the processor that this is a spin loop. */
static inline void vb_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
	__asm__ volatile("yield" ::: "memory");
#else
	atomic_signal_fence(memory_order_seq_cst);
#endif
}

static inline void vb_lock_init(struct vb_lock *l)
{
	atomic_init(&l->held, 0);
}

static inline bool vb_lock_try(struct vb_lock *l)
{
	return !atomic_load_explicit(&l->held, memory_order_relaxed) &&
	       !atomic_exchange_explicit(&l->held, 1, memory_order_acquire);
}

static inline void vb_lock_spin_(struct vb_lock *l)
{
	for (unsigned spins = 0; !vb_lock_try(l); spins++) {
		if (spins < 64)
			vb_pause();
		else
			sched_yield();
	}
}

static inline void vb_lock(struct vb_lock *l)
{
	if (__builtin_expect(!vb_lock_try(l), 0))
		vb_lock_spin_(l);
}

static inline void vb_unlock(struct vb_lock *l)
{
	atomic_store_explicit(&l->held, 0, memory_order_release);
}

#endif
