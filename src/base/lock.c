/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/lock.h"

#include <sched.h>
#include <time.h>

#include "base/cancel.h"

enum {
	SPINS = 64,
	YIELDS = 16,
	NAP_NS = 1000,
	TIMES = 256,   /* taken so often in a row by one thread, it becomes that thread's, */
	MOST_LOST = 16 /* twice as often each time that it was taken away, but for so many times */
};

void (*vb_lock_fence)(void);

/* `held` is this thread's in what follows. Relaxed: who may become the owner is written by holders alone. */
static bool deserves_ownership(struct vb_lock *l, uintptr_t self)
{
	uintptr_t heir = atomic_load_explicit(&l->owner, memory_order_relaxed);
	if (heir == self)
		return ++l->times >= (uint32_t)TIMES << l->lost && vb_lock_fence;
	if (!l->has_heir)
		atomic_store_explicit(&l->owner, self, memory_order_relaxed);
	l->times = 0;
	return false;
}

/* From ordinarily held to being inside as the owner. */
static void become_owner(struct vb_lock *l, uintptr_t self)
{
	l->times = 0;
	l->has_heir = true;
	atomic_store_explicit(&l->inside, true, memory_order_relaxed);
	atomic_store_explicit(&l->owner, self | VB_LOCK_OWNS, memory_order_relaxed);
	atomic_store_explicit(&l->held, 0, memory_order_release);
}

static void dispossess(struct vb_lock *l, uintptr_t owner)
{
	l->lost += l->lost < MOST_LOST;
	atomic_store_explicit(&l->owner, owner & ~(uintptr_t)VB_LOCK_OWNS, memory_order_relaxed);
	vb_lock_fence();
}

bool vb_lock_try_ordinarily(struct vb_lock *l, uintptr_t self)
{
	uintptr_t none = 0;
	if (atomic_load_explicit(&l->held, memory_order_relaxed) ||
	    !atomic_compare_exchange_strong_explicit(&l->held, &none, self, memory_order_acquire,
						     memory_order_relaxed))
		return false;
	uintptr_t owner = atomic_load_explicit(&l->owner, memory_order_relaxed);
	if ((owner & VB_LOCK_OWNS) && owner != (self | VB_LOCK_OWNS))
		dispossess(l, owner);
	if (atomic_load_explicit(&l->inside, memory_order_acquire)) {
		atomic_store_explicit(&l->held, 0, memory_order_release);
		return false;
	}
	if (deserves_ownership(l, self))
		become_owner(l, self);
	return true;
}

/* To yield may be in vain: to a thread of lower priority, and for a thread that has slept much. */
static void nap(void)
{
	VB_UNCANCELLED;
	const struct timespec time = { .tv_nsec = NAP_NS };
	nanosleep(&time, NULL);
}

void vb_lock_wait(struct vb_lock *l, uintptr_t self)
{
	for (unsigned tries = 0; !vb_lock_try_ordinarily(l, self) && !vb_lock_try_as_owner(l, self);
	     tries++) {
		if (tries < SPINS)
			vb_pause();
		else if (tries < SPINS + YIELDS)
			sched_yield();
		else
			nap();
	}
}
