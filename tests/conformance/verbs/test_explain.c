/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * With VERBATIM_DEBUG=1 each refused call says one line on standard error, under its name; without it,
 * nothing is said.
 */
#include "../../kernel.h"
#include "world.h"

#include "../explain.h"

static void objects(void **state)
{
	struct world *w = *state;
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 1u << 30 } };
	struct ibv_cq_init_attr_ex cq_ex = { .cqe = 1, .comp_mask = 1 << 8 };
	struct ibv_srq_init_attr_ex srq_ex = { .comp_mask = 1 << 8 };
	struct ibv_ah_attr ah = { .port_num = 1, .dlid = 1 };
	EXPLAINS("ibv_dealloc_pd", ibv_dealloc_pd(w->pd));
	EXPLAINS("ibv_destroy_comp_channel", ibv_destroy_comp_channel(w->channel));
	EXPLAINS("ibv_reg_mr", !ibv_reg_mr(w->pd, w->buffer, 8, IBV_ACCESS_REMOTE_WRITE));
	if (kernel_tells_what_is_mapped()) {
		EXPLAINS("ibv_reg_mr", !ibv_reg_mr(w->pd, NULL, 8, 0));
		EXPLAINS("ibv_rereg_mr",
			 ibv_rereg_mr(w->mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)8, 8, 0));
	}
	EXPLAINS("ibv_reg_mr", !ibv_reg_mr(w->pd, w->buffer, 8, 1 << 10));
	EXPLAINS("ibv_rereg_mr", ibv_rereg_mr(w->mr, 0, NULL, NULL, 0, 0));
	EXPLAINS("ibv_create_cq", !ibv_create_cq(w->ctx, 0, NULL, NULL, 0));
	EXPLAINS("ibv_create_cq", !ibv_create_cq(w->ctx, 1, NULL, NULL, 1000));
	EXPLAINS("ibv_resize_cq", ibv_resize_cq(w->cq, -1));
	EXPLAINS("ibv_create_cq_ex", !ibv_create_cq_ex(w->ctx, &cq_ex));
	EXPLAINS("ibv_create_srq", !ibv_create_srq(w->pd, &srq));
	EXPLAINS("ibv_create_srq_ex", !ibv_create_srq_ex(w->ctx, &srq_ex));
	EXPLAINS("ibv_create_ah", !ibv_create_ah(w->pd, &ah));
	EXPLAINS("ibv_alloc_mw", !ibv_alloc_mw(w->pd, 3));
	EXPLAINS("ibv_import_device", !ibv_import_device(0));
	EXPLAINS("ibv_reg_dmabuf_mr", !ibv_reg_dmabuf_mr(w->pd, 0, 1, 0, 0, 0));
}

static void queries(void **state)
{
	struct world *w = *state;
	struct ibv_port_attr port;
	struct ibv_gid_entry entry;
	union ibv_gid gid;
	__be16 pkey;
	EXPLAINS("ibv_query_port", ibv_query_port(w->ctx, 9, &port));
	EXPLAINS("ibv_query_gid", ibv_query_gid(w->ctx, 1, 1000, &gid));
	EXPLAINS("ibv_query_gid_ex", ibv_query_gid_ex(w->ctx, 7, 0, &entry, 0));
	EXPLAINS("ibv_query_pkey", ibv_query_pkey(w->ctx, 1, 5, &pkey));
	EXPLAINS("ibv_query_gid_table", ibv_query_gid_table(w->ctx, &entry, 0, 0) < 0);
}

static void queue_pairs(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = make_qp(w, NULL);
	struct ibv_qp_init_attr attr = qp_attr(w);
	struct ibv_qp_attr a = connect_attr(w, 1);
	struct ibv_send_wr send = { .opcode = 99 }, *bad_send;
	EXPLAINS("ibv_destroy_cq", ibv_destroy_cq(w->cq));
	attr.cap.max_send_wr = 1 << 30;
	EXPLAINS("ibv_create_qp", !ibv_create_qp(w->pd, &attr));
	attr = qp_attr(w);
	attr.send_cq = NULL;
	EXPLAINS("ibv_create_qp", !ibv_create_qp(w->pd, &attr));
	EXPLAINS("ibv_post_recv", post_recv(w, qp, 0));
	EXPLAINS("ibv_post_send", post_send(w, qp, 0, 0));
	EXPLAINS("ibv_modify_qp", set_state(qp, IBV_QPS_RTS));
	EXPLAINS("ibv_modify_qp", set_state(qp, IBV_QPS_INIT));
	a.qp_state = IBV_QPS_INIT;
	a.port_num = 4;
	EXPLAINS("ibv_modify_qp", ibv_modify_qp(qp, &a, mask_to[IBV_QPS_INIT]));
	EXPLAINS("ibv_modify_qp", ibv_modify_qp(qp, &a, mask_to[IBV_QPS_INIT] | IBV_QP_QKEY));
	bring_to(w, qp, IBV_QPS_RTS, qp->qp_num);
	EXPLAINS("ibv_post_send", ibv_post_send(qp, &send, &bad_send));
	EXPLAINS("ibv_attach_mcast", ibv_attach_mcast(qp, &a.ah_attr.grh.dgid, 0));
	assert_errno(0, ibv_destroy_qp(qp));
}

/* ---- memory of a parent domain's, while there is some ---- */

static bool is_out;

static void *take_some(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	return is_out ? NULL : IBV_ALLOCATOR_USE_DEFAULT;
}

static void give_nothing(struct ibv_pd *pd, void *context, void *p, uint64_t type) {}

/* Whether it says that there is none. */
#define NO_MEMORY(name, expression)                                             \
	do {                                                                    \
		char said_[4096];                                               \
		int before_, pipe_ = capture(&before_);                         \
		bool none_ = (expression);                                      \
		release(pipe_, before_, said_, sizeof(said_));                  \
		assert_true(none_);                                             \
		check_line(#expression, name, said_);                           \
		if (debugging && !strstr(said_, ": no memory for "))            \
			fail_msg("%s says: %s", #expression, said_);            \
	} while (0)

static void no_memory(void **state)
{
	struct world *w = *state;
	struct ibv_parent_domain_init_attr parent = { .pd = w->pd,
						      .alloc = take_some,
						      .free = give_nothing,
						      .comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS };
	struct ibv_pd *pd = ibv_alloc_parent_domain(w->ctx, &parent);
	struct ibv_cq_init_attr_ex cq_ex = { .cqe = 4,
					     .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
					     .parent_domain = pd };
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_attr more = { .max_wr = 8 };
	assert_non_null(pd);
	struct ibv_cq_ex *cq = ibv_create_cq_ex(w->ctx, &cq_ex);
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	assert_true(cq && srq);
	is_out = true;
	NO_MEMORY("ibv_create_cq_ex", !ibv_create_cq_ex(w->ctx, &cq_ex));
	NO_MEMORY("ibv_resize_cq", ibv_resize_cq(ibv_cq_ex_to_cq(cq), 8) == ENOMEM);
	NO_MEMORY("ibv_create_srq", !ibv_create_srq(pd, &init));
	NO_MEMORY("ibv_modify_srq", ibv_modify_srq(srq, &more, IBV_SRQ_MAX_WR) == ENOMEM);
	is_out = false;
	assert_errno(0, ibv_destroy_srq(srq));
	assert_errno(0, ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	assert_errno(0, ibv_dealloc_pd(pd));
}

/* Of three pieces the one whose memory is gone is named, whichever path finds it out. */
static void gone_piece_of(enum ibv_wr_opcode opcode)
{
	void *state;
	make_world(&state);
	struct world *w = state;
	struct wire x = connected(w, NULL);
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *gone = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(w->pd, gone, page, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	assert_int_equal(munmap(gone, page), 0);
	struct ibv_sge pieces[3] = { sge_at(w, 0, 8), { (uintptr_t)gone, 8, mr->lkey }, sge_at(w, 8, 8) };
	struct ibv_send_wr *bad, wr = { .wr_id = 7,
					.sg_list = pieces,
					.num_sge = 3,
					.opcode = opcode,
					.send_flags = IBV_SEND_SIGNALED,
					.wr.rdma = { (uintptr_t)w->buffer + 64, w->mr->rkey } };
	char text[4096], piece[64];
	int saved, from = capture(&saved);
	int err = opcode == IBV_WR_SEND ? post_recv(w, x.b, 1) : 0;
	if (!err)
		err = ibv_post_send(x.a, &wr, &bad);
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS };
	while (!err && ibv_poll_cq(w->cq, 1, &wc) == 0)
		;
	release(from, saved, text, sizeof(text));
	assert_int_equal(err, 0);
	assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
	snprintf(piece, sizeof(piece), "entry 1 (address 0x%llx,", (unsigned long long)pieces[1].addr);
	if (debugging ? !strstr(text, piece) : *text)
		fail_msg("opcode %d: expected %s, got: %s", (int)opcode, debugging ? piece : "nothing", text);
	assert_errno(0, ibv_dereg_mr(mr));
	disconnected(&x);
	end_world(&state);
}

static void gone_pieces(void **state)
{
	if (!kernel_tells_what_is_mapped())
		SKIP(NOT_TOLD);
	gone_piece_of(IBV_WR_SEND);
	gone_piece_of(IBV_WR_RDMA_WRITE);
	gone_piece_of(IBV_WR_RDMA_READ);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(objects),
		WORLD_TEST(queries),
		WORLD_TEST(queue_pairs),
		WORLD_TEST(no_memory),
		cmocka_unit_test(gone_pieces),
	};
	with_debugging(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
