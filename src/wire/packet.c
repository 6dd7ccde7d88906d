/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/packet.h"

#include <errno.h>

int vb_packet_parse(const void *bytes, size_t len, struct vb_packet *out)
{
	const struct vb_bth *bth = bytes;

	if (len < VB_BTH_BYTES || len % 4 || vb_bth_transport_version(bth))
		return -EBADMSG;
	const struct vb_opcode_row *row = vb_opcode_row((uint8_t)vb_bth_opcode(bth));
	if (!row->name || len < row->header_bytes)
		return -EBADMSG;
	size_t payload = len - row->header_bytes, pad = vb_bth_pad_count(bth);
	if (pad > payload || (!row->flags.payload && payload && row->operation != VB_OP_CNP))
		return -EBADMSG;
	*out = (struct vb_packet){
		.row = row,
		.bytes = bytes,
		.payload = (const uint8_t *)bytes + row->header_bytes,
		.payload_bytes = (uint32_t)(payload - pad),
		.psn = vb_bth_psn(bth),
		.destination_qpn = vb_bth_destination_qpn(bth),
		.pkey = (uint16_t)vb_bth_pkey(bth),
		.opcode = (uint8_t)vb_bth_opcode(bth),
		.solicited = vb_bth_solicited(bth),
		.ack_request = vb_bth_ack_request(bth),
	};
	return 0;
}

bool vb_packet_fits(const struct vb_packet *packet, uint32_t mtu)
{
	const struct vb_opcode_flags *flags = &packet->row->flags;

	if (!flags->last)
		return packet->payload_bytes == mtu;
	return packet->payload_bytes <= mtu && (flags->first || packet->payload_bytes > 0);
}
