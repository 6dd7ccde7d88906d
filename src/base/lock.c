/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/lock.h"

#include <sched.h>
#include <time.h>

#include "base/cancel.h"
#include "base/tuned.h"

enum {
	SPINS = 64,
	YIELDS = 16,
	NAP_NS = 1000,
};

void (*vb_lock_fence)(void);

/* In what follows this thread has `held`. Relaxed: only a holder changes who may become the owner. */
static bool is_due_to_own(struct vb_lock *l, uintptr_t self)
{
	uintptr_t candidate = atomic_load_explicit(&l->owner, memory_order_relaxed);
	if (candidate == self)
		return ++l->times >= (uint32_t)VB_TIMES_TO_OWN << l->revoked && vb_lock_fence;
	if (!l->is_candidate_fixed)
		atomic_store_explicit(&l->owner, self, memory_order_relaxed);
	l->times = 0;
	return false;
}

/* From holding the lock by `held` to holding it as the owner. */
static void become_owner(struct vb_lock *l, uintptr_t self)
{
	l->times = 0;
	l->is_candidate_fixed = true;
	atomic_store_explicit(&l->inside, true, memory_order_relaxed);
	atomic_store_explicit(&l->owner, self | VB_LOCK_OWNS, memory_order_relaxed);
	atomic_store_explicit(&l->held, 0, memory_order_release);
}

static void revoke(struct vb_lock *l, uintptr_t owner)
{
	l->revoked += l->revoked < VB_MOST_REVOKED;
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
		revoke(l, owner);
	if (atomic_load_explicit(&l->inside, memory_order_acquire)) {
		atomic_store_explicit(&l->held, 0, memory_order_release);
		return false;
	}
	if (is_due_to_own(l, self))
		become_owner(l, self);
	return true;
}

/* Yielding may not help: the holder may have lower priority, or the scheduler favour this thread. */
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
