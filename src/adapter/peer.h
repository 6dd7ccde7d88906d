/* SPDX-License-Identifier: BSD-2-Clause */
/* What librdmacm asks of the local path. */
#ifndef VB_ADAPTER_PEER_H
#define VB_ADAPTER_PEER_H

#include "host/host.h"

/*
 * Has died(arg, slot) called for each slot of a process that was linked to this one and is gone, however it
 * ended. Called from the progress thread with no adapter or host lock held, before that process's QPs are
 * failed; it may call anything but must not block. One subscriber per process, kept for its life; a second
 * call replaces the first. A link that this process closed itself is no death.
 */
VB_EXPORT void vb_peer_death_subscribe(void (*died)(void *arg, uint32_t slot), void *arg);

#endif
