/* SPDX-License-Identifier: BSD-2-Clause */
#include "proto/rc/request.h"

#include <errno.h>

int vb_request_check(const struct vb_request *r, uint8_t service)
{
	if (r->kind > VB_REQ_FLUSH || r->tail > VB_TAIL_INVALIDATE || r->length > VB_MAX_MESSAGE_BYTES)
		return -EINVAL;
	if (service != VB_SERVICE_RC && (vb_request_is_answered(r) || r->tail == VB_TAIL_INVALIDATE))
		return -EINVAL;
	if (r->tail == VB_TAIL_INVALIDATE && r->kind != VB_REQ_SEND)
		return -EINVAL;
	if (r->tail != VB_TAIL_NONE && vb_request_is_answered(r))
		return -EINVAL;
	if (r->kind == VB_REQ_FLUSH)
		return r->length || r->compare > UINT32_MAX ? -EINVAL : 0;
	return r->kind > VB_REQ_READ && r->length != 8 ? -EINVAL : 0;
}

const struct vb_opcode_row *vb_packet_out_begin(struct vb_packet_out *out, const struct vb_packet_to *to,
						unsigned opcode_bits, uint32_t psn, uint32_t payload)
{
	uint8_t opcode = (uint8_t)(to->service << VB_OPCODE_BITS | opcode_bits);
	const struct vb_opcode_row *row = vb_opcode_row(opcode);
	struct vb_bth *bth = (struct vb_bth *)out->header;

	memset(out, 0, sizeof(*out));
	out->header_bytes = row->header_bytes;
	out->payload_bytes = payload;
	out->pad_bytes = (uint8_t)(-payload & 3);
	vb_bth_set_opcode(bth, opcode);
	vb_bth_set_mig_req(bth, 1);
	vb_bth_set_pad_count(bth, out->pad_bytes);
	vb_bth_set_pkey(bth, to->pkey);
	vb_bth_set_destination_qpn(bth, to->qpn);
	vb_bth_set_psn(bth, psn);
	return row;
}

void *vb_packet_out_extension(struct vb_packet_out *out, const struct vb_opcode_row *row,
			      enum vb_extension ext)
{
	return out->header + vb_opcode_offset(row, ext);
}

/* [kind][tail][first | last << 1]; a tail belongs to the last packet. */
static uint8_t data_opcode(const struct vb_request *r, bool first, bool last)
{
	static const uint8_t only[2][3] = {
		{ VB_OPB_SEND_ONLY, VB_OPB_SEND_ONLY_IMM, VB_OPB_SEND_ONLY_INV },
		{ VB_OPB_WRITE_ONLY, VB_OPB_WRITE_ONLY_IMM },
	};
	static const uint8_t ends[2][3] = {
		{ VB_OPB_SEND_LAST, VB_OPB_SEND_LAST_IMM, VB_OPB_SEND_LAST_INV },
		{ VB_OPB_WRITE_LAST, VB_OPB_WRITE_LAST_IMM },
	};
	static const uint8_t begins[2] = { VB_OPB_SEND_FIRST, VB_OPB_WRITE_FIRST };
	static const uint8_t goes_on[2] = { VB_OPB_SEND_MIDDLE, VB_OPB_WRITE_MIDDLE };

	if (last)
		return (first ? only : ends)[r->kind][r->tail];
	return (first ? begins : goes_on)[r->kind];
}

static void put_srqn(const struct vb_request *r, struct vb_packet_out *out, const struct vb_opcode_row *row)
{
	if (vb_opcode_has(row, VB_EXT_XRCETH))
		vb_xrceth_set_srqn(vb_packet_out_extension(out, row, VB_EXT_XRCETH), r->srqn);
}

static void put_reth(struct vb_packet_out *out, const struct vb_opcode_row *row, uint64_t address,
		     uint32_t rkey, uint32_t length)
{
	struct vb_reth *reth = vb_packet_out_extension(out, row, VB_EXT_RETH);

	vb_reth_set_address(reth, address);
	vb_reth_set_rkey(reth, rkey);
	vb_reth_set_length(reth, length);
}

static void put_tail(const struct vb_request *r, struct vb_packet_out *out, const struct vb_opcode_row *row)
{
	if (vb_opcode_has(row, VB_EXT_IMMDT))
		vb_immdt_set_data(vb_packet_out_extension(out, row, VB_EXT_IMMDT), &r->tail_value, 4);
	if (vb_opcode_has(row, VB_EXT_IETH))
		vb_ieth_set_rkey(vb_packet_out_extension(out, row, VB_EXT_IETH), r->tail_value);
}

static void data_packet(const struct vb_request *r, const struct vb_packet_to *to, uint32_t mtu, uint32_t psn,
			uint32_t index, struct vb_packet_out *out)
{
	uint32_t packets = vb_request_packets(r, mtu);
	bool first = index == 0, last = index == packets - 1;
	uint64_t offset = (uint64_t)index * mtu;
	const struct vb_opcode_row *row =
		vb_packet_out_begin(out, to, data_opcode(r, first, last), psn,
			last ? (uint32_t)(r->length - offset) : mtu);

	out->payload_at = offset;
	put_srqn(r, out, row);
	if (vb_opcode_has(row, VB_EXT_RETH))
		put_reth(out, row, r->remote_addr, r->rkey, r->length);
	put_tail(r, out, row);
	vb_bth_set_solicited((struct vb_bth *)out->header, last && r->solicited);
}

static void read_packet(const struct vb_request *r, const struct vb_packet_to *to, uint32_t mtu, uint32_t psn,
			uint32_t index, uint32_t count, struct vb_packet_out *out)
{
	const struct vb_opcode_row *row = vb_packet_out_begin(out, to, VB_OPB_READ_REQUEST, psn, 0);
	uint64_t offset = (uint64_t)index * mtu;

	put_srqn(r, out, row);
	put_reth(out, row, r->remote_addr + offset, r->rkey,
		 (uint32_t)vb_min_u64((uint64_t)count * mtu, r->length - offset));
}

static void atomic_packet(const struct vb_request *r, const struct vb_packet_to *to, uint32_t psn,
			  struct vb_packet_out *out)
{
	unsigned bits = r->kind == VB_REQ_COMPARE_SWAP ? VB_OPB_COMPARE_SWAP : VB_OPB_FETCH_ADD;
	const struct vb_opcode_row *row = vb_packet_out_begin(out, to, bits, psn, 0);
	struct vb_atomiceth *eth = vb_packet_out_extension(out, row, VB_EXT_ATOMICETH);

	put_srqn(r, out, row);
	vb_atomiceth_set_address(eth, r->remote_addr);
	vb_atomiceth_set_rkey(eth, r->rkey);
	vb_atomiceth_set_swap_or_add(eth, r->swap_or_add);
	vb_atomiceth_set_compare(eth, r->compare);
}

static void atomic_write_packet(const struct vb_request *r, const struct vb_packet_to *to, uint32_t psn,
				struct vb_packet_out *out)
{
	const struct vb_opcode_row *row = vb_packet_out_begin(out, to, VB_OPB_ATOMIC_WRITE, psn, r->length);

	put_srqn(r, out, row);
	put_reth(out, row, r->remote_addr, r->rkey, r->length);
}

static void flush_packet(const struct vb_request *r, const struct vb_packet_to *to, uint32_t psn,
			 struct vb_packet_out *out)
{
	const struct vb_opcode_row *row = vb_packet_out_begin(out, to, VB_OPB_FLUSH, psn, 0);
	struct vb_feth *eth = vb_packet_out_extension(out, row, VB_EXT_FETH);

	put_srqn(r, out, row);
	vb_feth_set_placement(eth, vb_flush_placement(r->swap_or_add));
	vb_feth_set_selectivity(eth, vb_flush_selectivity(r->swap_or_add));
	put_reth(out, row, r->remote_addr, r->rkey, (uint32_t)r->compare);
}

void vb_request_packet(const struct vb_request *r, const struct vb_packet_to *to, uint32_t mtu, uint32_t psn,
		       uint32_t index, uint32_t count, struct vb_packet_out *out)
{
	switch ((enum vb_request_kind)r->kind) {
	case VB_REQ_SEND:
	case VB_REQ_WRITE:
		data_packet(r, to, mtu, psn, index, out);
		return;
	case VB_REQ_READ:
		read_packet(r, to, mtu, psn, index, count, out);
		return;
	case VB_REQ_COMPARE_SWAP:
	case VB_REQ_FETCH_ADD:
		atomic_packet(r, to, psn, out);
		return;
	case VB_REQ_ATOMIC_WRITE:
		atomic_write_packet(r, to, psn, out);
		return;
	case VB_REQ_FLUSH:
		flush_packet(r, to, psn, out);
		return;
	}
}
