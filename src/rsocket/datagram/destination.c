/* SPDX-License-Identifier: BSD-2-Clause */
/* Destinations, and the exchange over UDP until both queue pairs are known. */
#include <stdlib.h>
#include <string.h>

#include "host/net/route.h"
#include "rsocket/datagram/datagram.h"

enum { MAX_UDP_RECEIVED = 64, MAX_DESTS = 4096 };

/* ---- destinations ---- */

static void free_dest(struct vb_rs *s, struct vb_rs_dest *dest)
{
	if (dest->ah && !vb_rs_is_inherited(s))
		ibv_destroy_ah(dest->ah);
	free(dest);
}

void vb_rs_dests_free(struct vb_rs *s)
{
	struct vb_rs_datagram *d = s->datagram;

	for (unsigned i = 0; i < VB_RS_BUCKETS; i++) {
		struct vb_rs_dest *dest;

		while ((dest = d->buckets[i])) {
			d->buckets[i] = dest->next;
			free_dest(s, dest);
		}
	}
	d->num_dests = 0;
}

static struct vb_rs_dest **bucket_of(struct vb_rs_datagram *d, const struct vb_cma_addr *addr)
{
	unsigned hash = addr->port * 31u;

	for (unsigned i = 0; i < 16; i++)
		hash = hash * 31 + addr->ip.s6_addr[i];
	return &d->buckets[hash % VB_RS_BUCKETS];
}

static struct vb_rs_dest *find_dest(struct vb_rs_datagram *d, const struct vb_cma_addr *addr)
{
	struct vb_rs_dest *dest = *bucket_of(d, addr);

	while (dest && !vb_rs_is_same_name(&dest->addr, addr))
		dest = dest->next;
	return dest;
}

/* The name of the UDP socket. Routing chooses the address in place of a wildcard. */
static int source_for(struct vb_rs *s, const struct vb_cma_addr *to, struct vb_cma_addr *out)
{
	struct sockaddr_storage ss = { .ss_family = (sa_family_t)s->domain };
	socklen_t len = sizeof(ss);
	struct vb_route route;

	if (getsockname(s->fd, (struct sockaddr *)&ss, &len))
		return -errno;
	int err = vb_cma_addr_parse((struct sockaddr *)&ss, out);
	if (!err && !out->port) {
		/* Every datagram carries the port number, so there must be one. */
		if (bind(s->fd, (struct sockaddr *)&ss, len))
			return -errno;
		return source_for(s, to, out);
	}
	if (err || !vb_cma_addr_is_any(out))
		return err;
	err = vb_route_find(&to->ip, to->scope, NULL, &route);
	if (err)
		return err;
	unsigned link = to->scope ? to->scope : route.ifindex;
	out->ip = route.source;
	out->scope = IN6_IS_ADDR_LINKLOCAL(&out->ip) ? link : 0;
	out->family = to->family;
	return 0;
}

int vb_rs_dest_get(struct vb_rs *s, const struct vb_cma_addr *addr, struct vb_rs_dest **out)
{
	struct vb_rs_datagram *d = s->datagram;
	struct vb_cma_addr source;
	struct vb_rs_port *port;

	*out = find_dest(d, addr);
	if (*out)
		return 0;
	int err = source_for(s, addr, &source);
	if (!err)
		err = vb_rs_port_get(s, &source, &port);
	if (err)
		return err;
	if (d->num_dests >= MAX_DESTS)
		vb_rs_dests_free(s); /* those in use are made again */
	struct vb_rs_dest *dest = calloc(1, sizeof(*dest));
	if (!dest)
		return -ENOMEM;
	dest->addr = *addr;
	dest->port = port;
	dest->next = *bucket_of(d, addr);
	*bucket_of(d, addr) = dest;
	d->num_dests++;
	*out = dest;
	return 0;
}

/* The peer's queue pair has the address that its UDP messages come from. */
static void make_ah(const struct vb_rs *s, struct vb_rs_dest *dest)
{
	struct ibv_ah_attr attr = { 0 };
	union ibv_gid dgid;

	if (dest->ah || !dest->peer.qpn)
		return;
	memcpy(dgid.raw, &dest->addr.ip, sizeof(dgid.raw));
	vb_cma_fill_ah(vb_cma_id_of(dest->port->id), &dgid, &attr);
	attr.grh.traffic_class = s->options.tos;
	dest->ah = ibv_create_ah(dest->port->id->pd, &attr);
}

void vb_rs_dests_renew(struct vb_rs *s)
{
	for (unsigned i = 0; i < VB_RS_BUCKETS; i++) {
		for (struct vb_rs_dest *dest = s->datagram->buckets[i]; dest; dest = dest->next) {
			if (!dest->ah)
				continue;
			ibv_destroy_ah(dest->ah);
			dest->ah = NULL;
			make_ah(s, dest);
		}
	}
}

/* ---- UDP ---- */

ssize_t vb_rs_udp_send(struct vb_rs *s, const struct vb_rs_dest *dest, const void *data, size_t bytes,
		       enum vb_rs_udp_op op)
{
	VB_UNCANCELLED;
	struct sockaddr_storage to;
	struct vb_rs_udp h;
	struct vb_rs_name ours = vb_rs_name_of(&dest->port->addr);
	uint32_t header_bytes = vb_rs_udp_header_make(&ours, dest->port->id->qp->qp_num, op, &h);
	struct iovec parts[] = { { h.b, header_bytes }, { (void *)(uintptr_t)data, bytes } };
	struct msghdr msg = { .msg_name = &to, .msg_iov = parts, .msg_iovlen = VB_ARRAY_LEN(parts) };

	vb_cma_addr_format(&dest->addr, &to);
	msg.msg_namelen = to.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	ssize_t n = sendmsg(s->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	return n < 0 ? -errno : n - (ssize_t)header_bytes;
}

static void queue_received(struct vb_rs_datagram *d, const struct vb_cma_addr *src, const uint8_t *data,
			   size_t bytes)
{
	struct vb_rs_udp_received *e =
		d->num_udp_received < MAX_UDP_RECEIVED ? malloc(sizeof(*e) + bytes) : NULL;

	if (!e)
		return; /* datagrams may be lost */
	e->src = *src;
	e->bytes = (uint32_t)bytes;
	memcpy(e->data, data, bytes);
	vb_list_add_tail(&d->udp_received, &e->node);
	d->num_udp_received++;
}

static void take_udp(struct vb_rs *s, const uint8_t *data, size_t bytes, const struct sockaddr_storage *from)
{
	struct vb_cma_addr src;
	struct vb_rs_udp h;
	struct vb_rs_dest *dest;
	uint32_t header_bytes = vb_rs_udp_header_parse(data, bytes, from->ss_family == AF_INET, &h);

	if (!header_bytes || vb_cma_addr_parse((const struct sockaddr *)from, &src) ||
	    vb_rs_dest_get(s, &src, &dest))
		return;
	bool answers = vb_rs_peer_learn(&dest->peer, &h);
	make_ah(s, dest);
	if (!answers)
		return;
	(void)vb_rs_udp_send(s, dest, NULL, 0, VB_RS_UDP_CONTROL);
	if (vb_rs_datagram_is_wanted(s->datagram, &src))
		queue_received(s->datagram, &src, data + header_bytes, bytes - header_bytes);
}

bool vb_rs_udp_take(struct vb_rs *s)
{
	VB_UNCANCELLED;
	/* what has room in a buffer may come over UDP */
	uint8_t data[VB_RS_UDP_IPV6_BYTES + VB_RS_BUFFER_BYTES];
	struct sockaddr_storage from;
	socklen_t len = sizeof(from);
	ssize_t n;
	bool any = false;

	for (unsigned i = 0; i < VB_RS_BATCH; i++, len = sizeof(from)) {
		n = recvfrom(s->fd, data, sizeof(data), MSG_DONTWAIT | MSG_TRUNC, (struct sockaddr *)&from,
			     &len);
		if (n < 0)
			break;
		if ((size_t)n <= sizeof(data))
			take_udp(s, data, (size_t)n, &from);
		any = true;
	}
	s->datagram->udp_is_due = any;
	return any;
}
