/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptors of our libraries get high numbers. Programs expect the lowest free numbers, and some use no
 * others (event loops with a table for so many connections, select).
 */
#include <sys/resource.h>

#include "host/host.h"
#include "preload/preload.h"

/* A large number costs the kernel memory: it keeps a table up to the highest one. */
enum { HIGHEST_BASE = 16384 };

static int base_number(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return 0;
	return limit.rlim_cur / 2 < HIGHEST_BASE ? (int)(limit.rlim_cur / 2) : HIGHEST_BASE;
}

/* The libraries make these by system calls. */
static void __attribute__((constructor)) keep_above(void)
{
	vb_fd_keep_above(base_number());
}

static int raise_number(int fd)
{
	int flags = fd < 0 ? -1 : vb_real()->fcntl(fd, F_GETFD);
	int high = flags < 0 ? -1 :
			       vb_real()->fcntl(fd, flags & FD_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD,
						base_number());

	if (high < 0)
		return fd;
	vb_real()->close(fd);
	return high;
}

int vb_number_for(const void *caller, int fd)
{
	return fd >= 0 && vb_is_our_library(caller) ? raise_number(fd) : fd;
}

VB_EXPORT int eventfd(unsigned count, int flags)
{
	return vb_number_for(__builtin_return_address(0), vb_real()->eventfd(count, flags));
}

VB_EXPORT int memfd_create(const char *name, unsigned flags)
{
	return vb_number_for(__builtin_return_address(0), vb_real()->memfd_create(name, flags));
}

/* Moves descriptors that came in a message. */
void vb_raise_received(struct msghdr *msg)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
			int fd;

			memcpy(&fd, (char *)c + at, sizeof(fd));
			fd = raise_number(fd);
			memcpy((char *)c + at, &fd, sizeof(fd));
		}
	}
}
