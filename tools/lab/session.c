/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../command.h"
#include "kernel.h"
#include "session.h"

enum { MOST_TEXT = 4096 }; /* which a socket takes as a whole */

/* ---- the program ---- */

struct program {
	const char *folder;
	bool has_terminal, any_folder;
	char **argv, **envp;
	int fds[LAB_FDS];
};

/* Of strings that follow each other; NULL: there are fewer. */
static char **list_strings(char **at, const char *end, uint32_t n)
{
	char **list = calloc((size_t)n + 1, sizeof(*list));

	for (uint32_t i = 0; list && i < n; i++) {
		if (*at >= end) {
			free(list);
			return NULL;
		}
		list[i] = *at;
		*at += strlen(*at) + 1;
	}
	return list;
}

static bool read_program(const struct lab_message *m, struct program *p)
{
	const struct lab_exec *exec = (const struct lab_exec *)m->data;
	char *at = m->data + sizeof(*exec), *end = m->data + m->size;
	uint32_t most = (uint32_t)m->size; /* a string may be empty */

	if (m->size <= sizeof(*exec) || m->n_fds != LAB_FDS || end[-1] || !exec->n_args ||
	    exec->n_args > most || exec->n_env > most)
		return false;
	p->folder = at;
	p->has_terminal = exec->has_terminal;
	p->any_folder = exec->any_folder;
	at += strlen(at) + 1;
	p->argv = list_strings(&at, end, exec->n_args);
	p->envp = p->argv ? list_strings(&at, end, exec->n_env) : NULL;
	memcpy(p->fds, m->fds, sizeof(p->fds));
	return p->envp;
}

/* The files that these name are the host's own. Its programs come before others of their names. */
static void set_own_folders(char **envp)
{
	static char runtime[64];
	char *path;

	snprintf(runtime, sizeof(runtime), "XDG_RUNTIME_DIR=/run/user/%u", (unsigned)geteuid());
	for (; *envp; envp++)
		if (strncmp(*envp, "TMPDIR=", 7) == 0)
			*envp = "TMPDIR=/tmp";
		else if (strncmp(*envp, "XDG_RUNTIME_DIR=", 16) == 0)
			*envp = runtime;
		else if (strncmp(*envp, "PATH=", 5) == 0 &&
			 asprintf(&path, "PATH=%s:%s", LAB_PROGRAMS, *envp + 5) > 0)
			*envp = path;
}

static void fail(int failures, int error)
{
	if (write(failures, &error, sizeof(error)) < 0)
		_exit(EXIT_OURS);
	_exit(EXIT_OURS);
}

static void reset_signals(void)
{
	sigset_t none;

	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static void become(const struct program *p, int failures)
{
	int fds[LAB_FDS];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setsid();
	for (int i = 0; i < LAB_FDS; i++) /* above the three, not to be overwritten */
		fds[i] = fcntl(p->fds[i], F_DUPFD_CLOEXEC, LAB_FDS);
	for (int i = 0; i < LAB_FDS; i++)
		dup2(fds[i], i);
	if (p->has_terminal)
		ioctl(0, TIOCSCTTY, 0);
	if (chdir(p->folder) != 0 && (!p->any_folder || chdir("/") != 0))
		fail(failures, -errno);
	reset_signals();
	lab_keep_capabilities();
	set_own_folders(p->envp);
	environ = p->envp;
	execvp(p->argv[0], p->argv);
	fail(failures, errno);
}

/* The program as a child that is in the namespaces of this process; -1 after an answer to the caller. */
static pid_t start(const struct program *p, int caller)
{
	char text[PATH_MAX + 64];
	int failures[2], error = 0;
	pid_t child;

	if (pipe2(failures, O_CLOEXEC) != 0)
		return -1;
	child = fork();
	if (child == 0)
		become(p, failures[1]);
	close(failures[1]);
	if (child > 0 && read(failures[0], &error, sizeof(error)) != sizeof(error)) {
		close(failures[0]);
		return child;
	}
	if (error > 0)
		lab_send(caller, LAB_NO_EXEC, &error, sizeof(error), NULL, 0);
	snprintf(text, sizeof(text), "the host has no directory %s: %s", p->folder, strerror(-error));
	if (error < 0)
		lab_send_text(caller, LAB_FAILED, text);
	return -1;
}

/* Passes signals on until the program ends, which it does when its caller is gone. */
static int attend(pid_t child, int caller)
{
	int pidfd = (int)syscall(SYS_pidfd_open, child, 0), status;
	struct pollfd fds[2] = { { caller, POLLIN, 0 }, { pidfd, POLLIN, 0 } };
	struct lab_message m;

	while (poll(fds, 2, -1) >= 0 || errno == EINTR) {
		if (fds[1].revents)
			break;
		if (!fds[0].revents)
			continue;
		if (!lab_receive(caller, &m) || m.kind != LAB_SIGNAL || m.size != sizeof(int)) {
			kill(-child, SIGKILL);
			break;
		}
		kill(-child, *(int *)m.data);
		lab_message_free(&m);
	}
	waitpid(child, &status, 0);
	return status;
}

static void close_fds(const int *fds)
{
	for (int i = 0; i < LAB_FDS; i++)
		close(fds[i]);
}

static bool enter(pid_t host)
{
	int pidfd = (int)syscall(SYS_pidfd_open, host, 0);

	return pidfd >= 0 &&
	       setns(pidfd, CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNS) == 0;
}

static void run_program(const struct lab_state *lab, const struct lab_message *m, int caller)
{
	const struct lab_exec *exec = (const struct lab_exec *)m->data;
	struct program program;
	char text[LAB_TEXT_BYTES];
	pid_t child;
	int host, status;

	if (!read_program(m, &program))
		return;
	snprintf(text, sizeof(text), "%.*s", LAB_NAME_BYTES - 1, exec->host);
	host = lab_find_host(&lab->plan, text);
	if (host < 0 || !lab->hosts[host]) {
		snprintf(text, sizeof(text), host < 0 ? "the lab has no host %.*s" : "%.*s is down",
			 LAB_NAME_BYTES - 1, exec->host);
		lab_send_text(caller, LAB_FAILED, text);
		return;
	}
	if (!enter(lab->hosts[host])) {
		lab_explain(text, "enter the host", errno);
		lab_send_text(caller, LAB_FAILED, text);
		return;
	}
	child = start(&program, caller);
	if (child < 0)
		return;
	close_fds(m->fds); /* readers of the program's pipes see its end */
	status = attend(child, caller);
	lab_send(caller, LAB_ENDED, &status, sizeof(status), NULL, 0);
}

/* ---- the lab ---- */

static void describe(const struct lab_state *lab, int caller)
{
	char v4[LAB_NAME_BYTES], v6[LAB_NAME_BYTES], *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	for (unsigned host = 0; f && host < lab->plan.topology.hosts; host++) {
		lab_host_v4(host, v4);
		lab_host_v6(host, v6);
		fprintf(f, "%s %s %s %s\n", lab->plan.topology.names[host], v4, v6, lab->hosts[host] ? "up" : "down");
	}
	if (f && fclose(f) == 0)
		lab_send_text(caller, LAB_TEXT, text);
	free(text);
}

/* What another process of the lab answers. */
static void pass_on(int fd, const struct lab_message *m, int caller)
{
	if (m->size > MOST_TEXT || !lab_send(fd, m->kind, m->data, m->size, &caller, 1))
		lab_send_text(caller, LAB_FAILED, "so many words cannot be passed on");
}

void lab_session(const struct lab_state *lab, int caller)
{
	struct lab_message m;
	pid_t peer;

	if (!lab_is_ours(caller, &peer) || !lab_receive(caller, &m))
		_exit(0);
	switch (m.kind) {
	case LAB_EXEC:
		run_program(lab, &m, caller);
		break;
	case LAB_DESCRIBE:
		describe(lab, caller);
		break;
	case LAB_LINK:
	case LAB_LINKS:
	case LAB_HOST:
		pass_on(m.kind == LAB_HOST ? lab->requests : lab->orders, &m, caller);
		break;
	default:
		lab_send_text(caller, LAB_FAILED, "this lab is of another version");
	}
	_exit(0);
}
