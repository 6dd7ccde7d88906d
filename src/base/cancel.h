/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cancellation of threads. A thread may be cancelled where it waits for an event, and nowhere else: in
 * another system call it could hold locks, descriptors, or an event that it was about to return. In the C
 * library most system calls are cancellation points.
 */
#ifndef VB_BASE_CANCEL_H
#define VB_BASE_CANCEL_H

#include <pthread.h>

static inline int vb_cancel_off(void)
{
	int before;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

static inline void vb_cancel_restore(const int *before)
{
	int now;
	pthread_setcancelstate(*before, &now);
}

/* From here to the end of the block the thread cannot be cancelled. */
#define VB_UNCANCELLED \
	__attribute__((cleanup(vb_cancel_restore), unused)) const int vb_cancel_before = vb_cancel_off()

static inline int vb_cancel_defer(void)
{
	int before;
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &before);
	return before;
}

static inline void vb_cancel_restore_type(const int *before)
{
	int now;
	if (*before != PTHREAD_CANCEL_DEFERRED)
		pthread_setcanceltype(*before, &now);
}

/*
 * To the end of the block the thread is cancelled only where it waits. Some programs (iperf3) choose
 * asynchronous cancellation, which plain system calls tolerate.
 */
#define VB_DEFERRED \
	__attribute__((cleanup(vb_cancel_restore_type), unused)) \
	const int vb_cancel_type_before = vb_cancel_defer()

static inline void vb_cancel_unlock(void *mutex)
{
	pthread_mutex_unlock(mutex);
}

/* As pthread_cond_wait, but a thread that is cancelled in it unlocks the mutex. */
static inline void vb_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	pthread_cleanup_push(vb_cancel_unlock, mutex);
	pthread_cond_wait(cond, mutex);
	pthread_cleanup_pop(0);
}

#endif
