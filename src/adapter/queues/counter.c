/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/queues/counter.h"

#include <errno.h>

#include "adapter/memory/arena.h"
#include "base/log.h"

static struct vb_counter **place_of(struct vb_qp *qp, unsigned op)
{
	switch (op) {
	case IBV_QP_ATTACH_COMP_CNTR_OP_SEND:
		return &qp->counters[0];
	case IBV_QP_ATTACH_COMP_CNTR_OP_RECV:
		return &qp->counters[1];
	case IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ:
		return &qp->counters[2];
	case IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE:
		return &qp->counters[3];
	}
	return NULL;
}

/* Atomics and what a queue pair does with windows are of no kind that is counted: 0. */
static unsigned op_of(unsigned wc_opcode)
{
	if (wc_opcode & IBV_WC_RECV)
		return IBV_QP_ATTACH_COMP_CNTR_OP_RECV;
	switch (wc_opcode) {
	case IBV_WC_SEND:
	case IBV_WC_TSO:
		return IBV_QP_ATTACH_COMP_CNTR_OP_SEND;
	case IBV_WC_RDMA_READ:
		return IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ;
	case IBV_WC_RDMA_WRITE:
		return IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE;
	}
	return 0;
}

void vb_counter_add(struct vb_qp *qp, unsigned wc_opcode, enum ibv_wc_status status, uint64_t bytes)
{
	struct vb_counter **place = place_of(qp, op_of(wc_opcode));
	if (!place || !*place)
		return;
	if (status != IBV_WC_SUCCESS)
		atomic_fetch_add_explicit(&(*place)->failed, 1, memory_order_release);
	else
		atomic_fetch_add_explicit(&(*place)->done, (*place)->in_bytes ? bytes : 1,
					  memory_order_release);
}

static int check(struct vb_qp *qp, unsigned ops)
{
	static const char call[] = "ibv_qp_attach_comp_cntr";
	uint32_t state = atomic_load(&qp->state);
	if (state != IBV_QPS_RESET && state != IBV_QPS_INIT) {
		vb_explain(call, "the queue pair is beyond INIT: it may have completed work already");
		return -EINVAL;
	}
	for (unsigned op = 1; op <= VB_COUNTER_OPS; op <<= 1) {
		if ((ops & op) && place_of(qp, op) && *place_of(qp, op)) {
			vb_explain(call, "op_mask 0x%x: the queue pair counts operation 0x%x already", ops,
				   op);
			return -EBUSY;
		}
	}
	return 0;
}

static void start_counting_sends(struct vb_qp *qp)
{
	vb_lock(&qp->sq.lock);
	qp->after_send |= VB_AFTER_SEND_COUNT;
	vb_unlock(&qp->sq.lock);
}

int vb_qp_attach_counter(struct vb_qp *qp, struct vb_counter *counter, unsigned ops)
{
	if (ops & ~(unsigned)VB_COUNTER_OPS)
		return -EOPNOTSUPP;
	pthread_mutex_lock(&qp->ctl);
	int err = ops ? check(qp, ops) : -EINVAL;
	for (unsigned op = 1; !err && op <= VB_COUNTER_OPS; op <<= 1)
		if (ops & op) {
			*place_of(qp, op) = counter;
			atomic_fetch_add(&counter->qps, 1);
		}
	if (!err && (ops & IBV_QP_ATTACH_COMP_CNTR_OP_RECV))
		qp->counts_receives = true;
	if (!err && (ops & ~(unsigned)IBV_QP_ATTACH_COMP_CNTR_OP_RECV))
		start_counting_sends(qp);
	if (!err)
		vb_arena_next_generation(); /* a message must be counted, too: ends the fast path */
	pthread_mutex_unlock(&qp->ctl);
	return err;
}

void vb_qp_detach_counters(struct vb_qp *qp)
{
	for (unsigned i = 0; i < VB_ARRAY_LEN(qp->counters); i++)
		if (qp->counters[i])
			atomic_fetch_sub(&qp->counters[i]->qps, 1);
}
