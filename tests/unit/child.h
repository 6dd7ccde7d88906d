/* SPDX-License-Identifier: BSD-2-Clause */
/* For tests with two processes: a forked child that runs a function and talks to the test over a socket. */
#ifndef VB_TEST_CHILD_H
#define VB_TEST_CHILD_H

#include "../kernel.h"
#include "../seccomp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct child {
	pid_t pid;
	int sock;
};

/* In the child, in place of cmocka's assertions: a failure shows in the exit status. */
#define CHILD_CHECK(condition)                                                                   \
	do {                                                                                     \
		if (!(condition)) {                                                              \
			fprintf(stderr, "child: %s:%d: %s\n", __FILE__, __LINE__, #condition);    \
			_exit(1);                                                                \
		}                                                                                \
	} while (0)

/* Gives others ten seconds to make it true. What was true is not asked again: it may act, or pass. */
#define WAIT_FOR(condition)                                                                      \
	({                                                                                       \
		bool is_true_ = (condition);                                                     \
		for (int waits_left_ = 10000; !is_true_ && waits_left_; waits_left_--) {         \
			usleep(1000);                                                            \
			is_true_ = (condition);                                                  \
		}                                                                                \
		is_true_;                                                                        \
	})

static inline struct child child_start(void (*body)(int sock))
{
	int pair[2];
	struct child c;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 || (c.pid = fork()) < 0)
		abort();
	if (c.pid == 0) {
		close(pair[0]);
		alarm(60);
		body(pair[1]);
		_exit(0);
	}
	close(pair[1]);
	c.sock = pair[0];
	return c;
}

static inline void say(int sock, uint64_t value)
{
	/* If the other is gone, its exit status tells why; there is no SIGPIPE. */
	(void)send(sock, &value, sizeof value, MSG_NOSIGNAL);
}

/* What the other end said; UINT64_MAX if it is gone. */
static inline uint64_t hear(int sock)
{
	uint64_t value;
	return read(sock, &value, sizeof value) == sizeof value ? value : UINT64_MAX;
}

/* Closes the socket, which ends a child that is hearing, and returns its wait status. */
static inline int child_end(struct child *c)
{
	int status = -1;
	close(c->sock);
	waitpid(c->pid, &status, 0);
	return status;
}

/* Returns when all its threads have stopped. */
static inline void child_stop(const struct child *c)
{
	int status;
	assert_int_equal(kill(c->pid, SIGSTOP), 0);
	assert_int_equal(waitpid(c->pid, &status, WUNTRACED), c->pid);
	assert_true(WIFSTOPPED(status));
}

static inline void child_kill(struct child *c)
{
	kill(c->pid, SIGKILL);
	child_end(c);
}

/* Children of a program with threads start threads here; ThreadSanitizer ends them unless told otherwise. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

#endif
