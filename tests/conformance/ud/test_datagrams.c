/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams that arrive: data, addressing, lists, completion. */
#include "ud.h"

#include <arpa/inet.h>

/* Where receives go in the buffer; sends come from its beginning. */
enum { IN = 32768 };

/* ---- data and completion ---- */

/* The service level tells which header there is: 1 IPv6, 2 IPv4, and 8 that UDP followed it. */
static void check_route(const struct end *e, const struct ibv_wc *wc, const uint8_t *grh)
{
	const uint8_t *v4 = grh + 20;
	bool is_v4 = IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)e->peer.gid.raw);
	CHECK_EQ(wc->sl, is_v4 ? 8 | 2 : 8 | 1);
	if (!is_v4)
		return;
	CHECK_EQ(v4[0], 0x45);
	CHECK_EQ(v4[1], 5);
	CHECK_EQ(v4[8], 33);
	CHECK_EQ(v4[9], 17);
	CHECK(!memcmp(v4 + 12, e->peer.gid.raw + 12, 4));
}

/* Every length has its padding, none of which reaches the receiver. */
static void data_of_every_length(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	uint32_t mtu = ud_mtu(e);
	const uint32_t lengths[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 63, 64, 65, 1000, mtu - 1, mtu };
	enum { N = sizeof(lengths) / sizeof(lengths[0]) };
	struct ibv_ah *ah = ud_ah(e);
	for (uint64_t i = 0; i < N; i++) {
		uint32_t n = lengths[i];
		rc_set(e->buf + IN, GRH + mtu + 8, 0xee);
		if (e->passive)
			rc_recv(e, i, IN, GRH + mtu);
		meet(e);
		if (e->passive) {
			struct ibv_wc wc = ud_expect_recv(e, i, n);
			CHECK_EQ(wc.src_qp, e->peer.qpn);
			CHECK_EQ(wc.wc_flags, IBV_WC_GRH);
			check_route(e, &wc, e->buf + IN);
			VERIFY(e->buf + IN + GRH, n, i);
			VERIFY_BYTE(e->buf + IN + GRH + n, mtu - n + 8, 0xee);
		} else {
			rc_fill(e->buf, n, i);
			SEND(e, .id = i, .len = n, .ah = ah);
			struct ibv_wc wc = rc_expect(e->scq, i, IBV_WC_SUCCESS);
			CHECK_EQ(wc.opcode, IBV_WC_SEND);
		}
	}
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	rc_finish(e);
}

static void immediate_data(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	if (e->passive)
		rc_recv(e, 1, IN, 4096);
	meet(e);
	if (e->passive) {
		struct ibv_wc wc = ud_expect_recv(e, 1, 10);
		CHECK_EQ(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
		CHECK_EQ(ntohl(wc.imm_data), 0x12345678);
	} else {
		SEND(e, .len = 10, .ah = ah, .imm = 0x12345678);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	}
	ibv_destroy_ah(ah);
	rc_finish(e);
}

static void inline_data(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	if (e->passive)
		rc_recv(e, 1, IN, 4096);
	meet(e);
	if (e->passive) {
		ud_expect_recv(e, 1, 64);
		VERIFY(e->buf + IN + GRH, 64, 9);
	} else {
		rc_fill(e->buf, 64, 9);
		SEND(e, .len = 64, .ah = ah, .flags = IBV_SEND_INLINE, .lkey = 0xdead);
		rc_set(e->buf, 64, 0);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	}
	ibv_destroy_ah(ah);
	rc_finish(e);
}

/* The longest gather list, and receives whose entries split header and data anywhere. */
static void lists(struct end *e)
{
	enum { ENTRIES = 32, EACH = 7 };
	struct params p = params();
	p.cap.max_send_sge = p.cap.max_recv_sge = ENTRIES;
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	struct ibv_sge sge[ENTRIES];
	for (int i = 0; i < ENTRIES; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)e->buf + (e->passive ? IN : 0) + 16 * i, EACH,
					   e->mr->lkey };
	sge[ENTRIES - 1].length = 4096;
	if (e->passive) {
		struct ibv_recv_wr *bad, wr = { .wr_id = 3, .sg_list = sge, .num_sge = ENTRIES };
		CHECK_EQ(ibv_post_recv(e->qp, &wr, &bad), 0);
	}
	meet(e);
	if (e->passive) {
		uint8_t got[GRH + ENTRIES * EACH], *to = got;
		ud_expect_recv(e, 3, ENTRIES * EACH);
		for (int i = 0; i < ENTRIES; i++) {
			size_t n = i + 1 < ENTRIES ? EACH : sizeof(got) - (ENTRIES - 1) * EACH;
			memcpy(to, (void *)(uintptr_t)sge[i].addr, n);
			to += n;
		}
		VERIFY(got + GRH, ENTRIES * EACH, 4);
	} else {
		uint8_t data[ENTRIES * EACH];
		rc_fill(data, sizeof(data), 4);
		sge[ENTRIES - 1].length = EACH;
		for (int i = 0; i < ENTRIES; i++)
			memcpy((void *)(uintptr_t)sge[i].addr, data + i * EACH, EACH);
		SEND(e, .sge = sge, .nsge = ENTRIES, .ah = ah);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	}
	ibv_destroy_ah(ah);
	rc_finish(e);
}

/* ---- addressing ---- */

static void reply_to_sender(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	rc_recv(e, 1, IN, 4096);
	meet(e);
	if (e->passive) {
		struct ibv_wc wc = ud_expect_recv(e, 1, 8);
		struct ibv_grh *grh = (struct ibv_grh *)(e->buf + IN);
		struct ibv_ah_attr attr;
		CHECK_EQ(ibv_init_ah_from_wc(e->ctx, 1, &wc, grh, &attr), 0);
		CHECK(!memcmp(&attr.grh.dgid, &e->peer.gid, 16));
		struct ibv_ah *ah = ibv_create_ah_from_wc(e->pd, &wc, grh, 1);
		CHECK(ah);
		rc_fill(e->buf, 100, 2);
		SEND(e, .len = 100, .ah = ah, .qpn = wc.src_qp);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
		ibv_destroy_ah(ah);
	} else {
		struct ibv_ah *ah = ud_ah(e);
		SEND(e, .len = 8, .ah = ah);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
		struct ibv_wc wc = ud_expect_recv(e, 1, 100);
		CHECK_EQ(wc.src_qp, e->peer.qpn);
		VERIFY(e->buf + IN + GRH, 100, 2);
		ibv_destroy_ah(ah);
	}
	rc_finish(e);
}

/* One receiver, several senders: each datagram says whose it is. */
static void many_senders(struct end *e)
{
	enum { SENDERS = 8 };
	struct params p = params();
	ud_start(e, &p);
	struct ibv_qp *qps[SENDERS];
	struct ibv_ah *ah = ud_ah(e);
	for (uint64_t i = 0; i < SENDERS; i++) {
		if (e->passive)
			rc_recv(e, i, IN + i * 64, 64);
		else
			qps[i] = ud_make_qp(e);
	}
	meet(e);
	for (uint64_t i = 0; i < SENDERS; i++) {
		if (e->passive) {
			struct ibv_wc wc = ud_expect_recv(e, i, 4);
			uint32_t told;
			memcpy(&told, e->buf + IN + i * 64 + GRH, 4);
			CHECK_EQ(wc.src_qp, told);
		} else {
			memcpy(e->buf, &qps[i]->qp_num, 4);
			SEND(e, .len = 4, .ah = ah, .qp = qps[i]);
			rc_expect(e->scq, 0, IBV_WC_SUCCESS);
		}
	}
	for (int i = 0; !e->passive && i < SENDERS; i++)
		CHECK_EQ(ibv_destroy_qp(qps[i]), 0);
	ibv_destroy_ah(ah);
	rc_finish(e);
}

/* The address handle may go as soon as the send is posted: what it said was copied. */
static void address_handle_goes_early(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	for (uint64_t i = 0; e->passive && i < 32; i++)
		rc_recv(e, i, IN, 64);
	meet(e);
	for (uint64_t i = 0; i < 32; i++) {
		if (e->passive) {
			ud_expect_recv(e, i, 1);
			continue;
		}
		struct ibv_ah *ah = ud_ah(e);
		SEND(e, .len = 1, .ah = ah);
		CHECK_EQ(ibv_destroy_ah(ah), 0);
	}
	for (int i = 0; !e->passive && i < 32; i++)
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	rc_finish(e);
}

static void queue_pair_to_itself(struct end *e)
{
	struct params p = params();
	rc_open(e, &p);
	CHECK_EQ(ibv_destroy_qp(e->qp), 0);
	e->qp = ud_make_qp(e);
	CHECK_EQ(ibv_query_gid(e->ctx, 1, 0, &e->peer.gid), 0);
	struct ibv_ah *ah = ud_ah(e);
	rc_recv(e, 1, IN, 4096);
	rc_fill(e->buf, 99, 1);
	SEND(e, .len = 99, .ah = ah, .qpn = e->qp->qp_num);
	struct ibv_wc wc = ud_expect_recv(e, 1, 99);
	CHECK_EQ(wc.src_qp, e->qp->qp_num);
	VERIFY(e->buf + IN + GRH, 99, 1);
	ibv_destroy_ah(ah);
	rc_close(e);
}

/*
 * The receiver's process runs, and yet does not come to make the link that its first datagram waits for: as
 * on a machine where many want the processor. The datagram waits for as long.
 */
static void process_that_is_slow_to_link(struct end *e)
{
	enum { SLOW_MS = 1500 };
	struct params p = params();
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	struct rlimit before = { 0 };
	if (e->passive) {
		rc_recv(e, 1, 0, 64);
		before = rc_use_up_descriptors();
	}
	meet(e);
	if (!e->passive) {
		SEND(e, .len = 8, .ah = ah);
		tell(e, 1);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	} else {
		hear(e);
		for (uint64_t end_ms = rc_now_ms() + SLOW_MS; rc_now_ms() < end_ms;)
			;
		CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
		rc_pause_ms(200); /* asleep, as a program that waits for its next event */
		ud_expect_recv(e, 1, 8);
	}
	ibv_destroy_ah(ah);
	rc_finish(e);
}

/* ---- other ways to wait, receive and post ---- */

static void shared_receive_queue(struct end *e)
{
	struct params p = params();
	p.srq_wr = 16;
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	for (uint64_t i = 0; e->passive && i < 16; i++)
		rc_recv(e, i, IN + 64 * i, 64);
	meet(e);
	for (uint64_t i = 0; i < 16; i++) {
		if (e->passive) {
			struct ibv_wc wc = ud_expect_recv(e, i, 8);
			CHECK_EQ(wc.qp_num, e->qp->qp_num);
			VERIFY(e->buf + IN + 64 * i + GRH, 8, i);
		} else {
			rc_fill(e->buf, 8, i);
			SEND(e, .len = 8, .ah = ah);
			rc_expect(e->scq, 0, IBV_WC_SUCCESS);
		}
	}
	ibv_destroy_ah(ah);
	rc_finish(e);
}

/* A sleeper that waits for solicited completions alone is woken by the second datagram. */
static void solicited(struct end *e)
{
	struct params p = params();
	p.channel = true;
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	if (e->passive) {
		rc_recv(e, 1, IN, 64);
		rc_recv(e, 2, IN, 64);
		CHECK_EQ(ibv_req_notify_cq(e->rcq, 1), 0);
	}
	meet(e);
	if (e->passive) {
		rc_expect_cq_event(e, e->rcq);
		ud_expect_recv(e, 1, 1);
		ud_expect_recv(e, 2, 2);
	} else {
		SEND(e, .len = 1, .ah = ah);
		SEND(e, .len = 2, .ah = ah, .flags = IBV_SEND_SOLICITED);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	}
	ibv_destroy_ah(ah);
	rc_finish(e);
}

/* In turns. A send's completion event comes before that of its answer (rc/test_notify.c). */
static void is_sent_before_its_answer(struct end *e)
{
	enum { N = 500 };
	struct params p = params();
	p.channel = true;
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	rc_recv(e, 0, IN, 64);
	CHECK_EQ(ibv_req_notify_cq(e->rcq, 0), 0);
	CHECK_EQ(ibv_req_notify_cq(e->scq, 0), 0);
	meet(e);
	for (int turn = 0; turn < 2 * N; turn++) {
		bool sends = turn % 2 == e->passive;
		struct ibv_cq *cq = sends ? e->scq : e->rcq;
		if (sends)
			SEND(e, .id = turn, .len = 8, .ah = ah);
		rc_expect_cq_event(e, cq);
		CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
		if (sends) {
			rc_expect(cq, turn, IBV_WC_SUCCESS);
		} else {
			ud_expect_recv(e, turn / 2, 8);
			rc_recv(e, turn / 2 + 1, IN, 64);
		}
	}
	meet(e);
	ibv_destroy_ah(ah);
	rc_finish(e);
}

static struct ibv_qp *make_builder_qp(struct end *e)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = e->scq, .recv_cq = e->rcq, .cap = e->p.cap, .qp_type = IBV_QPT_UD, .pd = e->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(e->ctx, &init);
	CHECK(qp);
	ud_to_rts(qp);
	return qp;
}

static void built_requests(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	if (e->passive) {
		rc_recv(e, 1, IN, 4096);
		rc_recv(e, 2, IN + 4096, 4096);
	}
	meet(e);
	if (e->passive) {
		ud_expect_recv(e, 1, 50);
		VERIFY(e->buf + IN + GRH, 50, 1);
		struct ibv_wc wc = ud_expect_recv(e, 2, 9);
		CHECK_EQ(ntohl(wc.imm_data), 77);
		VERIFY(e->buf + IN + 4096 + GRH, 9, 1);
	} else {
		struct ibv_qp *qp = make_builder_qp(e);
		struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
		rc_fill(e->buf, 50, 1);
		rc_fill(e->buf + 64, 9, 1);
		ibv_wr_start(ex);
		ex->wr_flags = IBV_SEND_SIGNALED;
		ex->wr_id = 1;
		ibv_wr_send(ex);
		ibv_wr_set_ud_addr(ex, ah, e->peer.qpn, QKEY);
		ibv_wr_set_sge(ex, e->mr->lkey, (uintptr_t)e->buf, 50);
		ex->wr_id = 2;
		ibv_wr_send_imm(ex, htonl(77));
		ibv_wr_set_ud_addr(ex, ah, e->peer.qpn, QKEY);
		ibv_wr_set_inline_data(ex, e->buf + 64, 9);
		CHECK_EQ(ibv_wr_complete(ex), 0);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
		rc_expect(e->scq, 2, IBV_WC_SUCCESS);
		CHECK_EQ(ibv_destroy_qp(qp), 0);
	}
	ibv_destroy_ah(ah);
	rc_finish(e);
}

/* ---- many ---- */

enum { ROUNDS = 200, WINDOW = 32, MOST = 1000, PLACE = GRH + 1024 };

static void receive_window(struct end *e, unsigned round)
{
	for (uint64_t i = 0; i < WINDOW; i++) {
		uint64_t number = (uint64_t)round * WINDOW + i;
		uint32_t n = rc_hash(number) % MOST;
		ud_expect_recv(e, i, n);
		VERIFY(e->buf + i * PLACE + GRH, n, number);
	}
}

static void send_window(struct end *e, struct ibv_ah *ah, unsigned round)
{
	for (uint64_t i = 0; i < WINDOW; i++) {
		uint64_t number = (uint64_t)round * WINDOW + i;
		uint32_t n = rc_hash(number) % MOST;
		rc_fill(e->buf + i * PLACE, n, number);
		SEND(e, .id = i, .at = i * PLACE, .len = n, .ah = ah);
	}
	for (uint64_t i = 0; i < WINDOW; i++)
		rc_expect(e->scq, i, IBV_WC_SUCCESS);
}

/* More at once than the kernel queues: none gets lost while the receiver takes them. */
static void thousands(struct end *e)
{
	struct params p = params();
	if (e->wire)
		rc_skip("a wire loses what finds no room");
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (uint64_t i = 0; e->passive && i < WINDOW; i++)
			rc_recv(e, i, i * PLACE, PLACE);
		meet(e);
		if (e->passive)
			receive_window(e, round);
		else
			send_window(e, ah, round);
	}
	ibv_destroy_ah(ah);
	rc_finish(e);
}

static const struct body bodies[] = {
	BODY(data_of_every_length), BODY(immediate_data), BODY(inline_data), BODY(lists), BODY(reply_to_sender),
	BODY(many_senders), BODY_IN(process_that_is_slow_to_link, PROCESSES_ONLY), BODY(address_handle_goes_early), BODY_IN(queue_pair_to_itself, ALONE), BODY(shared_receive_queue),
	BODY(solicited), BODY(is_sent_before_its_answer), BODY(built_requests), BODY(thousands),
};

RC_MAIN(bodies)
