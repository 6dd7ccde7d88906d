/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

#include "../between.h"
#include "faults/plan.h"
#include "wire/cm_msg.h"

static struct vb_fault_plan plan;
static struct vb_fault_state *state;

static void parse(const char *text)
{
	struct vb_fault_error error = { 0 };
	if (vb_fault_parse(text, strlen(text), &plan, &error))
		fail_msg("%s: at %zu: %s", text, error.at, error.why);
	memset(state, 0, sizeof(*state));
}

static struct vb_fault_error refused(const char *text)
{
	struct vb_fault_error error = { 0 };
	if (vb_fault_parse(text, strlen(text), &plan, &error) != -EINVAL)
		fail_msg("accepted: %s", text);
	assert_non_null(error.why);
	assert_true(error.at + error.bytes <= strlen(text));
	return error;
}

static const struct vb_fault_rule *only_rule(const char *text)
{
	parse(text);
	assert_int_equal(plan.count, 1);
	return &plan.rules[0];
}

/* How many rules bite. */
static unsigned ask(const struct vb_fault_subject *subject)
{
	struct vb_fault_bite bite;
	unsigned cursor = 0, n = 0;
	while (vb_fault_next(&plan, state, subject, &cursor, &bite))
		n++;
	return n;
}

static struct vb_fault_subject packet_of(uint32_t qp)
{
	return (struct vb_fault_subject){ .site = VB_FAULT_PACKET,
					  .direction = VB_FAULT_OUT,
					  .packets = 1u << VB_FAULT_OF_DATA,
					  .qp = qp };
}

/* Which of the first 32 data packets that a queue pair sends are bitten. */
static uint32_t bitten(uint32_t qp)
{
	struct vb_fault_subject s = packet_of(qp);
	uint32_t found = 0;
	for (unsigned i = 0; i < 32; i++)
		found |= (uint32_t)(ask(&s) != 0) << i;
	return found;
}

/* ---- reading ---- */

static void parse__every_kind(void **unused)
{
	static const struct {
		const char *text;
		enum vb_fault_kind kind;
	} cases[] = {
		{ "drop", VB_FAULT_DROP }, { "DELAY 1ms", VB_FAULT_DELAY }, { "duplicate in of ack", VB_FAULT_DUPLICATE },
		{ "reorder every 3", VB_FAULT_REORDER }, { "corrupt 0.5%", VB_FAULT_CORRUPT }, { "freeze 2s", VB_FAULT_FREEZE },
		{ "stall 1s ibv_poll_cq #3", VB_FAULT_STALL }, { "fail ibv_reg_mr 12", VB_FAULT_FAIL },
		{ "complete recv IBV_WC_LOC_PROT_ERR #5", VB_FAULT_COMPLETE }, { "rnr #5 for 10ms", VB_FAULT_RNR },
		{ "link down", VB_FAULT_LINK }, { "event port_err", VB_FAULT_EVENT }, { "lose sidr-req", VB_FAULT_LOSE },
		{ "refuse", VB_FAULT_REFUSE }, { "vanish at ibv_post_send #9", VB_FAULT_VANISH },
	};
	assert_int_equal(VB_ARRAY_LEN(cases), VB_FAULT_NKINDS);
	for (size_t i = 0; i < VB_ARRAY_LEN(cases); i++)
		assert_int_equal(only_rule(cases[i].text)->kind, cases[i].kind);
}

static void parse__clauses_and_comments(void **unused)
{
	parse("# a comment\ndrop #3 # and another; with a semicolon\n;;\n  seed=7 ;corrupt\n");
	assert_int_equal(plan.count, 2);
	assert_int_equal(plan.seed, 7);
	assert_int_equal(plan.rules[0].at, 12);
	assert_int_equal(plan.rules[0].bytes, strlen("drop #3"));
	assert_int_equal(plan.rules[1].bytes, strlen("corrupt"));
	parse("");
	assert_int_equal(plan.count, 0);
	assert_int_equal(plan.seed, 1);
}

static void parse__times_and_numbers(void **unused)
{
	assert_int_equal(only_rule("delay 1.5ms")->time_ns, 1500000);
	assert_int_equal(plan.rules[0].time_max_ns, 1500000);
	assert_int_equal(only_rule("delay 200us-2min")->time_ns, 200000);
	assert_int_equal(plan.rules[0].time_max_ns, 120000000000);
	assert_int_equal(only_rule("delay 0ms-5ms")->time_max_ns, 5000000);
	assert_int_equal(only_rule("drop #5")->last, 5);
	assert_int_equal(only_rule("drop #5-9")->last, 9);
	assert_true(only_rule("drop #5+")->last == VB_FAULT_FOREVER);
	assert_int_equal(only_rule("drop 0.0001%")->first, 1);
	assert_int_equal(only_rule("drop 12.5%")->first, 125000);
	assert_int_equal(only_rule("drop after 3s")->after_ns, 3000000000);
	assert_int_equal(only_rule("drop after 0s")->after_ns, 0);
	assert_true(only_rule("rnr")->time_ns == VB_FAULT_FOREVER);
}

static void parse__filters(void **unused)
{
	static const uint8_t v4[16] = { [10] = 0xff, [11] = 0xff, 10, 0, 0, 7 },
			     v6[16] = { 0xfe, 0x80, [15] = 1 };
	const struct vb_fault_rule *r = only_rule("drop in of read qp=7 peer=10.0.0.7 times 3 every 4");
	assert_int_equal(r->direction, VB_FAULT_IN);
	assert_int_equal(r->of, VB_FAULT_OF_READ);
	assert_int_equal(r->qp, 7);
	assert_memory_equal(r->peer, v4, sizeof(v4));
	assert_int_equal(r->times, 3);
	assert_memory_equal(only_rule("drop peer=fe80::1")->peer, v6, sizeof(v6));
	assert_string_equal(only_rule("link down device=vb_eth0")->device, "vb_eth0");
	r = only_rule("refuse STALE_CONN port=7174 in");
	assert_int_equal(r->value, VB_CM_REJ_STALE_CONN);
	assert_int_equal(r->port, 7174);
	assert_int_equal(only_rule("refuse #1")->value, VB_CM_REJ_CONSUMER_DEFINED);
}

/* text, where the mistake is, how long it is */
static void parse__mistakes_have_a_place(void **unused)
{
	static const struct {
		const char *text;
		size_t at, bytes;
	} cases[] = {
		{ "droop", 0, 5 }, { "drop; drp 1%", 6, 3 }, { "drop 1% 2%", 8, 2 }, { "drop 1", 5, 1 }, { "drop 0%", 5, 2 }, { "drop 101%", 5, 4 },
		{ "drop #0", 5, 2 }, { "drop #9-5", 5, 4 }, { "drop #5x", 5, 3 }, { "drop every", 10, 0 }, { "drop every 0", 11, 1 },
		{ "drop for 1s", 5, 3 }, { "drop of", 7, 0 }, { "drop of mud", 8, 3 }, { "drop qp=0", 8, 1 }, { "drop qp=4097", 8, 4 },
		{ "drop peer=1.2.3", 10, 5 }, { "drop in out", 8, 3 }, { "drop times 0", 11, 1 }, { "drop after 3", 11, 1 },
		{ "drop in of cm", 0, 13 }, { "delay", 5, 0 }, { "delay 5", 6, 1 }, { "delay 5ms-1ms", 6, 7 }, { "delay 25000h", 6, 6 },
		{ "delay 2000min", 6, 7 }, { "fail", 4, 0 }, { "fail ibv_nonsense EIO", 5, 12 }, { "fail ibv_reg_mr", 15, 0 },
		{ "fail ibv_reg_mr EGG", 16, 3 }, { "fail ibv_reg_mr 0", 16, 1 }, { "fail ibv_reg_mr EIO qp=1", 0, 24 },
		{ "complete recv SUCCESS", 14, 7 }, { "complete soup LOC_LEN_ERR", 9, 4 }, { "link", 4, 0 }, { "link up", 5, 2 },
		{ "link down #3", 0, 12 }, { "event QP_FATAL", 6, 8 }, { "lose", 4, 0 }, { "lose REQ port=3", 9, 6 }, { "refuse port=0", 12, 1 },
		{ "vanish times 3", 0, 14 }, { "seed", 4, 0 }, { "seed=x", 5, 1 }, { "seed=1; seed=2", 8, 6 }, { "seed=1 drop", 7, 4 },
		{ "stall ibv_poll_cq 1s", 6, 11 }, { "drop #99999999999999999999", 5, 21 },
		{ "delay 0ms", 6, 3 }, { "delay 0us-0ms", 6, 7 }, { "freeze 0s", 7, 2 },
		{ "stall 0.0001us ibv_poll_cq", 6, 8 }, { "rnr for 0s", 8, 2 }, { "link down for 0ms", 14, 3 },
		{ "drop of cm qp=3", 0, 15 },
	};
	for (size_t i = 0; i < VB_ARRAY_LEN(cases); i++) {
		struct vb_fault_error e = refused(cases[i].text);
		if (e.at != cases[i].at || e.bytes != cases[i].bytes)
			fail_msg("%s: %zu+%zu (%s), expected %zu+%zu", cases[i].text, e.at, e.bytes, e.why,
				 cases[i].at, cases[i].bytes);
	}
}

static void parse__limits(void **unused)
{
	char text[VB_FAULT_TEXT_BYTES + 2];
	memset(text, 0, sizeof(text));
	for (unsigned i = 0; i < VB_FAULT_RULES; i++)
		strcat(text, "drop;");
	parse(text);
	assert_int_equal(plan.count, VB_FAULT_RULES);
	strcat(text, "drop");
	refused(text);
	memset(text, ' ', sizeof(text) - 1);
	refused(text);
}

/* ---- deciding ---- */

static void next__counts_each_queue_pair(void **unused)
{
	parse("drop #3");
	assert_int_equal(bitten(1), 1 << 2);
	assert_int_equal(bitten(2), 1 << 2);
	assert_int_equal(bitten(1), 0); /* its counts go on */
	parse("drop #3-5");
	assert_int_equal(bitten(1), 7 << 2);
	parse("drop #31+");
	assert_true(bitten(1) == 3u << 30);
	parse("drop every 10");
	assert_int_equal(bitten(1), 1 << 9 | 1 << 19 | 1 << 29);
	parse("drop qp=2");
	assert_int_equal(bitten(1), 0);
	assert_true(bitten(2) == UINT32_MAX);
	parse("drop times 3");
	assert_int_equal(bitten(1), 7);
}

static void next__chance_is_the_seed_s(void **unused)
{
	parse("seed=7; drop 30%");
	uint32_t one = bitten(1), two = bitten(2);
	assert_true(one && one != UINT32_MAX && one != two);
	parse("seed=7; drop 30%");
	assert_true(bitten(2) == two); /* whoever comes first */
	assert_true(bitten(1) == one);
	parse("seed=8; drop 30%");
	assert_true(bitten(1) != one);
	parse("seed=7; drop 30%; corrupt 30%");
	struct vb_fault_subject s = packet_of(1);
	unsigned both = 0, any = 0;
	for (unsigned i = 0; i < 1000; i++) {
		unsigned n = ask(&s);
		any += n > 0;
		both += n == 2;
	}
	assert_between(any, 400, 620); /* 51 % */
	assert_between(both, 40, 150); /* 9 %: rules draw for themselves */
	parse("drop 100%");
	assert_true(bitten(1) == UINT32_MAX);
}

static void next__repeats_are_not_counted(void **unused)
{
	struct vb_fault_subject fresh = packet_of(1), again = packet_of(1);
	again.is_repeat = true;
	parse("drop #2");
	assert_int_equal(ask(&fresh), 0);
	assert_int_equal(ask(&again), 0);
	assert_int_equal(ask(&fresh), 1);
	assert_int_equal(ask(&again), 0); /* it comes through in the end */
	parse("drop #2+");
	assert_int_equal(ask(&fresh), 0);
	assert_int_equal(ask(&fresh), 1);
	assert_int_equal(ask(&again), 1); /* it never does */
}

static void is_repeat__by_psn(void **unused)
{
	const uint32_t last = 0xffffff;
	parse("");
	assert_false(vb_fault_is_repeat(state, VB_FAULT_OUT, false, 1, last - 1));
	assert_false(vb_fault_is_repeat(state, VB_FAULT_OUT, false, 1, last));
	assert_true(vb_fault_is_repeat(state, VB_FAULT_OUT, false, 1, last));
	assert_false(vb_fault_is_repeat(state, VB_FAULT_OUT, false, 1, 0));
	assert_false(vb_fault_is_repeat(state, VB_FAULT_OUT, false, 1, 5)); /* behind a READ's answer */
	assert_true(vb_fault_is_repeat(state, VB_FAULT_OUT, false, 1, last));
	assert_false(vb_fault_is_repeat(state, VB_FAULT_OUT, true, 1, 3));
	assert_false(vb_fault_is_repeat(state, VB_FAULT_IN, false, 1, 3));
	assert_false(vb_fault_is_repeat(state, VB_FAULT_OUT, false, 2, 3));
}

static void next__filters_before_it_counts(void **unused)
{
	static const uint8_t here[16] = { [10] = 0xff, [11] = 0xff, 10, 0, 0, 7 },
			     there[16] = { [10] = 0xff, [11] = 0xff, 10, 0, 0, 8 };
	struct vb_fault_subject s = packet_of(1);
	parse("drop #2 peer=10.0.0.7");
	s.peer = there;
	assert_int_equal(ask(&s), 0);
	assert_int_equal(ask(&s), 0);
	s.peer = here;
	assert_int_equal(ask(&s), 0);
	assert_int_equal(ask(&s), 1);
	parse("drop #1 in of ack");
	s.direction = VB_FAULT_IN;
	assert_int_equal(ask(&s), 0);
	s.packets = 1u << VB_FAULT_OF_ALL | 1u << VB_FAULT_OF_ACK;
	assert_int_equal(ask(&s), 1);
	parse("drop #1 after 1s");
	s = packet_of(1);
	s.elapsed_ns = 999999999;
	assert_int_equal(ask(&s), 0);
	s.elapsed_ns++;
	assert_int_equal(ask(&s), 1);
}

static void next__calls_and_triggers(void **unused)
{
	struct vb_fault_subject call = { .site = VB_FAULT_CALL, .verb = "ibv_reg_mr" };
	parse("fail ibv_reg_mr ENOMEM #2; link down at ibv_reg_mr #2; fail ibv_dereg_mr EIO");
	assert_int_equal(ask(&call), 0);
	assert_int_equal(ask(&call), 1);
	call.site = VB_FAULT_TRIGGER;
	assert_int_equal(ask(&call), 0);
	assert_int_equal(ask(&call), 1);
	assert_int_equal(ask(&call), 0);
	parse("vanish at ibv_post_send"); /* the first one */
	call = (struct vb_fault_subject){ .site = VB_FAULT_TRIGGER, .verb = "ibv_post_send", .qp = 3 };
	assert_int_equal(ask(&call), 1);
	assert_int_equal(ask(&call), 0);
	call.qp = 4;
	assert_int_equal(ask(&call), 0); /* it was the process's first */
}

static void next__messages_and_completions(void **unused)
{
	struct vb_fault_subject s = { .site = VB_FAULT_MESSAGE, .message = VB_CM_ATTR_REQ, .port = 7174 };
	parse("lose REQ #2");
	assert_int_equal(ask(&s), 0);
	assert_int_equal(ask(&s), 1);
	parse("refuse port=7174");
	assert_int_equal(ask(&s), 1);
	s.port = 7175;
	assert_int_equal(ask(&s), 0);
	parse("refuse");
	assert_int_equal(ask(&s), 1);
	s.port = 0; /* no request */
	assert_int_equal(ask(&s), 0);
	parse("complete write LOC_PROT_ERR #1; complete any GENERAL_ERR #1");
	s = (struct vb_fault_subject){ .site = VB_FAULT_COMPLETION,
				       .qp = 1,
				       .completion = 1u << VB_FAULT_COMPLETION_ANY };
	assert_int_equal(ask(&s), 1);
	s.completion |= 1u << VB_FAULT_COMPLETION_WRITE;
	assert_int_equal(ask(&s), 1);
}

static void delay__is_between(void **unused)
{
	struct vb_fault_subject s = packet_of(1);
	struct vb_fault_bite bite;
	uint64_t least = UINT64_MAX, most = 0;
	parse("delay 1ms-2ms");
	for (unsigned i = 0; i < 1000; i++) {
		unsigned cursor = 0;
		assert_true(vb_fault_next(&plan, state, &s, &cursor, &bite));
		uint64_t ns = vb_fault_delay_ns(&bite);
		assert_between(ns, 1000000, 2000000);
		least = ns < least ? ns : least;
		most = ns > most ? ns : most;
	}
	assert_true(least < 1100000 && most > 1900000);
}

/* ---- words ---- */

static void explain__says_it(void **unused)
{
	static const struct {
		const char *text, *words;
	} cases[] = {
		{ "drop #5 out of write qp=2 peer=10.0.0.7", "lost: number 5 of the packets of WRITEs that queue pair 2 sends to 10.0.0.7" },
		{ "corrupt 0.5% in times 2", "with a wrong bit: 0.5 %, by chance, of the packets of requests and of answers with data that each "
					     "queue pair gets, 2 times at most" },
		{ "fail ibv_reg_mr ENOMEM #3", "failed with errno 12 (ENOMEM): number 3 of the calls of ibv_reg_mr" },
		{ "fail ibv_reg_mr 87", "failed with errno 87: all of the calls of ibv_reg_mr" },
		{ "link down for 50ms after 1s", "the link of every device is down for 50 ms: once, 1 s after the first device was opened" },
		{ "freeze 1s at ibv_post_send",
		  "nothing goes out or comes in for 1 s: at the first call of ibv_post_send" },
		{ "vanish at ibv_post_send times 2",
		  "every peer is gone without a word: at number 1 of the calls of ibv_post_send on each queue "
		  "pair, 2 times at most" },
		{ "refuse port=7174", "rejected with reason 28 (CONSUMER_DEFINED): all of the connection requests that the process sends or gets "
				      "for port 7174" },
	};
	char line[512];
	for (size_t i = 0; i < VB_ARRAY_LEN(cases); i++) {
		size_t n = vb_fault_explain(only_rule(cases[i].text), line, sizeof(line));
		assert_string_equal(line, cases[i].words);
		assert_int_equal(n, strlen(line));
	}
	assert_int_equal(vb_fault_explain(&plan.rules[0], line, 10), 9);
	assert_int_equal(line[9], 0);
}

static int make_state(void **unused)
{
	state = calloc(1, sizeof(*state));
	return !state;
}

static int free_state(void **unused)
{
	free(state);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse__every_kind),
		cmocka_unit_test(parse__clauses_and_comments),
		cmocka_unit_test(parse__times_and_numbers),
		cmocka_unit_test(parse__filters),
		cmocka_unit_test(parse__mistakes_have_a_place),
		cmocka_unit_test(parse__limits),
		cmocka_unit_test(next__counts_each_queue_pair),
		cmocka_unit_test(next__chance_is_the_seed_s),
		cmocka_unit_test(next__repeats_are_not_counted),
		cmocka_unit_test(is_repeat__by_psn),
		cmocka_unit_test(next__filters_before_it_counts),
		cmocka_unit_test(next__calls_and_triggers),
		cmocka_unit_test(next__messages_and_completions),
		cmocka_unit_test(delay__is_between),
		cmocka_unit_test(explain__says_it),
	};
	return cmocka_run_group_tests(tests, make_state, free_state);
}
