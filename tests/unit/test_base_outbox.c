/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/outbox.h"

enum { RECEIVERS = 3, HISTORY = 64, MS = 1000000 };

struct message {
	unsigned receiver, number;
	bool is_patient;
};

static struct {
	int answer[RECEIVERS];  /* of send */
	unsigned room[RECEIVERS];
	unsigned attempts, sent, given_up;
	struct message history[HISTORY], lost[HISTORY];
	struct vb_outbox box;
	bool answers_loss;      /* what is given up leads to another message */
} w;

static int send_one(const void *p)
{
	const struct message *m = p;

	w.attempts++;
	if (w.answer[m->receiver])
		return w.answer[m->receiver];
	if (!w.room[m->receiver])
		return -EAGAIN;
	w.room[m->receiver]--;
	w.history[w.sent++] = *m;
	return 0;
}

static bool same(const void *a, const void *b)
{
	return ((const struct message *)a)->receiver == ((const struct message *)b)->receiver;
}

static bool patient(const void *m) { return ((const struct message *)m)->is_patient; }

static void absent(const void *p)
{
	const struct message *m = p;
	struct message answer = { .receiver = m->receiver, .number = m->number + 100 };

	w.lost[w.given_up++] = *m;
	if (w.answers_loss && m->is_patient)
		vb_outbox_send(&w.box, &answer, 0);
}

static const struct vb_outbox_type type = { .message_bytes = sizeof(struct message),
					    .max_waiting = 20,
					    .send = send_one,
					    .is_for_same = same,
					    .waits_if_absent = patient,
					    .absent = absent };

static int set_up(void **state)
{
	memset(&w, 0, sizeof(w));
	vb_outbox_init(&w.box, &type);
	return 0;
}

static int tear_down(void **state)
{
	vb_outbox_clear(&w.box);
	return w.box.waiting == 0 ? 0 : -1;
}

static void send_to(unsigned receiver, unsigned number, uint64_t now)
{
	struct message m = { .receiver = receiver, .number = number };

	vb_outbox_send(&w.box, &m, now);
}

/* Lets the time pass from one deadline to the next. */
static uint64_t run_until(uint64_t now, uint64_t end)
{
	while (vb_outbox_deadline(&w.box) <= end) {
		assert_true(vb_outbox_deadline(&w.box) > now);
		now = vb_outbox_deadline(&w.box);
		vb_outbox_try(&w.box, now);
	}
	return end;
}

static void outbox__sends_at_once_where_there_is_room(void **state)
{
	w.room[0] = 1;
	send_to(0, 1, 5);
	assert_int_equal(w.sent, 1);
	assert_true(vb_outbox_deadline(&w.box) == VB_OUTBOX_NEVER);
}

static void outbox__keeps_the_order_of_a_receiver(void **state)
{
	for (unsigned i = 0; i < 10; i++)
		send_to(0, i, 0);
	assert_int_equal(w.attempts, 1); /* the others wait behind it */
	w.room[0] = 4;
	run_until(0, 3 * MS);
	assert_int_equal(w.sent, 4);
	send_to(0, 10, 3 * MS);
	w.room[0] = 10;
	run_until(3 * MS, 6 * MS);
	assert_int_equal(w.sent, 11);
	for (unsigned i = 0; i < 11; i++)
		assert_int_equal(w.history[i].number, i);
	assert_true(vb_outbox_deadline(&w.box) == VB_OUTBOX_NEVER);
}

/* What came later is young enough when there is room again. */
static void outbox__loses_what_is_too_old(void **state)
{
	static struct vb_outbox_type aging;

	aging = type;
	aging.max_age_ns = 10 * MS;
	vb_outbox_init(&w.box, &aging);
	for (unsigned i = 0; i < 4; i++) {
		send_to(0, i, i * 4 * MS);
		run_until(i * 4 * MS, (i + 1) * 4 * MS);
	}
	w.room[0] = 10;
	run_until(16 * MS, 30 * MS);
	assert_int_equal(w.sent, 2);
	assert_int_equal(w.history[0].number, 2);
	assert_int_equal(w.history[1].number, 3);
	assert_int_equal(w.given_up, 0);
}

/* It is sent once the clock has been read for an attempt, and before that attempt. */
static void outbox__keeps_what_comes_just_before_an_attempt(void **state)
{
	static struct vb_outbox_type aging;

	aging = type;
	aging.max_age_ns = 10 * MS;
	vb_outbox_init(&w.box, &aging);
	send_to(0, 0, 0);
	send_to(0, 1, 12 * MS);
	w.room[0] = 2;
	vb_outbox_try(&w.box, 11 * MS);
	assert_int_equal(w.sent, 1);
	assert_int_equal(w.history[0].number, 1);
}

static void outbox__does_not_hold_up_others(void **state)
{
	send_to(0, 1, 0);
	w.room[1] = 1;
	send_to(1, 2, 0);
	assert_int_equal(w.sent, 1);
	assert_int_equal(w.history[0].receiver, 1);
	assert_true(vb_outbox_waits_for(&w.box, &(struct message){ .receiver = 0 }));
	assert_false(vb_outbox_waits_for(&w.box, &(struct message){ .receiver = 1 }));
}

static void outbox__loses_what_finds_no_room_for_long(void **state)
{
	send_to(0, 1, 0);
	run_until(0, VB_OUTBOX_FULL_NS - 10 * MS);
	assert_int_equal(w.box.waiting, 1);
	run_until(VB_OUTBOX_FULL_NS - 10 * MS, VB_OUTBOX_FULL_NS + 10 * MS);
	assert_int_equal(w.box.waiting, 0);
	assert_int_equal(w.given_up, 0);
	assert_true(w.attempts < 2000);
}

static void outbox__goes_on_while_the_receiver_takes_something(void **state)
{
	uint64_t now = 0;

	for (unsigned i = 0; i < 10; i++)
		send_to(0, i, now);
	for (unsigned i = 0; i < 10; i++) {
		w.room[0] = 1;
		now = run_until(now, now + VB_OUTBOX_FULL_NS / 2);
	}
	assert_int_equal(w.sent, 10);
}

static void outbox__gives_up_an_absent_receiver_at_once_or_after_a_while(void **state)
{
	struct message m = { .receiver = 0, .number = 2, .is_patient = true };

	w.answer[0] = -ECONNREFUSED;
	send_to(0, 1, 0);
	assert_int_equal(w.given_up, 1);
	vb_outbox_send(&w.box, &m, 0);
	run_until(0, VB_OUTBOX_ABSENT_NS - 10 * MS);
	assert_int_equal(w.given_up, 1);
	run_until(VB_OUTBOX_ABSENT_NS - 10 * MS, VB_OUTBOX_ABSENT_NS + 10 * MS);
	assert_int_equal(w.given_up, 2);
	assert_int_equal(w.lost[1].number, 2);
}

static void outbox__waits_longer_for_who_is_about_to_accept(void **state)
{
	static struct vb_outbox_type aging;
	struct message m = { .receiver = 0, .is_patient = true };

	aging = type;
	aging.max_age_ns = VB_OUTBOX_ABSENT_NS;
	vb_outbox_init(&w.box, &aging);
	w.answer[0] = -EPERM;
	send_to(0, 1, 0); /* is not patient */
	assert_int_equal(w.given_up, 1);
	vb_outbox_send(&w.box, &m, 0);
	run_until(0, VB_OUTBOX_UNREADY_NS / 2);
	vb_outbox_send(&w.box, &m, VB_OUTBOX_UNREADY_NS / 2);
	run_until(VB_OUTBOX_UNREADY_NS / 2, VB_OUTBOX_UNREADY_NS - 10 * MS);
	assert_int_equal(w.given_up, 1);
	run_until(VB_OUTBOX_UNREADY_NS - 10 * MS, VB_OUTBOX_UNREADY_NS + 10 * MS);
	assert_int_equal(w.given_up, 3); /* the other did not begin another wait */

	vb_outbox_send(&w.box, &m, 0);
	run_until(0, VB_OUTBOX_UNREADY_NS / 2);
	w.answer[0] = 0;
	w.room[0] = 1;
	run_until(VB_OUTBOX_UNREADY_NS / 2, VB_OUTBOX_UNREADY_NS);
	assert_int_equal(w.sent, 1);
	assert_int_equal(w.given_up, 3);
}

static void outbox__gives_up_who_goes_before_accepting(void **state)
{
	struct message m = { .receiver = 0, .is_patient = true };

	w.answer[0] = -EPERM;
	vb_outbox_send(&w.box, &m, 0);
	run_until(0, VB_OUTBOX_UNREADY_NS / 2);
	w.answer[0] = -ECONNREFUSED;
	run_until(VB_OUTBOX_UNREADY_NS / 2, VB_OUTBOX_UNREADY_NS / 2 + 10 * MS);
	assert_int_equal(w.given_up, 1);
}

/* A copy may have been accepted since the last attempt, if that is long ago. */
static void outbox__ages_from_when_its_receiver_was_last_unready(void **state)
{
	static struct vb_outbox_type aging;
	struct message m = { .receiver = 0, .is_patient = true };

	aging = type;
	aging.max_age_ns = VB_OUTBOX_ABSENT_NS;
	vb_outbox_init(&w.box, &aging);
	w.answer[0] = -EPERM;
	vb_outbox_send(&w.box, &m, MS);
	vb_outbox_try(&w.box, MS + VB_OUTBOX_UNREADY_NS / 2);
	w.answer[0] = 0;
	w.room[0] = 2;
	vb_outbox_try(&w.box, MS + VB_OUTBOX_UNREADY_NS / 2 + aging.max_age_ns + 1);
	assert_int_equal(w.sent, 0);
	assert_int_equal(w.given_up, 1);
}

/*
 * The first attempt behind both limits: the receiver was absent, so that is told of what is too old by then.
 */
static void outbox__gives_up_an_absent_receiver_late(void **state)
{
	static struct vb_outbox_type aging;
	struct message m = { .receiver = 0, .number = 2, .is_patient = true };

	aging = type;
	aging.max_age_ns = VB_OUTBOX_ABSENT_NS + 50 * MS;
	vb_outbox_init(&w.box, &aging);
	w.answer[0] = -ECONNREFUSED;
	vb_outbox_send(&w.box, &m, MS);
	vb_outbox_try(&w.box, MS + aging.max_age_ns + 1);
	assert_int_equal(w.given_up, 1);
	assert_int_equal(w.lost[0].number, 2);
}

static void outbox__delivers_to_who_comes_back(void **state)
{
	struct message m = { .receiver = 0, .number = 2, .is_patient = true };

	w.answer[0] = -ECONNREFUSED;
	vb_outbox_send(&w.box, &m, 0);
	run_until(0, VB_OUTBOX_ABSENT_NS / 2);
	w.answer[0] = 0;
	w.room[0] = 1;
	run_until(VB_OUTBOX_ABSENT_NS / 2, VB_OUTBOX_ABSENT_NS);
	assert_int_equal(w.sent, 1);
	assert_int_equal(w.given_up, 0);
}

/* The absence counts from when it was noticed, not from when the message began to wait for room. */
static void outbox__waits_anew_when_a_full_receiver_goes(void **state)
{
	struct message m = { .receiver = 0, .is_patient = true };
	uint64_t gone = VB_OUTBOX_FULL_NS / 2;

	vb_outbox_send(&w.box, &m, 0);
	run_until(0, gone);
	w.answer[0] = -ECONNREFUSED;
	run_until(gone, gone + VB_OUTBOX_ABSENT_NS - 10 * MS);
	assert_int_equal(w.given_up, 0);
	run_until(gone + VB_OUTBOX_ABSENT_NS - 10 * MS, gone + VB_OUTBOX_ABSENT_NS + 10 * MS);
	assert_int_equal(w.given_up, 1);
}

static void outbox__may_be_sent_to_from_what_is_given_up(void **state)
{
	struct message m = { .receiver = 0, .is_patient = true };

	w.answer[0] = -ECONNREFUSED;
	w.answers_loss = true;
	for (m.number = 0; m.number < 5; m.number++)
		vb_outbox_send(&w.box, &m, 0);
	run_until(0, 2 * VB_OUTBOX_ABSENT_NS);
	assert_int_equal(w.given_up, 10);
	assert_int_equal(w.box.waiting, 0);
}

static void outbox__loses_what_is_beyond_its_size(void **state)
{
	for (unsigned i = 0; i < 30; i++)
		send_to(i % 2, i, 0);
	assert_int_equal(w.box.waiting, 20);
}

static void outbox__forgets_what_another_error_befalls(void **state)
{
	w.answer[0] = -EMSGSIZE;
	send_to(0, 1, 0);
	assert_int_equal(w.box.waiting, 0);
	assert_int_equal(w.given_up, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(outbox__sends_at_once_where_there_is_room),
		CASE(outbox__keeps_the_order_of_a_receiver),
		CASE(outbox__loses_what_is_too_old),
		CASE(outbox__keeps_what_comes_just_before_an_attempt),
		CASE(outbox__does_not_hold_up_others),
		CASE(outbox__loses_what_finds_no_room_for_long),
		CASE(outbox__goes_on_while_the_receiver_takes_something),
		CASE(outbox__gives_up_an_absent_receiver_at_once_or_after_a_while),
		CASE(outbox__waits_longer_for_who_is_about_to_accept),
		CASE(outbox__gives_up_who_goes_before_accepting),
		CASE(outbox__ages_from_when_its_receiver_was_last_unready),
		CASE(outbox__gives_up_an_absent_receiver_late),
		CASE(outbox__delivers_to_who_comes_back),
		CASE(outbox__waits_anew_when_a_full_receiver_goes),
		CASE(outbox__may_be_sent_to_from_what_is_given_up),
		CASE(outbox__loses_what_is_beyond_its_size),
		CASE(outbox__forgets_what_another_error_befalls),
	};

	return cmocka_run_group_tests_name("base_outbox", tests, NULL, NULL);
}
