/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Acknowledgements that were put off: when they are sent, by whom, and that no reference to a queue pair is
 * lost.
 */
#include "roce/delayed_ack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "adapter/progress/progress.h"

enum { PATIENCE_NS = 30000, PLACES = 8, QPS = 2 * PLACES, NEVER = 0 };

/* ---- the world around it ---- */

static struct vb_qp qps[QPS];
static struct vb_qp *acknowledged[QPS];
static unsigned nacknowledged;
static struct vb_timer *timer;
static uint64_t timer_at, now;
static bool is_polled, is_progress_thread;
static void (*at_fork)(void);

static void acknowledge(struct vb_qp *qp)
{
	assert_true(atomic_load(&qp->refs) > 0);
	acknowledged[nacknowledged++] = qp;
}

void vb_timer_set(struct vb_timer *t, uint64_t deadline_ns)
{
	timer = t;
	timer_at = deadline_ns;
}

bool vb_progress_is_polled(void) { return is_polled; }
bool vb_loop_is_current(void) { return is_progress_thread; }
uint64_t vb_now_ns(void) { return now; }
void vb_host_at_fork(void (*child)(void)) { at_fork = child; }

static int begin(void **state)
{
	memset(qps, 0, sizeof(qps));
	for (unsigned i = 0; i < QPS; i++)
		qps[i].qpn = i;
	nacknowledged = 0;
	timer_at = NEVER;
	now = 1000000;
	is_polled = true;
	is_progress_thread = false;
	vb_delayed_ack_set_handler(acknowledge);
	return 0;
}

static int end(void **state)
{
	vb_delayed_ack_send();
	for (unsigned i = 0; i < QPS; i++)
		assert_int_equal(atomic_load(&qps[i].refs), 0);
	return 0;
}

/* ---- cases ---- */

static void later__the_next_poll_sends(void **state)
{
	assert_true(vb_delayed_ack_put(&qps[1], now));
	assert_true(vb_delayed_ack_put(&qps[2], now));
	assert_int_equal(atomic_load(&qps[1].refs), 1);
	vb_delayed_ack_send();
	assert_int_equal(nacknowledged, 2);
	assert_ptr_equal(acknowledged[0], &qps[1]);
	assert_ptr_equal(acknowledged[1], &qps[2]);
	vb_delayed_ack_send();
	assert_int_equal(nacknowledged, 2);
	assert_int_equal(timer_at, NEVER);
}

/*
 * A second connection that shares the place acknowledges at once; so does the same one, which waits there
 * already.
 */
static void later__a_place_is_for_one(void **state)
{
	assert_true(vb_delayed_ack_put(&qps[1], now));
	assert_false(vb_delayed_ack_put(&qps[1 + PLACES], now));
	assert_false(vb_delayed_ack_put(&qps[1], now));
	assert_int_equal(atomic_load(&qps[1].refs), 1);
	assert_int_equal(atomic_load(&qps[1 + PLACES].refs), 0);
	vb_delayed_ack_send();
	assert_int_equal(nacknowledged, 1);
	assert_true(vb_delayed_ack_put(&qps[1 + PLACES], now));
}

static void later__what_was_sent_along_is_dropped(void **state)
{
	assert_true(vb_delayed_ack_put(&qps[3], now));
	vb_delayed_ack_drop(&qps[3]);
	assert_int_equal(atomic_load(&qps[3].refs), 0);
	vb_delayed_ack_send();
	assert_int_equal(nacknowledged, 0);
}

static void later__another_ones_place_is_left_alone(void **state)
{
	assert_true(vb_delayed_ack_put(&qps[3], now));
	vb_delayed_ack_drop(&qps[3 + PLACES]);
	vb_delayed_ack_drop(&qps[4]);
	assert_int_equal(atomic_load(&qps[3].refs), 1);
	vb_delayed_ack_send();
	assert_int_equal(nacknowledged, 1);
}

/* Where nobody polls, a timer of the progress thread is set at once. */
static void later__without_a_poller_there_is_a_timer(void **state)
{
	is_polled = false;
	assert_true(vb_delayed_ack_put(&qps[5], now));
	assert_int_equal(timer_at, now + PATIENCE_NS);
	now = timer_at;
	is_progress_thread = true;
	timer->fire(timer, now);
	assert_int_equal(nacknowledged, 1);
}

/*
 * The progress thread knows nothing of what the program is about to post: it leaves what is young, and comes
 * back for it.
 */
static void later__the_progress_thread_is_patient(void **state)
{
	assert_true(vb_delayed_ack_put(&qps[5], now));
	uint64_t first = now;
	now += PATIENCE_NS / 2;
	assert_true(vb_delayed_ack_put(&qps[6], now));
	now = first + PATIENCE_NS - 1;
	is_progress_thread = true;
	vb_delayed_ack_send();
	assert_int_equal(nacknowledged, 0);
	assert_int_equal(timer_at, first + PATIENCE_NS);
	now = timer_at;
	vb_delayed_ack_send();
	assert_int_equal(nacknowledged, 1);
	assert_ptr_equal(acknowledged[0], &qps[5]);
	assert_int_equal(timer_at, first + PATIENCE_NS / 2 + PATIENCE_NS);
	now = timer_at;
	vb_delayed_ack_send();
	assert_int_equal(nacknowledged, 2);
}

/* A forked child owes nothing, and its parent's references are not its to give back. */
static void later__a_child_forgets(void **state)
{
	assert_true(vb_delayed_ack_put(&qps[7], now));
	at_fork();
	vb_delayed_ack_send();
	assert_int_equal(nacknowledged, 0);
	assert_int_equal(atomic_load(&qps[7].refs), 1);
	atomic_store(&qps[7].refs, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(later__the_next_poll_sends),
		CASE(later__a_place_is_for_one),
		CASE(later__what_was_sent_along_is_dropped),
		CASE(later__another_ones_place_is_left_alone),
		CASE(later__without_a_poller_there_is_a_timer),
		CASE(later__the_progress_thread_is_patient),
		CASE(later__a_child_forgets),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
