/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The RoCEv2 port: packets with their ICRC between the engines and UDP. Sending collects packets of one flow in a burst, which goes
 * out in one system call. Receiving checks the ICRC, passes on what belongs to another process, and hands the rest to the QP that
 * it is for (roce/deliver.h), to the CM (roce/gsi.h), or drops it.
 */
#ifndef VB_ROCE_PORT_H
#define VB_ROCE_PORT_H

#include "host/udp.h"
#include "wire/icrc.h"

/* Where a flow's packets go, worked out once. */
struct vb_roce_route {
	struct vb_inbox_addr addr;   /* udp_sport is the source port that its socket has */
	unsigned ifindex;
	struct vb_icrc_route icrc;
};

/* The source port that a flow label stands for; a flow without label gets one from its QP numbers. */
uint16_t vb_roce_source_port(uint32_t flow_label, uint32_t source_qpn, uint32_t destination_qpn);
/* addr.udp_sport: the port wanted. */
void vb_roce_route_init(struct vb_roce_route *route, const struct vb_inbox_addr *addr, unsigned ifindex);

/* Opens the port, once; what has started receives from then on. */
VB_EXPORT int vb_roce_open(void);

/* ---- sending ---- */

struct vb_burst;

/* A burst for this thread alone until it is flushed and given back. Waits for one if all are in use: hold it for short. */
struct vb_burst *vb_burst_take(void);
/* Sends what is in it. Packets that cannot be sent are lost, as on a wire. */
void vb_burst_give(struct vb_burst *burst);
void vb_burst_flush(struct vb_burst *burst);

/*
 * Begins a packet: copies its headers, returns where its payload goes (payload_bytes, the caller fills it). Then either
 * vb_burst_commit, which adds padding (0 to 3 zeros) and the ICRC, or vb_burst_cancel. route must stay until the flush.
 */
uint8_t *vb_burst_begin(struct vb_burst *burst, const struct vb_roce_route *route, const void *header, size_t header_bytes,
			size_t payload_bytes);
void vb_burst_commit(struct vb_burst *burst, unsigned pad);
void vb_burst_cancel(struct vb_burst *burst);

#endif
