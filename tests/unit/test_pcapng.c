/* SPDX-License-Identifier: BSD-2-Clause */
/* The file that verbatim capture writes: its blocks, read back field by field; and the IP packets in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../tools/frame.h"
#include "../../tools/pcapng.h"
#include "wire/icrc.h"

enum { SECTION = 0x0a0d0d0a, RAW_IP = 101 };

/* ---- reading ---- */

struct file {
	char *bytes;
	size_t len, at;
};

static uint32_t u32(const void *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}

static uint16_t u16(const void *p)
{
	uint16_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}

/* The next block's body; its length goes to *len. Both lengths agree and are multiples of 4. */
static const char *next_block(struct file *f, uint32_t type, uint32_t *len)
{
	const char *block = f->bytes + f->at;
	assert_true(f->len - f->at >= 12);
	assert_int_equal(u32(block), type);
	*len = u32(block + 4);
	assert_true(*len % 4 == 0 && *len >= 12 && *len <= f->len - f->at);
	assert_int_equal(u32(block + *len - 4), *len);
	f->at += *len;
	*len -= 12;
	return block + 8;
}

/* An option of the list between two places; NULL if it has none. The list must end properly. */
static const char *find_option(const char *list, const char *end, uint16_t code, uint16_t *len)
{
	const char *found = NULL;
	while (u16(list) != 0) {
		assert_true(list + 4 < end);
		if (u16(list) == code) {
			*len = u16(list + 2);
			found = list + 4;
		}
		list += 4 + ((u16(list + 2) + 3) & ~3);
	}
	assert_int_equal(u16(list + 2), 0);
	assert_ptr_equal(list + 4, end);
	return found;
}

static void assert_text(const char *list, const char *end, uint16_t code, const char *text)
{
	uint16_t len = 0;
	const char *found = find_option(list, end, code, &len);
	assert_non_null(found);
	assert_int_equal(len, strlen(text));
	assert_memory_equal(found, text, len);
}

static void assert_number(const char *list, const char *end, uint16_t code, uint64_t number, uint16_t bytes)
{
	uint16_t len = 0;
	const char *found = find_option(list, end, code, &len);
	assert_non_null(found);
	assert_int_equal(len, bytes);
	assert_memory_equal(found, &number, bytes);
}

/* ---- blocks ---- */

static void section__begins_the_file(void **state)
{
	struct file f = { .at = 0 };
	struct pcapng p;
	uint32_t len;
	FILE *out = open_memstream(&f.bytes, &f.len);
	pcapng_begin(&p, out, "me");
	fclose(out);
	const char *b = next_block(&f, SECTION, &len);
	assert_int_equal(u32(b), 0x1a2b3c4d);
	assert_int_equal(u16(b + 4), 1);
	assert_int_equal(u16(b + 6), 0);
	assert_true(u32(b + 8) == UINT32_MAX && u32(b + 12) == UINT32_MAX);
	assert_text(b + 16, b + len, 4, "me");
	assert_int_equal(f.at, f.len);
	free(f.bytes);
}

static void interface__has_name_and_resolution(void **state)
{
	struct file f = { .at = 0 };
	uint32_t len;
	FILE *out = open_memstream(&f.bytes, &f.len);
	struct pcapng p = { .out = out };
	assert_int_equal(pcapng_interface(&p, "rping[1]", "about it", 77), 0);
	assert_int_equal(pcapng_interface(&p, "x", "", 0), 1);
	fclose(out);
	const char *b = next_block(&f, 1, &len);
	assert_int_equal(u16(b), RAW_IP);
	assert_int_equal(u32(b + 4), 77);
	assert_text(b + 8, b + len, 2, "rping[1]");
	assert_text(b + 8, b + len, 3, "about it");
	assert_number(b + 8, b + len, 9, 9, 1);
	next_block(&f, 1, &len);
	assert_int_equal(f.at, f.len);
	free(f.bytes);
}

static void event__is_a_block_of_its_own(void **state)
{
	for (uint32_t n = 0; n < 9; n++) {
		struct file f = { .at = 0 };
		uint32_t len;
		FILE *out = open_memstream(&f.bytes, &f.len);
		struct pcapng p = { .out = out };
		pcapng_event(&p, 3, 0x123456789abcdef0, "12345678", 8, "abcdefghi", n);
		fclose(out);
		const char *b = next_block(&f, PCAPNG_EVENT, &len);
		assert_int_equal(len, 20 + ((n + 3) & ~3u));
		assert_int_equal(u32(b), 3);
		assert_int_equal(u32(b + 4), 0x12345678);
		assert_int_equal(u32(b + 8), 0x9abcdef0);
		assert_memory_equal(b + 12, "12345678", 8);
		assert_memory_equal(b + 20, "abcdefghi", n);
		assert_int_equal(f.at, f.len);
		free(f.bytes);
	}
}

/* Of all lengths modulo 4. */
static void packet__keeps_its_bytes(void **state)
{
	for (uint32_t n = 0; n < 9; n++) {
		struct file f = { .at = 0 };
		uint32_t len;
		FILE *out = open_memstream(&f.bytes, &f.len);
		struct pcapng p = { .out = out };
		pcapng_packet(&p, &(struct pcapng_packet){ .interface = 3,
							   .time_ns = 0x123456789abcdef0,
							   .bytes = "abcdefghi",
							   .kept = n,
							   .len = 100,
							   .goes_out = n & 1,
							   .dropped = n > 4 ? 5 : 0,
							   .comment = n > 2 ? "said" : NULL });
		fclose(out);
		const char *b = next_block(&f, 6, &len), *options = b + 20 + ((n + 3) & ~3u), *end = b + len;
		uint16_t none;
		assert_int_equal(u32(b), 3);
		assert_int_equal(u32(b + 4), 0x12345678);
		assert_int_equal(u32(b + 8), 0x9abcdef0);
		assert_int_equal(u32(b + 12), n);
		assert_int_equal(u32(b + 16), 100);
		assert_memory_equal(b + 20, "abcdefghi", n);
		assert_number(options, end, 2, n & 1 ? 2 : 1, 4);
		if (n > 2)
			assert_text(options, end, 1, "said");
		else
			assert_null(find_option(options, end, 1, &none));
		if (n > 4)
			assert_number(options, end, 4, 5, 8);
		else
			assert_null(find_option(options, end, 4, &none));
		assert_int_equal(f.at, f.len);
		free(f.bytes);
	}
}

static void statistics__tell_drops(void **state)
{
	struct file f = { .at = 0 };
	uint32_t len;
	FILE *out = open_memstream(&f.bytes, &f.len);
	struct pcapng p = { .out = out };
	pcapng_statistics(&p, 2, 0x100000002, 1000, 17);
	fclose(out);
	const char *b = next_block(&f, 5, &len);
	assert_int_equal(u32(b), 2);
	assert_int_equal(u32(b + 4), 1);
	assert_int_equal(u32(b + 8), 2);
	assert_number(b + 12, b + len, 4, 1000, 8);
	assert_number(b + 12, b + len, 5, 17, 8);
	free(f.bytes);
}

/* ---- packets ---- */

static struct frame frame;

static uint32_t be16(const uint8_t *p) { return (uint32_t)p[0] << 8 | p[1]; }

static uint32_t ones_sum(uint32_t s, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i + 1 < n; i += 2)
		s += be16(p + i);
	if (n % 2)
		s += (uint32_t)p[n - 1] << 8;
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	return s;
}

static struct vb_capture_packet captured(bool v4, uint32_t len, uint32_t kept, unsigned flags)
{
	struct vb_capture_packet p = { .len = len,
				       .kept = kept,
				       .source_port = 0xc123,
				       .ip_id = v4 ? 7 : 0,
				       .traffic_class = 0x22,
				       .hop_limit = 9,
				       .flow_label = 0x54321,
				       .flags = (uint8_t)flags };
	memset(p.source, v4 ? 0 : 0x20, 16);
	memset(p.destination, v4 ? 0 : 0x30, 16);
	if (v4) {
		memset(p.source + 10, 0xff, 2);
		memset(p.destination + 10, 0xff, 2);
	}
	p.source[15] = 1;
	p.destination[15] = 2;
	return p;
}

static const uint8_t *make(bool v4, uint32_t len, uint32_t kept, unsigned flags)
{
	static uint8_t bytes[65536];
	struct vb_capture_packet p = captured(v4, len, kept, flags);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7);
	frame_make(&frame, &p, bytes);
	return frame.bytes + (v4 ? 20 : 40);
}

static bool icrc_is_right(bool v4)
{
	struct vb_capture_packet p = captured(v4, 0, 0, 0);
	struct vb_icrc_route route = { .ip_version = v4 ? 4 : 6,
				       .source_port = 0xc123,
				       .destination_port = 4791 };
	size_t ip = v4 ? 20 : 40;
	memcpy(route.source, p.source + (v4 ? 12 : 0), v4 ? 4 : 16);
	memcpy(route.destination, p.destination + (v4 ? 12 : 0), v4 ? 4 : 16);
	return vb_icrc_check(&route, frame.bytes + ip + 8, frame.len - ip - 8, 7);
}

static void frame__ipv4_is_as_on_a_wire(void **state)
{
	const uint8_t *udp = make(true, 48, 48, 0), *ip = frame.bytes;
	assert_int_equal(frame.len, 20 + 8 + 48 + 4);
	assert_int_equal(frame.kept, frame.len);
	assert_int_equal(ip[0], 0x45);
	assert_int_equal(ip[1], 0x22);
	assert_int_equal(be16(ip + 2), frame.len);
	assert_int_equal(be16(ip + 4), 7);
	assert_int_equal(be16(ip + 6), 0x4000);
	assert_int_equal(ip[8], 9);
	assert_int_equal(ones_sum(0, ip, 20), 0xffff);
	assert_int_equal(be16(udp), 0xc123);
	assert_int_equal(be16(udp + 2), 4791);
	assert_int_equal(be16(udp + 4), frame.len - 20);
	assert_int_equal(ones_sum(ones_sum(17 + be16(udp + 4), ip + 12, 8), udp, frame.len - 20), 0xffff);
	assert_true(icrc_is_right(true));
}

static void frame__ipv6_is_as_on_a_wire(void **state)
{
	const uint8_t *udp = make(false, 50, 50, 0), *ip = frame.bytes;
	assert_int_equal(frame.len, 40 + 8 + 50 + 4);
	assert_int_equal(ip[0] << 24 | ip[1] << 16 | ip[2] << 8 | ip[3], 0x62254321);
	assert_int_equal(be16(ip + 4), frame.len - 40);
	assert_int_equal(ip[6], 17);
	assert_int_equal(ip[7], 9);
	assert_int_equal(ones_sum(ones_sum(17 + be16(udp + 4), ip + 8, 32), udp, frame.len - 40), 0xffff);
	assert_true(icrc_is_right(false));
}

/* The bytes that a process saw stay, right or wrong. */
static void frame__keeps_an_icrc(void **state)
{
	const uint8_t *udp = make(true, 48, 48, VB_CAPTURE_HAS_ICRC);
	assert_int_equal(frame.len, 20 + 8 + 48);
	for (unsigned i = 0; i < 48; i++)
		assert_int_equal(udp[8 + i], (uint8_t)(i * 7));
	assert_false(icrc_is_right(true));
}

static void frame__cut(void **state)
{
	const uint8_t *udp = make(true, 1000, 100, 0);
	assert_int_equal(frame.len, 20 + 8 + 1000 + 4);
	assert_int_equal(frame.kept, 20 + 8 + 100);
	assert_int_equal(be16(udp + 4), 8 + 1000 + 4);
	assert_int_equal(be16(udp + 6), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(section__begins_the_file),
		cmocka_unit_test(interface__has_name_and_resolution),
		cmocka_unit_test(event__is_a_block_of_its_own),
		cmocka_unit_test(packet__keeps_its_bytes),
		cmocka_unit_test(statistics__tell_drops),
		cmocka_unit_test(frame__ipv4_is_as_on_a_wire),
		cmocka_unit_test(frame__ipv6_is_as_on_a_wire),
		cmocka_unit_test(frame__keeps_an_icrc),
		cmocka_unit_test(frame__cut),
	};
	return cmocka_run_group_tests_name("pcapng", tests, NULL, NULL);
}
