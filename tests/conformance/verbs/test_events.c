/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion channels and asynchronous events. */
#include "world.h"

enum { EVENT_MS = 30000 };

/* A flushed receive: a completion without a peer. */
static void complete_one(struct world *w, struct ibv_qp *qp)
{
	assert_errno(0, post_recv(w, qp, 0));
	assert_int_equal(next_wc(w->cq).status, IBV_WC_WR_FLUSH_ERR);
}

static struct ibv_qp *failed_qp(struct world *w)
{
	struct ibv_qp *qp = make_qp(w, NULL);
	assert_errno(0, set_state(qp, IBV_QPS_ERR));
	return qp;
}

/* An event comes after its completion: another thread may have made the completion, and not yet the event. */
static bool has_event(const struct world *w)
{
	return is_readable(w->channel->fd, EVENT_MS);
}

static void take_event(struct world *w, struct ibv_cq *expected)
{
	struct ibv_cq *cq;
	void *context;
	assert_int_equal(ibv_get_cq_event(w->channel, &cq, &context), 0);
	assert_ptr_equal(cq, expected);
	assert_ptr_equal(context, cq->cq_context);
	ibv_ack_cq_events(cq, 1);
}

/* ---- arming ---- */

static void arm__one_event_per_arming(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = failed_qp(w);
	complete_one(w, qp);
	assert_false(is_readable(w->channel->fd, 0));
	assert_errno(0, ibv_req_notify_cq(w->cq, 0));
	assert_false(is_readable(w->channel->fd, 0));
	complete_one(w, qp);
	complete_one(w, qp);
	assert_true(has_event(w));
	take_event(w, w->cq);
	assert_false(is_readable(w->channel->fd, 0));
	assert_errno(0, ibv_destroy_qp(qp));
}

/*
 * What came before the arming gives an event if it is there when the program waits, and none if it was
 * polled.
 */
static void arm__old_completions_count_until_they_are_polled(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = failed_qp(w);
	struct ibv_cq *cq;
	void *context;
	set_nonblocking(w->channel->fd);
	for (int i = 0; i < 2; i++)
		assert_errno(0, post_recv(w, qp, 0));
	for (int i = 0; i < 2; i++) {
		assert_errno(0, ibv_req_notify_cq(w->cq, 0));
		take_event(w, w->cq);
		drain(w->cq, 1);
	}
	assert_errno(0, ibv_req_notify_cq(w->cq, 0));
	assert_minus1_errno(EAGAIN, ibv_get_cq_event(w->channel, &cq, &context));
	assert_errno(0, ibv_destroy_qp(qp));
}

/* Others than those that the last event was for, in the same places. */
static void arm__old_completions_in_others_places(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = failed_qp(w), *gone = failed_qp(w);
	set_nonblocking(w->channel->fd);
	assert_errno(0, post_recv(w, qp, 0));
	assert_errno(0, ibv_req_notify_cq(w->cq, 0));
	take_event(w, w->cq);
	drain(w->cq, 1);
	assert_errno(0, post_recv(w, qp, 0));
	assert_errno(0, ibv_resize_cq(w->cq, 128));
	assert_errno(0, ibv_req_notify_cq(w->cq, 0));
	take_event(w, w->cq);
	drain(w->cq, 1);
	assert_errno(0, post_recv(w, gone, 0));
	assert_errno(0, ibv_req_notify_cq(w->cq, 0));
	take_event(w, w->cq);
	assert_errno(0, ibv_destroy_qp(gone)); /* takes its completion with it */
	assert_errno(0, post_recv(w, qp, 0));
	assert_errno(0, ibv_req_notify_cq(w->cq, 0));
	take_event(w, w->cq);
	drain(w->cq, 1);
	assert_errno(0, ibv_destroy_qp(qp));
}

static void arm__solicited_only(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	for (int i = 0; i < 2; i++)
		assert_errno(0, post_recv(w, x.b, 0));
	assert_errno(0, ibv_req_notify_cq(w->cq, 1));
	assert_errno(0, post_send(w, x.a, 0, 0));
	drain(w->cq, 2);
	assert_false(is_readable(w->channel->fd, 0));
	assert_errno(0, post_send(w, x.a, 0, IBV_SEND_SOLICITED));
	drain(w->cq, 2);
	assert_true(has_event(w));
	take_event(w, w->cq);
	disconnected(&x);
}

/* An error is an event for those who wait for solicited completions, too. */
static void arm__solicited_only_and_errors(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = failed_qp(w);
	assert_errno(0, ibv_req_notify_cq(w->cq, 1));
	complete_one(w, qp);
	assert_true(has_event(w));
	take_event(w, w->cq);
	assert_errno(0, ibv_destroy_qp(qp));
}

static void arm__any_outweighs_solicited(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	assert_errno(0, post_recv(w, x.b, 0));
	assert_errno(0, ibv_req_notify_cq(w->cq, 0));
	assert_errno(0, ibv_req_notify_cq(w->cq, 1));
	assert_errno(0, post_send(w, x.a, 0, 0));
	drain(w->cq, 2);
	take_event(w, w->cq);
	disconnected(&x);
}

static void arm__without_channel(void **state)
{
	struct world *w = *state;
	struct ibv_cq *cq = ibv_create_cq(w->ctx, 4, NULL, NULL, 0);
	assert_errno(0, ibv_req_notify_cq(cq, 0));
	assert_errno(0, ibv_destroy_cq(cq));
}

/* ---- waiting ---- */

static void get__nonblocking(void **state)
{
	struct world *w = *state;
	struct ibv_cq *cq;
	void *context;
	set_nonblocking(w->channel->fd);
	assert_minus1_errno(EAGAIN, ibv_get_cq_event(w->channel, &cq, &context));
	struct ibv_qp *qp = failed_qp(w);
	assert_errno(0, ibv_req_notify_cq(w->cq, 0));
	complete_one(w, qp);
	take_event(w, w->cq);
	assert_minus1_errno(EAGAIN, ibv_get_cq_event(w->channel, &cq, &context));
	assert_errno(0, ibv_destroy_qp(qp));
}

static void get_first(void *arg)
{
	struct world *w = arg;
	struct ibv_cq *cq;
	void *context;
	if (ibv_get_cq_event(w->channel, &cq, &context) || cq != w->cq)
		abort();
	ibv_ack_cq_events(cq, 1);
}

/* Data comes while everybody sleeps: the progress thread alone is there. */
static void get__blocks_until_data_arrives(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	struct waiting get = { .call = get_first, .arg = w };
	assert_errno(0, post_recv(w, x.b, 0));
	assert_errno(0, ibv_req_notify_cq(w->cq, 0));
	start_waiting(&get);
	assert_errno(0, post_send(w, x.a, 0, 0));
	end_waiting(&get);
	drain(w->cq, 2);
	disconnected(&x);
}

static void get__several_queues(void **state)
{
	struct world *w = *state;
	struct ibv_cq *other = ibv_create_cq(w->ctx, 8, NULL, w->channel, 0), *cq;
	struct ibv_qp_init_attr attr = qp_attr(w);
	attr.recv_cq = other;
	struct ibv_qp *qp = ibv_create_qp(w->pd, &attr), *first = failed_qp(w);
	void *context;
	assert_errno(0, set_state(qp, IBV_QPS_ERR));
	assert_errno(0, ibv_req_notify_cq(w->cq, 0));
	assert_errno(0, ibv_req_notify_cq(other, 0));
	assert_errno(0, post_recv(w, qp, 0));
	assert_errno(0, post_recv(w, first, 0));
	assert_int_equal(ibv_get_cq_event(w->channel, &cq, &context), 0);
	assert_ptr_equal(cq, other);
	assert_null(context);
	ibv_ack_cq_events(cq, 1);
	take_event(w, w->cq);
	drain(w->cq, 1);
	drain(other, 1);
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_qp(first));
	assert_errno(0, ibv_destroy_cq(other));
}

/* ---- acknowledging ---- */

static void destroy_the_cq(void *arg)
{
	if (ibv_destroy_cq(arg))
		abort();
}

static void ack__destroy_waits(void **state)
{
	struct world *w = *state;
	struct ibv_cq *cq = ibv_create_cq(w->ctx, 8, NULL, w->channel, 0), *got;
	struct ibv_qp_init_attr attr = qp_attr(w);
	struct waiting destroy = { .call = destroy_the_cq, .arg = cq };
	void *context;
	attr.recv_cq = cq;
	struct ibv_qp *qp = ibv_create_qp(w->pd, &attr);
	assert_errno(0, set_state(qp, IBV_QPS_ERR));
	for (int i = 0; i < 2; i++) {
		assert_errno(0, ibv_req_notify_cq(cq, 0));
		assert_errno(0, post_recv(w, qp, 0));
		assert_int_equal(ibv_get_cq_event(w->channel, &got, &context), 0);
	}
	assert_errno(0, ibv_destroy_qp(qp));
	ibv_ack_cq_events(cq, 1);
	start_waiting(&destroy);
	ibv_ack_cq_events(cq, 1);
	end_waiting(&destroy);
}

static void ack__queued_events_go_with_the_queue(void **state)
{
	struct world *w = *state;
	struct ibv_cq *cq = ibv_create_cq(w->ctx, 8, NULL, w->channel, 0);
	struct ibv_qp_init_attr attr = qp_attr(w);
	attr.recv_cq = cq;
	struct ibv_qp *qp = ibv_create_qp(w->pd, &attr);
	assert_errno(0, set_state(qp, IBV_QPS_ERR));
	assert_errno(0, ibv_req_notify_cq(cq, 0));
	assert_errno(0, post_recv(w, qp, 0));
	assert_true(has_event(w));
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_cq(cq));
	assert_false(is_readable(w->channel->fd, 0));
}

/* ---- asynchronous events ---- */

static struct ibv_async_event next_async(struct world *w, enum ibv_event_type type)
{
	struct ibv_async_event event;
	assert_true(is_readable(w->ctx->async_fd, 10000));
	assert_int_equal(ibv_get_async_event(w->ctx, &event), 0);
	assert_int_equal(event.event_type, type);
	return event;
}

static void async__nonblocking(void **state)
{
	struct world *w = *state;
	struct ibv_async_event event;
	set_nonblocking(w->ctx->async_fd);
	assert_minus1_errno(EAGAIN, ibv_get_async_event(w->ctx, &event));
}

static void get_async(void *arg)
{
	struct world *w = arg;
	struct ibv_async_event event;
	if (ibv_get_async_event(w->ctx, &event) || event.event_type != IBV_EVENT_SQ_DRAINED)
		abort();
	ibv_ack_async_event(&event);
}

static void async__sq_drained(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	struct waiting get = { .call = get_async, .arg = w };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	start_waiting(&get);
	assert_errno(0, ibv_modify_qp(x.a, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	end_waiting(&get);
	disconnected(&x);
}

static void destroy_the_qp(void *arg)
{
	if (ibv_destroy_qp(arg))
		abort();
}

static void async__destroy_waits_for_ack(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	struct waiting destroy = { .call = destroy_the_qp, .arg = x.a };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	assert_errno(0, ibv_modify_qp(x.a, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	struct ibv_async_event event = next_async(w, IBV_EVENT_SQ_DRAINED);
	assert_ptr_equal(event.element.qp, x.a);
	start_waiting(&destroy);
	ibv_ack_async_event(&event);
	end_waiting(&destroy);
	assert_errno(0, ibv_destroy_qp(x.b));
}

static void async__unread_event_goes_with_its_object(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	assert_errno(0, ibv_modify_qp(x.a, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	disconnected(&x);
	assert_false(is_readable(w->ctx->async_fd, 0));
}

static void async__srq_limit(void **state)
{
	struct world *w = *state;
	struct ibv_srq *srq = make_srq(w);
	struct wire x = connected(w, srq);
	struct ibv_srq_attr limit = { .srq_limit = 2 };
	for (int i = 0; i < 3; i++)
		assert_errno(0, post_srq(w, srq, 0));
	assert_errno(0, ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	assert_errno(0, post_send(w, x.a, 0, 0));
	drain(w->cq, 2);
	assert_false(is_readable(w->ctx->async_fd, 0)); /* two are left */
	assert_errno(0, post_send(w, x.a, 0, 0));
	drain(w->cq, 2);
	struct ibv_async_event event = next_async(w, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_ptr_equal(event.element.srq, srq);
	ibv_ack_async_event(&event);
	assert_errno(0, ibv_query_srq(srq, &limit));
	assert_int_equal(limit.srq_limit, 0);
	assert_errno(0, post_send(w, x.a, 0, 0));
	drain(w->cq, 2);
	assert_false(is_readable(w->ctx->async_fd, 0)); /* armed once, reported once */
	disconnected(&x);
	assert_errno(0, ibv_destroy_srq(srq));
}

static void async__last_wqe_of_a_qp_with_srq(void **state)
{
	struct world *w = *state;
	struct ibv_srq *srq = make_srq(w);
	struct wire x = connected(w, srq);
	assert_errno(0, set_state(x.a, IBV_QPS_ERR));
	struct ibv_async_event event = next_async(w, IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_ptr_equal(event.element.qp, x.a);
	ibv_ack_async_event(&event);
	disconnected(&x);
	assert_errno(0, ibv_destroy_srq(srq));
}

/* Four completions for a queue of fewer entries; of this queue pair. */
static struct ibv_qp *overrun(struct world *w, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = qp_attr(w);
	attr.recv_cq = cq;
	struct ibv_qp *qp = ibv_create_qp(w->pd, &attr);
	bring_to(w, qp, IBV_QPS_INIT, 0);
	for (uint64_t i = 0; i < 4; i++)
		assert_errno(0, post_recv(w, qp, i));
	assert_errno(0, set_state(qp, IBV_QPS_ERR));
	return qp;
}

/* A queue with fewer entries than completions: it breaks, says so once, and gives what it had. */
static void async__cq_overrun(void **state)
{
	struct world *w = *state;
	struct ibv_cq *cq = ibv_create_cq(w->ctx, 2, NULL, NULL, 0);
	struct ibv_wc wc[8];
	struct ibv_qp *qp = overrun(w, cq);
	struct ibv_async_event event = next_async(w, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(event.element.cq, cq);
	ibv_ack_async_event(&event);
	assert_false(is_readable(w->ctx->async_fd, 0));
	assert_int_equal(ibv_poll_cq(cq, 8, wc), 2);
	assert_int_equal(wc[0].wr_id, 0);
	assert_int_equal(wc[1].wr_id, 1);
	assert_true(ibv_poll_cq(cq, 8, wc) < 0);
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_cq(cq));
}

/* The program sees to it itself: the oldest completions make room, and nobody hears of it. */
static void cq__that_ignores_overruns(void **state)
{
	struct world *w = *state;
	struct ibv_cq_init_attr_ex attr = { .cqe = 2,
					    .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					    .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN };
	struct ibv_cq *cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(w->ctx, &attr));
	struct ibv_wc wc[8];
	struct ibv_qp *qp = overrun(w, cq);
	assert_false(is_readable(w->ctx->async_fd, 50));
	assert_int_equal(ibv_poll_cq(cq, 8, wc), 2);
	assert_int_equal(wc[0].wr_id, 2);
	assert_int_equal(wc[1].wr_id, 3);
	assert_int_equal(ibv_poll_cq(cq, 8, wc), 0);
	assert_errno(0, post_recv(w, qp, 9)); /* the places of those that nobody saw are free again */
	assert_int_equal(next_wc(cq).wr_id, 9);
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_cq(cq));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(arm__one_event_per_arming),
		WORLD_TEST(arm__old_completions_count_until_they_are_polled),
		WORLD_TEST(arm__old_completions_in_others_places),
		WORLD_TEST(arm__solicited_only),
		WORLD_TEST(arm__solicited_only_and_errors),
		WORLD_TEST(arm__any_outweighs_solicited),
		WORLD_TEST(arm__without_channel),
		WORLD_TEST(get__nonblocking),
		WORLD_TEST(get__blocks_until_data_arrives),
		WORLD_TEST(get__several_queues),
		WORLD_TEST(ack__destroy_waits),
		WORLD_TEST(ack__queued_events_go_with_the_queue),
		WORLD_TEST(async__nonblocking),
		WORLD_TEST(async__sq_drained),
		WORLD_TEST(async__destroy_waits_for_ack),
		WORLD_TEST(async__unread_event_goes_with_its_object),
		WORLD_TEST(async__srq_limit),
		WORLD_TEST(async__last_wqe_of_a_qp_with_srq),
		WORLD_TEST(async__cq_overrun),
		WORLD_TEST(cq__that_ignores_overruns),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
