/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/opcode.h"

/* Header masks and flags by the names that the row lists use. */
enum {
	DETH = 1 << VB_EXT_DETH,
	XRCETH = 1 << VB_EXT_XRCETH,
	FETH = 1 << VB_EXT_FETH,
	RETH = 1 << VB_EXT_RETH,
	ATOMICETH = 1 << VB_EXT_ATOMICETH,
	AETH = 1 << VB_EXT_AETH,
	ATOMICACKETH = 1 << VB_EXT_ATOMICACKETH,
	IMMDT = 1 << VB_EXT_IMMDT,
	IETH = 1 << VB_EXT_IETH,
};

enum { FIRST = 1, LAST = 2, REQUEST = 4, PAYLOAD = 8, RECEIVE = 16 };

#define EXT_BYTES(mask, name, type) ((mask) & 1 << VB_EXT_##name ? sizeof(struct type) : 0)
#define HEADER_BYTES(mask)                                                                   \
	(VB_BTH_BYTES + EXT_BYTES(mask, RDETH, vb_rdeth) + EXT_BYTES(mask, DETH, vb_deth) +  \
	 EXT_BYTES(mask, XRCETH, vb_xrceth) + EXT_BYTES(mask, FETH, vb_feth) + EXT_BYTES(mask, RETH, vb_reth) + \
	 EXT_BYTES(mask, ATOMICETH, vb_atomiceth) + EXT_BYTES(mask, AETH, vb_aeth) +         \
	 EXT_BYTES(mask, ATOMICACKETH, vb_atomicacketh) + EXT_BYTES(mask, IMMDT, vb_immdt) + \
	 EXT_BYTES(mask, IETH, vb_ieth))

#define ROW(text, op, mask, f)                                                                 \
	{                                                                                      \
		.name = text, .headers = (mask), .operation = VB_OP_##op,                      \
		.header_bytes = HEADER_BYTES(mask),                                            \
		.flags = { .first = ((f) & FIRST) != 0, .last = ((f) & LAST) != 0,             \
			   .request = ((f) & REQUEST) != 0, .payload = ((f) & PAYLOAD) != 0,   \
			   .receive = ((f) & RECEIVE) != 0 },                                  \
	}

#define RC_ROW(name, bits, op, mask, f)  [VB_SERVICE_RC << VB_OPCODE_BITS | bits] = ROW(#name, op, mask, f),
#define UC_ROW(name, bits, op, mask, f)  [VB_SERVICE_UC << VB_OPCODE_BITS | bits] = ROW(#name, op, mask, f),
#define XRC_ROW(name, bits, op, mask, f)        \
	[VB_SERVICE_XRC << VB_OPCODE_BITS | bits] = ROW(#name, op, (mask) | ((f) & REQUEST ? XRCETH : 0), f),

static const struct vb_opcode_row rows[256] = {
	VB_OPCODES_CONNECTED(RC_ROW)
	VB_OPCODES_RELIABLE(RC_ROW)
	VB_OPCODES_CONNECTED(UC_ROW)
	VB_OPCODES_CONNECTED(XRC_ROW)
	VB_OPCODES_RELIABLE(XRC_ROW)
	[VB_OPCODE(UD, SEND_ONLY)] = ROW("SEND_ONLY", SEND, DETH, FIRST | LAST | REQUEST | PAYLOAD | RECEIVE),
	[VB_OPCODE(UD, SEND_ONLY_IMM)] =
		ROW("SEND_ONLY_IMM", SEND, DETH | IMMDT, FIRST | LAST | REQUEST | PAYLOAD | RECEIVE),
	[VB_OPCODE_CNP] = ROW("CONGESTION_NOTIFICATION", CNP, 0, FIRST | LAST),
};

const struct vb_opcode_row *vb_opcode_row(uint8_t opcode)
{
	return &rows[opcode];
}

const char *vb_service_name(uint8_t opcode)
{
	switch (opcode >> VB_OPCODE_BITS) {
#define X(name, bits) case bits: return #name;
	VB_SERVICES(X)
#undef X
	}
	return "?";
}

size_t vb_opcode_offset(const struct vb_opcode_row *row, enum vb_extension ext)
{
	size_t offset = VB_BTH_BYTES;

	for (unsigned before = row->headers & ((1u << ext) - 1); before; before &= before - 1)
		offset += vb_extension_fields((enum vb_extension)__builtin_ctz(before))->length;
	return offset;
}
