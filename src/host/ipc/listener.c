/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Listeners at abstract SEQPACKET sockets, for processes of this user. The kernel tells each side who the
 * other is. A connection whose other end may not share memory with this process (rights.h) is closed before
 * anybody sees it.
 *
 * A process that is out of descriptors cannot accept a connection, not even to close it, and whoever made it
 * would wait. So a listener can have a spare socket, which takes the listener's place: the kernel then hangs
 * up on all who are waiting, and refuses whoever comes next. Once there can be another spare, it listens
 * again.
 */
#include "host/private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/log.h"
#include "base/nanoseconds.h"

enum {
	BACKLOG = 1024,
	ACCEPTS_PER_ROUND = 16,
	/*
	 * The pause before a listener without free descriptors tries to accept again. A peer that waits for a
	 * link takes this process for halted once it has slept for twice as long (host/loop/activity.c).
	 */
	ACCEPT_RETRY_NS = 10 * VB_NS_PER_MS,
};

static struct vb_list listeners = VB_LIST_INIT(listeners); /* those that listen; under the host lock */
static _Atomic uid_t shown_user; /* whom peers see in them; written under the host lock */

int vb_link_socket_locked(int *fd)
{
	int s = vb_fd_own(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (s < 0)
		return -errno;
	*fd = s;
	return 0;
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
	static atomic_bool is_reported;
	if (!atomic_exchange(&is_reported, true))
		vb_explain_limit(
			"link",
			"memory is not shared with all processes: %s%s; connections to the others take the wire",
			strerror(-err), what_is_short(err));
}

/* ---- accepting ---- */

static int accept_connection(int listener, int *fd)
{
	vb_host_lock();
	int s = vb_fd_own(accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
	int err = s < 0 ? -errno : 0;
	vb_host_unlock();
	*fd = s;
	return err;
}

static int admit(int fd, struct vb_peer_cred *cred)
{
	int err = vb_link_check_peer(fd, cred);
	if (err)
		vb_fd_close(fd);
	return err;
}

int vb_link_accept(int listener, int *fd, struct vb_peer_cred *cred)
{
	VB_UNCANCELLED;
	int err = accept_connection(listener, fd);
	return err ? err : admit(*fd, cred);
}

/* As this process's namespace sees it. */
static bool is_root(int fd, struct vb_peer_cred *cred)
{
	struct ucred peer = { .uid = (uid_t)-1 };
	socklen_t bytes = sizeof peer;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0 || peer.uid)
		return false;
	*cred = (struct vb_peer_cred){ .pid = peer.pid, .uid = peer.uid };
	return true;
}

/* ACCEPTS_PER_ROUND: there may be more; 0: there are none; -EMFILE, … if descriptors ran out. */
static int accept_some(struct vb_listener *l)
{
	for (unsigned i = 0; i < ACCEPTS_PER_ROUND; i++) {
		struct vb_peer_cred cred;
		int fd, err = accept_connection(l->watch.fd, &fd);
		if (!err && !(l->admits_root && is_root(fd, &cred)))
			err = admit(fd, &cred);
		if (!err)
			l->accepted(fd, &cred);
		else if (err != -EPERM)
			return err == -EAGAIN || err == -ECONNABORTED || err == -EINTR || err == -EINVAL ?
				       0 :
				       err;
	}
	return ACCEPTS_PER_ROUND;
}

/*
 * -EADDRINUSE: a child still has the socket that had the name, until it executes a program or drops what it
 * inherited.
 */
static int name_socket(struct vb_listener *l)
{
	if (!l->is_named && bind(l->watch.fd, (const struct sockaddr *)&l->name.un, l->name.bytes) < 0)
		return -errno;
	l->is_named = true;
	return 0;
}

/*
 * The name is free for a moment. While the slot is this process's, only an impostor would take the name, and
 * peers check who he is.
 */
static void replace_socket_locked(struct vb_listener *l)
{
	if (l->spare < 0 || dup3(l->spare, l->watch.fd, O_CLOEXEC) < 0)
		return;
	vb_fd_close_locked(l->spare);
	l->spare = -1;
	l->is_paused = true;
	l->is_named = false;
	(void)name_socket(l);
}

static void pause_for_lack(struct vb_listener *l, int err)
{
	vb_link_explain_lack(err);
	vb_host_lock();
	replace_socket_locked(l);
	vb_host_unlock();
	vb_timer_set(&l->retry, vb_now_ns() + ACCEPT_RETRY_NS);
}

/* What cannot be accepted would wake the thread again at once; so would a socket that was shut down. */
static void listener_ready(struct vb_watch *w, uint32_t epoll_events)
{
	struct vb_listener *l = w->arg;
	int err = accept_some(l);
	if (err == ACCEPTS_PER_ROUND || (!err && !(epoll_events & EPOLLHUP)))
		return;
	vb_watch_stop(w);
	if (err)
		pause_for_lack(l, err);
}

static int resume_locked(struct vb_listener *l)
{
	if (!l->is_paused)
		return 0;
	int err = name_socket(l);
	if (!err)
		err = vb_link_socket_locked(&l->spare);
	if (err)
		return err;
	l->is_paused = false;
	return listen(l->watch.fd, BACKLOG) < 0 ? -errno : 0;
}

static void accept_again(struct vb_timer *t, uint64_t now_ns)
{
	struct vb_listener *l = t->arg;
	vb_host_lock();
	bool is_listed = !vb_list_is_empty(&l->all);
	int err = is_listed ? resume_locked(l) : 0;
	vb_host_unlock();
	if (is_listed && (err || vb_watch_start(&l->watch, EPOLLIN)))
		vb_timer_set(&l->retry, now_ns + ACCEPT_RETRY_NS);
}

/* ---- listening ---- */

void vb_listener_init(struct vb_listener *l, void (*accepted)(int fd, const struct vb_peer_cred *cred))
{
	*l = (struct vb_listener){
		.watch = { .fd = -1, .ready = listener_ready, .arg = l },
		.retry = { .fire = accept_again, .arg = l },
		.accepted = accepted,
		.spare = -1,
	};
	vb_list_init(&l->all);
}

int vb_listen_locked(const struct vb_name *name, bool listens, int *fd)
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
		*fd = s;
	return err;
}

int vb_listener_open_locked(struct vb_listener *l, const struct vb_name *name, bool listens)
{
	int err = vb_listen_locked(name, listens, &l->watch.fd);
	l->name = *name;
	l->is_named = !err;
	if (err || !listens)
		return err;
	if (vb_list_is_empty(&listeners))
		atomic_store(&shown_user, geteuid());
	vb_list_add_tail(&listeners, &l->all);
	return 0;
}

void vb_listener_shut_locked(struct vb_listener *l)
{
	vb_list_del(&l->all);
	shutdown(l->watch.fd, SHUT_RDWR);
}

void vb_listener_close_locked(struct vb_listener *l)
{
	vb_list_del(&l->all);
	vb_fd_close_locked(l->watch.fd);
	vb_fd_close_locked(l->spare);
	l->watch.fd = l->spare = -1;
}

/* The kernel notes at listen(2) who this process is. */
void vb_link_show_user(void)
{
	struct vb_listener *l;
	uid_t user = geteuid();
	if (atomic_load_explicit(&shown_user, memory_order_relaxed) == user)
		return;
	vb_host_lock();
	atomic_store(&shown_user, user);
	vb_list_for_each(l, &listeners, all)
		if (!l->is_paused)
			(void)listen(l->watch.fd, BACKLOG);
	vb_host_unlock();
}

void vb_listener_forget(void) { vb_list_init(&listeners); }
