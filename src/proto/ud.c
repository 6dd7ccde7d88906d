/* SPDX-License-Identifier: BSD-2-Clause */
#include "proto/ud.h"

#include <errno.h>

enum {
	DEFAULT_PKEY = 0xffff,
	PKEY_BITS = 0x7fff,     /* without the membership bit */
	UDP_PROTOCOL = 17,
	UDP_HEADER_BYTES = 8,
	ICRC_BYTES = 4,
	V4_HEADER_BYTES = 20,
};

/* ---- packets ---- */

size_t vb_ud_build(uint8_t header[VB_UD_HEADER_BYTES], const struct vb_ud_send *send, unsigned *pad)
{
	uint8_t opcode = send->has_imm ? VB_OPCODE(UD, SEND_ONLY_IMM) : VB_OPCODE(UD, SEND_ONLY);
	const struct vb_opcode_row *row = vb_opcode_row(opcode);
	struct vb_bth *bth = (struct vb_bth *)header;
	struct vb_deth *deth = (struct vb_deth *)(header + vb_opcode_offset(row, VB_EXT_DETH));

	memset(header, 0, VB_UD_HEADER_BYTES);
	*pad = -send->payload_bytes & 3;
	vb_bth_set_opcode(bth, opcode);
	vb_bth_set_solicited(bth, send->solicited);
	vb_bth_set_mig_req(bth, 1);
	vb_bth_set_pad_count(bth, *pad);
	vb_bth_set_pkey(bth, DEFAULT_PKEY);
	vb_bth_set_destination_qpn(bth, send->destination_qpn);
	vb_bth_set_psn(bth, send->psn);
	vb_deth_set_qkey(deth, send->qkey);
	vb_deth_set_source_qpn(deth, send->source_qpn);
	if (send->has_imm)
		vb_immdt_set_data((struct vb_immdt *)(header + vb_opcode_offset(row, VB_EXT_IMMDT)), &send->imm, sizeof(send->imm));
	return row->header_bytes;
}

static bool is_datagram(const struct vb_bth *bth)
{
	uint32_t opcode = vb_bth_opcode(bth);

	return (opcode == VB_OPCODE(UD, SEND_ONLY) || opcode == VB_OPCODE(UD, SEND_ONLY_IMM)) &&
	       vb_bth_transport_version(bth) == 0 && (vb_bth_pkey(bth) & PKEY_BITS) == PKEY_BITS;
}

int vb_ud_parse(const void *packet, size_t bytes, struct vb_ud_arrival *out)
{
	const uint8_t *at = packet;
	const struct vb_bth *bth = packet;

	if (bytes < VB_BTH_BYTES || bytes % 4 || !is_datagram(bth))
		return -EBADMSG;
	const struct vb_opcode_row *row = vb_opcode_row((uint8_t)vb_bth_opcode(bth));
	if (bytes < row->header_bytes + vb_bth_pad_count(bth))
		return -EBADMSG;
	size_t payload = bytes - row->header_bytes - vb_bth_pad_count(bth);
	if (payload > VB_UD_PAYLOAD_BYTES)
		return -EBADMSG;
	const struct vb_deth *deth = (const struct vb_deth *)(at + vb_opcode_offset(row, VB_EXT_DETH));
	*out = (struct vb_ud_arrival){
		.payload = at + row->header_bytes,
		.payload_bytes = (uint32_t)payload,
		.destination_qpn = vb_bth_destination_qpn(bth),
		.source_qpn = vb_deth_source_qpn(deth),
		.qkey = vb_deth_qkey(deth),
		.has_imm = vb_opcode_has(row, VB_EXT_IMMDT),
		.solicited = vb_bth_solicited(bth),
	};
	if (out->has_imm)
		memcpy(&out->imm, at + vb_opcode_offset(row, VB_EXT_IMMDT), sizeof(out->imm));
	return 0;
}

/* ---- the bytes before the data ---- */

static bool is_v4(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid, mapped, sizeof(mapped));
}

/* RFC 1071 over an even number of bytes. */
static uint16_t checksum(const uint8_t *p, size_t n)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < n; i += 2)
		sum += (uint32_t)p[i] << 8 | p[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

/* RFC 791; identification 0 and "don't fragment", as RoCE v2 packets are sent. */
static void put_v4(uint8_t h[V4_HEADER_BYTES], const struct vb_ud_route *route, size_t payload)
{
	size_t total = V4_HEADER_BYTES + payload;
	const uint8_t fixed[12] = { 0x45, route->traffic_class, (uint8_t)(total >> 8), (uint8_t)total, 0, 0, 0x40, 0,
				    route->hop_limit, UDP_PROTOCOL, 0, 0 };

	memcpy(h, fixed, sizeof(fixed));
	memcpy(h + 12, route->source + 12, 4);
	memcpy(h + 16, route->destination + 12, 4);
	uint16_t sum = checksum(h, V4_HEADER_BYTES);
	h[10] = (uint8_t)(sum >> 8);
	h[11] = (uint8_t)sum;
}

void vb_ud_grh(uint8_t out[VB_GRH_BYTES], const struct vb_ud_route *route, size_t packet_bytes)
{
	size_t payload = UDP_HEADER_BYTES + packet_bytes + ICRC_BYTES;
	struct vb_grh *grh = (struct vb_grh *)out;

	memset(out, 0, VB_GRH_BYTES);
	if (is_v4(route->source) && is_v4(route->destination)) {
		put_v4(out + VB_GRH_BYTES - V4_HEADER_BYTES, route, payload);
		return;
	}
	vb_grh_set_ip_version(grh, 6);
	vb_grh_set_traffic_class(grh, route->traffic_class);
	vb_grh_set_flow_label(grh, route->flow_label);
	vb_grh_set_payload_length(grh, payload);
	vb_grh_set_next_header(grh, UDP_PROTOCOL);
	vb_grh_set_hop_limit(grh, route->hop_limit);
	vb_grh_set_source_gid(grh, route->source, sizeof(route->source));
	vb_grh_set_destination_gid(grh, route->destination, sizeof(route->destination));
}
