/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "command.h"

const char *option_value(int argc, char **argv, int *at, char name[OPTION_NAME])
{
	const char *arg = argv[*at], *equals = strchr(arg, '=');

	snprintf(name, OPTION_NAME, "%.*s", (int)(equals ? equals - arg : (ptrdiff_t)strlen(arg)), arg);
	if (equals)
		return equals + 1;
	return *at + 1 < argc ? argv[++*at] : "";
}

bool take_seconds(const char *text, double *seconds)
{
	char *end;

	*seconds = strtod(text, &end);
	return end != text && !*end && *seconds > 0 && *seconds < 1e6;
}
