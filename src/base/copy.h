/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies of many bytes. The C library's memcpy, except under qemu's emulation of a processor: that says to have fast string moves of bytes,
 * and does them one by one, at a seventh of the speed of words.
 */
#ifndef VB_COPY_H
#define VB_COPY_H

#include <string.h>

#include "base/base.h"

enum { VB_COPY_MANY = 1024 }; /* below, the C library uses no string moves */

extern bool vb_copy_is_by_words; /* set once, when the library is loaded */

/* Any lengths and alignments; no overlap. */
void vb_copy_words(void *to, const void *from, size_t bytes);

static inline void vb_copy_bytes(void *to, const void *from, size_t bytes)
{
	if (vb_unlikely(bytes >= VB_COPY_MANY) && vb_unlikely(vb_copy_is_by_words))
		vb_copy_words(to, from, bytes);
	else
		memcpy(to, from, bytes);
}

#endif
