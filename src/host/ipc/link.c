/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Links: SEQPACKET connections between processes of one user. The kernel tells each side who the other is; a
 * link whose other end may not share memory with this process (kin.c) is closed before anybody sees it. A
 * process that refuses links (VERBATIM_LOCAL=off) has its listeners' names, but does not listen.
 *
 * A process that is out of descriptors cannot accept a connection, not even to close it, and whoever made it
 * would wait. So a door has a spare socket: it takes the listener's place, at which the kernel hangs up on
 * all who are waiting, and whoever comes next is refused. Once there can be another spare, it listens again.
 */
#include "host/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/log.h"
#include "base/waits.h"

enum { BACKLOG = 1024, ACCEPTS_PER_TURN = 16, BUFFER_BYTES = 1 << 20, ACCEPT_RETRY_NS = 100000000 };

static _Atomic(void (*)(int, const struct vb_peer_cred *)) acceptor;

void vb_link_set_acceptor(void (*accepted)(int fd, const struct vb_peer_cred *cred))
{
	atomic_store(&acceptor, accepted);
}

int vb_link_socket_locked(int *fd)
{
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0)
		return -errno;
	vb_fd_own(s);
	*fd = s;
	return 0;
}

static void set_buffers(int fd)
{
	int bytes = BUFFER_BYTES;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

int vb_link_check_peer(int fd, struct vb_peer_cred *cred)
{
	struct ucred peer;
	socklen_t bytes = sizeof peer;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
		return -errno;
	*cred = (struct vb_peer_cred){ .pid = peer.pid, .uid = peer.uid };
	return vb_kin_check(fd, cred);
}

/* ---- what a process lacks ---- */

static const char *what_is_short(int err)
{
	switch (err) {
	case -EMFILE:
		return " (RLIMIT_NOFILE)";
	case -ETOOMANYREFS:
		return ": descriptors of this user are under way (RLIMIT_NOFILE)";
	case -ENOMEM:
		return " (RLIMIT_AS?)";
	default:
		return "";
	}
}

void vb_link_explain_lack(int err)
{
	static atomic_bool said;
	if (!atomic_exchange(&said, true))
		vb_explain_limit(
			"link",
			"memory is not shared with all processes: %s%s; connections to the others take the wire",
			strerror(-err), what_is_short(err));
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

/* ---- accepting ---- */

int vb_link_accept(int listener, int *fd, struct vb_peer_cred *cred)
{
	VB_UNCANCELLED;
	vb_host_lock();
	int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), err = s < 0 ? -errno : 0;
	if (!err)
		vb_fd_own(s);
	vb_host_unlock();
	if (err)
		return err;
	*fd = s;
	err = vb_link_check_peer(s, cred);
	if (err)
		vb_fd_close(s);
	return err;
}

/* ACCEPTS_PER_TURN: there may be more; 0: there are none; -EMFILE, … if descriptors ran out. */
static int accept_some(struct vb_door *door)
{
	for (unsigned i = 0; i < ACCEPTS_PER_TURN; i++) {
		struct vb_peer_cred cred;
		int fd, err = vb_link_accept(door->watch.fd, &fd, &cred);
		if (!err)
			door->accepted(fd, &cred);
		else if (err != -EPERM)
			return err == -EAGAIN || err == -ECONNABORTED || err == -EINTR || err == -EINVAL ?
				       0 :
				       err;
	}
	return ACCEPTS_PER_TURN;
}

/*
 * The name is free for a moment. Nobody else's it can be while the slot is this process's, but for who wants
 * to be taken for it: he is looked at.
 */
static void replace_listener_locked(struct vb_door *door)
{
	struct vb_name name = { .bytes = sizeof name.un };
	if (door->spare < 0 || getsockname(door->watch.fd, (struct sockaddr *)&name.un, &name.bytes) < 0 ||
	    dup3(door->spare, door->watch.fd, O_CLOEXEC) < 0)
		return;
	vb_fd_close_locked(door->spare);
	door->spare = -1;
	door->is_closed = true;
	(void)bind(door->watch.fd, (const struct sockaddr *)&name.un, name.bytes);
}

static void close_for_now(struct vb_door *door, int err)
{
	vb_link_explain_lack(err);
	vb_host_lock();
	replace_listener_locked(door);
	vb_host_unlock();
	vb_timer_set(&door->retry, vb_now_ns() + ACCEPT_RETRY_NS);
}

/*
 * Whoever waits there would wake the thread again at once; and so would a listener that was shut down, as
 * links are refused.
 */
static void door_ready(struct vb_watch *w, uint32_t epoll_events)
{
	struct vb_door *door = w->arg;
	int err = accept_some(door);
	if (err == ACCEPTS_PER_TURN || (!err && !(epoll_events & EPOLLHUP)))
		return;
	vb_watch_stop(w);
	if (err)
		close_for_now(door, err);
}

static int open_again_locked(struct vb_door *door)
{
	int err = door->is_closed ? vb_link_socket_locked(&door->spare) : 0;
	if (err || !door->is_closed)
		return err;
	door->is_closed = false;
	return listen(door->watch.fd, BACKLOG) < 0 ? -errno : 0;
}

static void accept_again(struct vb_timer *t, uint64_t now_ns)
{
	struct vb_door *door = t->arg;
	if (vb_links_are_refused())
		return;
	vb_host_lock();
	int err = open_again_locked(door);
	vb_host_unlock();
	if (err || vb_watch_start(&door->watch, EPOLLIN))
		vb_timer_set(&door->retry, now_ns + ACCEPT_RETRY_NS);
}

void vb_door_init(struct vb_door *door, void (*accepted)(int fd, const struct vb_peer_cred *cred))
{
	*door = (struct vb_door){
		.watch = { .fd = -1, .ready = door_ready, .arg = door },
		.retry = { .fire = accept_again, .arg = door },
		.accepted = accepted,
		.spare = -1,
	};
}

int vb_door_open_locked(struct vb_door *door, const struct vb_name *name, bool listens)
{
	int s = -1, err = vb_link_socket_locked(&s);
	if (err)
		return err;
	if (bind(s, (const struct sockaddr *)&name->un, name->bytes) < 0 ||
	    (listens && listen(s, BACKLOG) < 0))
		err = -errno;
	if (err)
		vb_fd_close_locked(s);
	else
		door->watch.fd = s;
	return err;
}

void vb_door_close_locked(struct vb_door *door)
{
	vb_fd_close_locked(door->watch.fd);
	vb_fd_close_locked(door->spare);
	door->watch.fd = door->spare = -1;
}

void vb_door_listen_again(struct vb_door *door)
{
	if (door->watch.fd >= 0 && !door->is_closed)
		(void)listen(door->watch.fd, BACKLOG);
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
	return errno == ENOBUFS ? -EAGAIN : -errno;
}

/* Takes the descriptors out of a received message; all are the host's from here on. */
static int collect_fds(struct msghdr *m, int fds[VB_LINK_MAX_FDS])
{
	int n = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count && n < VB_LINK_MAX_FDS; i++) {
			memcpy(&fds[n], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			vb_fd_own(fds[n++]);
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
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return errno == ECONNRESET ? 0 : -errno;
	int count = collect_fds(&m, received);
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
