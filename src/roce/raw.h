/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Raw packet queue pairs: Ethernet frames of the device's interface. Sending is a packet socket of the queue
 * pair's own; what comes in is heard by one socket per device while there are rules, and goes where the rules
 * of this process say:
 *
 *	each sniffer's queue pair gets a copy;
 *	of the normal rules that match, those of the best priority; if they are all "don't trap", also the next ones;
 *	if none matched, those for the rest (all of it, or multicast).
 *
 * A queue pair gets a frame once, and as it is on a wire: what the kernel has joined is cut up again. The
 * host's own network stack sees all frames as well. A queue pair with an indirection table hands frames on to
 * work queues by a Toeplitz hash. Sending is in raw_send.c.
 */
#ifndef VB_ROCE_RAW_H
#define VB_ROCE_RAW_H

#include "adapter/object.h"

/* A set of counters that rules add to. */
struct vb_flow_counters {
	_Atomic(uint64_t) packets, bytes;
	atomic_uint refs; /* rules */
};

enum { VB_FLOW_MAX_SPECS = 8 };

struct vb_flow {
	struct vb_list node;
	struct vb_qp *qp;
	enum ibv_flow_attr_type type;
	unsigned priority;
	bool lets_others, drops;
	uint32_t tag; /* that completions tell; 0: none */
	unsigned nspecs;
	struct ibv_flow_spec specs[VB_FLOW_MAX_SPECS]; /* those that match something */
	struct vb_flow_counters *counters;             /* or NULL */
};

/* In force from its return on. -EPERM: the process may not hear frames. */
int vb_flow_add(struct vb_flow *flow);
/* No frame comes by it any more from its return on. */
void vb_flow_remove(struct vb_flow *flow);

/* How a queue pair spreads frames over work queues, which are raw packet queue pairs that only receive. */
struct vb_rss {
	unsigned count; /* a power of two */
	struct vb_qp **queues;
	uint64_t fields; /* enum ibv_rx_hash_fields */
	uint8_t key[40];
};

#endif
