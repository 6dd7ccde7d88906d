/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests of the connected services, and how they are cut into packets (IB vol. 1, 9.7.3): which opcode,
 * headers and piece of the payload the n-th packet has, for RC and UC, also when RC sends a packet again.
 */
#ifndef VB_PROTO_REQUEST_H
#define VB_PROTO_REQUEST_H

#include "wire/packet.h"

/* The most bytes that the engines put before a payload: BTH, XRCETH and AtomicETH. */
#define VB_MAX_HEADER_BYTES 48

/* The longest message (9.4.1). */
#define VB_MAX_MESSAGE_BYTES (UINT32_C(1) << 31)

/* An atomic write carries its data. It and a flush are answered like a READ of 0 bytes. */
enum vb_request_kind {
	VB_REQ_SEND,
	VB_REQ_WRITE,
	VB_REQ_READ,
	VB_REQ_COMPARE_SWAP,
	VB_REQ_FETCH_ADD,
	VB_REQ_ATOMIC_WRITE,
	VB_REQ_FLUSH
};

/* How much is flushed, and where to: FETH's fields in one number. */
static inline uint32_t vb_flush(unsigned placement, unsigned selectivity)
{
	return placement | selectivity << 8;
}
static inline unsigned vb_flush_placement(uint64_t flush) { return flush & 0xff; }
static inline unsigned vb_flush_selectivity(uint64_t flush) { return flush >> 8 & 0xff; }

/* What follows the data of a SEND or WRITE. */
enum vb_request_tail { VB_TAIL_NONE, VB_TAIL_IMM, VB_TAIL_INVALIDATE };

struct vb_request {
	uint64_t remote_addr;
	uint64_t compare, swap_or_add;	/* atomics: swap_or_add is what FETCH_ADD adds */
	uint32_t rkey;
	/* bytes; atomics: 8; flushes: 0, and compare bytes are flushed as swap_or_add says (vb_flush) */
	uint32_t length;
	uint32_t tail_value;		/* immediate data as it lies in memory, or the rkey to invalidate */
	uint32_t srqn;			/* XRC alone: the shared receive queue that it is for */
	uint8_t kind;			/* enum vb_request_kind */
	uint8_t tail;			/* enum vb_request_tail */
	bool solicited, fence;
};

/* A packet to be sent: its headers, and where its payload is. Whoever sends it adds the ICRC. */
struct vb_packet_out {
	uint8_t header[VB_MAX_HEADER_BYTES];
	uint8_t header_bytes;
	uint8_t pad_bytes;		/* zeros after the payload */
	uint32_t payload_bytes;
	/* of a request: offset in its data; of a READ response: address in rkey's region */
	uint64_t payload_at;
	uint32_t position;		/* of a request: which one */
	uint32_t rkey;			/* of a READ response */
	uint32_t srqn;			/* of a READ response of XRC */
};

/* Fields of the BTH that are the connection's. */
struct vb_packet_to {
	uint32_t qpn;
	uint16_t pkey;
	uint8_t service;	/* enum vb_service */
};

/* Does it take a receive of the peer? */
static inline bool vb_request_takes_receive(const struct vb_request *r)
{
	return r->kind == VB_REQ_SEND || (r->kind == VB_REQ_WRITE && r->tail == VB_TAIL_IMM);
}

static inline bool vb_request_is_answered(const struct vb_request *r) { return r->kind >= VB_REQ_READ; }

/* Bytes of READ responses to it. */
static inline uint32_t vb_request_answer_bytes(const struct vb_request *r)
{
	return r->kind == VB_REQ_READ ? r->length : 0;
}

/* PSNs that a request takes: of its packets, or of a READ's responses. mtu: 256 to 4096, a power of two. */
static inline uint32_t vb_request_packets(const struct vb_request *r, uint32_t mtu)
{
	return r->length ? (uint32_t)(((uint64_t)r->length + mtu - 1) / mtu) : 1;
}

/* 0; -EINVAL if it cannot be sent by this service. */
int vb_request_check(const struct vb_request *r, uint8_t service) VB_MUST_USE;

/*
 * The packet at `index` of the request's PSNs. A READ's asks for `count` responses from there on; other
 * requests ignore count. The caller sets ack_request by vb_packet_out_ask.
 */
void vb_request_packet(const struct vb_request *r, const struct vb_packet_to *to, uint32_t mtu, uint32_t psn,
		       uint32_t index, uint32_t count, struct vb_packet_out *out);

/*
 * Begins a packet of `payload` bytes: writes the BTH, and zeros the opcode's other headers. Returns its row.
 */
const struct vb_opcode_row *vb_packet_out_begin(struct vb_packet_out *out, const struct vb_packet_to *to,
						unsigned opcode_bits, uint32_t psn, uint32_t payload);
void *vb_packet_out_extension(struct vb_packet_out *out, const struct vb_opcode_row *row,
			      enum vb_extension ext);

static inline void vb_packet_out_ask(struct vb_packet_out *out)
{
	vb_bth_set_ack_request((struct vb_bth *)out->header, 1);
}

#endif
