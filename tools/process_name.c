/* SPDX-License-Identifier: BSD-2-Clause */
#include "process_name.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

void process_name(pid_t pid, char name[PROCESS_NAME])
{
	char path[64];
	size_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	f = fopen(path, "re");
	if (f) {
		n = fread(name, 1, PROCESS_NAME - 1, f);
		fclose(f);
	}
	name[n ? n - 1 : 0] = '\0'; /* without the end of the line */
	vb_clean_text(name);
	if (!*name)
		strcpy(name, "?");
}
