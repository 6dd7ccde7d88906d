/* SPDX-License-Identifier: BSD-2-Clause */
/* tools/top/state.c: rates, order and trouble, from records as processes send them. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <infiniband/verbs.h>

#include "base/base.h"
#include "command.h"
#include "top/state.h"

int complain(const char *fmt, ...) { return EXIT_OURS; }

enum { MOST = 4096 };

/* Processes with records in memory. */
struct fixture {
	struct process list[4];
	struct processes all;
	uint8_t records[4][MOST];
	struct top top;
};

static void *begin(struct fixture *f, pid_t pid, enum vb_record_kind kind, size_t bytes)
{
	struct process *p = NULL;
	for (unsigned i = 0; i < f->all.count && !p; i++)
		p = f->list[i].pid == pid ? &f->list[i] : NULL;
	if (!p) {
		p = &f->list[f->all.count];
		*p = (struct process){ .slot = (uint32_t)pid, .pid = pid };
		p->records = f->records[f->all.count];
		strcpy(p->name, pid == 1 ? "one" : "other");
		f->all.count++;
	}
	struct vb_record *r = (struct vb_record *)(p->records + p->bytes);
	assert_true(p->bytes + bytes <= MOST);
	memset(r, 0, bytes);
	r->kind = kind;
	r->bytes = (uint16_t)bytes;
	p->bytes += bytes;
	return r;
}

static struct vb_record_qp *add_qp(struct fixture *f, pid_t pid, uint32_t qpn)
{
	struct vb_record_qp *r = begin(f, pid, VB_RECORD_QP, sizeof(*r));
	r->qpn = qpn;
	r->type = IBV_QPT_RC;
	r->state = IBV_QPS_RTS;
	return r;
}

static struct vb_record_port *add_port(struct fixture *f, pid_t pid)
{
	struct vb_record_port *r = begin(f, pid, VB_RECORD_PORT, sizeof(*r));
	strcpy(r->device, "vb_lo");
	return r;
}

/* The next look begins without processes. */
static void look(struct fixture *f, double at_s)
{
	f->all.list = f->list;
	assert_true(top_look(&f->top, &f->all, at_s, NULL, NULL));
	f->all.count = 0;
}

static const struct top_line *line_of(const struct fixture *f, enum top_view view, unsigned i)
{
	assert_true(i < f->top.lines[view].count);
	return &f->top.lines[view].list[i];
}

static int make(void **state)
{
	*state = calloc(1, sizeof(struct fixture));
	return !*state;
}

static int end(void **state)
{
	top_free(&((struct fixture *)*state)->top);
	free(*state);
	return 0;
}

static void rates__from_two_looks(void **state)
{
	struct fixture *f = *state;
	struct vb_record_qp *r = add_qp(f, 1, 0x1001);
	r->counts.sends = 100;
	r->counts.send_bytes = 1000;
	look(f, 10);
	assert_false(line_of(f, TOP_QPS, 0)->has_rates);
	assert_true(line_of(f, TOP_QPS, 0)->requests == 0);
	r = add_qp(f, 1, 0x1001);
	r->counts.sends = 140;
	r->counts.send_bytes = 1800;
	r->counts.reads = 10;
	r->counts.read_bytes = 500;
	r->counts.receives = 6;
	r->counts.receive_bytes = 60;
	r->posted = 5;
	r->completed = UINT32_MAX;
	look(f, 12);
	const struct top_line *line = line_of(f, TOP_QPS, 0);
	assert_true(line->has_rates);
	assert_true(line->requests == 25 && line->messages == 3);
	assert_true(line->out == 400 && line->in == 280);
	assert_true(line->queued == 6);
	assert_false(line->is_bad);
}

static void rates__of_a_process_outlive_its_queue_pairs(void **state)
{
	struct fixture *f = *state;
	add_port(f, 1)->counts.writes = 5;
	add_qp(f, 1, 0x1001);
	look(f, 1);
	add_port(f, 1)->counts.writes = 25;
	look(f, 2);
	assert_true(line_of(f, TOP_PROCESSES, 0)->requests == 20);
	assert_int_equal(line_of(f, TOP_PROCESSES, 0)->qps, 0);
	assert_int_equal(f->top.lines[TOP_QPS].count, 0);
	assert_true(f->top.sum.requests == 20);
}

static void rates__not_of_another_with_the_same_number(void **state)
{
	struct fixture *f = *state;
	add_qp(f, 1, 0x1001)->counts.sends = 1000;
	look(f, 1);
	add_qp(f, 1, 0x1001)->counts.sends = 10;
	add_qp(f, 1, 0x1002)->counts.sends = 10;
	look(f, 2);
	assert_false(line_of(f, TOP_QPS, 0)->has_rates);
	assert_false(line_of(f, TOP_QPS, 1)->has_rates);
	look(f, 3);
	assert_int_equal(f->top.lines[TOP_PROCESSES].count, 0);
	add_qp(f, 1, 0x1001)->counts.sends = 20;
	look(f, 4);
	assert_false(line_of(f, TOP_QPS, 0)->has_rates); /* it was away */
}

static void rates__not_since_a_look_without_an_answer(void **state)
{
	struct fixture *f = *state;
	for (unsigned at = 1; at <= 4; at++) {
		bool is_silent = at == 2;
		begin(f, 1, VB_RECORD_NONE, sizeof(struct vb_record));
		if (is_silent)
			strcpy(f->list[0].trouble, "no answer in time");
		else
			add_port(f, 1)->counts.writes = 1000 + at;
		look(f, at);
		assert_true(line_of(f, TOP_PROCESSES, 0)->has_rates == (at == 4));
		assert_true(line_of(f, TOP_PROCESSES, 0)->requests == (at == 4));
	}
}

static void trouble__of_rates_and_states(void **state)
{
	struct fixture *f = *state;
	add_qp(f, 1, 1);
	add_qp(f, 1, 2);
	look(f, 1);
	add_qp(f, 1, 1)->counts.resent = 3;
	add_qp(f, 1, 2)->state = IBV_QPS_ERR;
	look(f, 2);
	assert_string_equal(line_of(f, TOP_QPS, 0)->trouble, "3 resent/s");
	assert_true(line_of(f, TOP_QPS, 0)->is_bad && line_of(f, TOP_QPS, 1)->is_bad);
	assert_true(line_of(f, TOP_QPS, 1)->trouble_rate > line_of(f, TOP_QPS, 0)->trouble_rate);
	add_qp(f, 1, 1)->counts.resent = 3;
	look(f, 3);
	assert_false(line_of(f, TOP_QPS, 0)->is_bad);
}

static void trouble__of_a_process_that_is_silent(void **state)
{
	struct fixture *f = *state;
	add_port(f, 1);
	strcpy(f->list[0].trouble, "no answer: it is stopped");
	look(f, 1);
	assert_string_equal(line_of(f, TOP_PROCESSES, 0)->trouble, "no answer: it is stopped");
	assert_true(line_of(f, TOP_PROCESSES, 0)->is_bad);
}

static void trouble__none_of_another_user(void **state)
{
	struct fixture *f = *state;
	add_port(f, 1);
	f->list[0].is_foreign = true;
	strcpy(f->list[0].trouble, "another user's process");
	add_port(f, 2);
	strcpy(f->list[1].trouble, "no answer in time");
	look(f, 1);
	assert_string_equal(line_of(f, TOP_PROCESSES, 0)->trouble, "another user's process");
	assert_false(line_of(f, TOP_PROCESSES, 0)->is_bad);
	struct top_choice choice = { .view = TOP_PROCESSES, .sort = TOP_SORT_TROUBLE };
	const struct top_line **chosen = top_choose(&f->top, &choice);
	assert_non_null(chosen);
	assert_int_equal(chosen[0]->pid, 2);
	assert_int_equal(chosen[1]->pid, 1);
	free(chosen);
	choice.only_trouble = true;
	chosen = top_choose(&f->top, &choice);
	assert_non_null(chosen);
	assert_int_equal(chosen[0]->pid, 2);
	assert_null(chosen[1]);
	free(chosen);
}

static void expect_order(const struct top *top, struct top_choice choice, const uint32_t *qpns, unsigned n)
{
	const struct top_line **chosen = top_choose(top, &choice);
	for (unsigned i = 0; i < n; i++) {
		assert_non_null(chosen[i]);
		assert_int_equal(chosen[i]->qpn, qpns[i]);
	}
	assert_null(chosen[n]);
	free(chosen);
}

static void choose__order_and_filter(void **state)
{
	struct fixture *f = *state;
	for (double at = 1; at < 3; at++) {
		add_qp(f, 1, 1)->counts.send_bytes = (uint64_t)(at * 10);
		add_qp(f, 1, 2)->counts.send_bytes = (uint64_t)(at * 30);
		add_qp(f, 2, 3)->counts.send_bytes = (uint64_t)(at * 20);
		look(f, at);
	}
	struct top_choice by_out = { .view = TOP_QPS, .sort = TOP_SORT_OUT }, choice = by_out;
	expect_order(&f->top, choice, (uint32_t[]){ 2, 3, 1 }, 3);
	choice.is_reversed = true;
	expect_order(&f->top, choice, (uint32_t[]){ 1, 3, 2 }, 3);
	choice = by_out;
	choice.sort = TOP_SORT_PID;
	expect_order(&f->top, choice, (uint32_t[]){ 1, 2, 3 }, 3);
	choice = by_out;
	strcpy(choice.filter, "OTHER");
	expect_order(&f->top, choice, (uint32_t[]){ 3 }, 1);
	strcpy(choice.filter, "nothing");
	expect_order(&f->top, choice, NULL, 0);
	choice = by_out;
	choice.only_trouble = true;
	expect_order(&f->top, choice, NULL, 0);
}

static void records__that_lie(void **state)
{
	struct fixture *f = *state;
	struct vb_record_qp *r = add_qp(f, 1, 1);
	memset((uint8_t *)r + sizeof(r->head), 0xff, sizeof(*r) - sizeof(r->head));
	struct vb_record_port *p = add_port(f, 1);
	memset((uint8_t *)p + sizeof(p->head), 0xff, sizeof(*p) - sizeof(p->head));
	begin(f, 1, VB_RECORD_PROCESS, 8);
	look(f, 1);
	assert_string_equal(line_of(f, TOP_QPS, 0)->type, "?");
	struct row row = { .count = 0 };
	top_row(&row, line_of(f, TOP_QPS, 0), TOP_QPS);
	assert_true(row.count > 5);
	row_free(&row);
}

static void scale__has_six_characters(void **state)
{
	static const struct {
		double number;
		const char *text;
	} cases[] = { { 0, "0" }, { 7, "7" }, { 99999, "99999" }, { 100000, "100k" }, { 123456, "123k" },
		      { 9999499, "9999k" }, { 17300000, "17.3M" }, { 2500000000., "2500M" },
		      { 12345678901., "12.3G" }, { 1.8446744073709552e19, "18.4E" } };
	char text[SCALED];
	for (size_t i = 0; i < VB_ARRAY_LEN(cases); i++) {
		scale_number(text, cases[i].number);
		assert_string_equal(text, cases[i].text);
	}
}

static void *look_at_port(void *arg)
{
	const struct vb_record_port *r;
	size_t at = 0;

	r = process_next(arg, &at, VB_RECORD_PORT);
	return (void *)(uintptr_t)(r && strcmp(r->device, "vb_lo") == 0);
}

/* Who asks for counters does not disturb another thread, which asks for queue pairs. */
static void records__of_two_threads(void **state)
{
	struct fixture *f = *state;
	size_t at = 0;
	pthread_t other;
	void *good;

	add_qp(f, 1, 0x1234);
	add_port(f, 2);
	const struct vb_record_qp *r = process_next(&f->list[0], &at, VB_RECORD_QP);
	assert_int_equal(pthread_create(&other, NULL, look_at_port, &f->list[1]), 0);
	assert_int_equal(pthread_join(other, &good), 0);
	assert_non_null(good);
	assert_int_equal(r->qpn, 0x1234);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, make, end)
	const struct CMUnitTest tests[] = {
		CASE(rates__from_two_looks),
		CASE(rates__of_a_process_outlive_its_queue_pairs),
		CASE(rates__not_of_another_with_the_same_number),
		CASE(rates__not_since_a_look_without_an_answer),
		CASE(trouble__of_rates_and_states),
		CASE(trouble__of_a_process_that_is_silent),
		CASE(trouble__none_of_another_user),
		CASE(choose__order_and_filter),
		CASE(records__that_lie),
		CASE(records__of_two_threads),
		CASE(scale__has_six_characters),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
