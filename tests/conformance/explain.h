/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For tests that refused calls explain themselves with VERBATIM_DEBUG=1, and that nothing is said without it.
 * Included after a header that has cmocka's and set_nonblocking.
 */
#ifndef EXPLAIN_TEST_H
#define EXPLAIN_TEST_H

#include "../again.h"

static bool debugging;

/* Standard error goes to a pipe from here on. */
static int capture(int *saved)
{
	int ends[2];
	assert_int_equal(pipe(ends), 0);
	*saved = dup(STDERR_FILENO);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	set_nonblocking(ends[0]);
	return ends[0];
}

static void release(int from, int saved, char *text, size_t size)
{
	dup2(saved, STDERR_FILENO);
	close(saved);
	ssize_t n = read(from, text, size - 1);
	text[n > 0 ? n : 0] = 0;
	close(from);
}

static void check_line(const char *source, const char *call, const char *text)
{
	char start[64];
	if (!debugging) {
		if (*text)
			fail_msg("%s: said without being asked: %s", source, text);
		return;
	}
	snprintf(start, sizeof(start), "verbatim: %s: ", call);
	const char *end = strchr(text, '\n');
	if (strncmp(text, start, strlen(start)) || !end || end[1] || end - text < (long)strlen(start) + 10)
		fail_msg("%s: expected one line of %s, got: %s", source, call, text);
}

/* The expression refuses, and says so under the name. */
#define EXPLAINS(name, expression)                                              \
	do {                                                                    \
		char text_[4096];                                               \
		int saved_, from_ = capture(&saved_);                           \
		bool refused_ = (expression);                                   \
		release(from_, saved_, text_, sizeof(text_));                   \
		assert_true(refused_);                                          \
		check_line(#expression, name, text_);                           \
	} while (0)

/*
 * The library reads the variable when it is loaded: each way (argv[1]: 0 or 1) is a program run of its own.
 */
static void with_debugging(int argc, char **argv)
{
	const char *now = getenv("VERBATIM_DEBUG");
	if (argc != 2)
		exit(99);
	debugging = !strcmp(argv[1], "1");
	if (now && !strcmp(now, argv[1]))
		return;
	setenv("VERBATIM_DEBUG", argv[1], 1);
	run_again(argv[1]);
	exit(99);
}

#endif
