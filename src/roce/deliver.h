/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whose packet it is: from a packet that came over UDP or through the inbox to the queue pair that it names.
 * What a QP does with it is its path's (arrived in adapter/progress/path.h).
 */
#ifndef VB_ROCE_DELIVER_H
#define VB_ROCE_DELIVER_H

#include "adapter/object.h"

enum { VB_ROCE_BATCH_QPS = 16 };

/* Queue pairs that have something to send, each with a reference. Starts zeroed; one thread's. */
struct vb_roce_batch {
	unsigned count;
	struct vb_qp *qps[VB_ROCE_BATCH_QPS];
};

/*
 * A packet without ICRC: hostile input; may meet a fault on purpose. ifindex: where it came in; 0: unknown.
 * Any thread; no lock held.
 */
void vb_roce_deliver(const struct vb_inbox_msg *msg, unsigned ifindex, struct vb_roce_batch *batch);
/* Lets the QPs of the batch answer. */
void vb_roce_batch_end(struct vb_roce_batch *batch);

#endif
