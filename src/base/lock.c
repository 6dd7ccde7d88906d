/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/lock.h"

#include <sched.h>

enum {
	TIMES = 256,   /* taken so often in a row by one thread, it becomes that thread's, */
	MOST_LOST = 16 /* twice as often each time that it was taken away, but for so many times */
};

void (*vb_lock_fence)(void);

/* The lock is held. */
static bool deserves_owner(struct vb_lock *l, uintptr_t self)
{
	if (l->heir != self) {
		l->heir = l->has_heir ? l->heir : self;
		l->times = 0;
		return false;
	}
	return ++l->times >= (uint32_t)TIMES << l->lost && vb_lock_fence;
}

/* From ordinarily held to being inside as the owner. */
static void become_owner(struct vb_lock *l, uintptr_t self)
{
	l->times = 0;
	l->has_heir = true;
	atomic_store_explicit(&l->inside, true, memory_order_relaxed);
	atomic_store_explicit(&l->owner, self, memory_order_relaxed);
	atomic_store_explicit(&l->held, 0, memory_order_release);
}

/* `held` is this thread's. */
static void dispossess(struct vb_lock *l)
{
	l->lost += l->lost < MOST_LOST;
	atomic_store_explicit(&l->owner, 0, memory_order_relaxed);
	vb_lock_fence();
}

bool vb_lock_try_ordinarily(struct vb_lock *l, uintptr_t self)
{
	uintptr_t none = 0, owner;
	if (atomic_load_explicit(&l->held, memory_order_relaxed) ||
	    !atomic_compare_exchange_strong_explicit(&l->held, &none, self, memory_order_acquire, memory_order_relaxed))
		return false;
	owner = atomic_load_explicit(&l->owner, memory_order_relaxed);
	if (owner && owner != self)
		dispossess(l);
	if (atomic_load_explicit(&l->inside, memory_order_acquire)) {
		atomic_store_explicit(&l->held, 0, memory_order_release);
		return false;
	}
	if (deserves_owner(l, self))
		become_owner(l, self);
	return true;
}

void vb_lock_wait(struct vb_lock *l, uintptr_t self)
{
	for (unsigned spins = 0; !vb_lock_try_as_owner(l, self) && !vb_lock_try_ordinarily(l, self); spins++) {
		if (spins < 64)
			vb_pause();
		else
			sched_yield();
	}
}
