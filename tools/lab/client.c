/* SPDX-License-Identifier: BSD-2-Clause */
/* Commands that call at a lab: verbatim lab exec, shell, ssh, ls and down. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "../command.h"
#include "call.h"

static bool take_name(void *context, const char *name, const char *value)
{
	const char **lab = context;

	*lab = value;
	return lab_is_name(value) || refuse_value(name, value);
}

/* The options of a command; false after a message. `first` is the place of the first other word. */
static bool take_lab(int argc, char **argv, const char **lab, int *first)
{
	*lab = LAB_DEFAULT_NAME;
	*first = take_options(argc, argv, OPTIONS_FIRST, take_name, lab);
	return *first >= 0;
}

/* ---- a program ---- */

struct client {
	int lab, signals;
	int terminal; /* this side of a pseudoterminal that the program has as its own; -1: none */
	int input; /* where what the program gets is typed; -1: no more */
	char typed[4096]; /* which the terminal has not taken yet */
	size_t n_typed;
	struct termios before; /* of our own terminal */
};

static int open_signals(void)
{
	static const int passed_on[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < VB_ARRAY_LEN(passed_on); i++)
		if (passed_on[i] != SIGHUP || !is_ignored(SIGHUP))
			sigaddset(&set, passed_on[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

static void pass_size_on(int terminal)
{
	struct winsize size;

	if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0)
		ioctl(terminal, TIOCSWINSZ, &size);
}

static void pass_signal_on(const struct client *c)
{
	struct signalfd_siginfo info;
	int number;

	if (read(c->signals, &info, sizeof(info)) != sizeof(info))
		return;
	number = (int)info.ssi_signo;
	if (number == SIGWINCH && c->terminal >= 0)
		pass_size_on(c->terminal);
	else
		lab_send(c->lab, LAB_SIGNAL, &number, sizeof(number), NULL, 0);
}

static void copy(int from, int to)
{
	char bytes[4096];
	ssize_t n = read(from, bytes, sizeof(bytes));

	for (ssize_t done = 0, now; done < n; done += now) {
		now = write(to, bytes + done, (size_t)(n - done));
		if (now < 0)
			return;
	}
}

/* More, where all is taken that there was. False at the end. */
static bool read_typed(struct client *c)
{
	ssize_t n = read(c->input, c->typed, sizeof(c->typed));

	c->n_typed = n > 0 ? (size_t)n : 0;
	return n > 0;
}

/*
 * Writes as much as the terminal takes, which is nothing while the program waits for its output to be read.
 * False: the terminal will never take more.
 */
static bool pass_typed_on(struct client *c)
{
	ssize_t n = write(c->terminal, c->typed, c->n_typed);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	c->n_typed -= (size_t)n;
	memmove(c->typed, c->typed + n, c->n_typed);
	return true;
}

static void take_input(struct client *c, short typed, short taken)
{
	if ((typed && !read_typed(c)) || ((taken & POLLOUT) && !pass_typed_on(c))) {
		c->input = -1;
		c->n_typed = 0;
	}
}

/* How the program ended, as a shell has it. */
static int end_of(const struct lab_message *m, const char *program)
{
	int number = 0;

	if (m->size == sizeof(number))
		memcpy(&number, m->data, sizeof(number));
	if (m->kind == LAB_ENDED)
		return WIFSIGNALED(number) ? 128 + WTERMSIG(number) : WEXITSTATUS(number);
	if (m->kind == LAB_NO_EXEC) {
		complain("'%s': %s", program, strerror(number));
		return number == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_EXEC;
	}
	return complain("%s", m->data);
}

static int take_end(const struct client *c, const char *program)
{
	struct lab_message m;
	int status;

	if (!lab_receive(c->lab, &m))
		return complain("the lab has ended");
	status = end_of(&m, program);
	lab_message_free(&m);
	return status;
}

static int wait_for_end(struct client *c, const char *program)
{
	for (;;) {
		short wanted = c->n_typed ? POLLIN | POLLOUT : POLLIN;
		struct pollfd fds[] = { { c->lab, POLLIN, 0 }, { c->signals, POLLIN, 0 },
					{ c->terminal, wanted, 0 }, { c->n_typed ? -1 : c->input, POLLIN, 0 } };
		if (poll(fds, VB_ARRAY_LEN(fds), -1) < 0)
			continue;
		if (fds[1].revents)
			pass_signal_on(c);
		take_input(c, fds[3].revents, fds[2].revents);
		if (fds[2].revents & POLLIN)
			copy(c->terminal, STDOUT_FILENO);
		else if (fds[0].revents)
			break;
	}
	return take_end(c, program);
}

static int run_on(const char *lab, const struct lab_exec *exec, char **argv, const int fds[LAB_FDS],
		  struct client *c)
{
	c->lab = lab_call(lab);
	c->signals = open_signals();
	if (c->lab < 0 || !lab_call_program(c->lab, *exec, argv, environ, fds))
		return EXIT_OURS;
	return wait_for_end(c, argv[0]);
}

static bool name_host(struct lab_exec *exec, const char *host)
{
	if (snprintf(exec->host, sizeof(exec->host), "%s", host) < LAB_NAME_BYTES)
		return true;
	complain("the lab has no host %s", host);
	return false;
}

static const int own_fds[LAB_FDS] = { STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO };

int command_lab_exec(int argc, char **argv)
{
	struct client c = { .terminal = -1, .input = -1 };
	struct lab_exec exec = { .host = "" };
	const char *lab;
	int first;

	if (!take_lab(argc, argv, &lab, &first))
		return EXIT_OURS;
	if (argc - first < 2)
		return complain("lab exec needs a host and a program");
	if (!name_host(&exec, argv[first]))
		return EXIT_OURS;
	return run_on(lab, &exec, argv + first + 1, own_fds, &c);
}

/* ---- a shell ---- */

/* The program's side of a new pseudoterminal. */
static int open_terminal(struct client *c)
{
	struct termios raw;
	const char *name;

	c->terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	name = c->terminal >= 0 && grantpt(c->terminal) == 0 && unlockpt(c->terminal) == 0 ?
		ptsname(c->terminal) : NULL;
	if (!name || tcgetattr(STDIN_FILENO, &c->before) != 0) {
		complain("no pseudoterminal: %s", strerror(errno));
		return -1;
	}
	pass_size_on(c->terminal);
	c->input = STDIN_FILENO;
	raw = c->before;
	cfmakeraw(&raw);
	tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
	return open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

static int run_on_terminal(const char *lab, struct lab_exec *exec, char **argv)
{
	struct client c = { .terminal = -1, .input = -1 };
	int theirs = open_terminal(&c), fds[LAB_FDS] = { theirs, theirs, theirs }, status;

	if (theirs < 0)
		return EXIT_OURS;
	exec->has_terminal = true;
	status = run_on(lab, exec, argv, fds, &c);
	tcsetattr(STDIN_FILENO, TCSADRAIN, &c.before);
	return status;
}

static int run_shell(const char *lab, struct lab_exec *exec)
{
	struct client c = { .terminal = -1, .input = -1 };
	const char *shell = getenv("SHELL");
	char *words[] = { (char *)(shell && *shell ? shell : "/bin/sh"), NULL };

	exec->any_folder = true;
	if (isatty(STDIN_FILENO))
		return run_on_terminal(lab, exec, words);
	return run_on(lab, exec, words, own_fds, &c);
}

int command_lab_shell(int argc, char **argv)
{
	struct lab_exec exec = { .host = "" };
	const char *lab;
	int first;

	if (!take_lab(argc, argv, &lab, &first))
		return EXIT_OURS;
	if (argc - first != 1)
		return complain("lab shell needs a host");
	return name_host(&exec, argv[first]) ? run_shell(lab, &exec) : EXIT_OURS;
}

/* ---- ssh ---- */

/* The words as one command, with spaces between, as ssh has it. */
static char *join(char **words)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	for (; f && *words; words++)
		fprintf(f, "%s%s", *words, words[1] ? " " : "");
	return f && fclose(f) == 0 ? text : NULL;
}

/* Options of ssh's are taken and mean nothing: a host is entered by its name alone. */
static int skip_ssh_options(int argc, char **argv)
{
	int found;

	opterr = 0;
	optind = 0;
	while ((found = getopt(argc, argv, "+46AaCfGgKkMNnqsTtVvXxYyB:b:c:D:E:e:F:I:i:J:L:l:m:O:o:p:Q:R:S:W:w:")) != -1)
		if (found == '?' && argv[optind - 1][1] == '-')
			return argc;
	return optind;
}

int command_lab_ssh(int argc, char **argv)
{
	struct client c = { .terminal = -1, .input = -1 };
	struct lab_exec exec = { .any_folder = true };
	int first = skip_ssh_options(argc, argv);
	const char *host;
	char *words[] = { "/bin/sh", "-c", NULL, NULL };

	if (argc > 1 && strcmp(argv[1], "--help") == 0) {
		print_help(argv[0]);
		return 0;
	}
	if (first >= argc)
		return complain("lab ssh needs a host");
	host = strchr(argv[first], '@') ? strchr(argv[first], '@') + 1 : argv[first];
	if (!name_host(&exec, host))
		return EXIT_OURS;
	if (first + 1 == argc)
		return run_shell(LAB_DEFAULT_NAME, &exec);
	words[2] = join(argv + first + 1);
	return words[2] ? run_on(LAB_DEFAULT_NAME, &exec, words, own_fds, &c) : complain("out of memory");
}

/* ---- labs ---- */

struct listing {
	bool as_json;
	unsigned labs;
};

static bool take_json(void *context, const char *name, const char *value)
{
	return *(bool *)context = true;
}

static void print_host(const struct listing *list, const char *lab, char *line, bool is_first)
{
	char *name = strtok(line, " "), *v4 = strtok(NULL, " ");
	char *v6 = strtok(NULL, " "), *state = strtok(NULL, " ");

	if (!state)
		return;
	if (list->as_json)
		printf("%s{\"name\":\"%s\",\"ipv4\":\"%s\",\"ipv6\":\"%s\",\"state\":\"%s\"}", is_first ? "" : ",",
		       name, v4, v6, state);
	else
		printf("%-16s %-15s %-12s %-12s %s\n", lab, name, v4, v6, state);
}

static void print_hosts(const struct listing *list, const char *lab, char *text)
{
	bool is_first = true;

	for (char *end; (end = strchr(text, '\n')); text = end + 1, is_first = false) {
		*end = '\0';
		print_host(list, lab, text, is_first);
	}
}

static void list_lab(void *context, const char *lab)
{
	struct listing *list = context;
	struct lab_message m;
	int fd = lab_connect(lab);

	if (fd < 0)
		return; /* it has just ended */
	if (lab_send(fd, LAB_DESCRIBE, NULL, 0, NULL, 0) && lab_receive(fd, &m)) {
		if (list->as_json)
			printf("%s{\"name\":\"%s\",\"hosts\":[", list->labs ? "," : "", lab);
		print_hosts(list, lab, m.data);
		if (list->as_json)
			printf("]}");
		list->labs++;
		lab_message_free(&m);
	}
	close(fd);
}

int command_lab_ls(int argc, char **argv)
{
	struct listing list = { 0 };
	int first = take_options(argc, argv, OPTIONS_ANYWHERE, take_json, &list.as_json);

	if (first < 0)
		return EXIT_OURS;
	if (first < argc)
		return complain("lab ls takes no argument: '%s'", argv[first]);
	if (list.as_json)
		printf("{\"labs\":[");
	if (lab_is_inside())
		list_lab(&list, LAB_DEFAULT_NAME);
	else
		lab_each(list_lab, &list);
	if (list.as_json)
		printf("]}\n");
	return 0;
}

/* ---- links ---- */

/* What the lab answers; NULL after a message. */
static char *ask(const char *lab, enum lab_kind kind, const char *text)
{
	int fd = lab_call(lab);
	struct lab_message m = { 0 };

	if (fd < 0)
		return NULL;
	if (!lab_send_text(fd, kind, text) || !lab_receive(fd, &m))
		complain("the lab has ended");
	else if (m.kind == LAB_TEXT)
		return m.data;
	else
		complain("%s", m.data);
	lab_message_free(&m);
	close(fd);
	return NULL;
}

static void print_links(char *text)
{
	char *link;

	printf("%-16s %10s %9s %9s %9s %9s %9s %9s  %s\n", "LINK", "PASSED", "LOST", "OVERFLOW", "DUPLICATE",
	       "REORDERED", "CORRUPT", "MARKED", "SETTINGS");
	while ((link = strsep(&text, "\n")) && *link) {
		char *part[9] = { 0 };
		for (unsigned i = 0; i < VB_ARRAY_LEN(part); i++)
			part[i] = strsep(&link, "|");
		if (part[8])
			printf("%-16s %10s %9s %9s %9s %9s %9s %9s  %s\n", part[0], part[2], part[3], part[4],
			       part[5], part[6], part[7], part[8], part[1]);
	}
}

int command_lab_link(int argc, char **argv)
{
	const char *lab;
	char *answer, *text;
	int first;

	if (!take_lab(argc, argv, &lab, &first))
		return EXIT_OURS;
	if (first + 1 == argc && strcmp(argv[first], "ls") == 0) {
		answer = ask(lab, LAB_LINKS, "");
		if (answer)
			print_links(answer);
		return answer ? 0 : EXIT_OURS;
	}
	if (argc - first < 3 || strcmp(argv[first], "set") != 0)
		return complain("lab link takes: set LINK SETTING..., or ls");
	text = join(argv + first + 1);
	return text && ask(lab, LAB_LINK, text) ? 0 : EXIT_OURS;
}

/* ---- hosts ---- */

int command_lab_host(int argc, char **argv)
{
	const char *lab, *verb;
	char text[64], *answer;
	int first;

	if (!take_lab(argc, argv, &lab, &first))
		return EXIT_OURS;
	verb = argv[first];
	if (argc - first < 2 || !lab_is_host_verb(verb))
		return complain("lab host takes kill, start, pause or resume, and hosts");
	while (++first < argc) {
		snprintf(text, sizeof(text), "%s %.32s", verb, argv[first]);
		answer = ask(lab, LAB_HOST, text);
		if (!answer)
			return EXIT_OURS;
		free(answer);
	}
	return 0;
}

/* ---- the end ---- */

int command_lab_down(int argc, char **argv)
{
	const char *lab;
	int first, fd;

	if (!take_lab(argc, argv, &lab, &first))
		return EXIT_OURS;
	if (first < argc)
		return complain("lab down takes no argument: '%s'", argv[first]);
	if (lab_is_inside())
		return complain("a lab is not ended from within: verbatim lab down, where verbatim lab up was");
	fd = lab_call(lab);
	return fd < 0 ? EXIT_OURS : lab_call_end(fd);
}
