/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion events: which completions make one, how programs wait for them, and that waiting costs nothing.
 */
#include "rc.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

static struct params notify_params(void)
{
	struct params p = params();
	p.channel = true;
	return p;
}

static void post_receives(struct end *e, int n)
{
	for (int i = 0; i < n; i++)
		rc_recv(e, i, i * 64, 64);
}

/* ---- which completions ---- */

/* One event per arming, for the next completion after it; the ones before that were polled make none. */
static void notify__next_completion_once(struct end *e)
{
	struct params p = notify_params();
	rc_start(e, &p);
	if (e->passive) {
		post_receives(e, 4);
		meet(e);
		meet(e); /* two have come */
		rc_expect(e->rcq, 0, IBV_WC_SUCCESS);
		rc_expect(e->rcq, 1, IBV_WC_SUCCESS);
		CHECK_EQ(ibv_req_notify_cq(e->rcq, 0), 0);
		CHECK(!rc_readable(e->channel->fd, 20));
		meet(e);
		CHECK(rc_readable(e->channel->fd, 10000));
		meet(e); /* two more have */
		rc_expect_cq_event(e, e->rcq);
		CHECK(!rc_readable(e->channel->fd, 20));
		rc_expect(e->rcq, 2, IBV_WC_SUCCESS);
		rc_expect(e->rcq, 3, IBV_WC_SUCCESS);
	} else {
		meet(e);
		for (int i = 0; i < 4; i++) {
			if (i == 2)
				meet(e), meet(e);
			POST(e, .id = i, .opcode = IBV_WR_SEND, .len = 8);
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		}
		meet(e);
	}
	rc_finish(e);
}

/* Armed for solicited ones: a plain message makes no event, a solicited one and an error do. */
static void notify__solicited_only(struct end *e)
{
	struct params p = notify_params();
	rc_start(e, &p);
	if (e->passive) {
		post_receives(e, 6);
		for (int i = 0; i < 4; i++) {
			CHECK_EQ(ibv_req_notify_cq(e->rcq, 1), 0);
			meet(e);
			meet(e);
			CHECK_EQ(rc_readable(e->channel->fd, i % 2 ? 10000 : 20), i % 2);
			if (i % 2)
				rc_expect_cq_event(e, e->rcq);
			rc_expect(e->rcq, i, IBV_WC_SUCCESS);
			meet(e);
		}
		CHECK_EQ(ibv_req_notify_cq(e->rcq, 1), 0);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_ERR), 0);
		CHECK(rc_readable(e->channel->fd, 10000));
		rc_expect_cq_event(e, e->rcq);
	} else {
		for (int i = 0; i < 4; i++) {
			meet(e);
			POST(e, .id = i, .opcode = i == 3 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND,
			     .len = 8, .flags = i % 2 ? IBV_SEND_SOLICITED : 0);
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
			meet(e);
			meet(e);
		}
	}
	rc_finish(e);
}

/* A solicited flag on its way makes no event for the sender's own completion; arming for any does. */
static void notify__of_sends(struct end *e)
{
	struct params p = notify_params();
	rc_start(e, &p);
	if (e->passive)
		post_receives(e, 3);
	meet(e);
	if (!e->passive) {
		CHECK_EQ(ibv_req_notify_cq(e->scq, 1), 0);
		POST(e, .id = 0, .opcode = IBV_WR_SEND, .len = 8, .flags = IBV_SEND_SOLICITED);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
		CHECK(!rc_readable(e->channel->fd, 20));
		CHECK_EQ(ibv_req_notify_cq(e->scq, 0), 0);
		CHECK_EQ(ibv_req_notify_cq(e->scq, 1), 0); /* any stays any */
		POST(e, .id = 1, .opcode = IBV_WR_SEND, .len = 8);
		rc_expect_cq_event(e, e->scq);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
	}
	rc_finish(e);
}

/* ---- ways to wait ---- */

static void wait_blocking(struct end *e) { }

static void wait_by_poll(struct end *e)
{
	CHECK(rc_readable(e->channel->fd, 10000));
}

static void wait_by_epoll(struct end *e)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int fd = epoll_create1(EPOLL_CLOEXEC);
	CHECK(fd >= 0);
	CHECK_EQ(epoll_ctl(fd, EPOLL_CTL_ADD, e->channel->fd, &event), 0);
	CHECK_EQ(epoll_wait(fd, &event, 1, 10000), 1);
	close(fd);
}

static void wait_by_select(struct end *e)
{
	fd_set set;
	FD_ZERO(&set);
	FD_SET(e->channel->fd, &set);
	CHECK_EQ(select(e->channel->fd + 1, &set, NULL, NULL, &(struct timeval){ 10 }), 1);
}

static void send_one(struct end *e, int i, uint32_t length)
{
	rc_fill(e->buf + length, length, e->seed + 2 * i + e->passive);
	POST(e, .id = i, .opcode = IBV_WR_SEND, .at = length, .len = length);
	rc_expect(e->scq, i, IBV_WC_SUCCESS);
}

/* False: the event was for a completion that was there when the queue was armed last, and polled since. */
static bool take_event_and_one(struct end *e, struct ibv_wc *wc)
{
	rc_expect_cq_event(e, e->rcq);
	CHECK_EQ(ibv_req_notify_cq(e->rcq, 0), 0);
	return ibv_poll_cq(e->rcq, 1, wc) == 1;
}

static void receive_one(struct end *e, int i, uint32_t length, void (*wait)(struct end *e))
{
	struct ibv_wc wc;
	do
		wait(e);
	while (!take_event_and_one(e, &wc));
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	VERIFY(e->buf, length, e->seed + 2 * i + !e->passive);
	rc_recv(e, i, 0, length);
}

/* Each end sleeps until the other's message comes, and answers: a lost wake-up hangs. */
static void ping_pong(struct end *e, int rounds, uint32_t length, void (*wait)(struct end *e))
{
	struct params p = notify_params();
	p.bytes = 2 * length;
	rc_start(e, &p);
	CHECK_EQ(ibv_req_notify_cq(e->rcq, 0), 0);
	rc_recv(e, 0, 0, length);
	meet(e);
	for (int i = 0; i < rounds; i++) {
		if (!e->passive)
			send_one(e, i, length);
		receive_one(e, i, length, wait);
		if (e->passive)
			send_one(e, i, length);
	}
	rc_finish(e);
}

static void wait__blocking(struct end *e) { ping_pong(e, 300, 64, wait_blocking); }
static void wait__by_poll(struct end *e) { ping_pong(e, 100, 5000, wait_by_poll); }
static void wait__by_epoll(struct end *e) { ping_pong(e, 100, 64, wait_by_epoll); }
static void wait__by_select(struct end *e) { ping_pong(e, 100, 300000, wait_by_select); }

static void wait_by_trying(struct end *e)
{
	struct ibv_cq *cq;
	void *context;
	CHECK_EQ(fcntl(e->channel->fd, F_SETFL, fcntl(e->channel->fd, F_GETFL) | O_NONBLOCK), 0);
	CHECK_EQ(ibv_get_cq_event(e->channel, &cq, &context), 0); /* at the first try */
	CHECK(cq == e->rcq);
	ibv_ack_cq_events(cq, 1);
}

/*
 * As with adapters that learn with the arming how far the program has polled, on which programs rely: what is
 * there and was not polled gives the event, again and again. N have come; the program takes one for each
 * event.
 */
static void take_one_by_one(struct end *e, void (*wait)(struct end *e))
{
	enum { N = 4 };
	struct params p = notify_params();
	rc_start(e, &p);
	if (e->passive)
		post_receives(e, N);
	meet(e);
	for (int i = 0; !e->passive && i < N; i++) {
		POST(e, .id = i, .opcode = IBV_WR_SEND, .len = 8);
		rc_expect(e->scq, i, IBV_WC_SUCCESS);
	}
	meet(e);
	for (int i = 0; e->passive && i < N; i++) {
		CHECK_EQ(ibv_req_notify_cq(e->rcq, 0), 0);
		wait(e);
		if (wait != wait_by_trying)
			rc_expect_cq_event(e, e->rcq);
		rc_expect(e->rcq, i, IBV_WC_SUCCESS);
	}
	if (e->passive) {
		CHECK_EQ(ibv_req_notify_cq(e->rcq, 0), 0);
		CHECK(!rc_readable(e->channel->fd, 50));
	}
	rc_finish(e);
}

static void take_event(struct end *e, struct ibv_cq *cq, uint64_t id)
{
	rc_expect_cq_event(e, cq);
	CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
	rc_expect(cq, id, IBV_WC_SUCCESS);
}

/*
 * A SEND's completion event comes before the event of the answer. Programs that use one channel for both
 * completion queues rely on this order (perftest -e).
 */
static void notify__send_is_done_before_its_answer(struct end *e)
{
	enum { N = 500 };
	struct params p = notify_params();
	rc_start(e, &p);
	rc_recv(e, 0, 0, 64);
	CHECK_EQ(ibv_req_notify_cq(e->rcq, 0), 0);
	CHECK_EQ(ibv_req_notify_cq(e->scq, 0), 0);
	meet(e);
	for (int i = 0; i < N; i++) {
		if (e->passive) {
			take_event(e, e->rcq, i);
			rc_recv(e, i + 1, 0, 64);
		}
		POST(e, .id = i, .opcode = IBV_WR_SEND, .at = 64, .len = 8);
		take_event(e, e->scq, i);
		if (!e->passive) {
			take_event(e, e->rcq, i);
			rc_recv(e, i + 1, 0, 64);
		}
	}
	meet(e);
	rc_finish(e);
}

static void notify__of_those_there__blocking(struct end *e) { take_one_by_one(e, wait_blocking); }
static void notify__of_those_there__by_poll(struct end *e) { take_one_by_one(e, wait_by_poll); }
static void notify__of_those_there__by_epoll(struct end *e) { take_one_by_one(e, wait_by_epoll); }
static void notify__of_those_there__non_blocking(struct end *e) { take_one_by_one(e, wait_by_trying); }

/*
 * A thread takes events until there is none, arms for each, and leaves polling to another thread, as
 * libdapl's does: it comes to an end. The one that is still there gives its event later.
 */
static void notify__of_one_there__has_an_end(struct end *e)
{
	enum { MANY = 1000 };
	struct params p = notify_params();
	struct ibv_cq *cq;
	void *context;
	int events = 0;
	rc_start(e, &p);
	if (e->passive)
		post_receives(e, 1);
	meet(e);
	if (!e->passive) {
		POST(e, .opcode = IBV_WR_SEND, .len = 8);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	}
	meet(e);
	if (e->passive) {
		CHECK_EQ(fcntl(e->channel->fd, F_SETFL, fcntl(e->channel->fd, F_GETFL) | O_NONBLOCK), 0);
		CHECK_EQ(ibv_req_notify_cq(e->rcq, 0), 0);
		for (; events < MANY && !ibv_get_cq_event(e->channel, &cq, &context); events++) {
			ibv_ack_cq_events(cq, 1);
			CHECK_EQ(ibv_req_notify_cq(e->rcq, 0), 0);
		}
		CHECK(events > 0 && events < MANY);
		wait_by_poll(e);
		rc_expect_cq_event(e, e->rcq);
		rc_expect(e->rcq, 0, IBV_WC_SUCCESS);
	}
	rc_finish(e);
}

static void *run_until(void *is_over)
{
	while (!atomic_load((atomic_bool *)is_over))
		;
	return NULL;
}

/* Threads that never sleep, and share the calling thread's processor, to which it is bound meanwhile. */
struct rivals {
	pthread_t threads[3];
	cpu_set_t before;
	atomic_bool is_over;
};

static void rivals_start(struct rivals *c)
{
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	atomic_store(&c->is_over, false);
	CHECK_EQ(sched_getaffinity(0, sizeof(c->before), &c->before), 0);
	CHECK_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&c->threads[i], NULL, run_until, &c->is_over), 0);
}

static void rivals_end(struct rivals *c)
{
	atomic_store(&c->is_over, true);
	for (int i = 0; i < 3; i++)
		pthread_join(c->threads[i], NULL);
	CHECK_EQ(sched_setaffinity(0, sizeof(c->before), &c->before), 0);
}

/* Uses so much of a processor's time, however long that takes, and does not sleep. */
static void work_ns(uint64_t ns)
{
	struct timespec from, now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
	do
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	while ((uint64_t)(now.tv_sec - from.tv_sec) * 1000000000 + (uint64_t)now.tv_nsec -
		       (uint64_t)from.tv_nsec <
	       ns);
}

/*
 * Arms, and has no processor to poll with for a while: an event would be for nothing, and programs do not
 * expect that.
 */
static void notify__not_while_a_processor_is_lacking(struct end *e)
{
	struct params p = notify_params();
	rc_start(e, &p);
	if (e->passive)
		post_receives(e, 1);
	meet(e);
	if (!e->passive) {
		POST(e, .id = 0, .opcode = IBV_WR_SEND, .len = 8);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	}
	meet(e);
	if (e->passive) {
		struct rivals rivals;
		struct ibv_wc wc;
		rivals_start(&rivals);
		CHECK_EQ(ibv_req_notify_cq(e->rcq, 0), 0);
		work_ns(6000000);
		int n = ibv_poll_cq(e->rcq, 1, &wc);
		rivals_end(&rivals);
		CHECK_EQ(n, 1);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK(!rc_readable(e->channel->fd, 50));
	}
	rc_finish(e);
}

/*
 * Of those that are there, too, the solicited ones and the failed ones alone count if it was these that were
 * asked for.
 */
static void notify__of_solicited_ones_there(struct end *e)
{
	struct params p = notify_params();
	rc_start(e, &p);
	if (e->passive)
		post_receives(e, 4);
	meet(e);
	for (int i = 0; i < 3; i++) {
		if (!e->passive) {
			POST(e, .id = i, .opcode = IBV_WR_SEND, .len = 8,
			     .flags = i ? IBV_SEND_SOLICITED : 0);
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		}
		meet(e);
		if (e->passive && i != 1) { /* the second one comes while it is armed */
			CHECK_EQ(ibv_req_notify_cq(e->rcq, 1), 0);
			CHECK_EQ(rc_readable(e->channel->fd, i ? 10000 : 50), i != 0);
		}
		if (e->passive && i)
			rc_expect_cq_event(e, e->rcq);
		if (e->passive && i == 1) {
			rc_expect(e->rcq, 0, IBV_WC_SUCCESS);
			rc_expect(e->rcq, 1, IBV_WC_SUCCESS);
		}
		meet(e);
	}
	if (e->passive) {
		rc_expect(e->rcq, 2, IBV_WC_SUCCESS);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_ERR), 0);
		CHECK_EQ(ibv_req_notify_cq(e->rcq, 1), 0);
		rc_expect_cq_event(e, e->rcq);
		rc_expect(e->rcq, 3, IBV_WC_WR_FLUSH_ERR);
	}
	rc_finish(e);
}

/*
 * The usual loop, which arms before it polls, is woken once for each message, unless it was kept from
 * polling.
 */
static void notify__usual_loop_is_woken_once(struct end *e)
{
	enum { ROUNDS = 200 };
	struct params p = notify_params();
	struct ibv_wc wc;
	int vain = 0;
	rc_start(e, &p);
	CHECK_EQ(ibv_req_notify_cq(e->rcq, 0), 0);
	rc_recv(e, 0, 0, 64);
	meet(e);
	for (int i = 0; i < ROUNDS; i++) {
		if (!e->passive)
			send_one(e, i, 64);
		while (!take_event_and_one(e, &wc))
			vain++;
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		rc_recv(e, 0, 0, 64);
		if (e->passive)
			send_one(e, i, 64);
	}
	CHECK(vain < ROUNDS / 2);
	rc_finish(e);
}

/* Long transfers go on while both programs sleep. */
static void wait__for_long_transfers(struct end *e)
{
	enum { LONG = 6 << 20 };
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND };
	struct params p = notify_params();
	p.bytes = 3 * LONG;
	rc_start(e, &p);
	if (e->passive) {
		rc_recv(e, 0, 2 * LONG, LONG);
		CHECK_EQ(ibv_req_notify_cq(e->rcq, 0), 0);
	}
	meet(e);
	if (e->passive) {
		rc_expect_cq_event(e, e->rcq);
		rc_expect(e->rcq, 0, IBV_WC_SUCCESS);
		VERIFY(e->buf + 2 * LONG, LONG, e->seed);
	} else {
		rc_fill(e->buf, LONG, e->seed);
		for (int i = 0; i < 3; i++) {
			CHECK_EQ(ibv_req_notify_cq(e->scq, 0), 0);
			POST(e, .id = i, .opcode = opcodes[i], .at = i == 1 ? LONG : 0, .len = LONG);
			rc_expect_cq_event(e, e->scq);
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		}
		VERIFY(e->buf + LONG, LONG, e->seed);
	}
	rc_finish(e);
}

static void wait__non_blocking_finds_nothing(struct end *e)
{
	struct params p = notify_params();
	struct ibv_cq *cq;
	void *context;
	rc_start(e, &p);
	if (e->passive)
		post_receives(e, 1);
	CHECK_EQ(fcntl(e->channel->fd, F_SETFL, fcntl(e->channel->fd, F_GETFL) | O_NONBLOCK), 0);
	CHECK_EQ(ibv_req_notify_cq(e->rcq, 0), 0);
	errno = 0;
	CHECK_EQ(ibv_get_cq_event(e->channel, &cq, &context), -1);
	CHECK_EQ(errno, EAGAIN);
	meet(e);
	if (e->passive) {
		CHECK(rc_readable(e->channel->fd, 10000));
		rc_expect_cq_event(e, e->rcq);
		CHECK_EQ(ibv_get_cq_event(e->channel, &cq, &context), -1);
		rc_expect(e->rcq, 0, IBV_WC_SUCCESS);
	} else {
		POST(e, .id = 0, .opcode = IBV_WR_SEND, .len = 8);
		rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	}
	rc_finish(e);
}

/* ---- idleness ---- */

/*
 * A helper that ticks every millisecond would wake up 300 times, one that spins would use half of the time at
 * least. A busy machine makes both of them do less, never an idle one do more.
 */
enum { IDLE_MS = 300, IDLE_US = 60000, IDLE_WAKES = 50 };

struct activity {
	uint64_t cpu_us;
	long wakes;
};

static struct activity activity(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (struct activity){
		.cpu_us = (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000ull + u.ru_utime.tv_usec +
			  u.ru_stime.tv_usec,
		.wakes = u.ru_nvcsw,
	};
}

static void expect_idleness_since(struct activity before)
{
	struct activity now = activity();
	uint64_t used_us = now.cpu_us - before.cpu_us;
	long wakes = now.wakes - before.wakes;
	if (used_us > IDLE_US || wakes > IDLE_WAKES)
		fprintf(stderr, "# %llu us of CPU, %ld wake-ups in %d ms of idleness\n",
			(unsigned long long)used_us, wakes, IDLE_MS);
	CHECK(used_us <= IDLE_US);
	CHECK(wakes <= IDLE_WAKES);
}

static void *block_in_get(void *arg)
{
	struct end *e = arg;
	rc_expect_cq_event(e, e->rcq);
	return NULL;
}

/*
 * A program that sleeps on its channel uses no CPU, right after it polled hard too; and a message still wakes
 * it.
 */
static void idle__blocked_program_uses_no_cpu(struct end *e)
{
	struct params p = notify_params();
	pthread_t thread;
	rc_start(e, &p);
	rc_recv(e, 0, 0, 8);
	for (int i = 0; i < 3000; i++)
		rc_expect_none(e->scq);
	CHECK_EQ(ibv_req_notify_cq(e->rcq, 0), 0);
	CHECK(!pthread_create(&thread, NULL, block_in_get, e));
	rc_pause_ms(20);
	meet(e);
	struct activity before = activity();
	rc_pause_ms(IDLE_MS);
	expect_idleness_since(before);
	meet(e);
	POST(e, .id = 0, .opcode = IBV_WR_SEND, .at = 64, .len = 8);
	pthread_join(thread, NULL);
	rc_expect(e->rcq, 0, IBV_WC_SUCCESS);
	rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	rc_finish(e);
}

/*
 * A program that has stopped polling without arming anything becomes idle as well, and its memory is still
 * served.
 */
static void idle__program_that_computes_is_served(struct end *e)
{
	struct params p = notify_params();
	rc_start(e, &p);
	for (int i = 0; i < 3000; i++)
		rc_expect_none(e->scq);
	meet(e);
	if (e->passive) {
		struct activity before = activity();
		rc_pause_ms(IDLE_MS);
		if (!e->threads)
			expect_idleness_since(before);
		meet(e);
		CHECK_EQ(hear(e), 0x600d);
		VERIFY(e->buf + 100, 5000, e->seed);
	} else {
		rc_pause_ms(IDLE_MS);
		meet(e);
		rc_fill(e->buf, 5000, e->seed);
		POST(e, .id = 1, .opcode = IBV_WR_RDMA_WRITE, .len = 5000, .remote_at = 100);
		POST(e, .id = 2, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .len = 8, .remote_at = 8000,
		     .compare = 1);
		POST(e, .id = 3, .opcode = IBV_WR_RDMA_READ, .at = 10000, .len = 5000, .remote_at = 100);
		for (int i = 1; i <= 3; i++)
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		VERIFY(e->buf + 10000, 5000, e->seed);
		tell(e, 0x600d);
	}
	rc_finish(e);
}

/* ---- from polling to waiting ---- */

enum { PINGS = 60, TURNS = 20 };

/* Both poll: so long that each side may count on the other's polls. */
static void converse(struct end *e)
{
	for (int i = 0; i < PINGS; i++) {
		rc_recv(e, i, 0, 64);
		if (i == 0)
			meet(e);
		if (!e->passive)
			POST(e, .id = i, .opcode = IBV_WR_SEND, .at = 64, .len = 8);
		rc_expect(e->rcq, i, IBV_WC_SUCCESS);
		if (e->passive)
			POST(e, .id = i, .opcode = IBV_WR_SEND, .at = 64, .len = 8);
		rc_expect(e->scq, i, IBV_WC_SUCCESS);
	}
}

/*
 * As programs do that may not miss any: arm, look, and only then sleep. An event may be an earlier arming's.
 */
static void sleep_until_received(struct end *e, uint64_t id)
{
	struct ibv_wc wc;
	for (;;) {
		CHECK_EQ(ibv_req_notify_cq(e->rcq, 0), 0);
		if (ibv_poll_cq(e->rcq, 1, &wc) == 1)
			break;
		rc_expect_cq_event(e, e->rcq);
	}
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(wc.wr_id, id);
}

/* One side goes to sleep at any time before or after the other's message to it. */
static void wait__after_a_conversation(struct end *e)
{
	struct params p = notify_params();
	rc_start(e, &p);
	for (int i = 0; i < TURNS; i++) {
		converse(e);
		rc_recv(e, 100, 0, 64);
		meet(e);
		if (e->passive == (i % 2 == 0)) {
			sleep_until_received(e, 100);
			POST(e, .id = 101, .opcode = IBV_WR_SEND, .len = 8);
			rc_expect(e->scq, 101, IBV_WC_SUCCESS);
		} else {
			usleep((useconds_t)rc_below(&e->seed, 300));
			POST(e, .id = 101, .opcode = IBV_WR_SEND, .len = 8);
			rc_expect(e->scq, 101, IBV_WC_SUCCESS);
			rc_expect(e->rcq, 100, IBV_WC_SUCCESS);
		}
		meet(e);
	}
	rc_finish(e);
}

/* Nobody asked for the completion of what fails, and the one who finds that polls no more. */
static void wait__for_a_failure_after_a_conversation(struct end *e)
{
	struct params p = notify_params();
	rc_start(e, &p);
	converse(e);
	rc_recv(e, 100, 0, 64);
	meet(e);
	if (!e->passive) {
		POST(e, .id = 101, .opcode = IBV_WR_SEND, .len = 65, .quiet = true);
		rc_expect(e->scq, 101, IBV_WC_REM_INV_REQ_ERR);
	}
	meet(e);
	if (e->passive)
		rc_expect(e->rcq, 100, IBV_WC_LOC_LEN_ERR);
	rc_finish(e);
}

/* The peer's queue pair goes while it is looked at; the next connection works, and can be waited for. */
static void wait__in_the_next_connection(struct end *e)
{
	struct params p = notify_params();
	rc_start(e, &p);
	for (int i = 0; i < 4; i++) {
		converse(e);
		meet(e);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
		meet(e);
		e->peer = rc_connect(e, e->qp);
		rc_recv(e, 100, 0, 64);
		meet(e);
		if (e->passive) {
			sleep_until_received(e, 100);
		} else {
			POST(e, .id = 101, .opcode = IBV_WR_SEND, .len = 8);
			rc_expect(e->scq, 101, IBV_WC_SUCCESS);
			CHECK_EQ(rc_to(e->qp, IBV_QPS_ERR), 0);
			rc_expect(e->rcq, 100, IBV_WC_WR_FLUSH_ERR);
		}
		meet(e);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
		meet(e);
		e->peer = rc_connect(e, e->qp);
	}
	rc_finish(e);
}

static const struct body bodies[] = {
	BODY(notify__next_completion_once),
	BODY(notify__solicited_only),
	BODY(notify__of_sends),
	BODY(notify__send_is_done_before_its_answer),
	BODY(notify__of_those_there__blocking),
	BODY(notify__of_those_there__by_poll),
	BODY(notify__of_those_there__by_epoll),
	BODY(notify__of_those_there__non_blocking),
	BODY(notify__of_one_there__has_an_end),
	BODY(notify__of_solicited_ones_there),
	BODY(notify__not_while_a_processor_is_lacking),
	BODY(notify__usual_loop_is_woken_once),
	BODY(wait__blocking),
	BODY(wait__by_poll),
	BODY(wait__by_epoll),
	BODY(wait__by_select),
	BODY(wait__for_long_transfers),
	BODY(wait__non_blocking_finds_nothing),
	BODY(wait__after_a_conversation),
	BODY(wait__for_a_failure_after_a_conversation),
	BODY(wait__in_the_next_connection),
	BODY(idle__blocked_program_uses_no_cpu),
	BODY(idle__program_that_computes_is_served),
};
RC_MAIN(bodies)
