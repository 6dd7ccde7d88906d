/* SPDX-License-Identifier: BSD-2-Clause */
/* verbatim top: on a terminal a screen, else tables or JSON. */
#include <stdlib.h>

#include "command.h"
#include "look.h"
#include "top/screen.h"

static const double patience_s = 0.3; /* a screen should not stand still for those who do not answer */

struct asking {
	struct look look;
	struct processes all; /* their sockets and files are used again at each look */
	bool is_short;        /* of memory or descriptors: it could not go on */
};

static bool wants(const void *arg, const struct process *p)
{
	const struct asking *a = arg;

	return look_wants(&a->look, p);
}

static bool look_again(struct top *top, void *arg)
{
	struct asking *a = arg;

	processes_refresh(&a->all);
	processes_ask(&a->all, top_kinds, (unsigned)(a->look.patience_s * 1000));
	a->is_short = a->all.is_short || !top_look(top, &a->all, look_now_s(), wants, a);
	return !a->is_short;
}

static void fill(struct table *table, const struct top *top, enum top_view view)
{
	const struct top_choice choice = { .view = view };
	const struct top_line **chosen = top_choose(top, &choice);

	for (unsigned i = 0; chosen && chosen[i]; i++)
		top_row(table_row(table), chosen[i], view);
	free(chosen);
}

static const char *const view_names[TOP_VIEWS] = { "processes", "qps" };

static void print_json(const struct top *top, double since_s)
{
	printf("{\"seconds\":%.3f", since_s);
	for (unsigned v = 0; v < TOP_VIEWS; v++) {
		struct table table = { .rows = NULL };
		fill(&table, top, v);
		fputc(',', stdout);
		json_table(stdout, view_names[v], &table);
		table_free(&table);
	}
	puts("}");
}

static void print_tables(const struct top *top)
{
	for (unsigned v = 0; v < TOP_VIEWS; v++) {
		struct table table = { .rows = NULL };
		fill(&table, top, v);
		if (v && table.count)
			putchar('\n');
		table_print(&table, "", stdout);
		table_free(&table);
	}
	if (!top->lines[TOP_PROCESSES].count)
		puts("no process here uses verbatim");
}

/* times 0: without end. Rates need two looks. */
static int print(struct asking *a, unsigned times)
{
	struct top top = { .at_s = 0 };
	bool good = look_again(&top, a);

	for (unsigned i = 0; good && (!times || i < times); i++) {
		double before_s = top.at_s;
		look_sleep_s(a->look.period_s);
		good = look_again(&top, a);
		if (!good)
			break;
		if (a->look.json)
			print_json(&top, top.at_s - before_s);
		else
			print_tables(&top);
		if (!a->look.json && i + 1 != times)
			putchar('\n');
		good = flush_output();
	}
	top_free(&top);
	return good ? look_status(&a->look, &a->all) : 1;
}

static int show_screen(struct asking *a)
{
	struct top_screen screen = { .period_s = a->look.period_s, .look = look_again, .arg = a };
	int status = top_screen_run(&screen);

	top_free(&screen.top);
	return status;
}

int command_top(int argc, char **argv)
{
	struct asking a = { .look = { .default_patience_s = patience_s } };
	int status = look_parse(&a.look, argc, argv);
	const char *lack = top_screen_lacks();

	if (status)
		return status;
	if (a.look.json)
		status = print(&a, a.look.iterations);
	else if (a.look.iterations || lack) {
		if (lack && *lack && !a.look.iterations)
			complain("%s", lack);
		status = print(&a, a.look.iterations ? a.look.iterations : 1);
	} else {
		status = show_screen(&a);
	}
	if (a.is_short) /* now that the screen is as it was */
		status = complain("out of memory, or of descriptors (ulimit -n)");
	processes_free(&a.all);
	return status;
}
