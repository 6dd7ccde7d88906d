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
	REMOTE_ACCESS = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
};

/* The usual timeouts: a peer that waits for a processor is not stopped yet. */
static struct params stop_params(void)
{
	struct params p = params();
	p.bytes = BYTES;
	p.mr_access |= IBV_ACCESS_MW_BIND;
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

/* ---- windows ---- */

static struct ibv_mw *window; /* of the active process */

static void show_window(struct end *e, uint64_t bytes)
{
	const struct ibv_mw_bind_info info = { e->mr, (uintptr_t)e->buf, bytes, REMOTE_ACCESS };
	struct ibv_mw_bind bind = { .wr_id = 98, .send_flags = IBV_SEND_SIGNALED, .bind_info = info };
	struct ibv_send_wr *bad, wr = {
		.wr_id = 98, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = window, .rkey = ibv_inc_rkey(window->rkey), .bind_info = info },
	};
	if (window->type == IBV_MW_TYPE_1)
		CHECK_EQ(ibv_bind_mw(e->qp, window, &bind), 0);
	else
		CHECK_EQ(ibv_post_send(e->qp, &wr, &bad), 0);
	rc_expect(e->scq, 98, IBV_WC_SUCCESS);
}

/* ---- traffic ---- */

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

/* The peer has the key of the region, or of a window of this type (0: none) that shows all of it. */
static void let_in(struct end *e, unsigned window_type)
{
	if (e->passive) {
		e->peer.rkey = (uint32_t)hear(e);
		return;
	}
	if (window_type) {
		CHECK(window = ibv_alloc_mw(e->pd, window_type));
		show_window(e, BYTES);
	}
	tell(e, window_type ? window->rkey : e->mr->rkey);
}

static void start_round_by(struct end *e, const struct params *p, unsigned window_type)
{
	rc_start(e, p);
	for (int i = 0; i < DEPTH; i++)
		rc_recv(e, i, i * SLOT, SLOT);
	let_in(e, window_type);
	meet(e);
}

static void start_round(struct end *e, const struct params *p) { start_round_by(e, p, 0); }

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

/* ---- what ends what the peer was allowed ---- */

static void deregister(struct end *e)
{
	CHECK_EQ(ibv_dereg_mr(e->mr), 0);
	e->mr = NULL;
}

static void forbid_remote_access(struct end *e)
{
	CHECK_EQ(ibv_rereg_mr(e->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE), 0);
}

/* A window of type 1, of which nothing is left but the first receive. */
static void bind_again(struct end *e) { show_window(e, SLOT); }

static void invalidate(struct end *e)
{
	struct ibv_send_wr *bad, wr = { .wr_id = 97,
					.opcode = IBV_WR_LOCAL_INV,
					.send_flags = IBV_SEND_SIGNALED,
					.invalidate_rkey = window->rkey };
	CHECK_EQ(ibv_post_send(e->qp, &wr, &bad), 0);
	rc_expect(e->scq, 97, IBV_WC_SUCCESS);
}

static void free_window(struct end *e)
{
	if (window)
		CHECK_EQ(ibv_dealloc_mw(window), 0);
	window = NULL;
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
	e->qp = NULL;
}

/* A request that fails stops its queue pair. */
static void fail_request(struct end *e)
{
	POST(e, .id = 99, .opcode = IBV_WR_SEND, .at = OWN, .len = 8, .lkey = e->mr->lkey + 1);
	rc_expect(e->scq, 99, IBV_WC_LOC_PROT_ERR);
}

struct way {
	void (*revoke)(struct end *e);
	bool is_quiet;     /* its own request would wait for this side's requests to the peer */
	bool is_late;      /* the memory stays with a peer until this side's progress comes to it */
	unsigned window;   /* the type of which the peer's key is */
};

static void round_with_stopped_peer(struct end *e, const struct params *p, uint64_t *rng, const struct way *w)
{
	start_round_by(e, p, w->window);
	stop_peer(e, rng, w->is_quiet);
	w->revoke(e);
	if (!w->is_late)
		rc_set(e->buf + TARGET, LONG, 0x5a);
	CHECK(!kill(e->peer_pid, SIGCONT));
	tell(e, 1);
	meet(e);
	if (!w->is_late)
		VERIFY_BYTE(e->buf + TARGET, LONG, 0x5a);
	free_window(e);
	if (!e->mr)
		e->mr = ibv_reg_mr(e->pd, e->buf, 4096, IBV_ACCESS_LOCAL_WRITE);
	if (!e->qp)
		e->qp = rc_make_qp(e);
	rc_finish(e);
}

/* Rounds of this with a peer that is stopped at a random moment, and goes on when it has been done. */
static void with_stopped_peer(struct end *e, struct way w)
{
	unsigned rounds = rc_times(ROUNDS);
	struct params p = stop_params();
	uint64_t rng = rc_hash(e->seed);
	if (e->passive)
		be_stopped(e, rounds);
	else
		while (rounds--)
			round_with_stopped_peer(e, &p, &rng, &w);
}

static void stop__and_deregister(struct end *e) { with_stopped_peer(e, (struct way){ deregister }); }
static void stop__and_reregister(struct end *e)
{
	with_stopped_peer(e, (struct way){ forbid_remote_access });
}
static void stop__and_bind_again(struct end *e)
{
	with_stopped_peer(e, (struct way){ bind_again, .is_quiet = true, .window = IBV_MW_TYPE_1 });
}
static void stop__and_invalidate(struct end *e)
{
	with_stopped_peer(e, (struct way){ invalidate, .is_quiet = true, .window = IBV_MW_TYPE_2 });
}
static void stop__and_free_window_1(struct end *e)
{
	with_stopped_peer(e, (struct way){ free_window, .window = IBV_MW_TYPE_1 });
}
static void stop__and_free_window_2(struct end *e)
{
	with_stopped_peer(e, (struct way){ free_window, .window = IBV_MW_TYPE_2 });
}
static void stop__and_go_to_error(struct end *e) { with_stopped_peer(e, (struct way){ to_error }); }
static void stop__and_reset(struct end *e) { with_stopped_peer(e, (struct way){ to_reset }); }
static void stop__and_destroy(struct end *e) { with_stopped_peer(e, (struct way){ destroy }); }
static void stop__and_fail(struct end *e)
{
	with_stopped_peer(e, (struct way){ fail_request, .is_quiet = true, .is_late = true });
}

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
		let_in(e, 0);
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
	BODY_IN(stop__and_reregister, PROCESSES_ONLY),
	BODY_IN(stop__and_bind_again, PROCESSES_ONLY),
	BODY_IN(stop__and_invalidate, PROCESSES_ONLY),
	BODY_IN(stop__and_free_window_1, PROCESSES_ONLY),
	BODY_IN(stop__and_free_window_2, PROCESSES_ONLY),
	BODY_IN(stop__and_go_to_error, PROCESSES_ONLY),
	BODY_IN(stop__and_reset, PROCESSES_ONLY),
	BODY_IN(stop__and_destroy, PROCESSES_ONLY),
	BODY_IN(stop__and_fail, PROCESSES_ONLY),
	BODY_IN(stop__for_ever, PROCESSES_ONLY),
	BODY_IN(stop__of_a_reader, PROCESSES_ONLY),
};

RC_MAIN(bodies)
