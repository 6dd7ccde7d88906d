/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Returned datagrams: by ICMP, a host says that nobody has the RoCE port there. After an ICMP message the
 * next send of a socket fails, whatever its destination, and must be repeated. So only messages whose sender
 * can use that leave through these sockets, one per IP version.
 *
 * Sockets are opened under the host lock, and stay open: their descriptors are read without it.
 */
#include "host/udp/udp_private.h"

#include <errno.h>
#include <linux/errqueue.h>

enum {
	QUEUE_BYTES = 1 << 16,  /* of ICMP messages */
	CONTROL_BYTES = 512,
	QUOTE_BYTES = 1 << 10,
};

struct returnable {
	atomic_int fd; /* -1: not opened yet */
	uint16_t port;
	struct vb_watch watch;
};

static void take_returned(struct vb_watch *w, uint32_t epoll_events);

/* [0] IPv6, [1] IPv4 */
static struct returnable sockets[2] = { { .fd = -1, .watch.ready = take_returned },
				     { .fd = -1, .watch.ready = take_returned } };

static void (*_Atomic returned_handler)(const struct in6_addr *host, const void *bytes, size_t len);

void vb_udp_set_returned_handler(void (*returned)(const struct in6_addr *host, const void *bytes, size_t len))
{
	atomic_store(&returned_handler, returned);
}

/* ---- opening ---- */

static int open_socket_locked(struct returnable *p, bool ipv4)
{
	int fd = vb_udp_sending_socket_locked(ipv4, &p->port), one = 1;

	if (fd < 0)
		return fd;
	vb_udp_set_option(fd, SOL_SOCKET, SO_RCVBUF, QUEUE_BYTES);
	if (setsockopt(fd, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_RECVERR : IPV6_RECVERR, &one,
		       sizeof one) < 0) {
		vb_fd_close_locked(fd);
		return -ENOPROTOOPT;
	}
	p->watch.fd = fd;
	int err = vb_watch_start(&p->watch, 0); /* epoll always reports errors */
	if (err) {
		vb_fd_close_locked(fd);
		return err;
	}
	return fd;
}

uint16_t vb_udp_returnable_port(bool ipv4)
{
	struct returnable *p = &sockets[ipv4];

	if (atomic_load_explicit(&p->fd, memory_order_acquire) < 0) {
		vb_host_lock();
		if (p->fd < 0) {
			int fd = open_socket_locked(p, ipv4);
			atomic_store_explicit(&p->fd, fd < 0 ? -1 : fd, memory_order_release);
		}
		vb_host_unlock();
	}
	return atomic_load_explicit(&p->fd, memory_order_acquire) < 0 ? 0 : p->port;
}

/* ---- sending ---- */

int vb_udp_send_returnable(const struct vb_inbox_addr *addr, unsigned ifindex, const void *bytes, size_t len)
{
	bool ipv4 = vb_ip_is_v4(&addr->dst);
	int fd = atomic_load_explicit(&sockets[ipv4].fd, memory_order_acquire);

	return fd < 0 ? -ENOTCONN : vb_udp_send_through(fd, addr, ifindex, bytes, len);
}

/* ---- what comes back ---- */

static bool is_port_unreachable(const struct sock_extended_err *e)
{
	return e->ee_errno == ECONNREFUSED &&
	       (e->ee_origin == SO_EE_ORIGIN_ICMP || e->ee_origin == SO_EE_ORIGIN_ICMP6);
}

static bool is_returned(struct msghdr *m)
{
	struct sock_extended_err e;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		bool is_error = (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) ||
				(c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR);
		if (!is_error || c->cmsg_len < CMSG_LEN(sizeof e))
			continue;
		memcpy(&e, CMSG_DATA(c), sizeof e);
		return is_port_unreachable(&e);
	}
	return false;
}

static struct in6_addr host_of(const union vb_ip_address *to)
{
	return to->any.sa_family == AF_INET ? vb_ip_from_v4(&to->v4.sin_addr) : to->v6.sin6_addr;
}

static bool take_one(int fd)
{
	union vb_ip_address to;
	uint8_t quote[QUOTE_BYTES];
	__attribute__((aligned(_Alignof(struct cmsghdr)))) char control[CONTROL_BYTES];
	struct iovec iov = { quote, sizeof quote };
	struct msghdr m = { .msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = control, .msg_controllen = sizeof control };
	ssize_t n = vb_receive_message(fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT);

	if (n < 0)
		return errno == EINTR;
	if (m.msg_namelen && is_returned(&m) && returned_handler) {
		struct in6_addr host = host_of(&to);
		returned_handler(&host, quote, (size_t)n);
	}
	return true;
}

/* An error without a message in the queue is cleared, or epoll would report it again and again. */
static void take_returned(struct vb_watch *w, uint32_t epoll_events)
{
	int error;
	socklen_t bytes = sizeof error;

	while (take_one(w->fd))
		;
	(void)!getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
}

void vb_udp_returned_forget(void)
{
	atomic_store(&sockets[0].fd, -1);
	atomic_store(&sockets[1].fd, -1);
}
