/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows, memory on demand, null regions, device memory, atomic writes: what they let through, and
 * what not.
 */
#include "rc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 64 * 1024, WINDOW_AT = 4096, WINDOW_BYTES = 8192 };

static struct params window_params(void)
{
	struct params p = params();
	p.bytes = BYTES;
	p.mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
	p.qp_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	return p;
}

/* ---- windows ---- */

static int post_bind(struct end *e, struct ibv_mw *mw, uint32_t rkey, struct ibv_mr *mr, uint64_t at,
		     uint64_t bytes, unsigned access)
{
	struct ibv_send_wr *bad, wr = {
		.wr_id = 77,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = mw,
			     .rkey = rkey,
			     .bind_info = { mr, (uintptr_t)e->buf + at, bytes, access } },
	};
	return ibv_post_send(e->qp, &wr, &bad);
}

static void bind_2(struct end *e, struct ibv_mw *mw, uint32_t rkey, unsigned access)
{
	CHECK_EQ(post_bind(e, mw, rkey, e->mr, WINDOW_AT, WINDOW_BYTES, access), 0);
	CHECK_EQ(rc_expect(e->scq, 77, IBV_WC_SUCCESS).opcode, IBV_WC_BIND_MW);
}

static int post_invalidate(struct end *e, enum ibv_wr_opcode opcode, uint32_t rkey)
{
	struct ibv_send_wr *bad, wr = {
		.wr_id = 78, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = rkey
	};
	return ibv_post_send(e->qp, &wr, &bad);
}

/* A write of n bytes to a place in the peer's buffer through a window. */
static void try_write(struct end *e, uint32_t rkey, uint64_t remote_at, uint32_t n, enum ibv_wc_status status)
{
	POST(e, .id = 5, .opcode = IBV_WR_RDMA_WRITE, .len = n, .remote_at = remote_at, .rkey = rkey);
	rc_expect(e->scq, 5, status);
}

static void window_1__shows_its_part_alone(struct end *e)
{
	struct params p = window_params();
	rc_start(e, &p);
	if (e->passive) {
		struct ibv_mw *mw = ibv_alloc_mw(e->pd, IBV_MW_TYPE_1);
		CHECK(mw);
		uint32_t before = mw->rkey;
		struct ibv_mw_bind bind = { .wr_id = 1,
					    .send_flags = IBV_SEND_SIGNALED,
					    .bind_info = { e->mr, (uintptr_t)e->buf + WINDOW_AT, WINDOW_BYTES,
							   IBV_ACCESS_REMOTE_WRITE } };
		CHECK_EQ(ibv_bind_mw(e->qp, mw, &bind), 0);
		CHECK(mw->rkey != before);
		CHECK_EQ(rc_expect(e->scq, 1, IBV_WC_SUCCESS).opcode, IBV_WC_BIND_MW);
		CHECK_EQ(ibv_dereg_mr(e->mr), EBUSY);
		tell(e, mw->rkey);
		meet(e);
		VERIFY(e->buf + WINDOW_AT, WINDOW_BYTES, e->seed);
		VERIFY_BYTE(e->buf, WINDOW_AT, 0);
		VERIFY_BYTE(e->buf + WINDOW_AT + WINDOW_BYTES, 100, 0);
		rc_reconnect(e); /* after the byte too many */
		rc_reconnect(e); /* after the READ */
		uint32_t old = mw->rkey;
		CHECK_EQ(ibv_bind_mw(e->qp, mw, &bind), 0); /* once more: the old key ends */
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
		CHECK(mw->rkey != old);
		tell(e, mw->rkey);
		rc_reconnect(e);
		meet(e);
		bind.bind_info.length = 0;
		CHECK_EQ(ibv_bind_mw(e->qp, mw, &bind), 0);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
		tell(e, 0);
		rc_reconnect(e);
		CHECK_EQ(ibv_dealloc_mw(mw), 0);
	} else {
		uint32_t rkey = (uint32_t)hear(e);
		rc_fill(e->buf, WINDOW_BYTES, e->seed);
		try_write(e, rkey, WINDOW_AT, WINDOW_BYTES, IBV_WC_SUCCESS);
		meet(e);
		try_write(e, rkey, WINDOW_AT, WINDOW_BYTES + 1, IBV_WC_REM_ACCESS_ERR);
		rc_reconnect(e);
		POST(e, .id = 6, .opcode = IBV_WR_RDMA_READ, .len = 8, .remote_at = WINDOW_AT, .rkey = rkey);
		rc_expect(e->scq, 6, IBV_WC_REM_ACCESS_ERR);
		rc_reconnect(e);
		uint32_t next = (uint32_t)hear(e);
		try_write(e, rkey, WINDOW_AT, 8, IBV_WC_REM_ACCESS_ERR);
		rc_reconnect(e);
		try_write(e, next, WINDOW_AT, 8, IBV_WC_SUCCESS);
		meet(e);
		hear(e);
		try_write(e, next, WINDOW_AT, 8, IBV_WC_REM_ACCESS_ERR);
		rc_reconnect(e);
	}
	rc_finish(e);
}

static void window_2__bound_and_invalidated(struct end *e)
{
	struct params p = window_params();
	rc_start(e, &p);
	if (e->passive) {
		struct ibv_mw *mw = ibv_alloc_mw(e->pd, IBV_MW_TYPE_2);
		CHECK(mw);
		uint32_t rkey = ibv_inc_rkey(mw->rkey);
		bind_2(e, mw, rkey, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
		tell(e, rkey);
		hear(e);
		CHECK_EQ(post_invalidate(e, IBV_WR_LOCAL_INV, rkey), 0);
		CHECK_EQ(rc_expect(e->scq, 78, IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
		tell(e, 0);
		rc_reconnect(e);
		rkey = ibv_inc_rkey(rkey);
		bind_2(e, mw, rkey, IBV_ACCESS_REMOTE_WRITE);
		rc_recv(e, 1, 0, 64);
		tell(e, rkey);
		struct ibv_wc wc = rc_expect(e->rcq, 1, IBV_WC_SUCCESS); /* the peer ends it */
		CHECK_EQ(wc.opcode, IBV_WC_RECV);
		CHECK_EQ(wc.wc_flags & IBV_WC_WITH_INV, IBV_WC_WITH_INV);
		CHECK_EQ(wc.invalidated_rkey, rkey);
		CHECK_EQ(wc.byte_len, 16);
		tell(e, 0);
		rc_reconnect(e);
		CHECK_EQ(ibv_dealloc_mw(mw), 0);
	} else {
		uint32_t rkey = (uint32_t)hear(e);
		try_write(e, rkey, WINDOW_AT + 8, 100, IBV_WC_SUCCESS);
		POST(e, .id = 6, .opcode = IBV_WR_RDMA_READ, .len = 8, .remote_at = WINDOW_AT, .rkey = rkey);
		rc_expect(e->scq, 6, IBV_WC_SUCCESS);
		tell(e, 0);
		hear(e);
		try_write(e, rkey, WINDOW_AT, 8, IBV_WC_REM_ACCESS_ERR);
		rc_reconnect(e);
		rkey = (uint32_t)hear(e);
		struct ibv_sge sge = { (uintptr_t)e->buf, 16, e->mr->lkey };
		struct ibv_send_wr *bad, wr = { .wr_id = 9,
						.opcode = IBV_WR_SEND_WITH_INV,
						.send_flags = IBV_SEND_SIGNALED,
						.sg_list = &sge,
						.num_sge = 1,
						.invalidate_rkey = rkey };
		CHECK_EQ(ibv_post_send(e->qp, &wr, &bad), 0);
		CHECK_EQ(rc_expect(e->scq, 9, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
		hear(e);
		try_write(e, rkey, WINDOW_AT, 8, IBV_WC_REM_ACCESS_ERR);
		rc_reconnect(e);
	}
	rc_finish(e);
}

/* Whatever the program has made of the rest, the window's own number is in the key, and mw->rkey shows it. */
static void window_2__low_byte_of_the_key(struct end *e)
{
	static const uint32_t asked[] = { 17, 0xfffffe00, 0x12345678 };
	struct params p = window_params();
	rc_start(e, &p);
	struct ibv_mw *mw = ibv_alloc_mw(e->pd, IBV_MW_TYPE_2);
	CHECK(mw);
	for (unsigned i = 0; i < 3; i++) {
		if (e->passive) {
			uint32_t number = mw->handle >> 8;
			mw->rkey = asked[i] ^ 0x5500;
			CHECK_EQ(post_bind(e, mw, asked[i], e->mr, WINDOW_AT, WINDOW_BYTES,
					   IBV_ACCESS_REMOTE_WRITE),
				 0);
			CHECK_EQ(mw->rkey, number << 8 | (asked[i] & 0xff));
			rc_expect(e->scq, 77, IBV_WC_SUCCESS);
			tell(e, mw->rkey);
			hear(e);
			CHECK_EQ(post_invalidate(e, IBV_WR_LOCAL_INV, mw->rkey), 0);
			rc_expect(e->scq, 78, IBV_WC_SUCCESS);
		} else {
			try_write(e, (uint32_t)hear(e), WINDOW_AT, 8, IBV_WC_SUCCESS);
			tell(e, 0);
		}
	}
	uint32_t last = mw->rkey;
	CHECK_EQ(post_bind(e, mw, 5, NULL, WINDOW_AT, WINDOW_BYTES, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	CHECK_EQ(mw->rkey, last); /* nothing was posted */
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	rc_finish(e);
}

/* Bound on one connection, used on another of the same domain. */
static void window_2__is_for_one_queue_pair(struct end *e)
{
	struct params p = window_params();
	rc_start(e, &p);
	struct ibv_qp *second = rc_make_qp(e);
	rc_connect(e, second);
	if (e->passive) {
		struct ibv_mw *mw = ibv_alloc_mw(e->pd, IBV_MW_TYPE_2);
		uint32_t rkey = ibv_inc_rkey(mw->rkey);
		bind_2(e, mw, rkey, IBV_ACCESS_REMOTE_WRITE);
		tell(e, rkey);
		hear(e);
		CHECK_EQ(ibv_dealloc_mw(mw), 0);
	} else {
		uint32_t rkey = (uint32_t)hear(e);
		try_write(e, rkey, WINDOW_AT, 8, IBV_WC_SUCCESS);
		POST(e, .id = 5, .opcode = IBV_WR_RDMA_WRITE, .len = 8, .remote_at = WINDOW_AT, .rkey = rkey,
		     .qp = second);
		rc_expect(e->scq, 5, IBV_WC_REM_ACCESS_ERR);
		tell(e, 0);
	}
	meet(e);
	CHECK_EQ(ibv_destroy_qp(second), 0);
	rc_finish(e);
}

/* ---- one thread binds a window again and again, while peers invalidate another ---- */

enum { INVALIDATIONS = 1000 };

struct binder {
	struct end *e;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	atomic_bool is_over;
};

static void *bind_often(void *arg)
{
	struct binder *b = arg;
	struct ibv_mw *mw = ibv_alloc_mw(b->e->pd, IBV_MW_TYPE_1);
	CHECK(mw);
	while (!atomic_load(&b->is_over)) {
		struct ibv_mw_bind bind = { .wr_id = 1, .send_flags = IBV_SEND_SIGNALED,
			.bind_info = { b->e->mr, (uintptr_t)b->e->buf, 64, IBV_ACCESS_REMOTE_READ } };
		CHECK_EQ(ibv_bind_mw(b->qp, mw, &bind), 0);
		rc_expect(b->cq, 1, IBV_WC_SUCCESS);
	}
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	return NULL;
}

static void be_invalidated(struct end *e)
{
	struct ibv_mw *mw = ibv_alloc_mw(e->pd, IBV_MW_TYPE_2);
	CHECK(mw);
	for (uint32_t i = 0, rkey = mw->rkey; i < INVALIDATIONS; i++) {
		rkey = ibv_inc_rkey(rkey);
		bind_2(e, mw, rkey, IBV_ACCESS_REMOTE_WRITE);
		rc_recv(e, i, 0, 64);
		tell(e, rkey);
		CHECK_EQ(rc_expect(e->rcq, i, IBV_WC_SUCCESS).invalidated_rkey, rkey);
	}
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
}

static void invalidate_often(struct end *e)
{
	for (int i = 0; i < INVALIDATIONS; i++) {
		CHECK_EQ(post_invalidate(e, IBV_WR_SEND_WITH_INV, (uint32_t)hear(e)), 0);
		rc_expect(e->scq, 78, IBV_WC_SUCCESS);
	}
}

static void window__bound_while_another_is_invalidated(struct end *e)
{
	struct params p = window_params();
	struct binder b = { .e = e };
	pthread_t thread;
	rc_start(e, &p);
	CHECK(b.cq = ibv_create_cq(e->ctx, 16, NULL, NULL, 0));
	struct ibv_qp_init_attr init = {
		.send_cq = b.cq, .recv_cq = b.cq, .qp_type = IBV_QPT_RC, .cap = p.cap
	};
	CHECK(b.qp = ibv_create_qp(e->pd, &init));
	rc_connect(e, b.qp);
	if (e->passive)
		CHECK_EQ(pthread_create(&thread, NULL, bind_often, &b), 0);
	(e->passive ? be_invalidated : invalidate_often)(e);
	atomic_store(&b.is_over, true);
	if (e->passive)
		CHECK_EQ(pthread_join(thread, NULL), 0);
	meet(e);
	CHECK_EQ(ibv_destroy_qp(b.qp), 0);
	CHECK_EQ(ibv_destroy_cq(b.cq), 0);
	rc_finish(e);
}

static void window__zero_based(struct end *e)
{
	struct params p = window_params();
	rc_start(e, &p);
	if (e->passive) {
		struct ibv_mw *mw = ibv_alloc_mw(e->pd, IBV_MW_TYPE_2);
		uint32_t rkey = ibv_inc_rkey(mw->rkey);
		bind_2(e, mw, rkey, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED);
		tell(e, rkey);
		hear(e);
		VERIFY(e->buf + WINDOW_AT + 100, 50, e->seed);
		rc_reconnect(e);
		CHECK_EQ(ibv_dealloc_mw(mw), 0);
	} else {
		uint32_t rkey = (uint32_t)hear(e);
		rc_fill(e->buf, 50, e->seed);
		try_write(e, rkey, 100 - e->peer.addr, 50, IBV_WC_SUCCESS);
		tell(e, 0);
		try_write(e, rkey, WINDOW_BYTES - 49 - e->peer.addr, 50, IBV_WC_REM_ACCESS_ERR);
		rc_reconnect(e);
	}
	rc_finish(e);
}

/* A SEND behind a bind arrives when the window is there. */
static void window__bind_keeps_its_place(struct end *e)
{
	struct params p = window_params();
	rc_start(e, &p);
	for (int i = 0; i < 20; i++) {
		if (e->passive) {
			struct ibv_mw *mw = ibv_alloc_mw(e->pd, IBV_MW_TYPE_2);
			uint32_t rkey = ibv_inc_rkey(mw->rkey);
			rc_set_word(e->buf, rkey);
			POST(e, .id = 1, .opcode = IBV_WR_SEND, .len = 8, .quiet = true);
			CHECK_EQ(post_bind(e, mw, rkey, e->mr, WINDOW_AT, WINDOW_BYTES,
					   IBV_ACCESS_REMOTE_WRITE),
				 0);
			POST(e, .id = 2, .opcode = IBV_WR_SEND, .len = 8);
			rc_expect(e->scq, 77, IBV_WC_SUCCESS);
			rc_expect(e->scq, 2, IBV_WC_SUCCESS);
			hear(e);
			CHECK_EQ(ibv_dealloc_mw(mw), 0);
		} else {
			rc_recv(e, 1, 0, 8);
			rc_recv(e, 2, 0, 8);
			rc_expect(e->rcq, 1, IBV_WC_SUCCESS);
			rc_expect(e->rcq, 2, IBV_WC_SUCCESS);
			try_write(e, (uint32_t)rc_word(e->buf), WINDOW_AT, 8, IBV_WC_SUCCESS);
			tell(e, 0);
		}
		meet(e);
	}
	rc_finish(e);
}

enum { HOT = 500, BINDS = 100 };

static void play(struct end *e, int i, bool quiet)
{
	if (!e->passive)
		rc_expect(e->rcq, i, IBV_WC_SUCCESS);
	rc_recv(e, i + 1, 0, 8);
	POST(e, .id = 1, .opcode = IBV_WR_SEND, .len = 8, .quiet = quiet);
	if (!quiet)
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
}

/*
 * Polling all the time, so that queue pairs are looked at without being told to: the ack of a SEND without
 * completion, too.
 */
static void window__bind_behind_a_send_without_completion(struct end *e)
{
	struct params p = window_params();
	rc_start(e, &p);
	struct ibv_mw *mw = ibv_alloc_mw(e->pd, IBV_MW_TYPE_2);
	uint32_t rkey = mw->rkey;
	rc_recv(e, 0, 0, 8);
	meet(e);
	for (int i = 0; i < HOT + 2 * BINDS; i++) {
		bool binds = e->passive && i >= HOT;
		play(e, i, binds);
		if (binds && i % 2) {
			CHECK_EQ(post_invalidate(e, IBV_WR_LOCAL_INV, rkey), 0);
			rc_expect(e->scq, 78, IBV_WC_SUCCESS);
		} else if (binds) {
			bind_2(e, mw, rkey = ibv_inc_rkey(rkey), IBV_ACCESS_REMOTE_WRITE);
		}
		if (e->passive)
			rc_expect(e->rcq, i, IBV_WC_SUCCESS);
	}
	meet(e);
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	rc_finish(e);
}

static void expect_bind_error(struct end *e, struct ibv_mw *mw, struct ibv_mr *mr, uint64_t at,
			      uint64_t bytes, unsigned access)
{
	CHECK_EQ(post_bind(e, mw, ibv_inc_rkey(mw->rkey), mr, at, bytes, access), 0);
	rc_expect(e->scq, 77, IBV_WC_MW_BIND_ERR);
	CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
	rc_reconnect(e);
}

static void window__what_is_refused(struct end *e)
{
	struct params p = window_params();
	rc_start(e, &p);
	struct ibv_pd *other = ibv_alloc_pd(e->ctx);
	struct ibv_mr *no_bind = ibv_reg_mr(e->pd, e->buf, BYTES, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *read_only = ibv_reg_mr(e->pd, e->buf, BYTES, IBV_ACCESS_MW_BIND);
	struct ibv_mr *based = ibv_reg_mr(
		e->pd, e->buf, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED);
	struct ibv_mw *mw = ibv_alloc_mw(e->pd, IBV_MW_TYPE_2), *foreign = ibv_alloc_mw(other, IBV_MW_TYPE_2);
	CHECK(mw && foreign && no_bind && read_only && based);
	CHECK(!ibv_alloc_mw(e->pd, 3) && errno == EINVAL);
	CHECK_EQ(post_bind(e, mw, mw->rkey, NULL, 0, 8, IBV_ACCESS_REMOTE_READ), EINVAL);
	struct ibv_mw_bind bind = { .bind_info = { e->mr, (uintptr_t)e->buf, 8, 0 } };
	CHECK_EQ(ibv_bind_mw(e->qp, mw, &bind), EINVAL); /* type 2 */
	expect_bind_error(e, mw, no_bind, 0, 8, IBV_ACCESS_REMOTE_READ);
	expect_bind_error(e, mw, read_only, 0, 8, IBV_ACCESS_REMOTE_WRITE);
	expect_bind_error(e, mw, read_only, 0, 8, IBV_ACCESS_REMOTE_ATOMIC);
	expect_bind_error(e, mw, based, 0, 8, IBV_ACCESS_REMOTE_READ);
	expect_bind_error(e, mw, e->mr, BYTES - 7, 8, IBV_ACCESS_REMOTE_READ);
	expect_bind_error(e, mw, e->mr, 0, 0, IBV_ACCESS_REMOTE_READ);
	expect_bind_error(e, foreign, e->mr, 0, 8, IBV_ACCESS_REMOTE_READ);
	bind_2(e, mw, ibv_inc_rkey(mw->rkey), IBV_ACCESS_REMOTE_READ);
	expect_bind_error(e, mw, e->mr, 0, 8, IBV_ACCESS_REMOTE_READ); /* bound already */
	bind_2(e, mw, ibv_inc_rkey(mw->rkey), IBV_ACCESS_REMOTE_READ); /* the reset has ended it */
	CHECK_EQ(post_invalidate(e, IBV_WR_LOCAL_INV, e->mr->rkey), 0);
	rc_expect(e->scq, 78, IBV_WC_MW_BIND_ERR);
	rc_reconnect(e);
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	CHECK_EQ(ibv_dealloc_mw(foreign), 0);
	CHECK_EQ(ibv_dereg_mr(no_bind), 0);
	CHECK_EQ(ibv_dereg_mr(read_only), 0);
	CHECK_EQ(ibv_dereg_mr(based), 0);
	CHECK_EQ(ibv_dealloc_pd(other), 0);
	rc_finish(e);
}

/* What is no type 2 window of this connection cannot be invalidated by the peer, and a window is no lkey. */
static void window__peer_cannot_invalidate_a_region(struct end *e)
{
	struct params p = window_params();
	rc_start(e, &p);
	if (e->passive) {
		rc_recv(e, 1, 0, 64);
		rc_expect(e->rcq, 1, IBV_WC_REM_INV_REQ_ERR);
		rc_reconnect(e);
		struct ibv_mw *mw = ibv_alloc_mw(e->pd, IBV_MW_TYPE_2);
		uint32_t rkey = ibv_inc_rkey(mw->rkey);
		bind_2(e, mw, rkey, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
		POST(e, .id = 3, .opcode = IBV_WR_SEND, .at = WINDOW_AT, .len = 8, .lkey = rkey);
		rc_expect(e->scq, 3, IBV_WC_LOC_PROT_ERR);
		rc_reconnect(e);
		CHECK_EQ(ibv_dealloc_mw(mw), 0);
	} else {
		CHECK_EQ(post_invalidate(e, IBV_WR_SEND_WITH_INV, e->peer.rkey), 0);
		rc_expect(e->scq, 78, IBV_WC_SUCCESS);
		rc_reconnect(e);
		rc_reconnect(e);
	}
	rc_finish(e);
}

/* ---- memory on demand ---- */

static void on_demand__explicit_and_implicit(struct end *e)
{
	rc_needs_holes();
	struct params p = params();
	rc_start(e, &p);
	const unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ON_DEMAND;
	struct ibv_mr *all = ibv_reg_mr(e->pd, NULL, SIZE_MAX, access);
	uint8_t *memory = rc_map(1 << 20);
	struct ibv_mr *part = ibv_reg_mr(e->pd, memory, 1 << 20, access);
	CHECK(all && part);
	CHECK(!ibv_reg_mr(e->pd, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
	for (int i = 0; i < 2; i++) {
		struct ibv_mr *mr = i ? all : part;
		tell(e, mr->rkey);
		tell(e, (uintptr_t)memory);
		uint32_t rkey = (uint32_t)hear(e);
		uint64_t remote = hear(e);
		if (e->passive) {
			hear(e);
			VERIFY(memory + 5000, 70000, e->seed);
			rc_take_away(memory + 65536, 65536);
			tell(e, 0);
			rc_reconnect(e);
			memory = mmap(memory, 1 << 20, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		} else {
			struct ibv_sge sge = { (uintptr_t)memory + 10, 70000, mr->lkey };
			rc_fill(memory + 10, 70000, e->seed);
			POST(e, .id = 1, .opcode = IBV_WR_RDMA_WRITE, .sge = &sge, .nsge = 1,
			     .remote_at = remote + 5000 - e->peer.addr, .rkey = rkey);
			rc_expect(e->scq, 1, IBV_WC_SUCCESS);
			tell(e, 0);
			hear(e);
			POST(e, .id = 2, .opcode = IBV_WR_RDMA_WRITE, .sge = &sge, .nsge = 1,
			     .remote_at = remote + 5000 - e->peer.addr, .rkey = rkey);
			rc_expect(e->scq, 2, IBV_WC_REM_ACCESS_ERR); /* a hole, and no crash */
			rc_reconnect(e);
		}
	}
	rc_take_away(memory, 1 << 20);
	meet(e);
	if (!e->passive) {
		struct ibv_sge sge = { (uintptr_t)memory, 5000, part->lkey };
		POST(e, .id = 3, .opcode = IBV_WR_SEND, .sge = &sge, .nsge = 1);
		rc_expect(e->scq, 3, IBV_WC_LOC_PROT_ERR);
	} else {
		rc_recv(e, 1, 0, 8000);
	}
	meet(e);
	CHECK_EQ(ibv_dereg_mr(all), 0);
	CHECK_EQ(ibv_dereg_mr(part), 0);
	rc_finish(e);
}

static void on_demand__receives_into_a_hole(struct end *e)
{
	rc_needs_holes();
	static const uint32_t lengths[] = { 16, 3000, 200000 };
	struct params p = params();
	p.bytes = 1 << 20;
	rc_start(e, &p);
	uint8_t *memory = rc_map(1 << 20);
	struct ibv_mr *mr = ibv_reg_mr(e->pd, memory, 1 << 20, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	CHECK(mr);
	rc_take_away(memory, 1 << 20);
	for (int i = 0; i < 3; i++) {
		struct ibv_sge sge = { (uintptr_t)memory, 1 << 20, mr->lkey };
		struct ibv_recv_wr *bad, wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 };
		if (e->passive) {
			CHECK_EQ(ibv_post_recv(e->qp, &wr, &bad), 0);
			meet(e);
			rc_expect(e->rcq, 1, IBV_WC_LOC_PROT_ERR);
		} else {
			meet(e);
			POST(e, .id = 2, .opcode = IBV_WR_SEND, .len = lengths[i]);
			rc_expect(e->scq, 2, IBV_WC_REM_OP_ERR);
		}
		rc_reconnect(e);
	}
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	rc_finish(e);
}

static void advise__what_it_takes(struct end *e)
{
	rc_needs_holes();
	struct params p = params();
	rc_open(e, &p);
	uint8_t *memory = rc_map(1 << 20);
	struct ibv_mr *mr = ibv_reg_mr(e->pd, memory, 1 << 20, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	struct ibv_mr *read_only = ibv_reg_mr(e->pd, memory, 1 << 20, IBV_ACCESS_ON_DEMAND);
	struct ibv_sge good = { (uintptr_t)memory + 100, 500000, mr->lkey }, bad = good;
	for (int advice = IBV_ADVISE_MR_ADVICE_PREFETCH; advice <= IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
	     advice++) {
		CHECK_EQ(ibv_advise_mr(e->pd, advice, 0, &good, 1), 0);
		CHECK_EQ(ibv_advise_mr(e->pd, advice, IBV_ADVISE_MR_FLAG_FLUSH, &good, 1), 0);
	}
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char present;
	CHECK(!mincore((void *)((uintptr_t)(memory + 300000) & ~(page - 1)), page, &present) &&
	      (present & 1));
	CHECK_EQ(ibv_advise_mr(e->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 2, &good, 1), EINVAL);
	CHECK_EQ(ibv_advise_mr(e->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &good, 0), EINVAL);
	CHECK_EQ(ibv_advise_mr(e->pd, 99, 0, &good, 1), ENOTSUP);
	bad.lkey = read_only->lkey;
	CHECK_EQ(ibv_advise_mr(e->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &bad, 1), 0);
	CHECK_EQ(ibv_advise_mr(e->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &bad, 1), EFAULT);
	bad.lkey = e->mr->lkey; /* not on demand */
	CHECK_EQ(ibv_advise_mr(e->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &bad, 1), EFAULT);
	bad = (struct ibv_sge){ (uintptr_t)memory + (1 << 20) - 10, 11, mr->lkey };
	CHECK_EQ(ibv_advise_mr(e->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &bad, 1), EFAULT);
	rc_take_away(memory, 1 << 20);
	CHECK_EQ(ibv_advise_mr(e->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &good, 1),
		 EFAULT);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_dereg_mr(read_only), 0);
	rc_close(e);
}

/* ---- null regions ---- */

static void null__reads_zeros_and_keeps_nothing(struct end *e)
{
	struct params p = params();
	p.bytes = 4 << 20;
	rc_start(e, &p);
	struct ibv_mr *null = ibv_alloc_null_mr(e->pd);
	CHECK(null);
	/* 2 MB: more than is moved at a time */
	struct ibv_sge list[] = { { (uintptr_t)e->buf, 100, e->mr->lkey }, { 0x123456, 2000000, null->lkey },
				  { (uintptr_t)e->buf + 3000000, 100, e->mr->lkey } };
	if (e->passive) {
		rc_fill(e->buf, p.bytes, e->seed);
		struct ibv_recv_wr *bad, wr = { .wr_id = 1, .sg_list = list, .num_sge = 3 };
		CHECK_EQ(ibv_post_recv(e->qp, &wr, &bad), 0);
		rc_recv(e, 2, 0, 3000000);
		meet(e);
		rc_expect(e->rcq, 1, IBV_WC_SUCCESS);
		VERIFY_BYTE(e->buf, 100, 1);
		VERIFY_BYTE(e->buf + 3000000, 100, 1);
		rc_expect(e->rcq, 2, IBV_WC_SUCCESS);
		VERIFY_BYTE(e->buf, 100, 1);
		VERIFY_BYTE(e->buf + 100, 2000000, 0);
		VERIFY_BYTE(e->buf + 2000100, 100, 1);
	} else {
		rc_set(e->buf, p.bytes, 1);
		meet(e);
		POST(e, .id = 1, .opcode = IBV_WR_SEND, .len = 2000200);
		POST(e, .id = 2, .opcode = IBV_WR_SEND, .sge = list, .nsge = 3);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
		rc_expect(e->scq, 2, IBV_WC_SUCCESS);
		POST(e, .id = 3, .opcode = IBV_WR_RDMA_READ, .sge = list, .nsge = 3);
		rc_expect(e->scq, 3, IBV_WC_SUCCESS);
	}
	meet(e);
	CHECK_EQ(ibv_dereg_mr(null), 0);
	rc_finish(e);
}

/* ---- device memory ---- */

static void device_memory__sent_and_written(struct end *e)
{
	uint8_t data[4096], back[4096];
	struct params p = params();
	rc_start(e, &p);
	struct ibv_alloc_dm_attr attr = { .length = sizeof(data), .log_align_req = 12 };
	struct ibv_dm *dm = ibv_alloc_dm(e->ctx, &attr);
	CHECK(dm);
	CHECK(!ibv_reg_dm_mr(e->pd, dm, 0, sizeof(data), IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
	CHECK(!ibv_reg_dm_mr(e->pd, dm, 8, sizeof(data), IBV_ACCESS_ZERO_BASED) && errno == EINVAL);
	struct ibv_mr *mr =
		ibv_reg_dm_mr(e->pd, dm, 1024, 2048,
			      IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr);
	CHECK_EQ(ibv_free_dm(dm), EBUSY);
	tell(e, mr->rkey);
	uint32_t rkey = (uint32_t)hear(e);
	if (e->passive) {
		hear(e);
		CHECK_EQ(ibv_memcpy_from_dm(back, dm, 0, sizeof(back)), 0);
		VERIFY(back + 1024 + 40, 1000, e->seed + 1);
		VERIFY_BYTE(back, 1024 + 40, 0);
		VERIFY_BYTE(back + 1024 + 1040, 3072 - 1040, 0);
	} else {
		rc_fill(data, sizeof(data), e->seed);
		CHECK_EQ(ibv_memcpy_to_dm(dm, 0, data, sizeof(data)), 0);
		CHECK_EQ(ibv_memcpy_to_dm(dm, 4, data, sizeof(data)), EFAULT);
		CHECK_EQ(ibv_memcpy_to_dm(dm, 2, data, 4), EINVAL);
		rc_fill(data + 1024, 1000, e->seed + 1);
		CHECK_EQ(ibv_memcpy_to_dm(dm, 1024, data + 1024, 1000), 0);
		struct ibv_sge sge = { 0, 1000, mr->lkey };
		POST(e, .id = 1, .opcode = IBV_WR_RDMA_WRITE, .sge = &sge, .nsge = 1,
		     .remote_at = 40 - e->peer.addr, .rkey = rkey);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
		tell(e, 0);
	}
	meet(e);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_free_dm(dm), 0);
	rc_finish(e);
}

/* ---- atomic writes ---- */

static void atomic_write__a_word(struct end *e)
{
	struct params p = params();
	rc_start(e, &p);
	if (e->passive) {
		hear(e);
		CHECK_EQ(rc_word(e->buf + 64), 0x1122334455667788);
		rc_reconnect(e);
	} else {
		struct ibv_sge sge = { (uintptr_t)e->buf, 8, e->mr->lkey };
		rc_set_word(e->buf, 0x1122334455667788);
		for (int i = 0; i < 100; i++) {
			POST(e, .id = i, .opcode = IBV_WR_ATOMIC_WRITE, .sge = &sge, .nsge = 1,
			     .remote_at = 64, .flags = i % 2 ? IBV_SEND_INLINE : 0);
			CHECK_EQ(rc_expect(e->scq, i, IBV_WC_SUCCESS).opcode, IBV_WC_ATOMIC_WRITE);
		}
		tell(e, 0);
		POST(e, .id = 1, .opcode = IBV_WR_ATOMIC_WRITE, .sge = &sge, .nsge = 1, .remote_at = 4);
		rc_expect(e->scq, 1, IBV_WC_REM_INV_REQ_ERR);
		rc_reconnect(e);
		sge.length = 4;
		CHECK_EQ(rc_post(e, &(struct op){ .opcode = IBV_WR_ATOMIC_WRITE, .sge = &sge, .nsge = 1 }),
			 EINVAL);
	}
	rc_finish(e);
}

static const struct body bodies[] = {
	BODY(window_1__shows_its_part_alone),
	BODY(window_2__bound_and_invalidated),
	BODY(window_2__low_byte_of_the_key),
	BODY(window_2__is_for_one_queue_pair),
	BODY(window__bound_while_another_is_invalidated),
	BODY(window__zero_based),
	BODY(window__bind_keeps_its_place),
	BODY(window__bind_behind_a_send_without_completion),
	BODY(window__what_is_refused),
	BODY(window__peer_cannot_invalidate_a_region),
	BODY(on_demand__explicit_and_implicit),
	BODY(on_demand__receives_into_a_hole),
	BODY_IN(advise__what_it_takes, ALONE),
	BODY(null__reads_zeros_and_keeps_nothing),
	BODY(device_memory__sent_and_written),
	BODY(atomic_write__a_word),
};

RC_MAIN(bodies)
