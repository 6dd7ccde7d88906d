/* SPDX-License-Identifier: BSD-2-Clause */
#include "proto/rsocket/rs_datagram.h"

#include <string.h>

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

bool vb_rs_name_is_ipv4(const struct vb_rs_name *name)
{
	return memcmp(name->ip, mapped, sizeof(mapped)) == 0;
}

static void set_ipv4(struct vb_rs_name *name, const uint8_t ipv4[4])
{
	memcpy(name->ip, mapped, sizeof(mapped));
	memcpy(name->ip + sizeof(mapped), ipv4, 4);
}

/* ---- between queue pairs ---- */

uint32_t vb_rs_ud_header_make(const struct vb_rs_name *from, uint8_t header[VB_RS_UD_IPV6_BYTES])
{
	struct vb_rs_ud_ipv4 v4 = { 0 };
	struct vb_rs_ud_ipv6 v6 = { 0 };

	if (vb_rs_name_is_ipv4(from)) {
		vb_rs_ud_ipv4_set_version(&v4, 4);
		vb_rs_ud_ipv4_set_length(&v4, sizeof(v4.b));
		vb_rs_ud_ipv4_set_port(&v4, from->port);
		vb_rs_ud_ipv4_set_ipv4(&v4, from->ip + sizeof(mapped), 4);
		memcpy(header, v4.b, sizeof(v4.b));
		return sizeof(v4.b);
	}
	vb_rs_ud_ipv6_set_version(&v6, 6);
	vb_rs_ud_ipv6_set_length(&v6, sizeof(v6.b));
	vb_rs_ud_ipv6_set_port(&v6, from->port);
	vb_rs_ud_ipv6_set_ipv6(&v6, from->ip, sizeof(from->ip));
	memcpy(header, v6.b, sizeof(v6.b));
	return sizeof(v6.b);
}

static uint32_t parse_ipv4(const void *packet, size_t bytes, struct vb_rs_name *from)
{
	struct vb_rs_ud_ipv4 h;

	if (bytes < sizeof(h.b))
		return 0;
	memcpy(h.b, packet, sizeof(h.b));
	if (vb_rs_ud_ipv4_length(&h) != sizeof(h.b))
		return 0;
	set_ipv4(from, vb_rs_ud_ipv4_ipv4(&h));
	from->port = (uint16_t)vb_rs_ud_ipv4_port(&h);
	return sizeof(h.b);
}

static uint32_t parse_ipv6(const void *packet, size_t bytes, struct vb_rs_name *from)
{
	struct vb_rs_ud_ipv6 h;

	if (bytes < sizeof(h.b))
		return 0;
	memcpy(h.b, packet, sizeof(h.b));
	if (vb_rs_ud_ipv6_length(&h) != sizeof(h.b))
		return 0;
	memcpy(from->ip, vb_rs_ud_ipv6_ipv6(&h), sizeof(from->ip));
	from->port = (uint16_t)vb_rs_ud_ipv6_port(&h);
	return sizeof(h.b);
}

uint32_t vb_rs_ud_header_parse(const void *packet, size_t bytes, struct vb_rs_name *from)
{
	uint8_t version = bytes ? *(const uint8_t *)packet : 0;

	if (version == 4)
		return parse_ipv4(packet, bytes, from);
	return version == 6 ? parse_ipv6(packet, bytes, from) : 0;
}

/* ---- over UDP ---- */

uint32_t vb_rs_udp_header_make(const struct vb_rs_name *from, uint32_t qpn, enum vb_rs_udp_op op,
			       struct vb_rs_udp *header)
{
	bool v4 = vb_rs_name_is_ipv4(from);

	*header = (struct vb_rs_udp){ 0 };
	vb_rs_udp_set_tag(header, VB_RS_UDP_TAG);
	vb_rs_udp_set_version(header, v4 ? 4 : 6);
	vb_rs_udp_set_op(header, op);
	vb_rs_udp_set_length(header, v4 ? VB_RS_UDP_IPV4_BYTES : VB_RS_UDP_IPV6_BYTES);
	vb_rs_udp_set_qpn(header, qpn);
	vb_rs_udp_set_address(header, v4 ? from->ip + sizeof(mapped) : from->ip, v4 ? 4 : sizeof(from->ip));
	return (uint32_t)vb_rs_udp_length(header);
}

uint32_t vb_rs_udp_header_parse(const void *message, size_t bytes, bool ipv4, struct vb_rs_udp *header)
{
	uint32_t length = ipv4 ? VB_RS_UDP_IPV4_BYTES : VB_RS_UDP_IPV6_BYTES;

	*header = (struct vb_rs_udp){ 0 };
	if (bytes < length)
		return 0;
	memcpy(header->b, message, length);
	if (vb_rs_udp_tag(header) != VB_RS_UDP_TAG || vb_rs_udp_version(header) != (ipv4 ? 4 : 6) ||
	    vb_rs_udp_length(header) != length)
		return 0;
	return vb_rs_udp_op(header) == VB_RS_UDP_DATA || vb_rs_udp_op(header) == VB_RS_UDP_CONTROL ? length :
												     0;
}

/* ---- peers ---- */

bool vb_rs_peer_learn(struct vb_rs_peer *peer, const struct vb_rs_udp *header)
{
	peer->qpn = (uint32_t)vb_rs_udp_qpn(header);
	return vb_rs_udp_op(header) == VB_RS_UDP_DATA;
}
