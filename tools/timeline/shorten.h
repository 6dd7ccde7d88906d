/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Captures as a page takes them: the blocks of pcapng files one behind the other, with all that they say of
 * packets, but of payloads only their beginning. Messages of connection management stay whole.
 */
#ifndef VB_TOOLS_TIMELINE_SHORTEN_H
#define VB_TOOLS_TIMELINE_SHORTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shortened {
	uint8_t *bytes;
	size_t used, room;
	uint32_t interfaces;    /* of the last section */
};

/*
 * Appends a file's blocks; false after a message, which has the name. What a capture that was killed left of
 * its last block is left out, and so is what a page has no room for; both are said.
 */
bool shorten_file(struct shortened *to, const char *path, const char *name);

#endif
