/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waiting for descriptors, past preload libraries. rdma-core's librspreload intercepts libc's calls from our
 * libraries, too. Newer versions turn epoll_create1, epoll_ctl and epoll_wait into repoll_create and its
 * siblings, which use epoll themselves: an endless recursion. The poll of older ones crashes on a negative
 * descriptor.
 */
#ifndef VB_BASE_WAITS_H
#define VB_BASE_WAITS_H

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* As poll(2), with a signal mask while it sleeps. */
static inline int vb_poll_masked(struct pollfd *fds, nfds_t n, int time_ms, const sigset_t *mask)
{
	struct timespec time = { time_ms / 1000, time_ms % 1000 * 1000000L };

	return ppoll(fds, n, time_ms < 0 ? NULL : &time, mask);
}

/* As poll(2). */
static inline int vb_poll(struct pollfd *fds, nfds_t n, int time_ms)
{
	return vb_poll_masked(fds, n, time_ms, NULL);
}

/* As epoll_create1(2). The libraries' own are made by vb_epoll_open. */
static inline int vb_epoll_create(int flags)
{
	return (int)syscall(SYS_epoll_create1, flags);
}

/* Another descriptor of a set. */
static inline int vb_epoll_copy(int set)
{
	return (int)syscall(SYS_fcntl, set, F_DUPFD_CLOEXEC, 0);
}

/* As epoll_ctl(2). */
static inline int vb_epoll_ctl(int set, int op, int fd, struct epoll_event *event)
{
	return (int)syscall(SYS_epoll_ctl, set, op, fd, event);
}

/* As epoll_wait(2). */
static inline int vb_epoll_wait(int set, struct epoll_event *events, int max, int time_ms)
{
	return epoll_pwait(set, events, max, time_ms, NULL);
}

#endif
