/* SPDX-License-Identifier: BSD-2-Clause */
/* Unreliable connections over the wire. The adapter is whole, the host below it a fake (tests/fuzz). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "proto/rc/request.h"
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

/* ---- a shared receive queue ---- */

enum { SHORT = 16 };

static struct {
	struct vb_srq srq;
	struct vb_cq cq;
	struct rig_qp qps[2];
} s;

static void start_sharing(void)
{
	struct ibv_srq_attr attr = { .max_wr = 8, .max_sge = 1 };

	memset(&s, 0, sizeof(s));
	assert_int_equal(vb_srq_init(&s.srq, &rig.pd, &attr), 0);
	assert_int_equal(vb_cq_init(&s.cq, &rig.ctx, NULL, NULL, 8), 0);
	for (unsigned i = 0; i < 2; i++) {
		struct vb_qp_init_attr init = { .type = IBV_QPT_UC, .send_cq = &s.cq, .recv_cq = &s.cq,
						.srq = &s.srq,
						.cap = { .max_send_wr = 1, .max_send_sge = 1 } };
		assert_int_equal(vb_qp_init(&s.qps[i].qp, &rig.pd, &init), 0);
		assert_int_equal(rig_connect(&s.qps[i], PEER, PEER_QPN + 1 + i, 0), 0);
	}
}

static void end_sharing(void)
{
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(vb_qp_fini(&s.qps[i].qp), 0);
	assert_int_equal(vb_cq_fini(&s.cq), 0);
	assert_int_equal(vb_srq_fini(&s.srq), 0);
}

static void post_shared(uint64_t id, uint32_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)rig_at(OPEN), bytes, rig.mrs[OPEN].key };
	struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	assert_int_equal(vb_srq_post_recv(&s.srq, &wr, &bad), 0);
}

/* A packet with `bytes` of payload; a WRITE writes nowhere. */
static void comes(unsigned to, uint8_t opcode_bits, uint32_t n, uint32_t bytes)
{
	uint8_t packet[VB_MAX_HEADER_BYTES + MTU];
	size_t header = peer_packet(packet, s.qps[to].qp.qpn,
				    (uint8_t)(VB_SERVICE_UC << VB_OPCODE_BITS | opcode_bits),
				    PEER_FIRST_PSN + n);

	peer_sends(packet, header + bytes);
}

static void assert_received(unsigned by, uint64_t id, enum ibv_wc_status status)
{
	struct vb_cqe c;

	assert_int_equal(vb_cq_poll(&s.cq, 1, &c), 1);
	assert_true(c.is_recv && c.qp == &s.qps[by].qp);
	assert_int_equal(c.wr_id, id);
	assert_int_equal(c.status, status);
	assert_int_equal(atomic_load(&s.qps[by].qp.state), IBV_QPS_RTS);
}

static void assert_nothing_received(void)
{
	struct vb_cqe c;

	assert_int_equal(vb_cq_poll(&s.cq, 1, &c), 0);
}

/* Nothing but WRITEs follows on that connection: the program hears of the receive nevertheless. */
static void shared_receive__of_a_message_that_was_lost(void **state)
{
	start_sharing();
	post_shared(1, 2 * MTU);
	comes(0, VB_OPB_SEND_FIRST, 0, MTU);
	assert_nothing_received();
	comes(0, VB_OPB_WRITE_ONLY, 2, 0);
	assert_received(0, 1, IBV_WC_REM_INV_REQ_ERR);
	post_shared(2, MTU);
	comes(1, VB_OPB_SEND_ONLY, 0, SHORT);
	assert_received(1, 2, IBV_WC_SUCCESS);
	post_shared(3, MTU);
	comes(0, VB_OPB_SEND_ONLY, 3, SHORT);
	assert_received(0, 3, IBV_WC_SUCCESS);
	assert_nothing_received();
	end_sharing();
}

static void shared_receive__the_next_message_takes_another(void **state)
{
	start_sharing();
	post_shared(1, MTU);
	post_shared(2, MTU);
	comes(0, VB_OPB_SEND_FIRST, 0, MTU);
	comes(0, VB_OPB_SEND_ONLY, 1, SHORT);
	assert_received(0, 1, IBV_WC_REM_INV_REQ_ERR);
	assert_received(0, 2, IBV_WC_SUCCESS);
	assert_nothing_received();
	end_sharing();
}

static void shared_receive__too_short(void **state)
{
	start_sharing();
	post_shared(1, SHORT);
	comes(0, VB_OPB_SEND_ONLY, 0, SHORT + 4);
	assert_received(0, 1, IBV_WC_LOC_LEN_ERR);
	assert_nothing_received();
	end_sharing();
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(sqd__a_message_that_has_begun_ends),
		TEST(reset__amid_a_message),
		TEST(shared_receive__of_a_message_that_was_lost),
		TEST(shared_receive__the_next_message_takes_another),
		TEST(shared_receive__too_short),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
