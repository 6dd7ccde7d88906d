/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A queue pair that drains, and attributes that change while it is connected: what is under way, what waits,
 * what is told.
 */
#include "rc.h"

enum { SENT = 4, HELD = 2, BYTES = 100, READ_BYTES = 8192 };

static struct ibv_qp_attr query(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK_EQ(ibv_query_qp(qp, &attr, -1, &init), 0);
	return attr;
}

static int drain(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);
}

static void post_some(struct end *e, int from, int count)
{
	for (int i = from; i < from + count; i++)
		POST(e, .id = i, .opcode = IBV_WR_SEND, .at = i * BYTES, .len = BYTES);
}

/* One message. */
static void exchange(struct end *e)
{
	if (e->passive) {
		rc_recv(e, 1, 0, BYTES);
		meet(e);
		rc_expect(e->rcq, 1, IBV_WC_SUCCESS);
	} else {
		meet(e);
		post_some(e, 0, 1);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	}
}

/* Nobody has posted receives, so what was sent is under way for as long as the test wants. */
static void drain_slowly(struct end *e)
{
	post_some(e, 0, SENT);
	CHECK_EQ(drain(e->qp), 0);
	post_some(e, SENT, HELD);
	CHECK_EQ(query(e->qp).qp_state, IBV_QPS_SQD);
	CHECK_EQ(query(e->qp).sq_draining, 1);
	CHECK_EQ(query(e->qp).en_sqd_async_notify, 1);
	rc_expect_none(e->scq);
	rc_expect_no_event(e);
	meet(e);
	for (int i = 0; i < SENT; i++)
		rc_expect(e->scq, i, IBV_WC_SUCCESS);
	CHECK(rc_expect_event(e, IBV_EVENT_SQ_DRAINED).element.qp == e->qp);
	CHECK_EQ(query(e->qp).sq_draining, 0);
	rc_expect_none(e->scq);
	meet(e);
	CHECK_EQ(rc_to(e->qp, IBV_QPS_RTS), 0);
	for (int i = 0; i < HELD; i++)
		rc_expect(e->scq, SENT + i, IBV_WC_SUCCESS);
}

static void receive_slowly(struct end *e)
{
	meet(e);
	for (int i = 0; i < SENT + HELD; i++)
		rc_recv(e, i, i * BYTES, BYTES);
	for (int i = 0; i < SENT; i++)
		rc_expect(e->rcq, i, IBV_WC_SUCCESS);
	meet(e);
	for (int i = 0; i < HELD; i++)
		rc_expect(e->rcq, SENT + i, IBV_WC_SUCCESS);
	VERIFY(e->buf, (SENT + HELD) * BYTES, 7);
}

static void sqd__what_is_under_way_ends_and_the_rest_waits(struct end *e)
{
	struct params p = params();
	rc_start(e, &p);
	exchange(e); /* what is sent before the two ends have found each other is not under way */
	if (e->passive) {
		receive_slowly(e);
	} else {
		rc_fill(e->buf, (SENT + HELD) * BYTES, 7);
		drain_slowly(e);
	}
	rc_finish(e);
}

enum { HOT = 500, PAUSE_MS = 20 };

static void pause_busily(void)
{
	for (uint64_t end = rc_now_ms() + PAUSE_MS; rc_now_ms() < end;)
		;
}

/* Sends without completions are drained, too, though nothing that is polled for comes of them. */
static void sqd__drains_what_has_no_completion_while_polled(struct end *e)
{
	struct params p = params();
	rc_start(e, &p);
	rc_recv(e, 0, 0, BYTES);
	meet(e);
	for (int i = 0; i < HOT; i++) {
		if (!e->passive)
			rc_expect(e->rcq, i, IBV_WC_SUCCESS);
		if (i + 1 < HOT)
			rc_recv(e, i + 1, 0, BYTES);
		post_some(e, 0, 1);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
		if (e->passive)
			rc_expect(e->rcq, i, IBV_WC_SUCCESS);
	}
	if (e->passive) {
		pause_busily();
		for (int i = 0; i < SENT; i++)
			rc_recv(e, i, i * BYTES, BYTES);
		for (int i = 0; i < SENT; i++)
			rc_expect(e->rcq, i, IBV_WC_SUCCESS);
	} else {
		for (int i = 0; i < SENT; i++)
			POST(e, .opcode = IBV_WR_SEND, .len = BYTES, .quiet = true);
		CHECK_EQ(drain(e->qp), 0);
		do
			rc_expect_none(e->scq);
		while (!rc_readable(e->ctx->async_fd, 0));
		rc_expect_event(e, IBV_EVENT_SQ_DRAINED);
	}
	meet(e);
	rc_finish(e);
}

/* The event is for a queue that is drained in SQD, and for the call alone that asks for it. */
static void sqd__event_is_asked_for_each_time(struct end *e)
{
	struct params p = params();
	rc_start(e, &p);
	exchange(e);
	if (e->passive) {
		meet(e);
		for (int i = 0; i < SENT; i++)
			rc_recv(e, i, i * BYTES, BYTES);
		for (int i = 0; i < SENT; i++)
			rc_expect(e->rcq, i, IBV_WC_SUCCESS);
	} else {
		post_some(e, 0, SENT);
		CHECK_EQ(drain(e->qp), 0);
		CHECK_EQ(query(e->qp).sq_draining, 1);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RTS), 0);
		meet(e);
		for (int i = 0; i < SENT; i++)
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_SQD), 0);
		rc_expect_no_event(e);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RTS), 0);
		CHECK_EQ(drain(e->qp), 0);
		rc_expect_event(e, IBV_EVENT_SQ_DRAINED);
	}
	rc_finish(e);
}

enum { LONG = 300000 }; /* which no path takes in one piece */

/* What has begun ends, though it does so piece by piece. */
static void sqd__long_messages_end(struct end *e)
{
	struct params p = params();
	p.bytes = 2 * LONG;
	rc_start(e, &p);
	exchange(e);
	if (e->passive) {
		meet(e);
		for (int i = 0; i < 2; i++)
			rc_recv(e, i, i * LONG, LONG);
		for (int i = 0; i < 2; i++)
			rc_expect(e->rcq, i, IBV_WC_SUCCESS);
		VERIFY(e->buf, 2 * LONG, 7);
	} else {
		rc_fill(e->buf, 2 * LONG, 7);
		for (int i = 0; i < 2; i++)
			POST(e, .id = i, .opcode = IBV_WR_SEND, .at = i * LONG, .len = LONG);
		CHECK_EQ(drain(e->qp), 0);
		meet(e);
		for (int i = 0; i < 2; i++)
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		rc_expect_event(e, IBV_EVENT_SQ_DRAINED);
	}
	rc_finish(e);
}

enum { COPIES = 16, COPY = 1 << 20 }; /* which this side may do itself, in so many slices */

/* Once the queue is drained, all of the message is there, or nothing if it had not begun. */
static void drain_write(struct end *e)
{
	struct ibv_wc wc;
	rc_fill(e->buf, COPIES * COPY, 7);
	meet(e);
	POST(e, .id = 1, .opcode = IBV_WR_RDMA_WRITE, .len = COPIES * COPY);
	CHECK_EQ(drain(e->qp), 0);
	rc_expect_event(e, IBV_EVENT_SQ_DRAINED);
	CHECK_EQ(query(e->qp).sq_draining, 0);
	bool done = ibv_poll_cq(e->scq, 1, &wc) == 1;
	CHECK(!done || wc.status == IBV_WC_SUCCESS);
	tell(e, done);
	meet(e);
	CHECK_EQ(rc_to(e->qp, IBV_QPS_RTS), 0);
	if (!done)
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
}

static void sqd__long_writes_end(struct end *e)
{
	struct params p = params();
	p.bytes = COPIES * COPY;
	rc_start(e, &p);
	exchange(e);
	if (e->passive) {
		rc_set(e->buf, COPIES * COPY, 0xee);
		meet(e);
		if (hear(e))
			VERIFY(e->buf, COPIES * COPY, 7);
		else
			VERIFY_BYTE(e->buf, COPIES * COPY, 0xee);
		meet(e);
	} else {
		drain_write(e);
	}
	rc_finish(e);
}

/* Draining concerns sends alone: requests of the peer are executed meanwhile. */
static void sqd__the_peer_goes_on(struct end *e)
{
	struct params p = params();
	rc_start(e, &p);
	if (e->passive) {
		rc_recv(e, 1, 0, BYTES);
		CHECK_EQ(drain(e->qp), 0);
		rc_expect_event(e, IBV_EVENT_SQ_DRAINED);
		meet(e);
		rc_expect(e->rcq, 1, IBV_WC_SUCCESS);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_SQD);
	} else {
		meet(e);
		post_some(e, 0, 1);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	}
	rc_finish(e);
}

static void sqd__ends_in_error_or_reset(struct end *e)
{
	struct params p = params();
	rc_start(e, &p);
	if (!e->passive) {
		CHECK_EQ(rc_to(e->qp, IBV_QPS_SQD), 0);
		post_some(e, 0, HELD);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_ERR), 0);
		for (int i = 0; i < HELD; i++)
			rc_expect(e->scq, i, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
		CHECK_EQ(query(e->qp).sq_draining, 0);
	}
	rc_finish(e);
}

/* All that SQD lets a program change; told as it was set, and the connection goes on with it. */
static void change_all(struct end *e)
{
	struct ibv_qp_attr now = query(e->qp), a = { .qp_state = IBV_QPS_SQD,
						     .timeout = 13,
						     .retry_cnt = 6,
						     .rnr_retry = 5,
						     .max_rd_atomic = 3,
						     .max_dest_rd_atomic = 5,
						     .min_rnr_timer = 9,
						     .port_num = 1,
						     .qp_access_flags = IBV_ACCESS_REMOTE_READ,
						     .ah_attr = now.ah_attr };
	int mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		   IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_PORT |
		   IBV_QP_ACCESS_FLAGS | IBV_QP_AV | IBV_QP_PKEY_INDEX;
	a.ah_attr.grh.traffic_class = 0x20;
	CHECK_EQ(ibv_modify_qp(e->qp, &a, mask), 0);
	now = query(e->qp);
	CHECK_EQ(now.timeout, 13);
	CHECK_EQ(now.retry_cnt, 6);
	CHECK_EQ(now.rnr_retry, 5);
	CHECK_EQ(now.max_rd_atomic, 3);
	CHECK_EQ(now.max_dest_rd_atomic, 5);
	CHECK_EQ(now.min_rnr_timer, 9);
	CHECK_EQ(now.qp_access_flags, IBV_ACCESS_REMOTE_READ);
	CHECK_EQ(now.ah_attr.grh.traffic_class, 0x20);
}

static void sqd__attributes_change(struct end *e)
{
	struct params p = params();
	rc_start(e, &p);
	if (!e->passive) {
		CHECK_EQ(rc_to(e->qp, IBV_QPS_SQD), 0);
		change_all(e);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RTS), 0);
	}
	exchange(e);
	rc_finish(e);
}

/* Connected without READs, and then with some. */
static void sqd__allows_reads(struct end *e)
{
	struct params p = params();
	p.max_rd_atomic = p.max_dest_rd_atomic = 0;
	rc_start(e, &p);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_SQD, .max_rd_atomic = 2, .max_dest_rd_atomic = 2 };
	CHECK_EQ(rc_to(e->qp, IBV_QPS_SQD), 0);
	CHECK_EQ(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC),
		 0);
	CHECK_EQ(rc_to(e->qp, IBV_QPS_RTS), 0);
	rc_fill(e->buf, READ_BYTES, e->passive);
	meet(e);
	for (int i = 0; i < 3; i++)
		POST(e, .id = i, .opcode = IBV_WR_RDMA_READ, .at = READ_BYTES * (1 + i), .len = READ_BYTES,
		     .remote_at = 0);
	for (int i = 0; i < 3; i++) {
		rc_expect(e->scq, i, IBV_WC_SUCCESS);
		VERIFY(e->buf + READ_BYTES * (1 + i), READ_BYTES, !e->passive);
	}
	rc_finish(e);
}

/* A READ or atomic waits while the queue pair drains, and then none may be sent any more. */
static void sqd__forbids_what_waits(struct end *e)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
						      IBV_WR_ATOMIC_WRITE };
	struct ibv_qp_attr none = { .max_rd_atomic = 0 };
	struct params p = params();
	rc_start(e, &p);
	for (unsigned i = 0; i < sizeof(opcodes) / sizeof(*opcodes); i++) {
		exchange(e);
		if (!e->passive) {
			CHECK_EQ(rc_to(e->qp, IBV_QPS_SQD), 0);
			POST(e, .id = 1, .opcode = opcodes[i], .len = 8);
			post_some(e, 2, 1);
			CHECK_EQ(ibv_modify_qp(e->qp, &none, IBV_QP_MAX_QP_RD_ATOMIC), 0);
			CHECK_EQ(rc_to(e->qp, IBV_QPS_RTS), 0);
			rc_expect(e->scq, 1, IBV_WC_LOC_QP_OP_ERR);
			rc_expect(e->scq, 2, IBV_WC_WR_FLUSH_ERR);
		}
		rc_reconnect(e);
	}
	rc_finish(e);
}

/*
 * There is one path: an alternate one and the migration state are kept and told, and nothing ever migrates.
 */
static void migration__is_kept_and_told(struct end *e)
{
	static const enum ibv_mig_state states[] = { IBV_MIG_REARM, IBV_MIG_ARMED, IBV_MIG_MIGRATED };
	struct params p = params();
	rc_start(e, &p);
	for (unsigned i = 0; i < sizeof(states) / sizeof(*states); i++) {
		struct ibv_qp_attr a = { .path_mig_state = states[i],
					 .alt_ah_attr = query(e->qp).ah_attr,
					 .alt_port_num = 1,
					 .alt_timeout = 11 };
		a.alt_ah_attr.grh.hop_limit = 9;
		CHECK_EQ(ibv_modify_qp(e->qp, &a, IBV_QP_PATH_MIG_STATE | IBV_QP_ALT_PATH), 0);
		struct ibv_qp_attr now = query(e->qp);
		CHECK_EQ(now.path_mig_state, states[i]);
		CHECK_EQ(now.alt_port_num, 1);
		CHECK_EQ(now.alt_timeout, 11);
		CHECK_EQ(now.alt_ah_attr.grh.hop_limit, 9);
		CHECK(now.ah_attr.grh.hop_limit != 9);
		exchange(e);
	}
	rc_expect_no_event(e);
	rc_finish(e);
}

static const struct body bodies[] = {
	BODY(sqd__what_is_under_way_ends_and_the_rest_waits),
	BODY(sqd__drains_what_has_no_completion_while_polled),
	BODY(sqd__event_is_asked_for_each_time),
	BODY(sqd__long_messages_end),
	BODY(sqd__long_writes_end),
	BODY(sqd__the_peer_goes_on),
	BODY(sqd__ends_in_error_or_reset),
	BODY(sqd__attributes_change),
	BODY(sqd__allows_reads),
	BODY(sqd__forbids_what_waits),
	BODY(migration__is_kept_and_told),
};

RC_MAIN(bodies)
