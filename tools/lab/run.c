/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbatim lab run: makes a scenario's lab, starts its programs and has its events happen, all in one loop;
 * progress.h decides, report.h says what happened. The lab is never told that it may live on (LAB_GO): it
 * ends with this process, however that ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "../command.h"
#include "base/clock.h"
#include "call.h"
#include "load.h"
#include "progress.h"
#include "report.h"
#include "supervisor.h"

enum {
	LINE_BYTES = 4096, /* longer lines are cut */
	READ_BYTES = 16 << 10,
	PIPE_READS = 64, /* which empty the largest pipe */
	EXIT_FAILED = 1,
};

/* What the loop waits for; behind them, a session and a pipe of each program. */
enum { CONTROL, SIGNALS, ORDER, OUTPUT, PROGRAMS };

struct stream {
	int session; /* says how the program has ended; -1: it has, or has not begun */
	int pipe; /* both of its output streams; -1: they have ended */
	size_t have;
	char line[LINE_BYTES]; /* what there is of one */
};

struct runner {
	struct lab_scenario scenario;
	struct lab_progress progress;
	struct lab_report report;
	struct stream *streams;
	struct pollfd *fds;
	uint64_t began_ns;
	int order; /* the lab's answer to an event; -1: none is awaited */
	int signal; /* that interrupts; 0: none */
	bool held;
};

static uint64_t now_of(const struct runner *r) { return vb_clock_ns(CLOCK_MONOTONIC) - r->began_ns; }

static const char *lab_of(const struct runner *r) { return r->scenario.plan.name; }

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* ---- output ---- */

/* So much of the line, or all. */
static void take_line(struct runner *r, unsigned program, size_t size)
{
	struct stream *s = &r->streams[program];
	uint64_t now = now_of(r);

	lab_report_output(&r->report, program, s->line, size, now);
	lab_progress_printed(&r->progress, program, s->line, size, true, now);
	s->have -= size;
	memmove(s->line, s->line + size, s->have);
}

/* Without the beginning of a character (UTF-8) at the end of a line that is cut. */
static size_t whole_characters(const char *line, size_t size)
{
	for (size_t i = 1; i <= 3 && i <= size; i++) {
		unsigned char c = (unsigned char)line[size - i];
		if ((c & 0xc0) != 0x80) /* it begins one, of so many bytes */
			return (c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1) > i ? size - i : size;
	}
	return size;
}

static void take_bytes(struct runner *r, unsigned program, const char *bytes, size_t size)
{
	struct stream *s = &r->streams[program];

	while (size > 0) {
		size_t room = LINE_BYTES - s->have, n = size < room ? size : room;
		const char *newline = memchr(bytes, '\n', n);
		if (newline)
			n = (size_t)(newline - bytes);
		memcpy(s->line + s->have, bytes, n);
		s->have += n;
		if (newline)
			take_line(r, program, s->have);
		else if (s->have == LINE_BYTES)
			take_line(r, program, whole_characters(s->line, s->have));
		n += newline != NULL;
		bytes += n;
		size -= n;
	}
	if (s->have > 0) /* a text may be found before the line ends */
		lab_progress_printed(&r->progress, program, s->line, s->have, false, now_of(r));
}

/* False: there is nothing more, for now or at all. */
static bool read_output(struct runner *r, unsigned program)
{
	struct stream *s = &r->streams[program];
	char bytes[READ_BYTES];
	ssize_t n = s->pipe >= 0 ? read(s->pipe, bytes, sizeof(bytes)) : -1;

	if (n > 0)
		take_bytes(r, program, bytes, (size_t)n);
	if (n == 0) {
		close_fd(&s->pipe);
		if (s->have > 0)
			take_line(r, program, s->have);
	}
	return n > 0;
}

/* ---- programs ---- */

static void end_program(struct runner *r, unsigned program, struct lab_end end, const char *why)
{
	uint64_t now = now_of(r);

	close_fd(&r->streams[program].session);
	lab_report_end(&r->report, program, end, why, now);
	lab_progress_ended(&r->progress, program, end, why, now);
}

static void fail_program(struct runner *r, unsigned program, const char *why)
{
	end_program(r, program, (struct lab_end){ LAB_END_FAILED, 0 }, why);
}

/* True if a program's own environment has the variable of this one. */
static bool is_replaced(const char *variable, char *const *by)
{
	size_t name = strcspn(variable, "=") + 1;

	while (by && *by && strncmp(*by, variable, name) != 0)
		by++;
	return by && *by;
}

/* This command's environment with the program's; NULL: out of memory. */
static char **join_environments(char **own)
{
	size_t n = 0, count = 0;
	char **joined;

	for (char **v = environ; *v; v++)
		count++;
	for (char **v = own; v && *v; v++)
		count++;
	joined = calloc(count + 1, sizeof(*joined));
	for (char **v = environ; joined && *v; v++)
		if (!is_replaced(*v, own))
			joined[n++] = *v;
	for (char **v = own; joined && v && *v; v++)
		joined[n++] = *v;
	return joined;
}

/* Has the lab start it; its output and its end are this process's. False: it cannot be asked. */
static bool ask_for_program(struct runner *r, unsigned program, int input, int output)
{
	const struct lab_program *of = &r->scenario.programs[program];
	struct lab_exec exec = { 0 };
	char **variables = join_environments(of->environment);
	int fds[LAB_FDS] = { input, output, output };
	bool asked;

	if (!variables)
		return false;
	strcpy(exec.host, r->scenario.plan.topology.names[of->host]);
	asked = lab_call_program(r->streams[program].session, exec, of->argv, variables, fds);
	free(variables);
	return asked;
}

static void start_program(struct runner *r, unsigned program)
{
	struct stream *s = &r->streams[program];
	int ends[2] = { -1, -1 }, null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	bool asked;

	lab_report_start(&r->report, program, now_of(r));
	s->session = lab_connect(lab_of(r));
	asked = s->session >= 0 && null >= 0 && pipe2(ends, O_CLOEXEC) == 0 &&
		fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && ask_for_program(r, program, null, ends[1]);
	s->pipe = ends[0];
	close_fd(&ends[1]);
	close_fd(&null);
	if (!asked) {
		close_fd(&s->pipe);
		fail_program(r, program, "the lab does not answer");
	}
}

/* How it has ended, or why it could not be started. */
static void take_message(struct runner *r, unsigned program, const struct lab_message *m)
{
	char why[LAB_TEXT_BYTES];
	int number = 0;

	if (m->size == sizeof(number))
		memcpy(&number, m->data, sizeof(number));
	if (m->kind == LAB_ENDED && WIFSIGNALED(number)) {
		end_program(r, program, (struct lab_end){ LAB_END_SIGNAL, WTERMSIG(number) }, NULL);
	} else if (m->kind == LAB_ENDED) {
		end_program(r, program, (struct lab_end){ LAB_END_EXIT, WEXITSTATUS(number) }, NULL);
	} else {
		snprintf(why, sizeof(why), "it could not be started: %s",
			 m->kind == LAB_NO_EXEC ? strerror(number) : m->data);
		fail_program(r, program, why);
	}
}

static void take_end(struct runner *r, unsigned program)
{
	struct lab_message m;
	bool whole = lab_receive(r->streams[program].session, &m);

	for (int i = 0; i < PIPE_READS && read_output(r, program); i++) /* what it has said before */
		;
	if (whole)
		take_message(r, program, &m);
	else
		fail_program(r, program, "the lab has lost it");
	lab_message_free(&m);
}

static bool send_signal(struct runner *r, unsigned program, int number)
{
	int session = r->streams[program].session;

	return session >= 0 && lab_send(session, LAB_SIGNAL, &number, sizeof(number), NULL, 0);
}

/* ---- events ---- */

static void end_event(struct runner *r, const char *why)
{
	unsigned event = (unsigned)r->progress.pending;

	close_fd(&r->order);
	lab_report_event(&r->report, event, why, now_of(r));
	lab_progress_happened(&r->progress, why);
}

static void begin_event(struct runner *r, const struct lab_event *event)
{
	enum lab_kind kind = event->kind == LAB_EVENT_LINK ? LAB_LINK : LAB_HOST;

	if (event->kind == LAB_EVENT_SIGNAL) {
		end_event(r, send_signal(r, event->program, event->signal) ? NULL : "the program does not run");
		return;
	}
	r->order = lab_connect(lab_of(r));
	if (r->order < 0 || !lab_send_text(r->order, kind, event->text))
		end_event(r, "the lab does not answer");
}

static void take_answer(struct runner *r)
{
	struct lab_message m;

	if (!lab_receive(r->order, &m))
		end_event(r, "the lab does not answer");
	else
		end_event(r, m.kind == LAB_TEXT ? NULL : m.data);
	lab_message_free(&m);
}

/* ---- the end ---- */

/* Ends all that runs in the lab. What programs have written can still be read. */
static void end_lab(struct runner *r)
{
	int fd = lab_connect(lab_of(r));

	if (fd >= 0)
		lab_call_end(fd);
	close_fd(&fd);
	close_fd(&r->fds[CONTROL].fd);
	close_fd(&r->order);
	for (unsigned i = 0; i < r->scenario.n_programs; i++)
		close_fd(&r->streams[i].session);
}

static bool is_drained(const struct runner *r)
{
	for (unsigned i = 0; i < r->scenario.n_programs; i++)
		if (r->streams[i].pipe >= 0)
			return false;
	return true;
}

static void take_interruption(struct runner *r)
{
	struct signalfd_siginfo info;
	char text[LAB_TEXT_BYTES];

	if (read(r->fds[SIGNALS].fd, &info, sizeof(info)) != sizeof(info))
		return;
	if (r->progress.phase != LAB_PHASE_RUNNING) /* nobody reads what there is to say */
		_exit(128 + (int)info.ssi_signo);
	r->signal = (int)info.ssi_signo;
	snprintf(text, sizeof(text), "it was interrupted by SIG%s", lab_signal_name(r->signal));
	lab_progress_stop(&r->progress, text);
}

/* ---- the loop ---- */

static void perform(struct runner *r, struct lab_step step)
{
	switch (step.kind) {
	case LAB_STEP_WAIT:
		return;
	case LAB_STEP_START:
		start_program(r, step.number);
		return;
	case LAB_STEP_EVENT:
		begin_event(r, &r->scenario.events[step.number]);
		return;
	case LAB_STEP_KILL:
		send_signal(r, step.number, SIGKILL);
		return;
	case LAB_STEP_DRAIN:
		end_lab(r);
		return;
	}
}

/* Until something comes, or something is to be done. */
static void wait_for_news(struct runner *r, uint64_t at_ns)
{
	unsigned n = r->scenario.n_programs;
	bool is_full = lab_report_is_full(&r->report);
	uint64_t now = now_of(r), left = at_ns > now ? at_ns - now : 0;
	struct timespec wait = vb_timespec_of_ns(left);

	r->fds[ORDER].fd = r->order;
	r->fds[OUTPUT].fd = lab_report_has_unwritten(&r->report) ? STDOUT_FILENO : -1;
	r->fds[OUTPUT].events = POLLOUT;
	for (unsigned i = 0; i < n; i++) {
		r->fds[PROGRAMS + 2 * i].fd = r->streams[i].session;
		r->fds[PROGRAMS + 2 * i + 1].fd = is_full ? -1 : r->streams[i].pipe;
	}
	if (ppoll(r->fds, PROGRAMS + 2 * n, at_ns == LAB_NEVER ? NULL : &wait, NULL) <= 0)
		for (unsigned i = 0; i < PROGRAMS + 2 * n; i++)
			r->fds[i].revents = 0;
}

static void take_news(struct runner *r)
{
	if (r->fds[SIGNALS].revents)
		take_interruption(r);
	if (r->fds[OUTPUT].revents && !lab_report_write(&r->report, STDOUT_FILENO))
		_exit(complain("cannot write: %s", strerror(errno)));
	for (unsigned i = 0; i < r->scenario.n_programs; i++) {
		if (r->fds[PROGRAMS + 2 * i + 1].revents)
			read_output(r, i);
		if (r->fds[PROGRAMS + 2 * i].revents)
			take_end(r, i);
	}
	if (r->fds[ORDER].revents)
		take_answer(r);
	if (r->fds[CONTROL].revents)
		lab_progress_stop(&r->progress, "the lab was ended from outside");
}

static void play(struct runner *r)
{
	struct lab_step step;

	while (r->progress.phase != LAB_PHASE_ENDED || lab_report_has_unwritten(&r->report)) {
		while ((step = lab_progress_next(&r->progress, now_of(r))).kind != LAB_STEP_WAIT)
			perform(r, step);
		if (r->progress.phase == LAB_PHASE_DRAINING && is_drained(r)) {
			lab_progress_drained(&r->progress, now_of(r));
			r->held = lab_report_verdict(&r->report, &r->progress);
		}
		wait_for_news(r, step.at_ns);
		take_news(r);
	}
}

/* ---- start ---- */

static int open_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	if (!is_ignored(SIGHUP))
		sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGQUIT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

/* False after a message. */
static bool prepare(struct runner *r, const char *file, bool as_json)
{
	unsigned n = r->scenario.n_programs;

	r->order = -1;
	r->streams = calloc(n, sizeof(*r->streams));
	r->fds = calloc(PROGRAMS + 2u * n, sizeof(*r->fds));
	if (!r->streams || !r->fds || !lab_progress_open(&r->progress, &r->scenario) ||
	    !lab_report_open(&r->report, &r->scenario, file, as_json)) {
		complain("out of memory");
		return false;
	}
	for (unsigned i = 0; i < n; i++)
		r->streams[i].session = r->streams[i].pipe = -1;
	for (unsigned i = 0; i < PROGRAMS + 2 * n; i++)
		r->fds[i] = (struct pollfd){ -1, POLLIN, 0 };
	return true;
}

static int exit_status(const struct runner *r)
{
	if (r->signal)
		return 128 + r->signal;
	return r->held ? 0 : EXIT_FAILED;
}

/* Why: there was no lab; else NULL. False after a message. */
static bool write_junit(const struct runner *r, const char *why, FILE *junit, const char *path)
{
	if (why)
		lab_report_junit_error(&r->report, why, junit);
	else
		lab_report_junit(&r->report, &r->progress, junit);
	if (!(ferror(junit) | fclose(junit)))
		return true;
	complain("%s: %s", path, strerror(errno));
	return false;
}

static void finish(struct runner *r)
{
	lab_progress_close(&r->progress);
	lab_report_close(&r->report);
	lab_scenario_free(&r->scenario);
	free(r->streams);
	free(r->fds);
}

struct options {
	struct lab_wishes wishes;
	bool as_json;
	const char *junit;
};

static bool take_option(void *context, const char *name, const char *value)
{
	struct options *o = context;

	if (strcmp(name, "json") == 0)
		return (o->as_json = true);
	if (strcmp(name, "junit") == 0)
		return (o->junit = value);
	return lab_take_wish(&o->wishes, name, value);
}

static int run_scenario(struct runner *r, const struct options *o, const char *file)
{
	char why[LAB_TEXT_BYTES];
	FILE *junit;

	if (!prepare(r, file, o->as_json))
		return EXIT_OURS;
	junit = o->junit ? fopen(o->junit, "we") : NULL;
	if (o->junit && !junit)
		return complain("%s: %s", o->junit, strerror(errno));
	if (!lab_start(&r->scenario.plan, &r->fds[CONTROL].fd, why)) {
		if (junit)
			write_junit(r, why, junit, o->junit);
		return complain("%s", why);
	}
	r->fds[SIGNALS].fd = open_signals();
	r->began_ns = vb_clock_ns(CLOCK_MONOTONIC);
	play(r);
	return junit && !write_junit(r, NULL, junit, o->junit) ? EXIT_OURS : exit_status(r);
}

int command_lab_run(int argc, char **argv)
{
	struct options options = { 0 };
	struct runner runner = { 0 };
	struct lab_plan *plan = &runner.scenario.plan;
	int first = take_options(argc, argv, OPTIONS_ANYWHERE, take_option, &options), status;

	if (first < 0)
		return EXIT_OURS;
	if (argc - first != 1)
		return complain("lab run needs a file");
	if (lab_is_inside())
		return complain("lab run makes a lab of its own, which cannot be within another");
	if (!lab_load(&runner.scenario, argv[first]))
		return EXIT_OURS;
	if (!runner.scenario.n_programs)
		return complain("%s: it has no program; verbatim lab up takes such files", argv[first]);
	snprintf(plan->name, sizeof(plan->name), "run-%d", (int)getpid());
	lab_apply_wishes(&options.wishes, plan);
	status = run_scenario(&runner, &options, argv[first]);
	finish(&runner);
	return status;
}
