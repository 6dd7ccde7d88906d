/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Visits: connections by which another program of the same user looks into this process (inspect.h). The name is that of the process's
 * first slot. The kernel says who visits; a visitor of another user is turned away before anybody sees it.
 */
#include "host/private.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/epoll.h>
#include <sys/vfs.h>
#include <unistd.h>

static struct vb_door door = { .watch = { .fd = -1 } };
static _Atomic(void (*)(int, const struct vb_peer_cred *)) visitor;

void vb_visit_set_acceptor(void (*accepted)(int fd, const struct vb_peer_cred *cred)) { atomic_store(&visitor, accepted); }

static void visit_accepted(int fd, const struct vb_peer_cred *cred)
{
	void (*accepted)(int, const struct vb_peer_cred *) = atomic_load(&visitor);
	if (accepted)
		accepted(fd, cred);
	else
		vb_fd_close(fd);
}

void vb_visits_start_locked(uint32_t slot)
{
	struct vb_name name = vb_name_of_visits(slot);
	vb_door_init(&door, visit_accepted);
	if (vb_door_open_locked(&door, &name, true) == 0 && vb_watch_start(&door.watch, EPOLLIN) < 0)
		vb_visits_stop_locked();
}

void vb_visits_stop_locked(void)
{
	vb_watch_stop(&door.watch);
	vb_fd_close_locked(door.watch.fd);
	door.watch.fd = -1;
}

void vb_visits_show_user_locked(void) { vb_door_listen_again(&door); }
void vb_visits_forget(void) { door.watch.fd = -1; }

/* A file of another kind may block whoever writes it. */
static bool is_memory(int fd)
{
	struct statfs fs;
	return fcntl(fd, F_GET_SEALS) >= 0 && fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

int vb_visit_write(int memfd, const void *bytes, size_t n)
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
