/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/packet.h"

#include <string.h>

#include "rdmacm/agent.h"
#include "wire/opcode.h"

/* What the machine carries around as an opaque route. */
struct route {
	uint32_t slot; /* the peer's inbox; 0: the listener at (port space, destination) */
	uint16_t port_space;
	uint16_t port;
	uint32_t scope;
	uint32_t reserved;
	struct in6_addr src, dst;
};
_Static_assert(sizeof(struct route) <= sizeof(struct vb_cm_route), "a route fits where the machine keeps it");

struct packet {
	struct vb_bth bth;
	struct vb_deth deth;
	struct vb_mad mad;
};
_Static_assert(sizeof(struct packet) == VB_BTH_BYTES + 8 + VB_MAD_BYTES, "headers follow each other");

static struct vb_cm_route pack(const struct route *r)
{
	struct vb_cm_route route;

	memset(&route, 0, sizeof(route));
	memcpy(&route, r, sizeof(*r));
	return route;
}

static struct route unpack(const struct vb_cm_route *route)
{
	struct route r;

	memcpy(&r, route, sizeof(r));
	return r;
}

struct vb_cm_route vb_cma_route_to_port(enum rdma_port_space ps, const struct vb_cma_addr *src,
					const struct vb_cma_addr *dst)
{
	struct route r = { .port_space = (uint16_t)ps, .port = dst->port, .scope = dst->scope, .src = src->ip,
			   .dst = dst->ip };

	return pack(&r);
}

uint32_t vb_cma_route_slot(const struct vb_cm_route *route)
{
	return unpack(route).slot;
}

int vb_cma_packet_send(const struct vb_cm_route *to, const struct vb_mad *mad)
{
	struct route r = unpack(to);
	struct vb_inbox_addr addr = { .src = r.src, .dst = r.dst, .udp_sport = VB_CMA_UDP_PORT,
				      .hop_limit = VB_CMA_HOP_LIMIT };
	struct packet p = { .mad = *mad };
	struct iovec iov = { &p, sizeof(p) };

	vb_bth_set_opcode(&p.bth, VB_OPCODE(UD, SEND_ONLY));
	vb_bth_set_pkey(&p.bth, VB_CMA_PKEY);
	vb_bth_set_destination_qpn(&p.bth, VB_GSI_QPN);
	vb_deth_set_qkey(&p.deth, VB_GSI_QKEY);
	vb_deth_set_source_qpn(&p.deth, VB_GSI_QPN);
	if (r.slot)
		return vb_inbox_send(r.slot, &addr, &iov, 1);
	struct vb_cma_addr dst = { .ip = r.dst, .port = r.port, .scope = r.scope };
	return vb_cma_port_send((enum rdma_port_space)r.port_space, &dst, &addr, &iov, 1);
}

static bool is_cm_packet(const struct vb_inbox_msg *msg, struct packet *p)
{
	if (msg->payload_bytes != sizeof(*p) || !msg->sender_slot)
		return false;
	memcpy(p, msg->payload, sizeof(*p));
	return vb_bth_opcode(&p->bth) == VB_OPCODE(UD, SEND_ONLY) && vb_bth_transport_version(&p->bth) == 0 &&
	       vb_bth_destination_qpn(&p->bth) == VB_GSI_QPN && vb_deth_qkey(&p->deth) == VB_GSI_QKEY;
}

void vb_cma_packet_arrived(void *arg, const struct vb_inbox_msg *msg)
{
	struct route back = { .slot = msg->sender_slot, .src = msg->addr.dst, .dst = msg->addr.src };
	struct vb_cm_rx rx;
	struct packet p;

	(void)arg;
	if (!is_cm_packet(msg, &p) || vb_cm_msg_parse(&p.mad, sizeof(p.mad), &rx.msg))
		return;
	rx.from = pack(&back);
	memcpy(rx.src_gid, &msg->addr.src, sizeof(rx.src_gid));
	vb_cma_agent_receive(&rx);
}
