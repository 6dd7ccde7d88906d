/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pthread_cancel ends a thread where it sleeps for an event, or where it looks for that itself
 * (pthread_testcancel), and nowhere else in posting, polling, arming and waiting: so no event, no message and
 * no lock is lost, and another thread goes on.
 */
#include "rc.h"

#include <pthread.h>
#include <unistd.h>

enum { LENGTH = 64, ROUNDS = 300, RECEIVES = 4, MOST_PAUSE_US = 300 };

struct echo {
	struct end *end;
	bool sleeps;
	uint64_t arrived, answered, completed;
	uint64_t seed;
};

/* ---- who answers, in a thread that is cancelled again and again ---- */

static void wait_for_event(struct echo *x)
{
	struct end *e = x->end;
	struct ibv_cq *cq;
	void *context;
	CHECK_EQ(ibv_get_cq_event(e->channel, &cq, &context), 0);
	CHECK(cq == e->rcq);
	ibv_ack_cq_events(cq, 1);
	CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
}

static unsigned take(struct ibv_cq *cq)
{
	struct ibv_wc wc[RECEIVES];
	int n = ibv_poll_cq(cq, RECEIVES, wc);
	CHECK(n >= 0);
	for (int i = 0; i < n; i++)
		CHECK_EQ(wc[i].status, IBV_WC_SUCCESS);
	return (unsigned)n;
}

static void answer(struct echo *x)
{
	struct end *e = x->end;
	x->completed += take(e->scq);
	x->arrived += take(e->rcq);
	for (; x->answered < x->arrived; x->answered++) {
		rc_recv(e, 0, 0, LENGTH);
		POST(e, .opcode = IBV_WR_SEND, .at = LENGTH, .len = LENGTH);
	}
}

static void *answer_all(void *arg)
{
	struct echo *x = arg;
	while (x->answered < ROUNDS) {
		answer(x);
		if (!x->sleeps)
			pthread_testcancel();
		else if (x->answered < ROUNDS)
			wait_for_event(x);
	}
	return NULL;
}

static bool cancel_one(struct echo *x)
{
	pthread_t thread;
	void *result;
	CHECK_EQ(pthread_create(&thread, NULL, answer_all, x), 0);
	usleep(rc_below(&x->seed, MOST_PAUSE_US));
	CHECK_EQ(pthread_cancel(thread), 0);
	CHECK_EQ(pthread_join(thread, &result), 0);
	return result == PTHREAD_CANCELED;
}

static void answer_in_threads(struct end *e, bool sleeps)
{
	struct echo x = { .end = e, .sleeps = sleeps, .seed = e->seed };
	bool cancelled = true;
	while (cancelled)
		cancelled = cancel_one(&x);
	while (x.completed < ROUNDS)
		x.completed += take(e->scq);
	CHECK_EQ(x.arrived, ROUNDS);
}

/* ---- who asks ---- */

static void ask(struct end *e)
{
	for (int i = 0; i < ROUNDS; i++) {
		POST(e, .id = i, .opcode = IBV_WR_SEND, .at = LENGTH, .len = LENGTH);
		rc_expect(e->scq, i, IBV_WC_SUCCESS);
		rc_expect(e->rcq, i, IBV_WC_SUCCESS);
		rc_recv(e, i + RECEIVES, 0, LENGTH);
	}
}

static void converse(struct end *e, bool sleeps)
{
	struct params p = params();
	if (SANITIZED)
		rc_skip(SANITIZERS_LOSE_THREADS);
	p.channel = true;
	rc_start(e, &p);
	for (int i = 0; i < RECEIVES; i++)
		rc_recv(e, i, 0, LENGTH);
	if (e->passive)
		CHECK_EQ(ibv_req_notify_cq(e->rcq, 0), 0);
	meet(e);
	if (e->passive)
		answer_in_threads(e, sleeps);
	else
		ask(e);
	rc_finish(e);
}

static void cancel__one_who_sleeps(struct end *e) { converse(e, true); }
static void cancel__one_who_polls(struct end *e) { converse(e, false); }

static const struct body bodies[] = {
	BODY(cancel__one_who_sleeps),
	BODY(cancel__one_who_polls),
};
RC_MAIN(bodies)
