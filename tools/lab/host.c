/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../command.h"
#include "host.h"
#include "kernel.h"
#include "tap.h"

void lab_give_up(int status, const char *fmt, ...)
{
	char step[LAB_TEXT_BYTES / 2], text[LAB_TEXT_BYTES];
	int error = errno;
	va_list args;

	va_start(args, fmt);
	vsnprintf(step, sizeof(step), fmt, args);
	va_end(args);
	lab_explain(text, step, error);
	lab_send_text(status, LAB_FAILED, text);
	_exit(EXIT_OURS);
}

/* ---- files ---- */

void lab_keep_folders(struct lab_kept *kept)
{
	if (!getcwd(kept->path[LAB_HERE], PATH_MAX))
		kept->path[LAB_HERE][0] = '\0';
	if (!find_command_folder(kept->path[LAB_COMMAND]))
		kept->path[LAB_COMMAND][0] = '\0';
	if (!find_libraries(kept->path[LAB_LIBRARIES]))
		kept->path[LAB_LIBRARIES][0] = '\0';
}

/* Before others hide them; in this mount namespace, as they cannot be bound from another. */
static void open_kept(const struct lab_kept *kept, int fds[LAB_KEPT])
{
	for (int i = 0; i < LAB_KEPT; i++)
		fds[i] = open(kept->path[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static bool is_below(const char *path, const char *folder)
{
	size_t len = strlen(folder);

	return strncmp(path, folder, len) == 0 && path[len] == '/';
}

static void make_folders(const char *path)
{
	char part[PATH_MAX];

	for (const char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", (int)(at - path), path);
		mkdir(part, 0755);
	}
	mkdir(path, 0755);
}

/* Empties a directory, but for those below it that are kept. */
static void hide(int status, const char *folder, const struct lab_kept *kept, const int fds[LAB_KEPT])
{
	char from[64];
	struct stat st;

	if (lstat(folder, &st) != 0 || !S_ISDIR(st.st_mode))
		return;
	if (mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") != 0)
		lab_give_up(status, "mount a tmpfs on %s", folder);
	for (int i = 0; i < LAB_KEPT; i++) {
		if (fds[i] < 0 || !is_below(kept->path[i], folder))
			continue;
		make_folders(kept->path[i]);
		snprintf(from, sizeof(from), "/proc/self/fd/%d", fds[i]);
		if (mount(from, kept->path[i], NULL, MS_BIND | MS_REC, NULL) != 0)
			lab_give_up(status, "bind %.300s", kept->path[i]);
	}
}

/* Another file in the place of one that is there. */
static void replace(int status, const char *path, const char *ours)
{
	if (access(path, F_OK) == 0 && mount(ours, path, NULL, MS_BIND, NULL) != 0)
		lab_give_up(status, "bind %s", path);
}

static FILE *create(int status, const char *path)
{
	FILE *f = fopen(path, "we");

	if (!f)
		lab_give_up(status, "create %s", path);
	return f;
}

static void name_hosts(const struct lab_plan *plan, unsigned self, int status)
{
	char v4[LAB_NAME_BYTES], v6[LAB_NAME_BYTES];
	char (*names)[LAB_NODE_BYTES] = plan->topology.names;
	FILE *f = create(status, LAB_FOLDER "/hosts");

	fputs("127.0.0.1 localhost\n::1 localhost\n", f);
	for (unsigned host = 0; host < plan->topology.hosts; host++) {
		lab_host_v4(host, v4);
		lab_host_v6(host, v6);
		fprintf(f, "%s %s\n%s %s-v6\n", v4, names[host], v6, names[host]);
	}
	fclose(f);
	replace(status, "/etc/hosts", LAB_FOLDER "/hosts");
	f = create(status, LAB_FOLDER "/hostname");
	fprintf(f, "%s\n", names[self]);
	fclose(f);
	replace(status, "/etc/hostname", LAB_FOLDER "/hostname");
	if (sethostname(names[self], strlen(names[self])) != 0)
		lab_give_up(status, "set the host's name");
}

/*
 * mpirun(1) and others reach a host by ssh: here is one that enters a host of the lab. And programs find the
 * `verbatim` that made the lab by its name alone.
 */
static void make_programs(const struct lab_kept *kept, int status)
{
	char command[PATH_MAX + 16];
	FILE *f;

	make_folders(LAB_PROGRAMS);
	snprintf(command, sizeof(command), "%s/verbatim", kept->path[LAB_COMMAND]);
	if (symlink(command, LAB_PROGRAMS "/verbatim") != 0)
		lab_give_up(status, "link %.300s", command);
	f = create(status, LAB_PROGRAMS "/ssh");
	fputs("#!/bin/sh\nexec " LAB_PROGRAMS "/verbatim lab ssh \"$@\"\n", f);
	fclose(f);
	chmod(LAB_PROGRAMS "/ssh", 0755);
}

static void set_up_files(const struct lab_plan *plan, unsigned self, const struct lab_kept *kept, int status)
{
	char own[64];
	int fds[LAB_KEPT];

	umask(S_IWGRP | S_IWOTH); /* users whom programs become read these files, too */
	open_kept(kept, fds);
	hide(status, "/tmp", kept, fds);
	hide(status, "/dev/shm", kept, fds);
	hide(status, "/run", kept, fds);
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0)
		lab_give_up(status, "mount /proc");
	/* Where the kernel denies it, interfaces are not seen there; few programs look. */
	mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	make_folders(LAB_FOLDER);
	snprintf(own, sizeof(own), "/run/user/%u", (unsigned)geteuid());
	make_folders(own);
	chmod(own, 0700);
	make_programs(kept, status);
	name_hosts(plan, self, status);
}

/* ---- the first process ---- */

static int open_socket(int status)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = LAB_SOCKET };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&un, sizeof(un)) != 0 || !lab_accept_callers(fd))
		lab_give_up(status, "open a host's socket");
	return fd;
}

/* Ends orphans; nothing but its own end, with which the host's processes end, ends it. */
static void __attribute__((noreturn)) wait_for_orphans(void)
{
	sigset_t ended;

	sigemptyset(&ended);
	sigaddset(&ended, SIGCHLD);
	for (;;) {
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		sigwaitinfo(&ended, NULL);
	}
}

static void __attribute__((noreturn)) be_host(const struct lab_plan *plan, unsigned self,
					      const struct lab_kept *kept, int status)
{
	int fds[2];

	prctl(PR_SET_NAME, plan->topology.names[self]);
	set_up_files(plan, self, kept, status);
	fds[0] = lab_tap_open(plan, self, status);
	fds[1] = open_socket(status);
	if (!lab_send(status, LAB_READY, NULL, 0, fds, 2))
		_exit(EXIT_OURS);
	syscall(__NR_close_range, 0, ~0u, 0);
	wait_for_orphans();
}

/*
 * The process in between only takes the host's first into its process namespace: for one that is in it, it
 * would count as a parent.
 */
pid_t lab_host_start(const struct lab_plan *plan, unsigned host, const struct lab_kept *kept, int status)
{
	int pipe_fds[2];
	pid_t between, first = -1;

	if (pipe2(pipe_fds, O_CLOEXEC) != 0)
		return -1;
	between = fork();
	if (between == 0) {
		if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID) != 0)
			lab_give_up(status, "make the namespaces of a host");
		first = fork();
		if (first == 0)
			be_host(plan, host, kept, status);
		if (write(pipe_fds[1], &first, sizeof(first)) < 0)
			_exit(EXIT_OURS);
		_exit(0);
	}
	close(pipe_fds[1]);
	if (between > 0 && read(pipe_fds[0], &first, sizeof(first)) != sizeof(first))
		first = -1;
	close(pipe_fds[0]);
	if (between > 0)
		waitpid(between, NULL, 0);
	return first;
}
