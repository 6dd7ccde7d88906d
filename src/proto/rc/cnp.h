/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Congestion notification (IB vol. 1 annex A17.9.3): a receiver of packets with the IP header's "congestion
 * experienced" mark sends a CNP to their sender, which has no PSN and gets no answer. The receiver chooses
 * how often: here at most once per VB_CNP_PAUSE_NS and connection, since senders react at most once per
 * round trip.
 *
 * Pure; the caller owns the struct, zeroed at first, and locks it.
 */
#ifndef VB_PROTO_CNP_H
#define VB_PROTO_CNP_H

#include "proto/rc/request.h"

#define VB_CNP_PAUSE_NS UINT64_C(50000)

struct vb_cnp {
	uint64_t next_at;
};

/* A marked packet has arrived. Is a CNP due? If so, the next is due after a pause. */
bool vb_cnp_is_due(struct vb_cnp *cnp, uint64_t now);

/* The packet, which has no payload, to the QP to->qpn. Ignores to->service. */
void vb_cnp_build(const struct vb_packet_to *to, struct vb_packet_out *out);

#endif
