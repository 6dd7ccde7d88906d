/* SPDX-License-Identifier: BSD-2-Clause */
/* Queues of completion events and of asynchronous events, by themselves. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "adapter/object.h"
#include "adapter/queues/cq_events.h"

static bool is_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	return poll(&p, 1, 0) == 1;
}

static void set_nonblocking(int fd)
{
	assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

/* ---- channels ---- */

struct channel_world {
	struct vb_channel ch;
	struct vb_cq cq[2];
};

static int make_channel(void **state)
{
	struct channel_world *w = calloc(1, sizeof(*w));
	assert_int_equal(vb_channel_init(&w->ch), 0);
	set_nonblocking(w->ch.notifier.fd);
	for (int i = 0; i < 2; i++) {
		vb_list_init(&w->cq[i].event_node);
		vb_list_init(&w->cq[i].backlog.node);
		pthread_mutex_init(&w->cq[i].events_lock, NULL);
		pthread_cond_init(&w->cq[i].events_cond, NULL);
	}
	*state = w;
	return 0;
}

static int free_channel(void **state)
{
	struct channel_world *w = *state;
	assert_int_equal(vb_channel_fini(&w->ch), 0);
	free(w);
	return 0;
}

static void channel__empty(void **state)
{
	struct channel_world *w = *state;
	struct vb_cq *cq;
	assert_int_equal(vb_channel_get(&w->ch, &cq), -EAGAIN);
	assert_false(is_readable(w->ch.notifier.fd));
}

static void channel__readable_while_events_wait(void **state)
{
	struct channel_world *w = *state;
	struct vb_cq *cq;
	vb_channel_notify(&w->ch, &w->cq[0]);
	vb_channel_notify(&w->ch, &w->cq[0]);
	for (int i = 0; i < 2; i++) {
		assert_true(is_readable(w->ch.notifier.fd));
		assert_int_equal(vb_channel_get(&w->ch, &cq), 0);
		assert_ptr_equal(cq, &w->cq[0]);
	}
	assert_false(is_readable(w->ch.notifier.fd));
	assert_int_equal(vb_channel_get(&w->ch, &cq), -EAGAIN);
	vb_cq_ack_events(cq = &w->cq[0], 2);
	vb_channel_forget(&w->ch, cq);
}

static void channel__queues_take_turns(void **state)
{
	struct channel_world *w = *state;
	struct vb_cq *cq;
	vb_channel_notify(&w->ch, &w->cq[0]);
	vb_channel_notify(&w->ch, &w->cq[0]);
	vb_channel_notify(&w->ch, &w->cq[1]);
	const int order[] = { 0, 1, 0 };
	for (int i = 0; i < 3; i++) {
		assert_int_equal(vb_channel_get(&w->ch, &cq), 0);
		assert_ptr_equal(cq, &w->cq[order[i]]);
	}
}

static void channel__forget_drops_queued(void **state)
{
	struct channel_world *w = *state;
	struct vb_cq *cq;
	vb_channel_notify(&w->ch, &w->cq[0]);
	vb_channel_notify(&w->ch, &w->cq[1]);
	vb_channel_forget(&w->ch, &w->cq[0]);
	assert_int_equal(vb_channel_get(&w->ch, &cq), 0);
	assert_ptr_equal(cq, &w->cq[1]);
	vb_channel_notify(&w->ch, &w->cq[0]);
	vb_channel_forget(&w->ch, &w->cq[0]);
	assert_false(is_readable(w->ch.notifier.fd));
}

struct waiting {
	void (*wait)(void *arg);
	void *arg;
	atomic_bool returned;
	pthread_t thread;
};

static void *wait_in_thread(void *arg)
{
	struct waiting *w = arg;
	w->wait(w->arg);
	atomic_store(&w->returned, true);
	return NULL;
}

static void start_waiting(struct waiting *w)
{
	atomic_init(&w->returned, false);
	assert_int_equal(pthread_create(&w->thread, NULL, wait_in_thread, w), 0);
	usleep(20000); /* time to get it wrong */
	assert_false(atomic_load(&w->returned));
}

static void forget_first_cq(void *arg)
{
	struct channel_world *w = arg;
	vb_channel_forget(&w->ch, &w->cq[0]);
}

static void channel__forget_waits_for_acks(void **state)
{
	struct channel_world *w = *state;
	struct vb_cq *cq;
	struct waiting forget = { .wait = forget_first_cq, .arg = w };
	vb_channel_notify(&w->ch, &w->cq[0]);
	vb_channel_notify(&w->ch, &w->cq[0]);
	assert_int_equal(vb_channel_get(&w->ch, &cq), 0);
	assert_int_equal(vb_channel_get(&w->ch, &cq), 0);
	vb_cq_ack_events(cq, 1);
	start_waiting(&forget);
	vb_cq_ack_events(cq, 1);
	pthread_join(forget.thread, NULL);
	assert_true(atomic_load(&forget.returned));
}

static void get_event(void *arg)
{
	struct channel_world *w = arg;
	struct vb_cq *cq;
	if (vb_channel_get(&w->ch, &cq) || cq != &w->cq[1])
		abort();
}

static void channel__blocking_get(void **state)
{
	struct channel_world *w = *state;
	struct waiting get = { .wait = get_event, .arg = w };
	int fd = w->ch.notifier.fd;
	assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK), 0);
	start_waiting(&get);
	vb_channel_notify(&w->ch, &w->cq[1]);
	pthread_join(get.thread, NULL);
	assert_true(atomic_load(&get.returned));
}

static void channel__busy_while_used(void **state)
{
	struct channel_world *w = *state;
	atomic_fetch_add(&w->ch.refs, 1);
	assert_int_equal(vb_channel_fini(&w->ch), -EBUSY);
	atomic_fetch_sub(&w->ch.refs, 1);
}

/* ---- asynchronous events ---- */

static int make_context(void **state)
{
	struct vb_context *ctx = calloc(1, sizeof(*ctx));
	assert_int_equal(vb_notifier_init(&ctx->async_notifier), 0);
	set_nonblocking(ctx->async_notifier.fd);
	pthread_mutex_init(&ctx->async_lock, NULL);
	pthread_cond_init(&ctx->async_acked, NULL);
	vb_list_init(&ctx->async_events);
	*state = ctx;
	return 0;
}

static int free_context(void **state)
{
	struct vb_context *ctx = *state;
	struct vb_async_event *event;
	assert_int_equal(vb_async_get(ctx, &event), -EAGAIN);
	vb_notifier_fini(&ctx->async_notifier);
	free(ctx);
	return 0;
}

static void async__in_order(void **state)
{
	struct vb_context *ctx = *state;
	struct vb_async_source source = { 0 };
	struct vb_async_event *event;
	int object;
	vb_async_raise(ctx, IBV_EVENT_PORT_ACTIVE, VB_ASYNC_PORT, NULL, NULL, 1);
	vb_async_raise(ctx, IBV_EVENT_CQ_ERR, VB_ASYNC_CQ, &object, &source, 0);
	assert_true(is_readable(ctx->async_notifier.fd));
	assert_int_equal(vb_async_get(ctx, &event), 0);
	assert_int_equal(event->type, IBV_EVENT_PORT_ACTIVE);
	assert_int_equal(event->port, 1);
	free(event);
	assert_true(is_readable(ctx->async_notifier.fd));
	assert_int_equal(vb_async_get(ctx, &event), 0);
	assert_int_equal(event->type, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(event->object, &object);
	assert_ptr_equal(event->source, &source);
	free(event);
	assert_false(is_readable(ctx->async_notifier.fd));
	vb_async_ack(ctx, &source);
	vb_async_forget(ctx, &source);
}

static void async__forget_drops_the_source_only(void **state)
{
	struct vb_context *ctx = *state;
	struct vb_async_source one = { 0 }, two = { 0 };
	struct vb_async_event *event;
	vb_async_raise(ctx, IBV_EVENT_QP_FATAL, VB_ASYNC_QP, &one, &one, 0);
	vb_async_raise(ctx, IBV_EVENT_QP_FATAL, VB_ASYNC_QP, &two, &two, 0);
	vb_async_raise(ctx, IBV_EVENT_COMM_EST, VB_ASYNC_QP, &one, &one, 0);
	vb_async_forget(ctx, &one);
	assert_int_equal(vb_async_get(ctx, &event), 0);
	assert_ptr_equal(event->object, &two);
	free(event);
	assert_false(is_readable(ctx->async_notifier.fd));
	vb_async_ack(ctx, &two);
	vb_async_forget(ctx, &two);
}

struct forgetting {
	struct vb_context *ctx;
	struct vb_async_source source;
};

static void forget_source(void *arg)
{
	struct forgetting *f = arg;
	vb_async_forget(f->ctx, &f->source);
}

static void async__forget_waits_for_acks(void **state)
{
	struct forgetting f = { .ctx = *state };
	struct waiting forget = { .wait = forget_source, .arg = &f };
	struct vb_async_event *event;
	vb_async_raise(f.ctx, IBV_EVENT_SRQ_LIMIT_REACHED, VB_ASYNC_SRQ, &f, &f.source, 0);
	assert_int_equal(vb_async_get(f.ctx, &event), 0);
	free(event);
	start_waiting(&forget);
	vb_async_ack(f.ctx, &f.source);
	pthread_join(forget.thread, NULL);
	assert_true(atomic_load(&forget.returned));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(channel__empty, make_channel, free_channel),
		cmocka_unit_test_setup_teardown(channel__readable_while_events_wait, make_channel,
						free_channel),
		cmocka_unit_test_setup_teardown(channel__queues_take_turns, make_channel, free_channel),
		cmocka_unit_test_setup_teardown(channel__forget_drops_queued, make_channel, free_channel),
		cmocka_unit_test_setup_teardown(channel__forget_waits_for_acks, make_channel, free_channel),
		cmocka_unit_test_setup_teardown(channel__blocking_get, make_channel, free_channel),
		cmocka_unit_test_setup_teardown(channel__busy_while_used, make_channel, free_channel),
		cmocka_unit_test_setup_teardown(async__in_order, make_context, free_context),
		cmocka_unit_test_setup_teardown(async__forget_drops_the_source_only, make_context,
						free_context),
		cmocka_unit_test_setup_teardown(async__forget_waits_for_acks, make_context, free_context),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
