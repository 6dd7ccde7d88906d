/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The receiving sockets, one per IP version on port 4791. Whoever gets the try-lock `receiving` drains them;
 * what it reads goes to static buffers. The kernel joins packets of one flow (UDP_GRO), which are cut apart
 * again here.
 *
 * Sockets and the watch's wish are written under the host lock. A descriptor that was opened stays open, so
 * it is read without.
 */
#include "host/udp/holder.h"
#include "host/udp/udp_private.h"

#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"

enum {
	BATCH = 8,
	DRAIN_BATCHES = 256,
	COLD_EVERY = 8,
	PACKET_BYTES = 65536,
	RECEIVE_BUFFER_BYTES = 16 << 20,
	RETRY_NS = 250000000,
	CONTROL_BYTES = 256,
	ECN_MASK = 3, /* congestion experienced: both bits */
	YIELDS = 2,
	NAP_NS = 20000,
};

struct receiver {
	bool ipv4;
	/* or why there is none, a negative errno; -EADDRINUSE: another user has the port, try again */
	atomic_int fd;
	struct vb_watch watch;
	/* datagrams to ask for next time: twice as many while so many are there. Under `receiving` */
	int most;
};

static void socket_ready(struct vb_watch *w, uint32_t epoll_events);

static struct receiver receivers[] = {
	{ .ipv4 = true, .fd = -ENOTCONN, .watch.ready = socket_ready, .most = 1 },
	{ .ipv4 = false, .fd = -ENOTCONN, .watch.ready = socket_ready, .most = 1 },
};

static void (*packet_handler)(const struct vb_udp_packet *);
static void (*batch_handler)(void);
static atomic_bool is_open, wants_wake = true, receiving;
static _Atomic uint64_t packets_in, congested; /* written under `receiving` */

void vb_udp_set_handler(void (*packet)(const struct vb_udp_packet *packet), void (*batch_done)(void))
{
	packet_handler = packet;
	batch_handler = batch_done;
}

/* ---- opening ---- */

struct option {
	int level, name, value;
	bool required;
};

static const struct option ipv4_options[] = {
	{ SOL_SOCKET, SO_REUSEPORT, 1, true }, { IPPROTO_IP, IP_PKTINFO, 1, true },
	{ IPPROTO_IP, IP_RECVTOS, 1, false }, { IPPROTO_IP, IP_RECVTTL, 1, false },
	{ IPPROTO_IP, IP_MULTICAST_ALL, 0, false },
};

static const struct option ipv6_options[] = {
	{ SOL_SOCKET, SO_REUSEPORT, 1, true }, { IPPROTO_IPV6, IPV6_V6ONLY, 1, true },
	{ IPPROTO_IPV6, IPV6_RECVPKTINFO, 1, true }, { IPPROTO_IPV6, IPV6_RECVTCLASS, 1, false },
	{ IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1, false }, { IPPROTO_IPV6, IPV6_FLOWINFO, 1, false },
	{ IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0, false },
	{ IPPROTO_UDP, UDP_NO_CHECK6_RX, 1, false }, /* RoCE senders may leave the checksum out: there is the ICRC */
};

static const struct option common_options[] = {
	{ IPPROTO_UDP, UDP_GRO, 1, false },
	{ SOL_SOCKET, SO_RCVBUF, RECEIVE_BUFFER_BYTES, false }, { SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES, false },
};

static int set_options(int fd, const struct option *options, size_t count)
{
	for (const struct option *o = options; o < options + count; o++)
		if (setsockopt(fd, o->level, o->name, &o->value, sizeof o->value) < 0 && o->required)
			return -errno;
	return 0;
}

static int set_receive_options(int fd, bool ipv4)
{
	int err = ipv4 ? set_options(fd, ipv4_options, VB_ARRAY_LEN(ipv4_options))
		       : set_options(fd, ipv6_options, VB_ARRAY_LEN(ipv6_options));
	return err ? err : set_options(fd, common_options, VB_ARRAY_LEN(common_options));
}

static int bind_receiver(int fd, bool ipv4)
{
	union vb_udp_address address = vb_udp_address(&in6addr_any, ipv4, VB_ROCE_PORT);
	int err = set_receive_options(fd, ipv4);
	if (!err && bind(fd, &address.any, vb_udp_address_bytes(ipv4)) < 0)
		err = -errno;
	return err;
}

static int receiver_open_locked(struct receiver *r)
{
	int fd = socket(r->ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	int err = bind_receiver(fd, r->ipv4);
	r->watch.fd = fd;
	if (!err)
		err = vb_watch_start(&r->watch, wants_wake ? EPOLLIN : 0);
	if (err) {
		close(fd);
		return err;
	}
	vb_fd_own(fd);
	return fd;
}

/* Once. */
__attribute__((cold)) static void explain_taken(bool ipv4)
{
	static bool said;
	struct vb_holder holder;
	char owner[VB_OWNER_TEXT];
	if (said || !vb_holders_of_udp(ipv4, VB_ROCE_PORT, &holder, 1))
		return;
	said = true;
	vb_owner_of_sockets(&holder.inode, 1, holder.uid, owner);
	vb_explain(
		"host",
		"UDP port %d is held by %s: what comes over the wire comes there first, to be read, and is handed on if that is a "
		"process on verbatim",
		VB_ROCE_PORT, holder.inode ? owner : "the kernel (rdma_rxe)");
}

static void receiver_try_locked(struct receiver *r)
{
	atomic_store(&r->fd, receiver_open_locked(r));
	if (r->fd == -EADDRINUSE && vb_debug_enabled)
		explain_taken(r->ipv4);
	if (r->fd >= 0) {
		vb_udp_rejoin_locked(r->ipv4);
		vb_udp_steer_start();
	}
}

static void retry(struct vb_timer *t, uint64_t now_ns);
static struct vb_timer retry_timer = { .fire = retry };

/* One IP version is enough: a machine may have only one. */
static int open_locked(void)
{
	bool any = false, again = false;
	for (struct receiver *r = receivers; r < receivers + VB_ARRAY_LEN(receivers); r++) {
		if (r->fd < 0)
			receiver_try_locked(r);
		any |= r->fd >= 0 || r->fd == -EADDRINUSE;
		again |= r->fd == -EADDRINUSE;
	}
	if (again)
		vb_timer_set(&retry_timer, vb_now_ns() + RETRY_NS);
	if (any)
		atomic_store(&is_open, true);
	return any ? 0 : receivers[0].fd;
}

static void retry(struct vb_timer *t, uint64_t now_ns)
{
	vb_host_lock();
	open_locked();
	vb_host_unlock();
}

int vb_udp_open(void)
{
	if (is_open)
		return 0;
	vb_host_lock();
	int err = is_open ? 0 : open_locked();
	vb_host_unlock();
	if (!err)
		vb_udp_steer_settle();
	return err;
}

int vb_udp_receiver(bool ipv4) { return atomic_load(&receivers[!ipv4].fd); }

bool vb_udp_is_open(void) { return atomic_load_explicit(&is_open, memory_order_relaxed); }

/*
 * An event mask of 0 instead of the watch's end: that would wait for a callback that runs, which may want the
 * caller's locks.
 */
void vb_udp_watch(bool wake)
{
	if (atomic_load_explicit(&wants_wake, memory_order_relaxed) == wake)
		return;
	vb_host_lock();
	atomic_store(&wants_wake, wake);
	for (struct receiver *r = receivers; r < receivers + VB_ARRAY_LEN(receivers); r++)
		if (r->fd >= 0)
			vb_watch_start(&r->watch, wake ? EPOLLIN : 0);
	vb_host_unlock();
}

/* ---- receiving ---- */

struct super_packet {
	union vb_udp_address from;
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
	p->addr.dst = vb_udp_from_v4(info.ipi_addr);
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
	const union vb_udp_address *from = m->msg_name;
	size_t segment = len;

	*p = (struct vb_udp_packet){ 0 };
	if (from->any.sa_family == AF_INET) {
		p->addr.src = vb_udp_from_v4(from->v4.sin_addr);
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
	p->congested = (p->addr.traffic_class & ECN_MASK) == ECN_MASK;
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
	for (size_t at = 0; at < len; at += segment, n++) {
		p.bytes = s->bytes + at;
		p.len = vb_min_u64(segment, len - at);
		if (vb_unlikely(p.bytes[0] == VB_UDP_NO_ROCE) && vb_udp_answer_probe(fd, &p))
			continue;
		packet_handler(&p);
		p.index++;
	}
	count(&packets_in, n);
	if (p.congested)
		count(&congested, n);
}

static int receive_one(int fd)
{
	ssize_t n = vb_receive_message(fd, &headers[0].msg_hdr, MSG_DONTWAIT);
	headers[0].msg_len = n < 0 ? 0 : (unsigned)n;
	return n >= 0;
}

/* Asking for more than there is costs another look, which a single message should not wait for. */
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
 * A thread that polls asks the socket that had something last each time, the other one now and then: in vain
 * costs one call.
 */
static bool receive_batch(bool from_both)
{
	static unsigned hot, turn; /* under `receiving` */
	bool any = receive_from(&receivers[hot]);
	if ((from_both || ++turn % COLD_EVERY == 0) && receive_from(&receivers[!hot])) {
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
 * False: another thread is at it. What the batch's end sends wakes others, who shall not find the sockets
 * taken if they get this processor.
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

bool vb_udp_is_receiving(void) { return atomic_load_explicit(&receiving, memory_order_relaxed); }

/*
 * Who is at it may be waiting for this thread's processor, and the packets that have come would wake this
 * thread at once. A thread that has slept much may yield for milliseconds before another one gets its turn.
 */
static void socket_ready(struct vb_watch *w, uint32_t epoll_events)
{
	static unsigned in_vain; /* the progress thread's; in a row */
	bool any;
	if (receive(true, &any))
		in_vain = 0;
	else if (++in_vain <= YIELDS)
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

void vb_udp_forget(void)
{
	for (struct receiver *r = receivers; r < receivers + VB_ARRAY_LEN(receivers); r++)
		atomic_store(&r->fd, -ENOTCONN);
	vb_udp_member_forget();
	atomic_store(&is_open, false);
	atomic_store(&wants_wake, true);
	atomic_store(&receiving, false);
	prepared = 0; /* the parent may have been in the middle of receiving */
	vb_udp_send_forget();
	vb_udp_returned_forget();
	vb_udp_steer_forget();
}
