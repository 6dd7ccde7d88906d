/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SA_RESTART for calls that sleep in poll(2), which returns EINTR without saying which handler ran. Such a
 * call goes on only if every handler that may interrupt this thread has SA_RESTART. A handler that removed
 * itself (SA_RESETHAND) is not seen.
 */
#ifndef VB_BASE_RESTART_H
#define VB_BASE_RESTART_H

#include <stdbool.h>

/* After an EINTR: does the call go on? Keeps errno. */
bool vb_goes_on_after_signal(void);

#endif
