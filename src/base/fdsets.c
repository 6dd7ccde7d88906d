/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/fdsets.h"

#include <errno.h>
#include <stdbool.h>

static bool has(int fd, const fd_set *set) { return set && FD_ISSET(fd, set); }

nfds_t vb_polls_from_sets(int nfds, const fd_set *readfds, const fd_set *writefds, const fd_set *exceptfds,
			  struct pollfd *fds)
{
	nfds_t n = 0;

	for (int fd = 0; fd < nfds; fd++) {
		bool is_read = has(fd, readfds), is_write = has(fd, writefds), is_except = has(fd, exceptfds);

		if (is_read || is_write || is_except)
			fds[n++] = (struct pollfd){ .fd = fd,
						    .events = (short)((is_read ? POLLIN : 0) |
								      (is_write ? POLLOUT : 0) |
								      (is_except ? POLLPRI : 0)) };
	}
	return n;
}

/* Keeps fd in the set if it was there and one of the events came. */
static int keep(const struct pollfd *fd, fd_set *set, short events)
{
	if (!has(fd->fd, set))
		return 0;
	if (fd->revents & events)
		return 1;
	FD_CLR(fd->fd, set);
	return 0;
}

int vb_polls_to_sets(const struct pollfd *fds, nfds_t n, fd_set *readfds, fd_set *writefds, fd_set *exceptfds)
{
	int ready = 0;

	for (nfds_t i = 0; i < n; i++)
		if (fds[i].revents & POLLNVAL)
			return -EBADF;
	for (nfds_t i = 0; i < n; i++) {
		ready += keep(&fds[i], readfds, POLLIN | POLLHUP | POLLERR);
		ready += keep(&fds[i], writefds, POLLOUT | POLLERR);
		ready += keep(&fds[i], exceptfds, POLLPRI);
	}
	return ready;
}
