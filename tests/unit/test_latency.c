/* SPDX-License-Identifier: BSD-2-Clause */
/* How long sends took, told by the events and packets of a capture; and histograms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <infiniband/verbs.h>

#include "command.h"
#include "latency.h"
#include "wire/opcode.h"

enum { QPN = 7, SEND_ONLY = 4, SEND_MIDDLE = 1, WRITE_ONLY = 10, ACK = 17 };

int complain(const char *fmt, ...) { abort(); }

/* ---- histograms ---- */

static void histogram__knows_each_value_to_1_in_64(void **state)
{
	for (uint64_t v = 0; v < UINT64_C(1) << 62; v += v / 3 + 1) {
		struct histogram *h = calloc(1, sizeof(*h));
		histogram_add(h, v);
		histogram_add(h, UINT64_MAX);
		uint64_t found = histogram_percentile(h, 500);
		assert_true(found >= v && found - v <= v / 64);
		assert_true(histogram_percentile(h, 1000) == UINT64_MAX);
		free(h);
	}
}

static void histogram__percentiles_count(void **state)
{
	struct histogram *h = calloc(1, sizeof(*h));
	assert_int_equal(histogram_percentile(h, 500), 0);
	for (uint64_t v = 1; v <= 100; v++)
		histogram_add(h, v);
	assert_int_equal(histogram_percentile(h, 1), 1);
	assert_int_equal(histogram_percentile(h, 500), 50);
	assert_int_equal(histogram_percentile(h, 990), 99);
	assert_int_equal(histogram_percentile(h, 999), 100);
	assert_int_equal(histogram_percentile(h, 1000), 100);
	free(h);
}

/* ---- latencies ---- */

static struct latency l;

static int begin(void **state)
{
	l = (struct latency){ .count = 0 };
	latency_begin(&l, 0, "program[1]");
	return 0;
}

static int end(void **state)
{
	latency_free(&l);
	return 0;
}

static void post_flagged(uint64_t at, uint64_t wr_id, unsigned opcode, uint32_t bytes, uint32_t flags)
{
	struct vb_capture_event e = { .event = VB_EVENT_POST_SEND, .qpn = QPN, .time_ns = at, .wr_id = wr_id,
				      .opcode = opcode, .bytes = bytes, .flags = flags };
	latency_event(&l, 0, &e);
}

static void post(uint64_t at, uint64_t wr_id, unsigned opcode, uint32_t bytes)
{
	post_flagged(at, wr_id, opcode, bytes, IBV_SEND_SIGNALED);
}

static void tell(enum vb_capture_event_kind what, uint64_t at, uint64_t wr_id, uint32_t status)
{
	latency_event(&l, 0, &(struct vb_capture_event){ .event = what, .qpn = QPN, .time_ns = at,
							 .wr_id = wr_id, .status = status });
}

static void packet(uint64_t at, uint8_t opcode, uint32_t psn)
{
	uint8_t bth[VB_BTH_BYTES] = { opcode, [9] = (uint8_t)(psn >> 16), (uint8_t)(psn >> 8), (uint8_t)psn };
	struct vb_capture_packet p = { .time_ns = at, .len = 100, .kept = sizeof(bth), .qpn = QPN,
				       .flags = VB_CAPTURE_OUT };
	latency_packet(&l, 0, &p, bth);
}

static const struct latency_group *group(unsigned i)
{
	assert_true(i < l.processes[0]->group_count);
	return l.processes[0]->groups[i];
}

static void send__is_in_three_pieces(void **state)
{
	post(1000, 5, IBV_WR_SEND, 8);
	packet(1010, SEND_ONLY, 3);
	packet(1015, ACK, 9);
	tell(VB_EVENT_COMPLETION, 1100, 5, IBV_WC_SUCCESS);
	tell(VB_EVENT_POLL, 1500, 5, IBV_WC_SUCCESS);
	latency_end(&l, 0, 3);
	const struct latency_group *g = group(0);
	assert_int_equal(g->histogram.count, 1);
	assert_int_equal(g->histogram.max, 100);
	assert_int_equal(g->sums_ns[LATENCY_QUEUE], 10);
	assert_int_equal(g->sums_ns[LATENCY_UNDER_WAY], 90);
	assert_int_equal(g->sums_ns[LATENCY_UNPOLLED], 400);
	assert_int_equal(l.processes[0]->lost, 3);
}

static void groups__are_of_operation_and_size(void **state)
{
	static const uint32_t sizes[] = { 4096, 1, 64, 65, 128, 4000 };
	for (unsigned i = 0; i < 6; i++) {
		post(i, i, IBV_WR_SEND, sizes[i]);
		post(i, 10 + i, IBV_WR_RDMA_WRITE, 8);
	}
	for (unsigned i = 0; i < 6; i++) {
		tell(VB_EVENT_COMPLETION, 100, i, 0);
		tell(VB_EVENT_COMPLETION, 100, 10 + i, 0);
	}
	latency_end(&l, 0, 0);
	assert_int_equal(l.processes[0]->group_count, 4);
	assert_int_equal(group(0)->opcode, IBV_WR_RDMA_WRITE);
	assert_int_equal(group(0)->histogram.count, 6);
	assert_int_equal(group(1)->least_bytes, 1);
	assert_int_equal(group(1)->most_bytes, 64);
	assert_int_equal(group(2)->least_bytes, 65);
	assert_int_equal(group(2)->most_bytes, 128);
	assert_int_equal(group(3)->least_bytes, 4000);
	assert_int_equal(group(3)->most_bytes, 4096);
}

/* A packet that is sent again, the rest of a message and local requests begin no request. */
static void packets__begin_requests_in_order(void **state)
{
	post(0, 1, IBV_WR_SEND, 8);
	post(0, 2, IBV_WR_LOCAL_INV, 0);
	post(0, 3, IBV_WR_RDMA_WRITE, 8);
	packet(10, SEND_ONLY, 0xffffff);
	packet(20, SEND_ONLY, 0xffffff);
	packet(30, SEND_MIDDLE, 0);
	packet(40, WRITE_ONLY, 1);
	for (unsigned wr = 1; wr <= 3; wr++)
		tell(VB_EVENT_COMPLETION, 100, wr, 0);
	latency_end(&l, 0, 0);
	assert_int_equal(group(0)->sums_ns[LATENCY_QUEUE], 40);
	assert_int_equal(group(1)->sums_ns[LATENCY_QUEUE], 10);
	assert_int_equal(group(2)->opcode, IBV_WR_LOCAL_INV);
	assert_int_equal(group(2)->sums_ns[LATENCY_QUEUE], 0);
}

static void unsignaled__do_not_count(void **state)
{
	for (unsigned i = 1; i <= 5; i++)
		post_flagged(i, i == 5, IBV_WR_SEND, 8, i == 5 ? IBV_SEND_SIGNALED : 0);
	tell(VB_EVENT_COMPLETION, 100, 1, 0);
	tell(VB_EVENT_POLL, 101, 1, 0);
	latency_end(&l, 0, 0);
	assert_int_equal(group(0)->histogram.count, 1);
	assert_int_equal(group(0)->histogram.max, 95);
}

/* As perftest posts them: all with one wr_id, the last of each four signaled. */
static void unsignaled__of_the_same_wr_id_take_no_completion(void **state)
{
	for (unsigned round = 0; round < 2; round++) {
		uint64_t at = 1000 * round;
		for (unsigned i = 0; i < 4; i++)
			post_flagged(at + 10 * i, 7, IBV_WR_SEND, 8, i == 3 ? IBV_SEND_SIGNALED : 0);
		tell(VB_EVENT_COMPLETION, at + 100, 7, IBV_WC_SUCCESS);
	}
	tell(VB_EVENT_POLL, 1200, 7, IBV_WC_SUCCESS);
	tell(VB_EVENT_POLL, 1300, 7, IBV_WC_SUCCESS);
	latency_end(&l, 0, 0);
	assert_int_equal(group(0)->histogram.count, 2);
	assert_int_equal(group(0)->histogram.max, 70);
	assert_int_equal(group(0)->sums_ns[LATENCY_UNPOLLED], 1100 + 200);
}

static void unsignaled__may_fail(void **state)
{
	post_flagged(0, 7, IBV_WR_SEND, 8, 0);
	post(1, 7, IBV_WR_SEND, 8);
	tell(VB_EVENT_COMPLETION, 100, 7, IBV_WC_RETRY_EXC_ERR);
	tell(VB_EVENT_COMPLETION, 100, 7, IBV_WC_WR_FLUSH_ERR);
	latency_end(&l, 0, 0);
	assert_int_equal(group(0)->failed, 2);
}

static void failures__are_counted_apart(void **state)
{
	post(0, 1, IBV_WR_SEND, 8);
	tell(VB_EVENT_COMPLETION, 100, 1, IBV_WC_RETRY_EXC_ERR);
	tell(VB_EVENT_POLL, 100, 1, IBV_WC_RETRY_EXC_ERR);
	latency_end(&l, 0, 0);
	assert_int_equal(group(0)->failed, 1);
	assert_int_equal(group(0)->histogram.count, 0);
}

/* As after a loss, or of a liar. */
static void nonsense__is_survived(void **state)
{
	tell(VB_EVENT_COMPLETION, 1, 1, 0);
	tell(VB_EVENT_POLL, 1, 1, 0);
	packet(1, SEND_ONLY, 1);
	for (unsigned i = 0; i < 200000; i++)
		post(i, 7, i % 2 ? IBV_WR_SEND : 300 + i, UINT32_MAX);
	for (unsigned i = 0; i < 200000; i++)
		post(200000 + i, 7, IBV_WR_SEND, UINT32_MAX);
	tell(99, 1, 1, 0);
	tell(VB_EVENT_POLL, 6, 7, 0);
	tell(VB_EVENT_COMPLETION, 5, 8, 0);
	tell(VB_EVENT_COMPLETION, 5, 7, 0);
	tell(VB_EVENT_POLL, 6, 7, 0);
	for (uint32_t qpn = 0; qpn < 100000; qpn++) {
		struct vb_capture_event e = { .event = VB_EVENT_POST_SEND, .qpn = qpn, .status = 1 };
		latency_event(&l, 0, &e);
	}
	latency_end(&l, 0, 0);
	assert_int_equal(l.processes[0]->group_count, 1);
	assert_int_equal(group(0)->histogram.max, 0);
	assert_true(l.processes[0]->qp_count <= 65536);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(histogram__knows_each_value_to_1_in_64),
		cmocka_unit_test(histogram__percentiles_count),
		cmocka_unit_test_setup_teardown(send__is_in_three_pieces, begin, end),
		cmocka_unit_test_setup_teardown(groups__are_of_operation_and_size, begin, end),
		cmocka_unit_test_setup_teardown(packets__begin_requests_in_order, begin, end),
		cmocka_unit_test_setup_teardown(unsignaled__do_not_count, begin, end),
		cmocka_unit_test_setup_teardown(unsignaled__of_the_same_wr_id_take_no_completion, begin, end),
		cmocka_unit_test_setup_teardown(unsignaled__may_fail, begin, end),
		cmocka_unit_test_setup_teardown(failures__are_counted_apart, begin, end),
		cmocka_unit_test_setup_teardown(nonsense__is_survived, begin, end),
	};
	return cmocka_run_group_tests_name("latency", tests, NULL, NULL);
}
