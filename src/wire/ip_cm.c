/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/ip_cm.h"

#include <errno.h>

#define SERVICE_PREFIX  UINT64_C(0x0000000001000000)
#define IPV4_AT         12	/* an IPv4 address takes the last 4 of the 16 bytes */

_Static_assert(sizeof(struct vb_ip_cm_header) == VB_IP_CM_BYTES, "IP CM header");

VB_FIELD_TABLE(vb_ip_cm_header, 0, VB_IP_CM_ROWS);
const struct vb_field_table *const vb_ip_cm_fields = &vb_ip_cm_header_table;

uint64_t vb_ip_cm_service_id(uint8_t port_space, uint16_t port)
{
	return SERVICE_PREFIX | (uint64_t)port_space << 16 | port;
}

bool vb_ip_cm_service_id_parse(uint64_t service_id, uint8_t *port_space, uint16_t *port)
{
	if ((service_id & ~UINT64_C(0xffffff)) != SERVICE_PREFIX)
		return false;
	*port_space = (uint8_t)(service_id >> 16);
	*port = (uint16_t)service_id;
	return true;
}

static void put_address(uint8_t field[16], const uint8_t *address, uint8_t ip_version)
{
	memset(field, 0, 16);
	if (ip_version == 4)
		memcpy(field + IPV4_AT, address, 4);
	else
		memcpy(field, address, 16);
}

static void get_address(uint8_t address[16], const uint8_t *field, uint8_t ip_version)
{
	memset(address, 0, 16);
	if (ip_version == 4)
		memcpy(address, field + IPV4_AT, 4);
	else
		memcpy(address, field, 16);
}

void vb_ip_cm_encode(const struct vb_ip_cm *ip, uint8_t bytes[VB_IP_CM_BYTES])
{
	struct vb_ip_cm_header h = { 0 };
	uint8_t address[16];

	vb_ip_cm_header_set_ip_version(&h, ip->ip_version);
	vb_ip_cm_header_set_port(&h, ip->source_port);
	put_address(address, ip->source, ip->ip_version);
	vb_ip_cm_header_set_source(&h, address, sizeof(address));
	put_address(address, ip->destination, ip->ip_version);
	vb_ip_cm_header_set_destination(&h, address, sizeof(address));
	memcpy(bytes, h.b, sizeof(h.b));
}

int vb_ip_cm_decode(const void *bytes, size_t len, struct vb_ip_cm *ip)
{
	struct vb_ip_cm_header h;
	uint32_t version;

	if (len < sizeof(h.b))
		return -EBADMSG;
	memcpy(h.b, bytes, sizeof(h.b));
	version = vb_ip_cm_header_ip_version(&h);
	if (vb_ip_cm_header_major_version(&h) || vb_ip_cm_header_minor_version(&h) ||
	    (version != 4 && version != 6))
		return -EBADMSG;
	ip->ip_version = (uint8_t)version;
	ip->source_port = (uint16_t)vb_ip_cm_header_port(&h);
	get_address(ip->source, vb_ip_cm_header_source(&h), ip->ip_version);
	get_address(ip->destination, vb_ip_cm_header_destination(&h), ip->ip_version);
	return 0;
}
