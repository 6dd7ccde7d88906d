/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The `verbatim` command. Each sub-command is a row of `commands`, and what its help says of an option a row
 * of `options`, which completion asks for (completion.bash).
 *
 * Exit statuses: 125 when the command itself was used wrongly or failed; otherwise the sub-command's own (man
 * page verbatim(1)).
 */
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
	{ "faults", "[OPTION] [EXPRESSION|@FILE]",
	  "say what can be broken on purpose; check and explain an expression", command_faults },
	{ "man", "[SECTION] [PAGE]...",
	  "show a manual page: this library's, not rdma-core's of the same name", command_man },
	{ "doctor", "[OPTION] [PROGRAM]", "say what this machine allows, and what helps where it does not",
	  command_doctor },
};

static const struct {
	const char *commands; /* that take it, with spaces around */
	const char *name;
	const char *text;
} options[] = {
	{ " run ", "--debug", "explain failed calls and error completions on standard error" },
	{ " run ", "--check[=SETTING]",
	  "name mistakes of the program, and where they are: verbatim-checks(7)" },
	{ " run ", "--wire", "speak to processes of this host over UDP, too" },
	{ " run ", "--copy=HOW", "how bytes move within this host: mapped, process_vm or link" },
	{ " run ", "--infiniband", "ports look like InfiniBand's, with LIDs" },
	{ " run ", "--no-gso", "one packet per system call" },
	{ " run ", "--ignore-icrc", "take packets whose ICRC is wrong" },
	{ " run ", "--no-sysfs", "do not answer for /sys/class/infiniband" },
	{ " run ", "--sockets", "make rsockets of the program's TCP sockets: verbatim-sockets(7)" },
	{ " run ", "--faults=EXPRESSION", "break something on purpose: verbatim faults" },
	{ " run ", "--capture=FILE", "capture the program and what it starts, from the first packet on" },
	{ " capture ", "--pid=PID", "this process alone, and until it ends; more than once for several" },
	{ " capture ", "--seconds=S", "for so long; without it, until it is interrupted" },
	{ " capture ", "--quiet", "say nothing unless packets are dropped" },
	{ " run capture ", "--qp=QPN", "captured: what comes from or goes to this queue pair" },
	{ " run capture ", "--opcode=WORD,...", "captured: send, write, read, atomic, flush, ack, cnp" },
	{ " run capture ", "--direction=WAY", "captured: in, out or both" },
	{ " run capture ", "--snap=BYTES", "captured: so much of each packet" },
	{ " run capture ", "--packets=N", "captured: so many" },
	{ " run capture ", "--buffer=MIB", "memory for packets under way, of each process; 16" },
	{ " faults ", "--words", "list calls, errnos, statuses, events, messages and reasons" },
	{ " ps show stats doctor ", "--json", "for programs" },
	{ " ps show stats ", "--watch[=SECONDS]",
	  "again each second, or so often; counters then per second" },
	{ " ps show stats ", "--timeout=SECONDS", "how long a process has to answer; 1" },
	{ " run ps show stats capture faults doctor ", "--help", "this" },
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

static void print_help(const struct command *command)
{
	char word[16];

	snprintf(word, sizeof(word), " %s ", command->name);
	printf("usage: verbatim %s %s\n%s\n\n", command->name, command->args, command->summary);
	for (size_t i = 0; i < VB_ARRAY_LEN(options); i++)
		if (strstr(options[i].commands, word))
			printf("  %-21s %s\n", options[i].name, options[i].text);
}

static bool is_help(const char *word)
{
	return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* Is help among the options? Behind the first word that is none they may be another program's. */
static bool asks_for_help(int argc, char **argv)
{
	for (int i = 2; i < argc && argv[i][0] == '-' && strcmp(argv[i], "--") != 0; i++)
		if (is_help(argv[i]))
			return true;
	return false;
}

static int run_command(const struct command *command, int argc, char **argv)
{
	if (!asks_for_help(argc, argv))
		return command->run(argc - 1, argv + 1);
	print_help(command);
	return 0;
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < VB_ARRAY_LEN(commands); i++)
		if (strcmp(name, commands[i].name) == 0)
			return &commands[i];
	return NULL;
}

/* Of a command, or of all. */
static int help_of(const char *name)
{
	const struct command *command = name ? find_command(name) : NULL;

	if (name && !command)
		return complain("no command '%s' (see verbatim --help)", name);
	if (command)
		print_help(command);
	else
		print_usage(stdout);
	return 0;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;
	const struct command *command;

	if (!name) {
		print_usage(stderr);
		return EXIT_OURS;
	}
	if (is_help(name) || strcmp(name, "help") == 0)
		return help_of(argc > 2 ? argv[2] : NULL);
	if (strcmp(name, "--version") == 0) {
		printf("verbatim %s\n", VB_VERSION);
		return 0;
	}
	command = find_command(name);
	return command ? run_command(command, argc, argv)
		       : complain("no command '%s' (see verbatim --help)", name);
}
