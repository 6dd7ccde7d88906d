/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets that came in over UDP for another process go to its inbox. An inbox holds but a few messages: what
 * finds it full waits here, in order, for a while. What waits is bounded; beyond that packets are lost, as in
 * any queue on their way.
 */
#ifndef VB_ROCE_FORWARD_H
#define VB_ROCE_FORWARD_H

#include "host/host.h"

/* Any thread. */
void vb_forward(uint32_t slot, const struct vb_inbox_msg *msg);

#endif
