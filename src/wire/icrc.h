/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The invariant CRC of RoCEv2 packets (IB vol. 1, 7.8.1 and annex A17): the Ethernet CRC-32 over eight bytes
 * of ones, the IP and UDP headers and the packet from the BTH on, with the fields that may change under way
 * read as ones: IPv4 TTL, type of service and checksum, or IPv6 traffic class, flow label and hop limit; the
 * UDP checksum; the BTH byte with FECN and BECN. It follows the payload and its padding, least significant
 * byte first.
 *
 * The IPv4 identification is covered, and an ordinary UDP socket neither sets nor sees it. A sender with DF
 * set on an unconnected socket has 0, and 0, 1, 2, ... over the segments of one batch. A receiver solves for
 * it: the CRC is linear, so a difference between the CRC found and the CRC computed for a guess,
 * wound back to the place of that field, must fit into its 16 bits. Of random damage that lets 1 in 65,536
 * pass instead of 1 in 2^32.
 *
 * All of IPv4 here has DF set, no options and no fragments. No state but the caller's; threads do not matter.
 */
#ifndef VB_WIRE_ICRC_H
#define VB_WIRE_ICRC_H

#include "wire/headers.h"

#define VB_ICRC_BYTES 4

/* What the ICRC covers below the BTH. Addresses have 4 or 16 bytes, in network order. */
struct vb_icrc_route {
	uint8_t ip_version;		/* 4 or 6 */
	uint8_t source[16], destination[16];
	uint16_t source_port, destination_port;	/* host order */
};

/* The CRC up to the end of the BTH. udp_bytes: BTH to ICRC, both included. ip_id is for IPv4 alone. */
uint32_t vb_icrc_begin(const struct vb_icrc_route *route, const struct vb_bth *bth, size_t udp_bytes,
		       uint16_t ip_id);
/* Goes on over what follows the BTH, in any number of pieces. */
uint32_t vb_icrc_add(uint32_t crc, const void *bytes, size_t len);
void vb_icrc_store(uint32_t crc, uint8_t out[VB_ICRC_BYTES]);

/*
 * What all packets of a route with one length and one identification have in common in the ICRC: the part
 * before the BTH, and the correction for the BTH's byte that is read as ones and is nearly always zero (the
 * CRC is linear). With it, a packet is read once, in place. A connection has few such lengths. Belongs to one
 * route; zeroed at first.
 */
struct vb_icrc_known {
	struct vb_icrc_constant {
		uint32_t before, ones;
		uint16_t len, ip_id;	/* len 0: none */
		bool is_whole;		/* ones is there, too */
	} of[64];			/* as many as packets have one length in one batch */
};

/* packet: BTH to ICRC in one piece, len bytes. Writes its ICRC. known: the route's, or NULL. */
void vb_icrc_sign(const struct vb_icrc_route *route, struct vb_icrc_known *known, void *packet, size_t len,
		  uint16_t ip_id);
/* packet as above. False also if len cannot be that of a packet. */
bool vb_icrc_check(const struct vb_icrc_route *route, const void *packet, size_t len, uint16_t ip_id);

/* Remembers the factor that belongs to the last length; one per receiver, zeroed. */
struct vb_icrc_solver {
	size_t len;
	uint32_t factor;
};

/*
 * As vb_icrc_check, with the one identification, if any, that makes the ICRC right. *ip_id: the caller's
 * guess, which saves the search if it is right; then the result. IPv6: the plain check. known: the route's,
 * or NULL.
 */
bool vb_icrc_check_any_ip_id(struct vb_icrc_solver *solver, const struct vb_icrc_route *route,
			     struct vb_icrc_known *known, const void *packet, size_t len, uint16_t *ip_id);

#endif
