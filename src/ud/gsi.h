/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * QP 1, the general services interface: CM messages between hosts. A process that gets one from the network
 * need not be the one that it is for: requests (REQ, SIDR_REQ) go to the port that is bound for their
 * service, all others to the slot that is in the communication id they are addressed to (proto/cm/gsi.h). The
 * network's addressing stays with them: who takes a message from an inbox tells by its source address whether
 * the sender is of this host.
 *
 * What nobody here is there for is answered as a listening host would, also by a process that knows nothing
 * of rdma_cm. A message whose receiver has no room waits here for a while, because its repetition comes a
 * second later; so does a request that finds nobody listening, because servers close a listener and open it
 * anew while their clients connect again.
 */
#ifndef VB_UD_GSI_H
#define VB_UD_GSI_H

#include "proto/cm/gsi.h"
#include "host/host.h"

/*
 * Sends a message to another host; opens the RoCE port if need be. addr.udp_sport is not looked at; ifindex
 * as in vb_udp_send. Errors are those of vb_udp_send; what was sent may still be lost. Any thread, with any
 * lock.
 */
VB_EXPORT int vb_gsi_send(const struct vb_inbox_addr *addr, unsigned ifindex, const struct vb_mad *mad);

/*
 * Who hears, in the progress thread, what came back because nobody takes packets at the host that it went to:
 * a REQ, REP, RTU, SIDR_REQ or DREQ, as quoted; a packet that a queue pair had sent once more, as it had no
 * answer, to the one with this number. It is what somebody on the network says. Both or none.
 */
VB_EXPORT void vb_gsi_set_returned_handlers(void (*message)(const struct vb_cm_msg *msg,
							    const struct in6_addr *host),
					    void (*packet)(uint32_t qpn, const struct in6_addr *host));

/*
 * Sends to whoever of this host listens for a service: at its address, else at the wildcard. -ECONNREFUSED:
 * nobody; else as vb_port_send.
 */
VB_EXPORT int vb_gsi_send_to_service(const struct vb_cm_service *service, const struct vb_inbox_addr *addr,
				     const struct vb_gsi_packet *packet);

/*
 * What this process said to its own host may have come to itself, by the port that all processes there share.
 * Returns once it has gone on to its receiver, at the latest after 300 ms. For those who may end next: what
 * is in their socket then is lost. Any thread, without locks.
 */
VB_EXPORT void vb_gsi_hand_on(void);

#endif
