/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames: what is found in them, checksums over IPv6 and tags, and that nothing beyond a frame's end is
 * looked at (each is alone in its allocation).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "wire/frame.h"

enum { UDP6 = 14 + 40 + 8 + 5, TAGGED_TCP = 18 + 20 + 20 + 3 };

static void udp6(uint8_t *f)
{
	memset(f, 0x11, UDP6);
	memcpy(f + 12, "\x86\xdd\x60\x00\x00\x00\x00\x0d\x11\x40", 10);
	memcpy(f + 54, "\x03\xe8\x03\xe9\x00\x0d\x00\x00hello", 13);
}

static void tagged_tcp(uint8_t *f)
{
	memset(f, 0x22, TAGGED_TCP);
	memcpy(f + 12, "\x81\x00\x00\x05\x08\x00\x45\x00\x00\x2b\x00\x01\x40\x00\x40\x06\x00\x00", 18);
	f[38 + 12] = 0x50;
}

static void fill_checksums__are_right_afterwards(void **state)
{
	uint8_t f[UDP6 + 7];
	(void)state;
	udp6(f);
	assert_false(vb_frame_checksums_are_right(f, UDP6));
	assert_true(vb_frame_fill_checksums(f, UDP6));
	assert_true(vb_frame_checksums_are_right(f, UDP6));
	memset(f + UDP6, 0x99, 7); /* padding does not count */
	assert_true(vb_frame_checksums_are_right(f, UDP6 + 7));
	f[60] ^= 1;
	assert_false(vb_frame_checksums_are_right(f, UDP6));
	tagged_tcp(f);
	assert_true(vb_frame_fill_checksums(f, TAGGED_TCP));
	assert_true(vb_frame_checksums_are_right(f, TAGGED_TCP));
	f[18 + 8]++; /* the header's own checksum */
	assert_false(vb_frame_checksums_are_right(f, TAGGED_TCP));
}

static void find__tells_fragments_and_strangers(void **state)
{
	struct vb_frame_layout at;
	uint8_t f[UDP6];
	(void)state;
	tagged_tcp(f);
	assert_true(vb_frame_find(f, TAGGED_TCP, &at));
	assert_int_equal(at.ip, 18);
	assert_int_equal(at.l4, 38);
	assert_int_equal(at.end, TAGGED_TCP);
	f[18 + 7] = 1; /* an offset: what follows is no header */
	assert_true(vb_frame_find(f, TAGGED_TCP, &at));
	assert_int_equal(at.l4, 0);
	f[18 + 7] = 0;
	f[18] = 0x44; /* a header too short */
	assert_false(vb_frame_find(f, TAGGED_TCP, &at));
	udp6(f);
	f[13] = 0;
	assert_false(vb_frame_find(f, UDP6, &at));
}

/*
 * Any cut, any byte changed: no access beyond the end (a sanitizer's or valgrind's to see), no checksum
 * written outside.
 */
static void any_bytes__stay_within(void **state)
{
	uint64_t x = 88172645463325252ull;
	(void)state;
	for (int round = 0; round < 20000; round++) {
		uint8_t whole[UDP6];
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		(x & 1 ? udp6 : tagged_tcp)(whole);
		whole[x >> 8 & 63] = (uint8_t)(x >> 16);
		size_t n = (x >> 24) % (TAGGED_TCP + 1);
		uint8_t *f = malloc(n ? n : 1);
		memcpy(f, whole, n);
		vb_frame_checksums_are_right(f, n);
		vb_frame_is_tcp_header(f, n);
		vb_frame_fill_checksums(f, n);
		vb_frame_cut(f, n, 0, 7, 1, false);
		assert_true(vb_frame_header_bytes(f, n, x & 1 ? 17 : 6) <= n);
		free(f);
	}
}

static void check_sequence__is_ethernets(void **state)
{
	uint8_t fcs[VB_FCS_BYTES];
	(void)state;
	vb_frame_check_sequence("123456789", 9, fcs);
	assert_memory_equal(fcs, "\x26\x39\xf4\xcb", 4); /* 0xcbf43926, least significant byte first */
}

static void tcp_header__ends_where_it_says(void **state)
{
	uint8_t f[UDP6];
	(void)state;
	tagged_tcp(f);
	assert_true(vb_frame_is_tcp_header(f, 58));
	assert_false(vb_frame_is_tcp_header(f, 57));
	assert_false(vb_frame_is_tcp_header(f, 62));
	f[50] = 0x60; /* with an option */
	assert_true(vb_frame_is_tcp_header(f, 62));
	udp6(f);
	assert_false(vb_frame_is_tcp_header(f, 62));
}

/* Datagrams that are cut have a length and a checksum each. */
static void cut__of_datagrams(void **state)
{
	enum { HEADER = 14 + 40 + 8, EACH = 2 };
	uint8_t whole[UDP6], f[UDP6];
	(void)state;
	udp6(whole);
	assert_int_equal(vb_frame_header_bytes(whole, UDP6, 17), HEADER);
	assert_int_equal(vb_frame_header_bytes(whole, UDP6 - 1, 17), 0); /* it is cut off */
	for (uint16_t i = 0; i < 3; i++) {
		size_t at = HEADER + (size_t)i * EACH, bytes = i < 2 ? EACH : 1;
		memcpy(f, whole, HEADER);
		memcpy(f + HEADER, whole + at, bytes);
		vb_frame_cut(f, HEADER, bytes, (uint32_t)(at - HEADER), i, i == 2);
		assert_true(vb_frame_checksums_are_right(f, HEADER + bytes));
		assert_int_equal(f[19], 8 + bytes);
		assert_int_equal(f[59], 8 + bytes);
		assert_memory_equal(f + HEADER, whole + at, bytes);
	}
	assert_int_equal(vb_frame_header_bytes(whole, UDP6, 6), 0); /* a tunnel's */
	tagged_tcp(f);
	assert_int_equal(vb_frame_header_bytes(f, TAGGED_TCP, 6), 58);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fill_checksums__are_right_afterwards),
		cmocka_unit_test(find__tells_fragments_and_strangers),
		cmocka_unit_test(any_bytes__stay_within),
		cmocka_unit_test(check_sequence__is_ethernets),
		cmocka_unit_test(tcp_header__ends_where_it_says),
		cmocka_unit_test(cut__of_datagrams),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
