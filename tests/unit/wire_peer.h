/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The other end of a queue pair of the rig (tests/fuzz/rig.h): packets as it sends them. They come through
 * the inbox, as what another process hands on.
 */
#ifndef VB_TEST_WIRE_PEER_H
#define VB_TEST_WIRE_PEER_H

#include "fake_host.h"
#include "wire/opcode.h"
#include "wire/packet.h"

enum { PEER = 0x0a000002, PEER_QPN = 0x9005, PEER_FIRST_PSN = 100, PEER_MTU = 256 };

/* PEER is its address. */
static inline void peer_sends(const uint8_t *packet, size_t len)
{
	enum { HEADER = 44, INBOX_MAGIC = 0x76620001 };
	static uint8_t message[HEADER + 1024];
	const uint32_t magic = INBOX_MAGIC;
	const uint8_t src[4] = { 10, 0, 0, 2 }, dst[4] = { 10, 0, 0, 1 };

	memset(message, 0, HEADER);
	memcpy(message, &magic, 4);
	message[22] = message[23] = message[38] = message[39] = 0xff;
	memcpy(message + 24, src, 4);
	memcpy(message + 40, dst, 4);
	memcpy(message + HEADER, packet, len);
	fake_inbox_message(message, HEADER + len, false);
}

/* A packet's headers; the bytes behind them are 0. Returns their length. */
static inline size_t peer_packet(uint8_t *packet, uint32_t qpn, uint8_t opcode, uint32_t psn)
{
	const struct vb_opcode_row *row = vb_opcode_row(opcode);
	struct vb_bth *bth = (struct vb_bth *)packet;

	memset(packet, 0, row->header_bytes + PEER_MTU);
	vb_bth_set_opcode(bth, opcode);
	vb_bth_set_pkey(bth, VB_PKEY_DEFAULT);
	vb_bth_set_ack_request(bth, 1);
	vb_bth_set_destination_qpn(bth, qpn);
	vb_bth_set_psn(bth, psn);
	return row->header_bytes;
}

#endif
