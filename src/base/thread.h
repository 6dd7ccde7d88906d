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
 *
 * At the return the thread has the heap that the C library gives to each thread. libfabric and UCX write over
 * the code of mmap, munmap and their like while the program runs, to hear of its memory. A thread that is in
 * one of these calls just then crashes. So a thread makes its heap while the program waits in a call of ours.
 */
int vb_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

#endif
