/* SPDX-License-Identifier: BSD-2-Clause */
/* rc_window.h: how the window of a requester grows, and how its packets are spread over a round trip. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "proto/rc/rc_window.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

enum { MOST = 2048, SETTLE = 200 };

static uint64_t now;

/* A window past its threshold, whose round trips have taken so long for a while. */
static struct vb_rc_window settled(uint64_t least_ns, uint64_t round_trip_ns)
{
	struct vb_rc_window w;
	vb_rc_window_init(&w, MOST);
	now = 1000 * MS;
	vb_rc_window_measured(&w, now, least_ns);
	for (unsigned i = 0; i < SETTLE; i++)
		vb_rc_window_measured(&w, now += round_trip_ns, round_trip_ns);
	w.threshold = w.size;
	return w;
}

/* Each packet has its own ACK. */
static void pass_round_trips(struct vb_rc_window *w, unsigned n)
{
	while (n--)
		for (uint32_t left = w->size; left; left--)
			vb_rc_window_acknowledged(w, now += 100, 1, w->size);
}

/* One packet in a round trip of 200 us where packets queue, and again one in each that follows. */
static void growth__by_the_length_of_the_round_trip(void **state)
{
	struct vb_rc_window w = settled(50 * US, 200 * US);
	uint32_t size = w.size;
	pass_round_trips(&w, 20);
	assert_in_range(w.size, size + 18, size + 20);

	w = settled(200 * US, 400 * US);
	size = w.size;
	pass_round_trips(&w, 20);
	assert_in_range(w.size, size + 75, size + 85);
}

/* The round trip's length counts in relation to the queue's when it was full. */
static void growth__by_the_time_that_a_full_queue_took(void **state)
{
	struct vb_rc_window near = settled(200 * US, 4200 * US), far = settled(4 * MS, 8 * MS);
	assert_true(vb_rc_window_lost(&near, 1));
	assert_true(vb_rc_window_lost(&far, 1));
	uint32_t size = near.size;
	assert_int_equal(far.size, size);
	pass_round_trips(&near, 20);
	pass_round_trips(&far, 20);
	assert_in_range(near.size, size + 18, size + 22);
	assert_in_range(far.size, size + 75, size + 85);
}

static void growth__an_eighth_of_it_at_most(void **state)
{
	struct vb_rc_window w = settled(10 * MS, 11 * MS);
	uint32_t size = w.size;
	pass_round_trips(&w, 1);
	assert_in_range(w.size, size + size / 8 - 1, size + size / 8 + 1);
}

static void growth__one_and_a_half_where_no_queue_stands(void **state)
{
	struct vb_rc_window w = settled(50 * US, 60 * US);
	uint32_t size = w.size;
	pass_round_trips(&w, 20);
	assert_in_range(w.size, size + 28, size + 32);
}

/* Many packets acknowledged at once count as many do one by one. */
static void growth__the_same_by_cumulative_acks(void **state)
{
	struct vb_rc_window w = settled(50 * US, 60 * US);
	uint32_t size = w.size;
	for (unsigned i = 0; i < 20; i++)
		vb_rc_window_acknowledged(&w, now += 60 * US, w.size, w.size);
	assert_in_range(w.size, size + 28, size + 32);
}

static void growth__none_unless_half_of_it_is_used(void **state)
{
	struct vb_rc_window w = settled(50 * US, 60 * US);
	uint32_t size = w.size;
	for (unsigned i = 0; i < 1000; i++)
		vb_rc_window_acknowledged(&w, now += US, 1, size / 2 - 1);
	assert_int_equal(w.size, size);
}

/* For a while after a mark, connections of different lengths take the same share of what is free. */
static void marks__a_queue_is_remembered(void **state)
{
	struct vb_rc_window w = settled(50 * US, 60 * US);
	vb_rc_window_marked(&w, now);
	uint32_t size = w.size;
	assert_int_equal(size, VB_RC_WINDOW_START - VB_RC_WINDOW_START / 4);
	pass_round_trips(&w, 20);
	assert_in_range(w.size, size + 1, size + 3);

	now += 11 * MS;
	size = w.size;
	pass_round_trips(&w, 20);
	assert_in_range(w.size, size + 28, size + 32);
}

/* After a cut, only new round trips can show a queue. The cut may have emptied the old one. */
static void loss__cuts_again_where_the_queue_is_seen_again(void **state)
{
	struct vb_rc_window w = settled(200 * US, 4200 * US);
	assert_true(vb_rc_window_lost(&w, 1));
	assert_false(vb_rc_window_lost(&w, 1));
	for (unsigned i = 0; i < 2; i++)
		vb_rc_window_measured(&w, now += 4200 * US, 4200 * US);
	assert_true(vb_rc_window_lost(&w, 1));
	for (unsigned i = 0; i < 2; i++)
		vb_rc_window_measured(&w, now += 210 * US, 210 * US);
	assert_false(vb_rc_window_lost(&w, 1));
}

/* How long the pace takes for so many windows, one packet at a time. */
static uint64_t paced_ns(struct vb_rc_window *w, unsigned windows)
{
	uint64_t at = now;
	for (uint32_t i = 0; i < windows * w->size; i++) {
		at = vb_max_u64(at, vb_rc_window_pace_ns(w, at));
		vb_rc_window_sent(w, at, 1);
	}
	return at - now;
}

static void pace__two_thirds_of_a_long_round_trip(void **state)
{
	struct vb_rc_window w = settled(10 * MS, 10 * MS);
	assert_in_range(paced_ns(&w, 10), 58 * MS, 67 * MS);
}

static void pace__none_of_a_short_round_trip(void **state)
{
	struct vb_rc_window w = settled(200 * US, 200 * US);
	assert_int_equal(paced_ns(&w, 10), 0);
}

static void pace__of_a_short_round_trip_where_queues_mark(void **state)
{
	struct vb_rc_window w = settled(200 * US, 200 * US);
	vb_rc_window_marked(&w, now);
	assert_in_range(paced_ns(&w, 10), 1600 * US, 1760 * US);
}

/* A thread that sends has read the clock before another thread took the mark. */
static void pace__of_a_clock_that_was_read_before_the_mark(void **state)
{
	struct vb_rc_window w = settled(200 * US, 200 * US);
	vb_rc_window_marked(&w, now);
	vb_rc_window_sent(&w, now, w.size);
	assert_true(vb_rc_window_pace_ns(&w, now - US) > now);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(growth__by_the_length_of_the_round_trip),
		cmocka_unit_test(growth__by_the_time_that_a_full_queue_took),
		cmocka_unit_test(growth__an_eighth_of_it_at_most),
		cmocka_unit_test(growth__one_and_a_half_where_no_queue_stands),
		cmocka_unit_test(growth__the_same_by_cumulative_acks),
		cmocka_unit_test(growth__none_unless_half_of_it_is_used),
		cmocka_unit_test(marks__a_queue_is_remembered),
		cmocka_unit_test(loss__cuts_again_where_the_queue_is_seen_again),
		cmocka_unit_test(pace__two_thirds_of_a_long_round_trip),
		cmocka_unit_test(pace__none_of_a_short_round_trip),
		cmocka_unit_test(pace__of_a_short_round_trip_where_queues_mark),
		cmocka_unit_test(pace__of_a_clock_that_was_read_before_the_mark),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
