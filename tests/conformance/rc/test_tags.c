/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues that match tags. The passive end has one, the active end sends to it. */
#include "rc.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <infiniband/tm_types.h>
#include <sys/mman.h>

enum {
	TAGS = 32,
	OPS = 16,
	SLOT = 4096,
	HEAD = sizeof(struct ibv_tmh),
	BOTH_HEADS = HEAD + sizeof(struct ibv_rvh)
};
enum { MATCHED = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID };

static const uint64_t ALL = UINT64_MAX;

/* The passive end's CQ of the shared queue; one of each thread. */
static __thread struct ibv_cq_ex *tcq;

/* ---- ends ---- */

static struct ibv_srq *make_srq(struct end *e, uint32_t tags, uint32_t ops)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = 64, .max_sge = 4 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.pd = e->pd,
		.cq = ibv_cq_ex_to_cq(tcq),
		.tm_cap = { .max_num_tags = tags, .max_ops = ops },
	};
	return ibv_create_srq_ex(e->ctx, &init);
}

static void open_end(struct end *e, const struct params *p)
{
	struct ibv_cq_init_attr_ex cq = { .cqe = 1024,
					  .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO };
	rc_open(e, p);
	if (!e->passive)
		return;
	CHECK_EQ(ibv_destroy_qp(e->qp), 0);
	CHECK(tcq = ibv_create_cq_ex(e->ctx, &cq));
	CHECK(e->srq = make_srq(e, TAGS, OPS));
	e->qp = rc_make_qp(e);
}

static void start(struct end *e, const struct params *p)
{
	open_end(e, p);
	e->peer = rc_connect(e, e->qp);
}

static void finish(struct end *e)
{
	meet(e);
	if (e->passive) {
		CHECK_EQ(ibv_destroy_qp(e->qp), 0);
		CHECK_EQ(ibv_destroy_srq(e->srq), 0);
		CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(tcq)), 0);
		e->qp = NULL;
		e->srq = NULL;
	}
	rc_close(e);
}

static struct params usual(void)
{
	struct params p = params();
	p.bytes = 1 << 20;
	return p;
}

/* ---- the receiver ---- */

struct done {
	uint64_t id, tag;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	unsigned flags;
	uint32_t bytes, imm, ctx, qpn, src_qp;
};

static bool take(struct done *d)
{
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_wc_tm_info info;
	int err = ibv_start_poll(tcq, &attr);
	if (err == ENOENT)
		return false;
	CHECK_EQ(err, 0);
	*d = (struct done){ .id = tcq->wr_id,
			    .status = tcq->status,
			    .qpn = ibv_wc_read_qp_num(tcq),
			    .opcode = ibv_wc_read_opcode(tcq) };
	if (d->status == IBV_WC_SUCCESS || d->status == IBV_WC_TM_RNDV_INCOMPLETE) {
		ibv_wc_read_tm_info(tcq, &info);
		d->tag = info.tag;
		d->ctx = info.priv;
		d->flags = ibv_wc_read_wc_flags(tcq);
		d->bytes = ibv_wc_read_byte_len(tcq);
		d->src_qp = ibv_wc_read_src_qp(tcq);
		d->imm = ntohl(ibv_wc_read_imm_data(tcq));
	}
	ibv_end_poll(tcq);
	return true;
}

static struct done next(void)
{
	struct done d;
	for (uint64_t end = rc_now_ms() + 60000; !take(&d);)
		CHECK(rc_now_ms() < end);
	return d;
}

static struct done expect(uint64_t id, enum ibv_wc_opcode opcode, enum ibv_wc_status status, unsigned flags)
{
	struct done d = next();
	CHECK_EQ(d.opcode, opcode);
	CHECK_EQ(d.status, status);
	CHECK_EQ(d.id, id);
	CHECK_EQ(d.flags, flags);
	return d;
}

static void expect_nothing(void)
{
	struct done d;
	uint64_t end = rc_now_ms() + 20;
	do
		CHECK(!take(&d));
	while (rc_now_ms() < end);
}

static int post_op(struct end *e, struct ibv_ops_wr *wr)
{
	struct ibv_ops_wr *bad = NULL;
	int err = ibv_post_srq_ops(e->srq, wr, &bad);
	CHECK(!err || bad == wr);
	return err;
}

static struct ibv_ops_wr add_of(struct ibv_sge *sge, uint64_t id, uint64_t tag, uint64_t mask)
{
	return (struct ibv_ops_wr){ .wr_id = id,
				    .opcode = IBV_WR_TAG_ADD,
				    .flags = IBV_OPS_SIGNALED,
				    .tm.add = { .recv_wr_id = id,
						.sg_list = sge,
						.num_sge = sge ? 1 : 0,
						.tag = tag,
						.mask = mask } };
}

static struct ibv_sge sge_of(struct end *e, uint64_t at, uint32_t len)
{
	return (struct ibv_sge){ (uintptr_t)e->buf + at, len, e->mr->lkey };
}

static uint32_t add_tag(struct end *e, uint64_t id, uint64_t tag, uint64_t mask, uint64_t at, uint32_t len)
{
	struct ibv_sge sge = sge_of(e, at, len);
	struct ibv_ops_wr wr = add_of(&sge, id, tag, mask);
	CHECK_EQ(post_op(e, &wr), 0);
	struct done d = expect(id, IBV_WC_TM_ADD, IBV_WC_SUCCESS, 0);
	CHECK_EQ(d.qpn, 0);
	return wr.tm.handle;
}

static void sync_to(struct end *e, uint32_t handled)
{
	struct ibv_ops_wr wr = { .wr_id = 99,
				 .opcode = IBV_WR_TAG_SYNC,
				 .flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC,
				 .tm.unexpected_cnt = handled };
	CHECK_EQ(post_op(e, &wr), 0);
	expect(99, IBV_WC_TM_SYNC, IBV_WC_SUCCESS, 0);
}

/* ---- the sender ---- */

static void put_tmh(uint8_t *at, enum ibv_tmh_op op, uint64_t tag, uint32_t ctx)
{
	*(struct ibv_tmh *)at = (struct ibv_tmh){ .opcode = op, .app_ctx = htonl(ctx), .tag = htobe64(tag) };
}

static void put_rvh(uint8_t *at, uint64_t va, uint32_t rkey, uint32_t len)
{
	*(struct ibv_rvh *)(at + HEAD) =
		(struct ibv_rvh){ .va = htobe64(va), .rkey = htonl(rkey), .len = htonl(len) };
}

/* A message of `bytes` after its header. */
static void send_eager(struct end *e, uint64_t at, uint64_t tag, uint32_t ctx, uint32_t bytes, uint64_t seed)
{
	put_tmh(e->buf + at, IBV_TMH_EAGER, tag, ctx);
	rc_fill(e->buf + at + HEAD, bytes, seed);
	POST(e, .id = tag, .opcode = IBV_WR_SEND, .at = at, .len = HEAD + bytes);
	rc_expect(e->scq, tag, IBV_WC_SUCCESS);
}

static void post_rendezvous(struct end *e, uint64_t at, uint64_t tag, uint32_t ctx, uint64_t data_at,
			    uint32_t bytes)
{
	put_tmh(e->buf + at, IBV_TMH_RNDV, tag, ctx);
	put_rvh(e->buf + at, (uintptr_t)e->buf + data_at, e->mr->rkey, bytes);
	POST(e, .id = tag, .opcode = IBV_WR_SEND, .at = at, .len = BOTH_HEADS);
}

static void expect_fin(struct end *e, uint64_t id, uint64_t at, uint64_t tag, uint32_t ctx)
{
	struct ibv_wc wc = rc_expect(e->rcq, id, IBV_WC_SUCCESS);
	const struct ibv_tmh *tmh = (const struct ibv_tmh *)(e->buf + at);
	CHECK_EQ(wc.opcode, IBV_WC_RECV);
	CHECK_EQ(wc.byte_len, HEAD);
	CHECK_EQ(tmh->opcode, IBV_TMH_FIN);
	CHECK_EQ(be64toh(tmh->tag), tag);
	CHECK_EQ(ntohl(tmh->app_ctx), ctx);
}

/* ---- eager messages ---- */

static void tags__eager_goes_where_its_tag_says(struct end *e)
{
	static const uint32_t sizes[] = { 0, 1, 47, 48, 49, 1007, 1008, 1009, 5000, 70000 };
	enum { N = sizeof(sizes) / sizeof(*sizes), ROOM = 80000 };
	struct params p = usual();
	start(e, &p);
	for (int i = 0; e->passive && i < N; i++)
		add_tag(e, i, 1000 + i, ALL, i * ROOM, ROOM);
	meet(e);
	for (int i = N - 1; i >= 0; i--) {
		if (!e->passive) {
			send_eager(e, i * ROOM, 1000 + i, 7 + i, sizes[i], e->seed + i);
			continue;
		}
		rc_set(e->buf + i * ROOM + sizes[i], 64, 0xee);
		meet(e);
		struct done d = expect(i, IBV_WC_TM_RECV, IBV_WC_SUCCESS, MATCHED);
		CHECK_EQ(d.tag, 1000 + i);
		CHECK_EQ(d.ctx, 7 + i);
		CHECK_EQ(d.bytes, sizes[i]);
		CHECK_EQ(d.qpn, e->qp->qp_num);
		CHECK_EQ(d.src_qp, e->peer.qpn);
		VERIFY(e->buf + i * ROOM, sizes[i], e->seed + i);
		VERIFY_BYTE(e->buf + i * ROOM + sizes[i], 64, 0xee);
	}
	for (int i = 0; !e->passive && i < N; i++)
		meet(e);
	finish(e);
}

/* The oldest that fits, by mask; then the next. */
static void tags__match_in_order(struct end *e)
{
	static const uint64_t want[] = { 1, 0, 2, 3 };
	struct params p = usual();
	start(e, &p);
	if (e->passive) {
		add_tag(e, 0, 0x20, 0xf0, 0, SLOT);
		add_tag(e, 1, 0x0003, 0xffff, SLOT, SLOT);
		add_tag(e, 2, 0, 0, 2 * SLOT, SLOT);
		add_tag(e, 3, 0x20, 0xf0, 3 * SLOT, SLOT);
	}
	meet(e);
	if (!e->passive) {
		send_eager(e, 0, 0xab0003, 0, 10, 1);
		send_eager(e, 0, 0x0721, 0, 10, 2);
		send_eager(e, 0, 0x0100, 0, 10, 3);
		send_eager(e, 0, 0x0721, 0, 10, 4);
	} else {
		for (int i = 0; i < 4; i++) {
			expect(want[i], IBV_WC_TM_RECV, IBV_WC_SUCCESS, MATCHED);
			VERIFY(e->buf + want[i] * SLOT, 10, i + 1);
		}
	}
	finish(e);
}

static void tags__immediate_data_come_along(struct end *e)
{
	struct params p = usual();
	start(e, &p);
	if (e->passive) {
		add_tag(e, 1, 5, ALL, 0, SLOT);
		rc_recv(e, 2, 2 * SLOT, SLOT);
		rc_recv(e, 3, 2 * SLOT, SLOT);
		meet(e);
		CHECK_EQ(expect(1, IBV_WC_TM_RECV, IBV_WC_SUCCESS, MATCHED | IBV_WC_WITH_IMM).imm, 0x1234);
		CHECK_EQ(expect(2, IBV_WC_TM_RECV, IBV_WC_SUCCESS, IBV_WC_WITH_IMM).imm, 0x5678);
		struct done d = expect(3, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SUCCESS, IBV_WC_WITH_IMM);
		CHECK_EQ(d.imm, 0x9abc);
		CHECK_EQ(d.bytes, HEAD);
	} else {
		put_tmh(e->buf, IBV_TMH_EAGER, 5, 0);
		meet(e);
		POST(e, .opcode = IBV_WR_SEND_WITH_IMM, .len = HEAD, .imm = 0x1234);
		POST(e, .opcode = IBV_WR_SEND_WITH_IMM, .len = HEAD, .imm = 0x5678, .flags = IBV_SEND_INLINE);
		POST(e, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .len = HEAD, .imm = 0x9abc,
		     .remote_at = 4 * SLOT);
		for (int i = 0; i < 3; i++)
			rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	}
	finish(e);
}

static void tags__message_longer_than_the_buffer(struct end *e)
{
	struct params p = usual();
	start(e, &p);
	if (e->passive) {
		add_tag(e, 1, 5, ALL, 0, 3000);
		add_tag(e, 2, 5, ALL, SLOT, 3000);
		meet(e);
		expect(1, IBV_WC_TM_RECV, IBV_WC_SUCCESS, MATCHED);
		expect(2, IBV_WC_TM_RECV, IBV_WC_LOC_LEN_ERR, 0);
		rc_expect_event(e, IBV_EVENT_QP_LAST_WQE_REACHED);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
		add_tag(e, 3, 5, ALL, 0, 3000); /* the list goes on for others */
	} else {
		meet(e);
		send_eager(e, 0, 5, 0, 3000, 1); /* header and all is longer, but that does not count */
		put_tmh(e->buf, IBV_TMH_EAGER, 5, 0);
		POST(e, .id = 2, .opcode = IBV_WR_SEND, .len = HEAD + 3001);
		rc_expect(e->scq, 2, IBV_WC_REM_INV_REQ_ERR);
	}
	finish(e);
}

static void tags__buffer_without_rights(struct end *e)
{
	struct params p = usual();
	start(e, &p);
	if (e->passive) {
		struct ibv_sge sge = sge_of(e, 0, SLOT);
		sge.lkey ^= 1;
		struct ibv_ops_wr wr = add_of(&sge, 1, 5, ALL);
		CHECK_EQ(post_op(e, &wr), 0);
		expect(1, IBV_WC_TM_ADD, IBV_WC_SUCCESS, 0);
		meet(e);
		expect(1, IBV_WC_TM_RECV, IBV_WC_LOC_PROT_ERR, 0);
	} else {
		put_tmh(e->buf, IBV_TMH_EAGER, 5, 0);
		meet(e);
		POST(e, .id = 2, .opcode = IBV_WR_SEND, .len = HEAD + 10);
		rc_expect(e->scq, 2, IBV_WC_REM_OP_ERR);
	}
	finish(e);
}

/* The buffer of a tag is unmapped: the message fails, whether it is in the request or is read. */
static void tags__buffer_taken_away(struct end *e)
{
	struct params p = usual();
	rc_needs_holes();
	for (int is_read = 0; is_read < 2; is_read++)
		for (uint32_t n = 10; n <= SLOT; n += SLOT - 10) {
			start(e, &p);
			if (e->passive) {
				void *memory = rc_map(SLOT);
				struct ibv_mr *mr =
					ibv_reg_mr(e->pd, memory, SLOT, IBV_ACCESS_LOCAL_WRITE);
				CHECK(mr);
				struct ibv_sge sge = { (uintptr_t)memory, SLOT, mr->lkey };
				struct ibv_ops_wr wr = add_of(&sge, 1, 5, ALL);
				CHECK_EQ(post_op(e, &wr), 0);
				expect(1, IBV_WC_TM_ADD, IBV_WC_SUCCESS, 0);
				rc_take_away(memory, SLOT);
				meet(e);
				if (is_read)
					expect(1, IBV_WC_TM_RECV, IBV_WC_SUCCESS, IBV_WC_TM_MATCH);
				expect(1, IBV_WC_TM_RECV, IBV_WC_LOC_PROT_ERR, 0);
				CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
				CHECK_EQ(ibv_dereg_mr(mr), 0);
				munmap(memory, SLOT);
			} else if (is_read) {
				meet(e);
				put_tmh(e->buf, IBV_TMH_RNDV, 5, 0);
				put_rvh(e->buf, (uintptr_t)e->buf + SLOT, e->mr->rkey, n);
				POST(e, .id = 2, .opcode = IBV_WR_SEND, .len = BOTH_HEADS);
				rc_wait(e->scq); /* with success, unless the connection has ended before */
			} else {
				meet(e);
				put_tmh(e->buf, IBV_TMH_EAGER, 5, 0);
				POST(e, .id = 2, .opcode = IBV_WR_SEND, .len = HEAD + n);
				rc_expect(e->scq, 2, IBV_WC_REM_OP_ERR);
			}
			finish(e);
			rc_start_watchdog();
		}
}

/* ---- what no tag takes ---- */

static void tags__unmatched_goes_to_a_receive(struct end *e)
{
	struct params p = usual();
	start(e, &p);
	if (e->passive) {
		add_tag(e, 1, 5, ALL, 0, SLOT);
		rc_recv(e, 10, SLOT, SLOT);
		meet(e);
		struct done d = expect(10, IBV_WC_TM_RECV, IBV_WC_SUCCESS, 0);
		const struct ibv_tmh *tmh = (const struct ibv_tmh *)(e->buf + SLOT);
		CHECK_EQ(d.bytes, HEAD + 2000);
		CHECK_EQ(d.tag, 0);
		CHECK_EQ(be64toh(tmh->tag), 6);
		CHECK_EQ(ntohl(tmh->app_ctx), 77);
		VERIFY(e->buf + SLOT + HEAD, 2000, 3);
		expect_nothing();
	} else {
		meet(e);
		send_eager(e, 0, 6, 77, 2000, 3);
	}
	finish(e);
}

static void tags__other_messages_have_no_tag(struct end *e)
{
	static const uint8_t kinds[] = { IBV_TMH_NO_TAG, IBV_TMH_FIN, 4, 255 };
	static const uint32_t sizes[] = { 0, 1, HEAD - 1 };
	struct params p = usual();
	start(e, &p);
	if (e->passive) {
		add_tag(e, 1, 0, 0, 0, SLOT);
		for (int i = 0; i < 7; i++)
			rc_recv(e, i, SLOT, SLOT);
	}
	meet(e);
	for (int i = 0; i < 7; i++) {
		uint32_t bytes = i < 4 ? HEAD + 8 : sizes[i - 4];
		if (e->passive) {
			CHECK_EQ(expect(i, IBV_WC_TM_NO_TAG, IBV_WC_SUCCESS, 0).bytes, bytes);
			continue;
		}
		put_tmh(e->buf, i < 4 ? kinds[i] : IBV_TMH_EAGER, 0, 0);
		POST(e, .id = i, .opcode = IBV_WR_SEND, .len = bytes);
		rc_expect(e->scq, i, IBV_WC_SUCCESS);
	}
	if (e->passive)
		add_tag(e, 2, 0, 0, 0, SLOT); /* none of them was unexpected: in phase */
	finish(e);
}

/* Tags that were added before the program had seen an unexpected message match nothing until it has. */
static void tags__wait_until_the_program_has_caught_up(struct end *e)
{
	struct params p = usual();
	start(e, &p);
	if (e->passive) {
		struct ibv_sge sge = sge_of(e, 0, SLOT);
		struct ibv_ops_wr wr = add_of(&sge, 1, 5, ALL);
		for (int i = 10; i < 13; i++)
			rc_recv(e, i, SLOT, SLOT);
		meet(e);
		expect(10, IBV_WC_TM_RECV, IBV_WC_SUCCESS, 0);
		CHECK_EQ(post_op(e, &wr), 0);
		expect(1, IBV_WC_TM_ADD, IBV_WC_SUCCESS, IBV_WC_TM_SYNC_REQ);
		meet(e);
		expect(11, IBV_WC_TM_RECV, IBV_WC_SUCCESS, 0);
		sync_to(e, 2);
		meet(e);
		expect(1, IBV_WC_TM_RECV, IBV_WC_SUCCESS, MATCHED);
		wr.flags |= IBV_OPS_TM_SYNC; /* any operation may say it; here it claims too many */
		wr.tm.unexpected_cnt = 3;
		CHECK_EQ(post_op(e, &wr), 0);
		expect(1, IBV_WC_TM_ADD, IBV_WC_SUCCESS, IBV_WC_TM_SYNC_REQ);
		meet(e);
		expect(12, IBV_WC_TM_RECV, IBV_WC_SUCCESS, 0);
	} else {
		for (int i = 0; i < 4; i++) {
			meet(e);
			send_eager(e, 0, 5, 0, 8, 1);
		}
	}
	finish(e);
}

/* An unmatched message waits for a receive, or for its tag. */
static void tags__receiver_not_ready(struct end *e)
{
	struct params p = usual();
	start(e, &p);
	if (e->passive) {
		meet(e);
		expect_nothing();
		add_tag(e, 1, 5, ALL, 0, SLOT);
		expect(1, IBV_WC_TM_RECV, IBV_WC_SUCCESS, MATCHED);
		VERIFY(e->buf, 3000, 1);
		expect_nothing();
		rc_recv(e, 2, SLOT, SLOT);
		expect(2, IBV_WC_TM_RECV, IBV_WC_SUCCESS, 0);
	} else {
		put_tmh(e->buf, IBV_TMH_EAGER, 5, 0);
		rc_fill(e->buf + HEAD, 3000, 1);
		meet(e);
		for (int i = 0; i < 2; i++)
			POST(e, .id = i, .opcode = IBV_WR_SEND, .len = HEAD + 3000);
		for (int i = 0; i < 2; i++)
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
	}
	finish(e);
}

static void tags__receiver_never_ready(struct end *e)
{
	struct params p = usual();
	p.rnr_retry = 1;
	p.min_rnr_timer = 1;
	start(e, &p);
	if (!e->passive) {
		put_tmh(e->buf, IBV_TMH_EAGER, 5, 0);
		POST(e, .id = 1, .opcode = IBV_WR_SEND, .len = HEAD);
		rc_expect(e->scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	}
	finish(e);
}

/* ---- rendezvous ---- */

static void tags__rendezvous(struct end *e)
{
	static const uint32_t sizes[] = { 0, 1, 1023, 1024, 1025, 4096, 200000 };
	enum { N = sizeof(sizes) / sizeof(*sizes), DATA = 1 << 18 };
	struct params p = usual();
	p.cap.max_send_wr = 2;
	start(e, &p);
	for (int i = 0; i < N; i++) {
		if (e->passive) {
			rc_set(e->buf + sizes[i], 64, 0xee);
			add_tag(e, i, 50 + i, ALL, 0, DATA);
			meet(e);
			struct done d = expect(i, IBV_WC_TM_RECV, IBV_WC_SUCCESS, IBV_WC_TM_MATCH);
			CHECK_EQ(d.tag, 50 + i);
			CHECK_EQ(d.ctx, 900 + i);
			CHECK_EQ(d.bytes, sizes[i]);
			d = expect(i, IBV_WC_TM_RECV, IBV_WC_SUCCESS, IBV_WC_TM_DATA_VALID);
			CHECK_EQ(d.tag, 0);
			CHECK_EQ(d.bytes, sizes[i]);
			CHECK_EQ(d.qpn, e->qp->qp_num);
			VERIFY(e->buf, sizes[i], i + 1);
			VERIFY_BYTE(e->buf + sizes[i], 64, 0xee);
		} else {
			rc_fill(e->buf + SLOT, sizes[i], i + 1);
			rc_recv(e, 7, DATA + SLOT, SLOT);
			meet(e);
			post_rendezvous(e, 0, 50 + i, 900 + i, SLOT, sizes[i]);
			rc_expect(e->scq, 50 + i, IBV_WC_SUCCESS);
			expect_fin(e, 7, DATA + SLOT, 50 + i, 900 + i);
		}
	}
	finish(e);
}

/* Into several pieces, with more behind the headers of the request. */
static void tags__rendezvous_into_a_list(struct end *e)
{
	enum { BYTES = 3000 };
	struct params p = usual();
	start(e, &p);
	if (e->passive) {
		struct ibv_sge sge[3] = { sge_of(e, 0, 1000), sge_of(e, 2000, 1500), sge_of(e, 5000, 1000) };
		struct ibv_ops_wr wr = add_of(sge, 1, 5, ALL);
		wr.tm.add.num_sge = 3;
		CHECK_EQ(post_op(e, &wr), 0);
		expect(1, IBV_WC_TM_ADD, IBV_WC_SUCCESS, 0);
		rc_set(e->buf, SLOT * 2, 0xee);
		meet(e);
		expect(1, IBV_WC_TM_RECV, IBV_WC_SUCCESS, IBV_WC_TM_MATCH);
		expect(1, IBV_WC_TM_RECV, IBV_WC_SUCCESS, IBV_WC_TM_DATA_VALID);
		memmove(e->buf + 1000, e->buf + 2000, 1500);
		memmove(e->buf + 2500, e->buf + 5000, 500);
		VERIFY(e->buf, BYTES, 1);
		VERIFY_BYTE(e->buf + 5500, 1000, 0xee);
	} else {
		rc_fill(e->buf + SLOT, BYTES, 1);
		rc_recv(e, 7, 3 * SLOT, SLOT);
		put_tmh(e->buf, IBV_TMH_RNDV, 5, 1);
		put_rvh(e->buf, (uintptr_t)e->buf + SLOT, e->mr->rkey, BYTES);
		meet(e);
		POST(e, .id = 1, .opcode = IBV_WR_SEND, .len = 64);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
		expect_fin(e, 7, 3 * SLOT, 5, 1);
	}
	finish(e);
}

/*
 * More of them than go at once, while the receiver's program uses all of its own send queue: neither is in
 * the other's way. The answers to what it sends are writes, so that they need no receives.
 */
static void tags__many_rendezvous_beside_sends(struct end *e)
{
	enum { N = 400, DEPTH = 24, BYTES = 3000, OWN = 3 };
	struct params p = usual();
	p.cap.max_send_wr = e->passive ? OWN : 64;
	start(e, &p);
	if (e->passive) {
		unsigned added = 0, half[DEPTH] = { 0 }, writes = 0, out = 0;
		for (; added < DEPTH; added++)
			add_tag(e, added, added, ALL, added * SLOT, SLOT);
		meet(e);
		for (unsigned whole = 0; whole < N;) {
			struct ibv_wc wc;
			struct done d;
			for (; out < OWN; out++, writes++)
				POST(e, .id = writes, .opcode = IBV_WR_RDMA_WRITE, .at = 200 * SLOT, .len = 8,
				     .remote_at = 200 * SLOT);
			while (ibv_poll_cq(e->scq, 1, &wc) == 1) {
				CHECK_EQ(wc.status, IBV_WC_SUCCESS);
				CHECK_EQ(wc.wr_id, writes - out);
				out--;
			}
			if (!take(&d))
				continue;
			CHECK_EQ(d.opcode, IBV_WC_TM_RECV);
			CHECK_EQ(d.status, IBV_WC_SUCCESS);
			if (d.flags == IBV_WC_TM_MATCH) {
				CHECK_EQ(half[d.id]++, 0);
				continue;
			}
			CHECK_EQ(d.flags, IBV_WC_TM_DATA_VALID);
			CHECK_EQ(half[d.id]--, 1);
			VERIFY(e->buf + d.id * SLOT, BYTES, whole);
			whole++;
			struct ibv_sge sge = sge_of(e, d.id * SLOT, SLOT);
			struct ibv_ops_wr wr = add_of(&sge, d.id, added++, ALL);
			wr.flags = 0;
			CHECK_EQ(post_op(e, &wr), 0);
		}
		for (; out; out--)
			CHECK_EQ(rc_wait(e->scq).status, IBV_WC_SUCCESS);
	} else {
		meet(e);
		for (unsigned i = 0; i < N; i++) {
			unsigned at = i % 8; /* so many are on the way */
			if (i >= 8) {
				rc_expect(e->scq, i - 8, IBV_WC_SUCCESS);
				expect_fin(e, i - 8, (100 + at) * SLOT, i - 8, i - 8);
			}
			rc_fill(e->buf + (20 + at) * SLOT, BYTES, i);
			rc_recv(e, i, (100 + at) * SLOT, SLOT);
			post_rendezvous(e, at * SLOT, i, i, (20 + at) * SLOT, BYTES);
		}
		for (unsigned i = N - 8; i < N; i++) {
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
			expect_fin(e, i, (100 + i % 8) * SLOT, i, i);
		}
	}
	finish(e);
}

/* Requests that arrive before the receiver may send are read for when it may. */
static void tags__rendezvous_before_ready_to_send(struct end *e)
{
	struct params p = usual();
	open_end(e, &p);
	struct card peer = rc_swap_cards(e, e->qp);
	CHECK_EQ(rc_to_init(e, e->qp), 0);
	CHECK_EQ(rc_to_rtr(e, e->qp, &peer), 0);
	meet(e);
	if (e->passive) {
		add_tag(e, 1, 5, ALL, 0, SLOT);
		meet(e);
		expect(1, IBV_WC_TM_RECV, IBV_WC_SUCCESS, IBV_WC_TM_MATCH);
		expect_nothing();
		CHECK_EQ(rc_to_rts(e, e->qp), 0);
		expect(1, IBV_WC_TM_RECV, IBV_WC_SUCCESS, IBV_WC_TM_DATA_VALID);
		VERIFY(e->buf, 2000, 4);
	} else {
		CHECK_EQ(rc_to_rts(e, e->qp), 0);
		rc_fill(e->buf + SLOT, 2000, 4);
		rc_recv(e, 7, 3 * SLOT, SLOT);
		meet(e);
		post_rendezvous(e, 0, 5, 6, SLOT, 2000);
		rc_expect(e->scq, 5, IBV_WC_SUCCESS);
		expect_fin(e, 7, 3 * SLOT, 5, 6);
	}
	finish(e);
}

static void tags__unmatched_rendezvous_is_the_programs(struct end *e)
{
	struct params p = usual();
	start(e, &p);
	if (e->passive) {
		rc_recv(e, 1, 0, SLOT);
		meet(e);
		CHECK_EQ(expect(1, IBV_WC_TM_RECV, IBV_WC_SUCCESS, 0).bytes, BOTH_HEADS);
		const struct ibv_rvh *rvh = (const struct ibv_rvh *)(e->buf + HEAD);
		CHECK_EQ(ntohl(rvh->len), 100);
		CHECK_EQ(be64toh(rvh->va), e->peer.addr + SLOT);
		sync_to(e, 1);
	} else {
		meet(e);
		post_rendezvous(e, 0, 5, 6, SLOT, 100);
		rc_expect(e->scq, 5, IBV_WC_SUCCESS);
	}
	finish(e);
}

/*
 * Headers that are cut, followed by too much, or that speak of more than a message can have: the program is
 * to see them.
 */
static void tags__senseless_rendezvous(struct end *e)
{
	static const uint32_t sizes[] = { HEAD, BOTH_HEADS - 1, 65, 3000, BOTH_HEADS };
	struct params p = usual();
	start(e, &p);
	if (e->passive) {
		add_tag(e, 1, 5, ALL, SLOT, SLOT);
		for (int i = 0; i < 5; i++)
			rc_recv(e, 10 + i, 0, SLOT);
		meet(e);
		for (int i = 0; i < 5; i++)
			CHECK_EQ(expect(10 + i, IBV_WC_TM_RECV, IBV_WC_SUCCESS, 0).bytes, sizes[i]);
		expect_nothing();
	} else {
		put_tmh(e->buf, IBV_TMH_RNDV, 5, 0);
		meet(e);
		for (int i = 0; i < 5; i++) {
			put_rvh(e->buf, 0, 0, i == 4 ? 0x80000000 : 10);
			POST(e, .id = i, .opcode = IBV_WR_SEND, .len = sizes[i]);
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		}
	}
	finish(e);
}

static void tags__rendezvous_longer_than_the_buffer(struct end *e)
{
	struct params p = usual();
	start(e, &p);
	if (e->passive) {
		add_tag(e, 1, 5, ALL, 0, 1000);
		meet(e);
		expect(1, IBV_WC_TM_RECV, IBV_WC_LOC_LEN_ERR, 0);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
		VERIFY_BYTE(e->buf, 1000, 0);
	} else {
		meet(e);
		post_rendezvous(e, 0, 5, 6, SLOT, 1001);
		rc_expect(e->scq, 5, IBV_WC_REM_INV_REQ_ERR);
	}
	finish(e);
}

/* What the sender says it has it may not have: its connection ends, and what waits behind is flushed. */
static void tags__rendezvous_with_a_false_key(struct end *e)
{
	enum { N = 12 };
	struct params p = usual();
	start(e, &p);
	if (e->passive) {
		unsigned matched = 0, failed = 0, flushed = 0, refused = 0;
		for (int i = 0; i < N; i++)
			add_tag(e, i, 5, ALL, SLOT * i, SLOT);
		meet(e);
		for (struct done d; !(matched && failed && failed + flushed == matched && refused);) {
			if (take(&d)) {
				CHECK_EQ(d.opcode, IBV_WC_TM_RECV);
				matched += d.status == IBV_WC_SUCCESS && d.flags == IBV_WC_TM_MATCH;
				failed += d.status == IBV_WC_REM_ACCESS_ERR;
				flushed += d.status == IBV_WC_WR_FLUSH_ERR;
				CHECK(d.status != IBV_WC_SUCCESS || d.flags == IBV_WC_TM_MATCH);
			}
			refused = rc_state(e->qp) == IBV_QPS_ERR;
		}
		CHECK_EQ(failed, 1);
		for (unsigned i = 0; i < matched; i++) /* all places are free again */
			add_tag(e, i, 5, ALL, 0, SLOT);
		CHECK(matched <= N);
		for (unsigned i = N; i < TAGS; i++)
			add_tag(e, i, 5, ALL, 0, SLOT);
		struct ibv_ops_wr wr = add_of(NULL, 0, 0, 0);
		CHECK_EQ(post_op(e, &wr), ENOMEM);
	} else {
		meet(e);
		put_tmh(e->buf, IBV_TMH_RNDV, 5, 0);
		put_rvh(e->buf, (uintptr_t)e->buf, e->mr->rkey ^ 0x100, 100);
		for (int i = 0; i < N; i++)
			POST(e, .id = i, .opcode = IBV_WR_SEND, .len = BOTH_HEADS);
	}
	finish(e);
}

/* A queue pair that may not read leaves it to the program, with the request in the tag's buffer. */
static void tags__rendezvous_where_reads_are_off(struct end *e)
{
	struct params p = usual();
	p.max_rd_atomic = 0;
	start(e, &p);
	if (e->passive) {
		add_tag(e, 1, 5, ALL, 0, SLOT);
		meet(e);
		struct done d = expect(1, IBV_WC_TM_RECV, IBV_WC_TM_RNDV_INCOMPLETE, MATCHED);
		CHECK_EQ(d.bytes, BOTH_HEADS);
		CHECK_EQ(d.tag, 5);
		CHECK_EQ(ntohl(((const struct ibv_rvh *)(e->buf + HEAD))->len), 100);
	} else {
		meet(e);
		post_rendezvous(e, 0, 5, 6, SLOT, 100);
		rc_expect(e->scq, 5, IBV_WC_SUCCESS);
	}
	finish(e);
}

/* FIN finds no receive: the data are valid, the connection ends. */
static void tags__rendezvous_whose_end_is_not_received(struct end *e)
{
	struct params p = usual();
	p.rnr_retry = 1;
	p.min_rnr_timer = 1;
	start(e, &p);
	if (e->passive) {
		add_tag(e, 1, 5, ALL, 0, SLOT);
		meet(e);
		expect(1, IBV_WC_TM_RECV, IBV_WC_SUCCESS, IBV_WC_TM_MATCH);
		expect(1, IBV_WC_TM_RECV, IBV_WC_SUCCESS, IBV_WC_TM_DATA_VALID);
		struct ibv_async_event event;
		bool fatal = false, last = false;
		while (!fatal || !last) {
			CHECK_EQ(ibv_get_async_event(e->ctx, &event), 0);
			fatal |= event.event_type == IBV_EVENT_QP_FATAL;
			last |= event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED;
			ibv_ack_async_event(&event);
		}
		CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
	} else {
		meet(e);
		post_rendezvous(e, 0, 5, 6, SLOT, 100);
		rc_expect(e->scq, 5, IBV_WC_SUCCESS);
	}
	finish(e);
}

/* A QP that is reset in the middle of it leaves nothing behind, neither in the list nor in its queue. */
static void tags__reset_during_rendezvous(struct end *e)
{
	enum { N = 12 };
	struct params p = usual();
	start(e, &p);
	for (int round = 0; round < 3; round++) {
		if (e->passive) {
			for (int i = 0; i < TAGS; i++)
				add_tag(e, i, 5, ALL, i * SLOT, SLOT);
			meet(e);
			expect(0, IBV_WC_TM_RECV, IBV_WC_SUCCESS, IBV_WC_TM_MATCH);
			tell(e, 1);
			CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
			expect_nothing();
			CHECK_EQ(ibv_destroy_qp(e->qp), 0);
			CHECK_EQ(ibv_destroy_srq(e->srq), 0);
			CHECK(e->srq = make_srq(e, TAGS, OPS));
			e->qp = rc_make_qp(e);
		} else {
			meet(e);
			for (int i = 0; i < N; i++)
				post_rendezvous(e, 0, 5, 6, SLOT, 4000);
			CHECK_EQ(hear(e), 1);
			CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
		}
		meet(e);
		e->peer = rc_connect(e, e->qp);
	}
	finish(e);
}

/* ---- the program's part in order ---- */

/*
 * Messages with few tags and postings of tags, both in a hurry: the n-th posting of a tag gets its n-th
 * message, though some were unexpected and the program matches those itself. That is what phases are for.
 */
static void tags__order_with_unexpected_messages(struct end *e)
{
	enum { N = 3000, KINDS = 3, AHEAD = 6, PLACES = 32 };
	struct params p = usual();
	start(e, &p);
	uint64_t random = e->seed;
	if (!e->passive) {
		unsigned sent[KINDS] = { 0 };
		meet(e);
		for (unsigned i = 0; i < N * KINDS; i++) {
			unsigned kind = rc_below(&random, KINDS);
			while (sent[kind] == N)
				kind = (kind + 1) % KINDS;
			uint64_t at = i % 32 * 64;
			put_tmh(e->buf + at, IBV_TMH_EAGER, kind, sent[kind]++);
			POST(e, .opcode = IBV_WR_SEND, .at = at, .len = HEAD + 8);
			if (i >= 31)
				rc_expect(e->scq, 0, IBV_WC_SUCCESS);
		}
		for (int i = 0; i < 31; i++)
			rc_expect(e->scq, 0, IBV_WC_SUCCESS);
		finish(e);
		return;
	}
	/* postings, and those served; the others are in the list */
	unsigned posted[KINDS] = { 0 }, got[KINDS] = { 0 }, total = 0;
	static __thread uint32_t handles[KINDS][N];
	static __thread unsigned early[KINDS]; /* unexpected messages that no posting has asked for yet */
	uint32_t unexpected = 0;
	memset(early, 0, sizeof(early));
	for (int i = 0; i < PLACES; i++)
		rc_recv(e, i, i * 64, 64);
	meet(e);
	while (total < N * KINDS) {
		struct done d;
		unsigned kind = rc_below(&random, KINDS);
		if (posted[kind] < N && posted[kind] - got[kind] < AHEAD && rc_below(&random, 3)) {
			if (early[kind]) {
				early[kind]--;
				posted[kind]++;
				got[kind]++;
				total++;
			} else {
				struct ibv_sge sge = sge_of(e, SLOT, SLOT);
				struct ibv_ops_wr wr = add_of(&sge, posted[kind], kind, ALL);
				wr.flags = IBV_OPS_TM_SYNC;
				wr.tm.unexpected_cnt = unexpected;
				CHECK_EQ(post_op(e, &wr), 0);
				handles[kind][posted[kind]++] = wr.tm.handle;
			}
		}
		if (!take(&d))
			continue;
		CHECK_EQ(d.status, IBV_WC_SUCCESS);
		CHECK_EQ(d.opcode, IBV_WC_TM_RECV);
		if (d.flags & IBV_WC_TM_MATCH) {
			CHECK_EQ(d.id, got[d.tag]);
			CHECK_EQ(d.ctx, got[d.tag]);
			got[d.tag]++;
			total++;
			continue;
		}
		const struct ibv_tmh *tmh = (const struct ibv_tmh *)(e->buf + d.id * 64);
		unsigned k = be64toh(tmh->tag);
		CHECK_EQ(ntohl(tmh->app_ctx), got[k] + early[k]);
		rc_recv(e, d.id, d.id * 64, 64);
		struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_SYNC,
					 .flags = IBV_OPS_TM_SYNC,
					 .tm.unexpected_cnt = ++unexpected };
		if (posted[k] > got[k]) { /* its posting waits in the list, and has to leave it */
			wr.opcode = IBV_WR_TAG_DEL;
			wr.tm.handle = handles[k][got[k]++];
			total++;
		} else {
			early[k]++;
		}
		CHECK_EQ(post_op(e, &wr), 0);
	}
	finish(e);
}

/* ---- refusals ---- */

static void tags__refuses_queues(struct end *e)
{
	struct params p = usual();
	struct ibv_cq_init_attr_ex cq = { .cqe = 16,
					  .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO };
	struct ibv_device_attr_ex dev;
	rc_open(e, &p);
	CHECK_EQ(ibv_query_device_ex(e->ctx, NULL, &dev), 0);
	CHECK_EQ(dev.tm_caps.flags, IBV_TM_CAP_RC);
	CHECK(dev.tm_caps.max_rndv_hdr_size >= BOTH_HEADS && dev.tm_caps.max_sge &&
	      dev.tm_caps.max_num_tags && dev.tm_caps.max_ops);
	CHECK(tcq = ibv_create_cq_ex(e->ctx, &cq));
	struct ibv_srq_init_attr_ex good = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
		IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM, .pd = e->pd, .cq = ibv_cq_ex_to_cq(tcq),
		.tm_cap = { dev.tm_caps.max_num_tags, dev.tm_caps.max_ops },
	}, bad = good;
#define REFUSED(change, error)                                   \
	bad = good;                                              \
	change;                                                  \
	errno = 0;                                               \
	CHECK(!ibv_create_srq_ex(e->ctx, &bad));                 \
	CHECK_EQ(errno, error);
	REFUSED(bad.comp_mask &= ~IBV_SRQ_INIT_ATTR_CQ, EINVAL)
	REFUSED(bad.cq = NULL, EINVAL)
	REFUSED(bad.comp_mask &= ~IBV_SRQ_INIT_ATTR_TM, EINVAL)
	REFUSED(bad.comp_mask &= ~IBV_SRQ_INIT_ATTR_PD, EINVAL)
	REFUSED(bad.tm_cap.max_num_tags = 0, EINVAL)
	REFUSED(bad.tm_cap.max_num_tags++, EINVAL)
	REFUSED(bad.tm_cap.max_ops = 0, EINVAL)
	REFUSED(bad.tm_cap.max_ops++, EINVAL)
	REFUSED(bad.srq_type = 17, EINVAL)
	REFUSED(bad.comp_mask |= IBV_SRQ_INIT_ATTR_RESERVED, EOPNOTSUPP)
#undef REFUSED
	struct ibv_srq *srq = ibv_create_srq_ex(e->ctx, &good);
	CHECK(srq);
	CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(tcq)), EBUSY);

	struct ibv_pd *other = ibv_alloc_pd(e->ctx);
	struct ibv_qp_init_attr init = { .send_cq = e->scq,
					 .recv_cq = e->rcq,
					 .srq = srq,
					 .cap = { .max_send_wr = 1 },
					 .qp_type = IBV_QPT_UD };
	CHECK(!ibv_create_qp(e->pd, &init));
	CHECK_EQ(errno, EINVAL);
	init.qp_type = IBV_QPT_RC;
	CHECK(!ibv_create_qp(other, &init));
	CHECK_EQ(errno, EINVAL);
	CHECK_EQ(ibv_dealloc_pd(other), 0);
	struct ibv_qp *qp = ibv_create_qp(e->pd, &init);
	CHECK(qp);
	CHECK_EQ(ibv_destroy_srq(srq), EBUSY);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_destroy_srq(srq), 0);
	CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(tcq)), 0);

	struct ibv_srq_init_attr plain = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_SYNC }, *first_bad = NULL;
	CHECK(srq = ibv_create_srq(e->pd, &plain));
	CHECK_EQ(ibv_post_srq_ops(srq, &wr, &first_bad), EINVAL);
	CHECK(first_bad == &wr);
	CHECK_EQ(ibv_destroy_srq(srq), 0);
	rc_close(e);
}

static void tags__refuses_operations(struct end *e)
{
	struct params p = usual();
	e->passive = true;
	open_end(e, &p);
	struct ibv_sge sges[5] = { sge_of(e, 0, 8) };
	struct ibv_ops_wr wr = add_of(sges, 1, 5, ALL), wrong;
#define REFUSED(change, error)              \
	wrong = wr;                         \
	change;                             \
	CHECK_EQ(post_op(e, &wrong), error);
	REFUSED(wrong.opcode = 3, EINVAL)
	REFUSED(wrong.flags = 4, EINVAL)
	REFUSED(wrong.tm.add.num_sge = 5, EINVAL)
	REFUSED(wrong.tm.add.num_sge = -1, EINVAL)
#undef REFUSED
	/* What precedes a wrong one in a chain is done. */
	struct ibv_ops_wr chain[2] = { wr, wr }, *bad = NULL;
	chain[0].next = &chain[1];
	chain[1].opcode = 3;
	CHECK_EQ(ibv_post_srq_ops(e->srq, chain, &bad), EINVAL);
	CHECK(bad == &chain[1]);
	expect(1, IBV_WC_TM_ADD, IBV_WC_SUCCESS, 0);

	struct ibv_ops_wr del = { .wr_id = 2,
				  .opcode = IBV_WR_TAG_DEL,
				  .flags = IBV_OPS_SIGNALED,
				  .tm.handle = chain[0].tm.handle };
	CHECK_EQ(post_op(e, &del), 0);
	expect(2, IBV_WC_TM_DEL, IBV_WC_SUCCESS, 0);
	CHECK_EQ(post_op(e, &del), 0);
	expect(2, IBV_WC_TM_DEL, IBV_WC_TM_ERR, 0);
	del.flags = 0;
	CHECK_EQ(post_op(e, &del), 0); /* an error is told in any case */
	expect(2, IBV_WC_TM_DEL, IBV_WC_TM_ERR, 0);
	del.tm.handle = UINT32_MAX;
	CHECK_EQ(post_op(e, &del), 0);
	expect(2, IBV_WC_TM_DEL, IBV_WC_TM_ERR, 0);

	/* As many operations as completions may wait; quiet ones do not count. */
	for (int i = 0; i < OPS; i++)
		CHECK_EQ(post_op(e, &wr), 0);
	CHECK_EQ(post_op(e, &wr), ENOMEM);
	expect(1, IBV_WC_TM_ADD, IBV_WC_SUCCESS, 0);
	wr.flags = 0;
	for (int i = OPS; i < TAGS; i++)
		CHECK_EQ(post_op(e, &wr), 0);
	CHECK_EQ(post_op(e, &wr), ENOMEM); /* the list is full */
	for (int i = 1; i < OPS; i++)
		expect(1, IBV_WC_TM_ADD, IBV_WC_SUCCESS, 0);
	expect_nothing();

	/* Completions that wait go with the queue. */
	struct ibv_ops_wr sync = { .wr_id = 3, .opcode = IBV_WR_TAG_SYNC, .flags = IBV_OPS_SIGNALED };
	CHECK_EQ(post_op(e, &sync), 0);
	CHECK_EQ(ibv_destroy_qp(e->qp), 0);
	CHECK_EQ(ibv_destroy_srq(e->srq), 0);
	expect_nothing();
	CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(tcq)), 0);
	e->qp = NULL;
	e->srq = NULL;
	rc_close(e);
}

/* A queue pair that fails leaves tags and receives to the others on the queue. */
static void tags__of_a_failing_qp(struct end *e)
{
	struct params p = usual();
	start(e, &p);
	struct ibv_qp *second = rc_make_qp(e);
	rc_connect(e, second);
	if (e->passive) {
		add_tag(e, 1, 5, ALL, 0, SLOT);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_ERR), 0);
		rc_expect_event(e, IBV_EVENT_QP_LAST_WQE_REACHED);
		meet(e);
		struct done d = expect(1, IBV_WC_TM_RECV, IBV_WC_SUCCESS, MATCHED);
		CHECK_EQ(d.qpn, second->qp_num);
	} else {
		meet(e);
		put_tmh(e->buf, IBV_TMH_EAGER, 5, 0);
		POST(e, .qp = second, .id = 1, .opcode = IBV_WR_SEND, .len = HEAD + 5);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
	}
	meet(e);
	CHECK_EQ(ibv_destroy_qp(second), 0);
	finish(e);
}

static const struct body bodies[] = {
	BODY(tags__eager_goes_where_its_tag_says),
	BODY(tags__match_in_order),
	BODY(tags__immediate_data_come_along),
	BODY(tags__message_longer_than_the_buffer),
	BODY(tags__buffer_without_rights),
	BODY(tags__buffer_taken_away),
	BODY(tags__unmatched_goes_to_a_receive),
	BODY(tags__other_messages_have_no_tag),
	BODY(tags__wait_until_the_program_has_caught_up),
	BODY(tags__receiver_not_ready),
	BODY(tags__receiver_never_ready),
	BODY(tags__rendezvous),
	BODY(tags__rendezvous_into_a_list),
	BODY(tags__many_rendezvous_beside_sends),
	BODY(tags__rendezvous_before_ready_to_send),
	BODY(tags__unmatched_rendezvous_is_the_programs),
	BODY(tags__senseless_rendezvous),
	BODY(tags__rendezvous_longer_than_the_buffer),
	BODY(tags__rendezvous_with_a_false_key),
	BODY(tags__rendezvous_where_reads_are_off),
	BODY(tags__rendezvous_whose_end_is_not_received),
	BODY(tags__reset_during_rendezvous),
	BODY(tags__order_with_unexpected_messages),
	BODY(tags__of_a_failing_qp),
	BODY_IN(tags__refuses_queues, ALONE),
	BODY_IN(tags__refuses_operations, ALONE),
};
RC_MAIN(bodies)
