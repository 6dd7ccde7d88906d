/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/frame.h"

#include <string.h>

#include "base/inet.h"
#include "wire/icrc.h"

enum { ETHER_IP4 = 0x0800, ETHER_IP6 = 0x86dd, TCP = 6, UDP = 17, IP4_BYTES = 20, IP6_BYTES = 40,
	TCP_BYTES = 20, UDP_BYTES = 8,
       TCP_CHECKSUM = 16, UDP_CHECKSUM = 6, IP4_CHECKSUM = 10 };

static uint16_t get16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

static void put16(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static uint32_t get32(const uint8_t *at) { return (uint32_t)get16(at) << 16 | get16(at + 2); }

static void put32(uint8_t *at, uint32_t value)
{
	put16(at, value >> 16);
	put16(at + 2, value);
}

/* ---- where things are ---- */

static void find_l4(const uint8_t *frame, struct vb_frame_layout *at, size_t l4)
{
	size_t room = at->end - l4;
	if ((at->protocol == TCP && room >= TCP_BYTES) || (at->protocol == UDP && room >= UDP_BYTES))
		at->l4 = (uint16_t)l4;
}

static bool find_ip4(const uint8_t *frame, size_t bytes, struct vb_frame_layout *at)
{
	const uint8_t *ip = frame + at->ip;
	if (bytes - at->ip < IP4_BYTES || ip[0] >> 4 != 4)
		return false;
	size_t header = (size_t)(ip[0] & 15) * 4, total = get16(ip + 2);
	if (header < IP4_BYTES || total < header || total > bytes - at->ip)
		return false;
	at->ip_version = 4;
	at->end = at->ip + total;
	at->protocol = ip[9];
	if (!(get16(ip + 6) & 0x3fff)) /* neither more fragments nor an offset */
		find_l4(frame, at, at->ip + header);
	return true;
}

static bool find_ip6(const uint8_t *frame, size_t bytes, struct vb_frame_layout *at)
{
	const uint8_t *ip = frame + at->ip;
	if (bytes - at->ip < IP6_BYTES || ip[0] >> 4 != 6 || get16(ip + 4) > bytes - at->ip - IP6_BYTES)
		return false;
	at->ip_version = 6;
	at->end = (size_t)at->ip + IP6_BYTES + get16(ip + 4);
	at->protocol = ip[6];
	find_l4(frame, at, (size_t)at->ip + IP6_BYTES);
	return true;
}

bool vb_frame_find(const uint8_t *frame, size_t bytes, struct vb_frame_layout *at)
{
	*at = (struct vb_frame_layout){ .ip = VB_ETHER_BYTES };
	if (bytes < VB_ETHER_BYTES)
		return false;
	uint16_t type = get16(frame + 12);
	if (type == VB_ETHER_VLAN && bytes >= VB_ETHER_BYTES + VB_VLAN_BYTES) {
		at->ip += VB_VLAN_BYTES;
		type = get16(frame + 16);
	}
	if (type == ETHER_IP4)
		return find_ip4(frame, bytes, at);
	return type == ETHER_IP6 && find_ip6(frame, bytes, at);
}

/* ---- checksums (RFC 1071) ---- */

/* Of what is behind the IP header, with the pseudo-header. */
static uint16_t l4_sum(const uint8_t *frame, const struct vb_frame_layout *at)
{
	bool is_v4 = at->ip_version == 4;
	size_t length = at->end - at->l4;
	uint64_t s = vb_inet_sum(length + at->protocol, frame + at->ip + (is_v4 ? 12 : 8), is_v4 ? 8 : 32);
	return vb_inet_fold(vb_inet_sum(s, frame + at->l4, length));
}

static uint16_t ip4_sum(const uint8_t *frame, const struct vb_frame_layout *at)
{
	return vb_inet_fold(vb_inet_sum(0, frame + at->ip, (size_t)(frame[at->ip] & 15) * 4));
}

static uint8_t *l4_checksum(const uint8_t *frame, const struct vb_frame_layout *at)
{
	return (uint8_t *)(uintptr_t)frame + at->l4 + (at->protocol == TCP ? TCP_CHECKSUM : UDP_CHECKSUM);
}

bool vb_frame_fill_checksums(uint8_t *frame, size_t bytes)
{
	struct vb_frame_layout at;
	if (!vb_frame_find(frame, bytes, &at))
		return false;
	if (at.ip_version == 4) {
		put16(frame + at.ip + IP4_CHECKSUM, 0);
		put16(frame + at.ip + IP4_CHECKSUM, (uint16_t)~ip4_sum(frame, &at));
	}
	if (!at.l4)
		return true;
	put16(l4_checksum(frame, &at), 0);
	uint16_t checksum = (uint16_t)~l4_sum(frame, &at);
	put16(l4_checksum(frame, &at), at.protocol == UDP && !checksum ? 0xffff : checksum);
	return true;
}

/* UDP's may be left out over IPv4, and is then not there. */
bool vb_frame_checksums_are_right(const uint8_t *frame, size_t bytes)
{
	struct vb_frame_layout at;
	if (!vb_frame_find(frame, bytes, &at) || !at.l4)
		return false;
	if (at.ip_version == 4 && ip4_sum(frame, &at) != 0xffff)
		return false;
	if (at.protocol == UDP && !get16(l4_checksum(frame, &at)))
		return false;
	return l4_sum(frame, &at) == 0xffff;
}

void vb_frame_check_sequence(const void *frame, size_t bytes, uint8_t out[VB_FCS_BYTES])
{
	vb_icrc_store(vb_icrc_add(0, frame, bytes), out);
}

/* ---- segments ---- */

/* Where TCP's or UDP's header is, if the IP header is whole. */
static bool find_beginning(const uint8_t *header, size_t bytes, struct vb_frame_layout *at)
{
	*at = (struct vb_frame_layout){ .ip = VB_ETHER_BYTES };
	if (bytes < VB_ETHER_BYTES + VB_VLAN_BYTES)
		return false;
	if (get16(header + 12) == VB_ETHER_VLAN)
		at->ip += VB_VLAN_BYTES;
	const uint8_t *ip = header + at->ip;
	uint16_t type = get16(ip - 2);
	if (type == ETHER_IP4 && bytes >= (size_t)at->ip + IP4_BYTES && ip[0] >> 4 == 4) {
		at->ip_version = 4;
		at->protocol = ip[9];
		at->l4 = (uint16_t)(at->ip + (ip[0] & 15) * 4);
		return at->l4 >= at->ip + IP4_BYTES;
	}
	if (type == ETHER_IP6 && bytes >= (size_t)at->ip + IP6_BYTES && ip[0] >> 4 == 6) {
		at->ip_version = 6;
		at->protocol = ip[6];
		at->l4 = (uint16_t)(at->ip + IP6_BYTES);
		return true;
	}
	return false;
}

/* Up to the end of TCP's or UDP's header; 0: there is neither. */
static size_t header_end(const uint8_t *header, size_t bytes, const struct vb_frame_layout *at)
{
	size_t end = (size_t)at->l4 + UDP_BYTES;
	if (at->protocol == TCP) {
		if (bytes < (size_t)at->l4 + TCP_BYTES || header[at->l4 + 12] >> 4 < TCP_BYTES / 4)
			return 0;
		end = (size_t)at->l4 + (size_t)(header[at->l4 + 12] >> 4) * 4;
	} else if (at->protocol != UDP) {
		return 0;
	}
	return end <= bytes ? end : 0;
}

/* The header's length fields may be wrong: each frame gets its own. */
static bool find_header(const uint8_t *header, size_t bytes, struct vb_frame_layout *at)
{
	return find_beginning(header, bytes, at) && header_end(header, bytes, at) == bytes;
}

bool vb_frame_is_tcp_header(const uint8_t *header, size_t bytes)
{
	struct vb_frame_layout at;
	return find_header(header, bytes, &at) && at.protocol == TCP;
}

size_t vb_frame_header_bytes(const uint8_t *frame, size_t bytes, uint8_t protocol)
{
	struct vb_frame_layout at;
	bool is_found = vb_frame_find(frame, bytes, &at) && at.l4 && at.protocol == protocol;
	return is_found ? header_end(frame, at.end, &at) : 0;
}

static void cut_tcp(uint8_t *tcp, uint32_t at_payload, uint16_t number, bool last)
{
	enum { SEQUENCE = 4, FLAGS = 13, FIN = 1, PSH = 8, CWR = 0x80 };
	put32(tcp + SEQUENCE, get32(tcp + SEQUENCE) + at_payload);
	if (!last)
		tcp[FLAGS] &= (uint8_t)~(FIN | PSH);
	if (number)
		tcp[FLAGS] &= (uint8_t)~CWR;
}

void vb_frame_cut_header(uint8_t *frame, size_t header_bytes, size_t piece_bytes, uint32_t at_payload,
			 uint16_t number, bool last)
{
	enum { LENGTH = 4, IDENTIFICATION = 4 };
	struct vb_frame_layout at;
	if (!find_header(frame, header_bytes, &at))
		return;
	uint8_t *ip = frame + at.ip;
	size_t total = header_bytes + piece_bytes - at.ip;
	if (at.ip_version == 4) {
		put16(ip + 2, (uint32_t)total);
		put16(ip + IDENTIFICATION, get16(ip + IDENTIFICATION) + (uint32_t)number);
	} else {
		put16(ip + 4, (uint32_t)(total - IP6_BYTES));
	}
	if (at.protocol == TCP)
		cut_tcp(frame + at.l4, at_payload, number, last);
	else
		put16(frame + at.l4 + LENGTH, (uint32_t)(UDP_BYTES + piece_bytes));
}

void vb_frame_cut(uint8_t *frame, size_t header_bytes, size_t piece_bytes, uint32_t at_payload,
		  uint16_t number, bool last)
{
	vb_frame_cut_header(frame, header_bytes, piece_bytes, at_payload, number, last);
	vb_frame_fill_checksums(frame, header_bytes + piece_bytes);
}
