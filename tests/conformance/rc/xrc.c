/* SPDX-License-Identifier: BSD-2-Clause */
#include "xrc.h"

#include <arpa/inet.h>
#include <errno.h>

struct ibv_xrcd *open_domain(struct end *e, int fd, int oflags)
{
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
					   .fd = fd,
					   .oflags = oflags };
	return ibv_open_xrcd(e->ctx, &attr);
}

void make_queue(struct end *e, struct ibv_xrcd *xrcd, struct queue *q)
{
	q->pd = ibv_alloc_pd(e->ctx);
	q->cq = ibv_create_cq(e->ctx, 64, NULL, NULL, 0);
	q->memory = rc_map(1 << 16);
	q->mr = ibv_reg_mr(q->pd, q->memory, 1 << 16,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC);
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = RECEIVES, .max_sge = 2 },
		.srq_type = IBV_SRQT_XRC,
		.pd = q->pd,
		.xrcd = xrcd,
		.cq = q->cq,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
			     IBV_SRQ_INIT_ATTR_CQ,
	};
	CHECK(q->mr && q->cq);
	CHECK(q->srq = ibv_create_srq_ex(e->ctx, &attr));
	CHECK_EQ(ibv_get_srq_num(q->srq, &q->number), 0);
}

void free_queue(struct queue *q)
{
	if (q->srq)
		CHECK_EQ(ibv_destroy_srq(q->srq), 0);
	CHECK_EQ(ibv_dereg_mr(q->mr), 0);
	CHECK_EQ(ibv_destroy_cq(q->cq), 0);
	CHECK_EQ(ibv_dealloc_pd(q->pd), 0);
}

int post_srq(struct queue *q, uint64_t id, uint64_t at, uint32_t n)
{
	struct ibv_sge sge = { (uintptr_t)q->memory + at, n, q->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };
	return ibv_post_srq_recv(q->srq, &wr, &bad);
}

struct ibv_qp *make_xrc_qp(struct end *e, struct xrc *x)
{
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_XRC_RECV,
					    .comp_mask = IBV_QP_INIT_ATTR_XRCD,
					    .xrcd = x->xrcd };
	if (!e->passive)
		attr = (struct ibv_qp_init_attr_ex){
			.qp_type = IBV_QPT_XRC_SEND,
			.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
			.pd = e->pd,
			.send_ops_flags = IBV_QP_EX_WITH_SEND,
			.send_cq = e->scq,
			.cap = { .max_send_wr = 64, .max_send_sge = 4, .max_inline_data = 64 }
		};
	return ibv_create_qp_ex(e->ctx, &attr);
}

void connect_xrc_qp(struct end *e, struct xrc *x)
{
	x->peer = rc_swap_cards(e, x->qp);
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = x->peer.qpn,
		.rq_psn = x->peer.psn,
		.max_dest_rd_atomic = 8, .min_rnr_timer = 12, .timeout = e->p.timeout,
		.retry_cnt = e->p.retry_cnt,
		.rnr_retry = e->p.rnr_retry, .max_rd_atomic = 8,
		.sq_psn = rc_psn(x->qp, e), .ah_attr = { .is_global = 1, .port_num = 1,
		.grh = { .dgid = x->peer.gid, .hop_limit = 64 } },
	};
	int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	int responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	CHECK_EQ(rc_to_init(e, x->qp), 0);
	/* Each half needs its own; the other half's do not count, so that programs may set all of them. */
	if (e->passive)
		CHECK_EQ(ibv_modify_qp(x->qp, &a, to_rtr), EINVAL);
	CHECK_EQ(ibv_modify_qp(x->qp, &a, to_rtr | responder), 0);
	a.qp_state = IBV_QPS_RTS;
	int to_rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN;
	if (!e->passive)
		CHECK_EQ(ibv_modify_qp(x->qp, &a, to_rts), EINVAL);
	CHECK_EQ(ibv_modify_qp(x->qp, &a,
			       to_rts | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
		 0);
	meet(e);
}

int post_xrc(struct end *e, struct xrc *x, uint64_t id, enum ibv_wr_opcode opcode, uint64_t at, uint32_t n,
	     uint32_t srqn, uint64_t remote, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)e->buf + at, n, e->mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = id,
					.opcode = opcode,
					.send_flags = IBV_SEND_SIGNALED,
					.sg_list = &sge,
					.num_sge = 1,
					.imm_data = htonl(99),
					.qp_type.xrc.remote_srqn = srqn };
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 5;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	return ibv_post_send(x->qp, &wr, &bad);
}

void tell_queue(struct end *to, const struct queue *q)
{
	tell(to, q->number);
	tell(to, q->mr->rkey);
	tell(to, (uintptr_t)q->memory);
}
