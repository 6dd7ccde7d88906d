/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer that stops or ends in the middle of something, or claims to: this process goes on, and nothing that
 * the peer may still do hurts it. The adapter is whole, the host below it a fake (tests/fuzz); the peer is
 * memory and messages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapter/memory/key.h"
#include "adapter/progress/progress.h"
#include "fake_host.h"
#include "local/capture.h"
#include "local/doorbell.h"
#include "local/mapped.h"
#include "local/qp.h"
#include "local/reach.h"
#include "local/ring.h"
#include "local/translation.h"
#include "rig.h"

enum { LOCALHOST = 0x7f000001, QPS = 70, BLOCKS = 8, WATCHDOG_S = 60, MANY_LOOKS = 1000, KEY = 0x101,
	GIVE = 2, WRITTEN = 64, LONG = 200 /* more than an entry holds */ };

static struct rig_qp qps[QPS];
static unsigned nqps;

static struct vb_arena_head *head(void) { return (void *)fake_arena; }
static struct vb_key *key(void) { return (void *)(fake_arena + VB_ARENA_KEYS + VB_KEY_BYTES); }
static struct vb_shm_bells *bells(void) { return (void *)(fake_arena + VB_ARENA_HEAP); }
static struct vb_shm_qp *block(unsigned i)
{
	return (void *)(fake_arena + VB_ARENA_QPS + i * VB_QP_BLOCK);
}
static struct vb_local_qp *local(unsigned i) { return vb_local_of(&qps[i].qp); }

static void make_arena(void)
{
	memset(head(), 0, sizeof(*head()));
	memset(key(), 0, sizeof(*key()));
	memset(bells(), 0, sizeof(*bells()));
	memset(block(0), 0, QPS * VB_QP_BLOCK);
	head()->magic = VB_ARENA_MAGIC;
	head()->version = VB_LINK_VERSION;
	head()->nonce = 77;
	head()->slots[0] = FAKE_PEER_SLOT;
	key()->pd = 1;
	key()->access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	key()->iova = key()->va = FAKE_MEMORY;
	key()->length = FAKE_MEMORY_BYTES;
	key()->key = KEY;
}

static void link_up(void)
{
	struct {
		uint64_t magic;
		uint32_t can_copy, reserved;
	} ready = { VB_LINK_MAGIC, 1, 0 };
	fake_link_accept();
	fake_link_hello();
	fake_link_message(&ready, sizeof(ready), 0);
}

/* A queue pair, connected to the peer's. */
static void connect_one(void)
{
	struct vb_qp_init_attr init = { .type = IBV_QPT_RC, .send_cq = &rig.cq, .recv_cq = &rig.cq,
		.sq_sig_all = true,
		.cap = { .max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct vb_shm_qp *b = block(nqps);
	struct rig_qp *q = &qps[nqps];
	assert_int_equal(vb_qp_init(&q->qp, &rig.pd, &init), 0);
	assert_int_equal(rig_connect(q, LOCALHOST, FAKE_PEER_SLOT << VB_SLOT_SHIFT | nqps, 7), 0);
	b->dest_qpn = q->qp.qpn;
	b->pd = 1;
	b->access = key()->access;
	b->psns[0] = b->psns[1] = 100;
	b->rd_atomic = 4;
	b->mode = 1 << 8 | VB_SHM_RESPONDS;
	assert_true(vb_local_find_theirs(local(nqps)));
	nqps++;
}

static void connect_all(unsigned n)
{
	while (nqps < n)
		connect_one();
}

static void remove_all(void)
{
	for (; nqps; nqps--) {
		assert_int_equal(rig_move(&qps[nqps - 1], IBV_QPS_ERR), 0);
		assert_int_equal(vb_qp_fini(&qps[nqps - 1].qp), 0);
	}
}

/* ---- sections that stay open ---- */

/* Each is waited for once. */
static void revocation__ends_whoever_stays_busy(void **state)
{
	connect_all(QPS);
	for (unsigned i = 0; i < QPS; i++)
		block(i)->busy[i % 2] = 1;
	alarm(WATCHDOG_S);
	rig_register_again(OPEN);
	alarm(0);
	assert_true(fake.has_hung_up);
}

/* It had ended the link, as this process had been stopped, and is stopped itself now, in a section. */
static void revocation__stops_a_peer_whose_link_has_ended(void **state)
{
	connect_all(1);
	bells()->cut = 1;
	head()->cuts = 1;
	fake_link_hang_up();
	block(0)->busy[VB_STREAM_REQUEST] = 1;
	rig_register_again(OPEN);
	assert_int_equal(atomic_load(&local(0)->peer->out->cut), 1);
}

static bool is_handed_out(uint64_t offset, size_t bytes)
{
	uint64_t blocks[BLOCKS];
	bool is_there = false;
	for (unsigned i = 0; i < BLOCKS; i++) {
		blocks[i] = vb_arena_alloc(bytes);
		is_there |= blocks[i] == offset;
	}
	for (unsigned i = BLOCKS; i--;)
		vb_arena_free(blocks[i], bytes);
	return is_there;
}

/* When it runs again, it goes on where it was. */
static void cut__leaves_what_the_peer_reads(void **state)
{
	for (unsigned half = 0; half < 2; half++) {
		connect_all(1);
		uint64_t ring = vb_arena_offset(local(0)->req.ring);
		struct vb_shm_bells *out = local(0)->peer->out;
		size_t ring_bytes = (local(0)->qp->sq.mask + 1) * local(0)->req.entry_bytes;
		block(0)->busy[half] = 1;
		rig_register_again(OPEN);
		assert_int_equal(atomic_load(&out->cut), 1);
		remove_all();
		assert_false(is_handed_out(ring, ring_bytes));
		block(0)->busy[half] = 2;
		fake_link_hang_up();
		fake_pass_time(1000000000);
		assert_true(is_handed_out(ring, ring_bytes));
		assert_false(is_handed_out((uint64_t)((char *)out - (char *)vb_arena), sizeof(*out)));
		assert_int_equal(atomic_load(&out->cut), 1);
		fake.has_hung_up = false;
		link_up();
	}
}

/* ---- bells ---- */

/* Stopped between the two steps of ringing. */
static void bell__that_does_not_come_lets_sleep(void **state)
{
	connect_all(1);
	fake_run();
	bells()->tail = 1;
	assert_true(vb_doorbell_is_pending());
	for (unsigned i = 0; i < MANY_LOOKS; i++)
		vb_doorbell_is_pending();
	assert_false(vb_doorbell_is_pending());
	bells()->bell[0] = (uint64_t)1 << 32 | qps[0].qp.qpn;
	assert_true(vb_doorbell_is_pending());
	fake_run();
	assert_false(vb_doorbell_is_pending());
	bells()->tail = 2;
	assert_true(vb_doorbell_is_pending());
}

static void ring(void) { vb_peer_ring(local(0)->peer, block(0)->dest_qpn); }

/* A thread stops before it has woken the peer: another one that rings does so. */
static void bell__beside_a_thread_that_does_not_wake(void **state)
{
	connect_all(1);
	head()->asleep = 2;
	fake.rings = 0;
	fake.ringing = ring;
	ring();
	assert_int_equal(fake.rings, 2);
	ring();
	assert_int_equal(fake.rings, 2);
	head()->asleep = 0;
}

/* ---- memory ---- */

static void post_write(void)
{
	struct ibv_sge sge = { (uintptr_t)rig_at(SOURCES), WRITTEN, rig.mrs[SOURCES].key };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
					.wr.rdma = { .remote_addr = FAKE_MEMORY, .rkey = KEY } };
	assert_int_equal(vb_qp_post_send(&qps[0].qp, &wr, &bad), 0);
}

static void write_to_peer(void)
{
	post_write();
	fake_run();
}

/* It may have called exec: the number of the process is another program's, and so is the memory. */
static void memory__of_a_peer_that_has_died(void **state)
{
	static const uint8_t nothing[WRITTEN];
	connect_all(1);
	write_to_peer();
	assert_memory_equal(fake_memory, rig_at(SOURCES), WRITTEN);
	memset(fake_memory, 0, WRITTEN);
	fake_link_message("?", 1, 0); /* the link ends */
	assert_false(fake_link_is_open());
	write_to_peer();
	assert_memory_equal(fake_memory, nothing, WRITTEN);
}

/* ---- segments ---- */

static void give(uint64_t serial)
{
	struct vb_link_segment m = { .magic = VB_LINK_MAGIC, .what = GIVE, .key = KEY, .serial = serial,
				     .bytes = FAKE_MEMORY_BYTES };
	fake_link_message(&m, sizeof(m), 1);
}

static void ask_for(uint64_t serial)
{
	key()->segment = serial;
	vb_mapped_miss(local(0)->peer, KEY, 1);
}

static bool is_mapped(uint64_t serial)
{
	return atomic_load(&local(0)->peer->mapped->mapping[serial].serial) == serial;
}

static void segment__that_nobody_asked_for(void **state)
{
	connect_all(1);
	give(1);
	assert_false(is_mapped(1));
	ask_for(1);
	give(1);
	give(2);
	assert_true(is_mapped(1));
	assert_false(is_mapped(2));
}

static void segment__beyond_a_share_of_the_addresses(void **state)
{
	connect_all(1);
	ask_for(1);
	give(1);
	assert_true(is_mapped(1));
	fake.address_limit = 8 * (2 * FAKE_MEMORY_BYTES - 1);
	ask_for(2);
	give(2);
	assert_false(is_mapped(2));
	fake.address_limit = 8 * (2 * FAKE_MEMORY_BYTES);
	ask_for(3);
	give(3);
	assert_true(is_mapped(3));
}

/* ---- byte streams ---- */

/* The kernel lets neither process copy from the other's memory. */
static void link_by_streams(void)
{
	fake_link_hang_up();
	fake_pass_time(1000000000);
	fake.has_hung_up = false;
	fake.can_copy = false;
	link_up();
}

static void send_long(void)
{
	struct ibv_sge sge = { (uintptr_t)rig_at(SOURCES), LONG, rig.mrs[SOURCES].key };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	assert_int_equal(vb_qp_post_send(&qps[0].qp, &wr, &bad), 0);
}

/* More than 2^31 messages have passed that were their entries. */
static void stream__goes_on_after_any_number_of_short_messages(void **state)
{
	link_by_streams();
	connect_all(1);
	local(0)->staging = local(0)->req.published - 0x80000001u;
	send_long();
	assert_int_equal(atomic_load(&local(0)->mine->put[VB_STREAM_REQUEST]), LONG);
}

struct arena_block {
	uint64_t offset;
	size_t bytes;
};

/* All that is free in the arena, and as large as a stream. */
static unsigned take_arena(struct arena_block *blocks, unsigned most)
{
	unsigned n = 0;
	for (size_t bytes = (size_t)1 << 33; bytes >= VB_STAGE_BYTES; bytes /= 2)
		for (uint64_t offset; n < most && (offset = vb_arena_alloc(bytes));)
			blocks[n++] = (struct arena_block){ offset, bytes };
	return n;
}

/* The last test: what is freed serves for blocks of its size alone. */
static void stream__without_memory_fails_the_request(void **state)
{
	struct arena_block blocks[BLOCKS * BLOCKS];
	struct vb_cqe completion;
	link_by_streams();
	connect_all(1);
	unsigned n = take_arena(blocks, BLOCKS * BLOCKS);
	assert_true(n < BLOCKS * BLOCKS);
	send_long();
	while (n--)
		vb_arena_free(blocks[n].offset, blocks[n].bytes);
	assert_int_equal(vb_cq_poll(&rig.cq, 1, &completion), 1);
	assert_int_equal(completion.status, IBV_WC_LOC_QP_OP_ERR);
}

/* ---- epochs ---- */

#define RING  (VB_ARENA_HEAP + 0x4000)
#define STAGE (VB_ARENA_HEAP + 0x5000)

enum { RING_MASK = 3, ENTRY_BYTES = 128, SHORT = 8, FOR_EVER = 7, PASSES = 4 };

/* The peer's queue pair sends to this one, too, from here on. */
static void begin_epoch(uint32_t epoch, uint8_t rnr_retry)
{
	struct vb_shm_qp *b = block(0);
	memset(fake_arena + RING, 0, (RING_MASK + 1) * ENTRY_BYTES);
	b->ring = RING;
	b->ring_mask = RING_MASK;
	b->entry_bytes = ENTRY_BYTES;
	b->stages[VB_STREAM_REQUEST] = STAGE;
	b->put[VB_STREAM_REQUEST] = 0;
	b->rnr_retry = rnr_retry;
	b->bound_epoch = local(0)->epoch;
	b->mode = epoch << 8 | VB_SHM_RESPONDS | VB_SHM_REQUESTS;
}

static void publish(uint32_t position, unsigned flags)
{
	struct vb_shm_entry *s = (void *)(fake_arena + RING + (position & RING_MASK) * ENTRY_BYTES);
	s->length = SHORT;
	atomic_store(&s->head, vb_shm_head(position + 1, IBV_WR_SEND, flags, 0));
}

static void look(void)
{
	vb_progress_schedule(&qps[0].qp);
	fake_run();
}

static void hear(uint32_t position)
{
	publish(position, VB_SHM_INLINE);
	look();
}

static void receive(void)
{
	struct ibv_sge sge = { (uintptr_t)rig_at(OPEN), SHORT, rig.mrs[OPEN].key };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };
	assert_int_equal(vb_qp_post_recv(&qps[0].qp, &wr, &bad), 0);
}

static uint64_t answer(void) { return atomic_load(&local(0)->mine->ack); }

static void expect_message(void)
{
	struct vb_cqe completion;
	assert_int_equal(vb_cq_poll(&rig.cq, 1, &completion), 1);
	assert_int_equal(completion.status, IBV_WC_SUCCESS);
	assert_true(completion.is_recv);
}

static void expect_nothing(void)
{
	struct vb_cqe completion;
	assert_int_equal(vb_cq_poll(&rig.cq, 1, &completion), 0);
}

/* Nothing was received when the requester gave up, or went away before. */
static void epoch__after_one_of_which_nothing_was_taken(void **state)
{
	static const uint8_t retries[] = { 0, FOR_EVER };
	for (unsigned i = 0; i < 2; i++) {
		connect_all(1);
		begin_epoch(1, retries[i]);
		hear(0);
		assert_int_equal(answer(), retries[i] ? 0 : vb_shm_ack(0, 1, IBV_WC_RNR_RETRY_EXC_ERR));
		begin_epoch(2, FOR_EVER);
		hear(0);
		receive();
		look();
		expect_message();
		assert_int_equal(answer(), vb_shm_ack(1, 2, 0));
		remove_all();
	}
}

static void epoch__that_was_refused_stays_so(void **state)
{
	connect_all(1);
	begin_epoch(1, 0);
	hear(0);
	receive();
	look();
	expect_nothing();
	assert_int_equal(answer(), vb_shm_ack(0, 1, IBV_WC_RNR_RETRY_EXC_ERR));
}

/* A half of it has come. */
static void epoch__in_the_middle_of_a_message(void **state)
{
	link_by_streams();
	connect_all(1);
	begin_epoch(1, FOR_EVER);
	receive();
	block(0)->put[VB_STREAM_REQUEST] = SHORT / 2;
	publish(0, VB_SHM_STAGED);
	look();
	begin_epoch(2, FOR_EVER);
	hear(0);
	assert_int_equal(answer(), vb_shm_ack(0, 2, IBV_WC_REM_OP_ERR));
	expect_nothing();
}

/* This side has gone through RESET alone, and the peer has taken a message of the epoch before. */
static void epoch__that_the_peer_does_not_expect(void **state)
{
	struct vb_cqe completion;
	connect_all(1);
	block(0)->ack = vb_shm_ack(1, local(0)->epoch + 1, 0);
	send_long();
	fake_pass_time(10000000000);
	assert_int_equal(vb_cq_poll(&rig.cq, 1, &completion), 1);
	assert_int_equal(completion.status, IBV_WC_RETRY_EXC_ERR);
}

/* Another thread of the peer has rung behind the one that was stopped. */
static void ring_behind_one_that_does_not_come(void)
{
	connect_all(1);
	begin_epoch(1, FOR_EVER);
	receive();
	look();
	publish(0, VB_SHM_INLINE);
	bells()->bell[1] = (uint64_t)2 << 32 | qps[0].qp.qpn;
	bells()->tail = 2;
}

static void bell__behind_one_that_does_not_come(void **state)
{
	ring_behind_one_that_does_not_come();
	for (unsigned i = 0; i < PASSES; i++)
		fake_run();
	expect_message();
	assert_false(vb_doorbell_is_pending());
}

static void bell__behind_one_that_does_not_come_while_polled(void **state)
{
	enum { MOST = 1000000 };
	struct vb_cqe completion;
	int found = 0;
	ring_behind_one_that_does_not_come();
	for (unsigned i = 0; i < MOST && !found; i++)
		found = vb_cq_poll(&rig.cq, 1, &completion);
	assert_int_equal(found, 1);
}

/* ---- polls ---- */

enum { POLLS = 64 };

/* Each looks at all that there is. */
static void poll_in_vain(void)
{
	unsigned before = vb_progress_polls();
	for (unsigned i = 0; i < POLLS; i++)
		expect_nothing();
	assert_int_equal(vb_progress_polls() - before, POLLS);
}

static void poll__of_a_queue_pair_whose_requester_was_refused(void **state)
{
	connect_all(1);
	begin_epoch(1, 0);
	receive();
	hear(0);
	expect_message();
	hear(1);
	poll_in_vain();
}

static void poll__of_a_queue_pair_that_has_failed(void **state)
{
	struct vb_cqe completion;
	connect_all(1);
	begin_epoch(1, FOR_EVER);
	receive();
	hear(0);
	expect_message();
	receive();
	publish(1, VB_SHM_INLINE);
	assert_int_equal(rig_move(&qps[0], IBV_QPS_ERR), 0);
	assert_int_equal(vb_cq_poll(&rig.cq, 1, &completion), 1);
	assert_int_equal(completion.status, IBV_WC_WR_FLUSH_ERR);
	poll_in_vain();
}

static void expect_sent(enum ibv_wc_status status)
{
	struct vb_cqe completion;
	assert_int_equal(vb_cq_poll(&rig.cq, 1, &completion), 1);
	assert_int_equal(completion.status, status);
	assert_false(completion.is_recv);
}

/* Its last request was flushed; the peer's queue pair is reset after that, and its ack is another one. */
static void poll__of_a_queue_pair_that_awaits_no_ack_any_more(void **state)
{
	connect_all(1);
	send_long();
	block(0)->ack = vb_shm_ack(1, local(0)->epoch, 0);
	look();
	expect_sent(IBV_WC_SUCCESS);
	send_long();
	assert_int_equal(rig_move(&qps[0], IBV_QPS_ERR), 0);
	expect_sent(IBV_WC_WR_FLUSH_ERR);
	block(0)->mode = 2 << 8;
	block(0)->ack = 0;
	poll_in_vain();
}

/* A WRITE without a completion is half done in SQD, and the peer, captured by now, does the rest. */
static void poll__of_a_queue_pair_that_drains(void **state)
{
	connect_all(1);
	qps[0].qp.sq_sig_all = false;
	assert_int_equal(rig_move(&qps[0], IBV_QPS_SQD), 0);
	post_write();
	qps[0].qp.sq.begun = true;
	local(0)->req.moved = WRITTEN / 2;
	head()->captured = 1;
	look();
	assert_int_equal(local(0)->req.published, 1);
	assert_true(vb_requester_awaits(local(0)));
}

/* It has sent what was not executed by then, for want of a receive or of time. */
static void poll__of_a_queue_pair_whose_peer_has_failed(void **state)
{
	for (unsigned waits = 0; waits < 2; waits++) {
		connect_all(1);
		begin_epoch(1, FOR_EVER);
		receive();
		hear(0);
		expect_message();
		publish(1, VB_SHM_INLINE);
		if (waits)
			look();
		block(0)->mode = 1 << 8;
		look();
		poll_in_vain();
		remove_all();
		vb_progress_arm(); /* the progress thread does not leave the work to polls */
	}
}

/* Polls have found news of the queue pair time after time. */
static void begin_polling(void)
{
	atomic_store(&vb_arena->asleep, 0);
	for (unsigned i = 0; i < MANY_LOOKS; i++)
		vb_doorbell_note_news(local(0));
	assert_true(atomic_load(&local(0)->mine->polled));
}

static void poll_until_answered(uint64_t expected)
{
	enum { MOST = 1000000 };
	for (unsigned i = 0; i < MOST && answer() != expected; i++)
		expect_nothing();
	assert_int_equal(answer(), expected);
}

/* Polls look for no new epoch while the queue pair serves no peer. So the peer must ring its doorbell. */
static void poll__ends_with_the_requester(void **state)
{
	connect_all(1);
	begin_epoch(1, 0);
	look();
	begin_polling();
	publish(0, VB_SHM_INLINE);
	poll_until_answered(vb_shm_ack(0, 1, IBV_WC_RNR_RETRY_EXC_ERR));
	assert_false(atomic_load(&local(0)->mine->polled));
}

static void post_without_completion(enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = { (uintptr_t)rig_at(SOURCES), SHORT, rig.mrs[SOURCES].key };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = opcode == IBV_WR_SEND, .opcode = opcode };
	qps[0].qp.sq_sig_all = false;
	assert_int_equal(vb_qp_post_send(&qps[0].qp, &wr, &bad), 0);
}

/* The poll sees the answer first, and takes the ack in it. The invalidation names no key, and fails. */
static void poll__goes_on_with_what_waits_for_a_piggybacked_ack(void **state)
{
	enum { MOST = 100000 };
	struct vb_shm_entry *second = (void *)(fake_arena + RING + ENTRY_BYTES);
	struct vb_cqe completion = { 0 };
	connect_all(1);
	begin_epoch(1, FOR_EVER);
	receive();
	hear(0);
	expect_message();
	begin_polling();
	post_without_completion(IBV_WR_SEND);
	post_without_completion(IBV_WR_LOCAL_INV);
	receive();
	vb_ack_came_piggybacked(local(0));
	second->executed = 1;
	block(0)->ack = vb_shm_ack(1, local(0)->epoch, 0);
	publish(1, VB_SHM_INLINE | VB_SHM_ACKS);
	expect_message();
	for (unsigned i = 0; i < MOST && !vb_cq_poll(&rig.cq, 1, &completion); i++)
		;
	assert_int_equal(completion.status, IBV_WC_MW_BIND_ERR);
}

/* ---- translations ---- */

static void learn_all(void)
{
	struct ibv_sge piece = { (uintptr_t)rig_at(OPEN), WRITTEN, rig.mrs[OPEN].key };
	struct ibv_send_wr wr = { .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND };
	for (unsigned i = 0; i < MANY_LOOKS; i++) {
		vb_translation_learn_send(local(0), &wr);
		vb_translation_learn_receive(local(0), &piece);
	}
}

/* The peer's queue pair stops between the look at it and at the generations. */
static void translation__of_an_epoch_that_has_just_ended(void **state)
{
	connect_all(1);
	begin_epoch(1, FOR_EVER);
	look();
	assert_true(vb_peer_responds(local(0)));
	learn_all();
	assert_true(vb_translation_holds(local(0), &local(0)->to_send));
	assert_true(vb_translation_holds(local(0), &local(0)->to_receive));
	block(0)->mode = 1 << 8;
	head()->generation++;
	learn_all();
	assert_false(vb_translation_holds(local(0), &local(0)->to_send));
	assert_false(vb_translation_holds(local(0), &local(0)->to_receive));
}

/* ---- captures ---- */

/* One ended in the middle of a message for another process's queue, and the next began in that of another. */
static void capture__in_the_middle_of_messages(void **state)
{
	connect_all(1);
	struct vb_local_qp *l = local(0);
	assert_non_null(l->piece = calloc(1, sizeof(*l->piece)));
	l->cur = (struct vb_entry_copy){ .length = SHORT };
	vb_capture_passed(l, SHORT);
	assert_int_equal(l->capture.passed->bytes, SHORT);
	atomic_store(&l->resp.next, 1);
	l->cur = (struct vb_entry_copy){ .length = LONG, .done = SHORT };
	vb_capture_passed(l, LONG - SHORT);
	assert_int_equal(l->capture.passed->bytes, SHORT); /* there is no room for more */
	atomic_store(&l->resp.next, 0);
}

/* What a capture of the last epoch has told of a position means nothing for the next. */
static void capture__of_the_last_epoch(void **state)
{
	connect_all(1);
	atomic_store(&local(0)->mine->captured, vb_shm_captured(0, 1234));
	assert_int_equal(rig_move(&qps[0], IBV_QPS_RESET), 0);
	assert_int_equal(rig_connect(&qps[0], LOCALHOST, FAKE_PEER_SLOT << VB_SLOT_SHIFT, 7), 0);
	assert_false(vb_shm_captured_is_for(atomic_load(&local(0)->mine->captured), 0));
}

/* ---- silence ---- */

/* In SQD the program changes how long a silent peer is waited for. */
static void change_timeout(uint8_t timeout)
{
	struct ibv_qp_attr attr = { .timeout = timeout };
	assert_int_equal(rig_move(&qps[0], IBV_QPS_SQD), 0);
	assert_int_equal(vb_qp_modify(&qps[0].qp, &attr, IBV_QP_TIMEOUT), 0);
	assert_int_equal(rig_move(&qps[0], IBV_QPS_RTS), 0);
	fake_pass_time(1000000000);
}

static void silence__lasts_while_there_is_no_timeout(void **state)
{
	connect_all(1);
	block(0)->mode = 0; /* responds no more */
	write_to_peer();
	change_timeout(0);
	assert_int_equal(atomic_load(&qps[0].qp.state), IBV_QPS_RTS);
	change_timeout(8);
	assert_int_equal(atomic_load(&qps[0].qp.state), IBV_QPS_ERR);
}

static int set_up(void **state)
{
	rig_set_up();
	vb_progress_arm(); /* what was polled before does not count */
	fake.can_copy = true;
	fake.patience = UINT_MAX;
	make_arena();
	link_up();
	return 0;
}

static int tear_down(void **state)
{
	struct vb_cqe completions[2 * RIG_QPS];
	memset(block(0), 0, QPS * VB_QP_BLOCK);
	remove_all();
	while (vb_cq_poll(&rig.cq, 2 * RIG_QPS, completions) > 0)
		;
	fake_link_hang_up();
	fake_pass_time(1000000000);
	rig_tear_down();
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(revocation__ends_whoever_stays_busy),
		TEST(revocation__stops_a_peer_whose_link_has_ended),
		TEST(cut__leaves_what_the_peer_reads),
		TEST(bell__that_does_not_come_lets_sleep),
		TEST(bell__beside_a_thread_that_does_not_wake),
		TEST(memory__of_a_peer_that_has_died),
		TEST(segment__that_nobody_asked_for),
		TEST(segment__beyond_a_share_of_the_addresses),
		TEST(stream__goes_on_after_any_number_of_short_messages),
		TEST(epoch__after_one_of_which_nothing_was_taken),
		TEST(epoch__that_was_refused_stays_so),
		TEST(epoch__in_the_middle_of_a_message),
		TEST(epoch__that_the_peer_does_not_expect),
		TEST(bell__behind_one_that_does_not_come),
		TEST(bell__behind_one_that_does_not_come_while_polled),
		TEST(poll__of_a_queue_pair_whose_requester_was_refused),
		TEST(poll__of_a_queue_pair_that_has_failed),
		TEST(poll__of_a_queue_pair_that_awaits_no_ack_any_more),
		TEST(poll__of_a_queue_pair_that_drains),
		TEST(poll__of_a_queue_pair_whose_peer_has_failed),
		TEST(poll__ends_with_the_requester),
		TEST(poll__goes_on_with_what_waits_for_a_piggybacked_ack),
		TEST(translation__of_an_epoch_that_has_just_ended),
		TEST(capture__in_the_middle_of_messages),
		TEST(capture__of_the_last_epoch),
		TEST(silence__lasts_while_there_is_no_timeout),
		TEST(stream__without_memory_fails_the_request),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
