/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VB_TOOLS_TIMELINE_H
#define VB_TOOLS_TIMELINE_H

#include <stdbool.h>

/* False after a message: there is a capture in the page's place. */
bool timeline_may_write(const char *page);
/* Makes a page ("-": standard output) of captures, `count` of them. 0, or EXIT_OURS after a message. */
int timeline_make(const char *page, char *const *captures, int count);
/* The same of one, which messages call by another name. */
int timeline_make_of(const char *page, const char *capture, const char *name);

#endif
