/* SPDX-License-Identifier: BSD-2-Clause */
/* CM messages as the packets that inboxes and ports carry: BTH, DETH, MAD, between the QPs 1 of two processes. */
#ifndef VB_RDMACM_PACKET_H
#define VB_RDMACM_PACKET_H

#include "rdmacm/cma.h"

/* Handler of inboxes (QP 1) and ports: hands a well-formed message to the agent. */
void vb_cma_packet_arrived(void *arg, const struct vb_inbox_msg *msg);

/* 0; -ECONNREFUSED: nobody is there; -EAGAIN: try again; others: not deliverable. */
int vb_cma_packet_send(const struct vb_cm_route *to, const struct vb_mad *mad);

/* The slot that a route leads to; 0: it leads to a port. */
uint32_t vb_cma_route_slot(const struct vb_cm_route *route);

#endif
