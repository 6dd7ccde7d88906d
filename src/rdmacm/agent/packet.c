/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/agent/packet.h"

#include <stdlib.h>
#include <string.h>

#include "host/ipc/capture.h"
#include "ud/gsi.h"

/* What the machine carries around as an opaque route. */
struct route {
	struct in6_addr src, dst;
	uint32_t scope;       /* interface index of link-local addresses, else 0 */
	uint32_t slot;        /* of this host: the peer's inbox; 0: the listener at (port space, dst, port) */
	uint16_t port_space, port;
	uint8_t traffic_class;
	bool is_local;        /* the peer is reached within this host, else over the network */
};
_Static_assert(sizeof(struct route) <= sizeof(struct vb_cm_route), "a route fits where the machine keeps it");

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

static bool is_within_host(const struct in6_addr *ip)
{
	return !vb_local_is_off() && vb_netif_is_local(ip);
}

struct vb_cm_route vb_cma_route_to_port(const struct vb_cma_id *id)
{
	struct route r = { .src = id->src.ip,
			   .dst = id->dst.ip,
			   .scope = id->dst.scope,
			   .port_space = (uint16_t)id->pub.ps,
			   .port = id->dst.port,
			   .traffic_class = id->tos,
			   .is_local = is_within_host(&id->dst.ip) };

	return pack(&r);
}

bool vb_cma_route_is_local(const struct vb_cm_route *route)
{
	return unpack(route).is_local;
}

struct in6_addr vb_cma_route_peer(const struct vb_cm_route *route)
{
	return unpack(route).dst;
}

struct in6_addr vb_cma_route_own(const struct vb_cm_route *route)
{
	return unpack(route).src;
}

uint32_t vb_cma_route_slot(const struct vb_cm_route *route)
{
	return unpack(route).slot;
}

static int send_to_port(const struct route *r, const struct vb_inbox_addr *addr,
			const struct vb_gsi_packet *packet)
{
	struct vb_cma_addr dst = { .ip = r->dst, .port = r->port, .scope = r->scope };
	struct vb_cm_service service = vb_cma_service((enum rdma_port_space)r->port_space, &dst);
	return vb_gsi_send_to_service(&service, addr, packet);
}

int vb_cma_packet_send(const struct vb_cm_send *send)
{
	struct route r = unpack(&send->to);
	struct vb_inbox_addr addr = { .src = r.src, .dst = r.dst, .traffic_class = r.traffic_class,
				      .hop_limit = VB_HOP_LIMIT };
	struct vb_gsi_packet packet;
	struct iovec iov = { &packet, sizeof(packet) };

	if (!r.is_local)
		return vb_gsi_send(&addr, r.scope, &send->mad, send->repeats != 0);
	vb_gsi_packet_init(&packet, &send->mad);
	struct vb_capture_moment moment = vb_capture_begin();
	int err = r.slot ? vb_inbox_send(r.slot, &addr, &iov, 1) : send_to_port(&r, &addr, &packet);
	if (!err && moment.time_ns)
		vb_capture_packet(&(struct vb_capture_note){ .addr = &addr,
							     .time_ns = moment.time_ns,
							     .flags = VB_CAPTURE_OUT | VB_CAPTURE_INBOX,
							     .qpn = VB_GSI_QPN },
				  &iov, 1);
	vb_capture_end(moment);
	return err;
}

/* The first interface that has a link-local address of ours; 0: none. */
static uint32_t scope_of(const struct in6_addr *ip)
{
	struct vb_netif *list;
	unsigned count;
	uint32_t scope = 0;

	if (!IN6_IS_ADDR_LINKLOCAL(ip) || vb_netif_list(&list, &count))
		return 0;
	for (unsigned i = 0; i < count && !scope; i++)
		for (unsigned a = 0; a < list[i].naddrs; a++)
			if (IN6_ARE_ADDR_EQUAL(&list[i].addrs[a].ip, ip))
				scope = list[i].index;
	free(list);
	return scope;
}

static bool is_senders_qp(const struct vb_inbox_msg *msg, uint32_t qpn)
{
	uint32_t slot = qpn >> VB_SLOT_SHIFT;

	return !slot || slot == msg->sender_slot || vb_slot_is_of(slot, msg->sender_uid);
}

/* Does it name only an id of the sending process, and QPs of the sending user? */
static bool names_senders_own(const struct vb_inbox_msg *msg, const struct vb_cm_msg *cm)
{
	uint32_t id = vb_cm_msg_sender_id(cm);
	struct vb_cm_offer offer = vb_cm_msg_offer(cm);

	if (id && vb_cm_id_slot(id) != msg->sender_slot)
		return false;
	return is_senders_qp(msg, offer.qpn[0]) && is_senders_qp(msg, offer.qpn[1]);
}

/*
 * Any process of this host may have received a message from the network. So the address shows whether the
 * sender is of this host, and its communication id shows which process it is.
 */
bool vb_cma_packet_parse(const struct vb_inbox_msg *msg, uint32_t scope, struct vb_cm_rx *rx)
{
	struct route back = { .src = msg->addr.dst,
			      .dst = msg->addr.src,
			      .traffic_class = msg->addr.traffic_class,
			      .scope = scope ? scope : scope_of(&msg->addr.dst),
			      .is_local = is_within_host(&msg->addr.src) };

	if (!msg->sender_slot || vb_gsi_packet_parse(msg->payload, msg->payload_bytes, &rx->msg))
		return false;
	if (!msg->is_trusted && !names_senders_own(msg, &rx->msg))
		return false;
	if (back.is_local) {
		uint32_t id = vb_cm_msg_sender_id(&rx->msg);
		back.slot = id ? vb_cm_id_slot(id) : msg->sender_slot;
	}
	rx->from = pack(&back);
	memcpy(rx->src_gid, &msg->addr.src, sizeof(rx->src_gid));
	return true;
}
