/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/poll_time.h"

static void learn__grows_while_waits_are_short_but_longer_than_it(void **state)
{
	struct vb_poll_time t = { 0 };
	(void)state;

	vb_poll_time_learn(&t, 5000);
	assert_int_equal(t.ns, VB_FIRST_POLL_NS);
	vb_poll_time_learn(&t, VB_FIRST_POLL_NS + 1);
	assert_int_equal(t.ns, 2 * VB_FIRST_POLL_NS);
	for (int i = 0; i < 40; i++)
		vb_poll_time_learn(&t, VB_MOST_POLL_NS);
	assert_int_equal(t.ns, VB_MOST_POLL_NS);
}

static void learn__stays_where_polling_sufficed(void **state)
{
	struct vb_poll_time t = { .ns = VB_FIRST_POLL_NS };
	(void)state;

	vb_poll_time_learn(&t, VB_FIRST_POLL_NS);
	assert_int_equal(t.ns, VB_FIRST_POLL_NS);
	vb_poll_time_learn(&t, 0);
	assert_int_equal(t.ns, VB_FIRST_POLL_NS);
}

static void learn__gives_up_after_a_long_wait(void **state)
{
	struct vb_poll_time t = { .ns = VB_MOST_POLL_NS };
	(void)state;

	vb_poll_time_learn(&t, VB_MOST_POLL_NS + 1);
	assert_int_equal(t.ns, 0);
	vb_poll_time_learn(&t, UINT64_MAX);
	assert_int_equal(t.ns, 0);
}

static void end__is_when_it_has_polled_so_long(void **state)
{
	struct vb_poll_time t = { .ns = VB_FIRST_POLL_NS };
	(void)state;

	assert_int_equal(vb_poll_time_end(&t, 1000), 1000 + VB_FIRST_POLL_NS);
	assert_false(vb_poll_time_met_others(&t, 1000, 1000 + VB_SWITCH_NS / 2));
	assert_int_equal(vb_poll_time_end(&t, 2000), 2000 + VB_FIRST_POLL_NS);
}

static void rests_after(uint64_t yield_ns, uint64_t rest_ns)
{
	struct vb_poll_time t = { .ns = VB_FIRST_POLL_NS };
	const uint64_t before = 1000, now = before + yield_ns, last = now + rest_ns - 1;

	assert_true(vb_poll_time_met_others(&t, before, now));
	assert_int_equal(vb_poll_time_end(&t, now), now);
	assert_int_equal(vb_poll_time_end(&t, last), last);
	assert_int_equal(vb_poll_time_end(&t, last + 1), last + 1 + VB_FIRST_POLL_NS);
}

/* In proportion to the time that others took. */
static void end__is_at_once_while_others_want_the_processor(void **state)
{
	(void)state;

	rests_after(VB_SWITCH_NS, VB_REST_TIMES * VB_SWITCH_NS);
	rests_after(100000, VB_REST_TIMES * 100000);
	rests_after(VB_MOST_REST_NS / VB_REST_TIMES, VB_MOST_REST_NS);
	rests_after(VB_MOST_REST_NS / 2, VB_MOST_REST_NS);
	rests_after(UINT32_MAX, VB_MOST_REST_NS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(learn__grows_while_waits_are_short_but_longer_than_it),
		cmocka_unit_test(learn__stays_where_polling_sufficed),
		cmocka_unit_test(learn__gives_up_after_a_long_wait),
		cmocka_unit_test(end__is_when_it_has_polled_so_long),
		cmocka_unit_test(end__is_at_once_while_others_want_the_processor),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
