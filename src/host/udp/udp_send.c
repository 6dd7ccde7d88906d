/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sending. One unconnected socket per source port: with DF set and no peer the kernel writes IPv4
 * identification 0, and counts up over the segments of one send. The ICRC needs that. These sockets receive
 * nothing but ICMP errors: a filter drops what else comes in. They do not share their ports (SO_REUSEPORT),
 * or they could receive another program's datagrams. If the wanted port is taken, another source port of
 * RoCEv2's range serves as well: the port is nothing but entropy.
 *
 * Control messages of a send cost time, a source address most of all. So a socket has the addressing of the
 * flow that it was opened for, and sends of other flows pass only what differs.
 *
 * Sockets are only added, under the host lock; the tables are read by anybody.
 */
#include "host/udp/udp_private.h"
#include "host/loop/share.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/inet.h"
#include "base/waits.h"

enum {
	MAX_SENDERS = 16,
	SENDERS_SHARE = 4, /* a quarter of what this process may spend on peers */
	SEND_BUFFER_BYTES = 4 << 20,
	ROOM_WAIT_MS = 2,
	MAX_TRIES = 4,    /* of a port */
	MAX_FAILURES = 256, /* of one send, for which earlier datagrams may be the reason */
	UDP_HEADER_BYTES = 8,
	IPV4_HEADER_BYTES = 20,
	IPV6_HEADER_BYTES = 40,
};

struct sender {
	int fd;
	uint16_t port;
	/* What the socket sends with by default; source all zeros: the kernel chooses. */
	struct in6_addr source;
	uint8_t traffic_class, hop_limit;
	struct vb_watch watch; /* for what is returned */
};

/* [0] IPv6, [1] IPv4. Entries below count never change. */
static struct {
	struct sender senders[MAX_SENDERS];
	_Atomic uint32_t count;
} families[2];

static _Atomic uint64_t packets_out, send_failures;

/* ---- what the kernel can do ---- */

static atomic_bool segmentation_refused, labels_refused;

static atomic_int switched_off = -1; /* by the environment; -1: not read yet */

static bool is_switched_off(void)
{
	int off = atomic_load_explicit(&switched_off, memory_order_relaxed);
	if (vb_unlikely(off < 0)) {
		const char *value = getenv("VERBATIM_GSO");
		off = value && !strcmp(value, "off");
		atomic_store(&switched_off, off);
	}
	return off;
}

unsigned vb_udp_segments(void)
{
	return is_switched_off() || atomic_load_explicit(&segmentation_refused, memory_order_relaxed) ?
		       1 :
		       VB_UDP_MAX_SEGMENTS;
}

/* ---- sockets ---- */

static void drop_all_input(int fd)
{
	struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
	vb_udp_attach(fd, SO_ATTACH_FILTER, &drop, 1);
}

static void set_send_options(int fd, bool ipv4)
{
	drop_all_input(fd);
	vb_udp_set_option(fd, SOL_SOCKET, SO_SNDBUF, SEND_BUFFER_BYTES);
	vb_udp_set_option(fd, SOL_SOCKET, SO_SNDBUFFORCE, SEND_BUFFER_BYTES);
	if (ipv4) {
		vb_udp_set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
	} else {
		vb_udp_set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
		vb_udp_set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
		vb_udp_set_option(fd, IPPROTO_IPV6, IPV6_FLOWINFO_SEND, 1);
	}
	/* A kernel without it would send all segments as one datagram. */
	int none = 0;
	if (setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &none, sizeof none) < 0)
		atomic_store(&segmentation_refused, true);
}

/* Port 0: any. The port that it got goes to *port. */
static int bind_port(int fd, bool ipv4, const struct in6_addr *source, uint16_t *port)
{
	union vb_ip_address address = vb_ip_address(source, ipv4, *port);
	socklen_t bytes = sizeof address;
	if (bind(fd, &address.any, vb_ip_address_bytes(ipv4)) < 0 ||
	    getsockname(fd, &address.any, &bytes) < 0)
		return -errno;
	*port = ntohs(ipv4 ? address.v4.sin_port : address.v6.sin6_port);
	return 0;
}

/* Binds a random port of RoCEv2's range, or any port if some tries fail. */
static int bind_flow_port(int fd, bool ipv4, const struct in6_addr *source, uint16_t *port)
{
	int err = -EADDRINUSE;
	for (unsigned i = 0; i < MAX_TRIES && err == -EADDRINUSE; i++) {
		vb_random(port, sizeof *port);
		*port |= VB_ROCE_FIRST_SOURCE_PORT;
		err = bind_port(fd, ipv4, source, port);
	}
	if (err != -EADDRINUSE)
		return err;
	*port = 0;
	return bind_port(fd, ipv4, source, port);
}

static int open_sender_locked(bool ipv4)
{
	int fd = vb_fd_own(socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (fd < 0)
		return -errno;
	set_send_options(fd, ipv4);
	return fd;
}

/* Binds the wanted port, if it is free; never the one of the receivers. */
static int bind_wanted_port(struct sender *s, bool ipv4, uint16_t wanted)
{
	s->port = wanted;
	int err = wanted == VB_ROCE_PORT ? -EADDRINUSE : bind_port(s->fd, ipv4, &s->source, &s->port);
	return err == -EADDRINUSE || err == -EACCES ? bind_flow_port(s->fd, ipv4, &s->source, &s->port) : err;
}

/* Binds the wanted source, if it is the host's; all zeros: any. */
static int bind_sender(struct sender *s, bool ipv4, uint16_t wanted)
{
	int err = bind_wanted_port(s, ipv4, wanted);
	if (err != -EADDRNOTAVAIL)
		return err;
	s->source = (struct in6_addr){ 0 };
	return bind_wanted_port(s, ipv4, wanted);
}

static uint8_t hop_limit_of(const struct vb_inbox_addr *addr)
{
	return addr->hop_limit ? addr->hop_limit : VB_HOP_LIMIT;
}

static bool set_number(int fd, int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

/*
 * If the socket refuses a traffic class or hop limit, its 0 stays here. That differs from the flow's, so each
 * send passes the value.
 */
static void take_addressing(struct sender *s, bool ipv4, const struct vb_inbox_addr *addr)
{
	int level = ipv4 ? IPPROTO_IP : IPPROTO_IPV6;
	if (!addr->traffic_class ||
	    set_number(s->fd, level, ipv4 ? IP_TOS : IPV6_TCLASS, addr->traffic_class))
		s->traffic_class = addr->traffic_class;
	if (set_number(s->fd, level, ipv4 ? IP_TTL : IPV6_UNICAST_HOPS, hop_limit_of(addr)))
		s->hop_limit = hop_limit_of(addr);
	if (!IN6_IS_ADDR_LINKLOCAL(&addr->src))
		s->source = addr->src;
}

static int sender_open_locked(bool ipv4, const struct vb_inbox_addr *addr)
{
	uint32_t n = families[ipv4].count;
	struct sender s = { .fd = open_sender_locked(ipv4) };
	if (s.fd < 0)
		return s.fd;
	take_addressing(&s, ipv4, addr);
	int err = bind_sender(&s, ipv4, addr->udp_sport);
	if (err) {
		vb_fd_close_locked(s.fd);
		return err;
	}
	families[ipv4].senders[n] = s;
	vb_udp_returned_watch_locked(&families[ipv4].senders[n].watch, s.fd, ipv4);
	/* pairs with sender_find */
	atomic_store_explicit(&families[ipv4].count, n + 1, memory_order_release);
	return 0;
}

static const struct sender *sender_find(bool ipv4, uint16_t port)
{
	uint32_t n = atomic_load_explicit(&families[ipv4].count, memory_order_acquire);
	for (uint32_t i = 0; i < n; i++)
		if (families[ipv4].senders[i].port == port)
			return &families[ipv4].senders[i];
	return NULL;
}

/* A port of another socket of this process is as taken as another program's. NULL: *err says why. */
static const struct sender *sender_for_locked(bool ipv4, const struct vb_inbox_addr *addr, int *err)
{
	const struct sender *s = sender_find(ipv4, addr->udp_sport);
	if (s)
		return s;
	uint32_t n = families[ipv4].count;
	bool may_have_more = !n || (n < MAX_SENDERS && n < vb_fd_share() / SENDERS_SHARE);
	if (may_have_more)
		*err = sender_open_locked(ipv4, addr);
	if (may_have_more && !*err)
		return &families[ipv4].senders[n];
	return n ? &families[ipv4].senders[(addr->udp_sport * 2654435761u >> 16) % n] : NULL;
}

/* NULL: no socket of this family can be had; *err says why. */
static const struct sender *sender_for(bool ipv4, const struct vb_inbox_addr *addr, int *err)
{
	const struct sender *s = sender_find(ipv4, addr->udp_sport);
	if (vb_likely(s))
		return s;
	vb_host_lock();
	s = sender_for_locked(ipv4, addr, err);
	vb_host_unlock();
	return s;
}

int vb_udp_prepare(const struct vb_inbox_addr *addr)
{
	int err = 0;
	return sender_for(vb_ip_is_v4(&addr->dst), addr, &err) ? 0 : err;
}

uint16_t vb_udp_source_port(const struct vb_inbox_addr *addr)
{
	int err = 0;
	const struct sender *s = sender_for(vb_ip_is_v4(&addr->dst), addr, &err);
	return s ? s->port : addr->udp_sport;
}

/* ---- one message ---- */

struct outgoing {
	struct msghdr header;
	struct iovec iov;
	union vb_ip_address to;
	union {
		char bytes[CMSG_SPACE(sizeof(struct in6_pktinfo)) + 2 * CMSG_SPACE(sizeof(int)) +
			   CMSG_SPACE(sizeof(uint16_t))];
		struct cmsghdr align;
	} control;
};

static void add_control(struct msghdr *m, int level, int type, const void *value, size_t bytes)
{
	struct cmsghdr *c = (struct cmsghdr *)((char *)m->msg_control + m->msg_controllen);
	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(bytes);
	memcpy(CMSG_DATA(c), value, bytes);
	m->msg_controllen += CMSG_SPACE(bytes);
}

static void add_source(struct msghdr *m, const struct vb_inbox_addr *addr, unsigned ifindex, bool ipv4)
{
	struct in_pktinfo v4 = { .ipi_ifindex = (int)ifindex };
	struct in6_pktinfo v6 = { .ipi6_addr = addr->src, .ipi6_ifindex = ifindex };
	memcpy(&v4.ipi_spec_dst, &addr->src.s6_addr[12], 4);
	if (ipv4)
		add_control(m, IPPROTO_IP, IP_PKTINFO, &v4, sizeof v4);
	else
		add_control(m, IPPROTO_IPV6, IPV6_PKTINFO, &v6, sizeof v6);
}

static void add_number(struct msghdr *m, bool ipv4, int type_v4, int type_v6, int value)
{
	add_control(m, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? type_v4 : type_v6, &value, sizeof value);
}

/* A socket's hop limit holds for unicast alone. */
static void add_addressing(struct msghdr *m, const struct sender *s, const struct vb_inbox_addr *addr,
			   unsigned ifindex, bool ipv4)
{
	if (ifindex || !IN6_ARE_ADDR_EQUAL(&s->source, &addr->src))
		add_source(m, addr, ifindex, ipv4);
	if (s->traffic_class != addr->traffic_class)
		add_number(m, ipv4, IP_TOS, IPV6_TCLASS, addr->traffic_class);
	if (ifindex || s->hop_limit != hop_limit_of(addr))
		add_number(m, ipv4, IP_TTL, IPV6_HOPLIMIT, hop_limit_of(addr));
}

static void outgoing_init(struct outgoing *o, const struct sender *s, const struct vb_inbox_addr *addr,
			  unsigned ifindex, bool ipv4)
{
	memset(&o->control, 0, sizeof o->control);
	o->to = vb_ip_address(&addr->dst, ipv4, VB_ROCE_PORT);
	o->header = (struct msghdr){ .msg_name = &o->to,
				     .msg_namelen = vb_ip_address_bytes(ipv4),
				     .msg_iov = &o->iov,
				     .msg_iovlen = 1,
				     .msg_control = &o->control };
	add_addressing(&o->header, s, addr, ifindex, ipv4);
	if (!ipv4 && !atomic_load_explicit(&labels_refused, memory_order_relaxed))
		o->to.v6.sin6_flowinfo = htonl(addr->flow_label & 0xfffff);
}

static void outgoing_set_bytes(struct outgoing *o, const void *bytes, size_t len, size_t segment)
{
	uint16_t size = (uint16_t)segment;
	o->iov = (struct iovec){ (void *)bytes, len };
	if (len > segment)
		add_control(&o->header, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size);
}

/* ---- sending ---- */

static bool wait_for_room(int fd)
{
	VB_UNCANCELLED;
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	return vb_poll(&p, 1, ROOM_WAIT_MS) > 0;
}

static ssize_t transmit_once(int fd, const struct msghdr *m)
{
	int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
	return m->msg_controllen ? vb_udp_sendmsg(fd, m, flags) :
				   vb_udp_sendto(fd, m->msg_iov, flags, m->msg_name, m->msg_namelen);
}

/* An ICMP message about an earlier datagram fails the next send with one of these, whatever that sends. */
static bool may_be_of_icmp(int err)
{
	switch (err) {
	case ECONNREFUSED:
	case ENETUNREACH:
	case EHOSTUNREACH:
	case EHOSTDOWN:
	case ENONET:
	case EACCES:
	case EMSGSIZE:
	case EPROTO:
	case ENOPROTOOPT:
	case EOPNOTSUPP:
		return true;
	default:
		return false;
	}
}

/*
 * Each ICMP message can fail a send when it arrives, and again when the one before it leaves the error queue.
 * While the progress thread empties that queue, one send may meet them all.
 */
static ssize_t transmit_past_icmp(int fd, const struct msghdr *m)
{
	ssize_t sent;
	unsigned failures = 0;
	do
		sent = transmit_once(fd, m);
	while (sent < 0 && may_be_of_icmp(errno) && ++failures < MAX_FAILURES);
	return sent;
}

/* ENOBUFS: the queue of the interface is full. The datagram is lost, as on a wire. */
static int transmit(int fd, const struct msghdr *m)
{
	for (bool waited = false;; waited = true) {
		if (transmit_past_icmp(fd, m) >= 0 || errno == ENOBUFS)
			return 0;
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return -errno;
		if (waited || !wait_for_room(fd))
			return -EAGAIN;
	}
}

/*
 * The path's MTU as the kernel knows it, or a negative errno: there is no path from addr's source to its
 * destination.
 */
static int path_mtu(const struct vb_inbox_addr *addr, unsigned ifindex, bool ipv4)
{
	VB_UNCANCELLED;
	union vb_ip_address from = vb_ip_address(&addr->src, ipv4, 0),
			     to = vb_ip_address(&addr->dst, ipv4, VB_ROCE_PORT);
	socklen_t bytes = sizeof(int), name_bytes = vb_ip_address_bytes(ipv4);
	int mtu = 0, fd = socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (!ipv4)
		from.v6.sin6_scope_id = to.v6.sin6_scope_id = ifindex;
	vb_udp_set_option(fd, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER,
		   ipv4 ? IP_PMTUDISC_DO : IPV6_PMTUDISC_DO);
	if (bind(fd, &from.any, name_bytes) < 0 || connect(fd, &to.any, name_bytes) < 0 ||
	    getsockopt(fd, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_MTU : IPV6_MTU, &mtu, &bytes) < 0)
		mtu = -errno;
	close(fd);
	return mtu;
}

static bool may_mean_no_segmentation(int err)
{
	return err == -EIO || err == -EINVAL || err == -ENOPROTOOPT || err == -EOPNOTSUPP;
}

/*
 * The kernel says EINVAL for too long a segment, for an address that is no longer this host's, and where it
 * cannot segment.
 */
static int explain_refusal(const struct vb_inbox_addr *addr, unsigned ifindex, bool ipv4, size_t segment,
			   int err)
{
	int mtu = path_mtu(addr, ifindex, ipv4);
	if (mtu < 0)
		return err;
	if (segment + UDP_HEADER_BYTES + (ipv4 ? IPV4_HEADER_BYTES : IPV6_HEADER_BYTES) > (size_t)mtu)
		return -EMSGSIZE;
	atomic_store(&segmentation_refused, true);
	return -EOPNOTSUPP;
}

/* Kernels before 5.3 want flow labels to be leased. */
static int transmit_labelled(int fd, struct outgoing *o, bool ipv4)
{
	int err = transmit(fd, &o->header);
	if (err != -EINVAL || ipv4 || !o->to.v6.sin6_flowinfo)
		return err;
	o->to.v6.sin6_flowinfo = 0;
	err = transmit(fd, &o->header);
	if (!err)
		atomic_store(&labels_refused, true);
	return err;
}

static int check_lengths(size_t len, size_t segment)
{
	if (!len || !segment)
		return -EINVAL;
	if (len > VB_UDP_MAX_BYTES)
		return -EMSGSIZE;
	if (len > segment && vb_udp_segments() == 1)
		return -EOPNOTSUPP;
	return len > segment * VB_UDP_MAX_SEGMENTS ? -EINVAL : 0;
}

static int send_segments(const struct vb_inbox_addr *addr, unsigned ifindex, const void *bytes, size_t len,
			 size_t segment)
{
	struct outgoing o;
	bool ipv4 = vb_ip_is_v4(&addr->dst);
	int err = 0;
	const struct sender *s = sender_for(ipv4, addr, &err);
	if (!s)
		return err;
	err = check_lengths(len, segment); /* after the socket: opening it shows what the kernel can do */
	if (err)
		return err;
	outgoing_init(&o, s, addr, ifindex, ipv4);
	outgoing_set_bytes(&o, bytes, len, segment);
	err = transmit_labelled(s->fd, &o, ipv4);
	if (len > segment && may_mean_no_segmentation(err))
		return explain_refusal(addr, ifindex, ipv4, segment, err);
	return err;
}

static void count(int err, uint64_t packets)
{
	if (!err)
		atomic_fetch_add_explicit(&packets_out, packets, memory_order_relaxed);
	else if (err != -EAGAIN && err != -EOPNOTSUPP)
		atomic_fetch_add_explicit(&send_failures, 1, memory_order_relaxed);
}

int vb_udp_send(const struct vb_inbox_addr *addr, unsigned ifindex, const void *bytes, size_t len,
		size_t segment)
{
	int err = send_segments(addr, ifindex, bytes, len, segment);
	count(err, err ? 0 : (len + segment - 1) / segment); /* err: the segment may be 0 bytes */
	return err;
}

void vb_udp_count_sent(struct vb_udp_counts *counts)
{
	counts->packets_out = atomic_load_explicit(&packets_out, memory_order_relaxed);
	counts->send_failures = atomic_load_explicit(&send_failures, memory_order_relaxed);
}

void vb_udp_send_forget(void)
{
	atomic_store(&families[0].count, 0);
	atomic_store(&families[1].count, 0);
	atomic_store(&switched_off, -1);
	atomic_store(&packets_out, 0);
	atomic_store(&send_failures, 0);
}
