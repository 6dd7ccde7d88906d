/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a command shows, as rows of named fields. The same rows become a table for people, whose headings are
 * the fields' names, or objects of JSON. Long texts are cut.
 */
#ifndef VB_TOOLS_ROW_H
#define VB_TOOLS_ROW_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { ROW_FIELDS = 32, FIELD_TEXT = 160 };

struct field {
	const char *name;
	char text[FIELD_TEXT];
	bool is_bare;    /* JSON takes the text as it is: a number, true or false */
	bool is_detail;  /* for JSON alone */
};

struct row {
	unsigned count;
	struct field fields[ROW_FIELDS];
};

void row_text(struct row *row, const char *name, const char *text);
void row_format(struct row *row, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void row_number(struct row *row, const char *name, uint64_t number);
void row_bool(struct row *row, const char *name, bool value);
/* The field added last is for JSON alone. */
void row_detail(struct row *row);

/* ---- tables ---- */

struct table {
	struct row *rows;
	unsigned count, room;
};

/* A further, empty row; good until the next one is asked for. Exits when there is no memory. */
struct row *table_row(struct table *table);
/* With each line behind `indent`. Empty columns are left out. */
void table_print(const struct table *table, const char *indent, FILE *out);
void table_free(struct table *table);

/* ---- JSON ---- */

/* Text in quotes, with what JSON wants escaped; bytes that are no UTF-8 become '?'. */
void json_text(FILE *out, const char *text);
/* The row's fields, "name":value with commas between; without braces. */
void json_fields(FILE *out, const struct row *row);
/* "name":[{...},...] */
void json_table(FILE *out, const char *name, const struct table *table);

#endif
