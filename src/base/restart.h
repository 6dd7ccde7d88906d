/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SA_RESTART. A call that sleeps in poll(2) learns that a handler ran (EINTR), and not which one's. So it
 * goes on as the kernel's own would only where each handler that this thread may be interrupted by is to let
 * calls go on. One that is gone when it returns (SA_RESETHAND) is not seen.
 */
#ifndef VB_BASE_RESTART_H
#define VB_BASE_RESTART_H

#include <stdbool.h>

/* After an EINTR: does the call go on? Keeps errno. */
bool vb_goes_on_after_signal(void);

#endif
