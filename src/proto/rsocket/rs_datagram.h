/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The protocol of datagram sockets, pure: the headers, and how two sockets come to know each other's queue
 * pairs.
 *
 *	A knows nothing of B ── UDP, with data: "my queue pair is a" ──▶ B: knows a
 *	A: knows b           ◀── UDP, no data: "my queue pair is b" ──── B
 *	A ◀── between the queue pairs, each datagram with its sender's name ──▶ B
 *
 * What one message says nobody confirms: what is lost is said again by the next datagram, which goes over UDP
 * as long as the other's queue pair is not known. Only data are answered, so that two sockets never answer
 * each other for ever. Whatever arrives may be anybody's. It leaves out generations: what is about a socket
 * that is gone, and arrives when another has its name, misleads.
 */
#ifndef VB_PROTO_RS_DATAGRAM_H
#define VB_PROTO_RS_DATAGRAM_H

#include "wire/rsocket.h"

/* A socket's name. IPv4 as ::ffff:a.b.c.d; the port in host order. */
struct vb_rs_name {
	uint8_t ip[16];
	uint16_t port;
};

bool vb_rs_name_is_ipv4(const struct vb_rs_name *name);

/* ---- between queue pairs ---- */

/* The header of what `from` sends; returns its bytes. */
uint32_t vb_rs_ud_header_make(const struct vb_rs_name *from, uint8_t header[VB_RS_UD_IPV6_BYTES]);
/* The bytes of a packet's header, and who says to have sent it; 0: no header that we know. */
uint32_t vb_rs_ud_header_parse(const void *packet, size_t bytes, struct vb_rs_name *from) VB_MUST_USE;

/* ---- over UDP ---- */

/* The header of what the socket at `from` with that queue pair sends; returns its bytes. */
uint32_t vb_rs_udp_header_make(const struct vb_rs_name *from, uint32_t qpn, enum vb_rs_udp_op op,
			       struct vb_rs_udp *header);
/*
 * The bytes of a message's header, which is copied to *header; 0: no header of a message over this version of
 * IP.
 */
uint32_t vb_rs_udp_header_parse(const void *message, size_t bytes, bool ipv4,
				struct vb_rs_udp *header) VB_MUST_USE;

/* ---- peers ---- */

/* What a socket knows of another one. Zeroed: nothing. */
struct vb_rs_peer {
	uint32_t qpn; /* 0: not known */
};

/*
 * A message of its came over UDP. Returns whether to answer it, with a message of our own that has no data.
 */
bool vb_rs_peer_hear(struct vb_rs_peer *peer, const struct vb_rs_udp *header);

#endif
