/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/signals.h"

static volatile sig_atomic_t caught;

static void catch(int number) { caught++; }

static void handle(int number, void (*handler)(int), int flags)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };

	assert_int_equal(sigaction(number, &action, NULL), 0);
}

static int begin(void **state)
{
	caught = 0;
	handle(SIGUSR1, SIG_DFL, 0);
	handle(SIGUSR2, SIG_DFL, 0);
	return 0;
}

/* A signal comes while they are held. Would it end a call? */
static bool interrupts(int number)
{
	sigset_t before;

	vb_signals_hold(&before);
	assert_int_equal(raise(number), 0);
	assert_int_equal(caught, 0);
	bool ends = vb_signals_interrupt(&before);
	vb_signals_release(&before);
	return ends;
}

static void held__handler_runs_at_the_release(void **state)
{
	handle(SIGUSR1, catch, 0);
	assert_true(interrupts(SIGUSR1));
	assert_int_equal(caught, 1);
}

static void held__handler_with_restart_ends_no_call(void **state)
{
	handle(SIGUSR1, catch, SA_RESTART);
	assert_false(interrupts(SIGUSR1));
	assert_int_equal(caught, 1);
}

static void held__what_nobody_handles_ends_no_call(void **state)
{
	handle(SIGUSR1, SIG_IGN, 0);
	assert_false(interrupts(SIGUSR1));
	assert_false(interrupts(SIGCHLD));
}

/* It waits on, as the program wants it. */
static void held__what_the_program_blocks_stays_blocked(void **state)
{
	sigset_t usr1, now;

	handle(SIGUSR1, catch, 0);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &usr1, NULL), 0);
	assert_false(interrupts(SIGUSR1));
	assert_int_equal(caught, 0);
	pthread_sigmask(SIG_BLOCK, NULL, &now);
	assert_true(sigismember(&now, SIGUSR1));
	assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &usr1, NULL), 0);
	assert_int_equal(caught, 1);
}

/* Blocked, a thread's own fault would end the process. */
static void held__faults_are_not(void **state)
{
	sigset_t before;

	handle(SIGSEGV, catch, 0);
	vb_signals_hold(&before);
	assert_int_equal(raise(SIGSEGV), 0);
	assert_int_equal(caught, 1);
	vb_signals_release(&before);
	handle(SIGSEGV, SIG_DFL, 0);
}

static void goes_on__if_all_handlers_restart(void **state)
{
	handle(SIGUSR1, catch, SA_RESTART);
	assert_true(vb_goes_on_after_signal(NULL));
	handle(SIGUSR2, catch, 0);
	assert_false(vb_goes_on_after_signal(NULL));
}

static void goes_on__by_the_mask_of_the_sleep(void **state)
{
	sigset_t before, usr2;

	handle(SIGUSR1, catch, SA_RESTART);
	handle(SIGUSR2, catch, 0);
	sigemptyset(&usr2);
	sigaddset(&usr2, SIGUSR2);
	vb_signals_hold(&before);
	assert_false(vb_goes_on_after_signal(&before));
	assert_true(vb_goes_on_after_signal(&usr2));
	vb_signals_release(&before);
}

#define TEST(name) cmocka_unit_test_setup(name, begin)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(held__handler_runs_at_the_release),
		TEST(held__handler_with_restart_ends_no_call),
		TEST(held__what_nobody_handles_ends_no_call),
		TEST(held__what_the_program_blocks_stays_blocked),
		TEST(held__faults_are_not),
		TEST(goes_on__if_all_handlers_restart),
		TEST(goes_on__by_the_mask_of_the_sleep),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
