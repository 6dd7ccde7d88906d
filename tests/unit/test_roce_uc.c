/* SPDX-License-Identifier: BSD-2-Clause */
/* Unreliable connections over the wire. The adapter is whole, the host below it a fake (tests/fuzz). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rig.h"
#include "wire_peer.h"

enum { SLICE = 256 /* packets that leave in one go */, LONG = SLICE + 44, MTU = PEER_MTU };

static struct {
	struct rig_qp *q;
	struct vb_mr mr;
	uint8_t bytes[LONG * MTU];
} t;

static int begin(void **state)
{
	memset(&t, 0, sizeof(t));
	rig_set_up();
	assert_int_equal(vb_mr_init(&t.mr, &rig.pd, t.bytes, sizeof(t.bytes), (uintptr_t)t.bytes, 0), 0);
	t.q = rig_add_qp(IBV_QPT_UC);
	assert_int_equal(rig_connect(t.q, PEER, PEER_QPN, 0), 0);
	return 0;
}

static int end(void **state)
{
	fake_run();
	assert_int_equal(vb_mr_fini(&t.mr), 0);
	rig_tear_down();
	return 0;
}

/* ---- the drained state ---- */

static void post(uint32_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)t.bytes, bytes, t.mr.key };
	struct ibv_send_wr *bad,
		wr = { .wr_id = t.q->sends++, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

	assert_int_equal(vb_qp_post_send(&t.q->qp, &wr, &bad), 0);
}

static void drain(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };

	assert_int_equal(vb_qp_modify(&t.q->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
}

static bool is_draining(void)
{
	struct ibv_qp_attr attr;

	vb_qp_query(&t.q->qp, &attr);
	return attr.sq_draining;
}

/* The program hears that the queue is drained, once. */
static bool hears_of_it(void)
{
	struct vb_async_event *event;

	if (vb_async_get(&rig.ctx, &event))
		return false;
	assert_int_equal(event->type, IBV_EVENT_SQ_DRAINED);
	vb_async_ack(&rig.ctx, event->source);
	free(event);
	return true;
}

static void sqd__a_message_that_has_begun_ends(void **state)
{
	post(LONG * MTU);
	assert_int_equal(fake.sent_packets, SLICE);
	drain();
	assert_true(is_draining());
	assert_false(hears_of_it());
	fake_run();
	assert_int_equal(fake.sent_packets, LONG);
	assert_false(is_draining());
	assert_true(hears_of_it());
	post(4);
	rig_poll();
	assert_int_equal(t.q->sends_done, 1);
	assert_int_equal(fake.sent_packets, LONG);
	assert_int_equal(rig_move(t.q, IBV_QPS_RTS), 0);
	fake_run();
	assert_int_equal(fake.sent_packets, LONG + 1);
	rig_poll();
	assert_int_equal(t.q->sends_done, 2);
	assert_false(hears_of_it());
}

/* What begins in the next connection is another message. */
static void reset__amid_a_message(void **state)
{
	post(LONG * MTU);
	drain();
	assert_int_equal(rig_move(t.q, IBV_QPS_RESET), 0);
	assert_int_equal(rig_connect(t.q, PEER, PEER_QPN, 0), 0);
	post(4);
	assert_int_equal(fake.sent_packets, SLICE + 1);
	drain();
	assert_false(is_draining());
	assert_true(hears_of_it());
	rig_poll();
	assert_int_equal(t.q->sends_done, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(sqd__a_message_that_has_begun_ends),
		TEST(reset__amid_a_message),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
