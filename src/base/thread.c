/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/thread.h"

#include <stddef.h>

#include "base/signals.h"

int vb_thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
	sigset_t blocked, before;
	pthread_attr_t attr;
	pthread_t detached;

	vb_signals_but_faults(&blocked);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, thread ? PTHREAD_CREATE_JOINABLE : PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &blocked, &before);
	int err = pthread_create(thread ? thread : &detached, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}
