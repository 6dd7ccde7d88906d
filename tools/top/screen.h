/* SPDX-License-Identifier: BSD-2-Clause */
/* `verbatim top` on a terminal. */
#ifndef VB_TOOLS_TOP_SCREEN_H
#define VB_TOOLS_TOP_SCREEN_H

#include "top/state.h"

struct top_screen {
	double period_s;
	struct top top;
	/* Looks again; false: it cannot go on. */
	bool (*look)(struct top *top, void *arg);
	void *arg;
};

/* NULL, or why there can be no screen: then there is a table instead. */
const char *top_screen_lacks(void);
/* Until the user quits; the exit status. */
int top_screen_run(struct top_screen *screen);

#endif
