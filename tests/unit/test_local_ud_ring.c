/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams in shared memory: what waits and what does not. The adapter is whole, the host below it a fake
 * (tests/fuzz) with a clock of the test's; the process sends to itself, or to another that never takes
 * anything.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>

#include "adapter/progress/progress.h"
#include "adapter/queues/queue.h"
#include "fake_host.h"
#include "local/peer.h"
#include "local/shared.h"
#include "proto/ud.h"
#include "rig.h"

enum { LOCALHOST = 0x7f000001, QKEY = 0x1234, GRH = 40, PATIENCE_NS = 100000000 };

static struct rig_qp *left, *right, *third;
static struct vb_ah here;
static uint32_t lengths[64]; /* of what was received, in order; GRH included */
static unsigned received, sent;

static void poll_all(void)
{
	struct vb_cqe c[16];
	for (int n; (n = vb_cq_poll(&rig.cq, 16, c)) > 0;) {
		for (int i = 0; i < n; i++) {
			assert_int_equal(c[i].status, IBV_WC_SUCCESS);
			if (c[i].is_recv)
				lengths[received++] = c[i].byte_len;
			else
				sent++;
		}
	}
}

static void work(void)
{
	for (unsigned i = 0; i < 4; i++) {
		fake_run();
		poll_all();
	}
}

static void send_to(uint32_t qpn, uint32_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)rig_at(SOURCES), bytes, rig.mrs[SOURCES].key };
	struct ibv_send_wr *bad,
		wr = { .sg_list = &sge,
		       .num_sge = 1,
		       .opcode = IBV_WR_SEND,
		       .send_flags = IBV_SEND_SIGNALED,
		       .wr.ud = { .ah = &here.pub, .remote_qpn = qpn, .remote_qkey = QKEY } };
	assert_int_equal(vb_qp_post_send(&left->qp, &wr, &bad), 0);
}

static void receive_at(struct rig_qp *q)
{
	/* one piece of 512 bytes */
	rig_post_receive(q, &(struct fuzz_input){ (const uint8_t *)"\0\0\x40\0\0\0\0", 7 });
}

/* ---- waiting for a receive ---- */

static void receive__posted_a_little_late(void **state)
{
	send_to(right->qp.qpn, 8);
	work();
	assert_int_equal(sent, 1);
	fake_pass_time(PATIENCE_NS / 2);
	receive_at(right);
	fake_pass_time(PATIENCE_NS / 4);
	work();
	assert_int_equal(received, 1);
	assert_int_equal(lengths[0], GRH + 8);
}

/* Then nobody has to wait for it again, until it has posted something. */
static void receive__never_posted(void **state)
{
	receive_at(third);
	receive_at(third);
	send_to(right->qp.qpn, 8);
	send_to(third->qp.qpn, 9);
	work();
	assert_int_equal(received, 0);
	fake_pass_time(2 * PATIENCE_NS);
	work();
	assert_int_equal(received, 1);
	assert_int_equal(lengths[0], GRH + 9);
	send_to(right->qp.qpn, 10);
	send_to(third->qp.qpn, 11);
	work();
	assert_int_equal(received, 2);
	assert_int_equal(lengths[1], GRH + 11);
	receive_at(right);
	send_to(right->qp.qpn, 12);
	send_to(right->qp.qpn, 13);
	work();
	assert_int_equal(received, 3);
	receive_at(right);
	fake_pass_time(PATIENCE_NS / 2);
	work();
	assert_int_equal(received, 4);
	assert_int_equal(lengths[3], GRH + 13);
}

/* One that is destroyed, or fails, takes nothing any more, and holds up nothing. */
static void receive__of_a_queue_pair_that_goes(void **state)
{
	receive_at(third);
	send_to(right->qp.qpn, 8);
	send_to(third->qp.qpn, 9);
	work();
	assert_int_equal(received, 0);
	assert_int_equal(rig_move(right, IBV_QPS_ERR), 0);
	work();
	assert_int_equal(received, 1);
	assert_int_equal(lengths[0], GRH + 9);
}

/* ---- room ---- */

/* More than the ring holds, several times, by ones and twos of its lines and the longest. */
static void ring__goes_round(void **state)
{
	static const uint32_t sizes[] = { 1, 16, 200, 256, 3 };
	for (unsigned i = 0; i < 5000; i++) {
		received = 0;
		receive_at(right);
		send_to(right->qp.qpn, sizes[i % VB_ARRAY_LEN(sizes)]);
		work();
		assert_int_equal(received, 1);
		assert_int_equal(lengths[0], GRH + sizes[i % VB_ARRAY_LEN(sizes)]);
	}
}

/*
 * A process that takes nothing holds sends back for half a second; then they are lost, and it delays nobody
 * any more.
 */
static void ring__that_is_never_read(void **state)
{
	struct vb_arena_head *head = (struct vb_arena_head *)fake_arena;
	struct {
		uint64_t magic;
		uint32_t can_copy, reserved;
	} ready = { VB_LINK_MAGIC, 0, 0 };
	memset(fake_arena + VB_ARENA_HEAP, 0, sizeof(struct vb_shm_bells));
	*head = (struct vb_arena_head){
		.magic = VB_ARENA_MAGIC, .version = VB_LINK_VERSION, .nonce = 77, .slots = { FAKE_PEER_SLOT }
	};
	send_to(FAKE_PEER_SLOT << VB_SLOT_SHIFT | 1, 256);
	work();
	assert_int_equal(sent, 0); /* it waits for the link */
	fake_link_hello();
	fake_link_message(&ready, sizeof(ready), 0);
	fake_pass_time(1000000);
	work();
	assert_int_equal(sent, 1);
	unsigned posted = 1;
	for (; posted < 4 * VB_UD_RING_LINES && sent == posted; posted++) {
		send_to(FAKE_PEER_SLOT << VB_SLOT_SHIFT | 1, 256);
		work();
	}
	assert_true(sent == posted - 1 && posted > VB_UD_RING_LINES / 8 && posted < VB_UD_RING_LINES);
	fake_pass_time(1000000000);
	work();
	assert_int_equal(sent, posted);
	fake_link_hang_up();
	fake_pass_time(1000000000);
}

/* The kernel has no memory for the first message on a link, and later it has. */
static void link__that_is_made_at_the_second_try(void **state)
{
	fake.link_result = -EAGAIN;
	send_to(FAKE_PEER_SLOT << VB_SLOT_SHIFT | 1, 256);
	work();
	assert_false(fake_link_is_open());
	fake.link_result = 0;
	fake_pass_time(1000000);
	work();
	assert_true(fake_link_is_open());
	assert_int_equal(sent, 0);
	fake_link_hang_up();
	fake_pass_time(1000000000);
}

/* ---- many senders ---- */

enum { SENDERS = 128, OWN_QPN = 5 };
#define RINGS (VB_ARENA_HEAP + 0x100000)

/* Processes that are nothing but rings in the arena of one. */
static struct sender {
	struct vb_peer peer;
	struct vb_shm_bells in, out;
	uint32_t put;
} senders[SENDERS];

static void add_sender(unsigned i)
{
	struct sender *s = &senders[i];
	memset(fake_arena + RINGS + i * VB_UD_RING_BYTES, 0, VB_CACHE_LINE);
	*s = (struct sender){ .peer = { .fd = -1, .eventfd = -1, .waiter_eventfd = -1, .nonce = 1000 + i,
					.arena = (const void *)fake_arena_seen,
					.arena_bytes = VB_ARENA_MOST, .in = &s->in, .out = &s->out } };
	vb_list_init(&s->peer.qps);
	atomic_store(&s->peer.refs, 1);
	atomic_store(&s->peer.state, VB_PEER_UP);
	atomic_store(&s->in.ud_ring, RINGS + i * VB_UD_RING_BYTES);
	vb_lock(&vb_progress_lock);
	vb_peers[atomic_load(&vb_npeers)] = &s->peer;
	atomic_fetch_add(&vb_npeers, 1);
	vb_ud_ring_look_locked(&s->peer);
	vb_unlock(&vb_progress_lock);
}

/* They were added last. */
static void remove_senders(void)
{
	atomic_fetch_sub(&vb_npeers, SENDERS);
	for (unsigned i = 0; i < SENDERS; i++)
		vb_ud_ring_end(&senders[i].peer, true);
}

static struct vb_shm_datagram *record_of(unsigned i)
{
	return (void *)(fake_arena + RINGS + i * VB_UD_RING_BYTES + senders[i].put * VB_CACHE_LINE);
}

static void mail_from(unsigned i)
{
	struct vb_ud_send send = { .destination_qpn = right->qp.qpn, .source_qpn = OWN_QPN, .qkey = QKEY,
				   .payload_bytes = 8 };
	struct vb_shm_datagram *d = record_of(i);
	uint32_t at = senders[i].put;
	unsigned pad;
	d->src = d->dst = (struct in6_addr){ .s6_addr = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 } };
	size_t bytes = vb_ud_build(d->packet, &send, &pad) + 8;
	senders[i].put += (uint32_t)(offsetof(struct vb_shm_datagram, packet) + bytes + VB_CACHE_LINE - 1) /
			  VB_CACHE_LINE;
	atomic_store(&record_of(i)->head, 0);
	atomic_store(&d->head, vb_ud_ring_head(at, (uint32_t)bytes));
}

static void work_until_it_waits(unsigned i)
{
	const struct vb_ud_ring *ring = &senders[i].peer.ud_ring;
	for (unsigned looks = 0; looks < SENDERS && !atomic_load(&ring->waits); looks++)
		work();
	assert_true(atomic_load(&ring->waits));
	assert_int_equal(received, 0);
}

/* A look takes a few senders' datagrams, and one that waits is not forgotten among all the others. */
static void receive__posted_late_with_many_senders(void **state)
{
	for (unsigned i = 0; i < SENDERS; i++)
		add_sender(i);
	for (unsigned i = 0; i < SENDERS; i++) {
		receive_at(right);
		mail_from(i);
		for (unsigned looks = 0; looks < SENDERS && !received; looks++)
			work();
		assert_int_equal(received, 1);
		received = 0;
	}
	for (unsigned i = 0; i < SENDERS; i += SENDERS / 4) {
		mail_from(i);
		work_until_it_waits(i);
		receive_at(right);
		fake_pass_time(PATIENCE_NS / 100);
		poll_all();
		assert_int_equal(received, 1);
		received = 0;
	}
	remove_senders();
}

static int set_up(void **state)
{
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 1, .hop_limit = 1,
		.dgid.raw = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 } } };
	rig_set_up();
	struct rig_qp **all[] = { &left, &right, &third };
	for (unsigned i = 0; i < VB_ARRAY_LEN(all); i++) {
		*all[i] = rig_add_qp(IBV_QPT_UD);
		assert_int_equal(rig_connect(*all[i], LOCALHOST, 0, 0), 0);
	}
	assert_int_equal(vb_ah_init(&here, &rig.pd, &to), 0);
	received = sent = 0;
	return 0;
}

static int tear_down(void **state)
{
	struct rig_qp *all[] = { left, right, third };
	for (unsigned i = 0; i < VB_ARRAY_LEN(all); i++) {
		assert_int_equal(vb_qp_modify(&all[i]->qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET },
					      IBV_QP_STATE),
				 0);
		all[i]->sends = all[i]->sends_done = all[i]->receives = all[i]->receives_done = 0;
		rig_remove_qp(all[i]);
	}
	assert_int_equal(vb_ah_fini(&here), 0);
	fake_pass_time(2 * PATIENCE_NS);
	rig_tear_down();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(receive__posted_a_little_late, set_up, tear_down),
		cmocka_unit_test_setup_teardown(receive__never_posted, set_up, tear_down),
		cmocka_unit_test_setup_teardown(receive__of_a_queue_pair_that_goes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(receive__posted_late_with_many_senders, set_up, tear_down),
		cmocka_unit_test_setup_teardown(ring__goes_round, set_up, tear_down),
		cmocka_unit_test_setup_teardown(ring__that_is_never_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(link__that_is_made_at_the_second_try, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
