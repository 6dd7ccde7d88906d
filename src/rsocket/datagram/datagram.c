/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagram sockets: life, completions, and what has arrived. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/waits.h"
#include "rsocket/core/wake.h"
#include "rsocket/datagram/datagram.h"

/* ---- life ---- */

int vb_rs_datagram_open(struct vb_rs *s)
{
	struct vb_rs_datagram *d = calloc(1, sizeof(*d));
	struct epoll_event event = { .events = EPOLLIN };

	if (!d)
		return -ENOMEM;
	vb_list_init(&d->ports);
	vb_list_init(&d->udp_received);
	d->epfd = vb_epoll_open();
	s->datagram = d;
	s->fd = vb_fd_lift(socket(s->domain, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), VB_FD_LEAST);
	if (d->epfd < 0 || s->fd < 0 || vb_epoll_ctl(d->epfd, EPOLL_CTL_ADD, s->fd, &event))
		return -errno;
	return 0;
}

void vb_rs_datagram_free(struct vb_rs *s)
{
	struct vb_rs_datagram *d = s->datagram;
	struct vb_list *node;

	if (!d)
		return;
	vb_rs_dests_free(s);
	while ((node = vb_list_pop(&d->udp_received)))
		free(vb_container_of(node, struct vb_rs_udp_received, node));
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

static uint8_t *packet_in(struct vb_rs_port *p, uint32_t buffer)
{
	return p->receive_buffers + (size_t)buffer * VB_RS_RECEIVE_BUFFER + VB_RS_GRH_BYTES;
}

/* The name does not say on which link a link-local address is: on that of the port. */
static void take_name(const struct vb_rs_port *p, const struct vb_rs_name *name, struct vb_cma_addr *addr)
{
	vb_cma_addr_any(vb_rs_name_is_ipv4(name) ? AF_INET : AF_INET6, addr);
	memcpy(&addr->ip, name->ip, sizeof(name->ip));
	addr->port = name->port;
	if (IN6_IS_ADDR_LINKLOCAL(&addr->ip))
		addr->scope = vb_cma_id_of(p->id)->ifindex;
}

/* A datagram that nobody will receive does not wake whoever waits for one. */
static void take_packet(const struct vb_rs_datagram *d, struct vb_rs_port *p, const struct ibv_wc *wc)
{
	uint32_t buffer = (uint32_t)wc->wr_id,
		 bytes = wc->byte_len > VB_RS_GRH_BYTES ? wc->byte_len - VB_RS_GRH_BYTES : 0;
	struct vb_rs_name from;
	struct vb_cma_addr src;

	if (vb_rs_ud_header_parse(packet_in(p, buffer), bytes, &from)) {
		take_name(p, &from, &src);
		if (vb_rs_datagram_is_wanted(d, &src)) {
			p->ready[(p->first_ready + p->num_ready++) % p->num_receive] =
				(struct vb_rs_received){ buffer, bytes };
			return;
		}
	}
	(void)vb_rs_port_post_receive(p, buffer);
}

static bool progress_port(const struct vb_rs_datagram *d, struct vb_rs_port *p)
{
	struct ibv_wc wc[VB_RS_BATCH];
	bool any = false;
	int n;

	do {
		n = ibv_poll_cq(p->cq, VB_RS_BATCH, wc);
		for (int i = 0; i < n; i++) {
			if (wc[i].wr_id & VB_RS_IS_SEND)
				p->free_buffers[p->num_free++] = (uint32_t)wc[i].wr_id;
			else if (wc[i].status == IBV_WC_SUCCESS)
				take_packet(d, p, &wc[i]);
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
		any |= progress_port(d, p);
	/* Those who write for the first time are heard beside those who never stop. */
	if ((!any && (d->udp_is_due || vb_list_is_empty(&d->ports))) ||
	    vb_rs_look_is_due(&d->udp_looked, any ? VB_RS_BUSY_LOOK_US : VB_RS_LOOK_US))
		any |= vb_rs_udp_take(s);
	if (any)
		vb_rs_wake_locked(s);
	return any;
}

unsigned vb_rs_datagram_sleep_fds_locked(struct vb_rs *s, struct pollfd fds[VB_RS_SLEEP_FDS])
{
	struct vb_rs_port *p;
	bool any = false;

	vb_list_for_each(p, &s->datagram->ports, node) {
		if (p->is_armed)
			continue;
		p->is_armed = !ibv_req_notify_cq(p->cq, 0);
		any |= progress_port(s->datagram, p);
	}
	fds[0] = (struct pollfd){ .fd = s->datagram->epfd, .events = POLLIN };
	return any ? 0 : 1;
}

void vb_rs_datagram_sleep_events_locked(struct vb_rs *s)
{
	VB_UNCANCELLED;
	struct vb_rs_port *p;

	vb_list_for_each(p, &s->datagram->ports, node) {
		if (p->is_armed && vb_rs_cq_take_event(p->channel)) {
			ibv_ack_cq_events(p->cq, 1);
			p->is_armed = false;
		}
	}
	s->datagram->udp_is_due = true;
	vb_rs_wake_locked(s); /* other sleepers have unarmed CQs now */
}

bool vb_rs_datagram_is_readable(struct vb_rs *s)
{
	struct vb_rs_port *p;

	if (!vb_list_is_empty(&s->datagram->udp_received))
		return true;
	vb_list_for_each(p, &s->datagram->ports, node)
		if (p->num_ready)
			return true;
	return false;
}

bool vb_rs_datagram_is_writable(struct vb_rs *s)
{
	struct vb_rs_port *p;

	if (s->datagram->writing_is_shut)
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

	if (d->reading_is_shut || vb_rs_datagram_is_readable(s))
		revents |= POLLIN | POLLRDNORM;
	if (d->reading_is_shut)
		revents |= POLLRDHUP;
	if (vb_rs_datagram_is_writable(s))
		revents |= POLLOUT | POLLWRNORM;
	return (short)((revents & events) | (d->reading_is_shut && d->writing_is_shut ? POLLHUP : 0));
}

void vb_rs_datagram_shut_locked(struct vb_rs *s, int how)
{
	s->datagram->reading_is_shut |= how != SHUT_WR;
	s->datagram->writing_is_shut |= how != SHUT_RD;
	s->changes++;
	vb_rs_wake_locked(s);
}

/* ---- what waits to be received ---- */

size_t vb_rs_datagram_next_locked(struct vb_rs *s, struct vb_cma_addr *src, const uint8_t **data,
				  struct vb_rs_port **port)
{
	struct vb_rs_datagram *d = s->datagram;
	struct vb_rs_port *p;

	*port = NULL;
	if (!vb_list_is_empty(&d->udp_received)) {
		struct vb_rs_udp_received *e =
			vb_container_of(d->udp_received.next, struct vb_rs_udp_received, node);
		*src = e->src;
		*data = e->data;
		return e->bytes;
	}
	vb_list_for_each(p, &d->ports, node) {
		if (!p->num_ready)
			continue;
		const struct vb_rs_received *r = &p->ready[p->first_ready];
		const uint8_t *packet = packet_in(p, r->buffer);
		struct vb_rs_name name;
		uint32_t header = vb_rs_ud_header_parse(packet, r->bytes, &name);
		take_name(p, &name, src);
		*data = packet + header;
		*port = p;
		return r->bytes - header;
	}
	return 0;
}

void vb_rs_datagram_release_locked(struct vb_rs *s, struct vb_rs_port *port)
{
	struct vb_rs_datagram *d = s->datagram;

	if (!port) {
		free(vb_container_of(vb_list_pop(&d->udp_received), struct vb_rs_udp_received, node));
		d->num_udp_received--;
		return;
	}
	(void)vb_rs_port_post_receive(port, port->ready[port->first_ready].buffer);
	port->first_ready = (port->first_ready + 1) % port->num_receive;
	port->num_ready--;
}
