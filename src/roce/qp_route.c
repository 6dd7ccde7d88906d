/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "adapter/device/device.h"
#include "adapter/inspection/counts.h"
#include "base/log.h"
#include "roce/qp_route.h"

unsigned vb_qp_route_ifindex(const struct vb_qp *qp, const struct in6_addr *destination)
{
	bool needs = IN6_IS_ADDR_LINKLOCAL(destination) || vb_ip_is_multicast(destination);
	return needs ? qp->ctx->device->ifindex : 0;
}

static int check(const struct vb_qp *qp)
{
	struct ibv_port_attr port;
	vb_port_attr(qp->ctx->device, &port);
	if (qp->attr.path_mtu > port.active_mtu) {
		vb_explain("ibv_modify_qp",
			   "path_mtu: %u bytes do not fit the interface; the port's active_mtu is %u",
			   vb_mtu_bytes(qp->attr.path_mtu), vb_mtu_bytes(port.active_mtu));
		return -EINVAL;
	}
	return 0;
}

int vb_qp_route_open(const struct vb_qp *qp)
{
	struct vb_roce_route route;
	int err = check(qp);
	if (!err)
		err = vb_roce_open();
	if (err)
		return err;
	vb_udp_await_steering();
	vb_qp_route(qp, &route);
	err = vb_udp_prepare(&route.addr);
	if (err)
		vb_explain_limit("ibv_modify_qp", "no socket can be had to send from: %s", strerror(-err));
	return err;
}

void vb_qp_route(const struct vb_qp *qp, struct vb_roce_route *route)
{
	const struct ibv_global_route *grh = &qp->attr.ah_attr.grh;
	struct vb_inbox_addr addr = {
		.src = qp->sgid,
		.flow_label = grh->flow_label,
		.traffic_class = grh->traffic_class,
		.hop_limit = grh->hop_limit,
		.udp_sport = vb_roce_source_port(grh->flow_label, qp->qpn, qp->attr.dest_qp_num),
	};
	memcpy(&addr.dst, &grh->dgid, sizeof(addr.dst));
	vb_roce_route_init(route, &addr, vb_qp_route_ifindex(qp, &addr.dst));
	route->qpn = qp->qpn;
}

bool vb_qp_route_matches(const struct vb_roce_route *route, const struct vb_inbox_addr *addr)
{
	return IN6_ARE_ADDR_EQUAL(&route->addr.dst, &addr->src) &&
	       IN6_ARE_ADDR_EQUAL(&route->addr.src, &addr->dst);
}

void vb_qp_route_drop_stranger(struct vb_qp *qp, const struct vb_roce_route *route,
			       const struct vb_inbox_addr *addr)
{
	char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN], ours[INET6_ADDRSTRLEN], theirs[INET6_ADDRSTRLEN];
	vb_drop(VB_DROP_STRANGER);
	if (!vb_drop_is_news(qp, VB_DROP_STRANGER))
		return;
	inet_ntop(AF_INET6, &addr->src, from, sizeof(from));
	inet_ntop(AF_INET6, &addr->dst, to, sizeof(to));
	inet_ntop(AF_INET6, &route->addr.src, ours, sizeof(ours));
	inet_ntop(AF_INET6, &route->addr.dst, theirs, sizeof(theirs));
	vb_explain_limit(
		"receiver",
		"QP 0x%06x: a packet from %s to %s is for it, and it connects %s to %s (ah_attr.grh: dgid and sgid_index of "
		"both sides): such are dropped",
		qp->qpn, from, to, ours, theirs);
}
