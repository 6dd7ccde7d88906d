/* SPDX-License-Identifier: BSD-2-Clause */
/* What commands ask of a lab. */
#ifndef VB_TOOLS_LAB_CALL_H
#define VB_TOOLS_LAB_CALL_H

#include "channel.h"

/* Connects to a lab; -1 after a message. */
int lab_call(const char *lab);

/*
 * Asks for a program, in this working directory, with these standard descriptors. How it has ended comes as a
 * message. False after a message.
 */
bool lab_call_program(int fd, struct lab_exec exec, char *const *argv, char *const *envp,
		      const int fds[LAB_FDS]);

/*
 * Kills the first process of a lab, with which all others end, and waits until the kernel has ended them. The
 * exit status of a command.
 */
int lab_call_end(int fd);

#endif
