/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies by words are copies, however long and wherever they begin. */
#include "base/copy.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { MOST = 2 * VB_COPY_MANY, MARGIN = 16 };

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
	for (size_t bytes = 0; bytes <= MOST; bytes = bytes < 40 ? bytes + 1 : bytes * 3 / 2 + 1)
		for (size_t at = 0; at < 64; at++)
			check_one(copy, bytes, at % 8, at / 8);
}

static void copy__by_words(void **state) { check(vb_copy_words); }

static void copy__by_what_is_best(void **state)
{
	bool usual = vb_copy_is_by_words;
	for (int by_words = 0; by_words < 2; by_words++) {
		vb_copy_is_by_words = by_words;
		check(vb_copy_bytes);
	}
	vb_copy_is_by_words = usual;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copy__by_words),
		cmocka_unit_test(copy__by_what_is_best),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
