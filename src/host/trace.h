/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where in the program a call comes from. Taking a trace costs about a microsecond; its text names functions,
 * and with debugging information files and lines, if the system has elfutils' libdw.so.1 (which is loaded
 * then, and not needed otherwise).
 */
#ifndef VB_HOST_TRACE_H
#define VB_HOST_TRACE_H

#include "base/base.h"

enum { VB_TRACE_FRAMES = 6 };

/* Return addresses, the innermost first, from the first on that is not this library's. */
struct vb_trace {
	unsigned count;
	void *frames[VB_TRACE_FRAMES];
};

/* Before the first: loads what taking one needs. */
void vb_trace_prepare(void);
void vb_trace_take(struct vb_trace *trace);
/* Is its innermost frame in a library or program of which this is the file's name, or its beginning? */
bool vb_trace_is_of(const struct vb_trace *trace, const char *file);
/* "main (send.c:42)", frames separated by " < "; at most `most` of them. One thread at a time. */
void vb_trace_text(const struct vb_trace *trace, unsigned most, char *text, size_t size);

#endif
