/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The `verbatim` command. Each sub-command is a row of `commands`.
 *
 * Exit statuses: 125 when the command itself was used wrongly or failed; otherwise the sub-command's own (man page verbatim(1)).
 */
#include <stdarg.h>
#include <string.h>

#include "command.h"

static const struct {
	const char *name;
	const char *args;
	const char *summary;
	int (*run)(int argc, char **argv);
} commands[] = {
	{ "run", "[--debug] [--check[=SETTING]] [--wire] [--copy=HOW] [--infiniband] [--no-gso] [--ignore-icrc] [--no-sysfs] [--sockets] [--faults=EXPRESSION] [--capture=FILE [FILTER]...] [--] PROGRAM [ARG]...",
	  "run an RDMA program on verbatim's libraries", command_run },
	{ "ps", "[--json] [--watch[=SECONDS]]", "list the processes that use verbatim", command_ps },
	{ "show", "[--json] [--watch[=SECONDS]] [KIND|PID]...",
	  "show their devices, qps, cqs, srqs, mrs and ids, or those kinds alone", command_show },
	{ "stats", "[--json] [--watch[=SECONDS]] [PID]...", "show their counters; with --watch per second", command_stats },
	{ "capture", "[--pid=PID]... [--seconds=S] [--quiet] [FILTER]... FILE",
	  "capture what processes send and get, as pcapng for Wireshark", command_capture },
	{ "faults", "[--words] [EXPRESSION | @FILE]", "say what can be broken on purpose; check and explain an expression", command_faults },
	{ "doctor", "[--json] [PROGRAM]", "say what this machine allows, and what helps where it does not", command_doctor },
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
	fprintf(out, "  --version\n  --help\n\nFILTER: --qp=QPN, --opcode=send,write,read,atomic,flush,ack,cnp, --direction=in|out|both,\n"
		"        --snap=BYTES, --packets=N, --buffer=MIB\n");
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;

	if (!name) {
		print_usage(stderr);
		return EXIT_OURS;
	}
	if (strcmp(name, "--help") == 0 || strcmp(name, "help") == 0) {
		print_usage(stdout);
		return 0;
	}
	if (strcmp(name, "--version") == 0) {
		printf("verbatim %s\n", VB_VERSION);
		return 0;
	}
	for (size_t i = 0; i < VB_ARRAY_LEN(commands); i++)
		if (strcmp(name, commands[i].name) == 0)
			return commands[i].run(argc - 1, argv + 1);
	return complain("no command '%s' (see verbatim --help)", name);
}
