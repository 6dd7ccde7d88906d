/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * BTH opcodes (IB vol. 1 table 38): which headers follow, where in a message the packet stands, whether it
 * has a payload. Lengths and positions are derived from the rows.
 */
#ifndef VB_WIRE_OPCODE_H
#define VB_WIRE_OPCODE_H

#include "wire/headers.h"

/* Transport service: the top three bits of an opcode. X(NAME, bits) */
#define VB_SERVICES(X) X(RC, 0) X(UC, 1) X(RD, 2) X(UD, 3) X(CNP, 4) X(XRC, 5)

enum vb_service {
#define X(name, bits) VB_SERVICE_##name = bits,
	VB_SERVICES(X)
#undef X
};

/* What a packet is part of. */
enum vb_operation { VB_OP_SEND, VB_OP_WRITE, VB_OP_READ, VB_OP_READ_RESPONSE, VB_OP_ACK, VB_OP_ATOMIC_ACK,
		    VB_OP_ATOMIC, VB_OP_ATOMIC_WRITE, VB_OP_FLUSH, VB_OP_CNP };

/* Flags of a row; a type of its own so that no header mask is taken for one. */
struct vb_opcode_flags {
	bool first : 1;		/* begins a message */
	bool last : 1;		/* ends it; both: "only" */
	bool request : 1;	/* for a responder; else for a requester */
	/* may carry payload; in a packet that is not last it is exactly the path MTU */
	bool payload : 1;
	/* consumes a receive request when it ends (or begins, for SEND) the message */
	bool receive : 1;
};

struct vb_opcode_row {
	const char *name;	/* NULL: no such opcode */
	uint16_t headers;	/* bits 1 << enum vb_extension */
	uint8_t operation;	/* enum vb_operation */
	struct vb_opcode_flags flags;
	uint8_t header_bytes;	/* BTH included */
};

#define VB_OPCODE_BITS 5
#define VB_OPCODE_MASK ((1 << VB_OPCODE_BITS) - 1)

/*
 * The operation bits below the service. X(NAME, bits, operation, extension headers, flags). The first list
 * serves RC, UC and XRC, the second RC and XRC, whose requests add an XRCETH. UD has the two SEND_ONLY, with
 * a DETH.
 */
#define VB_OPCODES_CONNECTED(X)                                                         \
	X(SEND_FIRST, 0x00, SEND, 0, FIRST | REQUEST | PAYLOAD | RECEIVE)               \
	X(SEND_MIDDLE, 0x01, SEND, 0, REQUEST | PAYLOAD | RECEIVE)                      \
	X(SEND_LAST, 0x02, SEND, 0, LAST | REQUEST | PAYLOAD | RECEIVE)                 \
	X(SEND_LAST_IMM, 0x03, SEND, IMMDT, LAST | REQUEST | PAYLOAD | RECEIVE)         \
	X(SEND_ONLY, 0x04, SEND, 0, FIRST | LAST | REQUEST | PAYLOAD | RECEIVE)         \
	X(SEND_ONLY_IMM, 0x05, SEND, IMMDT, FIRST | LAST | REQUEST | PAYLOAD | RECEIVE) \
	X(WRITE_FIRST, 0x06, WRITE, RETH, FIRST | REQUEST | PAYLOAD)                    \
	X(WRITE_MIDDLE, 0x07, WRITE, 0, REQUEST | PAYLOAD)                              \
	X(WRITE_LAST, 0x08, WRITE, 0, LAST | REQUEST | PAYLOAD)                         \
	X(WRITE_LAST_IMM, 0x09, WRITE, IMMDT, LAST | REQUEST | PAYLOAD | RECEIVE)       \
	X(WRITE_ONLY, 0x0a, WRITE, RETH, FIRST | LAST | REQUEST | PAYLOAD)              \
	X(WRITE_ONLY_IMM, 0x0b, WRITE, RETH | IMMDT, FIRST | LAST | REQUEST | PAYLOAD | RECEIVE)

#define VB_OPCODES_RELIABLE(X)                                                          \
	X(READ_REQUEST, 0x0c, READ, RETH, FIRST | LAST | REQUEST)                       \
	X(READ_RESPONSE_FIRST, 0x0d, READ_RESPONSE, AETH, FIRST | PAYLOAD)              \
	X(READ_RESPONSE_MIDDLE, 0x0e, READ_RESPONSE, 0, PAYLOAD)                        \
	X(READ_RESPONSE_LAST, 0x0f, READ_RESPONSE, AETH, LAST | PAYLOAD)                \
	X(READ_RESPONSE_ONLY, 0x10, READ_RESPONSE, AETH, FIRST | LAST | PAYLOAD)        \
	X(ACKNOWLEDGE, 0x11, ACK, AETH, FIRST | LAST)                                   \
	X(ATOMIC_ACKNOWLEDGE, 0x12, ATOMIC_ACK, AETH | ATOMICACKETH, FIRST | LAST)      \
	X(COMPARE_SWAP, 0x13, ATOMIC, ATOMICETH, FIRST | LAST | REQUEST)                \
	X(FETCH_ADD, 0x14, ATOMIC, ATOMICETH, FIRST | LAST | REQUEST)                   \
	X(SEND_LAST_INV, 0x16, SEND, IETH, LAST | REQUEST | PAYLOAD | RECEIVE)          \
	X(SEND_ONLY_INV, 0x17, SEND, IETH, FIRST | LAST | REQUEST | PAYLOAD | RECEIVE)  \
	X(FLUSH, 0x1c, FLUSH, FETH | RETH, FIRST | LAST | REQUEST)                      \
	X(ATOMIC_WRITE, 0x1d, ATOMIC_WRITE, RETH, FIRST | LAST | REQUEST | PAYLOAD)

enum vb_opcode_bits {
#define X(name, bits, operation, headers, flags) VB_OPB_##name = bits,
	VB_OPCODES_CONNECTED(X)
	VB_OPCODES_RELIABLE(X)
#undef X
};

#define VB_OPCODE(service, bits) ((uint8_t)(VB_SERVICE_##service << VB_OPCODE_BITS | VB_OPB_##bits))
#define VB_OPCODE_CNP            ((uint8_t)(VB_SERVICE_CNP << VB_OPCODE_BITS | 1))

/* The row of an opcode; its name is NULL when there is no such opcode (RD opcodes are none here). */
const struct vb_opcode_row *vb_opcode_row(uint8_t opcode);
const char *vb_service_name(uint8_t opcode);

static inline bool vb_opcode_has(const struct vb_opcode_row *row, enum vb_extension ext)
{
	return row->headers >> ext & 1;
}

/* Offset of a header from the beginning of the BTH; the row must have it. */
size_t vb_opcode_offset(const struct vb_opcode_row *row, enum vb_extension ext);

#endif
