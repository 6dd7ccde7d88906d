/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/loop/notifier.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cancel.h"

#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8
#endif

int vb_notifier_init(struct vb_notifier *n)
{
	n->fd = eventfd(0, EFD_CLOEXEC);
	n->raised = false;
	atomic_init(&n->sequence, 0);
	atomic_init(&n->waiters, 0);
	return n->fd < 0 ? -errno : 0;
}

void vb_notifier_fini(struct vb_notifier *n)
{
	VB_UNCANCELLED;
	close(n->fd);
	n->fd = -1;
}

static long futex(struct vb_notifier *n, int op, uint32_t value)
{
	return syscall(SYS_futex, &n->sequence, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

void vb_notifier_raise(struct vb_notifier *n)
{
	VB_UNCANCELLED;
	n->raised = true;
	eventfd_write(n->fd, 1);
	atomic_fetch_add(&n->sequence, 1);
}

/*
 * This load follows raise's increment, and the kernel's load of the sequence follows the waiter's increment.
 * So one of the two sees the other.
 */
void vb_notifier_wake(struct vb_notifier *n)
{
	if (atomic_load(&n->waiters))
		futex(n, FUTEX_WAKE, INT_MAX);
}

/*
 * The descriptor may block, and a forked child has the same one as its parent. So the other process may have
 * read what was raised here. Kernels before 5.8 cannot read without waiting; for these it is asked first.
 */
static void read_at_once(int fd)
{
	eventfd_t raises;
	struct iovec iov = { &raises, sizeof(raises) };
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int before = errno;

	if (syscall(SYS_preadv2, fd, &iov, 1, -1L, -1L, RWF_NOWAIT) < 0 && errno != EAGAIN &&
	    poll(&p, 1, 0) == 1)
		eventfd_read(fd, &raises);
	errno = before;
}

void vb_notifier_clear(struct vb_notifier *n)
{
	VB_UNCANCELLED;
	if (!n->raised)
		return;
	n->raised = false;
	read_at_once(n->fd);
}

int vb_notifier_may_wait(const struct vb_notifier *n)
{
	int flags = fcntl(n->fd, F_GETFL);
	if (flags < 0)
		return -errno;
	return flags & O_NONBLOCK ? -EAGAIN : 0;
}

/* A plain futex wait: the kernel restarts it under SA_RESTART, but never restarts poll. */
int vb_notifier_wait(struct vb_notifier *n, uint32_t sequence)
{
	int cancel_type, refusal = vb_notifier_may_wait(n);

	if (refusal)
		return refusal;
	atomic_fetch_add(&n->waiters, 1); /* stays if the thread is cancelled: that costs needless wakes */
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &cancel_type);
	long r = futex(n, FUTEX_WAIT, sequence);
	int err = r < 0 ? errno : 0;
	pthread_setcanceltype(cancel_type, NULL);
	atomic_fetch_sub(&n->waiters, 1);
	return err == EINTR ? -EINTR : 0;
}
