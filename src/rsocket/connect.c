/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From a new socket to a connection. The id's events drive the state, whoever takes them:
 *
 *	IDLE, BOUND ──rconnect──▶ RESOLVING_ADDRESS ─▶ RESOLVING_ROUTE ─▶ CONNECTING ─▶ CONNECTED
 *	LISTENING ──a request (backlog.c)──▶ (a new socket) ACCEPTING ─▶ CONNECTED
 *	any step but the last fails: FAILED, from where rconnect may try again with a new id
 */
#include <fcntl.h>
#include <string.h>

#include "rdmacm/agent/channel.h"
#include "rsocket/rs.h"

enum { RESOLVE_MS = 2000, ATTEMPTS = 4 };

/* ---- ids ---- */

/* An id that fails an option has the socket work without it. */
static void apply_options(struct vb_rs *s)
{
	int on = 1;

	if (vb_rs_has_flag(s, VB_RS_REUSEADDR))
		(void)rdma_set_option(s->id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on));
	if (vb_rs_has_flag(s, VB_RS_V6ONLY))
		(void)rdma_set_option(s->id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on));
	if (s->options.tos)
		(void)rdma_set_option(s->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &s->options.tos,
				      sizeof(s->options.tos));
}

static int open_channel(struct vb_rs *s)
{
	int err = vb_cma_channel_create(VB_RS_FIRST_NUMBER, &s->channel);

	if (!err)
		fcntl(s->channel->fd, F_SETFL, O_NONBLOCK);
	return err;
}

int vb_rs_connect_open(struct vb_rs *s)
{
	int err = open_channel(s);

	if (err)
		return err;
	return rdma_create_id(s->channel, &s->id, s, RDMA_PS_TCP) ? -errno : 0;
}

int vb_rs_connect_reopen_locked(struct vb_rs *s)
{
	struct rdma_cm_id *id;
	struct sockaddr_storage local;
	bool was_bound = s->was_bound;

	if (rdma_create_id(s->channel, &id, s, RDMA_PS_TCP))
		return -errno;
	memcpy(&local, rdma_get_local_addr(s->id), sizeof(local));
	vb_rs_endpoint_destroy(s);
	rdma_destroy_id(s->id);
	s->id = id;
	s->state = VB_RS_IDLE;
	s->error = 0;
	s->attempts = 0;
	apply_options(s);
	if (!was_bound)
		return 0;
	if (rdma_bind_addr(s->id, (struct sockaddr *)&local))
		return -errno;
	s->state = VB_RS_BOUND;
	return 0;
}

/* ---- steps of a connection ---- */

static void fail_locked(struct vb_rs *s, int err)
{
	vb_explain("rconnect", "socket %d, %s: %s", s->fd, vb_rs_state_text(s->state), strerror(err));
	s->state = VB_RS_FAILED;
	s->error = err;
	s->arrivals++;
	vb_rs_stream_break(&s->stream); /* what is flushed now says nothing new */
}

static void resolve_address_locked(struct vb_rs *s)
{
	s->state = VB_RS_RESOLVING_ADDRESS;
	if (rdma_resolve_addr(s->id, NULL, (struct sockaddr *)&s->peer, RESOLVE_MS))
		fail_locked(s, errno == ENODEV ? ENETUNREACH : errno);
}

/* A path that the program gave stands for a resolution, where paths can be given. */
static void resolve_route_locked(struct vb_rs *s)
{
	s->state = VB_RS_RESOLVING_ROUTE;
	if (s->options.route && !rdma_set_option(s->id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, s->options.route,
						 s->options.route_bytes))
		return;
	if (rdma_resolve_route(s->id, RESOLVE_MS))
		fail_locked(s, errno);
}

static void request_locked(struct vb_rs *s)
{
	struct vb_rs_offer offer;
	struct rdma_conn_param param = { .private_data = &offer,
					 .private_data_len = sizeof(offer),
					 .flow_control = 1,
					 .retry_count = 7,
					 .rnr_retry_count = 7 };
	int err = vb_rs_endpoint_create(s);

	s->state = VB_RS_CONNECTING;
	if (err) {
		fail_locked(s, -err);
		return;
	}
	vb_rs_stream_offer(&s->stream, &offer);
	if (rdma_connect(s->id, &param))
		fail_locked(s, errno);
}

static void connected_locked(struct vb_rs *s)
{
	s->state = VB_RS_CONNECTED;
	s->arrivals++;
	vb_rs_keepalive_locked(s);
	vb_rs_flush_locked(s); /* the second half of the receive ring */
}

static void meet_locked(struct vb_rs *s, const struct rdma_cm_event *event)
{
	int err = vb_rs_stream_meet(&s->stream, event->param.conn.private_data,
				    event->param.conn.private_data_len);

	if (!err) {
		connected_locked(s);
		return;
	}
	fail_locked(s, -err);
	(void)rdma_disconnect(s->id);
}

/* What arrived before it is still good. */
static void lost_locked(struct vb_rs *s, int err)
{
	if (s->state == VB_RS_ACCEPTING)
		connected_locked(s);
	if (s->state != VB_RS_CONNECTED) {
		fail_locked(s, err);
		return;
	}
	if (s->end.cq) /* else it is being freed */
		vb_rs_endpoint_progress_locked(s);
	vb_rs_break_locked(s, err);
}

static void resolution_failed_locked(struct vb_rs *s, int status)
{
	if (status == -ETIMEDOUT && ++s->attempts < ATTEMPTS) {
		if (s->state == VB_RS_RESOLVING_ADDRESS)
			resolve_address_locked(s);
		else
			resolve_route_locked(s);
		return;
	}
	fail_locked(s, EHOSTUNREACH);
}

static void take_locked(struct vb_rs *s, const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		s->attempts = 0;
		resolve_route_locked(s);
		return;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		request_locked(s);
		return;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		resolution_failed_locked(s, event->status);
		return;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (s->state == VB_RS_CONNECTING)
			meet_locked(s, event);
		else if (s->state == VB_RS_ACCEPTING)
			connected_locked(s);
		return;
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		fail_locked(s, ECONNREFUSED);
		return;
	case RDMA_CM_EVENT_UNREACHABLE:
		fail_locked(s, event->status == -EHOSTUNREACH ? EHOSTUNREACH : ETIMEDOUT);
		return;
	case RDMA_CM_EVENT_DISCONNECTED:
		lost_locked(s, ECONNRESET);
		return;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		lost_locked(s, ENODEV);
		return;
	default:
		return; /* no news for a socket: TIMEWAIT_EXIT, ADDR_CHANGE */
	}
}

void vb_rs_take_event(struct vb_rs *s, const struct rdma_cm_event *event)
{
	pthread_mutex_lock(&s->lock);
	take_locked(s, event);
	pthread_mutex_unlock(&s->lock);
}

bool vb_rs_connect_progress_locked(struct vb_rs *s)
{
	VB_UNCANCELLED;
	struct rdma_cm_event *event;
	bool any = false;

	/* What waits in a backlog has no channel. */
	while (s->channel && !rdma_get_cm_event(s->channel, &event)) {
		take_locked(s, event);
		rdma_ack_cm_event(event);
		any = true;
	}
	return any;
}

/* ---- the active side ---- */

static bool is_decided(struct vb_rs *s) { return !vb_rs_is_opening(s); }

int vb_rs_await_connection_locked(struct vb_rs *s, bool may_block, uint64_t timeout_ns, pthread_mutex_t *held)
{
	if (vb_rs_is_opening(s)) {
		int err = vb_rs_wait_locked(s, is_decided, may_block, timeout_ns, held);
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
		vb_rs_progress_locked(s); /* a program may do nothing but ask again */
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
		err = s->error ? -vb_rs_take_error_locked(s) : vb_rs_connect_reopen_locked(s);
		break;
	case VB_RS_IDLE:
	case VB_RS_BOUND:
		break;
	}
	if (err)
		return err;
	memcpy(&s->peer, addr, len < sizeof(s->peer) ? len : sizeof(s->peer));
	resolve_address_locked(s);
	return 0;
}

static int connect_locked(struct vb_rs *s, const struct sockaddr *addr, socklen_t len)
{
	bool may_block = vb_rs_may_block(s, 0);
	int err = begin_locked(s, addr, len);

	if (err)
		return err;
	err = vb_rs_await_connection_locked(s, may_block, s->options.send_timeout_ns, NULL);
	return err == -EAGAIN ? -EINPROGRESS : err;
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

/* From now on its events are its own. Its number, or a negative errno: then it is gone. */
static int number_child(struct vb_rs *child)
{
	VB_UNCANCELLED;
	int err = open_channel(child);

	if (!err)
		err = rdma_migrate_id(child->id, child->channel) ? -errno : 0;
	if (!err)
		err = vb_rs_publish(child, child->channel->fd);
	int fd = err ? err : child->fd;
	if (err)
		vb_rs_drop(child);
	else
		vb_rs_put(child);
	return fd;
}

static int accept_locked(struct vb_rs *s, struct vb_rs **child)
{
	if (s->state != VB_RS_LISTENING)
		return -EINVAL;
	int err =
		vb_rs_wait_locked(s, has_request, vb_rs_may_block(s, 0), s->options.receive_timeout_ns, NULL);
	if (err)
		return err;
	*child = s->state == VB_RS_LISTENING ? vb_rs_backlog_take_locked(s) : NULL;
	return *child ? 0 : -EINVAL;
}

VB_EXPORT int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	VB_DEFERRED;
	struct vb_rs *s = vb_rs_get_checked(socket, __func__);

	if (!s)
		return -1;
	struct vb_rs *child;
	int fd = -EOPNOTSUPP;
	if (vb_rs_is_stream(s)) {
		pthread_mutex_lock(&s->lock);
		fd = accept_locked(s, &child);
		pthread_mutex_unlock(&s->lock);
		if (!fd)
			fd = number_child(child);
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
