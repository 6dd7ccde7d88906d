/* SPDX-License-Identifier: BSD-2-Clause */
/* What one caller of the lab wants, in a process of its own. */
#ifndef VB_TOOLS_LAB_SESSION_H
#define VB_TOOLS_LAB_SESSION_H

#include "channel.h"

struct lab_state {
	struct lab_plan plan;
	pid_t hosts[LAB_HOSTS_MAX]; /* their first processes; 0: it is down */
	pid_t switch_pid;
	int orders; /* to the switch */
	int requests; /* to the lab's first process */
};

/* Serves a caller and ends this process, a child of the lab's first. */
void lab_session(const struct lab_state *lab, int caller) __attribute__((noreturn));

#endif
