/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * WRITEs, or READs, by the same keys again and again, for which a path may remember what it has found out:
 * whatever allowed them ends in between, and the next one is refused as the first would have been, on its own
 * queue pair, without a byte of it.
 */
#include "ends.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { WORD = 8, TIMES = 100, HALF = 32768 };

/* What this end, in its thread, repeats, or lets be repeated. */
static __thread bool reads;

#define REPEATED (reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE)

/* What READs find: each word of the passive end's tells its place. */
static void prepare(struct end *e)
{
	for (unsigned i = 1; i <= TIMES && reads; i++)
		rc_set_word(e->buf + i * WORD, i);
}

static void start(struct end *e, const struct params *p)
{
	rc_start(e, p);
	if (e->passive)
		prepare(e);
	meet(e);
}

/*
 * The passive end's second region, of the same buffer, by which the active one writes or reads: it can end
 * without the first.
 */
static struct ibv_mr *open_second(struct end *e, const struct params *p)
{
	rc_start(e, p);
	prepare(e);
	struct ibv_mr *mr = second_of(e);
	tell(e, mr->rkey);
	return mr;
}

/* The word to be written, or what is there before one is read, is the first in the active end's buffer. */
static int move_word(struct end *e, uint32_t rkey, uint64_t id, uint64_t remote_at)
{
	rc_set_word(e->buf, reads ? 0x5555 : id);
	return rc_post(
		e, &(struct op){
			   .id = id, .opcode = REPEATED, .len = WORD, .remote_at = remote_at, .rkey = rkey });
}

/* The active end's, each of another word. */
static void again_and_again(struct end *e, uint32_t rkey)
{
	for (unsigned i = 1; i <= TIMES; i++) {
		CHECK_EQ(move_word(e, rkey, i, i * WORD), 0);
		struct ibv_wc wc = rc_expect(e->scq, i, IBV_WC_SUCCESS);
		CHECK_EQ(wc.opcode, reads ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE);
		CHECK_EQ(rc_word(e->buf), i);
	}
}

static void verify_words(struct end *e)
{
	for (unsigned i = 1; i <= TIMES; i++)
		CHECK_EQ(rc_word(e->buf + i * WORD), i);
}

/* Another one, which fails, and does so for good. */
static void is_refused(struct end *e, uint32_t rkey, uint64_t remote_at, enum ibv_wc_status status)
{
	CHECK_EQ(move_word(e, rkey, 999, remote_at), 0);
	rc_expect(e->scq, 999, status);
	CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
	CHECK_EQ(move_word(e, rkey, 1000, remote_at), 0);
	rc_expect(e->scq, 1000, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(rc_word(e->buf), reads ? 0x5555 : 1000);
}

/* ---- what ends at the target ---- */

/*
 * The active end goes on; then the passive one does this, and the next request is refused; then they connect
 * anew, and all is well again.
 */
static void ends_by(struct end *e, struct params p, ends_fn *change, enum ibv_wc_status status)
{
	if (e->passive) {
		struct ibv_mr *mr = open_second(e, &p);
		meet(e);
		verify_words(e);
		change(e, &mr);
		rc_set(e->buf, p.bytes, 0x77);
		meet(e);
		meet(e);
		VERIFY_BYTE(e->buf, p.bytes, 0x77);
		prepare(e);
		rc_reconnect(e);
		meet(e);
		verify_words(e);
		close_second(e, mr);
	} else {
		rc_start(e, &p);
		uint32_t rkey = hear(e);
		again_and_again(e, rkey);
		meet(e);
		meet(e);
		is_refused(e, rkey, WORD, status);
		meet(e);
		rc_reconnect(e);
		again_and_again(e, e->peer.rkey);
		meet(e);
	}
	rc_finish(e);
}

static void take_its_rights(struct end *e, struct ibv_mr **mr)
{
	unsigned others = IBV_ACCESS_LOCAL_WRITE | (reads ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ);
	CHECK_EQ(ibv_rereg_mr(*mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, others), 0);
}

static void take_the_rights_of_the_queue_pair(struct end *e, struct ibv_mr **mr)
{
	struct ibv_qp_attr a = { .qp_access_flags =
					 reads ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ };
	CHECK_EQ(ibv_modify_qp(e->qp, &a, IBV_QP_ACCESS_FLAGS), 0);
}

static void stop_the_queue_pair(struct end *e, struct ibv_mr **mr)
{
	CHECK_EQ(rc_to(e->qp, IBV_QPS_ERR), 0);
}

static void target__deregistered(struct end *e) { ends_by(e, params(), deregister, IBV_WC_REM_ACCESS_ERR); }
static void target__registered_anew(struct end *e)
{
	ends_by(e, params(), deregister_and_use_its_place, IBV_WC_REM_ACCESS_ERR);
}
static void target__not_granted_any_more(struct end *e)
{
	ends_by(e, params(), take_its_rights, IBV_WC_REM_ACCESS_ERR);
}
static void target__moved(struct end *e) { ends_by(e, params(), show_its_other_half, IBV_WC_REM_ACCESS_ERR); }
static void target__of_another_domain(struct end *e)
{
	ends_by(e, params(), take_it_to_another_domain, IBV_WC_REM_ACCESS_ERR);
}
static void queue_pair__grants_less(struct end *e)
{
	ends_by(e, params(), take_the_rights_of_the_queue_pair, IBV_WC_REM_INV_REQ_ERR);
}

static void queue_pair__answers_nothing(struct end *e)
{
	struct params p = params();
	p.timeout = 16; /* long enough for a busy machine: what else is sent gets there */
	p.retry_cnt = 1;
	ends_by(e, p, stop_the_queue_pair, IBV_WC_RETRY_EXC_ERR);
}

/* A type 2 window, that the active end itself invalidates with a message. */
static void window__invalidated_by_the_requester(struct end *e)
{
	struct params p = params();
	p.mr_access |= IBV_ACCESS_MW_BIND;
	start(e, &p);
	if (e->passive) {
		struct ibv_mw *mw = ibv_alloc_mw(e->pd, IBV_MW_TYPE_2);
		CHECK(mw);
		uint32_t rkey = ibv_inc_rkey(mw->rkey);
		struct ibv_send_wr *bad, wr = {
			.wr_id = 1,
			.opcode = IBV_WR_BIND_MW,
			.send_flags = IBV_SEND_SIGNALED,
			.bind_mw = { .mw = mw,
				     .rkey = rkey,
				     .bind_info = { e->mr, (uintptr_t)e->buf, HALF,
						    reads ? IBV_ACCESS_REMOTE_READ :
							    IBV_ACCESS_REMOTE_WRITE } },
		};
		CHECK_EQ(ibv_post_send(e->qp, &wr, &bad), 0);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
		rc_recv(e, 2, HALF, WORD);
		tell(e, rkey);
		struct ibv_wc wc = rc_expect(e->rcq, 2, IBV_WC_SUCCESS);
		CHECK_EQ(wc.wc_flags & IBV_WC_WITH_INV, IBV_WC_WITH_INV);
		verify_words(e);
		rc_set(e->buf, HALF, 0x77);
		meet(e);
		meet(e);
		VERIFY_BYTE(e->buf, HALF, 0x77);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
		CHECK_EQ(ibv_dealloc_mw(mw), 0);
	} else {
		uint32_t rkey = hear(e);
		again_and_again(e, rkey);
		struct ibv_sge sge = { (uintptr_t)e->buf, WORD, e->mr->lkey };
		struct ibv_send_wr *bad, wr = { .wr_id = 3,
						.opcode = IBV_WR_SEND_WITH_INV,
						.send_flags = IBV_SEND_SIGNALED,
						.invalidate_rkey = rkey,
						.sg_list = &sge,
						.num_sge = 1 };
		CHECK_EQ(ibv_post_send(e->qp, &wr, &bad), 0);
		rc_expect(e->scq, 3, IBV_WC_SUCCESS);
		meet(e);
		is_refused(e, rkey, WORD, IBV_WC_REM_ACCESS_ERR);
		meet(e);
	}
	rc_finish(e);
}

static void target__ends_where_it_ends(struct end *e)
{
	struct params p = params();
	start(e, &p);
	if (e->passive && reads)
		rc_set_word(e->buf + p.bytes - WORD, 7);
	meet(e);
	for (int way = 0; way < 4; way++) {
		static const int64_t past[] = { 1, WORD, -WORD - 65536, -1 - 65536 };
		if (e->passive) {
			meet(e);
			CHECK_EQ(rc_word(e->buf + p.bytes - WORD), 7);
			rc_reconnect(e);
			continue;
		}
		again_and_again(e, e->peer.rkey);
		CHECK_EQ(move_word(e, e->peer.rkey, 7, p.bytes - WORD), 0);
		rc_expect(e->scq, 7, IBV_WC_SUCCESS);
		CHECK_EQ(rc_word(e->buf), 7);
		is_refused(e, e->peer.rkey, p.bytes - WORD + past[way], IBV_WC_REM_ACCESS_ERR);
		meet(e);
		rc_reconnect(e);
	}
	rc_finish(e);
}

/* What may be written may not be read for that, nor the other way round. */
static void target__granted_for_this_alone(struct end *e)
{
	struct params p = params();
	start(e, &p);
	if (e->passive) {
		struct ibv_mr *mr = ibv_reg_mr(
			e->pd, e->buf, p.bytes,
			IBV_ACCESS_LOCAL_WRITE | (reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE));
		CHECK(mr);
		tell(e, mr->rkey);
		meet(e);
		verify_words(e);
		CHECK_EQ(ibv_dereg_mr(mr), 0);
	} else {
		uint32_t rkey = hear(e);
		again_and_again(e, rkey);
		reads = !reads;
		is_refused(e, rkey, WORD, IBV_WC_REM_ACCESS_ERR);
		meet(e);
	}
	rc_finish(e);
}

/* ---- what ends on this side ---- */

static void own__deregistered(struct end *e)
{
	struct params p = params();
	start(e, &p);
	if (!e->passive) {
		struct ibv_mr *mr;
		CHECK(mr = ibv_reg_mr(e->pd, e->buf, p.bytes, reads ? IBV_ACCESS_LOCAL_WRITE : 0));
		for (unsigned i = 1; i <= TIMES; i++) {
			POST(e, .id = i, .opcode = REPEATED, .at = i % 8 * WORD, .len = WORD,
			     .remote_at = HALF, .lkey = mr->lkey);
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		}
		uint32_t lkey = mr->lkey;
		rc_set_word(e->buf, 5);
		CHECK_EQ(ibv_dereg_mr(mr), 0);
		POST(e, .id = 5, .opcode = REPEATED, .len = WORD, .remote_at = HALF, .lkey = lkey);
		rc_expect(e->scq, 5, IBV_WC_LOC_PROT_ERR);
		CHECK_EQ(rc_word(e->buf), 5);
	}
	meet(e);
	if (e->passive)
		CHECK_EQ(rc_word(e->buf + HALF), 0);
	rc_finish(e);
}

/* What may be written to may become what may only be read from. */
static void own__not_writable_any_more(struct end *e)
{
	struct params p = params();
	start(e, &p);
	if (!e->passive) {
		again_and_again(e, e->peer.rkey);
		CHECK_EQ(ibv_rereg_mr(e->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), 0);
		CHECK_EQ(move_word(e, e->peer.rkey, 5, WORD), 0);
		rc_expect(e->scq, 5, reads ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS);
		CHECK_EQ(rc_word(e->buf), reads ? 0x5555 : 5);
	}
	meet(e);
	rc_finish(e);
}

static void own__ends_where_it_ends(struct end *e)
{
	struct params p = params();
	start(e, &p);
	for (int way = 0; way < 2; way++) {
		if (e->passive) {
			rc_reconnect(e);
			continue;
		}
		again_and_again(e, e->peer.rkey);
		uint64_t at = way ? p.bytes - WORD + 1 : (uint64_t)-1;
		POST(e, .id = 5, .opcode = REPEATED, .at = at, .len = WORD, .remote_at = 0);
		rc_expect(e->scq, 5, IBV_WC_LOC_PROT_ERR);
		rc_reconnect(e);
	}
	rc_finish(e);
}

/* The same bytes by a key that is none, or is of something else. */
static void own__by_another_key(struct end *e)
{
	struct params p = params();
	start(e, &p);
	for (int way = 0; way < 2; way++) {
		if (e->passive) {
			rc_reconnect(e);
			continue;
		}
		uint64_t other[2] = { 0 };
		struct ibv_mr *mr;
		CHECK(mr = ibv_reg_mr(e->pd, other, sizeof(other), IBV_ACCESS_LOCAL_WRITE));
		again_and_again(e, e->peer.rkey);
		POST(e, .id = 5, .opcode = REPEATED, .len = WORD, .remote_at = 0,
		     .lkey = way ? mr->lkey : e->mr->lkey + 1);
		rc_expect(e->scq, 5, IBV_WC_LOC_PROT_ERR);
		CHECK_EQ(ibv_dereg_mr(mr), 0);
		rc_reconnect(e);
	}
	rc_finish(e);
}

/* Inline data needs no key, and there may be only so much of it. */
static void own__inline(struct end *e)
{
	struct params p = params();
	uint64_t words[9];
	rc_start(e, &p);
	for (uint64_t i = 1; i <= TIMES && !e->passive; i++) {
		struct ibv_sge sge = { (uintptr_t)words, WORD, (uint32_t)rc_hash(i) };
		words[0] = i;
		POST(e, .id = i, .opcode = IBV_WR_RDMA_WRITE, .sge = &sge, .nsge = 1, .remote_at = i * WORD,
		     .flags = IBV_SEND_INLINE);
		words[0] = 0;
		rc_expect(e->scq, i, IBV_WC_SUCCESS);
	}
	if (!e->passive) {
		struct ibv_sge sge = { (uintptr_t)words, sizeof(words), e->mr->lkey };
		CHECK_EQ(rc_post(e, &(struct op){ .opcode = IBV_WR_RDMA_WRITE,
						  .sge = &sge,
						  .nsge = 1,
						  .flags = IBV_SEND_INLINE }),
			 ENOMEM);
	}
	meet(e);
	if (e->passive)
		verify_words(e);
	rc_finish(e);
}

/* Of what is read nothing can be inline. */
static void own__not_inline(struct end *e)
{
	struct params p = params();
	start(e, &p);
	if (!e->passive) {
		struct op op = { .id = 1,
				 .opcode = IBV_WR_RDMA_READ,
				 .len = WORD,
				 .remote_at = WORD,
				 .flags = IBV_SEND_INLINE };
		again_and_again(e, e->peer.rkey);
		CHECK_EQ(rc_post(e, &op), EINVAL);
		rc_expect_none(e->scq);
	}
	rc_finish(e);
}

/* ---- the queue pair's own state, and its queues ---- */

/*
 * The word that is moved last, at the beginning of both buffers: it is where it comes from, and nowhere else.
 */
static void expect_last_unmoved(struct end *e, uint64_t word)
{
	if (e->passive)
		CHECK_EQ(rc_word(e->buf), reads ? word : 0);
	else
		CHECK_EQ(rc_word(e->buf), reads ? 0x5555 : word);
}

static void start_with_last(struct end *e, const struct params *p, uint64_t word)
{
	start(e, p);
	if (e->passive && reads)
		rc_set_word(e->buf, word);
	meet(e);
}

static void queue__behind_what_waits(struct end *e)
{
	struct params p = params();
	start_with_last(e, &p, 2);
	if (e->passive) {
		meet(e);
		rc_pause_ms(30);
		expect_last_unmoved(e, 2);
		rc_recv(e, 1, HALF, WORD);
		rc_expect(e->rcq, 1, IBV_WC_SUCCESS);
	} else {
		again_and_again(e, e->peer.rkey);
		POST(e, .id = 1, .opcode = IBV_WR_SEND, .at = HALF, .len = WORD);
		CHECK_EQ(move_word(e, e->peer.rkey, 2, 0), 0);
		rc_pause_ms(10);
		expect_last_unmoved(e, 2);
		meet(e);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
		rc_expect(e->scq, 2, IBV_WC_SUCCESS);
	}
	meet(e);
	CHECK_EQ(rc_word(e->buf), 2);
	rc_finish(e);
}

static void queue__full_until_polled(struct end *e)
{
	struct params p = params();
	start(e, &p);
	if (!e->passive) {
		uint32_t n = p.cap.max_send_wr;
		again_and_again(e, e->peer.rkey);
		for (uint32_t i = 0; i < n; i++)
			POST(e, .id = i, .opcode = REPEATED, .len = WORD, .remote_at = 0, .quiet = i + 1 < n);
		struct op more = { .id = n, .opcode = REPEATED, .len = WORD };
		CHECK_EQ(rc_post(e, &more), ENOMEM);
		rc_expect(e->scq, n - 1, IBV_WC_SUCCESS);
		CHECK_EQ(rc_post(e, &more), 0);
		rc_expect(e->scq, n, IBV_WC_SUCCESS);
	}
	rc_finish(e);
}

static void state__drained(struct end *e)
{
	struct params p = params();
	start_with_last(e, &p, 4);
	if (!e->passive) {
		again_and_again(e, e->peer.rkey);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_SQD), 0);
		CHECK_EQ(move_word(e, e->peer.rkey, 4, 0), 0);
	}
	meet(e);
	rc_pause_ms(20);
	expect_last_unmoved(e, 4);
	rc_expect_none(e->scq);
	meet(e);
	if (!e->passive) {
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RTS), 0);
		rc_expect(e->scq, 4, IBV_WC_SUCCESS);
	}
	meet(e);
	CHECK_EQ(rc_word(e->buf), 4);
	rc_finish(e);
}

/* READs may be forbidden by either side's depth, in SQD. */
static void change_depth(struct ibv_qp *qp, int which)
{
	struct ibv_qp_attr a = { .max_rd_atomic = 0, .max_dest_rd_atomic = 0 };
	CHECK_EQ(rc_to(qp, IBV_QPS_SQD), 0);
	CHECK_EQ(ibv_modify_qp(qp, &a, which), 0);
	CHECK_EQ(rc_to(qp, IBV_QPS_RTS), 0);
}

static void state__no_reads_any_more(struct end *e, bool theirs)
{
	struct params p = params();
	start(e, &p);
	if (!e->passive)
		again_and_again(e, e->peer.rkey);
	meet(e);
	if (e->passive && theirs)
		change_depth(e->qp, IBV_QP_MAX_DEST_RD_ATOMIC);
	if (!e->passive && !theirs)
		change_depth(e->qp, IBV_QP_MAX_QP_RD_ATOMIC);
	meet(e);
	if (!e->passive)
		is_refused(e, e->peer.rkey, WORD, theirs ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_LOC_QP_OP_ERR);
	meet(e);
	rc_finish(e);
}

static void state__peer_answers_no_reads(struct end *e) { state__no_reads_any_more(e, true); }
static void state__queue_pair_sends_no_reads(struct end *e) { state__no_reads_any_more(e, false); }

/* A connection ends, and the next one of the same queue pair, with other numbers, is as good. */
static void state__connected_anew(struct end *e)
{
	struct params p = params();
	start(e, &p);
	for (int i = 0; i < 5; i++) {
		if (!e->passive)
			again_and_again(e, e->peer.rkey);
		meet(e);
		if (e->passive) {
			verify_words(e);
			rc_set(e->buf, p.bytes, 0);
			prepare(e);
		}
		rc_reconnect(e);
	}
	rc_finish(e);
}

/* The CQ overruns by completions of another queue pair: this one cannot go on either. */
static void cq__overrun_by_another(struct end *e)
{
	struct params p = params();
	p.cqe = 8;
	start(e, &p);
	struct ibv_qp *other = rc_make_qp(e);
	rc_connect(e, other);
	if (!e->passive) {
		again_and_again(e, e->peer.rkey);
		for (unsigned i = 0; i <= (unsigned)e->scq->cqe; i++)
			POST(e, .id = i, .opcode = REPEATED, .at = HALF, .len = WORD, .remote_at = 2048,
			     .qp = other);
		while (!rc_readable(e->ctx->async_fd, 10000))
			;
		rc_set_word(e->buf, 0xbad);
		rc_post(e, &(struct op){ .opcode = REPEATED, .len = WORD, .remote_at = 4096 });
		rc_expect_event(e, IBV_EVENT_CQ_ERR);
		CHECK_EQ(rc_word(e->buf), 0xbad);
	}
	meet(e);
	if (e->passive)
		CHECK_EQ(rc_word(e->buf + 4096), 0);
	CHECK_EQ(ibv_destroy_qp(other), 0);
	rc_finish(e);
}

/* ---- sizes and places ---- */

static void sizes__one_after_the_other(struct end *e)
{
	struct params p = params();
	p.bytes = 3 << 20;
	rc_start(e, &p);
	for (unsigned round = 0; round < 200; round++) {
		uint64_t state = e->seed + round;
		uint32_t len = rc_below(&state, 4) ? rc_below(&state, 70) : 1 + rc_below(&state, 2 << 20);
		uint64_t own = rc_below(&state, 1000), remote = rc_below(&state, 1000);
		uint8_t *mine = e->buf + (e->passive ? remote : own);
		if (e->passive == reads)
			rc_fill(mine, len, state);
		if (reads)
			meet(e);
		if (!e->passive) {
			POST(e, .id = round, .opcode = REPEATED, .at = own, .len = len, .remote_at = remote);
			rc_expect(e->scq, round, IBV_WC_SUCCESS);
		}
		meet(e);
		VERIFY(mine, len, state);
		meet(e);
	}
	rc_finish(e);
}

/* More than 32 bits count. */
static void sizes__of_a_large_region(struct end *e)
{
	const uint64_t bytes = 5ull << 30, places[] = { 0, (4ull << 30) - 4, (4ull << 30) + 4, bytes - WORD };
	struct params p = params();
	rc_start(e, &p);
	uint8_t *at =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct ibv_mr *mr = at == MAP_FAILED ? NULL : ibv_reg_mr(e->pd, at, bytes, p.mr_access);
	CHECK(mr);
	for (unsigned k = 0; e->passive && reads && k < 4; k++)
		rc_set_word(at + places[k], 100 + k);
	tell(e, mr->rkey);
	tell(e, (uintptr_t)at);
	uint32_t rkey = hear(e);
	uint64_t there = hear(e);
	for (unsigned i = 1; i <= 400 && !e->passive; i++) {
		unsigned k = i % 100 / 25;
		rc_set_word(at + places[k], i);
		struct ibv_sge sge = { (uintptr_t)at + places[k], WORD, mr->lkey };
		POST(e, .id = i, .opcode = REPEATED, .sge = &sge, .nsge = 1,
		     .remote_at = there - e->peer.addr + places[k], .rkey = rkey);
		rc_expect(e->scq, i, IBV_WC_SUCCESS);
		CHECK_EQ(rc_word(at + places[k]), reads ? 100 + k : i);
	}
	meet(e);
	for (unsigned k = 0; e->passive && !reads && k < 4; k++)
		CHECK_EQ(rc_word(at + places[k]), k ? 300 + 25 * k + 24 : 400);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	munmap(at, bytes);
	rc_finish(e);
}

/* ---- at the same time ---- */

static const uint64_t LATER = 0x7777777777777777;

/* Until one is refused; no READ gives what was there only later. */
static void go_on_until_refused(struct end *e, uint32_t rkey)
{
	struct ibv_wc wc;
	uint64_t i = 0;
	do {
		i++;
		CHECK_EQ(move_word(e, rkey, i, i % 64 * WORD), 0);
		wc = rc_wait(e->scq);
		CHECK_EQ(wc.wr_id, i);
		CHECK(rc_word(e->buf) != LATER);
	} while (wc.status == IBV_WC_SUCCESS);
	CHECK_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
}

static void set_words(struct end *e, uint64_t value)
{
	for (unsigned i = 0; i < 64; i++)
		rc_set_word(e->buf + i * WORD, value);
}

/* From the return of ibv_dereg_mr on nothing comes, or goes, any more, however busy the requester is. */
static void target__deregistered_meanwhile(struct end *e)
{
	struct params p = params();
	rc_start(e, &p);
	uint64_t state = e->seed;
	unsigned rounds = rc_times(100);
	for (unsigned round = 0; round < rounds; round++) {
		if (e->passive) {
			struct ibv_mr *mr;
			set_words(e, 0);
			CHECK(mr = ibv_reg_mr(e->pd, e->buf, p.bytes, p.mr_access));
			tell(e, mr->rkey);
			uint32_t which = 1 + rc_below(&state, 60);
			if (reads)
				rc_pause_ms(which % 3);
			else
				while (!rc_word(e->buf + which * WORD))
					;
			CHECK_EQ(ibv_dereg_mr(mr), 0);
			set_words(e, LATER);
			for (int i = 0; i < 20 * 64; i++)
				CHECK_EQ(rc_word(e->buf + i % 64 * WORD), LATER);
		} else {
			go_on_until_refused(e, hear(e));
		}
		rc_reconnect(e);
	}
	rc_finish(e);
}

/* Two threads of the active end, by one queue pair, each to or from its own half. */
struct worker {
	struct end *e;
	uint64_t at;
	bool reads;
	uint32_t posted;
};

enum { EACH = 2000 };
static atomic_uint completed;

static void *work_beside_another(void *arg)
{
	struct worker *w = arg;
	struct ibv_wc wc;
	reads = w->reads;
	while (w->posted < EACH) {
		rc_set_word(w->e->buf + w->at, w->posted + 1);
		int err = rc_post(
			w->e,
			&(struct op){ .opcode = REPEATED, .at = w->at, .len = WORD, .remote_at = w->at });
		CHECK(err == 0 || err == ENOMEM);
		w->posted += !err;
		int n = ibv_poll_cq(w->e->scq, 1, &wc);
		CHECK(n >= 0 && (!n || wc.status == IBV_WC_SUCCESS));
		atomic_fetch_add(&completed, n);
	}
	return NULL;
}

static void queue_pair__of_two_threads(struct end *e)
{
	struct params p = params();
	rc_start(e, &p);
	if (e->passive && reads) {
		rc_set_word(e->buf, EACH);
		rc_set_word(e->buf + HALF, EACH);
	}
	meet(e);
	if (!e->passive) {
		struct worker w[2] = { { e, 0, reads }, { e, HALF, reads } };
		pthread_t thread;
		CHECK_EQ(pthread_create(&thread, NULL, work_beside_another, &w[1]), 0);
		work_beside_another(&w[0]);
		CHECK_EQ(pthread_join(thread, NULL), 0);
		for (; atomic_load(&completed) < 2 * EACH; atomic_fetch_add(&completed, 1))
			CHECK_EQ(rc_wait(e->scq).status, IBV_WC_SUCCESS);
		rc_expect_none(e->scq);
	}
	meet(e);
	CHECK_EQ(rc_word(e->buf), EACH);
	CHECK_EQ(rc_word(e->buf + HALF), EACH);
	rc_finish(e);
}

/* Each for WRITEs and for READs, unless it is about one of them. */
#define EACH_WAY(X)                             \
	X(target__deregistered)                 \
	X(target__registered_anew)              \
	X(target__not_granted_any_more)         \
	X(target__moved)                        \
	X(target__of_another_domain)            \
	X(target__ends_where_it_ends)           \
	X(target__granted_for_this_alone)       \
	X(target__deregistered_meanwhile)       \
	X(window__invalidated_by_the_requester) \
	X(queue_pair__grants_less)              \
	X(queue_pair__answers_nothing)          \
	X(queue_pair__of_two_threads)           \
	X(own__deregistered)                    \
	X(own__not_writable_any_more)           \
	X(own__ends_where_it_ends)              \
	X(own__by_another_key)                  \
	X(queue__behind_what_waits)             \
	X(queue__full_until_polled)             \
	X(state__drained)                       \
	X(state__connected_anew)                \
	X(cq__overrun_by_another)               \
	X(sizes__one_after_the_other)           \
	X(sizes__of_a_large_region)

#define WRITES(name) static void write_##name(struct end *e) { reads = false; name(e); }
#define READS(name) static void read_##name(struct end *e) { reads = true; name(e); }
EACH_WAY(WRITES)
WRITES(own__inline)
EACH_WAY(READS)
READS(own__not_inline)
READS(state__peer_answers_no_reads)
READS(state__queue_pair_sends_no_reads)

#define WRITE_BODY(name) BODY(write_##name),
#define READ_BODY(name) BODY(read_##name),
static const struct body bodies[] = {
	EACH_WAY(WRITE_BODY)
	WRITE_BODY(own__inline)
	EACH_WAY(READ_BODY)
	READ_BODY(own__not_inline)
	READ_BODY(state__peer_answers_no_reads)
	READ_BODY(state__queue_pair_sends_no_reads)
};
RC_MAIN(bodies)
