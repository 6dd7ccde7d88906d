/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VB_TOOLS_PROCESS_NAME_H
#define VB_TOOLS_PROCESS_NAME_H

#include <sys/types.h>

enum { PROCESS_NAME = 64 };

/* The name of a process's program, as /proc has it; "?" if it has ended. */
void process_name(pid_t pid, char name[PROCESS_NAME]);

#endif
