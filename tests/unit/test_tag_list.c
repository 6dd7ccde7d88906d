/* SPDX-License-Identifier: BSD-2-Clause */
/* The list that messages are matched with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "proto/tag_list.h"

enum { ROOM = 8 };

static const uint64_t ALL = UINT64_MAX;

static struct {
	struct vb_tag_list list;
	struct vb_tag_entry entries[ROOM];
} f;

static int setup(void **state)
{
	vb_tag_list_init(&f.list, f.entries, ROOM);
	return 0;
}

static uint32_t add(uint64_t tag, uint64_t mask, int *index)
{
	uint32_t handle;
	*index = vb_tag_list_add(&f.list, tag, mask, &handle);
	assert_int_not_equal(*index, VB_TAG_NONE);
	return handle;
}

static void match__takes_the_oldest_that_fits(void **state)
{
	int any, exact, again;
	add(0, 0, &any);
	add(5, ALL, &exact);
	add(5, ALL, &again);
	assert_int_equal(vb_tag_list_match(&f.list, 5), any);
	assert_int_equal(vb_tag_list_match(&f.list, 7), VB_TAG_NONE);
	assert_int_equal(vb_tag_list_match(&f.list, 5), exact);
	assert_int_equal(vb_tag_list_match(&f.list, 5), again);
	assert_int_equal(vb_tag_list_match(&f.list, 5), VB_TAG_NONE);
}

/* Bits outside the mask do not count in the message; in the entry they are never met. */
static void match__by_mask(void **state)
{
	int low, never;
	add(0x34, 0xff, &low);
	add(0x134, 0xff, &never);
	assert_int_equal(vb_tag_list_match(&f.list, 0xab34), low);
	assert_int_equal(vb_tag_list_match(&f.list, 0x134), VB_TAG_NONE);
	assert_int_equal(vb_tag_list_match(&f.list, 0xab34), VB_TAG_NONE);
}

static void add__is_refused_while_all_are_in_use(void **state)
{
	uint32_t handle;
	int index;
	for (int i = 0; i < ROOM; i++)
		add((uint64_t)i, ALL, &index);
	assert_true(vb_tag_list_is_full(&f.list));
	assert_int_equal(vb_tag_list_add(&f.list, 9, ALL, &handle), VB_TAG_NONE);
	index = vb_tag_list_match(&f.list, 3);
	assert_int_not_equal(index, VB_TAG_NONE);
	assert_int_equal(vb_tag_list_add(&f.list, 9, ALL, &handle), VB_TAG_NONE); /* it is taken, not free */
	vb_tag_list_give(&f.list, index);
	add(9, ALL, &index);
	assert_int_equal(vb_tag_list_match(&f.list, 9), index);
}

static void remove__by_handle_once(void **state)
{
	int first, middle, last;
	uint32_t a = add(1, ALL, &first), b = add(2, ALL, &middle), c = add(3, ALL, &last);
	assert_int_equal(vb_tag_list_remove(&f.list, b), middle);
	assert_int_equal(vb_tag_list_remove(&f.list, b), VB_TAG_NONE);
	assert_int_equal(vb_tag_list_match(&f.list, 2), VB_TAG_NONE);
	assert_int_equal(vb_tag_list_match(&f.list, 1), first);
	assert_int_equal(vb_tag_list_remove(&f.list, a), VB_TAG_NONE); /* a message has it */
	assert_int_equal(vb_tag_list_remove(&f.list, c), last);
}

/* The place's next entry has another handle. */
static void remove__knows_handles_apart(void **state)
{
	int before, after;
	uint32_t old = add(1, ALL, &before);
	vb_tag_list_remove(&f.list, old);
	uint32_t fresh = add(1, ALL, &after);
	assert_int_equal(before, after);
	assert_int_not_equal(old, fresh);
	assert_int_equal(vb_tag_list_remove(&f.list, old), VB_TAG_NONE);
	assert_int_equal(vb_tag_list_remove(&f.list, fresh), after);
	assert_int_equal(vb_tag_list_remove(&f.list, ROOM), VB_TAG_NONE);
	assert_int_equal(vb_tag_list_remove(&f.list, UINT32_MAX), VB_TAG_NONE);
}

static void phase__new_entries_wait_until_the_program_has_caught_up(void **state)
{
	int old, late, later;
	add(1, ALL, &old);
	vb_tag_list_note_unexpected(&f.list);
	add(2, ALL, &late);
	vb_tag_list_note_unexpected(&f.list);
	add(1, ALL, &later);
	assert_int_equal(vb_tag_list_match(&f.list, 2), VB_TAG_NONE);
	assert_int_equal(vb_tag_list_match(&f.list, 1), old); /* from before */
	assert_int_equal(vb_tag_list_match(&f.list, 1), VB_TAG_NONE);
	vb_tag_list_sync(&f.list, 1);
	assert_int_equal(vb_tag_list_lag(&f.list), 1);
	assert_int_equal(vb_tag_list_match(&f.list, 2), VB_TAG_NONE);
	vb_tag_list_sync(&f.list, 2);
	assert_int_equal(vb_tag_list_match(&f.list, 1), later);
	assert_int_equal(vb_tag_list_match(&f.list, 2), late);
}

static void phase__removal_moves_the_boundary(void **state)
{
	int first, second;
	vb_tag_list_note_unexpected(&f.list);
	uint32_t a = add(1, ALL, &first);
	uint32_t b = add(2, ALL, &second);
	vb_tag_list_remove(&f.list, a);
	assert_int_equal(vb_tag_list_match(&f.list, 2), VB_TAG_NONE);
	vb_tag_list_remove(&f.list, b);
	vb_tag_list_sync(&f.list, 1);
	add(2, ALL, &first);
	assert_int_equal(vb_tag_list_match(&f.list, 2), first);
}

static void phase__a_claim_of_too_many_is_no_phase(void **state)
{
	int index;
	vb_tag_list_sync(&f.list, 5);
	add(1, ALL, &index);
	assert_int_equal(vb_tag_list_match(&f.list, 1), VB_TAG_NONE);
	vb_tag_list_sync(&f.list, 0);
	assert_int_equal(vb_tag_list_match(&f.list, 1), index);
}

/* ---- against a list that is kept the plain way ---- */

static struct {
	struct {
		uint64_t tag, mask;
		uint32_t handle;
		bool idle;
	} listed[ROOM];
	unsigned n;
	uint32_t unexpected, handled;
} model;

static int model_match(uint64_t tag)
{
	for (unsigned i = 0; i < model.n; i++)
		if (!model.listed[i].idle && (tag & model.listed[i].mask) == model.listed[i].tag)
			return (int)i;
	return -1;
}

static void model_drop(unsigned at)
{
	for (model.n--; at < model.n; at++)
		model.listed[at] = model.listed[at + 1];
}

static void random_add(unsigned *seed)
{
	uint64_t mask = (uint64_t)rand_r(seed) % 4, tag = (uint64_t)rand_r(seed) % 4 & mask;
	uint32_t handle;
	int index = vb_tag_list_add(&f.list, tag, mask, &handle);
	assert_int_equal(index == VB_TAG_NONE, model.n == ROOM);
	if (index == VB_TAG_NONE)
		return;
	model.listed[model.n].tag = tag;
	model.listed[model.n].mask = mask;
	model.listed[model.n].handle = handle;
	model.listed[model.n++].idle = model.unexpected != model.handled;
}

static void random_message(unsigned *seed)
{
	uint64_t tag = (uint64_t)rand_r(seed) % 4;
	int want = model_match(tag), got = vb_tag_list_match(&f.list, tag);
	assert_int_equal(got == VB_TAG_NONE, want < 0);
	if (want < 0) {
		model.unexpected++;
		vb_tag_list_note_unexpected(&f.list);
		return;
	}
	assert_int_equal(got, model.listed[want].handle & 0xffff);
	vb_tag_list_give(&f.list, got);
	model_drop((unsigned)want);
}

static void random_remove(unsigned *seed)
{
	if (!model.n)
		return;
	unsigned at = (unsigned)rand_r(seed) % model.n;
	assert_int_not_equal(vb_tag_list_remove(&f.list, model.listed[at].handle), VB_TAG_NONE);
	model_drop(at);
}

static void random_sync(unsigned *seed)
{
	model.handled = model.unexpected - (uint32_t)(rand_r(seed) % 2);
	vb_tag_list_sync(&f.list, model.handled);
	for (unsigned i = 0; model.handled == model.unexpected && i < model.n; i++)
		model.listed[i].idle = false;
}

static void list__does_as_the_plain_one(void **state)
{
	static void (*const steps[])(unsigned *) = { random_add, random_add, random_message, random_remove,
						     random_sync };
	unsigned seed = 11;
	model.n = 0;
	model.unexpected = model.handled = 0;
	for (int i = 0; i < 200000; i++)
		steps[(unsigned)rand_r(&seed) % VB_ARRAY_LEN(steps)](&seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(match__takes_the_oldest_that_fits, setup),
		cmocka_unit_test_setup(match__by_mask, setup),
		cmocka_unit_test_setup(add__is_refused_while_all_are_in_use, setup),
		cmocka_unit_test_setup(remove__by_handle_once, setup),
		cmocka_unit_test_setup(remove__knows_handles_apart, setup),
		cmocka_unit_test_setup(phase__new_entries_wait_until_the_program_has_caught_up, setup),
		cmocka_unit_test_setup(phase__removal_moves_the_boundary, setup),
		cmocka_unit_test_setup(phase__a_claim_of_too_many_is_no_phase, setup),
		cmocka_unit_test_setup(list__does_as_the_plain_one, setup),
	};
	return cmocka_run_group_tests_name("tag_list", tests, NULL, NULL);
}
