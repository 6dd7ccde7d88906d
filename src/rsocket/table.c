/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers to sockets. Looking one up takes no lock: the memory of a socket stays a socket's for ever, so a reference can be taken
 * first and the table asked again afterwards whether it was the right one.
 */
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "rsocket/rs.h"

enum { PAGE_ENTRIES = 1024, PAGES = 1024 };

typedef _Atomic(struct vb_rs *) entry;

static _Atomic(entry *) pages[PAGES];
static struct vb_lock lock = VB_LOCK_INIT;
static struct vb_rs *recycled; /* under the lock */

const char *vb_rs_state_text(enum vb_rs_state state)
{
	static const char *const texts[] = {
#define X(name, text) text,
		VB_RS_STATES(X)
#undef X
	};

	return (unsigned)state < VB_ARRAY_LEN(texts) ? texts[state] : "?";
}

/* A fork may have come while another thread held it. */
static void forget(void)
{
	vb_lock_init(&lock);
}

static entry *find(int fd)
{
	if (fd < 0 || fd >= PAGE_ENTRIES * PAGES)
		return NULL;
	entry *page = atomic_load_explicit(&pages[fd / PAGE_ENTRIES], memory_order_acquire);
	return page ? &page[fd % PAGE_ENTRIES] : NULL;
}

static entry *find_or_make(int fd)
{
	entry *page, *none = NULL;

	if (fd < 0 || fd >= PAGE_ENTRIES * PAGES)
		return NULL;
	if (!find(fd)) {
		page = calloc(PAGE_ENTRIES, sizeof(*page));
		if (!page)
			return NULL;
		if (!atomic_compare_exchange_strong(&pages[fd / PAGE_ENTRIES], &none, page))
			free(page); /* another thread made it */
	}
	return find(fd);
}

/* ---- life ---- */

static struct vb_rs *take_recycled(void)
{
	vb_lock(&lock);
	struct vb_rs *s = recycled;
	if (s)
		recycled = s->next_free;
	vb_unlock(&lock);
	return s;
}

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

/* All but what a thread may look at that was late with a number that has gone: the count of references. */
static void reset(struct vb_rs *s)
{
	size_t from = offsetof(struct vb_rs, fd);

	memset((char *)s + from, 0, sizeof(*s) - from);
	s->fd = -1;
	s->generation = vb_host_generation();
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->reader, NULL);
	pthread_mutex_init(&s->writer, NULL);
	vb_list_init(&s->sleepers);
	vb_list_init(&s->mappings);
	set_defaults(&s->options);
}

struct vb_rs *vb_rs_create(int domain, int type)
{
	struct vb_rs *s = take_recycled();

	vb_host_at_fork(forget);
	if (!s)
		s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	reset(s);
	s->domain = domain;
	s->type = type;
	atomic_fetch_add(&s->refs, 1);
	return s;
}

static void finish(struct vb_rs *s)
{
	if (vb_rs_is_stream(s)) {
		vb_rs_endpoint_destroy(s);
		if (s->id && !vb_rs_is_inherited(s))
			rdma_destroy_id(s->id);
		if (s->channel)
			rdma_destroy_event_channel(s->channel);
	} else {
		vb_rs_datagram_close(s);
	}
	free(s->options.route);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->reader);
	pthread_mutex_destroy(&s->writer);
}

void vb_rs_put(struct vb_rs *s)
{
	/* is_closed, once: a late reader's reference may be the last one several times. */
	if (atomic_fetch_sub(&s->refs, 1) != 1 || !atomic_exchange(&s->is_closed, false))
		return;
	finish(s);
	vb_lock(&lock);
	s->next_free = recycled;
	recycled = s;
	vb_unlock(&lock);
}

/* ---- numbers ---- */

int vb_rs_publish(struct vb_rs *s, int fd)
{
	entry *e = find_or_make(fd);

	if (!e)
		return -ENOMEM;
	s->fd = fd;
	atomic_fetch_add(&s->refs, 1);
	atomic_store(e, s);
	return 0;
}

struct vb_rs *vb_rs_get(int fd)
{
	entry *e = find(fd);
	struct vb_rs *s = e ? atomic_load_explicit(e, memory_order_acquire) : NULL;

	if (!s)
		return NULL;
	atomic_fetch_add(&s->refs, 1);
	if (atomic_load(e) == s)
		return s;
	vb_rs_put(s);
	return NULL;
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
	struct vb_rs *expected = s;
	entry *e = find(s->fd);

	if (!e || !atomic_compare_exchange_strong(e, &expected, NULL))
		return false;
	s->is_closed = true;
	vb_rs_put(s);
	return true;
}
