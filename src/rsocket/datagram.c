/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagram sockets. A UDP socket gives the name and the number; data go between UD queue pairs, one for each local address that is
 * used (a port). A destination whose queue pair is not known gets its datagrams over UDP, with a header that names ours; it answers with
 * a header that names its own, and from then on the queue pairs talk to each other.
 *
 *	rsendto ─▶ destination known? ──yes─▶ UD header + data ─▶ queue pair ─▶ rrecvfrom
 *	                              ──no──▶ UDP header + data ─▶ UDP socket ─▶ rrecvfrom, and an answer
 *
 * Whoever calls does this work, also what came over UDP. What comes from there is anybody's: it is checked, destinations and
 * undelivered early datagrams are bounded. `lock` of the socket guards all.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "rdmacm/cma.h"
#include "rsocket/rs.h"

enum {
	SLOT_BYTES   = VB_RS_LOW_WATER, /* of a datagram with its header */
	GRH_BYTES    = 40,
	RECEIVE_SLOT = 2112,            /* GRH and slot, in cache lines */
	MIN_SLOTS    = 16,
	MAX_EARLY    = 64,
	MAX_DESTS    = 4096,
	BUCKETS      = 256,
	BATCH        = 16,
	LOOKS        = 64,              /* at empty CQs until the UDP socket is looked at */
	MAX_IOV      = 64,
	HOP_LIMIT    = 64,
};

/* A local address. */
struct port {
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
	struct received { uint32_t slot, bytes; } *ready; /* num_receive of them, a ring */
	uint32_t first_ready, num_ready;
	uint8_t header[VB_RS_UD_IPV6_BYTES];     /* of what goes out */
	uint8_t header_bytes;
};

struct dest {
	struct dest *next; /* in its bucket */
	struct vb_cma_addr addr;
	struct port *port;
	struct ibv_ah *ah; /* NULL: its queue pair is not known */
	uint32_t qpn;
};

/* What came over UDP. */
struct early {
	struct vb_list node;
	struct vb_cma_addr src;
	uint32_t bytes;
	uint8_t data[];
};

struct vb_rs_datagram {
	int epfd;
	struct vb_list ports, early;
	unsigned num_early, num_dests;
	struct dest *buckets[BUCKETS];
	struct vb_cma_addr peer; /* of rconnect; family 0: none */
	unsigned looks;
	bool udp_news;
};

static void *zeroed(size_t n, size_t size) { return calloc(n ? n : 1, size); }

/* ---- life ---- */

int vb_rs_datagram_open(struct vb_rs *s)
{
	struct vb_rs_datagram *d = calloc(1, sizeof(*d));
	struct epoll_event event = { .events = EPOLLIN };

	if (!d)
		return -ENOMEM;
	vb_list_init(&d->ports);
	vb_list_init(&d->early);
	d->epfd = epoll_create1(EPOLL_CLOEXEC);
	s->datagram = d;
	int fd = socket(s->domain, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (d->epfd < 0 || fd < 0 || epoll_ctl(d->epfd, EPOLL_CTL_ADD, fd, &event)) {
		int err = -errno;
		if (fd >= 0)
			close(fd);
		return err;
	}
	int err = vb_rs_publish(s, fd);
	if (err)
		close(fd);
	return err;
}

static void free_port(struct vb_rs *s, struct port *p)
{
	bool is_ours = !vb_rs_is_inherited(s);

	if (is_ours && p->id && p->id->qp)
		rdma_destroy_qp(p->id);
	if (is_ours && p->send_mr)
		ibv_dereg_mr(p->send_mr);
	if (is_ours && p->receive_mr)
		ibv_dereg_mr(p->receive_mr);
	if (is_ours && p->cq)
		ibv_destroy_cq(p->cq);
	if (is_ours && p->channel)
		ibv_destroy_comp_channel(p->channel);
	else if (p->channel)
		close(p->channel->fd);
	if (is_ours && p->id)
		rdma_destroy_id(p->id);
	free(p->send_slots);
	free(p->receive_slots);
	free(p->free_slots);
	free(p->ready);
	free(p);
}

static void free_dest(struct vb_rs *s, struct dest *dest)
{
	if (dest->ah && !vb_rs_is_inherited(s))
		ibv_destroy_ah(dest->ah);
	free(dest);
}

static void free_dests(struct vb_rs *s)
{
	struct vb_rs_datagram *d = s->datagram;

	for (unsigned i = 0; i < BUCKETS; i++) {
		struct dest *dest;

		while ((dest = d->buckets[i])) {
			d->buckets[i] = dest->next;
			free_dest(s, dest);
		}
	}
	d->num_dests = 0;
}

void vb_rs_datagram_close(struct vb_rs *s)
{
	struct vb_rs_datagram *d = s->datagram;
	struct vb_list *node;

	if (!d)
		return;
	free_dests(s);
	while ((node = vb_list_pop(&d->early)))
		free(vb_container_of(node, struct early, node));
	while ((node = vb_list_pop(&d->ports)))
		free_port(s, vb_container_of(node, struct port, node));
	if (d->epfd >= 0)
		close(d->epfd);
	if (s->fd >= 0)
		close(s->fd);
	free(d);
	s->datagram = NULL;
}

/* ---- ports ---- */

static void make_header(struct port *p)
{
	struct vb_rs_ud_ipv4 v4 = { 0 };
	struct vb_rs_ud_ipv6 v6 = { 0 };

	if (vb_cma_ip_is_v4(&p->addr.ip)) {
		vb_rs_ud_ipv4_set_version(&v4, 4);
		vb_rs_ud_ipv4_set_length(&v4, sizeof(v4.b));
		vb_rs_ud_ipv4_set_port(&v4, p->addr.port);
		vb_rs_ud_ipv4_set_ipv4(&v4, &p->addr.ip.s6_addr[12], 4);
		memcpy(p->header, v4.b, sizeof(v4.b));
		p->header_bytes = sizeof(v4.b);
		return;
	}
	vb_rs_ud_ipv6_set_version(&v6, 6);
	vb_rs_ud_ipv6_set_length(&v6, sizeof(v6.b));
	vb_rs_ud_ipv6_set_port(&v6, p->addr.port);
	vb_rs_ud_ipv6_set_ipv6(&v6, &p->addr.ip, 16);
	memcpy(p->header, v6.b, sizeof(v6.b));
	p->header_bytes = sizeof(v6.b);
}

static uint32_t slots_of(uint32_t queue, uint32_t bytes)
{
	uint32_t n = vb_min_u32(queue, bytes / SLOT_BYTES);

	return n < MIN_SLOTS ? MIN_SLOTS : n;
}

static int allocate_slots(struct vb_rs *s, struct port *p)
{
	p->num_send = slots_of(s->options.send_queue, s->options.send_bytes);
	p->num_receive = slots_of(s->options.receive_queue, s->options.receive_bytes);
	p->send_slots = zeroed(p->num_send, SLOT_BYTES);
	p->receive_slots = zeroed(p->num_receive, RECEIVE_SLOT);
	p->free_slots = zeroed(p->num_send, sizeof(*p->free_slots));
	p->ready = zeroed(p->num_receive, sizeof(*p->ready));
	if (!p->send_slots || !p->receive_slots || !p->free_slots || !p->ready)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->num_send; i++)
		p->free_slots[p->num_free++] = i;
	return 0;
}

static int post_receive(struct port *p, uint32_t slot)
{
	struct ibv_sge sge = { (uintptr_t)p->receive_slots + (size_t)slot * RECEIVE_SLOT, GRH_BYTES + SLOT_BYTES, p->receive_mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 };

	return -ibv_post_recv(p->id->qp, &wr, &bad);
}

static int bind_port(struct port *p)
{
	struct vb_cma_addr any_port = p->addr;
	struct sockaddr_storage ss;

	any_port.port = 0;
	vb_cma_addr_format(&any_port, &ss);
	return rdma_create_id(NULL, &p->id, NULL, RDMA_PS_UDP) || rdma_bind_addr(p->id, (struct sockaddr *)&ss) ? -errno : 0;
}

static int create_qp(struct vb_rs *s, struct port *p)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = p->cq,
		.recv_cq = p->cq,
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = p->num_send, .max_recv_wr = p->num_receive, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_port_attr port_attr;

	if (rdma_create_qp(p->id, NULL, &attr) || ibv_query_port(p->id->verbs, p->id->port_num, &port_attr))
		return -errno;
	p->largest = vb_min_u32(SLOT_BYTES, 128u << port_attr.active_mtu);
	p->send_mr = ibv_reg_mr(p->id->pd, p->send_slots, (size_t)p->num_send * SLOT_BYTES, IBV_ACCESS_LOCAL_WRITE);
	p->receive_mr = ibv_reg_mr(p->id->pd, p->receive_slots, (size_t)p->num_receive * RECEIVE_SLOT, IBV_ACCESS_LOCAL_WRITE);
	return p->send_mr && p->receive_mr ? 0 : -ENOMEM;
}

static int start_port(struct vb_rs *s, struct port *p)
{
	struct epoll_event event = { .events = EPOLLIN };
	int err = bind_port(p);

	if (!err)
		err = allocate_slots(s, p);
	if (!err)
		err = vb_rs_cq_create(p->id, p->num_send + p->num_receive, &p->channel, &p->cq);
	if (!err)
		err = create_qp(s, p);
	for (uint32_t i = 0; i < p->num_receive && !err; i++)
		err = post_receive(p, i);
	if (!err && epoll_ctl(s->datagram->epfd, EPOLL_CTL_ADD, p->channel->fd, &event))
		err = -errno;
	return err;
}

static int create_port(struct vb_rs *s, const struct vb_cma_addr *addr, struct port **out)
{
	struct port *p = calloc(1, sizeof(*p));
	char text[VB_CMA_TEXT];

	if (!p)
		return -ENOMEM;
	p->addr = *addr;
	make_header(p);
	int err = start_port(s, p);
	if (err) {
		vb_explain("rsocket", "no queue pair for datagrams from %s: %s", vb_cma_addr_text(addr, text), strerror(-err));
		free_port(s, p);
		return err;
	}
	vb_list_add_tail(&s->datagram->ports, &p->node);
	*out = p;
	return 0;
}

static int get_port(struct vb_rs *s, const struct vb_cma_addr *addr, struct port **out)
{
	struct port *p;

	vb_list_for_each(p, &s->datagram->ports, node) {
		if (!memcmp(&p->addr.ip, &addr->ip, sizeof(addr->ip))) {
			*out = p;
			return 0;
		}
	}
	return create_port(s, addr, out);
}

/* ---- destinations ---- */

static bool is_same(const struct vb_cma_addr *a, const struct vb_cma_addr *b)
{
	return a->port == b->port && !memcmp(&a->ip, &b->ip, sizeof(a->ip));
}

static struct dest **bucket_of(struct vb_rs_datagram *d, const struct vb_cma_addr *addr)
{
	unsigned hash = addr->port * 31u;

	for (unsigned i = 0; i < 16; i++)
		hash = hash * 31 + addr->ip.s6_addr[i];
	return &d->buckets[hash % BUCKETS];
}

static struct dest *find_dest(struct vb_rs_datagram *d, const struct vb_cma_addr *addr)
{
	struct dest *dest = *bucket_of(d, addr);

	while (dest && !is_same(&dest->addr, addr))
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

static int get_dest(struct vb_rs *s, const struct vb_cma_addr *addr, struct dest **out)
{
	struct vb_rs_datagram *d = s->datagram;
	struct vb_cma_addr source;
	struct port *port;

	*out = find_dest(d, addr);
	if (*out)
		return 0;
	int err = source_for(s, addr, &source);
	if (!err)
		err = get_port(s, &source, &port);
	if (err)
		return err;
	if (d->num_dests >= MAX_DESTS)
		free_dests(s); /* those in use come back by themselves */
	struct dest *dest = calloc(1, sizeof(*dest));
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
static void learn(struct dest *dest, uint32_t qpn)
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

static void make_udp_header(const struct dest *dest, enum vb_rs_udp_op op, struct vb_rs_udp *h)
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

static ssize_t send_udp(struct vb_rs *s, const struct dest *dest, const struct iovec *iov, int iovcnt, enum vb_rs_udp_op op)
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
	struct early *e = d->num_early < MAX_EARLY ? malloc(sizeof(*e) + bytes) : NULL;

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
	struct dest *dest;

	memcpy(h.b, data, bytes < sizeof(h.b) ? bytes : sizeof(h.b));
	if (!is_valid(&h, bytes, from) || vb_cma_addr_parse((const struct sockaddr *)from, &src) || get_dest(s, &src, &dest))
		return;
	learn(dest, vb_rs_udp_qpn(&h));
	if (vb_rs_udp_op(&h) != VB_RS_UDP_DATA)
		return;
	(void)send_udp(s, dest, NULL, 0, VB_RS_UDP_CONTROL);
	keep_early(s->datagram, &src, data + vb_rs_udp_length(&h), bytes - vb_rs_udp_length(&h));
}

static bool take_all_udp(struct vb_rs *s)
{
	uint8_t data[SLOT_BYTES];
	struct sockaddr_storage from;
	socklen_t len = sizeof(from);
	ssize_t n;
	bool any = false;

	for (unsigned i = 0; i < BATCH; i++, len = sizeof(from)) {
		n = recvfrom(s->fd, data, sizeof(data), MSG_DONTWAIT, (struct sockaddr *)&from, &len);
		if (n < 0)
			break;
		take_udp(s, data, (size_t)n, &from);
		any = true;
	}
	s->datagram->udp_news = any;
	return any;
}

/* ---- progress ---- */

/* Which header a packet has; 0: none that we know. */
static uint32_t header_of(const uint8_t *data, uint32_t bytes)
{
	if (bytes >= VB_RS_UD_IPV4_BYTES && data[0] == 4 && data[1] == VB_RS_UD_IPV4_BYTES)
		return VB_RS_UD_IPV4_BYTES;
	if (bytes >= VB_RS_UD_IPV6_BYTES && data[0] == 6 && data[1] == VB_RS_UD_IPV6_BYTES)
		return VB_RS_UD_IPV6_BYTES;
	return 0;
}

static uint8_t *packet_in(struct port *p, uint32_t slot)
{
	return p->receive_slots + (size_t)slot * RECEIVE_SLOT + GRH_BYTES;
}

static void take_packet(struct port *p, const struct ibv_wc *wc)
{
	uint32_t slot = (uint32_t)wc->wr_id, bytes = wc->byte_len > GRH_BYTES ? wc->byte_len - GRH_BYTES : 0;

	if (!header_of(packet_in(p, slot), bytes)) {
		(void)post_receive(p, slot);
		return;
	}
	p->ready[(p->first_ready + p->num_ready++) % p->num_receive] = (struct received){ slot, bytes };
}

/* Send work requests are told from receives by this bit of their id, which holds also if they failed. */
#define IS_SEND (UINT64_C(1) << 32)

static bool progress_port(struct port *p)
{
	struct ibv_wc wc[BATCH];
	bool any = false;
	int n;

	do {
		n = ibv_poll_cq(p->cq, BATCH, wc);
		for (int i = 0; i < n; i++) {
			if (wc[i].wr_id & IS_SEND)
				p->free_slots[p->num_free++] = (uint32_t)wc[i].wr_id;
			else if (wc[i].status == IBV_WC_SUCCESS)
				take_packet(p, &wc[i]);
		}
		any |= n > 0;
	} while (n == BATCH);
	return any;
}

bool vb_rs_datagram_progress_locked(struct vb_rs *s)
{
	struct vb_rs_datagram *d = s->datagram;
	struct port *p;
	bool any = false;

	vb_list_for_each(p, &d->ports, node)
		any |= progress_port(p);
	if (!any && (d->udp_news || vb_list_is_empty(&d->ports) || ++d->looks >= LOOKS)) {
		d->looks = 0;
		any = take_all_udp(s);
	}
	return any;
}

bool vb_rs_datagram_arm_locked(struct vb_rs *s, int *fd)
{
	struct port *p;
	bool any = false;

	*fd = s->datagram->epfd;
	vb_list_for_each(p, &s->datagram->ports, node) {
		if (p->is_armed)
			continue;
		p->is_armed = !ibv_req_notify_cq(p->cq, 0);
		any |= progress_port(p);
	}
	return !any;
}

void vb_rs_datagram_news_locked(struct vb_rs *s)
{
	struct port *p;

	vb_list_for_each(p, &s->datagram->ports, node) {
		if (p->is_armed && vb_rs_cq_take_event(p->channel)) {
			ibv_ack_cq_events(p->cq, 1);
			p->is_armed = false;
		}
	}
	s->datagram->udp_news = true;
	vb_rs_wake_locked(s); /* others sleep on with unarmed CQs */
}

bool vb_rs_datagram_is_readable(struct vb_rs *s)
{
	struct port *p;

	if (!vb_list_is_empty(&s->datagram->early))
		return true;
	vb_list_for_each(p, &s->datagram->ports, node)
		if (p->num_ready)
			return true;
	return false;
}

bool vb_rs_datagram_is_writable(struct vb_rs *s)
{
	struct port *p;

	vb_list_for_each(p, &s->datagram->ports, node)
		if (!p->num_free)
			return false;
	return true;
}

/* ---- receiving ---- */

static size_t scatter(const struct iovec *iov, int iovcnt, const uint8_t *data, size_t bytes)
{
	size_t done = 0;

	for (int i = 0; i < iovcnt && done < bytes; i++) {
		size_t n = vb_min_u64(iov[i].iov_len, bytes - done);

		memcpy(iov[i].iov_base, data + done, n);
		done += n;
	}
	return done;
}

static void tell_source(const struct vb_cma_addr *src, sa_family_t domain, struct sockaddr *addr, socklen_t *len)
{
	struct vb_cma_addr of_domain = *src;
	struct sockaddr_storage ss;

	if (!addr || !len)
		return;
	of_domain.family = domain;
	vb_cma_addr_format(&of_domain, &ss);
	socklen_t whole = domain == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	memcpy(addr, &ss, *len < whole ? *len : whole);
	*len = whole;
}

static void source_of(const uint8_t *packet, struct vb_cma_addr *src)
{
	struct vb_rs_ud_ipv6 v6;
	struct vb_rs_ud_ipv4 v4;

	if (packet[0] == 4) {
		memcpy(v4.b, packet, sizeof(v4.b));
		vb_cma_addr_any(AF_INET, src);
		memcpy(&src->ip.s6_addr[12], vb_rs_ud_ipv4_ipv4(&v4), 4);
		src->port = (uint16_t)vb_rs_ud_ipv4_port(&v4);
		return;
	}
	memcpy(v6.b, packet, sizeof(v6.b));
	vb_cma_addr_any(AF_INET6, src);
	memcpy(&src->ip, vb_rs_ud_ipv6_ipv6(&v6), 16);
	src->port = (uint16_t)vb_rs_ud_ipv6_port(&v6);
}

/* The next datagram: from where, and its bytes; release_next gives its place back. */
static size_t look_at_next(struct vb_rs *s, struct vb_cma_addr *src, const uint8_t **data, struct port **from)
{
	struct vb_rs_datagram *d = s->datagram;
	struct port *p;

	*from = NULL;
	if (!vb_list_is_empty(&d->early)) {
		struct early *e = vb_container_of(d->early.next, struct early, node);
		*src = e->src;
		*data = e->data;
		return e->bytes;
	}
	vb_list_for_each(p, &d->ports, node) {
		if (!p->num_ready)
			continue;
		const struct received *r = &p->ready[p->first_ready];
		const uint8_t *packet = packet_in(p, r->slot);
		uint32_t header = header_of(packet, r->bytes);
		source_of(packet, src);
		*data = packet + header;
		*from = p;
		return r->bytes - header;
	}
	return 0;
}

static void release_next(struct vb_rs *s, struct port *from)
{
	struct vb_rs_datagram *d = s->datagram;

	if (!from) {
		free(vb_container_of(vb_list_pop(&d->early), struct early, node));
		d->num_early--;
		return;
	}
	(void)post_receive(from, from->ready[from->first_ready].slot);
	from->first_ready = (from->first_ready + 1) % from->num_receive;
	from->num_ready--;
}

/* A connected socket hears its peer alone. */
static bool is_wanted(const struct vb_rs_datagram *d, const struct vb_cma_addr *src)
{
	return !d->peer.family || is_same(&d->peer, src);
}

static ssize_t receive_locked(struct vb_rs *s, const struct iovec *iov, int iovcnt, int flags, struct sockaddr *addr, socklen_t *len,
			      int *msg_flags)
{
	struct vb_cma_addr src;
	struct port *from;
	const uint8_t *data = NULL;

	for (;;) {
		int err = vb_rs_datagram_is_readable(s) ? 0 :
			  vb_rs_wait_locked(s, vb_rs_datagram_is_readable, vb_rs_may_block(s, flags), s->options.receive_timeout_ns);
		if (err)
			return err;
		size_t bytes = look_at_next(s, &src, &data, &from);
		bool wanted = is_wanted(s->datagram, &src);
		size_t n = wanted ? scatter(iov, iovcnt, data, bytes) : 0;
		if (!wanted || !(flags & MSG_PEEK))
			release_next(s, from);
		if (!wanted)
			continue;
		tell_source(&src, (sa_family_t)s->domain, addr, len);
		if (msg_flags && n < bytes)
			*msg_flags |= MSG_TRUNC;
		return (ssize_t)(flags & MSG_TRUNC ? bytes : n);
	}
}

ssize_t vb_rs_datagram_receive(struct vb_rs *s, const struct iovec *iov, int iovcnt, int flags, struct sockaddr *src, socklen_t *len,
			       int *msg_flags)
{
	pthread_mutex_lock(&s->lock);
	ssize_t n = receive_locked(s, iov, iovcnt, flags, src, len, msg_flags);
	pthread_mutex_unlock(&s->lock);
	return n;
}

/* ---- sending ---- */

static size_t total(const struct iovec *iov, int iovcnt)
{
	size_t bytes = 0;

	for (int i = 0; i < iovcnt; i++)
		bytes += iov[i].iov_len;
	return bytes;
}

static void gather(uint8_t *to, const struct iovec *iov, int iovcnt)
{
	for (int i = 0; i < iovcnt; i++) {
		if (iov[i].iov_len)
			memcpy(to, iov[i].iov_base, iov[i].iov_len);
		to += iov[i].iov_len;
	}
}

static ssize_t send_packet(struct dest *dest, const struct iovec *iov, int iovcnt, size_t bytes)
{
	struct port *p = dest->port;
	uint32_t slot = p->free_slots[--p->num_free];
	uint8_t *at = p->send_slots + (size_t)slot * SLOT_BYTES;
	struct ibv_sge sge = { (uintptr_t)at, (uint32_t)(p->header_bytes + bytes), p->send_mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = IS_SEND | slot,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.wr.ud = { .ah = dest->ah, .remote_qpn = dest->qpn, .remote_qkey = RDMA_UDP_QKEY },
	};

	memcpy(at, p->header, p->header_bytes);
	gather(at + p->header_bytes, iov, iovcnt);
	int err = ibv_post_send(p->id->qp, &wr, &bad);
	if (!err)
		return (ssize_t)bytes;
	p->free_slots[p->num_free++] = slot;
	return -err;
}

static ssize_t send_locked(struct vb_rs *s, const struct vb_cma_addr *to, const struct iovec *iov, int iovcnt, int flags)
{
	size_t bytes = total(iov, iovcnt);
	struct dest *dest;
	int err = get_dest(s, to, &dest);

	if (err)
		return err;
	if (bytes > dest->port->largest - dest->port->header_bytes) {
		vb_explain("rsendto", "%zu bytes; one packet carries %u", bytes, dest->port->largest - dest->port->header_bytes);
		return -EMSGSIZE;
	}
	if (!dest->ah && take_all_udp(s)) /* an answer may wait there */
		err = get_dest(s, to, &dest);
	if (err)
		return err;
	if (!dest->ah)
		return send_udp(s, dest, iov, iovcnt, VB_RS_UDP_DATA);
	if (!dest->port->num_free) {
		err = vb_rs_wait_locked(s, vb_rs_datagram_is_writable, vb_rs_may_block(s, flags), s->options.send_timeout_ns);
		if (err)
			return err;
		return send_locked(s, to, iov, iovcnt, flags); /* the lock was away */
	}
	return send_packet(dest, iov, iovcnt, bytes);
}

ssize_t vb_rs_datagram_send(struct vb_rs *s, const struct iovec *iov, int iovcnt, int flags, const struct sockaddr *addr, socklen_t len)
{
	struct vb_cma_addr to = s->datagram->peer;
	ssize_t n;

	if (addr && (len < sizeof(struct sockaddr_in) || vb_cma_addr_parse(addr, &to)))
		return -EINVAL;
	if (!to.family)
		return -EDESTADDRREQ;
	pthread_mutex_lock(&s->lock);
	n = send_locked(s, &to, iov, iovcnt, flags);
	pthread_mutex_unlock(&s->lock);
	return n;
}

/* ---- names ---- */

int vb_rs_datagram_bind(struct vb_rs *s, const struct sockaddr *addr, socklen_t len)
{
	return bind(s->fd, addr, len) ? -errno : 0;
}

int vb_rs_datagram_connect(struct vb_rs *s, const struct sockaddr *addr, socklen_t len)
{
	struct vb_cma_addr to = { 0 };
	struct dest *dest;
	int err = 0;

	if (addr->sa_family != AF_UNSPEC && (len < sizeof(struct sockaddr_in) || vb_cma_addr_parse(addr, &to)))
		return -EINVAL;
	pthread_mutex_lock(&s->lock);
	if (to.family)
		err = get_dest(s, &to, &dest);
	if (!err && connect(s->fd, addr, len))
		err = -errno;
	if (!err)
		s->datagram->peer = to;
	pthread_mutex_unlock(&s->lock);
	return err;
}
