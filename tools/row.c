/* SPDX-License-Identifier: BSD-2-Clause */
#include "row.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

static struct field *add(struct row *row, const char *name)
{
	static struct field surplus;
	struct field *f = row->count < ROW_FIELDS ? &row->fields[row->count++] : &surplus;

	*f = (struct field){ .name = name };
	return f;
}

/* Control characters would play tricks with a terminal. */
void row_text(struct row *row, const char *name, const char *text)
{
	struct field *f = add(row, name);

	snprintf(f->text, sizeof(f->text), "%s", text);
	for (char *c = f->text; *c; c++)
		if (iscntrl((unsigned char)*c))
			*c = '?';
}

void row_format(struct row *row, const char *name, const char *fmt, ...)
{
	char text[FIELD_TEXT];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	row_text(row, name, text);
}

void row_number(struct row *row, const char *name, uint64_t number)
{
	struct field *f = add(row, name);

	snprintf(f->text, sizeof(f->text), "%" PRIu64, number);
	f->is_bare = true;
}

void row_bool(struct row *row, const char *name, bool value)
{
	struct field *f = add(row, name);

	snprintf(f->text, sizeof(f->text), "%s", value ? "true" : "false");
	f->is_bare = true;
}

void row_detail(struct row *row) { row->fields[row->count - 1].is_detail = true; }

/* ---- tables ---- */

struct row *table_row(struct table *table)
{
	if (table->count == table->room) {
		table->room = table->room ? table->room * 2 : 16;
		table->rows = realloc(table->rows, table->room * sizeof(*table->rows));
		if (!table->rows)
			exit(complain("out of memory"));
	}
	struct row *row = &table->rows[table->count++];
	row->count = 0;
	return row;
}

/* 0: nothing to show. */
static int column_width(const struct table *t, unsigned column)
{
	int width = 0;

	if (t->rows[0].fields[column].is_detail)
		return 0;
	for (unsigned i = 0; i < t->count; i++) {
		int n = (int)strlen(t->rows[i].fields[column].text);
		width = n > width ? n : width;
	}
	int heading = (int)strlen(t->rows[0].fields[column].name);
	return width && heading > width ? heading : width;
}

static void print_cell(const struct field *f, const char *text, int width, bool is_last, FILE *out)
{
	if (f->is_bare)
		fprintf(out, "%*s%s", width, text, is_last ? "" : "  ");
	else
		fprintf(out, "%-*s%s", is_last ? 0 : width, text, is_last ? "" : "  ");
}

static void heading_of(const char *name, char heading[FIELD_TEXT])
{
	size_t i;

	for (i = 0; name[i] && i < FIELD_TEXT - 1; i++)
		heading[i] = name[i] == '_' ? '-' : (char)toupper((unsigned char)name[i]);
	heading[i] = '\0';
}

/* All rows have the first one's fields. */
void table_print(const struct table *t, const char *indent, FILE *out)
{
	int widths[ROW_FIELDS], last = -1;
	char heading[FIELD_TEXT];

	if (!t->count)
		return;
	for (unsigned c = 0; c < t->rows[0].count; c++) {
		widths[c] = column_width(t, c);
		last = widths[c] ? (int)c : last;
	}
	for (int r = -1; r < (int)t->count; r++) {
		fputs(indent, out);
		for (int c = 0; c <= last; c++) {
			const struct field *f = &t->rows[r < 0 ? 0 : r].fields[c];
			heading_of(f->name, heading);
			if (widths[c])
				print_cell(f, r < 0 ? heading : f->text, widths[c], c == last, out);
		}
		fputc('\n', out);
	}
}

void table_free(struct table *table)
{
	free(table->rows);
	*table = (struct table){ .rows = NULL };
}

/* ---- JSON ---- */

/* How many bytes the UTF-8 character at s has; 0: it is none. */
static unsigned utf8_bytes(const unsigned char *s)
{
	unsigned n = s[0] < 0x80 ? 1
		   : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
		   : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
		   : s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;

	for (unsigned i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

void json_text(FILE *out, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;

	fputc('"', out);
	while (*s) {
		unsigned n = utf8_bytes(s);
		if (*s == '"' || *s == '\\')
			fprintf(out, "\\%c", *s);
		else if (*s < 0x20)
			fprintf(out, "\\u%04x", *s);
		else if (n)
			fwrite(s, 1, n, out);
		else
			fputc('?', out);
		s += n ? n : 1;
	}
	fputc('"', out);
}

void json_fields(FILE *out, const struct row *row)
{
	for (unsigned i = 0; i < row->count; i++) {
		const struct field *f = &row->fields[i];
		fprintf(out, "%s\"%s\":", i ? "," : "", f->name);
		if (f->is_bare)
			fputs(f->text, out);
		else
			json_text(out, f->text);
	}
}

void json_table(FILE *out, const char *name, const struct table *table)
{
	fprintf(out, "\"%s\":[", name);
	for (unsigned i = 0; i < table->count; i++) {
		fputs(i ? ",{" : "{", out);
		json_fields(out, &table->rows[i]);
		fputc('}', out);
	}
	fputc(']', out);
}
