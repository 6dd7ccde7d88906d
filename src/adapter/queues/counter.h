/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counts of completed work (ibv_comp_cntr): requests or bytes that went well, and requests that failed.
 * Several queue pairs may add to one. A queue pair that counts nothing pays for none of it: what it does at a
 * completion anyway is to look at vb_qp.after_send.
 */
#ifndef VB_ADAPTER_COUNTER_H
#define VB_ADAPTER_COUNTER_H

#include "adapter/object.h"

struct vb_counter {
	_Atomic(uint64_t) done, failed;
	bool in_bytes;
	atomic_uint qps; /* that add to it */
};

/* By enum ibv_wc_opcode and status; bytes of this side's own request. sq.lock or resp_lock is held. */
void vb_counter_add(struct vb_qp *qp, unsigned wc_opcode, enum ibv_wc_status status, uint64_t bytes);

/*
 * ops: enum ibv_qp_attach_comp_cntr_op. -EINVAL: beyond INIT; -EBUSY: one of them is counted; -EOPNOTSUPP:
 * cannot be counted.
 */
int vb_qp_attach_counter(struct vb_qp *qp, struct vb_counter *counter, unsigned ops);
/* For a queue pair that is being destroyed. */
void vb_qp_detach_counters(struct vb_qp *qp);

enum {
	VB_COUNTER_OPS = IBV_QP_ATTACH_COMP_CNTR_OP_SEND | IBV_QP_ATTACH_COMP_CNTR_OP_RECV |
			 IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ | IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE
};

#endif
