/* SPDX-License-Identifier: BSD-2-Clause */
#include "row.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "base/utf8.h"
#include "command.h"

static struct field *add(struct row *row, const char *name)
{
	struct field *f;

	if (row->count == ROW_FIELDS)
		exit(complain("a row has more than %d fields", ROW_FIELDS));
	if (row->count == row->room) {
		row->room += 12;
		row->fields = realloc(row->fields, row->room * sizeof(*row->fields));
		if (!row->fields)
			exit(complain("out of memory"));
	}
	f = &row->fields[row->count++];
	*f = (struct field){ .name = name };
	return f;
}

static struct field *add_text(struct row *row, const char *name, const char *text)
{
	struct field *f = add(row, name);

	f->text = strndup(text, FIELD_MOST - 1);
	if (!f->text)
		exit(complain("out of memory"));
	vb_clean_text(f->text);
	return f;
}

void row_text(struct row *row, const char *name, const char *text) { add_text(row, name, text); }

void row_long_text(struct row *row, const char *name, const char *text)
{
	struct field *f = add_text(row, name, text);
	size_t n = strlen(f->text), half = FIELD_BRIEF / 2 - 1;

	if (n >= FIELD_BRIEF)
		snprintf(f->brief, sizeof(f->brief), "%.*s..%s", (int)half, f->text, f->text + n - half);
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
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, number);
	add_text(row, name, text)->is_bare = true;
}

void scale_number(char text[SCALED], double number)
{
	static const char units[] = " kMGTPE";
	const char *unit = units;

	while (number >= (unit == units ? 99999.5 : 9999.5) && unit[1]) {
		number /= 1000;
		unit++;
	}
	int decimals = unit == units || number >= 99.95 ? 0 : number >= 9.995 ? 1 : 2;
	snprintf(text, SCALED, "%.*f%.*s", decimals, number, unit != units, unit);
}

void row_count(struct row *row, const char *name, uint64_t number)
{
	row_number(row, name, number);
	scale_number(row->fields[row->count - 1].brief, (double)number);
}

void row_rate(struct row *row, const char *name, double rate)
{
	char text[32];

	snprintf(text, sizeof(text), "%.1f", rate);
	add_text(row, name, text)->is_bare = true;
	scale_number(row->fields[row->count - 1].brief, rate);
}

void row_bool(struct row *row, const char *name, bool value)
{
	add_text(row, name, value ? "true" : "false")->is_bare = true;
}

void row_detail(struct row *row) { row->fields[row->count - 1].is_detail = true; }

void row_free(struct row *row)
{
	for (unsigned i = 0; i < row->count; i++)
		free(row->fields[i].text);
	free(row->fields);
	*row = (struct row){ .count = 0 };
}

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
	*row = (struct row){ .count = 0 };
	return row;
}

/*
 * How wide its first character is on a terminal, and its size in bytes. main sets the locale by which that is
 * known; in another one each byte that begins a character is one column.
 */
static int first_columns(const char *text, size_t *bytes)
{
	wchar_t code;
	mbstate_t state = { 0 };
	size_t n = mbrtowc(&code, text, strlen(text), &state);

	*bytes = n && n <= MB_LEN_MAX ? n : 1;
	if (*bytes != n)
		return (*text & 0xc0) != 0x80;
	int columns = wcwidth(code);
	return columns < 0 ? 1 : columns;
}

int text_columns(const char *text)
{
	int columns = 0;

	for (size_t n; *text; text += n)
		columns += first_columns(text, &n);
	return columns;
}

size_t text_that_fits(const char *text, int columns)
{
	const char *at = text;

	for (size_t n; *at; at += n) {
		columns -= first_columns(at, &n);
		if (columns < 0)
			break;
	}
	return (size_t)(at - text);
}

static const char *cell_text(const struct field *f) { return f->brief[0] ? f->brief : f->text; }

/* 0: nothing to show. */
static int column_width(const struct table *t, unsigned column)
{
	int width = 0;

	if (t->rows[0].fields[column].is_detail)
		return 0;
	for (unsigned i = 0; i < t->count; i++) {
		int n = text_columns(cell_text(&t->rows[i].fields[column]));
		width = n > width ? n : width;
	}
	int heading = (int)strlen(t->rows[0].fields[column].name);
	width = width && heading > width ? heading : width;
	if (t->widths)
		width = t->widths[column] = width > t->widths[column] ? width : t->widths[column];
	return width;
}

static void print_cell(const struct field *f, const char *text, int width, bool is_last, FILE *out)
{
	int left = width - text_columns(text);

	fprintf(out, "%*s%s", f->is_bare ? left : 0, "", text);
	if (!is_last)
		fprintf(out, "%*s", 2 + (f->is_bare ? 0 : left), "");
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
				print_cell(f, r < 0 ? heading : cell_text(f), widths[c], c == last, out);
		}
		fputc('\n', out);
	}
}

void table_free(struct table *table)
{
	for (unsigned i = 0; i < table->count; i++)
		row_free(&table->rows[i]);
	free(table->rows);
	*table = (struct table){ .rows = NULL };
}

/* ---- JSON ---- */

void json_text(FILE *out, const char *text)
{
	fputc('"', out);
	for (size_t n, left = strlen(text); left; text += n, left -= n) {
		n = vb_printable_size(text, left);
		if (*text == '"' || *text == '\\')
			fprintf(out, "\\%c", *text);
		else if ((unsigned char)*text < ' ')
			fprintf(out, "\\u%04x", (unsigned)*text);
		else if (n)
			fwrite(text, 1, n, out);
		else
			fputc('?', out);
		n = n ? n : 1;
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

void json_object(FILE *out, const struct row *row)
{
	fputc('{', out);
	json_fields(out, row);
	fputc('}', out);
}

void json_table(FILE *out, const char *name, const struct table *table)
{
	fprintf(out, "\"%s\":[", name);
	for (unsigned i = 0; i < table->count; i++) {
		if (i)
			fputc(',', out);
		json_object(out, &table->rows[i]);
	}
	fputc(']', out);
}
