/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SENDs of several pieces into receives of several pieces, of a queue pair's own queue or a shared one, one
 * after the other: short and long ones, with and without immediate data. Then one fails: where the message is
 * longer than its receive, or where the last of several pieces is nobody's memory, after many that were well.
 */
#include "rc.h"

#include <arpa/inet.h>

enum { TIMES = 120, PIECES = 3, GAP = 8, PLACE = 4096, LAST = 1000 };

/* Of the n-th message: what fits beside its head in shared memory, and what does not. */
static uint32_t length_of(unsigned n)
{
	static const uint32_t lengths[] = { 1, 8, 30, 64, 200, 1000, 3000 };
	return lengths[n % (sizeof(lengths) / sizeof(lengths[0]))];
}

/* So many pieces of a place in the buffer, with gaps between them; the last one takes the rest. */
static int cut(const struct end *e, struct ibv_sge *to, uint64_t at, uint32_t length, int pieces)
{
	for (int i = 0; i < pieces; i++) {
		uint32_t part = i + 1 < pieces ? length / pieces : length;
		to[i] = (struct ibv_sge){ (uintptr_t)e->buf + at, part, e->mr->lkey };
		at += part + GAP;
		length -= part;
	}
	return pieces;
}

static void fill(struct ibv_sge *sge, int pieces, unsigned n)
{
	uint32_t k = 0;
	for (int i = 0; i < pieces; i++)
		for (uint32_t b = 0; b < sge[i].length; b++)
			rc_set((void *)(uintptr_t)(sge[i].addr + b), 1, (uint8_t)(n * 7 + k++));
}

/* The first `length` bytes of a receive's pieces are the n-th message's, and nothing else has changed. */
static void verify(const struct ibv_sge *sge, int pieces, unsigned n, uint32_t length)
{
	uint32_t k = 0;
	for (int i = 0; i < pieces; i++) {
		const uint8_t *bytes = (const uint8_t *)(uintptr_t)sge[i].addr;
		for (uint32_t b = 0; b < sge[i].length; b++, k++)
			CHECK_EQ(rc_byte(bytes + b), k < length ? (uint8_t)(n * 7 + k) : 0x55);
		VERIFY_BYTE(bytes + sge[i].length, GAP, 0x55);
	}
}

static void receive(struct end *e, uint64_t id, struct ibv_sge *sge, int pieces)
{
	struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = sge, .num_sge = pieces };
	CHECK_EQ(e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad), 0);
}

static struct params with_queue(const struct end *e, bool is_shared)
{
	struct params p = params();
	p.srq_wr = is_shared && e->passive ? 16 : 0;
	return p;
}

static void take_one(struct end *e, unsigned n)
{
	struct ibv_sge sge[PIECES + 1];
	uint32_t length = length_of(n);
	rc_set(e->buf, PLACE, 0x55);
	/* longer than the message, with an empty piece in front now and then */
	int pieces = n % 5 == 4 ? cut(e, sge, 0, 0, 1) : 0;
	pieces += cut(e, sge + pieces, GAP, length + 5, 1 + n % PIECES);
	receive(e, n, sge, pieces);
	meet(e);
	struct ibv_wc wc = rc_expect(e->rcq, n, IBV_WC_SUCCESS);
	CHECK_EQ(wc.opcode, IBV_WC_RECV);
	CHECK_EQ(wc.byte_len, length);
	CHECK_EQ(wc.qp_num, e->qp->qp_num);
	CHECK_EQ(wc.wc_flags, n % 3 == 2 ? IBV_WC_WITH_IMM : 0);
	if (n % 3 == 2)
		CHECK_EQ(ntohl(wc.imm_data), n);
	verify(sge, pieces, n, length);
}

static void give_one(struct end *e, unsigned n)
{
	struct ibv_sge sge[PIECES + 1];
	uint32_t length = length_of(n);
	int pieces = cut(e, sge, 0, length, 1 + n / 2 % (PIECES + 1));
	fill(sge, pieces, n);
	meet(e);
	POST(e, .id = n, .opcode = n % 3 == 2 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, .imm = n, .sge = sge,
	     .nsge = pieces,
	     .flags = (n % 4 == 3 ? IBV_SEND_SOLICITED : 0) | (length <= 64 && n % 2 ? IBV_SEND_INLINE : 0));
	CHECK_EQ(rc_expect(e->scq, n, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
}

static void exchange(struct end *e)
{
	for (unsigned n = 0; n < TIMES; n++)
		(e->passive ? take_one : give_one)(e, n);
}

static void pieces_of(struct end *e, bool is_shared)
{
	struct params p = with_queue(e, is_shared);
	rc_start(e, &p);
	exchange(e);
	rc_finish(e);
}

static void pieces__own_queue(struct end *e) { pieces_of(e, false); }
static void pieces__shared_queue(struct end *e) { pieces_of(e, true); }

/* The message fits into a slot (30 bytes) or does not. */
static void one_that_fails(struct end *e, bool is_shared, uint32_t length,
			   void (*spoil)(struct ibv_sge *last), enum ibv_wc_status for_receiver,
			   enum ibv_wc_status for_sender)
{
	struct params p = with_queue(e, is_shared);
	struct ibv_sge sge[PIECES];
	rc_start(e, &p);
	exchange(e);
	cut(e, sge, 0, length, PIECES);
	if (e->passive) {
		spoil(&sge[PIECES - 1]);
		receive(e, LAST, sge, PIECES);
		meet(e);
		rc_expect(e->rcq, LAST, for_receiver);
	} else {
		meet(e);
		POST(e, .id = LAST, .opcode = IBV_WR_SEND, .sge = sge, .nsge = PIECES);
		rc_expect(e->scq, LAST, for_sender);
	}
	CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
	rc_finish(e);
}

static void shorten(struct ibv_sge *last) { last->length--; }
static void forge(struct ibv_sge *last) { last->lkey ^= 1; }

static void receive__too_short(struct end *e)
{
	one_that_fails(e, false, 30, shorten, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
}
static void receive__too_short_shared(struct end *e)
{
	one_that_fails(e, true, 30, shorten, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
}
static void receive__too_short_for_a_long_one(struct end *e)
{
	one_that_fails(e, true, 3000, shorten, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
}
static void receive__last_piece_is_nobodys(struct end *e)
{
	one_that_fails(e, false, 30, forge, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
}
static void receive__last_piece_is_nobodys_shared(struct end *e)
{
	one_that_fails(e, true, 30, forge, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
}

/* The sender's own mistake: the receiver gets nothing. */
static void send__last_piece_is_nobodys(struct end *e, uint32_t length)
{
	struct params p = with_queue(e, true);
	struct ibv_sge sge[PIECES];
	rc_start(e, &p);
	exchange(e);
	cut(e, sge, 0, length, PIECES);
	if (e->passive) {
		receive(e, LAST, sge, PIECES);
		meet(e);
		meet(e);
		rc_expect_none(e->rcq);
	} else {
		sge[PIECES - 1].lkey ^= 1;
		meet(e);
		POST(e, .id = LAST, .opcode = IBV_WR_SEND, .sge = sge, .nsge = PIECES);
		rc_expect(e->scq, LAST, IBV_WC_LOC_PROT_ERR);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
		meet(e);
	}
	rc_finish(e);
}

static void send__last_of_a_short_one_is_nobodys(struct end *e) { send__last_piece_is_nobodys(e, 30); }
static void send__last_of_a_long_one_is_nobodys(struct end *e) { send__last_piece_is_nobodys(e, 3000); }

static const struct body bodies[] = {
	BODY(pieces__own_queue),
	BODY(pieces__shared_queue),
	BODY(receive__too_short),
	BODY(receive__too_short_shared),
	BODY(receive__too_short_for_a_long_one),
	BODY(receive__last_piece_is_nobodys),
	BODY(receive__last_piece_is_nobodys_shared),
	BODY(send__last_of_a_short_one_is_nobodys),
	BODY(send__last_of_a_long_one_is_nobodys),
};

RC_MAIN(bodies)
