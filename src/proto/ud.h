/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unreliable datagrams (IB vol. 1, 9.8.3): one SEND is one packet, nothing is answered, and what does not fit
 * is dropped in silence. Building and checking of packets from the BTH to the padding, and the 40 bytes that
 * a receiver finds before the data.
 */
#ifndef VB_PROTO_UD_H
#define VB_PROTO_UD_H

#include "wire/packet.h"

enum {
	VB_UD_HEADER_BYTES = 24,     /* BTH, DETH, ImmDt: the most that stands before the data */
	VB_UD_PAYLOAD_BYTES = 4096,  /* the most data */
};

struct vb_ud_send {
	uint32_t destination_qpn, source_qpn, psn;
	uint32_t qkey;          /* see vb_ud_qkey */
	uint32_t imm;           /* as it lies in memory */
	uint32_t payload_bytes;
	bool has_imm, solicited;
};

/* Fills header; returns its length. *pad: how many zero bytes follow the data. */
size_t vb_ud_build(uint8_t header[VB_UD_HEADER_BYTES], const struct vb_ud_send *send, unsigned *pad);

/* A work request whose Q_Key has the highest bit set means its own QP's (10.2.5). */
static inline uint32_t vb_ud_qkey(uint32_t asked, uint32_t own)
{
	return asked & 0x80000000u ? own : asked;
}

/* payload points into the packet. */
struct vb_ud_arrival {
	const uint8_t *payload;
	uint32_t payload_bytes;  /* without padding */
	uint32_t destination_qpn, source_qpn, qkey;
	uint32_t imm;
	bool has_imm, solicited;
};

/*
 * -EBADMSG: no datagram of the default partition, to be dropped. The Q_Key is the caller's to compare with
 * the QP's.
 */
int vb_ud_parse(const struct vb_packet *packet, struct vb_ud_arrival *out) VB_MUST_USE;

/* The IP addressing of a packet; IPv4 addresses are v4-mapped. */
struct vb_ud_route {
	uint8_t source[16], destination[16];
	uint32_t flow_label;
	uint8_t traffic_class, hop_limit;
};

/*
 * What stands before the data in a receive buffer, for a packet of so many bytes from BTH to padding: the
 * IPv6 header, or 20 zero bytes and the IPv4 header (annex A17.4.5.2).
 */
void vb_ud_grh(uint8_t out[VB_GRH_BYTES], const struct vb_ud_route *route, size_t packet_bytes);

#endif
