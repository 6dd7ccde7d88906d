/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The RoCEv2 port: packets with their ICRC between the engines and UDP. Sending collects packets of one flow
 * in a burst, which goes out in one system call. Receiving checks the ICRC, passes on what belongs to another
 * process, and hands the rest to the QP that it is for (roce/deliver.h), to the CM (roce/gsi.h), or drops it.
 */
#ifndef VB_ROCE_PORT_H
#define VB_ROCE_PORT_H

#include "host/udp/udp.h"
#include "wire/icrc.h"

enum {
	VB_MULTICAST_QPN = 0xffffff,
	VB_ECN_MASK = 3, VB_ECN_CONGESTED = 3, /* in a traffic class (RFC 3168) */
};

/* Where a flow's packets go, worked out once. */
struct vb_roce_route {
	struct vb_inbox_addr addr;   /* udp_sport is the source port that its socket has */
	unsigned ifindex;
	uint32_t qpn;                /* whose it is; 0: several queue pairs' */
	bool is_returnable;          /* what nobody takes is told of (vb_udp_send_returnable) */
	struct vb_icrc_route icrc;
};

/* The source port that a flow label stands for; a flow without label gets one from its QP numbers. */
uint16_t vb_roce_source_port(uint32_t flow_label, uint32_t source_qpn, uint32_t destination_qpn);
/* addr.udp_sport: the port wanted. */
void vb_roce_route_init(struct vb_roce_route *route, const struct vb_inbox_addr *addr, unsigned ifindex);
/* The same way for packets that are told of if they come back. False: cannot be told here. */
bool vb_roce_route_returnable(const struct vb_roce_route *route, struct vb_roce_route *returnable);

/* Opens the port, once; what has started receives from then on. */
VB_EXPORT int vb_roce_open(void);
/* As vb_udp_send. */
int vb_roce_transmit(const struct vb_roce_route *route, const void *bytes, size_t len, size_t segment);
/* The same, past all faults on purpose. */
int vb_roce_transmit_now(const struct vb_roce_route *route, const void *bytes, size_t len, size_t segment);
/* QPs come (1) and go (-1) that polling threads look for packets for. */
void vb_roce_use(int by);

/* ---- sending ---- */

struct vb_burst;

/*
 * A burst for this thread alone until it is given back. Waits for one if all are in use: hold it for short,
 * and take no lock but vb_memory_hold's meanwhile.
 */
struct vb_burst *vb_burst_take(void);
/* Sends what is in it. Packets that cannot be sent are lost, as on a wire. */
void vb_burst_flush(struct vb_burst *burst);
/* Flushes it first. */
void vb_burst_give(struct vb_burst *burst);

/*
 * Begins a packet: copies its headers, returns where its payload_bytes go, which the caller fills.
 * vb_burst_commit then adds padding and ICRC; a packet that is not committed is forgotten. Of the packets up
 * to a flush, the first one's route is copied, and holds for those with the same pointer. A packet has at
 * most 4096 bytes of payload.
 */
uint8_t *vb_burst_begin(struct vb_burst *burst, const struct vb_roce_route *route, const void *header,
			size_t header_bytes, size_t payload_bytes);
/* False: there is no room for another packet like the first; to begin one would flush. */
bool vb_burst_commit(struct vb_burst *burst);

#endif
