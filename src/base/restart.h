/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SA_RESTART for calls that sleep in poll(2), which returns EINTR without saying which handler ran. Such a
 * call goes on only if every handler that may interrupt this thread has SA_RESTART. A handler that removed
 * itself (SA_RESETHAND) is not seen.
 *
 * And signals that wait while a call works, so that they meet it as if it slept.
 */
#ifndef VB_BASE_RESTART_H
#define VB_BASE_RESTART_H

#include <signal.h>
#include <stdbool.h>

/* After an EINTR: does the call go on? Keeps errno. */
bool vb_goes_on_after_signal(void);

struct vb_signals {
	sigset_t blocked; /* by the program */
};

/* From here on the thread's signals wait, but those of its own faults. */
void vb_signals_hold(struct vb_signals *s);
/* Lets them in; a handler may jump out. True: one that came meanwhile ends calls with EINTR. */
bool vb_signals_release(const struct vb_signals *s);

#endif
