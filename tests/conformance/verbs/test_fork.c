/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork: the parent goes on, what the child inherited is dead there, and the child may open the device anew.
 */
#include "world.h"

/* In the child, in place of cmocka's assertions. */
#define CHECK(condition)                                                                  \
	do {                                                                              \
		if (!(condition)) {                                                       \
			fprintf(stderr, "child: line %d: %s\n", __LINE__, #condition);     \
			_exit(1);                                                         \
		}                                                                         \
	} while (0)

/* The child starts threads; ThreadSanitizer ends it unless told otherwise. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

static void in_child(void (*body)(struct world *w, struct wire *x), struct world *w, struct wire *x)
{
	pid_t pid = fork();
	int status;
	assert_true(pid >= 0);
	if (!pid) {
		is_forked_child = true;
		alarm(30);
		body(w, x);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void exchange(struct world *w, struct wire *x)
{
	assert_errno(0, post_recv(w, x->b, 1));
	assert_errno(0, post_send(w, x->a, 2, 0));
	for (int i = 0; i < 2; i++)
		assert_int_equal(next_wc(w->cq).status, IBV_WC_SUCCESS);
}

/* What is inherited beside world and wire. */
struct inherited {
	struct ibv_srq *srq, *matching;
	struct ibv_xrcd *xrcd;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp; /* with send operations */
	struct ibv_qp *ud;
	struct ibv_mw *mw;
	struct ibv_comp_cntr *cntr;
	struct ibv_wq *wq;
	struct ibv_rwq_ind_table *table; /* of it */
	struct ibv_qp *spread; /* with the table; NULL without the right to packet sockets */
	struct ibv_td *td;
	struct ibv_pd *parent; /* with the thread domain */
	struct ibv_buf *buf;
	uint8_t *at;       /* of buf */
};

static struct inherited inherited;

static struct ibv_qp_init_attr_ex spread_attr(struct world *w, struct ibv_rwq_ind_table *table)
{
	static uint8_t key[40];
	return (struct ibv_qp_init_attr_ex){
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.pd = w->pd,
		.rwq_ind_tbl = table,
		.rx_hash_conf = { .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
				  .rx_hash_key_len = sizeof(key),
				  .rx_hash_key = key }
	};
}

static void make_queues(struct world *w, struct inherited *i)
{
	struct ibv_srq_init_attr basic = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_init_attr_ex tags = tags_attr(w, 4, 4);
	struct ibv_wq_init_attr wq = {
		.wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = w->pd, .cq = w->cq
	};
	struct ibv_rwq_ind_table_init_attr table = { .ind_tbl = &i->wq };
	assert_non_null(i->srq = ibv_create_srq(w->pd, &basic));
	assert_non_null(i->matching = ibv_create_srq_ex(w->ctx, &tags));
	assert_non_null(i->wq = ibv_create_wq(w->ctx, &wq));
	assert_non_null(i->table = ibv_create_rwq_ind_table(w->ctx, &table));
	struct ibv_qp_init_attr_ex spread = spread_attr(w, i->table);
	i->spread = ibv_create_qp_ex(w->ctx, &spread);
	if (!i->spread)
		assert_int_equal(errno, EPERM);
}

static void make_inherited(struct world *w, struct inherited *i)
{
	struct ibv_cq_init_attr_ex cq = { .cqe = 4 };
	struct ibv_xrcd_init_attr xrcd = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
					   .fd = -1,
					   .oflags = O_CREAT };
	struct ibv_comp_cntr_init_attr cntr = { .type = IBV_COMP_CNTR_TYPE_WRS };
	struct ibv_qp_init_attr_ex qp = { .send_cq = w->cq,
					  .recv_cq = w->cq,
					  .qp_type = IBV_QPT_RC,
					  .pd = w->pd,
					  .send_ops_flags = IBV_QP_EX_WITH_SEND,
					  .cap = { .max_send_wr = 1, .max_send_sge = 1 },
					  .comp_mask =
						  IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS };
	struct ibv_qp_init_attr ud = { .send_cq = w->cq, .recv_cq = w->cq, .qp_type = IBV_QPT_UD };
	struct ibv_td_init_attr td = { .comp_mask = 0 };
	assert_non_null(i->td = ibv_alloc_td(w->ctx, &td));
	struct ibv_parent_domain_init_attr parent = { .pd = w->pd, .td = i->td };
	assert_non_null(i->parent = ibv_alloc_parent_domain(w->ctx, &parent));
	make_queues(w, i);
	assert_non_null(i->ud = ibv_create_qp(w->pd, &ud));
	assert_non_null(i->cq = ibv_create_cq_ex(w->ctx, &cq));
	assert_non_null(i->xrcd = ibv_open_xrcd(w->ctx, &xrcd));
	assert_non_null(i->cntr = ibv_create_comp_cntr(w->ctx, &cntr));
	assert_non_null(i->mw = ibv_alloc_mw(w->pd, IBV_MW_TYPE_1));
	assert_non_null(i->qp = ibv_create_qp_ex(w->ctx, &qp));
	assert_non_null(i->at = ibv_alloc_buf(w->pd, 64, &i->buf));
}

static void end_inherited(struct inherited *i)
{
	ibv_free_buf(i->buf);
	assert_errno(0, ibv_destroy_qp(i->ud));
	assert_errno(0, ibv_destroy_qp(i->qp));
	assert_errno(0, ibv_dealloc_mw(i->mw));
	assert_errno(0, ibv_destroy_comp_cntr(i->cntr));
	assert_errno(0, ibv_close_xrcd(i->xrcd));
	assert_errno(0, ibv_destroy_cq(ibv_cq_ex_to_cq(i->cq)));
	if (i->spread)
		assert_errno(0, ibv_destroy_qp(i->spread));
	assert_errno(0, ibv_destroy_rwq_ind_table(i->table));
	assert_errno(0, ibv_destroy_wq(i->wq));
	assert_errno(0, ibv_destroy_srq(i->matching));
	assert_errno(0, ibv_destroy_srq(i->srq));
	assert_errno(0, ibv_dealloc_pd(i->parent));
	assert_errno(0, ibv_dealloc_td(i->td));
}

static void memory_fails(struct world *w, struct inherited *i)
{
	struct ibv_sge sge = sge_at(w, 0, 8);
	struct ibv_mw_bind bind = { .bind_info = { .mr = w->mr, .addr = (uintptr_t)w->buffer, .length = 8 } };
	struct ibv_mr_init_attr mr = { .comp_mask = IBV_REG_MR_MASK_ADDR, .addr = w->buffer, .length = 8 };
	struct ibv_dmah_init_attr dmah = { .comp_mask = 0 };
	struct ibv_td_init_attr td = { .comp_mask = 0 };
	struct ibv_parent_domain_init_attr parent = { .pd = w->pd };
	struct ibv_buf *buf;
	assert_null_errno(EIO, ibv_alloc_pd(w->ctx));
	assert_null_errno(EIO, ibv_alloc_td(w->ctx, &td));
	assert_null_errno(EIO, ibv_alloc_parent_domain(w->ctx, &parent));
	assert_null_errno(EIO, ibv_reg_mr(w->pd, w->buffer, 8, 0));
	assert_null_errno(EIO, ibv_reg_mr_iova(w->pd, w->buffer, 8, 0, 0));
	assert_null_errno(EIO, ibv_reg_dmabuf_mr(w->pd, 0, 8, 0, 0, 0));
	assert_null_errno(EIO, ibv_reg_mr_ex(w->pd, &mr));
	assert_null_errno(EIO, ibv_alloc_null_mr(w->pd));
	assert_rereg_errno(EIO, ibv_rereg_mr(w->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0));
	assert_errno(EIO, ibv_advise_mr(w->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	assert_null_errno(EIO, ibv_alloc_mw(w->pd, IBV_MW_TYPE_1));
	assert_errno(EIO, ibv_bind_mw(i->qp, i->mw, &bind));
	assert_null_errno(EIO, ibv_alloc_dmah(w->ctx, &dmah));
	assert_null_errno(EIO, ibv_alloc_buf(w->pd, 64, &buf));
	assert_null_errno(EIO, ibv_reg_buf_mr(w->pd, i->buf, i->at, 64, 0));
	assert_null_errno(EIO, ibv_import_pd(w->ctx, w->pd->handle));
	assert_null_errno(EIO, ibv_import_mr(w->pd, w->mr->handle));
}

/* It is nobody's but this process's. */
static void device_memory_works(struct world *w)
{
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(w->ctx, &attr);
	uint64_t in = 0x1234, out = 0;
	assert_non_null(dm);
	assert_errno(0, ibv_memcpy_to_dm(dm, 8, &in, sizeof(in)));
	assert_errno(0, ibv_memcpy_from_dm(&out, dm, 8, sizeof(out)));
	assert_int_equal(out, in);
	assert_errno(0, ibv_free_dm(dm));
}

static void completion_fails(struct world *w, struct inherited *i)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;
	struct ibv_async_event event;
	struct ibv_cq_init_attr_ex ex = { .cqe = 4 };
	struct ibv_poll_cq_attr poll = { .comp_mask = 0 };
	struct ibv_modify_cq_attr moderate = { .attr_mask = IBV_CQ_ATTR_MODERATE };
	struct ibv_comp_cntr_init_attr cntr = { .type = IBV_COMP_CNTR_TYPE_WRS };
	struct ibv_qp_attach_comp_cntr_attr attach = { .op_mask = IBV_QP_ATTACH_COMP_CNTR_OP_SEND };
	assert_null_errno(EIO, ibv_create_cq(w->ctx, 1, NULL, NULL, 0));
	assert_null_errno(EIO, ibv_create_cq_ex(w->ctx, &ex));
	assert_null_errno(EIO, ibv_create_comp_channel(w->ctx));
	assert_true(ibv_poll_cq(w->cq, 1, &wc) < 0);
	assert_errno(EIO, ibv_start_poll(i->cq, &poll));
	assert_errno(EIO, ibv_req_notify_cq(w->cq, 0));
	assert_errno(EIO, ibv_resize_cq(w->cq, 5));
	assert_errno(EIO, ibv_modify_cq(w->cq, &moderate));
	assert_minus1_errno(EIO, ibv_get_cq_event(w->channel, &cq, &context));
	assert_minus1_errno(EIO, ibv_get_async_event(w->ctx, &event));
	assert_null_errno(EIO, ibv_create_comp_cntr(w->ctx, &cntr));
	assert_errno(EIO, ibv_qp_attach_comp_cntr(i->qp, i->cntr, &attach));
}

static void queues_fail(struct world *w, struct wire *x, struct inherited *i)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_attr srq_attr = { .srq_limit = 1 };
	struct ibv_srq_init_attr_ex srq_ex = { .attr = { .max_wr = 4, .max_sge = 1 },
					       .pd = w->pd,
					       .comp_mask = IBV_SRQ_INIT_ATTR_PD };
	struct ibv_qp_init_attr init = qp_attr(w);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_xrcd_init_attr xrcd = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
					   .fd = -1,
					   .oflags = O_CREAT };
	struct ibv_qp_open_attr open = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
						      IBV_QP_OPEN_ATTR_TYPE,
					 .qp_num = 5,
					 .xrcd = i->xrcd,
					 .qp_type = IBV_QPT_XRC_RECV };
	struct ibv_recv_wr receive = { .num_sge = 0 }, *bad;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send;
	struct ibv_ops_wr op = { .opcode = IBV_WR_TAG_SYNC }, *bad_op;
	struct ibv_ah_attr ah = connect_attr(w, 0).ah_attr;
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1 };
	union ibv_gid group = { .raw = { [10] = 0xff, 0xff, 239, 77, 5, 1 } };
	assert_null_errno(EIO, ibv_create_srq(w->pd, &srq));
	assert_null_errno(EIO, ibv_create_srq_ex(w->ctx, &srq_ex));
	assert_errno(EIO, ibv_modify_srq(i->srq, &srq_attr, IBV_SRQ_LIMIT));
	assert_errno(EIO, ibv_query_srq(i->srq, &srq_attr));
	assert_errno(EIO, ibv_post_srq_recv(i->srq, &receive, &bad));
	assert_errno(EIO, ibv_post_srq_ops(i->matching, &op, &bad_op));
	assert_null_errno(EIO, ibv_create_qp(w->pd, &init));
	assert_errno(EIO, ibv_modify_qp(x->a, &attr, IBV_QP_STATE));
	assert_errno(EIO, ibv_query_qp(x->a, &attr, IBV_QP_STATE, &init));
	assert_errno(EIO, ibv_post_send(x->a, &send, &bad_send));
	assert_errno(EIO, ibv_post_recv(x->a, &receive, &bad));
	assert_errno(EIO, ibv_modify_qp_rate_limit(x->a, &rate));
	ibv_wr_start(ibv_qp_to_qp_ex(i->qp));
	assert_errno(EIO, ibv_wr_complete(ibv_qp_to_qp_ex(i->qp)));
	assert_null_errno(EIO, ibv_open_xrcd(w->ctx, &xrcd));
	assert_null_errno(EIO, ibv_open_qp(w->ctx, &open));
	assert_null_errno(EIO, ibv_create_ah(w->pd, &ah));
	assert_errno(EIO, ibv_attach_mcast(i->ud, &group, 0));
	assert_errno(0, ibv_detach_mcast(i->ud, &group, 0));
}

static void steering_fails(struct world *w, struct wire *x, struct inherited *i)
{
	struct ibv_wq_init_attr wq = {
		.wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = w->pd, .cq = w->cq
	};
	struct ibv_wq_attr state = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
	struct ibv_flow_attr flow = { .size = sizeof(flow), .port = 1 };
	struct ibv_counters_init_attr counters = { .comp_mask = 0 };
	struct ibv_rwq_ind_table_init_attr table = { .ind_tbl = &i->wq };
	struct ibv_qp_init_attr_ex spread = spread_attr(w, i->table);
	struct ibv_recv_wr receive = { .num_sge = 0 }, *bad = NULL;
	assert_null_errno(EIO, ibv_create_flow(x->a, &flow));
	assert_null_errno(EIO, ibv_create_counters(w->ctx, &counters));
	assert_null_errno(EIO, ibv_create_wq(w->ctx, &wq));
	assert_null_errno(EIO, ibv_create_rwq_ind_table(w->ctx, &table));
	assert_errno(EIO, ibv_modify_wq(i->wq, &state));
	assert_errno(EIO, ibv_post_wq_recv(i->wq, &receive, &bad));
	assert_ptr_equal(bad, &receive);
	assert_null_errno(EIO, ibv_create_qp_ex(w->ctx, &spread));
}

static void everything_fails(struct world *w, struct wire *x)
{
	memory_fails(w, &inherited);
	device_memory_works(w);
	completion_fails(w, &inherited);
	queues_fail(w, x, &inherited);
	steering_fails(w, x, &inherited);
}

static void everything_ends(struct world *w, struct wire *x) { end_inherited(&inherited); }

static void parent__goes_on(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	exchange(w, &x);
	make_inherited(w, &inherited);
	in_child(everything_fails, w, &x);
	in_child(everything_ends, w, &x);
	exchange(w, &x);
	end_inherited(&inherited);
	disconnected(&x);
}

static atomic_int stage;

static void await_stage(int n)
{
	while (atomic_load(&stage) != n)
		usleep(1000);
}

static void *build_for_long(void *qp)
{
	ibv_wr_start(qp);
	atomic_store(&stage, 1);
	await_stage(2);
	ibv_wr_abort(qp);
	return NULL;
}

static void batch_fails(struct world *w, struct wire *x)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(inherited.qp);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	assert_errno(EIO, ibv_wr_complete(ex));
}

/* Of a thread that builds one there is none in the child. */
static void child__waits_for_no_batch(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	pthread_t thread;
	make_inherited(w, &inherited);
	assert_int_equal(pthread_create(&thread, NULL, build_for_long, ibv_qp_to_qp_ex(inherited.qp)), 0);
	await_stage(1);
	in_child(batch_fails, w, &x);
	atomic_store(&stage, 2);
	pthread_join(thread, NULL);
	end_inherited(&inherited);
	disconnected(&x);
}

static void destroy_all(struct world *w, struct wire *x)
{
	CHECK(ibv_destroy_qp(x->a) == 0);
	CHECK(ibv_destroy_qp(x->b) == 0);
	CHECK(ibv_dereg_mr(w->mr) == 0);
	CHECK(ibv_destroy_cq(w->cq) == 0);
	CHECK(ibv_destroy_comp_channel(w->channel) == 0);
	CHECK(ibv_dealloc_pd(w->pd) == 0);
	CHECK(ibv_close_device(w->ctx) == 0);
}

static void child__destroys_what_it_inherited(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	in_child(destroy_all, w, &x);
	exchange(w, &x);
	disconnected(&x);
}

static void work_on_own_device(struct world *w, struct wire *x)
{
	void *own;
	destroy_all(w, x);
	CHECK(make_world(&own) == 0);
	struct wire y = connected(own, NULL);
	CHECK(post_recv(own, y.b, 1) == 0);
	CHECK(post_send(own, y.a, 2, 0) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(next_wc(((struct world *)own)->cq).status == IBV_WC_SUCCESS);
	disconnected(&y);
	CHECK(end_world(&own) == 0);
}

static void child__opens_its_own(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	in_child(work_on_own_device, w, &x);
	exchange(w, &x);
	in_child(work_on_own_device, w, &x);
	exchange(w, &x);
	disconnected(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(parent__goes_on),
		WORLD_TEST(child__waits_for_no_batch),
		WORLD_TEST(child__destroys_what_it_inherited),
		WORLD_TEST(child__opens_its_own),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
