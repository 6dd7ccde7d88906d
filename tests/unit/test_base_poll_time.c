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

enum { SOON_NS = VB_SLOW_YIELD_NS / 2 };

static void end__is_when_it_has_polled_so_long(void **state)
{
	struct vb_poll_time t = { .ns = VB_FIRST_POLL_NS };
	(void)state;

	assert_int_equal(vb_poll_time_end(&t, 1000), 1000 + VB_FIRST_POLL_NS);
	assert_false(vb_poll_time_met_others(&t, 1000, 1000 + SOON_NS));
	assert_int_equal(vb_poll_time_end(&t, 2000), 2000 + VB_FIRST_POLL_NS);
}

static void end__is_at_once_while_others_want_the_processor(void **state)
{
	struct vb_poll_time t = { .ns = VB_FIRST_POLL_NS };
	uint64_t later = 1000 + VB_SLOW_YIELD_NS;
	(void)state;

	assert_true(vb_poll_time_met_others(&t, 1000, later));
	assert_int_equal(vb_poll_time_end(&t, later), later);
	assert_int_equal(vb_poll_time_end(&t, later + VB_REST_NS - 1), later + VB_REST_NS - 1);
	later += VB_REST_NS;
	assert_int_equal(vb_poll_time_end(&t, later), later + VB_FIRST_POLL_NS);
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
