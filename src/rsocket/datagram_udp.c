/* SPDX-License-Identifier: BSD-2-Clause */
/* Whom datagrams go to, and what is said over UDP until the queue pairs know each other. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rsocket/datagram.h"

enum { MAX_EARLY = 64, MAX_DESTS = 4096, MAX_IOV = 64 };

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

/* The name of the UDP socket; a wildcard address is replaced by the one that routing would choose. */
static int source_for(struct vb_rs *s, const struct vb_cma_addr *to, struct vb_cma_addr *out)
{
	struct sockaddr_storage ss = { .ss_family = (sa_family_t)s->domain };
	socklen_t len = sizeof(ss);
	struct vb_route route;

	if (getsockname(s->fd, (struct sockaddr *)&ss, &len))
		return -errno;
	int err = vb_cma_addr_parse((struct sockaddr *)&ss, out);
	if (!err && !out->port) {
		/* The port number goes with every datagram, so there must be one. */
		if (bind(s->fd, (struct sockaddr *)&ss, len))
			return -errno;
		return source_for(s, to, out);
	}
	if (err || !vb_cma_addr_is_any(out))
		return err;
	err = vb_route_find(&to->ip, to->scope, NULL, &route);
	if (err)
		return err;
	out->ip = route.source;
	out->scope = IN6_IS_ADDR_LINKLOCAL(&out->ip) ? route.ifindex : 0;
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
		vb_rs_dests_free(s); /* those in use come back by themselves */
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

/* The peer's queue pair is at the address that its UDP messages come from. */
static void learn(struct vb_rs_dest *dest, uint32_t qpn)
{
	struct ibv_ah_attr attr = { 0 };
	union ibv_gid dgid;

	if (dest->ah && dest->qpn == qpn)
		return;
	dest->qpn = qpn;
	if (dest->ah)
		return;
	memcpy(dgid.raw, &dest->addr.ip, sizeof(dgid.raw));
	vb_cma_fill_ah(vb_cma_id_of(dest->port->id), &dgid, &attr);
	dest->ah = ibv_create_ah(dest->port->id->pd, &attr);
}

/* ---- UDP ---- */

static void make_udp_header(const struct vb_rs_dest *dest, enum vb_rs_udp_op op, struct vb_rs_udp *h)
{
	const struct in6_addr *ip = &dest->port->addr.ip;
	bool v4 = vb_cma_ip_is_v4(ip);

	*h = (struct vb_rs_udp){ 0 };
	vb_rs_udp_set_tag(h, VB_RS_UDP_TAG);
	vb_rs_udp_set_version(h, v4 ? 4 : 6);
	vb_rs_udp_set_op(h, op);
	vb_rs_udp_set_length(h, v4 ? VB_RS_UDP_IPV4_BYTES : VB_RS_UDP_IPV6_BYTES);
	vb_rs_udp_set_qpn(h, dest->port->id->qp->qp_num);
	vb_rs_udp_set_address(h, v4 ? &ip->s6_addr[12] : ip->s6_addr, v4 ? 4 : 16);
}

ssize_t vb_rs_udp_send(struct vb_rs *s, const struct vb_rs_dest *dest, const struct iovec *iov, int iovcnt, enum vb_rs_udp_op op)
{
	struct iovec all[MAX_IOV + 1];
	struct sockaddr_storage to;
	struct vb_rs_udp h;
	struct msghdr msg = { .msg_name = &to, .msg_iov = all, .msg_iovlen = (size_t)iovcnt + 1 };

	if (iovcnt > MAX_IOV)
		return -EMSGSIZE;
	make_udp_header(dest, op, &h);
	vb_cma_addr_format(&dest->addr, &to);
	msg.msg_namelen = to.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	all[0] = (struct iovec){ h.b, vb_rs_udp_length(&h) };
	if (iovcnt)
		memcpy(&all[1], iov, (size_t)iovcnt * sizeof(*iov));
	ssize_t n = sendmsg(s->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	return n < 0 ? -errno : n - (ssize_t)vb_rs_udp_length(&h);
}

static bool is_valid(const struct vb_rs_udp *h, size_t bytes, const struct sockaddr_storage *from)
{
	bool v4 = from->ss_family == AF_INET;
	uint32_t length = v4 ? VB_RS_UDP_IPV4_BYTES : VB_RS_UDP_IPV6_BYTES;

	return bytes >= length && vb_rs_udp_tag(h) == VB_RS_UDP_TAG && vb_rs_udp_version(h) == (v4 ? 4 : 6) &&
	       vb_rs_udp_length(h) == length && (vb_rs_udp_op(h) == VB_RS_UDP_DATA || vb_rs_udp_op(h) == VB_RS_UDP_CONTROL);
}

static void keep_early(struct vb_rs_datagram *d, const struct vb_cma_addr *src, const uint8_t *data, size_t bytes)
{
	struct vb_rs_early *e = d->num_early < MAX_EARLY ? malloc(sizeof(*e) + bytes) : NULL;

	if (!e)
		return; /* lost, as datagrams are */
	e->src = *src;
	e->bytes = (uint32_t)bytes;
	memcpy(e->data, data, bytes);
	vb_list_add_tail(&d->early, &e->node);
	d->num_early++;
}

static void take_udp(struct vb_rs *s, const uint8_t *data, size_t bytes, const struct sockaddr_storage *from)
{
	struct vb_cma_addr src;
	struct vb_rs_udp h = { 0 };
	struct vb_rs_dest *dest;

	memcpy(h.b, data, bytes < sizeof(h.b) ? bytes : sizeof(h.b));
	if (!is_valid(&h, bytes, from) || vb_cma_addr_parse((const struct sockaddr *)from, &src) || vb_rs_dest_get(s, &src, &dest))
		return;
	learn(dest, vb_rs_udp_qpn(&h));
	if (vb_rs_udp_op(&h) != VB_RS_UDP_DATA)
		return;
	(void)vb_rs_udp_send(s, dest, NULL, 0, VB_RS_UDP_CONTROL);
	keep_early(s->datagram, &src, data + vb_rs_udp_length(&h), bytes - vb_rs_udp_length(&h));
}

bool vb_rs_udp_take(struct vb_rs *s)
{
	uint8_t data[VB_RS_SLOT_BYTES];
	struct sockaddr_storage from;
	socklen_t len = sizeof(from);
	ssize_t n;
	bool any = false;

	for (unsigned i = 0; i < VB_RS_BATCH; i++, len = sizeof(from)) {
		n = recvfrom(s->fd, data, sizeof(data), MSG_DONTWAIT, (struct sockaddr *)&from, &len);
		if (n < 0)
			break;
		take_udp(s, data, (size_t)n, &from);
		any = true;
	}
	s->datagram->udp_news = any;
	return any;
}
