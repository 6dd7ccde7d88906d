/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What rdma-core has had since release 44: DMA handles, regions of any kind, buffers, the port's speed,
 * completion counters.
 */
#include "world.h"

#include <sys/mman.h>

/* ---- DMA handles and regions ---- */

static void dmah__is_named_by_regions(void **state)
{
	struct world *w = *state;
	struct ibv_dmah_init_attr attr = { .comp_mask = 1 << 7 };
	assert_null_errno(EOPNOTSUPP, ibv_alloc_dmah(w->ctx, &attr));
	attr = (struct ibv_dmah_init_attr){ .comp_mask = IBV_DMAH_INIT_ATTR_MASK_CPU_ID, .cpu_id = 1u << 30 };
	assert_null_errno(EINVAL, ibv_alloc_dmah(w->ctx, &attr));
	attr = (struct ibv_dmah_init_attr){ .comp_mask = IBV_DMAH_INIT_ATTR_MASK_PH, .ph = 4 };
	assert_null_errno(EINVAL, ibv_alloc_dmah(w->ctx, &attr));
	attr = (struct ibv_dmah_init_attr){ .comp_mask = IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE,
					    .tph_mem_type = 2 };
	assert_null_errno(EINVAL, ibv_alloc_dmah(w->ctx, &attr));
	attr = (struct ibv_dmah_init_attr){ .comp_mask = IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE,
					    .tph_mem_type = IBV_TPH_MEM_TYPE_VM };
	struct ibv_dmah *ordinary = ibv_alloc_dmah(w->ctx, &attr);
	assert_non_null(ordinary);
	assert_errno(0, ibv_dealloc_dmah(ordinary));
	attr = (struct ibv_dmah_init_attr){ .comp_mask = 7, .ph = 3, .tph_mem_type = IBV_TPH_MEM_TYPE_PM };
	struct ibv_dmah *dmah = ibv_alloc_dmah(w->ctx, &attr);
	assert_non_null(dmah);
	struct ibv_mr_init_attr in = { .comp_mask = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_DMAH,
				       .addr = w->buffer,
				       .length = BUFFER,
				       .dmah = dmah };
	struct ibv_mr *mr = ibv_reg_mr_ex(w->pd, &in);
	assert_non_null(mr);
	assert_errno(EBUSY, ibv_dealloc_dmah(dmah));
	assert_errno(0, ibv_dereg_mr(mr));
	in.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND;
	assert_null_errno(EINVAL, ibv_reg_mr_ex(w->pd, &in));
	in.access = 0;
	struct ibv_context *other = open_test_device();
	struct ibv_pd *pd = ibv_alloc_pd(other);
	assert_null_errno(EINVAL, ibv_reg_mr_ex(pd, &in));
	assert_errno(0, ibv_dealloc_pd(pd));
	assert_int_equal(ibv_close_device(other), 0);
	assert_errno(0, ibv_dealloc_dmah(dmah));
}

/* Sends `bytes` from one region into another and compares. */
static void moves(struct world *w, struct ibv_mr *from, uint64_t from_at, struct ibv_mr *to, uint64_t to_at,
		  uint32_t bytes)
{
	struct wire x = connected(w, NULL);
	struct ibv_sge source = { from_at, bytes, from->lkey }, target = { to_at, bytes, to->lkey };
	struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = &target, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .wr_id = 2, .sg_list = &source, .num_sge = 1, .opcode = IBV_WR_SEND },
			   *bad;
	assert_errno(0, ibv_post_recv(x.b, &recv, &bad_recv));
	assert_errno(0, ibv_post_send(x.a, &send, &bad));
	for (int i = 0; i < 2; i++)
		assert_int_equal(next_wc(w->cq).status, IBV_WC_SUCCESS);
	disconnected(&x);
}

static void reg_mr_ex__takes_addresses_and_descriptors(void **state)
{
	struct world *w = *state;
	enum { IOVA = 0x40000 };
	struct ibv_mr_init_attr in = { .comp_mask = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_IOVA,
				       .addr = w->buffer + 1024,
				       .length = 512,
				       .iova = IOVA,
				       .access = IBV_ACCESS_LOCAL_WRITE };
	struct ibv_mr *mr = ibv_reg_mr_ex(w->pd, &in);
	assert_non_null(mr);
	assert_ptr_equal(mr->addr, w->buffer + 1024);
	memset(w->buffer, 0x5a, 512);
	moves(w, w->mr, (uintptr_t)w->buffer, mr, IOVA, 512);
	assert_memory_equal(w->buffer + 1024, w->buffer, 512);
	assert_errno(0, ibv_dereg_mr(mr));

	int fd = memfd_create("buffer", MFD_CLOEXEC);
	long page = sysconf(_SC_PAGESIZE);
	assert_int_equal(ftruncate(fd, 2 * page), 0);
	in = (struct ibv_mr_init_attr){ .comp_mask = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET,
					.fd = fd,
					.fd_offset = (uint64_t)page + 64,
					.length = 64,
					.access = IBV_ACCESS_LOCAL_WRITE };
	mr = ibv_reg_mr_ex(w->pd, &in);
	assert_non_null(mr);
	moves(w, w->mr, (uintptr_t)w->buffer, mr, in.fd_offset, 64);
	uint8_t back[64];
	assert_int_equal(pread(fd, back, sizeof(back), (off_t)in.fd_offset), 64);
	assert_memory_equal(back, w->buffer, sizeof(back));
	assert_errno(0, ibv_dereg_mr(mr));
	in.comp_mask |= IBV_REG_MR_MASK_IOVA; /* elsewhere in its page than the offset */
	in.iova = 0;
	assert_null_errno(EINVAL, ibv_reg_mr_ex(w->pd, &in));
	close(fd);
}

static void reg_mr_ex__refused(void **state)
{
	struct world *w = *state;
	static const struct {
		uint64_t mask;
		int err;
	} wrong[] = {
		{ 0, EINVAL },
		{ IBV_REG_MR_MASK_IOVA, EINVAL },
		{ IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_FD, EINVAL },
		{ IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_FD_OFFSET, EINVAL },
		{ IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_BUF, EINVAL },
		{ IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_DMAH, EINVAL },
		{ IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_BUF, EINVAL },
		{ IBV_REG_MR_MASK_ADDR | 1ull << 40, EOPNOTSUPP },
	};
	for (size_t i = 0; i < COUNT(wrong); i++) {
		struct ibv_mr_init_attr in = {
			.comp_mask = wrong[i].mask, .addr = w->buffer, .length = 64, .fd = -1
		};
		assert_null_errno(wrong[i].err, ibv_reg_mr_ex(w->pd, &in));
	}
	struct ibv_mr_init_attr in = { .comp_mask = IBV_REG_MR_MASK_ADDR,
				       .addr = w->buffer,
				       .length = 64,
				       .access = IBV_ACCESS_REMOTE_WRITE };
	assert_null_errno(EINVAL, ibv_reg_mr_ex(w->pd, &in));
}

static void buf__is_memory_of_its_domain(void **state)
{
	struct world *w = *state;
	struct ibv_buf *buf;
	enum { BYTES = 10000 };
	assert_null_errno(EINVAL, ibv_alloc_buf(w->pd, 0, &buf));
	uint8_t *at = ibv_alloc_buf(w->pd, BYTES, &buf);
	assert_non_null(at);
	for (int i = 0; i < BYTES; i++)
		assert_int_equal(at[i], 0);
	struct ibv_pd *other = ibv_alloc_pd(w->ctx);
	assert_null_errno(EINVAL, ibv_reg_buf_mr(other, buf, at, BYTES, 0));
	assert_null_errno(EINVAL, ibv_reg_buf_mr(w->pd, buf, at + 1, BYTES, 0));
	assert_null_errno(EINVAL, ibv_reg_buf_mr(w->pd, buf, at - 1, 1, 0));
	struct ibv_mr *mr = ibv_reg_buf_mr(w->pd, buf, at + 100, BYTES - 100, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	memset(w->buffer, 0x33, 100);
	moves(w, w->mr, (uintptr_t)w->buffer, mr, (uintptr_t)at + 100, 100);
	assert_memory_equal(at + 100, w->buffer, 100);
	assert_errno(0, ibv_dereg_mr(mr));
	struct ibv_mr_init_attr in = { .comp_mask = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_BUF,
				       .addr = at,
				       .length = BYTES,
				       .buf = buf };
	assert_null_errno(EINVAL, ibv_reg_mr_ex(other, &in));
	assert_non_null(mr = ibv_reg_mr_ex(w->pd, &in));
	assert_errno(0, ibv_dereg_mr(mr));
	assert_minus1_errno(ENODATA, ibv_export_buf_dmabuf_fd(buf));
	ibv_free_buf(buf);
	assert_errno(0, ibv_dealloc_pd(other));
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(w->ctx, &attr);
	assert_non_null(dm);
	assert_minus1_errno(EOPNOTSUPP, ibv_dm_export_dmabuf_fd(dm));
	assert_errno(0, ibv_free_dm(dm));
}

static void port__has_a_speed(void **state)
{
	struct world *w = *state;
	uint64_t speed = 0;
	assert_errno(EINVAL, ibv_query_port_speed(w->ctx, 2, &speed));
	assert_errno(0, ibv_query_port_speed(w->ctx, 1, &speed));
	assert_true(speed > 0);
}

/* ---- completion counters ---- */

static struct ibv_comp_cntr *counter(struct world *w, enum ibv_comp_cntr_type type)
{
	struct ibv_comp_cntr_init_attr attr = { .type = type };
	struct ibv_comp_cntr *c = ibv_create_comp_cntr(w->ctx, &attr);
	assert_non_null(c);
	return c;
}

static void counts(struct ibv_comp_cntr *c, uint64_t done, uint64_t failed)
{
	uint64_t value;
	assert_errno(0, ibv_read_comp_cntr(c, &value));
	assert_int_equal(value, done);
	assert_errno(0, ibv_read_err_comp_cntr(c, &value));
	assert_int_equal(value, failed);
}

static int attach(struct ibv_qp *qp, struct ibv_comp_cntr *c, uint32_t ops)
{
	struct ibv_qp_attach_comp_cntr_attr attr = { .op_mask = ops };
	return ibv_qp_attach_comp_cntr(qp, c, &attr);
}

static void counter__is_set_and_incremented(void **state)
{
	struct world *w = *state;
	struct ibv_comp_cntr *c = counter(w, IBV_COMP_CNTR_TYPE_WRS);
	counts(c, 0, 0);
	assert_errno(0, ibv_set_comp_cntr(c, 41));
	assert_errno(0, ibv_inc_comp_cntr(c, 1));
	assert_errno(0, ibv_set_err_comp_cntr(c, UINT64_MAX));
	counts(c, 42, UINT64_MAX);
	assert_errno(0, ibv_inc_err_comp_cntr(c, 3));
	counts(c, 42, 2); /* it wraps */
	assert_errno(0, ibv_destroy_comp_cntr(c));
}

static void write_some(struct world *w, struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t bytes,
		       uint32_t rkey)
{
	struct ibv_sge sge = sge_at(w, 1024, bytes);
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.wr.rdma = { .remote_addr = (uintptr_t)w->buffer, .rkey = rkey } };
	assert_errno(0, ibv_post_send(qp, &wr, &bad));
}

static void counter__counts_what_it_is_attached_to(void **state)
{
	struct world *w = *state;
	struct ibv_comp_cntr *sends = counter(w, IBV_COMP_CNTR_TYPE_WRS),
			     *bytes = counter(w, IBV_COMP_CNTR_TYPE_BYTES),
			     *receives = counter(w, IBV_COMP_CNTR_TYPE_WRS);
	struct wire x = { make_qp(w, NULL), make_qp(w, NULL) };
	assert_errno(0, attach(x.a, sends, IBV_QP_ATTACH_COMP_CNTR_OP_SEND));
	assert_errno(0, attach(x.a, bytes,
			       IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ | IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE));
	assert_errno(0, attach(x.b, receives, IBV_QP_ATTACH_COMP_CNTR_OP_RECV));
	bring_to(w, x.a, IBV_QPS_RTS, x.b->qp_num);
	bring_to(w, x.b, IBV_QPS_RTS, x.a->qp_num);
	for (uint64_t i = 0; i < 3; i++) {
		assert_errno(0, post_recv(w, x.b, 1));
		assert_errno(0, post_send(w, x.a, 2, 0));
		drain(w->cq, 2);
	}
	write_some(w, x.a, IBV_WR_RDMA_WRITE, 100, w->mr->rkey);
	write_some(w, x.a, IBV_WR_RDMA_READ, 20, w->mr->rkey);
	drain(w->cq, 2);
	counts(sends, 3, 0);
	counts(receives, 3, 0);
	counts(bytes, 120, 0);
	write_some(w, x.a, IBV_WR_RDMA_WRITE, 100, w->mr->rkey + 1); /* no such key */
	assert_int_equal(next_wc(w->cq).status, IBV_WC_REM_ACCESS_ERR);
	assert_errno(0, post_send(w, x.a, 2, 0)); /* flushed */
	drain(w->cq, 1);
	counts(bytes, 120, 1);
	counts(sends, 3, 1);
	assert_errno(EBUSY, ibv_destroy_comp_cntr(sends));
	disconnected(&x);
	assert_errno(0, ibv_destroy_comp_cntr(sends));
	assert_errno(0, ibv_destroy_comp_cntr(bytes));
	assert_errno(0, ibv_destroy_comp_cntr(receives));
}

static void counter__refused(void **state)
{
	struct world *w = *state;
	struct ibv_comp_cntr_init_attr bad[] = { { .comp_mask = 1 }, { .flags = 1 }, { .type = 2 } };
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_null_errno(EINVAL, ibv_create_comp_cntr(w->ctx, &bad[i]));
	struct ibv_comp_cntr_caps caps;
	uint64_t first; /* all that a program of before the other members has room for */
	assert_errno(0, _ibv_query_comp_cntr_caps(w->ctx, (struct ibv_comp_cntr_caps *)(void *)&first,
						  sizeof(first)));
	assert_true(first == UINT64_MAX);
	assert_errno(0, ibv_query_comp_cntr_caps(w->ctx, &caps));
	assert_true(caps.max_value == UINT64_MAX && caps.max_counters > 0);
	assert_false(caps.supported_qp_attach_ops & IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE);
	struct ibv_comp_cntr *c = counter(w, IBV_COMP_CNTR_TYPE_WRS),
			     *other = counter(w, IBV_COMP_CNTR_TYPE_WRS);
	struct ibv_qp *qp = make_qp(w, NULL);
	assert_errno(EINVAL, attach(qp, c, 0));
	assert_errno(EOPNOTSUPP, attach(qp, c, IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ));
	struct ibv_qp_attach_comp_cntr_attr masked = { .comp_mask = 1,
						       .op_mask = IBV_QP_ATTACH_COMP_CNTR_OP_SEND };
	assert_errno(EINVAL, ibv_qp_attach_comp_cntr(qp, c, &masked));
	assert_errno(0, attach(qp, c, IBV_QP_ATTACH_COMP_CNTR_OP_SEND));
	assert_errno(EBUSY,
		     attach(qp, other, IBV_QP_ATTACH_COMP_CNTR_OP_RECV | IBV_QP_ATTACH_COMP_CNTR_OP_SEND));
	assert_errno(0, ibv_destroy_comp_cntr(other)); /* nothing of it was attached */
	bring_to(w, qp, IBV_QPS_RTR, qp->qp_num);
	assert_errno(EINVAL, attach(qp, c, IBV_QP_ATTACH_COMP_CNTR_OP_RECV));
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_comp_cntr(c));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(dmah__is_named_by_regions),
		WORLD_TEST(reg_mr_ex__takes_addresses_and_descriptors),
		WORLD_TEST(reg_mr_ex__refused),
		WORLD_TEST(buf__is_memory_of_its_domain),
		WORLD_TEST(port__has_a_speed),
		WORLD_TEST(counter__is_set_and_incremented),
		WORLD_TEST(counter__counts_what_it_is_attached_to),
		WORLD_TEST(counter__refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
