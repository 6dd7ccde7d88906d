/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagram sockets. A UDP socket gives the name and the number; data go between UD queue pairs, one for each
 * local address that is used (a port). A destination whose queue pair is not known gets its datagrams over
 * UDP, with a header that names ours; it answers with a header that names its own, and from then on the queue
 * pairs talk to each other.
 *
 *	rsendto ─▶ destination known? ──yes─▶ UD header + data ─▶ queue pair ─▶ rrecvfrom          (datagram.c)
 *	                              ──no──▶ UDP header + data ─▶ UDP socket ─▶ rrecvfrom, and an answer (datagram_udp.c)
 *
 * Whoever calls does this work, also what came over UDP. What comes from there is anybody's: it is checked;
 * destinations, and early datagrams that nobody took, are bounded. `lock` of the socket guards all.
 */
#ifndef VB_RSOCKET_DATAGRAM_H
#define VB_RSOCKET_DATAGRAM_H

#include <netinet/in.h>
#include <string.h>

#include "proto/rsocket/rs_datagram.h"
#include "rdmacm/cma.h"
#include "rsocket/rs.h"

enum {
	VB_RS_SLOT_BYTES   = VB_RS_LOW_WATER, /* of a datagram with its header */
	VB_RS_GRH_BYTES    = 40,
	VB_RS_RECEIVE_SLOT = 2112,            /* GRH and slot, in cache lines */
	VB_RS_BUCKETS      = 256,
	VB_RS_BATCH        = 16,
};

/* A local address. */
struct vb_rs_port {
	struct vb_list node;
	struct vb_cma_addr addr;
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	bool is_armed;
	uint32_t num_send, num_receive, largest; /* slots; bytes of a datagram with its header */
	uint8_t *send_slots, *receive_slots;
	struct ibv_mr *send_mr, *receive_mr;
	uint32_t *free_slots, num_free;          /* a stack */
	struct vb_rs_received { uint32_t slot, bytes; } *ready; /* num_receive of them, a ring */
	uint32_t first_ready, num_ready;
	uint8_t header[VB_RS_UD_IPV6_BYTES];     /* of what goes out */
	uint8_t header_bytes;
};

struct vb_rs_dest {
	struct vb_rs_dest *next; /* in its bucket */
	struct vb_cma_addr addr;
	struct vb_rs_port *port;
	struct vb_rs_peer peer;
	struct ibv_ah *ah; /* NULL: its queue pair is not known, or out of reach */
};

static inline bool vb_rs_is_reached(const struct vb_rs_dest *dest) { return dest->ah && dest->peer.qpn; }

static inline struct vb_rs_name vb_rs_name_of(const struct vb_cma_addr *addr)
{
	struct vb_rs_name name = { .port = addr->port };

	memcpy(name.ip, &addr->ip, sizeof(name.ip));
	return name;
}

/* What came over UDP. */
struct vb_rs_early {
	struct vb_list node;
	struct vb_cma_addr src;
	uint32_t bytes;
	uint8_t data[];
};

struct vb_rs_datagram {
	int epfd;
	struct vb_list ports, early;
	unsigned num_early, num_dests;
	struct vb_rs_dest *buckets[VB_RS_BUCKETS];
	struct vb_cma_addr peer; /* of rconnect; family 0: none */
	unsigned looks;
	bool udp_news;
	bool is_deaf, is_mute;   /* rshutdown, rclose */
};

static inline bool vb_rs_is_same_name(const struct vb_cma_addr *a, const struct vb_cma_addr *b)
{
	return a->port == b->port && !memcmp(&a->ip, &b->ip, sizeof(a->ip));
}

/* ---- ports (datagram_port.c) ---- */

/* The port of a local address, made at its first use. 0 or a negative errno. */
int vb_rs_port_get(struct vb_rs *s, const struct vb_cma_addr *addr, struct vb_rs_port **out);
/* It is in no list. */
void vb_rs_port_free(struct vb_rs *s, struct vb_rs_port *p);
int vb_rs_port_post_receive(struct vb_rs_port *p, uint32_t slot);

/* ---- destinations and UDP (datagram_udp.c) ---- */

/* With the port that reaches it. 0 or a negative errno. Other destinations may be gone afterwards. */
int vb_rs_dest_get(struct vb_rs *s, const struct vb_cma_addr *addr, struct vb_rs_dest **out);
void vb_rs_dests_free(struct vb_rs *s);
/* Bytes or a negative errno. */
ssize_t vb_rs_udp_send(struct vb_rs *s, const struct vb_rs_dest *dest, const struct iovec *iov, int iovcnt,
		       enum vb_rs_udp_op op);
/* Takes what came. True: something did; destinations may be gone then. */
bool vb_rs_udp_take(struct vb_rs *s);

#endif
