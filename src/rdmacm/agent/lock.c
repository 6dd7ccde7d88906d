/* SPDX-License-Identifier: BSD-2-Clause */
#include <pthread.h>
#include <time.h>

#include "base/cancel.h"
#include "rdmacm/agent/channel.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t acked = PTHREAD_COND_INITIALIZER;

void vb_cma_lock(void) { pthread_mutex_lock(&lock); }

bool vb_cma_lock_at_exit(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 1;
	return pthread_mutex_timedlock(&lock, &until) == 0;
}

void vb_cma_unlock(void) { pthread_mutex_unlock(&lock); }
void vb_cma_wait_ack_locked(void) { vb_cond_wait(&acked, &lock); }
void vb_cma_wake_ack_locked(void) { pthread_cond_broadcast(&acked); }

void vb_cma_lock_init(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&acked, NULL);
}
