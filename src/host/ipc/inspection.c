/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inspection sessions: connections by which another program of the same user, or root's, looks into this
 * process (inspect.h). The listener's name has the number of the process's first slot.
 */
#include "host/private.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/waits.h"

static struct vb_listener listener;
static _Atomic(void (*)(int, const struct vb_peer_cred *)) acceptor;

void vb_inspection_set_acceptor(void (*accepted)(int fd, const struct vb_peer_cred *cred))
{
	atomic_store(&acceptor, accepted);
}

static void session_accepted(int fd, const struct vb_peer_cred *cred)
{
	void (*accepted)(int, const struct vb_peer_cred *) = atomic_load(&acceptor);
	if (accepted)
		accepted(fd, cred);
	else
		vb_fd_close(fd);
}

static void start_again(struct vb_timer *t, uint64_t now_ns)
{
	vb_host_lock();
	vb_inspection_start_locked(vb_slot_first());
	vb_host_unlock();
}

static struct vb_timer again = { .fire = start_again };

void vb_inspection_start_locked(uint32_t slot)
{
	struct vb_name name = vb_name_of_inspection(slot);
	vb_listener_init(&listener, session_accepted);
	listener.admits_root = true; /* it can look with ptrace(2), too */
	int err = vb_listener_open_locked(&listener, &name, true);
	if (!err) {
		err = vb_watch_start(&listener.watch, EPOLLIN);
		if (err)
			vb_listener_close_locked(&listener);
	}
	if (vb_is_short(err))
		vb_timer_set(&again, vb_now_ns() + VB_SHORT_NS);
}

/* Writing to a file of another kind may block. */
static bool is_memory(int fd)
{
	struct statfs fs;
	return fcntl(fd, F_GET_SEALS) >= 0 && fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

int vb_inspection_write(int memfd, const void *bytes, size_t n)
{
	const char *at = bytes;
	if (!is_memory(memfd))
		return -EPERM;
	while (n) {
		ssize_t done = write(memfd, at, n);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done ? -errno : -EIO;
		at += done;
		n -= (size_t)done;
	}
	return 0;
}

/* ---- calls ---- */

int vb_inspection_call(const char *text, unsigned wait_ms, int *fd)
{
	struct pollfd p = { .events = POLLIN };
	struct vb_peer_cred peer;
	struct vb_name name;
	int err = vb_name_of_text(text, &name);
	if (!err)
		err = vb_link_connect_to(&name, &p.fd, &peer);
	if (err)
		return err;
	if (vb_poll(&p, 1, (int)wait_ms) != 1) {
		vb_fd_close(p.fd);
		return -ETIMEDOUT;
	}
	*fd = p.fd;
	return 0;
}
