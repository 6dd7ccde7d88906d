/* SPDX-License-Identifier: BSD-2-Clause */
/* The adapter's start in this process, and again in a forked child. */
#ifndef VB_ADAPTER_START_H
#define VB_ADAPTER_START_H

#include "base/base.h"

/*
 * Starts host, arena and progress for this process, once. 0 or a negative errno; -EAGAIN: there can be no
 * thread now, which connections need.
 */
VB_EXPORT int vb_adapter_start(void);
/* All of it but the thread. */
int vb_adapter_open(void);

#endif
