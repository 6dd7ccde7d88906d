/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/inet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* RFC 1071's own example. */
static void sum__of_the_rfc(void **state)
{
	static const uint8_t bytes[] = { 0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7 };

	assert_int_equal(vb_inet_sum(0, bytes, sizeof(bytes)), 0x2ddf0);
	assert_int_equal(vb_inet_fold(0x2ddf0), 0xddf2);
	assert_int_equal(vb_inet_fold(vb_inet_sum(vb_inet_sum(0, bytes, 4), bytes + 4, 4)), 0xddf2);
}

static void sum__of_odd_bytes(void **state)
{
	static const uint8_t bytes[] = { 0x12, 0x34, 0x56, 0 };

	assert_int_equal(vb_inet_sum(0, bytes, 3), vb_inet_sum(0, bytes, 4));
	assert_int_equal(vb_inet_sum(7, bytes, 1), 7 + 0x1200);
	assert_int_equal(vb_inet_sum(7, bytes, 0), 7);
}

/* More carries than 32 bits of sum have, and one that gives another. */
static void fold__all_carries(void **state)
{
	enum { MANY = 1 << 18 };
	static uint8_t ones[MANY];

	memset(ones, 0xff, sizeof(ones));
	assert_int_equal(vb_inet_fold(vb_inet_sum(0, ones, sizeof(ones))), 0xffff);
	assert_int_equal(vb_inet_fold(0x1ffff), 1);
	assert_int_equal(vb_inet_fold(0), 0);
}

static void checksum__makes_all_ones(void **state)
{
	uint8_t header[20] = { 0x45, 2, 0, 60, 0x12, 0x34, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2 };
	uint16_t sum = (uint16_t)~vb_inet_fold(vb_inet_sum(0, header, sizeof(header)));

	header[10] = (uint8_t)(sum >> 8);
	header[11] = (uint8_t)sum;
	assert_int_equal(vb_inet_fold(vb_inet_sum(0, header, sizeof(header))), 0xffff);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sum__of_the_rfc),
		cmocka_unit_test(sum__of_odd_bytes),
		cmocka_unit_test(fold__all_carries),
		cmocka_unit_test(checksum__makes_all_ones),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
