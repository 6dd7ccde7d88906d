/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/thread.h"

#include <signal.h>
#include <stddef.h>

int vb_thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t detached;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV); /* the thread's own faults: blocked, they would end the process */
	sigdelset(&all, SIGBUS);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, thread ? PTHREAD_CREATE_JOINABLE : PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int err = pthread_create(thread ? thread : &detached, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}
