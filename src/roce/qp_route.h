/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the packets of a connected QP go. */
#ifndef VB_ROCE_QP_ROUTE_H
#define VB_ROCE_QP_ROUTE_H

#include "adapter/object.h"
#include "roce/port.h"

/*
 * Opens the sockets that its packets need. -EINVAL, explained: the path cannot carry the QP's path_mtu. Else
 * why there are no sockets.
 */
int vb_qp_route_open(const struct vb_qp *qp);
void vb_qp_route(const struct vb_qp *qp, struct vb_roce_route *route);
/* Is it from the QP's peer, to the QP's address? */
bool vb_qp_route_matches(const struct vb_roce_route *route, const struct vb_inbox_addr *addr);
/* Counts a packet that is not, and explains the first. */
void vb_qp_route_drop_stranger(struct vb_qp *qp, const struct vb_roce_route *route,
			       const struct vb_inbox_addr *addr) __attribute__((cold));
/* The way out for addresses that do not say it themselves: the device's interface; 0 for others. */
unsigned vb_qp_route_ifindex(const struct vb_qp *qp, const struct in6_addr *destination);

#endif
