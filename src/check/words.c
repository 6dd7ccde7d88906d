/* SPDX-License-Identifier: BSD-2-Clause */
#include "check/words.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"

#define X(constant, word, page) "|" word "|-" word
static const char checks[] = "0|1|all|fatal" VB_CHECKS(X);
#undef X

/*
 * Names without VERBATIM_, and the words that each takes, between bars; NULL: any. VERBATIM_CHECK takes
 * several words.
 */
static const struct {
	const char *name, *words, *page;
} settings[] = {
	{ "CAPTURE", NULL, NULL },
	{ "CHECK", checks, "verbatim-checks(7)" },
	{ "COPY", "mapped|process_vm|link", "verbatim(7)" },
	{ "DEBUG", NULL, NULL },
	{ "FAULTS", NULL, NULL },
	{ "GSO", "off|on", "verbatim(7)" },
	{ "ICRC", "ignore|check", "verbatim(7)" },
	{ "LINK", "infiniband|ethernet", "verbatim(7)" },
	{ "LOCAL", "off|on", "verbatim(7)" },
	{ "SOCKETS_CONFIG", NULL, NULL },
	{ "SYSFS", "off|on", "verbatim(7)" },
};

static const char prefix[] = "VERBATIM_", tests[] = "TEST_"; /* settings of the tests */

static bool is_among(const char *word, size_t len, const char *words)
{
	for (const char *w = words; *w; w += strcspn(w, "|"), w += *w == '|')
		if (strcspn(w, "|") == len && strncmp(w, word, len) == 0)
			return true;
	return !len;
}

/* The first word of the value that is not among them; NULL: all are. */
static const char *unknown_word(const char *value, const char *words)
{
	for (const char *at = value; *at; at += strcspn(at, ","), at += *at == ',')
		if (!is_among(at, strcspn(at, ","), words))
			return at;
	return NULL;
}

static bool is_name(const char *entry, const char *name)
{
	size_t len = strlen(name);
	return strncmp(entry, name, len) == 0 && entry[len] == '=';
}

bool vb_setting_is_unknown(const char *entry, char why[VB_SETTING_TEXT])
{
	const char *name = entry + sizeof(prefix) - 1, *word;
	if (strncmp(entry, prefix, sizeof(prefix) - 1) != 0 || strncmp(name, tests, sizeof(tests) - 1) == 0)
		return false;
	for (size_t i = 0; i < VB_ARRAY_LEN(settings); i++) {
		if (!is_name(name, settings[i].name))
			continue;
		word = settings[i].words ?
			       unknown_word(name + strlen(settings[i].name) + 1, settings[i].words) :
			       NULL;
		if (word)
			snprintf(why, VB_SETTING_TEXT, "%s%s has no word '%.*s': see %s", prefix,
				 settings[i].name, (int)vb_min_u64(strcspn(word, ","), VB_SETTING_TEXT / 4),
				 word, settings[i].page);
		return word;
	}
	snprintf(why, VB_SETTING_TEXT, "%.*s is no setting: see verbatim(7)",
		 (int)vb_min_u64(strcspn(entry, "="), VB_SETTING_TEXT / 4), entry);
	return true;
}
