/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Signals that meet a call which waits. A call that polls before it sleeps holds them back meanwhile, so that
 * each meets the sleep, or ends the call as if it had: EINTR, unless its handler has SA_RESTART (signal(7)).
 */
#ifndef VB_BASE_SIGNALS_H
#define VB_BASE_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

/*
 * Does a call go on after poll(2) has returned EINTR? poll(2) does not say which handler ran. So the call
 * goes on if every handler that may interrupt this thread has SA_RESTART. A handler that removed itself
 * (SA_RESETHAND) is not seen. mask: the signal mask during the sleep; NULL: the thread's. Keeps errno.
 */
bool vb_goes_on_after_signal(const sigset_t *mask);

/*
 * All signals but those that the kernel sends a thread for what it does itself: an access, an instruction, a
 * system call that a sandbox carries out in a handler of SIGSYS. Where they are blocked they end the process,
 * whatever handler it has.
 */
void vb_signals_but_faults(sigset_t *set);

/* From here on signals wait, but those of the thread's own faults. *before: the thread's mask. */
void vb_signals_hold(sigset_t *before);
/* Is one waiting whose handler ends calls with EINTR? Keeps errno. */
bool vb_signals_interrupt(const sigset_t *before);
/* Lets them in. A handler may jump out. */
void vb_signals_release(const sigset_t *before);

#endif
