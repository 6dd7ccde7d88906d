/* SPDX-License-Identifier: BSD-2-Clause */
#include "process_name.h"

#include <stdio.h>
#include <string.h>

void process_name(pid_t pid, char name[PROCESS_NAME])
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	f = fopen(path, "re");
	if (!f || !fgets(name, PROCESS_NAME, f))
		strcpy(name, "?");
	if (f)
		fclose(f);
	name[strcspn(name, "\n")] = '\0';
}
