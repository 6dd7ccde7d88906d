/* SPDX-License-Identifier: BSD-2-Clause */
#include "check/words.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"

#define X(constant, word, page) "|" word "|-" word
static const char checks[] = "1|on|all|fatal" VB_CHECKS(X);
#undef X

/*
 * Names without VERBATIM_; the words of which each is one, between bars, and those of which it may be several
 * with commas between them. NULL: none. Both NULL: any text.
 */
static const struct setting {
	const char *name, *one, *several, *page;
} settings[] = {
	{ "CAPTURE", NULL, NULL, NULL },
	{ "CHECK", "0|off", checks, "verbatim-checks(7)" },
	{ "COPY", "mapped|process_vm|link", NULL, "verbatim(7)" },
	{ "DEBUG", NULL, NULL, NULL },
	{ "FAULTS", NULL, NULL, NULL },
	{ "GSO", "off|on", NULL, "verbatim(7)" },
	{ "ICRC", "ignore|check", NULL, "verbatim(7)" },
	{ "LINK", "infiniband|ethernet", NULL, "verbatim(7)" },
	{ "LOCAL", "off|on", NULL, "verbatim(7)" },
	{ "SOCKETS_CONFIG", NULL, NULL, NULL },
	{ "SYSFS", "off|on", NULL, "verbatim(7)" },
};

static const char prefix[] = "VERBATIM_", tests[] = "TEST_"; /* settings of the tests */

static bool is_among(const char *word, size_t len, const char *words)
{
	for (const char *w = words; *w; w += strcspn(w, "|"), w += *w == '|')
		if (strcspn(w, "|") == len && strncmp(w, word, len) == 0)
			return true;
	return !len;
}

/* The first part of the value that means nothing, *len bytes of it; NULL: all of it means something. */
static const char *unknown_part(const struct setting *s, const char *value, size_t *len)
{
	*len = strlen(value);
	if ((!s->one && !s->several) || (s->one && is_among(value, *len, s->one)))
		return NULL;
	if (!s->several)
		return value;
	for (const char *at = value; *at; at += *len, at += *at == ',') {
		*len = strcspn(at, ",");
		if (!is_among(at, *len, s->several))
			return at;
	}
	return NULL;
}

static bool is_name(const char *entry, const char *name)
{
	size_t len = strlen(name);
	return strncmp(entry, name, len) == 0 && entry[len] == '=';
}

bool vb_setting_is_unknown(const char *entry, char why[VB_SETTING_TEXT])
{
	const char *name = entry + sizeof(prefix) - 1, *part;
	size_t len;
	if (strncmp(entry, prefix, sizeof(prefix) - 1) != 0 || strncmp(name, tests, sizeof(tests) - 1) == 0)
		return false;
	for (size_t i = 0; i < VB_ARRAY_LEN(settings); i++) {
		if (!is_name(name, settings[i].name))
			continue;
		part = unknown_part(&settings[i], name + strlen(settings[i].name) + 1, &len);
		if (part)
			snprintf(why, VB_SETTING_TEXT, "%s%s has no word '%.*s': see %s", prefix,
				 settings[i].name, (int)vb_min_u64(len, VB_SETTING_TEXT / 4), part,
				 settings[i].page);
		return part;
	}
	snprintf(why, VB_SETTING_TEXT, "%.*s is no setting: see verbatim(7)",
		 (int)vb_min_u64(strcspn(entry, "="), VB_SETTING_TEXT / 4), entry);
	return true;
}
