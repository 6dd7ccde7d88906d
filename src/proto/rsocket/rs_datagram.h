/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The protocol of datagram sockets, pure: the headers, and how two sockets learn each other's queue pairs.
 *
 *	A knows nothing of B ── UDP, with data: "my queue pair is a" ──▶ B: knows a
 *	A: knows b           ◀── UDP, no data: "my queue pair is b" ──── B
 *	A ◀── between the queue pairs, each datagram with its sender's name ──▶ B
 *
 * Messages are not confirmed. The next datagram repeats what was lost: it goes over UDP as long as the
 * other's queue pair is not known. Only messages with data are answered, so that two sockets never answer
 * each other's answers. Anybody may have sent what arrives. There are no generations: a late message of a
 * closed socket is taken for one of the next socket with the same name.
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

/* Makes the header of what `from` sends. Returns its bytes. */
uint32_t vb_rs_ud_header_make(const struct vb_rs_name *from, uint8_t header[VB_RS_UD_IPV6_BYTES]);
/* The bytes of a packet's header, and the sender that it names. 0: no valid header. */
uint32_t vb_rs_ud_header_parse(const void *packet, size_t bytes, struct vb_rs_name *from) VB_MUST_USE;

/* ---- over UDP ---- */

/* Makes the header of what the socket at `from` with that queue pair sends. Returns its bytes. */
uint32_t vb_rs_udp_header_make(const struct vb_rs_name *from, uint32_t qpn, enum vb_rs_udp_op op,
			       struct vb_rs_udp *header);
/* Copies a message's header, and returns its bytes. 0: no valid header for this version of IP. */
uint32_t vb_rs_udp_header_parse(const void *message, size_t bytes, bool ipv4,
				struct vb_rs_udp *header) VB_MUST_USE;

/* ---- peers ---- */

/* What a socket knows of another one. Zeroed: nothing. */
struct vb_rs_peer {
	uint32_t qpn; /* 0: not known */
};

/* A message of the peer came over UDP. Returns whether to answer it with a message without data. */
bool vb_rs_peer_learn(struct vb_rs_peer *peer, const struct vb_rs_udp *header);

#endif
