/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VB_ROCE_RECEIVE_H
#define VB_ROCE_RECEIVE_H

#include "host/host.h"

/*
 * Who takes the packets for QP 1 that came in by UDP, ICRC checked and taken off: in one thread at a time.
 * Set by a constructor.
 */
void vb_roce_set_gsi_handler(void (*arrived)(const struct vb_inbox_msg *msg, unsigned ifindex));

#endif
