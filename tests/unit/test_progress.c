/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When the progress thread leaves arrivals to a thread that polls, and when it takes over. The adapter is
 * whole, the host below it a fake (tests/fuzz): its clock stands still unless the test moves it, and its
 * progress thread runs when the test says so.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../between.h"
#include "adapter/progress/path.h"
#include "adapter/progress/progress.h"
#include "base/tuned.h"
#include "fake_host.h"
#include "rig.h"

enum { MANY_POLLS = 100 };
#define SOME_TICKS_NS UINT64_C(5000000)

static void look_after(uint64_t ns)
{
	fake_pass_time(ns);
	fake_run();
}

/* The progress thread's next look. */
static void look(void) { look_after(SOME_TICKS_NS); }

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

/* Peers are served meanwhile, without learning to ring. */
static void poller__that_waits_for_a_processor_stays_one(void **state)
{
	become_poller();
	fake.threads_lack_processor = true;
	for (unsigned i = 0; i < MANY_POLLS; i++) {
		look();
		assert_true(vb_progress_is_polled());
		assert_int_equal(atomic_load(&vb_arena->asleep), 0);
	}
	fake.threads_lack_processor = false;
	look_after(VB_MOST_TICK_NS);
	assert_false(vb_progress_is_polled());
}

/* Looks would compete, too. */
static void poller__that_competes_for_a_processor_is_looked_at_seldom(void **state)
{
	become_poller();
	fake.threads_lack_processor = true;
	for (unsigned i = 0; i < MANY_POLLS; i++) {
		poll_in_vain(1);
		look_after(VB_MOST_TICK_NS);
	}
	fake.threads_lack_processor = false;
	/* it stops, which two looks would see */
	for (unsigned i = 0; i < VB_MOST_TICK_NS / VB_TICK_NS - 1; i++) {
		look_after(VB_TICK_NS);
		assert_true(vb_progress_is_polled());
	}
	look_after(VB_MOST_TICK_NS);
	look_after(VB_MOST_TICK_NS);
	assert_false(vb_progress_is_polled());
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

/* ---- a leader ---- */

enum { SHORT_WAIT_NS = 15000, LONG_WAIT_NS = 1000000, LOOK_NS = 1000 };

static uint64_t over_at_ns, slept_ns;
static unsigned looks_to_signal; /* from now on; 0: none comes */
static volatile sig_atomic_t caught;

static void catch(int number) { caught++; }

static int sleep_until_it_is_over(void)
{
	slept_ns = over_at_ns > fake.now_ns ? over_at_ns - fake.now_ns : 0;
	fake.now_ns += slept_ns;
	return 0;
}

/* Each look takes its time. */
static bool is_over(void *arg)
{
	if (looks_to_signal && !--looks_to_signal)
		raise(SIGUSR1);
	fake.now_ns += LOOK_NS;
	return fake.now_ns >= over_at_ns;
}

static int wait_as_leader(uint64_t ns)
{
	over_at_ns = fake.now_ns + ns;
	slept_ns = 0;
	assert_true(vb_progress_lead());
	int err = vb_progress_lead_until(is_over, NULL);
	vb_progress_lead_end();
	return err;
}

/* Until the progress thread ticks, and this one polls. */
static void become_polling_leader(void)
{
	fake.sleep = sleep_until_it_is_over;
	for (unsigned i = 0; i < MANY_POLLS; i++) {
		assert_int_equal(wait_as_leader(SHORT_WAIT_NS), 0);
		if (i % 10 == 0)
			fake_run();
	}
	assert_true(vb_progress_is_ticking());
}

static void leader__polls_through_short_waits(void **state)
{
	fake.sleep = sleep_until_it_is_over;
	assert_int_equal(wait_as_leader(LONG_WAIT_NS), 0);
	assert_int_equal(wait_as_leader(SHORT_WAIT_NS), 0);
	assert_int_not_equal(slept_ns, 0); /* the last wait was long */
	become_polling_leader();
	assert_int_equal(wait_as_leader(SHORT_WAIT_NS), 0);
	assert_int_equal(slept_ns, 0);
}

static void leader__sleeps_in_long_waits(void **state)
{
	become_polling_leader();
	assert_int_equal(wait_as_leader(LONG_WAIT_NS), 0);
	assert_between(slept_ns, LONG_WAIT_NS / 2, LONG_WAIT_NS);
	assert_int_equal(wait_as_leader(SHORT_WAIT_NS), 0);
	assert_between(slept_ns, SHORT_WAIT_NS / 2, SHORT_WAIT_NS);
}

/* Nobody would take over if it lost its processor. */
static void leader__does_not_poll_without_ticks(void **state)
{
	become_polling_leader();
	look();
	look();
	assert_false(vb_progress_is_ticking());
	assert_int_equal(wait_as_leader(SHORT_WAIT_NS), 0);
	assert_int_not_equal(slept_ns, 0);
}

static void let_signal_in(int flags, void (*handler)(int))
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };
	assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
	become_polling_leader();
	caught = 0;
	looks_to_signal = 3;
}

static void leader__that_polls_is_interrupted(void **state)
{
	let_signal_in(0, catch);
	assert_int_equal(wait_as_leader(LONG_WAIT_NS), -EINTR);
	assert_int_equal(caught, 1);
	assert_int_equal(slept_ns, 0);
}

static void leader__goes_on_after_a_signal_that_restarts(void **state)
{
	let_signal_in(SA_RESTART, catch);
	assert_int_equal(wait_as_leader(LONG_WAIT_NS), 0);
	assert_int_equal(caught, 1);
}

static void leader__has_its_event_though_a_signal_came(void **state)
{
	let_signal_in(0, catch);
	assert_int_equal(wait_as_leader(SHORT_WAIT_NS), 0);
	assert_int_equal(caught, 1);
}

static sigjmp_buf way_out;

static void jump_out(int number) { siglongjmp(way_out, 1); }

static void leader__may_be_jumped_out_of(void **state)
{
	let_signal_in(0, jump_out);
	if (!sigsetjmp(way_out, 1)) {
		wait_as_leader(LONG_WAIT_NS);
		fail();
	}
	become_polling_leader();
}

/* ---- the network ---- */

static unsigned looks;

static bool look_at_network(void)
{
	looks++;
	return false;
}

static bool needs_no_polls(bool wake) { return true; }
static bool needs_polls(bool wake) { return wake; }
static bool never(void) { return false; }
static bool arrivals_wait;
static bool do_arrivals_wait(void) { return arrivals_wait; }

/* The port does not come back: such tests are the last ones. */
static void become_poller_with_arrivals(void)
{
	static const struct vb_path_io io = { never, needs_polls, never, do_arrivals_wait };
	vb_path_set_io(&io);
	arrivals_wait = false;
	look(); /* if the test before has left work behind */
	become_poller();
	arrivals_wait = true;
}

static void pump(unsigned times)
{
	while (times--)
		vb_path_pump();
}

/* Between two looks it has not polled. */
static void poller__that_spins_on_its_memory_is_replaced_soon(void **state)
{
	become_poller_with_arrivals();
	poll_in_vain(1);
	look();
	assert_true(vb_progress_is_polled());
	look_after(VB_SECOND_LOOK_NS);
	assert_false(vb_progress_is_polled());
}

/* New ones wait at each look. */
static void poller__that_takes_arrivals_is_left_alone(void **state)
{
	become_poller_with_arrivals();
	for (unsigned i = 0; i < MANY_POLLS; i++) {
		poll_in_vain(1);
		look();
		poll_in_vain(1);
		look_after(VB_SECOND_LOOK_NS);
		assert_true(vb_progress_is_polled());
	}
}

/* Each look at the fake's ticks is a microsecond later. Last: the port does not come back. */
static void network__is_looked_at_rarely_while_shared_memory_brings_news(void **state)
{
	enum { NEWS_US = 40, NETWORK_US = 5 };
	static const struct vb_path_io io = { look_at_network, needs_no_polls, never, never };
	vb_path_set_io(&io);
	fake_is_program = true;
	pump(MANY_POLLS);
	assert_int_equal(looks, MANY_POLLS);
	for (unsigned i = 1; i <= 3; i++) {
		looks = 0;
		vb_path_note_shm();
		pump(NEWS_US);
		assert_between(looks, 1, NEWS_US / NETWORK_US + 1);
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
		TEST(poller__that_waits_for_a_processor_stays_one),
		TEST(poller__that_competes_for_a_processor_is_looked_at_seldom),
		TEST(poller__is_not_looked_at_too_soon),
		TEST(leader__polls_through_short_waits),
		TEST(leader__sleeps_in_long_waits),
		TEST(leader__does_not_poll_without_ticks),
		TEST(leader__that_polls_is_interrupted),
		TEST(leader__goes_on_after_a_signal_that_restarts),
		TEST(leader__has_its_event_though_a_signal_came),
		TEST(leader__may_be_jumped_out_of),
		TEST(poller__that_spins_on_its_memory_is_replaced_soon),
		TEST(poller__that_takes_arrivals_is_left_alone),
		TEST(network__is_looked_at_rarely_while_shared_memory_brings_news),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
