/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads of the libraries. Signals are for the program's threads, so these threads block them, but for those
 * of their own faults (vb_signals_but_faults).
 */
#ifndef VB_BASE_THREAD_H
#define VB_BASE_THREAD_H

#include <pthread.h>

/*
 * Starts run(arg). thread: NULL for a detached thread, which nobody joins. 0 or a negative errno,
 * those of pthread_create(3).
 */
int vb_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

#endif
