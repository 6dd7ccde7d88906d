/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the ports of this network namespace have counted, as the processes of this user say, and those that
 * are gone: a counter of a port does not go back when a process ends. A file beside the tree (host/tree.h)
 * has what each process said last. So what a process did after somebody looked last goes with it. While
 * another process keeps the lock of that file, it is read and not written.
 */
#ifndef VB_ANSWERS_PORTS_H
#define VB_ANSWERS_PORTS_H

#include "host/inspect.h"

/* Fills in a record for each port, up to `room`; returns how many. One thread at a time. */
unsigned ports_sum(const char *root, struct vb_record_port *list, unsigned room);

#endif
