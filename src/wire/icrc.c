/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/icrc.h"

#include <isa-l/crc.h>

enum {
	LINK_BYTES = 8,
	IP4_BYTES = 20,
	IP6_BYTES = 40,
	UDP_BYTES = 8,
	IP4_ID_END = LINK_BYTES + 6,	/* of the identification, in the covered bytes */
	IP4_BEFORE_BTH = LINK_BYTES + IP4_BYTES + UDP_BYTES,
	MAX_BEFORE_BTH = LINK_BYTES + IP6_BYTES + UDP_BYTES,
	BTH_MASKED_BYTE = 4,
	PROTOCOL_UDP = 17,
};

static uint8_t *put16(uint8_t *p, size_t v)
{
	*p++ = (uint8_t)(v >> 8);
	*p++ = (uint8_t)v;
	return p;
}

static uint8_t *put_bytes(uint8_t *p, const void *bytes, size_t len)
{
	memcpy(p, bytes, len);
	return p + len;
}

static uint8_t *put_ones(uint8_t *p, size_t len)
{
	memset(p, 0xff, len);
	return p + len;
}

static uint8_t *put_ip4(uint8_t *p, const struct vb_icrc_route *route, size_t udp_bytes, uint16_t ip_id)
{
	*p++ = 0x45;
	p = put_ones(p, 1);
	p = put16(p, IP4_BYTES + udp_bytes);
	p = put16(p, ip_id);
	p = put16(p, 0x4000);	/* DF */
	p = put_ones(p, 1);
	*p++ = PROTOCOL_UDP;
	p = put_ones(p, 2);
	p = put_bytes(p, route->source, 4);
	return put_bytes(p, route->destination, 4);
}

static uint8_t *put_ip6(uint8_t *p, const struct vb_icrc_route *route, size_t udp_bytes)
{
	*p++ = 0x6f;
	p = put_ones(p, 3);
	p = put16(p, udp_bytes);
	*p++ = PROTOCOL_UDP;
	p = put_ones(p, 1);
	p = put_bytes(p, route->source, 16);
	return put_bytes(p, route->destination, 16);
}

/* Up to the BTH. */
static uint32_t before_bth(const struct vb_icrc_route *route, size_t udp_bytes, uint16_t ip_id)
{
	uint8_t covered[MAX_BEFORE_BTH], *p = put_ones(covered, LINK_BYTES);
	size_t datagram_bytes = UDP_BYTES + udp_bytes;

	p = route->ip_version == 4 ? put_ip4(p, route, datagram_bytes, ip_id) :
				     put_ip6(p, route, datagram_bytes);
	p = put16(p, route->source_port);
	p = put16(p, route->destination_port);
	p = put16(p, datagram_bytes);
	p = put_ones(p, 2);
	return vb_icrc_add(0, covered, (size_t)(p - covered));
}

static uint32_t add_bth(uint32_t crc, const void *bth)
{
	uint8_t masked[VB_BTH_BYTES];

	put_bytes(masked, bth, VB_BTH_BYTES);
	masked[BTH_MASKED_BYTE] = 0xff;
	return vb_icrc_add(crc, masked, sizeof(masked));
}

uint32_t vb_icrc_begin(const struct vb_icrc_route *route, const struct vb_bth *bth, size_t udp_bytes,
		       uint16_t ip_id)
{
	return add_bth(before_bth(route, udp_bytes, ip_id), bth);
}

/*
 * ISA-L's CRC for AVX-512 leaves the upper parts of vector registers in use. Until they are cleared, the next
 * SSE instruction waits for some 200 ns on Intel's processors: longer than the CRC of a packet takes.
 */
static void clear_upper_parts(void)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx512f"))
		__asm__ volatile("vzeroupper");
#endif
}

uint32_t vb_icrc_add(uint32_t crc, const void *bytes, size_t len)
{
	if (!len)
		return crc;
	crc = crc32_gzip_refl(crc, bytes, len);
	clear_upper_parts();
	return crc;
}

void vb_icrc_store(uint32_t crc, uint8_t out[VB_ICRC_BYTES])
{
	for (unsigned i = 0; i < VB_ICRC_BYTES; i++)
		out[i] = (uint8_t)(crc >> 8 * i);
}

static uint32_t stored(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t compute(uint32_t before, const uint8_t *packet, size_t len)
{
	return vb_icrc_add(add_bth(before, packet), packet + VB_BTH_BYTES,
			   len - VB_ICRC_BYTES - VB_BTH_BYTES);
}

static uint32_t compute_as_it_lies(uint32_t before, const uint8_t *packet, size_t len)
{
	return vb_icrc_add(before, packet, len - VB_ICRC_BYTES);
}

static uint32_t icrc_of(const struct vb_icrc_route *route, struct vb_icrc_known *known, const uint8_t *packet,
			size_t len, uint16_t ip_id)
{
	struct vb_icrc_constant none = { 0 },
				*c = known ? &known->of[(len / 4 ^ ip_id) % VB_ARRAY_LEN(known->of)] : &none;
	bool came_before = c->len == len && c->ip_id == ip_id, is_unmarked = !packet[BTH_MASKED_BYTE];

	if (is_unmarked && came_before && c->is_whole)
		return compute_as_it_lies(c->before, packet, len) ^ c->ones;
	if (!came_before)
		*c = (struct vb_icrc_constant){ .before = before_bth(route, len, ip_id),
						.len = (uint16_t)len,
						.ip_id = ip_id };
	uint32_t crc = compute(c->before, packet, len);
	/* cached only at the second packet of this length, because the cache costs a second pass */
	if (is_unmarked && came_before) {
		c->ones = crc ^ compute_as_it_lies(c->before, packet, len);
		c->is_whole = true;
	}
	return crc;
}

void vb_icrc_sign(const struct vb_icrc_route *route, struct vb_icrc_known *known, void *packet, size_t len,
		  uint16_t ip_id)
{
	vb_icrc_store(icrc_of(route, known, packet, len, ip_id), (uint8_t *)packet + len - VB_ICRC_BYTES);
}

/* What is wrong with the ICRC, as a difference of CRCs. */
static uint32_t difference(const struct vb_icrc_route *route, struct vb_icrc_known *known,
			   const uint8_t *packet, size_t len, uint16_t ip_id)
{
	return icrc_of(route, known, packet, len, ip_id) ^ stored(packet + len - VB_ICRC_BYTES);
}

static bool is_packet_length(size_t len)
{
	return len >= VB_BTH_BYTES + VB_ICRC_BYTES && len <= 0xffff - IP4_BYTES - UDP_BYTES;
}

bool vb_icrc_check(const struct vb_icrc_route *route, const void *packet, size_t len, uint16_t ip_id)
{
	return is_packet_length(len) && difference(route, NULL, packet, len, ip_id) == 0;
}

/*
 * Polynomials over GF(2) modulo the CRC's, least significant coefficient in the highest bit: 1 is 1 << 31. A
 * zero byte more multiplies a CRC by x^8.
 */
#define POLYNOMIAL 0xedb88320u
#define ONE        0x80000000u

static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (unsigned i = 0; i < 32; i++, a <<= 1) {
		product ^= b & -(a >> 31);
		b = b >> 1 ^ (POLYNOMIAL & -(b & 1));
	}
	return product;
}

/*
 * x^-8, by eight divisions by x: the polynomial is added wherever the constant coefficient is set, which x
 * then divides.
 */
static uint32_t inverse_of_byte(void)
{
	uint32_t v = ONE;

	for (unsigned i = 0; i < 8; i++) {
		uint32_t odd = v >> 31;
		v = (v ^ (POLYNOMIAL & -odd)) << 1 | odd;
	}
	return v;
}

/* x^(-8 * bytes) */
static uint32_t unwinding(size_t bytes)
{
	uint32_t factor = ONE;

	for (uint32_t square = inverse_of_byte(); bytes; bytes >>= 1, square = multiply(square, square))
		if (bytes & 1)
			factor = multiply(factor, square);
	return factor;
}

bool vb_icrc_check_any_ip_id(struct vb_icrc_solver *solver, const struct vb_icrc_route *route,
			     struct vb_icrc_known *known, const void *packet, size_t len, uint16_t *ip_id)
{
	if (!is_packet_length(len))
		return false;
	uint32_t wrong = difference(route, known, packet, len, *ip_id);
	if (wrong == 0)
		return true;
	if (route->ip_version != 4)
		return false;
	if (solver->len != len) {
		/*
		 * Back to before the identification: there its two bytes are the low half of the CRC
		 * register.
		 */
		solver->factor = unwinding(IP4_BEFORE_BTH + len - VB_ICRC_BYTES - IP4_ID_END + 2);
		solver->len = len;
	}
	uint32_t flipped = multiply(wrong, solver->factor);
	*ip_id ^= (uint16_t)((flipped & 0xff) << 8 | flipped >> 8);
	return flipped >> 16 == 0;
}
