/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The page that shows a capture: one file that needs nothing else. It holds the capture, shortened and in
 * base64, and the rows of the wire's formats (wire/field.h), by which its script reads packets.
 */
#ifndef VB_TOOLS_TIMELINE_PAGE_H
#define VB_TOOLS_TIMELINE_PAGE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* page.html with style and script, before and after its data (embed.py). */
extern const char timeline_page_before[], timeline_page_after[];
extern const size_t timeline_page_before_bytes, timeline_page_after_bytes;

/* An enum ibv_wr_opcode in words; "?" for what is none. */
const char *timeline_work_name(unsigned opcode);
/* Formats of the wire, as JSON. */
void timeline_write_formats(FILE *out);
/* Errors stay in the stream (ferror). */
void timeline_write_page(FILE *out, const uint8_t *capture, size_t bytes);

#endif
