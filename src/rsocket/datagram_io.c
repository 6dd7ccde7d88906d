/* SPDX-License-Identifier: BSD-2-Clause */
/* Receiving and sending datagrams, and their sockets' names. */
#include <string.h>

#include "rsocket/calls.h"

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

static void copy_source(struct vb_rs *s, const struct vb_cma_addr *src, struct msghdr *msg)
{
	struct vb_cma_addr of_domain = *src;
	struct sockaddr_storage ss;

	if (!msg->msg_name)
		return;
	of_domain.family = (sa_family_t)s->domain;
	vb_cma_addr_format(&of_domain, &ss);
	vb_rs_copy_address((struct sockaddr *)&ss, msg->msg_name, &msg->msg_namelen);
}

/* Would a receive not wait? */
static bool can_receive(struct vb_rs *s)
{
	return s->datagram->reading_is_shut || vb_rs_datagram_is_readable(s);
}

static ssize_t receive_locked(struct vb_rs *s, struct msghdr *msg, int flags)
{
	uint64_t deadline = vb_rs_deadline(vb_rs_may_block(s, flags), s->options.receive_timeout_ns);
	struct vb_cma_addr src;
	struct vb_rs_port *port;
	const uint8_t *data = NULL;

	for (;;) {
		int err = vb_rs_datagram_is_readable(s) ? 0 :
							  vb_rs_wait_locked(s, can_receive, deadline, NULL);
		if (err)
			return err;
		if (!vb_rs_datagram_is_readable(s))
			return 0; /* reading is shut */
		size_t bytes = vb_rs_datagram_next_locked(s, &src, &data, &port);
		/* It may have come before the socket was connected. */
		bool wanted = vb_rs_datagram_is_wanted(s->datagram, &src);
		size_t n = wanted ? scatter(msg->msg_iov, (int)msg->msg_iovlen, data, bytes) : 0;
		if (!wanted || !(flags & MSG_PEEK))
			vb_rs_datagram_release_locked(s, port);
		if (!wanted)
			continue;
		copy_source(s, &src, msg);
		if (n < bytes)
			msg->msg_flags |= MSG_TRUNC;
		return (ssize_t)(flags & MSG_TRUNC ? bytes : n);
	}
}

ssize_t vb_rs_datagram_receive(struct vb_rs *s, struct msghdr *msg, int flags)
{
	pthread_mutex_lock(&s->lock);
	ssize_t n = receive_locked(s, msg, flags);
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

static ssize_t send_packet(struct vb_rs_dest *dest, const struct iovec *iov, int iovcnt, size_t bytes)
{
	struct vb_rs_port *p = dest->port;
	uint32_t buffer = p->free_buffers[--p->num_free];
	uint8_t *at = p->send_buffers + (size_t)buffer * VB_RS_BUFFER_BYTES;
	struct ibv_sge sge = { (uintptr_t)at, (uint32_t)(p->header_bytes + bytes), p->send_mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = VB_RS_IS_SEND | buffer,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.wr.ud = { .ah = dest->ah, .remote_qpn = dest->peer.qpn, .remote_qkey = RDMA_UDP_QKEY },
	};

	memcpy(at, p->header, p->header_bytes);
	gather(at + p->header_bytes, iov, iovcnt);
	int err = ibv_post_send(p->id->qp, &wr, &bad);
	if (!err)
		return (ssize_t)bytes;
	p->free_buffers[p->num_free++] = buffer;
	return -err;
}

static ssize_t send_by_udp(struct vb_rs *s, const struct vb_rs_dest *dest, const struct iovec *iov,
			   int iovcnt, size_t bytes)
{
	uint8_t data[VB_RS_BUFFER_BYTES];

	gather(data, iov, iovcnt);
	return vb_rs_udp_send(s, dest, data, bytes, VB_RS_UDP_DATA);
}

static ssize_t send_locked(struct vb_rs *s, const struct vb_cma_addr *to, const struct iovec *iov, int iovcnt,
			   uint64_t deadline)
{
	size_t bytes = total(iov, iovcnt);
	struct vb_rs_dest *dest;
	int err = s->datagram->writing_is_shut ? -EPIPE : vb_rs_dest_get(s, to, &dest);

	if (err)
		return err;
	if (bytes > dest->port->largest - dest->port->header_bytes) {
		vb_explain("rsendto", "%zu bytes; one packet carries %u", bytes,
			   dest->port->largest - dest->port->header_bytes);
		return -EMSGSIZE;
	}
	if (!vb_rs_dest_has_qp(dest) && vb_rs_udp_take(s)) /* an answer may wait there */
		err = vb_rs_dest_get(s, to, &dest);
	if (err)
		return err;
	if (!vb_rs_dest_has_qp(dest))
		return send_by_udp(s, dest, iov, iovcnt, bytes);
	if (!dest->port->num_free) {
		err = vb_rs_wait_locked(s, vb_rs_datagram_is_writable, deadline, NULL);
		if (err)
			return err;
		return send_locked(s, to, iov, iovcnt, deadline); /* the lock was released */
	}
	return send_packet(dest, iov, iovcnt, bytes);
}

ssize_t vb_rs_datagram_send(struct vb_rs *s, const struct msghdr *msg, int flags)
{
	const struct sockaddr *addr = msg->msg_name;
	struct vb_cma_addr to;
	ssize_t n;

	if (addr && (!vb_rs_is_whole_address(addr, msg->msg_namelen) || vb_cma_addr_parse(addr, &to)))
		return -EINVAL;
	pthread_mutex_lock(&s->lock);
	uint64_t deadline = vb_rs_deadline(vb_rs_may_block(s, flags), s->options.send_timeout_ns);
	if (!addr)
		to = s->datagram->peer;
	else
		vb_cma_addr_settle(&to);
	n = to.family ? send_locked(s, &to, msg->msg_iov, (int)msg->msg_iovlen, deadline) : -EDESTADDRREQ;
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
	VB_UNCANCELLED;
	struct vb_cma_addr to = { 0 };
	struct vb_rs_dest *dest;
	int err = 0;

	if (addr->sa_family != AF_UNSPEC && vb_cma_addr_parse(addr, &to))
		return -EINVAL;
	if (to.family)
		vb_cma_addr_settle(&to);
	pthread_mutex_lock(&s->lock);
	if (to.family)
		err = vb_rs_dest_get(s, &to, &dest);
	if (!err && connect(s->fd, addr, len))
		err = -errno;
	if (!err && !to.family)
		vb_rs_dests_free(s); /* a port that the kernel chose is lost, and the next one is another */
	if (!err)
		s->datagram->peer = to;
	pthread_mutex_unlock(&s->lock);
	return err;
}
