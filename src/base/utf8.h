/* SPDX-License-Identifier: BSD-2-Clause */
/* Text of programs and peers, which may be any bytes. */
#ifndef VB_UTF8_H
#define VB_UTF8_H

#include <stddef.h>

/*
 * The size in bytes of the UTF-8 character at the beginning of the `left` bytes (more than none). 0 if there
 * is no character, or one that must not be printed as it is: a control character but for the tab, one that
 * ends lines (U+2028, U+2029), or one that XML has not.
 */
size_t vb_printable_size(const char *bytes, size_t left);
/*
 * What would play tricks with a terminal, or with a file's format, becomes '?': each byte that is of no such
 * character, and tabs.
 */
void vb_clean_text(char *text);

#endif
