/* SPDX-License-Identifier: BSD-2-Clause */
/* Making, shutting and closing sockets, and their names. */
#include <netinet/in.h>
#include <string.h>

#include "rsocket/calls.h"

static bool is_supported(int domain, int type, int protocol)
{
	if (domain != AF_INET && domain != AF_INET6 && domain != AF_IB)
		return false;
	if (type == SOCK_STREAM)
		return !protocol || protocol == IPPROTO_TCP;
	/* UDP sockets give datagram sockets their names */
	return type == SOCK_DGRAM && domain != AF_IB && (!protocol || protocol == IPPROTO_UDP);
}

static int open_socket(struct vb_rs *s)
{
	bool is_stream = vb_rs_is_stream(s);
	int err = is_stream ? vb_rs_id_create(s) : vb_rs_datagram_open(s);

	return err ? err : vb_rs_publish(s, is_stream ? s->channel->fd : s->fd);
}

/*
 * SOCK_NONBLOCK and SOCK_CLOEXEC are refused, as in rdma-core: a preload library then makes an ordinary
 * socket, as this library's own sockets must be.
 */
VB_EXPORT int rsocket(int domain, int type, int protocol)
{
	VB_UNCANCELLED;
	if (!is_supported(domain, type, protocol))
		return vb_rs_fail(
			ENOTSUP,
			"domain %d, type %d, protocol %d: streams over IP and AF_IB and datagrams over IP are supported",
			domain, type, protocol);
	struct vb_rs *s = vb_rs_create(domain, type);
	if (!s)
		return vb_rs_fail(ENOMEM, "out of memory");
	int err = open_socket(s), fd = s->fd;
	if (err)
		vb_rs_discard(s);
	else
		vb_rs_put(s);
	return err ? vb_rs_fail(-err, "%s", strerror(-err)) : fd;
}

/* ---- shutdown and close ---- */

static int shutdown_locked(struct vb_rs *s, int how)
{
	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
		return -EINVAL;
	if (!vb_rs_is_stream(s)) {
		vb_rs_datagram_shut_locked(s, how);
		return 0;
	}
	if (s->state == VB_RS_LISTENING && how != SHUT_WR) {
		vb_rs_backlog_shut_locked(s);
		return 0;
	}
	return vb_rs_stream_shut_locked(s, how);
}

VB_EXPORT int rshutdown(int socket, int how)
{
	VB_UNCANCELLED;
	struct vb_rs *s = vb_rs_get_checked(socket, __func__);

	if (!s)
		return -1;
	pthread_mutex_lock(&s->lock);
	int err = shutdown_locked(s, how);
	bool is_retired = s->state == VB_RS_RETIRED;
	pthread_mutex_unlock(&s->lock);
	if (is_retired)
		vb_rs_backlog_empty(s);
	vb_rs_put(s);
	return (int)vb_rs_result(err);
}

static void close_socket(struct vb_rs *s)
{
	pthread_mutex_lock(&s->lock);
	if (!vb_rs_is_stream(s))
		vb_rs_datagram_shut_locked(s, SHUT_RDWR);
	else if (s->state == VB_RS_LISTENING)
		vb_rs_backlog_shut_locked(s);
	else
		vb_rs_stream_end_locked(s);
	pthread_mutex_unlock(&s->lock);
	vb_rs_keepalive_stop(s); /* it cannot start again */
	vb_rs_backlog_close(s);
}

VB_EXPORT int rclose(int socket)
{
	VB_UNCANCELLED;
	struct vb_rs *s = vb_rs_get(socket);

	if (!s)
		return vb_rs_set_close(socket) ?
			       vb_rs_fail(EBADF, "%d is no rsocket, and no set of them", socket) :
			       0;
	if (!vb_rs_is_inherited(s))
		close_socket(s);
	bool was_open = vb_rs_withdraw(s);
	if (was_open && !vb_rs_is_inherited(s))
		vb_rs_leave_sets(s);
	vb_rs_put(s);
	return was_open ? 0 : vb_rs_fail(EBADF, "socket %d is closed already", socket);
}

/* ---- names ---- */

static void local_name(struct vb_rs *s, struct sockaddr *addr, socklen_t *len)
{
	struct sockaddr_storage none = { .ss_family = (sa_family_t)s->domain };
	struct sockaddr *local = rdma_get_local_addr(s->id);

	vb_rs_copy_address(local->sa_family ? local : (struct sockaddr *)&none, addr, len);
}

/* As for getsockname(2), a length of 0 needs no address. librspreload asks so. */
static bool can_be_told(const struct sockaddr *addr, const socklen_t *len)
{
	return len && (addr || !*len);
}

VB_EXPORT int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	VB_DEFERRED;
	struct vb_rs *s = vb_rs_get_checked(socket, __func__);
	int err = 0;

	if (!s)
		return -1;
	pthread_mutex_lock(&s->lock); /* another rconnect changes the id */
	if (!can_be_told(addr, addrlen))
		err = -EFAULT;
	else if (vb_rs_is_stream(s))
		local_name(s, addr, addrlen);
	else
		err = getsockname(s->fd, addr, addrlen) ? -errno : 0;
	pthread_mutex_unlock(&s->lock);
	vb_rs_put(s);
	return (int)vb_rs_result(err);
}

VB_EXPORT int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	VB_DEFERRED;
	struct vb_rs *s = vb_rs_get_checked(socket, __func__);
	int err = 0;

	if (!s)
		return -1;
	pthread_mutex_lock(&s->lock);
	if (!can_be_told(addr, addrlen))
		err = -EFAULT;
	else if (!vb_rs_is_stream(s))
		err = getpeername(s->fd, addr, addrlen) ? -errno : 0;
	else if (s->state == VB_RS_CONNECTED || s->state == VB_RS_ACCEPTING)
		vb_rs_copy_address(rdma_get_peer_addr(s->id), addr, addrlen);
	else
		err = -ENOTCONN;
	pthread_mutex_unlock(&s->lock);
	vb_rs_put(s);
	return (int)vb_rs_result(err);
}
