/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The `verbatim` command. Each sub-command is a row of `commands`; the options are in option.c.
 *
 * Exit statuses: 125 when the command itself was used wrongly or failed; otherwise the sub-command's own (man
 * page verbatim(1)).
 */
#include <getopt.h>
#include <stdarg.h>
#include <string.h>

#include "command.h"

static const struct command {
	const char *name;
	const char *args;
	const char *summary;
	int (*run)(int argc, char **argv);
} commands[] = {
	{ "run", "[OPTION]... [--] PROGRAM [ARG]...", "run an RDMA program on verbatim's libraries",
	  command_run },
	{ "ps", "[OPTION]... [PID]...", "list the processes that use verbatim", command_ps },
	{ "show", "[OPTION]... [devices|pds|qps|cqs|srqs|mrs|ids|PID]...",
	  "show their objects, or those kinds alone", command_show },
	{ "stats", "[OPTION]... [PID]...", "show their counters", command_stats },
	{ "capture", "[OPTION]... FILE", "capture what processes send and get, as pcapng for Wireshark",
	  command_capture },
	{ "timeline", "[OPTION]... CAPTURE... PAGE",
	  "show captures as ladder diagrams: a page for a browser, which needs nothing else",
	  command_timeline },
	{ "faults", "[OPTION] [EXPRESSION|@FILE]",
	  "say what can be broken on purpose; check and explain an expression", command_faults },
	{ "man", "[SECTION] [PAGE]...",
	  "show a manual page: this library's, not rdma-core's of the same name", command_man },
	{ "doctor", "[OPTION] [PROGRAM]", "say what this machine allows, and what helps where it does not",
	  command_doctor },
};

int complain(const char *fmt, ...)
{
	va_list args;

	fputs("verbatim: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	return EXIT_OURS;
}

static void print_usage(FILE *out)
{
	fprintf(out, "usage: verbatim COMMAND [ARG]...\n\n");
	for (size_t i = 0; i < VB_ARRAY_LEN(commands); i++)
		fprintf(out, "  %s %s\n      %s\n", commands[i].name, commands[i].args, commands[i].summary);
	fprintf(out, "  --version\n  --help\n\nverbatim COMMAND --help lists a command's options; "
		     "verbatim(1) is the manual.\n");
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < VB_ARRAY_LEN(commands); i++)
		if (strcmp(name, commands[i].name) == 0)
			return &commands[i];
	return NULL;
}

void print_help(const char *name)
{
	const struct command *command = find_command(name);

	printf("usage: verbatim %s %s\n%s\n\n", name, command->args, command->summary);
	print_options(name);
}

static int complain_of_command(const char *name)
{
	return complain("no command '%s' (see verbatim --help)", name);
}

/* Of a command, or of all. */
static int help_of(const char *name)
{
	if (name && !find_command(name))
		return complain_of_command(name);
	if (name)
		print_help(name);
	else
		print_usage(stdout);
	return 0;
}

static int run_command(int argc, char **argv)
{
	const struct command *command;

	if (argc == 0) {
		print_usage(stderr);
		return EXIT_OURS;
	}
	if (strcmp(argv[0], "help") == 0)
		return help_of(argv[1]);
	command = find_command(argv[0]);
	return command ? command->run(argc, argv) : complain_of_command(argv[0]);
}

int main(int argc, char **argv)
{
	static const struct option ours[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'v' },
		{ NULL },
	};

	opterr = 0;
	switch (getopt_long(argc, argv, "+h", ours, NULL)) { /* "+": options of commands are theirs */
	case 'h':
		return help_of(argv[optind]);
	case 'v':
		printf("verbatim %s\n", VB_VERSION);
		return 0;
	case -1:
		return run_command(argc - optind, argv + optind);
	}
	return complain("no option '%s' (see verbatim --help)", argv[1]);
}
