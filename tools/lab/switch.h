/* SPDX-License-Identifier: BSD-2-Clause */
/* The switch between the hosts' interfaces, a process of its own. */
#ifndef VB_TOOLS_LAB_SWITCH_H
#define VB_TOOLS_LAB_SWITCH_H

#include "channel.h"

/*
 * Forwards frames until the other end of `orders` is closed. LAB_READY there with a host's number brings the
 * host's interface.
 */
void lab_switch_run(const struct lab_plan *plan, int orders) __attribute__((noreturn));

#endif
