/* SPDX-License-Identifier: BSD-2-Clause */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../command.h"
#include "host.h"
#include "kernel.h"
#include "session.h"
#include "supervisor.h"
#include "switch.h"

/* What the loop waits for; behind them, a listening socket for each host. */
enum { CONTROL, SIGNALS, REQUESTS, OUTSIDE, INSIDE };

struct supervisor {
	struct lab_state lab;
	struct lab_kept kept;
	struct pollfd fds[INSIDE + LAB_HOSTS_MAX];
};

/* ---- start ---- */

static void start_switch(struct supervisor *s, int control)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		lab_give_up(control, "make a socket pair");
	s->lab.switch_pid = fork();
	if (s->lab.switch_pid < 0)
		lab_give_up(control, "start the switch");
	if (s->lab.switch_pid == 0) {
		/* Nobody ends with these but the lab's first process. */
		close(control);
		close(s->fds[OUTSIDE].fd);
		close(ends[0]);
		lab_switch_run(&s->lab.plan, ends[1]);
	}
	close(ends[1]);
	s->lab.orders = ends[0];
}

/* Makes a host; where it says that it is ready. -1: there is no socket for it. */
static int start_host(struct supervisor *s, unsigned host)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		return -1;
	s->lab.hosts[host] = lab_host_start(&s->lab.plan, host, &s->kept, ends[1]);
	close(ends[1]);
	return ends[0];
}

/* Takes a host that says it is ready. False: it is not, and why. */
static bool take_host(struct supervisor *s, unsigned host, int status, char why[LAB_TEXT_BYTES])
{
	struct lab_message m = { 0 };
	bool taken;

	snprintf(why, LAB_TEXT_BYTES, "%s ended while it was made", s->lab.plan.topology.names[host]);
	if (lab_receive(status, &m) && m.kind == LAB_FAILED)
		snprintf(why, LAB_TEXT_BYTES, "%s", m.data);
	close(status);
	taken = m.kind == LAB_READY && m.n_fds == 2 && s->lab.hosts[host] > 0 &&
		lab_send(s->lab.orders, LAB_READY, &host, sizeof(host), m.fds, 1);
	if (taken) {
		s->fds[INSIDE + host].fd = m.fds[1];
		close(m.fds[0]);
		m.n_fds = 0;
	}
	lab_message_free(&m);
	return taken;
}

/* They are made side by side; the failure of one is the lab's. */
static void start_hosts(struct supervisor *s)
{
	int status[LAB_HOSTS_MAX], control = s->fds[CONTROL].fd;
	char why[LAB_TEXT_BYTES];

	for (unsigned host = 0; host < s->lab.plan.topology.hosts; host++) {
		status[host] = start_host(s, host);
		if (status[host] < 0)
			lab_give_up(control, "make a socket pair");
	}
	for (unsigned host = 0; host < s->lab.plan.topology.hosts; host++)
		if (!take_host(s, host, status[host], why)) {
			lab_send_text(control, LAB_FAILED, why);
			_exit(EXIT_OURS);
		}
}

static int open_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Sessions have the other end. */
static void open_requests(struct supervisor *s, int control)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		lab_give_up(control, "make a socket pair");
	s->fds[REQUESTS].fd = ends[0];
	s->lab.requests = ends[1];
}

/*
 * A daemon has no descriptors of whoever started it but these two, which are no streams: readers of a pipe
 * that it had would wait for the lab's end.
 */
static void leave_starter(int one, int other)
{
	unsigned low = (unsigned)(one < other ? one : other), high = (unsigned)(one < other ? other : one);
	int null;

	syscall(__NR_close_range, STDERR_FILENO + 1, low - 1, 0);
	syscall(__NR_close_range, low + 1, high - 1, 0);
	syscall(__NR_close_range, high + 1, ~0u, 0);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		dup2(null, fd);
	if (null > STDERR_FILENO)
		close(null);
}

/* ---- life ---- */

/* Its network would answer for as long as somebody has its interface. */
static void lose_host(struct supervisor *s, unsigned host)
{
	s->lab.hosts[host] = 0;
	close(s->fds[INSIDE + host].fd);
	s->fds[INSIDE + host].fd = -1;
	lab_send(s->lab.orders, LAB_DOWN, &host, sizeof(host), NULL, 0);
}

/* All children of this process are known ones; orphans of the lab are others. */
static void take_ended(struct supervisor *s)
{
	struct signalfd_siginfo info;
	pid_t pid;

	while (read(s->fds[SIGNALS].fd, &info, sizeof(info)) == sizeof(info))
		if (info.ssi_signo != SIGCHLD)
			_exit(0);
	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
		if (pid == s->lab.switch_pid)
			_exit(EXIT_OURS);
		for (unsigned host = 0; host < s->lab.plan.topology.hosts; host++)
			if (s->lab.hosts[host] == pid)
				lose_host(s, host);
	}
}

/* ---- what becomes of hosts ---- */

static bool is_process_of(pid_t pid, const char *namespace)
{
	char path[64], found[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
	n = readlink(path, found, sizeof(found) - 1);
	found[n > 0 ? n : 0] = '\0';
	return strcmp(found, namespace) == 0;
}

/* To all processes of a host but its first, which the kernel would not let stop: how many. */
static unsigned signal_all(pid_t first, int number, const char *namespace)
{
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	unsigned n = 0;

	while (processes && (entry = readdir(processes))) {
		pid_t pid = atoi(entry->d_name);
		if (pid > 1 && pid != first && is_process_of(pid, namespace))
			n += kill(pid, number) == 0;
	}
	if (processes)
		closedir(processes);
	return n;
}

/* Stops or continues a host: until no process has come while others were signalled. */
static void pause_host(struct supervisor *s, unsigned host, bool is_paused)
{
	char path[64], namespace[64] = "";
	unsigned before = 0, n;

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)s->lab.hosts[host]);
	if (readlink(path, namespace, sizeof(namespace) - 1) <= 0)
		return;
	while ((n = signal_all(s->lab.hosts[host], is_paused ? SIGSTOP : SIGCONT, namespace)) != before)
		before = n;
}

static void kill_host(struct supervisor *s, unsigned host)
{
	kill(s->lab.hosts[host], SIGKILL);
	waitpid(s->lab.hosts[host], NULL, 0);
	lose_host(s, host);
}

/* False: it does not come, and why. */
static bool restart_host(struct supervisor *s, unsigned host, char why[LAB_TEXT_BYTES])
{
	int status = start_host(s, host);

	if (status >= 0 && take_host(s, host, status, why))
		return true;
	if (s->lab.hosts[host] > 0)
		kill_host(s, host);
	s->lab.hosts[host] = 0;
	return false;
}

/* True if it has become so. */
static bool change_host(struct supervisor *s, char *text, char why[LAB_TEXT_BYTES])
{
	char *rest = text;
	const char *verb = strsep(&rest, " "), *name = rest ? rest + strspn(rest, " ") : "";
	int host = lab_find_host(&s->lab.plan, name);
	bool starts = strcmp(verb, "start") == 0;

	snprintf(why, LAB_TEXT_BYTES, "the lab has no host %s", name);
	if (host < 0)
		return false;
	snprintf(why, LAB_TEXT_BYTES, "%s is %s", name, starts ? "up" : "down");
	if (starts == !!s->lab.hosts[host])
		return false;
	if (starts)
		return restart_host(s, (unsigned)host, why);
	if (strcmp(verb, "kill") == 0)
		kill_host(s, (unsigned)host);
	else
		pause_host(s, (unsigned)host, strcmp(verb, "pause") == 0);
	return true;
}

static void take_request(struct supervisor *s)
{
	struct lab_message m;
	char why[LAB_TEXT_BYTES];

	if (!lab_receive(s->fds[REQUESTS].fd, &m))
		return;
	if (m.kind == LAB_HOST && m.n_fds == 1) {
		if (change_host(s, m.data, why))
			lab_send_text(m.fds[0], LAB_TEXT, "");
		else
			lab_send_text(m.fds[0], LAB_FAILED, why);
	}
	lab_message_free(&m);
}

/* ---- the loop ---- */

static void accept_caller(struct supervisor *s, int listener)
{
	int caller = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	pid_t child = caller >= 0 ? fork() : -1;

	if (child == 0) {
		close(s->fds[OUTSIDE].fd);
		if (s->fds[CONTROL].fd >= 0)
			close(s->fds[CONTROL].fd);
		lab_session(&s->lab, caller);
	}
	if (caller >= 0)
		close(caller);
}

/* Whoever started the lab wants it to live on, or is gone. */
static void take_control(struct supervisor *s)
{
	struct lab_message m;

	if (!lab_receive(s->fds[CONTROL].fd, &m) || m.kind != LAB_GO)
		_exit(EXIT_OURS);
	lab_message_free(&m);
	close(s->fds[CONTROL].fd);
	s->fds[CONTROL].fd = -1; /* poll passes it over */
}

static void __attribute__((noreturn)) supervise(struct supervisor *s)
{
	for (;;) {
		if (poll(s->fds, INSIDE + s->lab.plan.topology.hosts, -1) < 0 && errno != EINTR)
			_exit(EXIT_OURS);
		if (s->fds[CONTROL].revents)
			take_control(s);
		if (s->fds[SIGNALS].revents)
			take_ended(s);
		if (s->fds[REQUESTS].revents)
			take_request(s);
		for (unsigned i = OUTSIDE; i < INSIDE + s->lab.plan.topology.hosts; i++)
			if (s->fds[i].revents & POLLIN)
				accept_caller(s, s->fds[i].fd);
	}
}

static void __attribute__((noreturn)) be_first(struct supervisor *s, int control)
{
	prctl(PR_SET_NAME, "verbatim-lab");
	leave_starter(control, s->fds[OUTSIDE].fd);
	s->fds[CONTROL].fd = control;
	s->fds[SIGNALS].fd = open_signals();
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0)
		lab_give_up(control, "mount /proc of the lab's own");
	open_requests(s, control);
	start_switch(s, control);
	start_hosts(s);
	if (!lab_accept_callers(s->fds[OUTSIDE].fd) || !lab_send(control, LAB_READY, NULL, 0, NULL, 0))
		_exit(EXIT_OURS);
	supervise(s);
}

/* ---- into the namespaces ---- */

/*
 * In a child: makes the user namespace, in which its parent maps the users, and the lab's process namespace,
 * for the first process of which it forks.
 */
static void __attribute__((noreturn)) make_namespaces(struct supervisor *s, int control)
{
	struct lab_message m;
	pid_t first;

	if (unshare(CLONE_NEWUSER) != 0)
		lab_give_up(control, "make a user namespace");
	if (!lab_send(control, LAB_READY, NULL, 0, NULL, 0) || !lab_receive(control, &m))
		_exit(EXIT_OURS);
	if (unshare(CLONE_NEWNS | CLONE_NEWPID) != 0)
		lab_give_up(control, "make a mount and a process namespace");
	first = fork();
	if (first == 0)
		be_first(s, control);
	if (first < 0)
		lab_give_up(control, "start the lab's first process");
	_exit(0);
}

static __attribute__((format(printf, 2, 3))) bool fail(char why[LAB_TEXT_BYTES], const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, LAB_TEXT_BYTES, fmt, args);
	va_end(args);
	return false;
}

/* What the child has to say next: true if it is ready; false, and why, if it has failed. */
static bool is_ready(int control, char why[LAB_TEXT_BYTES])
{
	struct lab_message m;
	bool ready;

	if (!lab_receive(control, &m))
		return fail(why, "the lab was killed while it was made");
	ready = m.kind == LAB_READY || fail(why, "no lab can be made here: %s", m.data);
	lab_message_free(&m);
	return ready;
}

static bool lead_child(pid_t child, int control, char why[LAB_TEXT_BYTES])
{
	char text[LAB_TEXT_BYTES];

	if (!is_ready(control, why))
		return false;
	if (!lab_map_users(child)) {
		lab_explain(text, "map this user into a user namespace", errno);
		return fail(why, "no lab can be made here: %s", text);
	}
	lab_send(control, LAB_GO, NULL, 0, NULL, 0);
	return is_ready(control, why);
}

static int listen_as(const char *lab, char why[LAB_TEXT_BYTES])
{
	int fd = lab_listen(lab);

	if (fd < 0 && errno == EADDRINUSE)
		fail(why, "there is a lab %s already: verbatim lab down, or another --name", lab);
	else if (fd < 0)
		fail(why, "cannot name the lab's socket: %s", strerror(errno));
	return fd;
}

bool lab_start(const struct lab_plan *plan, int *control, char why[LAB_TEXT_BYTES])
{
	struct supervisor *s = calloc(1, sizeof(*s));
	int ends[2], listener = listen_as(plan->name, why);
	bool started;
	pid_t child;

	if (listener < 0)
		return false;
	if (!s || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		return fail(why, "cannot start a lab: %s", strerror(errno));
	s->lab.plan = *plan;
	for (unsigned i = 0; i < INSIDE + plan->topology.hosts; i++)
		s->fds[i] = (struct pollfd){ -1, POLLIN, 0 };
	s->fds[OUTSIDE].fd = listener;
	lab_keep_folders(&s->kept);
	child = fork();
	if (child == 0) {
		close(ends[0]);
		make_namespaces(s, ends[1]);
	}
	if (child < 0)
		fail(why, "cannot start a lab: %s", strerror(errno));
	close(ends[1]);
	close(listener);
	*control = ends[0];
	started = child > 0 && lead_child(child, ends[0], why);
	if (child > 0)
		waitpid(child, NULL, 0);
	free(s);
	return started;
}
