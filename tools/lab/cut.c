/* SPDX-License-Identifier: BSD-2-Clause */
#include <linux/virtio_net.h>
#include <string.h>

#include "cut.h"
#include "frame.h"

#include "base/base.h"
#include "base/inet.h"

/* Where headers have what. */
enum {
	V4_LENGTH = 2,
	V4_ID = 4,
	V6_LENGTH = 4,
	V6_BYTES = 40,
	TCP_SEQUENCE = 4,
	TCP_OFFSET = 12,
	TCP_FLAGS = 13,
	TCP_CHECKSUM = 16,
	TCP_BYTES = 20,
	UDP_LENGTH = 4,
	UDP_CHECKSUM = 6,
	UDP_BYTES = 8,
};

enum { FIN = 0x01, PSH = 0x08, CWR = 0x80 };

/* Of Linux 6.2, later than the headers of Debian 12 know. */
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

static struct virtio_net_hdr offload_of(const uint8_t *frame)
{
	struct virtio_net_hdr offload;

	memcpy(&offload, frame, LAB_VNET_HEADER);
	return offload;
}

static unsigned get_16(const uint8_t *at) { return (unsigned)at[0] << 8 | at[1]; }

static void put_16(uint8_t *at, size_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static bool is_udp(const struct virtio_net_hdr *offload)
{
	return (offload->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) == VIRTIO_NET_HDR_GSO_UDP_L4;
}

static bool is_tcp(const struct virtio_net_hdr *offload)
{
	unsigned type = offload->gso_type & ~(unsigned)VIRTIO_NET_HDR_GSO_ECN;

	return type == VIRTIO_NET_HDR_GSO_TCPV4 || type == VIRTIO_NET_HDR_GSO_TCPV6;
}

/* ---- reading ---- */

/* Bytes of the TCP or UDP header; 0: there is none. */
static size_t transport_bytes(const struct virtio_net_hdr *offload, const uint8_t *header, size_t left)
{
	size_t bytes;

	if (is_udp(offload))
		return left >= UDP_BYTES ? UDP_BYTES : 0;
	if (!is_tcp(offload) || left < TCP_BYTES)
		return 0;
	bytes = (size_t)(header[TCP_OFFSET] >> 4) * 4;
	return bytes >= TCP_BYTES && bytes <= left ? bytes : 0;
}

void lab_cut_read(struct lab_cut *cut, const uint8_t *frame, size_t size)
{
	struct virtio_net_hdr offload = offload_of(frame);
	size_t ip_bytes = lab_frame_ip_bytes(frame, size), transport, headers;

	*cut = (struct lab_cut){ .size = size, .packets = 1 };
	transport = LAB_VNET_HEADER + (size_t)offload.csum_start;
	if (!(offload.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) || !offload.gso_size || !ip_bytes ||
	    transport < LAB_FRAME_IP + ip_bytes || transport > size)
		return;
	headers = transport_bytes(&offload, frame + transport, size - transport);
	if (!headers || transport + headers > LAB_RUN_HEADERS || transport + headers == size)
		return;
	cut->transport = transport;
	cut->headers = transport + headers;
	cut->step = offload.gso_size;
	cut->packets = (unsigned)((size - cut->headers + cut->step - 1) / cut->step);
}

static size_t payload_bytes(const struct lab_cut *cut, unsigned first, unsigned count)
{
	return vb_min_u64(cut->size - cut->headers - first * cut->step, count * cut->step);
}

size_t lab_cut_bytes(const struct lab_cut *cut, unsigned number)
{
	size_t bytes = cut->packets == 1 ? cut->size : cut->headers + payload_bytes(cut, number, 1);

	return bytes - LAB_VNET_HEADER;
}

/* ---- a run ---- */

static void put_ip(uint8_t *begin, size_t transport, size_t bytes, unsigned first)
{
	uint8_t *ip = begin + LAB_FRAME_IP;

	if (ip[0] >> 4 == 6) {
		put_16(ip + V6_LENGTH, transport - LAB_FRAME_IP - V6_BYTES + bytes);
		return;
	}
	put_16(ip + V4_LENGTH, transport - LAB_FRAME_IP + bytes);
	put_16(ip + V4_ID, get_16(ip + V4_ID) + first);
	lab_frame_sum_v4(begin, transport);
}

/* The sender has summed up what goes into the checksum beside these bytes; that has their number in it. */
static void change_length(uint8_t *checksum, size_t from, size_t to)
{
	put_16(checksum, vb_inet_fold(get_16(checksum) + (~from & 0xffff) + (to & 0xffff)));
}

static void put_tcp(uint8_t *tcp, const struct lab_cut *cut, unsigned first, unsigned count)
{
	uint32_t sequence = get_16(tcp + TCP_SEQUENCE) << 16 | get_16(tcp + TCP_SEQUENCE + 2);

	sequence += (uint32_t)(first * cut->step);
	put_16(tcp + TCP_SEQUENCE, sequence >> 16);
	put_16(tcp + TCP_SEQUENCE + 2, sequence);
	if (first)
		tcp[TCP_FLAGS] &= (uint8_t)~CWR;
	if (first + count < cut->packets)
		tcp[TCP_FLAGS] &= (uint8_t)~(FIN | PSH);
}

static void put_headers(const struct lab_cut *cut, unsigned first, unsigned count, struct lab_run *run)
{
	struct virtio_net_hdr offload = offload_of(run->begin);
	uint8_t *transport = run->begin + cut->transport;
	size_t bytes = cut->headers - cut->transport + run->rest_bytes;

	put_ip(run->begin, cut->transport, bytes, first);
	if (is_udp(&offload)) {
		change_length(transport + UDP_CHECKSUM, cut->size - cut->transport, bytes);
		put_16(transport + UDP_LENGTH, bytes);
	} else {
		change_length(transport + TCP_CHECKSUM, cut->size - cut->transport, bytes);
		put_tcp(transport, cut, first, count);
	}
	if (count == 1) {
		offload.gso_type = VIRTIO_NET_HDR_GSO_NONE;
		offload.gso_size = 0;
		memcpy(run->begin, &offload, LAB_VNET_HEADER);
	}
}

void lab_cut_run(const struct lab_cut *cut, const uint8_t *frame, unsigned first, unsigned count,
		 struct lab_run *run)
{
	bool is_whole = count == cut->packets;

	run->begin_bytes = is_whole ? vb_min_u64(cut->size, LAB_RUN_HEADERS) : cut->headers;
	run->rest_at = run->begin_bytes + first * cut->step;
	run->rest_bytes = is_whole ? cut->size - run->begin_bytes : payload_bytes(cut, first, count);
	memcpy(run->begin, frame, run->begin_bytes);
	if (!is_whole)
		put_headers(cut, first, count, run);
}
