/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/queues/request.h"

static const struct {
	uint8_t kind, tail;
} requests[] = {
	[IBV_WR_RDMA_WRITE]           = { VB_REQ_WRITE, VB_TAIL_NONE },
	[IBV_WR_RDMA_WRITE_WITH_IMM]  = { VB_REQ_WRITE, VB_TAIL_IMM },
	[IBV_WR_SEND]                 = { VB_REQ_SEND, VB_TAIL_NONE },
	[IBV_WR_SEND_WITH_IMM]        = { VB_REQ_SEND, VB_TAIL_IMM },
	[IBV_WR_RDMA_READ]            = { VB_REQ_READ, VB_TAIL_NONE },
	[IBV_WR_ATOMIC_CMP_AND_SWP]   = { VB_REQ_COMPARE_SWAP, VB_TAIL_NONE },
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = { VB_REQ_FETCH_ADD, VB_TAIL_NONE },
	[IBV_WR_SEND_WITH_INV]        = { VB_REQ_SEND, VB_TAIL_INVALIDATE },
	[IBV_WR_ATOMIC_WRITE]         = { VB_REQ_ATOMIC_WRITE, VB_TAIL_NONE },
	[IBV_WR_FLUSH]                = { VB_REQ_FLUSH, VB_TAIL_NONE },
};

void vb_request_of_sqe(const struct vb_sqe *sqe, uint32_t srqn, struct vb_request *r)
{
	bool swaps = sqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || sqe->opcode == IBV_WR_FLUSH;
	*r = (struct vb_request){
		.remote_addr = sqe->remote_addr,
		.compare = sqe->compare_add,
		.swap_or_add = swaps ? sqe->swap : sqe->compare_add,
		.rkey = sqe->rkey,
		.srqn = srqn,
		.length = sqe->length,
		.tail_value = sqe->imm,
		.kind = requests[sqe->opcode].kind,
		.tail = requests[sqe->opcode].tail,
		.solicited = sqe->flags & IBV_SEND_SOLICITED,
		.fence = sqe->flags & IBV_SEND_FENCE,
	};
}
