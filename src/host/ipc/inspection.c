/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Visits: connections by which another program of the same user looks into this process (inspect.h). The name
 * is that of the process's first slot. The kernel says who visits; a visitor of another user is turned away
 * before anybody sees it.
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

static struct vb_door door = { .watch = { .fd = -1 }, .spare = -1 };
static _Atomic(void (*)(int, const struct vb_peer_cred *)) visitor;

void vb_inspection_set_acceptor(void (*accepted)(int fd, const struct vb_peer_cred *cred))
{
	atomic_store(&visitor, accepted);
}

static void visit_accepted(int fd, const struct vb_peer_cred *cred)
{
	void (*accepted)(int, const struct vb_peer_cred *) = atomic_load(&visitor);
	if (accepted)
		accepted(fd, cred);
	else
		vb_fd_close(fd);
}

static void stop_locked(void)
{
	vb_watch_stop(&door.watch);
	vb_door_close_locked(&door);
}

void vb_inspections_start_locked(uint32_t slot)
{
	struct vb_name name = vb_name_of_inspections(slot);
	vb_door_init(&door, visit_accepted);
	if (vb_door_open_locked(&door, &name, true) == 0 && vb_watch_start(&door.watch, EPOLLIN) < 0)
		stop_locked();
}

void vb_inspections_show_user_locked(void) { vb_door_listen_again(&door); }
void vb_inspections_forget(void) { door.watch.fd = door.spare = -1; }

/* A file of another kind may block whoever writes it. */
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

static int call_socket(int *fd)
{
	vb_host_lock();
	*fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int err = *fd < 0 ? -errno : 0;
	vb_fd_own(*fd);
	vb_host_unlock();
	return err;
}

/* A listener of another user could make this process wait for nothing. */
static int connect_to(int fd, const char *name)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	size_t bytes = strlen(name);
	struct vb_peer_cred peer;
	if (!bytes || bytes >= sizeof un.sun_path)
		return -EINVAL;
	memcpy(un.sun_path + 1, name, bytes);
	if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ||
	    connect(fd, (struct sockaddr *)&un,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes)) < 0)
		return -errno;
	return vb_link_check_peer(fd, &peer);
}

int vb_inspection_call(const char *name, unsigned patience_ms, int *fd)
{
	struct pollfd p = { .events = POLLIN };
	int err = call_socket(&p.fd);
	if (err)
		return err;
	err = connect_to(p.fd, name);
	if (!err && vb_poll(&p, 1, (int)patience_ms) != 1)
		err = -ETIMEDOUT;
	if (err)
		vb_fd_close(p.fd);
	else
		*fd = p.fd;
	return err;
}
