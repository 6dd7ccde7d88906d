/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/private.h"

static atomic_bool is_forbidden;

ssize_t vb_receive_message(int fd, struct msghdr *m, int flags)
{
#ifdef SYS_recvmsg
	return syscall(SYS_recvmsg, fd, m, flags);
#else
	return recvmsg(fd, m, flags);
#endif
}

static int receive_many(int fd, struct mmsghdr *m, unsigned n, int flags)
{
#ifdef SYS_recvmmsg
	return (int)syscall(SYS_recvmmsg, fd, m, n, flags, NULL);
#else
	return recvmmsg(fd, m, n, flags, NULL);
#endif
}

static int receive_each(int fd, struct mmsghdr *m, unsigned n, int flags)
{
	for (unsigned i = 0; i < n; i++) {
		ssize_t bytes = vb_receive_message(fd, &m[i].msg_hdr, flags);
		if (bytes < 0)
			return i ? (int)i : -1;
		m[i].msg_len = (unsigned)bytes;
	}
	return (int)n;
}

/*
 * What a system call filter may answer. If it was the socket's own error, only some speed is lost.
 */
static bool is_forbidding(int err) { return err == EPERM || err == EACCES || err == ENOSYS; }

int vb_receive_messages(int fd, struct mmsghdr *m, unsigned n, int flags)
{
	if (vb_likely(!atomic_load_explicit(&is_forbidden, memory_order_relaxed))) {
		int got = receive_many(fd, m, n, flags);
		if (vb_likely(got >= 0 || !is_forbidding(errno)))
			return got;
		atomic_store_explicit(&is_forbidden, true, memory_order_relaxed);
	}
	return receive_each(fd, m, n, flags);
}
