/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast: which UD queue pairs of this process are attached to which groups (MGIDs, which on RoCE v2 are
 * IP multicast addresses, IPv4 ones v4-mapped). An attachment is also an IP membership on the device's
 * interface. A group's packet goes to all attached QPs. The one that sent it drops it if it has no receive,
 * or asked for that (IBV_QP_CREATE_BLOCK_SELF_MCAST_LB).
 */
#ifndef VB_ROCE_MCAST_H
#define VB_ROCE_MCAST_H

#include "adapter/object.h"
#include "wire/packet.h"

/*
 * -EINVAL (no UD queue pair, no multicast address), -ENOMEM (too many), or what IP says. Attaching again has
 * no effect.
 */
int vb_mcast_attach(struct vb_qp *qp, const struct in6_addr *mgid);
/* -EINVAL: it is not attached. */
int vb_mcast_detach(struct vb_qp *qp, const struct in6_addr *mgid);

/*
 * A packet for the group that it was sent to, to those attached on the interface where it came in (0: on
 * any). No lock held.
 */
void vb_mcast_deliver(const struct vb_inbox_msg *msg, unsigned ifindex, const struct vb_packet *packet);

#endif
