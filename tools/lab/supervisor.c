/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../command.h"
#include "host.h"
#include "kernel.h"
#include "session.h"
#include "supervisor.h"
#include "switch.h"

/* What the loop waits for; behind them, a listening socket for each host. */
enum { CONTROL, SIGNALS, OUTSIDE, INSIDE };

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

/* Takes a host that has said it is ready; its failure is the lab's. */
static void take_host(struct supervisor *s, unsigned host, int status)
{
	int control = s->fds[CONTROL].fd;
	struct lab_message m;
	char name[LAB_NAME_BYTES];

	lab_host_name(host, name);
	if (!lab_receive(status, &m))
		lab_give_up(control, "%s ended while it was made", name);
	if (m.kind != LAB_READY || m.n_fds != 2) {
		lab_send_text(control, LAB_FAILED, m.data);
		_exit(EXIT_OURS);
	}
	if (!lab_send(s->lab.orders, LAB_READY, &host, sizeof(host), m.fds, 1))
		lab_give_up(control, "the switch has ended");
	close(m.fds[0]);
	s->fds[INSIDE + host].fd = m.fds[1];
	m.n_fds = 0;
	lab_message_free(&m);
}

/* They are made side by side. */
static void start_hosts(struct supervisor *s)
{
	int status[LAB_HOSTS_MAX], control = s->fds[CONTROL].fd;

	for (unsigned host = 0; host < s->lab.plan.topology.hosts; host++) {
		int ends[2];
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
			lab_give_up(control, "make a socket pair");
		s->lab.hosts[host] = lab_host_start(&s->lab.plan, host, &s->kept, ends[1]);
		close(ends[1]);
		status[host] = ends[0];
		if (s->lab.hosts[host] < 0)
			take_host(s, host, status[host]); /* which says why */
	}
	for (unsigned host = 0; host < s->lab.plan.topology.hosts; host++) {
		take_host(s, host, status[host]);
		close(status[host]);
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

/* A daemon has no streams of whoever started it. */
static void leave_terminal(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

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
		for (unsigned i = OUTSIDE; i < INSIDE + s->lab.plan.topology.hosts; i++)
			if (s->fds[i].revents & POLLIN)
				accept_caller(s, s->fds[i].fd);
	}
}

static void __attribute__((noreturn)) be_first(struct supervisor *s, int control)
{
	prctl(PR_SET_NAME, "verbatim-lab");
	leave_terminal();
	s->fds[CONTROL].fd = control;
	s->fds[SIGNALS].fd = open_signals();
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0)
		lab_give_up(control, "mount /proc of the lab's own");
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

/* What the child has to say next: true if it is ready; false after a message if it has failed. */
static bool is_ready(int control)
{
	struct lab_message m;
	bool ready;

	if (!lab_receive(control, &m)) {
		complain("the lab was killed while it was made");
		return false;
	}
	ready = m.kind == LAB_READY;
	if (!ready)
		complain("no lab can be made here: %s", m.data);
	lab_message_free(&m);
	return ready;
}

static bool lead_child(pid_t child, int control)
{
	char text[LAB_TEXT_BYTES];

	if (!is_ready(control))
		return false;
	if (!lab_map_users(child)) {
		lab_explain(text, "map this user into a user namespace", errno);
		complain("no lab can be made here: %s", text);
		return false;
	}
	lab_send(control, LAB_GO, NULL, 0, NULL, 0);
	return is_ready(control);
}

static int listen_as(const char *lab)
{
	int fd = lab_listen(lab);

	if (fd < 0 && errno == EADDRINUSE)
		complain("there is a lab %s already: verbatim lab down, or another --name", lab);
	else if (fd < 0)
		complain("cannot name the lab's socket: %s", strerror(errno));
	return fd;
}

bool lab_start(const struct lab_plan *plan, int *control)
{
	struct supervisor *s = calloc(1, sizeof(*s));
	int ends[2], listener = listen_as(plan->name);
	bool started;
	pid_t child;

	if (listener < 0)
		return false;
	if (!s || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
		complain("cannot start a lab: %s", strerror(errno));
		return false;
	}
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
	close(ends[1]);
	close(listener);
	*control = ends[0];
	started = child > 0 && lead_child(child, ends[0]);
	if (child > 0)
		waitpid(child, NULL, 0);
	free(s);
	return started;
}
