/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many connections at once, gone through in turn: what several have in common is done together, and nothing
 * of one gets lost over it.
 */
#include "rc.h"

#include <pthread.h>

enum { QPS = 40, DEPTH = 4, LAPS = 50, LENGTH = 24, BATCH = 16, ROUNDS = 6 };

struct many {
	struct ibv_qp *qps[QPS];
	struct card peers[QPS];
	unsigned sent[QPS], done[QPS], received[QPS];
};

static void open_many(struct end *e, struct many *m, const struct params *p)
{
	*m = (struct many){ 0 };
	rc_open(e, p);
	for (int i = 0; i < QPS; i++) {
		m->qps[i] = rc_make_qp(e);
		m->peers[i] = rc_connect(e, m->qps[i]);
	}
}

static struct params params_of_many(void)
{
	struct params p = params();
	p.cqe = 2 * QPS * DEPTH;
	p.cap.max_send_wr = p.cap.max_recv_wr = DEPTH;
	return p;
}

static uint64_t place(unsigned qp, unsigned n) { return (qp * DEPTH + n % DEPTH) * 32; }

/* The peer's n-th message on this connection, or ours. */
static uint64_t seed_of(const struct end *e, unsigned qp, unsigned n, bool passive)
{
	return e->seed + (passive ? 1000000 : 0) + qp * 1000 + n;
}

/* Only every second one is signaled. */
static void send_next(struct end *e, struct many *m, unsigned i)
{
	uint64_t at = place(i, m->sent[i]);
	rc_fill(e->buf + at, LENGTH, seed_of(e, i, m->sent[i], e->passive));
	POST(e, .qp = m->qps[i], .id = i, .opcode = IBV_WR_SEND, .at = at, .len = LENGTH,
	     .quiet = ++m->sent[i] % 2);
}

static unsigned take_receives(struct end *e, struct many *m)
{
	struct ibv_wc wc[BATCH];
	int n = ibv_poll_cq(e->rcq, BATCH, wc);
	CHECK(n >= 0);
	for (int k = 0; k < n; k++) {
		unsigned i = wc[k].wr_id;
		uint64_t at = 32768 + place(i, m->received[i]);
		CHECK_EQ(wc[k].status, IBV_WC_SUCCESS);
		CHECK_EQ(wc[k].qp_num, m->qps[i]->qp_num);
		VERIFY(e->buf + at, LENGTH, seed_of(e, i, m->received[i], !e->passive));
		m->received[i]++;
		CHECK_EQ(rc_post_recv(e, m->qps[i], i, at, 32), 0);
	}
	return n;
}

static unsigned take_sends(struct end *e, struct many *m)
{
	struct ibv_wc wc[BATCH];
	int n = ibv_poll_cq(e->scq, BATCH, wc);
	CHECK(n >= 0);
	for (int k = 0; k < n; k++) {
		CHECK_EQ(wc[k].status, IBV_WC_SUCCESS);
		m->done[wc[k].wr_id] += 2;
	}
	return 2 * n;
}

static void many__around_and_around(struct end *e)
{
	struct params p = params_of_many();
	struct many m;
	unsigned posted = 0, done = 0, received = 0;
	open_many(e, &m, &p);
	for (unsigned i = 0; i < QPS; i++)
		for (unsigned n = 0; n < DEPTH; n++)
			CHECK_EQ(rc_post_recv(e, m.qps[i], i, 32768 + place(i, n), 32), 0);
	meet(e);
	while (done < QPS * LAPS || received < QPS * LAPS) {
		for (unsigned i; posted < QPS * LAPS && (i = posted % QPS, m.sent[i] - m.done[i] < DEPTH);
		     posted++)
			send_next(e, &m, i);
		received += take_receives(e, &m);
		done += take_sends(e, &m);
	}
	meet(e);
	for (unsigned i = 0; i < QPS; i++)
		CHECK_EQ(ibv_destroy_qp(m.qps[i * 7 % QPS]), 0);
	rc_finish(e);
}

static void *take_all(void *arg)
{
	struct end *e = arg;
	for (int n = 0; n < QPS * DEPTH; n++)
		rc_wait(e->scq);
	return NULL;
}

/*
 * The peer's queue pairs stop while requests are posted in one thread and polled for in another: each request
 * completes, one way or another.
 */
static void many__stop_while_posted_to(struct end *e)
{
	struct params p = params_of_many();
	struct many m;
	pthread_t poller;
	uint64_t rng = e->seed;
	p.timeout = 8;
	p.retry_cnt = 1;
	open_many(e, &m, &p);
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; round && i < QPS; i++) {
			CHECK_EQ(rc_to(m.qps[i], IBV_QPS_RESET), 0);
			m.peers[i] = rc_connect(e, m.qps[i]);
		}
		for (unsigned i = 0; i < QPS * DEPTH; i++)
			CHECK_EQ(rc_post_recv(e, m.qps[i % QPS], i, 32768, 32), 0);
		meet(e);
		if (!e->passive)
			CHECK_EQ(pthread_create(&poller, NULL, take_all, e), 0);
		for (unsigned i = 0; !e->passive && i < QPS * DEPTH; i++)
			POST(e, .qp = m.qps[i % QPS], .id = i, .opcode = IBV_WR_SEND, .len = LENGTH);
		for (unsigned i = 0; e->passive && i < QPS; i++) {
			struct ibv_wc wc[DEPTH];
			for (unsigned n = rc_below(&rng, 4); n; n--)
				CHECK(ibv_poll_cq(e->rcq, DEPTH, wc) >= 0);
			CHECK_EQ(rc_to(m.qps[i], IBV_QPS_ERR), 0);
		}
		if (!e->passive)
			CHECK_EQ(pthread_join(poller, NULL), 0);
		meet(e);
	}
	for (unsigned i = 0; i < QPS; i++)
		CHECK_EQ(ibv_destroy_qp(m.qps[i]), 0);
	rc_finish(e);
}

static const struct body bodies[] = {
	BODY(many__around_and_around),
	BODY(many__stop_while_posted_to),
};
RC_MAIN(bodies)
