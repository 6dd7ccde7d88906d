/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagram sockets. A UDP socket gives the name and the number. Data go between UD queue pairs, one for each
 * local address that is used (a port). A destination whose queue pair is not known gets its datagrams over
 * UDP, with a header that names our queue pair. It answers with a header that names its own; after that, data
 * go between the queue pairs.
 *
 *	rsendto ─▶ destination known? ──yes─▶ UD header + data ─▶ queue pair ─▶ rrecvfrom          (datagram_io.c)
 *	                              ──no──▶ UDP header + data ─▶ UDP socket ─▶ rrecvfrom, and an answer (destination.c)
 *
 * The calling threads do this work, also for what came over UDP. Anybody may have sent that: it is checked,
 * and there is a limit to the destinations, and to the datagrams that came over UDP and wait to be read. The
 * socket's `lock` guards all.
 */
#ifndef VB_RSOCKET_DATAGRAM_H
#define VB_RSOCKET_DATAGRAM_H

#include <netinet/in.h>
#include <string.h>

#include "proto/rsocket/rs_datagram.h"
#include "rdmacm/cma.h"
#include "rsocket/core/rs.h"

enum {
	VB_RS_BUFFER_BYTES   = VB_RS_LOW_WATER, /* of a datagram with its header */
	VB_RS_GRH_BYTES      = 40,
	VB_RS_RECEIVE_BUFFER = 2112,            /* GRH and a datagram with its header, in cache lines */
	VB_RS_BUCKETS        = 256,
	VB_RS_BATCH          = 16,
};

/* The bit of a work request's id that says that it is a send. It holds also if the request fails. */
#define VB_RS_IS_SEND (UINT64_C(1) << 32)

/* A local address. */
struct vb_rs_port {
	struct vb_list node;
	struct vb_cma_addr addr;
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	bool is_armed;
	uint32_t num_send, num_receive, largest; /* buffers; bytes of a datagram with its header */
	uint8_t *send_buffers, *receive_buffers;
	struct ibv_mr *send_mr, *receive_mr;
	uint32_t *free_buffers, num_free;          /* a stack */
	struct vb_rs_received { uint32_t buffer, bytes; } *ready; /* num_receive of them, a ring */
	uint32_t first_ready, num_ready;
	uint8_t header[VB_RS_UD_IPV6_BYTES];     /* of what goes out */
	uint8_t header_bytes;
};

struct vb_rs_dest {
	struct vb_rs_dest *next; /* in its bucket */
	struct vb_cma_addr addr;
	struct vb_rs_port *port;
	struct vb_rs_peer peer;
	struct ibv_ah *ah; /* NULL: its queue pair is not known, or cannot be reached */
};

static inline bool vb_rs_dest_has_qp(const struct vb_rs_dest *dest) { return dest->ah && dest->peer.qpn; }

static inline struct vb_rs_name vb_rs_name_of(const struct vb_cma_addr *addr)
{
	struct vb_rs_name name = { .port = addr->port };

	memcpy(name.ip, &addr->ip, sizeof(name.ip));
	return name;
}

/* A datagram that came over UDP. */
struct vb_rs_udp_received {
	struct vb_list node;
	struct vb_cma_addr src;
	uint32_t bytes;
	uint8_t data[];
};

struct vb_rs_datagram {
	int epfd;
	struct vb_list ports, udp_received;
	unsigned num_udp_received, num_dests;
	struct vb_rs_dest *buckets[VB_RS_BUCKETS];
	struct vb_cma_addr peer; /* of rconnect; family 0: none */
	uint64_t udp_looked;     /* when the UDP socket was read: vb_rs_look_is_due */
	bool udp_is_due;         /* something may wait at the UDP socket */
	bool reading_is_shut, writing_is_shut; /* rshutdown, rclose */
};

/* A program may leave out the link of a link-local address where its socket has one. */
static inline bool vb_rs_is_same_name(const struct vb_cma_addr *a, const struct vb_cma_addr *b)
{
	return a->port == b->port && !memcmp(&a->ip, &b->ip, sizeof(a->ip)) &&
	       (a->scope == b->scope || !a->scope || !b->scope);
}

/* A connected socket receives from its peer alone. */
static inline bool vb_rs_datagram_is_wanted(const struct vb_rs_datagram *d, const struct vb_cma_addr *src)
{
	return !d->peer.family || vb_rs_is_same_name(&d->peer, src);
}

/* ---- ports (port.c) ---- */

/* The port of a local address with its port number, made at its first use. 0 or a negative errno. */
int vb_rs_port_get(struct vb_rs *s, const struct vb_cma_addr *addr, struct vb_rs_port **out);
/* The port is in no list. */
void vb_rs_port_free(struct vb_rs *s, struct vb_rs_port *p);
int vb_rs_port_post_receive(struct vb_rs_port *p, uint32_t buffer);

/* ---- destinations and UDP (destination.c) ---- */

/* The destination of this address. 0 or a negative errno. Frees all others if there are too many. */
int vb_rs_dest_get(struct vb_rs *s, const struct vb_cma_addr *addr, struct vb_rs_dest **out);
void vb_rs_dests_free(struct vb_rs *s);
/* Their queue pairs are reached as the options say now. */
void vb_rs_dests_renew(struct vb_rs *s);
/* Bytes or a negative errno. */
ssize_t vb_rs_udp_send(struct vb_rs *s, const struct vb_rs_dest *dest, const void *data, size_t bytes,
		       enum vb_rs_udp_op op);
/* Takes what came. True: something did; then it may have freed destinations. */
bool vb_rs_udp_take(struct vb_rs *s);

/* ---- sockets (datagram.c) ---- */

/* Makes the UDP socket, s->fd. 0 or a negative errno. */
int vb_rs_datagram_open(struct vb_rs *s);
/* With the last reference. */
void vb_rs_datagram_free(struct vb_rs *s);

/* Under the lock; as socket/socket.h has it of sockets. */
bool vb_rs_datagram_progress_locked(struct vb_rs *s);
unsigned vb_rs_datagram_sleep_fds_locked(struct vb_rs *s, struct pollfd fds[VB_RS_SLEEP_FDS]);
void vb_rs_datagram_sleep_events_locked(struct vb_rs *s);
short vb_rs_datagram_revents_locked(struct vb_rs *s, short events);
bool vb_rs_datagram_is_readable(struct vb_rs *s);
bool vb_rs_datagram_is_writable(struct vb_rs *s);
/* As shutdown(2). Wakes whoever waits. */
void vb_rs_datagram_shut_locked(struct vb_rs *s, int how);
/*
 * The next datagram to be received, until vb_rs_datagram_release_locked: its bytes (0 also: none), where they
 * are, who sent it, and the port that it came to (NULL: it came over UDP).
 */
size_t vb_rs_datagram_next_locked(struct vb_rs *s, struct vb_cma_addr *src, const uint8_t **data,
				  struct vb_rs_port **port);
void vb_rs_datagram_release_locked(struct vb_rs *s, struct vb_rs_port *port);

#endif
