/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "../between.h"
#include "wire/icrc.h"

enum { MAX_BYTES = 4200 };

/* CRC-32 of Ethernet, one bit at a time, straight from its definition. */
static uint32_t crc_by_bits(uint32_t reg, const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		for (unsigned bit = 0; bit < 8; bit++) {
			uint32_t feedback = (reg ^ p[i] >> bit) & 1;
			reg >>= 1;
			if (feedback)
				reg ^= 0xedb88320u;
		}
	return reg;
}

/* The ICRC of a whole IP datagram (header to the end of the packet without ICRC), masked here in place. */
static void reference(uint8_t *ip, size_t len, uint8_t out[4])
{
	uint8_t ones[8];
	size_t ip_bytes = ip[0] >> 4 == 4 ? 20 : 40;
	uint32_t reg;

	memset(ones, 0xff, sizeof(ones));
	if (ip_bytes == 20) {
		ip[1] = ip[8] = ip[10] = ip[11] = 0xff;
	} else {
		ip[0] |= 0x0f;
		ip[1] = ip[2] = ip[3] = ip[7] = 0xff;
	}
	ip[ip_bytes + 6] = ip[ip_bytes + 7] = 0xff;
	ip[ip_bytes + 8 + 4] = 0xff;
	reg = ~crc_by_bits(crc_by_bits(0xffffffffu, ones, 8), ip, len);
	for (unsigned i = 0; i < 4; i++)
		out[i] = (uint8_t)(reg >> 8 * i);
}

static uint64_t random_state = 1;

static uint32_t next_random(void)
{
	random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)(random_state >> 32);
}

/*
 * An IP datagram with a packet of `len` bytes (BTH to ICRC), everything random that may be. Returns where the
 * BTH is.
 */
static uint8_t *make_datagram(uint8_t *ip, unsigned version, size_t len, struct vb_icrc_route *route)
{
	size_t ip_bytes = version == 4 ? 20 : 40, udp_len = 8 + len, address = version == 4 ? 4 : 16;
	uint8_t *udp = ip + ip_bytes, *packet = udp + 8;

	for (size_t i = 0; i < ip_bytes + 8 + len; i++)
		ip[i] = (uint8_t)next_random();
	if (version == 4) {
		ip[0] = 0x45;
		ip[2] = (uint8_t)((20 + udp_len) >> 8);
		ip[3] = (uint8_t)(20 + udp_len);
		ip[6] = 0x40;
		ip[7] = 0;
		ip[9] = 17;
	} else {
		ip[0] = (uint8_t)(0x60 | (ip[0] & 0xf));
		ip[4] = (uint8_t)(udp_len >> 8);
		ip[5] = (uint8_t)udp_len;
		ip[6] = 17;
	}
	udp[4] = (uint8_t)(udp_len >> 8);
	udp[5] = (uint8_t)udp_len;
	*route = (struct vb_icrc_route){ .ip_version = (uint8_t)version,
		.source_port = (uint16_t)(udp[0] << 8 | udp[1]),
			.destination_port = (uint16_t)(udp[2] << 8 | udp[3]) };
	memcpy(route->source, ip + ip_bytes - 2 * address, address);
	memcpy(route->destination, ip + ip_bytes - address, address);

	uint8_t masked[48 + MAX_BYTES], icrc[4];
	memcpy(masked, ip, ip_bytes + 8 + len);
	reference(masked, ip_bytes + 8 + len - 4, icrc);
	memcpy(packet + len - 4, icrc, 4);
	return packet;
}

static uint16_t id_of(const uint8_t *ip)
{
	return (uint16_t)(ip[4] << 8 | ip[5]);
}

static void icrc_check__agrees_with_the_definition(void **state)
{
	uint8_t ip[48 + MAX_BYTES];
	struct vb_icrc_route route;

	(void)state;
	for (unsigned i = 0; i < 300; i++) {
		unsigned version = i % 2 ? 4 : 6;
		size_t len = 16 + next_random() % (MAX_BYTES - 16);
		uint8_t *packet = make_datagram(ip, version, len, &route);
		assert_true(vb_icrc_check(&route, packet, len, id_of(ip)));
		packet[4] ^= 0xc0;	/* congestion marks may change under way */
		assert_true(vb_icrc_check(&route, packet, len, id_of(ip)));
		packet[5 + next_random() % (len - 5)] ^= 0x10;
		assert_false(vb_icrc_check(&route, packet, len, id_of(ip)));
	}
}

/* Captured on a ConnectX-4 Lx: IPv4 addresses, ports, identification, packet from the BTH on. */
static void icrc_check__packet_of_a_hardware_nic(void **state)
{
	static const uint8_t packet[] = { 0x81, 0x00, 0xff, 0xff, 0x40, 0x00, 0x01, 0x18, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x82, 0xfd, 0x00, 0x2a };
	struct vb_icrc_route route = { .ip_version = 4, .source = { 10, 0, 0x11, 1 }, .destination = { 10, 0,
		0x12, 1 },
		.source_port = 0, .destination_port = 4791 };
	struct vb_icrc_solver solver = { 0 };
	uint16_t id = 0;

	(void)state;
	assert_true(vb_icrc_check(&route, packet, sizeof(packet), 0x718c));
	assert_false(vb_icrc_check(&route, packet, sizeof(packet), 0));
	assert_true(vb_icrc_check_any_ip_id(&solver, &route, NULL, packet, sizeof(packet), &id));
	assert_int_equal(id, 0x718c);
}

static void icrc_check__impossible_lengths(void **state)
{
	struct vb_icrc_route route = { .ip_version = 4 };
	struct vb_icrc_solver solver = { 0 };
	static uint8_t bytes[70000];
	uint16_t id = 0;

	(void)state;
	for (size_t len = 0; len < 16; len++) {
		assert_false(vb_icrc_check(&route, bytes, len, 0));
		assert_false(vb_icrc_check_any_ip_id(&solver, &route, NULL, bytes, len, &id));
	}
	assert_false(vb_icrc_check(&route, bytes, sizeof(bytes), 0));
}

static void icrc_check_any_ip_id__finds_each(void **state)
{
	uint8_t ip[48 + MAX_BYTES];
	struct vb_icrc_route route;
	struct vb_icrc_solver solver = { 0 };
	uint16_t id = 0;

	(void)state;
	for (unsigned i = 0; i < 500; i++) {
		size_t len = i % 3 ? 1024 + 16 : 16 + next_random() % (MAX_BYTES - 16);
		uint8_t *packet = make_datagram(ip, 4, len, &route);
		id = (uint16_t)next_random(); /* whatever is guessed, a right guess included */
		assert_true(vb_icrc_check_any_ip_id(&solver, &route, NULL, packet, len, &id));
		assert_int_equal(id, id_of(ip));
		assert_true(vb_icrc_check_any_ip_id(&solver, &route, NULL, packet, len, &id));
		assert_int_equal(id, id_of(ip));
	}
}

/* A flipped bit is never mistaken for an identification: it is a burst of its own elsewhere. */
static void icrc_check_any_ip_id__damage_is_found(void **state)
{
	uint8_t ip[48 + MAX_BYTES];
	struct vb_icrc_route route;
	struct vb_icrc_solver solver = { 0 };
	unsigned passed = 0;
	uint16_t id = 0;

	(void)state;
	for (unsigned i = 0; i < 2000; i++) {
		uint8_t *packet = make_datagram(ip, 4, 200, &route);
		unsigned first = next_random() % 200, second = next_random() % 200;
		if (first == 4 || second == 4 || first == second)
			continue;
		packet[first] ^= (uint8_t)(1 + next_random() % 255);
		packet[second] ^= (uint8_t)(1 + next_random() % 255);
		passed += vb_icrc_check_any_ip_id(&solver, &route, NULL, packet, 200, &id);
	}
	assert_between(passed, 0, 1);
	uint8_t *packet = make_datagram(ip, 6, 200, &route);
	assert_true(vb_icrc_check_any_ip_id(&solver, &route, NULL, packet, 200, &id));
	packet[100] ^= 1;
	assert_false(vb_icrc_check_any_ip_id(&solver, &route, NULL, packet, 200, &id));
}

/* Packets of one route, of few lengths and identifications, that come again and again; some with
 * congestion marks. */
static void icrc_known__changes_nothing(void **state)
{
	uint8_t ip[48 + MAX_BYTES];
	struct vb_icrc_known known;
	struct vb_icrc_solver solver = { 0 };
	struct vb_icrc_route route, first;

	(void)state;
	for (unsigned i = 0; i < 4000; i++) {
		unsigned version = i / 1000 % 2 ? 4 : 6;
		size_t len = 16 + 4 * (next_random() % 6);
		uint8_t *packet = make_datagram(ip, version, len, &route), icrc[4];
		uint16_t id = (uint16_t)(next_random() % 4 * (next_random() % 2 ? 1 : 64)), found = id;
		if (i % 1000 == 0) {
			first = route;
			memset(&known, 0, sizeof(known));
		}
		packet[4] = i % 5 ? 0 : 0xc0;
		vb_icrc_sign(&first, NULL, packet, len, id);
		memcpy(icrc, packet + len - 4, 4);
		memset(packet + len - 4, 0, 4);
		vb_icrc_sign(&first, &known, packet, len, id);
		assert_memory_equal(packet + len - 4, icrc, 4);
		assert_true(vb_icrc_check_any_ip_id(&solver, &first, &known, packet, len, &found));
		assert_int_equal(found, id);
		packet[12 + next_random() % (len - 12)] ^= (uint8_t)(1u << next_random() % 8);
		assert_false(vb_icrc_check(&first, packet, len, id));
		found = id;
		assert_true(!vb_icrc_check_any_ip_id(&solver, &first, &known, packet, len, &found) ||
			    found != id);
	}
}

static void icrc_add__pieces_are_the_whole(void **state)
{
	uint8_t ip[48 + MAX_BYTES], icrc[4];
	struct vb_icrc_route route;
	struct vb_bth bth;
	const size_t len = 300;
	uint8_t *packet = make_datagram(ip, 4, len, &route);
	uint32_t crc;

	(void)state;
	memcpy(&bth, packet, sizeof(bth));
	crc = vb_icrc_begin(&route, &bth, len, id_of(ip));
	for (size_t at = 12; at < len - 4; at += 71)
		crc = vb_icrc_add(crc, packet + at, at + 71 < len - 4 ? 71 : len - 4 - at);
	crc = vb_icrc_add(crc, NULL, 0);
	vb_icrc_store(crc, icrc);
	assert_memory_equal(icrc, packet + len - 4, 4);
}

#ifdef __x86_64__
/* Which parts of the register state are in use, a bit for each. 0 if this processor cannot tell. */
static __attribute__((target("xsave"))) uint64_t parts_in_use(void)
{
	enum { FEATURES = 0xd, XGETBV_1 = 1 << 2 };
	unsigned a = 0, b, c, d;

	if (!__builtin_cpu_supports("avx512f") || !__get_cpuid_count(FEATURES, 1, &a, &b, &c, &d) ||
	    !(a & XGETBV_1))
		return 0;
	return (uint64_t)__builtin_ia32_xgetbv(1);
}

/* SSE instructions are slow behind AVX-512's until the upper parts of the first 16 registers are cleared. */
static void icrc_add__leaves_no_upper_parts_in_use(void **state)
{
	enum { UPPER_128 = 1 << 2, UPPER_256 = 1 << 6 };
	static uint8_t bytes[MAX_BYTES];

	(void)state;
	for (size_t len = 1; len <= MAX_BYTES; len += len < 300 ? 1 : 100) {
		vb_icrc_add(0, bytes, len);
		assert_int_equal(parts_in_use() & (UPPER_128 | UPPER_256), 0);
	}
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(icrc_check__agrees_with_the_definition),
		cmocka_unit_test(icrc_check__packet_of_a_hardware_nic),
		cmocka_unit_test(icrc_check__impossible_lengths),
		cmocka_unit_test(icrc_check_any_ip_id__finds_each),
		cmocka_unit_test(icrc_check_any_ip_id__damage_is_found),
		cmocka_unit_test(icrc_known__changes_nothing),
		cmocka_unit_test(icrc_add__pieces_are_the_whole),
#ifdef __x86_64__
		cmocka_unit_test(icrc_add__leaves_no_upper_parts_in_use),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
