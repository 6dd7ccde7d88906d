/* SPDX-License-Identifier: BSD-2-Clause */
/* Handles on handles: thread and parent domains, imports; and regions whose memory is not the program's. */
#include "world.h"

#include <sys/mman.h>
#include <unistd.h>

/* ---- thread and parent domains ---- */

struct heap {
	struct ibv_pd *pd;
	int taken, given;
	bool defaults, empty;
};

static void *heap_take(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	struct heap *heap = context;
	void *p = NULL;
	assert_ptr_equal(pd, heap->pd);
	if (heap->defaults)
		return IBV_ALLOCATOR_USE_DEFAULT;
	heap->taken++;
	return heap->empty || posix_memalign(&p, alignment, size) ? NULL : p;
}

static void heap_give(struct ibv_pd *pd, void *context, void *p, uint64_t type)
{
	struct heap *heap = context;
	assert_ptr_equal(pd, heap->pd);
	heap->given++;
	free(p);
}

static struct ibv_pd *parent_with(struct world *w, struct heap *heap)
{
	struct ibv_parent_domain_init_attr attr = { .pd = w->pd,
						    .alloc = heap_take,
						    .free = heap_give,
						    .pd_context = heap,
						    .comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
								 IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT };
	heap->pd = ibv_alloc_parent_domain(w->ctx, &attr);
	assert_non_null(heap->pd);
	return heap->pd;
}

static void parent__allocates_queues(void **state)
{
	struct world *w = *state;
	struct heap heap = { .taken = 0 };
	struct ibv_pd *pd = parent_with(w, &heap);
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 8,
					       .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
					       .parent_domain = pd };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(w->ctx, &cq_attr);
	assert_non_null(cq);
	assert_int_equal(heap.taken, 1);
	assert_errno(0, ibv_resize_cq(ibv_cq_ex_to_cq(cq), 100));
	assert_int_equal(heap.taken - heap.given, 1);
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
	assert_non_null(srq);
	struct ibv_qp_init_attr attr = qp_attr(w);
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	assert_non_null(qp);
	assert_ptr_equal(qp->pd, pd);
	assert_int_equal(heap.taken - heap.given, 4); /* CQ, SRQ, send and receive queue */
	assert_errno(EBUSY, ibv_dealloc_pd(pd));
	assert_errno(EBUSY, ibv_dealloc_pd(w->pd));
	struct ibv_mr *mr = ibv_reg_mr(pd, w->buffer, 64, 0); /* of the same domain */
	assert_non_null(mr);
	assert_errno(0, ibv_dereg_mr(mr));
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_srq(srq));
	assert_errno(0, ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	assert_int_equal(heap.taken, heap.given);
	assert_errno(0, ibv_dealloc_pd(pd));
}

static void parent__without_memory(void **state)
{
	struct world *w = *state;
	struct heap heap = { .empty = true };
	struct ibv_pd *pd = parent_with(w, &heap);
	struct ibv_qp_init_attr attr = qp_attr(w);
	assert_null_errno(ENOMEM, ibv_create_qp(pd, &attr));
	heap.defaults = true;
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	assert_non_null(qp);
	assert_errno(0, ibv_destroy_qp(qp));
	assert_int_equal(heap.given, 0);
	assert_errno(0, ibv_dealloc_pd(pd));
}

static void parent__refused(void **state)
{
	struct world *w = *state;
	struct ibv_td_init_attr bad_td = { .comp_mask = 1 }, td_attr = { .comp_mask = 0 };
	assert_null_errno(EINVAL, ibv_alloc_td(w->ctx, &bad_td));
	struct ibv_td *td = ibv_alloc_td(w->ctx, &td_attr);
	assert_non_null(td);
	struct ibv_parent_domain_init_attr attr = { .pd = NULL, .td = td };
	assert_null_errno(EINVAL, ibv_alloc_parent_domain(w->ctx, &attr));
	attr.pd = w->pd;
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	assert_null_errno(EINVAL, ibv_alloc_parent_domain(w->ctx, &attr));
	attr.comp_mask = 1 << 7;
	assert_null_errno(EINVAL, ibv_alloc_parent_domain(w->ctx, &attr));
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;
	struct ibv_pd *pd = ibv_alloc_parent_domain(w->ctx, &attr);
	assert_non_null(pd);
	attr.pd = pd;
	assert_null_errno(EINVAL, ibv_alloc_parent_domain(w->ctx, &attr));
	assert_errno(EBUSY, ibv_dealloc_td(td));
	assert_errno(0, ibv_dealloc_pd(pd));
	assert_errno(0, ibv_dealloc_td(td));
}

/* Older programs have a structure that ends with comp_mask; here nothing can be read behind it. */
static void parent__of_an_old_program(void **state)
{
	enum { OLD = offsetof(struct ibv_parent_domain_init_attr, alloc) };
	struct world *w = *state;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(pages != MAP_FAILED && !mprotect(pages + page, page, PROT_NONE));
	struct ibv_parent_domain_init_attr *attr = (void *)(pages + page - OLD);
	attr->pd = w->pd;
	struct ibv_pd *parent = ibv_alloc_parent_domain(w->ctx, attr);
	assert_non_null(parent);
	assert_errno(0, ibv_dealloc_pd(parent));
	munmap(pages, 2 * page);
}

/*
 * Two starts without an end between them: where a lock is held from start to end, the second would wait for
 * ever.
 */
static void thread_domain__leaves_locks_out(void **state)
{
	struct world *w = *state;
	struct ibv_td_init_attr td_attr = { .comp_mask = 0 };
	struct ibv_td *td = ibv_alloc_td(w->ctx, &td_attr);
	struct ibv_parent_domain_init_attr attr = { .pd = w->pd, .td = td };
	struct ibv_pd *pd = ibv_alloc_parent_domain(w->ctx, &attr);
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 8,
					       .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
					       .parent_domain = pd };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(w->ctx, &cq_attr);
	assert_non_null(cq);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = ibv_cq_ex_to_cq(cq),
		.recv_cq = ibv_cq_ex_to_cq(cq),
		.qp_type = IBV_QPT_RC,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
		.cap = { .max_send_wr = 2, .max_send_sge = 1, .max_recv_wr = 2, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
	};
	struct ibv_qp *qp = ibv_create_qp_ex(w->ctx, &init);
	assert_non_null(qp);
	bring_to(w, qp, IBV_QPS_RTS, qp->qp_num);
	assert_errno(0, post_recv(w, qp, 1));
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	ibv_wr_start(ex);
	ibv_wr_start(ex);
	ex->wr_id = 2;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, w->mr->lkey, (uintptr_t)w->buffer, 8);
	assert_errno(0, ibv_wr_complete(ex));
	struct ibv_poll_cq_attr poll = { .comp_mask = 0 };
	for (int i = 0; i < 2; i++) {
		while (ibv_start_poll(cq, &poll) == ENOENT)
			;
		assert_int_equal(cq->status, IBV_WC_SUCCESS);
	}
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	assert_errno(0, ibv_dealloc_pd(pd));
	assert_errno(0, ibv_dealloc_td(td));
}

/* ---- imports ---- */

static void import__within_a_process(void **state)
{
	struct world *w = *state;
	int fd = dup(w->ctx->cmd_fd), other = open("/dev/null", O_RDONLY);
	assert_null_errno(EOPNOTSUPP, ibv_import_device(other));
	close(other);
	struct ibv_context *ctx = ibv_import_device(fd);
	assert_non_null(ctx);
	assert_string_equal(ibv_get_device_name(ctx->device), ibv_get_device_name(w->ctx->device));
	assert_null_errno(ENOENT, ibv_import_pd(ctx, 0x7fffffff));
	struct ibv_pd *pd = ibv_import_pd(ctx, w->pd->handle);
	assert_non_null(pd);
	assert_null_errno(ENOENT, ibv_import_mr(pd, 0x12345678));
	struct ibv_mr *mr = ibv_import_mr(pd, w->mr->handle);
	assert_non_null(mr);
	assert_int_equal(mr->lkey, w->mr->lkey);
	assert_int_equal(mr->length, w->mr->length);
	assert_null(mr->addr);
	assert_errno(EINVAL, ibv_dereg_mr(mr)); /* its owner may, and this leaves it */
	assert_rereg_errno(EINVAL, ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0));
	struct ibv_alloc_dm_attr attr = { .length = 4096 };
	struct ibv_dm *dm = ibv_alloc_dm(w->ctx, &attr), *same = dm ? ibv_import_dm(ctx, dm->handle) : NULL;
	uint32_t word = 0x11223344, back = 0;
	assert_non_null(same);
	assert_null_errno(ENOENT, ibv_import_dm(ctx, dm->handle + 1000));
	assert_errno(0, ibv_memcpy_to_dm(dm, 8, &word, 4));
	assert_errno(0, ibv_free_dm(dm));
	assert_errno(0, ibv_memcpy_from_dm(&back, same, 8, 4));
	assert_int_equal(back, word);
	ibv_unimport_dm(same);
	ibv_unimport_mr(mr);
	ibv_unimport_pd(pd);
	assert_int_equal(ibv_close_device(ctx), 0);
}

/* They stay until the program tries again. */
static void import__handles_in_use(void **state)
{
	struct world *w = *state;
	struct ibv_alloc_dm_attr attr = { .length = 4096 };
	struct ibv_dm *dm = ibv_alloc_dm(w->ctx, &attr);
	assert_non_null(dm);
	struct ibv_dm *same = ibv_import_dm(w->ctx, dm->handle);
	struct ibv_pd *pd = ibv_import_pd(w->ctx, w->pd->handle);
	assert_non_null(same);
	assert_non_null(pd);
	struct ibv_mr *mr = ibv_reg_mr(pd, w->buffer, 64, 0);
	struct ibv_mr *of_device = ibv_reg_dm_mr(pd, same, 0, 64, IBV_ACCESS_ZERO_BASED);
	assert_non_null(mr);
	assert_non_null(of_device);
	ibv_unimport_dm(same);
	ibv_unimport_pd(pd);
	assert_errno(0, ibv_dereg_mr(of_device));
	ibv_unimport_dm(same);
	ibv_unimport_pd(pd);
	assert_errno(0, ibv_dereg_mr(mr));
	ibv_unimport_pd(pd);
	assert_errno(0, ibv_free_dm(dm));
}

/* ---- memory that is not the program's ---- */

static void dmabuf__what_can_be_mapped(void **state)
{
	struct world *w = *state;
	const long page = sysconf(_SC_PAGESIZE);
	int fd = memfd_create("buffer", MFD_CLOEXEC), nothing = open("/dev/null", O_RDONLY);
	assert_int_equal(ftruncate(fd, 4 * page), 0);
	assert_null_errno(ENODEV, ibv_reg_dmabuf_mr(w->pd, 0, 8, 0, nothing, 0));
	assert_null_errno(EBADF, ibv_reg_dmabuf_mr(w->pd, 0, 8, 0, -1, 0));
	assert_null_errno(EINVAL, ibv_reg_dmabuf_mr(w->pd, 0, 0, 0, fd, 0));
	assert_null_errno(EINVAL, ibv_reg_dmabuf_mr(w->pd, 8, 8, 0, fd, 0));
	assert_null_errno(EINVAL, ibv_reg_dmabuf_mr(w->pd, 0, 8, 0, fd, IBV_ACCESS_REMOTE_WRITE));
	assert_null_errno(EINVAL, ibv_reg_dmabuf_mr(w->pd, 0, 8, 0, fd, IBV_ACCESS_ON_DEMAND));
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(w->pd, page + 100, 1000, 0x1000064, fd, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0),
			 IBV_REREG_MR_ERR_INPUT);
	/* A send to itself, whose receive is the buffer. */
	struct ibv_qp *qp = make_qp(w, NULL);
	bring_to(w, qp, IBV_QPS_RTS, qp->qp_num);
	struct ibv_sge sge = { 0x1000064 + 8, 64, mr->lkey };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };
	assert_errno(0, ibv_post_recv(qp, &wr, &bad));
	assert_errno(0, post_send(w, qp, 1, 0));
	assert_int_equal(next_wc(w->cq).status, IBV_WC_SUCCESS);
	assert_int_equal(next_wc(w->cq).status, IBV_WC_SUCCESS);
	uint8_t seen[8];
	assert_int_equal(pread(fd, seen, sizeof(seen), page + 100 + 8), 8);
	assert_memory_equal(seen, w->buffer, 8);
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_dereg_mr(mr));
	close(fd);
	close(nothing);
}

static void regions__limits(void **state)
{
	struct world *w = *state;
	struct ibv_mr *null = ibv_alloc_null_mr(w->pd);
	struct ibv_pd *other = ibv_alloc_pd(w->ctx);
	assert_non_null(null);
	assert_int_equal(ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, w->buffer, 8, 0),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0), 0);
	assert_errno(EBUSY, ibv_dealloc_pd(other));
	assert_errno(0, ibv_dereg_mr(null));
	assert_errno(0, ibv_dealloc_pd(other));
	struct ibv_alloc_dm_attr attr = { .length = 0 };
	assert_null_errno(EINVAL, ibv_alloc_dm(w->ctx, &attr));
	attr = (struct ibv_alloc_dm_attr){ .length = 8, .comp_mask = 1 };
	assert_null_errno(EINVAL, ibv_alloc_dm(w->ctx, &attr));
	attr = (struct ibv_alloc_dm_attr){ .length = 8, .log_align_req = 60 };
	assert_null_errno(EINVAL, ibv_alloc_dm(w->ctx, &attr));
	struct ibv_device_attr_ex ex;
	assert_errno(0, ibv_query_device_ex(w->ctx, NULL, &ex));
	attr = (struct ibv_alloc_dm_attr){ .length = ex.max_dm_size };
	struct ibv_dm *all = ibv_alloc_dm(w->ctx, &attr);
	assert_non_null(all);
	attr.length = 4;
	assert_null_errno(ENOMEM, ibv_alloc_dm(w->ctx, &attr));
	assert_errno(0, ibv_free_dm(all));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(parent__allocates_queues),
		WORLD_TEST(parent__without_memory),
		WORLD_TEST(parent__refused),
		WORLD_TEST(parent__of_an_old_program),
		WORLD_TEST(thread_domain__leaves_locks_out),
		WORLD_TEST(import__within_a_process),
		WORLD_TEST(import__handles_in_use),
		WORLD_TEST(dmabuf__what_can_be_mapped),
		WORLD_TEST(regions__limits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
