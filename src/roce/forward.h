/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets that came in over UDP for another process go to its inbox. An inbox holds a few messages only. A
 * packet that finds it full waits here, in order, for half a second at most. The queue is bounded: further
 * packets are lost, as in any queue of a network.
 */
#ifndef VB_ROCE_FORWARD_H
#define VB_ROCE_FORWARD_H

#include "host/host.h"

/* Any thread. */
void vb_forward(uint32_t slot, const struct vb_inbox_msg *msg);

#endif
