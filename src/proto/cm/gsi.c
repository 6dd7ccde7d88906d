/* SPDX-License-Identifier: BSD-2-Clause */
#include "proto/cm/gsi.h"

#include <errno.h>

#include "wire/packet.h"

_Static_assert(sizeof(struct vb_gsi_packet) == VB_BTH_BYTES + 8 + VB_MAD_BYTES, "headers follow each other");

void vb_gsi_packet_init(struct vb_gsi_packet *packet, const struct vb_mad *mad)
{
	*packet = (struct vb_gsi_packet){ .mad = *mad };
	vb_bth_set_opcode(&packet->bth, VB_OPCODE(UD, SEND_ONLY));
	vb_bth_set_mig_req(&packet->bth, 1);
	vb_bth_set_pkey(&packet->bth, VB_PKEY_DEFAULT);
	vb_bth_set_destination_qpn(&packet->bth, VB_GSI_QPN);
	vb_deth_set_qkey(&packet->deth, VB_GSI_QKEY);
	vb_deth_set_source_qpn(&packet->deth, VB_GSI_QPN);
}

int vb_gsi_packet_parse(const void *bytes, size_t len, struct vb_cm_msg *msg)
{
	struct vb_packet p;

	if (vb_packet_parse(bytes, len, &p) || p.opcode != VB_OPCODE(UD, SEND_ONLY) ||
	    p.destination_qpn != VB_GSI_QPN || !vb_pkey_matches(p.pkey, VB_PKEY_DEFAULT))
		return -EBADMSG;
	if (vb_deth_qkey((const struct vb_deth *)vb_packet_extension(&p, VB_EXT_DETH)) != VB_GSI_QKEY)
		return -EBADMSG;
	return vb_cm_msg_parse(p.payload, p.payload_bytes, msg);
}

struct vb_cm_service_name vb_cm_service_name(const struct vb_cm_service *service)
{
	struct vb_cm_service_name n = { "rdma_cm/1/" };
	char *at = n.bytes + 10;

	memcpy(at, &service->port_space, 2);
	memcpy(at + 2, &service->port, 2);
	memcpy(at + 4, &service->scope, 4);
	memcpy(at + 8, service->ip, 16);
	return n;
}

struct vb_cm_service vb_cm_service_anywhere(const struct vb_cm_service *service)
{
	static const uint8_t any_v4[16] = { [10] = 0xff, [11] = 0xff };
	struct vb_cm_service any = { .port_space = service->port_space, .port = service->port };

	if (memcmp(service->ip, any_v4, 12) == 0)
		memcpy(any.ip, any_v4, sizeof(any.ip));
	return any;
}

bool vb_cm_service_of(const struct vb_cm_msg *msg, const uint8_t ip[16], uint32_t scope,
		      struct vb_cm_service *service)
{
	uint64_t id = vb_cm_msg_service_id(msg);

	if (!id || id >> 32)
		return false;
	*service = (struct vb_cm_service){ .port_space = (uint16_t)(id >> 16),
					   .port = (uint16_t)id,
					   .scope = scope };
	memcpy(service->ip, ip, sizeof(service->ip));
	return true;
}
