/* SPDX-License-Identifier: BSD-2-Clause */
/* WRITE, READ and atomics: data, completions, order, fences. What is refused is in test_errors.c. */
#include "rc.h"

#include <arpa/inet.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

static const uint32_t sizes[] = {
	1,    2,     3,	    7,	   8,	   9,	    31,	     32,      33,      64,	95,
	96,   97,    127,   128,   129,	   256,	    1023,    1024,    1025,    4095,	4096,
	4097, 65535, 65536, 65537, 131073, 1048575, 1048576, 1048577, 3000001, 8388608,
};
enum { NSIZES = sizeof(sizes) / sizeof(sizes[0]), GUARD = 64 };

static void write__of_every_size(struct end *e)
{
	struct params p = params();
	p.bytes = 9 << 20;
	rc_start(e, &p);
	for (int i = 0; i < NSIZES; i++) {
		uint32_t at = GUARD + i % 9;
		if (e->passive) {
			rc_set(e->buf, sizes[i] + 2 * GUARD + 9, 0xee);
			meet(e);
			meet(e);
			VERIFY(e->buf + at, sizes[i], e->seed + i);
			VERIFY_BYTE(e->buf, at, 0xee);
			VERIFY_BYTE(e->buf + at + sizes[i], GUARD, 0xee);
		} else {
			rc_fill(e->buf + i, sizes[i], e->seed + i);
			meet(e);
			POST(e, .id = i, .opcode = IBV_WR_RDMA_WRITE, .at = i, .len = sizes[i],
			     .remote_at = at);
			CHECK_EQ(rc_expect(e->scq, i, IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_WRITE);
			meet(e);
		}
	}
	rc_finish(e);
}

static void write__inline(struct end *e)
{
	uint8_t data[65];
	struct params p = params();
	rc_start(e, &p);
	for (int i = 0; i <= 64; i++) {
		struct ibv_sge sge = { (uintptr_t)data, i, 0xbad };
		if (e->passive)
			break;
		rc_fill(data, i, e->seed + i);
		POST(e, .id = i, .opcode = IBV_WR_RDMA_WRITE, .sge = &sge, .nsge = 1, .remote_at = i * 100,
		     .flags = IBV_SEND_INLINE, .quiet = i % 4);
		memset(data, 0xaa, sizeof(data));
		if (i % 4 == 0)
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
	}
	meet(e);
	for (int i = 0; e->passive && i <= 64; i++) {
		VERIFY(e->buf + i * 100, i, e->seed + i);
		VERIFY_BYTE(e->buf + i * 100 + i, 100 - i, 0);
	}
	rc_finish(e);
}

static void write__with_immediate(struct end *e)
{
	static const uint32_t lengths[] = { 8, 0, 100, 5000, 1 << 20 };
	enum { N = sizeof(lengths) / sizeof(lengths[0]) };
	struct params p = params();
	p.bytes = 2 << 20;
	rc_start(e, &p);
	for (int i = 0; i < N; i++) {
		if (!e->passive) {
			rc_fill(e->buf, lengths[i], e->seed + i);
			meet(e);
			POST(e, .id = i, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .len = lengths[i],
			     .remote_at = 1000, .imm = 7000 + i);
			CHECK_EQ(rc_expect(e->scq, i, IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_WRITE);
		} else {
			rc_recv(e, i, 0, i % 2 * 8); /* its buffer stays untouched, and may be none */
			rc_set(e->buf, p.bytes, 0xee);
			meet(e);
			struct ibv_wc wc = rc_expect(e->rcq, i, IBV_WC_SUCCESS);
			CHECK_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
			CHECK_EQ(wc.byte_len, lengths[i]);
			CHECK_EQ(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
			CHECK_EQ(ntohl(wc.imm_data), 7000 + i);
			CHECK_EQ(wc.qp_num, e->qp->qp_num);
			VERIFY_BYTE(e->buf, 1000, 0xee);
			VERIFY(e->buf + 1000, lengths[i], e->seed + i);
			VERIFY_BYTE(e->buf + 1000 + lengths[i], 1000, 0xee);
		}
		meet(e);
	}
	rc_finish(e);
}

static void read__of_every_size(struct end *e)
{
	struct params p = params();
	p.bytes = 9 << 20;
	rc_start(e, &p);
	if (e->passive)
		rc_fill(e->buf, p.bytes, e->seed);
	uint8_t *expected = malloc(p.bytes);
	rc_fill(expected, p.bytes, e->seed);
	meet(e);
	for (int i = 0; !e->passive && i < NSIZES; i++) {
		uint32_t to = GUARD + i, from = 3 * i;
		rc_set(e->buf, sizes[i] + 2 * GUARD + NSIZES, 0xee);
		POST(e, .id = i, .opcode = IBV_WR_RDMA_READ, .at = to, .len = sizes[i], .remote_at = from);
		struct ibv_wc wc = rc_expect(e->scq, i, IBV_WC_SUCCESS);
		CHECK_EQ(wc.opcode, IBV_WC_RDMA_READ);
		CHECK_EQ(wc.byte_len, sizes[i]);
		CHECK(!memcmp(e->buf + to, expected + from, sizes[i]));
		VERIFY_BYTE(e->buf, to, 0xee);
		VERIFY_BYTE(e->buf + to + sizes[i], GUARD, 0xee);
	}
	free(expected);
	rc_finish(e);
}

/* Gathered by the WRITE, scattered by the READ that brings it back, in other pieces. */
static void write_and_read__with_lists(struct end *e)
{
	enum { ROUNDS = 60, SGES = 16, MAX = 200000 };
	struct params p = params();
	struct ibv_sge sge[SGES];
	uint64_t rng = e->seed;
	p.cap.max_send_sge = SGES;
	p.bytes = 4 * MAX;
	rc_start(e, &p);
	for (int i = 0; !e->passive && i < ROUNDS; i++) {
		uint32_t total = 1 + rc_below(&rng, i % 2 ? 400 : MAX);
		rc_fill(e->buf, total, e->seed + i);
		for (int back = 0; back < 2; back++) {
			uint8_t *from = e->buf + back * 2 * MAX;
			uint32_t left = total;
			int n = 1 + rc_below(&rng, SGES);
			for (int s = 0; s < n; s++) {
				uint32_t part = s == n - 1 ? left : rc_below(&rng, left / 2 + 1);
				sge[s] = (struct ibv_sge){ (uintptr_t)from, part, e->mr->lkey };
				from += part;
				left -= part;
			}
			POST(e, .id = i, .opcode = back ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, .sge = sge,
			     .nsge = n, .remote_at = i);
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		}
		VERIFY(e->buf + 2 * MAX, total, e->seed + i);
	}
	rc_finish(e);
}

/* No bytes need no key and no address. */
static void one_sided__of_nothing(struct end *e)
{
	struct params p = params();
	rc_start(e, &p);
	if (e->passive)
		rc_recv(e, 9, 0, 0);
	meet(e);
	if (!e->passive) {
		POST(e, .id = 1, .opcode = IBV_WR_RDMA_WRITE, .remote_at = 1ull << 40, .rkey = 0xbad,
		     .lkey = 0xbad);
		POST(e, .id = 2, .opcode = IBV_WR_RDMA_READ, .remote_at = 1ull << 40, .rkey = 0xbad,
		     .lkey = 0xbad);
		POST(e, .id = 3, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .remote_at = 1ull << 40, .rkey = 0xbad,
		     .imm = 5);
		for (int i = 1; i <= 3; i++)
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
	} else {
		CHECK_EQ(rc_expect(e->rcq, 9, IBV_WC_SUCCESS).byte_len, 0);
	}
	rc_finish(e);
}

/* ---- atomics ---- */

static void atomic__returns_what_it_found(struct end *e)
{
	struct params p = params();
	rc_start(e, &p);
	uint64_t *words = (uint64_t *)e->buf;
	if (e->passive) {
		rc_set_word(&words[0], 100);
		rc_set_word(&words[1], 0xfffffffffffffffe);
		rc_set_word(&words[2], 0x1111222233334444);
	}
	meet(e);
	if (!e->passive) {
		POST(e, .id = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .at = 0, .len = 8, .remote_at = 0,
		     .compare = 23);
		POST(e, .id = 2, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .at = 8, .len = 8, .remote_at = 8, .compare = 5); /* wraps */
		POST(e, .id = 3, .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .at = 16, .len = 8, .remote_at = 16,
		     .compare = 0x1111222233334444, .swap = 0x5555666677778888);
		POST(e, .id = 4, .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .at = 24, .len = 8, .remote_at = 16,
		     .compare = 0x1111222233334444, .swap = 1); /* finds another value, leaves it */
		CHECK_EQ(rc_expect(e->scq, 1, IBV_WC_SUCCESS).opcode, IBV_WC_FETCH_ADD);
		CHECK_EQ(rc_expect(e->scq, 2, IBV_WC_SUCCESS).byte_len, 8);
		CHECK_EQ(rc_expect(e->scq, 3, IBV_WC_SUCCESS).opcode, IBV_WC_COMP_SWAP);
		rc_expect(e->scq, 4, IBV_WC_SUCCESS);
		CHECK_EQ(words[0], 100);
		CHECK_EQ(words[1], 0xfffffffffffffffe);
		CHECK_EQ(words[2], 0x1111222233334444);
		CHECK_EQ(words[3], 0x5555666677778888);
		/* A result may be scattered. */
		struct ibv_sge parts[] = { { (uintptr_t)e->buf + 101, 3, e->mr->lkey },
					   { (uintptr_t)e->buf + 120, 5, e->mr->lkey } };
		POST(e, .id = 5, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sge = parts, .nsge = 2,
		     .remote_at = 16, .compare = 0);
		rc_expect(e->scq, 5, IBV_WC_SUCCESS);
		CHECK(!memcmp(e->buf + 101, &words[3], 3) && !memcmp(e->buf + 120, (char *)&words[3] + 3, 5));
	}
	meet(e);
	if (e->passive) {
		CHECK_EQ(rc_word(&words[0]), 123);
		CHECK_EQ(rc_word(&words[1]), 3);
		CHECK_EQ(rc_word(&words[2]), 0x5555666677778888);
	}
	rc_finish(e);
}

/* Many more than may be in flight, posted at once. */
static void atomic__deeper_than_max_rd_atomic(struct end *e)
{
	enum { N = 60, ROUNDS = 20 };
	struct params p = params();
	p.max_rd_atomic = p.max_dest_rd_atomic = 2;
	rc_start(e, &p);
	uint64_t *words = (uint64_t *)e->buf;
	for (int round = 0; !e->passive && round < ROUNDS; round++) {
		for (int i = 0; i < N; i++)
			POST(e, .id = i, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .at = i * 8, .len = 8,
			     .remote_at = 40000, .compare = 3);
		for (int i = 0; i < N; i++) {
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
			CHECK_EQ(words[i], 3 * (round * N + i));
		}
	}
	rc_finish(e);
}

/*
 * Several QPs of both ends add to one word, and its owner does so with its CPU; nothing is lost and no value
 * is seen twice.
 */
static void atomic__contended(struct end *e)
{
	enum { QPS = 4, EACH = 500, OURS = 20000 };
	static char seen[2 * QPS * EACH + OURS];
	struct params p = params();
	struct ibv_qp *qps[QPS];
	struct card peer[QPS];
	rc_open(e, &p);
	uint64_t *words = (uint64_t *)e->buf;
	/* the passive end's is the one that counts */
	_Atomic(uint64_t) *counter = (_Atomic(uint64_t) *)(e->buf + 8192);
	for (int i = 0; i < QPS; i++) {
		qps[i] = rc_make_qp(e);
		peer[i] = rc_connect(e, qps[i]);
	}
	/* The passive end reaches its own memory by a QP that is connected to itself. */
	struct ibv_qp *self = rc_make_qp(e);
	struct card own = { .qpn = self->qp_num, .rkey = e->mr->rkey, .addr = (uintptr_t)e->buf };
	struct card *target = e->passive ? &own : &peer[0];
	if (e->passive) {
		struct card swapped = rc_swap_cards(e, self);
		own.psn = rc_psn(self, e);
		own.gid = swapped.gid;
		CHECK_EQ(rc_to_init(e, self), 0);
		CHECK_EQ(rc_to_rtr(e, self, &own), 0);
		CHECK_EQ(rc_to_rts(e, self), 0);
	} else {
		rc_swap_cards(e, self);
	}
	e->peer = *target;
	meet(e);
	for (int n = 0; n < EACH; n++) {
		for (int i = 0; i < QPS; i++)
			POST(e, .qp = e->passive ? self : qps[i], .id = i,
			     .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .at = i * 8, .len = 8, .remote_at = 8192,
			     .compare = 1);
		for (int i = 0; e->passive && i < OURS / EACH; i++)
			atomic_fetch_add(counter, 1);
		for (int i = 0; i < QPS; i++) {
			struct ibv_wc wc = rc_wait(e->scq);
			CHECK_EQ(wc.status, IBV_WC_SUCCESS);
			uint64_t found = words[wc.wr_id];
			CHECK(found < sizeof(seen) && !seen[found]);
			seen[found] = 1;
		}
	}
	meet(e);
	if (e->passive)
		CHECK_EQ(*counter, sizeof(seen));
	meet(e);
	for (int i = 0; i < QPS; i++)
		CHECK_EQ(ibv_destroy_qp(qps[i]), 0);
	CHECK_EQ(ibv_destroy_qp(self), 0);
	rc_finish(e);
}

/* ---- order ---- */

/* A program that sees the last byte of a WRITE sees all of it, without ever calling the library. */
static void write__last_byte_is_last(struct end *e)
{
	enum { ROUNDS = 300, MAX = 60000 };
	struct params p = params();
	uint64_t shared = e->seed;
	rc_start(e, &p);
	if (e->passive)
		meet(e);
	for (int i = 0; i < ROUNDS; i++) {
		uint32_t n = 1 + rc_below(&shared, i % 3 ? 300 : MAX), at = rc_below(&shared, 64);
		if (e->passive) {
			while (rc_byte(e->buf + at + n - 1) != 0xa5)
				sched_yield();
			atomic_thread_fence(memory_order_acquire);
			VERIFY(e->buf + at, n - 1, e->seed + i);
			rc_set(e->buf, at + n, 0);
			tell(e, i);
		} else {
			if (!i)
				meet(e);
			rc_fill(e->buf, n, e->seed + i);
			rc_set(e->buf + n - 1, 1, 0xa5);
			POST(e, .id = i, .opcode = IBV_WR_RDMA_WRITE, .len = n, .remote_at = at);
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
			CHECK_EQ(hear(e), i);
		}
	}
	rc_finish(e);
}

/* What is posted behind a SEND happens behind it, though the receiver is not ready for a while. */
static void write__behind_a_send_waits(struct end *e)
{
	struct params p = params();
	rc_start(e, &p);
	for (int i = 0; i < 5; i++) {
		if (!e->passive) {
			rc_fill(e->buf, 20000, e->seed + i);
			POST(e, .id = 1, .opcode = IBV_WR_SEND, .len = 8);
			POST(e, .id = 2, .opcode = IBV_WR_RDMA_WRITE, .len = i % 2 ? 20000 : 20,
			     .remote_at = 1000);
			POST(e, .id = 3, .opcode = IBV_WR_RDMA_READ, .at = 30000, .len = i % 2 ? 20000 : 20,
			     .remote_at = 1000);
			meet(e);
			rc_expect_none(e->scq);
			meet(e);
			for (int id = 1; id <= 3; id++)
				rc_expect(e->scq, id, IBV_WC_SUCCESS);
			VERIFY(e->buf + 30000, i % 2 ? 20000 : 20, e->seed + i);
			meet(e);
		} else {
			rc_set(e->buf, p.bytes, 0xee);
			meet(e);
			rc_pause_ms(3);
			VERIFY_BYTE(e->buf, p.bytes, 0xee);
			meet(e);
			rc_recv(e, i, 0, 8);
			rc_expect(e->rcq, i, IBV_WC_SUCCESS);
			meet(e);
			VERIFY(e->buf + 1000, i % 2 ? 20000 : 20, e->seed + i);
		}
	}
	rc_finish(e);
}

/*
 * A fenced request begins only when READs and atomics before it are complete: so it may use what they
 * brought.
 */
static void fence__waits_for_reads_and_atomics(struct end *e)
{
	enum { ROUNDS = 20, LONG = 200000, RESULT = 0, PLACE = 300000 };
	static const uint32_t lengths[] = { 8, 90, 4000, LONG };
	struct params p = params();
	p.bytes = 2 * PLACE + 4096;
	rc_start(e, &p);
	for (int i = 0; i < ROUNDS; i++) {
		uint32_t n = lengths[i % 4];
		bool atomic = i / 4 % 2, write = i / 8 % 2;
		if (atomic)
			n = 8;
		if (e->passive) {
			rc_fill(e->buf, LONG, e->seed + i);
			rc_set(e->buf + PLACE, LONG, 0);
			rc_recv(e, 0, PLACE + LONG + 64, 64);
			if (!write)
				rc_recv(e, 1, PLACE, LONG);
			meet(e);
			rc_expect(e->rcq, 0, IBV_WC_SUCCESS);
			if (!write)
				rc_expect(e->rcq, 1, IBV_WC_SUCCESS);
			meet(e);
			VERIFY(e->buf + PLACE, n, e->seed + i);
		} else {
			rc_set(e->buf, LONG, 0xdd);
			meet(e);
			POST(e, .id = 0, .opcode = IBV_WR_SEND, .at = PLACE, .len = 64); /* so that the READ is not the oldest */
			POST(e, .id = 1, .opcode = atomic ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_RDMA_READ,
			     .len = n);
			POST(e, .id = 2, .opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, .len = n,
			     .remote_at = PLACE, .flags = IBV_SEND_FENCE);
			for (int id = 0; id < 3; id++)
				rc_expect(e->scq, id, IBV_WC_SUCCESS);
			meet(e);
		}
		meet(e);
	}
	rc_finish(e);
}

/* ---- lists ---- */

/*
 * Each request of a list finds what the one before it has done, and a fenced one sends what they have
 * brought.
 */
static void list__one_after_the_other(struct end *e)
{
	enum { ROUNDS = 100, WORD = 8, WRITTEN = 0, READ = 64, FOUND = 128, TARGET = 256, SENT = 512 };
	struct params p = params();
	rc_start(e, &p);
	for (int i = 1; i <= ROUNDS; i++) {
		if (e->passive)
			rc_recv(e, i, SENT, WORD);
		meet(e);
		if (!e->passive) {
			struct ibv_sge written = { (uintptr_t)e->buf + WRITTEN, WORD, e->mr->lkey },
				       read = { (uintptr_t)e->buf + READ, WORD, e->mr->lkey },
				       found = { (uintptr_t)e->buf + FOUND, WORD, e->mr->lkey };
			struct ibv_send_wr *bad, wr[] = {
				{ .opcode = IBV_WR_RDMA_WRITE, .sg_list = &written,
				  .wr.rdma = { e->peer.addr + TARGET, e->peer.rkey } },
				{ .opcode = IBV_WR_RDMA_READ, .sg_list = &read,
				  .wr.rdma = { e->peer.addr + TARGET, e->peer.rkey } },
				{ .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sg_list = &found,
				  .wr.atomic = { .remote_addr = e->peer.addr + TARGET, .compare_add = 1,
						 .rkey = e->peer.rkey } },
				{ .opcode = IBV_WR_SEND, .sg_list = &found, .send_flags = IBV_SEND_FENCE },
			};
			for (int n = 0; n < 4; n++) {
				wr[n].wr_id = n;
				wr[n].num_sge = 1;
				wr[n].send_flags |= IBV_SEND_SIGNALED;
				wr[n].next = n < 3 ? &wr[n + 1] : NULL;
			}
			rc_set_word(e->buf + WRITTEN, 1000 * i);
			CHECK_EQ(ibv_post_send(e->qp, wr, &bad), 0);
			for (int n = 0; n < 4; n++)
				rc_expect(e->scq, n, IBV_WC_SUCCESS);
			CHECK_EQ(rc_word(e->buf + READ), 1000 * i);
		} else {
			rc_expect(e->rcq, i, IBV_WC_SUCCESS);
			CHECK_EQ(rc_word(e->buf + SENT), 1000 * i);
			CHECK_EQ(rc_word(e->buf + TARGET), 1000 * i + 1);
		}
		meet(e);
	}
	rc_finish(e);
}

/* ---- order that the target's own threads see ---- */

enum { THEIRS = 0, VALUE = 64, RESULT = 128, OURS = 192, APART = 64, MOST_DELAY = 256 };

static _Atomic(uint64_t) *word_at(struct end *e, uint64_t at) { return (void *)(e->buf + at); }

static void await_word(_Atomic(uint64_t) *word)
{
	for (unsigned looks = 1; !atomic_load(word); looks++)
		if (looks % 1000 == 0)
			sched_yield();
}

/* So that both sides come to all of each other's steps. */
static void linger(unsigned turns)
{
	for (volatile unsigned i = 0; i < turns; i++)
		;
}

/*
 * In each round two make a mark, and then look for the other's: one marks by a WRITE and looks by the READ
 * behind it, the other is a thread of the target. One of them at least sees the other's. The WRITEs go to
 * ever new lines, for which they have to wait; the READs do not.
 */
static void read__looks_behind_the_write_before(struct end *e)
{
	const unsigned n = e->wire ? 500 : rc_times(160000);
	struct params p = params();
	unsigned saw_nothing = 0;
	p.bytes = OURS + (size_t)n * APART;
	rc_start(e, &p);
	uint8_t *seen = calloc(n, 1), *theirs = calloc(n, 1);
	rc_set(e->buf, p.bytes, 0);
	meet(e);
	for (uint64_t i = 1; i < n; i++) {
		uint64_t ours = OURS + i * APART;
		if (e->passive) {
			if (i > 1)
				await_word(word_at(e, ours - APART));
			linger(i % MOST_DELAY);
			atomic_store(word_at(e, THEIRS), i);
			seen[i] = atomic_load(word_at(e, ours)) != 0;
		} else {
			rc_set_word(e->buf + VALUE, i);
			POST(e, .id = i, .opcode = IBV_WR_RDMA_WRITE, .at = VALUE, .len = 8,
			     .remote_at = ours, .quiet = true);
			POST(e, .id = i, .opcode = IBV_WR_RDMA_READ, .at = RESULT, .len = 8,
			     .remote_at = THEIRS);
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
			seen[i] = rc_word(e->buf + RESULT) >= i;
		}
	}
	tell_bytes(e, seen, n);
	hear_bytes(e, theirs, n);
	for (unsigned i = 1; i < n; i++)
		saw_nothing += !seen[i] && !theirs[i];
	CHECK_EQ(saw_nothing, 0);
	free(seen);
	free(theirs);
	rc_finish(e);
}

/* ---- everything at once, checked against what must come out ---- */

enum {
	MIX_OPS = 3000, MIX_DEPTH = 32, MIX_MAX = 3000, MIX_LONG = 150000,
	TARGET = 0,                             /* the peer alone changes it */
	TARGET_BYTES = 256 * 1024,
	LOCAL = TARGET + TARGET_BYTES,          /* one place per request in flight */
	RECEIVES = LOCAL + MIX_DEPTH * MIX_LONG,
	MIX_BYTES = RECEIVES + MIX_DEPTH * MIX_LONG,
};

struct mix_op {
	enum ibv_wr_opcode opcode;
	uint32_t length, at; /* at: in the target */
	uint64_t expected;   /* of an atomic */
	uint8_t *image;      /* what a READ must bring */
};

struct mix {
	struct end *e;
	uint64_t rng;
	uint8_t shadow[TARGET_BYTES]; /* of the peer's target */
	struct mix_op ops[MIX_DEPTH];
	unsigned posted, done, messages_sent, messages_got;
};

static uint32_t message_length(const struct end *e, bool from_passive, unsigned number)
{
	uint64_t h = rc_hash(e->seed * 77 + from_passive * 1000003 + number);
	return h % 50 == 0 ? h / 50 % MIX_LONG : h / 50 % MIX_MAX;
}

static uint64_t message_seed(const struct end *e, bool from_passive, unsigned number)
{
	return e->seed * 99 + from_passive * 5000000 + number;
}

static bool overlaps(const struct mix *m, uint32_t at, uint32_t length)
{
	for (unsigned i = m->done; i != m->posted; i++) {
		const struct mix_op *o = &m->ops[i % MIX_DEPTH];
		if (o->opcode == IBV_WR_RDMA_READ && at < o->at + o->length && o->at < at + length)
			return true;
	}
	return false;
}

/* A later WRITE may overtake an unfenced READ of the same bytes: then a fence is the program's duty. */
static void mix_post(struct mix *m)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND,
		IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ,
	};
	struct end *e = m->e;
	unsigned slot = m->posted % MIX_DEPTH;
	struct mix_op *o = &m->ops[slot];
	uint8_t *local = e->buf + LOCAL + slot * MIX_LONG;
	*o = (struct mix_op){ .opcode = opcodes[rc_below(&m->rng, 9)] };
	bool atomic = o->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || o->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	bool send = o->opcode == IBV_WR_SEND || o->opcode == IBV_WR_SEND_WITH_IMM;
	bool message = send || o->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	o->length = atomic ? 8 : message ? message_length(e, e->passive, m->messages_sent)
			       : rc_below(&m->rng, rc_below(&m->rng, 40) ? MIX_MAX : MIX_LONG);
	o->at = rc_below(&m->rng, TARGET_BYTES - o->length);
	if (atomic)
		o->at &= ~7u;
	uint64_t word, compare = rc_random(&m->rng), swap = rc_random(&m->rng);
	memcpy(&word, m->shadow + (o->at & ~7u), 8);
	if (atomic) {
		o->expected = word;
		if (o->opcode == IBV_WR_ATOMIC_CMP_AND_SWP && compare % 2)
			compare = word;
		uint64_t then = o->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? word + compare :
				compare == word				 ? swap :
									   word;
		memcpy(m->shadow + o->at, &then, 8);
	} else if (o->opcode == IBV_WR_RDMA_READ) {
		o->image = malloc(o->length + 1);
		memcpy(o->image, m->shadow + o->at, o->length);
	} else {
		rc_fill(local, o->length,
			message ? message_seed(e, e->passive, m->messages_sent) : rc_random(&m->rng));
		if (!send)
			memcpy(m->shadow + o->at, local, o->length);
	}
	POST(e, .id = m->posted, .opcode = o->opcode, .at = LOCAL + slot * MIX_LONG, .len = o->length,
	     .remote_at = TARGET + o->at, .imm = m->messages_sent, .compare = compare, .swap = swap,
	     .flags = o->opcode != IBV_WR_RDMA_READ && !send && overlaps(m, o->at, o->length) ?
			      IBV_SEND_FENCE :
			      0,
	     .quiet = m->posted % 4 == 0 && m->posted + 1 < MIX_OPS);
	m->messages_sent += message;
	m->posted++;
}

static void mix_complete_one(struct mix *m)
{
	struct mix_op *o = &m->ops[m->done % MIX_DEPTH];
	const uint8_t *local = m->e->buf + LOCAL + m->done % MIX_DEPTH * MIX_LONG;
	if (o->opcode == IBV_WR_RDMA_READ) {
		CHECK(!memcmp(local, o->image, o->length));
		free(o->image);
	} else if (o->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || o->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		CHECK(!memcmp(local, &o->expected, 8));
	}
	m->done++;
}

static void mix_poll(struct mix *m)
{
	struct end *e = m->e;
	struct ibv_wc wc;
	if (ibv_poll_cq(e->scq, 1, &wc) == 1) {
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK(wc.wr_id >= m->done && wc.wr_id < m->posted);
		while (m->done <= wc.wr_id)
			mix_complete_one(m);
	}
	if (ibv_poll_cq(e->rcq, 1, &wc) == 1) {
		unsigned n = m->messages_got++;
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.wr_id, n % MIX_DEPTH);
		CHECK_EQ(wc.byte_len, message_length(e, !e->passive, n));
		if (wc.wc_flags & IBV_WC_WITH_IMM)
			CHECK_EQ(ntohl(wc.imm_data), n);
		if (wc.opcode == IBV_WC_RECV)
			VERIFY(e->buf + RECEIVES + wc.wr_id * MIX_LONG, wc.byte_len,
			       message_seed(e, !e->passive, n));
		else
			CHECK_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
		rc_recv(e, wc.wr_id, RECEIVES + wc.wr_id * MIX_LONG, MIX_LONG);
	}
}

static uint64_t digest(const uint8_t *p, size_t n)
{
	uint64_t h = 0;
	for (size_t i = 0; i < n; i++)
		h = rc_hash(h ^ p[i]);
	return h;
}

static void mix__of_everything_both_ways(struct end *e)
{
	struct params p = params();
	struct mix *m = calloc(1, sizeof(*m));
	p.bytes = MIX_BYTES;
	p.cap.max_send_wr = MIX_DEPTH;
	p.cap.max_recv_wr = MIX_DEPTH;
	p.max_rd_atomic = p.max_dest_rd_atomic = 4;
	m->e = e;
	m->rng = e->seed * 31 + e->passive;
	rc_start(e, &p);
	for (int i = 0; i < MIX_DEPTH; i++)
		rc_recv(e, i, RECEIVES + i * MIX_LONG, MIX_LONG);
	meet(e);
	uint64_t end = rc_now_ms() + (SANITIZED ? 180000 : 60000);
	unsigned polls = 0;
	while (m->done < MIX_OPS) {
		unsigned burst = rc_below(&m->rng, 8);
		while (burst-- && m->posted < MIX_OPS && m->posted - m->done < MIX_DEPTH - 4)
			mix_post(m);
		mix_poll(m);
		if (++polls % 64 == 0)
			sched_yield();
		CHECK(polls % 4096 || rc_now_ms() < end);
	}
	/* The peer may still be busy with its own. */
	tell(e, m->messages_sent);
	tell(e, digest(m->shadow, TARGET_BYTES));
	while (!rc_readable(e->sock, 0))
		mix_poll(m);
	unsigned coming = hear(e);
	while (m->messages_got < coming)
		mix_poll(m);
	CHECK_EQ(hear(e), digest(e->buf + TARGET, TARGET_BYTES));
	rc_expect_none(e->rcq);
	rc_finish(e);
	free(m);
}

static const struct body bodies[] = {
	BODY(write__of_every_size),
	BODY(write__inline),
	BODY(write__with_immediate),
	BODY(read__of_every_size),
	BODY(write_and_read__with_lists),
	BODY(one_sided__of_nothing),
	BODY(atomic__returns_what_it_found),
	BODY(atomic__deeper_than_max_rd_atomic),
	BODY(atomic__contended),
	BODY(write__last_byte_is_last),
	BODY(write__behind_a_send_waits),
	BODY(fence__waits_for_reads_and_atomics),
	BODY(list__one_after_the_other),
	BODY(read__looks_behind_the_write_before),
	BODY(mix__of_everything_both_ways),
};
RC_MAIN(bodies)
