/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "wire/cm_msg.h"
#include "wire/opcode.h"
#include "../packet_line.h"
#include "wire/timers.h"

static void assert_row(uint8_t opcode, const char *name, unsigned header_bytes)
{
	const struct vb_opcode_row *row = vb_opcode_row(opcode);

	assert_non_null(row->name);
	assert_string_equal(row->name, name);
	assert_int_equal(row->header_bytes, header_bytes);
}

static void opcode_row__numbers_and_lengths_of_the_book(void **state)
{
	(void)state;
	assert_row(0x04, "SEND_ONLY", 12);
	assert_row(0x05, "SEND_ONLY_IMM", 16);
	assert_row(0x06, "WRITE_FIRST", 28);
	assert_row(0x0b, "WRITE_ONLY_IMM", 32);
	assert_row(0x0c, "READ_REQUEST", 28);
	assert_row(0x0e, "READ_RESPONSE_MIDDLE", 12);
	assert_row(0x10, "READ_RESPONSE_ONLY", 16);
	assert_row(0x11, "ACKNOWLEDGE", 16);
	assert_row(0x12, "ATOMIC_ACKNOWLEDGE", 24);
	assert_row(0x13, "COMPARE_SWAP", 40);
	assert_row(0x17, "SEND_ONLY_INV", 16);
	assert_row(0x1c, "FLUSH", 32);
	assert_row(0x1d, "ATOMIC_WRITE", 28);
	assert_row(0x2a, "WRITE_ONLY", 28);
	assert_row(0x64, "SEND_ONLY", 20);
	assert_row(0x65, "SEND_ONLY_IMM", 24);
	assert_row(0xa4, "SEND_ONLY", 16);
	assert_row(0xb1, "ACKNOWLEDGE", 16);
	assert_row(0xb3, "COMPARE_SWAP", 44);
	assert_row(0x81, "CONGESTION_NOTIFICATION", 12);
}

static void opcode_row__other_numbers_are_none(void **state)
{
	static const uint8_t none[] = {
		0x15, 0x18, 0x1f, 0x2c, 0x31, 0x40, 0x60, 0x66, 0x80, 0xb5, 0xc0, 0xff
	};
	unsigned rows = 0;

	(void)state;
	for (unsigned i = 0; i < sizeof(none); i++)
		assert_null(vb_opcode_row(none[i])->name);
	for (unsigned op = 0; op < 256; op++)
		rows += vb_opcode_row((uint8_t)op)->name != NULL;
	assert_int_equal(rows, 24 + 12 + 2 + 1 + 26);
}

static void opcode_row__flags_agree_with_names(void **state)
{
	(void)state;
	for (unsigned op = 0; op < 256; op++) {
		const struct vb_opcode_row *row = vb_opcode_row((uint8_t)op);

		if (!row->name)
			continue;
		if (strstr(row->name, "FIRST"))
			assert_true(row->flags.first && !row->flags.last);
		if (strstr(row->name, "MIDDLE"))
			assert_true(!row->flags.first && !row->flags.last);
		if (strstr(row->name, "LAST"))
			assert_true(!row->flags.first && row->flags.last);
		if (strstr(row->name, "ONLY"))
			assert_true(row->flags.first && row->flags.last);
		assert_int_equal(strstr(row->name, "_IMM") != NULL, vb_opcode_has(row, VB_EXT_IMMDT));
		assert_int_equal(strstr(row->name, "_INV") != NULL, vb_opcode_has(row, VB_EXT_IETH));
	}
}

static void opcode_offset__follows_the_order_of_headers(void **state)
{
	(void)state;
	assert_int_equal(vb_opcode_offset(vb_opcode_row(0x0b), VB_EXT_RETH), 12);
	assert_int_equal(vb_opcode_offset(vb_opcode_row(0x0b), VB_EXT_IMMDT), 28);
	assert_int_equal(vb_opcode_offset(vb_opcode_row(0x65), VB_EXT_IMMDT), 20);
	assert_int_equal(vb_opcode_offset(vb_opcode_row(0xb3), VB_EXT_XRCETH), 12);
	assert_int_equal(vb_opcode_offset(vb_opcode_row(0xb3), VB_EXT_ATOMICETH), 16);
	assert_int_equal(vb_opcode_offset(vb_opcode_row(0x12), VB_EXT_ATOMICACKETH), 16);
}

static size_t cm_packet(uint8_t *packet, enum vb_cm_attribute attribute)
{
	struct vb_bth bth = { { 0 } };
	struct vb_deth deth = { { 0 } };
	struct vb_mad mad;

	vb_bth_set_opcode(&bth, VB_OPCODE(UD, SEND_ONLY));
	vb_bth_set_pkey(&bth, 0xffff);
	vb_bth_set_destination_qpn(&bth, VB_GSI_QPN);
	vb_deth_set_qkey(&deth, VB_GSI_QKEY);
	vb_deth_set_source_qpn(&deth, VB_GSI_QPN);
	vb_cm_msg_init(&mad, attribute, 0x12);
	if (attribute == VB_CM_ATTR_REJ) {
		vb_cm_rej_msg_set_remote_comm_id(vb_cm_rej_in(&mad), 0x5002);
		vb_cm_rej_msg_set_reason(vb_cm_rej_in(&mad), VB_CM_REJ_STALE_CONN);
	}
	memcpy(packet, bth.b, sizeof(bth));
	memcpy(packet + 12, deth.b, sizeof(deth));
	memcpy(packet + 20, mad.b, sizeof(mad));
	return 12 + 8 + 256;
}

static void packet_line__shows_a_cm_message(void **state)
{
	char line[VB_WIRE_LINE_BYTES];
	uint8_t packet[276];
	size_t len = vb_wire_packet_line(packet, cm_packet(packet, VB_CM_ATTR_REJ), line, sizeof(line));

	(void)state;
	assert_int_equal(len, strlen(line));
	assert_string_equal(
		line, "UD SEND_ONLY pkey=0xffff destination_qpn=0x1 DETH{ qkey=0x80010000 source_qpn=0x1 } "
		      "CM REJ tid=0x12 remote_comm_id=0x5002 reason=0xa (stale connection)");
}

static void packet_line__shows_payload_length(void **state)
{
	char line[VB_WIRE_LINE_BYTES];
	uint8_t packet[12 + 16 + 64] = { 0x0a, [11] = 5, [12 + 11] = 0x77 };

	(void)state;
	vb_wire_packet_line(packet, sizeof(packet), line, sizeof(line));
	assert_string_equal(line, "RC WRITE_ONLY psn=0x5 RETH{ rkey=0x77 } payload=64");
}

static void packet_line__survives_any_bytes_and_any_length(void **state)
{
	char line[VB_WIRE_LINE_BYTES];
	uint8_t packet[300];
	uint32_t seed = 1;

	(void)state;
	for (unsigned i = 0; i < 20000; i++) {
		size_t len = i % sizeof(packet), n;

		for (size_t k = 0; k < len; k++)
			packet[k] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
		if (i % 3 == 0 && len > 8) {
			cm_packet(packet, VB_CM_ATTR_REQ + i / 3 % 11);
			packet[44 + i % 200] = (uint8_t)i;
		}
		n = vb_wire_packet_line(packet, len, line, sizeof(line));
		assert_true(n < sizeof(line) && line[n] == 0);
	}
}

static void packet_line__is_cut_at_the_end_of_a_small_buffer(void **state)
{
	char line[8] = "zzzzzzz";
	uint8_t packet[276];

	(void)state;
	assert_int_equal(vb_wire_packet_line(packet, cm_packet(packet, VB_CM_ATTR_RTU), line, 5), 4);
	assert_memory_equal(line, "UD S\0zz", 8);
	assert_int_equal(vb_wire_packet_line(packet, 3, line, 0), 0);
	assert_int_equal(line[0], 'U');
}

static void mad_line__names_foreign_classes(void **state)
{
	char line[64];
	uint8_t mad[256] = { 1, 3, 2, 1, [17] = 0x35 };

	(void)state;
	vb_wire_mad_line(mad, sizeof(mad), line, sizeof(line));
	assert_string_equal(line, "MAD class=0x3 attribute=0x35");
	vb_wire_mad_line(mad, 100, line, sizeof(line));
	assert_string_equal(line, "MAD of 100 bytes");
}

static void transport_timer__is_four_timeouts_and_no_less_than_16_ms(void **state)
{
	(void)state;
	assert_int_equal(vb_transport_timer_ns(0), 0);
	assert_int_equal(vb_transport_timer_ns(1), 16000000);
	assert_int_equal(vb_transport_timer_ns(9), 16000000);
	assert_int_equal(vb_transport_timer_ns(10), 16777216);
	assert_int_equal(vb_transport_timer_ns(31), 4096ull << 33);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opcode_row__numbers_and_lengths_of_the_book),
		cmocka_unit_test(opcode_row__other_numbers_are_none),
		cmocka_unit_test(opcode_row__flags_agree_with_names),
		cmocka_unit_test(opcode_offset__follows_the_order_of_headers),
		cmocka_unit_test(packet_line__shows_a_cm_message),
		cmocka_unit_test(packet_line__shows_payload_length),
		cmocka_unit_test(packet_line__survives_any_bytes_and_any_length),
		cmocka_unit_test(packet_line__is_cut_at_the_end_of_a_small_buffer),
		cmocka_unit_test(mad_line__names_foreign_classes),
		cmocka_unit_test(transport_timer__is_four_timeouts_and_no_less_than_16_ms),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
