/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory runs out in each call that allocates: it refuses with ENOMEM and gives back what it had taken, so
 * that the teardown finds nothing in use.
 */
#include "world.h"

#include <sys/resource.h>

#include "../no_memory.h"

/* ---- the calls ---- */

static void devices__without_memory(void **state)
{
	struct world *w = *state;
	struct ibv_device **list;
	struct ibv_context *ctx;
	null_when_out(ENOMEM, list = ibv_get_device_list(NULL), ibv_free_device_list(list));
	null_when_out(ENOMEM, ctx = ibv_open_device(w->ctx->device),
		      assert_int_equal(ibv_close_device(ctx), 0));
	null_when_out(ENOMEM, ctx = ibv_import_device(w->ctx->cmd_fd),
		      assert_int_equal(ibv_close_device(ctx), 0));
}

static void domains__without_memory(void **state)
{
	struct world *w = *state;
	struct ibv_td_init_attr td_attr = { .comp_mask = 0 };
	struct ibv_parent_domain_init_attr parent = { .pd = w->pd };
	struct ibv_pd *pd;
	struct ibv_td *td;
	null_when_out(ENOMEM, pd = ibv_alloc_pd(w->ctx), assert_errno(0, ibv_dealloc_pd(pd)));
	null_when_out(ENOMEM, td = ibv_alloc_td(w->ctx, &td_attr), assert_errno(0, ibv_dealloc_td(td)));
	null_when_out(ENOMEM, pd = ibv_alloc_parent_domain(w->ctx, &parent),
		      assert_errno(0, ibv_dealloc_pd(pd)));
	null_when_out(ENOMEM, pd = ibv_import_pd(w->ctx, w->pd->handle), ibv_unimport_pd(pd));
}

static void regions__without_memory(void **state)
{
	struct world *w = *state;
	struct ibv_mr_init_attr ex = { .comp_mask = IBV_REG_MR_MASK_ADDR, .addr = w->buffer, .length = 8 };
	struct ibv_dmah_init_attr dmah_attr = { .comp_mask = 0 };
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_dmah *dmah;
	struct ibv_buf *buf;
	void *at;
	null_when_out(ENOMEM, mr = ibv_reg_mr(w->pd, w->buffer, 8, 0), assert_errno(0, ibv_dereg_mr(mr)));
	null_when_out(ENOMEM, mr = ibv_reg_mr_ex(w->pd, &ex), assert_errno(0, ibv_dereg_mr(mr)));
	null_when_out(ENOMEM, mr = ibv_alloc_null_mr(w->pd), assert_errno(0, ibv_dereg_mr(mr)));
	null_when_out(ENOMEM, mr = ibv_import_mr(w->pd, w->mr->handle), ibv_unimport_mr(mr));
	null_when_out(ENOMEM, mw = ibv_alloc_mw(w->pd, IBV_MW_TYPE_2), assert_errno(0, ibv_dealloc_mw(mw)));
	null_when_out(ENOMEM, dmah = ibv_alloc_dmah(w->ctx, &dmah_attr),
		      assert_errno(0, ibv_dealloc_dmah(dmah)));
	null_when_out(ENOMEM, at = ibv_alloc_buf(w->pd, 64, &buf), ibv_free_buf(buf));
}

static void device_memory__without_memory(void **state)
{
	struct world *w = *state;
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_dm *dm, *same;
	struct ibv_mr *mr;
	null_when_out(ENOMEM, dm = ibv_alloc_dm(w->ctx, &attr), assert_errno(0, ibv_free_dm(dm)));
	assert_non_null(dm = ibv_alloc_dm(w->ctx, &attr));
	null_when_out(ENOMEM, same = ibv_import_dm(w->ctx, dm->handle), ibv_unimport_dm(same));
	null_when_out(ENOMEM, mr = ibv_reg_dm_mr(w->pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED),
		      assert_errno(0, ibv_dereg_mr(mr)));
	assert_errno(0, ibv_free_dm(dm));
}

static void completion__without_memory(void **state)
{
	struct world *w = *state;
	struct ibv_cq_init_attr_ex ex = { .cqe = 16 };
	struct ibv_comp_cntr_init_attr cntr_attr = { .type = IBV_COMP_CNTR_TYPE_WRS };
	struct ibv_comp_channel *channel;
	struct ibv_comp_cntr *cntr;
	struct ibv_cq *cq;
	struct ibv_cq_ex *cq_ex;
	null_when_out(ENOMEM, channel = ibv_create_comp_channel(w->ctx),
		      assert_errno(0, ibv_destroy_comp_channel(channel)));
	null_when_out(ENOMEM, cq = ibv_create_cq(w->ctx, 16, NULL, NULL, 0),
		      assert_errno(0, ibv_destroy_cq(cq)));
	null_when_out(ENOMEM, cq_ex = ibv_create_cq_ex(w->ctx, &ex),
		      assert_errno(0, ibv_destroy_cq(ibv_cq_ex_to_cq(cq_ex))));
	null_when_out(ENOMEM, cntr = ibv_create_comp_cntr(w->ctx, &cntr_attr),
		      assert_errno(0, ibv_destroy_comp_cntr(cntr)));
	assert_non_null(cq = ibv_create_cq(w->ctx, 16, NULL, NULL, 0));
	errno_when_out(ENOMEM, ibv_resize_cq(cq, 1000), assert_true(cq->cqe >= 1000));
	assert_errno(0, ibv_destroy_cq(cq));
}

static void queues__without_memory(void **state)
{
	struct world *w = *state;
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq_init_attr_ex tags = tags_attr(w, 4, 4);
	struct ibv_srq_attr larger = { .max_wr = 1000 }; /* too long for host/memory/lines.h */
	struct ibv_qp_init_attr attr = qp_attr(w);
	struct ibv_ah_attr ah_attr = connect_attr(w, 0).ah_attr;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	null_when_out(ENOMEM, srq = ibv_create_srq(w->pd, &srq_attr), assert_errno(0, ibv_destroy_srq(srq)));
	null_when_out(ENOMEM, srq = ibv_create_srq_ex(w->ctx, &tags), assert_errno(0, ibv_destroy_srq(srq)));
	assert_non_null(srq = ibv_create_srq(w->pd, &srq_attr));
	errno_when_out(ENOMEM, ibv_modify_srq(srq, &larger, IBV_SRQ_MAX_WR), (void)0);
	assert_errno(0, ibv_destroy_srq(srq));
	null_when_out(ENOMEM, qp = ibv_create_qp(w->pd, &attr), assert_errno(0, ibv_destroy_qp(qp)));
	null_when_out(ENOMEM, ah = ibv_create_ah(w->pd, &ah_attr), assert_errno(0, ibv_destroy_ah(ah)));
}

static struct ibv_qp *make_qp_ex(struct world *w)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = w->cq,
		.recv_cq = w->cq,
		.qp_type = IBV_QPT_RC,
		.pd = w->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
		.cap = { .max_send_wr = 4, .max_send_sge = 1, .max_recv_wr = 4, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
	};
	return ibv_create_qp_ex(w->ctx, &attr);
}

static void qp_ex__without_memory(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp;
	null_when_out(ENOMEM, qp = make_qp_ex(w), assert_errno(0, ibv_destroy_qp(qp)));
}

static int build(struct world *w, struct ibv_qp *qp)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	ibv_wr_start(ex);
	for (int i = 0; i < 3; i++) {
		ibv_wr_send(ex);
		ibv_wr_set_sge(ex, w->mr->lkey, (uintptr_t)w->buffer, 8);
		ibv_wr_send(ex);
		ibv_wr_set_inline_data(ex, w->buffer, 8);
	}
	return ibv_wr_complete(ex);
}

/* The queue takes fewer than that, so memory or room is missing. */
static void wr__without_memory(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = make_qp_ex(w);
	struct ibv_wc wc;
	assert_non_null(qp);
	bring_to(w, qp, IBV_QPS_RTS, qp->qp_num);
	for (int n = 0; n < 20; n++) {
		fail_allocation(n);
		int err = build(w, qp);
		have_failed();
		assert_errno(ENOMEM, err);
	}
	for (int i = 0; i < 1000; i++)
		assert_int_equal(ibv_poll_cq(w->cq, 1, &wc), 0);
	assert_errno(0, ibv_destroy_qp(qp));
}

/*
 * The blocks that queue pairs and connections lie in (host/memory/lines.h): with no more address space, queue
 * pairs are made and connected until there are none.
 */
struct blocks {
	struct ibv_qp *qps[2000];
	unsigned count;
	struct rlimit limit;
};

static void use_up(struct world *w, struct blocks *b)
{
	struct ibv_qp_init_attr attr = qp_attr(w);
	assert_int_equal(getrlimit(RLIMIT_AS, &b->limit), 0);
	assert_int_equal(setrlimit(RLIMIT_AS, &(struct rlimit){ 1, b->limit.rlim_max }), 0);
	for (b->count = 0; (b->qps[b->count] = ibv_create_qp(w->pd, &attr)); b->count++)
		assert_in_range(b->count, 0, sizeof(b->qps) / sizeof(b->qps[0]) - 2);
	assert_int_equal(errno, ENOMEM);
	for (unsigned i = 0; i < b->count; i++) {
		assert_errno(0, step(w, b->qps[i], IBV_QPS_INIT, 0));
		int err = step(w, b->qps[i], IBV_QPS_RTR, b->qps[i]->qp_num);
		if (err == ENOMEM)
			return;
		assert_errno(0, err);
	}
	fail_msg("a connection takes no memory");
}

static void give_back(struct blocks *b)
{
	assert_int_equal(setrlimit(RLIMIT_AS, &b->limit), 0);
	while (b->count)
		assert_errno(0, ibv_destroy_qp(b->qps[--b->count]));
}

static void connect__without_memory(void **state)
{
	struct world *w = *state;
	static struct blocks blocks;
	struct wire x = { make_qp(w, NULL), make_qp(w, NULL) };
	struct ibv_qp_attr rtr = connect_attr(w, x.b->qp_num);
	rtr.qp_state = IBV_QPS_RTR;
	bring_to(w, x.a, IBV_QPS_INIT, x.b->qp_num);
	bring_to(w, x.b, IBV_QPS_RTS, x.a->qp_num);
	use_up(w, &blocks);
	assert_errno(ENOMEM, ibv_modify_qp(x.a, &rtr, mask_to[IBV_QPS_RTR]));
	give_back(&blocks);
	assert_errno(0, step(w, x.a, IBV_QPS_RTR, x.b->qp_num));
	assert_errno(0, step(w, x.a, IBV_QPS_RTS, 0));
	assert_errno(0, post_recv(w, x.a, 1));
	assert_errno(0, post_send(w, x.b, 2, 0));
	for (int i = 0; i < 2; i++)
		assert_int_equal(next_wc(w->cq).status, IBV_WC_SUCCESS);
	disconnected(&x);
}

/* A queue pair keeps what it has counted, which takes memory the first time that it is reset. */
static void reset__without_memory(void **state)
{
	struct world *w = *state;
	struct wire x = { make_qp(w, NULL), make_qp(w, NULL) };
	bring_to(w, x.a, IBV_QPS_RTS, x.b->qp_num);
	bring_to(w, x.b, IBV_QPS_RTS, x.a->qp_num);
	fail_allocation(0);
	int err = set_state(x.a, IBV_QPS_RESET);
	have_failed();
	assert_errno(ENOMEM, err);
	assert_errno(0, post_recv(w, x.a, 1));
	assert_errno(0, post_send(w, x.b, 2, 0));
	for (int i = 0; i < 2; i++)
		assert_int_equal(next_wc(w->cq).status, IBV_WC_SUCCESS);
	assert_errno(0, set_state(x.a, IBV_QPS_RESET));
	disconnected(&x);
}

static void multicast__without_memory(void **state)
{
	struct world *w = *state;
	struct ibv_qp_init_attr attr = qp_attr(w);
	union ibv_gid group = { .raw = { [10] = 0xff, 0xff, 239, 7, 7, 7 } };
	attr.qp_type = IBV_QPT_UD;
	struct ibv_qp *qp = ibv_create_qp(w->pd, &attr);
	assert_non_null(qp);
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	assert_errno(0,
		     ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	errno_when_out(ENOMEM, ibv_attach_mcast(qp, &group, 0),
		       assert_errno(0, ibv_detach_mcast(qp, &group, 0)));
	assert_errno(0, ibv_destroy_qp(qp));
}

static void xrc__without_memory(void **state)
{
	struct world *w = *state;
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
					   .fd = -1,
					   .oflags = O_CREAT };
	static struct blocks blocks;
	struct ibv_xrcd *xrcd;
	struct ibv_qp *qp, *same;
	null_when_out(ENOMEM, xrcd = ibv_open_xrcd(w->ctx, &attr), assert_errno(0, ibv_close_xrcd(xrcd)));
	assert_non_null(xrcd = ibv_open_xrcd(w->ctx, &attr));
	struct ibv_qp_init_attr_ex receive = { .qp_type = IBV_QPT_XRC_RECV,
					       .comp_mask = IBV_QP_INIT_ATTR_XRCD,
					       .xrcd = xrcd };
	struct ibv_srq_init_attr_ex srq_attr = { .attr = { .max_wr = 4, .max_sge = 1 },
						 .srq_type = IBV_SRQT_XRC,
						 .pd = w->pd,
						 .cq = w->cq,
						 .xrcd = xrcd,
						 .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
							      IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_XRCD };
	struct ibv_srq *srq;
	null_when_out(ENOMEM, srq = ibv_create_srq_ex(w->ctx, &srq_attr),
		      assert_errno(0, ibv_destroy_srq(srq)));
	assert_non_null(qp = ibv_create_qp_ex(w->ctx, &receive));
	struct ibv_qp_open_attr open = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
						      IBV_QP_OPEN_ATTR_TYPE,
					 .qp_num = qp->qp_num,
					 .xrcd = xrcd,
					 .qp_type = IBV_QPT_XRC_RECV };
	use_up(w, &blocks);
	/* the last queue pair may have lacked only its queues */
	same = ibv_open_qp(w->ctx, &open);
	assert_null_errno(ENOMEM, ibv_open_qp(w->ctx, &open));
	give_back(&blocks);
	if (!same)
		assert_non_null(same = ibv_open_qp(w->ctx, &open));
	assert_errno(0, ibv_destroy_qp(same));
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_close_xrcd(xrcd));
}

static void steering__without_memory(void **state)
{
	struct world *w = *state;
	struct ibv_counters_init_attr counters_attr = { .comp_mask = 0 };
	struct ibv_counters *counters;
	null_when_out(ENOMEM, counters = ibv_create_counters(w->ctx, &counters_attr),
		      assert_errno(0, ibv_destroy_counters(counters)));
	struct ibv_qp_init_attr attr = qp_attr(w);
	attr.qp_type = IBV_QPT_RAW_PACKET;
	struct ibv_qp *qp = ibv_create_qp(w->pd, &attr);
	if (!qp && errno == EPERM)
		return; /* no right to packet sockets: the rest needs it */
	assert_non_null(qp);
	struct ibv_wq_init_attr wq_attr = {
		.wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = w->pd, .cq = w->cq
	};
	struct ibv_flow_attr rule = { .type = IBV_FLOW_ATTR_SNIFFER, .size = sizeof(rule), .port = 1 };
	struct ibv_wq *wq;
	struct ibv_flow *flow;
	struct ibv_rwq_ind_table *table;
	null_when_out(ENOMEM, flow = ibv_create_flow(qp, &rule), assert_errno(0, ibv_destroy_flow(flow)));
	null_when_out(ENOMEM, wq = ibv_create_wq(w->ctx, &wq_attr), assert_errno(0, ibv_destroy_wq(wq)));
	assert_non_null(wq = ibv_create_wq(w->ctx, &wq_attr));
	struct ibv_rwq_ind_table_init_attr table_attr = { .ind_tbl = &wq };
	null_when_out(ENOMEM, table = ibv_create_rwq_ind_table(w->ctx, &table_attr),
		      assert_errno(0, ibv_destroy_rwq_ind_table(table)));
	assert_errno(0, ibv_destroy_wq(wq));
	assert_errno(0, ibv_destroy_qp(qp));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(devices__without_memory),
		WORLD_TEST(domains__without_memory),
		WORLD_TEST(regions__without_memory),
		WORLD_TEST(device_memory__without_memory),
		WORLD_TEST(completion__without_memory),
		WORLD_TEST(queues__without_memory),
		WORLD_TEST(qp_ex__without_memory),
		WORLD_TEST(wr__without_memory),
		WORLD_TEST(connect__without_memory),
		WORLD_TEST(reset__without_memory),
		WORLD_TEST(multicast__without_memory),
		WORLD_TEST(xrc__without_memory),
		WORLD_TEST(steering__without_memory),
	};
	if (!HAVE_ALLOCATOR) {
		puts("1..0 # SKIP " NO_ALLOCATOR);
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
