/* SPDX-License-Identifier: BSD-2-Clause */
/* What librdmacm asks of the local path. */
#ifndef VB_ADAPTER_PEER_H
#define VB_ADAPTER_PEER_H

#include "host/host.h"

/*
 * Has died(arg, slot) called for each slot of a process that was linked to this one and is gone, however it
 * ended. Called from the progress thread with no adapter or host lock held, before that process's QPs are
 * failed; it may call anything but must not block. One subscriber per process, kept for its life; a second
 * call replaces the first. The end of a link to which the two never agreed is no death: the process may live,
 * and its connections take the wire. A link that was cut (local/cut.h) counts as one.
 */
VB_EXPORT void vb_peer_death_subscribe(void (*died)(void *arg, uint32_t slot), void *arg);

#endif
