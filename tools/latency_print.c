/* SPDX-License-Identifier: BSD-2-Clause */
/* Latencies as a table. */
#include <inttypes.h>
#include <string.h>

#include "base/nanoseconds.h"
#include "latency.h"
#include "row.h"
#include "timeline/page.h"

void latency_text(uint64_t ns, char text[32])
{
	static const struct {
		uint64_t ns;
		const char *name;
	} units[] = { { VB_NS_PER_S, "s" }, { VB_NS_PER_MS, "ms" }, { VB_NS_PER_US, "us" } };

	snprintf(text, 32, "%" PRIu64 " ns", ns);
	for (unsigned i = 0; i < 3; i++) {
		double value = (double)ns / (double)units[i].ns;
		if (value < 1)
			continue;
		snprintf(text, 32, "%.*f %s", value < 10 ? 2 : value < 100 ? 1 : 0, value, units[i].name);
		return;
	}
}

void latency_sizes(const struct latency_group *g, char text[32])
{
	if (g->least_bytes == g->most_bytes)
		snprintf(text, 32, "%" PRIu32, g->most_bytes);
	else
		snprintf(text, 32, "%" PRIu32 "-%" PRIu32, g->least_bytes, g->most_bytes);
}

/* To the right, as numbers are. */
static void add(struct row *row, const char *name, const char *text)
{
	row_text(row, name, text);
	row->fields[row->count - 1].is_bare = true;
}

static void fill(struct row *row, const struct latency_group *g)
{
	uint64_t n = g->histogram.count;
	char text[32];

	row_text(row, "operation", timeline_work_name(g->opcode));
	latency_sizes(g, text);
	add(row, "bytes", text);
	row_number(row, "count", n);
	for (unsigned i = 0; i < LATENCY_PERCENTILES; i++) {
		latency_text(histogram_percentile(&g->histogram, latency_percentiles[i].per_mille), text);
		add(row, latency_percentiles[i].name, n ? text : "-");
	}
	for (unsigned i = 0; i < LATENCY_PIECES; i++) {
		latency_text(n ? g->sums_ns[i] / n : 0, text);
		add(row, latency_pieces[i], n ? text : "-");
	}
	snprintf(text, sizeof(text), "%" PRIu64, g->failed);
	add(row, "failed", g->failed ? text : "");
}

static void print_process(const struct latency_process *p, FILE *out)
{
	struct table table = { .rows = NULL };

	for (unsigned i = 0; i < p->group_count; i++)
		fill(table_row(&table), p->groups[i]);
	fprintf(out, "verbatim: %s: from post to completion, and the mean time in the send queue, under way and with "
		"the peer, and until it was polled\n", p->name);
	table_print(&table, "  ", out);
	if (p->lost)
		fprintf(out, "  %" PRIu64 " packets or events were lost for want of room (--buffer): these figures "
			"are of the rest\n", p->lost);
	table_free(&table);
}

void latency_print(const struct latency *l, FILE *out)
{
	bool any = false;

	for (unsigned i = 0; i < l->count; i++) {
		const struct latency_process *p = l->processes[i];
		if (!p || !(p->group_count || p->lost))
			continue;
		print_process(p, out);
		any = true;
	}
	if (!any)
		fputs("verbatim: no send of the program's had a completion\n", out);
}
