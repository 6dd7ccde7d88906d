/* SPDX-License-Identifier: BSD-2-Clause */
#include "frame.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "base/inet.h"
#include "wire/icrc.h"

enum {
	ROCE_PORT = 4791,
	NO_FLOW = 0xc000,
	IPV4_BYTES = 20,
	IPV6_BYTES = 40,
	UDP_BYTES = 8,
	UDP = 17,
	DONT_FRAGMENT = 0x4000,
};

static void put16(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static bool is_v4(const struct vb_capture_packet *p)
{
	struct in6_addr a;

	memcpy(&a, p->destination, sizeof(a));
	return IN6_IS_ADDR_V4MAPPED(&a);
}

static uint16_t source_port(const struct vb_capture_packet *p)
{
	return p->source_port ? p->source_port : NO_FLOW;
}

static uint16_t ip_id(const struct vb_capture_packet *p)
{
	return p->flags & VB_CAPTURE_LOCAL ? 0 : p->ip_id;
}

static size_t put_ipv4(uint8_t *ip, const struct vb_capture_packet *p, uint32_t udp_bytes)
{
	memset(ip, 0, IPV4_BYTES);
	ip[0] = 0x45;
	ip[1] = p->traffic_class;
	put16(ip + 2, IPV4_BYTES + udp_bytes);
	put16(ip + 4, ip_id(p));
	put16(ip + 6, DONT_FRAGMENT);
	ip[8] = p->hop_limit ? p->hop_limit : VB_HOP_LIMIT;
	ip[9] = UDP;
	memcpy(ip + 12, p->source + 12, 4);
	memcpy(ip + 16, p->destination + 12, 4);
	put16(ip + 10, vb_inet_checksum(ip, IPV4_BYTES));
	return IPV4_BYTES;
}

static size_t put_ipv6(uint8_t *ip, const struct vb_capture_packet *p, uint32_t udp_bytes)
{
	uint32_t flow = htonl(6u << 28 | (uint32_t)p->traffic_class << 20 | (p->flow_label & 0xfffff));

	memcpy(ip, &flow, sizeof(flow));
	put16(ip + 4, udp_bytes);
	ip[6] = UDP;
	ip[7] = p->hop_limit ? p->hop_limit : VB_HOP_LIMIT;
	memcpy(ip + 8, p->source, 16);
	memcpy(ip + 24, p->destination, 16);
	return IPV6_BYTES;
}

/* Over a whole datagram; addresses is where the IP header has them. */
static void put_checksum(uint8_t *udp, uint32_t udp_bytes, const uint8_t *addresses, size_t address_bytes)
{
	uint16_t s = vb_inet_fold(vb_inet_sum(vb_inet_sum(UDP + udp_bytes, addresses, address_bytes), udp,
					      udp_bytes));

	put16(udp + 6, s == 0xffff ? s : (uint16_t)~s);
}

static void sign(uint8_t *bth, uint32_t bytes, const struct vb_capture_packet *p)
{
	bool v4 = is_v4(p);
	struct vb_icrc_route route = {
		.ip_version = v4 ? 4 : 6, .source_port = source_port(p), .destination_port = ROCE_PORT,
	};

	memcpy(route.source, p->source + (v4 ? 12 : 0), v4 ? 4 : 16);
	memcpy(route.destination, p->destination + (v4 ? 12 : 0), v4 ? 4 : 16);
	vb_icrc_sign(&route, NULL, bth, bytes, ip_id(p));
}

/* What was cut has neither ICRC nor checksum. */
void frame_make(struct frame *f, const struct vb_capture_packet *p, const void *bytes)
{
	bool is_whole = p->kept == p->len, needs_icrc = !(p->flags & VB_CAPTURE_HAS_ICRC), v4 = is_v4(p);
	uint32_t udp_bytes = UDP_BYTES + p->len + (needs_icrc ? VB_ICRC_BYTES : 0);
	size_t ip_bytes = v4 ? put_ipv4(f->bytes, p, udp_bytes) : put_ipv6(f->bytes, p, udp_bytes);
	uint8_t *udp = f->bytes + ip_bytes;

	put16(udp, source_port(p));
	put16(udp + 2, ROCE_PORT);
	put16(udp + 4, udp_bytes);
	put16(udp + 6, 0);
	memcpy(udp + UDP_BYTES, bytes, p->kept);
	f->len = (uint32_t)ip_bytes + udp_bytes;
	f->kept = is_whole ? f->len : (uint32_t)ip_bytes + UDP_BYTES + p->kept;
	if (!is_whole)
		return;
	if (needs_icrc && p->len >= VB_BTH_BYTES)
		sign(udp + UDP_BYTES, p->len + VB_ICRC_BYTES, p);
	put_checksum(udp, udp_bytes, f->bytes + (v4 ? 12 : 8), v4 ? 8 : 32);
}
