/* SPDX-License-Identifier: BSD-2-Clause */
/* close, dup and fcntl: what ends, doubles and changes descriptors. */
#include <asm/unistd.h>

#include "preload/preload.h"

/* ---- ends ---- */

VB_EXPORT int close(int fd)
{
	if (!vb_is_borrowed_process()) {
		vb_sock_forget(fd);
		if (vb_close_set(fd))
			return 0;
	}
	return vb_real()->close(fd);
}

static void forget_range(unsigned first, unsigned last)
{
	enum { MOST = VB_NUMBERS_PAGE * VB_NUMBERS_PAGES };

	if (vb_is_borrowed_process())
		return;
	for (unsigned fd = first; fd <= last && fd < MOST; fd++)
		vb_sock_forget((int)fd);
	vb_close_sets(first, last);
}

VB_EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	if (!flags)
		forget_range(first, last);
	return (int)syscall(__NR_close_range, first, last, flags);
}

VB_EXPORT void closefrom(int first)
{
	unsigned from = first < 0 ? 0 : (unsigned)first;

	if (close_range(from, ~0u, 0) == 0)
		return;
	for (long fd = from, end = sysconf(_SC_OPEN_MAX); fd < end; fd++) /* before Linux 5.9 */
		close((int)fd);
}

/* ---- duplicates ---- */

/* `copy` is a descriptor of what fd is. */
static int duplicated(int fd, int copy)
{
	if (copy < 0 || copy == fd || vb_is_borrowed_process() || vb_share_set(fd, copy))
		return copy;
	struct vb_sock *v = vb_sock_get(fd);
	if (!v)
		return copy;
	vb_sock_add(v, copy);
	vb_sock_put(v);
	return copy;
}

/* The same, where `copy` may have been one of our numbers. */
static int replaced(int fd, int copy)
{
	if (copy < 0 || copy == fd || vb_is_borrowed_process())
		return copy;
	vb_sock_forget(copy);
	vb_forget_set(copy);
	return duplicated(fd, copy);
}

VB_EXPORT int dup(int fd)
{
	return duplicated(fd, vb_real()->dup(fd));
}

VB_EXPORT int dup2(int fd, int copy)
{
	return replaced(fd, vb_real()->dup2(fd, copy));
}

VB_EXPORT int dup3(int fd, int copy, int flags)
{
	return replaced(fd, vb_real()->dup3(fd, copy, flags));
}

/* ---- fcntl ---- */

static int set_flags(struct vb_sock *v, int fd, int flags)
{
	if (v->kind == VB_LISTENING) {
		v->nonblocking = flags & O_NONBLOCK;
		flags |= O_NONBLOCK;
	} else if (v->kind == VB_RDMA) {
		(void)rfcntl(v->rs, F_SETFL, flags & O_NONBLOCK);
		if (v->type == SOCK_DGRAM)
			flags |= O_NONBLOCK;
	}
	return vb_real()->fcntl(fd, F_SETFL, flags);
}

static int get_flags(const struct vb_sock *v, int fd)
{
	int flags = vb_real()->fcntl(fd, F_GETFL);
	bool is_datagrams = v->kind == VB_RDMA && v->type == SOCK_DGRAM;

	/* These kernel's sockets never block. */
	if (flags < 0 || (v->kind != VB_LISTENING && !is_datagrams))
		return flags;
	bool nonblocking = is_datagrams ? rfcntl(v->rs, F_GETFL) & O_NONBLOCK : v->nonblocking;
	return nonblocking ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
}

static int control(int fd, int cmd, void *arg)
{
	struct vb_sock *v;
	int result;

	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
		return duplicated(fd, vb_real()->fcntl(fd, cmd, arg));
	v = cmd == F_SETFL || cmd == F_GETFL ? vb_sock_get(fd) : NULL;
	if (!v)
		return vb_real()->fcntl(fd, cmd, arg);
	result = cmd == F_SETFL ? set_flags(v, fd, (int)(intptr_t)arg) : get_flags(v, fd);
	vb_sock_put(v);
	return result;
}

#define FCNTL(name)                                    \
	VB_EXPORT int name(int fd, int cmd, ...)       \
	{                                              \
		va_list args;                          \
                                                       \
		va_start(args, cmd);                   \
		void *arg = va_arg(args, void *);      \
		va_end(args);                          \
		return control(fd, cmd, arg);          \
	}
FCNTL(fcntl)
FCNTL(fcntl64) /* what programs call that are built for 64-bit file offsets */
#undef FCNTL
