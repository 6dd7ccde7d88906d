/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads VERBATIM_CHECK, and reports settings that have no meaning.
 *
 * VERBATIM_CHECK is "0" or "off", which turn all checks off, or a list of words with commas between them.
 * "1", "on" and "all" turn every check on. A check's name turns that check on. "-" and a name turn that check
 * off, and all others on unless some are named. "fatal" makes the first finding end the program.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapter/queues/observer.h"
#include "base/log.h"
#include "check/check.h"

bool vb_check_enabled;

static bool is_on[VB_CHECK_COUNT], is_fatal;

static const char *const names[] = {
#define X(constant, word, page) [VB_CHECK_##constant] = word,
	VB_CHECKS(X)
#undef X
};

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

static void take_word(const char *at, size_t len)
{
	if (is_word(at, len, "fatal"))
		is_fatal = true;
	else if (*at == '-')
		set_named(at + 1, len - 1, false);
	else
		set_named(at, len, true);
}

/* Does the setting name checks to turn on, so that all others are off? */
static bool names_some(const char *value)
{
	for (const char *at = value; *at; at += strcspn(at, ","), at += *at == ',') {
		size_t len = strcspn(at, ",");
		if (is_word(at, len, "1") || is_word(at, len, "on") || is_word(at, len, "all"))
			return false;
	}
	for (const char *at = value; *at; at += strcspn(at, ","), at += *at == ',') {
		size_t len = strcspn(at, ",");
		if (set_named(at, len, true))
			return true;
	}
	return false;
}

static void read_setting(const char *value)
{
	set_all(!names_some(value));
	for (const char *at = value; *at; at += strcspn(at, ","), at += *at == ',')
		take_word(at, strcspn(at, ","));
	vb_check_choose(is_on, is_fatal);
}

static const struct vb_observer observer = {
	.send_failed = vb_check_send_failed,
	.cq_overran = vb_check_cq_overran,
	.starved = vb_check_starved,
	.explain_rights = vb_check_rights_story,
};

/* Without VERBATIM_DEBUG too: the user believes that the setting has an effect. */
static void report_unknown_settings(void)
{
	char why[VB_SETTING_TEXT], line[VB_SETTING_TEXT + 16];
	for (char **entry = environ; entry && *entry; entry++) {
		if (!vb_setting_is_unknown(*entry, why))
			continue;
		int n = snprintf(line, sizeof(line), "verbatim: %s\n", why);
		vb_say(line, vb_min_u64((uint64_t)n, sizeof(line) - 1));
	}
}

__attribute__((constructor)) static void read_environment(void)
{
	const char *value = getenv("VERBATIM_CHECK");
	report_unknown_settings();
	if (!value || !*value || !strcmp(value, "0") || !strcmp(value, "off"))
		return;
	read_setting(value);
	vb_check_enabled = true;
	vb_observer = &observer;
	vb_key_explain_more = vb_check_key_story;
	vb_explain_listen(vb_check_explained);
}

static void start(void)
{
	vb_trace_prepare();
	vb_check_hold_all_sends();
}

void vb_check_start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, start);
}
