/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A host without a process at the RoCE port returns datagrams by ICMP errors (port unreachable). It limits
 * them to a few at first, and then one a second. None may be missed, so every sending socket reports them.
 */
#include "host/udp/udp_private.h"

#include <errno.h>
#include <linux/errqueue.h>

enum {
	QUEUE_BYTES = 1 << 16, /* of ICMP messages; a socket's filter keeps all else out */
	CONTROL_BYTES = 512,
	QUOTE_BYTES = 1 << 10,
};

static void (*_Atomic returned_handler)(const struct in6_addr *host, const void *bytes, size_t len);

void vb_udp_set_returned_handler(void (*returned)(const struct in6_addr *host, const void *bytes, size_t len))
{
	atomic_store(&returned_handler, returned);
}

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

void vb_udp_returned_watch_locked(struct vb_watch *w, int fd, bool ipv4)
{
	*w = (struct vb_watch){ .fd = fd, .ready = take_returned };
	vb_udp_set_option(fd, SOL_SOCKET, SO_RCVBUF, QUEUE_BYTES);
	if (!vb_watch_start(w, 0)) /* epoll always reports errors */
		vb_udp_set_option(fd, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_RECVERR : IPV6_RECVERR, 1);
}
