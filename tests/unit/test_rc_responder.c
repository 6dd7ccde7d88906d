/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "packets.h"
#include "proto/rc/rc_responder.h"
#include "proto/rc/uc.h"

enum { MTU = 256, FIRST_PSN = 0xfffffe, BASE = 0x10000, RKEY = 7, MEMORY = 4096, RNR_TIMER = 12 };

/* A responder with a little memory; requests come from vb_request_packet as a peer would make them. */
static struct fixture {
	struct vb_rc_resp resp;
	struct vb_uc_resp uc;
	struct vb_packet_out out;
	struct test_packet t;
	uint8_t memory[MEMORY], received[MEMORY];
	unsigned receives, taken, done, invalidated, atomics, buffers, max_buffers;
	int invalidate_result;
	struct vb_received last;
	uint32_t sent;			/* PSNs of the peer, counted from FIRST_PSN */
} f;

static int receive_take(void *ctx, const struct vb_packet *packet)
{
	if (!f.receives)
		return -EAGAIN;
	f.receives--;
	f.taken++;
	return 0;
}

static int receive_place(void *ctx, uint64_t offset, const void *bytes, size_t len)
{
	if (offset + len > 1000)
		return -EMSGSIZE;
	memcpy(f.received + offset, bytes, len);
	return 0;
}

static void receive_done(void *ctx, const struct vb_received *received)
{
	f.done++;
	f.last = *received;
}

static int check(void *ctx, uint32_t rkey, uint64_t addr, uint64_t len, enum vb_access access)
{
	return rkey == RKEY && addr >= BASE && addr + len <= BASE + MEMORY ? 0 : -EACCES;
}

static int write_memory(void *ctx, uint32_t rkey, uint64_t addr, const void *bytes, size_t len)
{
	if (check(ctx, rkey, addr, len, VB_ACCESS_WRITE))
		return -EACCES;
	memcpy(f.memory + (addr - BASE), bytes, len);
	return 0;
}

static int atomic(void *ctx, const struct vb_atomic *op, uint64_t *original)
{
	*original = 100 + f.atomics++;
	return 0;
}

static int invalidate(void *ctx, uint32_t rkey)
{
	f.invalidated = rkey;
	return f.invalidate_result;
}

static void *buffer_take(void *ctx)
{
	if (f.buffers >= f.max_buffers)
		return NULL;
	f.buffers++;
	return malloc(VB_RC_BUFFER_BYTES);
}

static void buffer_give(void *ctx, void *buffer)
{
	f.buffers--;
	free(buffer);
}

static const struct vb_responder_ops ops = {
	.receive_take = receive_take,
	.receive_place = receive_place,
	.receive_done = receive_done,
	.check = check,
	.write = write_memory,
	.atomic = atomic,
	.invalidate = invalidate,
};

static int setup(void **state)
{
	memset(&f, 0, sizeof(f));
	f.receives = 4;
	f.max_buffers = 8;
	vb_rc_resp_init(&f.resp, &(struct vb_rc_resp_config){ .to = *to_peer(),
							      .mtu = MTU,
							      .first_psn = FIRST_PSN,
							      .max_rd_atomic = 2,
							      .rnr_timer = RNR_TIMER,
							      .ops = &ops,
							      .buffer_take = buffer_take,
							      .buffer_give = buffer_give });
	vb_uc_resp_init(&f.uc, &(struct vb_uc_resp_config){ .mtu = MTU, .first_psn = FIRST_PSN,
		.pkey = VB_PKEY_DEFAULT, .ops = &ops });
	return 0;
}

static int teardown(void **state)
{
	vb_rc_resp_fini(&f.resp);
	return f.buffers ? -1 : 0;
}

static uint32_t psn(uint32_t n) { return (FIRST_PSN + n) & VB_PSN_MASK; }

static struct vb_request request(uint8_t kind, uint32_t length)
{
	return (struct vb_request){ .kind = kind, .length = length, .remote_addr = BASE, .rkey = RKEY };
}

/* The packet at `index` of a request whose first has PSN `first`; all of it asks for an ACK. */
static const struct vb_packet *packet_of(const struct vb_request *r, uint32_t first, uint32_t index,
					 uint8_t fill)
{
	vb_request_packet(r, to_peer(), MTU, psn(first + index), index, vb_request_packets(r, MTU), &f.out);
	vb_packet_out_ask(&f.out);
	return arrival(&f.t, &f.out, fill);
}

static enum vb_rc_verdict gets(const struct vb_request *r, uint32_t first, uint32_t index)
{
	return vb_rc_resp_receive(&f.resp, packet_of(r, first, index, (uint8_t)(first + index)));
}

static void assert_ignored(const struct vb_packet *packet)
{
	struct vb_rc_resp before = f.resp;
	assert_int_equal(vb_rc_resp_receive(&f.resp, packet), VB_RC_IGNORED);
	assert_memory_equal(&before, &f.resp, sizeof(before));
}

static bool writes(void) { return vb_rc_resp_write(&f.resp, &f.out); }

static void assert_writes(const char *name, uint32_t n)
{
	assert_true(writes());
	assert_string_equal(name_of(&f.out), name);
	assert_int_equal(psn_of(&f.out), psn(n));
}

static void assert_writes_ack(uint32_t n, uint8_t syndrome)
{
	assert_writes("ACKNOWLEDGE", n);
	assert_int_equal(vb_aeth_syndrome((struct vb_aeth *)(f.out.header + VB_BTH_BYTES)), syndrome);
}

static void assert_acks(uint32_t n, uint8_t syndrome)
{
	assert_writes_ack(n, syndrome);
	assert_false(writes());
}

static const uint8_t ACK = VB_AETH_NO_CREDITS, SEQUENCE = VB_AETH_NAK << 5,
	INVALID = VB_AETH_NAK << 5 | VB_NAK_INVALID_REQUEST,
		     ACCESS = VB_AETH_NAK << 5 | VB_NAK_REMOTE_ACCESS;

static void send__three_packets_one_ack(void **state)
{
	struct vb_request r = request(VB_REQ_SEND, 600);

	r.tail = VB_TAIL_IMM;
	r.tail_value = 0xdecade;
	r.solicited = true;
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(gets(&r, 0, i), VB_RC_TAKEN);
	assert_int_equal(f.taken, 1);
	assert_int_equal(f.done, 1);
	assert_int_equal(f.last.bytes, 600);
	assert_int_equal(f.last.tail, VB_TAIL_IMM);
	assert_int_equal(f.last.tail_value, 0xdecade);
	assert_true(f.last.solicited);
	assert_int_equal(f.received[599], 2);
	assert_acks(2, ACK);
	assert_int_equal(vb_aeth_msn((struct vb_aeth *)(f.out.header + VB_BTH_BYTES)), 1);
}

static unsigned count_receives(void *ctx) { return f.receives; }

static void send__acks_say_how_many_receives_there_are(void **state)
{
	struct vb_request one = request(VB_REQ_SEND, 10), two = request(VB_REQ_SEND, 300);

	f.resp.config.receives = count_receives;
	f.receives = 6;
	gets(&one, 0, 0);
	assert_acks(0, 4 + 0);		/* there is no code for five */
	f.receives = 1;
	gets(&two, 1, 0);
	assert_acks(1, 1);		/* the one that this message has */
	gets(&two, 1, 1);
	assert_acks(2, 0);
}

static void send__duplicates_are_acknowledged_and_not_executed(void **state)
{
	struct vb_request r = request(VB_REQ_SEND, 1);

	gets(&r, 0, 0);
	gets(&r, 1, 0);
	assert_acks(1, ACK);
	assert_int_equal(gets(&r, 0, 0), VB_RC_TAKEN);
	assert_acks(1, ACK);
	assert_int_equal(f.done, 2);
}

static void send__with_invalidate(void **state)
{
	struct vb_request r = request(VB_REQ_SEND, 1);

	r.tail = VB_TAIL_INVALIDATE;
	r.tail_value = 0x55;
	gets(&r, 0, 0);
	assert_int_equal(f.invalidated, 0x55);
	assert_int_equal(f.last.tail, VB_TAIL_INVALIDATE);
	assert_false(f.last.is_refused);
}

/* The message is done and acknowledged, again and again; nothing behind it is executed. */
static void send__with_a_key_that_cannot_be_invalidated(void **state)
{
	struct vb_request r = request(VB_REQ_SEND, 1);

	r.tail = VB_TAIL_INVALIDATE;
	f.invalidate_result = -EACCES;
	assert_int_equal(gets(&r, 0, 0), VB_RC_BROKEN);
	assert_int_equal(f.done, 1);
	assert_true(f.last.is_refused);
	assert_acks(0, ACK);
	f.invalidate_result = 0;
	assert_int_equal(gets(&r, 0, 0), VB_RC_BROKEN);
	assert_acks(0, ACK);
	assert_int_equal(gets(&r, 1, 0), VB_RC_BROKEN);
	assert_acks(0, ACK);
	assert_int_equal(f.done, 1);
	assert_false(vb_rc_resp_has_refused_next(&f.resp));
}

static void send__longer_than_the_receive(void **state)
{
	struct vb_request r = request(VB_REQ_SEND, 1024);

	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(gets(&r, 0, i), VB_RC_TAKEN);
	assert_int_equal(gets(&r, 0, 3), VB_RC_BROKEN);
	assert_int_equal(f.done, 0);
	assert_acks(3, INVALID);
	assert_int_equal(gets(&r, 0, 3), VB_RC_BROKEN);	/* asked again: told again */
	assert_acks(3, INVALID);
}

static void receive__none_posted(void **state)
{
	struct vb_request r = request(VB_REQ_SEND, 1), w = request(VB_REQ_WRITE, 300);

	f.receives = 0;
	assert_int_equal(gets(&r, 0, 0), VB_RC_TAKEN);
	assert_acks(0, VB_AETH_RNR << 5 | RNR_TIMER);
	assert_int_equal(gets(&r, 1, 0), VB_RC_TAKEN);	/* kept */
	assert_false(writes());
	f.receives = 2;
	assert_int_equal(gets(&r, 0, 0), VB_RC_TAKEN);
	assert_acks(1, ACK);
	assert_int_equal(f.done, 2);
	w.tail = VB_TAIL_IMM;
	assert_int_equal(gets(&w, 2, 0), VB_RC_TAKEN);
	assert_int_equal(gets(&w, 2, 1), VB_RC_TAKEN);
	assert_acks(3, VB_AETH_RNR << 5 | RNR_TIMER);
	f.receives = 1;
	assert_int_equal(gets(&w, 2, 1), VB_RC_TAKEN);
	assert_acks(3, ACK);
	assert_int_equal(f.last.bytes, 300);
	assert_true(f.last.is_write);
}

static void order__kept_until_the_hole_is_filled(void **state)
{
	struct vb_request r = request(VB_REQ_WRITE, 5 * MTU);

	gets(&r, 0, 0);
	assert_acks(0, ACK);
	assert_int_equal(gets(&r, 0, 2), VB_RC_TAKEN);
	assert_acks(1, SEQUENCE);
	gets(&r, 0, 4);
	gets(&r, 0, 4);
	assert_false(writes());		/* said already */
	assert_int_equal(f.buffers, 2);
	assert_int_equal(f.memory[2 * MTU], 0);
	gets(&r, 0, 1);
	assert_int_equal(f.memory[2 * MTU], 2);
	assert_int_equal(f.buffers, 1);
	assert_acks(3, SEQUENCE);	/* the next hole */
	gets(&r, 0, 3);
	assert_acks(4, ACK);
	assert_int_equal(f.buffers, 0);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(f.memory[i * MTU], i);
}

/* The packet at index 1 of three is sent again alone, or with what is behind it. */
static void fill_a_hole(const struct vb_request *r, uint32_t first, uint32_t last_again)
{
	gets(r, 0, first);
	assert_acks(first, ACK);
	gets(r, 0, first + 2);
	assert_acks(first + 1, SEQUENCE);
	for (uint32_t i = first + 1; i <= last_again; i++)
		gets(r, 0, i);
	assert_acks(first + 2, ACK);
}

/* Most requesters send all behind it again, each time that they hear of a hole. */
static void order__nak_is_repeated_to_who_sends_one_packet_again(void **state)
{
	struct vb_request r = request(VB_REQ_WRITE, 14 * MTU);

	f.max_buffers = 100;
	fill_a_hole(&r, 0, 1);
	gets(&r, 0, 3);
	assert_acks(3, ACK);
	gets(&r, 0, 5);
	assert_acks(4, SEQUENCE);
	gets(&r, 0, 6);			/* asks for an ACK */
	assert_acks(4, SEQUENCE);
	vb_request_packet(&r, to_peer(), MTU, psn(7), 7, 14, &f.out);
	vb_rc_resp_receive(&f.resp, arrival(&f.t, &f.out, 7));
	assert_false(writes());
	assert_int_equal(f.resp.sequence_naks, 2);
	gets(&r, 0, 4);
	assert_acks(7, ACK);

	fill_a_hole(&r, 8, 10);
	gets(&r, 0, 12);
	assert_acks(11, SEQUENCE);
	gets(&r, 0, 13);
	assert_false(writes());
}

static void order__without_memory(void **state)
{
	struct vb_request r = request(VB_REQ_WRITE, 3 * MTU);

	f.max_buffers = 0;
	gets(&r, 0, 1);
	assert_acks(0, SEQUENCE);
	gets(&r, 0, 0);
	assert_acks(0, ACK);
	gets(&r, 0, 2);
	assert_acks(1, SEQUENCE);
	gets(&r, 0, 1);
	gets(&r, 0, 2);
	assert_acks(2, ACK);
}

static void order__kept_packets_are_bounded(void **state)
{
	struct vb_request r = request(VB_REQ_SEND, 1);

	f.max_buffers = 100000;
	for (unsigned i = 1; i < 2 * VB_RC_KEPT; i++)
		gets(&r, i, 0);
	assert_int_equal(f.buffers, VB_RC_KEPT - 1);
	vb_rc_resp_fini(&f.resp);
	assert_int_equal(f.buffers, 0);
}

static void write__what_does_not_fit(void **state)
{
	struct { struct vb_request r; uint32_t index; uint8_t syndrome; } cases[] = {
		{ request(VB_REQ_WRITE, 600), 1, INVALID },		/* begins in the middle */
		{ request(VB_REQ_WRITE, 600), 0, ACCESS },		/* beyond the region */
		{ request(VB_REQ_WRITE, 1), 0, ACCESS },		/* no such key */
	};

	cases[1].r.remote_addr = BASE + MEMORY - 599;
	cases[2].r.rkey++;
	for (unsigned i = 0; i < VB_ARRAY_LEN(cases); i++) {
		setup(state);
		assert_int_equal(vb_rc_resp_receive(&f.resp, packet_of(&cases[i].r, 0 - cases[i].index,
			cases[i].index, 1)), VB_RC_BROKEN);
		assert_acks(0, cases[i].syndrome);
		assert_int_equal(f.memory[0], 0);
	}
}

/* More or less data than the RETH announced. */
static void write__length_is_kept_to(void **state)
{
	struct vb_request announced = request(VB_REQ_WRITE, 3 * MTU),
			  shorter = request(VB_REQ_WRITE, 2 * MTU), longer = request(VB_REQ_WRITE, 4 * MTU);

	gets(&announced, 0, 0);
	assert_int_equal(gets(&shorter, 0, 1), VB_RC_BROKEN);
	setup(state);
	gets(&announced, 0, 0);
	gets(&longer, 0, 1);
	assert_int_equal(gets(&longer, 0, 2), VB_RC_BROKEN);
	assert_int_equal(f.memory[2 * MTU], 0);
	assert_acks(2, INVALID);
}

static void write__begins_within_another(void **state)
{
	struct vb_request r = request(VB_REQ_WRITE, 3 * MTU), read = request(VB_REQ_READ, 1);

	gets(&r, 0, 0);
	assert_int_equal(gets(&r, 1, 0), VB_RC_BROKEN);
	setup(state);
	gets(&r, 0, 0);
	assert_int_equal(gets(&read, 1, 0), VB_RC_BROKEN);
}

static void read__responses_and_order_of_answers(void **state)
{
	struct vb_request s = request(VB_REQ_SEND, 1), r = request(VB_REQ_READ, 2 * MTU + 3);

	gets(&s, 0, 0);
	gets(&r, 1, 0);
	gets(&s, 4, 0);
	assert_writes("READ_RESPONSE_FIRST", 1);
	assert_int_equal(f.out.payload_at, BASE);
	assert_int_equal(f.out.rkey, RKEY);
	assert_writes("READ_RESPONSE_MIDDLE", 2);
	assert_writes("READ_RESPONSE_LAST", 3);
	assert_int_equal(f.out.payload_at, BASE + 2 * MTU);
	assert_int_equal(f.out.payload_bytes, 3);
	assert_int_equal(f.out.pad_bytes, 1);
	assert_acks(4, ACK);
}

static void read__again_whole_and_in_part(void **state)
{
	struct vb_request r = request(VB_REQ_READ, 3 * MTU), part = request(VB_REQ_READ, MTU),
		s = request(VB_REQ_SEND, 1);

	gets(&r, 0, 0);
	assert_ignored(packet_of(&r, 0, 0, 0));	/* still to be answered */
	while (writes())
		;
	gets(&s, 3, 0);
	part.remote_addr += MTU;
	assert_int_equal(gets(&part, 1, 0), VB_RC_TAKEN);
	assert_ignored(packet_of(&part, 1, 0, 0));
	assert_writes("READ_RESPONSE_ONLY", 1);
	assert_int_equal(f.out.payload_at, BASE + MTU);
	assert_acks(3, ACK);
	assert_int_equal(gets(&r, 0, 0), VB_RC_TAKEN);
	assert_writes("READ_RESPONSE_FIRST", 0);
	assert_writes("READ_RESPONSE_MIDDLE", 1);
	assert_writes("READ_RESPONSE_LAST", 2);
	assert_false(writes());
}

/* A duplicate gives access to nothing but what was read then. */
static void read__again_must_be_the_same(void **state)
{
	struct vb_request r = request(VB_REQ_READ, 2 * MTU), other;

	gets(&r, 0, 0);
	while (writes())
		;
	other = r;
	other.remote_addr += 4;
	assert_ignored(packet_of(&other, 0, 0, 0));
	other = r;
	other.rkey++;
	assert_ignored(packet_of(&other, 0, 0, 0));
	other = r;
	other.length++;
	assert_ignored(packet_of(&other, 0, 0, 0));
	assert_ignored(packet_of(&r, 1, 0, 0));
	other = request(VB_REQ_FETCH_ADD, 8);
	assert_ignored(packet_of(&other, 0, 0, 0));
	assert_int_equal(f.atomics, 0);
}

static void read__more_than_agreed(void **state)
{
	struct vb_request r = request(VB_REQ_READ, 1);

	gets(&r, 0, 0);
	gets(&r, 1, 0);
	assert_int_equal(gets(&r, 2, 0), VB_RC_BROKEN);
	assert_writes("READ_RESPONSE_ONLY", 0);
	assert_writes("READ_RESPONSE_ONLY", 1);
	assert_acks(2, INVALID);
}

static void read__memory_gone_when_it_is_sent(void **state)
{
	struct vb_request r = request(VB_REQ_READ, 3 * MTU);

	gets(&r, 0, 0);
	assert_writes("READ_RESPONSE_FIRST", 0);
	assert_writes("READ_RESPONSE_MIDDLE", 1);
	vb_rc_resp_fault(&f.resp, &f.out);
	assert_acks(1, ACCESS);
}

/*
 * Its owner may have done with the memory that a duplicate asks for once more: whoever has had the answer
 * does not care.
 */
static void read__memory_gone_when_it_is_sent_again(void **state)
{
	struct vb_request r = request(VB_REQ_READ, 2 * MTU), s = request(VB_REQ_SEND, 8);

	gets(&r, 0, 0);
	while (writes())
		;
	gets(&s, 2, 0);
	assert_int_equal(gets(&r, 0, 0), VB_RC_TAKEN);
	assert_writes("READ_RESPONSE_FIRST", 0);
	vb_rc_resp_fault(&f.resp, &f.out);
	assert_false(f.resp.broken);
	assert_writes_ack(0, ACCESS);
	assert_acks(2, ACK);	/* what has been executed since is not forgotten */

	r = request(VB_REQ_READ, 1);
	assert_int_equal(gets(&r, 3, 0), VB_RC_TAKEN);
	assert_writes("READ_RESPONSE_ONLY", 3);
	vb_rc_resp_fault(&f.resp, &f.out);
	assert_true(f.resp.broken);
	assert_acks(3, ACCESS);
}

/* A gap that the requester is to hear of counts more. */
static void read__memory_gone_behind_a_gap(void **state)
{
	struct vb_request r = request(VB_REQ_READ, 1), s = request(VB_REQ_SEND, 8);

	gets(&r, 0, 0);
	while (writes())
		;
	gets(&s, 2, 0);	/* 1 is missing */
	assert_int_equal(gets(&r, 0, 0), VB_RC_TAKEN);
	assert_writes("READ_RESPONSE_ONLY", 0);
	vb_rc_resp_fault(&f.resp, &f.out);
	assert_acks(1, SEQUENCE);
	assert_false(f.resp.broken);
}

static void atomic__executed_once_answered_twice(void **state)
{
	struct vb_request r = request(VB_REQ_FETCH_ADD, 8);

	gets(&r, 0, 0);
	assert_writes("ATOMIC_ACKNOWLEDGE", 0);
	gets(&r, 1, 0);
	assert_writes("ATOMIC_ACKNOWLEDGE", 1);
	assert_int_equal(gets(&r, 0, 0), VB_RC_TAKEN);
	assert_writes("ATOMIC_ACKNOWLEDGE", 0);
	assert_int_equal(vb_atomicacketh_original((struct vb_atomicacketh *)(f.out.header + 16)), 100);
	assert_int_equal(f.atomics, 2);
	gets(&r, 2, 0);
	while (writes())
		;
	assert_ignored(packet_of(&r, 0, 0, 0));	/* older than what is saved */
}

/* The count of READs and atomics has 32 bits. */
static void atomic__answered_twice_when_their_count_wraps(void **state)
{
	struct vb_request r = request(VB_REQ_FETCH_ADD, 8);

	f.resp.saved_next = f.resp.saved_unsent = UINT32_MAX;
	for (uint32_t n = 0; n < 3; n++) {
		gets(&r, n, 0);
		assert_writes("ATOMIC_ACKNOWLEDGE", n);
		assert_int_equal(gets(&r, n, 0), VB_RC_TAKEN);
		assert_writes("ATOMIC_ACKNOWLEDGE", n);
	}
	assert_int_equal(f.atomics, 3);
	assert_int_equal(gets(&r, 1, 0), VB_RC_TAKEN);
	assert_writes("ATOMIC_ACKNOWLEDGE", 1);
}

static void atomic__address_must_be_aligned(void **state)
{
	struct vb_request r = request(VB_REQ_COMPARE_SWAP, 8);

	r.remote_addr += 4;
	assert_int_equal(gets(&r, 0, 0), VB_RC_BROKEN);
	assert_acks(0, INVALID);
	assert_int_equal(f.atomics, 0);
}

/* Else the answer could hold what the atomic has written. */
static void atomic__waits_for_the_reads_before_it(void **state)
{
	struct vb_request read = request(VB_REQ_READ, 600), add = request(VB_REQ_FETCH_ADD, 8),
			  send = request(VB_REQ_SEND, 1);

	gets(&read, 0, 0);
	assert_int_equal(gets(&add, 3, 0), VB_RC_TAKEN);
	assert_int_equal(gets(&add, 3, 0), VB_RC_TAKEN); /* sent again */
	assert_int_equal(gets(&send, 4, 0), VB_RC_TAKEN);
	assert_int_equal(gets(&add, 5, 0), VB_RC_TAKEN);
	assert_writes("READ_RESPONSE_FIRST", 0);
	assert_writes("READ_RESPONSE_MIDDLE", 1);
	assert_writes("READ_RESPONSE_LAST", 2);
	assert_int_equal(f.atomics, 0);
	assert_int_equal(f.taken, 0);
	assert_writes("ATOMIC_ACKNOWLEDGE", 3);
	assert_int_equal(f.atomics, 2);
	assert_int_equal(f.done, 1);
	assert_writes("ATOMIC_ACKNOWLEDGE", 5);
	assert_false(writes());
	assert_int_equal(f.resp.early, 0);
}

/* It was kept ahead of the READ. */
static void atomic__waits_for_a_read_that_was_kept(void **state)
{
	struct vb_request read = request(VB_REQ_READ, 8), add = request(VB_REQ_FETCH_ADD, 8),
			  send = request(VB_REQ_SEND, 1);

	gets(&add, 2, 0);
	gets(&read, 1, 0);
	gets(&send, 0, 0);
	assert_int_equal(f.atomics, 0);
	assert_writes("READ_RESPONSE_ONLY", 1);
	assert_int_equal(f.atomics, 0);
	assert_writes("ATOMIC_ACKNOWLEDGE", 2);
	assert_false(writes());
}

static void atomic__that_has_waited_is_refused(void **state)
{
	struct vb_request read = request(VB_REQ_READ, 8), add = request(VB_REQ_FETCH_ADD, 8),
			  send = request(VB_REQ_SEND, 1);

	add.remote_addr += 4;
	gets(&read, 0, 0);
	assert_int_equal(gets(&add, 1, 0), VB_RC_TAKEN);
	gets(&send, 2, 0);
	assert_writes("READ_RESPONSE_ONLY", 0);
	assert_false(f.resp.broken);
	assert_acks(1, INVALID);
	assert_true(f.resp.broken);
	assert_int_equal(f.taken, 0);
}

static void atomic__behind_a_read_that_fails_is_not_executed(void **state)
{
	struct vb_request read = request(VB_REQ_READ, 8), add = request(VB_REQ_FETCH_ADD, 8);

	gets(&read, 0, 0);
	gets(&add, 1, 0);
	assert_true(writes());
	vb_rc_resp_fault(&f.resp, &f.out);
	assert_acks(0, ACCESS);
	assert_int_equal(f.atomics, 0);
}

static void atomic__without_memory_comes_again(void **state)
{
	struct vb_request read = request(VB_REQ_READ, 8), add = request(VB_REQ_FETCH_ADD, 8);

	f.max_buffers = 0;
	gets(&read, 0, 0);
	gets(&add, 1, 0);
	assert_writes("READ_RESPONSE_ONLY", 0);
	assert_false(writes());
	assert_int_equal(f.atomics, 0);
	gets(&add, 1, 0);
	assert_writes("ATOMIC_ACKNOWLEDGE", 1);
}

static void strangers__are_ignored(void **state)
{
	struct vb_request r = request(VB_REQ_SEND, 1);
	struct test_packet t;

	assert_ignored(ack_of(&t, psn(0)));
	packet_of(&r, 0, 0, 0);
	f.t.packet.pkey = 0x8001;
	assert_ignored(&f.t.packet);
	packet_of(&r, 0, 0, 0);
	f.t.packet.opcode = VB_OPCODE(UC, SEND_ONLY);
	f.t.packet.row = vb_opcode_row(f.t.packet.opcode);
	assert_ignored(&f.t.packet);
}

/*
 * --- UC
 * --------------------------------------------------------------------------------------------------------
 */

static bool uc_gets(const struct vb_request *r, uint32_t first, uint32_t index)
{
	struct vb_packet_to to = *to_peer();

	to.service = VB_SERVICE_UC;
	vb_request_packet(r, &to, MTU, psn(first + index), index, 0, &f.out);
	return !vb_uc_resp_receive(&f.uc, arrival(&f.t, &f.out, (uint8_t)(first + index)));
}

static void uc__a_gap_costs_its_message(void **state)
{
	struct vb_request s = request(VB_REQ_SEND, 3 * MTU), w = request(VB_REQ_WRITE, 2 * MTU);

	assert_true(uc_gets(&s, 0, 0));
	assert_false(uc_gets(&s, 0, 2));
	assert_int_equal(f.done, 0);
	assert_false(uc_gets(&w, 3, 1));	/* the end of a message whose beginning was lost */
	for (unsigned i = 0; i < 3; i++)
		assert_true(uc_gets(&s, 10, i));
	assert_int_equal(f.taken, 1);		/* the receive of the message that was lost */
	assert_int_equal(f.done, 1);
	assert_int_equal(f.received[0], 10);
	assert_true(uc_gets(&w, 13, 0));
	assert_true(uc_gets(&w, 13, 1));
	assert_int_equal(f.memory[MTU], 14);
	assert_int_equal(f.uc.dropped, 2);
}

static void uc__nothing_posted_or_not_allowed(void **state)
{
	struct vb_request s = request(VB_REQ_SEND, 1), w = request(VB_REQ_WRITE, 1);

	f.receives = 0;
	assert_false(uc_gets(&s, 0, 0));
	f.receives = 1;
	assert_true(uc_gets(&s, 1, 0));
	w.rkey++;
	assert_false(uc_gets(&w, 2, 0));
	w.rkey--;
	assert_true(uc_gets(&w, 3, 0));
	f.uc.config.pkey = 0x8001;
	assert_false(uc_gets(&w, 4, 0));
}

static void ack_again__after_a_message_and_not_after_an_answer(void **state)
{
	struct vb_request s = request(VB_REQ_SEND, 1), r = request(VB_REQ_READ, 1);

	assert_false(vb_rc_resp_ack_again(&f.resp));
	assert_int_equal(gets(&s, 0, 0), VB_RC_TAKEN);
	assert_false(vb_rc_resp_ack_again(&f.resp));	/* the first time is still due */
	for (unsigned n = 0; n < 2; n++) {
		assert_true(vb_rc_resp_write(&f.resp, &f.out));
		assert_int_equal(vb_bth_psn((const struct vb_bth *)f.out.header), psn(0));
		assert_false(vb_rc_resp_write(&f.resp, &f.out));
		assert_int_equal(vb_rc_resp_ack_again(&f.resp), true);
	}
	assert_true(vb_rc_resp_write(&f.resp, &f.out));
	assert_int_equal(gets(&r, 1, 0), VB_RC_TAKEN);
	assert_true(vb_rc_resp_write(&f.resp, &f.out));
	assert_false(vb_rc_resp_ack_again(&f.resp));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(send__three_packets_one_ack),
		TEST(send__acks_say_how_many_receives_there_are),
		TEST(send__duplicates_are_acknowledged_and_not_executed),
		TEST(send__with_invalidate),
		TEST(send__with_a_key_that_cannot_be_invalidated),
		TEST(send__longer_than_the_receive),
		TEST(receive__none_posted),
		TEST(order__kept_until_the_hole_is_filled),
		TEST(order__nak_is_repeated_to_who_sends_one_packet_again),
		TEST(order__without_memory),
		TEST(order__kept_packets_are_bounded),
		TEST(write__what_does_not_fit),
		TEST(write__length_is_kept_to),
		TEST(write__begins_within_another),
		TEST(read__responses_and_order_of_answers),
		TEST(read__again_whole_and_in_part),
		TEST(read__again_must_be_the_same),
		TEST(read__more_than_agreed),
		TEST(read__memory_gone_when_it_is_sent),
		TEST(read__memory_gone_when_it_is_sent_again),
		TEST(read__memory_gone_behind_a_gap),
		TEST(atomic__executed_once_answered_twice),
		TEST(atomic__answered_twice_when_their_count_wraps),
		TEST(atomic__address_must_be_aligned),
		TEST(atomic__waits_for_the_reads_before_it),
		TEST(atomic__waits_for_a_read_that_was_kept),
		TEST(atomic__that_has_waited_is_refused),
		TEST(atomic__behind_a_read_that_fails_is_not_executed),
		TEST(atomic__without_memory_comes_again),
		TEST(ack_again__after_a_message_and_not_after_an_answer),
		TEST(strangers__are_ignored),
		TEST(uc__a_gap_costs_its_message),
		TEST(uc__nothing_posted_or_not_allowed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
