/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagram sockets: life, completions, receiving and sending between queue pairs. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/waits.h"
#include "rsocket/datagram.h"

enum { LOOKS = 64 }; /* at empty CQs until the UDP socket is looked at */

/* ---- life ---- */

int vb_rs_datagram_open(struct vb_rs *s)
{
	struct vb_rs_datagram *d = calloc(1, sizeof(*d));
	struct epoll_event event = { .events = EPOLLIN };

	if (!d)
		return -ENOMEM;
	vb_list_init(&d->ports);
	vb_list_init(&d->early);
	d->epfd = vb_epoll_open();
	s->datagram = d;
	int fd = vb_fd_lift(socket(s->domain, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
			    VB_RS_FIRST_NUMBER);
	if (d->epfd < 0 || fd < 0 || vb_epoll_ctl(d->epfd, EPOLL_CTL_ADD, fd, &event)) {
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

void vb_rs_datagram_close(struct vb_rs *s)
{
	struct vb_rs_datagram *d = s->datagram;
	struct vb_list *node;

	if (!d)
		return;
	vb_rs_dests_free(s);
	while ((node = vb_list_pop(&d->early)))
		free(vb_container_of(node, struct vb_rs_early, node));
	while ((node = vb_list_pop(&d->ports)))
		vb_rs_port_free(s, vb_container_of(node, struct vb_rs_port, node));
	if (d->epfd >= 0)
		close(d->epfd);
	if (s->fd >= 0)
		close(s->fd);
	free(d);
	s->datagram = NULL;
}

/* ---- progress ---- */

static uint8_t *packet_in(struct vb_rs_port *p, uint32_t slot)
{
	return p->receive_slots + (size_t)slot * VB_RS_RECEIVE_SLOT + VB_RS_GRH_BYTES;
}

static void take_packet(struct vb_rs_port *p, const struct ibv_wc *wc)
{
	uint32_t slot = (uint32_t)wc->wr_id,
		 bytes = wc->byte_len > VB_RS_GRH_BYTES ? wc->byte_len - VB_RS_GRH_BYTES : 0;

	struct vb_rs_name from;

	if (!vb_rs_ud_header_parse(packet_in(p, slot), bytes, &from)) {
		(void)vb_rs_port_post_receive(p, slot);
		return;
	}
	p->ready[(p->first_ready + p->num_ready++) % p->num_receive] = (struct vb_rs_received){ slot, bytes };
}

/* Send work requests are told from receives by this bit of their id, which holds also if they failed. */
#define IS_SEND (UINT64_C(1) << 32)

static bool progress_port(struct vb_rs_port *p)
{
	struct ibv_wc wc[VB_RS_BATCH];
	bool any = false;
	int n;

	do {
		n = ibv_poll_cq(p->cq, VB_RS_BATCH, wc);
		for (int i = 0; i < n; i++) {
			if (wc[i].wr_id & IS_SEND)
				p->free_slots[p->num_free++] = (uint32_t)wc[i].wr_id;
			else if (wc[i].status == IBV_WC_SUCCESS)
				take_packet(p, &wc[i]);
		}
		any |= n > 0;
	} while (n == VB_RS_BATCH);
	return any;
}

bool vb_rs_datagram_progress_locked(struct vb_rs *s)
{
	struct vb_rs_datagram *d = s->datagram;
	struct vb_rs_port *p;
	bool any = false;

	vb_list_for_each(p, &d->ports, node)
		any |= progress_port(p);
	if (!any && (d->udp_news || vb_list_is_empty(&d->ports) || ++d->looks >= LOOKS)) {
		d->looks = 0;
		any = vb_rs_udp_take(s);
	}
	return any;
}

bool vb_rs_datagram_arm_locked(struct vb_rs *s, int *fd)
{
	struct vb_rs_port *p;
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
	VB_UNCANCELLED;
	struct vb_rs_port *p;

	vb_list_for_each(p, &s->datagram->ports, node) {
		if (p->is_armed && vb_rs_cq_take_event(p->channel)) {
			ibv_ack_cq_events(p->cq, 1);
			p->is_armed = false;
		}
	}
	s->datagram->udp_news = true;
	vb_rs_wake_locked(s); /* others sleep on with unarmed CQs */
}

static bool is_readable(struct vb_rs *s)
{
	struct vb_rs_port *p;

	if (!vb_list_is_empty(&s->datagram->early))
		return true;
	vb_list_for_each(p, &s->datagram->ports, node)
		if (p->num_ready)
			return true;
	return false;
}

static bool is_writable(struct vb_rs *s)
{
	struct vb_rs_port *p;

	if (s->datagram->is_mute)
		return true;
	vb_list_for_each(p, &s->datagram->ports, node)
		if (!p->num_free)
			return false;
	return true;
}

short vb_rs_datagram_revents_locked(struct vb_rs *s, short events)
{
	const struct vb_rs_datagram *d = s->datagram;
	short revents = 0;

	if (d->is_deaf || is_readable(s))
		revents |= POLLIN | POLLRDNORM;
	if (d->is_deaf)
		revents |= POLLRDHUP;
	if (is_writable(s))
		revents |= POLLOUT | POLLWRNORM;
	return (short)((revents & events) | (d->is_deaf && d->is_mute ? POLLHUP : 0));
}

void vb_rs_datagram_shut_locked(struct vb_rs *s, int how)
{
	s->datagram->is_deaf |= how != SHUT_WR;
	s->datagram->is_mute |= how != SHUT_RD;
	s->arrivals++;
	vb_rs_wake_locked(s);
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

static void tell_source(const struct vb_cma_addr *src, sa_family_t domain, struct sockaddr *addr,
			socklen_t *len)
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

static void take_name(const struct vb_rs_name *name, struct vb_cma_addr *addr)
{
	vb_cma_addr_any(vb_rs_name_is_ipv4(name) ? AF_INET : AF_INET6, addr);
	memcpy(&addr->ip, name->ip, sizeof(name->ip));
	addr->port = name->port;
}

/* The next datagram: from where, and its bytes; release_next gives its place back. */
static size_t look_at_next(struct vb_rs *s, struct vb_cma_addr *src, const uint8_t **data,
			   struct vb_rs_port **from)
{
	struct vb_rs_datagram *d = s->datagram;
	struct vb_rs_port *p;

	*from = NULL;
	if (!vb_list_is_empty(&d->early)) {
		struct vb_rs_early *e = vb_container_of(d->early.next, struct vb_rs_early, node);
		*src = e->src;
		*data = e->data;
		return e->bytes;
	}
	vb_list_for_each(p, &d->ports, node) {
		if (!p->num_ready)
			continue;
		const struct vb_rs_received *r = &p->ready[p->first_ready];
		const uint8_t *packet = packet_in(p, r->slot);
		struct vb_rs_name name;
		uint32_t header = vb_rs_ud_header_parse(packet, r->bytes, &name);
		take_name(&name, src);
		*data = packet + header;
		*from = p;
		return r->bytes - header;
	}
	return 0;
}

size_t vb_rs_datagram_next_bytes(struct vb_rs *s)
{
	struct vb_cma_addr src;
	struct vb_rs_port *from;
	const uint8_t *data;

	return look_at_next(s, &src, &data, &from);
}

static void release_next(struct vb_rs *s, struct vb_rs_port *from)
{
	struct vb_rs_datagram *d = s->datagram;

	if (!from) {
		free(vb_container_of(vb_list_pop(&d->early), struct vb_rs_early, node));
		d->num_early--;
		return;
	}
	(void)vb_rs_port_post_receive(from, from->ready[from->first_ready].slot);
	from->first_ready = (from->first_ready + 1) % from->num_receive;
	from->num_ready--;
}

/* A connected socket hears its peer alone. */
static bool is_wanted(const struct vb_rs_datagram *d, const struct vb_cma_addr *src)
{
	return !d->peer.family || vb_rs_is_same_name(&d->peer, src);
}

/* There is something to receive, or nothing to be waited for. */
static bool can_receive(struct vb_rs *s) { return s->datagram->is_deaf || is_readable(s); }

static ssize_t receive_locked(struct vb_rs *s, const struct iovec *iov, int iovcnt, int flags,
			      struct sockaddr *addr, socklen_t *len, int *msg_flags)
{
	struct vb_cma_addr src;
	struct vb_rs_port *from;
	const uint8_t *data = NULL;

	for (;;) {
		int err = is_readable(s) ? 0 :
					   vb_rs_wait_locked(s, can_receive, vb_rs_may_block(s, flags),
							     s->options.receive_timeout_ns, NULL);
		if (err)
			return err;
		if (!is_readable(s))
			return 0; /* deaf */
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

ssize_t vb_rs_datagram_receive(struct vb_rs *s, const struct iovec *iov, int iovcnt, int flags,
			       struct sockaddr *src, socklen_t *len, int *msg_flags)
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

static ssize_t send_packet(struct vb_rs_dest *dest, const struct iovec *iov, int iovcnt, size_t bytes)
{
	struct vb_rs_port *p = dest->port;
	uint32_t slot = p->free_slots[--p->num_free];
	uint8_t *at = p->send_slots + (size_t)slot * VB_RS_SLOT_BYTES;
	struct ibv_sge sge = { (uintptr_t)at, (uint32_t)(p->header_bytes + bytes), p->send_mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = IS_SEND | slot,
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
	p->free_slots[p->num_free++] = slot;
	return -err;
}

static ssize_t send_locked(struct vb_rs *s, const struct vb_cma_addr *to, const struct iovec *iov, int iovcnt,
			   int flags)
{
	size_t bytes = total(iov, iovcnt);
	struct vb_rs_dest *dest;
	int err = s->datagram->is_mute ? -EPIPE : vb_rs_dest_get(s, to, &dest);

	if (err)
		return err;
	if (bytes > dest->port->largest - dest->port->header_bytes) {
		vb_explain("rsendto", "%zu bytes; one packet carries %u", bytes,
			   dest->port->largest - dest->port->header_bytes);
		return -EMSGSIZE;
	}
	if (!vb_rs_is_reached(dest) && vb_rs_udp_take(s)) /* an answer may wait there */
		err = vb_rs_dest_get(s, to, &dest);
	if (err)
		return err;
	if (!vb_rs_is_reached(dest))
		return vb_rs_udp_send(s, dest, iov, iovcnt, VB_RS_UDP_DATA);
	if (!dest->port->num_free) {
		err = vb_rs_wait_locked(s, is_writable, vb_rs_may_block(s, flags), s->options.send_timeout_ns,
					NULL);
		if (err)
			return err;
		return send_locked(s, to, iov, iovcnt, flags); /* the lock was away */
	}
	return send_packet(dest, iov, iovcnt, bytes);
}

ssize_t vb_rs_datagram_send(struct vb_rs *s, const struct iovec *iov, int iovcnt, int flags,
			    const struct sockaddr *addr, socklen_t len)
{
	struct vb_cma_addr to;
	ssize_t n;

	if (addr && (!vb_rs_is_whole_address(addr, len) || vb_cma_addr_parse(addr, &to)))
		return -EINVAL;
	pthread_mutex_lock(&s->lock);
	if (!addr)
		to = s->datagram->peer;
	n = to.family ? send_locked(s, &to, iov, iovcnt, flags) : -EDESTADDRREQ;
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
	pthread_mutex_lock(&s->lock);
	if (to.family)
		err = vb_rs_dest_get(s, &to, &dest);
	if (!err && connect(s->fd, addr, len))
		err = -errno;
	if (!err)
		s->datagram->peer = to;
	pthread_mutex_unlock(&s->lock);
	return err;
}
