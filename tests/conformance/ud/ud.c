/* SPDX-License-Identifier: BSD-2-Clause */
#include "ud.h"

#include <arpa/inet.h>

void ud_to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	CHECK_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
	CHECK_EQ(rc_to(qp, IBV_QPS_RTR), 0);
	a.qp_state = IBV_QPS_RTS;
	CHECK_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

static struct ibv_qp *make(struct end *e)
{
	struct ibv_qp_init_attr init = {
		.send_cq = e->scq, .recv_cq = e->rcq, .srq = e->srq, .cap = e->p.cap, .qp_type = IBV_QPT_UD,
	};
	struct ibv_qp *qp = ibv_create_qp(e->pd, &init);
	CHECK(qp);
	return qp;
}

struct ibv_qp *ud_make_qp(struct end *e)
{
	struct ibv_qp *qp = make(e);
	ud_to_rts(qp);
	return qp;
}

void ud_start(struct end *e, const struct params *p)
{
	rc_open(e, p);
	CHECK_EQ(ibv_destroy_qp(e->qp), 0);
	e->qp = ud_make_qp(e);
	e->peer = rc_swap_cards(e, e->qp);
}

struct ibv_ah *ud_ah(struct end *e)
{
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid = e->peer.gid, .hop_limit = 33, .traffic_class = 5 } };
	struct ibv_ah *ah = ibv_create_ah(e->pd, &attr);
	CHECK(ah);
	return ah;
}

uint32_t ud_mtu(struct end *e)
{
	struct ibv_port_attr port;
	CHECK_EQ(ibv_query_port(e->ctx, 1, &port), 0);
	return 128u << port.active_mtu;
}

int ud_post(struct end *e, const struct dgram *d)
{
	struct ibv_sge one = { (uintptr_t)e->buf + d->at, d->len, d->lkey ? d->lkey : e->mr->lkey };
	struct ibv_send_wr *bad = NULL, wr = {
		.wr_id = d->id,
		.sg_list = d->sge ? d->sge : &one,
		.num_sge = d->sge ? d->nsge : 1,
		.opcode = d->imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
		.send_flags = d->flags | IBV_SEND_SIGNALED,
		.imm_data = htonl(d->imm),
		.wr.ud = { .ah = d->ah,
			   .remote_qpn = d->qpn ? d->qpn : e->peer.qpn,
			   .remote_qkey = d->qkey ? d->qkey : QKEY },
	};
	int err = ibv_post_send(d->qp ? d->qp : e->qp, &wr, &bad);
	CHECK(err ? bad == &wr : !bad);
	return err;
}

struct ibv_wc ud_expect_recv(struct end *e, uint64_t id, uint32_t bytes)
{
	struct ibv_wc wc = rc_expect(e->rcq, id, IBV_WC_SUCCESS);
	CHECK_EQ(wc.opcode, IBV_WC_RECV);
	CHECK_EQ(wc.byte_len, GRH + bytes);
	CHECK(wc.wc_flags & IBV_WC_GRH);
	CHECK_EQ(wc.slid, 0);
	CHECK_EQ(wc.pkey_index, 0);
	return wc;
}
