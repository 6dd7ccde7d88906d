/* SPDX-License-Identifier: BSD-2-Clause */
/* Why something is refused. */
#ifndef VB_TOOLS_LAB_WHY_H
#define VB_TOOLS_LAB_WHY_H

#include <stdbool.h>
#include <stdio.h>

enum { LAB_WHY_BYTES = 192 };

/* What is wrong with this word; false. */
static inline bool lab_refuse(char why[LAB_WHY_BYTES], const char *what, const char *word)
{
	snprintf(why, LAB_WHY_BYTES, "%.140s: '%.40s'", what, word ? word : "");
	return false;
}

#endif
