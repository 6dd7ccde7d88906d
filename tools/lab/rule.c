/* SPDX-License-Identifier: BSD-2-Clause */
/* Settings of a way as text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "way.h"

enum kind { SHARE, TIME, RATE, BYTES, MARKS, CUT, CLEAR };

struct unit {
	const char *name;
	double factor;
};

static const struct unit times[] = { { "ns", 1 }, { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 }, { NULL } };
static const struct unit rates[] = {
	{ "bit", 1 }, { "kbit", 1e3 }, { "mbit", 1e6 }, { "gbit", 1e9 }, { NULL },
};
static const struct unit sizes[] = { { "", 1 }, { "k", 1e3 }, { "m", 1e6 }, { NULL } };
static const struct unit shares[] = { { "%", LAB_SHARE_ONE / 100.0 }, { NULL } };

#define WHERE(field) offsetof(struct lab_rule, field)

static const struct setting {
	const char *name;
	enum kind kind;
	size_t where;
} settings[] = {
	{ "rate", RATE, WHERE(rate) },
	{ "delay", TIME, WHERE(delay_ns) },
	{ "jitter", TIME, WHERE(jitter_ns) },
	{ "loss", SHARE, WHERE(loss) },
	{ "duplicate", SHARE, WHERE(duplicate) },
	{ "reorder", SHARE, WHERE(reorder) },
	{ "late", TIME, WHERE(late_ns) },
	{ "corrupt", SHARE, WHERE(corrupt) },
	{ "queue", BYTES, WHERE(queue_bytes) },
	{ "ecn", MARKS, WHERE(mark_from) },
	{ "down", CUT, WHERE(is_cut) },
	{ "up", CUT, WHERE(is_cut) },
	{ "clear", CLEAR, 0 },
};
enum { SETTINGS = sizeof(settings) / sizeof(settings[0]), DEFAULT_LATE_NS = 100000 };

/*
 * Reads a number and its unit, which is the rest of the word. Refuses a number that is too large, and one
 * that is not 0 but would be rounded to 0.
 */
static bool scale(const char *word, const struct unit *units, double *value)
{
	char *end;

	if (!word || *word < '0' || *word > '9')
		return false;
	*value = strtod(word, &end);
	for (; units->name; units++)
		if (strcmp(end, units->name) == 0) {
			*value *= units->factor;
			return *value < 1e15 && (*value == 0 || *value >= 0.5);
		}
	return false;
}

static bool read_share(uint32_t *share, const char *word, char why[LAB_WHY_BYTES])
{
	double value;

	if (!scale(word, shares, &value) || value > LAB_SHARE_ONE)
		return lab_refuse(why, "a share is a number of percent, such as 0.5%", word);
	*share = (uint32_t)(value + 0.5);
	return true;
}

bool lab_time_parse(const char *text, uint64_t *ns)
{
	double value;

	if (!scale(text, times, &value))
		return false;
	*ns = (uint64_t)(value + 0.5);
	return true;
}

static bool read_number(uint64_t *number, const char *word, const struct unit *units, const char *wanted,
			char why[LAB_WHY_BYTES])
{
	double value;

	if (!scale(word, units, &value))
		return lab_refuse(why, wanted, word);
	*number = (uint64_t)(value + 0.5);
	return true;
}

static const char size_wanted[] = "a size is a number of bytes, such as 64k";

/* FROM-TO: bytes in the queue. */
static bool read_marks(struct lab_rule *rule, char *word, char why[LAB_WHY_BYTES])
{
	char *to = word ? strchr(word, '-') : NULL;

	if (!to)
		return lab_refuse(why, "ecn takes two sizes of the queue, such as 30k-90k", word);
	*to = '\0';
	if (!read_number(&rule->mark_from, word, sizes, size_wanted, why) ||
	    !read_number(&rule->mark_to, to + 1, sizes, size_wanted, why))
		return false;
	return rule->mark_from < rule->mark_to || lab_refuse(why, "the second size must be the larger one", to + 1);
}

static bool read_setting(struct lab_rule *rule, const struct setting *s, char **rest, char why[LAB_WHY_BYTES])
{
	void *where = (char *)rule + s->where;

	switch (s->kind) {
	case CUT:
		rule->is_cut = s->name[0] == 'd';
		return true;
	case CLEAR:
		*rule = (struct lab_rule){ 0 };
		return true;
	case SHARE:
		return read_share(where, strtok_r(NULL, " ", rest), why);
	case TIME:
		return read_number(where, strtok_r(NULL, " ", rest), times, "a time has a unit, such as 50us",
				   why);
	case RATE:
		return read_number(where, strtok_r(NULL, " ", rest), rates, "a rate has a unit, such as 10gbit",
				   why);
	case BYTES:
		return read_number(where, strtok_r(NULL, " ", rest), sizes, size_wanted, why);
	case MARKS:
		return read_marks(rule, strtok_r(NULL, " ", rest), why);
	}
	return false;
}

static const struct setting *find_setting(const char *name)
{
	for (size_t i = 0; i < SETTINGS; i++)
		if (strcmp(settings[i].name, name) == 0)
			return &settings[i];
	return NULL;
}

bool lab_rule_parse(struct lab_rule *rule, const char *text, char why[LAB_WHY_BYTES])
{
	struct lab_rule changed = *rule;
	char words[512], *rest;

	if (snprintf(words, sizeof(words), "%s", text) >= (int)sizeof(words))
		return lab_refuse(why, "too many words", text);
	for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		const struct setting *s = find_setting(word);
		if (!s)
			return lab_refuse(why, "a link has no such setting", word);
		if (!read_setting(&changed, s, &rest, why))
			return false;
	}
	if (changed.reorder && !changed.late_ns)
		changed.late_ns = DEFAULT_LATE_NS;
	*rule = changed;
	return true;
}

/* ---- back ---- */

/* The value with the largest unit of which it has a whole number. */
static int print_scaled(char *text, size_t size, const char *name, uint64_t value, const struct unit *units)
{
	const struct unit *best = units;

	for (; units->name; units++)
		if (value % (uint64_t)units->factor == 0)
			best = units;
	return snprintf(text, size, " %s %llu%s", name, (unsigned long long)(value / (uint64_t)best->factor),
			best->name);
}

static int print_setting(const struct lab_rule *rule, const struct setting *s, char *text, size_t size)
{
	const void *where = (const char *)rule + s->where;
	const uint64_t *number = where;
	const uint32_t *share = where;

	switch (s->kind) {
	case CUT:
		return rule->is_cut && s->name[0] == 'd' ? snprintf(text, size, " down") : 0;
	case SHARE:
		return *share ? snprintf(text, size, " %s %g%%", s->name, *share * 100.0 / LAB_SHARE_ONE) : 0;
	case TIME:
		return *number ? print_scaled(text, size, s->name, *number, times) : 0;
	case RATE:
		return *number ? print_scaled(text, size, s->name, *number, rates) : 0;
	case BYTES:
		return *number ? snprintf(text, size, " %s %llu", s->name, (unsigned long long)*number) : 0;
	case MARKS:
		return rule->mark_to ?
			snprintf(text, size, " ecn %llu-%llu", (unsigned long long)rule->mark_from,
				 (unsigned long long)rule->mark_to) : 0;
	case CLEAR:
		break;
	}
	return 0;
}

void lab_rule_text(const struct lab_rule *rule, char *text, size_t size)
{
	size_t n = 0;

	snprintf(text, size, "clear");
	for (size_t i = 0; i < SETTINGS && n < size; i++)
		n += (size_t)print_setting(rule, &settings[i], text + n, size - n);
	if (text[0] == ' ')
		memmove(text, text + 1, strlen(text));
}
