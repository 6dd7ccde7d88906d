/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The transport services over the wire, and what they have in common. Each is a path of the adapter
 * (adapter/progress/path.h) whose QPs get packets from deliver.c. Of a connected QP, the requester engine and
 * what it sends is under sq.lock, the responder engine under resp_lock. Callers of these functions hold a
 * reference and no lock.
 */
#ifndef VB_ROCE_SERVICE_H
#define VB_ROCE_SERVICE_H

#include "adapter/progress/path.h"
#include "adapter/queues/queue.h"
#include "roce/port.h"
#include "wire/packet.h"

struct vb_roce_service {
	struct vb_path_ops path;
	/* A packet for this QP. True: the QP has something to send, which `answer` is to be called for. */
	bool (*arrived)(struct vb_qp *qp, const struct vb_inbox_msg *msg, const struct vb_packet *packet);
	void (*answer)(struct vb_qp *qp); /* NULL where arrived never says so */
};

extern struct vb_roce_service vb_rc_service, vb_uc_service, vb_ud_service;

/* Sends the acknowledgement that was put off, if it still has to be (roce/delayed_ack.h). No lock held. */
void vb_rc_acknowledge(struct vb_qp *qp);

/* ---- flow.c: where a connected QP's packets go ---- */

/*
 * Makes what its packets are sent by. -EINVAL with a sentence: the path cannot carry the QP's path_mtu, or
 * has no source address; or what the sockets of the wire lack.
 */
int vb_flow_open(const struct vb_qp *qp);
void vb_flow_route(const struct vb_qp *qp, struct vb_roce_route *route);
/* Is it from the QP's peer, to the QP's address? */
bool vb_flow_matches(const struct vb_roce_route *route, const struct vb_inbox_addr *addr);
/* The way out for addresses that do not say it themselves: the device's interface; 0 for others. */
unsigned vb_flow_ifindex(const struct vb_qp *qp, const struct in6_addr *destination);

#endif
