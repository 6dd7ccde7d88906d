/* SPDX-License-Identifier: BSD-2-Clause */
/* What a lab asks of the kernel that an ordinary user may be denied. */
#ifndef VB_TOOLS_LAB_KERNEL_H
#define VB_TOOLS_LAB_KERNEL_H

#include "lab.h"

/*
 * Writes into text that a step has failed with errno, why the kernel may have denied it, and what helps.
 */
void lab_explain(char text[LAB_TEXT_BYTES], const char *step, int error);

/*
 * Maps the users and groups of this process into the new user namespace of a child: all of them, if this one
 * may, else its own.
 */
bool lab_map_users(pid_t child);

/* Lets the programs that this process executes keep its capabilities, whoever the user is. */
void lab_keep_capabilities(void);

#endif
