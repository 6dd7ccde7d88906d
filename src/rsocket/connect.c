/* SPDX-License-Identifier: BSD-2-Clause */
/* From a new socket to a connection. Events of the id take the steps between (stream/connection.c). */
#include <string.h>

#include "rsocket/calls.h"

/* ---- the active side ---- */

static bool is_decided(struct vb_rs *s) { return !vb_rs_is_opening(s); }

int vb_rs_await_connection_locked(struct vb_rs *s, uint64_t deadline, struct vb_rs_turn *turn)
{
	if (vb_rs_is_opening(s)) {
		int err = vb_rs_wait_locked(s, is_decided, deadline, turn);
		if (err)
			return err;
	}
	if (s->state == VB_RS_CONNECTED)
		return 0;
	int err = vb_rs_take_error_locked(s);
	return err ? -err : -ENOTCONN;
}

static int begin_locked(struct vb_rs *s, const struct sockaddr *addr, socklen_t len)
{
	VB_UNCANCELLED;
	int err = 0;

	if (vb_rs_is_opening(s))
		vb_rs_progress_locked(s); /* a program may poll by this call alone */
	switch (s->state) {
	case VB_RS_CONNECTED:
	case VB_RS_ACCEPTING:
		return -EISCONN;
	case VB_RS_RESOLVING_ADDRESS:
	case VB_RS_RESOLVING_ROUTE:
	case VB_RS_CONNECTING:
		return -EALREADY;
	case VB_RS_LISTENING:
	case VB_RS_RETIRED:
		return -EINVAL;
	case VB_RS_FAILED:
		err = s->error ? -vb_rs_take_error_locked(s) : vb_rs_id_renew_locked(s);
		break;
	case VB_RS_IDLE:
	case VB_RS_BOUND:
		break;
	}
	if (err)
		return err;
	memcpy(&s->peer, addr, len < sizeof(s->peer) ? len : sizeof(s->peer));
	vb_rs_resolve_locked(s);
	return 0;
}

static int connect_locked(struct vb_rs *s, const struct sockaddr *addr, socklen_t len)
{
	uint64_t deadline = vb_rs_deadline(vb_rs_may_block(s, 0), s->options.send_timeout_ns);
	int begun = begin_locked(s, addr, len);

	/* A call that may wait waits for the connection that another one began, too. */
	if (begun && (begun != -EALREADY || deadline == VB_RS_AT_ONCE))
		return begun;
	int err = vb_rs_await_connection_locked(s, deadline, NULL);
	return err != -EAGAIN ? err : begun ? begun : -EINPROGRESS;
}

VB_EXPORT int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	VB_DEFERRED;
	struct vb_rs *s = vb_rs_get_checked(socket, __func__);
	int err;

	if (!s)
		return -1;
	if (!vb_rs_is_whole_address(addr, addrlen)) {
		err = -EINVAL;
	} else if (!vb_rs_is_stream(s)) {
		err = vb_rs_datagram_connect(s, addr, addrlen);
	} else {
		pthread_mutex_lock(&s->lock);
		err = connect_locked(s, addr, addrlen);
		pthread_mutex_unlock(&s->lock);
	}
	vb_rs_put(s);
	return (int)vb_rs_result(err);
}

/* ---- the passive side ---- */

static bool has_request(struct vb_rs *s)
{
	return s->state != VB_RS_LISTENING || s->num_ready;
}

/* Gives it this channel, and so a number. Returns that, or a negative errno: then it is freed. */
static int publish_child(struct vb_rs *child, struct rdma_event_channel *channel)
{
	VB_UNCANCELLED;
	int err = vb_rs_id_migrate(child, channel);

	if (!err)
		err = vb_rs_publish(child, child->channel->fd);
	int fd = err ? err : child->fd;
	if (err)
		vb_rs_drop(child);
	else
		vb_rs_put(child);
	return fd;
}

/* The channel comes first: a connection for which there is no number stays in the backlog. */
static int take_locked(struct vb_rs *s, struct vb_rs **child, struct rdma_event_channel **channel)
{
	int err = s->state == VB_RS_LISTENING ? vb_rs_channel_open(channel) : -EINVAL;

	if (!err)
		*child = vb_rs_backlog_take_locked(s);
	return err;
}

static int accept_locked(struct vb_rs *s, struct vb_rs **child, struct rdma_event_channel **channel)
{
	if (s->state != VB_RS_LISTENING)
		return -EINVAL;
	uint64_t deadline = vb_rs_deadline(vb_rs_may_block(s, 0), s->options.receive_timeout_ns);
	int err = vb_rs_wait_locked(s, has_request, deadline, NULL);

	return err ? err : take_locked(s, child, channel);
}

VB_EXPORT int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	VB_DEFERRED;
	struct vb_rs *s = vb_rs_get_checked(socket, __func__);

	if (!s)
		return -1;
	struct vb_rs *child;
	struct rdma_event_channel *channel;
	int fd = -EOPNOTSUPP;
	if (vb_rs_is_stream(s)) {
		pthread_mutex_lock(&s->lock);
		fd = accept_locked(s, &child, &channel);
		pthread_mutex_unlock(&s->lock);
		if (!fd)
			fd = publish_child(child, channel);
	}
	vb_rs_put(s);
	if (fd >= 0 && addr && addrlen)
		(void)rgetpeername(fd, addr, addrlen);
	return (int)vb_rs_result(fd);
}

/* ---- names ---- */

static int bind_locked(struct vb_rs *s, const struct sockaddr *addr)
{
	if (s->state != VB_RS_IDLE)
		return -EINVAL;
	if (rdma_bind_addr(s->id, (struct sockaddr *)addr))
		return -errno;
	s->state = VB_RS_BOUND;
	s->was_bound = true;
	return 0;
}

VB_EXPORT int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	VB_UNCANCELLED;
	struct vb_rs *s = vb_rs_get_checked(socket, __func__);
	int err = -EINVAL;

	if (!s)
		return -1;
	if (vb_rs_is_whole_address(addr, addrlen)) {
		if (vb_rs_is_stream(s)) {
			pthread_mutex_lock(&s->lock);
			err = bind_locked(s, addr);
			pthread_mutex_unlock(&s->lock);
		} else {
			err = vb_rs_datagram_bind(s, addr, addrlen);
		}
	}
	vb_rs_put(s);
	return (int)vb_rs_result(err);
}

static int listen_locked(struct vb_rs *s, int backlog)
{
	struct sockaddr_storage any = { .ss_family = (sa_family_t)s->domain };
	int err = 0;

	if (s->state == VB_RS_LISTENING)
		return vb_rs_backlog_open_locked(s, backlog);
	if (s->state == VB_RS_IDLE)
		err = bind_locked(s, (struct sockaddr *)&any);
	if (err)
		return err;
	if (s->state != VB_RS_BOUND)
		return -EINVAL;
	if (rdma_listen(s->id, backlog))
		return -errno;
	s->state = VB_RS_LISTENING;
	return vb_rs_backlog_open_locked(s, backlog);
}

VB_EXPORT int rlisten(int socket, int backlog)
{
	VB_UNCANCELLED;
	struct vb_rs *s = vb_rs_get_checked(socket, __func__);
	int err = -EOPNOTSUPP;

	if (!s)
		return -1;
	if (vb_rs_is_stream(s)) {
		pthread_mutex_lock(&s->lock);
		err = listen_locked(s, backlog);
		pthread_mutex_unlock(&s->lock);
	}
	vb_rs_put(s);
	return (int)vb_rs_result(err);
}
