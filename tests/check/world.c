/* SPDX-License-Identifier: BSD-2-Clause */
#include "world.h"

#include <string.h>
#include <time.h>

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	MUST(list);
	for (int i = 0; list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	return ctx;
}

struct ibv_qp *make_qp(struct world *w, struct ibv_cq *cq, const struct wish *wish, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = type,
		.sq_sig_all = !wish->unsignaled,
		.cap = { .max_send_wr = wish->send_wr ? wish->send_wr : 8,
			 .max_recv_wr = 8,
			 .max_send_sge = 1,
			 .max_recv_sge = 1,
			 .max_inline_data = 32 },
	};
	struct ibv_qp *qp = ibv_create_qp(w->pd, &init);
	MUST(qp);
	return qp;
}

void to_init(struct ibv_qp *qp, unsigned access)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access };
	MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static unsigned or_else(unsigned wanted, unsigned usual) { return wanted ? wanted : usual; }

static void to_rtr(struct world *w, struct ibv_qp *qp, uint32_t peer, const struct wish *wish, bool is_a)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)or_else(is_a ? wish->mtu : 0,
						  or_else(wish->path_mtu, IBV_MTU_1024)),
		.dest_qp_num = peer,
		.rq_psn = 1,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } },
	};
	MUST(!ibv_query_gid(w->ctx, 1, 0, &a.ah_attr.grh.dgid));
	if (!is_a && wish->b_mistakes_gid)
		a.ah_attr.grh.dgid.raw[15]++;
	MUST(!ibv_modify_qp(qp, &a,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
}

void connect_qp(struct world *w, struct ibv_qp *qp, uint32_t peer, const struct wish *wish, bool is_a)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = (uint8_t)or_else(wish->retry_cnt, 7),
		.rnr_retry = (uint8_t)or_else(wish->rnr_retry, 7),
		.sq_psn = is_a ? or_else(wish->sq_psn, 1) : 1,
		.max_rd_atomic = (uint8_t)(!is_a ? 4 : wish->no_reads ? 0 : or_else(wish->max_rd_atomic, 4)),
	};
	to_rtr(w, qp, peer, wish, is_a);
	MUST(!ibv_modify_qp(qp, &a,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void make_side(struct world *w, struct side *s, const struct wish *wish, unsigned access)
{
	MUST(s->cq = ibv_create_cq(w->ctx, wish->cqe ? wish->cqe : 64, NULL, w->channel, 0));
	s->qp = make_qp(w, s->cq, wish, IBV_QPT_RC);
	MUST(s->buffer = calloc(1, BUFFER_BYTES));
	MUST(s->mr = ibv_reg_mr(w->pd, s->buffer, BUFFER_BYTES, (int)access));
}

struct world make_world(struct wish wish)
{
	struct world w = { 0 };
	MUST(w.ctx = open_device(wish.device ? wish.device : "vb_lo"));
	MUST(w.pd = ibv_alloc_pd(w.ctx));
	MUST(w.channel = ibv_create_comp_channel(w.ctx));
	make_side(&w, &w.a, &wish, ACCESS);
	make_side(&w, &w.b, &wish, or_else(wish.mr_access, ACCESS));
	to_init(w.a.qp, ACCESS & ~IBV_ACCESS_LOCAL_WRITE);
	to_init(w.b.qp, or_else(wish.qp_access, ACCESS & ~IBV_ACCESS_LOCAL_WRITE));
	if (!wish.b_stays_in_init)
		connect_qp(&w, w.b.qp, w.a.qp->qp_num, &wish, false);
	connect_qp(&w, w.a.qp, w.b.qp->qp_num, &wish, true);
	return w;
}

static void end_side(struct side *s)
{
	if (s->qp)
		MUST(!ibv_destroy_qp(s->qp));
	if (s->cq)
		MUST(!ibv_destroy_cq(s->cq));
	if (s->mr)
		MUST(!ibv_dereg_mr(s->mr));
	free(s->buffer);
}

void end_world(struct world *w)
{
	end_side(&w->a);
	end_side(&w->b);
	MUST(!ibv_destroy_comp_channel(w->channel));
	MUST(!ibv_dealloc_pd(w->pd));
	MUST(!ibv_close_device(w->ctx));
}

struct ibv_send_wr *request(struct side *s, enum ibv_wr_opcode opcode, uint32_t bytes, struct side *remote)
{
	static struct ibv_sge sge;
	static struct ibv_send_wr wr;
	sge = (struct ibv_sge){ .addr = (uintptr_t)s->buffer, .length = bytes, .lkey = s->mr->lkey };
	wr = (struct ibv_send_wr){ .wr_id = 7, .opcode = opcode, .sg_list = &sge, .num_sge = 1 };
	if (remote) {
		wr.wr.rdma.remote_addr = (uintptr_t)remote->buffer;
		wr.wr.rdma.rkey = remote->mr->rkey;
	}
	return &wr;
}

int post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	return ibv_post_send(qp, wr, &bad);
}

int post_receive(struct ibv_qp *qp, uint64_t addr, uint32_t bytes, uint32_t lkey)
{
	struct ibv_sge sge = { .addr = addr, .length = bytes, .lkey = lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = 9, .sg_list = &sge, .num_sge = 1 };
	return ibv_post_recv(qp, &wr, &bad);
}

void receive(struct side *s, uint32_t bytes)
{
	MUST(!post_receive(s->qp, (uintptr_t)s->buffer, bytes, s->mr->lkey));
}

struct ibv_wc next(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	time_t limit = time(NULL) + 60;
	int n;
	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		MUST(time(NULL) < limit);
	MUST(n == 1);
	return wc;
}

void done(struct ibv_cq *cq)
{
	struct ibv_wc wc = next(cq);
	MUST(wc.status == IBV_WC_SUCCESS);
}
