/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that yield their processor between polls, and what ran meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host/loop/poll_pause.h"

static uint64_t now_ns = 1000;
uint64_t vb_now_ns(void) { return now_ns; }

static uint64_t sleeps;
uint64_t vb_loop_sleeps(void) { return sleeps; }

/* What a yield does here, instead of the C library's. */
static uint64_t yield_takes_ns;
static unsigned wakes_progress_thread;
static unsigned yields;

int sched_yield(void)
{
	now_ns += yield_takes_ns;
	sleeps += wakes_progress_thread;
	yields++;
	return 0;
}

static void pauses__yield_now_and_then(void **state)
{
	struct vb_poll_time t = { 0 };

	yields = 0;
	yield_takes_ns = 0;
	for (unsigned looks = 1; looks <= 10 * VB_YIELD_EVERY_POLLS; looks++)
		vb_poll_pause(&t, looks);
	assert_int_equal(yields, 10);
}

static void pause__beside_others_ends_the_polling(void **state)
{
	struct vb_poll_time t = { 0 };

	yield_takes_ns = 2 * VB_SWITCH_NS;
	wakes_progress_thread = 0;
	assert_false(vb_poll_pause(&t, VB_YIELD_EVERY_POLLS));
	assert_true(t.rests_until_ns > vb_now_ns());
}

static void pause__for_the_progress_thread_does_not(void **state)
{
	struct vb_poll_time t = { 0 };

	yield_takes_ns = 2 * VB_SWITCH_NS;
	wakes_progress_thread = 1;
	assert_true(vb_poll_pause(&t, VB_YIELD_EVERY_POLLS));
	assert_int_equal(t.rests_until_ns, 0);
}

static void pause__yields_at_once_where_the_peer_needs_the_processor(void **state)
{
	struct vb_poll_time t = { .yields_first = true };

	yields = 0;
	yield_takes_ns = VB_TURN_NS;
	wakes_progress_thread = 0;
	assert_true(vb_poll_pause(&t, 1));
	assert_int_equal(yields, 1);
	assert_true(t.others_ran_ns == vb_now_ns());
	assert_true(vb_poll_pause(&t, 2)); /* and then as usual */
	assert_int_equal(yields, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pauses__yield_now_and_then),
		cmocka_unit_test(pause__beside_others_ends_the_polling),
		cmocka_unit_test(pause__yields_at_once_where_the_peer_needs_the_processor),
		cmocka_unit_test(pause__for_the_progress_thread_does_not),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
