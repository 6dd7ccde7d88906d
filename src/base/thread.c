/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/thread.h"

#include <errno.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/cancel.h"
#include "base/signals.h"

/* What a thread is started with. It is the starter's, until the thread has its memory. */
struct start {
	void *(*run)(void *);
	void *arg;
	sem_t has_memory;
};

/* The C library gives each thread a heap of its own at the thread's first allocation, by mmap and munmap. */
static void take_heap(void)
{
	void *volatile memory = malloc(1);
	free(memory);
}

static void *begin(void *arg)
{
	struct start *start = arg;
	void *(*run)(void *) = start->run;
	void *arg_of_run = start->arg;
	take_heap();
	sem_post(&start->has_memory);
	return run(arg_of_run);
}

/* All signals that could jump out of it are blocked. */
static void await_memory(struct start *start)
{
	VB_UNCANCELLED;
	while (sem_wait(&start->has_memory) && errno == EINTR)
		;
	sem_destroy(&start->has_memory);
}

int vb_thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
	struct start start = { .run = run, .arg = arg };
	sigset_t blocked, before;
	pthread_attr_t attr;
	pthread_t detached;

	sem_init(&start.has_memory, 0, 0);
	vb_signals_but_faults(&blocked);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, thread ? PTHREAD_CREATE_JOINABLE : PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &blocked, &before);
	int err = pthread_create(thread ? thread : &detached, &attr, begin, &start);
	if (!err)
		await_memory(&start);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}
