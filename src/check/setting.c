/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * VERBATIM_CHECK: words between commas. "1" (or "all"): every check; a check's name: that one; "-" and a name: not that one, all others
 * unless some are named; "fatal": the first finding ends the program.
 */
#include <stdlib.h>
#include <string.h>

#include "adapter/watcher.h"
#include "base/log.h"
#include "check/check.h"

bool vb_check_enabled;

static bool is_on[VB_CHECK_COUNT], is_fatal;

static const char *const names[] = {
#define X(constant, word, page) [VB_CHECK_##constant] = word,
	VB_CHECKS(X)
#undef X
};

bool vb_check_is_on(enum vb_check check) { return is_on[check]; }
bool vb_check_is_fatal(void) { return is_fatal; }

static bool is_word(const char *at, size_t len, const char *word)
{
	return strlen(word) == len && strncmp(at, word, len) == 0;
}

static void set_all(bool on)
{
	for (int i = 0; i < VB_CHECK_COUNT; i++)
		is_on[i] = on;
}

static bool set_named(const char *at, size_t len, bool on)
{
	for (int i = 0; i < VB_CHECK_COUNT; i++) {
		if (!is_word(at, len, names[i]))
			continue;
		is_on[i] = on;
		return true;
	}
	return false;
}

/* False: no such word. */
static bool take_word(const char *at, size_t len)
{
	if (is_word(at, len, "fatal"))
		is_fatal = true;
	else if (is_word(at, len, "1") || is_word(at, len, "all") || !len)
		return true;
	else if (*at == '-')
		return set_named(at + 1, len - 1, false);
	else
		return set_named(at, len, true);
	return true;
}

/* Does the setting name checks that are wanted, so that others are not? */
static bool names_some(const char *value)
{
	for (const char *at = value; *at; at += strcspn(at, ","), at += *at == ',') {
		size_t len = strcspn(at, ",");
		if (is_word(at, len, "1") || is_word(at, len, "all"))
			return false;
	}
	for (const char *at = value; *at; at += strcspn(at, ","), at += *at == ',') {
		size_t len = strcspn(at, ",");
		if (set_named(at, len, true))
			return true;
	}
	return false;
}

static void say_unknown(const char *at, size_t len)
{
	static const char front[] = "verbatim: VERBATIM_CHECK has no word '", back[] = "': see verbatim-checks(7)\n";
	char line[sizeof(front) + sizeof(back) + 64];
	size_t n = vb_min_u64(len, 64);
	memcpy(line, front, sizeof(front) - 1);
	memcpy(line + sizeof(front) - 1, at, n);
	memcpy(line + sizeof(front) - 1 + n, back, sizeof(back) - 1);
	vb_say(line, sizeof(front) - 1 + n + sizeof(back) - 1);
}

static void read_setting(const char *value)
{
	set_all(!names_some(value));
	for (const char *at = value; *at; at += strcspn(at, ","), at += *at == ',')
		if (!take_word(at, strcspn(at, ",")))
			say_unknown(at, strcspn(at, ","));
}

static const struct vb_watcher watcher = {
	.send_failed = vb_check_send_failed,
	.cq_overran = vb_check_cq_overran,
	.starved = vb_check_starved,
	.key_story = vb_check_key_story,
	.rights_story = vb_check_rights_story,
};

__attribute__((constructor)) static void read_environment(void)
{
	const char *value = getenv("VERBATIM_CHECK");
	if (!value || !*value || !strcmp(value, "0"))
		return;
	read_setting(value);
	vb_check_enabled = true;
	vb_watcher = &watcher;
	vb_explain_listen(vb_check_explained);
}

static void start(void)
{
	vb_trace_prepare();
	vb_check_hold_sends();
}

void vb_check_start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, start);
}
