/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that sleep in ibv_get_cq_event do the adapter's work when they are woken, one of them at a time.
 * Whatever becomes of such a thread meanwhile, what peers are owed is done: it returns and computes, is
 * interrupted or cancelled, or another one waits beside it.
 */
#include "rc.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

enum { LENGTH = 64, ROUNDS = 60 }; /* so many that the progress thread counts on threads that wait */

static void start(struct end *e)
{
	struct params p = params();
	p.channel = true;
	rc_start(e, &p);
}

/* 0, or the errno of ibv_get_cq_event. */
static int get_event(struct ibv_comp_channel *channel, struct ibv_cq **cq)
{
	void *context;
	if (ibv_get_cq_event(channel, cq, &context))
		return errno;
	ibv_ack_cq_events(*cq, 1);
	return 0;
}

static void expect_event(struct ibv_comp_channel *channel, struct ibv_cq *cq)
{
	struct ibv_cq *got;
	CHECK_EQ(get_event(channel, &got), 0);
	CHECK(got == cq);
}

static void arm(struct ibv_cq *cq)
{
	CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
}

/* Armed before, and what it was armed for has not been taken. */
static void sleep_and_take(struct end *e, struct ibv_cq *cq, uint64_t id)
{
	expect_event(e->channel, cq);
	rc_expect(cq, id, IBV_WC_SUCCESS);
}

static void send_one(struct end *e, uint64_t id)
{
	POST(e, .id = id, .opcode = IBV_WR_SEND, .at = LENGTH, .len = LENGTH);
}

/* Both ends sleep until the other's message comes. A receive is left. */
static void converse(struct end *e)
{
	rc_recv(e, 0, 0, LENGTH);
	arm(e->rcq);
	meet(e);
	for (int i = 0; i < ROUNDS; i++) {
		if (!e->passive)
			send_one(e, i);
		sleep_and_take(e, e->rcq, i);
		rc_recv(e, i + 1, 0, LENGTH);
		arm(e->rcq);
		if (e->passive)
			send_one(e, i);
		rc_expect(e->scq, i, IBV_WC_SUCCESS);
	}
	meet(e);
}

/* ---- the thread that led goes on with its program ---- */

/*
 * One end takes a message and computes, without another call: the other's send completes, be it polled or
 * slept for.
 */
static void compute_after_a_message(struct end *e, bool sleeps)
{
	start(e);
	converse(e);
	for (int i = 0; i < 20; i++) {
		uint64_t id = ROUNDS + i;
		if (e->passive) {
			sleep_and_take(e, e->rcq, id);
			CHECK_EQ(hear(e), id);
			rc_recv(e, id + 1, 0, LENGTH);
			arm(e->rcq);
		} else {
			if (sleeps)
				arm(e->scq);
			send_one(e, id);
			if (sleeps)
				expect_event(e->channel, e->scq);
			rc_expect(e->scq, id, IBV_WC_SUCCESS);
			tell(e, id);
		}
		meet(e);
	}
	rc_finish(e);
}

static void lead__then_compute(struct end *e) { compute_after_a_message(e, true); }
static void lead__then_compute_while_polled(struct end *e) { compute_after_a_message(e, false); }

/* The end that has led polls from now on, and never arms again; the other sleeps for each of its sends. */
static void lead__then_poll(struct end *e)
{
	start(e);
	converse(e);
	for (int i = 0; i < 200; i++) {
		uint64_t id = ROUNDS + i;
		if (e->passive) {
			rc_expect(e->rcq, id, IBV_WC_SUCCESS);
			rc_recv(e, id + 1, 0, LENGTH);
			tell(e, id);
		} else {
			arm(e->scq);
			send_one(e, id);
			sleep_and_take(e, e->scq, id);
			CHECK_EQ(hear(e), id);
		}
	}
	rc_finish(e);
}

/* After it both sleep, and nobody ticks. */
static void lead__then_idle(struct end *e)
{
	struct rusage before, after;
	start(e);
	converse(e);
	rc_pause_ms(50);
	meet(e);
	getrusage(RUSAGE_SELF, &before);
	rc_pause_ms(300);
	getrusage(RUSAGE_SELF, &after);
	CHECK(after.ru_nvcsw - before.ru_nvcsw <= 50);
	rc_finish(e);
}

/* ---- it is interrupted, or cancelled ---- */

static atomic_uint caught;

static void catch_signal(int number) { caught++; }

static void on_signal(int flags)
{
	struct sigaction action = { .sa_handler = catch_signal, .sa_flags = flags };
	CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
}

struct sleeper {
	pthread_t thread;
	struct end *end;
	struct ibv_comp_channel *channel;
	struct ibv_cq *got;
	int err;
	atomic_bool is_over;
};

static void *sleep_in_get(void *arg)
{
	struct sleeper *s = arg;
	s->err = get_event(s->channel, &s->got);
	atomic_store(&s->is_over, true);
	return NULL;
}

static void start_sleeper(struct sleeper *s, struct end *e, struct ibv_comp_channel *channel)
{
	*s = (struct sleeper){ .end = e, .channel = channel };
	CHECK_EQ(pthread_create(&s->thread, NULL, sleep_in_get, s), 0);
}

static void join_sleeper(struct sleeper *s, struct ibv_cq *cq)
{
	CHECK_EQ(pthread_join(s->thread, NULL), 0);
	CHECK_EQ(s->err, 0);
	CHECK(s->got == cq);
}

/* A message, for which the receiver looks at the descriptor alone: somebody else must do the work. */
static void one_more(struct end *e)
{
	meet(e);
	if (e->passive) {
		CHECK(rc_readable(e->channel->fd, 10000));
		sleep_and_take(e, e->rcq, ROUNDS);
	} else {
		send_one(e, ROUNDS);
		rc_expect(e->scq, ROUNDS, IBV_WC_SUCCESS);
	}
}

static void lead__interrupted(struct end *e)
{
	struct sleeper s;
	start(e);
	converse(e);
	on_signal(0);
	if (e->passive) {
		start_sleeper(&s, e, e->channel);
		while (!atomic_load(&s.is_over)) {
			pthread_kill(s.thread, SIGUSR1);
			rc_pause_ms(1);
		}
		pthread_join(s.thread, NULL);
		CHECK_EQ(s.err, EINTR);
	}
	one_more(e);
	rc_finish(e);
}

/* As read(2) does under SA_RESTART. */
static void lead__not_interrupted(struct end *e)
{
	struct sleeper s;
	start(e);
	converse(e);
	on_signal(SA_RESTART);
	if (e->passive) {
		start_sleeper(&s, e, e->channel);
		for (int i = 0; i < 20; i++) {
			rc_pause_ms(2);
			CHECK_EQ(pthread_kill(s.thread, SIGUSR1), 0);
		}
		CHECK(!atomic_load(&s.is_over));
	}
	meet(e);
	if (e->passive) {
		join_sleeper(&s, e->rcq);
		CHECK(caught > 0);
		rc_expect(e->rcq, ROUNDS, IBV_WC_SUCCESS);
	} else {
		send_one(e, ROUNDS);
		rc_expect(e->scq, ROUNDS, IBV_WC_SUCCESS);
	}
	rc_finish(e);
}

static sigjmp_buf way_out;

static void jump_out(int number) { siglongjmp(way_out, 1); }

/*
 * Programs that want a time limit have been seen to do this. The event comes while the thread polls something
 * else.
 */
static void lead__jumped_out_of(struct end *e)
{
	struct sigaction action = { .sa_handler = jump_out };
	start(e);
	converse(e);
	if (e->passive) {
		CHECK_EQ(sigaction(SIGALRM, &action, NULL), 0);
		struct itimerval soon = { .it_value.tv_usec = 30000 };
		if (!sigsetjmp(way_out, 1)) {
			setitimer(ITIMER_REAL, &soon, NULL);
			expect_event(e->channel, e->rcq);
		}
		arm(e->rcq);
	}
	meet(e);
	if (e->passive) {
		while (!rc_readable(e->channel->fd, 0))
			rc_expect_none(e->scq);
		sleep_and_take(e, e->rcq, ROUNDS);
	} else {
		send_one(e, ROUNDS);
		rc_expect(e->scq, ROUNDS, IBV_WC_SUCCESS);
	}
	rc_finish(e);
}

static void lead__cancelled(struct end *e)
{
	struct sleeper s;
	start(e);
	converse(e);
	if (e->passive) {
		start_sleeper(&s, e, e->channel);
		rc_pause_ms(20);
		CHECK_EQ(pthread_cancel(s.thread), 0);
		CHECK_EQ(pthread_join(s.thread, NULL), 0);
		CHECK(!s.is_over);
	}
	one_more(e);
	rc_finish(e);
}

/* ---- several wait ---- */

/* Two threads wait for the events of one channel: each gets one, in whatever order these come. */
static void lead__beside_another(struct end *e)
{
	struct sleeper s[2];
	start(e);
	converse(e);
	for (int i = 0; i < 20; i++) {
		uint64_t id = ROUNDS + i;
		if (e->passive) {
			arm(e->scq);
			for (int k = 0; k < 2; k++)
				start_sleeper(&s[k], e, e->channel);
			rc_pause_ms(i % 3);
			tell(e, id);
			send_one(e, id);
			for (int k = 0; k < 2; k++) {
				CHECK_EQ(pthread_join(s[k].thread, NULL), 0);
				CHECK_EQ(s[k].err, 0);
			}
			CHECK(s[0].got != s[1].got);
		} else {
			CHECK_EQ(hear(e), id);
			send_one(e, id);
		}
		rc_expect(e->rcq, id, IBV_WC_SUCCESS);
		rc_expect(e->scq, id, IBV_WC_SUCCESS);
		rc_recv(e, id + 1, 0, LENGTH);
		arm(e->rcq);
		meet(e);
	}
	rc_finish(e);
}

/* A queue pair with a completion queue and a channel of its own. */
struct side {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct card peer;
};

static void open_side(struct end *e, struct side *s)
{
	s->channel = ibv_create_comp_channel(e->ctx);
	s->cq = s->channel ? ibv_create_cq(e->ctx, 16, NULL, s->channel, 0) : NULL;
	CHECK(s->cq);
	struct ibv_qp_init_attr init = {
		.send_cq = s->cq, .recv_cq = s->cq, .qp_type = IBV_QPT_RC, .cap = e->p.cap
	};
	s->qp = ibv_create_qp(e->pd, &init);
	CHECK(s->qp);
	s->peer = rc_connect(e, s->qp);
}

static void close_side(struct side *s)
{
	CHECK_EQ(ibv_destroy_qp(s->qp), 0);
	CHECK_EQ(ibv_destroy_cq(s->cq), 0);
	CHECK_EQ(ibv_destroy_comp_channel(s->channel), 0);
}

/* Two channels, a thread asleep at each: whichever leads, both get theirs. */
static void lead__for_two_channels(struct end *e)
{
	struct side other;
	struct sleeper s[2];
	start(e);
	open_side(e, &other);
	converse(e);
	for (int i = 0; i < 20; i++) {
		uint64_t id = ROUNDS + i;
		CHECK_EQ(rc_post_recv(e, other.qp, id, 2 * LENGTH, LENGTH), 0);
		arm(other.cq);
		if (e->passive) {
			start_sleeper(&s[i % 2], e, i % 2 ? other.channel : e->channel);
			rc_pause_ms(i % 3);
			start_sleeper(&s[!(i % 2)], e, i % 2 ? e->channel : other.channel);
		}
		meet(e);
		if (e->passive) {
			join_sleeper(&s[0], e->rcq);
			join_sleeper(&s[1], other.cq);
			rc_expect(e->rcq, id, IBV_WC_SUCCESS);
			rc_expect(other.cq, id, IBV_WC_SUCCESS);
			rc_recv(e, id + 1, 0, LENGTH);
			arm(e->rcq);
		} else {
			POST(e, .id = id, .opcode = IBV_WR_SEND, .at = LENGTH, .len = LENGTH, .qp = other.qp);
			rc_expect(other.cq, id, IBV_WC_SUCCESS);
			send_one(e, id);
			rc_expect(e->scq, id, IBV_WC_SUCCESS);
			struct ibv_wc wc;
			CHECK_EQ(ibv_poll_cq(other.cq, 1, &wc), 0);
		}
		meet(e);
	}
	close_side(&other);
	rc_finish(e);
}

static const struct body bodies[] = {
	BODY(lead__then_compute),
	BODY(lead__then_compute_while_polled),
	BODY(lead__then_poll),
	BODY(lead__then_idle),
	BODY(lead__interrupted),
	BODY(lead__not_interrupted),
	BODY_IN(lead__jumped_out_of, PROCESSES_ONLY),
	BODY(lead__cancelled),
	BODY(lead__beside_another),
	BODY(lead__for_two_channels),
};
RC_MAIN(bodies)
