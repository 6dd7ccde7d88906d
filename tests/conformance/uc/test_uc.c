/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unreliable connections. The sender learns nothing of what becomes of its messages: each one that it could
 * send completes with success. The receiver drops what it cannot take, in silence, and goes on.
 */
#include "../rc/rc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/mman.h>

enum { OUT = 0, IN = 1 << 17, BYTES = 1 << 18, LONG = 60000 };

/* ---- the ends ---- */

static struct params uc_params(void)
{
	struct params p = params();
	p.type = IBV_QPT_UC;
	p.bytes = BYTES;
	p.qp_access = IBV_ACCESS_REMOTE_WRITE;
	return p;
}

static void start_with_defaults(struct end *e)
{
	struct params p = uc_params();
	rc_start(e, &p);
}

/* ---- a message that arrives, after which both ends know what came before it ---- */

static void arrives(struct end *e, uint32_t n, uint64_t seed)
{
	if (e->passive) {
		meet(e);
		struct ibv_wc wc = rc_expect(e->rcq, 7, IBV_WC_SUCCESS);
		CHECK_EQ(wc.opcode, IBV_WC_RECV);
		CHECK_EQ(wc.byte_len, n);
		VERIFY(e->buf + IN, n, seed);
		return;
	}
	rc_fill(e->buf + OUT, n, seed);
	meet(e);
	POST(e, .id = 8, .opcode = IBV_WR_SEND, .at = OUT, .len = n);
	rc_expect(e->scq, 8, IBV_WC_SUCCESS);
}

static void receive_and_arrive(struct end *e, uint32_t n)
{
	if (e->passive)
		rc_recv(e, 7, IN, LONG);
	arrives(e, n, e->seed + n);
}

/* ---- messages ---- */

static const uint32_t sizes[] = { 0, 1, 8, 100, 1023, 1024, 1025, 5000, LONG };
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void send__of_any_size(struct end *e)
{
	start_with_defaults(e);
	for (unsigned i = 0; i < 2 * SIZES; i++) {
		uint32_t n = sizes[i / 2];
		bool immediate = i % 2;
		if (e->passive) {
			rc_recv(e, i, IN, LONG);
			meet(e);
			struct ibv_wc wc = rc_expect(e->rcq, i, IBV_WC_SUCCESS);
			CHECK_EQ(wc.opcode, IBV_WC_RECV);
			CHECK_EQ(wc.byte_len, n);
			CHECK_EQ(wc.qp_num, e->qp->qp_num);
			CHECK_EQ(wc.wc_flags, immediate ? IBV_WC_WITH_IMM : 0);
			if (immediate)
				CHECK_EQ(ntohl(wc.imm_data), 1000 + i);
			VERIFY(e->buf + IN, n, e->seed + i);
		} else {
			rc_fill(e->buf + OUT, n, e->seed + i);
			meet(e);
			POST(e, .id = i, .opcode = immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, .at = OUT,
			     .len = n, .imm = 1000 + i);
			CHECK_EQ(rc_expect(e->scq, i, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
		}
	}
	rc_finish(e);
}

static void write__of_any_size(struct end *e)
{
	start_with_defaults(e);
	for (unsigned i = 0; i < SIZES; i++) {
		uint32_t n = sizes[i];
		if (e->passive) {
			rc_recv(e, i, OUT, 0);
			meet(e);
			struct ibv_wc wc = rc_expect(e->rcq, i, IBV_WC_SUCCESS);
			CHECK_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
			CHECK_EQ(wc.byte_len, n);
			CHECK_EQ(ntohl(wc.imm_data), i);
			VERIFY(e->buf + IN, n, e->seed + i);            /* the WRITE before */
			VERIFY(e->buf + IN + LONG, n, e->seed + i);
		} else {
			rc_fill(e->buf + OUT, n, e->seed + i);
			meet(e);
			POST(e, .id = 1, .opcode = IBV_WR_RDMA_WRITE, .at = OUT, .len = n, .remote_at = IN);
			POST(e, .id = 2, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .at = OUT, .len = n,
			     .remote_at = IN + LONG, .imm = i);
			CHECK_EQ(rc_expect(e->scq, 1, IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_WRITE);
			CHECK_EQ(rc_expect(e->scq, 2, IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_WRITE);
		}
	}
	rc_finish(e);
}

static void send__of_pieces_and_inline(struct end *e)
{
	start_with_defaults(e);
	for (int is_inline = 0; is_inline < 2; is_inline++) {
		if (e->passive) {
			rc_recv(e, 7, IN, LONG);
			meet(e);
			CHECK_EQ(rc_expect(e->rcq, 7, IBV_WC_SUCCESS).byte_len, 60);
			VERIFY(e->buf + IN, 20, 1);
			VERIFY(e->buf + IN + 20, 40, 2);
			continue;
		}
		rc_fill(e->buf + 1000, 20, 1);
		rc_fill(e->buf + 3000, 40, 2);
		struct ibv_sge pieces[] = {
			{ (uintptr_t)e->buf + 1000, 20, is_inline ? 0 : e->mr->lkey },
			{ 0, 0, 0 },
			{ (uintptr_t)e->buf + 3000, 40, is_inline ? 0 : e->mr->lkey },
		};
		meet(e);
		POST(e, .id = 1, .opcode = IBV_WR_SEND, .sge = pieces, .nsge = 3,
		     .flags = is_inline ? IBV_SEND_INLINE : 0);
		rc_set(e->buf + 1000, is_inline ? 20 : 0, 0); /* the program may use it again at once */
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
	}
	rc_finish(e);
}

/* More than the completion queue would hold, if each had a completion. */
static void send__with_few_completions(struct end *e)
{
	enum { EACH = 16, ROUNDS = 32 };
	start_with_defaults(e);
	for (unsigned round = 0; round < ROUNDS; round++) {
		if (e->passive)
			for (unsigned i = 0; i < EACH; i++)
				rc_recv(e, i, IN + 64 * i, 64);
		meet(e);
		for (unsigned i = 0; i < EACH; i++)
			if (e->passive) {
				CHECK_EQ(rc_expect(e->rcq, i, IBV_WC_SUCCESS).byte_len, 8);
				CHECK_EQ(rc_word(e->buf + IN + 64 * i), round * EACH + i);
			} else {
				rc_set_word(e->buf + OUT + 8 * i, round * EACH + i);
				POST(e, .id = i, .opcode = IBV_WR_SEND, .at = OUT + 8 * i, .len = 8,
				     .quiet = i + 1 < EACH);
			}
		if (!e->passive) {
			rc_expect(e->scq, EACH - 1, IBV_WC_SUCCESS);
			rc_expect_none(e->scq);
		}
		meet(e);
	}
	rc_finish(e);
}

/* ---- what the receiver drops ---- */

/* A WRITE has come, and so what was sent before it has come, too. */
static void see_write(struct end *e, uint64_t value)
{
	if (!e->passive) {
		rc_set_word(e->buf + OUT, value);
		POST(e, .id = 1, .opcode = IBV_WR_RDMA_WRITE, .at = OUT, .len = 8, .remote_at = BYTES - 8);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
	} else {
		while (rc_word(e->buf + BYTES - 8) != value)
			rc_expect_none(e->rcq);
	}
	meet(e);
}

static void dropped__without_a_receive(struct end *e)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
						      IBV_WR_RDMA_WRITE_WITH_IMM };
	start_with_defaults(e);
	for (unsigned i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++)
		for (uint32_t n = 8; n <= 5000; n += 4992) {
			if (!e->passive) {
				POST(e, .id = 1, .opcode = opcodes[i], .at = OUT, .len = n, .remote_at = IN);
				rc_expect(e->scq, 1, IBV_WC_SUCCESS);
			}
			see_write(e, n + i);
			receive_and_arrive(e, 300);
		}
	if (e->passive)
		rc_expect_no_event(e);
	rc_finish(e);
}

static void try_longer_than_the_receive(struct end *e, uint32_t room, uint32_t n)
{
	if (e->passive) {
		rc_set(e->buf + IN, LONG, 0xee);
		rc_recv(e, 7, IN, room);
	}
	meet(e);
	if (!e->passive) {
		POST(e, .id = 1, .opcode = IBV_WR_SEND, .at = OUT, .len = n);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
	}
	if (e->passive && e->srq) {
		rc_expect(e->rcq, 7, IBV_WC_LOC_LEN_ERR);
		rc_recv(e, 7, IN, room);
	}
	arrives(e, 8, 5); /* into the same receive, unless others may need that */
	if (e->passive)
		VERIFY_BYTE(e->buf + IN + room, LONG - room, 0xee);
}

static void dropped__longer_than_the_receive(struct end *e)
{
	for (int shared = 0; shared < 2; shared++) {
		struct params p = uc_params();
		p.srq_wr = shared ? 16 : 0;
		rc_start(e, &p);
		try_longer_than_the_receive(e, 10, 11);
		try_longer_than_the_receive(e, 3000, 3001);
		try_longer_than_the_receive(e, 1024, LONG);
		if (e->passive)
			rc_expect_no_event(e);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_RTS);
		rc_finish(e);
		e->srq = NULL;
	}
}

/* Writes without an effect: the key, the place, the right. */
static void try_write(struct end *e, uint32_t rkey, uint64_t at, uint32_t n)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM };
	for (int i = 0; i < 2; i++) {
		if (e->passive)
			rc_set(e->buf + IN, LONG, 0xee);
		meet(e);
		if (!e->passive) {
			POST(e, .id = 1, .opcode = opcodes[i], .at = OUT, .len = n, .remote_at = at,
			     .rkey = rkey);
			rc_expect(e->scq, 1, IBV_WC_SUCCESS);
		}
		receive_and_arrive(e, 8);
		if (e->passive)
			VERIFY_BYTE(e->buf + IN + 8, LONG - 8, 0xee);
	}
}

static void dropped__write_that_is_not_allowed(struct end *e)
{
	struct params p = uc_params();
	rc_start(e, &p);
	for (uint32_t n = 8; n <= 5000; n += 4992) {
		try_write(e, e->peer.rkey ^ 0x1000, IN, n);
		try_write(e, e->peer.rkey, BYTES - n + 1, n);
	}
	if (e->passive)
		rc_expect_no_event(e);
	rc_finish(e);
	p.qp_access = 0;
	rc_start(e, &p);
	try_write(e, e->peer.rkey, IN, 8);
	rc_finish(e);
	p.qp_access = IBV_ACCESS_REMOTE_WRITE;
	p.mr_access = IBV_ACCESS_LOCAL_WRITE;
	rc_start(e, &p);
	try_write(e, e->peer.rkey, IN, 5000);
	if (e->passive)
		rc_expect_no_event(e);
	CHECK_EQ(rc_state(e->qp), IBV_QPS_RTS);
	rc_finish(e);
}

/* ---- errors of one's own ---- */

static void receive_fails(struct end *e, uint64_t addr, uint32_t lkey)
{
	if (e->passive) {
		struct ibv_sge sge = { addr, 5000, lkey };
		struct ibv_recv_wr *bad, wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 };
		CHECK_EQ(ibv_post_recv(e->qp, &wr, &bad), 0);
		rc_recv(e, 2, IN, LONG);
	}
	meet(e);
	if (e->passive) {
		rc_expect(e->rcq, 1, IBV_WC_LOC_PROT_ERR);
		rc_expect(e->rcq, 2, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
	} else {
		POST(e, .id = 1, .opcode = IBV_WR_SEND, .at = OUT, .len = 3000);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_RTS);
	}
	rc_reconnect(e);
}

/* The receiving queue pair ends; the sender does not learn it. */
static void receive__into_bad_memory(struct end *e)
{
	start_with_defaults(e);
	receive_fails(e, (uintptr_t)e->buf + IN, e->mr->lkey ^ 0x1000);
	receive_fails(e, (uintptr_t)e->buf + BYTES - 1000, e->mr->lkey);
	receive_and_arrive(e, 8);
	rc_finish(e);
}

/* The first SEND that fails ends the others; receives go on. The program makes the queue pair ready again. */
static void send_fails(struct end *e, uint64_t addr, uint32_t lkey)
{
	if (!e->passive) {
		struct ibv_sge sge = { addr, 5000, lkey };
		POST(e, .id = 1, .opcode = IBV_WR_SEND, .sge = &sge, .nsge = 1);
		rc_expect(e->scq, 1, IBV_WC_LOC_PROT_ERR);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_SQE);
		POST(e, .id = 2, .opcode = IBV_WR_SEND, .at = OUT, .len = 8);
		rc_expect(e->scq, 2, IBV_WC_WR_FLUSH_ERR);
		rc_recv(e, 3, IN, LONG);
		meet(e);
		CHECK_EQ(rc_expect(e->rcq, 3, IBV_WC_SUCCESS).byte_len, 9);
		struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE };
		CHECK_EQ(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
	} else {
		meet(e);
		POST(e, .id = 4, .opcode = IBV_WR_SEND, .at = OUT, .len = 9);
		rc_expect(e->scq, 4, IBV_WC_SUCCESS);
	}
	receive_and_arrive(e, 5000);
}

static void send__from_bad_memory(struct end *e)
{
	start_with_defaults(e);
	send_fails(e, (uintptr_t)e->buf, e->mr->lkey ^ 0x1000);
	send_fails(e, (uintptr_t)e->buf + BYTES - 1000, e->mr->lkey);
	rc_finish(e);
}

/* The program unmaps memory that it has registered: what needs it fails or is dropped, and nobody ends. */
static void memory__taken_away(struct end *e)
{
	rc_needs_holes();
	start_with_defaults(e);
	void *memory = rc_map(8192);
	struct ibv_mr *mr = ibv_reg_mr(e->pd, memory, 8192, e->p.mr_access);
	CHECK(mr);
	rc_take_away(memory, 8192);
	send_fails(e, (uintptr_t)memory, mr->lkey);
	receive_fails(e, (uintptr_t)memory, mr->lkey);
	tell(e, (uintptr_t)memory);
	uint64_t theirs = hear(e);
	tell(e, mr->rkey);
	uint32_t rkey = (uint32_t)hear(e);
	for (uint32_t n = 8; n <= 5000; n += 4992)
		try_write(e, rkey, theirs - e->peer.addr, n);
	if (e->passive)
		rc_expect_no_event(e);
	CHECK_EQ(rc_state(e->qp), IBV_QPS_RTS);
	meet(e);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	munmap(memory, 8192);
	rc_finish(e);
}

static void refused__what_needs_an_answer(struct end *e)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
						      IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV,
						      IBV_WR_FLUSH, IBV_WR_ATOMIC_WRITE };
	start_with_defaults(e);
	for (unsigned i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++)
		CHECK_EQ(rc_post(e, &(struct op){ .opcode = opcodes[i], .len = 8 }), EINVAL);
	CHECK_EQ(rc_state(e->qp), IBV_QPS_RTS);
	receive_and_arrive(e, 8);
	rc_finish(e);
}

/* What waits when the queue pair is put into the error state is flushed, on either queue. */
static void flushed__in_the_error_state(struct end *e)
{
	start_with_defaults(e);
	rc_recv(e, 1, IN, LONG);
	rc_recv(e, 2, IN, LONG);
	CHECK_EQ(rc_to(e->qp, IBV_QPS_ERR), 0);
	rc_expect(e->rcq, 1, IBV_WC_WR_FLUSH_ERR);
	rc_expect(e->rcq, 2, IBV_WC_WR_FLUSH_ERR);
	POST(e, .id = 3, .opcode = IBV_WR_SEND, .at = OUT, .len = 8);
	rc_expect(e->scq, 3, IBV_WC_WR_FLUSH_ERR);
	rc_reconnect(e);
	receive_and_arrive(e, 5000);
	rc_finish(e);
}

/* Posted while the send queue is drained: it waits until the queue pair is ready to send again. */
static void held__in_the_drained_state(struct end *e)
{
	start_with_defaults(e);
	if (e->passive) {
		rc_recv(e, 7, IN, LONG);
		meet(e);
		meet(e);
		rc_expect_none(e->rcq);
		meet(e);
		CHECK_EQ(rc_expect(e->rcq, 7, IBV_WC_SUCCESS).byte_len, 100);
		VERIFY(e->buf + IN, 100, 3);
	} else {
		rc_fill(e->buf + OUT, 100, 3);
		meet(e);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_SQD), 0);
		POST(e, .id = 1, .opcode = IBV_WR_SEND, .at = OUT, .len = 100);
		rc_expect_none(e->scq);
		meet(e);
		meet(e);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RTS), 0);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
	}
	rc_finish(e);
}

/* A peer writes through a window of type 2 for as long as it is bound. */
static void window__is_bound_and_invalidated(struct end *e)
{
	struct params p = uc_params();
	p.mr_access |= IBV_ACCESS_MW_BIND;
	rc_start(e, &p);
	struct ibv_mw *mw = e->passive ? ibv_alloc_mw(e->pd, IBV_MW_TYPE_2) : NULL;
	uint32_t rkey = 0;
	if (e->passive) {
		CHECK(mw);
		rkey = ibv_inc_rkey(mw->rkey);
		struct ibv_send_wr *bad, bind = {
			.wr_id = 1, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
			.bind_mw = { mw, rkey, { e->mr, (uintptr_t)e->buf + IN, LONG,
						 IBV_ACCESS_REMOTE_WRITE } },
		};
		CHECK_EQ(ibv_post_send(e->qp, &bind, &bad), 0);
		CHECK_EQ(rc_expect(e->scq, 1, IBV_WC_SUCCESS).opcode, IBV_WC_BIND_MW);
		rc_recv(e, 2, IN, 0);
		tell(e, rkey);
		rc_expect(e->rcq, 2, IBV_WC_SUCCESS);
		VERIFY(e->buf + IN, 3000, 4);
		struct ibv_send_wr invalidate = { .wr_id = 3, .opcode = IBV_WR_LOCAL_INV,
						  .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = rkey };
		CHECK_EQ(ibv_post_send(e->qp, &invalidate, &bad), 0);
		CHECK_EQ(rc_expect(e->scq, 3, IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
	} else {
		rkey = (uint32_t)hear(e);
		rc_fill(e->buf + OUT, 3000, 4);
		POST(e, .id = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .at = OUT, .len = 3000,
		     .remote_at = IN, .rkey = rkey);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
	}
	try_write(e, rkey, IN, 8);
	if (mw)
		CHECK_EQ(ibv_dealloc_mw(mw), 0);
	rc_finish(e);
}

static const struct body bodies[] = {
	BODY(send__of_any_size),
	BODY(write__of_any_size),
	BODY(send__of_pieces_and_inline),
	BODY(send__with_few_completions),
	BODY(dropped__without_a_receive),
	BODY(dropped__longer_than_the_receive),
	BODY(dropped__write_that_is_not_allowed),
	BODY(receive__into_bad_memory),
	BODY(send__from_bad_memory),
	BODY(memory__taken_away),
	BODY(refused__what_needs_an_answer),
	BODY(flushed__in_the_error_state),
	BODY(held__in_the_drained_state),
	BODY(window__is_bound_and_invalidated),
};
RC_MAIN(bodies)
