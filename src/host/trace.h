/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where in the program a call comes from. Taking a trace costs about a microsecond. Its text names functions.
 * With debugging information it also names files and lines, if the system has elfutils' libdw.so.1, which is
 * loaded only then.
 */
#ifndef VB_HOST_TRACE_H
#define VB_HOST_TRACE_H

#include "base/base.h"

enum { VB_TRACE_FRAMES = 6 };

/* Return addresses, the innermost first, without those in this library. */
struct vb_trace {
	unsigned count;
	void *frames[VB_TRACE_FRAMES];
};

/* To be called before the first trace: loads what that needs. */
void vb_trace_prepare(void);
void vb_trace_take(struct vb_trace *trace);
/* Is its innermost frame in a library or program whose file name begins so? */
bool vb_trace_is_of(const struct vb_trace *trace, const char *file);
/* "main (send.c:42)", frames separated by " < "; at most `most` of them. One thread at a time. */
void vb_trace_text(const struct vb_trace *trace, unsigned most, char *text, size_t size);

#endif
