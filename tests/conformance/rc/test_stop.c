/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers that are stopped, by SIGSTOP as a debugger or a freezer would: whatever they were doing, this side's
 * calls return, and once these have, nothing comes any more. The passive process is the one that is stopped,
 * at random moments of traffic in both directions.
 */
#include "rc.h"

#include <signal.h>
#include <unistd.h>

enum {
	ROUNDS = 24, DEPTH = 16, SLOT = 64 * 1024, LONG = 3 << 20,
	TARGET = DEPTH * SLOT, /* behind the receives: what the peer writes and reads, */
	OWN = TARGET + LONG,   /* and what this side sends and fetches */
	BYTES = OWN + 2 * LONG,
	MAX_DELAY_US = 8000, LATE_LOOKS = 500,
	WHOLE = 60000, /* bytes that are all on their way before anybody takes some */
};

/* The usual timeouts: a peer that waits for a processor is not stopped yet. */
static struct params stop_params(void)
{
	struct params p = params();
	p.bytes = BYTES;
	return p;
}

/* Where a request may be left without an answer. */
static struct params short_params(const struct end *e)
{
	struct params p = stop_params();
	p.timeout = e->wire ? 12 : 14;
	p.retry_cnt = 2;
	return p;
}

/* Requests of all kinds and sizes, as many as the queue takes. */
static void post_some(struct end *e, uint64_t *rng, unsigned *in_flight)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE, IBV_WR_SEND,
						      IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD };
	while (*in_flight < DEPTH) {
		enum ibv_wr_opcode opcode = opcodes[rc_below(rng, 5)];
		bool fetches = opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
		uint32_t n = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD     ? 8 :
			     opcode == IBV_WR_SEND || rc_below(rng, 2) ? 1 + rc_below(rng, SLOT) :
									 LONG;
		if (rc_post(e, &(struct op){ .id = *in_flight,
					     .opcode = opcode,
					     .at = fetches ? OWN + LONG : OWN,
					     .len = n,
					     .remote_at = TARGET }))
			return;
		++*in_flight;
	}
}

/* One look at both queues; false: an error has come. */
static bool take_some(struct end *e, unsigned *in_flight)
{
	struct ibv_wc wc;
	while (ibv_poll_cq(e->scq, 1, &wc) == 1) {
		if (wc.status != IBV_WC_SUCCESS)
			return false;
		--*in_flight;
	}
	while (ibv_poll_cq(e->rcq, 1, &wc) == 1) {
		if (wc.status != IBV_WC_SUCCESS)
			return false;
		rc_recv(e, wc.wr_id, wc.wr_id * SLOT, SLOT);
	}
	return true;
}

static void start_round(struct end *e, const struct params *p)
{
	rc_start(e, p);
	for (int i = 0; i < DEPTH; i++)
		rc_recv(e, i, i * SLOT, SLOT);
	meet(e);
}

/*
 * Traffic until the connection ends, or this process has run for a while after it was stopped: what waits for
 * a receive has no end.
 */
static void be_stopped(struct end *e, unsigned rounds)
{
	struct params p = stop_params();
	uint64_t rng = rc_hash(e->seed);
	while (rounds--) {
		unsigned in_flight = 0, late = 0;
		start_round(e, &p);
		do {
			post_some(e, &rng, &in_flight);
			late += rc_readable(e->sock, 0);
		} while (late < LATE_LOOKS && take_some(e, &in_flight));
		hear(e);
		meet(e);
		rc_finish(e);
	}
}

/* What this side has sent by then is without an answer, unless it is quiet. */
static void stop_peer(struct end *e, uint64_t *rng, bool is_quiet)
{
	unsigned in_flight = 0;
	uint64_t post_rng = rc_random(rng);
	for (uint32_t looks = rc_below(rng, 2000); looks; looks--) {
		if (!is_quiet)
			post_some(e, &post_rng, &in_flight);
		CHECK(take_some(e, &in_flight));
	}
	usleep(rc_below(rng, MAX_DELAY_US));
	CHECK(!kill(e->peer_pid, SIGSTOP));
}

/* What ends what the peer was allowed. */
static void deregister(struct end *e)
{
	CHECK_EQ(ibv_dereg_mr(e->mr), 0);
}

static void to_error(struct end *e)
{
	CHECK_EQ(rc_to(e->qp, IBV_QPS_ERR), 0);
}

static void to_reset(struct end *e)
{
	CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
}

static void destroy(struct end *e)
{
	CHECK_EQ(ibv_destroy_qp(e->qp), 0);
}

/* A request that fails stops its queue pair. */
static void fail_request(struct end *e)
{
	POST(e, .id = 99, .opcode = IBV_WR_SEND, .at = OWN, .len = 8, .lkey = e->mr->lkey + 1);
	rc_expect(e->scq, 99, IBV_WC_LOC_PROT_ERR);
}

/* Rounds of this with a peer that is stopped at a random moment, and goes on when it has been done. */
static void with_stopped_peer(struct end *e, void (*revoke)(struct end *e))
{
	unsigned rounds = rc_times(ROUNDS);
	struct params p = stop_params();
	uint64_t rng = rc_hash(e->seed);
	/* where its memory stays with a peer until this side's progress comes to it */
	bool is_final = revoke != fail_request;
	if (e->passive) {
		be_stopped(e, rounds);
		return;
	}
	while (rounds--) {
		start_round(e, &p);
		stop_peer(e, &rng, revoke == fail_request);
		revoke(e);
		if (is_final)
			rc_set(e->buf + TARGET, LONG, 0x5a);
		CHECK(!kill(e->peer_pid, SIGCONT));
		tell(e, 1);
		meet(e);
		if (is_final)
			VERIFY_BYTE(e->buf + TARGET, LONG, 0x5a);
		if (revoke == deregister)
			e->mr = ibv_reg_mr(e->pd, e->buf, 4096, IBV_ACCESS_LOCAL_WRITE);
		if (revoke == destroy)
			e->qp = rc_make_qp(e);
		rc_finish(e);
	}
}

static void stop__and_deregister(struct end *e) { with_stopped_peer(e, deregister); }
static void stop__and_go_to_error(struct end *e) { with_stopped_peer(e, to_error); }
static void stop__and_reset(struct end *e) { with_stopped_peer(e, to_reset); }
static void stop__and_destroy(struct end *e) { with_stopped_peer(e, destroy); }
static void stop__and_fail(struct end *e) { with_stopped_peer(e, fail_request); }

/* Nobody lets it go on: it is killed at last. */
static void stop__for_ever(struct end *e)
{
	struct params p = stop_params();
	uint64_t rng = rc_hash(e->seed);
	if (e->passive) {
		be_stopped(e, 1);
		return;
	}
	rc_peer_may_die = true;
	start_round(e, &p);
	stop_peer(e, &rng, false);
	deregister(e);
	to_error(e);
	e->mr = ibv_reg_mr(e->pd, e->buf, 4096, IBV_ACCESS_LOCAL_WRITE);
	CHECK(e->mr != NULL);
	rc_close(e);
	CHECK(!kill(e->peer_pid, SIGKILL));
}

/* A process that is stopped makes no link, and on a wire it sends no ACK: it is one that does not answer. */
static void stop__before_the_connection(struct end *e)
{
	struct params p = short_params(e);
	rc_peer_may_die = true;
	rc_open(e, &p);
	struct card peer = rc_swap_cards(e, e->qp);
	if (e->passive) {
		hear(e);
		return;
	}
	CHECK(!kill(e->peer_pid, SIGSTOP));
	CHECK_EQ(rc_to_init(e, e->qp), 0);
	CHECK_EQ(rc_to_rtr(e, e->qp, &peer), 0);
	CHECK_EQ(rc_to_rts(e, e->qp), 0);
	POST(e, .id = 1, .opcode = IBV_WR_SEND, .len = 8);
	rc_expect(e->scq, 1, IBV_WC_RETRY_EXC_ERR);
	CHECK(!kill(e->peer_pid, SIGKILL));
	rc_close(e);
}

static bool is_stopped(int pid)
{
	char path[64], state = 0;
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	FILE *f = fopen(path, "re");
	CHECK(f && fscanf(f, "%*d %*s %c", &state) == 1);
	fclose(f);
	return state == 'T';
}

/* What has been read is right, or has not been read. */
static void read_and_stop(struct end *e)
{
	struct params p = short_params(e);
	start_round(e, &p);
	POST(e, .id = 1, .opcode = IBV_WR_RDMA_READ, .at = OWN, .len = WHOLE, .remote_at = TARGET);
	CHECK(!raise(SIGSTOP));
	struct ibv_wc wc = rc_wait(e->scq);
	CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_RETRY_EXC_ERR);
	if (wc.status == IBV_WC_SUCCESS)
		VERIFY(e->buf + OWN, WHOLE, 1);
	meet(e);
	rc_finish(e);
}

/*
 * Once its READ has been answered, and before it has looked, the queue pair that answered goes, and others
 * come.
 */
static void stop__of_a_reader(struct end *e)
{
	unsigned rounds = rc_times(ROUNDS);
	for (; e->passive && rounds; rounds--)
		read_and_stop(e);
	for (; rounds; rounds--) {
		struct params p = short_params(e);
		rc_start(e, &p);
		rc_fill(e->buf + TARGET, WHOLE, 1);
		meet(e);
		while (!is_stopped(e->peer_pid))
			rc_expect_none(e->scq);
		rc_pause_ms(5);
		CHECK_EQ(ibv_destroy_qp(e->qp), 0);
		e->qp = rc_make_qp(e);
		CHECK(!kill(e->peer_pid, SIGCONT));
		meet(e);
		rc_finish(e);
	}
}

static const struct body bodies[] = {
	BODY_IN(stop__before_the_connection, PROCESSES_ONLY),
	BODY_IN(stop__and_deregister, PROCESSES_ONLY),
	BODY_IN(stop__and_go_to_error, PROCESSES_ONLY),
	BODY_IN(stop__and_reset, PROCESSES_ONLY),
	BODY_IN(stop__and_destroy, PROCESSES_ONLY),
	BODY_IN(stop__and_fail, PROCESSES_ONLY),
	BODY_IN(stop__for_ever, PROCESSES_ONLY),
	BODY_IN(stop__of_a_reader, PROCESSES_ONLY),
};

RC_MAIN(bodies)
