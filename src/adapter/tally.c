/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/tally.h"

#include <errno.h>

#include "adapter/arena.h"
#include "base/log.h"

static struct vb_tally **slot_of(struct vb_qp *qp, unsigned op)
{
	switch (op) {
	case IBV_QP_ATTACH_COMP_CNTR_OP_SEND:
		return &qp->tallies[0];
	case IBV_QP_ATTACH_COMP_CNTR_OP_RECV:
		return &qp->tallies[1];
	case IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ:
		return &qp->tallies[2];
	case IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE:
		return &qp->tallies[3];
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

void vb_tally_add(struct vb_qp *qp, unsigned wc_opcode, enum ibv_wc_status status, uint64_t bytes)
{
	struct vb_tally **slot = slot_of(qp, op_of(wc_opcode));
	if (!slot || !*slot)
		return;
	if (status != IBV_WC_SUCCESS)
		atomic_fetch_add_explicit(&(*slot)->failed, 1, memory_order_release);
	else
		atomic_fetch_add_explicit(&(*slot)->done, (*slot)->in_bytes ? bytes : 1, memory_order_release);
}

static int check(struct vb_qp *qp, unsigned ops)
{
	static const char call[] = "ibv_qp_attach_comp_cntr";
	uint32_t state = atomic_load(&qp->state);
	if (state != IBV_QPS_RESET && state != IBV_QPS_INIT) {
		vb_explain(call, "the queue pair is beyond INIT: it may have completed work already");
		return -EINVAL;
	}
	for (unsigned op = 1; op <= VB_TALLY_OPS; op <<= 1) {
		if ((ops & op) && slot_of(qp, op) && *slot_of(qp, op)) {
			vb_explain(call, "op_mask 0x%x: the queue pair counts operation 0x%x already", ops, op);
			return -EBUSY;
		}
	}
	return 0;
}

static void start_counting_sends(struct vb_qp *qp)
{
	vb_lock(&qp->sq.lock);
	qp->watched |= VB_WATCH_COUNT;
	vb_unlock(&qp->sq.lock);
}

int vb_qp_attach_tally(struct vb_qp *qp, struct vb_tally *tally, unsigned ops)
{
	if (ops & ~(unsigned)VB_TALLY_OPS)
		return -EOPNOTSUPP;
	pthread_mutex_lock(&qp->ctl);
	int err = ops ? check(qp, ops) : -EINVAL;
	for (unsigned op = 1; !err && op <= VB_TALLY_OPS; op <<= 1)
		if (ops & op) {
			*slot_of(qp, op) = tally;
			atomic_fetch_add(&tally->qps, 1);
		}
	if (!err && (ops & IBV_QP_ATTACH_COMP_CNTR_OP_RECV))
		qp->counts_receives = true;
	if (!err && (ops & ~(unsigned)IBV_QP_ATTACH_COMP_CNTR_OP_RECV))
		start_counting_sends(qp);
	if (!err)
		vb_arena_next_generation(); /* no longer is a completion all that becomes of a message */
	pthread_mutex_unlock(&qp->ctl);
	return err;
}

void vb_qp_detach_tallies(struct vb_qp *qp)
{
	for (unsigned i = 0; i < VB_ARRAY_LEN(qp->tallies); i++)
		if (qp->tallies[i])
			atomic_fetch_sub(&qp->tallies[i]->qps, 1);
}
