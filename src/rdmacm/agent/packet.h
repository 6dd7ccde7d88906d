/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CM messages as packets between QPs 1 (proto/cm/gsi.h): by inboxes and ports within this host, over the
 * network to others.
 */
#ifndef VB_RDMACM_PACKET_H
#define VB_RDMACM_PACKET_H

#include "rdmacm/cma.h"

/*
 * Is what an inbox or a port brought a CM message that its sender may send? Parses it. scope: the interface
 * of the link-local address that it came to; 0: unknown.
 */
bool vb_cma_packet_parse(const struct vb_inbox_msg *msg, uint32_t scope, struct vb_cm_rx *rx);

/*
 * 0; -EAGAIN: try again; -ECONNREFUSED: nobody is there, which only a local route tells; others: not
 * deliverable.
 */
int vb_cma_packet_send(const struct vb_cm_send *send);

/* The route of the first MAD to whoever listens at id's destination. */
struct vb_cm_route vb_cma_route_to_port(const struct vb_cma_id *id);
/* Within this host? Then it has a slot to lead to, or 0: it leads to a port. */
bool vb_cma_route_is_local(const struct vb_cm_route *route);
struct in6_addr vb_cma_route_peer(const struct vb_cm_route *route);
struct in6_addr vb_cma_route_own(const struct vb_cm_route *route);
uint32_t vb_cma_route_slot(const struct vb_cm_route *route);

#endif
