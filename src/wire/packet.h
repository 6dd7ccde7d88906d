/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A received packet, taken apart and checked as far as its opcode's row alone can tell (IB vol. 1, 9.6 and
 * 9.7.2): known opcode, whole headers, padding inside the payload, no payload where there is none. What
 * depends on a QP is the engines'.
 */
#ifndef VB_WIRE_PACKET_H
#define VB_WIRE_PACKET_H

#include "wire/opcode.h"

#define VB_PKEY_DEFAULT 0xffff

/* Points into the bytes that it was made from, which must not change under it. */
struct vb_packet {
	const struct vb_opcode_row *row;
	const uint8_t *bytes;		/* from the BTH on */
	const uint8_t *payload;
	uint32_t payload_bytes;		/* without padding */
	uint32_t psn, destination_qpn;
	uint16_t pkey;
	uint8_t opcode;
	bool solicited, ack_request;
};

/* bytes: BTH to padding, without the ICRC. -EBADMSG: not a packet, to be dropped in silence. */
int vb_packet_parse(const void *bytes, size_t len, struct vb_packet *out) VB_MUST_USE;

/*
 * Does the payload have a length that its place in the message allows? Middle: the path MTU; last: at least a
 * byte.
 */
bool vb_packet_fits(const struct vb_packet *packet, uint32_t mtu);

/* The same partition, membership bits aside, at least one of both being a full member (10.9.3). */
static inline bool vb_pkey_matches(uint16_t a, uint16_t b)
{
	return ((a ^ b) & 0x7fff) == 0 && ((a | b) & 0x8000);
}

static inline const uint8_t *vb_packet_extension(const struct vb_packet *packet, enum vb_extension ext)
{
	return packet->bytes + vb_opcode_offset(packet->row, ext);
}

#endif
