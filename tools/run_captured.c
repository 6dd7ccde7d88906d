/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that is captured from its first call on, with all that it starts: each process calls at this
 * one's socket before it opens a device (host/inspect.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"
#include "latency.h"
#include "process_name.h"
#include "recorder.h"
#include "timeline/timeline.h"
#include "answers/ask.h"

enum { STEP_MS = 5, BACKLOG = 256, MOST_NAMES = 1000 };

static volatile sig_atomic_t arrived[NSIG]; /* signals for the program */
static volatile pid_t program;              /* 0: it has ended */
static sigset_t blocked;                    /* by whoever started this command */

/* Who is in another namespace of pids, but not of networks, may have this one's pid, and so its name. */
static bool bind_any(int fd, char name[64])
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };

	for (unsigned i = 0; i < MOST_NAMES; i++) {
		snprintf(name, 64, i ? "verbatim/capture/%d.%u" : "verbatim/capture/%d", (int)getpid(), i);
		memcpy(un.sun_path + 1, name, strlen(name));
		size_t len = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
		if (bind(fd, (struct sockaddr *)&un, (socklen_t)len) == 0)
			return true;
		if (errno != EADDRINUSE)
			break;
	}
	return false;
}

static int listen_as(char name[64])
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0 && bind_any(fd, name) && listen(fd, BACKLOG) == 0)
		return fd;
	complain("cannot listen for the program: %s", strerror(errno));
	return -1;
}

/*
 * Of the same user and rights? The caller asks the same of this process. *why: what this process lacks to
 * find it out, or NULL.
 */
static bool is_admitted(int fd, struct ucred *who, const char **why)
{
	socklen_t bytes = sizeof(*who);
	int lack = 0;
	bool is_own = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, who, &bytes) == 0 &&
		      !process_why_not(who, fd, &lack);

	*why = lack == -EMFILE ? "no descriptor to look at it by (ulimit -n)" : lack ? strerror(-lack) : NULL;
	return is_own && !lack;
}

static void take_callers(struct recorder *r, int listener)
{
	struct ucred who = { 0 };
	const char *why;
	struct process p = { .slot = 0 };
	int fd;

	while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		bool admitted = is_admitted(fd, &who, &why);
		p.pid = who.pid;
		process_name(p.pid, p.name);
		if (!admitted)
			close(fd);
		else
			(void)recorder_add(r, fd, &p, &why);
		if (why)
			complain("%s[%d] is not captured: %s", p.name, (int)p.pid, why);
	}
}

/*
 * The status of a program that has ended, as a shell gives it; -1: it has not. Once it has been waited for,
 * its number may be another's.
 */
static int status_of(pid_t child)
{
	siginfo_t end = { .si_pid = 0 };
	int status;

	if (waitid(P_PID, (id_t)child, &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid != child)
		return -1;
	program = 0;
	if (waitpid(child, &status, 0) != child)
		return -1;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void pass_on(int number);

/* Signals that a terminal sends to both reach the program without this one. */
static const struct {
	int number;
	void (*handler)(int);
} handled[] = {
	/* what may end it comes last */
	{ SIGUSR1, pass_on }, { SIGUSR2, pass_on }, { SIGHUP, pass_on }, { SIGTERM, pass_on },
	{ SIGINT, SIG_IGN }, { SIGQUIT, SIG_IGN }, { SIGPIPE, SIG_IGN },
};
enum { HANDLED = sizeof(handled) / sizeof(handled[0]) };

/*
 * At once, though a part of the capture may be being written, to a pipe that nobody reads. Of signals that
 * have come together, which are handled one after the other, the last passes all on.
 */
static void pass_on(int number)
{
	int err = errno;
	sigset_t more;

	arrived[number] = 1;
	sigpending(&more);
	for (unsigned i = 0; i < HANDLED; i++)
		if (handled[i].handler == pass_on && sigismember(&more, handled[i].number) &&
		    !sigismember(&blocked, handled[i].number))
			return;
	for (unsigned i = 0; i < HANDLED; i++) {
		if (arrived[handled[i].number] && program)
			kill(program, handled[i].number);
		arrived[handled[i].number] = 0;
	}
	errno = err;
}

static void handle_signals(struct sigaction before[HANDLED])
{
	struct sigaction action = { .sa_flags = SA_RESTART };

	sigfillset(&action.sa_mask);
	for (unsigned i = 0; i < HANDLED; i++) {
		action.sa_handler = handled[i].handler;
		sigaction(handled[i].number, &action, &before[i]);
	}
}

static void restore_signals(const struct sigaction before[HANDLED])
{
	for (unsigned i = 0; i < HANDLED; i++)
		sigaction(handled[i].number, &before[i], NULL);
}

/*
 * The program's process. No signal is delivered to it before it handles signals as the program does: what was
 * passed on would be lost.
 */
static pid_t start(char **argv, int (*become)(char **argv))
{
	struct sigaction before[HANDLED];
	sigset_t all;
	pid_t child;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &blocked);
	handle_signals(before);
	child = fork();
	program = child > 0 ? child : 0;
	if (child == 0)
		restore_signals(before);
	sigprocmask(SIG_SETMASK, &blocked, NULL);
	if (child == 0)
		_exit(become(argv));
	return child;
}

static int watch_over(struct recorder *r, pid_t child, int listener)
{
	int status;

	while ((status = status_of(child)) < 0) {
		take_callers(r, listener);
		recorder_step(r, listener, STEP_MS);
	}
	take_callers(r, listener);
	recorder_step(r, -1, 0);
	return status;
}

/* Gives the program's exit status, or EXIT_OURS after a message. False after one: it was not started. */
static bool record_run(const struct recorder_options *options, char **argv, int (*become)(char **argv),
		       int *status)
{
	char name[64];
	int listener = listen_as(name);
	struct recorder *r = listener >= 0 ? recorder_open(options) : NULL;

	if (!r)
		return false;
	pid_t child = setenv(VB_CAPTURE_VARIABLE, name, 1) ? -1 : start(argv, become);
	if (child < 0) {
		complain("cannot start a process: %s", strerror(errno));
		return false;
	}
	*status = watch_over(r, child, listener);
	if (recorder_close(r, true))
		*status = EXIT_OURS;
	return true;
}

/* ---- what becomes of it ---- */

/* Before the program runs, which may take long. */
static bool can_write(const char *path)
{
	FILE *out = fopen(path, "abe");

	if (!out)
		complain("%s: %s", path, strerror(errno));
	else
		fclose(out);
	return out;
}

/* A place for the capture that nobody asked for; false after a message. */
static bool find_place(struct recorder_options *options, bool is_read, char path[64])
{
	FILE *unnamed = is_read ? tmpfile() : NULL; /* closed when this process ends */

	if (is_read && !unnamed) {
		complain("no place in " P_tmpdir " for the capture (--capture=FILE: another one): %s",
			 strerror(errno));
		return false;
	}
	if (is_read)
		fcntl(fileno(unnamed), F_SETFD, FD_CLOEXEC);
	snprintf(path, 64, is_read ? "/proc/self/fd/%d" : "/dev/null", is_read ? fileno(unnamed) : 0);
	options->path = path;
	options->named = is_read ? "the capture in " P_tmpdir " (--capture=FILE: elsewhere)" : "the capture";
	return true;
}

/* Would one of the files be written over the other? */
static bool are_same(const char *one, const char *other)
{
	struct stat a, b;

	if (!one || !other || stat(one, &a) != 0 || stat(other, &b) != 0)
		return false;
	return S_ISREG(a.st_mode) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static bool is_each_its_own(const char *capture, const char *page, const char *picture)
{
	if (!are_same(capture, page) && !are_same(capture, picture) && !are_same(page, picture))
		return true;
	complain("capture, page and picture are files of their own");
	return false;
}

static bool prepare(const struct captured_run *run, struct recorder_options *options, char path[64])
{
	if ((run->page && !(timeline_may_write(run->page) && can_write(run->page))) ||
	    (run->picture && !can_write(run->picture)))
		return false;
	/* Page and picture are there now: two names of a file that is new show. */
	if (!is_each_its_own(options->path, run->page, run->picture))
		return false;
	if (options->path)
		return true;
	if (!run->page)
		recorder_keep_beginnings(options);
	return find_place(options, run->page, path);
}

int run_captured(const struct captured_run *run, char **argv, int (*become)(char **argv))
{
	struct recorder_options options = run->options;
	struct latency latency = { .count = 0 };
	char path[64];
	bool good = true;
	int status;

	options.latency = run->wants_latency ? &latency : NULL;
	if (!prepare(run, &options, path) || !record_run(&options, argv, become, &status))
		return EXIT_OURS;
	if (run->wants_latency)
		latency_print(&latency, stderr);
	if (run->picture)
		good &= latency_draw(&latency, run->picture);
	if (run->page)
		good &= timeline_make_of(run->page, options.path,
					 options.named ? options.named : options.path) == 0;
	latency_free(&latency);
	return good ? status : EXIT_OURS;
}
