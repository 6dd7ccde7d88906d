/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>

#include "proto/ud.h"

enum { IMM_BYTES = 4 };

static int parse(const void *bytes, size_t len, struct vb_ud_arrival *out)
{
	struct vb_packet packet;

	return vb_packet_parse(bytes, len, &packet) ? -EBADMSG : vb_ud_parse(&packet, out);
}

static const struct vb_ud_send example = {
	.destination_qpn = 0x123456,
	.source_qpn = 0xabcdef,
	.psn = 0x1fffffe,
	.qkey = 0x11223344,
	.imm = 0x04030201,
	.payload_bytes = 5,
	.has_imm = true,
	.solicited = true,
};

/* A packet in memory of its own size, so that a sanitizer sees what is read beyond it. */
static uint8_t *packet_of(const struct vb_ud_send *send, size_t *bytes)
{
	uint8_t header[VB_UD_HEADER_BYTES];
	unsigned pad;
	size_t n = vb_ud_build(header, send, &pad);
	uint8_t *packet = malloc(n + send->payload_bytes + pad);
	assert_non_null(packet);
	memcpy(packet, header, n);
	memset(packet + n, 0x5a, send->payload_bytes);
	memset(packet + n + send->payload_bytes, 0, pad);
	*bytes = n + send->payload_bytes + pad;
	return packet;
}

static void build__bytes_of_the_book(void **state)
{
	static const uint8_t want[] = { 0x65, 0xf0, 0xff, 0xff, 0, 0x12, 0x34, 0x56, 0, 0xff, 0xff, 0xfe,
					0x11, 0x22, 0x33, 0x44, 0, 0xab, 0xcd, 0xef, 1, 2, 3, 4 };
	uint8_t header[VB_UD_HEADER_BYTES];
	unsigned pad;
	struct vb_ud_send send = example;
	assert_int_equal(vb_ud_build(header, &send, &pad), sizeof(want));
	assert_int_equal(pad, 3);
	/* imm is given as it lies in memory */
	memcpy(&send.imm, want + 20, IMM_BYTES);
	vb_ud_build(header, &send, &pad);
	assert_memory_equal(header, want, sizeof(want));
}

static void build__without_immediate_data(void **state)
{
	uint8_t header[VB_UD_HEADER_BYTES];
	unsigned pad;
	struct vb_ud_send send = { .destination_qpn = 2, .payload_bytes = 8 };
	assert_int_equal(vb_ud_build(header, &send, &pad), 20);
	assert_int_equal(pad, 0);
	assert_int_equal(header[0], 0x64);
	assert_int_equal(header[1], 0x40);
}

static void parse__gives_back_what_was_built(void **state)
{
	for (unsigned n = 0; n < 16; n++) {
		struct vb_ud_send send = example;
		struct vb_ud_arrival a;
		size_t bytes;
		send.payload_bytes = n;
		send.has_imm = n & 1;
		send.solicited = n & 2;
		uint8_t *packet = packet_of(&send, &bytes);
		assert_int_equal(parse(packet, bytes, &a), 0);
		assert_int_equal(a.payload_bytes, n);
		assert_int_equal(a.destination_qpn, send.destination_qpn);
		assert_int_equal(a.source_qpn, send.source_qpn);
		assert_int_equal(a.qkey, send.qkey);
		assert_int_equal(a.has_imm, send.has_imm);
		assert_int_equal(a.solicited, send.solicited);
		assert_int_equal(a.imm, send.has_imm ? send.imm : 0);
		assert_ptr_equal(a.payload, packet + (send.has_imm ? 24 : 20));
		free(packet);
	}
}

static void assert_refused(const uint8_t *packet, size_t bytes)
{
	struct vb_ud_arrival a = { .qkey = 77 };
	assert_int_equal(parse(packet, bytes, &a), -EBADMSG);
	assert_int_equal(a.qkey, 77);
}

static void parse__refuses_every_shorter_packet(void **state)
{
	struct vb_ud_send send = example;
	size_t bytes;
	send.payload_bytes = 3;
	free(packet_of(&send, &bytes));
	for (size_t n = 0; n < bytes; n++) {
		uint8_t *whole = packet_of(&send, &bytes), *cut = malloc(n ? n : 1);
		assert_non_null(cut);
		memcpy(cut, whole, n);
		assert_refused(cut, n);
		free(cut);
		free(whole);
	}
}

static void parse__refuses_other_packets(void **state)
{
	size_t bytes;
	uint8_t *packet = packet_of(&example, &bytes);
	for (unsigned opcode = 0; opcode < 256; opcode++) {
		packet[0] = (uint8_t)opcode;
		if (opcode != 0x64 && opcode != 0x65)
			assert_refused(packet, bytes);
	}
	packet[0] = 0x65;
	packet[1] |= 1; /* transport version */
	assert_refused(packet, bytes);
	packet[1] &= 0xf0;
	packet[3] = 0xfe; /* another partition */
	assert_refused(packet, bytes);
	packet[3] = 0xff;
	packet[2] = 0x7f; /* a limited member of ours */
	assert_int_equal(parse(packet, bytes, &(struct vb_ud_arrival){ 0 }), 0);
	free(packet);
}

static void parse__refuses_padding_without_data(void **state)
{
	struct vb_ud_send send = { .destination_qpn = 2 };
	size_t bytes;
	uint8_t *packet = packet_of(&send, &bytes);
	packet[1] |= 0x10;
	assert_refused(packet, bytes);
	free(packet);
}

static void parse__refuses_more_than_the_largest_mtu(void **state)
{
	struct vb_ud_send send = { .destination_qpn = 2, .payload_bytes = VB_UD_PAYLOAD_BYTES };
	struct vb_ud_arrival a;
	size_t bytes;
	uint8_t *packet = packet_of(&send, &bytes);
	assert_int_equal(parse(packet, bytes, &a), 0);
	free(packet);
	send.payload_bytes++;
	packet = packet_of(&send, &bytes);
	assert_refused(packet, bytes);
	free(packet);
}

static void qkey__high_bit_means_the_own_one(void **state)
{
	assert_int_equal(vb_ud_qkey(0x7fffffff, 5), 0x7fffffff);
	assert_int_equal(vb_ud_qkey(0x80000000, 5), 5);
	assert_int_equal(vb_ud_qkey(0xffffffff, 0x80000001), 0x80000001);
}

static void grh__ipv4_header_in_the_last_20_bytes(void **state)
{
	/*
	 * checksum worked out by hand: 4512 + 0040 + 0000 + 4000 + 0711 + c000 + 0201 + c000 + 0202 = 21066,
	 * carried 1068
	 */
	static const uint8_t want[40] = { [20] = 0x45, 0x12, 0, 64, 0, 0, 0x40, 0, 7, 17, 0xef, 0x97,
					  192, 0, 2, 1, 192, 0, 2, 2 };
	struct vb_ud_route route = {
		.source = { [10] = 0xff, 0xff, 192, 0, 2, 1 },
		.destination = { [10] = 0xff, 0xff, 192, 0, 2, 2 },
		.flow_label = 0x12345,
		.traffic_class = 0x12,
		.hop_limit = 7,
	};
	uint8_t grh[VB_GRH_BYTES];
	memset(grh, 0xaa, sizeof(grh));
	vb_ud_grh(grh, &route, 32);
	assert_memory_equal(grh, want, sizeof(want));
}

static void grh__ipv6_header(void **state)
{
	static const uint8_t want[40] = { 0x61, 0x21, 0x23, 0x45,     0,    44, 17,
					  9,	0x20, 1,    [23] = 1, 0x20, 1,	[39] = 2 };
	struct vb_ud_route route = {
		.source = { 0x20, 1, [15] = 1 },
		.destination = { 0x20, 1, [15] = 2 },
		.flow_label = 0x12345,
		.traffic_class = 0x12,
		.hop_limit = 9,
	};
	uint8_t grh[VB_GRH_BYTES];
	memset(grh, 0xaa, sizeof(grh));
	vb_ud_grh(grh, &route, 32);
	assert_memory_equal(grh, want, sizeof(want));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(build__bytes_of_the_book),
		cmocka_unit_test(build__without_immediate_data),
		cmocka_unit_test(parse__gives_back_what_was_built),
		cmocka_unit_test(parse__refuses_every_shorter_packet),
		cmocka_unit_test(parse__refuses_other_packets),
		cmocka_unit_test(parse__refuses_padding_without_data),
		cmocka_unit_test(parse__refuses_more_than_the_largest_mtu),
		cmocka_unit_test(qkey__high_bit_means_the_own_one),
		cmocka_unit_test(grh__ipv4_header_in_the_last_20_bytes),
		cmocka_unit_test(grh__ipv6_header),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
