/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * NETLINK_RDMA sockets, which the kernel has only where it has devices. The program gets a socket
 * of NETLINK_USERSOCK instead, by which processes send each other netlink messages. So binding,
 * waiting and receiving are the kernel's. This file takes what the program sends, and sends the
 * answers (nldev.h) to its socket from another one of that kind. They wait in the receive buffer. If
 * the buffer is full, a thread sends the rest while the program reads, however long that takes it: a
 * dump of the kernel's waits as well. The thread ends when the socket is closed, if not before.
 *
 * Without such a socket, a send costs one comparison more.
 */
#undef _FORTIFY_SOURCE
#include <errno.h>
#include <linux/netlink.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "answers/nldev.h"
#include "answers/real.h"
#include "base/base.h"
#include "base/cancel.h"
#include "base/thread.h"

enum {
	FDS = 4096,            /* descriptors beyond get the kernel's socket */
	REQUEST_BYTES = 16384,
	MOST_UNREAD = 64,      /* answers that wait for a reader, each with a thread */
};

static _Atomic(uint64_t) ours[FDS / 64]; /* descriptors that such sockets have had */
static atomic_bool any;

static void mark(int fd)
{
	atomic_fetch_or(&ours[fd / 64], UINT64_C(1) << fd % 64);
	atomic_store(&any, true);
}

/* The descriptor may have been closed and reused. */
static bool is_answered(int fd)
{
	int protocol = -1, domain = -1;
	socklen_t bytes = sizeof(int);

	if (vb_likely(!atomic_load_explicit(&any, memory_order_relaxed)) || fd < 0 || fd >= FDS ||
	    !(atomic_load(&ours[fd / 64]) >> fd % 64 & 1))
		return false;
	return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) && domain == AF_NETLINK &&
	       !getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &bytes) && protocol == NETLINK_USERSOCK;
}

VB_EXPORT int socket(int domain, int type, int protocol)
{
	if (vb_likely(domain != AF_NETLINK || protocol != NETLINK_RDMA))
		return REAL(socket)(domain, type, protocol);
	int fd = REAL(socket)(domain, type, NETLINK_USERSOCK);
	if (fd >= 0 && fd < FDS) {
		mark(fd);
		return fd;
	}
	if (fd >= 0)
		close(fd);
	return REAL(socket)(domain, type, protocol);
}

/* ---- answers under way ---- */

struct delivery {
	struct vb_reply reply;
	size_t sent;
	int fd;            /* the socket that they come from */
	uint32_t port;
};

static void end_delivery(struct delivery *d)
{
	if (d->fd >= 0)
		close(d->fd);
	free(d->reply.bytes);
	free(d);
}

/*
 * Sends the rest, each message as a datagram of its own. Returns false if the receive buffer is
 * full (MSG_DONTWAIT), true if nothing more can be sent: all messages were, or the socket is
 * closed.
 */
static bool deliver(struct delivery *d, int flags)
{
	struct sockaddr_nl to = { .nl_family = AF_NETLINK, .nl_pid = d->port };

	while (d->sent < d->reply.used) {
		const struct nlmsghdr *h = (const struct nlmsghdr *)(d->reply.bytes + d->sent);
		ssize_t n = REAL(sendto)(d->fd, h, h->nlmsg_len, flags | MSG_NOSIGNAL, (struct sockaddr *)&to,
					 sizeof(to));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno != EAGAIN;
		d->sent += NLMSG_ALIGN(h->nlmsg_len);
	}
	return true;
}

static atomic_uint unread;

/* The threads are the parent's. */
static void forget(void) { atomic_store(&unread, 0); }
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, forget); }

static void *deliver_rest(void *arg)
{
	deliver(arg, 0);
	end_delivery(arg);
	atomic_fetch_sub(&unread, 1);
	return NULL;
}

/* False: too many wait already, or there is no thread to be had. */
static bool deliver_later(struct delivery *d)
{
	bool waits = atomic_fetch_add(&unread, 1) < MOST_UNREAD && !vb_thread_start(NULL, deliver_rest, d);
	if (!waits)
		atomic_fetch_sub(&unread, 1);
	return waits;
}

static ssize_t refuse(struct delivery *d)
{
	end_delivery(d);
	errno = ENOBUFS;
	return -1;
}

/* The address of a socket, which binds it if it has none yet. 0: it has none. */
static uint32_t port_of(int fd)
{
	struct sockaddr_nl nl = { .nl_family = AF_NETLINK };
	socklen_t bytes = sizeof(nl);

	if (getsockname(fd, (struct sockaddr *)&nl, &bytes) == 0 && nl.nl_pid)
		return nl.nl_pid;
	nl = (struct sockaddr_nl){ .nl_family = AF_NETLINK };
	bytes = sizeof(nl);
	if (bind(fd, (struct sockaddr *)&nl, sizeof(nl)) == 0 &&
	    getsockname(fd, (struct sockaddr *)&nl, &bytes) == 0)
		return nl.nl_pid;
	return 0;
}

/* Answers a datagram of requests as the kernel would. */
static ssize_t take(int fd, const void *requests, size_t bytes)
{
	VB_UNCANCELLED;
	struct delivery *d = calloc(1, sizeof(*d));
	int saved = errno;

	if (!d) {
		errno = ENOBUFS;
		return -1;
	}
	d->fd = REAL(socket)(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_USERSOCK);
	d->port = port_of(fd);
	vb_nldev_answer(requests, bytes, d->port, &d->reply);
	if (d->fd < 0 || !d->port || d->reply.is_short)
		return refuse(d);
	if (deliver(d, MSG_DONTWAIT))
		end_delivery(d);
	else if (!deliver_later(d))
		return refuse(d);
	errno = saved;
	return (ssize_t)bytes;
}

/* ---- sending ---- */

VB_EXPORT ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
	return vb_unlikely(is_answered(fd)) ? take(fd, data, bytes) : REAL(send)(fd, data, bytes, flags);
}

VB_EXPORT ssize_t sendto(int fd, const void *data, size_t bytes, int flags, const struct sockaddr *to,
			 socklen_t to_bytes)
{
	return vb_unlikely(is_answered(fd)) ? take(fd, data, bytes) :
					      REAL(sendto)(fd, data, bytes, flags, to, to_bytes);
}

/* Out of line, so that sendmsg on other sockets needs no stack for the datagram. */
static __attribute__((noinline)) ssize_t take_pieces(int fd, const struct msghdr *m)
{
	uint8_t data[REQUEST_BYTES];
	size_t bytes = 0;

	for (size_t i = 0; i < m->msg_iovlen; i++) {
		if (m->msg_iov[i].iov_len > sizeof(data) - bytes) {
			errno = EMSGSIZE;
			return -1;
		}
		memcpy(data + bytes, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len);
		bytes += m->msg_iov[i].iov_len;
	}
	return take(fd, data, bytes);
}

VB_EXPORT ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	return vb_unlikely(is_answered(fd)) ? take_pieces(fd, m) : REAL(sendmsg)(fd, m, flags);
}
