/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The options of all sub-commands: one table for getopt_long(3) and for `verbatim COMMAND --help`, which
 * completion.bash reads.
 */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

/*
 * What getopt_long gives for the first row; no character. Each row has its own number: getopt_long takes a
 * beginning that several with the same number have for the first of them.
 */
enum { FIRST_ROW = 256 };

static const struct {
	const char *commands; /* that take it, with spaces around; "lab-up" is one of two words */
	const char *name;
	const char *value; /* as help shows it: "=NAME", or "[=NAME]" if it can be left out, or "" */
	const char *text;
	char letter; /* that stands for it, too; 0: none */
} options[] = {
	{ " run ", "debug", "", "explain failed calls and error completions on standard error" },
	{ " run ", "check", "[=SETTING]",
	  "name mistakes of the program, and where they are: verbatim-checks(7)" },
	{ " run ", "wire", "", "speak to processes of this host over UDP, too" },
	{ " run ", "copy", "=HOW", "how bytes move within this host: mapped, process_vm or link" },
	{ " run ", "infiniband", "", "ports look like InfiniBand's, with LIDs" },
	{ " run ", "no-gso", "", "one packet per system call" },
	{ " run ", "ignore-icrc", "", "take packets whose ICRC is wrong" },
	{ " run ", "no-sysfs", "", "do not answer for /sys/class/infiniband" },
	{ " run ", "sockets", "", "make rsockets of the program's TCP sockets: verbatim-sockets(7)" },
	{ " run ", "faults", "=EXPRESSION", "break something on purpose: verbatim faults" },
	{ " run ", "capture", "=FILE", "capture the program and what it starts, from the first packet on" },
	{ " run ", "timeline", "=FILE", "the same as a page for a browser: verbatim timeline" },
	{ " run ", "latency", "[=FILE]", "tell how long sends took, and where; as SVG in a file, too" },
	{ " capture ", "pid", "=PID", "this process alone, and until it ends; more than once for several" },
	{ " capture ", "seconds", "=S", "stop after S seconds; without it, when it is interrupted" },
	{ " capture ", "quiet", "", "say nothing unless packets are dropped" },
	{ " run capture ", "qp", "=QPN", "captured: what comes from or goes to this queue pair" },
	{ " run capture ", "opcode", "=WORD,...", "captured: send, write, read, atomic, flush, ack, cnp" },
	{ " run capture ", "direction", "=WAY", "captured: in, out or both" },
	{ " run capture ", "snap", "=BYTES", "captured: keep at most BYTES of each packet" },
	{ " run capture ", "packets", "=N", "captured: stop after N packets" },
	{ " run capture ", "buffer", "=MIB", "memory for packets under way, of each process; 16" },
	{ " faults ", "words", "", "list calls, errnos, statuses, events, messages and reasons" },
	{ " lab-up ", "hosts", "=N", "number of hosts" },
	{ " lab-up ", "mtu", "=BYTES", "of the hosts' interfaces; 1500" },
	{ " lab-up ", "topology", "=SHAPE|FILE", "star, line, leaf-spine:LEAVES,SPINES or a scenario's file; star" },
	{ " lab-up lab-run ", "seed", "=N", "of what chance decides; 0" },
	{ " lab-run ", "junit", "=FILE", "JUnit XML of what held and what did not" },
	{ " lab-up lab-run lab-exec lab-shell lab-link lab-host lab-down ", "name", "=NAME", "the lab's, where there are several; lab" },
	{ " top ", "delay", "=SECONDS", "from one look to the next; 1", 'd' },
	{ " top ", "iterations", "=N", "stop after N tables or objects, without a screen", 'n' },
	{ " ps show stats top doctor lab-ls lab-run ", "json", "", "for programs" },
	{ " ps show stats ", "watch", "[=SECONDS]",
	  "again each second, or so often; counters then per second" },
	{ " ps show stats top ", "timeout", "=SECONDS", "how long a process has to answer; 1, of top 0.3" },
	{ " run ps show stats top capture timeline faults doctor "
	  "lab lab-up lab-run lab-exec lab-shell lab-ssh lab-ls lab-link lab-host lab-down ", "help", "", "show this help" },
};

static bool is_option_of(const char *command, size_t i)
{
	char word[24];

	snprintf(word, sizeof(word), " %s ", command);
	for (char *space; (space = strchr(word + 1, ' ')) && space[1];)
		*space = '-';
	return strstr(options[i].commands, word);
}

void print_options(const char *command)
{
	char option[32], letter[8];

	for (size_t i = 0; i < VB_ARRAY_LEN(options); i++) {
		if (!is_option_of(command, i))
			continue;
		snprintf(letter, sizeof(letter), options[i].letter ? "-%c, " : "", options[i].letter);
		snprintf(option, sizeof(option), "%s--%s%s", letter, options[i].name, options[i].value);
		printf("  %-21s %s\n", option, options[i].text);
	}
}

static int argument_of(const char *value)
{
	return *value == '=' ? required_argument : *value == '[' ? optional_argument : no_argument;
}

/* Those of a command, as getopt_long takes them. The list was zero before, which ends it. */
static void list_options(const char *command, struct option *list)
{
	for (size_t i = 0; i < VB_ARRAY_LEN(options); i++)
		if (is_option_of(command, i))
			*list++ = (struct option){
				options[i].name, argument_of(options[i].value), NULL, FIRST_ROW + (int)i,
			};
}

/* Their letters, behind what getopt_long wants first. */
static void list_letters(const char *command, const char *first, char *letters)
{
	letters += sprintf(letters, "%s", first);
	for (size_t i = 0; i < VB_ARRAY_LEN(options); i++)
		if (options[i].letter && is_option_of(command, i))
			letters += sprintf(letters, "%c%s", options[i].letter,
					   argument_of(options[i].value) == no_argument ? "" : ":");
}

/* Says what is wrong with the option that getopt_long has come to. */
static void complain_of_option(char **argv, int found)
{
	const char *word = argv[optind - 1];

	if (found == ':')
		complain("%s needs a value", word);
	else if (optopt >= FIRST_ROW)
		complain("%.*s takes no value", (int)strcspn(word, "="), word);
	else if (optopt) /* getopt_long may be within a word of several letters */
		complain("%s has no option '-%c'", argv[0], optopt);
	else
		complain("%s has no option '%s'", argv[0], word);
}

/* Of the option that getopt_long has come to; NULL: something is wrong with it. */
static const char *name_of(int found)
{
	if (found == 'h')
		return "help";
	for (size_t i = 0; i < VB_ARRAY_LEN(options); i++)
		if (found && found == options[i].letter)
			return options[i].name;
	return found >= FIRST_ROW ? options[found - FIRST_ROW].name : NULL;
}

int take_options(int argc, char **argv, enum option_order order, option_taker *take, void *context)
{
	char letters[2 * VB_ARRAY_LEN(options) + 8];
	struct option list[VB_ARRAY_LEN(options) + 1] = { { 0 } };
	int found;

	list_options(argv[0], list);
	list_letters(argv[0], order == OPTIONS_FIRST ? "+:h" : ":h", letters);
	opterr = 0;
	optind = 0; /* begins anew: main has read the words before */
	while ((found = getopt_long(argc, argv, letters, list, NULL)) != -1) {
		const char *name = name_of(found);
		if (!name) {
			complain_of_option(argv, found);
			return -1;
		}
		if (strcmp(name, "help") == 0) {
			print_help(argv[0]);
			exit(!flush_output());
		}
		if (!take(context, name, optarg))
			return -1;
	}
	return optind;
}

bool refuse_value(const char *name, const char *value)
{
	complain("--%s=%s makes no sense", name, value);
	return false;
}

bool take_seconds(const char *text, double *seconds)
{
	char *end;

	*seconds = strtod(text, &end);
	return end != text && !*end && *seconds > 0 && *seconds < 1e6;
}
