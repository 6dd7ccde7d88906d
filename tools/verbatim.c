/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The `verbatim` command. Each sub-command is a row of `commands`; the options are in option.c.
 *
 * Exit statuses: 125 when the command itself was used wrongly or failed; otherwise the sub-command's own (man
 * page verbatim(1)).
 */
#include <fcntl.h>
#include <getopt.h>
#include <locale.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

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
	{ "show", "[OPTION]... [devices|ports|pds|qps|cqs|srqs|mrs|ids|PID]...",
	  "show their objects, or those kinds alone", command_show },
	{ "stats", "[OPTION]... [PID]...", "show their counters", command_stats },
	{ "top", "[OPTION]... [PID]...", "show who sends how much now, on a screen", command_top },
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
	{ "lab", "COMMAND [ARG]...", "a cluster on this machine, without root", command_lab },
	{ "lab up", "--hosts=N|--topology=FILE [OPTION]...", "make a lab of N hosts, h1, h2, ...",
	  command_lab_up },
	{ "lab run", "[OPTION]... FILE", "make the lab of a scenario, run its programs and say what did not hold",
	  command_lab_run },
	{ "lab exec", "[OPTION] HOST PROGRAM [ARG]...", "run a program on a host", command_lab_exec },
	{ "lab shell", "[OPTION] HOST", "work on a host", command_lab_shell },
	{ "lab ssh", "HOST [COMMAND]...", "the same as programs want it of ssh(1)", command_lab_ssh },
	{ "lab ls", "[OPTION]...", "list the labs of this user and their hosts", command_lab_ls },
	{ "lab link", "[OPTION] set LINK SETTING...|ls", "have a link misbehave; list links and what they did",
	  command_lab_link },
	{ "lab host", "[OPTION] kill|start|pause|resume HOST...", "have hosts die and come back, or stand still",
	  command_lab_host },
	{ "lab down", "[OPTION]", "end a lab and all that runs in it", command_lab_down },
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

bool flush_output(void)
{
	if (!fflush(stdout) && !ferror(stdout))
		return true;
	complain("what was to be shown could not be written");
	return false;
}

/* Of the commands that a group has, such as "lab "; "": of all others. */
static void list_commands(FILE *out, const char *group)
{
	for (const struct command *c = commands; c < commands + VB_ARRAY_LEN(commands); c++)
		if (*group ? strncmp(c->name, group, strlen(group)) == 0 : !strchr(c->name, ' '))
			fprintf(out, "  %s %s\n      %s\n", c->name, c->args, c->summary);
}

static void print_usage(FILE *out)
{
	fprintf(out, "usage: verbatim COMMAND [ARG]...\n\n");
	list_commands(out, "");
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
	if (command->run == command_lab)
		list_commands(stdout, "lab ");
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

/* ---- what a process inherits ---- */

static bool ignored_children; /* whoever started this command ignores SIGCHLD */
static bool closed[STDERR_FILENO + 1]; /* standard streams */

/*
 * Standard streams that are closed would be taken by files, which then got what is said. What stands in for
 * them can neither be read nor written, and a program that is run has them closed again.
 */
static void occupy_streams(void)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		closed[fd] = fcntl(fd, F_GETFD) < 0 &&
			     open("/dev/null", (fd ? O_RDONLY : O_WRONLY) | O_CLOEXEC) == fd;
}

/* Processes of a lab need them. */
static void open_streams(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (closed[fd])
			dup2(null, fd);
	if (null >= 0)
		close(null);
}

/* While SIGCHLD is ignored, nobody learns how a child has ended. */
static void heed_children(void) { ignored_children = signal(SIGCHLD, SIG_DFL) == SIG_IGN; }

void give_signals_back(void)
{
	if (ignored_children)
		signal(SIGCHLD, SIG_IGN);
}

bool is_ignored(int number)
{
	struct sigaction action;

	return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* ---- commands ---- */

/* Its commands are rows of their own, of two words. */
int command_lab(int argc, char **argv)
{
	char name[64];

	if (argc < 2) {
		print_help("lab");
		return EXIT_OURS;
	}
	if (take_options(argc, argv, OPTIONS_FIRST, NULL, NULL) < 0) /* there is none but --help */
		return EXIT_OURS;
	open_streams();
	snprintf(name, sizeof(name), "lab %.32s", argv[1]);
	if (!find_command(name))
		return complain("lab has no command '%s' (see verbatim lab --help)", argv[1]);
	argv[1] = name;
	return find_command(name)->run(argc - 1, argv + 1);
}

static int run(int argc, char **argv)
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

int main(int argc, char **argv)
{
	int status;

	setlocale(LC_CTYPE, "C.UTF-8"); /* of names in tables, whatever the user's is */
	occupy_streams();
	heed_children();
	status = run(argc, argv);
	return status ? status : !flush_output();
}
