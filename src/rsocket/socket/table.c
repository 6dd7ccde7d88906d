/* SPDX-License-Identifier: BSD-2-Clause */
/* The sockets of a process, found by their numbers. */
#include <stdlib.h>

#include "rsocket/socket/socket.h"

static void finish(struct vb_numbered *n);

static struct vb_numbers sockets = { .object_bytes = sizeof(struct vb_rs),
				     .finish = finish,
				     .lock = VB_LOCK_INIT };

static void forget(void)
{
	vb_numbers_forked(&sockets);
}

/* ---- life ---- */

static void set_defaults(struct vb_rs_options *o)
{
	const struct vb_rs_config *c = vb_rs_config();

	*o = (struct vb_rs_options){
		.send_bytes = c->send_bytes,
		.receive_bytes = c->receive_bytes,
		.send_queue = c->send_queue,
		.receive_queue = c->receive_queue,
		.inline_bytes = c->inline_bytes,
		.iomap_entries = c->iomap_entries,
		.keep_idle_s = 7200,
		.keep_interval_s = 75,
		.keep_count = 9,
	};
}

struct vb_rs *vb_rs_create(int domain, int type)
{
	vb_host_at_fork(forget);
	struct vb_numbered *n = vb_numbers_create(&sockets);
	if (!n)
		return NULL;
	struct vb_rs *s = vb_container_of(n, struct vb_rs, number);
	s->fd = -1;
	s->generation = vb_host_generation();
	s->domain = domain;
	s->type = type;
	pthread_mutex_init(&s->lock, NULL);
	vb_list_init(&s->sleepers);
	vb_list_init(&s->memberships);
	vb_list_init(&s->mappings);
	vb_list_init(&s->ready);
	vb_list_init(&s->in_backlog);
	set_defaults(&s->options);
	return s;
}

/*
 * The thread that serves listeners may be handling an event of the id: under the lock it finds no endpoint,
 * and rdma_destroy_id waits for its ack. In a child the lock may stay held for ever.
 */
static void free_endpoint(struct vb_rs *s)
{
	bool is_ours = !vb_rs_is_inherited(s);

	if (is_ours)
		pthread_mutex_lock(&s->lock);
	vb_rs_endpoint_destroy(s);
	if (is_ours)
		pthread_mutex_unlock(&s->lock);
}

static void finish(struct vb_numbered *n)
{
	VB_UNCANCELLED;
	struct vb_rs *s = vb_container_of(n, struct vb_rs, number);

	if (vb_rs_is_stream(s)) {
		free_endpoint(s);
		if (s->id && !vb_rs_is_inherited(s))
			rdma_destroy_id(s->id);
		if (s->channel)
			rdma_destroy_event_channel(s->channel);
	} else {
		vb_rs_datagram_free(s);
	}
	free(s->options.route);
	pthread_mutex_destroy(&s->lock);
}

void vb_rs_put(struct vb_rs *s)
{
	vb_numbers_put(&sockets, &s->number);
}

void vb_rs_discard(struct vb_rs *s)
{
	vb_numbers_discard(&sockets, &s->number);
}

/* ---- numbers ---- */

int vb_rs_publish(struct vb_rs *s, int fd)
{
	s->fd = fd;
	return vb_numbers_publish(&sockets, &s->number, fd);
}

struct vb_rs *vb_rs_get(int fd)
{
	struct vb_numbered *n = vb_numbers_get(&sockets, fd);

	return n ? vb_container_of(n, struct vb_rs, number) : NULL;
}

struct vb_rs *vb_rs_get_checked(int fd, const char *call)
{
	struct vb_rs *s = vb_rs_get(fd);

	if (!s) {
		vb_explain(call, "%d is no rsocket", fd);
		errno = EBADF;
		return NULL;
	}
	if (vb_rs_is_inherited(s)) {
		vb_explain(call, "socket %d was made before the fork: this process cannot use it", fd);
		vb_rs_put(s);
		errno = ENOTCONN;
		return NULL;
	}
	return s;
}

bool vb_rs_withdraw(struct vb_rs *s)
{
	return vb_numbers_withdraw(&sockets, &s->number, s->fd);
}
