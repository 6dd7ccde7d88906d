/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests on libverbatim-sockets share: plain sockets that are connected over RDMA. */
#ifndef PRELOADED_TEST_H
#define PRELOADED_TEST_H

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "../../kernel.h"
#include "../../sanitized.h"
#include "../rdmacm/cm.h"

enum { ASLEEP_US = 30000, RDMA_OPTIONS = 0x10000, QUEUE_SIZE = 0 };

UNUSED static short events_within(int fd, short events, int ms)
{
	struct pollfd p = { .fd = fd, .events = events };

	assert_int_not_equal(poll(&p, 1, ms), -1);
	return p.revents;
}

/* From now on for RDMA, too. */
UNUSED static int listen_here(struct sockaddr_in *at, int backlog)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(*at);

	*at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	assert_ok(bind(fd, (struct sockaddr *)at, sizeof(*at)));
	assert_ok(getsockname(fd, (struct sockaddr *)at, &len));
	assert_ok(listen(fd, backlog));
	assert_int_equal(events_within(fd, POLLIN, 0), 0);
	return fd;
}

UNUSED static int connect_to(const struct sockaddr_in *at)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_ok(connect(fd, (const struct sockaddr *)at, sizeof(*at)));
	return fd;
}

UNUSED static bool is_rdma(int fd)
{
	int size = 0;
	socklen_t len = sizeof(size);

	return !getsockopt(fd, RDMA_OPTIONS, QUEUE_SIZE, &size, &len);
}

struct ends {
	int client, server;
};

UNUSED static struct ends connected(void)
{
	struct sockaddr_in at;
	int listener = listen_here(&at, 4);
	struct ends e = { .client = connect_to(&at) };

	e.server = accept(listener, NULL, NULL);
	assert_true(is_rdma(e.client) && is_rdma(e.server));
	assert_ok(close(listener));
	return e;
}

/* Listens for RDMA as long as it lives. */
UNUSED static pid_t take_rdma(int listener)
{
	int ready[2];
	char c;

	assert_ok(pipe(ready));
	pid_t child = fork();
	if (!child) {
		(void)events_within(listener, POLLIN, 0);
		(void)!write(ready[1], "x", 1);
		pause();
		_exit(1);
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return child;
}

UNUSED static atomic_int num_signals;

UNUSED static void count(int number) { num_signals++; }

#endif
