/* SPDX-License-Identifier: BSD-2-Clause */
/* Cached translations by themselves: what is within one, and when it holds no longer. */
#include "local/translation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

enum { BYTES = 4096, RKEY = 0x300, LKEY = 0x200 };

static uint8_t here[BYTES], there[BYTES];
static struct vb_arena_head their_arena;
static struct vb_peer peer = { .arena = &their_arena };
static struct vb_local_qp connection = { .peer = &peer };

static const uint64_t to = 0x10000;

static struct vb_remote_translation made(void)
{
	return (struct vb_remote_translation){
		.local = {
			.is_made = true,
			.their_generation = atomic_load(&their_arena.generation),
			.our_generation = atomic_load(&vb_arena->generation),
			.lkey = LKEY, .ours = (uintptr_t)here, .our_bytes = BYTES,
		},
		.rkey = RKEY, .theirs = to, .their_bytes = BYTES, .there = there,
	};
}

static bool covers_piece(uint64_t skip, uint32_t length, uint32_t lkey)
{
	struct vb_remote_translation t = made();
	struct ibv_sge piece = { (uintptr_t)here + skip, length, lkey };
	void *at = vb_translation_of_piece(&t.local, &piece);
	if (at)
		assert_ptr_equal(at, here + skip);
	return at;
}

static bool covers_target(uint64_t skip, uint32_t length, uint32_t rkey)
{
	struct vb_remote_translation t = made();
	void *at = vb_translation_of_target(&t, rkey, to + skip, length);
	if (at)
		assert_ptr_equal(at, there + skip);
	return at;
}

static void check_bounds(bool (*covers)(uint64_t skip, uint32_t length, uint32_t key), uint32_t key)
{
	assert_true(covers(0, 1, key));
	assert_true(covers(0, BYTES, key));
	assert_true(covers(BYTES - 8, 8, key));
	assert_false(covers(0, BYTES + 1, key));
	assert_false(covers(BYTES - 7, 8, key));
	assert_false(covers(BYTES, 1, key));
	assert_false(covers((uint64_t)-1, 8, key));
	assert_false(covers((uint64_t)-8, 16, key));
	assert_false(covers(0, UINT32_MAX, key));
	assert_false(covers(0, 8, key + 1));
}

static void of_piece__what_lies_within(void **state) { check_bounds(covers_piece, LKEY); }
static void of_target__what_lies_within(void **state) { check_bounds(covers_target, RKEY); }

static void of__nothing_where_nothing_is_known(void **state)
{
	struct vb_remote_translation t = made();
	struct ibv_sge piece = { (uintptr_t)here, 8, LKEY };
	t.local.our_bytes = t.their_bytes = 0;
	assert_null(vb_translation_of_piece(&t.local, &piece));
	assert_null(vb_translation_of_target(&t, RKEY, to, 8));
}

static void holds__until_something_was_revoked(void **state)
{
	struct vb_remote_translation t = made();
	uint32_t key;
	assert_true(vb_translation_holds(&connection, &t.local));
	assert_int_equal(vb_key_take(&key), 0);
	vb_key_revoke(key);
	assert_false(vb_translation_holds(&connection, &t.local));
	t = made();
	assert_true(vb_translation_holds(&connection, &t.local));
	atomic_fetch_add(&their_arena.generation, 1);
	assert_false(vb_translation_holds(&connection, &t.local));
}

static void holds__never_before_it_was_made(void **state)
{
	struct vb_remote_translation t = made();
	t.local.is_made = false;
	assert_false(vb_translation_holds(&connection, &t.local));
}

static void generation__stays_at_the_last(void **state)
{
	atomic_store(&vb_arena->generation, VB_GENERATION_LAST - 1);
	vb_arena_next_generation();
	assert_int_equal(atomic_load(&vb_arena->generation), VB_GENERATION_LAST);
	vb_arena_next_generation();
	assert_int_equal(atomic_load(&vb_arena->generation), VB_GENERATION_LAST);
	atomic_store(&vb_arena->generation, 0);
}

static int start(void **state)
{
	return vb_arena_start();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_piece__what_lies_within),
		cmocka_unit_test(of_target__what_lies_within),
		cmocka_unit_test(of__nothing_where_nothing_is_known),
		cmocka_unit_test(holds__until_something_was_revoked),
		cmocka_unit_test(holds__never_before_it_was_made),
		cmocka_unit_test(generation__stays_at_the_last),
	};
	return cmocka_run_group_tests(tests, start, NULL);
}
