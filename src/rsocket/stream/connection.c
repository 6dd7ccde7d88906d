/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A stream's id, and how its events drive the state of the socket, whoever takes them:
 *
 *	IDLE, BOUND ──rconnect──▶ RESOLVING_ADDRESS ─▶ RESOLVING_ROUTE ─▶ CONNECTING ─▶ CONNECTED
 *	LISTENING ──a request (backlog.c)──▶ (a new socket) ACCEPTING ─▶ CONNECTED
 *	any step but the last fails: FAILED, from where rconnect may try again with a new id
 */
#include <fcntl.h>
#include <string.h>

#include "rdmacm/agent/channel.h"
#include "rsocket/stream/stream.h"

enum { RESOLVE_MS = 2000, ATTEMPTS = 4 };

/* ---- ids ---- */

/* A socket works without the options that its id refuses. */
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

int vb_rs_channel_open(struct rdma_event_channel **channel)
{
	VB_UNCANCELLED;
	int err = vb_cma_channel_create(VB_FD_LEAST, channel);

	if (!err)
		fcntl((*channel)->fd, F_SETFL, O_NONBLOCK);
	return err;
}

int vb_rs_id_create(struct vb_rs *s)
{
	int err = vb_rs_channel_open(&s->channel);

	if (err)
		return err;
	return rdma_create_id(s->channel, &s->id, s, RDMA_PS_TCP) ? -errno : 0;
}

int vb_rs_id_migrate(struct vb_rs *s, struct rdma_event_channel *channel)
{
	s->channel = channel;
	return rdma_migrate_id(s->id, s->channel) ? -errno : 0;
}

int vb_rs_id_renew_locked(struct vb_rs *s)
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

static const char *state_text(enum vb_rs_state state)
{
	static const char *const texts[] = {
#define X(name, text) text,
		VB_RS_STATES(X)
#undef X
	};

	return texts[state];
}

static void fail_locked(struct vb_rs *s, int err)
{
	vb_explain("rconnect", "socket %d, %s: %s", s->fd, state_text(s->state), strerror(err));
	s->state = VB_RS_FAILED;
	s->error = err;
	s->changes++;
	vb_rs_stream_break(&s->stream); /* completions that are flushed now change nothing */
}

void vb_rs_resolve_locked(struct vb_rs *s)
{
	s->state = VB_RS_RESOLVING_ADDRESS;
	if (rdma_resolve_addr(s->id, NULL, (struct sockaddr *)&s->peer, RESOLVE_MS))
		fail_locked(s, errno == ENODEV ? ENETUNREACH : errno);
}

/* A path that the program set makes a resolution unnecessary, if the id takes it. */
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
	s->changes++;
	vb_rs_keepalive_locked(s);
	vb_rs_flush_locked(s); /* the second half of the receive ring */
}

static void take_offer_locked(struct vb_rs *s, const struct rdma_cm_event *event)
{
	int err = vb_rs_stream_take_offer(&s->stream, event->param.conn.private_data,
					  event->param.conn.private_data_len);

	if (!err) {
		connected_locked(s);
		return;
	}
	fail_locked(s, -err);
	(void)rdma_disconnect(s->id);
}

/* What arrived before can still be read. */
static void disconnected_locked(struct vb_rs *s, int err)
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
			vb_rs_resolve_locked(s);
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
			take_offer_locked(s, event);
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
		disconnected_locked(s, ECONNRESET);
		return;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		disconnected_locked(s, ENODEV);
		return;
	default:
		return; /* of no interest to a socket: TIMEWAIT_EXIT, ADDR_CHANGE */
	}
}

void vb_rs_take_event(struct vb_rs *s, const struct rdma_cm_event *event)
{
	pthread_mutex_lock(&s->lock);
	take_locked(s, event);
	pthread_mutex_unlock(&s->lock);
}

bool vb_rs_events_progress_locked(struct vb_rs *s)
{
	VB_UNCANCELLED;
	struct rdma_cm_event *event;
	bool any = false;

	/* A connection in a backlog has no channel. */
	while (s->channel && !rdma_get_cm_event(s->channel, &event)) {
		take_locked(s, event);
		rdma_ack_cm_event(event);
		any = true;
	}
	return any;
}
