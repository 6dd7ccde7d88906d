/* SPDX-License-Identifier: BSD-2-Clause */
/* Making and destroying objects: what is granted, what is refused, in which order things may go. */
#include "../../kernel.h"
#include "world.h"

#include <sys/mman.h>

/* ---- protection domains ---- */

static void pd__busy_while_used(void **state)
{
	struct world *w = *state;
	struct ibv_pd *pd = ibv_alloc_pd(w->ctx);
	struct ibv_mr *mr = ibv_reg_mr(pd, w->buffer, 8, 0);
	assert_errno(EBUSY, ibv_dealloc_pd(pd));
	assert_errno(0, ibv_dereg_mr(mr));

	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
	assert_errno(EBUSY, ibv_dealloc_pd(pd));
	assert_errno(0, ibv_destroy_srq(srq));

	struct ibv_qp_init_attr attr = qp_attr(w);
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	assert_errno(EBUSY, ibv_dealloc_pd(pd));
	assert_errno(0, ibv_destroy_qp(qp));

	struct ibv_ah_attr ah_attr = connect_attr(w, 0).ah_attr;
	struct ibv_ah *ah = ibv_create_ah(pd, &ah_attr);
	assert_non_null(ah);
	assert_ptr_equal(ah->pd, pd);
	assert_errno(EBUSY, ibv_dealloc_pd(pd));
	assert_errno(0, ibv_destroy_ah(ah));
	assert_errno(0, ibv_dealloc_pd(pd));
}

static void pd__members(void **state)
{
	struct world *w = *state;
	struct ibv_pd *pd = ibv_alloc_pd(w->ctx);
	assert_ptr_equal(pd->context, w->ctx);
	assert_int_not_equal(pd->handle, w->pd->handle);
	assert_errno(0, ibv_dealloc_pd(pd));
}

/* ---- memory regions ---- */

static void mr__members(void **state)
{
	struct world *w = *state;
	assert_ptr_equal(w->mr->context, w->ctx);
	assert_ptr_equal(w->mr->pd, w->pd);
	assert_ptr_equal(w->mr->addr, w->buffer);
	assert_int_equal(w->mr->length, BUFFER);
	struct ibv_mr *other = ibv_reg_mr(w->pd, w->buffer, BUFFER, 0);
	assert_int_not_equal(other->lkey, w->mr->lkey);
	assert_int_not_equal(other->rkey, w->mr->rkey);
	assert_errno(0, ibv_dereg_mr(other));
}

static void mr__access_flags(void **state)
{
	struct world *w = *state;
	static const int good[] = {
		0,
		IBV_ACCESS_LOCAL_WRITE,
		IBV_ACCESS_REMOTE_READ,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
		ANY_ACCESS,
		ANY_ACCESS | IBV_ACCESS_MW_BIND,
		ANY_ACCESS | IBV_ACCESS_ZERO_BASED,
		ANY_ACCESS | IBV_ACCESS_RELAXED_ORDERING,
		ANY_ACCESS | 1 << 29,
		ANY_ACCESS | IBV_ACCESS_HUGETLB,
	};
	static const int bad[] = { IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC,
				   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, 1 << 10 };
	for (size_t i = 0; i < COUNT(good); i++) {
		int access = good[i];
		struct ibv_mr *mr = ibv_reg_mr(w->pd, w->buffer, 64, access);
		if (!mr)
			fail_msg("access 0x%x: %s", access, strerror(errno));
		assert_errno(0, ibv_dereg_mr(mr));
	}
	for (size_t i = 0; i < COUNT(bad); i++) {
		int access = bad[i];
		assert_null_errno(EINVAL, ibv_reg_mr(w->pd, w->buffer, 64, access));
	}
}

static void mr__zero_length(void **state)
{
	struct world *w = *state;
	struct ibv_mr *mr = ibv_reg_mr(w->pd, NULL, 0, ANY_ACCESS);
	assert_non_null(mr);
	assert_int_equal(mr->length, 0);
	assert_errno(0, ibv_dereg_mr(mr));
}

static void mr__memory_that_is_not_there(void **state)
{
	if (!kernel_tells_what_is_mapped())
		SKIP(NOT_TOLD);
	struct world *w = *state;
	long page = sysconf(_SC_PAGESIZE);
	uint8_t *map = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(munmap(map + page, page), 0);
	assert_null_errno(EFAULT, ibv_reg_mr(w->pd, map, 3 * page, 0));
	assert_null_errno(EFAULT, ibv_reg_mr(w->pd, map + page - 1, 2, 0));
	assert_int_equal(mprotect(map, page, PROT_READ), 0);
	assert_null_errno(EFAULT, ibv_reg_mr(w->pd, map, page, IBV_ACCESS_LOCAL_WRITE));
	struct ibv_mr *mr = ibv_reg_mr(w->pd, map, page, IBV_ACCESS_REMOTE_READ);
	assert_non_null(mr);
	assert_errno(0, ibv_dereg_mr(mr));
	assert_null_errno(EINVAL, ibv_reg_mr(w->pd, w->buffer, SIZE_MAX, 0));
	munmap(map, page);
	munmap(map + 2 * page, page);
}

static void mr__iova(void **state)
{
	struct world *w = *state;
	struct ibv_mr *mr = ibv_reg_mr_iova(w->pd, w->buffer, 64, 0x1000000, ANY_ACCESS);
	assert_non_null(mr);
	assert_ptr_equal(mr->addr, w->buffer);
	assert_errno(0, ibv_dereg_mr(mr));
	mr = ibv_reg_mr_iova2(w->pd, w->buffer, 64, 0, ANY_ACCESS | IBV_ACCESS_RELAXED_ORDERING);
	assert_non_null(mr);
	assert_errno(0, ibv_dereg_mr(mr));
	assert_null_errno(EINVAL, ibv_reg_mr_iova(w->pd, w->buffer, 64, UINT64_MAX - 10, ANY_ACCESS));
}

static void mr__rereg(void **state)
{
	struct world *w = *state;
	struct ibv_pd *pd = ibv_alloc_pd(w->ctx);
	struct ibv_mr *mr = ibv_reg_mr(w->pd, w->buffer, 64, IBV_ACCESS_LOCAL_WRITE);
	uint32_t lkey = mr->lkey;
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, w->buffer + 64, 128, 0), 0);
	assert_ptr_equal(mr->addr, w->buffer + 64);
	assert_int_equal(mr->length, 128);
	assert_int_equal(mr->lkey, lkey); /* peers may know it */
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0), 0);
	assert_ptr_equal(mr->pd, pd);
	assert_errno(EBUSY, ibv_dealloc_pd(pd));
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ANY_ACCESS), 0);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_FLAGS_SUPPORTED, w->pd, w->buffer, 32, 0), 0);
	assert_ptr_equal(mr->pd, w->pd);
	assert_errno(0, ibv_dealloc_pd(pd));
	assert_errno(0, ibv_dereg_mr(mr));
}

static void mr__rereg_refused(void **state)
{
	struct world *w = *state;
	struct ibv_mr *mr = ibv_reg_mr(w->pd, w->buffer, 64, IBV_ACCESS_LOCAL_WRITE);
	uint32_t lkey = mr->lkey;
	assert_int_equal(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, 1 << 5, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 64, 0),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, w->buffer, 0, 0),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(mr->lkey, lkey);
	assert_int_equal(mr->length, 64);
	assert_errno(0, ibv_dereg_mr(mr));
}

/* ---- completion queues and channels ---- */

static void cq__members(void **state)
{
	struct world *w = *state;
	assert_ptr_equal(w->cq->context, w->ctx);
	assert_ptr_equal(w->cq->channel, w->channel);
	assert_ptr_equal(w->cq->cq_context, w);
	assert_true(w->cq->cqe >= 64);
	assert_ptr_equal(w->channel->context, w->ctx);
}

static void cq__refused(void **state)
{
	struct world *w = *state;
	struct ibv_device_attr dev;
	assert_int_equal(ibv_query_device(w->ctx, &dev), 0);
	assert_null_errno(EINVAL, ibv_create_cq(w->ctx, 0, NULL, NULL, 0));
	assert_null_errno(EINVAL, ibv_create_cq(w->ctx, -1, NULL, NULL, 0));
	assert_null_errno(EINVAL, ibv_create_cq(w->ctx, dev.max_cqe + 1, NULL, NULL, 0));
	assert_null_errno(EINVAL, ibv_create_cq(w->ctx, 1, NULL, NULL, w->ctx->num_comp_vectors));
	assert_null_errno(EINVAL, ibv_create_cq(w->ctx, 1, NULL, NULL, -1));
	struct ibv_context *other = open_test_device();
	assert_null_errno(EINVAL, ibv_create_cq(other, 1, NULL, w->channel, 0));
	assert_int_equal(ibv_close_device(other), 0);
	struct ibv_cq *largest = ibv_create_cq(w->ctx, dev.max_cqe, NULL, NULL, 0);
	assert_non_null(largest);
	assert_errno(0, ibv_destroy_cq(largest));
}

static void cq__busy_while_used(void **state)
{
	struct world *w = *state;
	struct ibv_cq *cq = ibv_create_cq(w->ctx, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = qp_attr(w);
	attr.recv_cq = cq;
	struct ibv_qp *qp = ibv_create_qp(w->pd, &attr);
	assert_errno(EBUSY, ibv_destroy_cq(cq));
	assert_errno(EBUSY, ibv_destroy_cq(w->cq));
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_cq(cq));
	assert_errno(EBUSY, ibv_destroy_comp_channel(w->channel));
}

static void cq__resize(void **state)
{
	struct world *w = *state;
	struct ibv_cq *cq = ibv_create_cq(w->ctx, 4, NULL, NULL, 0);
	assert_errno(0, ibv_resize_cq(cq, 100));
	assert_true(cq->cqe >= 100);
	assert_errno(EINVAL, ibv_resize_cq(cq, 0));
	assert_errno(EINVAL, ibv_resize_cq(cq, -5));
	assert_true(cq->cqe >= 100);
	assert_errno(0, ibv_destroy_cq(cq));
}

/* Flushed receives wait in the queue while it changes its size. */
static void cq__resize_keeps_completions(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = make_qp(w, NULL);
	bring_to(w, qp, IBV_QPS_INIT, 0);
	for (uint64_t i = 0; i < 4; i++)
		assert_errno(0, post_recv(w, qp, i));
	assert_errno(0, set_state(qp, IBV_QPS_ERR));
	assert_errno(EINVAL, ibv_resize_cq(w->cq, 3));
	assert_errno(0, ibv_resize_cq(w->cq, 4));
	assert_errno(0, ibv_resize_cq(w->cq, 500));
	for (uint64_t i = 0; i < 4; i++) {
		struct ibv_wc wc = next_wc(w->cq);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(wc.qp_num, qp->qp_num);
	}
	assert_errno(0, ibv_destroy_qp(qp));
}

/* ---- shared receive queues ---- */

static void srq__grants_and_refusals(void **state)
{
	struct world *w = *state;
	struct ibv_device_attr dev;
	struct ibv_srq_attr got;
	assert_int_equal(ibv_query_device(w->ctx, &dev), 0);
	struct ibv_srq_init_attr attr = { .srq_context = w, .attr = { .max_wr = 10, .max_sge = 2 } };
	struct ibv_srq *srq = ibv_create_srq(w->pd, &attr);
	assert_non_null(srq);
	assert_true(attr.attr.max_wr >= 10);
	assert_true(attr.attr.max_sge >= 2);
	assert_ptr_equal(srq->srq_context, w);
	assert_ptr_equal(srq->pd, w->pd);
	assert_errno(0, ibv_query_srq(srq, &got));
	assert_int_equal(got.max_wr, attr.attr.max_wr);
	assert_int_equal(got.max_sge, attr.attr.max_sge);
	assert_int_equal(got.srq_limit, 0);
	assert_errno(0, ibv_destroy_srq(srq));

	attr.attr = (struct ibv_srq_attr){ .max_wr = (uint32_t)dev.max_srq_wr + 1, .max_sge = 1 };
	assert_null_errno(EINVAL, ibv_create_srq(w->pd, &attr));
	attr.attr = (struct ibv_srq_attr){ .max_wr = 1, .max_sge = (uint32_t)dev.max_srq_sge + 1 };
	assert_null_errno(EINVAL, ibv_create_srq(w->pd, &attr));
	attr.attr = (struct ibv_srq_attr){ .max_wr = 0, .max_sge = 1 };
	assert_null_errno(EINVAL, ibv_create_srq(w->pd, &attr));
}

static void srq__modify(void **state)
{
	struct world *w = *state;
	struct ibv_srq *srq = make_srq(w);
	struct ibv_sge sge = sge_at(w, 0, 8);
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_srq_attr attr = { .max_wr = 16, .srq_limit = 0 }, got;
	for (int i = 0; i < 4; i++)
		assert_errno(0, ibv_post_srq_recv(srq, &wr, &bad));
	assert_errno(0, ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
	assert_errno(0, ibv_query_srq(srq, &got));
	assert_true(got.max_wr >= 16);
	attr.max_wr = 3; /* four wait */
	assert_errno(EINVAL, ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
	attr.srq_limit = 3;
	assert_errno(0, ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	assert_errno(0, ibv_query_srq(srq, &got));
	assert_int_equal(got.srq_limit, 3);
	attr.srq_limit = 1000;
	assert_errno(EINVAL, ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	assert_errno(EINVAL, ibv_modify_srq(srq, &attr, 1 << 7));
	assert_errno(0, ibv_destroy_srq(srq));
}

static void srq__busy_while_used(void **state)
{
	struct world *w = *state;
	struct ibv_srq *srq = make_srq(w);
	struct ibv_qp *qp = make_qp(w, srq);
	assert_ptr_equal(qp->srq, srq);
	assert_errno(EBUSY, ibv_destroy_srq(srq));
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_srq(srq));
}

static void srq__extended(void **state)
{
	struct world *w = *state;
	struct ibv_srq_init_attr_ex attr = { .attr = { .max_wr = 8, .max_sge = 1 },
					     .pd = w->pd,
					     .srq_type = IBV_SRQT_BASIC,
					     .comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE };
	struct ibv_srq *srq = ibv_create_srq_ex(w->ctx, &attr);
	uint32_t number;
	assert_non_null(srq);
	assert_errno(EINVAL, ibv_get_srq_num(srq, &number));
	assert_errno(0, ibv_destroy_srq(srq));
	attr.srq_type = IBV_SRQT_XRC; /* without a domain */
	assert_null_errno(EINVAL, ibv_create_srq_ex(w->ctx, &attr));
}

/* ---- queue pairs ---- */

static void qp__members_and_caps(void **state)
{
	struct world *w = *state;
	struct ibv_qp_init_attr attr = qp_attr(w), got;
	struct ibv_qp_attr now;
	attr.qp_context = w;
	struct ibv_qp *qp = ibv_create_qp(w->pd, &attr);
	assert_non_null(qp);
	assert_ptr_equal(qp->context, w->ctx);
	assert_ptr_equal(qp->qp_context, w);
	assert_ptr_equal(qp->pd, w->pd);
	assert_ptr_equal(qp->send_cq, w->cq);
	assert_ptr_equal(qp->recv_cq, w->cq);
	assert_null(qp->srq);
	assert_int_equal(qp->state, IBV_QPS_RESET);
	assert_int_equal(qp->qp_type, IBV_QPT_RC);
	assert_true(qp->qp_num > 1 && qp->qp_num < 1 << 24);
	assert_true(attr.cap.max_send_wr >= DEPTH && attr.cap.max_recv_wr >= DEPTH &&
		    attr.cap.max_send_sge >= SGES && attr.cap.max_recv_sge >= SGES &&
		    attr.cap.max_inline_data >= INLINE);
	assert_errno(0, ibv_query_qp(qp, &now, IBV_QP_CAP | IBV_QP_STATE, &got));
	assert_memory_equal(&now.cap, &attr.cap, sizeof(attr.cap));
	assert_memory_equal(&got.cap, &attr.cap, sizeof(attr.cap));
	assert_ptr_equal(got.qp_context, w);
	assert_ptr_equal(got.send_cq, w->cq);
	assert_int_equal(got.qp_type, IBV_QPT_RC);
	assert_int_equal(got.sq_sig_all, 1);
	assert_int_equal(now.qp_state, IBV_QPS_RESET);
	assert_errno(0, ibv_destroy_qp(qp));
}

static void qp__caps_exceeded(void **state)
{
	struct world *w = *state;
	struct ibv_device_attr dev;
	assert_int_equal(ibv_query_device(w->ctx, &dev), 0);
	for (int i = 0; i < 5; i++) {
		struct ibv_qp_init_attr attr = qp_attr(w);
		uint32_t *caps[] = { &attr.cap.max_send_wr, &attr.cap.max_recv_wr, &attr.cap.max_send_sge,
				     &attr.cap.max_recv_sge, &attr.cap.max_inline_data };
		const uint32_t beyond[] = { (uint32_t)dev.max_qp_wr + 1, (uint32_t)dev.max_qp_wr + 1,
					    (uint32_t)dev.max_sge + 1, (uint32_t)dev.max_sge + 1, 1 << 20 };
		*caps[i] = beyond[i];
		assert_null_errno(EINVAL, ibv_create_qp(w->pd, &attr));
		*caps[i] = UINT32_MAX;
		assert_null_errno(EINVAL, ibv_create_qp(w->pd, &attr));
	}
	struct ibv_qp_init_attr attr = qp_attr(w);
	attr.cap = (struct ibv_qp_cap){ .max_send_wr = (uint32_t)dev.max_qp_wr,
					.max_recv_wr = (uint32_t)dev.max_qp_wr,
					.max_send_sge = (uint32_t)dev.max_sge,
					.max_recv_sge = (uint32_t)dev.max_sge };
	struct ibv_qp *qp = ibv_create_qp(w->pd, &attr);
	assert_non_null(qp);
	assert_errno(0, ibv_destroy_qp(qp));
	attr.cap = (struct ibv_qp_cap){ 0 };
	assert_non_null(qp = ibv_create_qp(w->pd, &attr));
	assert_errno(0, ibv_destroy_qp(qp));
}

static void qp__refused(void **state)
{
	struct world *w = *state;
	struct ibv_qp_init_attr attr = qp_attr(w);
	attr.send_cq = NULL;
	assert_null_errno(EINVAL, ibv_create_qp(w->pd, &attr));
	attr = qp_attr(w);
	attr.recv_cq = NULL;
	assert_null_errno(EINVAL, ibv_create_qp(w->pd, &attr));
	attr = qp_attr(w);
	attr.qp_type = 77;
	assert_null_errno(EINVAL, ibv_create_qp(w->pd, &attr));
	struct ibv_context *other = open_test_device();
	struct ibv_pd *pd = ibv_alloc_pd(other);
	attr = qp_attr(w);
	assert_null_errno(EINVAL, ibv_create_qp(pd, &attr));
	assert_errno(0, ibv_dealloc_pd(pd));
	assert_int_equal(ibv_close_device(other), 0);
}

static void qp__numbers_differ(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qps[50];
	for (size_t i = 0; i < COUNT(qps); i++) {
		qps[i] = make_qp(w, NULL);
		for (size_t j = 0; j < i; j++)
			assert_int_not_equal(qps[i]->qp_num, qps[j]->qp_num);
	}
	for (size_t i = 0; i < COUNT(qps); i++)
		assert_errno(0, ibv_destroy_qp(qps[i]));
}

/* ---- address handles ---- */

static void ah__refused(void **state)
{
	struct world *w = *state;
	struct ibv_ah_attr good = connect_attr(w, 0).ah_attr, a = good;
	a.is_global = 0;
	a.dlid = 1;
	assert_null_errno(EINVAL, ibv_create_ah(w->pd, &a));
	a = good;
	a.port_num = 0;
	assert_null_errno(EINVAL, ibv_create_ah(w->pd, &a));
	a.port_num = 2;
	assert_null_errno(EINVAL, ibv_create_ah(w->pd, &a));
	a = good;
	a.grh.sgid_index = 255;
	assert_null_errno(EINVAL, ibv_create_ah(w->pd, &a));
}

static void put_v4_header(struct ibv_grh *grh, const union ibv_gid *src, const union ibv_gid *dst)
{
	uint8_t *h = (uint8_t *)grh + 20;
	memset(grh, 0, sizeof(*grh));
	h[0] = 0x45;
	h[1] = 0x20;
	h[8] = 64;
	h[9] = 17;
	memcpy(h + 12, src->raw + 12, 4);
	memcpy(h + 16, dst->raw + 12, 4);
	uint32_t sum = 0;
	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)h[i] << 8 | h[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	h[10] = (uint8_t)(~sum >> 8);
	h[11] = (uint8_t)~sum;
}

static void ah__from_wc(void **state)
{
	struct world *w = *state;
	union ibv_gid mine, his = { .raw = { [10] = 0xff, 0xff, 10, 1, 2, 3 } };
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH, .src_qp = 5 };
	struct ibv_ah_attr a;
	struct ibv_grh grh;
	assert_int_equal(ibv_query_gid(w->ctx, 1, 0, &mine), 0);
	if (mine.raw[10] != 0xff)
		SKIP("entry 0 is no IPv4 address on this device");
	put_v4_header(&grh, &his, &mine);
	assert_int_equal(ibv_init_ah_from_wc(w->ctx, 1, &wc, &grh, &a), 0);
	assert_int_equal(a.is_global, 1);
	assert_int_equal(a.port_num, 1);
	assert_int_equal(a.grh.sgid_index, 0);
	assert_int_equal(a.grh.traffic_class, 0x20);
	assert_memory_equal(&a.grh.dgid, &his, sizeof(his));
	struct ibv_ah *ah = ibv_create_ah_from_wc(w->pd, &wc, &grh, 1);
	assert_non_null(ah);
	assert_errno(0, ibv_destroy_ah(ah));
	((uint8_t *)&grh)[20 + 11] ^= 1; /* the checksum is wrong: no IPv4 header */
	assert_minus1_errno(EINVAL, ibv_init_ah_from_wc(w->ctx, 1, &wc, &grh, &a));
	put_v4_header(&grh, &mine, &his); /* not for us */
	assert_int_equal(ibv_init_ah_from_wc(w->ctx, 1, &wc, &grh, &a), -1);
}

/* The bytes at which IPv4's header would be look like one, with its checksum right. */
static void ah__from_wc_of_ipv6(void **state)
{
	struct world *w = *state;
	union ibv_gid mine = { .raw = { [15] = 1 } }, gid;
	struct ibv_grh grh = { .version_tclass_flow = htonl(6u << 28 | 0x20 << 20 | 0x12345),
			       .sgid.raw = { 0xfe, 0x80, [12] = 0x45, 0, 0xba, 0xfe },
			       .dgid = mine };
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH, .src_qp = 5 };
	struct ibv_ah_attr a;
	int index = 0;
	while (!ibv_query_gid(w->ctx, 1, index, &gid) && memcmp(&gid, &mine, sizeof(gid)))
		index++;
	if (memcmp(&gid, &mine, sizeof(gid)))
		SKIP("::1 is no address of this device");
	assert_int_equal(ibv_init_ah_from_wc(w->ctx, 1, &wc, &grh, &a), 0);
	assert_int_equal(a.grh.sgid_index, index);
	assert_int_equal(a.grh.traffic_class, 0x20);
	assert_int_equal(a.grh.flow_label, 0x12345);
	assert_memory_equal(&a.grh.dgid, &grh.sgid, sizeof(gid));
}

/* ---- contexts ---- */

static void context__closed_before_its_objects(void **state)
{
	struct ibv_context *ctx = open_test_device();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	assert_int_equal(ibv_close_device(ctx), 0);
	assert_errno(0, ibv_dealloc_pd(pd));
}

static void device__open_after_list_is_freed(void **state)
{
	struct ibv_context *ctx = open_test_device(), *again = open_test_device();
	assert_ptr_not_equal(ctx, again);
	assert_ptr_equal(ctx->device, again->device);
	assert_int_equal(ibv_close_device(ctx), 0);
	assert_non_null(ibv_get_device_name(again->device));
	assert_int_equal(ibv_close_device(again), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(pd__busy_while_used),
		WORLD_TEST(pd__members),
		WORLD_TEST(mr__members),
		WORLD_TEST(mr__access_flags),
		WORLD_TEST(mr__zero_length),
		WORLD_TEST(mr__memory_that_is_not_there),
		WORLD_TEST(mr__iova),
		WORLD_TEST(mr__rereg),
		WORLD_TEST(mr__rereg_refused),
		WORLD_TEST(cq__members),
		WORLD_TEST(cq__refused),
		WORLD_TEST(cq__busy_while_used),
		WORLD_TEST(cq__resize),
		WORLD_TEST(cq__resize_keeps_completions),
		WORLD_TEST(srq__grants_and_refusals),
		WORLD_TEST(srq__modify),
		WORLD_TEST(srq__busy_while_used),
		WORLD_TEST(srq__extended),
		WORLD_TEST(qp__members_and_caps),
		WORLD_TEST(qp__caps_exceeded),
		WORLD_TEST(qp__refused),
		WORLD_TEST(qp__numbers_differ),
		WORLD_TEST(ah__refused),
		WORLD_TEST(ah__from_wc),
		WORLD_TEST(ah__from_wc_of_ipv6),
		cmocka_unit_test(context__closed_before_its_objects),
		cmocka_unit_test(device__open_after_list_is_freed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
