/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cancel.h"

typedef void hearing(const char *call, const char *sentence);

atomic_bool vb_debug_enabled;
static bool is_asked; /* VERBATIM_DEBUG is set */
static hearing *listen;
static _Atomic(hearing *) copy;

/* Does anybody want sentences? */
static void update(void) { atomic_store(&vb_debug_enabled, is_asked || listen || atomic_load(&copy)); }

__attribute__((constructor)) static void read_environment(void)
{
	const char *v = getenv("VERBATIM_DEBUG");
	is_asked = v && *v && strcmp(v, "0") != 0;
	update();
}

void vb_explain_listen(void (*listener)(const char *call, const char *sentence))
{
	listen = listener;
	update();
}

void vb_explain_copy(void (*listener)(const char *call, const char *sentence))
{
	atomic_store(&copy, listener);
	update();
}

void vb_say(const char *text, size_t bytes)
{
	VB_UNCANCELLED;
	int saved_errno = errno;
	ssize_t written = write(STDERR_FILENO, text, bytes);
	(void)written; /* there is nobody to report an error to */
	errno = saved_errno;
}

/* Appends to line and returns its new length, at most size - 1 (what did not fit is lost). */
static size_t append(char *line, size_t used, size_t size, const char *fmt, va_list args)
{
	int n = vsnprintf(line + used, size - used, fmt, args);
	if (n < 0)
		return used;
	return used + (size_t)n < size ? used + (size_t)n : size - 1;
}

static void explain(const char *call, bool is_limit, const char *fmt, va_list args)
{
	char line[1024];
	int n = snprintf(line, sizeof line, "verbatim: %.64s: ", call);
	size_t start = n < 0 ? 0 : (size_t)n;
	size_t used = append(line, start, sizeof line, fmt, args);

	for (size_t i = 0; i < used; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = ' ';
	line[used] = 0;
	hearing *to = atomic_load(&copy);
	if (to)
		to(call, line + start);
	if (listen && !is_limit)
		listen(call, line + start);
	line[used] = '\n';
	if (is_asked || !(to || listen))
		vb_say(line, used + 1);
}

void vb_explain_line(const char *call, const char *fmt, ...)
{
	int saved_errno = errno;
	va_list args;
	va_start(args, fmt);
	explain(call, false, fmt, args);
	va_end(args);
	errno = saved_errno;
}

void vb_explain_limit_line(const char *call, const char *fmt, ...)
{
	int saved_errno = errno;
	va_list args;
	va_start(args, fmt);
	explain(call, true, fmt, args);
	va_end(args);
	errno = saved_errno;
}
