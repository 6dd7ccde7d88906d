/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/memory/lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "base/base.h"
#include "../sanitized.h"

enum { LONG = 5 * 1024, MANY = 40000, THREADS = 4, TURNS = 20000, HELD = 16 };

static void take__begins_at_a_line(void **state)
{
	for (size_t bytes = 1; bytes <= LONG; bytes += 7) {
		uint8_t *block = vb_lines_take(bytes);
		assert_non_null(block);
		assert_int_equal((uintptr_t)block % VB_CACHE_LINE, 0);
		memset(block, 1, bytes);
		vb_lines_give(block, bytes);
	}
	vb_lines_give(NULL, 1);
}

#if !SANITIZED /* else blocks are malloc's */
/* But where new memory was mapped, and behind the one that the case before has given back. */
static void take__one_behind_the_other(void **state)
{
	enum { LINES = 9, EXCEPTIONS = 4 };
	unsigned gaps = 0;
	uint8_t *last = NULL;
	for (unsigned i = 0; i < MANY; i++) {
		uint8_t *block = vb_lines_take(LINES * VB_CACHE_LINE - 1);
		assert_non_null(block);
		gaps += last && block != last + LINES * VB_CACHE_LINE;
		last = block;
	}
	assert_true(gaps <= MANY / ((1 << 20) / (LINES * VB_CACHE_LINE)) + EXCEPTIONS);
}

static void give__for_the_next_of_its_size(void **state)
{
	void *block = vb_lines_take(100), *other = vb_lines_take(100);
	vb_lines_give(block, 100);
	assert_ptr_not_equal(vb_lines_take(200), block);
	assert_ptr_equal(vb_lines_take(128), block);
	assert_ptr_not_equal(other, block);
}
#endif

static void *take_and_give(void *arg)
{
	struct {
		uint8_t *block;
		size_t bytes;
	} held[HELD] = { 0 };
	unsigned seed = (unsigned)(uintptr_t)arg;
	for (unsigned i = 0; i < TURNS; i++) {
		unsigned at = (unsigned)rand_r(&seed) % HELD;
		for (size_t n = 0; held[at].block && n < held[at].bytes; n++)
			if (held[at].block[n] != (uint8_t)(uintptr_t)arg)
				return "somebody else has it";
		vb_lines_give(held[at].block, held[at].bytes);
		held[at].bytes = 1 + (unsigned)rand_r(&seed) % LONG;
		held[at].block = vb_lines_take(held[at].bytes);
		if (!held[at].block)
			return "no memory";
		memset(held[at].block, (int)(uintptr_t)arg, held[at].bytes);
	}
	for (unsigned at = 0; at < HELD; at++)
		vb_lines_give(held[at].block, held[at].bytes);
	return NULL;
}

static void threads__have_their_own(void **state)
{
	pthread_t threads[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, (void *)(i + 1)), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		void *why;
		pthread_join(threads[i], &why);
		assert_null(why);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(take__begins_at_a_line),
#if !SANITIZED
		cmocka_unit_test(take__one_behind_the_other),
		cmocka_unit_test(give__for_the_next_of_its_size),
#endif
		cmocka_unit_test(threads__have_their_own),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
