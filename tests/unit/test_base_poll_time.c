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

	vb_poll_time_learn(&t, 1000, 6000);
	assert_int_equal(t.ns, VB_FIRST_POLL_NS);
	vb_poll_time_learn(&t, 1000, 1000 + VB_FIRST_POLL_NS + 1);
	assert_int_equal(t.ns, 2 * VB_FIRST_POLL_NS);
	for (int i = 0; i < 40; i++)
		vb_poll_time_learn(&t, 1000, 1000 + VB_MOST_POLL_NS);
	assert_int_equal(t.ns, VB_MOST_POLL_NS);
}

static void learn__stays_where_polling_sufficed(void **state)
{
	struct vb_poll_time t = { .ns = VB_FIRST_POLL_NS };
	(void)state;

	vb_poll_time_learn(&t, 1000, 1000 + VB_FIRST_POLL_NS);
	assert_int_equal(t.ns, VB_FIRST_POLL_NS);
	vb_poll_time_learn(&t, 1000, 1000);
	assert_int_equal(t.ns, VB_FIRST_POLL_NS);
}

static void learn__gives_up_after_a_long_wait(void **state)
{
	struct vb_poll_time t = { .ns = VB_MOST_POLL_NS };
	(void)state;

	vb_poll_time_learn(&t, 1000, 1000 + VB_MOST_POLL_NS + 1);
	assert_int_equal(t.ns, 0);
}

static void learn_silence__gives_up(void **state)
{
	struct vb_poll_time t = { .ns = VB_MOST_POLL_NS };
	(void)state;

	vb_poll_time_learn_silence(&t);
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

/* A wait from 1000 ns on met others at 2000 ns. */
static struct vb_poll_time met_others_while_waiting(void)
{
	struct vb_poll_time t = { .ns = VB_FIRST_POLL_NS };
	assert_true(vb_poll_time_met_others(&t, 2000, 2000 + VB_SWITCH_NS));
	return t;
}

/* It was the peer that ran. */
static void learn__ends_the_rest_that_began_in_a_short_wait(void **state)
{
	struct vb_poll_time t = met_others_while_waiting();
	const uint64_t came = 2000 + VB_SWITCH_NS + 1;
	(void)state;

	vb_poll_time_learn(&t, 1000, came);
	assert_true(vb_poll_time_end(&t, came) > came);
}

static void learn__leaves_the_rest_after_a_long_wait(void **state)
{
	struct vb_poll_time t = met_others_while_waiting();
	const uint64_t came = 1000 + VB_MOST_POLL_NS + 1;
	(void)state;

	vb_poll_time_learn(&t, 1000, came);
	t.ns = VB_FIRST_POLL_NS;
	assert_int_equal(vb_poll_time_end(&t, came), came);
}

static void learn__leaves_the_rest_that_began_in_an_earlier_wait(void **state)
{
	struct vb_poll_time t = met_others_while_waiting();
	const uint64_t since = 2000 + VB_SWITCH_NS;
	(void)state;

	vb_poll_time_learn(&t, since, since + 1000);
	assert_int_equal(vb_poll_time_end(&t, since + 1000), since + 1000);
}

static void learn__yields_first_after_a_wait_that_let_others_run(void **state)
{
	struct vb_poll_time t = { .ns = VB_FIRST_POLL_NS };
	(void)state;

	assert_false(vb_poll_time_met_others(&t, 2000, 2000 + VB_TURN_NS - 1));
	vb_poll_time_learn(&t, 1000, 5000);
	assert_false(t.yields_first);
	assert_false(vb_poll_time_met_others(&t, 6000, 6000 + VB_TURN_NS));
	vb_poll_time_learn(&t, 5000, 8000);
	assert_true(t.yields_first);
	vb_poll_time_learn(&t, 8000, 9000); /* none ran in this one */
	assert_false(t.yields_first);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(learn__grows_while_waits_are_short_but_longer_than_it),
		cmocka_unit_test(learn__stays_where_polling_sufficed),
		cmocka_unit_test(learn__gives_up_after_a_long_wait),
		cmocka_unit_test(learn_silence__gives_up),
		cmocka_unit_test(learn__ends_the_rest_that_began_in_a_short_wait),
		cmocka_unit_test(learn__leaves_the_rest_after_a_long_wait),
		cmocka_unit_test(learn__leaves_the_rest_that_began_in_an_earlier_wait),
		cmocka_unit_test(learn__yields_first_after_a_wait_that_let_others_run),
		cmocka_unit_test(end__is_when_it_has_polled_so_long),
		cmocka_unit_test(end__is_at_once_while_others_want_the_processor),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
