/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a command shows, as rows of named fields. The same rows become a table for people, whose headings are
 * the fields' names, or objects of JSON. Texts of more than FIELD_MOST bytes are cut.
 */
#ifndef VB_TOOLS_ROW_H
#define VB_TOOLS_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { ROW_FIELDS = 80, FIELD_TEXT = 160, FIELD_MOST = 4096, FIELD_BRIEF = 25, SCALED = 8 };

struct field {
	const char *name;
	char *text;
	char brief[FIELD_BRIEF]; /* what a table shows instead; empty: the text */
	bool is_bare;    /* JSON takes the text as it is: a number, true or false */
	bool is_detail;  /* for JSON alone */
};

/* There may be as many rows as a process has regions: each has room for its own fields alone. */
struct row {
	unsigned count, room;
	struct field *fields;
};

void row_text(struct row *row, const char *name, const char *text);
void row_format(struct row *row, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void row_number(struct row *row, const char *name, uint64_t number);
void row_bool(struct row *row, const char *name, bool value);
/* A number that tables show as scale_number has it. */
void row_count(struct row *row, const char *name, uint64_t number);
/* The same of a rate, which JSON has with one decimal. */
void row_rate(struct row *row, const char *name, double rate);
/* A text of which tables leave out the middle, if it is long. */
void row_long_text(struct row *row, const char *name, const char *text);
/* The field added last is for JSON alone. */
void row_detail(struct row *row);
/* Its fields; a table's rows go with the table. */
void row_free(struct row *row);

/* How wide a text is on a terminal. */
int text_columns(const char *text);
/* How many bytes of it fit into so many columns. */
size_t text_that_fits(const char *text, int columns);

/* In at most 6 characters: 99999, 1234k, 17.3M, 2.50G. */
void scale_number(char text[SCALED], double number);

/* ---- tables ---- */

struct table {
	struct row *rows;
	unsigned count, room;
	/* of ROW_FIELDS columns, which stay as wide as they ever were; NULL: as wide as is needed */
	int *widths;
};

/* A further, empty row; good until the next one is asked for. Exits when there is no memory. */
struct row *table_row(struct table *table);
/* With each line behind `indent`. Empty columns are left out. */
void table_print(const struct table *table, const char *indent, FILE *out);
void table_free(struct table *table);

/* ---- JSON ---- */

/* Writes text in quotes, escaped as JSON asks. Other bytes that vb_printable_size() refuses become '?'. */
void json_text(FILE *out, const char *text);
/* The row's fields, "name":value with commas between; without braces. */
void json_fields(FILE *out, const struct row *row);
/* The same with braces. */
void json_object(FILE *out, const struct row *row);
/* "name":[{...},...] */
void json_table(FILE *out, const char *name, const struct table *table);

#endif
