/* SPDX-License-Identifier: BSD-2-Clause */
#include "timeline/page.h"

static void write_base64(FILE *out, const uint8_t *bytes, size_t n)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < n; i += 3) {
		size_t left = n - i;
		uint32_t v = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
			     (left > 2 ? bytes[i + 2] : 0);
		char four[4] = { digits[v >> 18], digits[v >> 12 & 63],
				 left > 1 ? digits[v >> 6 & 63] : '=', left > 2 ? digits[v & 63] : '=' };
		fwrite(four, sizeof(four), 1, out);
	}
}

void timeline_write_page(FILE *out, const uint8_t *capture, size_t bytes)
{
	fwrite(timeline_page_before, timeline_page_before_bytes, 1, out);
	fputs("<script type=\"application/json\" id=\"formats\">", out);
	timeline_write_formats(out);
	fputs("</script>\n<script type=\"application/x-pcapng;base64\" id=\"capture\">", out);
	write_base64(out, capture, bytes);
	fputs("</script>\n", out);
	fwrite(timeline_page_after, timeline_page_after_bytes, 1, out);
}
