/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CM messages as packets between QPs 1 (proto/cm/gsi.h): by inboxes and ports within this host, over the
 * network to others.
 */
#ifndef VB_RDMACM_PACKET_H
#define VB_RDMACM_PACKET_H

#include "rdmacm/cma.h"

/* Handler of inboxes (QP 1) and ports: hands a well-formed message to the agent. */
void vb_cma_packet_arrived(void *arg, const struct vb_inbox_msg *msg);

/*
 * 0; -EAGAIN: try again; -ECONNREFUSED: nobody is there, which only a local route tells; others: not
 * deliverable.
 */
int vb_cma_packet_send(const struct vb_cm_route *to, const struct vb_mad *mad);

/* Within this host? Then it has a slot to lead to, or 0: it leads to a port. */
bool vb_cma_route_is_local(const struct vb_cm_route *route);
struct in6_addr vb_cma_route_peer(const struct vb_cm_route *route);
struct in6_addr vb_cma_route_own(const struct vb_cm_route *route);
uint32_t vb_cma_route_slot(const struct vb_cm_route *route);

#endif
