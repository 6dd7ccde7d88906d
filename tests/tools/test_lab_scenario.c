/* SPDX-License-Identifier: BSD-2-Clause */
/* Scenarios of labs: what a file may say, what is done when, what is judged in the end. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lab/progress.h"

#define SECOND 1000000000ull

#define ONE "[[program]]\nname = 'one'\nhost = 'h1'\ncommand = 'x'\n"
#define TWO "[[program]]\nname = 'two'\nhost = 'h2'\ncommand = ['a', '', 'b']\n"

static struct lab_scenario scenario;
static char why[LAB_TEXT_BYTES];

static bool parse(const char *text)
{
	return lab_scenario_parse(&scenario, "file", text, strlen(text), why);
}

static void assert_refused(const char *text, const char *says)
{
	assert_false(parse(text));
	lab_scenario_free(&scenario);
	if (!strstr(why, says))
		fail_msg("%s\nis not in: %s\nof: %s", says, why, text);
}

/* ---- the file ---- */

static void file__all_keys(void **state)
{
	const struct lab_program *two;

	assert_true(parse("hosts = ['left', 'right']\ntopology = ['left-a', 'right-b', 'a-b']\nmtu = 4000\n"
			  "seed = 7\nlimit = '2s'\nlinks = ['a-b delay 1ms', 'hosts rate 1gbit']\n"
			  "[[program]]\nname = 'one'\nhost = 'left'\ncommand = 'x y'\nexit = 3\n"
			  "[[program]]\nname = 'two'\nhost = '10.99.0.2'\ncommand = ['x', '']\nat = '5ms'\n"
			  "environment = { A = 'b', C = '' }\nafter = { program = 'one', prints = '^up' }\n"
			  "daemon = true\nsignal = 'TERM'\noutput = 'a'\nabsent = ['b', 'c']\n"
			  "[[event]]\nat = '1s'\nlink = 'left-right down'\n"
			  "[[event]]\nafter = { ends = 'one' }\nhost = 'kill right'\n"
			  "[[event]]\nafter = { starts = 'one' }\nat = '1s'\nsignal = 'USR1 two'\n"));
	assert_int_equal(scenario.plan.topology.hosts, 2);
	assert_int_equal(scenario.plan.topology.nodes, 4);
	assert_int_equal(scenario.plan.topology.seed, 7);
	assert_int_equal(scenario.plan.mtu, 4000);
	assert_string_equal(scenario.plan.settings[1], "hosts rate 1gbit");
	assert_null(scenario.plan.settings[2]);
	assert_int_equal(scenario.limit_ns, 2 * SECOND);
	assert_int_equal(scenario.n_programs, 2);
	assert_string_equal(scenario.programs[0].argv[2], "x y");
	assert_int_equal(scenario.programs[0].expected.number, 3);
	two = &scenario.programs[1];
	assert_int_equal(two->host, 1);
	assert_string_equal(two->argv[0], "x");
	assert_string_equal(two->argv[1], "");
	assert_null(two->argv[2]);
	assert_int_equal(two->when.cause, LAB_AFTER_TEXT);
	assert_int_equal(two->when.at_ns, 5000000);
	assert_true(two->is_daemon);
	assert_int_equal(two->expected.kind, LAB_END_SIGNAL);
	assert_int_equal(two->expected.number, SIGTERM);
	assert_int_equal(two->output.count, 1);
	assert_int_equal(two->absent.count, 2);
	assert_int_equal(scenario.n_events, 3);
	assert_int_equal(scenario.events[1].when.cause, LAB_AFTER_END);
	assert_int_equal(scenario.events[2].signal, SIGUSR1);
	assert_int_equal(scenario.events[2].program, 1);
	lab_scenario_free(&scenario);
}

static void file__a_star_of_hosts(void **state)
{
	assert_true(parse("hosts = 3\n"));
	assert_int_equal(scenario.plan.topology.nodes, 4);
	assert_int_equal(scenario.plan.mtu, LAB_MTU);
	assert_int_equal(scenario.limit_ns, LAB_LIMIT_S * SECOND);
	lab_scenario_free(&scenario);
}

/* Each with the line and the key. */
static void file__wrong(void **state)
{
	static const struct {
		const char *text, *says;
	} files[] = {
		{ "hosts = 2\nx y\n", "file:2: " },
		{ "hosts = 2\nhosts = 3\n", "file:2: " },
		{ "hosts = 2\n\"hosts\\u0000\" = 3\n", "file:2: no key has a zero" },
		{ "", "'hosts': is missing" },
		{ "hosts = 0\n", "file:1: 'hosts': a number from 1 to 250" },
		{ "hosts = '2'\n", "file:1: 'hosts'" },
		{ "hosts = []\n", "file:1: 'hosts'" },
		{ "hosts = ['a', 'a']\n", "file:1: 'hosts': this name is taken already" },
		{ "hosts = ['a', 2]\n", "file:1: a text is wanted" },
		{ "hosts = 2\n\nhots = 3\n", "file:3: 'hots': there is no such key" },
		{ "hosts = 2\ntopology = 'ring'\n", "file:2: 'topology': no star" },
		{ "hosts = 2\ntopology = ['h1-a',\n'h2-h1']\n", "file:3: 'topology': a link joins" },
		{ "hosts = 2\ntopology = ['h1-a']\n", "file:2: 'topology': a host has no link: 'h2'" },
		{ "hosts = ['net']\n", "'topology': this name is taken already" },
		{ "hosts = 2\nmtu = 100\n", "file:2: 'mtu'" },
		{ "hosts = 2\nseed = -1\n", "file:2: 'seed'" },
		{ "hosts = 2\nlimit = 5\n", "file:2: 'limit': a time" },
		{ "hosts = 2\nlimit = '5'\n", "file:2: 'limit': a time" },
		{ "hosts = 2\nlimit = '0s'\n", "file:2: 'limit': a limit is more" },
		{ "hosts = 2\nlinks = ['h1-h2 down',\n 'h1-h3 down']\n", "file:3: 'links': the lab has neither" },
		{ "hosts = 2\nlinks = 'h1-h2 lots 5'\n", "file:2: 'links': a link has no such setting" },
		{ "hosts = 2\nprogram = 3\n", "file:2: 'program'" },
		{ "hosts = 2\n[[program]]\nhost = 'h1'\n", "file:2: 'program': 'name' is missing" },
		{ "hosts = 2\n[[program]]\nname = 'a b'\n", "file:3: 'name': a name has" },
		{ "hosts = 2\n[[program]]\nname = 'a'\ncommand='x'\n", "file:2: 'program': 'host' is missing" },
		{ "hosts = 2\n[[program]]\nname = 'a'\nhost='h1'\n", "file:2: 'program': 'command' is missing" },
		{ "hosts = 2\n[[program]]\nname = 'a'\nhost = 'h3'\ncommand = 'x'\n", "file:4: 'host': the lab" },
		{ "hosts = 2\n[[program]]\nname = 'a'\nhost = 'h1'\ncommand = []\n", "file:5: 'command'" },
		{ "hosts = 2\n" ONE ONE, "file:7: 'name': there is a program" },
		{ "hosts = 2\n" ONE "nice = 3\n", "file:6: 'nice': there is no such key" },
		{ "hosts = 2\n" ONE "exit = 256\n", "file:6: 'exit'" },
		{ "hosts = 2\n" ONE "exit = 'some'\n", "file:6: 'exit'" },
		{ "hosts = 2\n" ONE "signal = 'SIGTERM'\n", "file:6: 'signal'" },
		{ "hosts = 2\n" ONE "exit = 0\nsignal = 'TERM'\n", "file:7: 'signal': a program ends" },
		{ "hosts = 2\n" ONE "output = '('\n", "file:6: 'output': this is no regular expression" },
		{ "hosts = 2\n" ONE "absent = [\n'a',\n3]\n", "file:8: a text" },
		{ "hosts = 2\n" ONE "output = \"a\\u0000b\"\n", "file:6: 'output'" },
		{ "hosts = 2\n" ONE "daemon = 1\n", "file:6: 'daemon'" },
		{ "hosts = 2\n" ONE "limit = '1s'\ndaemon = true\n", "file:6: 'limit': nobody waits" },
		{ "hosts = 2\n" ONE "environment = { A = 3 }\n", "file:6: 'A'" },
		{ "hosts = 2\n" ONE "environment = { 'A=B' = '3' }\n", "file:6: 'A=B'" },
		{ "hosts = 2\n" ONE "environment = { \"A\\u0000\" = '3' }\n", "file:6: no key has a zero" },
		{ "hosts = 2\n" ONE "after = 'one'\n", "file:6: 'after': this is no table" },
		{ "hosts = 2\n" ONE "after = {}\n", "file:6: 'after': one of" },
		{ "hosts = 2\n" ONE "after = { ends = 'two' }\n", "file:6: 'ends': there is no program 'two'" },
		{ "hosts = 2\n" ONE TWO "after = { ends = 'one', starts = 'one' }\n", "file:10: 'ends': one of" },
		{ "hosts = 2\n" ONE TWO "after = { ends = 'one', prints = 'x' }\n", "file:10: 'after': one of" },
		{ "hosts = 2\n" ONE TWO "after = { program = 'one' }\n", "file:10: 'after': one of" },
		{ "hosts = 2\n" ONE TWO "after = { program = 'one', prints = ['x'] }\n", "file:10: 'prints'" },
		{ "hosts = 2\n[[event]]\nat = '1s'\n", "file:2: 'event': one of" },
		{ "hosts = 2\n[[event]]\nlink = 'h1-h2 down'\n", "file:2: 'event': 'at' or 'after'" },
		{ "hosts = 2\n[[event]]\nat = '1s'\nlink = 'h1-h3 down'\n", "file:4: 'link'" },
		{ "hosts = 2\n[[event]]\nat = '1s'\nhost = 'melt h1'\n", "file:4: 'host': kill" },
		{ "hosts = 2\n[[event]]\nat = '1s'\nhost = 'kill h3'\n", "file:4: 'host': the lab" },
		{ "hosts = 2\n[[event]]\nat = '1s'\nsignal = 'TERM x'\n", "file:4: 'signal': there is no program" },
		{ "hosts = 2\n" ONE "[[event]]\nat = '1s'\nsignal = '9 one'\n", "file:8: 'signal': a signal" },
		{ "hosts = 2\n[[event]]\nat = '1s'\nlink = 'h1-h2 down'\nhost = 'kill h1'\n", "an event is one" },
	};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		assert_refused(files[i].text, files[i].says);
}

/* ---- what comes next ---- */

static struct lab_progress progress;

static void open_progress(const char *text)
{
	if (!parse(text))
		fail_msg("%s", why);
	assert_true(lab_progress_open(&progress, &scenario));
}

static void close_progress(void)
{
	lab_progress_close(&progress);
	lab_scenario_free(&scenario);
}

static void assert_next(uint64_t now, enum lab_step_kind kind, unsigned number)
{
	struct lab_step step = lab_progress_next(&progress, now);

	assert_int_equal(step.kind, kind);
	assert_int_equal(step.number, number);
}

static void assert_waits(uint64_t now, uint64_t until)
{
	struct lab_step step = lab_progress_next(&progress, now);

	assert_int_equal(step.kind, LAB_STEP_WAIT);
	assert_int_equal(step.at_ns, until);
}

static void prints(unsigned program, const char *text, bool is_whole, uint64_t now)
{
	lab_progress_printed(&progress, program, text, strlen(text), is_whole, now);
}

static void ends(unsigned program, int status, uint64_t now)
{
	lab_progress_ended(&progress, program, (struct lab_end){ LAB_END_EXIT, status }, NULL, now);
}

static void keep_text(void *context, const char *text) { snprintf(why, sizeof(why), "%s", text); }

/* One failure, which is this; or none. */
static void assert_judged(int program, const char *says)
{
	why[0] = '\0';
	assert_int_equal(lab_progress_judge(&progress, program, keep_text, NULL), says != NULL);
	if (says && !strstr(why, says))
		fail_msg("%s\nis not in: %s", says, why);
}

static void assert_drains(uint64_t now)
{
	assert_next(now, LAB_STEP_DRAIN, 0);
	assert_int_equal(progress.phase, LAB_PHASE_DRAINING);
	assert_waits(now, LAB_NEVER);
	lab_progress_drained(&progress, now);
	assert_waits(now, LAB_NEVER);
}

static void next__in_order_of_time(void **state)
{
	open_progress("hosts = 2\nlimit = '60s'\n" ONE "at = '2s'\n" TWO "at = '1s'\n"
		      "[[event]]\nat = '2s'\nlink = 'h1-h2 down'\n[[event]]\nat = '50s'\nlink = 'h1-h2 up'\n");
	assert_waits(0, SECOND);
	assert_next(SECOND, LAB_STEP_START, 1);
	assert_waits(SECOND, 2 * SECOND);
	assert_next(3 * SECOND, LAB_STEP_EVENT, 0);
	assert_waits(3 * SECOND, 60 * SECOND); /* until the event is over */
	lab_progress_happened(&progress, NULL);
	assert_next(4 * SECOND, LAB_STEP_START, 0);
	ends(0, 0, 5 * SECOND);
	assert_waits(5 * SECOND, 50 * SECOND);
	ends(1, 0, 5 * SECOND);
	assert_drains(5 * SECOND);
	for (int i = -1; i < 2; i++)
		assert_judged(i, NULL);
	assert_false(lab_progress_missed(&progress, 0));
	assert_true(lab_progress_missed(&progress, 1));
	close_progress();
}

static void next__causes(void **state)
{
	open_progress("hosts = 2\n" ONE TWO "after = { program = 'one', prints = 'rea[d]y$' }\nat = '1s'\n"
		      "[[event]]\nafter = { starts = 'one' }\nhost = 'pause h2'\n"
		      "[[event]]\nafter = { ends = 'one' }\nat = '5s'\nhost = 'resume h2'\n");
	assert_next(0, LAB_STEP_START, 0);
	assert_next(0, LAB_STEP_EVENT, 0);
	lab_progress_happened(&progress, NULL);
	prints(0, "ready soon", true, SECOND);
	assert_waits(SECOND, LAB_LIMIT_S * SECOND);
	prints(0, "ready", false, 2 * SECOND); /* and so much of it comes first */
	prints(0, "ready soon", true, 2 * SECOND);
	assert_waits(2 * SECOND, LAB_LIMIT_S * SECOND);
	prints(0, "ready", true, 2 * SECOND);
	prints(0, "ready", true, 3 * SECOND);
	assert_waits(2 * SECOND, 3 * SECOND);
	assert_next(3 * SECOND, LAB_STEP_START, 1);
	ends(0, 0, 4 * SECOND);
	assert_waits(4 * SECOND, 9 * SECOND);
	assert_next(9 * SECOND, LAB_STEP_EVENT, 1);
	close_progress();
}

static void next__what_cannot_come(void **state)
{
	open_progress("hosts = 2\n" ONE TWO "after = { program = 'one', prints = 'x' }\n"
		      "[[program]]\nname = 'three'\nhost = 'h1'\ncommand = 'x'\nafter = { ends = 'two' }\n"
		      "[[program]]\nname = 'four'\nhost = 'h1'\ncommand = 'x'\nafter = { ends = 'four' }\n");
	assert_next(0, LAB_STEP_START, 0);
	ends(0, 0, 0);
	assert_drains(0);
	assert_judged(0, NULL);
	for (int i = 1; i < 4; i++)
		assert_judged(i, "it was not started: what it waits for did not happen");
	close_progress();
}

static void next__daemons(void **state)
{
	open_progress("hosts = 2\n" ONE "daemon = true\n" TWO "after = { program = 'one', prints = 'up' }\n");
	assert_next(0, LAB_STEP_START, 0);
	assert_waits(0, LAB_LIMIT_S * SECOND); /* it may still print */
	prints(0, "up", true, SECOND);
	assert_next(SECOND, LAB_STEP_START, 1);
	ends(1, 0, 2 * SECOND);
	assert_drains(2 * SECOND); /* nobody waits for the daemon */
	assert_judged(0, NULL);
	close_progress();
}

static void next__daemon_that_dies(void **state)
{
	open_progress("hosts = 2\n" ONE "daemon = true\n" TWO);
	assert_next(0, LAB_STEP_START, 0);
	assert_next(0, LAB_STEP_START, 1);
	ends(0, 1, SECOND);
	ends(1, 0, SECOND);
	assert_drains(SECOND);
	assert_judged(0, "exit status 1, expected: exit status 0");
	close_progress();
}

static void next__limits(void **state)
{
	open_progress("hosts = 2\nlimit = '9s'\n" ONE "limit = '1s'\nexit = 5\n" TWO);
	assert_next(0, LAB_STEP_START, 0);
	assert_next(0, LAB_STEP_START, 1);
	assert_waits(0, SECOND);
	assert_next(SECOND, LAB_STEP_KILL, 0);
	assert_waits(SECOND, 9 * SECOND);
	lab_progress_ended(&progress, 0, (struct lab_end){ LAB_END_SIGNAL, SIGKILL }, NULL, 2 * SECOND);
	assert_drains(9 * SECOND);
	assert_judged(0, "it did not end within 1 s");
	assert_judged(1, "it had not ended");
	assert_judged(-1, "it was not over within 9 s");
	close_progress();
}

/* An event that the lab never answers. */
static void next__stuck(void **state)
{
	open_progress("hosts = 2\nlimit = '9s'\n" ONE "[[event]]\nat = '0s'\nhost = 'kill h2'\n");
	assert_next(0, LAB_STEP_EVENT, 0);
	assert_waits(SECOND, 9 * SECOND);
	assert_drains(9 * SECOND);
	assert_judged(0, "it was not started");
	close_progress();
}

static void next__stopped(void **state)
{
	open_progress("hosts = 2\n" ONE);
	assert_next(0, LAB_STEP_START, 0);
	lab_progress_stop(&progress, "first");
	lab_progress_stop(&progress, "second");
	assert_drains(SECOND);
	assert_judged(-1, "first");
	assert_judged(0, "it had not ended");
	close_progress();
}

/* ---- judgement ---- */

static void judge__ends(void **state)
{
	static const struct {
		const char *expected;
		struct lab_end end;
		const char *says;
	} ends[] = {
		{ "", { LAB_END_EXIT, 0 }, NULL },
		{ "", { LAB_END_EXIT, 3 }, "exit status 3, expected: exit status 0" },
		{ "", { LAB_END_SIGNAL, SIGSEGV }, "killed by SIGSEGV, expected: exit status 0" },
		{ "exit = 3\n", { LAB_END_EXIT, 3 }, NULL },
		{ "exit = 3\n", { LAB_END_SIGNAL, 3 }, "killed by SIGQUIT, expected: exit status 3" },
		{ "signal = 'KILL'\n", { LAB_END_SIGNAL, SIGKILL }, NULL },
		{ "signal = 'KILL'\n", { LAB_END_EXIT, 0 }, "exit status 0, expected: killed by SIGKILL" },
		{ "exit = 'any'\n", { LAB_END_SIGNAL, 40 }, NULL },
		{ "", { LAB_END_SIGNAL, 40 }, "killed by signal 40, expected: exit status 0" },
		{ "exit = 'any'\n", { LAB_END_FAILED, 0 }, "no such file" },
	};
	char text[256];

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		snprintf(text, sizeof(text), "hosts = 1\n" ONE "%s", ends[i].expected);
		open_progress(text);
		assert_next(0, LAB_STEP_START, 0);
		lab_progress_ended(&progress, 0, ends[i].end,
				   ends[i].end.kind == LAB_END_FAILED ? "no such file" : NULL, 1);
		assert_drains(1);
		assert_judged(0, ends[i].says);
		close_progress();
	}
}

/* A question has no end of line. */
static void next__after_a_beginning(void **state)
{
	open_progress("hosts = 2\n" ONE TWO "after = { program = 'one', prints = '^really' }\n");
	assert_next(0, LAB_STEP_START, 0);
	prints(0, "really?", false, SECOND);
	assert_next(SECOND, LAB_STEP_START, 1);
	close_progress();
}

static void judge__output(void **state)
{
	open_progress("hosts = 2\n" ONE "output = ['^a+$', 'never']\n" TWO "absent = ['error', '^$']\n");
	assert_next(0, LAB_STEP_START, 0);
	assert_next(0, LAB_STEP_START, 1);
	prints(0, "never", false, 0); /* a line that ends otherwise */
	prints(0, "neverland", false, 0);
	lab_progress_printed(&progress, 0, "aa\0b", 4, true, 0);
	lab_progress_printed(&progress, 0, "aaab", 3, true, 0);
	prints(1, "an error", true, 0);
	prints(1, "another error", true, 0);
	ends(0, 0, 1);
	ends(1, 0, 1);
	assert_drains(1);
	assert_judged(0, "'never' is not in its output");
	assert_judged(1, "'error' is in its output: an error");
	close_progress();
}

static void judge__events(void **state)
{
	open_progress("hosts = 1\n" ONE "[[event]]\nat = '0s'\nhost = 'start h1'\n");
	assert_next(0, LAB_STEP_EVENT, 0);
	lab_progress_happened(&progress, "h1 is up");
	lab_progress_happened(&progress, "nothing is awaited");
	assert_next(0, LAB_STEP_START, 0);
	ends(0, 0, 1);
	assert_drains(1);
	assert_judged(-1, "line 6, host start h1: h1 is up");
	close_progress();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(file__all_keys),
		cmocka_unit_test(file__a_star_of_hosts),
		cmocka_unit_test(file__wrong),
		cmocka_unit_test(next__in_order_of_time),
		cmocka_unit_test(next__causes),
		cmocka_unit_test(next__after_a_beginning),
		cmocka_unit_test(next__what_cannot_come),
		cmocka_unit_test(next__daemons),
		cmocka_unit_test(next__daemon_that_dies),
		cmocka_unit_test(next__limits),
		cmocka_unit_test(next__stuck),
		cmocka_unit_test(next__stopped),
		cmocka_unit_test(judge__ends),
		cmocka_unit_test(judge__output),
		cmocka_unit_test(judge__events),
	};

	if (!parse("hosts = 1\n") && strstr(why, "without toml++")) {
		printf("1..0 # SKIP %s\n", why);
		return 0;
	}
	lab_scenario_free(&scenario);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
