/* SPDX-License-Identifier: BSD-2-Clause */
/* The Ethernet interface of a host, a tap device. */
#ifndef VB_TOOLS_LAB_TAP_H
#define VB_TOOLS_LAB_TAP_H

#include "lab.h"

/*
 * Makes eth0 in this network namespace, with a host's addresses, and raises it and the loopback interface.
 * Gives its descriptor, which does not block; ends this process where that fails. Who reads it gets frames
 * that begin with LAB_VNET_HEADER bytes, with checksums that are not computed yet, and not cut into packets.
 */
int lab_tap_open(const struct lab_plan *plan, unsigned host, int status);

#endif
