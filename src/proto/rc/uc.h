/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The unreliable connected service (IB vol. 1, 9.8.2). A sender has no state but its next PSN:
 * vb_request_packet for each index of a request. A receiver executes whole messages and drops the rest
 * without an answer: after a gap in the PSNs, or a packet that cannot be executed, it drops the message and
 * waits for the first packet of the next. A receive that the lost message had taken gets the next SEND
 * (9.9.3, class D), unless the caller ends it: a shared receive queue's is others' to use (class E).
 *
 * Pure; the caller owns the struct, and one of the caller's locks covers it.
 */
#ifndef VB_PROTO_UC_H
#define VB_PROTO_UC_H

#include "proto/rc/message.h"

struct vb_uc_resp_config {
	uint32_t mtu, first_psn;
	uint16_t pkey;
	const struct vb_responder_ops *ops;	/* atomic and invalidate are not called */
	void *ctx;
};

struct vb_uc_resp {
	struct vb_uc_resp_config config;
	struct vb_message message;
	uint32_t expected;		/* PSN, 24 bits */
	uint64_t dropped;		/* packets, for an observer */
};

void vb_uc_resp_init(struct vb_uc_resp *resp, const struct vb_uc_resp_config *config);
/* 0, or why the packet was not executed: as vb_message_execute. */
int vb_uc_resp_receive(struct vb_uc_resp *resp, const struct vb_packet *packet);

#endif
