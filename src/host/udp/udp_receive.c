/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receiving. Whoever gets the try-lock `receiving` drains the sockets; what it reads goes to static buffers.
 * The kernel joins packets of one flow (UDP_GRO), which are cut apart again here.
 *
 * udp.c opens the sockets. A descriptor that was opened stays open, so any thread may use it.
 */
#include "host/udp/udp_private.h"

#include <errno.h>
#include <sched.h>

#include "base/inet.h"
#include "base/waits.h"

enum {
	BATCH = 8,
	DRAIN_BATCHES = 256,
	COLD_EVERY = 8,
	PACKET_BYTES = 65536,
	CONTROL_BYTES = 256,
	YIELDS = 2,
	NAP_NS = 20000,
};

struct receiver {
	atomic_int fd; /* or why there is none, a negative errno */
	/* datagrams to ask for next time: twice as many while so many are there. Under `receiving` */
	int most;
};

static struct receiver receivers[] = { { -ENOTCONN, 1 }, { -ENOTCONN, 1 } }; /* IPv4, IPv6 */

static void (*packet_handler)(const struct vb_udp_packet *);
static void (*batch_handler)(void);
static atomic_bool receiving;
static _Atomic uint64_t packets_in, congested; /* written under `receiving` */

void vb_udp_set_handler(void (*packet)(const struct vb_udp_packet *packet), void (*batch_done)(void))
{
	packet_handler = packet;
	batch_handler = batch_done;
}

int vb_udp_receiver(bool ipv4) { return atomic_load(&receivers[!ipv4].fd); }

void vb_udp_set_receiver(bool ipv4, int fd)
{
	atomic_store(&receivers[!ipv4].fd, fd);
	vb_sender_note_port(ipv4, fd >= 0);
}

struct super_packet {
	union vb_ip_address from;
	struct iovec iov;
	__attribute__((aligned(_Alignof(struct cmsghdr)))) char control[CONTROL_BYTES];
	VB_ALIGNED_LINE uint8_t bytes[PACKET_BYTES];
};

/* Under `receiving`. The first `prepared` headers are as recvmsg wants them. */
static struct super_packet super_packets[BATCH];
static struct mmsghdr headers[BATCH];
static int prepared;

static void prepare(int i)
{
	struct super_packet *s = &super_packets[i];
	s->iov = (struct iovec){ s->bytes, sizeof s->bytes };
	headers[i].msg_hdr = (struct msghdr){
		.msg_name = &s->from, .msg_namelen = sizeof s->from, .msg_iov = &s->iov, .msg_iovlen = 1,
		.msg_control = s->control, .msg_controllen = sizeof s->control,
	};
}

/* An integer of the size that the kernel gave it: TOS is a byte, all others are an int. */
static int control_value(const struct cmsghdr *c)
{
	int value = 0;
	if (c->cmsg_len < CMSG_LEN(sizeof value))
		return *CMSG_DATA(c);
	memcpy(&value, CMSG_DATA(c), sizeof value);
	return value;
}

static void read_pktinfo_v4(const struct cmsghdr *c, struct vb_udp_packet *p)
{
	struct in_pktinfo info;
	memcpy(&info, CMSG_DATA(c), sizeof info);
	p->addr.dst = vb_ip_from_v4(&info.ipi_addr);
	p->ifindex = (unsigned)info.ipi_ifindex;
}

static void read_pktinfo_v6(const struct cmsghdr *c, struct vb_udp_packet *p)
{
	struct in6_pktinfo info;
	memcpy(&info, CMSG_DATA(c), sizeof info);
	p->addr.dst = info.ipi6_addr;
	p->ifindex = info.ipi6_ifindex;
}

static void read_control_v4(const struct cmsghdr *c, struct vb_udp_packet *p)
{
	if (c->cmsg_type == IP_PKTINFO)
		read_pktinfo_v4(c, p);
	else if (c->cmsg_type == IP_TOS)
		p->addr.traffic_class = (uint8_t)control_value(c);
	else if (c->cmsg_type == IP_TTL)
		p->addr.hop_limit = (uint8_t)control_value(c);
}

static void read_control_v6(const struct cmsghdr *c, struct vb_udp_packet *p)
{
	if (c->cmsg_type == IPV6_PKTINFO)
		read_pktinfo_v6(c, p);
	else if (c->cmsg_type == IPV6_TCLASS)
		p->addr.traffic_class = (uint8_t)control_value(c);
	else if (c->cmsg_type == IPV6_HOPLIMIT)
		p->addr.hop_limit = (uint8_t)control_value(c);
	else if (c->cmsg_type == IPV6_FLOWINFO)
		p->addr.flow_label = ntohl((uint32_t)control_value(c)) & 0xfffff;
}

/* Fills *p but for its bytes; returns the length of its segments. */
static size_t read_addressing(struct msghdr *m, size_t len, struct vb_udp_packet *p)
{
	const union vb_ip_address *from = m->msg_name;
	size_t segment = len;

	*p = (struct vb_udp_packet){ 0 };
	if (from->any.sa_family == AF_INET) {
		p->addr.src = vb_ip_from_v4(&from->v4.sin_addr);
		p->addr.udp_sport = ntohs(from->v4.sin_port);
	} else {
		p->addr.src = from->v6.sin6_addr;
		p->addr.udp_sport = ntohs(from->v6.sin6_port);
	}
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == IPPROTO_IP)
			read_control_v4(c, p);
		else if (c->cmsg_level == IPPROTO_IPV6)
			read_control_v6(c, p);
		else if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO && control_value(c) > 0)
			segment = (size_t)control_value(c);
	}
	return segment;
}

static void count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static void deliver(int fd, struct super_packet *s, struct mmsghdr *m)
{
	struct vb_udp_packet p;
	size_t len = m->msg_len, n = 0;
	if (m->msg_hdr.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		return;
	size_t segment = read_addressing(&m->msg_hdr, len, &p);
	for (size_t at = 0; at < len || !n; at += segment, n++) { /* an empty one is one, too */
		p.bytes = s->bytes + at;
		p.len = vb_min_u64(segment, len - at);
		if (vb_unlikely(p.bytes[0] == VB_UDP_NO_ROCE) && vb_udp_answer_probe(fd, &p))
			continue;
		packet_handler(&p);
		p.index++;
	}
	count(&packets_in, n);
	if (vb_inet_is_congested(p.addr.traffic_class))
		count(&congested, n);
}

static int receive_one(int fd)
{
	ssize_t n = vb_receive_message(fd, &headers[0].msg_hdr, MSG_DONTWAIT);
	headers[0].msg_len = n < 0 ? 0 : (unsigned)n;
	return n >= 0;
}

/* Asking for more than there is makes the kernel look again, which would delay a single message. */
static int receive_some(int fd, int most)
{
	for (; prepared < most; prepared++)
		prepare(prepared);
	int n = most == 1 ? receive_one(fd) : vb_receive_messages(fd, headers, (unsigned)most, MSG_DONTWAIT);
	for (int i = 0; i < n; i++) {
		deliver(fd, &super_packets[i], &headers[i]);
		prepare(i);
	}
	return n;
}

static bool receive_from(struct receiver *r)
{
	/* the socket was made by whoever stored it */
	int fd = atomic_load_explicit(&r->fd, memory_order_acquire);
	if (fd < 0)
		return false;
	int n = receive_some(fd, r->most);
	if (n < r->most)
		r->most = n > 1 ? n : 1;
	else
		r->most = r->most < BATCH / 2 ? 2 * r->most : BATCH;
	return n > 0;
}

static bool begin_receiving(void)
{
	return !atomic_load_explicit(&receiving, memory_order_relaxed) &&
	       !atomic_exchange_explicit(&receiving, true, memory_order_acquire);
}

/*
 * A polling thread always asks the socket that had something last, and rarely the other one: an empty poll
 * costs one system call.
 */
static bool receive_batch(bool from_both)
{
	static unsigned hot, rounds; /* under `receiving` */
	bool any = receive_from(&receivers[hot]);
	if ((from_both || ++rounds % COLD_EVERY == 0) && receive_from(&receivers[!hot])) {
		hot = !hot;
		any = true;
	}
	return any;
}

static void end_receiving(void)
{
	atomic_store_explicit(&receiving, false, memory_order_release);
}

/*
 * False: another thread is receiving. The lock is released before batch_handler, whose sends may wake threads
 * that want to receive.
 */
static bool receive(bool from_both, bool *any)
{
	*any = false;
	if (!begin_receiving())
		return false;
	*any = receive_batch(from_both);
	end_receiving();
	if (*any && batch_handler)
		batch_handler();
	return true;
}

bool vb_udp_receive(void)
{
	bool any;
	return receive(false, &any) && any;
}

bool vb_udp_has_arrivals(void)
{
	struct pollfd p[2] = { { .fd = vb_udp_receiver(false), .events = POLLIN },
			       { .fd = vb_udp_receiver(true), .events = POLLIN } };
	unsigned n = 0;
	for (unsigned i = 0; i < VB_ARRAY_LEN(p); i++)
		if (p[i].fd >= 0)
			p[n++] = p[i];
	return n && vb_poll(p, n, 0) > 0;
}

bool vb_udp_is_receiving(void) { return atomic_load_explicit(&receiving, memory_order_relaxed); }

/*
 * The thread that receives may be waiting for this one's processor, and the packets that are there would wake
 * this thread again at once. Yielding may not help for milliseconds: the scheduler favours threads that
 * slept.
 */
void vb_udp_socket_ready(struct vb_watch *w, uint32_t epoll_events)
{
	static unsigned failures; /* in a row; for the progress thread */
	bool any;
	if (receive(true, &any))
		failures = 0;
	else if (++failures <= YIELDS)
		sched_yield();
	else
		vb_sleep_ns(NAP_NS);
}

bool vb_udp_drain(void)
{
	bool any = true;
	for (unsigned i = 0; i < DRAIN_BATCHES && any; i++)
		if (!receive(true, &any))
			return false;
	return true;
}

void vb_udp_count(struct vb_udp_counts *counts)
{
	counts->packets_in = atomic_load_explicit(&packets_in, memory_order_relaxed);
	counts->congested = atomic_load_explicit(&congested, memory_order_relaxed);
	vb_udp_count_sent(counts);
}

/* ---- fork ---- */

void vb_udp_receive_forget(void)
{
	vb_udp_set_receiver(true, -ENOTCONN);
	vb_udp_set_receiver(false, -ENOTCONN);
	atomic_store(&receiving, false);
	atomic_store(&packets_in, 0);
	atomic_store(&congested, 0);
	prepared = 0; /* the parent may have been in the middle of receiving */
}
