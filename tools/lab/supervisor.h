/* SPDX-License-Identifier: BSD-2-Clause */
/* The lab's first process, with which all of the lab ends. */
#ifndef VB_TOOLS_LAB_SUPERVISOR_H
#define VB_TOOLS_LAB_SUPERVISOR_H

#include "channel.h"

/*
 * Makes a lab. It ends when the other end of `control` is closed, as it is with the process that has it,
 * unless LAB_GO is sent there first. False: there is none, and why.
 */
bool lab_start(const struct lab_plan *plan, int *control, char why[LAB_TEXT_BYTES]);

#endif
