/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * QP 1, the general services interface: CM messages between hosts. The process that receives one need not be
 * the one that it is for. Requests (REQ, SIDR_REQ) go on to the host port that is bound for their service,
 * all others to the slot in the communication id that they are addressed to (proto/cm/gsi.h). They keep the
 * network's addressing: its source address says whether the sender is of this host.
 *
 * A message without a receiver is answered as a listening host would, also by a process that does not use
 * rdma_cm. A message whose receiver has no room waits here for a while, because its repetition comes a second
 * later. So does a request without a listener, because servers close a listener and open it again while their
 * clients reconnect. It waits longer while its port is bound, because servers tell their clients a port
 * before they listen to it (qperf does).
 */
#ifndef VB_UD_GSI_H
#define VB_UD_GSI_H

#include "proto/cm/gsi.h"
#include "host/host.h"

/*
 * Sends a message to another host; opens the RoCE port if need be. addr.udp_sport is not looked at; ifindex
 * as in vb_udp_send. Errors are those of vb_udp_send; what was sent may still be lost. Any thread, with any
 * lock.
 *
 * A REQ that is repeated is sent from another source port as well, a new one each time. The host's kernel
 * chooses by the ports which of its processes gets it, and one of them may be stopped.
 */
VB_EXPORT int vb_gsi_send(const struct vb_inbox_addr *addr, unsigned ifindex, const struct vb_mad *mad,
			  bool is_repeated);

/*
 * Handlers, in the progress thread, of ICMP errors that say that a host has no RoCE port: for a REQ, REP,
 * RTU, SIDR_REQ or DREQ, as quoted; and for a repeated packet to the queue pair with this number. Anybody can
 * make ICMP errors up. Both handlers or none.
 */
VB_EXPORT void vb_gsi_set_returned_handlers(void (*message)(const struct vb_cm_msg *msg,
							    const struct in6_addr *host),
					    void (*packet)(uint32_t qpn, const struct in6_addr *host));

/*
 * Sends to whoever of this host listens for a service: at its address, else at the wildcard. -ECONNREFUSED:
 * nobody has the port; -EPERM: its owner does not listen yet; else as vb_port_send.
 */
VB_EXPORT int vb_gsi_send_to_service(const struct vb_cm_service *service, const struct vb_inbox_addr *addr,
				     const struct vb_gsi_packet *packet);

/*
 * A message to this process's own host may be in this process's own socket, as all processes share the port.
 * Returns once it has gone on to its receiver, at the latest after 300 ms. For a process that ends next: what
 * is in its socket then is lost. Any thread, without locks.
 */
VB_EXPORT void vb_gsi_hand_on(void);

#endif
