/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../command.h"
#include "call.h"

int lab_call(const char *lab)
{
	int fd = lab_connect(lab);

	if (fd < 0)
		complain(errno == ECONNREFUSED ? "there is no lab %s (see verbatim lab ls)" : "lab %s: %s", lab,
			 strerror(errno));
	return fd;
}

/* Strings, each with its zero. */
static void add_strings(FILE *f, char *const *strings)
{
	for (; *strings; strings++)
		fwrite(*strings, 1, strlen(*strings) + 1, f);
}

static uint32_t count(char *const *strings)
{
	uint32_t n = 0;

	while (strings[n])
		n++;
	return n;
}

bool lab_call_program(int fd, struct lab_exec exec, char *const *argv, char *const *envp,
		      const int fds[LAB_FDS])
{
	char *data = NULL, folder[PATH_MAX];
	size_t size = 0;
	FILE *f = open_memstream(&data, &size);
	bool sent;

	if (!f || !getcwd(folder, sizeof(folder))) {
		complain("cannot describe the program: %s", strerror(errno));
		return false;
	}
	exec.n_args = count(argv);
	exec.n_env = count(envp);
	fwrite(&exec, sizeof(exec), 1, f);
	add_strings(f, (char *[]){ folder, NULL });
	add_strings(f, argv);
	add_strings(f, envp);
	sent = fclose(f) == 0 && lab_send(fd, LAB_EXEC, data, size, fds, LAB_FDS);
	free(data);
	if (!sent)
		complain("the lab does not answer");
	return sent;
}

int lab_call_end(int fd)
{
	pid_t first = 0;
	int pidfd = lab_is_ours(fd, &first) ? (int)syscall(SYS_pidfd_open, first, 0) : -1;
	struct pollfd wait = { pidfd, POLLIN, 0 };

	if (pidfd < 0)
		return errno == ESRCH ? 0 : complain("cannot end the lab: %s", strerror(errno));
	if (syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) != 0 && errno != ESRCH)
		return complain("cannot end the lab: %s", strerror(errno));
	while (poll(&wait, 1, -1) < 0 && errno == EINTR)
		;
	return 0;
}
