/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A reliable connection over the wire, while it sends: another thread may get the processor in the middle of
 * that system call. It must not have to wait for a lock then, and what it does must not upset the order of
 * packets. The adapter is whole, the host below it a fake (tests/fuzz), whose sends call the test.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "adapter/device/device.h"
#include "adapter/progress/progress.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/tuned.h"
#include "rig.h"
#include "proto/rc/request.h"
#include "roce/rc.h"
#include "wire/icrc.h"
#include "wire/syndrome.h"
#include "wire_peer.h"

enum {
	FIRST_PSN = PEER_FIRST_PSN,
	MTU = PEER_MTU,
	MOST = 64
};

static struct {
	struct rig_qp *q;
	void (*meanwhile)(void); /* in the next send, once */
	bool is_sending;
	struct {
		uint8_t opcode;
		uint32_t psn;
	} packets[MOST];         /* that have left, in order */
	unsigned count;
} t;

/* ---- what leaves ---- */

static bool is_free(struct vb_lock *lock)
{
	bool got = vb_lock_try(lock);
	if (got)
		vb_unlock(lock);
	return got;
}

static void note_packet(const uint8_t *bytes)
{
	const struct vb_bth *bth = (const struct vb_bth *)bytes;
	assert_true(t.count < MOST);
	t.packets[t.count].opcode = (uint8_t)vb_bth_opcode(bth);
	t.packets[t.count++].psn = vb_bth_psn(bth);
}

static void left(const void *bytes, size_t len)
{
	void (*meanwhile)(void) = t.meanwhile;

	assert_false(t.is_sending); /* one thread at a time */
	for (size_t at = 0; at < len; at += fake.segment)
		note_packet((const uint8_t *)bytes + at);
	t.meanwhile = NULL;
	if (!meanwhile)
		return;
	assert_true(is_free(&t.q->qp.sq.lock));
	assert_true(is_free(&t.q->qp.resp_lock));
	t.is_sending = true;
	meanwhile();
	t.is_sending = false;
}

static void check_packet(unsigned n, uint8_t operation, uint32_t psn)
{
	assert_true(n < t.count);
	assert_int_equal(t.packets[n].opcode, operation);
	assert_int_equal(t.packets[n].psn, psn);
}

/* ---- what comes ---- */

static size_t make(uint8_t *packet, uint8_t opcode, uint32_t psn)
{
	return peer_packet(packet, t.q->qp.qpn, opcode, psn);
}

static void peer_acknowledges(uint32_t psn)
{
	uint8_t packet[VB_MAX_HEADER_BYTES + MTU];
	size_t n = make(packet, VB_OPB_ACKNOWLEDGE, psn);

	vb_aeth_set_syndrome((struct vb_aeth *)(packet + VB_BTH_BYTES), 31);
	peer_sends(packet, n);
}

/* Bytes of `value` for the start of the zone that is open to everything, or a READ of it. */
static void peer_asks(uint8_t opcode, uint32_t psn, uint32_t key, uint32_t bytes, uint8_t value)
{
	uint8_t packet[VB_MAX_HEADER_BYTES + MTU];
	size_t n = make(packet, opcode, psn);
	struct vb_reth *reth = (struct vb_reth *)(packet + VB_BTH_BYTES);

	vb_reth_set_address(reth, (uintptr_t)rig_at(OPEN));
	vb_reth_set_rkey(reth, key);
	vb_reth_set_length(reth, bytes);
	memset(packet + n, value, MTU);
	peer_sends(packet, n + (opcode == VB_OPB_WRITE_ONLY ? bytes : 0));
}

static void peer_writes(uint32_t psn, uint8_t value)
{
	peer_asks(VB_OPB_WRITE_ONLY, psn, rig.mrs[OPEN].key, 4, value);
}

/* ---- the program ---- */

static void post_to(struct rig_qp *q, uint32_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)rig_at(SOURCES), bytes, rig.mrs[SOURCES].key };
	struct ibv_send_wr *bad,
		wr = { .wr_id = q->sends++, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

	assert_int_equal(vb_qp_post_send(&q->qp, &wr, &bad), 0);
}

static void post(uint32_t bytes) { post_to(t.q, bytes); }

static void post_small(void) { post(4); }

static int begin(void **state)
{
	memset(&t, 0, sizeof(t));
	rig_set_up();
	t.q = rig_add_qp(IBV_QPT_RC);
	assert_int_equal(rig_connect(t.q, PEER, PEER_QPN, 7), 0);
	fake.left = left;
	return 0;
}

static int end(void **state)
{
	fake_run();
	fake_pass_time(100000); /* what was to wait for an answer waits no longer */
	rig.cq.channel = NULL;
	rig_tear_down();
	return 0;
}

/* ---- requests ---- */

static void post_two(void)
{
	post_small();
	post_small();
	assert_int_equal(t.count, 1); /* left to who sends already */
}

static void post__meanwhile_follows_in_order(void **state)
{
	t.meanwhile = post_two;
	post_small();
	assert_int_equal(t.count, 3);
	for (unsigned i = 0; i < 3; i++)
		check_packet(i, VB_OPB_SEND_ONLY, FIRST_PSN + i);
}

static void post__of_many_packets_meanwhile(void **state)
{
	t.meanwhile = post_small;
	post(3 * MTU - 4); /* the last packet is shorter, and so the last of its burst */
	assert_int_equal(t.count, 4);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(t.packets[i].psn, FIRST_PSN + i);
	check_packet(3, VB_OPB_SEND_ONLY, FIRST_PSN + 3);
}

static void nothing(void) { }

/* A short packet and a longer one are two sends: neither is made under a lock. */
static void post__short_and_long_leave_without_locks(void **state)
{
	struct ibv_sge sge[] = { { (uintptr_t)rig_at(SOURCES), 4, rig.mrs[SOURCES].key },
				 { (uintptr_t)rig_at(SOURCES), MTU, rig.mrs[SOURCES].key } };
	struct ibv_send_wr *bad, wr[] = {
		{ .wr_id = t.q->sends++, .next = &wr[1], .sg_list = &sge[0], .num_sge = 1, .opcode = IBV_WR_SEND },
		{ .wr_id = t.q->sends++, .sg_list = &sge[1], .num_sge = 1, .opcode = IBV_WR_SEND },
	};

	t.meanwhile = nothing;
	assert_int_equal(vb_qp_post_send(&t.q->qp, wr, &bad), 0);
	assert_int_equal(t.count, 2);
	for (unsigned i = 0; i < 2; i++)
		check_packet(i, VB_OPB_SEND_ONLY, FIRST_PSN + i);
}

static void acknowledge_first(void)
{
	peer_acknowledges(FIRST_PSN);
	rig_poll();
	assert_int_equal(t.q->sends_done, 1);
}

static void ack__meanwhile_completes_at_once(void **state)
{
	t.meanwhile = acknowledge_first;
	post_small();
	assert_int_equal(t.q->sends_done, 1);
}

static void fail_now(void) { assert_int_equal(rig_move(t.q, IBV_QPS_ERR), 0); }

static void post_and_fail(void)
{
	post_small();
	fail_now();
}

static void error__meanwhile_ends_sending(void **state)
{
	t.meanwhile = post_and_fail;
	post_small();
	assert_int_equal(t.count, 1);
	rig_poll();
	assert_int_equal(t.q->sends_done, 2);
}

static pthread_t resetter;

static void *reset(void *unused)
{
	assert_int_equal(rig_move(t.q, IBV_QPS_RESET), 0);
	return NULL;
}

static void begin_reset(void)
{
	assert_int_equal(pthread_create(&resetter, NULL, reset, NULL), 0);
	while (atomic_load(&t.q->qp.path))
		sched_yield();
}

/* The connection stays until the thread that posts has returned from its send. */
static void reset__waits_for_who_sends(void **state)
{
	t.meanwhile = begin_reset;
	post_small();
	assert_int_equal(pthread_join(resetter, NULL), 0);
	assert_int_equal(t.count, 1);
}

/* ---- answers ---- */

static void write_again(void)
{
	peer_writes(FIRST_PSN + 1, 0x33);
	assert_int_equal(*rig_at(OPEN), 0x33); /* the answer may wait, the bytes do not */
	assert_int_equal(t.count, 1);
}

static void request__meanwhile_is_executed_and_answered_after(void **state)
{
	t.meanwhile = write_again;
	peer_writes(FIRST_PSN, 0x11);
	assert_int_equal(t.count, 2);
	check_packet(0, VB_OPB_ACKNOWLEDGE, FIRST_PSN);
	check_packet(1, VB_OPB_ACKNOWLEDGE, FIRST_PSN + 1);
}

/* ---- acknowledgements that wait for the program's answer ---- */

enum { NS_PER_US = 1000, EXCHANGES = 4 };

/*
 * The peer's n-th request, what the program answers to it after so long, and the peer's acknowledgement of
 * that, a round trip later.
 */
static void exchange(unsigned n, uint64_t answer_ns, uint64_t round_trip_ns)
{
	peer_writes(FIRST_PSN + n, 0x11);
	fake.now_ns += answer_ns;
	post_small();
	fake.now_ns += round_trip_ns;
	peer_acknowledges(FIRST_PSN + n);
	rig_poll();
}

/* True: the last request's acknowledgement left behind the answer to it, not before. */
static bool has_been_taken_along(unsigned n)
{
	const unsigned last = t.count - 1;
	bool along = t.packets[last].opcode == VB_OPB_ACKNOWLEDGE;
	check_packet(along ? last - 1 : last, VB_OPB_SEND_ONLY, FIRST_PSN + n);
	check_packet(along ? last : last - 1, VB_OPB_ACKNOWLEDGE, FIRST_PSN + n);
	return along;
}

static bool is_taken_along(uint64_t answer_ns, uint64_t round_trip_ns)
{
	for (unsigned n = 0; n < EXCHANGES; n++)
		exchange(n, answer_ns, round_trip_ns);
	assert_int_equal(t.count, 2 * EXCHANGES);
	return has_been_taken_along(EXCHANGES - 1);
}

static void poll_in_a_loop(void)
{
	for (int i = 0; i < 2 * VB_SPIN_POLLS; i++)
		rig_poll();
	assert_true(vb_progress_is_polled());
}

/* As a program that has not polled lately. */
static void stop_polling(void)
{
	vb_progress_arm();
	assert_false(vb_progress_is_polled());
}

static struct vb_channel channel;

static void ack__goes_first_where_a_thread_may_wait_for_events(void **state)
{
	rig.cq.channel = &channel;
	stop_polling();
	assert_false(is_taken_along(5 * NS_PER_US, 10 * NS_PER_US));
}

/* It may spin on its memory. */
static void ack__waits_where_no_thread_can(void **state)
{
	stop_polling();
	assert_true(is_taken_along(5 * NS_PER_US, 10 * NS_PER_US));
}

static void ack__waits_for_who_answers_soon(void **state)
{
	rig.cq.channel = &channel;
	poll_in_a_loop();
	assert_true(is_taken_along(5 * NS_PER_US, 10 * NS_PER_US));
}

static void ack__does_not_wait_for_who_answers_late(void **state)
{
	poll_in_a_loop();
	assert_false(is_taken_along(50 * NS_PER_US, 100 * NS_PER_US));
}

/*
 * What is soon depends on how far away the peer is: emulated machines take a hundred times as long for all.
 */
static void ack__waits_longer_where_round_trips_are_long(void **state)
{
	poll_in_a_loop();
	assert_true(is_taken_along(50 * NS_PER_US, 1000 * NS_PER_US));
}

/* A post takes an acknowledgement along, but not past answers that another thread is about to send. */
static void write_and_post(void)
{
	enum { READ_PACKETS = 3 };
	unsigned sent = t.count;

	peer_writes(FIRST_PSN + READ_PACKETS, 0x33);
	t.is_sending = false; /* requests have their own turn */
	post_small();
	t.is_sending = true;
	assert_int_equal(t.count, sent + 1);
	check_packet(sent, VB_OPB_SEND_ONLY, FIRST_PSN);
}

static void ack__does_not_overtake_read_answers(void **state)
{
	t.meanwhile = write_and_post;
	peer_asks(VB_OPB_READ_REQUEST, FIRST_PSN, rig.mrs[OPEN].key, 3 * MTU - 4, 0);
	assert_int_equal(t.packets[t.count - 1].opcode, VB_OPB_ACKNOWLEDGE);
	assert_int_equal(t.packets[t.count - 1].psn, FIRST_PSN + 3);
}

static void read_little_and_much(void)
{
	peer_asks(VB_OPB_READ_REQUEST, FIRST_PSN + 1, rig.mrs[OPEN].key, 4, 0);
	peer_asks(VB_OPB_READ_REQUEST, FIRST_PSN + 2, rig.mrs[OPEN].key, MTU, 0);
	t.meanwhile = nothing;
}

static void answers__short_and_long_leave_without_locks(void **state)
{
	t.meanwhile = read_little_and_much;
	peer_writes(FIRST_PSN, 0x11);
	assert_int_equal(t.count, 3);
	for (unsigned i = 1; i < 3; i++)
		check_packet(i, VB_OPB_READ_RESPONSE_ONLY, FIRST_PSN + i);
}

/* The NAK is sent by who answers already, who also ends the queue pair. */
static void write_with_wrong_key(void)
{
	peer_asks(VB_OPB_WRITE_ONLY, FIRST_PSN + 1, 0, 4, 0x33);
	assert_int_equal(t.count, 1);
}

static void refusal__meanwhile_is_said_after(void **state)
{
	t.meanwhile = write_with_wrong_key;
	peer_writes(FIRST_PSN, 0x11);
	assert_int_equal(t.count, 2);
	check_packet(1, VB_OPB_ACKNOWLEDGE, FIRST_PSN + 1);
	assert_int_equal(atomic_load(&t.q->qp.state), IBV_QPS_ERR);
}

/* ---- threads that post while others are at a request ---- */

static void *post_elsewhere(void *q)
{
	post_to(q, 4);
	return NULL;
}

static bool is_sending(struct rig_qp *q)
{
	vb_lock(&q->qp.sq.lock);
	bool sends = vb_rc_of(&q->qp)->is_sending;
	vb_unlock(&q->qp.sq.lock);
	return sends;
}

/*
 * The program posts while another thread, this one, is at a request, so that there may be an ACK to take
 * along: the post's packets are ready, and wait for it.
 */
static pthread_t begin_post_behind_request(struct rig_qp *q)
{
	pthread_t thread;

	vb_lock(&q->qp.resp_lock);
	atomic_store(&vb_rc_of(&q->qp)->owes_ack, true);
	assert_int_equal(pthread_create(&thread, NULL, post_elsewhere, q), 0);
	while (!is_sending(q))
		sched_yield();
	return thread;
}

static void end_post_behind_request(struct rig_qp *q, pthread_t thread)
{
	vb_unlock(&q->qp.resp_lock);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

/* As many as send at the same time. */
static void answer__leaves_while_posts_wait(void **state)
{
	enum { POSTS = 4 };
	struct rig_qp *q[POSTS];
	pthread_t threads[POSTS];

	for (unsigned i = 0; i < POSTS; i++) {
		q[i] = rig_add_qp(IBV_QPT_RC);
		assert_int_equal(rig_connect(q[i], PEER, PEER_QPN + 1 + i, 7), 0);
		threads[i] = begin_post_behind_request(q[i]);
	}
	peer_writes(FIRST_PSN, 0x11);
	assert_int_equal(t.count, 1);
	check_packet(0, VB_OPB_ACKNOWLEDGE, FIRST_PSN);
	for (unsigned i = 0; i < POSTS; i++)
		end_post_behind_request(q[i], threads[i]);
	assert_int_equal(t.count, 1 + POSTS);
}

static struct vb_icrc_route route_at_post;

static void left_by_route(const void *bytes, size_t len)
{
	assert_true(vb_icrc_check(&route_at_post, bytes, len, 0));
	left(bytes, len);
}

/*
 * A post keeps its route even if the program modifies the queue pair meanwhile. The ACK that it takes along
 * must use the same route. The ACK is a datagram of its own here, since a thread may wait for events.
 */
static void ack__has_the_route_of_its_requests(void **state)
{
	struct vb_rc_connection *c = vb_rc_of(&t.q->qp);

	rig.cq.channel = &channel;
	vb_progress_arm();
	pthread_t thread = begin_post_behind_request(t.q);
	fake.left = left_by_route;
	route_at_post = c->route.icrc;
	c->responder.ack_due = true;
	vb_lock(&t.q->qp.sq.lock);
	c->route.icrc.destination_port++;
	vb_unlock(&t.q->qp.sq.lock);
	end_post_behind_request(t.q, thread);
	c->route.icrc = route_at_post;
	assert_int_equal(t.count, 2);
	check_packet(0, VB_OPB_ACKNOWLEDGE, FIRST_PSN - 1);
	check_packet(1, VB_OPB_SEND_ONLY, FIRST_PSN);
}

/* ---- the program changes a queue pair ---- */

static void give_ethernet_address(uint8_t ip)
{
	struct vb_device **devices;
	unsigned count;

	fake.ip = ip;
	assert_int_equal(vb_device_list(&devices, &count), 0);
	for (unsigned i = 0; i < count; i++)
		vb_device_put(devices[i]);
	free(devices);
}

/* The entry of the GID table that it was connected by means another address by now. */
static void modify__leaves_the_source_address(void **state)
{
	const struct vb_inbox_addr *addr = &vb_rc_of(&t.q->qp)->route.addr;
	struct in6_addr before = addr->src;
	struct ibv_qp_attr attr = { .min_rnr_timer = 2 };

	give_ethernet_address(8);
	assert_int_equal(vb_qp_modify(&t.q->qp, &attr, IBV_QP_MIN_RNR_TIMER), 0);
	assert_memory_equal(&addr->src, &before, sizeof(before));
	give_ethernet_address(0);
	peer_writes(FIRST_PSN, 0x11);
	check_packet(0, VB_OPB_ACKNOWLEDGE, FIRST_PSN);
}

static struct rig_qp *connecting;
static unsigned sentences;

static void hear(const char *call, const char *sentence)
{
	assert_string_equal(call, "ibv_modify_qp");
	assert_non_null(strstr(sentence, "failed meanwhile"));
	sentences++;
}

/* As the connection manager does when the peer has gone. */
static void fail_meanwhile(void) { vb_qp_fail_number(connecting->qp.qpn); }

static void modify__tells_that_it_failed_meanwhile(void **state)
{
	connecting = rig_add_qp(IBV_QPT_RC);
	fake.connecting = fail_meanwhile;
	vb_explain_copy(hear);
	assert_int_equal(rig_connect(connecting, PEER, PEER_QPN, 7), -EINVAL);
	vb_explain_copy(NULL);
	assert_int_equal(sentences, 1);
	assert_int_equal(atomic_load(&connecting->qp.state), IBV_QPS_ERR);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(post__meanwhile_follows_in_order),
		TEST(post__of_many_packets_meanwhile),
		TEST(post__short_and_long_leave_without_locks),
		TEST(ack__meanwhile_completes_at_once),
		TEST(error__meanwhile_ends_sending),
		TEST(reset__waits_for_who_sends),
		TEST(request__meanwhile_is_executed_and_answered_after),
		TEST(ack__goes_first_where_a_thread_may_wait_for_events),
		TEST(ack__waits_where_no_thread_can),
		TEST(ack__waits_for_who_answers_soon),
		TEST(ack__does_not_wait_for_who_answers_late),
		TEST(ack__waits_longer_where_round_trips_are_long),
		TEST(ack__does_not_overtake_read_answers),
		TEST(answers__short_and_long_leave_without_locks),
		TEST(refusal__meanwhile_is_said_after),
		TEST(answer__leaves_while_posts_wait),
		TEST(ack__has_the_route_of_its_requests),
		TEST(modify__leaves_the_source_address),
		TEST(modify__tells_that_it_failed_meanwhile),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
