/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The RoCEv2 port: opening it, who uses it, and packets out to UDP. What comes in is receive.c's.
 */
#ifndef VB_ROCE_PORT_H
#define VB_ROCE_PORT_H

#include "host/udp/udp.h"
#include "wire/icrc.h"

enum {
	VB_MULTICAST_QPN = 0xffffff,
	VB_ROCE_PACKET_BYTES = 4096 + 128, /* of a packet, at most */
};

/* Opens the port, once; what has started receives from then on. */
VB_EXPORT int vb_roce_open(void);
extern bool vb_roce_ignores_icrc; /* VERBATIM_ICRC=ignore: it listens to peers that leave the ICRC out */

/* QPs come (1) and go (-1) that polling threads look for packets for. */
extern atomic_int vb_roce_users;
static inline void vb_roce_use(int by) { atomic_fetch_add(&vb_roce_users, by); }
static inline bool vb_roce_is_used(void)
{
	return atomic_load_explicit(&vb_roce_users, memory_order_relaxed);
}

/* Where a flow's packets go, worked out once. */
struct vb_roce_route {
	struct vb_inbox_addr addr;   /* udp_sport is the source port that its socket has */
	unsigned ifindex;
	uint32_t qpn;                /* whose it is; 0: several queue pairs' */
	struct vb_icrc_route icrc;
};

/* The source port that a flow label stands for; a flow without label gets one from its QP numbers. */
uint16_t vb_roce_source_port(uint32_t flow_label, uint32_t source_qpn, uint32_t destination_qpn);
/* addr.udp_sport: the port wanted. */
void vb_roce_route_init(struct vb_roce_route *route, const struct vb_inbox_addr *addr, unsigned ifindex);
/* What the ICRC covers of an address. */
void vb_roce_icrc_route(struct vb_icrc_route *icrc, const struct vb_inbox_addr *addr);

/* As vb_udp_send, past all faults on purpose (packet_faults.h). */
int vb_roce_transmit_now(const struct vb_roce_route *route, const void *bytes, size_t len, size_t segment);
/* For a capture: a packet that a fault keeps from leaving. */
void vb_roce_note_loss(const struct vb_roce_route *route, const void *bytes, size_t len);

#endif
