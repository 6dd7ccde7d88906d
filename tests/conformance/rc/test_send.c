/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SEND and its receives: sizes, lists, inline data, immediate data, completions, receivers that are not
 * ready, full queues.
 */
#include "rc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- data ---- */

/* Around every power of two and every limit of a queue slot. */
static const uint32_t sizes[] = {
	1,     2,     3,     7,	     8,	      9,       16,	31,	 32,	  33,	63,
	64,    65,    95,    96,     97,      127,     128,	129,	 255,	  256,	257,
	1023,  1024,  1025,  2047,   2048,    2049,    4095,	4096,	 4097,	  8191, 16384,
	65535, 65536, 65537, 131072, 1048575, 1048576, 1048577, 3000001, 8388608,
};
enum { NSIZES = sizeof(sizes) / sizeof(sizes[0]), GUARD = 64 };

static void send__of_every_size(struct end *e)
{
	struct params p = params();
	p.bytes = 9 << 20;
	rc_start(e, &p);
	for (int i = 0; i < NSIZES; i++) {
		if (!e->passive) {
			rc_fill(e->buf, sizes[i], e->seed + i);
			CHECK_EQ(hear(e), i);
			POST(e, .id = i, .opcode = IBV_WR_SEND, .len = sizes[i]);
			CHECK_EQ(rc_expect(e->scq, i, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
			continue;
		}
		rc_set(e->buf, sizes[i] + 2 * GUARD, 0xee);
		rc_recv(e, 100 + i, GUARD, sizes[i] + i % 2 * GUARD); /* exactly as long, or longer */
		tell(e, i);
		CHECK_EQ(rc_expect(e->rcq, 100 + i, IBV_WC_SUCCESS).byte_len, sizes[i]);
		VERIFY(e->buf + GUARD, sizes[i], e->seed + i);
		VERIFY_BYTE(e->buf, GUARD, 0xee);
		VERIFY_BYTE(e->buf + GUARD + sizes[i], GUARD, 0xee);
	}
	rc_finish(e);
}

static bool has_memory(uint64_t bytes)
{
	return (uint64_t)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE) > bytes;
}

/* Verified in every page: first bytes, last bytes, and some between. */
static void send__of_a_gibibyte(struct end *e)
{
	enum { PAGE = 4096, PART = 64, PLACES = 3 };
	static const unsigned places[PLACES] = { 0, 1777, PAGE - PART };
	struct params p = params();
	p.bytes = 1u << 30;
	if (!e->copies_by_vm)
		return; /* once in a process and once between two is enough */
	if (!rc_is_long())
		rc_skip("part of make check-all alone");
	if (!has_memory(6ull << 30))
		rc_skip("it takes 6 GiB of memory");
	rc_start(e, &p);
	madvise(e->buf, p.bytes, MADV_HUGEPAGE);
	for (uint64_t at = 0; !e->passive && at < p.bytes; at += PAGE)
		for (int i = 0; i < PLACES; i++)
			rc_fill(e->buf + at + places[i], PART, e->seed + at + i);
	if (e->passive)
		rc_recv(e, 1, 0, p.bytes);
	meet(e);
	if (!e->passive) {
		POST(e, .id = 2, .opcode = IBV_WR_SEND, .len = p.bytes);
		rc_expect(e->scq, 2, IBV_WC_SUCCESS);
	} else {
		CHECK_EQ(rc_expect(e->rcq, 1, IBV_WC_SUCCESS).byte_len, p.bytes);
	}
	for (uint64_t at = 0; e->passive && at < p.bytes; at += PAGE)
		for (int i = 0; i < PLACES; i++)
			VERIFY(e->buf + at + places[i], PART, e->seed + at + i);
	rc_finish(e);
}

static void send__of_nothing(struct end *e)
{
	struct params p = params();
	struct ibv_sge none = { 0, 0, 0 };
	rc_start(e, &p);
	if (e->passive) {
		rc_set(e->buf, 64, 0xee);
		for (int i = 0; i < 3; i++)
			rc_recv(e, i, 0, 64);
		struct ibv_recv_wr *bad, wr = { .wr_id = 3 };
		CHECK_EQ(ibv_post_recv(e->qp, &wr, &bad), 0); /* no scatter entry at all is enough */
	}
	meet(e);
	if (e->passive) {
		for (int i = 0; i < 4; i++)
			CHECK_EQ(rc_expect(e->rcq, i, IBV_WC_SUCCESS).byte_len, 0);
		VERIFY_BYTE(e->buf, 64, 0xee);
	} else {
		POST(e, .id = 1, .opcode = IBV_WR_SEND, .sge = &none, .nsge = 0);
		POST(e, .id = 2, .opcode = IBV_WR_SEND, .len = 0);
		POST(e, .id = 3, .opcode = IBV_WR_SEND, .sge = &none, .nsge = 1, .lkey = 0xdead); /* no bytes need no key */
		POST(e, .id = 4, .opcode = IBV_WR_SEND, .sge = &none, .nsge = 0, .flags = IBV_SEND_INLINE);
		for (int i = 1; i <= 4; i++)
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
	}
	rc_finish(e);
}

/* Cuts total bytes at base into n entries with gaps between them; some entries are empty. */
static void cut(uint64_t *rng, struct ibv_sge *sge, int n, uint8_t *base, uint32_t total, uint32_t lkey)
{
	uint32_t left = total;
	for (int i = 0; i < n; i++) {
		uint32_t part = i == n - 1	 ? left :
				rc_below(rng, 4) ? rc_below(rng, 2 * left / (n - i) + 1) :
						   0;
		if (part > left)
			part = left;
		sge[i] = (struct ibv_sge){ (uintptr_t)base, part, lkey };
		base += part + rc_below(rng, 33);
		left -= part;
	}
}

static void gather_into(uint8_t *to, const struct ibv_sge *sge, int n)
{
	for (int i = 0; i < n; i++) {
		memcpy(to, (void *)(uintptr_t)sge[i].addr, sge[i].length);
		to += sge[i].length;
	}
}

static void scatter_from(const uint8_t *from, const struct ibv_sge *sge, int n)
{
	for (int i = 0; i < n; i++) {
		memcpy((void *)(uintptr_t)sge[i].addr, from, sge[i].length);
		from += sge[i].length;
	}
}

static void send__from_lists_into_lists(struct end *e)
{
	enum { ROUNDS = 120, MAX = 300000, SGES = 32 };
	struct params p = params();
	struct ibv_sge sge[SGES];
	uint8_t *flat = malloc(MAX);
	uint64_t rng = e->seed * 1000 + e->passive, shared = e->seed;
	p.cap.max_send_sge = p.cap.max_recv_sge = SGES;
	p.bytes = 2 * MAX;
	rc_start(e, &p);
	for (int i = 0; i < ROUNDS; i++) {
		uint32_t limit = i % 3 == 0 ? 200 :
				 i % 3 == 1 ? 5000 :
					      MAX - 64,
			 total = 1 + rc_below(&shared, limit);
		int n = i % 4 ? 1 + rc_below(&rng, SGES) : SGES;
		cut(&rng, sge, n, e->buf + rc_below(&rng, 9), total, e->mr->lkey);
		if (e->passive) {
			struct ibv_recv_wr *bad, wr = { .wr_id = i, .sg_list = sge, .num_sge = n };
			rc_set(e->buf, p.bytes, 0xee);
			CHECK_EQ(ibv_post_recv(e->qp, &wr, &bad), 0);
			tell(e, i);
			CHECK_EQ(rc_expect(e->rcq, i, IBV_WC_SUCCESS).byte_len, total);
			gather_into(flat, sge, n);
			VERIFY(flat, total, e->seed + i);
			memset(flat, 0xee, total);
			scatter_from(flat, sge, n);
			VERIFY_BYTE(e->buf, p.bytes, 0xee); /* the gaps are untouched */
		} else {
			rc_fill(flat, total, e->seed + i);
			scatter_from(flat, sge, n);
			CHECK_EQ(hear(e), i);
			POST(e, .id = i, .opcode = IBV_WR_SEND, .sge = sge, .nsge = n);
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		}
	}
	free(flat);
	rc_finish(e);
}

/* Inline data is the program's again at once, and needs no key. */
static void send__inline(struct end *e)
{
	struct params p = params();
	p.cap.max_inline_data = 220;
	rc_start(e, &p);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK_EQ(ibv_query_qp(e->qp, &attr, IBV_QP_CAP, &init), 0);
	uint32_t max = init.cap.max_inline_data;
	CHECK(max >= 220);
	const uint32_t lengths[] = { 0, 1, 7, 32, 33, 64, 96, 97, 219, 220, max };
	enum { N = sizeof(lengths) / sizeof(lengths[0]) };
	for (int i = 0; e->passive && i < N; i++)
		rc_recv(e, i, i * 2048, 2048);
	meet(e);
	if (e->passive) {
		for (int i = 0; i < N; i++) {
			CHECK_EQ(rc_expect(e->rcq, i, IBV_WC_SUCCESS).byte_len, lengths[i]);
			VERIFY(e->buf + i * 2048, lengths[i], e->seed + i);
		}
	} else {
		uint8_t data[4096];
		for (int i = 0; i < N; i++) {
			rc_fill(data, lengths[i], e->seed + i);
			uint32_t half = lengths[i] / 2;
			struct ibv_sge sge[2] = { { (uintptr_t)data, half, 0xbad },
						  { (uintptr_t)data + half, lengths[i] - half, 0 } };
			POST(e, .id = i, .opcode = IBV_WR_SEND, .sge = sge, .nsge = 2,
			     .flags = IBV_SEND_INLINE);
			memset(data, 0xaa, sizeof(data));
		}
		struct ibv_sge longer = { (uintptr_t)data, max + 1, 0 };
		CHECK(rc_post(e, &(struct op){ .id = 99, .opcode = IBV_WR_SEND, .sge = &longer, .nsge = 1,
					       .flags = IBV_SEND_INLINE }) > 0);
		for (int i = 0; i < N; i++)
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		rc_expect_none(e->scq);
	}
	rc_finish(e);
}

/* ---- completions ---- */

static void send__completions_tell_all(struct end *e)
{
	struct params p = params();
	rc_start(e, &p);
	if (e->passive) {
		rc_recv(e, 0xffffffffffffffff, 0, 100);
		rc_recv(e, 0x8000000000000001, 0, 100);
	}
	meet(e);
	if (e->passive) {
		struct ibv_wc wc = rc_expect(e->rcq, 0xffffffffffffffff, IBV_WC_SUCCESS);
		CHECK_EQ(wc.opcode, IBV_WC_RECV);
		CHECK_EQ(wc.byte_len, 10);
		CHECK_EQ(wc.qp_num, e->qp->qp_num);
		CHECK_EQ(wc.wc_flags & IBV_WC_WITH_IMM, 0);
		wc = rc_expect(e->rcq, 0x8000000000000001, IBV_WC_SUCCESS);
		CHECK_EQ(wc.opcode, IBV_WC_RECV);
		CHECK_EQ(wc.byte_len, 11);
		CHECK_EQ(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
		CHECK_EQ(ntohl(wc.imm_data), 0x12345678);
		CHECK_EQ(wc.src_qp, e->peer.qpn);
	} else {
		POST(e, .id = 0xfffffffffffffffe, .opcode = IBV_WR_SEND, .len = 10);
		POST(e, .id = 0x8000000000000002, .opcode = IBV_WR_SEND_WITH_IMM, .len = 11,
		     .imm = 0x12345678);
		struct ibv_wc wc = rc_expect(e->scq, 0xfffffffffffffffe, IBV_WC_SUCCESS);
		CHECK_EQ(wc.opcode, IBV_WC_SEND);
		CHECK_EQ(wc.qp_num, e->qp->qp_num);
		CHECK_EQ(rc_expect(e->scq, 0x8000000000000002, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
	}
	rc_finish(e);
}

/* Receives are used in the order of posting, by messages in theirs, whatever their lengths. */
static void send__keeps_order(struct end *e)
{
	enum { N = 64, ROUNDS = 6 };
	static const uint32_t lengths[] = { 1, 900, 40, 700, 64, 8, 1000, 3 };
	struct params p = params();
	rc_start(e, &p);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < N; i++) {
			if (e->passive)
				rc_recv(e, round * 100 + i, i * 1024, 1024);
			else
				rc_fill(e->buf + i * 1024, 1024, e->seed + i + round);
		}
		meet(e);
		for (int i = 0; !e->passive && i < N; i++)
			POST(e, .id = i, .opcode = IBV_WR_SEND_WITH_IMM, .at = i * 1024,
			     .len = lengths[i % 8], .imm = i);
		for (int i = 0; i < N; i++) {
			if (!e->passive) {
				rc_expect(e->scq, i, IBV_WC_SUCCESS);
				continue;
			}
			struct ibv_wc wc = rc_expect(e->rcq, round * 100 + i, IBV_WC_SUCCESS);
			CHECK_EQ(ntohl(wc.imm_data), i);
			CHECK_EQ(wc.byte_len, lengths[i % 8]);
			VERIFY(e->buf + i * 1024, wc.byte_len, e->seed + i + round);
		}
		meet(e);
	}
	rc_finish(e);
}

/* Both ends send many at once and receive at the same time; receives are posted again as they complete. */
static void send__both_ways_at_once(struct end *e)
{
	enum { N = 4000, DEPTH = 32, SLOT = 512 };
	struct params p = params();
	int sent = 0, done = 0, got = 0;
	struct ibv_wc wc;
	rc_start(e, &p);
	for (int i = 0; i < DEPTH; i++)
		rc_recv(e, i, i * SLOT, SLOT);
	meet(e);
	for (uint64_t end = rc_now_ms() + 60000; (done < N || got < N) && rc_now_ms() < end;) {
		while (sent < N && sent - done < DEPTH) {
			uint64_t at = (DEPTH + sent % DEPTH) * SLOT;
			rc_fill(e->buf + at, 1 + sent % SLOT, e->seed + sent);
			POST(e, .id = sent, .opcode = IBV_WR_SEND, .at = at, .len = 1 + sent % SLOT);
			sent++;
		}
		if (ibv_poll_cq(e->scq, 1, &wc) == 1) {
			CHECK_EQ(wc.status, IBV_WC_SUCCESS);
			CHECK_EQ(wc.wr_id, done++);
		}
		if (ibv_poll_cq(e->rcq, 1, &wc) == 1) {
			CHECK_EQ(wc.status, IBV_WC_SUCCESS);
			CHECK_EQ(wc.wr_id, got % DEPTH);
			CHECK_EQ(wc.byte_len, 1 + got % SLOT);
			VERIFY(e->buf + got % DEPTH * SLOT, wc.byte_len, e->seed + got);
			if (++got + DEPTH <= N)
				rc_recv(e, wc.wr_id, wc.wr_id * SLOT, SLOT);
		}
	}
	CHECK_EQ(done, N);
	CHECK_EQ(got, N);
	rc_finish(e);
}

/* ---- the receiver is not ready, or too small ---- */

static void send__longer_than_the_receive(struct end *e, uint32_t length)
{
	struct params p = params();
	p.bytes = 1 << 20;
	rc_start(e, &p);
	rc_set(e->buf, p.bytes, 0xee);
	if (e->passive) {
		rc_recv(e, 1, 0, length - 1);
		rc_recv(e, 2, 0, length);
	}
	meet(e);
	if (e->passive) {
		rc_expect(e->rcq, 1, IBV_WC_LOC_LEN_ERR);
		rc_expect(e->rcq, 2, IBV_WC_WR_FLUSH_ERR);
		VERIFY_BYTE(e->buf + length - 1, 1000, 0xee);
	} else {
		POST(e, .id = 3, .opcode = IBV_WR_SEND, .len = length);
		rc_expect(e->scq, 3, IBV_WC_REM_INV_REQ_ERR);
	}
	CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
	rc_finish(e);
}

static void send__longer_than_the_receive_by_a_byte(struct end *e)
{
	send__longer_than_the_receive(e, 9);
}

static void send__long_and_longer_than_the_receive(struct end *e)
{
	send__longer_than_the_receive(e, 700000);
}

/*
 * rnr_retry 0 fails at the first attempt, 1 to 6 after the receiver's timer; what comes behind is flushed,
 * the receiver lives.
 */
static void expect_rnr_failure(struct end *e, uint8_t retries, enum ibv_wr_opcode opcode)
{
	struct params p = params();
	p.rnr_retry = retries;
	p.min_rnr_timer = 1; /* 10 us */
	rc_start(e, &p);
	if (!e->passive) {
		POST(e, .id = 1, .opcode = opcode, .len = 8);
		POST(e, .id = 2, .opcode = IBV_WR_SEND, .len = 8, .quiet = true);
		POST(e, .id = 3, .opcode = IBV_WR_SEND, .len = 8);
		rc_expect(e->scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
		rc_expect(e->scq, 2, IBV_WC_WR_FLUSH_ERR);
		rc_expect(e->scq, 3, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
	}
	meet(e);
	if (e->passive) {
		CHECK_EQ(rc_state(e->qp), IBV_QPS_RTS);
		rc_expect_none(e->rcq);
	}
	rc_finish(e);
}

static void rnr__without_retries_fails(struct end *e) { expect_rnr_failure(e, 0, IBV_WR_SEND); }
static void rnr__after_one_retry_fails(struct end *e) { expect_rnr_failure(e, 1, IBV_WR_SEND); }
static void rnr__after_six_retries_fails(struct end *e) { expect_rnr_failure(e, 6, IBV_WR_SEND); }
static void rnr__of_a_write_with_immediate_fails(struct end *e)
{
	expect_rnr_failure(e, 2, IBV_WR_RDMA_WRITE_WITH_IMM);
}

/* A receive that is posted in time lets the message in. */
static void expect_rnr_success(struct end *e, uint8_t retries, uint8_t timer)
{
	enum { N = 5 };
	struct params p = params();
	p.rnr_retry = retries;
	p.min_rnr_timer = timer;
	rc_start(e, &p);
	for (int i = 0; i < N; i++) {
		if (!e->passive) {
			rc_fill(e->buf, 5000, e->seed + i);
			POST(e, .id = i, .opcode = IBV_WR_SEND, .len = i % 2 ? 5000 : 5);
			rc_expect_none(e->scq);
			meet(e);
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		} else {
			meet(e);
			rc_pause_ms(5);
			rc_recv(e, i, 0, 5000);
			CHECK_EQ(rc_expect(e->rcq, i, IBV_WC_SUCCESS).byte_len, i % 2 ? 5000 : 5);
			VERIFY(e->buf, i % 2 ? 5000 : 5, e->seed + i);
		}
	}
	rc_finish(e);
}

static void rnr__seven_waits_for_ever(struct end *e) { expect_rnr_success(e, 7, 1); }
static void rnr__timer_gives_time(struct end *e) { expect_rnr_success(e, 6, 0); /* 655 ms */ }

/* ---- queues ---- */

/* A slot of the send queue is free again when a completion at or behind it has been polled: not before. */
static void send__full_queue_refuses(struct end *e)
{
	enum { ROUNDS = 3 };
	struct params p = params();
	p.cap.max_send_wr = 8;
	rc_start(e, &p);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK_EQ(ibv_query_qp(e->qp, &attr, IBV_QP_CAP, &init), 0);
	int max = init.cap.max_send_wr;
	CHECK(max >= 8 && max <= 64);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; e->passive && i < max; i++)
			rc_recv(e, i, 0, 8);
		meet(e);
		for (int i = 0; !e->passive && i < max; i++)
			POST(e, .id = i, .opcode = IBV_WR_SEND, .len = 8,
			     .quiet = i != max / 2 && i != max - 1);
		for (int i = 0; e->passive && i < max; i++)
			rc_expect(e->rcq, i, IBV_WC_SUCCESS);
		meet(e);
		if (e->passive)
			continue;
		/* All are done, yet nothing has been polled. */
		CHECK_EQ(rc_post(e, &(struct op){ .opcode = IBV_WR_SEND, .len = 8 }), ENOMEM);
		rc_expect(e->scq, max / 2, IBV_WC_SUCCESS);
		rc_expect(e->scq, max - 1, IBV_WC_SUCCESS);
		rc_expect_none(e->scq);
	}
	rc_finish(e);
}

static void send__sq_sig_all_signals_all(struct end *e)
{
	struct params p = params();
	p.sig_all = true;
	rc_start(e, &p);
	if (e->passive)
		rc_recv(e, 1, 0, 8);
	meet(e);
	if (!e->passive) {
		POST(e, .id = 1, .opcode = IBV_WR_SEND, .len = 8, .quiet = true);
		POST(e, .id = 2, .opcode = IBV_WR_RDMA_WRITE, .len = 8, .quiet = true);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
		CHECK_EQ(rc_expect(e->scq, 2, IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_WRITE);
	}
	rc_finish(e);
}

static void recv__full_queue_refuses(struct end *e)
{
	struct params p = params();
	p.cap.max_recv_wr = 4;
	rc_start(e, &p);
	int n = 0;
	if (e->passive) {
		while (!rc_post_recv(e, e->qp, n, 0, 8))
			CHECK(++n <= 64);
		CHECK(n >= 4);
		CHECK_EQ(rc_post_recv(e, e->qp, n, 0, 8), ENOMEM);
		tell(e, n);
	} else {
		n = hear(e);
		for (int i = 0; i < n; i++)
			POST(e, .id = i, .opcode = IBV_WR_SEND, .len = 8);
		for (int i = 0; i < n; i++)
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
	}
	for (int i = 0; e->passive && i < n; i++) {
		rc_expect(e->rcq, i, IBV_WC_SUCCESS);
		rc_recv(e, i, 0, 8);
	}
	rc_finish(e);
}

/* A chain is taken up to the first bad request, which is named. */
static void post__of_a_chain_stops_at_the_bad_one(struct end *e)
{
	struct params p = params();
	rc_start(e, &p);
	struct ibv_sge sge[5];
	for (int i = 0; i < 5; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)e->buf, 8, e->mr->lkey };
	if (e->passive) {
		struct ibv_recv_wr wr[3] = { { 1, &wr[1], sge, 1 },
					     { 2, &wr[2], sge, 5 },
					     { 3, NULL, sge, 1 } },
				   *bad = NULL;
		CHECK_EQ(ibv_post_recv(e->qp, wr, &bad), EINVAL);
		CHECK(bad == &wr[1]);
		meet(e);
		rc_expect(e->rcq, 1, IBV_WC_SUCCESS);
		rc_expect_none(e->rcq);
	} else {
		struct ibv_send_wr wr[3] = {
			{ 1, &wr[1], sge, 1, IBV_WR_SEND, IBV_SEND_SIGNALED },
			{ 2, &wr[2], sge, 5, IBV_WR_SEND, IBV_SEND_SIGNALED },
			{ 3, NULL, sge, 1, IBV_WR_SEND, IBV_SEND_SIGNALED },
		}, *bad = NULL;
		meet(e);
		CHECK_EQ(ibv_post_send(e->qp, wr, &bad), EINVAL);
		CHECK(bad == &wr[1]);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
		rc_expect_none(e->scq);
	}
	rc_finish(e);
}

static const struct body bodies[] = {
	BODY(send__of_every_size),
	BODY(send__of_a_gibibyte),
	BODY(send__of_nothing),
	BODY(send__from_lists_into_lists),
	BODY(send__inline),
	BODY(send__completions_tell_all),
	BODY(send__keeps_order),
	BODY(send__both_ways_at_once),
	BODY(send__longer_than_the_receive_by_a_byte),
	BODY(send__long_and_longer_than_the_receive),
	BODY(rnr__without_retries_fails),
	BODY(rnr__after_one_retry_fails),
	BODY(rnr__after_six_retries_fails),
	BODY(rnr__of_a_write_with_immediate_fails),
	BODY(rnr__seven_waits_for_ever),
	BODY(rnr__timer_gives_time),
	BODY(send__full_queue_refuses),
	BODY(send__sq_sig_all_signals_all),
	BODY(recv__full_queue_refuses),
	BODY(post__of_a_chain_stops_at_the_bad_one),
};
RC_MAIN(bodies)
