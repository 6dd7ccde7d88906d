/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Small SENDs alike, one after the other in both directions, for which a path may remember what it has found
 * out of keys, states and settings: whatever allowed them ends in between, and the next one goes as if it
 * were the first.
 */
#include "ends.h"

#include <errno.h>
#include <pthread.h>

enum { WORD = 8, TIMES = 100, HALF = 32768, ANSWERS = 1 << 14 /* from there on in the buffer */ };

static void receive_by(struct end *e, uint64_t id, uint64_t at, uint32_t len, uint32_t lkey)
{
	struct ibv_sge sge = { (uintptr_t)e->buf + at, len, lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };
	CHECK_EQ(ibv_post_recv(e->qp, &wr, &bad), 0);
}

static void send_word(struct end *e, uint64_t id, uint64_t value, uint32_t lkey)
{
	rc_set_word(e->buf, value);
	POST(e, .id = id, .opcode = IBV_WR_SEND, .len = WORD, .lkey = lkey);
}

/*
 * One word after the other is sent there and back, each to another place, by the second region on this side.
 */
static void exchange(struct end *e, struct ibv_mr *mr)
{
	for (unsigned i = 1; i <= TIMES; i++)
		receive_by(e, i, ANSWERS + i * WORD, WORD, mr->lkey);
	meet(e);
	for (unsigned i = 1; i <= TIMES; i++) {
		if (!e->passive)
			send_word(e, i, i, mr->lkey);
		struct ibv_wc wc = rc_expect(e->rcq, i, IBV_WC_SUCCESS);
		CHECK_EQ(wc.byte_len, WORD);
		CHECK_EQ(wc.opcode, IBV_WC_RECV);
		CHECK_EQ(wc.wc_flags, 0);
		CHECK_EQ(rc_word(e->buf + ANSWERS + i * WORD), i);
		if (e->passive)
			send_word(e, i, i, mr->lkey);
		rc_expect(e->scq, i, IBV_WC_SUCCESS);
	}
	meet(e);
}

static struct params many_receives(void)
{
	struct params p = params();
	p.cap.max_recv_wr = TIMES + 8;
	p.cqe = 2 * TIMES + 64;
	return p;
}

static struct ibv_mr *start(struct end *e, struct params p)
{
	rc_start(e, &p);
	return second_of(e);
}

static void finish(struct end *e, struct ibv_mr *mr)
{
	close_second(e, mr);
	rc_finish(e);
}

/* ---- regions end ---- */

static void take_its_rights(struct end *e, struct ibv_mr **mr)
{
	CHECK_EQ(ibv_rereg_mr(*mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), 0);
}

/*
 * Of a receive that waits: the message breaks both ends and writes nothing; a new connection is as good as
 * the first.
 */
static void receive_ends_by(struct end *e, ends_fn *change)
{
	struct ibv_mr *mr = start(e, many_receives());
	exchange(e, mr);
	if (e->passive) {
		uint32_t lkey = mr->lkey;
		change(e, &mr);
		receive_by(e, 7, ANSWERS, WORD, lkey);
		rc_set(e->buf, e->p.bytes, 0x77);
		meet(e);
		rc_expect(e->rcq, 7, IBV_WC_LOC_PROT_ERR);
		VERIFY_BYTE(e->buf, e->p.bytes, 0x77);
	} else {
		meet(e);
		send_word(e, 7, 7, mr->lkey);
		rc_expect(e->scq, 7, IBV_WC_REM_OP_ERR);
	}
	CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
	rc_reconnect(e);
	exchange(e, e->mr);
	finish(e, mr);
}

static void receive__deregistered(struct end *e) { receive_ends_by(e, deregister); }
static void receive__registered_anew(struct end *e) { receive_ends_by(e, deregister_and_use_its_place); }
static void receive__not_writable_any_more(struct end *e) { receive_ends_by(e, take_its_rights); }
static void receive__of_memory_elsewhere(struct end *e) { receive_ends_by(e, show_its_other_half); }
static void receive__of_another_domain(struct end *e) { receive_ends_by(e, take_it_to_another_domain); }

/* Of the sender's own: it fails there, and nothing comes. */
static void source_ends_by(struct end *e, ends_fn *change)
{
	struct ibv_mr *mr = start(e, many_receives());
	exchange(e, mr);
	if (e->passive) {
		rc_recv(e, 7, ANSWERS, WORD);
		rc_set(e->buf, e->p.bytes, 0x77);
		meet(e);
		meet(e);
		rc_expect_none(e->rcq);
		VERIFY_BYTE(e->buf, e->p.bytes, 0x77);
	} else {
		uint32_t lkey = mr->lkey;
		meet(e);
		change(e, &mr);
		send_word(e, 7, 7, lkey);
		rc_expect(e->scq, 7, IBV_WC_LOC_PROT_ERR);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
		meet(e);
	}
	rc_reconnect(e);
	exchange(e, e->mr);
	finish(e, mr);
}

static void source__deregistered(struct end *e) { source_ends_by(e, deregister); }
static void source__registered_anew(struct end *e) { source_ends_by(e, deregister_and_use_its_place); }
static void source__of_memory_elsewhere(struct end *e) { source_ends_by(e, show_its_other_half); }
static void source__of_another_domain(struct end *e) { source_ends_by(e, take_it_to_another_domain); }

/* Where regions begin and end, by their keys and by others'. */
struct piece {
	int64_t at;
	uint32_t len;
	bool other; /* by the key of a region that does not have it */
};

static const struct piece wrong[] = {
	{ -1, WORD, false }, { -WORD, WORD, false }, { 65536 - WORD + 1, WORD, false }, { 65536, WORD, false }, { 0, WORD, true },
};

static __thread uint64_t other_words[2];

static struct ibv_mr *elsewhere(struct end *e)
{
	struct ibv_mr *mr = ibv_reg_mr(e->pd, other_words, sizeof(other_words), IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	return mr;
}

/* One message that is right by that region's key, from it or into it. */
static void use_other(struct end *e, struct ibv_mr *other, bool sends)
{
	struct ibv_sge sge = { (uintptr_t)other_words, WORD, other->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = 6, .sg_list = &sge, .num_sge = 1 };
	rc_set_word(other_words, sends ? 11 : 0);
	if (e->passive)
		CHECK_EQ(ibv_post_recv(e->qp, &wr, &bad), 0);
	meet(e);
	if (!e->passive)
		POST(e, .id = 6, .opcode = IBV_WR_SEND, .sge = &sge, .nsge = 1);
	rc_expect(e->passive ? e->rcq : e->scq, 6, IBV_WC_SUCCESS);
	meet(e);
}

static void outside_of_its_region(struct end *e, bool receives)
{
	struct ibv_mr *mr = start(e, many_receives()), *other = elsewhere(e);
	CHECK_EQ(e->p.bytes, 65536);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		const struct piece *w = &wrong[i];
		uint32_t lkey = w->other ? other->lkey : mr->lkey;
		exchange(e, mr);
		use_other(e, other, !e->passive);
		if (e->passive && receives)
			receive_by(e, 7, w->at, w->len, lkey);
		meet(e);
		if (!e->passive && receives)
			send_word(e, 7, 7, mr->lkey);
		else if (!e->passive)
			POST(e, .id = 7, .opcode = IBV_WR_SEND, .at = w->at, .len = w->len, .lkey = lkey);
		if (!e->passive)
			rc_expect(e->scq, 7, receives ? IBV_WC_REM_OP_ERR : IBV_WC_LOC_PROT_ERR);
		else if (receives)
			rc_expect(e->rcq, 7, IBV_WC_LOC_PROT_ERR);
		rc_reconnect(e);
	}
	CHECK_EQ(ibv_dereg_mr(other), 0);
	finish(e, mr);
}

static void receive__outside_of_its_region(struct end *e) { outside_of_its_region(e, true); }
static void source__outside_of_its_region(struct end *e) { outside_of_its_region(e, false); }

/* Two regions take turns, of which one ends: the other's messages go on. */
static void regions__take_turns(struct end *e)
{
	struct ibv_mr *mr = start(e, many_receives());
	for (int round = 0; round < 5; round++) {
		exchange(e, mr);
		exchange(e, e->mr);
		CHECK_EQ(ibv_dereg_mr(mr), 0);
		exchange(e, e->mr);
		mr = second_of(e);
	}
	finish(e, mr);
}

/* What ends all the time is none of the messages'. */
static void regions__of_others_come_and_go(struct end *e)
{
	struct params p = many_receives();
	rc_start(e, &p);
	for (unsigned i = 1; i <= 5 * TIMES; i++) {
		rc_recv(e, i, ANSWERS, WORD);
		meet(e);
		if (i % 3 == 0)
			CHECK_EQ(ibv_dereg_mr(second_of(e)), 0);
		send_word(e, i, i, 0);
		rc_expect(e->rcq, i, IBV_WC_SUCCESS);
		rc_expect(e->scq, i, IBV_WC_SUCCESS);
		CHECK_EQ(rc_word(e->buf + ANSWERS), i);
	}
	rc_finish(e);
}

/* From the return of ibv_dereg_mr on nothing comes into it any more, though messages do and receives wait. */
static void receive__deregistered_meanwhile(struct end *e)
{
	struct params p = many_receives();
	rc_start(e, &p);
	uint64_t state = e->seed;
	unsigned rounds = rc_times(100);
	for (unsigned round = 0; round < rounds; round++) {
		struct ibv_wc wc = { 0 };
		if (e->passive) {
			struct ibv_mr *mr = second_of(e);
			unsigned let = rc_below(&state, 60), n = 0;
			for (unsigned i = 0; i <= TIMES; i++)
				receive_by(e, i, ANSWERS + i * WORD, WORD, mr->lkey);
			meet(e);
			while (n < let)
				n += ibv_poll_cq(e->rcq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS;
			CHECK_EQ(ibv_dereg_mr(mr), 0);
			rc_set(e->buf + ANSWERS, (TIMES + 1) * WORD, 0x77);
			while (ibv_poll_cq(e->rcq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS)
				;
			meet(e);
			rc_pause_ms(1);
			VERIFY_BYTE(e->buf + ANSWERS, (TIMES + 1) * WORD, 0x77);
		} else {
			meet(e);
			for (unsigned i = 0; i < TIMES && wc.status == IBV_WC_SUCCESS; i++) {
				send_word(e, i, i, 0);
				wc = rc_wait(e->scq);
			}
			meet(e);
			if (wc.status == IBV_WC_SUCCESS) { /* all of them came before it ended */
				send_word(e, TIMES, TIMES, 0);
				wc = rc_wait(e->scq);
			}
			CHECK_EQ(wc.status, IBV_WC_REM_OP_ERR);
		}
		rc_reconnect(e);
	}
	rc_finish(e);
}

/* ---- other messages and receives in between ---- */

static void receive__too_short(struct end *e)
{
	struct ibv_mr *mr = start(e, many_receives());
	exchange(e, mr);
	if (e->passive)
		receive_by(e, 7, ANSWERS, WORD - 1, mr->lkey);
	rc_set(e->buf, e->p.bytes, 0x77);
	meet(e);
	if (!e->passive)
		send_word(e, 7, 7, mr->lkey);
	rc_expect(e->passive ? e->rcq : e->scq, 7, e->passive ? IBV_WC_LOC_LEN_ERR : IBV_WC_REM_INV_REQ_ERR);
	if (e->passive)
		VERIFY_BYTE(e->buf, e->p.bytes, 0x77);
	rc_reconnect(e);
	exchange(e, mr);
	finish(e, mr);
}

static void receive__of_two_pieces(struct end *e)
{
	struct ibv_mr *mr = start(e, many_receives());
	exchange(e, mr);
	if (e->passive) {
		struct ibv_sge sge[2] = { { (uintptr_t)e->buf + 4, 4, mr->lkey },
					  { (uintptr_t)e->buf + 64, 8, e->mr->lkey } };
		struct ibv_recv_wr *bad, wr = { .wr_id = 7, .sg_list = sge, .num_sge = 2 };
		CHECK_EQ(ibv_post_recv(e->qp, &wr, &bad), 0);
	}
	meet(e);
	if (e->passive) {
		uint32_t parts[2];
		CHECK_EQ(rc_expect(e->rcq, 7, IBV_WC_SUCCESS).byte_len, WORD);
		memcpy(&parts[0], e->buf + 4, 4);
		memcpy(&parts[1], e->buf + 64, 4);
		CHECK_EQ(parts[0], 0x01234567);
		CHECK_EQ(parts[1], 0x89abcdef);
	} else {
		send_word(e, 7, 0x89abcdef01234567, mr->lkey);
		rc_expect(e->scq, 7, IBV_WC_SUCCESS);
	}
	exchange(e, mr);
	finish(e, mr);
}

/* What was in its place in the queue before does not count. */
static void receive__of_no_piece(struct end *e)
{
	struct ibv_mr *mr = start(e, many_receives());
	for (int round = 0; round < 3; round++)
		exchange(e, mr);
	if (e->passive) {
		struct ibv_recv_wr *bad, wr = { .wr_id = 7 };
		CHECK_EQ(ibv_post_recv(e->qp, &wr, &bad), 0);
	}
	rc_set(e->buf, e->p.bytes, 0x77);
	meet(e);
	if (!e->passive)
		send_word(e, 7, 7, mr->lkey);
	rc_expect(e->passive ? e->rcq : e->scq, 7, e->passive ? IBV_WC_LOC_LEN_ERR : IBV_WC_REM_INV_REQ_ERR);
	if (e->passive)
		VERIFY_BYTE(e->buf, e->p.bytes, 0x77);
	rc_reconnect(e);
	finish(e, mr);
}

static void receive__posted_late(struct end *e)
{
	struct params p = many_receives();
	p.rnr_retry = 7;
	struct ibv_mr *mr = start(e, p);
	for (int round = 0; round < 3; round++) {
		exchange(e, mr);
		if (!e->passive)
			send_word(e, 7, 7, mr->lkey);
		meet(e);
		if (e->passive) {
			rc_pause_ms(20);
			rc_expect_none(e->rcq);
			receive_by(e, 7, ANSWERS, WORD, mr->lkey);
			rc_expect(e->rcq, 7, IBV_WC_SUCCESS);
			CHECK_EQ(rc_word(e->buf + ANSWERS), 7);
		} else {
			rc_expect(e->scq, 7, IBV_WC_SUCCESS);
		}
		meet(e);
	}
	finish(e, mr);
}

static void receive__none_in_time(struct end *e)
{
	struct params p = many_receives();
	p.rnr_retry = 1;
	p.min_rnr_timer = 1;
	struct ibv_mr *mr = start(e, p);
	exchange(e, mr);
	if (!e->passive) {
		send_word(e, 7, 7, mr->lkey);
		rc_expect(e->scq, 7, IBV_WC_RNR_RETRY_EXC_ERR);
	} else {
		meet(e);
	}
	if (!e->passive)
		meet(e);
	rc_reconnect(e);
	exchange(e, mr);
	finish(e, mr);
}

static void messages__of_every_kind_in_between(struct end *e)
{
	static const enum ibv_wr_opcode kinds[] = { IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
						    IBV_WR_SEND, IBV_WR_RDMA_WRITE };
	struct ibv_mr *mr = start(e, many_receives());
	for (unsigned i = 0; i < 8; i++) {
		bool has_imm = i % 4 < 2, takes = i % 4 < 3, is_small = i >= 4;
		uint32_t len = is_small ? WORD : 4096;
		exchange(e, mr);
		if (e->passive && takes)
			receive_by(e, i, ANSWERS, 4096, mr->lkey);
		meet(e);
		if (!e->passive) {
			rc_fill(e->buf, len, i);
			POST(e, .id = i, .opcode = kinds[i % 4], .len = len, .remote_at = ANSWERS, .imm = 5,
			     .lkey = mr->lkey, .flags = is_small ? 0 : IBV_SEND_SOLICITED);
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		} else if (takes) {
			struct ibv_wc wc = rc_expect(e->rcq, i, IBV_WC_SUCCESS);
			CHECK_EQ(wc.wc_flags & IBV_WC_WITH_IMM, has_imm ? IBV_WC_WITH_IMM : 0);
			CHECK_EQ(wc.byte_len, len);
		}
		meet(e);
		if (e->passive)
			VERIFY(e->buf + ANSWERS, len, i);
	}
	exchange(e, mr);
	finish(e, mr);
}

static void messages__of_every_size(struct end *e)
{
	struct params p = many_receives();
	rc_start(e, &p);
	uint64_t state = e->seed;
	for (unsigned i = 0; i < 400; i++) {
		uint32_t len = i % 3 ? i % 17 : i, at = rc_below(&state, 64);
		rc_recv(e, i, ANSWERS + at, 512);
		rc_set(e->buf + ANSWERS, 1024, 0x77);
		meet(e);
		rc_fill(e->buf, len, i);
		POST(e, .id = i, .opcode = IBV_WR_SEND, .len = len);
		CHECK_EQ(rc_expect(e->rcq, i, IBV_WC_SUCCESS).byte_len, len);
		rc_expect(e->scq, i, IBV_WC_SUCCESS);
		VERIFY(e->buf + ANSWERS + at, len, i);
		VERIFY_BYTE(e->buf + ANSWERS, at, 0x77);
		VERIFY_BYTE(e->buf + ANSWERS + at + len, 1024 - at - len, 0x77);
		meet(e);
	}
	rc_finish(e);
}

/* Inline data needs no key; it is copied when it is posted. */
static void messages__inline(struct end *e)
{
	struct params p = many_receives();
	rc_start(e, &p);
	for (unsigned i = 0; i < TIMES; i++)
		rc_recv(e, i, ANSWERS + i * WORD, WORD);
	meet(e);
	for (uint64_t i = 0; i < TIMES; i++) {
		uint64_t word = i * 3;
		struct ibv_sge sge = { (uintptr_t)&word, WORD, (uint32_t)rc_hash(i) };
		POST(e, .id = i, .opcode = IBV_WR_SEND, .sge = &sge, .nsge = 1, .flags = IBV_SEND_INLINE);
		word = 0;
		rc_expect(e->scq, i, IBV_WC_SUCCESS);
		rc_expect(e->rcq, i, IBV_WC_SUCCESS);
		CHECK_EQ(rc_word(e->buf + ANSWERS + i * WORD), i * 3);
	}
	rc_finish(e);
}

/* Many under way at once, few of them with a completion, and all that arrive taken by one poll. */
static void messages__in_bursts(struct end *e)
{
	struct params p = many_receives();
	p.cap.max_send_wr = TIMES;
	rc_start(e, &p);
	for (unsigned round = 0; round < 20; round++) {
		struct ibv_wc wc[TIMES];
		for (unsigned i = 0; i < TIMES; i++)
			rc_recv(e, i, ANSWERS + i * WORD, WORD);
		meet(e);
		for (unsigned i = 0; i < TIMES; i++) {
			rc_set_word(e->buf + i * WORD, round * TIMES + i);
			POST(e, .id = i, .opcode = IBV_WR_SEND, .at = i * WORD, .len = WORD,
			     .quiet = i % 10 != 9);
		}
		for (unsigned n = 0; n < TIMES;) {
			int got = ibv_poll_cq(e->rcq, TIMES, wc);
			CHECK(got >= 0);
			for (int i = 0; i < got; i++, n++) {
				CHECK_EQ(wc[i].status, IBV_WC_SUCCESS);
				CHECK_EQ(wc[i].wr_id, n);
				CHECK_EQ(rc_word(e->buf + ANSWERS + n * WORD), round * TIMES + n);
			}
		}
		for (unsigned i = 9; i < TIMES; i += 10)
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		meet(e);
	}
	rc_finish(e);
}

static void sleep_until(struct end *e, struct ibv_cq *cq, uint64_t id)
{
	struct ibv_wc wc;
	while (ibv_poll_cq(cq, 1, &wc) == 0) {
		struct ibv_cq *of;
		void *context;
		CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
		int n = ibv_poll_cq(cq, 1, &wc);
		CHECK(n >= 0);
		if (n)
			break;
		CHECK(rc_readable(e->channel->fd, 20000));
		CHECK_EQ(ibv_get_cq_event(e->channel, &of, &context), 0);
		ibv_ack_cq_events(of, 1);
	}
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(wc.wr_id, id);
}

/* Who sleeps until the ack comes, or the message, is woken. */
static void messages__wake_who_sleeps(struct end *e)
{
	struct params p = many_receives();
	p.channel = true;
	struct ibv_mr *mr = start(e, p);
	for (int round = 0; round < 5; round++) {
		exchange(e, mr);
		for (unsigned i = 1; i <= 10; i++) {
			bool receiver_sleeps = round % 2;
			bool sends = e->passive != (i % 2);
			if (!sends)
				receive_by(e, i, ANSWERS, WORD, mr->lkey);
			meet(e);
			if (sends) {
				if (receiver_sleeps)
					rc_pause_ms(2);
				send_word(e, i, i, mr->lkey);
				sleep_until(e, e->scq, i);
			} else if (receiver_sleeps) {
				sleep_until(e, e->rcq, i);
			} else {
				rc_expect(e->rcq, i, IBV_WC_SUCCESS);
			}
			meet(e);
		}
	}
	finish(e, mr);
}

/* ---- the queue pair's own state, and its queues ---- */

static void state__drained(struct end *e)
{
	struct ibv_mr *mr = start(e, many_receives());
	exchange(e, mr);
	if (e->passive) {
		receive_by(e, 7, ANSWERS, WORD, mr->lkey);
		meet(e);
		meet(e);
		rc_pause_ms(20);
		rc_expect_none(e->rcq);
	} else {
		meet(e);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_SQD), 0);
		send_word(e, 7, 7, mr->lkey);
		meet(e);
		rc_expect_none(e->scq);
	}
	meet(e);
	if (!e->passive)
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RTS), 0);
	rc_expect(e->passive ? e->rcq : e->scq, 7, IBV_WC_SUCCESS);
	exchange(e, mr);
	finish(e, mr);
}

static void state__peer_answers_nothing(struct end *e)
{
	struct params p = many_receives();
	p.timeout = 16; /* long enough for a busy machine: what else is sent gets there */
	p.retry_cnt = 1;
	struct ibv_mr *mr = start(e, p);
	exchange(e, mr);
	if (e->passive) {
		CHECK_EQ(rc_to(e->qp, IBV_QPS_ERR), 0);
		meet(e);
	} else {
		meet(e);
		send_word(e, 7, 7, mr->lkey);
		rc_expect(e->scq, 7, IBV_WC_RETRY_EXC_ERR);
	}
	rc_reconnect(e);
	exchange(e, mr);
	finish(e, mr);
}

/* What is posted in the error state is flushed, sends and receives. */
static void state__in_error(struct end *e)
{
	struct ibv_mr *mr = start(e, many_receives());
	exchange(e, mr);
	CHECK_EQ(rc_to(e->qp, IBV_QPS_ERR), 0);
	send_word(e, 7, 7, mr->lkey);
	rc_expect(e->scq, 7, IBV_WC_WR_FLUSH_ERR);
	receive_by(e, 8, ANSWERS, WORD, mr->lkey);
	rc_expect(e->rcq, 8, IBV_WC_WR_FLUSH_ERR);
	rc_reconnect(e);
	exchange(e, mr);
	finish(e, mr);
}

/* Where nothing is sent, and nothing is received. */
static void state__reset(struct end *e)
{
	struct ibv_mr *mr = start(e, many_receives());
	exchange(e, mr);
	CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
	CHECK_EQ(rc_post(e, &(struct op){ .opcode = IBV_WR_SEND, .len = WORD, .lkey = mr->lkey }), EINVAL);
	CHECK_EQ(rc_post_recv(e, e->qp, 1, 0, WORD), EINVAL);
	CHECK_EQ(rc_to_init(e, e->qp), 0);
	CHECK_EQ(rc_post(e, &(struct op){ .opcode = IBV_WR_SEND, .len = WORD, .lkey = mr->lkey }), EINVAL);
	rc_reconnect(e);
	exchange(e, mr);
	finish(e, mr);
}

/* A connection ends, and the next one of the same queue pair, with other numbers, is as good. */
static void state__connected_anew(struct end *e)
{
	struct ibv_mr *mr = start(e, many_receives());
	for (int i = 0; i < 5; i++) {
		exchange(e, mr);
		rc_reconnect(e);
	}
	finish(e, mr);
}

static void bring_up(struct end *e, const struct card *peer)
{
	CHECK_EQ(rc_to_init(e, e->qp), 0);
	CHECK_EQ(rc_to_rtr(e, e->qp, peer), 0);
	CHECK_EQ(rc_to_rts(e, e->qp), 0);
}

/*
 * The peer goes on with another queue pair, where it went on with this one: nothing of that comes here, nor
 * goes there from here. On this side nothing changes meanwhile: the other queue pair was ready before.
 */
static void state__peer_has_gone_elsewhere(struct end *e)
{
	struct params p = many_receives();
	p.timeout = 16; /* long enough for a busy machine: what else is sent gets there */
	p.retry_cnt = 1;
	p.rnr_retry = 7;
	struct ibv_mr *mr = start(e, p);
	/* with queues of its own, so that polls of the first go on looking at the first */
	struct end other = *e;
	if (!e->passive) {
		CHECK(other.scq = ibv_create_cq(e->ctx, p.cqe, NULL, NULL, 0));
		CHECK(other.rcq = ibv_create_cq(e->ctx, p.cqe, NULL, NULL, 0));
		other.qp = rc_make_qp(&other);
	}
	struct card peer = rc_swap_cards(&other, other.qp);
	if (!e->passive)
		bring_up(&other, &peer);
	exchange(e, mr);
	if (e->passive) {
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
		bring_up(&other, &peer);
	} else {
		receive_by(e, 999, ANSWERS, WORD, mr->lkey);
	}
	meet(e);
	for (unsigned i = 1; i <= 3 * TIMES; i++) {
		receive_by(&other, i, ANSWERS + WORD, WORD, mr->lkey);
		meet(e);
		send_word(&other, i, i, mr->lkey);
		if (!e->passive)
			rc_expect_none(e->rcq);
		rc_expect(other.scq, i, IBV_WC_SUCCESS);
		rc_expect(other.rcq, i, IBV_WC_SUCCESS);
	}
	if (!e->passive) {
		send_word(e, 7, 7, mr->lkey);
		rc_expect(e->scq, 7, IBV_WC_RETRY_EXC_ERR);
		rc_expect(e->rcq, 999, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(ibv_destroy_qp(other.qp), 0);
		CHECK_EQ(ibv_destroy_cq(other.scq), 0);
		CHECK_EQ(ibv_destroy_cq(other.rcq), 0);
	}
	meet(e);
	rc_expect_none(e->rcq);
	finish(e, mr);
}

static void queue__full_until_polled(struct end *e)
{
	struct params p = many_receives();
	struct ibv_mr *mr = start(e, p);
	uint32_t n = p.cap.max_send_wr;
	exchange(e, mr);
	for (uint32_t i = 0; i <= n && e->passive; i++)
		receive_by(e, i, ANSWERS, WORD, mr->lkey);
	meet(e);
	if (!e->passive) {
		struct op more = { .id = n, .opcode = IBV_WR_SEND, .len = WORD };
		for (uint32_t i = 0; i < n; i++)
			POST(e, .id = i, .opcode = IBV_WR_SEND, .len = WORD, .quiet = i + 1 < n);
		CHECK_EQ(rc_post(e, &more), ENOMEM);
		rc_expect(e->scq, n - 1, IBV_WC_SUCCESS);
		CHECK_EQ(rc_post(e, &more), 0);
		rc_expect(e->scq, n, IBV_WC_SUCCESS);
	}
	for (uint32_t i = 0; i <= n && e->passive; i++)
		rc_expect(e->rcq, i, IBV_WC_SUCCESS);
	finish(e, mr);
}

/*
 * A fenced message waits for the READ before it, which takes a while; those behind it, which need not, do not
 * overtake it.
 */
static void queue__behind_a_fence(struct end *e)
{
	struct params p = many_receives();
	p.bytes = 8 << 20;
	struct ibv_mr *mr = start(e, p);
	exchange(e, mr);
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < 4 && e->passive; i++)
			receive_by(e, i, ANSWERS + i * WORD, WORD, mr->lkey);
		meet(e);
		for (unsigned i = 0; i < 4 && e->passive; i++) {
			rc_expect(e->rcq, i, IBV_WC_SUCCESS);
			CHECK_EQ(rc_word(e->buf + ANSWERS + i * WORD), i);
		}
		if (!e->passive) {
			for (unsigned i = 0; i < 4; i++)
				rc_set_word(e->buf + i * WORD, i);
			POST(e, .id = 10, .opcode = IBV_WR_RDMA_READ, .at = 4 << 20, .len = 3 << 20,
			     .remote_at = 4 << 20);
			POST(e, .id = 0, .opcode = IBV_WR_SEND, .len = WORD, .lkey = mr->lkey,
			     .flags = IBV_SEND_FENCE);
			for (unsigned i = 1; i < 4; i++)
				POST(e, .id = i, .opcode = IBV_WR_SEND, .at = i * WORD, .len = WORD,
				     .lkey = mr->lkey);
			rc_expect(e->scq, 10, IBV_WC_SUCCESS);
			for (unsigned i = 0; i < 4; i++)
				rc_expect(e->scq, i, IBV_WC_SUCCESS);
		}
		meet(e);
	}
	finish(e, mr);
}

/* The CQ overruns by completions of another queue pair: this one cannot go on either. */
static void cq__overrun_by_another(struct end *e)
{
	struct params p = many_receives();
	p.cqe = 8;
	struct ibv_mr *mr = start(e, p);
	struct ibv_qp *other = rc_make_qp(e);
	rc_connect(e, other);
	for (unsigned i = 1; i <= TIMES; i++) {
		receive_by(e, i, ANSWERS, WORD, mr->lkey);
		meet(e);
		send_word(e, i, i, mr->lkey);
		rc_expect(e->scq, i, IBV_WC_SUCCESS);
		rc_expect(e->rcq, i, IBV_WC_SUCCESS);
	}
	if (e->passive) {
		receive_by(e, 7, ANSWERS, WORD, mr->lkey);
		rc_set(e->buf, e->p.bytes, 0x77);
	}
	meet(e);
	if (!e->passive) {
		for (unsigned i = 0; i <= (unsigned)e->scq->cqe; i++)
			POST(e, .id = i, .opcode = IBV_WR_RDMA_WRITE, .at = HALF, .len = WORD,
			     .remote_at = HALF, .qp = other);
		while (!rc_readable(e->ctx->async_fd, 10000))
			;
		rc_post(e, &(struct op){ .id = 7, .opcode = IBV_WR_SEND, .len = WORD, .lkey = mr->lkey });
		rc_expect_event(e, IBV_EVENT_CQ_ERR);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
	}
	meet(e);
	if (e->passive) {
		rc_pause_ms(10);
		rc_expect_none(e->rcq);
		VERIFY_BYTE(e->buf, HALF, 0x77);
	}
	CHECK_EQ(ibv_destroy_qp(other), 0);
	finish(e, mr);
}

/* ---- at the same time ---- */

enum { EACH = 1000 };

static void send_all(struct end *e, uint64_t at)
{
	for (unsigned posted = 0; posted < EACH;) {
		rc_set_word(e->buf + at, posted);
		int err = rc_post(
			e, &(struct op){
				   .opcode = IBV_WR_SEND, .at = at, .len = WORD, .flags = IBV_SEND_INLINE });
		CHECK(err == 0 || err == ENOMEM);
		posted += !err;
		struct ibv_wc wc;
		int n = ibv_poll_cq(e->scq, 1, &wc);
		CHECK(n >= 0 && (!n || wc.status == IBV_WC_SUCCESS));
	}
}

static void *send_beside_another(void *arg)
{
	send_all(arg, WORD);
	return NULL;
}

/* Two threads of the active end send by one queue pair; the messages of each stay in order. */
static void queue_pair__of_two_threads(struct end *e)
{
	struct params p = many_receives();
	p.rnr_retry = 7;
	rc_start(e, &p);
	if (e->passive) {
		for (unsigned i = 0; i < TIMES; i++)
			rc_recv(e, i, ANSWERS + i * WORD, WORD);
		uint64_t words = 0, sum = 0;
		for (; words < 2 * EACH; words++) {
			struct ibv_wc wc = rc_wait(e->rcq);
			CHECK_EQ(wc.status, IBV_WC_SUCCESS);
			CHECK_EQ(wc.wr_id, words % TIMES);
			sum += rc_word(e->buf + ANSWERS + wc.wr_id * WORD);
			rc_recv(e, wc.wr_id, ANSWERS + wc.wr_id * WORD, WORD);
		}
		CHECK_EQ(sum, (uint64_t)EACH * (EACH - 1));
	} else {
		pthread_t thread;
		CHECK_EQ(pthread_create(&thread, NULL, send_beside_another, e), 0);
		send_all(e, 0);
		CHECK_EQ(pthread_join(thread, NULL), 0);
	}
	rc_finish(e);
}

static const struct body bodies[] = {
	BODY(receive__deregistered),
	BODY(receive__registered_anew),
	BODY(receive__not_writable_any_more),
	BODY(receive__of_memory_elsewhere),
	BODY(receive__of_another_domain),
	BODY(receive__outside_of_its_region),
	BODY(receive__deregistered_meanwhile),
	BODY(receive__too_short),
	BODY(receive__of_two_pieces),
	BODY(receive__of_no_piece),
	BODY(receive__posted_late),
	BODY(receive__none_in_time),
	BODY(source__deregistered),
	BODY(source__registered_anew),
	BODY(source__of_memory_elsewhere),
	BODY(source__of_another_domain),
	BODY(source__outside_of_its_region),
	BODY(regions__take_turns),
	BODY(regions__of_others_come_and_go),
	BODY(messages__of_every_kind_in_between),
	BODY(messages__of_every_size),
	BODY(messages__inline),
	BODY(messages__in_bursts),
	BODY(messages__wake_who_sleeps),
	BODY(state__drained),
	BODY(state__peer_answers_nothing),
	BODY(state__in_error),
	BODY(state__reset),
	BODY(state__connected_anew),
	BODY(state__peer_has_gone_elsewhere),
	BODY(queue__full_until_polled),
	BODY(queue__behind_a_fence),
	BODY(queue_pair__of_two_threads),
	BODY(cq__overrun_by_another),
};
RC_MAIN(bodies)
