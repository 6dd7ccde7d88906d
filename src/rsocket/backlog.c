/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One thread serves all listeners of the process. It accepts requests as they come, so that a peer's rconnect
 * need not wait for the program's raccept, which finds the connections in the listener's backlog. When a
 * backlog is full its requests wait in the listener's event channel. When the listener is shut down they are
 * refused. A connection in the backlog has its events in that channel, and no number. raccept gives it a
 * channel of its own, whose descriptor is its number.
 *
 * The thread exists from the first rlisten on. It holds no lock while it makes a connection. A forked child
 * starts a thread of its own.
 */
#include <string.h>
#include <unistd.h>

#include "base/thread.h"
#include "base/waits.h"
#include "rsocket/calls.h"

/*
 * I/O map entries that each accepted connection has at least. A program may set its number after rlisten, as
 * riostream does, and a connection may come before.
 */
enum { LEAST_IOMAP = 16 };

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static int listeners = -1; /* epoll of their channels; the data are their numbers */
static unsigned generation;

/* ---- a request becomes a socket ---- */

static void copy_options(struct vb_rs *child, struct vb_rs *listener)
{
	pthread_mutex_lock(&listener->lock);
	child->options = listener->options;
	pthread_mutex_unlock(&listener->lock);
	child->options.route = NULL;
	child->options.route_bytes = 0;
}

static int answer(struct vb_rs *child, const struct rdma_conn_param *request)
{
	struct vb_rs_offer offer;
	struct rdma_conn_param param = *request;
	int err = vb_rs_endpoint_create(child);

	if (!err)
		err = vb_rs_stream_take_offer(&child->stream, request->private_data,
					      request->private_data_len);
	if (err)
		return err;
	vb_rs_stream_offer(&child->stream, &offer);
	param.private_data = &offer;
	param.private_data_len = sizeof(offer);
	child->state = VB_RS_ACCEPTING;
	return rdma_accept(child->id, &param) ? -errno : 0;
}

static bool listens(struct vb_rs *s)
{
	pthread_mutex_lock(&s->lock);
	bool does = s->state == VB_RS_LISTENING;
	pthread_mutex_unlock(&s->lock);
	return does;
}

/* The new socket, referenced; NULL: the peer was refused. */
static struct vb_rs *take_request(struct vb_rs *listener, struct rdma_cm_id *id,
				  const struct rdma_conn_param *request)
{
	struct vb_rs *child = listens(listener) ? vb_rs_create(listener->domain, listener->type) : NULL;

	if (!child) {
		rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
		return NULL;
	}
	copy_options(child, listener);
	child->least_iomap = LEAST_IOMAP;
	child->id = id;
	id->context = child;
	int err = answer(child, request);
	if (!err)
		return child;
	vb_explain("rsocket", "a connection to socket %d was refused: %s", listener->fd, strerror(-err));
	rdma_reject(id, NULL, 0);
	vb_rs_discard(child);
	return NULL;
}

/* A request, or an event of a connection that waits: its id, and so its socket, stay until the ack. */
static struct vb_rs *take_event(struct vb_rs *s, struct rdma_cm_event *event)
{
	struct rdma_conn_param request = event->param.conn;
	struct rdma_cm_id *id = event->id;
	uint8_t data[VB_RS_OFFER_BYTES] = { 0 };

	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		if (id != s->id)
			vb_rs_take_event(id->context, event);
		rdma_ack_cm_event(event);
		return NULL;
	}
	if (request.private_data_len > sizeof(data))
		request.private_data_len = sizeof(data);
	if (request.private_data_len)
		memcpy(data, request.private_data, request.private_data_len);
	request.private_data = data;
	rdma_ack_cm_event(event);
	return take_request(s, id, &request);
}

/* False: no request waits. */
static bool take_next(struct vb_rs *s, struct vb_rs **child)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(s->channel, &event))
		return false;
	*child = take_event(s, event);
	return true;
}

/* ---- the backlog ---- */

static void set_events(struct vb_rs *s, int op, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = s->fd };

	vb_epoll_ctl(listeners, op, s->channel->fd, &event);
}

static bool is_full(const struct vb_rs *s) { return s->num_ready >= s->backlog; }

/* The child's reference goes to the backlog; false: the listener was shut. */
static bool add(struct vb_rs *s, struct vb_rs *child)
{
	pthread_mutex_lock(&s->lock);
	bool listens = s->state == VB_RS_LISTENING;
	if (listens) {
		vb_list_add_tail(&s->ready, &child->in_backlog);
		s->num_ready++;
		s->changes++;
		if (is_full(s))
			set_events(s, EPOLL_CTL_MOD, 0);
		vb_rs_wake_locked(s);
	}
	pthread_mutex_unlock(&s->lock);
	return listens;
}

/* A listener that was shut takes all requests, and refuses them. */
static bool takes_more(struct vb_rs *s)
{
	pthread_mutex_lock(&s->lock);
	bool does = s->state != VB_RS_LISTENING || !is_full(s);
	pthread_mutex_unlock(&s->lock);
	return does;
}

static void serve(struct vb_rs *s)
{
	struct vb_rs *child;

	while (takes_more(s) && take_next(s, &child))
		if (child && !add(s, child))
			vb_rs_drop(child);
}

static void *run(void *arg)
{
	int epfd = (int)(intptr_t)arg;
	struct epoll_event event;

	for (;;) {
		if (vb_epoll_wait(epfd, &event, 1, -1) != 1)
			continue;
		struct vb_rs *s = vb_rs_get(event.data.fd);
		if (s) {
			serve(s);
			vb_rs_put(s);
		}
	}
	return NULL;
}

static int start_thread(void)
{
	int epfd = vb_epoll_open();
	if (epfd < 0)
		return -errno;
	int err = vb_thread_start(NULL, run, (void *)(intptr_t)epfd);
	if (err)
		close(epfd);
	else
		listeners = epfd;
	return err;
}

static void forget(void)
{
	pthread_mutex_init(&starting, NULL);
}

static int start(void)
{
	int err = 0;

	vb_host_at_fork(forget);
	pthread_mutex_lock(&starting);
	if (listeners >= 0 && generation != vb_host_generation()) {
		close(listeners); /* the parent's */
		listeners = -1;
	}
	if (listeners < 0)
		err = start_thread();
	generation = vb_host_generation();
	pthread_mutex_unlock(&starting);
	return err;
}

/* ---- calls on listeners ---- */

int vb_rs_backlog_open_locked(struct vb_rs *s, int length)
{
	enum { LEAST = 1, MOST = 4096 };
	bool is_new = !s->backlog;
	int err = is_new ? start() : 0;

	if (err)
		return err;
	/* As of listen(2), a negative length is the longest. */
	s->backlog = length < 0 || length > MOST ? MOST : length < LEAST ? LEAST : (unsigned)length;
	set_events(s, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, is_full(s) ? 0 : EPOLLIN);
	return 0;
}

struct vb_rs *vb_rs_backlog_take_locked(struct vb_rs *s)
{
	struct vb_list *first = vb_list_pop(&s->ready);

	if (!first)
		return NULL;
	bool was_full = is_full(s);
	s->num_ready--;
	if (was_full && !is_full(s))
		set_events(s, EPOLL_CTL_MOD, EPOLLIN);
	return vb_container_of(first, struct vb_rs, in_backlog);
}

void vb_rs_backlog_shut_locked(struct vb_rs *s)
{
	s->state = VB_RS_RETIRED; /* raccept in other threads returns */
	s->changes++;
	set_events(s, EPOLL_CTL_MOD, EPOLLIN);
	vb_rs_wake_locked(s);
}

static struct vb_rs *take(struct vb_rs *s)
{
	pthread_mutex_lock(&s->lock);
	struct vb_rs *child = vb_rs_backlog_take_locked(s);
	pthread_mutex_unlock(&s->lock);
	return child;
}

void vb_rs_backlog_empty(struct vb_rs *s)
{
	struct vb_rs *child;

	while ((child = take(s)))
		vb_rs_drop(child);
}

void vb_rs_backlog_close(struct vb_rs *s)
{
	vb_rs_backlog_empty(s);
	if (s->backlog)
		set_events(s, EPOLL_CTL_DEL, 0); /* the channel stays until the last reference goes */
}
