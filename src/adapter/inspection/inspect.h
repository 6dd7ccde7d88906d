/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Answers to commands that inspect this process (formats: host/inspect.h). The progress thread gives them
 * piece by piece, between its other work. It reads each object under the object's own lock, and only if that
 * is free: no program waits for it, and objects that are being changed are left out.
 */
#ifndef VB_ADAPTER_INSPECT_H
#define VB_ADAPTER_INSPECT_H

#include <string.h>

#include "base/base.h"
#include "host/inspect.h"

/* A piece of an answer. */
struct vb_dump {
	uint8_t *bytes;
	size_t used, room;
};

/* A zeroed record with its header; NULL: there is no room, what is left comes with the next piece. */
VB_EXPORT void *vb_dump_add(struct vb_dump *dump, enum vb_record_kind kind, size_t bytes);

/* Sets an array of characters in a record; what is too long is cut. */
#define VB_RECORD_NAME(array, from) vb_record_name((array), sizeof(array), (from))
static inline void vb_record_name(char *to, size_t room, const char *from)
{
	size_t bytes = strlen(from);
	memcpy(to, from, bytes < room ? bytes : room - 1);
}

/*
 * Adds records from *cursor on, which is 0 at first and the source's own. False: that was all. Runs in the
 * progress thread.
 */
typedef bool vb_dump_source(struct vb_dump *dump, uint64_t *cursor);

/* The progress thread runs. The first time, connects to the command that captures from the beginning on. */
void vb_inspect_start(void);

/* Registers the source of a kind of records; once for each. */
VB_EXPORT void vb_inspect_offer(enum vb_record_kind kind, vb_dump_source *source);

#endif
