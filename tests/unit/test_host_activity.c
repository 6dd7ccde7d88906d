/* SPDX-License-Identifier: BSD-2-Clause */
#include "child.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "../between.h"
#include "host/loop/activity.h"

static void run_on(int sock)
{
	say(sock, 0);
	for (;;)
		;
}

static void pace__of_processes(void **state)
{
	struct child runner = child_start(run_on);
	(void)hear(runner.sock);
	assert_int_equal(vb_process_activity(0), VB_ACTIVITY_UNKNOWN);
	kill(runner.pid, SIGSTOP);
	assert_true(WAIT_FOR(vb_process_activity(runner.pid) == VB_ACTIVITY_HALTED));
	kill(runner.pid, SIGCONT);
	assert_true(WAIT_FOR(vb_process_activity(runner.pid) == VB_ACTIVITY_RUNNING));
	pid_t gone = runner.pid;
	child_kill(&runner);
	assert_int_equal(vb_process_activity(gone), VB_ACTIVITY_UNKNOWN);
}

/* Seconds of a clock that is asked each millisecond until a wait for a process is over. */
static unsigned patience_with(pid_t pid)
{
	enum { MS = 1000000 };
	struct vb_process_wait p = { 0 };
	uint64_t ms = 0;
	while (!vb_process_wait_is_over(&p, pid, 1 + ms * MS))
		ms++;
	return (unsigned)(ms / 1000);
}

static void patience__is_for_who_runs(void **state)
{
	struct child runner = child_start(run_on);
	(void)hear(runner.sock);
	kill(runner.pid, SIGSTOP);
	assert_true(WAIT_FOR(vb_process_activity(runner.pid) == VB_ACTIVITY_HALTED));
	assert_int_equal(patience_with(runner.pid), 0);
	kill(runner.pid, SIGCONT);
	assert_true(WAIT_FOR(vb_process_activity(runner.pid) == VB_ACTIVITY_RUNNING));
	assert_int_equal(patience_with(getpid()), 10);
	assert_int_equal(patience_with(0), 1);
	child_kill(&runner);
}

/* ---- threads of this process ---- */

static struct {
	_Atomic(pid_t) tid;
	atomic_bool may_run, is_over;
} worker;

/* Runs while it may, and sleeps else. */
static void *work(void *arg)
{
	atomic_store(&worker.tid, gettid());
	while (!atomic_load(&worker.is_over))
		if (!atomic_load(&worker.may_run))
			usleep(200000);
	return NULL;
}

static pthread_t start_worker(bool may_run)
{
	pthread_t thread;
	worker.tid = 0;
	worker.may_run = may_run;
	worker.is_over = false;
	assert_int_equal(pthread_create(&thread, NULL, work, NULL), 0);
	assert_true(WAIT_FOR(atomic_load(&worker.tid)));
	return thread;
}

static void thread__that_sleeps_has_moved_on(void **state)
{
	pthread_t thread = start_worker(false);
	struct vb_thread_looks looks = { .tid = worker.tid };
	assert_false(vb_thread_has_moved_on(&looks)); /* one look tells nothing */
	assert_true(WAIT_FOR(vb_thread_has_moved_on(&looks)));
	assert_between(looks.ran_ns - looks.first_ns, 0, VB_THREAD_RUNS_NS); /* it was not by running */
	worker.is_over = true;
	pthread_join(thread, NULL);
}

/* However many looks it takes, and however seldom it gets a processor. */
static void thread__that_runs_has_time(void **state)
{
	pthread_t thread = start_worker(true);
	struct vb_thread_looks looks = { .tid = worker.tid };
	while (!vb_thread_has_moved_on(&looks))
		assert_between(looks.ran_ns - looks.first_ns, 0, VB_THREAD_RUNS_NS);
	assert_true(looks.ran_ns - looks.first_ns > VB_THREAD_RUNS_NS);
	worker.is_over = true;
	pthread_join(thread, NULL);
	/* It is gone, for the kernel a moment later than for who joins it. */
	assert_true(WAIT_FOR(vb_thread_has_moved_on(&(struct vb_thread_looks){ .tid = worker.tid })));
}

enum { LITTLE_NS = 200000 };

static bool lacks_since(uint64_t ran_ns) { return vb_thread_lacks_processor(worker.tid, ran_ns, LITTLE_NS); }

static bool sleeps_and_lacks_none(void)
{
	uint64_t ran_ns = vb_thread_ran_ns(worker.tid);
	return !lacks_since(ran_ns) && vb_thread_ran_ns(worker.tid) == ran_ns;
}

/*
 * The worker has the idle class and shares a processor with this thread, which spins: the worker lacks a
 * processor. A worker that runs, sleeps or is gone does not.
 */
static void thread__that_waits_for_a_processor_lacks_it(void **state)
{
	const struct sched_param idle = { 0 };
	cpu_set_t before, one;
	uint64_t ran_ns;
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	pthread_t thread = start_worker(true);
	assert_int_equal(pthread_setschedparam(thread, SCHED_IDLE, &idle), 0);
	sched_yield();
	do
		ran_ns = vb_thread_ran_ns(worker.tid); /* whoever sleeps here lets it run */
	while (!lacks_since(ran_ns));
	assert_true(ran_ns > 0);
	assert_true(WAIT_FOR(!lacks_since(ran_ns)));
	assert_true(vb_thread_ran_ns(worker.tid) - ran_ns >= LITTLE_NS);
	worker.may_run = false;
	assert_true(WAIT_FOR(sleeps_and_lacks_none()));
	worker.is_over = true;
	pthread_join(thread, NULL);
	assert_true(WAIT_FOR(!vb_thread_ran_ns(worker.tid) && !lacks_since(0)));
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pace__of_processes),
		cmocka_unit_test(patience__is_for_who_runs),
		cmocka_unit_test(thread__that_sleeps_has_moved_on),
		cmocka_unit_test(thread__that_runs_has_time),
		cmocka_unit_test(thread__that_waits_for_a_processor_lacks_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
