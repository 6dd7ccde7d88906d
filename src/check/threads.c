/* SPDX-License-Identifier: BSD-2-Clause */
#include <sched.h>

#include "check/check.h"

/* Threads as small numbers, never 0. */
static unsigned self(void)
{
	static atomic_uint count;
	static __thread unsigned number;
	if (!number)
		number = atomic_fetch_add(&count, 1) + 1;
	return number;
}

/* Lets other threads run inside the call, so that a concurrent caller is found. */
void vb_check_enter(atomic_uint *user, const char *call, const char *object, const char *page)
{
	unsigned inside = 0;
	if (!atomic_compare_exchange_strong(user, &inside, self()) && inside != self())
		vb_check_report_here(
			VB_CHECK_THREADS, page,
			"%s: %s is used by two threads at once, and was made with the promise that "
			"it is not",
			call, object);
	sched_yield();
}

void vb_check_leave(atomic_uint *user)
{
	unsigned own = self();
	atomic_compare_exchange_strong(user, &own, 0);
}
