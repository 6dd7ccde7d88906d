/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/utf8.h"

#include <string.h>

#include "base/base.h"

/* first to last */
struct code_range {
	unsigned first, last;
};

/* Control characters but for the tab, what ends lines, surrogates, and what XML has not. */
static const struct code_range unprintable[] = {
	{ 0, '\t' - 1 },   { '\t' + 1, ' ' - 1 }, { 0x7f, 0x9f },	      { 0x2028, 0x2029 },
	{ 0xd800, 0xdfff }, { 0xfffe, 0xffff },	  { 0x110000, 0x1fffff },
};

static bool is_printable(unsigned code)
{
	for (unsigned i = 0; i < VB_ARRAY_LEN(unprintable); i++)
		if (code >= unprintable[i].first && code <= unprintable[i].last)
			return false;
	return true;
}

size_t vb_printable_size(const char *bytes, size_t left)
{
	/* by size, from 1: the first byte's fixed bits, and the least code that needs so many bytes */
	static const struct {
		unsigned char mask, value;
		unsigned least;
	} kinds[] = { { 0x80, 0, 0 }, { 0xe0, 0xc0, 0x80 }, { 0xf0, 0xe0, 0x800 }, { 0xf8, 0xf0, 0x10000 } };
	const unsigned char *at = (const unsigned char *)bytes;

	for (size_t size = 1; size <= VB_ARRAY_LEN(kinds) && size <= left; size++) {
		if ((at[0] & kinds[size - 1].mask) != kinds[size - 1].value)
			continue;
		unsigned code = at[0] & (unsigned char)~kinds[size - 1].mask;
		for (size_t i = 1; i < size; i++) {
			if ((at[i] & 0xc0) != 0x80)
				return 0;
			code = code << 6 | (at[i] & 0x3f);
		}
		return code >= kinds[size - 1].least && is_printable(code) ? size : 0;
	}
	return 0;
}

void vb_clean_text(char *text)
{
	for (size_t n, left = strlen(text); left; text += n, left -= n) {
		n = *text == '\t' ? 0 : vb_printable_size(text, left);
		if (!n)
			*text = '?';
		n = n ? n : 1;
	}
}
