/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What anybody sends to a datagram socket, over UDP and to its queue pair.
 *
 * Input: a byte that says which of the two, and over which IP version; then the message.
 *
 * Invariants: a header that is taken fits the message; made again from what was understood it is the same,
 * but for bytes without a meaning; only data are answered.
 */
#include "fuzz.h"
#include "proto/rsocket/rs_datagram.h"

static void hear_udp(const uint8_t *message, size_t bytes, bool ipv4)
{
	struct vb_rs_peer peer = { .qpn = 7 };
	struct vb_rs_udp h, again;
	struct vb_rs_name name = { .ip = { 0 } };
	uint32_t length = vb_rs_udp_header_parse(message, bytes, ipv4, &h);

	if (!length)
		return;
	must(length <= bytes && length == (ipv4 ? VB_RS_UDP_IPV4_BYTES : VB_RS_UDP_IPV6_BYTES));
	must(vb_rs_peer_learn(&peer, &h) == (vb_rs_udp_op(&h) == VB_RS_UDP_DATA));
	must(peer.qpn == vb_rs_udp_qpn(&h) && peer.qpn < 1 << 24);
	if (ipv4) {
		name.ip[10] = name.ip[11] = 0xff;
		memcpy(name.ip + 12, vb_rs_udp_address(&h), 4);
	} else {
		memcpy(name.ip, vb_rs_udp_address(&h), sizeof(name.ip));
	}
	if (vb_rs_name_is_ipv4(&name) != ipv4)
		return; /* an IPv4 address in IPv6's clothes */
	must(vb_rs_udp_header_make(&name, peer.qpn, (enum vb_rs_udp_op)vb_rs_udp_op(&h), &again) == length);
	h.b[7] = h.b[8] = 0;
	must(memcmp(&h, &again, sizeof(h)) == 0);
}

static void hear_packet(const uint8_t *packet, size_t bytes)
{
	uint8_t again[VB_RS_UD_IPV6_BYTES];
	struct vb_rs_name from, name;
	uint32_t length = vb_rs_ud_header_parse(packet, bytes, &from);

	if (!length)
		return;
	must(length <= bytes && length == (packet[0] == 4 ? VB_RS_UD_IPV4_BYTES : VB_RS_UD_IPV6_BYTES));
	if (vb_rs_name_is_ipv4(&from) != (packet[0] == 4))
		return;
	must(vb_rs_ud_header_make(&from, again) == length);
	must(vb_rs_ud_header_parse(again, length, &name) == length &&
	     memcmp(&name, &from, sizeof(name)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	uint8_t kind = take(&in);
	/* of its own, so that reading beyond it is seen */
	uint8_t *message = calloc(1, in.left ? in.left : 1);

	must(message != NULL);
	memcpy(message, in.at, in.left);
	if (kind & 1)
		hear_packet(message, in.left);
	else
		hear_udp(message, in.left, kind & 2);
	free(message);
	return 0;
}
