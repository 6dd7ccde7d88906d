/* SPDX-License-Identifier: BSD-2-Clause */
/* A TOML document as a tree, whatever library reads it. */
#ifndef VB_TOOLS_LAB_TOML_H
#define VB_TOOLS_LAB_TOML_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum lab_toml_kind {
	LAB_TOML_TABLE,
	LAB_TOML_ARRAY,
	LAB_TOML_STRING,
	LAB_TOML_INTEGER,
	LAB_TOML_BOOLEAN,
	LAB_TOML_OTHER, /* a real number, a date, a time; a string with a zero byte */
};

struct lab_toml {
	enum lab_toml_kind kind;
	unsigned line; /* where it begins */
	char *key; /* in a table; else NULL */
	char *text; /* of a string */
	long long number; /* of an integer; of a boolean 0 or 1 */
	struct lab_toml *items; /* of a table, in the order of their lines, or an array */
	size_t count;
};

/* The document, which is a table. NULL: why not, and in which line; 0: in none. */
struct lab_toml *lab_toml_parse(const char *text, size_t size, unsigned *line, char *why, size_t why_bytes);
void lab_toml_free(struct lab_toml *document);

#ifdef __cplusplus
}
#endif

#endif
