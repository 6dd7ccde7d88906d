/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stands before libc as rdma-core's librspreload does, for our own libraries, too: sockets and epoll sets are
 * led to rsocket and repoll_create, and numbers are looked up in a table, which a negative one is beside.
 */
#include <dlfcn.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define LED __attribute__((visibility("default")))

static void look_up(const char *call, int fd)
{
	if (fd >= 0)
		return;
	fprintf(stderr, "%s is called with the descriptor %d\n", call, fd);
	abort();
}

LED int socket(int domain, int type, int protocol)
{
	__typeof__(&socket) real = (__typeof__(&socket))dlsym(RTLD_NEXT, "socket");
	static __thread int is_inside;
	int fd = -1;

	if (!is_inside) {
		is_inside = 1;
		fd = rsocket(domain, type, protocol);
		is_inside = 0;
	}
	return fd < 0 ? real(domain, type, protocol) : fd;
}

LED int close(int fd)
{
	__typeof__(&close) real = (__typeof__(&close))dlsym(RTLD_NEXT, "close");

	look_up("close", fd);
	return real(fd);
}

LED int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	__typeof__(&poll) real = (__typeof__(&poll))dlsym(RTLD_NEXT, "poll");

	for (nfds_t i = 0; i < n; i++)
		look_up("poll", fds[i].fd);
	return real(fds, n, timeout);
}

LED int epoll_create1(int flags)
{
	return repoll_create(flags);
}

LED int epoll_create(int size)
{
	(void)size;
	return repoll_create(0);
}

LED int epoll_ctl(int set, int op, int fd, struct epoll_event *event)
{
	return repoll_ctl(set, op, fd, event);
}

LED int epoll_wait(int set, struct epoll_event *events, int max, int timeout)
{
	return repoll_wait(set, events, max, timeout);
}
