/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets for the tests of the transport engines: built, taken apart, as one call. */
#ifndef VB_TEST_PACKETS_H
#define VB_TEST_PACKETS_H

#include "proto/rc/request.h"
#include "wire/syndrome.h"

/* A packet in memory of its own, as it would arrive. */
struct test_packet {
	struct vb_packet packet;
	uint8_t bytes[VB_MAX_HEADER_BYTES + 4096];
};

static inline const struct vb_packet *parsed(struct test_packet *t, size_t len)
{
	assert_int_equal(vb_packet_parse(t->bytes, len, &t->packet), 0);
	return &t->packet;
}

/* What a writer made, with `fill` as each byte of its payload. */
static inline const struct vb_packet *arrival(struct test_packet *t, const struct vb_packet_out *out,
					      uint8_t fill)
{
	size_t len = out->header_bytes;

	memcpy(t->bytes, out->header, len);
	memset(t->bytes + len, fill, out->payload_bytes);
	memset(t->bytes + len + out->payload_bytes, 0, out->pad_bytes);
	return parsed(t, len + out->payload_bytes + out->pad_bytes);
}

static inline const struct vb_packet_to *to_peer(void)
{
	static const struct vb_packet_to to = { .qpn = 0x11,
						.pkey = VB_PKEY_DEFAULT,
						.service = VB_SERVICE_RC };
	return &to;
}

static inline const struct vb_packet *reply(struct test_packet *t, uint32_t psn, uint8_t syndrome)
{
	struct vb_packet_out out;
	const struct vb_opcode_row *row = vb_packet_out_begin(&out, to_peer(), VB_OPB_ACKNOWLEDGE, psn, 0);

	vb_aeth_set_syndrome(vb_packet_out_extension(&out, row, VB_EXT_AETH), syndrome);
	return arrival(t, &out, 0);
}

static inline const struct vb_packet *ack_of(struct test_packet *t, uint32_t psn)
{
	return reply(t, psn, vb_syndrome(VB_AETH_ACK, VB_AETH_NO_CREDITS));
}

static inline const struct vb_packet *nak_of(struct test_packet *t, uint32_t psn, enum vb_nak_code code)
{
	return reply(t, psn, vb_syndrome(VB_AETH_NAK, code));
}

static inline const struct vb_packet *response(struct test_packet *t, unsigned opcode_bits, uint32_t psn,
	uint32_t bytes)
{
	struct vb_packet_out out;
	const struct vb_opcode_row *row = vb_packet_out_begin(&out, to_peer(), opcode_bits, psn, bytes);

	if (vb_opcode_has(row, VB_EXT_AETH))
		vb_aeth_set_syndrome(vb_packet_out_extension(&out, row, VB_EXT_AETH), VB_AETH_NO_CREDITS);
	return arrival(t, &out, (uint8_t)psn);
}

static inline const struct vb_packet *atomic_answer(struct test_packet *t, uint32_t psn, uint64_t original)
{
	struct vb_packet_out out;
	const struct vb_opcode_row *row =
		vb_packet_out_begin(&out, to_peer(), VB_OPB_ATOMIC_ACKNOWLEDGE, psn, 0);

	vb_aeth_set_syndrome(vb_packet_out_extension(&out, row, VB_EXT_AETH), VB_AETH_NO_CREDITS);
	vb_atomicacketh_set_original(vb_packet_out_extension(&out, row, VB_EXT_ATOMICACKETH), original);
	return arrival(t, &out, 0);
}

static inline uint32_t psn_of(const struct vb_packet_out *out)
{
	return vb_bth_psn((const struct vb_bth *)out->header);
}

static inline bool asks(const struct vb_packet_out *out)
{
	return vb_bth_ack_request((const struct vb_bth *)out->header);
}

static inline const char *name_of(const struct vb_packet_out *out)
{
	return vb_opcode_row((uint8_t)vb_bth_opcode((const struct vb_bth *)out->header))->name;
}

static inline const struct vb_reth *reth_of(const struct vb_packet_out *out)
{
	const struct vb_opcode_row *row =
		vb_opcode_row((uint8_t)vb_bth_opcode((const struct vb_bth *)out->header));
	assert_true(vb_opcode_has(row, VB_EXT_RETH));
	return (const struct vb_reth *)(out->header + vb_opcode_offset(row, VB_EXT_RETH));
}

#endif
