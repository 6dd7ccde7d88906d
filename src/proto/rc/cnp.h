/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Congestion notification (IB vol. 1 annex A17.9.3): a receiver whose packets come with the IP header's
 * "congestion experienced" mark tells their sender by a packet of its own, which is neither numbered nor
 * answered. How often, is the receiver's choice: here once per connection and VB_CNP_PAUSE_NS at most, as
 * senders react at most once per round trip.
 *
 * Pure; the caller owns the struct, zeroed at first, and locks it.
 */
#ifndef VB_PROTO_CNP_H
#define VB_PROTO_CNP_H

#include "proto/rc/request.h"

#define VB_CNP_PAUSE_NS UINT64_C(50000)

struct vb_cnp {
	uint64_t quiet_until;
};

/* A marked packet has arrived: is its sender to be told? If so this was the last time for a while. */
bool vb_cnp_is_due(struct vb_cnp *cnp, uint64_t now);

/* The packet, to the QP that to->qpn names; service is not looked at. All of it is in the header. */
void vb_cnp_build(const struct vb_packet_to *to, struct vb_packet_out *out);

#endif
