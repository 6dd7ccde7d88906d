/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies between processes. Each system call copies what a window of both lists covers. The kernel may stop
 * early anywhere and return only the count; the next call starts there, and returns the reason.
 */
#include "host/ipc/guard.h"
#include "host/private.h"

#include <errno.h>
#include <unistd.h>
#include <sys/prctl.h>

#ifndef PR_SET_PTRACER_ANY
#define PR_SET_PTRACER_ANY ((unsigned long)-1)
#endif

enum { WINDOW = 32 };

/* A place in a list of iovecs: what is left begins skip bytes into iov[0]. */
struct cursor {
	const struct iovec *iov;
	size_t n, skip;
};

static size_t cursor_window(const struct cursor *c, struct iovec window[WINDOW])
{
	size_t count = 0, skip = c->skip;
	for (size_t i = 0; i < c->n && count < WINDOW; i++, skip = 0) {
		if (c->iov[i].iov_len > skip)
			window[count++] = (struct iovec){ (char *)c->iov[i].iov_base + skip,
							  c->iov[i].iov_len - skip };
	}
	return count;
}

static void cursor_advance(struct cursor *c, size_t bytes)
{
	while (bytes) {
		size_t left = c->iov->iov_len - c->skip;
		if (bytes < left) {
			c->skip += bytes;
			return;
		}
		bytes -= left;
		c->iov++;
		c->n--;
		c->skip = 0;
	}
}

static int copy_error(int error)
{
	return error == EACCES || error == ENOSYS ? -EPERM : -error;
}

static ssize_t call(bool writes, pid_t pid, const struct iovec *local, unsigned long nlocal,
		    const struct iovec *remote, unsigned long nremote, const _Atomic(uint32_t) *stop)
{
	if (stop)
		return vb_guarded_copy(writes, pid, local, nlocal, remote, nremote, stop);
	return (writes ? process_vm_writev : process_vm_readv)(pid, local, nlocal, remote, nremote, 0);
}

static int copy(bool writes, pid_t pid, struct cursor local, struct cursor remote,
		const _Atomic(uint32_t) *stop, size_t *done)
{
	*done = 0;
	for (;;) {
		struct iovec here[WINDOW], there[WINDOW];
		size_t nhere = cursor_window(&local, here), nthere = cursor_window(&remote, there);
		if (!nhere || !nthere)
			return 0;
		ssize_t n = call(writes, pid, here, nhere, there, nthere, stop);
		if (n < 0)
			return copy_error(errno);
		if (n == 0)
			return -EFAULT;
		*done += (size_t)n;
		cursor_advance(&local, (size_t)n);
		cursor_advance(&remote, (size_t)n);
	}
}

int vb_copy_from_peer(pid_t pid, const struct iovec *local, size_t nlocal, const struct iovec *remote,
		      size_t nremote, const _Atomic(uint32_t) *stop, size_t *done)
{
	return copy(false, pid, (struct cursor){ local, nlocal, 0 }, (struct cursor){ remote, nremote, 0 },
		    stop, done);
}

int vb_copy_to_peer(pid_t pid, const struct iovec *local, size_t nlocal, const struct iovec *remote,
		    size_t nremote, const _Atomic(uint32_t) *stop, size_t *done)
{
	return copy(true, pid, (struct cursor){ local, nlocal, 0 }, (struct cursor){ remote, nremote, 0 },
		    stop, done);
}

/*
 * Children do not inherit it, so it is set each time. Kernels without Yama refuse it, which does no harm.
 */
void vb_copy_allow_peers(void) { prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); }

pid_t vb_copy_self(void)
{
	return getpid();
}
