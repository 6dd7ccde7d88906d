/* SPDX-License-Identifier: BSD-2-Clause */
#include "command.h"
#include "describe.h"
#include "look.h"

static void show(const struct look *look, const struct processes *all, double since_s)
{
	struct table table = { .rows = NULL };

	for (unsigned i = 0; i < all->count; i++)
		if (look_wants(look, &all->list[i]))
			describe_process(table_row(&table), &all->list[i]);
	if (look->json) {
		fputc('{', stdout);
		json_table(stdout, "processes", &table);
		puts("}");
	} else if (table.count) {
		table_print(&table, "", stdout);
	} else if (!look->pid_count) { /* of those that were asked for it is told one by one */
		puts("no process here uses verbatim");
	}
	table_free(&table);
}

int command_ps(int argc, char **argv)
{
	struct look look = { .json = false };
	int status = look_parse(&look, argc, argv);

	return status ? status : look_run(&look, UINT32_MAX, show);
}
