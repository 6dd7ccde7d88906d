/* SPDX-License-Identifier: BSD-2-Clause */
/* The stream protocol of rsockets: offers, credits, grants, ends; what a peer may not do. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "proto/rsocket/rs_stream.h"

enum {
	QUEUE = 16,
	RING = 1024,
	IOMAP = 2,
	TABLES_AT = 0x1000,
	BUFFER_AT = 0x100000,
	TABLES_KEY = 77,
	BUFFER_KEY = 88
};

static struct vb_rs_stream s;
static uint32_t unread[QUEUE];
static union {
	struct vb_rs_tables t;
	uint8_t room[sizeof(struct vb_rs_tables) + IOMAP * sizeof(struct vb_rs_iomap)];
} tables;

static void init(void)
{
	struct vb_rs_stream_config c = {
		.send_queue = QUEUE,
		.receive_queue = QUEUE,
		.send_bytes = RING,
		.receive_bytes = RING,
		.iomap_entries = IOMAP,
		.tables = &tables.t,
		.unread = unread,
		.tables_address = TABLES_AT,
		.buffer_address = BUFFER_AT,
		.tables_key = TABLES_KEY,
		.buffer_key = BUFFER_KEY,
	};

	memset(&tables, 0, sizeof(tables));
	vb_rs_stream_init(&s, &c);
}

/* A peer like us. */
static struct vb_rs_offer some_offer(void)
{
	struct vb_rs_offer o;

	vb_rs_stream_offer(&s, &o);
	return o;
}

static int setup(void **state)
{
	(void)state;
	init();
	struct vb_rs_offer o = some_offer();
	return vb_rs_stream_take_offer(&s, o.b, sizeof(o.b));
}

static uint32_t message(enum vb_rs_message type, uint32_t value) { return vb_rs_message_make(type, value); }

static void offer__bytes(void **state)
{
	static const uint8_t expected[40] = {
		1, 2, 0, QUEUE, 0, 0, 0, IOMAP,
		0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, TABLES_KEY, 0, 0, 0, 2,
		0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, BUFFER_KEY, 0, 0, RING / 2 >> 8, 0,
	};
	struct vb_rs_offer o;

	(void)state;
	init();
	vb_rs_stream_offer(&s, &o);
	assert_memory_equal(o.b, expected, sizeof(expected));
}

static void meet__refuses(void **state)
{
	struct vb_rs_offer o;

	(void)state;
	init();
	o = some_offer();
	assert_int_equal(vb_rs_stream_take_offer(&s, o.b, sizeof(o.b) - 1), -EPROTO);
	vb_rs_offer_set_version(&o, 2);
	assert_int_equal(vb_rs_stream_take_offer(&s, o.b, sizeof(o.b)), -ENOTSUP);
	o = some_offer();
	vb_rs_offer_set_num_segments(&o, 1);
	assert_int_equal(vb_rs_stream_take_offer(&s, o.b, sizeof(o.b)), -EPROTO);
}

static void iomap_size__is_coded_in_eight_bits(void **state)
{
	(void)state;
	for (uint32_t code = 0; code < 256; code++) /* 129.. stand for 256.. */
		assert_int_equal(vb_rs_iomap_code(vb_rs_iomap_entries((uint8_t)code)), code);
	for (uint32_t n = 0; n <= 128; n++)
		assert_int_equal(vb_rs_iomap_entries(vb_rs_iomap_code(n)), n);
	assert_int_equal(vb_rs_iomap_entries(vb_rs_iomap_code(UINT32_MAX)), VB_RS_IOMAP_MOST);
}

static void control__grants_the_second_half_first(void **state)
{
	struct vb_rs_write w;

	(void)state;
	assert_true(vb_rs_stream_control(&s, &w));
	assert_int_equal(w.source, VB_RS_FROM_ENTRY);
	assert_int_equal(w.bytes, 16);
	assert_int_equal(w.entry.segment.address, BUFFER_AT + RING / 2);
	assert_int_equal(w.entry.segment.key, BUFFER_KEY);
	assert_int_equal(w.entry.segment.bytes, RING / 2);
	assert_int_equal(w.remote_address, TABLES_AT + 16);
	assert_int_equal(w.remote_key, TABLES_KEY);
	assert_int_equal(w.message, message(VB_RS_CREDIT, QUEUE));
	assert_false(vb_rs_stream_control(&s, &w));
}

static void control__in_the_byte_order_of_the_reader(void **state)
{
	struct vb_rs_write w;

	(void)state;
	init();
	struct vb_rs_offer o = some_offer();
	vb_rs_offer_set_flags(&o, vb_rs_offer_flags(&o) ^ VB_RS_FLAG_BIG_ENDIAN);
	assert_int_equal(vb_rs_stream_take_offer(&s, o.b, sizeof(o.b)), 0);
	assert_true(vb_rs_stream_control(&s, &w));
	assert_int_equal(w.entry.segment.bytes, __builtin_bswap32(RING / 2));
	assert_int_equal(w.entry.segment.address, __builtin_bswap64(BUFFER_AT + RING / 2));
}

static void send__uses_segments_in_turn(void **state)
{
	struct vb_rs_write w;

	(void)state;
	assert_int_equal(vb_rs_stream_room(&s), RING / 2);
	vb_rs_stream_send(&s, 500, false, &w);
	assert_int_equal(w.remote_address, BUFFER_AT);
	assert_int_equal(w.ring_offset, 0);
	assert_int_equal(w.message, 500); /* DATA is 0 */
	vb_rs_stream_sent(&s, w.id);
	assert_int_equal(vb_rs_stream_room(&s), 12);
	vb_rs_stream_send(&s, 12, true, &w);
	assert_int_equal(w.remote_address, BUFFER_AT + 500);
	vb_rs_stream_sent(&s, w.id);
	assert_int_equal(vb_rs_stream_room(&s), 0);
	tables.t.segments[1] = (struct vb_rs_segment){ 0x5000, 9, 300 };
	assert_int_equal(vb_rs_stream_room(&s), 0); /* not before the message */
	assert_int_equal(vb_rs_stream_receive(&s, message(VB_RS_CREDIT, 10)), 0);
	assert_int_equal(vb_rs_stream_room(&s), 300);
	assert_int_equal(tables.t.segments[1].bytes, 0);
	vb_rs_stream_send(&s, 300, true, &w);
	assert_int_equal(w.remote_address, 0x5000);
	assert_int_equal(w.remote_key, 9);
}

static void send__needs_credits(void **state)
{
	struct vb_rs_write w;

	(void)state;
	assert_int_equal(vb_rs_stream_receive(&s, message(VB_RS_CREDIT, 1)), 0);
	vb_rs_stream_send(&s, 1, true, &w);
	vb_rs_stream_sent(&s, w.id);
	assert_int_equal(vb_rs_stream_room(&s), 0);
	assert_true(vb_rs_stream_direct_room(&s) > 0);
	assert_int_equal(vb_rs_stream_receive(&s, message(VB_RS_CREDIT, 2)), 0);
	assert_true(vb_rs_stream_room(&s) > 0);
}

static void send__needs_the_queue_and_the_ring(void **state)
{
	struct vb_rs_write w[QUEUE];
	unsigned n;

	(void)state;
	for (n = 0; vb_rs_stream_room(&s); n++)
		vb_rs_stream_send(&s, 1, true, &w[n]);
	assert_int_equal(n, QUEUE - VB_RS_CONTROLS);
	vb_rs_stream_sent(&s, w[0].id);
	vb_rs_stream_sent(&s, w[1].id);
	uint32_t room = vb_rs_stream_room(&s);
	vb_rs_stream_send(&s, room, false, &w[0]);
	/* half of the ring is its low water here */
	assert_int_equal(vb_rs_stream_direct_room(&s), RING - room);
	assert_false(vb_rs_stream_is_idle(&s));
}

static void receive__credits_return(void **state)
{
	struct vb_rs_write w;
	uint32_t offset;

	(void)state;
	assert_true(vb_rs_stream_control(&s, &w));
	vb_rs_stream_sent(&s, w.id);
	for (int i = 0; i < QUEUE / 2; i++)
		assert_int_equal(vb_rs_stream_receive(&s, message(VB_RS_DATA, 2)), 0);
	assert_int_equal(vb_rs_stream_readable(&s, &offset), QUEUE);
	vb_rs_stream_consume(&s, QUEUE - 1);
	assert_false(vb_rs_stream_control(&s, &w));
	vb_rs_stream_consume(&s, 1);
	assert_true(vb_rs_stream_control(&s, &w));
	assert_int_equal(w.source, VB_RS_FROM_NOTHING);
	assert_int_equal(w.message, message(VB_RS_CREDIT, QUEUE / 2 + QUEUE));
}

/* Room that is there, or is granted as soon as can be, counts; so do credits. */
static void full__of_bytes_or_messages(void **state)
{
	struct vb_rs_write w;

	(void)state;
	assert_int_equal(vb_rs_stream_receive(&s, message(VB_RS_DATA, RING / 2)), 0);
	assert_false(vb_rs_stream_is_full(&s));
	assert_true(vb_rs_stream_control(&s, &w));
	assert_int_equal(vb_rs_stream_receive(&s, message(VB_RS_DATA, RING / 2)), 0);
	assert_true(vb_rs_stream_is_full(&s));
	vb_rs_stream_consume(&s, RING / 2);
	assert_false(vb_rs_stream_is_full(&s));
	vb_rs_stream_consume(&s, RING / 2);
	assert_true(vb_rs_stream_control(&s, &w));
	for (int i = 0; i < QUEUE; i++) {
		assert_false(vb_rs_stream_is_full(&s));
		assert_int_equal(vb_rs_stream_receive(&s, message(VB_RS_DATA, 1)), 0);
	}
	assert_true(vb_rs_stream_is_full(&s));
	vb_rs_stream_consume(&s, QUEUE / 2 - 1);
	assert_true(vb_rs_stream_is_full(&s)); /* so few do not make a message yet */
	vb_rs_stream_consume(&s, 1);
	assert_false(vb_rs_stream_is_full(&s));
}

static void receive__refuses(void **state)
{
	(void)state;
	/* more than was granted */
	assert_int_equal(vb_rs_stream_receive(&s, message(VB_RS_DATA, RING / 2 + 1)), -EPROTO);
	for (unsigned type = 1; type < 7; type++)
		if (type != VB_RS_CREDIT && type != VB_RS_IOMAP)
			assert_int_equal(vb_rs_stream_receive(&s, message((enum vb_rs_message)type, 0)),
					 -EPROTO);
	for (int i = 0; i < QUEUE; i++)
		assert_int_equal(vb_rs_stream_receive(&s, message(VB_RS_DATA, 1)), 0);
	/* more than there are credits */
	assert_int_equal(vb_rs_stream_receive(&s, message(VB_RS_DATA, 1)), -EPROTO);
	assert_int_equal(s.received, QUEUE);
}

static void iomap__is_found_and_bounded(void **state)
{
	struct vb_rs_iomap found;

	(void)state;
	/* past the end of all numbers */
	tables.t.iomap[1] = (struct vb_rs_iomap){ UINT64_MAX - 4, { 0x9000, 5, 100 } };
	assert_true(vb_rs_stream_find_iomap(&s, UINT64_MAX, &found));
	assert_false(vb_rs_stream_find_iomap(&s, 3, &found));
	tables.t.iomap[1].offset = 50;
	assert_true(vb_rs_stream_find_iomap(&s, 149, &found));
	assert_false(vb_rs_stream_find_iomap(&s, 150, &found));
	assert_false(vb_rs_stream_find_iomap(&s, 49, &found));
}

/* ---- ends: the table in rs_stream.h ---- */

enum event { SHUTDOWN_COMES, DISCONNECT_COMES, SHUT_WRITING, SHUT_READING, SHUT_BOTH, FAILURE, DELIVERY };

static void happen(enum event e, int *said)
{
	struct vb_rs_write w;

	switch (e) {
	case SHUTDOWN_COMES:
		assert_int_equal(vb_rs_stream_receive(&s, message(VB_RS_CONTROL, VB_RS_SHUTDOWN)), 0);
		return;
	case DISCONNECT_COMES:
		assert_int_equal(vb_rs_stream_receive(&s, message(VB_RS_CONTROL, VB_RS_DISCONNECT)), 0);
		return;
	case SHUT_WRITING:
		vb_rs_stream_shut_writing(&s);
		return;
	case SHUT_READING:
		vb_rs_stream_shut_reading(&s);
		return;
	case SHUT_BOTH:
		vb_rs_stream_shut_reading(&s);
		vb_rs_stream_shut_writing(&s);
		return;
	case FAILURE:
		vb_rs_stream_break(&s);
		return;
	case DELIVERY: /* of all that is due */
		while (vb_rs_stream_control(&s, &w)) {
			vb_rs_stream_sent(&s, w.id);
			if (vb_rs_message_type(w.message) == VB_RS_CONTROL)
				*said = (int)vb_rs_message_value(w.message);
		}
		return;
	}
}

static void ends__as_the_table_says(void **state)
{
	enum { NOTHING = -1 };
	static const struct {
		enum event events[4];
		unsigned n;
		enum vb_rs_direction incoming, outgoing;
		enum vb_rs_link link;
		int said;
	} rows[] = {
		{ { DELIVERY }, 1, VB_RS_OPEN, VB_RS_OPEN, VB_RS_UP, NOTHING },
		{ { SHUTDOWN_COMES, DELIVERY }, 2, VB_RS_ENDED, VB_RS_OPEN, VB_RS_UP, NOTHING },
		{ { DISCONNECT_COMES, DELIVERY }, 2, VB_RS_ENDED, VB_RS_ENDED, VB_RS_PEER_CLOSED, NOTHING },
		{ { SHUT_WRITING, DELIVERY }, 2, VB_RS_OPEN, VB_RS_SHUT, VB_RS_UP, VB_RS_SHUTDOWN },
		{ { SHUT_READING, DELIVERY }, 2, VB_RS_SHUT, VB_RS_OPEN, VB_RS_UP, NOTHING },
		{ { SHUT_READING, DELIVERY, SHUT_WRITING, DELIVERY }, 4, VB_RS_SHUT, VB_RS_SHUT, VB_RS_CLOSED, VB_RS_DISCONNECT },
		{ { SHUT_BOTH, DELIVERY }, 2, VB_RS_SHUT, VB_RS_SHUT, VB_RS_CLOSED, VB_RS_DISCONNECT },
		{ { SHUT_WRITING, DELIVERY, SHUTDOWN_COMES }, 3, VB_RS_ENDED, VB_RS_SHUT, VB_RS_PEER_CLOSED, VB_RS_SHUTDOWN },
		{ { SHUT_WRITING, SHUTDOWN_COMES, DELIVERY }, 3, VB_RS_ENDED, VB_RS_SHUT, VB_RS_CLOSED, VB_RS_SHUTDOWN },
		{ { SHUTDOWN_COMES, SHUT_WRITING, DELIVERY }, 3, VB_RS_ENDED, VB_RS_SHUT, VB_RS_CLOSED, VB_RS_DISCONNECT },
		{ { SHUT_WRITING, DELIVERY, SHUT_BOTH, DELIVERY }, 4, VB_RS_SHUT, VB_RS_SHUT, VB_RS_CLOSED, VB_RS_DISCONNECT },
		{ { FAILURE, DELIVERY }, 2, VB_RS_ENDED, VB_RS_ENDED, VB_RS_BROKEN, NOTHING },
	};

	for (size_t i = 0; i < VB_ARRAY_LEN(rows); i++) {
		int said = NOTHING;

		setup(state);
		for (unsigned k = 0; k < rows[i].n; k++)
			happen(rows[i].events[k], &said);
		assert_int_equal(s.incoming, rows[i].incoming);
		assert_int_equal(s.outgoing, rows[i].outgoing);
		assert_int_equal(s.link, rows[i].link);
		assert_int_equal(said, rows[i].said);
	}
}

/* A thread may copy and post bytes while another one ends the stream. */
static void end__follows_what_is_being_posted(void **state)
{
	struct vb_rs_write w, end;

	(void)state;
	vb_rs_stream_send(&s, 1, false, &w);
	vb_rs_stream_shut_writing(&s);
	assert_true(vb_rs_stream_control(&s, &end)); /* the grant need not wait */
	assert_int_equal(end.message, message(VB_RS_CREDIT, QUEUE));
	assert_false(vb_rs_stream_control(&s, &end));
	vb_rs_stream_posted(&s);
	assert_true(vb_rs_stream_control(&s, &end));
	assert_int_equal(end.message, message(VB_RS_CONTROL, VB_RS_SHUTDOWN));
	assert_false(vb_rs_stream_is_idle(&s));
}

static void keepalive__is_a_write_of_nothing(void **state)
{
	struct vb_rs_write w;

	(void)state;
	assert_true(vb_rs_stream_control(&s, &w));
	vb_rs_stream_keep_alive(&s);
	assert_true(vb_rs_stream_control(&s, &w));
	assert_int_equal(w.bytes, 0);
	assert_false(w.has_message);
	assert_false(vb_rs_stream_control(&s, &w));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(offer__bytes),
		cmocka_unit_test(meet__refuses),
		cmocka_unit_test(iomap_size__is_coded_in_eight_bits),
		cmocka_unit_test_setup(control__grants_the_second_half_first, setup),
		cmocka_unit_test(control__in_the_byte_order_of_the_reader),
		cmocka_unit_test_setup(send__uses_segments_in_turn, setup),
		cmocka_unit_test_setup(send__needs_credits, setup),
		cmocka_unit_test_setup(send__needs_the_queue_and_the_ring, setup),
		cmocka_unit_test_setup(receive__credits_return, setup),
		cmocka_unit_test_setup(full__of_bytes_or_messages, setup),
		cmocka_unit_test_setup(receive__refuses, setup),
		cmocka_unit_test_setup(iomap__is_found_and_bounded, setup),
		cmocka_unit_test(ends__as_the_table_says),
		cmocka_unit_test_setup(end__follows_what_is_being_posted, setup),
		cmocka_unit_test_setup(keepalive__is_a_write_of_nothing, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
