/* SPDX-License-Identifier: BSD-2-Clause */
/* Counters of processes: from their beginning, or, while watching, what has come to them per second. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "describe.h"
#include "look.h"

/* What was shown before, for rates; each row with its process's slot, as some processes have no pid here. */
static struct table last;
static uint32_t *last_slots;

/* Of a process that did not answer it tells nothing. */
static bool has_answered(const struct row *row)
{
	for (unsigned i = 0; i < row->count; i++)
		if (strcmp(row->fields[i].name, "trouble") == 0)
			return !row->fields[i].text[0];
	return true;
}

static const struct row *find(const char *pid, uint32_t slot)
{
	for (unsigned i = 0; i < last.count; i++)
		if (last_slots[i] == slot && strcmp(last.rows[i].fields[0].text, pid) == 0)
			return has_answered(&last.rows[i]) ? &last.rows[i] : NULL;
	return NULL;
}

static bool is_counter(const struct field *f)
{
	return f->is_bare && strcmp(f->name, "pid") != 0 && strcmp(f->name, "memory_bytes") != 0;
}

static void set(struct field *f, double rate)
{
	char text[32];

	snprintf(text, sizeof(text), "%.0f", rate);
	free(f->text);
	f->text = strdup(text);
	if (!f->text)
		exit(complain("out of memory"));
	if (f->brief[0])
		scale_number(f->brief, rate);
}

static void forget_last(void)
{
	table_free(&last);
	free(last_slots);
	last_slots = NULL;
}

/* Counts become rates; those that have gone down become 0. */
static void make_rates(struct row *row, uint32_t slot, double since_s)
{
	const struct row *before = find(row->fields[0].text, slot);

	for (unsigned i = 0; i < row->count; i++) {
		struct field *f = &row->fields[i];
		if (!is_counter(f))
			continue;
		double now = strtod(f->text, NULL);
		double then = before ? strtod(before->fields[i].text, NULL) : now;
		set(f, now > then ? (now - then) / since_s : 0);
	}
}

static void show(const struct look *look, const struct processes *all, double since_s)
{
	struct table now = { .rows = NULL }, shown = { .rows = NULL };
	uint32_t *slots = calloc(all->count + 1, sizeof(*slots));

	if (!slots)
		exit(complain("out of memory"));
	for (unsigned i = 0; i < all->count; i++) {
		if (!look_wants(look, &all->list[i]))
			continue;
		slots[now.count] = all->list[i].slot;
		describe_counters(table_row(&now), &all->list[i]);
		describe_counters(table_row(&shown), &all->list[i]);
		if (since_s > 0)
			make_rates(&shown.rows[shown.count - 1], all->list[i].slot, since_s);
	}
	if (look->json) {
		printf("{\"per_second\":%s,", since_s > 0 ? "true" : "false");
		json_table(stdout, "processes", &shown);
		puts("}");
	} else {
		if (look->watch)
			puts(since_s > 0 ? "per second" : "since the beginning");
		table_print(&shown, "", stdout);
		if (!shown.count && !look->pid_count)
			puts("no process here uses verbatim");
	}
	table_free(&shown);
	forget_last();
	last = now;
	last_slots = slots;
}

int command_stats(int argc, char **argv)
{
	struct look look = { .json = false };
	int status = look_parse(&look, argc, argv);

	if (!status)
		status = look_run(&look, 1u << VB_RECORD_PORT | 1u << VB_RECORD_CQ, show);
	forget_last();
	return status;
}
