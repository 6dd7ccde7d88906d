/* SPDX-License-Identifier: BSD-2-Clause */
/* Links: SEQPACKET connections between processes of one user, and the messages that go over them. */
#include "host/private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/waits.h"

enum { BUFFER_BYTES = 1 << 20 };

static _Atomic(void (*)(int, const struct vb_peer_cred *)) acceptor;

void vb_link_set_acceptor(void (*accepted)(int fd, const struct vb_peer_cred *cred))
{
	atomic_store(&acceptor, accepted);
}

static void set_buffers(int fd)
{
	int bytes = BUFFER_BYTES;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

void vb_link_accepted(int fd, const struct vb_peer_cred *cred)
{
	void (*accepted)(int, const struct vb_peer_cred *) = atomic_load(&acceptor);
	if (!accepted) {
		vb_fd_close(fd);
		return;
	}
	set_buffers(fd);
	accepted(fd, cred);
}

/* ---- connecting ---- */

int vb_link_connect_to(const struct vb_name *name, int *fd, struct vb_peer_cred *cred)
{
	VB_UNCANCELLED;
	int s = -1;

	vb_link_show_user();
	vb_host_lock();
	int err = vb_link_socket_locked(&s);
	vb_host_unlock();
	if (err)
		return err;
	set_buffers(s);
	if (connect(s, (const struct sockaddr *)&name->un, name->bytes) < 0)
		err = -errno;
	else
		err = vb_link_check_peer(s, cred);
	if (err)
		vb_fd_close(s);
	else
		*fd = s;
	return err;
}

int vb_link_connect(uint32_t slot, int *fd, struct vb_peer_cred *cred)
{
	struct vb_name name = vb_name_of_link(slot);
	return vb_link_connect_to(&name, fd, cred);
}

bool vb_slot_is_of(uint32_t slot, uid_t user)
{
	struct vb_peer_cred cred = { .uid = (uid_t)-1 };
	int fd, err = vb_link_connect(slot, &fd, &cred);
	if (!err)
		vb_fd_close(fd);
	return cred.uid == user;
}

/* ---- messages ---- */

/* Room for exactly VB_LINK_MAX_FDS: the kernel discards what exceeds it. */
struct control {
	__attribute__((
		aligned(_Alignof(struct cmsghdr)))) char bytes[CMSG_SPACE(VB_LINK_MAX_FDS * sizeof(int))];
};
_Static_assert(CMSG_SPACE(VB_LINK_MAX_FDS * sizeof(int)) == CMSG_LEN(VB_LINK_MAX_FDS * sizeof(int)),
	       "no slack");

int vb_link_send(int fd, const void *msg, size_t bytes, const int *fds, int nfds)
{
	VB_UNCANCELLED;
	struct control control = { 0 };
	struct iovec iov = { (void *)msg, bytes };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (nfds < 0 || nfds > VB_LINK_MAX_FDS)
		return -EINVAL;
	if (nfds) {
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)nfds * sizeof(int));
	}
	if (sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return 0;
	/* The other end has hung up; it is reset if it had not read all. */
	if (errno == ECONNRESET)
		return -EPIPE;
	return errno == ENOBUFS ? -EAGAIN : -errno;
}

/* Takes the descriptors out of a received message; all are the host's from here on. */
static int collect_fds_locked(struct msghdr *m, int fds[VB_LINK_MAX_FDS])
{
	int n = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count && n < VB_LINK_MAX_FDS; i++) {
			memcpy(&fds[n], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			fds[n] = vb_fd_own(fds[n]);
			n++;
		}
	}
	return n;
}

static void close_fds(const int *fds, int n)
{
	for (int i = 0; i < n; i++)
		vb_fd_close(fds[i]);
}

ssize_t vb_link_recv(int fd, void *msg, size_t bytes, int *fds, int *nfds)
{
	VB_UNCANCELLED;
	struct control control;
	int received[VB_LINK_MAX_FDS];
	struct iovec iov = { msg, bytes };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
	};

	if (nfds)
		*nfds = 0;
	vb_host_lock();
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	int err = n < 0 ? errno : 0, count = err ? 0 : collect_fds_locked(&m, received);
	vb_host_unlock();
	if (err)
		return err == ECONNRESET ? 0 : -err;
	bool lacks_fds = (m.msg_flags & MSG_CTRUNC) && count < VB_LINK_MAX_FDS;
	if (n > 0 && !(m.msg_flags & MSG_TRUNC) && !lacks_fds && fds && nfds) {
		memcpy(fds, received, (size_t)count * sizeof(int));
		*nfds = count;
	} else {
		close_fds(received, count);
	}
	return m.msg_flags & MSG_TRUNC ? -EMSGSIZE : lacks_fds ? -EMFILE : n;
}

void vb_link_end(int fd)
{
	(void)shutdown(fd, SHUT_RDWR);
}

bool vb_link_has_hung_up(int fd)
{
	VB_UNCANCELLED;
	struct pollfd link = { .fd = fd };
	return vb_poll(&link, 1, 0) == 1 && (link.revents & (POLLHUP | POLLERR));
}

bool vb_link_has_news(int fd)
{
	VB_UNCANCELLED;
	struct pollfd link = { .fd = fd, .events = POLLIN };
	return vb_poll(&link, 1, 0) == 1;
}

bool vb_link_is_eventfd(int fd)
{
	char path[32], target[32];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, target, sizeof target);
	return n < 0 || ((size_t)n == strlen("anon_inode:[eventfd]") &&
			 !memcmp(target, "anon_inode:[eventfd]", (size_t)n));
}
