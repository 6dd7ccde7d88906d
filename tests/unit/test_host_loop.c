/* SPDX-License-Identifier: BSD-2-Clause */
#include "child.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "host/host.h"

static int start_host(void **state) { return vb_host_get(); }

static int stop_host(void **state)
{
	vb_host_put();
	return 0;
}

/* ---- the thread ---- */

static char thread_name[16];
static atomic_int signals_blocked, on_loop, fired;

static void look_around(struct vb_timer *t, uint64_t now_ns)
{
	sigset_t set;
	pthread_sigmask(SIG_BLOCK, NULL, &set);
	pthread_getname_np(pthread_self(), thread_name, sizeof thread_name);
	signals_blocked =
		sigismember(&set, SIGINT) && sigismember(&set, SIGUSR1) && sigismember(&set, SIGALRM);
	on_loop = vb_loop_is_current();
	fired++;
}

static void loop__is_a_named_thread_that_blocks_signals(void **state)
{
	struct vb_timer t = { .fire = look_around };
	sigset_t set;

	fired = 0;
	vb_timer_set(&t, vb_now_ns());
	assert_true(WAIT_FOR(fired));
	assert_string_equal(thread_name, "verbatim");
	assert_true(signals_blocked);
	assert_true(on_loop);
	assert_false(vb_loop_is_current());
	pthread_sigmask(SIG_BLOCK, NULL, &set);
	assert_false(sigismember(&set, SIGINT));
}

/* ---- timers ---- */

static atomic_bool entered, let_go, left;

static void hold_the_loop(struct vb_timer *t, uint64_t now_ns)
{
	entered = true;
	while (!let_go)
		usleep(100);
}

/* What is done from here on, the loop finds all at once when it is let go. */
static void begin_hold(struct vb_timer *holder)
{
	entered = let_go = false;
	*holder = (struct vb_timer){ .fire = hold_the_loop };
	vb_timer_set(holder, vb_now_ns());
	assert_true(WAIT_FOR(entered));
}

enum { TIMERS = 50 };
static int order[TIMERS];
static atomic_int ordered;

static void record(struct vb_timer *t, uint64_t now_ns)
{
	order[ordered] = (int)(intptr_t)t->arg;
	ordered++;
}

static void timers__fire_in_order_and_not_early(void **state)
{
	struct vb_timer timers[TIMERS] = { 0 }, holder;
	uint64_t base = vb_now_ns() + 20000000;

	ordered = 0;
	begin_hold(&holder); /* setting them may take longer than the first has time */
	for (int i = 0; i < TIMERS; i++) {
		int rank = i * 7 % TIMERS; /* 7 and 50 share no factor: a permutation */
		timers[i] = (struct vb_timer){ .fire = record, .arg = (void *)(intptr_t)rank };
		vb_timer_set(&timers[i], base + (uint64_t)rank * 10000);
	}
	let_go = true;
	assert_true(WAIT_FOR(ordered == TIMERS));
	assert_true(vb_now_ns() >= base + (TIMERS - 1) * 10000);
	for (int i = 0; i < TIMERS; i++)
		assert_int_equal(order[i], i);
}

static void count_fired(struct vb_timer *t, uint64_t now_ns) { fired++; }

static void timer_cancel__keeps_it_from_firing(void **state)
{
	struct vb_timer cancelled = { .fire = count_fired }, after = { .fire = record }, holder;
	uint64_t now = vb_now_ns();

	fired = ordered = 0;
	begin_hold(&holder);
	vb_timer_set(&cancelled, now);
	vb_timer_set(&after, now + 1);
	vb_timer_cancel(&cancelled);
	vb_timer_cancel(&cancelled);
	let_go = true;
	assert_true(WAIT_FOR(ordered));
	assert_int_equal(fired, 0);
}

static void timer_set__again_moves_it(void **state)
{
	struct vb_timer moved = { .fire = count_fired };

	fired = 0;
	vb_timer_set(&moved, UINT64_MAX);
	vb_timer_set(&moved, vb_now_ns());
	assert_true(WAIT_FOR(fired));
	assert_int_equal(fired, 1);
}

static void linger_and_rearm(struct vb_timer *t, uint64_t now_ns)
{
	entered = true;
	while (!let_go)
		usleep(100);
	vb_timer_set(t, vb_now_ns());
	left = true;
}

static void *let_go_later(void *unused)
{
	usleep(20000);
	let_go = true;
	return NULL;
}

static void timer_cancel__waits_for_the_callback_and_outlasts_its_rearming(void **state)
{
	struct vb_timer *t = calloc(1, sizeof *t);
	pthread_t helper;

	entered = let_go = left = false;
	t->fire = linger_and_rearm;
	vb_timer_set(t, vb_now_ns());
	assert_true(WAIT_FOR(entered));
	entered = false;
	pthread_create(&helper, NULL, let_go_later, NULL);
	vb_timer_cancel(t);
	assert_true(left);
	free(t); /* the sanitizers would notice another callback */
	pthread_join(helper, NULL);
	assert_false(entered);
}

static void cancel_self(struct vb_timer *t, uint64_t now_ns)
{
	vb_timer_set(t, now_ns);
	vb_timer_cancel(t);
	fired++;
}

static void timer_cancel__from_its_own_callback_returns(void **state)
{
	struct vb_timer t = { .fire = cancel_self }, after = { .fire = record };

	fired = ordered = 0;
	vb_timer_set(&t, vb_now_ns());
	assert_true(WAIT_FOR(fired));
	vb_timer_set(&after, vb_now_ns());
	assert_true(WAIT_FOR(ordered));
	assert_int_equal(fired, 1);
}

static void rearm_for_the_past(struct vb_timer *t, uint64_t now_ns)
{
	fired++;
	vb_timer_set(t, 1);
}

static atomic_int reads;

static void read_byte(struct vb_watch *w, uint32_t epoll_events)
{
	char byte;
	if (read(w->fd, &byte, 1) == 1)
		reads++;
}

static void timer__that_is_always_due_leaves_time_for_descriptors(void **state)
{
	struct vb_timer t = { .fire = rearm_for_the_past };
	int pair[2];

	fired = reads = 0;
	assert_int_equal(pipe2(pair, O_NONBLOCK), 0);
	struct vb_watch w = { .fd = pair[0], .ready = read_byte };
	assert_int_equal(vb_watch_start(&w, EPOLLIN), 0);
	vb_timer_set(&t, 1);
	assert_int_equal(write(pair[1], "x", 1), 1);
	assert_true(WAIT_FOR(reads && fired > 1));
	vb_timer_cancel(&t);
	vb_watch_stop(&w);
	close(pair[0]);
	close(pair[1]);
}

/* ---- watches ---- */

static void watch__is_called_when_ready_and_not_after_stop(void **state)
{
	int pair[2];

	reads = 0;
	assert_int_equal(pipe2(pair, O_NONBLOCK), 0);
	struct vb_watch w = { .fd = pair[0], .ready = read_byte };
	assert_int_equal(vb_watch_start(&w, EPOLLIN), 0);
	assert_int_equal(write(pair[1], "xx", 2), 2);
	assert_true(WAIT_FOR(reads == 2));
	vb_watch_stop(&w);
	vb_watch_stop(&w);
	assert_int_equal(write(pair[1], "x", 1), 1);
	usleep(20000);
	assert_int_equal(reads, 2);
	assert_int_equal(vb_watch_start(&w, EPOLLIN), 0);
	assert_true(WAIT_FOR(reads == 3));
	vb_watch_stop(&w);
	close(pair[0]);
	close(pair[1]);
}

static _Atomic uint32_t seen_events;

static void note_events(struct vb_watch *w, uint32_t epoll_events)
{
	seen_events = epoll_events;
	vb_watch_start(w, 0);
}

static void watch_start__again_changes_the_events(void **state)
{
	int pair[2];

	seen_events = 0;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	struct vb_watch w = { .fd = pair[0], .ready = note_events };
	assert_int_equal(vb_watch_start(&w, EPOLLIN), 0);
	usleep(10000);
	assert_int_equal(seen_events, 0);
	assert_int_equal(vb_watch_start(&w, EPOLLIN | EPOLLOUT), 0);
	assert_true(WAIT_FOR(seen_events));
	assert_int_equal(seen_events, EPOLLOUT);
	vb_watch_stop(&w);
	close(pair[0]);
	close(pair[1]);
}

static void watch_start__refuses_what_cannot_be_watched(void **state)
{
	struct vb_watch none = { .fd = -1 }, closed = { .fd = 1000 };
	assert_int_equal(vb_watch_start(&none, EPOLLIN), -EBADF);
	assert_int_equal(vb_watch_start(&closed, EPOLLIN), -EBADF);
	vb_watch_stop(&none);
	vb_watch_stop(&closed);
}

static void linger(struct vb_watch *w, uint32_t epoll_events)
{
	entered = true;
	while (!let_go)
		usleep(100);
	left = true;
}

static void watch_stop__waits_for_the_callback(void **state)
{
	int pair[2];
	pthread_t helper;

	entered = let_go = left = false;
	assert_int_equal(pipe2(pair, O_NONBLOCK), 0);
	struct vb_watch *w = calloc(1, sizeof *w);
	*w = (struct vb_watch){ .fd = pair[0], .ready = linger };
	assert_int_equal(vb_watch_start(w, EPOLLIN), 0);
	assert_int_equal(write(pair[1], "x", 1), 1);
	assert_true(WAIT_FOR(entered));
	pthread_create(&helper, NULL, let_go_later, NULL);
	vb_watch_stop(w);
	assert_true(left);
	entered = false;
	free(w);
	usleep(10000);
	assert_false(entered);
	pthread_join(helper, NULL);
	close(pair[0]);
	close(pair[1]);
}

/* Each of two ready watches stops and frees the other: only one callback may run. */
static struct vb_watch *couple[2];

static void stop_both(struct vb_watch *w, uint32_t epoll_events)
{
	for (int i = 0; i < 2; i++) {
		vb_watch_stop(couple[i]);
		free(couple[i]);
	}
	reads++;
}

static void watch_stop__in_a_callback_takes_back_fetched_events(void **state)
{
	int pairs[2][2];
	struct vb_timer holder;

	reads = 0;
	begin_hold(&holder);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pipe2(pairs[i], O_NONBLOCK), 0);
		assert_int_equal(write(pairs[i][1], "x", 1), 1);
		couple[i] = calloc(1, sizeof *couple[i]);
		*couple[i] = (struct vb_watch){ .fd = pairs[i][0], .ready = stop_both };
		assert_int_equal(vb_watch_start(couple[i], EPOLLIN), 0);
	}
	let_go = true;
	assert_true(WAIT_FOR(reads));
	usleep(20000);
	assert_int_equal(reads, 1);
	for (int i = 0; i < 2; i++) {
		close(pairs[i][0]);
		close(pairs[i][1]);
	}
}

/*
 * The first of two ready watches' callbacks gives the other's descriptor number to a quiet pipe with a watch
 * of its own.
 */
static struct reuse {
	struct vb_watch first[2], quiet;
	int pairs[3][2];
} *reuse;
static atomic_int quiet_calls;

static void count_quiet(struct vb_watch *w, uint32_t epoll_events) { quiet_calls++; }

static void reuse_descriptor(struct vb_watch *w, uint32_t epoll_events)
{
	int other = w == &reuse->first[0];
	vb_watch_stop(&reuse->first[0]);
	vb_watch_stop(&reuse->first[1]);
	dup2(reuse->pairs[2][0], reuse->pairs[other][0]);
	reuse->quiet = (struct vb_watch){ .fd = reuse->pairs[other][0], .ready = count_quiet };
	vb_watch_start(&reuse->quiet, EPOLLIN);
	reads++;
}

static void watch_start__on_a_reused_descriptor_gets_no_stale_event(void **state)
{
	struct vb_timer holder;

	reuse = calloc(1, sizeof *reuse);
	reads = quiet_calls = 0;
	begin_hold(&holder);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pipe2(reuse->pairs[i], O_NONBLOCK), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(write(reuse->pairs[i][1], "x", 1), 1);
		reuse->first[i] = (struct vb_watch){ .fd = reuse->pairs[i][0], .ready = reuse_descriptor };
		assert_int_equal(vb_watch_start(&reuse->first[i], EPOLLIN), 0);
	}
	let_go = true;
	assert_true(WAIT_FOR(reads));
	usleep(20000);
	assert_int_equal(quiet_calls, 0);
	assert_int_equal(write(reuse->pairs[2][1], "x", 1), 1);
	assert_true(WAIT_FOR(quiet_calls));
	vb_watch_stop(&reuse->quiet);
	assert_int_equal(reads, 1);
	for (int i = 0; i < 3; i++) {
		close(reuse->pairs[i][0]);
		close(reuse->pairs[i][1]);
	}
	free(reuse);
}

/* ---- the pass ---- */

static atomic_int passes;
static _Atomic uint64_t pass_answer;

static uint64_t pass(uint64_t now_ns)
{
	uint64_t answer = pass_answer;
	passes++;
	return answer > 1 && answer != UINT64_MAX ? now_ns + answer : answer;
}

/* A thread that spins or ticks never does. */
static bool sleeps_for_a_while(void)
{
	int before = passes;
	usleep(50000);
	return passes == before;
}

static void loop_set_pass__runs_it_as_it_asks(void **state)
{
	pass_answer = UINT64_MAX;
	vb_loop_set_pass(pass);
	assert_true(WAIT_FOR(passes));
	int tries = 100;
	while (!sleeps_for_a_while() && tries--)
		;
	assert_true(tries > 0);
	int before = passes;
	vb_loop_wake();
	assert_true(WAIT_FOR(passes > before));
	before = passes;
	uint64_t one = 1;
	assert_int_equal(write(vb_loop_eventfd(), &one, sizeof one), sizeof one); /* as a peer does */
	assert_true(WAIT_FOR(passes > before));

	pass_answer = 300000; /* ns from now */
	vb_loop_wake();
	before = passes;
	assert_true(WAIT_FOR(passes > before + 5));
	pass_answer = 0;
	before = passes;
	assert_true(WAIT_FOR(passes > before + 5));
	pass_answer = UINT64_MAX;
}

/* ---- wake-ups while it is awake ---- */

static atomic_bool may_return;

static uint64_t busy_pass(uint64_t now_ns)
{
	passes++;
	while (!may_return)
		usleep(1000);
	return UINT64_MAX;
}

static uint64_t waking_pass(uint64_t now_ns)
{
	if (!passes++)
		vb_loop_wake();
	return UINT64_MAX;
}

/* They take no system call, and none is lost. */
static void loop_wake__of_a_busy_thread_runs_the_pass_again(void **state)
{
	uint64_t count;
	passes = 0;
	may_return = false;
	vb_loop_set_pass(busy_pass);
	assert_true(WAIT_FOR(passes));
	while (read(vb_loop_eventfd(), &count, sizeof(count)) > 0)
		;
	for (int i = 0; i < 3; i++)
		vb_loop_wake();
	assert_int_equal(read(vb_loop_eventfd(), &count, sizeof(count)), -1);
	assert_int_equal(passes, 1);
	may_return = true;
	assert_true(WAIT_FOR(passes == 2));
	assert_true(WAIT_FOR(sleeps_for_a_while()));
	assert_int_equal(passes, 2);
}

static void loop_wake__by_the_thread_itself_runs_the_pass_again(void **state)
{
	passes = 0;
	vb_loop_set_pass(waking_pass);
	assert_true(WAIT_FOR(passes >= 2));
	assert_true(WAIT_FOR(sleeps_for_a_while()));
}

static atomic_int trapped;

static void note_trap(int sig) { trapped++; }

static void call_what_traps(struct vb_timer *t, uint64_t now_ns)
{
	syscall(SYS_getppid);
	fired++;
}

/* Sandboxes carry out system calls in a handler of SIGSYS. Where the signal is blocked the process ends. */
static void call_in_a_sandbox(int sock)
{
	struct vb_timer t = { .fire = call_what_traps };
	struct sigaction handle = { .sa_handler = note_trap };
	bool works = !sigaction(SIGSYS, &handle, NULL) && answer_with(SYS_getppid, SECCOMP_RET_TRAP);
	say(sock, works);
	CHILD_CHECK(vb_host_get() == 0);
	vb_timer_set(&t, vb_now_ns());
	CHILD_CHECK(WAIT_FOR(fired));
	CHILD_CHECK(trapped || !works);
}

static void loop__takes_the_signals_of_its_own_faults(void **state)
{
	fired = 0;
	struct child c = child_start(call_in_a_sandbox);
	bool works = hear(c.sock) == 1;
	assert_int_equal(hear(c.sock), UINT64_MAX);
	assert_int_equal(child_end(&c), 0);
	if (!works)
		SKIP("no seccomp here");
}

/* A sandbox answers with the error that it likes. */
static void watch_beside_a_timer(int sock)
{
#ifdef SYS_epoll_pwait2
	struct vb_timer now = { .fire = count_fired }, later = { .fire = count_fired };
	int pair[2];
	bool works = forbid_with(SYS_epoll_pwait2, EACCES);
	say(sock, works);
	fired = reads = 0;
	CHILD_CHECK(vb_host_get() == 0);
	vb_timer_set(&later, UINT64_MAX - 1);
	vb_timer_set(&now, vb_now_ns());
	CHILD_CHECK(WAIT_FOR(fired));
	CHILD_CHECK(pipe2(pair, O_NONBLOCK) == 0);
	struct vb_watch w = { .fd = pair[0], .ready = read_byte };
	CHILD_CHECK(vb_watch_start(&w, EPOLLIN) == 0);
	CHILD_CHECK(write(pair[1], "x", 1) == 1);
	CHILD_CHECK(WAIT_FOR(reads));
#else
	say(sock, 0);
#endif
}

static void loop__sleeps_where_sandboxes_refuse_epoll_pwait2(void **state)
{
	struct child c = child_start(watch_beside_a_timer);
	bool works = hear(c.sock) == 1;
	assert_int_equal(hear(c.sock), UINT64_MAX);
	assert_int_equal(child_end(&c), 0);
	if (!works)
		SKIP("no epoll_pwait2 here, or no seccomp");
}

static void close_epoll(void)
{
	struct dirent *entry;
	DIR *own = opendir("/proc/self/fd");
	CHILD_CHECK(own);
	while ((entry = readdir(own))) {
		char what[64] = "";
		if (readlinkat(dirfd(own), entry->d_name, what, sizeof what - 1) > 0 &&
		    strstr(what, "eventpoll"))
			close(atoi(entry->d_name));
	}
	closedir(own);
}

static _Atomic(long) sleeps_of_its_own;

static void count_sleeps(struct vb_timer *t, uint64_t now_ns)
{
	struct rusage used;
	getrusage(RUSAGE_THREAD, &used);
	sleeps_of_its_own = used.ru_nvcsw;
	vb_timer_set(t, now_ns + 100000);
}

static void lose_descriptors(int sock)
{
	struct vb_timer t = { .fire = count_sleeps };
	CHILD_CHECK(vb_host_get() == 0);
	vb_timer_set(&t, vb_now_ns());
	CHILD_CHECK(WAIT_FOR(sleeps_of_its_own));
	close_epoll();
	long before = sleeps_of_its_own;
	CHILD_CHECK(WAIT_FOR(sleeps_of_its_own > before + 20));
	say(sock, 1);
}

static void loop__sleeps_when_the_program_has_closed_its_descriptors(void **state)
{
	struct child c = child_start(lose_descriptors);
	assert_int_equal(hear(c.sock), 1);
	assert_int_equal(child_end(&c), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loop__is_a_named_thread_that_blocks_signals),
		cmocka_unit_test(timers__fire_in_order_and_not_early),
		cmocka_unit_test(timer_cancel__keeps_it_from_firing),
		cmocka_unit_test(timer_set__again_moves_it),
		cmocka_unit_test(timer_cancel__waits_for_the_callback_and_outlasts_its_rearming),
		cmocka_unit_test(timer_cancel__from_its_own_callback_returns),
		cmocka_unit_test(timer__that_is_always_due_leaves_time_for_descriptors),
		cmocka_unit_test(watch__is_called_when_ready_and_not_after_stop),
		cmocka_unit_test(watch_start__again_changes_the_events),
		cmocka_unit_test(watch_start__refuses_what_cannot_be_watched),
		cmocka_unit_test(watch_stop__waits_for_the_callback),
		cmocka_unit_test(watch_stop__in_a_callback_takes_back_fetched_events),
		cmocka_unit_test(watch_start__on_a_reused_descriptor_gets_no_stale_event),
		cmocka_unit_test(loop__takes_the_signals_of_its_own_faults),
		cmocka_unit_test(loop__sleeps_where_sandboxes_refuse_epoll_pwait2),
		cmocka_unit_test(loop__sleeps_when_the_program_has_closed_its_descriptors),
		cmocka_unit_test(loop_set_pass__runs_it_as_it_asks),
		cmocka_unit_test(loop_wake__of_a_busy_thread_runs_the_pass_again),
		cmocka_unit_test(loop_wake__by_the_thread_itself_runs_the_pass_again),
	};
	return cmocka_run_group_tests(tests, start_host, stop_host);
}
