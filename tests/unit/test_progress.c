/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When the progress thread leaves arrivals to a thread that polls, and when it takes over. The adapter is
 * whole, the host below it a fake (tests/fuzz): its clock stands still unless the test moves it, and its
 * progress thread runs when the test says so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "adapter/progress/path.h"
#include "adapter/progress/progress.h"
#include "fake_host.h"
#include "rig.h"

enum { MANY_POLLS = 100 };
#define SOME_TICKS_NS UINT64_C(5000000)

/* The progress thread's next look. */
static void look(void)
{
	fake_pass_time(SOME_TICKS_NS);
	fake_run();
}

static int begin(void **state)
{
	rig_set_up();
	while (vb_progress_is_polled()) /* in the last test */
		look();
	return 0;
}

static int end(void **state)
{
	rig_tear_down();
	return 0;
}

static void poll_in_vain(unsigned times)
{
	while (times--)
		vb_progress_poll(false);
}

static void become_poller(void)
{
	poll_in_vain(MANY_POLLS);
	assert_true(vb_progress_is_polled());
	assert_int_equal(atomic_load(&vb_arena->asleep), 0);
	look();
	assert_true(vb_progress_is_polled());
}

static void poller__that_polls_on_is_left_alone(void **state)
{
	become_poller();
	for (unsigned i = 0; i < MANY_POLLS; i++) {
		poll_in_vain(1);
		look();
		assert_true(vb_progress_is_polled());
	}
}

/* It may have had no processor since the last look. */
static void poller__has_a_second_chance(void **state)
{
	become_poller();
	for (unsigned i = 0; i < MANY_POLLS; i++) {
		look();
		assert_true(vb_progress_is_polled());
		poll_in_vain(1); /* it takes it */
		look();
		assert_true(vb_progress_is_polled());
	}
}

static void poller__that_is_gone_is_replaced(void **state)
{
	become_poller();
	look();
	look();
	assert_false(vb_progress_is_polled());
	assert_int_not_equal(atomic_load(&vb_arena->asleep), 0); /* peers ring */
}

/* However often the progress thread wakes up for something else, the next look is not before its time. */
static void poller__is_not_looked_at_too_soon(void **state)
{
	become_poller();
	for (unsigned i = 0; i < MANY_POLLS; i++)
		fake_run();
	assert_true(vb_progress_is_polled());
	look();
	assert_true(vb_progress_is_polled());
}

/* ---- the network ---- */

static unsigned looks;

static bool look_at_network(void)
{
	looks++;
	return false;
}

static bool needs_no_polls(bool wake) { return true; }
static bool is_never_busy(void) { return false; }

static void pump(unsigned times)
{
	while (times--)
		vb_path_pump();
}

/* Each look at the fake's ticks is a microsecond later. Last: the port does not come back. */
static void network__is_looked_at_rarely_while_shared_memory_brings_news(void **state)
{
	enum { NEWS_US = 40, NETWORK_US = 5 };
	static const struct vb_path_io io = { look_at_network, needs_no_polls, is_never_busy };
	vb_path_set_io(&io);
	fake_is_program = true;
	pump(MANY_POLLS);
	assert_int_equal(looks, MANY_POLLS);
	for (unsigned i = 1; i <= 3; i++) {
		looks = 0;
		vb_path_note_shm();
		pump(NEWS_US);
		assert_in_range(looks, 1, NEWS_US / NETWORK_US + 1);
	}
	pump(MANY_POLLS); /* the news is old by then */
	looks = 0;
	pump(MANY_POLLS);
	assert_int_equal(looks, MANY_POLLS);
	fake_is_program = false;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(poller__that_polls_on_is_left_alone),
		TEST(poller__has_a_second_chance),
		TEST(poller__that_is_gone_is_replaced),
		TEST(poller__is_not_looked_at_too_soon),
		TEST(network__is_looked_at_rarely_while_shared_memory_brings_news),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
