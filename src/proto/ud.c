/* SPDX-License-Identifier: BSD-2-Clause */
#include "proto/ud.h"

#include <errno.h>

#include "base/inet.h"
#include "proto/rc/request.h"

enum {
	UDP_PROTOCOL = 17,
	UDP_HEADER_BYTES = 8,
	ICRC_BYTES = 4,
	V4_HEADER_BYTES = 20,
};

/* ---- packets ---- */

_Static_assert((int)VB_UD_HEADER_BYTES <= VB_MAX_HEADER_BYTES, "a datagram's headers fit");

size_t vb_ud_build(uint8_t header[VB_UD_HEADER_BYTES], const struct vb_ud_send *send, unsigned *pad)
{
	struct vb_packet_to to = { .qpn = send->destination_qpn,
				   .pkey = VB_PKEY_DEFAULT,
				   .service = VB_SERVICE_UD };
	struct vb_packet_out out;
	const struct vb_opcode_row *row =
		vb_packet_out_begin(&out, &to, send->has_imm ? VB_OPB_SEND_ONLY_IMM : VB_OPB_SEND_ONLY,
				    send->psn, send->payload_bytes);
	struct vb_deth *deth = vb_packet_out_extension(&out, row, VB_EXT_DETH);

	vb_bth_set_solicited((struct vb_bth *)out.header, send->solicited);
	vb_deth_set_qkey(deth, send->qkey);
	vb_deth_set_source_qpn(deth, send->source_qpn);
	if (send->has_imm)
		vb_immdt_set_data(vb_packet_out_extension(&out, row, VB_EXT_IMMDT), &send->imm,
				  sizeof(send->imm));
	memcpy(header, out.header, VB_UD_HEADER_BYTES);
	*pad = out.pad_bytes;
	return out.header_bytes;
}

int vb_ud_parse(const struct vb_packet *p, struct vb_ud_arrival *out)
{
	if (p->opcode != VB_OPCODE(UD, SEND_ONLY) && p->opcode != VB_OPCODE(UD, SEND_ONLY_IMM))
		return -EBADMSG;
	if (!vb_pkey_matches(p->pkey, VB_PKEY_DEFAULT) || p->payload_bytes > VB_UD_PAYLOAD_BYTES)
		return -EBADMSG;
	const struct vb_deth *deth = (const struct vb_deth *)vb_packet_extension(p, VB_EXT_DETH);
	*out = (struct vb_ud_arrival){
		.payload = p->payload,
		.payload_bytes = p->payload_bytes,
		.destination_qpn = p->destination_qpn,
		.source_qpn = vb_deth_source_qpn(deth),
		.qkey = vb_deth_qkey(deth),
		.has_imm = vb_opcode_has(p->row, VB_EXT_IMMDT),
		.solicited = p->solicited,
	};
	if (out->has_imm)
		memcpy(&out->imm, vb_packet_extension(p, VB_EXT_IMMDT), sizeof(out->imm));
	return 0;
}

/* ---- the bytes before the data ---- */

static bool is_v4(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid, mapped, sizeof(mapped));
}

/* RFC 791; identification 0 and "don't fragment", as RoCE v2 packets are sent. */
static void put_v4(uint8_t h[V4_HEADER_BYTES], const struct vb_ud_route *route, size_t payload)
{
	size_t total = V4_HEADER_BYTES + payload;
	const uint8_t fixed[12] = { 0x45, route->traffic_class, (uint8_t)(total >> 8), (uint8_t)total, 0, 0,
		0x40, 0,
				    route->hop_limit, UDP_PROTOCOL, 0, 0 };

	memcpy(h, fixed, sizeof(fixed));
	memcpy(h + 12, route->source + 12, 4);
	memcpy(h + 16, route->destination + 12, 4);
	uint16_t sum = vb_inet_checksum(h, V4_HEADER_BYTES);
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
