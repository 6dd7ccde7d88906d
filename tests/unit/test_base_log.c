/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

static int real_stderr, captured[2];

/* Packet mode: each read returns what one write(2) wrote. */
static int capture(void **state)
{
	if (pipe2(captured, O_DIRECT | O_NONBLOCK) < 0)
		return -1;
	real_stderr = dup(STDERR_FILENO);
	return dup2(captured[1], STDERR_FILENO) < 0;
}

static int release(void **state)
{
	dup2(real_stderr, STDERR_FILENO);
	close(real_stderr);
	close(captured[0]);
	close(captured[1]);
	vb_debug_enabled = false;
	return 0;
}

static ssize_t read_captured(char *line, size_t size)
{
	ssize_t n = read(captured[0], line, size - 1);
	line[n < 0 ? 0 : n] = '\0';
	return n;
}

static void explain__writes_one_line_at_once(void **state)
{
	char line[4096];
	vb_debug_enabled = true;
	errno = ENOENT;
	vb_explain("ibv_reg_mr", "length is %d,\nfound \"%s\"", 7, "x\ty");
	assert_int_equal(errno, ENOENT);
	read_captured(line, sizeof line);
	assert_string_equal(line, "verbatim: ibv_reg_mr: length is 7, found \"x y\"\n");
	assert_true(read_captured(line, sizeof line) < 0);
}

static void explain__cuts_long_lines(void **state)
{
	char line[4096], text[3000];
	memset(text, 'a', sizeof text);
	text[sizeof text - 1] = '\0';
	vb_debug_enabled = true;
	vb_explain("call", "%s", text);
	assert_int_equal(read_captured(line, sizeof line), 1024);
	assert_int_equal(line[1023], '\n');
	assert_int_equal(line[1022], 'a');
	assert_true(read_captured(line, sizeof line) < 0);
}

static int evaluated;
static int evaluate(void) { return ++evaluated; }

static void explain__off_prints_and_evaluates_nothing(void **state)
{
	char line[64];
	vb_debug_enabled = false;
	vb_explain("call", "%d", evaluate());
	assert_int_equal(evaluated, 0);
	assert_true(read_captured(line, sizeof line) < 0);
}

static char heard[64];
static unsigned times;

static void hear(const char *call, const char *sentence)
{
	times++;
	snprintf(heard, sizeof(heard), "%s/%s", call, sentence);
}

/* Last: it stays. */
static void listen__hears_mistakes_and_no_limits(void **state)
{
	char line[64];
	vb_explain_listen(hear);
	assert_true(vb_debug_enabled);
	vb_explain_limit("ibv_post_send", "the queue is full");
	assert_int_equal(times, 0);
	vb_explain("ibv_reg_mr", "length is %d", 7);
	assert_int_equal(times, 1);
	assert_string_equal(heard, "ibv_reg_mr/length is 7");
	assert_true(read_captured(line, sizeof line) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(explain__writes_one_line_at_once, capture, release),
		cmocka_unit_test_setup_teardown(explain__cuts_long_lines, capture, release),
		cmocka_unit_test_setup_teardown(explain__off_prints_and_evaluates_nothing, capture, release),
		cmocka_unit_test_setup_teardown(listen__hears_mistakes_and_no_limits, capture, release),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
