/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets for other processes, whose inboxes may be full: their order, how long they wait, and how many. */
#include "adapter/inspection/counts.h"
#include "roce/forward.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { SLOTS = 4, GONE = 3, MOST = 4096, TOO_LONG_NS = 1000000000, ROUND_NS = 1000000, QUEUE = 2048 };

/* ---- the world around it ---- */

static struct {
	unsigned room;          /* messages that it still takes */
	uint32_t numbers[MOST]; /* what it got */
	unsigned count;
} inboxes[SLOTS];

static struct vb_timer *timer; /* NULL: not set */
static uint64_t now;
static void (*at_fork)(void);
static unsigned dropped;

int vb_inbox_send(uint32_t slot, const struct vb_inbox_addr *addr, const struct iovec *iov, int iovcnt)
{
	uint32_t number;
	if (slot == GONE)
		return -ECONNREFUSED;
	if (!inboxes[slot].room)
		return -EAGAIN;
	inboxes[slot].room--;
	assert_int_equal(iov[0].iov_len, sizeof(number));
	memcpy(&number, iov[0].iov_base, sizeof(number));
	assert_int_equal(addr->udp_sport, (uint16_t)number);
	inboxes[slot].numbers[inboxes[slot].count++] = number;
	return 0;
}

void vb_timer_set(struct vb_timer *t, uint64_t deadline_ns)
{
	assert_true(deadline_ns > now && deadline_ns <= now + ROUND_NS);
	timer = t;
}

uint64_t vb_now_ns(void) { return now; }
void vb_host_at_fork(void (*child)(void)) { at_fork = child; }

void vb_drop(enum vb_drop why)
{
	assert_int_equal(why, VB_DROP_NO_ROOM);
	dropped++;
}

static int begin(void **state)
{
	memset(inboxes, 0, sizeof(inboxes));
	dropped = 0;
	timer = NULL;
	at_fork();
	return 0;
}

static void forward(uint32_t slot, uint32_t number)
{
	struct vb_inbox_msg msg = { .addr = { .udp_sport = (uint16_t)number },
				    .payload = (const void *)&number,
				    .payload_bytes = sizeof(number) };
	vb_forward(slot, &msg);
}

/* The timer fires once, after so long. */
static void wait_ns(uint64_t ns)
{
	struct vb_timer *t = timer;
	now += ns;
	assert_non_null(t);
	timer = NULL;
	t->fire(t, now);
}

static void assert_got(uint32_t slot, uint32_t first, unsigned count)
{
	assert_int_equal(inboxes[slot].count, count);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(inboxes[slot].numbers[i], first + i);
}

/* ---- cases ---- */

static void room__is_used_at_once(void **state)
{
	inboxes[1].room = 2;
	forward(1, 10);
	forward(1, 11);
	assert_got(1, 10, 2);
	assert_null(timer);
}

static void full__waits_in_order(void **state)
{
	inboxes[1].room = 1;
	for (uint32_t i = 0; i < 5; i++)
		forward(1, i);
	assert_got(1, 0, 1);
	inboxes[1].room = 1;
	forward(1, 5); /* behind the others, though there is room now */
	assert_got(1, 0, 1);
	wait_ns(ROUND_NS);
	assert_got(1, 0, 2);
	inboxes[1].room = 10;
	wait_ns(ROUND_NS);
	assert_got(1, 0, 6);
	assert_null(timer);
}

static void full__holds_up_nobody_else(void **state)
{
	inboxes[2].room = 2;
	forward(1, 0);
	forward(2, 20);
	forward(1, 1);
	forward(2, 21);
	assert_got(2, 20, 2);
	forward(2, 22);
	inboxes[2].room = 1;
	wait_ns(ROUND_NS);
	assert_got(2, 20, 3);
	assert_got(1, 0, 0);
}

static void late__is_still_tried(void **state)
{
	forward(1, 0);
	forward(1, 1);
	inboxes[1].room = 2;
	wait_ns(TOO_LONG_NS); /* this process had no processor */
	assert_got(1, 0, 2);
	assert_null(timer);
	assert_int_equal(dropped, 0);
}

static void late__is_lost_if_full(void **state)
{
	forward(1, 0);
	forward(1, 1);
	inboxes[2].room = 1;
	wait_ns(TOO_LONG_NS);
	assert_null(timer);
	assert_int_equal(dropped, 2);
	inboxes[1].room = 1;
	forward(1, 2);
	assert_got(1, 2, 1);
}

/* It comes after the timer's thread has read the clock, and before that thread looks at the queue. */
static void newcomer__is_not_late(void **state)
{
	forward(1, 0);
	struct vb_timer *t = timer;
	uint64_t looked = now + ROUND_NS;
	now = looked + 10;
	forward(1, 1);
	timer = NULL;
	t->fire(t, looked);
	assert_int_equal(dropped, 0);
	inboxes[1].room = 2;
	wait_ns(ROUND_NS);
	assert_got(1, 0, 2);
}

static void gone__costs_nothing(void **state)
{
	forward(GONE, 0);
	assert_null(timer);
	forward(1, 1);
	forward(GONE, 2);
	inboxes[1].room = 1;
	wait_ns(ROUND_NS);
	assert_null(timer);
	assert_got(1, 1, 1);
	assert_int_equal(dropped, 0);
}

static void queue__is_bounded(void **state)
{
	for (uint32_t i = 0; i < QUEUE + 10; i++)
		forward(1, i);
	inboxes[1].room = MOST;
	wait_ns(ROUND_NS);
	assert_got(1, 0, QUEUE);
	assert_int_equal(dropped, 10);
}

static void fork__leaves_the_packets_to_the_parent(void **state)
{
	forward(1, 0);
	at_fork();
	inboxes[1].room = 2;
	forward(1, 1);
	assert_got(1, 1, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(room__is_used_at_once, begin),
		cmocka_unit_test_setup(full__waits_in_order, begin),
		cmocka_unit_test_setup(full__holds_up_nobody_else, begin),
		cmocka_unit_test_setup(late__is_still_tried, begin),
		cmocka_unit_test_setup(late__is_lost_if_full, begin),
		cmocka_unit_test_setup(newcomer__is_not_late, begin),
		cmocka_unit_test_setup(gone__costs_nothing, begin),
		cmocka_unit_test_setup(queue__is_bounded, begin),
		cmocka_unit_test_setup(fork__leaves_the_packets_to_the_parent, begin),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
