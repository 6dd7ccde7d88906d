/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "command.h"
#include "describe.h"
#include "look.h"

static const struct {
	enum vb_record_kind kind;
	const char *name;
} kinds[] = {
	{ VB_RECORD_DEVICE, "devices" },
	{ VB_RECORD_PORT, "ports" },
	{ VB_RECORD_PD, "pds" },
	{ VB_RECORD_QP, "qps" },
	{ VB_RECORD_CQ, "cqs" },
	{ VB_RECORD_SRQ, "srqs" },
	{ VB_RECORD_MR, "mrs" },
	{ VB_RECORD_CM_ID, "ids" },
};

/* Describing a record looks for others in the same process. */
static bool next_record(const struct process *p, size_t *at, enum vb_record_kind kind,
			uint8_t copy[VB_RECORD_MAX])
{
	const void *record = process_next(p, at, kind);

	if (record)
		memcpy(copy, record, VB_RECORD_MAX);
	return record;
}

static void fill(struct table *table, const struct process *p, enum vb_record_kind kind,
		 const struct processes *all)
{
	_Alignas(8) uint8_t record[VB_RECORD_MAX];

	for (size_t at = 0; next_record(p, &at, kind, record);)
		describe_record(table_row(table), kind, record, all);
}

/* One by one: there may be a million. */
static void show_json_array(const char *name, const struct process *p, enum vb_record_kind kind,
			    const struct processes *all)
{
	_Alignas(8) uint8_t record[VB_RECORD_MAX];
	unsigned n = 0;

	printf(",\"%s\":[", name);
	for (size_t at = 0; next_record(p, &at, kind, record);) {
		struct row row = { .count = 0 };
		describe_record(&row, kind, record, all);
		if (n++)
			fputc(',', stdout);
		json_object(stdout, &row);
		row_free(&row);
	}
	fputc(']', stdout);
}

static void show_json(const struct look *look, const struct process *p, const struct processes *all)
{
	struct row row = { .count = 0 };

	describe_process(&row, p);
	fputs("{\"process\":", stdout);
	json_object(stdout, &row);
	row_free(&row);
	for (size_t i = 0; i < VB_ARRAY_LEN(kinds); i++)
		if (!look->kinds || (look->kinds & 1u << kinds[i].kind))
			show_json_array(kinds[i].name, p, kinds[i].kind, all);
	fputc('}', stdout);
}

static void show_tables(const struct look *look, const struct process *p, const struct processes *all)
{
	printf("%d %s%s%s\n", (int)p->pid, p->name, p->trouble[0] ? ": " : "", p->trouble);
	for (size_t i = 0; i < VB_ARRAY_LEN(kinds); i++) {
		struct table table = { .rows = NULL };
		if (look->kinds && !(look->kinds & 1u << kinds[i].kind))
			continue;
		fill(&table, p, kinds[i].kind, all);
		if (table.count)
			printf("  %s: %u\n", kinds[i].name, table.count);
		table_print(&table, "    ", stdout);
		table_free(&table);
	}
}

static void show(const struct look *look, const struct processes *all, double since_s)
{
	unsigned shown = 0;

	if (look->json)
		fputs("{\"processes\":[", stdout);
	for (unsigned i = 0; i < all->count; i++) {
		if (!look_wants(look, &all->list[i]))
			continue;
		if (shown++)
			fputc(look->json ? ',' : '\n', stdout);
		(look->json ? show_json : show_tables)(look, &all->list[i], all);
	}
	if (look->json)
		puts("]}");
	else if (!shown && !look->pid_count)
		puts("no process here uses verbatim");
}

/* All kinds are asked for, since the names of peers and the summary come from them. */
int command_show(int argc, char **argv)
{
	struct look look = { .takes_kinds = true };
	int status = look_parse(&look, argc, argv);

	return status ? status : look_run(&look, UINT32_MAX, show);
}
