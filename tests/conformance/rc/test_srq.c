/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues: several QPs on one, its limit, its end. */
#include "rc.h"

#include <errno.h>

enum { QPS = 4, SLOT = 1024 };

/* The passive end's QPs share an SRQ, the active end's have receive queues of their own. */
struct group {
	struct ibv_qp *qps[QPS];
	struct card peers[QPS];
};

static struct group start_group(struct end *e, struct params *p, uint32_t srq_wr)
{
	struct group g;
	p->srq_wr = e->passive ? srq_wr : 0;
	p->bytes = 1 << 20;
	rc_open(e, p);
	for (int i = 0; i < QPS; i++) {
		g.qps[i] = rc_make_qp(e);
		g.peers[i] = rc_connect(e, g.qps[i]);
	}
	return g;
}

static void end_group(struct end *e, struct group *g)
{
	meet(e);
	for (int i = 0; i < QPS; i++)
		CHECK_EQ(ibv_destroy_qp(g->qps[i]), 0);
	rc_close(e);
}

static int qp_index(const struct group *g, uint32_t qpn)
{
	for (int i = 0; i < QPS; i++)
		if (g->qps[i]->qp_num == qpn)
			return i;
	return -1;
}

/* Every message arrives once, in its QP's order, in whichever receive was next. */
static void srq__of_several_qps(struct end *e)
{
	enum { N = 600, DEPTH = 32 };
	struct params p = params();
	struct group g = start_group(e, &p, DEPTH);
	unsigned count[QPS] = { 0 };
	for (int i = 0; e->passive && i < DEPTH; i++)
		rc_recv(e, i, i * SLOT, SLOT);
	meet(e);
	if (e->passive) {
		for (int n = 0; n < N * QPS; n++) {
			struct ibv_wc wc = rc_wait(e->rcq);
			int q = qp_index(&g, wc.qp_num);
			CHECK_EQ(wc.status, IBV_WC_SUCCESS);
			CHECK(q >= 0);
			CHECK_EQ(wc.src_qp, g.peers[q].qpn);
			CHECK_EQ(wc.byte_len, 1 + count[q] % SLOT);
			VERIFY(e->buf + wc.wr_id * SLOT, wc.byte_len, e->seed * 1000 + q * N + count[q]);
			count[q]++;
			rc_recv(e, wc.wr_id, wc.wr_id * SLOT, SLOT);
		}
	} else {
		int in_flight = 0;
		for (int n = 0; n < N; n++) {
			for (int q = 0; q < QPS; q++) {
				uint64_t at = (n % 8 * QPS + q) * SLOT;
				rc_fill(e->buf + at, 1 + n % SLOT, e->seed * 1000 + q * N + n);
				POST(e, .qp = g.qps[q], .id = n, .opcode = IBV_WR_SEND, .at = at,
				     .len = 1 + n % SLOT);
				in_flight++;
			}
			for (; in_flight > (n == N - 1 ? 0 : 7 * QPS); in_flight--)
				CHECK_EQ(rc_wait(e->scq).status, IBV_WC_SUCCESS);
			if (n % 8 == 7) /* the places are used again */
				for (; in_flight; in_flight--)
					CHECK_EQ(rc_wait(e->scq).status, IBV_WC_SUCCESS);
		}
	}
	end_group(e, &g);
}

/* An empty SRQ is a receiver that is not ready; a post lets all the waiting ones in, one receive each. */
static void srq__exhausted_is_not_ready(struct end *e)
{
	struct params p = params();
	struct group g = start_group(e, &p, 16);
	for (int q = 0; !e->passive && q < QPS; q++)
		POST(e, .qp = g.qps[q], .id = q, .opcode = IBV_WR_SEND, .len = 8);
	if (!e->passive)
		rc_expect_none(e->scq);
	meet(e);
	for (int q = 0; e->passive && q < QPS; q++) {
		rc_expect_none(e->rcq);
		rc_recv(e, q, 0, 8);
		rc_expect(e->rcq, q, IBV_WC_SUCCESS);
	}
	for (int q = 0; !e->passive && q < QPS; q++)
		CHECK_EQ(rc_wait(e->scq).status, IBV_WC_SUCCESS);
	end_group(e, &g);
}

static void srq__exhausted_without_retries_fails(struct end *e)
{
	struct params p = params();
	p.rnr_retry = 1;
	p.min_rnr_timer = 1;
	struct group g = start_group(e, &p, 16);
	if (!e->passive) {
		POST(e, .qp = g.qps[0], .id = 1, .opcode = IBV_WR_SEND, .len = 8);
		rc_expect(e->scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	}
	end_group(e, &g);
}

/* The limit fires once, when fewer than that many receives are left; it must be armed again. */
static void srq__limit(struct end *e)
{
	enum { N = 10, LIMIT = 6 };
	struct params p = params();
	struct ibv_srq_attr attr = { .srq_limit = LIMIT };
	struct group g = start_group(e, &p, 16);
	for (int round = 0; round < 3; round++) {
		if (!e->passive) {
			meet(e);
			for (int i = 0; i < N; i++) {
				POST(e, .qp = g.qps[i % QPS], .id = i, .opcode = IBV_WR_SEND, .len = 8);
				CHECK_EQ(rc_wait(e->scq).status, IBV_WC_SUCCESS);
				meet(e);
				meet(e);
			}
			meet(e);
			continue;
		}
		for (int i = 0; i < N; i++)
			rc_recv(e, i, 0, 8);
		CHECK_EQ(ibv_modify_srq(e->srq, &attr, IBV_SRQ_LIMIT), 0);
		rc_expect_no_event(e);
		meet(e);
		for (int i = 0; i < N; i++) {
			meet(e);
			rc_expect(e->rcq, i, IBV_WC_SUCCESS);
			if (i == N - LIMIT) {
				struct ibv_async_event event =
					rc_expect_event(e, IBV_EVENT_SRQ_LIMIT_REACHED);
				struct ibv_srq_attr now;
				CHECK(event.element.srq == e->srq);
				CHECK_EQ(ibv_query_srq(e->srq, &now), 0);
				CHECK_EQ(now.srq_limit, 0);
			} else {
				rc_expect_no_event(e);
			}
			meet(e);
		}
		meet(e);
	}
	end_group(e, &g);
}

/* A QP in the error state leaves the shared receives to the others, and says when it has taken its last. */
static void srq__of_a_failing_qp(struct end *e)
{
	struct params p = params();
	struct group g = start_group(e, &p, 16);
	for (int i = 0; e->passive && i < 4; i++)
		rc_recv(e, i, 0, 8);
	meet(e);
	if (e->passive) {
		CHECK_EQ(rc_to(g.qps[1], IBV_QPS_ERR), 0);
		struct ibv_async_event event = rc_expect_event(e, IBV_EVENT_QP_LAST_WQE_REACHED);
		CHECK(event.element.qp == g.qps[1]);
		rc_expect_none(e->rcq);
		meet(e);
		for (int i = 0; i < 4; i++)
			rc_expect(e->rcq, i, IBV_WC_SUCCESS);
	} else {
		meet(e);
		for (int i = 0; i < 4; i++) {
			POST(e, .qp = g.qps[i % 2 ? 2 : 0], .id = i, .opcode = IBV_WR_SEND, .len = 8);
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		}
	}
	end_group(e, &g);
}

/* Receives completed but not polled count as posted; destroying their QP gives them back. */
static void srq__full_refuses(struct end *e)
{
	struct params p = params();
	struct group g = start_group(e, &p, 8);
	struct ibv_srq_attr attr;
	int max = 8;
	if (e->passive) {
		CHECK_EQ(ibv_query_srq(e->srq, &attr), 0);
		max = attr.max_wr;
		CHECK(max >= 8 && max <= 64);
		for (int i = 0; i < max; i++)
			rc_recv(e, i, 0, 8);
		CHECK_EQ(rc_post_recv(e, NULL, 99, 0, 8), ENOMEM);
		tell(e, max);
		meet(e);
		CHECK_EQ(rc_post_recv(e, NULL, 99, 0, 8), ENOMEM);
		CHECK_EQ(ibv_destroy_qp(g.qps[3]), 0);
		g.qps[3] = rc_make_qp(e);
		for (int i = 0; i < max; i++)
			rc_recv(e, i, 0, 8);
		CHECK_EQ(rc_post_recv(e, NULL, 99, 0, 8), ENOMEM);
	} else {
		max = hear(e);
		for (int i = 0; i < max; i++) {
			POST(e, .qp = g.qps[3], .id = i, .opcode = IBV_WR_SEND, .len = 8);
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		}
		meet(e);
	}
	end_group(e, &g);
}

static void srq__refuses_receives_of_its_qp(struct end *e)
{
	struct params p = params();
	struct group g = start_group(e, &p, 8);
	if (e->passive) {
		CHECK_EQ(rc_post_recv(e, g.qps[0], 1, 0, 8), EINVAL);
		CHECK_EQ(ibv_destroy_srq(e->srq), EBUSY);
	}
	end_group(e, &g);
}

static const struct body bodies[] = {
	BODY(srq__of_several_qps),
	BODY(srq__exhausted_is_not_ready),
	BODY(srq__exhausted_without_retries_fails),
	BODY(srq__limit),
	BODY(srq__of_a_failing_qp),
	BODY(srq__full_refuses),
	BODY(srq__refuses_receives_of_its_qp),
};
RC_MAIN(bodies)
