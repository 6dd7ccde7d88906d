/* SPDX-License-Identifier: BSD-2-Clause */
/* The Ethernet interface of a host, a tap device. */
#ifndef VB_TOOLS_LAB_TAP_H
#define VB_TOOLS_LAB_TAP_H

#include "lab.h"

/* Each frame has this before it; as the kernel has it by default. */
enum { LAB_VNET_HEADER = 10 };

/*
 * Makes eth0 in this network namespace, with a host's addresses, and raises it and the loopback interface.
 * Gives its descriptor, which does not block; ends this process where that fails.
 */
int lab_tap_open(const struct lab_plan *plan, unsigned host, int status);

/* May the host leave long segments to the reader of this tap, who cuts them? */
void lab_tap_segment(int tap, bool is_left);

#endif
