/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams that do not arrive, and why. */
#include "ud.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

enum { IN = 32768 };

/* ---- dropped in silence ---- */

static void wrong_qkey(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	if (e->passive)
		rc_recv(e, 1, IN, 64);
	meet(e);
	if (e->passive) {
		ud_expect_recv(e, 1, 2);
		rc_expect_none(e->rcq);
	} else {
		SEND(e, .len = 1, .ah = ah, .qkey = QKEY + 1);
		SEND(e, .len = 2, .ah = ah);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	}
	ibv_destroy_ah(ah);
	rc_finish(e);
}

/* The highest bit of a request's Q_Key: the QP's own is sent. */
static void own_qkey(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	if (e->passive) {
		struct ibv_qp_attr a = { .qkey = 0x80001234 };
		CHECK_EQ(ibv_modify_qp(e->qp, &a, IBV_QP_QKEY), 0);
		rc_recv(e, 1, IN, 64);
	}
	meet(e);
	if (e->passive) {
		ud_expect_recv(e, 1, 2);
	} else {
		struct ibv_qp_attr a = { .qkey = 0x80001234 };
		SEND(e, .len = 1, .ah = ah, .qkey = 0x80001234); /* means QKEY still */
		CHECK_EQ(ibv_modify_qp(e->qp, &a, IBV_QP_QKEY), 0);
		SEND(e, .len = 2, .ah = ah, .qkey = 0x80000000);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	}
	ibv_destroy_ah(ah);
	rc_finish(e);
}

/* The second QP's datagram says that the first one's was looked at. */
static void no_receive(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	if (e->passive) {
		struct ibv_qp *second = ud_make_qp(e);
		CHECK_EQ(rc_post_recv(e, second, 1, IN, 64), 0);
		tell(e, second->qp_num);
		ud_expect_recv(e, 1, 2);
		rc_recv(e, 2, IN, 64);
		tell(e, 0);
		ud_expect_recv(e, 2, 3);
		CHECK_EQ(ibv_destroy_qp(second), 0);
	} else {
		uint32_t second = (uint32_t)hear(e);
		SEND(e, .len = 1, .ah = ah);
		SEND(e, .len = 2, .ah = ah, .qpn = second);
		hear(e);
		SEND(e, .len = 3, .ah = ah);
		for (int i = 0; i < 3; i++)
			rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	}
	ibv_destroy_ah(ah);
	rc_finish(e);
}

/* No process, no QP, a QP of another type, QP 0 and 1, a QP that does not receive yet. */
static void nobody_there(struct end *e)
{
	struct params p = params();
	rc_open(e, &p);
	struct ibv_qp *connected = e->qp;
	struct ibv_qp_init_attr init = {
		.send_cq = e->scq, .recv_cq = e->rcq, .cap = p.cap, .qp_type = IBV_QPT_UD
	};
	struct ibv_qp *fresh = ibv_create_qp(e->pd, &init);
	CHECK(fresh);
	e->qp = ud_make_qp(e);
	CHECK_EQ(ibv_query_gid(e->ctx, 1, 0, &e->peer.gid), 0);
	struct ibv_ah *ah = ud_ah(e);
	const uint32_t targets[] = { 0xfffffe,		0xffffff,     1, e->qp->qp_num + 1000,
				     connected->qp_num, fresh->qp_num };
	rc_recv(e, 9, IN, 64);
	for (uint64_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
		SEND(e, .id = i, .len = 1, .ah = ah, .qpn = targets[i]);
		rc_expect(e->scq, i, IBV_WC_SUCCESS);
	}
	SEND(e, .len = 2, .ah = ah, .qpn = e->qp->qp_num);
	ud_expect_recv(e, 9, 2);
	CHECK_EQ(ibv_destroy_qp(fresh), 0);
	CHECK_EQ(ibv_destroy_qp(connected), 0);
	ibv_destroy_ah(ah);
	rc_close(e);
}

/* TEST-NET-2 of RFC 5737 is no address of this host. */
static void other_host(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid = { { [10] = 0xff, 0xff, 198, 51, 100, 1 } },
					     .hop_limit = 1 } };
	struct ibv_ah *away = ibv_create_ah(e->pd, &attr), *ah = ud_ah(e);
	CHECK(away);
	if (e->passive)
		rc_recv(e, 1, IN, 64);
	meet(e);
	if (e->passive) {
		ud_expect_recv(e, 1, 2);
	} else {
		SEND(e, .len = 1, .ah = away);
		SEND(e, .len = 2, .ah = ah);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	}
	ibv_destroy_ah(ah);
	ibv_destroy_ah(away);
	rc_finish(e);
}

/* A receiver that takes nothing delays its sender but for a while. */
static void stopped_process(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	meet(e);
	if (!e->passive) {
		CHECK_EQ(kill(e->peer_pid, SIGSTOP), 0);
		for (uint64_t i = 0; i < 64; i++)
			SEND(e, .id = i, .len = 100, .ah = ah);
		for (uint64_t i = 0; i < 64; i++)
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		CHECK_EQ(kill(e->peer_pid, SIGCONT), 0);
	}
	ibv_destroy_ah(ah);
	rc_finish(e);
}

/* What was sent arrives, though its sender is gone. */
static void last_words(struct end *e)
{
	enum { WORDS = 16, PLACE = 256 };
	struct params p = params();
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	for (uint64_t i = 0; e->passive && i < WORDS; i++)
		rc_recv(e, i, i * PLACE, PLACE);
	meet(e);
	if (!e->passive) {
		rc_fill(e->buf, 100, 1);
		for (uint64_t i = 0; i < WORDS; i++)
			SEND(e, .id = i, .len = 100, .ah = ah);
		for (uint64_t i = 0; i < WORDS; i++)
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		_exit(0);
	}
	rc_peer_may_die = true;
	for (uint64_t i = 0; i < WORDS; i++) {
		ud_expect_recv(e, i, 100);
		VERIFY(e->buf + i * PLACE + GRH, 100, 1);
	}
	ibv_destroy_ah(ah);
	rc_close(e);
}

static void dead_process(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	if (e->passive) {
		tell(e, 0);
		hear(e);
	} else {
		rc_peer_may_die = true;
		hear(e);
		CHECK_EQ(kill(e->peer_pid, SIGKILL), 0);
		for (uint64_t i = 0; i < 64; i++)
			SEND(e, .id = i, .len = 100, .ah = ah);
		for (uint64_t i = 0; i < 64; i++)
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		ibv_destroy_ah(ah);
		rc_close(e);
	}
}

/* ---- send errors: the send queue stops in SQE, the receives go on ---- */

static void send_fails(struct end *e, const struct dgram *d, enum ibv_wc_status status)
{
	struct ibv_ah *ah = ud_ah(e);
	if (e->passive) {
		rc_recv(e, 1, IN, 4096);
		meet(e);
		ud_expect_recv(e, 1, 3);
		SEND(e, .len = 4, .ah = ah);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
		meet(e);
		rc_expect_none(e->rcq);
	} else {
		struct dgram first = *d;
		first.id = 5;
		first.ah = first.ah ? first.ah : ah;
		rc_recv(e, 1, IN, 4096);
		CHECK_EQ(ud_post(e, &first), 0);
		rc_expect(e->scq, 5, status);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_SQE);
		SEND(e, .id = 6, .len = 1, .ah = ah);
		rc_expect(e->scq, 6, IBV_WC_WR_FLUSH_ERR);
		meet(e);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RTS), 0);
		SEND(e, .id = 7, .len = 3, .ah = ah);
		rc_expect(e->scq, 7, IBV_WC_SUCCESS);
		ud_expect_recv(e, 1, 4);
		meet(e);
	}
	ibv_destroy_ah(ah);
}

static void too_long(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	send_fails(e, &(struct dgram){ .len = ud_mtu(e) + 1 }, IBV_WC_LOC_LEN_ERR);
	rc_finish(e);
}

static void bad_lkey(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	send_fails(e, &(struct dgram){ .len = 8, .lkey = e->mr->lkey + 0x1000 }, IBV_WC_LOC_PROT_ERR);
	rc_finish(e);
}

static void beyond_region(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	send_fails(e, &(struct dgram){ .at = p.bytes - 4, .len = 8 }, IBV_WC_LOC_PROT_ERR);
	rc_finish(e);
}

static void memory_on_demand_that_is_gone(struct end *e)
{
	rc_needs_holes();
	struct params p = params();
	ud_start(e, &p);
	void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(e->pd, at, 4096, IBV_ACCESS_ON_DEMAND);
	CHECK(mr);
	rc_take_away(at, 4096);
	struct ibv_sge sge = { (uintptr_t)at, 8, mr->lkey };
	send_fails(e, &(struct dgram){ .sge = &sge, .nsge = 1 }, IBV_WC_LOC_PROT_ERR);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	rc_finish(e);
}

static void handle_of_another_pd(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	struct ibv_pd *own = e->pd, *other = ibv_alloc_pd(e->ctx);
	CHECK(other);
	e->pd = other;
	struct ibv_ah *ah = ud_ah(e);
	e->pd = own;
	send_fails(e, &(struct dgram){ .len = 8, .ah = ah }, IBV_WC_LOC_QP_OP_ERR);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	CHECK_EQ(ibv_dealloc_pd(other), 0);
	rc_finish(e);
}

/* A receive that comes in while the send queue is stopped. */
static void receives_go_on(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	if (e->passive) {
		rc_recv(e, 1, IN, 4096);
		SEND(e, .id = 5, .len = 8, .ah = ah, .lkey = 1);
		rc_expect(e->scq, 5, IBV_WC_LOC_PROT_ERR);
		meet(e);
		ud_expect_recv(e, 1, 8);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_SQE);
	} else {
		meet(e);
		SEND(e, .len = 8, .ah = ah);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	}
	ibv_destroy_ah(ah);
	rc_finish(e);
}

/* ---- longer than the receive: lost, and nothing else ---- */

/* The receive is there for the next one. Room for the data is not enough: 40 bytes come before it. */
static void try_too_long(struct end *e, struct ibv_ah *ah, uint32_t qpn)
{
	if (e->passive) {
		rc_set(e->buf + IN, 1024, 0xee);
		rc_recv(e, 1, IN, GRH + 99);
		rc_recv(e, 2, IN + 512, GRH + 100);
	}
	meet(e);
	if (e->passive) {
		ud_expect_recv(e, 1, 99);
		ud_expect_recv(e, 2, 100);
		VERIFY(e->buf + IN + GRH, 99, 2);
		VERIFY(e->buf + IN + 512 + GRH, 100, 3);
		VERIFY_BYTE(e->buf + IN + GRH + 99, 512 - GRH - 99, 0xee);
		rc_expect_none(e->rcq);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_RTS);
	} else {
		static const uint32_t lengths[] = { 100, 1000, 99, 100 };
		for (unsigned i = 0; i < 4; i++) {
			rc_fill(e->buf, lengths[i], i);
			SEND(e, .len = lengths[i], .ah = ah, .qpn = qpn);
			rc_expect(e->scq, 0, IBV_WC_SUCCESS);
		}
		CHECK_EQ(rc_state(e->qp), IBV_QPS_RTS);
	}
	meet(e);
}

static void receive_too_short(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	try_too_long(e, ah, e->peer.qpn);
	ibv_destroy_ah(ah);
	rc_finish(e);
}

static void shared_receive_too_short(struct end *e)
{
	struct params p = params();
	p.srq_wr = 16;
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	try_too_long(e, ah, e->peer.qpn);
	ibv_destroy_ah(ah);
	rc_finish(e);
}

static void receive_too_short_for_multicast(struct end *e)
{
	static const union ibv_gid v4 = { .raw = { [10] = 0xff, 0xff, 239, 7, 7, 7 } };
	static const union ibv_gid v6 = { .raw = { 0xff, 0x12, [15] = 0x77 } };
	struct params p = params();
	ud_start(e, &p);
	const union ibv_gid *group = e->peer.gid.raw[10] == 0xff && !e->peer.gid.raw[0] ? &v4 : &v6;
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid = *group, .hop_limit = 1 } };
	struct ibv_ah *ah = ibv_create_ah(e->pd, &attr);
	CHECK(ah);
	if (e->passive)
		CHECK_EQ(ibv_attach_mcast(e->qp, group, 0), 0);
	try_too_long(e, ah, 0xffffff);
	if (e->passive)
		CHECK_EQ(ibv_detach_mcast(e->qp, group, 0), 0);
	ibv_destroy_ah(ah);
	rc_finish(e);
}

/* ---- a receive that is bad ends the receiver, the sender does not learn it ---- */

static void receive_fails(struct end *e, uint32_t lkey)
{
	struct ibv_ah *ah = ud_ah(e);
	if (e->passive) {
		struct ibv_sge sge = { (uintptr_t)e->buf + IN, 4096, lkey };
		struct ibv_recv_wr *bad, wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 };
		rc_set(e->buf + IN, 256, 0xee);
		CHECK_EQ(ibv_post_recv(e->qp, &wr, &bad), 0);
		rc_recv(e, 2, IN, 4096);
	}
	meet(e);
	if (e->passive) {
		rc_expect(e->rcq, 1, IBV_WC_LOC_PROT_ERR);
		rc_expect(e->rcq, 2, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
		VERIFY_BYTE(e->buf + IN, 256, 0xee);
	} else {
		SEND(e, .len = 100, .ah = ah);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_RTS);
	}
	ibv_destroy_ah(ah);
}

static void receive_without_key(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	receive_fails(e, e->mr->lkey + 0x1000);
	rc_finish(e);
}

/* Unmapped without a word: the datagram finds an error, and nobody ends. */
static void receive_into_lost_memory(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	void *memory = rc_map(4096);
	struct ibv_mr *mr =
		ibv_reg_mr_iova(e->pd, memory, 4096, (uintptr_t)e->buf + IN, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	rc_take_away(memory, 4096);
	receive_fails(e, mr->lkey);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	munmap(memory, 4096);
	rc_finish(e);
}

/* ---- refused at once ---- */

static void refused_posts(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	struct ibv_sge sge = { (uintptr_t)e->buf, 8, e->mr->lkey };
	struct ibv_send_wr *bad,
		wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .wr.ud.ah = ah };
	CHECK_EQ(ibv_post_send(e->qp, &wr, &bad), EINVAL);
	wr.opcode = IBV_WR_RDMA_READ;
	CHECK_EQ(ibv_post_send(e->qp, &wr, &bad), EINVAL);
	CHECK_EQ(ud_post(e, &(struct dgram){ .len = 8 }), EINVAL);
	CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
	CHECK_EQ(ud_post(e, &(struct dgram){ .len = 8, .ah = ah }), EINVAL);
	rc_expect_none(e->scq);
	ibv_destroy_ah(ah);
	rc_finish(e);
}

/* A QP that was reset and is made ready again receives what is sent from then on. */
static void reset_and_again(struct end *e)
{
	struct params p = params();
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	for (int round = 0; round < 3; round++) {
		if (e->passive) {
			rc_recv(e, 1, IN, 64);
			rc_recv(e, 2, IN, 64);
		}
		meet(e);
		if (e->passive) {
			ud_expect_recv(e, 1, 1);
			CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
			rc_expect_none(e->rcq);
			ud_to_rts(e->qp);
		} else {
			SEND(e, .len = 1, .ah = ah);
			rc_expect(e->scq, 0, IBV_WC_SUCCESS);
		}
	}
	ibv_destroy_ah(ah);
	rc_finish(e);
}

/* Memory that is deregistered while datagrams come in is not written any more. */
static void deregistered_under_fire(struct end *e)
{
	enum { ROUNDS = 30 };
	struct params p = params();
	ud_start(e, &p);
	struct ibv_ah *ah = ud_ah(e);
	for (int round = 0; round < ROUNDS; round++) {
		if (e->passive) {
			uint8_t *memory = rc_map(4096);
			struct ibv_mr *mr = ibv_reg_mr(e->pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE);
			CHECK(mr);
			struct ibv_sge sge = { (uintptr_t)memory, 4096, mr->lkey };
			struct ibv_recv_wr *bad, wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 };
			for (int i = 0; i < 32; i++)
				CHECK_EQ(ibv_post_recv(e->qp, &wr, &bad), 0);
			meet(e);
			rc_wait(e->rcq);
			CHECK_EQ(ibv_dereg_mr(mr), 0);
			rc_set(memory, 4096, 0xcc);
			meet(e);
			VERIFY_BYTE(memory, 4096, 0xcc);
			CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
			ud_to_rts(e->qp);
		} else {
			meet(e);
			for (int i = 0; i < 32; i++)
				SEND(e, .len = 256, .ah = ah);
			for (int i = 0; i < 32; i++)
				rc_expect(e->scq, 0, IBV_WC_SUCCESS);
			meet(e);
		}
		meet(e);
	}
	ibv_destroy_ah(ah);
	rc_finish(e);
}

static const struct body bodies[] = {
	BODY(wrong_qkey), BODY(own_qkey), BODY(no_receive), BODY_IN(nobody_there, ALONE), BODY(other_host),
	BODY_IN(stopped_process, PROCESSES_ONLY), BODY_IN(dead_process, PROCESSES_ONLY), BODY_IN(last_words, PROCESSES_ONLY), BODY(too_long), BODY(bad_lkey),
	BODY(beyond_region), BODY(memory_on_demand_that_is_gone), BODY(handle_of_another_pd), BODY(receives_go_on),
	BODY(receive_too_short), BODY(shared_receive_too_short), BODY(receive_too_short_for_multicast), BODY(receive_without_key),
	BODY(receive_into_lost_memory),
	BODY(refused_posts), BODY(reset_and_again), BODY(deregistered_under_fire),
};

RC_MAIN(bodies)
