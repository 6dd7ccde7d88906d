/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A biased spin lock, for sections of tens of nanoseconds that never block. A waiter yields its processor
 * after a short spin, because the holder may have been preempted. Where that does not help, it sleeps for
 * some microseconds at a time.
 *
 * A thread that takes a lock again and again becomes its owner. An owner takes the lock with a plain store,
 * which costs a tenth of a locked instruction and does not wait for earlier stores. Another thread that wants
 * the lock takes `held`, revokes the ownership, makes the fence that the owner leaves out, and waits until
 * the owner is outside. So either the owner sees that it has lost the ownership, or the other thread sees it
 * inside. Each time the owner must take the lock twice as often to own it again. No other thread can ever own
 * it: `inside` has a single writer, which may notice late that it lost the ownership.
 *
 *	owner                       another thread
 *	inside = true               owner = no owner
 *	(compiler fence)            vb_lock_fence: a fence of all processors
 *	is it still the owner?      is the owner inside?
 */
#ifndef VB_LOCK_H
#define VB_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct vb_lock {
	/* with VB_LOCK_OWNS: the owner, which takes the lock by `inside`; without: the candidate */
	_Atomic(uintptr_t) owner;
	/* the thread that has taken it, or tries to, not as the owner; 0: none */
	_Atomic(uintptr_t) held;
	/* in a row that the candidate has taken it by `held`; under the lock, as what follows */
	uint32_t times;
	uint8_t revoked;           /* times that the ownership was revoked */
	/*
	 * the candidate was the owner and stays the only one; before, it is the thread that took the lock
	 * last
	 */
	bool is_candidate_fixed;
	/* the owner has it; or a former owner is about to notice that it lost the ownership */
	atomic_bool inside;
};

enum { VB_LOCK_OWNS = 1 }; /* no thread's number has this bit */

#define VB_LOCK_INIT { 0 }

/*
 * Makes all other processors that run this process execute a full fence. NULL, the initial value: no lock
 * gets an owner.
 */
extern void (*vb_lock_fence)(void);

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
	*l = (struct vb_lock)VB_LOCK_INIT;
}

/* A number that no other living thread has. */
static inline uintptr_t vb_lock_self(void)
{
	return (uintptr_t)__builtin_thread_pointer();
}

bool vb_lock_try_ordinarily(struct vb_lock *l, uintptr_t self);
void vb_lock_wait(struct vb_lock *l, uintptr_t self);

/* False also where this thread has the lock already. */
static inline bool vb_lock_try_as_owner(struct vb_lock *l, uintptr_t self)
{
	if (__builtin_expect(atomic_load_explicit(&l->owner, memory_order_relaxed) != (self | VB_LOCK_OWNS),
			     0) ||
	    __builtin_expect(atomic_load_explicit(&l->inside, memory_order_relaxed), 0))
		return false;
	atomic_store_explicit(&l->inside, true, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(atomic_load_explicit(&l->owner, memory_order_relaxed) == (self | VB_LOCK_OWNS),
			     1))
		return true;
	atomic_store_explicit(&l->inside, false, memory_order_release);
	return false;
}

static inline bool vb_lock_try(struct vb_lock *l)
{
	uintptr_t self = vb_lock_self();
	return __builtin_expect(vb_lock_try_as_owner(l, self), 1) || vb_lock_try_ordinarily(l, self);
}

static inline void vb_lock(struct vb_lock *l)
{
	uintptr_t self = vb_lock_self();
	if (__builtin_expect(!vb_lock_try_as_owner(l, self), 0))
		vb_lock_wait(l, self);
}

/* A hint: a thread has it, or is about to take it. */
static inline bool vb_lock_is_taken(const struct vb_lock *l)
{
	return atomic_load_explicit(&l->held, memory_order_relaxed) ||
	       atomic_load_explicit(&l->inside, memory_order_relaxed);
}

static inline void vb_unlock(struct vb_lock *l)
{
	/* an owner that lost the ownership while it was inside is not in `held` */
	if (atomic_load_explicit(&l->held, memory_order_relaxed) == vb_lock_self())
		atomic_store_explicit(&l->held, 0, memory_order_release);
	else
		atomic_store_explicit(&l->inside, false, memory_order_release);
}

#endif
