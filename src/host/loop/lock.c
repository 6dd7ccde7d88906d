/* SPDX-License-Identifier: BSD-2-Clause */
/* The host's lock, and how often this process was forked since the library was loaded. */
#include "host/private.h"

#include <pthread.h>

#include "base/cancel.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int cancel_state; /* of the thread that holds the lock */
static atomic_uint generation;

void vb_host_lock(void)
{
	int before = vb_cancel_off();
	pthread_mutex_lock(&lock);
	cancel_state = before;
}

void vb_host_unlock(void)
{
	int before = cancel_state;
	pthread_mutex_unlock(&lock);
	vb_cancel_restore(&before);
}

unsigned vb_host_generation(void) { return atomic_load_explicit(&generation, memory_order_relaxed); }

void vb_host_count_generation(void) { atomic_fetch_add(&generation, 1); }
