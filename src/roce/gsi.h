/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * QP 1, the general services interface: CM MADs between hosts. A process that gets one from the network need not be the one that it
 * is for: requests (REQ, SIDR_REQ) go to the port that is bound for their service, all others to the inbox of the slot that is in
 * the upper bits of the communication id they are addressed to.
 */
#ifndef VB_ROCE_GSI_H
#define VB_ROCE_GSI_H

#include "roce/port.h"

/*
 * Sends a packet (BTH, DETH, MAD; no ICRC) to another host. addr.udp_sport is not looked at; ifindex as in vb_udp_send. Errors are
 * those of vb_udp_send; a packet that was sent may still be lost.
 */
VB_EXPORT int vb_gsi_send(const struct vb_inbox_addr *addr, unsigned ifindex, const void *packet, size_t bytes);

/* A packet for QP 1 that came in over UDP, ICRC checked and taken off. Delivers it to this process's CM or passes it on. */
void vb_gsi_receive(const struct vb_inbox_msg *msg, unsigned ifindex);

#endif
