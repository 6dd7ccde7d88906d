/* SPDX-License-Identifier: BSD-2-Clause */
/* base/utf8.c: which bytes are characters that may be printed, and what becomes of others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/utf8.h"

#define TEXT(bytes) bytes, sizeof(bytes) - 1

struct sample {
	const char *bytes;
	size_t left, size;
};

static void check(const struct sample *samples, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (vb_printable_size(samples[i].bytes, samples[i].left) != samples[i].size)
			fail_msg("sample %zu: %zu", i, vb_printable_size(samples[i].bytes, samples[i].left));
}

static void characters__of_each_size(void **state)
{
	static const struct sample samples[] = {
		{ TEXT("a"), 1 },
		{ TEXT("\t"), 1 },
		{ TEXT("~~"), 1 },
		{ TEXT("\xc2\xa0"), 2 },	 /* U+A0, the least that is no control character */
		{ TEXT("\xdf\xbf"), 2 },
		{ TEXT("\xe0\xa0\x80"), 3 },
		{ TEXT("\xe2\x80\xa7"), 3 },	 /* U+2027 */
		{ TEXT("\xe2\x80\xaa"), 3 },	 /* U+202A */
		{ TEXT("\xed\x9f\xbf"), 3 },	 /* U+D7FF */
		{ TEXT("\xee\x80\x80"), 3 },	 /* U+E000 */
		{ TEXT("\xf0\x90\x80\x80 "), 4 },
		{ TEXT("\xf4\x8f\xbf\xbf"), 4 }, /* U+10FFFF */
	};
	check(samples, VB_ARRAY_LEN(samples));
}

static void refused__what_is_no_character(void **state)
{
	static const struct sample samples[] = {
		{ TEXT("\x80"), 0 },
		{ TEXT("\xff"), 0 },
		{ TEXT("\xc0\x80"), 0 }, /* longer than need be */
		{ TEXT("\xc1\xbf"), 0 },
		{ TEXT("\xe0\x9f\xbf"), 0 },
		{ TEXT("\xf0\x8f\xbf\xbf"), 0 },
		{ TEXT("\xc3"), 0 }, /* cut off */
		{ TEXT("\xe2\x82"), 0 },
		{ TEXT("\xf0\x90\x80"), 0 },
		{ TEXT("\xc3x"), 0 },
		{ TEXT("\xe2\x82x"), 0 },
		{ TEXT("\xed\xa0\x80"), 0 },	 /* a surrogate */
		{ TEXT("\xf4\x90\x80\x80"), 0 }, /* beyond the last */
		{ TEXT("\xf8\x88\x80\x80\x80"), 0 },
	};
	check(samples, VB_ARRAY_LEN(samples));
}

static void refused__what_ends_lines_or_controls(void **state)
{
	static const struct sample samples[] = {
		{ TEXT("\0"), 0 },	   { TEXT("\n"), 0 },	      { TEXT("\x1b"), 0 },
		{ TEXT("\x7f"), 0 },	   { TEXT("\xc2\x85"), 0 },   { TEXT("\xc2\x9f"), 0 },
		{ TEXT("\xe2\x80\xa8"), 0 }, { TEXT("\xe2\x80\xa9"), 0 }, { TEXT("\xef\xbf\xbe"), 0 },
		{ TEXT("\xef\xbf\xbf"), 0 },
	};
	check(samples, VB_ARRAY_LEN(samples));
}

static void cleaned__what_plays_tricks(void **state)
{
	static const struct {
		const char *text, *clean;
	} samples[] = {
		{ "", "" },
		{ "m\xc3\xbcnchen", "m\xc3\xbcnchen" },
		{ "a\tb\n\x1b[2J", "a?b??[2J" },
		{ "\xc2\x9b\x33\x31mred", "??31mred" }, /* U+9B begins a terminal's commands */
		{ "\x9b\xff", "??" },
		{ "\xe6\x97\xa5\xe6\x9c", "\xe6\x97\xa5??" }, /* cut off */
		{ "\xe2\x80\xa8", "???" },
	};

	for (size_t i = 0; i < VB_ARRAY_LEN(samples); i++) {
		char text[32];
		strcpy(text, samples[i].text);
		vb_clean_text(text);
		assert_string_equal(text, samples[i].clean);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(characters__of_each_size),
		cmocka_unit_test(refused__what_is_no_character),
		cmocka_unit_test(refused__what_ends_lines_or_controls),
		cmocka_unit_test(cleaned__what_plays_tricks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
