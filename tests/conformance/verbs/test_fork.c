/* SPDX-License-Identifier: BSD-2-Clause */
/* fork: the parent goes on, what the child inherited is dead there, and the child may open the device anew. */
#include "world.h"

/* In the child, in place of cmocka's assertions. */
#define CHECK(condition)                                                                  \
	do {                                                                              \
		if (!(condition)) {                                                       \
			fprintf(stderr, "child: line %d: %s\n", __LINE__, #condition);     \
			_exit(1);                                                         \
		}                                                                         \
	} while (0)

/* The child starts threads; ThreadSanitizer ends it unless told otherwise. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

static void in_child(void (*body)(struct world *w, struct wire *x), struct world *w, struct wire *x)
{
	pid_t pid = fork();
	int status;
	assert_true(pid >= 0);
	if (!pid) {
		alarm(30);
		body(w, x);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void exchange(struct world *w, struct wire *x)
{
	assert_errno(0, post_recv(w, x->b, 1));
	assert_errno(0, post_send(w, x->a, 2, 0));
	for (int i = 0; i < 2; i++)
		assert_int_equal(next_wc(w->cq).status, IBV_WC_SUCCESS);
}

static void everything_fails(struct world *w, struct wire *x)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;
	struct ibv_async_event event;
	struct ibv_qp_init_attr init = qp_attr(w);
	struct ibv_qp_attr attr;
	CHECK(post_send(w, x->a, 1, 0) == EIO);
	CHECK(post_recv(w, x->a, 1) == EIO);
	CHECK(ibv_poll_cq(w->cq, 1, &wc) < 0);
	CHECK(ibv_req_notify_cq(w->cq, 0) == EIO);
	CHECK(ibv_get_cq_event(w->channel, &cq, &context) == -1 && errno == EIO);
	CHECK(ibv_get_async_event(w->ctx, &event) == -1 && errno == EIO);
	CHECK(!ibv_alloc_pd(w->ctx) && errno == EIO);
	CHECK(!ibv_reg_mr(w->pd, w->buffer, 8, 0) && errno == EIO);
	CHECK(!ibv_create_cq(w->ctx, 1, NULL, NULL, 0) && errno == EIO);
	CHECK(!ibv_create_comp_channel(w->ctx) && errno == EIO);
	CHECK(!ibv_create_qp(w->pd, &init) && errno == EIO);
	CHECK(set_state(x->a, IBV_QPS_ERR) == EIO);
	CHECK(ibv_query_qp(x->a, &attr, IBV_QP_STATE, &init) == EIO);
	CHECK(ibv_resize_cq(w->cq, 5) == EIO);
}

static void parent__goes_on(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	exchange(w, &x);
	in_child(everything_fails, w, &x);
	exchange(w, &x);
	disconnected(&x);
}

static void destroy_all(struct world *w, struct wire *x)
{
	CHECK(ibv_destroy_qp(x->a) == 0);
	CHECK(ibv_destroy_qp(x->b) == 0);
	CHECK(ibv_dereg_mr(w->mr) == 0);
	CHECK(ibv_destroy_cq(w->cq) == 0);
	CHECK(ibv_destroy_comp_channel(w->channel) == 0);
	CHECK(ibv_dealloc_pd(w->pd) == 0);
	CHECK(ibv_close_device(w->ctx) == 0);
}

static void child__destroys_what_it_inherited(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	in_child(destroy_all, w, &x);
	exchange(w, &x);
	disconnected(&x);
}

static void work_on_own_device(struct world *w, struct wire *x)
{
	void *own;
	destroy_all(w, x);
	CHECK(make_world(&own) == 0);
	struct wire y = connected(own, NULL);
	CHECK(post_recv(own, y.b, 1) == 0);
	CHECK(post_send(own, y.a, 2, 0) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(next_wc(((struct world *)own)->cq).status == IBV_WC_SUCCESS);
	disconnected(&y);
	CHECK(end_world(&own) == 0);
}

static void child__opens_its_own(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	in_child(work_on_own_device, w, &x);
	exchange(w, &x);
	in_child(work_on_own_device, w, &x);
	exchange(w, &x);
	disconnected(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(parent__goes_on),
		WORLD_TEST(child__destroys_what_it_inherited),
		WORLD_TEST(child__opens_its_own),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
