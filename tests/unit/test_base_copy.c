/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies in order are copies, however long and wherever they begin. */
#include "base/copy.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { MOST = 2048, MARGIN = 16 };

static uint8_t from[MOST + MARGIN], to[MOST + 2 * MARGIN];

static void check_one(void (*copy)(void *, const void *, size_t), size_t bytes, size_t from_at, size_t to_at)
{
	memset(to, 0xee, sizeof(to));
	copy(to + MARGIN + to_at, from + from_at, bytes);
	assert_memory_equal(to + MARGIN + to_at, from + from_at, bytes);
	assert_int_equal(to[MARGIN + to_at - 1], 0xee);
	assert_int_equal(to[MARGIN + to_at + bytes], 0xee);
}

static void check(void (*copy)(void *, const void *, size_t))
{
	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i * 7 + i / 251);
	for (size_t bytes = 1; bytes <= MOST; bytes = bytes < 40 ? bytes + 1 : bytes * 3 / 2 + 1)
		for (size_t at = 0; at < 64; at++)
			check_one(copy, bytes, at % 8, at / 8);
}

static void copy__ordered(void **state) { check(vb_copy_ordered); }
static void copy__in_turn(void **state) { check(vb_copy_between_fences); }

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copy__ordered),
		cmocka_unit_test(copy__in_turn),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
