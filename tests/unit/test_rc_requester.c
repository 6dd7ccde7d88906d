/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "../between.h"
#include "packets.h"
#include "proto/rc/cnp.h"
#include "proto/rc/rc_requester.h"
#include "wire/timers.h"

enum { ENTRIES = 8, MTU = 256, FIRST_PSN = 0xfffffe, TIMEOUT_NS = 50000000 };

/* A requester, and what it was given to place. Time stands still unless a test moves it. */
static struct fixture {
	struct vb_rc_req req;
	struct vb_rc_entry entries[ENTRIES];
	struct vb_packet_out out;
	struct test_packet t;
	uint64_t now;
	uint8_t placed[32 * 256];
	uint32_t placed_bytes, placed_position;
	int place_result;
} f;

static int place(void *ctx, uint32_t position, uint64_t offset, const void *bytes, size_t len)
{
	assert_ptr_equal(ctx, &f);
	memcpy(f.placed + offset, bytes, len);
	f.placed_bytes += (uint32_t)len;
	f.placed_position = position;
	return f.place_result;
}

static int setup_with(unsigned max_rd_atomic)
{
	memset(&f, 0, sizeof(f));
	f.now = 1000000;
	vb_rc_req_init(&f.req, &(struct vb_rc_req_config){ .to = *to_peer(), .mtu = MTU,
		.first_psn = FIRST_PSN, .max_window = 512,
		.max_rd_atomic = (uint8_t)max_rd_atomic, .retry_count = 2, .rnr_retry = 2,
			.ack_timeout_ns = TIMEOUT_NS, .place = place,
		.ctx = &f }, f.entries, ENTRIES);
	return 0;
}

static int setup(void **state) { return setup_with(2); }

static uint32_t psn(uint32_t n) { return (FIRST_PSN + n) & VB_PSN_MASK; }

static void post(uint8_t kind, uint32_t length)
{
	struct vb_request r = { .kind = kind, .length = length, .remote_addr = 0x10000, .rkey = 9 };
	assert_int_equal(vb_rc_req_post(&f.req, &r), 0);
}

static void post_fenced(uint8_t kind, uint32_t length)
{
	struct vb_request r = { .kind = kind, .length = length, .fence = true };
	assert_int_equal(vb_rc_req_post(&f.req, &r), 0);
}

static bool writes(void) { return vb_rc_req_write(&f.req, f.now, &f.out); }

/* The next packet is this one. */
static void assert_writes(const char *name, uint32_t n)
{
	assert_true(writes());
	assert_string_equal(name_of(&f.out), name);
	assert_int_equal(psn_of(&f.out), psn(n));
}

static unsigned write_all(void)
{
	unsigned n = 0;
	while (writes())
		n++;
	return n;
}

static enum vb_rc_verdict receives(const struct vb_packet *packet) { return vb_rc_req_receive(&f.req, f.now,
	packet); }

static void assert_ignored(const struct vb_packet *packet)
{
	struct vb_rc_req before = f.req;
	assert_int_equal(receives(packet), VB_RC_IGNORED);
	assert_memory_equal(&before, &f.req, sizeof(before));
}

static void assert_completes(uint32_t position, enum vb_rc_status status)
{
	struct vb_rc_completion c;
	assert_true(vb_rc_req_next_completion(&f.req, &c));
	assert_int_equal(c.position, position);
	assert_int_equal(c.status, status);
}

static void assert_no_completion(void)
{
	struct vb_rc_completion c;
	assert_false(vb_rc_req_next_completion(&f.req, &c));
}

static void post__limits(void **state)
{
	struct vb_request atomic = { .kind = VB_REQ_FETCH_ADD, .length = 8 },
			  misfit = { .kind = VB_REQ_FETCH_ADD, .length = 4 };

	for (unsigned i = 0; i < ENTRIES; i++)
		post(VB_REQ_SEND, 1);
	assert_int_equal(vb_rc_req_post(&f.req, &atomic), -EAGAIN);
	assert_int_equal(vb_rc_req_post(&f.req, &misfit), -EINVAL);
}

static void send__acknowledged(void **state)
{
	post(VB_REQ_SEND, 600);
	assert_writes("SEND_FIRST", 0);
	assert_false(asks(&f.out));
	assert_writes("SEND_MIDDLE", 1);
	assert_writes("SEND_LAST", 2);
	assert_true(asks(&f.out));
	assert_int_equal(f.out.payload_at, 512);
	assert_int_equal(f.out.payload_bytes, 88);
	assert_false(writes());
	assert_no_completion();
	assert_int_equal(receives(ack_of(&f.t, psn(1))), VB_RC_TAKEN);
	assert_no_completion();
	assert_int_equal(receives(ack_of(&f.t, psn(2))), VB_RC_TAKEN);
	assert_completes(0, VB_RC_SUCCESS);
	assert_no_completion();
	assert_true(vb_rc_req_is_idle(&f.req));
	assert_int_equal(vb_rc_req_deadline(&f.req), VB_RC_NEVER);
}

/* Positions that are the caller's, before, between and behind requests. */
static void skip__between_requests(void **state)
{
	vb_rc_req_skip(&f.req);
	post(VB_REQ_SEND, 1);
	assert_int_equal(write_all(), 1);
	receives(ack_of(&f.t, psn(0)));
	assert_completes(1, VB_RC_SUCCESS);
	vb_rc_req_skip(&f.req);
	vb_rc_req_skip(&f.req);
	assert_no_completion();
	post(VB_REQ_SEND, 600);
	assert_int_equal(write_all(), 3);
	f.now = vb_rc_req_deadline(&f.req);
	vb_rc_req_expire(&f.req, f.now);
	assert_writes("SEND_FIRST", 1); /* lost */
	receives(ack_of(&f.t, psn(3)));
	assert_completes(4, VB_RC_SUCCESS);
	assert_true(vb_rc_req_is_idle(&f.req));
}

static void ack__one_for_many(void **state)
{
	for (unsigned i = 0; i < 3; i++)
		post(VB_REQ_SEND, 1);
	assert_int_equal(write_all(), 3);
	receives(ack_of(&f.t, psn(2)));
	for (unsigned i = 0; i < 3; i++)
		assert_completes(i, VB_RC_SUCCESS);
}

static void ack__ghosts_and_strangers(void **state)
{
	struct test_packet t;

	post(VB_REQ_SEND, 1);
	post(VB_REQ_SEND, 1);
	assert_int_equal(write_all(), 2);
	receives(ack_of(&t, psn(0)));
	assert_ignored(ack_of(&t, psn(0)));
	assert_ignored(ack_of(&t, psn(2)));	/* not sent yet */
	assert_ignored(ack_of(&t, psn(0x800000)));
	assert_ignored(nak_of(&t, psn(0), VB_NAK_SEQUENCE));
	assert_ignored(nak_of(&t, psn(2), VB_NAK_SEQUENCE));
	assert_ignored(reply(&t, psn(1), vb_syndrome(VB_AETH_NAK, 17)));
	assert_ignored(reply(&t, psn(1), 2 << 5));
	assert_ignored(response(&t, VB_OPB_READ_RESPONSE_ONLY, psn(1), 1));
	assert_ignored(response(&t, VB_OPB_SEND_ONLY, psn(1), 1));
	ack_of(&t, psn(1));
	t.packet.pkey = 0x8001;
	assert_ignored(&t.packet);
}

static void nak_sequence__responder_that_keeps(void **state)
{
	post(VB_REQ_WRITE, 20 * MTU);
	assert_int_equal(write_all(), 20);
	receives(nak_of(&f.t, psn(3), VB_NAK_SEQUENCE));
	assert_writes("WRITE_MIDDLE", 3);
	assert_true(asks(&f.out));
	assert_false(writes());
	receives(nak_of(&f.t, psn(15), VB_NAK_SEQUENCE));
	assert_writes("WRITE_MIDDLE", 15);
	assert_false(writes());
	post(VB_REQ_SEND, 1);
	assert_writes("SEND_ONLY", 20);		/* will be kept */
	receives(ack_of(&f.t, psn(20)));
	assert_completes(0, VB_RC_SUCCESS);
	assert_completes(1, VB_RC_SUCCESS);
	assert_int_equal(f.req.packets_resent, 2);
}

static void nak_sequence__run_of_losses(void **state)
{
	post(VB_REQ_WRITE, 20 * MTU);
	assert_int_equal(write_all(), 20);
	receives(nak_of(&f.t, psn(3), VB_NAK_SEQUENCE));
	assert_int_equal(write_all(), 1);
	receives(nak_of(&f.t, psn(4), VB_NAK_SEQUENCE));
	assert_writes("WRITE_MIDDLE", 4);
	assert_writes("WRITE_MIDDLE", 5);
	assert_false(writes());
	receives(nak_of(&f.t, psn(7), VB_NAK_SEQUENCE));
	assert_int_equal(write_all(), 4);
}

/* What was sent again is lost again: repeated after a round trip, and no window is lost for it. */
static void nak_sequence__repetition_lost(void **state)
{
	post(VB_REQ_WRITE, 20 * MTU);
	assert_int_equal(write_all(), 20);
	f.now += 200000;
	receives(ack_of(&f.t, psn(15)));
	receives(nak_of(&f.t, psn(17), VB_NAK_SEQUENCE));
	uint32_t window = f.req.window.size;
	assert_int_equal(write_all(), 1);
	assert_between(vb_rc_req_deadline(&f.req) - f.now, 200000, 900000);
	f.now = vb_rc_req_deadline(&f.req);
	vb_rc_req_expire(&f.req, f.now);
	assert_writes("WRITE_MIDDLE", 17);
	assert_false(writes());
	assert_int_equal(f.req.window.size, window);
}

/* The last packet of 20 is lost and named; the requester sends it again. */
static void lose_the_last_of(unsigned *sent)
{
	post(VB_REQ_WRITE, 20 * MTU);
	assert_int_equal(write_all(), 20);
	*sent += 20;
	f.req.timed_psn = 0;	/* only what is sent again is timed here */
	receives(nak_of(&f.t, psn(*sent - 1), VB_NAK_SEQUENCE));
	assert_int_equal(write_all(), 1);
}

/* A round trip is measured by what a NAK named, but not by an answer that may be to another packet. */
static void nak_sequence__what_it_names_is_timed(void **state)
{
	unsigned sent = 0;

	lose_the_last_of(&sent);
	f.now += 300000;
	receives(ack_of(&f.t, psn(sent - 1)));
	assert_int_equal(f.req.window.last_ns, 300000);

	lose_the_last_of(&sent);
	f.now += 299999;	/* it was not lost, but late */
	receives(ack_of(&f.t, psn(sent - 1)));
	assert_int_equal(f.req.window.last_ns, 300000);

	lose_the_last_of(&sent);
	f.now = vb_rc_req_deadline(&f.req);
	vb_rc_req_expire(&f.req, f.now);
	assert_int_equal(write_all(), 1);	/* a probe */
	f.now += 400000;
	receives(ack_of(&f.t, psn(sent - 1)));
	assert_int_equal(f.req.window.last_ns, 300000);
}

static void nak_sequence__responder_that_drops(void **state)
{
	post(VB_REQ_WRITE, 10 * MTU);
	assert_int_equal(write_all(), 10);
	receives(nak_of(&f.t, psn(3), VB_NAK_SEQUENCE));
	assert_ignored(nak_of(&f.t, psn(3), VB_NAK_SEQUENCE));	/* doubled */
	assert_writes("WRITE_MIDDLE", 3);
	assert_false(writes());
	post(VB_REQ_SEND, 1);
	assert_false(writes());		/* it would be dropped */
	receives(ack_of(&f.t, psn(3)));
	assert_writes("WRITE_MIDDLE", 4);
	assert_false(asks(&f.out));
	assert_writes("WRITE_MIDDLE", 5);
	assert_true(asks(&f.out));
	assert_false(writes());
	receives(ack_of(&f.t, psn(5)));
	assert_int_equal(write_all(), 4);
	receives(ack_of(&f.t, psn(9)));
	assert_completes(0, VB_RC_SUCCESS);
	assert_writes("SEND_ONLY", 10);
}

static void nak__fails_that_request_after_those_before(void **state)
{
	for (unsigned i = 0; i < 4; i++)
		post(VB_REQ_SEND, 1);
	assert_int_equal(write_all(), 4);
	assert_int_equal(receives(nak_of(&f.t, psn(2), VB_NAK_REMOTE_ACCESS)), VB_RC_BROKEN);
	assert_completes(0, VB_RC_SUCCESS);
	assert_completes(1, VB_RC_SUCCESS);
	assert_completes(2, VB_RC_REMOTE_ACCESS);
	assert_no_completion();
	assert_false(writes());
	assert_int_equal(vb_rc_req_deadline(&f.req), VB_RC_NEVER);
	assert_ignored(ack_of(&f.t, psn(3)));
}

static void rnr__waits_and_counts(void **state)
{
	uint8_t rnr = vb_syndrome(VB_AETH_RNR, 14);

	post(VB_REQ_SEND, 1);
	post(VB_REQ_SEND, 1);
	assert_int_equal(write_all(), 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(receives(reply(&f.t, psn(0), rnr)), VB_RC_TAKEN);
		assert_ignored(reply(&f.t, psn(0), rnr));
		assert_false(writes());
		assert_int_equal(vb_rc_req_deadline(&f.req), f.now + vb_rnr_timer_ns(14));
		f.now += vb_rnr_timer_ns(14);
		vb_rc_req_expire(&f.req, f.now);
		assert_writes("SEND_ONLY", 0);
		assert_false(writes());
	}
	assert_int_equal(receives(reply(&f.t, psn(0), rnr)), VB_RC_BROKEN);
	assert_completes(0, VB_RC_RNR_RETRY_EXCEEDED);
}

static void rnr__seven_is_for_ever(void **state)
{
	f.req.config.rnr_retry = VB_RNR_RETRY_FOREVER;
	post(VB_REQ_SEND, 1);
	assert_int_equal(write_all(), 1);
	for (unsigned i = 0; i < 1000; i++) {
		assert_int_equal(receives(reply(&f.t, psn(0), vb_syndrome(VB_AETH_RNR, 1))), VB_RC_TAKEN);
		f.now += vb_rnr_timer_ns(1);
		vb_rc_req_expire(&f.req, f.now);
		assert_int_equal(write_all(), 1);
	}
	receives(ack_of(&f.t, psn(0)));
	assert_completes(0, VB_RC_SUCCESS);
}

/* An answer that comes while the requester waits is progress, but what is behind it may not be sent yet. */
static void rnr__no_timer_ends_within_the_wait(void **state)
{
	enum { LONGEST = 31, READ = 10, LOST = 3, ROUND_TRIP_NS = 10000 };

	post(VB_REQ_READ, READ * MTU);
	post(VB_REQ_SEND, 1);
	assert_int_equal(write_all(), 2);
	f.now += ROUND_TRIP_NS;
	for (unsigned i = 0; i < READ; i++)
		if (i != LOST)
			receives(response(&f.t, VB_OPB_READ_RESPONSE_MIDDLE, psn(i), MTU));
	assert_writes("READ_REQUEST", LOST);
	assert_int_equal(receives(reply(&f.t, psn(READ), vb_syndrome(VB_AETH_RNR, LONGEST))), VB_RC_TAKEN);
	uint64_t until = f.now + vb_rnr_timer_ns(LONGEST);
	assert_true(until > f.now + 3 * TIMEOUT_NS); /* else the retries would last */
	f.now += ROUND_TRIP_NS;
	receives(response(&f.t, VB_OPB_READ_RESPONSE_MIDDLE, psn(LOST), MTU));
	assert_completes(0, VB_RC_SUCCESS);
	assert_int_equal(vb_rc_req_deadline(&f.req), until);
	f.now = until;
	vb_rc_req_expire(&f.req, f.now);
	assert_int_equal(f.req.timeouts, 0);
	assert_writes("SEND_ONLY", READ);
	assert_int_equal(receives(ack_of(&f.t, psn(READ))), VB_RC_TAKEN);
	assert_completes(1, VB_RC_SUCCESS);
}

/* At most so many deadlines pass without an answer. Returns how many packets are sent at them. */
static unsigned pass_deadlines(unsigned most)
{
	unsigned sent = 0;

	for (; most && vb_rc_req_deadline(&f.req) != VB_RC_NEVER; most--) {
		f.now = vb_rc_req_deadline(&f.req);
		vb_rc_req_expire(&f.req, f.now);
		sent += write_all();
	}
	return sent;
}

/* A late RNR NAK for a failing request leaves the timers of earlier requests running. */
static void rnr__late_for_a_request_that_fails(void **state)
{
	post(VB_REQ_READ, 1);
	post(VB_REQ_SEND, 1);
	assert_int_equal(write_all(), 2);
	assert_int_equal(receives(nak_of(&f.t, psn(1), VB_NAK_REMOTE_ACCESS)), VB_RC_TAKEN);
	assert_writes("READ_REQUEST", 0);
	assert_int_equal(receives(reply(&f.t, psn(1), vb_syndrome(VB_AETH_RNR, 1))), VB_RC_TAKEN);
	pass_deadlines(100);
	assert_completes(0, VB_RC_RETRY_EXCEEDED);
	assert_no_completion();
}

static void silence__retries_are_counted(void **state)
{
	uint64_t began = f.now;

	post(VB_REQ_SEND, 1);
	post(VB_REQ_SEND, 1);
	assert_int_equal(write_all(), 2);
	assert_between(pass_deadlines(100), 2, 20);
	assert_between(f.now - began, 3 * TIMEOUT_NS, 4 * TIMEOUT_NS);
	assert_completes(0, VB_RC_RETRY_EXCEEDED);
	assert_no_completion();
}

/* A program may change the timeout while requests are under way (in SQD). */
static void silence__timeout_switched_off(void **state)
{
	post(VB_REQ_SEND, 1);
	write_all();
	f.req.config.ack_timeout_ns = 0;
	assert_between(pass_deadlines(100), 10, 100);
	assert_int_equal(f.req.timeouts, 0);
	assert_no_completion();
}

static void silence__timeout_switched_on(void **state)
{
	f.req.config.ack_timeout_ns = 0;
	post(VB_REQ_SEND, 1);
	write_all();
	f.req.config.ack_timeout_ns = TIMEOUT_NS;
	pass_deadlines(100);
	assert_completes(0, VB_RC_RETRY_EXCEEDED);
}

/* A process that was stopped for longer than all retries together still gets them. */
static void silence__late_call_counts_once(void **state)
{
	post(VB_REQ_SEND, 1);
	write_all();
	f.now += 100 * (uint64_t)TIMEOUT_NS;
	vb_rc_req_expire(&f.req, f.now);
	assert_writes("SEND_ONLY", 0);
	receives(ack_of(&f.t, psn(0)));
	assert_completes(0, VB_RC_SUCCESS);
}

/* An ACK that says: so many messages done, so many receives there. */
static const struct vb_packet *ack_with(uint32_t n, uint32_t messages, unsigned receives)
{
	reply(&f.t, psn(n), vb_syndrome(VB_AETH_ACK, vb_credits_code(receives)));
	vb_aeth_set_msn((struct vb_aeth *)(f.t.bytes + VB_BTH_BYTES), messages);
	return &f.t.packet;
}

static void credits__one_packet_beyond(void **state)
{
	post(VB_REQ_SEND, 1);
	assert_int_equal(write_all(), 1);
	receives(ack_with(0, 1, 1));
	post(VB_REQ_SEND, 1);
	post(VB_REQ_SEND, 3 * MTU);
	post(VB_REQ_SEND, 1);
	assert_writes("SEND_ONLY", 1);
	assert_true(asks(&f.out));
	assert_false(writes());
	receives(ack_with(1, 2, 0));
	assert_writes("SEND_FIRST", 2);
	assert_true(asks(&f.out));
	assert_false(writes());
	receives(ack_with(2, 2, 1));	/* the receive that the message has */
	assert_writes("SEND_MIDDLE", 3);
	assert_false(asks(&f.out));
	assert_writes("SEND_LAST", 4);
	assert_true(asks(&f.out));
	assert_false(writes());
	receives(ack_with(4, 3, 100));
	assert_writes("SEND_ONLY", 5);
}

static void credits__only_what_takes_a_receive(void **state)
{
	post(VB_REQ_SEND, 1);
	write_all();
	receives(ack_with(0, 1, 0));
	for (unsigned i = 0; i < 3; i++)
		post(VB_REQ_WRITE, 1);
	post(VB_REQ_SEND, 1);
	assert_int_equal(write_all(), 3);
	receives(ack_with(3, 4, 0));
	assert_writes("SEND_ONLY", 4);
}

static void credits__each_read_request_is_a_message(void **state)
{
	post(VB_REQ_READ, 1000 * MTU);
	unsigned requests = write_all();
	assert_between(requests, 2, 16);
	assert_int_equal(f.req.messages, requests);
}

static void credits__late_and_none(void **state)
{
	post(VB_REQ_SEND, 1);
	post(VB_REQ_SEND, 1);
	write_all();
	receives(ack_with(0, 1, 8));
	receives(ack_with(1, 1, 0));	/* says less: was overtaken */
	for (unsigned i = 0; i < 7; i++)
		post(VB_REQ_SEND, 1);
	assert_int_equal(write_all(), 7);
	receives(ack_of(&f.t, psn(8)));	/* from here on without */
	for (unsigned i = 0; i < 7; i++)
		post(VB_REQ_SEND, 1);
	assert_int_equal(write_all(), 7);
}

static void read__responses_in_any_order(void **state)
{
	post(VB_REQ_READ, 3 * MTU + 10);
	assert_writes("READ_REQUEST", 0);
	assert_int_equal(vb_reth_length(reth_of(&f.out)), 3 * MTU + 10);
	assert_false(writes());
	receives(response(&f.t, VB_OPB_READ_RESPONSE_FIRST, psn(0), MTU));
	receives(response(&f.t, VB_OPB_READ_RESPONSE_LAST, psn(3), 10));
	assert_ignored(response(&f.t, VB_OPB_READ_RESPONSE_LAST, psn(3), 10));
	assert_writes("READ_REQUEST", 1);	/* the hole, and no more */
	assert_int_equal(vb_reth_address(reth_of(&f.out)), 0x10000 + MTU);
	assert_int_equal(vb_reth_length(reth_of(&f.out)), 2 * MTU);
	assert_false(writes());
	receives(response(&f.t, VB_OPB_READ_RESPONSE_FIRST, psn(1), MTU));
	assert_false(writes());			/* asked for already */
	assert_no_completion();
	receives(response(&f.t, VB_OPB_READ_RESPONSE_LAST, psn(2), MTU));
	assert_completes(0, VB_RC_SUCCESS);
	assert_int_equal(f.placed_bytes, 3 * MTU + 10);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(f.placed[i * MTU], (uint8_t)psn(i));
}

static void read__wrong_lengths_end_it(void **state)
{
	post(VB_REQ_SEND, 1);
	post(VB_REQ_READ, 300);
	write_all();
	assert_ignored(atomic_answer(&f.t, psn(1), 1));
	assert_int_equal(receives(response(&f.t, VB_OPB_READ_RESPONSE_FIRST, psn(1), 100)), VB_RC_BROKEN);
	assert_int_equal(f.placed_bytes, 0);
	assert_completes(0, VB_RC_SUCCESS);
	assert_completes(1, VB_RC_BAD_RESPONSE);
	assert_false(writes());
}

static void read__last_response_too_long(void **state)
{
	post(VB_REQ_READ, 300);
	write_all();
	receives(response(&f.t, VB_OPB_READ_RESPONSE_FIRST, psn(0), MTU));
	assert_int_equal(receives(response(&f.t, VB_OPB_READ_RESPONSE_LAST, psn(1), 300 - MTU + 4)),
			 VB_RC_BROKEN);
	assert_completes(0, VB_RC_BAD_RESPONSE);
}

static void read__ack_beyond_it_means_lost_responses(void **state)
{
	post(VB_REQ_READ, 2 * MTU);
	post(VB_REQ_SEND, 1);
	assert_int_equal(write_all(), 2);
	receives(ack_of(&f.t, psn(2)));
	assert_no_completion();
	assert_writes("READ_REQUEST", 0);
	assert_int_equal(vb_reth_length(reth_of(&f.out)), 2 * MTU);
	assert_false(writes());
	receives(response(&f.t, VB_OPB_READ_RESPONSE_FIRST, psn(0), MTU));
	receives(response(&f.t, VB_OPB_READ_RESPONSE_LAST, psn(1), MTU));
	assert_completes(0, VB_RC_SUCCESS);
	assert_completes(1, VB_RC_SUCCESS);
}

/* The responder executed the READ, and its memory may not be read any more when it is asked again. */
static void read__refused_after_its_responses_were_lost(void **state)
{
	post(VB_REQ_SEND, 1);
	post(VB_REQ_READ, 2 * MTU);
	post(VB_REQ_SEND, 1);
	assert_int_equal(write_all(), 3);
	receives(response(&f.t, VB_OPB_READ_RESPONSE_FIRST, psn(1), MTU));
	receives(ack_of(&f.t, psn(3)));
	assert_writes("READ_REQUEST", 2);
	assert_ignored(nak_of(&f.t, psn(0), VB_NAK_REMOTE_ACCESS));
	assert_ignored(nak_of(&f.t, psn(1), VB_NAK_REMOTE_ACCESS));
	assert_ignored(nak_of(&f.t, psn(3), VB_NAK_REMOTE_ACCESS));
	assert_ignored(nak_of(&f.t, psn(2), VB_NAK_SEQUENCE));
	assert_ignored(reply(&f.t, psn(2), vb_syndrome(VB_AETH_RNR, 1)));
	assert_int_equal(receives(nak_of(&f.t, psn(2), VB_NAK_REMOTE_ACCESS)), VB_RC_BROKEN);
	assert_completes(0, VB_RC_SUCCESS);
	assert_completes(1, VB_RC_REMOTE_ACCESS);
	assert_no_completion();
	assert_false(writes());
}

/* What is before the request that is refused completes first. */
static void atomic__refused_before_an_older_answer_comes(void **state)
{
	post(VB_REQ_READ, 1);
	post(VB_REQ_FETCH_ADD, 8);
	post(VB_REQ_SEND, 1);
	assert_int_equal(write_all(), 3);
	receives(ack_of(&f.t, psn(2)));
	assert_int_equal(receives(nak_of(&f.t, psn(1), VB_NAK_REMOTE_OPERATIONAL)), VB_RC_TAKEN);
	assert_ignored(nak_of(&f.t, psn(1), VB_NAK_REMOTE_OPERATIONAL));
	assert_no_completion();
	assert_writes("READ_REQUEST", 0);
	assert_false(writes());
	assert_int_equal(receives(response(&f.t, VB_OPB_READ_RESPONSE_ONLY, psn(0), 1)), VB_RC_BROKEN);
	assert_completes(0, VB_RC_SUCCESS);
	assert_completes(1, VB_RC_REMOTE_OPERATIONAL);
	assert_no_completion();
}

static void read__long_ones_in_portions(void **state)
{
	uint32_t asked = 0, requests = 0;

	post(VB_REQ_READ, 1000 * MTU);
	while (writes()) {
		asked += vb_reth_length(reth_of(&f.out));
		requests++;
	}
	assert_int_equal(requests, 2);	/* max_rd_atomic */
	assert_int_equal(asked, VB_RC_WINDOW_START * MTU);
	for (unsigned i = 0; i < VB_RC_WINDOW_START / 2; i++) {
		assert_false(writes());
		receives(response(&f.t, VB_OPB_READ_RESPONSE_MIDDLE, psn(i), MTU));
	}
	assert_writes("READ_REQUEST", VB_RC_WINDOW_START);	/* the first of them is answered */
	assert_int_equal(f.req.packets_resent, 0);
}

static void read__depth_and_fence(void **state)
{
	for (unsigned i = 0; i < 3; i++)
		post(VB_REQ_READ, 1);
	post_fenced(VB_REQ_SEND, 1);
	post(VB_REQ_SEND, 1);
	assert_int_equal(write_all(), 2);
	receives(response(&f.t, VB_OPB_READ_RESPONSE_ONLY, psn(0), 1));
	assert_writes("READ_REQUEST", 2);
	assert_false(writes());
	receives(response(&f.t, VB_OPB_READ_RESPONSE_ONLY, psn(1), 1));
	assert_false(writes());
	receives(response(&f.t, VB_OPB_READ_RESPONSE_ONLY, psn(2), 1));
	assert_writes("SEND_ONLY", 3);
	assert_writes("SEND_ONLY", 4);
}

/* Those that were posted and not sent fail, once all before them is done. */
static void depth__becomes_0_while_requests_wait(void **state)
{
	for (unsigned i = 0; i < 2; i++)
		post(VB_REQ_READ, 1);
	post(VB_REQ_SEND, 1);
	post(VB_REQ_FETCH_ADD, 8);
	post(VB_REQ_SEND, 1);
	f.req.config.max_rd_atomic = 1;
	assert_writes("READ_REQUEST", 0);
	assert_false(writes());
	f.req.config.max_rd_atomic = 0;
	assert_false(writes());
	assert_no_completion();
	receives(response(&f.t, VB_OPB_READ_RESPONSE_ONLY, psn(0), 1));
	assert_completes(0, VB_RC_SUCCESS);
	assert_completes(1, VB_RC_LOCAL_OPERATION);
	assert_false(writes());
	assert_int_equal(vb_rc_req_deadline(&f.req), VB_RC_NEVER);
}

/* None is in flight, and no timer runs. */
static void depth__is_0(void **state)
{
	setup_with(0);
	post(VB_REQ_SEND, 1);
	post(VB_REQ_COMPARE_SWAP, 8);
	assert_writes("SEND_ONLY", 0);
	assert_false(writes());
	receives(ack_of(&f.t, psn(0)));
	assert_completes(0, VB_RC_SUCCESS);
	assert_completes(1, VB_RC_LOCAL_OPERATION);
	post(VB_REQ_SEND, 1);
	assert_false(writes());
}

static void atomic__answer_in_host_order(void **state)
{
	const uint64_t old = 0x0102030405060708;

	post(VB_REQ_FETCH_ADD, 8);
	post(VB_REQ_COMPARE_SWAP, 8);
	assert_writes("FETCH_ADD", 0);
	assert_writes("COMPARE_SWAP", 1);
	receives(atomic_answer(&f.t, psn(1), 5));	/* the first one's was lost */
	assert_no_completion();
	assert_writes("FETCH_ADD", 0);
	assert_ignored(response(&f.t, VB_OPB_READ_RESPONSE_ONLY, psn(0), 8));
	receives(atomic_answer(&f.t, psn(0), old));
	assert_memory_equal(f.placed, &old, 8);
	assert_completes(0, VB_RC_SUCCESS);
	assert_completes(1, VB_RC_SUCCESS);
}

static void place__failure_is_the_requests(void **state)
{
	post(VB_REQ_SEND, 1);
	post(VB_REQ_READ, 1);
	write_all();
	f.place_result = -EFAULT;
	assert_int_equal(receives(response(&f.t, VB_OPB_READ_RESPONSE_ONLY, psn(1), 1)), VB_RC_BROKEN);
	assert_completes(0, VB_RC_SUCCESS);
	assert_completes(1, VB_RC_LOCAL);
}

static void break__what_is_before_goes_on(void **state)
{
	for (unsigned i = 0; i < 3; i++)
		post(VB_REQ_SEND, 1);
	assert_writes("SEND_ONLY", 0);
	vb_rc_req_break(&f.req, 1, VB_RC_LOCAL);
	assert_false(writes());
	assert_no_completion();
	assert_int_equal(receives(ack_of(&f.t, psn(0))), VB_RC_BROKEN);
	assert_completes(0, VB_RC_SUCCESS);
	assert_completes(1, VB_RC_LOCAL);
	assert_no_completion();
}

/* So many round trips of this length, everything acknowledged. */
static void run_for(unsigned round_trips, uint64_t ns)
{
	while (round_trips--) {
		f.now += ns;
		receives(ack_of(&f.t, (uint32_t)f.req.next - 1));
		assert_between(write_all(), 1, 512);
	}
}

static void window__opens_and_bounds_what_is_in_flight(void **state)
{
	post(VB_REQ_WRITE, 100000 * MTU);
	assert_int_equal(write_all(), VB_RC_WINDOW_START);
	run_for(20, 50000);
	assert_int_equal(f.req.window.size, 512);
	assert_int_equal(f.req.next - f.req.una, 512);
}

static void window__loss_on_an_empty_path_and_at_a_queue(void **state)
{
	post(VB_REQ_WRITE, 100000 * MTU);
	write_all();
	run_for(20, 50000);
	receives(nak_of(&f.t, (uint32_t)f.req.una + 1, VB_NAK_SEQUENCE));
	assert_int_equal(f.req.window.size, 512);
	write_all();
	run_for(40, 300000);
	receives(nak_of(&f.t, (uint32_t)f.req.una + 1, VB_NAK_SEQUENCE));
	assert_int_equal(f.req.window.size, 256);
	receives(nak_of(&f.t, (uint32_t)f.req.una + 9, VB_NAK_SEQUENCE));
	assert_int_equal(f.req.window.size, 256);	/* the same round trip */
}

/* As many packets as the path carries: the link is not idle until the hole's ACK comes. */
static void window__more_goes_while_a_hole_is_filled(void **state)
{
	post(VB_REQ_WRITE, 100000 * MTU);
	write_all();
	run_for(20, 50000);
	receives(ack_of(&f.t, (uint32_t)f.req.next - 1));
	f.req.window.size = 100;
	f.req.window.rate_packets = 40;
	f.req.window.rate_ns = f.req.window.least_ns;
	f.req.peer = VB_RC_PEER_KEEPS;
	assert_int_equal(write_all(), 100);
	receives(nak_of(&f.t, (uint32_t)f.req.una, VB_NAK_SEQUENCE));
	assert_int_equal(write_all(), 1 + 40);
	f.req.window.rate_packets = 4000;
	write_all();
	assert_int_equal(f.req.next - f.req.una, 512);	/* max_window */
	f.req.peer = VB_RC_PEER_DROPS;
	assert_int_equal(write_all(), 0);
}

static void congestion__takes_a_quarter_once_per_round_trip(void **state)
{
	struct vb_cnp cnp = { 0 };

	vb_cnp_build(to_peer(), &f.out);
	assert_ignored(arrival(&f.t, &f.out, 0));	/* nothing is under way */
	post(VB_REQ_WRITE, 100000 * MTU);
	write_all();
	run_for(20, 50000);
	assert_int_equal(f.req.window.size, 512);
	vb_cnp_build(to_peer(), &f.out);
	assert_int_equal(receives(arrival(&f.t, &f.out, 0)), VB_RC_TAKEN);
	assert_int_equal(f.req.window.size, 384);
	vb_cnp_build(to_peer(), &f.out);
	assert_ignored(arrival(&f.t, &f.out, 0));
	receives(nak_of(&f.t, (uint32_t)f.req.una + 1, VB_NAK_SEQUENCE));	/* the same round trip */
	assert_int_equal(f.req.window.size, 384);
	assert_true(vb_cnp_is_due(&cnp, f.now));
	assert_false(vb_cnp_is_due(&cnp, f.now + VB_CNP_PAUSE_NS - 1));
	assert_true(vb_cnp_is_due(&cnp, f.now + VB_CNP_PAUSE_NS));
}

/* Each NAK names one packet. Behind some of them the requester sends more and more of what follows. */
static void holes__many_take_few_round_trips(void **state)
{
	static bool has[8192];	/* the responder, which keeps everything; by PSN */
	unsigned trips = 0;

	post(VB_REQ_WRITE, 100000 * MTU);
	write_all();
	run_for(20, 50000);
	uint64_t first = f.req.una, expected = first, end = f.req.next;
	for (uint64_t n = first; n < end; n++)
		has[n - first] = (n - first) % 8 != 0;	/* 64 of 512 are lost */
	while (expected < end && trips++ < 100) {
		f.now += 50000;
		receives(nak_of(&f.t, (uint32_t)expected, VB_NAK_SEQUENCE));
		while (writes())
			has[vb_psn_expand(f.req.una, psn_of(&f.out)) - first] = true;
		while (has[expected - first])
			expected++;
	}
	assert_between(trips, 8, 30);
	assert_true(f.req.packets_resent < 512);
}

static void congestion__packet(void **state)
{
	vb_cnp_build(to_peer(), &f.out);
	const struct vb_packet *p = arrival(&f.t, &f.out, 0);
	const struct vb_bth *bth = (const struct vb_bth *)p->bytes;
	assert_int_equal(p->opcode, 0x81);
	assert_int_equal(p->destination_qpn, to_peer()->qpn);
	assert_int_equal(p->payload_bytes, 16);
	assert_true(vb_bth_becn(bth));
	assert_false(vb_bth_fecn(bth) || vb_bth_ack_request(bth) || vb_bth_psn(bth));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, setup)
	const struct CMUnitTest tests[] = {
		TEST(post__limits),
		TEST(send__acknowledged),
		TEST(skip__between_requests),
		TEST(ack__one_for_many),
		TEST(ack__ghosts_and_strangers),
		TEST(nak_sequence__responder_that_keeps),
		TEST(nak_sequence__run_of_losses),
		TEST(nak_sequence__repetition_lost),
		TEST(nak_sequence__what_it_names_is_timed),
		TEST(nak_sequence__responder_that_drops),
		TEST(nak__fails_that_request_after_those_before),
		TEST(rnr__waits_and_counts),
		TEST(rnr__seven_is_for_ever),
		TEST(rnr__no_timer_ends_within_the_wait),
		TEST(rnr__late_for_a_request_that_fails),
		TEST(silence__retries_are_counted),
		TEST(silence__timeout_switched_off),
		TEST(silence__timeout_switched_on),
		TEST(silence__late_call_counts_once),
		TEST(credits__one_packet_beyond),
		TEST(credits__only_what_takes_a_receive),
		TEST(credits__each_read_request_is_a_message),
		TEST(credits__late_and_none),
		TEST(read__responses_in_any_order),
		TEST(read__wrong_lengths_end_it),
		TEST(read__last_response_too_long),
		TEST(read__ack_beyond_it_means_lost_responses),
		TEST(read__refused_after_its_responses_were_lost),
		TEST(atomic__refused_before_an_older_answer_comes),
		TEST(read__long_ones_in_portions),
		TEST(read__depth_and_fence),
		TEST(depth__becomes_0_while_requests_wait),
		TEST(depth__is_0),
		TEST(atomic__answer_in_host_order),
		TEST(place__failure_is_the_requests),
		TEST(break__what_is_before_goes_on),
		TEST(window__opens_and_bounds_what_is_in_flight),
		TEST(window__loss_on_an_empty_path_and_at_a_queue),
		TEST(window__more_goes_while_a_hole_is_filled),
		TEST(congestion__takes_a_quarter_once_per_round_trip),
		TEST(holes__many_take_few_round_trips),
		TEST(congestion__packet),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
