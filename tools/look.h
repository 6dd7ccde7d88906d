/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Options that the commands which look at processes share: --json, --watch[=SECONDS], --timeout=SECONDS,
 * PIDs; --delay=SECONDS and --iterations=N.
 */
#ifndef VB_TOOLS_LOOK_H
#define VB_TOOLS_LOOK_H

#include <stdbool.h>

#include "answers/ask.h"

enum { LOOK_PIDS = 64 };

struct look {
	bool json, watch;
	double period_s, patience_s;
	pid_t pids[LOOK_PIDS];
	unsigned pid_count;
	uint32_t kinds;        /* of records that words name, 0: none was named */
	bool takes_kinds;
	unsigned iterations;   /* 0: not said */
	double default_patience_s; /* 0: 1 s */
};

/* 0, or the exit status for wrong usage. */
int look_parse(struct look *look, int argc, char **argv);
/* Is the process one of those asked for? */
bool look_wants(const struct look *look, const struct process *p);
/* 1, after a message for each: a PID that was asked for is not there or did not answer; else 0. */
int look_status(const struct look *look, const struct processes *all);
double look_now_s(void);
void look_sleep_s(double seconds);
/*
 * Asks for kinds and calls show, over and over if that was asked for; the time since the last call in s, 0
 * the first time. Gives the exit status: 1 if a PID that was asked for is not there or did not answer.
 */
int look_run(struct look *look, uint32_t kinds,
	     void (*show)(const struct look *look, const struct processes *all, double since_s));

#endif
