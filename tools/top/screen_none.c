/* SPDX-License-Identifier: BSD-2-Clause */
/* Where there was no curses library to build with. */
#include "top/screen.h"

const char *top_screen_lacks(void)
{
	return "this verbatim was built without a curses library (libncurses-dev), so here is a table";
}

int top_screen_run(struct top_screen *screen) { return 0; }
