/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers that die. On one host the QPs have no timeout, so that nothing but the news of the death ends what
 * waits; on a wire there is no such news, and retries run out. Victims are forked before the active process
 * first uses the library; the passive end is a peer that lives on.
 */
#include "rc.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	ROUNDS = 20, DEPTH = 16, SLOT = 64 * 1024, LONG = 3 << 20,
	SOURCE = DEPTH * SLOT,   /* behind the receives: what is sent, */
	RESULT = SOURCE + LONG,  /* what is read, */
	PEERS = RESULT + LONG,   /* and what the peer writes and reads */
};

static const char NO_NEWS[] = "who only receives is told nothing by a wire";

struct victim {
	pid_t pid;
	struct end end; /* the active process's, towards it */
};

static struct params death_params(const struct end *e, bool channel)
{
	struct params p = params();
	p.bytes = PEERS + LONG;
	p.timeout = e->wire ? 12 : 0; /* 16 ms */
	p.channel = channel;
	return p;
}

static void receive_again(struct end *e, const struct ibv_wc *wc)
{
	rc_recv(e, wc->wr_id, wc->wr_id * SLOT, SLOT);
}

/* Requests of all kinds and sizes, as many as the queue takes. */
static void post_some(struct end *e, uint64_t *rng, unsigned *in_flight)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD,
						      IBV_WR_RDMA_WRITE_WITH_IMM };
	while (*in_flight < DEPTH) {
		enum ibv_wr_opcode opcode = opcodes[rc_below(rng, 5)];
		bool two_sided = opcode == IBV_WR_SEND;
		uint32_t n = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 :
			     rc_below(rng, 3)			   ? rc_below(rng, SLOT) :
			     two_sided				   ? SLOT :
								     LONG;
		bool fetches = opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
		POST(e, .id = *in_flight, .opcode = opcode, .at = fetches ? RESULT : SOURCE, .len = n,
		     .remote_at = PEERS);
		++*in_flight;
	}
}

/* Sends and receives until its process ends, or the QP fails: then it returns the status. */
static enum ibv_wc_status traffic(struct end *e, uint64_t *rng)
{
	struct ibv_wc wc;
	unsigned in_flight = 0;
	for (uint64_t end = rc_now_ms() + 60000; rc_now_ms() < end;) {
		post_some(e, rng, &in_flight);
		for (int i = 0; i < 64; i++) {
			if (ibv_poll_cq(e->scq, 1, &wc) == 1) {
				if (wc.status != IBV_WC_SUCCESS)
					return wc.status;
				in_flight--;
			}
			if (ibv_poll_cq(e->rcq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS)
				receive_again(e, &wc);
		}
	}
	rc_fail(__FILE__, __LINE__, "an error completion after the peer's death");
}

static void start_traffic_end(struct end *e, bool channel)
{
	struct params p = death_params(e, channel);
	rc_start(e, &p);
	for (int i = 0; i < DEPTH; i++)
		rc_recv(e, i, i * SLOT, SLOT);
	meet(e);
}

/* ---- victims ---- */

/* Ends when it is killed, or when the active process has gone. */
static void live(struct end *e, bool idle)
{
	uint64_t rng = rc_hash(e->seed + getpid());
	hear(e);
	start_traffic_end(e, false);
	if (!idle)
		traffic(e, &rng);
	hear(e);
	_exit(0);
}

static struct victim make_victim(const struct end *e, bool idle)
{
	int pair[2];
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
	struct victim v = { .pid = fork(), .end = *e };
	CHECK(v.pid >= 0);
	if (!v.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		v.end.sock = pair[1];
		v.end.passive = true;
		live(&v.end, idle);
	}
	close(pair[1]);
	v.end.sock = pair[0];
	return v;
}

static void kill_victim(struct victim *v)
{
	kill(v->pid, SIGKILL);
	rc_reap(v->pid);
}

/* Everything that was posted comes back as an error. */
static void drain(struct end *e, unsigned receives)
{
	struct ibv_wc wc;
	CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
	while (receives--) {
		wc = rc_wait(e->rcq);
		if (wc.status != IBV_WC_SUCCESS)
			CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
	}
	while (ibv_poll_cq(e->scq, 1, &wc) == 1)
		CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
}

/* ---- the peer that lives ---- */

/* Echoes messages until told otherwise by an empty one. */
static void echo(struct end *e)
{
	struct params p = params();
	rc_start(e, &p);
	for (int i = 0; i < 8; i++)
		rc_recv(e, i, i * 1024, 1024);
	meet(e);
	for (;;) {
		struct ibv_wc wc = rc_wait(e->rcq);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		if (!wc.byte_len)
			break;
		POST(e, .id = 1, .opcode = IBV_WR_SEND, .at = wc.wr_id * 1024, .len = wc.byte_len);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
		rc_recv(e, wc.wr_id, wc.wr_id * 1024, 1024);
	}
	rc_finish(e);
}

static void start_echo(struct end *e)
{
	struct params p = params();
	rc_start(e, &p);
	meet(e);
}

static void expect_echo(struct end *e, unsigned n)
{
	rc_recv(e, n, 2048, 1024);
	rc_fill(e->buf, 777, e->seed + n);
	POST(e, .id = n, .opcode = IBV_WR_SEND, .len = 777);
	rc_expect(e->scq, n, IBV_WC_SUCCESS);
	rc_expect(e->rcq, n, IBV_WC_SUCCESS);
	VERIFY(e->buf + 2048, 777, e->seed + n);
}

static void end_echo(struct end *e)
{
	POST(e, .id = 0, .opcode = IBV_WR_SEND, .len = 0);
	rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	rc_finish(e);
}

/* ---- bodies ---- */

static void *kill_later(void *arg)
{
	struct victim *v = arg;
	uint64_t rng = v->end.seed;
	usleep(rc_below(&rng, 8000));
	kill_victim(v);
	return NULL;
}


/*
 * At any moment of traffic in both directions; the QP to the other peer goes on, and the next victim
 * connects.
 */
static void death__in_the_middle_of_traffic(struct end *e)
{
	struct victim victims[ROUNDS];
	if (e->passive) {
		echo(e);
		return;
	}
	unsigned rounds = rc_times(ROUNDS);
	for (unsigned i = 0; i < rounds; i++) {
		victims[i] = make_victim(e, false);
		victims[i].end.seed = rc_hash(e->seed * ROUNDS + i);
	}
	start_echo(e);
	for (unsigned i = 0; i < rounds; i++) {
		struct victim *v = &victims[i];
		uint64_t rng = v->end.seed;
		pthread_t killer;
		tell(&v->end, 1);
		start_traffic_end(&v->end, false);
		CHECK(!pthread_create(&killer, NULL, kill_later, v));
		/*
		 * Flushed: nothing was in flight when the news came, and what was posted then found the QP in
		 * the error state.
		 */
		enum ibv_wc_status status = traffic(&v->end, &rng);
		CHECK(status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_WR_FLUSH_ERR);
		pthread_join(killer, NULL);
		drain(&v->end, 0);
		rc_close(&v->end);
		close(v->end.sock);
		expect_echo(e, i);
	}
	end_echo(e);
}

/* This side sleeps on its channel with nothing but receives posted: they are flushed, and wake it. */
static void death__wakes_a_sleeper(struct end *e)
{
	if (e->wire)
		rc_skip(NO_NEWS);
	if (e->passive) {
		echo(e);
		return;
	}
	struct victim v = make_victim(e, true);
	struct ibv_cq *cq;
	void *context;
	start_echo(e);
	tell(&v.end, 1);
	start_traffic_end(&v.end, true);
	CHECK_EQ(ibv_req_notify_cq(v.end.rcq, 0), 0);
	kill_victim(&v);
	CHECK_EQ(ibv_get_cq_event(v.end.channel, &cq, &context), 0);
	CHECK(cq == v.end.rcq);
	ibv_ack_cq_events(cq, 1);
	for (int i = 0; i < DEPTH; i++)
		rc_expect(v.end.rcq, i, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(rc_state(v.end.qp), IBV_QPS_ERR);
	rc_close(&v.end);
	expect_echo(e, 1);
	end_echo(e);
}

/* What waits for a receiver that is not ready, with endless retries, ends with the receiver. */
static void death__of_a_receiver_that_was_not_ready(struct end *e)
{
	if (e->passive) {
		echo(e);
		return;
	}
	struct victim v = make_victim(e, true);
	start_echo(e);
	tell(&v.end, 1);
	start_traffic_end(&v.end, false);
	for (int i = 0; i < DEPTH + 8; i++)
		POST(&v.end, .id = i, .opcode = IBV_WR_SEND, .len = 100);
	for (int i = 0; i < DEPTH; i++)
		rc_expect(v.end.scq, i, IBV_WC_SUCCESS);
	rc_expect_none(v.end.scq);
	kill_victim(&v);
	rc_expect(v.end.scq, DEPTH, IBV_WC_RETRY_EXC_ERR);
	for (int i = DEPTH + 1; i < DEPTH + 8; i++)
		rc_expect(v.end.scq, i, IBV_WC_WR_FLUSH_ERR);
	drain(&v.end, DEPTH);
	rc_close(&v.end);
	expect_echo(e, 1);
	end_echo(e);
}

/* A peer that died before the connection was complete is a peer that never answers. */
static void death__before_the_connection(struct end *e)
{
	if (e->passive) {
		echo(e);
		return;
	}
	struct params p = params();
	struct victim v = make_victim(e, true);
	start_echo(e);
	tell(&v.end, 1);
	p.timeout = 8;
	p.retry_cnt = 1;
	rc_open(&v.end, &p);
	v.end.peer = rc_swap_cards(&v.end, v.end.qp);
	kill_victim(&v);
	CHECK_EQ(rc_to_init(&v.end, v.end.qp), 0);
	CHECK_EQ(rc_to_rtr(&v.end, v.end.qp, &v.end.peer), 0);
	CHECK_EQ(rc_to_rts(&v.end, v.end.qp), 0);
	POST(&v.end, .id = 1, .opcode = IBV_WR_SEND, .len = 8);
	rc_expect(v.end.scq, 1, IBV_WC_RETRY_EXC_ERR);
	rc_close(&v.end);
	expect_echo(e, 1);
	end_echo(e);
}

/* A process that ends in good order without destroying anything is gone as well. */
static void death__by_exit(struct end *e)
{
	if (e->wire)
		rc_skip(NO_NEWS);
	struct params p = death_params(e, false);
	rc_start(e, &p);
	for (int i = 0; i < 4; i++)
		rc_recv(e, i, 0, 8);
	meet(e);
	if (e->passive)
		_exit(0);
	for (int i = 0; i < 4; i++)
		rc_expect(e->rcq, i, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
	rc_close(e);
}

static const struct body bodies[] = {
	BODY_IN(death__in_the_middle_of_traffic, PROCESSES_ONLY),
	BODY_IN(death__wakes_a_sleeper, PROCESSES_ONLY),
	BODY_IN(death__of_a_receiver_that_was_not_ready, PROCESSES_ONLY),
	BODY_IN(death__before_the_connection, PROCESSES_ONLY),
	BODY_IN(death__by_exit, PROCESSES_ONLY),
};
RC_MAIN(bodies)
