/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool vb_debug_enabled;

__attribute__((constructor)) static void read_environment(void)
{
	const char *v = getenv("VERBATIM_DEBUG");
	vb_debug_enabled = v && *v && strcmp(v, "0") != 0;
}

/* Appends to line and returns its new length, at most size - 1 (what did not fit is lost). */
static size_t append(char *line, size_t used, size_t size, const char *fmt, va_list args)
{
	int n = vsnprintf(line + used, size - used, fmt, args);
	if (n < 0)
		return used;
	return used + (size_t)n < size ? used + (size_t)n : size - 1;
}

void vb_explain_line(const char *call, const char *fmt, ...)
{
	int saved_errno = errno;
	char line[1024];
	va_list args;

	int n = snprintf(line, sizeof line, "verbatim: %.64s: ", call);
	size_t used = n < 0 ? 0 : (size_t)n;
	va_start(args, fmt);
	used = append(line, used, sizeof line, fmt, args);
	va_end(args);

	for (size_t i = 0; i < used; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = ' ';
	line[used] = '\n';
	ssize_t written = write(STDERR_FILENO, line, used + 1);
	(void)written; /* nobody is left to tell */
	errno = saved_errno;
}
