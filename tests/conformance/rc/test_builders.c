/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The calls of ibv_wr_post(3) that the other tests do not make, and what their completions tell by an
 * extended queue.
 */
#include "rc.h"

#include <arpa/inet.h>

enum {
	OPS = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
	      IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_BIND_MW |
	      IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_FLUSH
};

struct built {
	struct ibv_cq_ex *cq; /* of the receives */
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
	struct card peer;
};

static void build(struct end *e, struct built *b)
{
	struct params p = params();
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	p.mr_access |= IBV_ACCESS_MW_BIND | IBV_ACCESS_FLUSH_GLOBAL;
	p.qp_access |= IBV_ACCESS_FLUSH_GLOBAL;
	rc_open(e, &p);
	CHECK(b->cq = ibv_create_cq_ex(e->ctx, &cq_attr));
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = e->scq,
		.recv_cq = ibv_cq_ex_to_cq(b->cq),
		.pd = e->pd,
		.sq_sig_all = 1,
		.cap = p.cap,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = OPS,
	};
	CHECK(b->qp = ibv_create_qp_ex(e->ctx, &attr));
	CHECK(b->ex = ibv_qp_to_qp_ex(b->qp));
	b->peer = rc_connect(e, b->qp);
	meet(e);
}

static void tear_down(struct end *e, struct built *b)
{
	meet(e);
	CHECK_EQ(ibv_destroy_qp(b->qp), 0);
	CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(b->cq)), 0);
	rc_close(e);
}

static void begin(struct built *b, uint64_t id)
{
	ibv_wr_start(b->ex);
	b->ex->wr_id = id;
	b->ex->wr_flags = 0;
}

static void finish(struct end *e, struct built *b, uint64_t id, enum ibv_wc_status status)
{
	CHECK_EQ(ibv_wr_complete(b->ex), 0);
	rc_expect(e->scq, id, status);
}

/* The next receive. */
static void next(struct built *b, uint64_t id)
{
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t until = rc_now_ms() + 20000;
	int err;
	while ((err = ibv_start_poll(b->cq, &attr)) && rc_now_ms() < until)
		CHECK_EQ(err, 2); /* ENOENT */
	CHECK_EQ(err, 0);
	CHECK_EQ(b->cq->wr_id, id);
	CHECK_EQ(b->cq->status, IBV_WC_SUCCESS);
}

static void writes(struct end *e)
{
	struct built b;
	uint64_t word = 0x1122334455667788;
	build(e, &b);
	if (e->passive) {
		CHECK_EQ(rc_post_recv(e, b.qp, 7, 0, 64), 0);
		meet(e);
		next(&b, 7);
		CHECK_EQ(ibv_wc_read_opcode(b.cq), IBV_WC_RECV_RDMA_WITH_IMM);
		CHECK_EQ(ibv_wc_read_wc_flags(b.cq), IBV_WC_WITH_IMM);
		CHECK_EQ(ntohl(ibv_wc_read_imm_data(b.cq)), 99);
		CHECK_EQ(ibv_wc_read_byte_len(b.cq), 1000);
		ibv_end_poll(b.cq);
		CHECK_EQ(rc_word(e->buf + 512), word);
		VERIFY(e->buf + 4096, 1000, e->seed);
	} else {
		rc_fill(e->buf, 1000, e->seed);
		meet(e);
		begin(&b, 1);
		ibv_wr_atomic_write(b.ex, b.peer.rkey, b.peer.addr + 512, &word);
		finish(e, &b, 1, IBV_WC_SUCCESS);
		begin(&b, 2);
		ibv_wr_rdma_write_imm(b.ex, b.peer.rkey, b.peer.addr + 4096, htonl(99));
		ibv_wr_set_sge(b.ex, e->mr->lkey, (uintptr_t)e->buf, 1000);
		finish(e, &b, 2, IBV_WC_SUCCESS);
	}
	tear_down(e, &b);
}

static struct ibv_mw *bind_window(struct end *e, struct built *b, uint64_t id, uint32_t *rkey)
{
	struct ibv_mw *mw = ibv_alloc_mw(e->pd, IBV_MW_TYPE_2);
	CHECK(mw);
	struct ibv_mw_bind_info info = { .mr = e->mr,
					 .addr = (uintptr_t)e->buf + 8192,
					 .length = 4096,
					 .mw_access_flags = IBV_ACCESS_REMOTE_WRITE };
	*rkey = ibv_inc_rkey(mw->rkey);
	begin(b, id);
	ibv_wr_bind_mw(b->ex, mw, *rkey, &info);
	finish(e, b, id, IBV_WC_SUCCESS);
	return mw;
}

/*
 * A window is bound, written through by the peer, and ended by it; another is bound and ended by its owner.
 */
static void windows(struct end *e)
{
	struct built b;
	build(e, &b);
	if (e->passive) {
		uint32_t rkey, own;
		struct ibv_mw *mw = bind_window(e, &b, 1, &rkey), *other = bind_window(e, &b, 2, &own);
		CHECK_EQ(rc_post_recv(e, b.qp, 8, 0, 64), 0);
		tell(e, rkey);
		tell(e, own);
		next(&b, 8);
		CHECK_EQ(ibv_wc_read_wc_flags(b.cq), IBV_WC_WITH_INV);
		CHECK_EQ(ibv_wc_read_invalidated_rkey(b.cq), rkey);
		ibv_end_poll(b.cq);
		VERIFY(e->buf + 8192, 256, e->seed);
		begin(&b, 3);
		ibv_wr_local_inv(b.ex, own);
		finish(e, &b, 3, IBV_WC_SUCCESS);
		meet(e);
		meet(e);
		CHECK_EQ(ibv_dealloc_mw(mw), 0);
		CHECK_EQ(ibv_dealloc_mw(other), 0);
	} else {
		uint32_t rkey = (uint32_t)hear(e), own = (uint32_t)hear(e);
		rc_fill(e->buf, 256, e->seed);
		begin(&b, 4);
		ibv_wr_rdma_write(b.ex, rkey, b.peer.addr + 8192);
		ibv_wr_set_sge(b.ex, e->mr->lkey, (uintptr_t)e->buf, 256);
		finish(e, &b, 4, IBV_WC_SUCCESS);
		begin(&b, 5);
		ibv_wr_send_inv(b.ex, rkey);
		finish(e, &b, 5, IBV_WC_SUCCESS);
		meet(e);
		begin(&b, 6);
		ibv_wr_rdma_write(b.ex, own, b.peer.addr + 8192);
		ibv_wr_set_sge(b.ex, e->mr->lkey, (uintptr_t)e->buf, 1);
		finish(e, &b, 6, IBV_WC_REM_ACCESS_ERR); /* ended by its owner */
		meet(e);
	}
	tear_down(e, &b);
}

static void post_flush(struct built *b, uint64_t id, uint32_t rkey, uint64_t at, size_t n, uint8_t type,
		       uint8_t level)
{
	begin(b, id);
	ibv_wr_flush(b->ex, rkey, b->peer.addr + at, n, type, level);
}

/* Behind a WRITE that asks for no completion. */
static void flushes(struct end *e)
{
	struct built b;
	build(e, &b);
	if (e->passive) {
		meet(e);
		VERIFY(e->buf + 4096, 1000, e->seed);
	} else {
		rc_fill(e->buf, 1000, e->seed);
		begin(&b, 1);
		ibv_wr_rdma_write(b.ex, b.peer.rkey, b.peer.addr + 4096);
		ibv_wr_set_sge(b.ex, e->mr->lkey, (uintptr_t)e->buf, 1000);
		ibv_wr_flush(b.ex, b.peer.rkey, b.peer.addr + 4096, 1000, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
		CHECK_EQ(ibv_wr_complete(b.ex), 0);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
		CHECK_EQ(rc_expect(e->scq, 1, IBV_WC_SUCCESS).opcode, IBV_WC_FLUSH);
		/* of the region: the range does not count */
		post_flush(&b, 2, b.peer.rkey, 1ull << 40, 7, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR);
		finish(e, &b, 2, IBV_WC_SUCCESS);
		post_flush(&b, 3, b.peer.rkey, 0, (size_t)1 << 32, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
		CHECK_EQ(ibv_wr_complete(b.ex), 22); /* EINVAL */
		meet(e);
	}
	tear_down(e, &b);
}

static void refused_flush(struct end *e, size_t n, uint8_t type, uint8_t level, enum ibv_wc_status status)
{
	struct built b;
	build(e, &b);
	if (!e->passive) {
		post_flush(&b, 1, b.peer.rkey, 0, n, type, level);
		finish(e, &b, 1, status);
	}
	tear_down(e, &b);
}

static void flush__out_of_bounds(struct end *e)
{
	refused_flush(e, 1 << 20, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR);
}
static void flush__persistent(struct end *e)
{
	refused_flush(e, 8, IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE, IBV_WC_REM_INV_REQ_ERR);
}
static void flush__to_nowhere(struct end *e)
{
	refused_flush(e, 8, 0, IBV_FLUSH_RANGE, IBV_WC_REM_INV_REQ_ERR);
}
static void flush__of_nothing_known(struct end *e)
{
	refused_flush(e, 8, IBV_FLUSH_GLOBAL, 2, IBV_WC_REM_INV_REQ_ERR);
}

static const struct body bodies[] = {
	BODY(flushes),
	BODY(flush__out_of_bounds),
	BODY(flush__persistent),
	BODY(flush__to_nowhere),
	BODY(flush__of_nothing_known),
	BODY(writes),
	BODY(windows),
};
RC_MAIN(bodies)
