/* SPDX-License-Identifier: BSD-2-Clause */
/* What ibv_post_send, ibv_post_recv and ibv_post_srq_recv take and refuse. */
#include "world.h"

/* A list of count receives; the wr_ids count from 0. */
static void chain(struct ibv_recv_wr *wr, int count, struct ibv_sge *sge)
{
	for (int i = 0; i < count; i++)
		wr[i] = (struct ibv_recv_wr){ .wr_id = (uint64_t)i,
					      .next = i + 1 < count ? &wr[i + 1] : NULL,
					      .sg_list = sge,
					      .num_sge = 1 };
}

static void recv__states(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = make_qp(w, NULL);
	assert_errno(EINVAL, post_recv(w, qp, 0));
	for (enum ibv_qp_state s = IBV_QPS_INIT; s <= IBV_QPS_RTS; s++) {
		assert_errno(0, step(w, qp, s, qp->qp_num));
		assert_errno(0, post_recv(w, qp, s));
	}
	assert_errno(0, set_state(qp, IBV_QPS_ERR));
	assert_errno(0, post_recv(w, qp, IBV_QPS_ERR));
	const enum ibv_qp_state flushed[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_ERR };
	for (size_t i = 0; i < COUNT(flushed); i++) {
		struct ibv_wc wc = next_wc(w->cq);
		assert_int_equal(wc.wr_id, flushed[i]);
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(wc.qp_num, qp->qp_num);
	}
	assert_errno(0, ibv_destroy_qp(qp));
}

static void recv__stops_at_the_first_bad(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = make_qp(w, NULL);
	struct ibv_sge sge = sge_at(w, 0, 8);
	struct ibv_recv_wr wr[5], *bad = NULL;
	bring_to(w, qp, IBV_QPS_INIT, 0);
	chain(wr, 5, &sge);
	wr[2].num_sge = SGES + 1;
	assert_errno(EINVAL, ibv_post_recv(qp, wr, &bad));
	assert_ptr_equal(bad, &wr[2]);
	assert_errno(0, set_state(qp, IBV_QPS_ERR));
	assert_int_equal(next_wc(w->cq).wr_id, 0);
	assert_int_equal(next_wc(w->cq).wr_id, 1);
	struct ibv_wc wc;
	assert_int_equal(ibv_poll_cq(w->cq, 1, &wc), 0);
	assert_errno(0, ibv_destroy_qp(qp));
}

static void recv__queue_full(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = make_qp(w, NULL);
	struct ibv_sge sge = sge_at(w, 0, 8);
	struct ibv_recv_wr wr[DEPTH + 2], *bad = NULL;
	bring_to(w, qp, IBV_QPS_INIT, 0);
	chain(wr, DEPTH + 2, &sge);
	assert_errno(ENOMEM, ibv_post_recv(qp, wr, &bad));
	assert_ptr_equal(bad, &wr[DEPTH]);
	assert_errno(ENOMEM, ibv_post_recv(qp, bad, &bad));
	assert_errno(0, ibv_destroy_qp(qp));
}

static void recv__negative_num_sge(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = make_qp(w, NULL);
	struct ibv_recv_wr wr = { .num_sge = -1 }, *bad;
	bring_to(w, qp, IBV_QPS_INIT, 0);
	assert_errno(EINVAL, ibv_post_recv(qp, &wr, &bad));
	assert_errno(0, ibv_destroy_qp(qp));
}

static void recv__qp_with_srq(void **state)
{
	struct world *w = *state;
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(w->pd, &init);
	struct ibv_qp *qp = make_qp(w, srq);
	struct ibv_sge sge = sge_at(w, 0, 8);
	struct ibv_recv_wr wr, *bad = NULL;
	bring_to(w, qp, IBV_QPS_INIT, 0);
	chain(&wr, 1, &sge);
	assert_errno(EINVAL, ibv_post_recv(qp, &wr, &bad));
	assert_ptr_equal(bad, &wr);
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_srq(srq));
}

static void srq__full_and_bad(void **state)
{
	struct world *w = *state;
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(w->pd, &init);
	struct ibv_sge sge[2] = { sge_at(w, 0, 8), sge_at(w, 8, 8) };
	struct ibv_recv_wr wr[6], *bad = NULL;
	chain(wr, 6, sge);
	wr[1].num_sge = 2;
	assert_errno(EINVAL, ibv_post_srq_recv(srq, wr, &bad));
	assert_ptr_equal(bad, &wr[1]);
	wr[1].num_sge = 1;
	assert_errno(ENOMEM, ibv_post_srq_recv(srq, wr + 1, &bad));
	assert_ptr_equal(bad, &wr[4]);
	assert_errno(0, ibv_destroy_srq(srq));
}

static void send__states(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = make_qp(w, NULL);
	assert_errno(EINVAL, post_send(w, qp, 0, 0));
	assert_errno(0, step(w, qp, IBV_QPS_INIT, 0));
	assert_errno(EINVAL, post_send(w, qp, 0, 0));
	assert_errno(0, step(w, qp, IBV_QPS_RTR, qp->qp_num));
	assert_errno(EINVAL, post_send(w, qp, 0, 0));
	assert_errno(0, step(w, qp, IBV_QPS_RTS, 0));
	assert_errno(0, set_state(qp, IBV_QPS_SQD));
	assert_errno(0, post_send(w, qp, 7, 0)); /* waits there */
	assert_errno(0, set_state(qp, IBV_QPS_ERR));
	assert_errno(0, post_send(w, qp, 8, 0));
	for (uint64_t id = 7; id <= 8; id++) {
		struct ibv_wc wc = next_wc(w->cq);
		assert_int_equal(wc.wr_id, id);
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	}
	assert_errno(0, ibv_destroy_qp(qp));
}

/* What is refused is in no queue: nothing of it happens later. */
static void send__refused_leaves_nothing(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = make_qp(w, NULL);
	struct ibv_wc wc;
	assert_errno(0, step(w, qp, IBV_QPS_INIT, 0));
	assert_errno(EINVAL, post_send(w, qp, 1, IBV_SEND_SIGNALED));
	assert_errno(0, set_state(qp, IBV_QPS_ERR));
	assert_int_equal(ibv_poll_cq(w->cq, 1, &wc), 0);
	assert_errno(0, ibv_destroy_qp(qp));
}

static void send__bad_requests(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	struct ibv_sge sge[SGES + 1] = { sge_at(w, 0, INLINE + 1) };
	const struct {
		int err;
		struct ibv_send_wr wr;
	} requests[] = {
		{ EINVAL, { .opcode = IBV_WR_SEND, .num_sge = SGES + 1 } },
		{ EINVAL, { .opcode = IBV_WR_SEND, .num_sge = -1 } },
		{ EINVAL, { .opcode = IBV_WR_TSO } },
		{ EINVAL, { .opcode = 100 } },
		{ EINVAL, { .opcode = -1 } },
		{ EINVAL, { .opcode = IBV_WR_SEND, .send_flags = 1 << 12 } },
		{ EINVAL, { .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_INLINE } },
		{ ENOMEM, { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE, .num_sge = 1 } },
	};
	for (size_t i = 0; i < COUNT(requests); i++) {
		struct ibv_send_wr wr = requests[i].wr, *bad = NULL;
		wr.sg_list = sge;
		int err = ibv_post_send(x.a, &wr, &bad);
		if (!err || (requests[i].err == EINVAL && err != EINVAL))
			fail_msg("request %zu: %d", i, err);
		assert_ptr_equal(bad, &wr);
	}
	assert_int_equal(state_of(x.a), IBV_QPS_RTS);
	disconnected(&x);
}

static void send__stops_at_the_first_bad(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	struct ibv_sge sge = sge_at(w, 0, 8);
	struct ibv_send_wr wr[3], *bad = NULL;
	for (int i = 0; i < 3; i++) {
		wr[i] = (struct ibv_send_wr){ .wr_id = (uint64_t)i,
					      .next = i < 2 ? &wr[i + 1] : NULL,
					      .sg_list = &sge,
					      .num_sge = 1,
					      .opcode = IBV_WR_SEND };
		assert_errno(0, post_recv(w, x.b, 100 + (uint64_t)i));
	}
	wr[1].opcode = 100;
	assert_errno(EINVAL, ibv_post_send(x.a, wr, &bad));
	assert_ptr_equal(bad, &wr[1]);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = next_wc(w->cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, wc.opcode & IBV_WC_RECV ? 100 : 0);
	}
	struct ibv_wc wc;
	assert_int_equal(ibv_poll_cq(w->cq, 1, &wc), 0);
	disconnected(&x);
}

/* No receive is there, so nothing completes: the queue fills, and it empties as completions are polled. */
static void send__queue_full(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	for (uint64_t i = 0; i < DEPTH; i++)
		assert_errno(0, post_send(w, x.a, i, 0));
	assert_errno(ENOMEM, post_send(w, x.a, 99, 0));
	assert_errno(0, set_state(x.a, IBV_QPS_ERR));
	for (uint64_t i = 0; i < DEPTH; i++)
		assert_int_equal(next_wc(w->cq).wr_id, i);
	assert_errno(0, post_send(w, x.a, 100, 0));
	assert_int_equal(next_wc(w->cq).wr_id, 100);
	disconnected(&x);
}

static void send__inline_is_copied_at_once(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	uint8_t mine[INLINE];
	struct ibv_sge sge[2] = { { .addr = (uintptr_t)mine, .length = 20 },
				  { .addr = (uintptr_t)mine + 20, .length = INLINE - 20 } };
	struct ibv_send_wr wr = { .sg_list = sge,
				  .num_sge = 2,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_INLINE },
			   *bad;
	for (int i = 0; i < INLINE; i++)
		mine[i] = (uint8_t)i;
	assert_errno(0, ibv_post_send(x.a, &wr, &bad));
	memset(mine, 0xff, sizeof(mine));
	assert_errno(0, post_recv(w, x.b, 1));
	drain(w->cq, 2);
	for (int i = 0; i < INLINE; i++)
		assert_int_equal(w->buffer[i], i);
	disconnected(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(recv__states),
		WORLD_TEST(recv__stops_at_the_first_bad),
		WORLD_TEST(recv__queue_full),
		WORLD_TEST(recv__negative_num_sge),
		WORLD_TEST(recv__qp_with_srq),
		WORLD_TEST(srq__full_and_bad),
		WORLD_TEST(send__states),
		WORLD_TEST(send__refused_leaves_nothing),
		WORLD_TEST(send__bad_requests),
		WORLD_TEST(send__stops_at_the_first_bad),
		WORLD_TEST(send__queue_full),
		WORLD_TEST(send__inline_is_copied_at_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
