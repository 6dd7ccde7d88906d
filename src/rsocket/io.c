/* SPDX-License-Identifier: BSD-2-Clause */
/* The public calls that move bytes: each is one read or one write of a list of buffers. */
#include <limits.h>

#include "rsocket/calls.h"

#define LIST_LIMITS "a list of buffers has at most IOV_MAX pieces, and SSIZE_MAX bytes in all"

/* The limits of readv(2). */
static int check_list(const struct iovec *iov, size_t count)
{
	size_t bytes = 0;

	if (count > IOV_MAX || (count && !iov))
		return -EINVAL;
	for (size_t i = 0; i < count; i++)
		if (__builtin_add_overflow(bytes, iov[i].iov_len, &bytes) || bytes > SSIZE_MAX)
			return -EINVAL;
	return 0;
}

/* One call moves at most SSIZE_MAX bytes, as read(2) does. */
static struct iovec one_piece(const void *buf, size_t len)
{
	return (struct iovec){ (void *)(uintptr_t)buf, len < SSIZE_MAX ? len : SSIZE_MAX };
}

static struct msghdr message_of(const struct iovec *iov, size_t count)
{
	return (struct msghdr){ .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = count };
}

static ssize_t receive(const char *call, int socket, struct msghdr *msg, int flags)
{
	VB_DEFERRED;
	struct vb_rs *s = vb_rs_get_checked(socket, call);
	ssize_t n;

	if (!s)
		return -1;
	n = check_list(msg->msg_iov, msg->msg_iovlen);
	if (n)
		vb_explain(call, LIST_LIMITS);
	else if (!vb_rs_is_stream(s))
		n = vb_rs_datagram_receive(s, msg, flags);
	else
		n = vb_rs_stream_read(s, msg->msg_iov, (int)msg->msg_iovlen, flags);
	bool is_stream = vb_rs_is_stream(s);
	vb_rs_put(s);
	if (n > 0 && is_stream && msg->msg_name) /* a stream's bytes come from its peer */
		(void)rgetpeername(socket, msg->msg_name, &msg->msg_namelen);
	return vb_rs_result(n);
}

static bool is_connected(struct vb_rs *s)
{
	pthread_mutex_lock(&s->lock);
	bool is = s->state == VB_RS_CONNECTED;
	pthread_mutex_unlock(&s->lock);
	return is;
}

static ssize_t transmit(const char *call, int socket, const struct msghdr *msg, int flags)
{
	VB_DEFERRED;
	struct vb_rs *s = vb_rs_get_checked(socket, call);
	ssize_t n;

	if (!s)
		return -1;
	n = check_list(msg->msg_iov, msg->msg_iovlen);
	if (n)
		vb_explain(call, LIST_LIMITS);
	else if (!vb_rs_is_stream(s))
		n = vb_rs_datagram_send(s, msg, flags);
	else if (msg->msg_name || msg->msg_namelen)
		n = is_connected(s) ? -EISCONN : -ENOTCONN;
	else
		n = vb_rs_stream_write(s, msg->msg_iov, (int)msg->msg_iovlen, flags);
	vb_rs_put(s);
	return vb_rs_result(n);
}

/* ---- receiving ---- */

VB_EXPORT ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags, struct sockaddr *src_addr,
			    socklen_t *addrlen)
{
	struct iovec iov = one_piece(buf, len);
	struct msghdr msg = message_of(&iov, 1);

	if (src_addr && addrlen) {
		msg.msg_name = src_addr;
		msg.msg_namelen = *addrlen;
	}
	ssize_t n = receive(__func__, socket, &msg, flags);
	if (msg.msg_name)
		*addrlen = msg.msg_namelen;
	return n;
}

static ssize_t receive_into(const char *call, int socket, void *buf, size_t len, int flags)
{
	struct iovec iov = one_piece(buf, len);
	struct msghdr msg = message_of(&iov, 1);

	return receive(call, socket, &msg, flags);
}

VB_EXPORT ssize_t rrecv(int socket, void *buf, size_t len, int flags)
{
	return receive_into(__func__, socket, buf, len, flags);
}

VB_EXPORT ssize_t rread(int socket, void *buf, size_t count)
{
	return receive_into(__func__, socket, buf, count, 0);
}

VB_EXPORT ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt)
{
	struct msghdr msg = message_of(iov, (size_t)iovcnt);

	return receive(__func__, socket, &msg, 0);
}

VB_EXPORT ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags)
{
	if (!msg)
		return vb_rs_fail(EFAULT, "no message");
	if (msg->msg_iovlen > IOV_MAX)
		return vb_rs_fail(EMSGSIZE, LIST_LIMITS);
	msg->msg_flags = 0;
	ssize_t n = receive(__func__, socket, msg, flags);
	if (n >= 0)
		msg->msg_controllen = 0; /* there is no ancillary data */
	return n;
}

/* ---- sending ---- */

static ssize_t transmit_from(const char *call, int socket, const void *buf, size_t len, int flags,
			     const struct sockaddr *dest, socklen_t dest_len)
{
	struct iovec iov = one_piece(buf, len);
	struct msghdr msg = message_of(&iov, 1);

	msg.msg_name = (void *)(uintptr_t)dest;
	msg.msg_namelen = dest_len;
	return transmit(call, socket, &msg, flags);
}

VB_EXPORT ssize_t rsendto(int socket, const void *buf, size_t len, int flags,
			  const struct sockaddr *dest_addr, socklen_t addrlen)
{
	return transmit_from(__func__, socket, buf, len, flags, dest_addr, addrlen);
}

VB_EXPORT ssize_t rsend(int socket, const void *buf, size_t len, int flags)
{
	return transmit_from(__func__, socket, buf, len, flags, NULL, 0);
}

VB_EXPORT ssize_t rwrite(int socket, const void *buf, size_t count)
{
	return transmit_from(__func__, socket, buf, count, 0, NULL, 0);
}

VB_EXPORT ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt)
{
	struct msghdr msg = message_of(iov, (size_t)iovcnt);

	return transmit(__func__, socket, &msg, 0);
}

VB_EXPORT ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags)
{
	if (!msg)
		return vb_rs_fail(EFAULT, "no message");
	if (msg->msg_control && msg->msg_controllen)
		return vb_rs_fail(ENOTSUP, "there is no ancillary data over RDMA");
	if (msg->msg_iovlen > IOV_MAX)
		return vb_rs_fail(EMSGSIZE, LIST_LIMITS);
	struct msghdr named = *msg;

	if (!named.msg_name)
		named.msg_namelen = 0;
	return transmit(__func__, socket, &named, flags);
}
