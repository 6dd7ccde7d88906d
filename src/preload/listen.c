/* SPDX-License-Identifier: BSD-2-Clause */
/* listen and accept: for TCP and for RDMA. */
#include "preload/preload.h"

/* After this, listening for RDMA is tried again on a port that another process has. */
#define RETRY_NS (1 * VB_NS_PER_S)

/* ---- listen ---- */

static void listen_locked(struct vb_sock *v, int fd)
{
	struct sockaddr_storage local;
	socklen_t len = sizeof(local);
	int rs;

	if (vb_real()->getsockname(fd, (struct sockaddr *)&local, &len) ||
	    (rs = rsocket(v->domain, SOCK_STREAM, 0)) < 0)
		return;
	vb_set_up(v, fd, rs);
	(void)rfcntl(rs, F_SETFL, O_NONBLOCK);
	if (rbind(rs, (struct sockaddr *)&local, len) || rlisten(rs, v->backlog)) {
		rclose(rs);
		return;
	}
	v->rs = rs;
	vb_move_memberships_locked(v);
}

static void stop_listening_locked(struct vb_sock *v)
{
	if (v->rs >= 0)
		rclose(v->rs);
	v->rs = -1;
}

void vb_listen_for_rdma(struct vb_sock *v, int fd)
{
	if (v->rs >= 0 && v->generation == vb_generation() && !vb_uses_inherited_set())
		return;
	pthread_mutex_lock(&v->lock);
	if (v->generation != vb_generation()) {
		stop_listening_locked(v); /* the parent's */
		v->generation = vb_generation();
		v->retry_ns = 0;
	}
	if (vb_uses_inherited_set()) {
		stop_listening_locked(v);
	} else if (v->kind == VB_LISTENING && v->rs < 0 && vb_now() >= v->retry_ns && !vb_serves_forks()) {
		v->retry_ns = vb_now() + RETRY_NS;
		listen_locked(v, fd);
	}
	pthread_mutex_unlock(&v->lock);
}

static void begin_listening_locked(struct vb_sock *v, int fd)
{
	v->nonblocking = vb_is_nonblocking(fd);
	(void)vb_real()->fcntl(fd, F_SETFL, vb_real()->fcntl(fd, F_GETFL) | O_NONBLOCK);
	v->kind = VB_LISTENING;
}

VB_EXPORT int listen(int fd, int backlog)
{
	struct vb_sock *v = vb_sock_get(fd);
	int result;

	if (!v)
		return vb_real()->listen(fd, backlog);
	pthread_mutex_lock(&v->lock);
	result = v->kind == VB_RDMA ? rlisten(v->rs, backlog) : vb_real()->listen(fd, backlog);
	if (!result)
		v->backlog = backlog;
	if (!result && v->kind == VB_PLAIN)
		begin_listening_locked(v, fd);
	else if (!result && v->kind == VB_LISTENING && v->rs >= 0 && v->generation == vb_generation())
		(void)rlisten(v->rs, backlog);
	pthread_mutex_unlock(&v->lock);
	vb_sock_put(v);
	return result;
}

/* ---- accept ---- */

/* Gives an rsocket the number of a kernel's socket, which has what a connection inherits. */
static bool give_number(const struct vb_sock *listener, int listener_fd, int rs, int fd, int flags)
{
	struct vb_sock *v = vb_sock_create(fd, listener->domain, SOCK_STREAM, VB_RDMA, rs);

	if (!v) {
		rclose(rs);
		return false;
	}
	vb_copy_options(listener, listener_fd, vb_real()->setsockopt, fd);
	(void)rfcntl(rs, F_SETFL, flags & SOCK_NONBLOCK ? O_NONBLOCK : 0);
	vb_sock_put(v);
	return true;
}

/* Without waiting: EAGAIN. A connection for which there is no number stays in the backlog. */
static int accept_rdma(const struct vb_sock *v, int listener_fd, struct sockaddr *addr, socklen_t *len,
		       int flags)
{
	struct pollfd p = { .fd = v->rs, .events = POLLIN };

	if (p.fd < 0 || vb_rpoll(&p, 1, 0, NULL) <= 0) {
		errno = EAGAIN;
		return -1;
	}
	int fd = vb_real()->socket(v->domain, SOCK_STREAM | flags, 0);
	int rs = fd < 0 ? -1 : raccept(p.fd, NULL, NULL), err = errno;
	if (rs < 0 || !give_number(v, listener_fd, rs, fd, flags)) {
		err = rs < 0 ? err : ENOMEM;
		if (fd >= 0)
			vb_real()->close(fd);
		errno = err;
		return -1;
	}
	if (addr)
		(void)getpeername(fd, addr, len);
	return fd;
}

/* Without waiting, from TCP and RDMA, which are the first in turn. */
static int accept_any(struct vb_sock *v, int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	int taken = -1;

	v->prefers_tcp = !v->prefers_tcp;
	for (int i = 0; i < 2; i++) {
		bool is_tcps = v->prefers_tcp == !i;

		taken = is_tcps ? vb_real()->accept4(fd, addr, len, flags) :
				  accept_rdma(v, fd, addr, len, flags);
		if (taken >= 0 || errno != EAGAIN)
			break;
	}
	return taken;
}

/* At most until `end`. 1: look again; or -1. */
static int await_any(struct vb_sock *v, int fd, uint64_t end)
{
	struct pollfd p[] = { { .fd = fd, .events = POLLIN }, { .fd = v->rs, .events = POLLIN } };
	uint64_t time_ns = vb_time_left(end);
	/* For when another process gives up the port. */
	bool tries_again = v->rs < 0 && time_ns > RETRY_NS && !vb_serves_forks();
	int n = vb_wait_for(p, 2, tries_again ? RETRY_NS : time_ns, end != VB_RS_NEVER);

	if (n)
		return n < 0 ? -1 : 1;
	errno = EAGAIN;
	return tries_again ? 1 : -1;
}

static int accept_now(struct vb_sock *v, int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	vb_listen_for_rdma(v, fd);
	return accept_any(v, fd, addr, len, flags);
}

static int accept_listening(struct vb_sock *v, int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	int taken = accept_now(v, fd, addr, len, flags);

	if (taken >= 0 || errno != EAGAIN || v->nonblocking)
		return taken;
	uint64_t end = vb_end_of(vb_timeout_of(fd, SO_RCVTIMEO));
	while (taken < 0 && errno == EAGAIN && await_any(v, fd, end) > 0)
		taken = accept_now(v, fd, addr, len, flags);
	return taken;
}

VB_EXPORT int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	VB_HELD struct vb_sock *v = vb_sock_get(fd);

	if (!v)
		return vb_number_for(__builtin_return_address(0), vb_real()->accept4(fd, addr, len, flags));
	if (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) {
		errno = EINVAL;
		return -1;
	}
	if (v->kind == VB_LISTENING)
		return accept_listening(v, fd, addr, len, flags);
	return v->kind == VB_RDMA ? raccept(v->rs, addr, len) : vb_real()->accept4(fd, addr, len, flags);
}

VB_EXPORT int accept(int fd, struct sockaddr *addr, socklen_t *len)
{
	return accept4(fd, addr, len, 0);
}
