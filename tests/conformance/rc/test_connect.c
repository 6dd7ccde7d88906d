/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections: many, again, at the same time, to oneself, taken down in any order; and processes that fork.
 */
#include "rc.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Sends n bytes each way on qp and checks them. */
static void exchange(struct end *e, struct ibv_qp *qp, uint32_t n, uint64_t seed)
{
	rc_fill(e->buf, n, seed + e->passive);
	CHECK_EQ(rc_post_recv(e, qp, 1, e->p.bytes / 2, n), 0);
	POST(e, .qp = qp, .id = 2, .opcode = IBV_WR_SEND, .len = n);
	CHECK_EQ(rc_expect(e->rcq, 1, IBV_WC_SUCCESS).qp_num, qp->qp_num);
	CHECK_EQ(rc_expect(e->scq, 2, IBV_WC_SUCCESS).qp_num, qp->qp_num);
	VERIFY(e->buf + e->p.bytes / 2, n, seed + !e->passive);
}

/* ---- many, and again ---- */

static void connect__two_hundred(struct end *e)
{
	enum { N = 200 };
	struct params p = params();
	struct ibv_qp *qps[N];
	struct card peers[N];
	p.cqe = 2 * N;
	rc_open(e, &p);
	for (int i = 0; i < N; i++) {
		qps[i] = rc_make_qp(e);
		peers[i] = rc_connect(e, qps[i]);
	}
	/* All at once: a WRITE of its own place on each, and a SEND behind it. */
	for (int i = 0; i < N; i++)
		CHECK_EQ(rc_post_recv(e, qps[i], i, 60000 + i * 8, 8), 0);
	meet(e);
	for (int i = 0; i < N; i++) {
		e->peer = peers[i];
		rc_fill(e->buf + i * 128, 128, e->seed + i);
		POST(e, .qp = qps[i], .id = i, .opcode = IBV_WR_RDMA_WRITE, .at = i * 128, .len = 128,
		     .remote_at = 32768 + i * 128, .quiet = true);
		POST(e, .qp = qps[i], .id = i, .opcode = IBV_WR_SEND, .len = 8);
	}
	for (int i = 0; i < N; i++) {
		struct ibv_wc wc = rc_wait(e->rcq);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.qp_num, qps[wc.wr_id]->qp_num);
		VERIFY(e->buf + 32768 + wc.wr_id * 128, 128, e->seed + wc.wr_id);
		CHECK_EQ(rc_wait(e->scq).status, IBV_WC_SUCCESS);
	}
	meet(e);
	for (int i = 0; i < N; i++)
		CHECK_EQ(ibv_destroy_qp(qps[(i * 7) % N]), 0);
	rc_finish(e);
}

/* Reset in the middle of traffic; nothing of the old connection appears on the new one. */
static void connect__again_and_again(struct end *e)
{
	enum { ROUNDS = 60 };
	struct params p = params();
	uint64_t rng = e->seed + e->passive;
	rc_start(e, &p);
	for (int i = 0; i < ROUNDS; i++) {
		exchange(e, e->qp, 1 + i * 37 % 5000, e->seed + i);
		for (int n = rc_below(&rng, 8); n > 0; n--) {
			POST(e, .id = 99, .opcode = n % 2 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, .len = 64,
			     .remote_at = 60000);
			if (rc_below(&rng, 2))
				rc_recv(e, 98, 62000, 64);
		}
		if (rc_below(&rng, 3) == 0)
			CHECK_EQ(rc_to(e->qp, IBV_QPS_ERR), 0);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
		e->peer = rc_connect(e, e->qp);
	}
	rc_finish(e);
}

/* Everything anew each time, the device too. */
static void connect__from_the_device_on(struct end *e)
{
	for (int i = 0; i < 15; i++) {
		struct params p = params();
		rc_start(e, &p);
		exchange(e, e->qp, 1000, e->seed + i);
		rc_finish(e);
		e->qp = NULL;
	}
}

/* Both ends connect and send at once, without waiting for each other between the states. */
static void connect__both_ends_at_once(struct end *e)
{
	enum { N = 8 };
	struct params p = params();
	struct ibv_qp *qps[N];
	struct card peers[N];
	rc_open(e, &p);
	for (int i = 0; i < N; i++) {
		qps[i] = rc_make_qp(e);
		peers[i] = rc_swap_cards(e, qps[i]);
		CHECK_EQ(rc_to_init(e, qps[i]), 0);
		CHECK_EQ(rc_post_recv(e, qps[i], i, 32768 + i * 1024, 1024), 0);
	}
	meet(e);
	for (int i = 0; i < N; i++) {
		int at = e->passive ? N - 1 - i : i;
		CHECK_EQ(rc_to_rtr(e, qps[at], &peers[at]), 0);
		CHECK_EQ(rc_to_rts(e, qps[at]), 0);
		POST(e, .qp = qps[at], .id = at, .opcode = IBV_WR_SEND, .len = 1024);
	}
	for (int i = 0; i < N; i++) {
		CHECK_EQ(rc_wait(e->rcq).status, IBV_WC_SUCCESS);
		CHECK_EQ(rc_wait(e->scq).status, IBV_WC_SUCCESS);
	}
	meet(e);
	for (int i = 0; i < N; i++)
		CHECK_EQ(ibv_destroy_qp(qps[i]), 0);
	rc_finish(e);
}

/* ---- alone ---- */

/* Both QPs, or the only one, driven by one thread. */
static void alone__by_one_thread(struct end *e)
{
	struct params p = params();
	rc_open(e, &p);
	struct ibv_qp *other = rc_make_qp(e);
	struct { struct ibv_qp *from, *to; } ways[] = { { e->qp, other }, { e->qp, e->qp } };
	for (int way = 0; way < 2; way++) {
		struct ibv_qp *ends[2] = { ways[way].from, ways[way].to };
		for (int i = 0; i < 2; i++) {
			struct card to = { .qpn = ends[!i]->qp_num, .psn = rc_psn(ends[!i], e) };
			CHECK_EQ(ibv_query_gid(e->ctx, 1, 0, &to.gid), 0);
			if (i && ends[0] == ends[1])
				continue;
			CHECK_EQ(rc_to_init(e, ends[i]), 0);
			CHECK_EQ(rc_to_rtr(e, ends[i], &to), 0);
			CHECK_EQ(rc_to_rts(e, ends[i]), 0);
		}
		e->peer = (struct card){ .rkey = e->mr->rkey, .addr = (uintptr_t)e->buf };
		for (int i = 0; i < 50; i++) {
			uint32_t n = 1 + i * 611 % 16000;
			rc_fill(e->buf, n, e->seed + i);
			CHECK_EQ(rc_post_recv(e, ends[1], i, 16384, 16384), 0);
			POST(e, .qp = ends[0], .id = 1, .opcode = IBV_WR_SEND, .len = n);
			rc_expect(e->rcq, i, IBV_WC_SUCCESS);
			rc_expect(e->scq, 1, IBV_WC_SUCCESS);
			VERIFY(e->buf + 16384, n, e->seed + i);
			POST(e, .qp = ends[0], .id = 2, .opcode = IBV_WR_RDMA_WRITE, .len = n,
			     .remote_at = 32768);
			POST(e, .qp = ends[1], .id = 3, .opcode = IBV_WR_RDMA_READ, .at = 49152, .len = n);
			for (int done = 0; done < 2; done++)
				CHECK_EQ(rc_wait(e->scq).status, IBV_WC_SUCCESS);
			VERIFY(e->buf + 32768, n, e->seed + i);
			VERIFY(e->buf + 49152, n, e->seed + i);
		}
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
	}
	CHECK_EQ(ibv_destroy_qp(other), 0);
	rc_close(e);
}

/* ---- destruction ---- */

/* What is in use stays; in the right order everything goes, at once, though the peer goes on sending. */
static void destroy__in_use_is_refused(struct end *e)
{
	struct params p = params();
	p.timeout = 8;
	p.retry_cnt = 1;
	rc_start(e, &p);
	for (int i = 0; i < 30; i++)
		POST(e, .id = i, .opcode = i % 3 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, .len = 2000);
	CHECK_EQ(ibv_destroy_cq(e->scq), EBUSY);
	CHECK_EQ(ibv_destroy_cq(e->rcq), EBUSY);
	CHECK_EQ(ibv_dealloc_pd(e->pd), EBUSY);
	if (e->passive)
		rc_pause_ms(1);
	CHECK_EQ(ibv_destroy_qp(e->qp), 0);
	e->qp = NULL;
	CHECK_EQ(ibv_dealloc_pd(e->pd), EBUSY); /* the region is still there */
	rc_expect_none(e->scq);
	rc_finish(e);
}

/* Destroying a QP removes its unpolled completions from the CQ, successful ones too. Other QPs' stay. */
static void destroy__takes_its_completions_along(struct end *e)
{
	struct params p = params();
	p.channel = true;
	rc_start(e, &p);
	struct ibv_qp *other = rc_make_qp(e);
	struct ibv_cq *cq = e->passive ? e->rcq : e->scq;
	rc_connect(e, other);
	rc_recv(e, 1, 0, 64);
	CHECK_EQ(rc_post_recv(e, other, 2, 64, 64), 0);
	CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
	meet(e);
	if (!e->passive)
		POST(e, .id = 1, .opcode = IBV_WR_SEND, .len = 8);
	rc_expect_cq_event(e, cq); /* so it is there */
	if (!e->passive)
		POST(e, .qp = other, .id = 2, .opcode = IBV_WR_SEND, .len = 8);
	meet(e); /* so that the other end's is there, too */
	CHECK_EQ(ibv_destroy_qp(e->qp), 0);
	e->qp = NULL;
	rc_expect(cq, 2, IBV_WC_SUCCESS);
	rc_expect_none(cq);
	meet(e);
	CHECK_EQ(ibv_destroy_qp(other), 0);
	rc_finish(e);
}

/* Regions may go before their QP, and a QP with requests and completions that nobody took. */
static void destroy__mr_before_qp(struct end *e)
{
	struct params p = params();
	rc_start(e, &p);
	for (int i = 0; i < 10; i++)
		rc_recv(e, i, 1024, 64);
	meet(e);
	for (int i = 0; i < 5; i++)
		POST(e, .id = i, .opcode = IBV_WR_SEND, .len = 64);
	rc_expect(e->rcq, 0, IBV_WC_SUCCESS);
	meet(e);
	CHECK_EQ(ibv_dereg_mr(e->mr), 0);
	CHECK_EQ(ibv_destroy_qp(e->qp), 0);
	e->qp = NULL;
	CHECK(e->mr = ibv_reg_mr(e->pd, e->buf, e->p.bytes, 0));
	rc_finish(e);
}

/* ---- the peer's processor ---- */

static void stop_peer(struct end *e)
{
	int status;
	CHECK_EQ(kill(e->peer_pid, SIGSTOP), 0);
	CHECK_EQ(TEMP_FAILURE_RETRY(waitpid(e->peer_pid, &status, WUNTRACED)), e->peer_pid);
}

static struct params patient_params(void)
{
	struct params p = params();
	p.timeout = 18; /* 1 s, and seven more */
	p.retry_cnt = 7;
	return p;
}

/*
 * The peer's QP is ready, but its process gets no processor before the two have a link, and has not got one
 * that it asked for.
 */
static void connect__to_a_process_that_is_stopped(struct end *e)
{
	struct params p = patient_params();
	rc_open(e, &p);
	e->peer = rc_swap_cards(e, e->qp);
	struct rlimit before = { 0 };
	if (!e->passive)
		before = rc_use_up_descriptors();
	meet(e);
	CHECK_EQ(rc_to_init(e, e->qp), 0);
	if (e->passive) {
		CHECK_EQ(rc_to_rtr(e, e->qp, &e->peer), 0);
		CHECK_EQ(rc_to_rts(e, e->qp), 0);
		rc_recv(e, 1, 0, 8);
		tell(e, 1);
		rc_expect(e->rcq, 1, IBV_WC_SUCCESS);
	} else {
		hear(e);
		stop_peer(e);
		CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
		CHECK_EQ(rc_to_rtr(e, e->qp, &e->peer), 0);
		CHECK_EQ(rc_to_rts(e, e->qp), 0);
		POST(e, .id = 1, .opcode = IBV_WR_SEND, .len = 8);
		rc_pause_ms(100);
		rc_expect_none(e->scq);
		CHECK_EQ(kill(e->peer_pid, SIGCONT), 0);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
	}
	rc_finish(e);
}

/* This end has to choose a way while the other one, which has not chosen, cannot say anything. */
static void connect__while_the_peer_is_stopped(struct end *e)
{
	struct params p = patient_params();
	rc_open(e, &p);
	e->peer = rc_swap_cards(e, e->qp);
	CHECK_EQ(rc_to_init(e, e->qp), 0);
	meet(e);
	if (!e->passive) {
		stop_peer(e);
		CHECK_EQ(rc_to_rtr(e, e->qp, &e->peer), 0);
		CHECK_EQ(kill(e->peer_pid, SIGCONT), 0);
		CHECK_EQ(rc_to_rts(e, e->qp), 0);
		POST(e, .id = 1, .opcode = IBV_WR_SEND, .len = 8);
		tell(e, 1);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
	} else {
		hear(e);
		rc_recv(e, 1, 0, 8);
		CHECK_EQ(rc_to_rtr(e, e->qp, &e->peer), 0);
		CHECK_EQ(rc_to_rts(e, e->qp), 0);
		rc_expect(e->rcq, 1, IBV_WC_SUCCESS);
	}
	rc_finish(e);
}

/* ---- another user ---- */

/*
 * No memory is shared with another user's process: the wire joins the two, of which one has no UDP port of
 * its own.
 */
static void connect__with_another_user(struct end *e)
{
	enum { OTHER_USER = 65533 };
	struct params p = params();
	bool possible = !e->passive || setresuid(OTHER_USER, OTHER_USER, OTHER_USER) == 0;
	if (e->passive)
		tell(e, possible);
	else
		possible = hear(e);
	if (!possible)
		rc_skip("this process cannot become another user");
	rc_start(e, &p);
	for (int i = 0; i < 20; i++)
		exchange(e, e->qp, 1 + i * 1000, e->seed + i);
	rc_finish(e);
}

/* ---- fork ---- */

/* This end with sock in place of its own. */
static struct end beside(const struct end *e, int sock, bool passive)
{
	return (struct end){
		.passive = passive, .sock = sock, .seed = e->seed + 1, .copies_by_link = e->copies_by_link
	};
}

static void talk_to_parent(const struct end *e, int sock)
{
	struct end mine = beside(e, sock, true);
	struct params p = params();
	rc_start(&mine, &p);
	for (int i = 0; i < 30; i++)
		exchange(&mine, mine.qp, 2000, mine.seed + i);
	rc_finish(&mine);
	_exit(0);
}

/* The child opens a device of its own and talks to its parent, who goes on talking to its peer. */
static void fork__child_talks_to_its_parent(struct end *e)
{
	struct params p = params();
	int pair[2];
	rc_start(e, &p);
	exchange(e, e->qp, 100, e->seed);
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
	pid_t pid = e->passive ? 0 : fork();
	CHECK(pid >= 0);
	if (!pid && !e->passive) {
		close(pair[0]);
		talk_to_parent(e, pair[1]);
	}
	if (!e->passive) {
		struct end child = beside(e, pair[0], false);
		rc_start(&child, &p);
		for (int i = 0; i < 30; i++) {
			exchange(&child, child.qp, 2000, child.seed + i);
			exchange(e, e->qp, 100 + i, e->seed + i);
		}
		rc_finish(&child);
		CHECK_EQ(rc_reap(pid), 0);
	} else {
		for (int i = 0; i < 30; i++)
			exchange(e, e->qp, 100 + i, e->seed + i);
	}
	exchange(e, e->qp, 100, e->seed);
	rc_finish(e);
}

/*
 * Children that touch nothing, whenever they come and go, change nothing for their parent: also not what is
 * registered.
 */
static void fork__parent_goes_on(struct end *e)
{
	struct params p = params();
	pid_t children[8];
	CHECK_EQ(ibv_fork_init(), 0);
	rc_start(e, &p);
	for (int i = 0; i < 8; i++) {
		children[i] = e->passive ? 0 : fork();
		if (!children[i] && !e->passive) {
			rc_pause_ms(i);
			rc_set(e->buf, 4096, 0xcc);
			_exit(0);
		}
		for (int n = 0; n < 10; n++)
			exchange(e, e->qp, 3000, e->seed + i * 10 + n);
	}
	for (int i = 0; !e->passive && i < 8; i++)
		CHECK_EQ(rc_reap(children[i]), 0);
	exchange(e, e->qp, 3000, e->seed);
	rc_finish(e);
}

/* A child that outlives its parent does not keep the parent's connections alive. */
static void fork__orphans_hold_no_connection(struct end *e)
{
	struct params p = params();
	if (e->wire)
		rc_skip("a wire tells nothing of a process's end");
	p.timeout = 0;
	rc_peer_may_die = true;
	rc_start(e, &p);
	exchange(e, e->qp, 100, e->seed);
	rc_recv(e, 7, 0, 8);
	if (e->passive) {
		char byte;
		pid_t child = fork();
		CHECK(child >= 0);
		if (!child) { /* until the active end has gone */
			while (read(e->sock, &byte, 1) > 0)
				;
			_exit(0);
		}
		tell(e, 1);
		raise(SIGKILL);
	}
	hear(e);
	rc_expect(e->rcq, 7, IBV_WC_WR_FLUSH_ERR);
	rc_close(e);
}

static const struct body bodies[] = {
	BODY(connect__two_hundred),
	BODY(connect__again_and_again),
	BODY(connect__from_the_device_on),
	BODY(connect__both_ends_at_once),
	BODY_IN(alone__by_one_thread, ALONE),
	BODY(destroy__in_use_is_refused),
	BODY(destroy__takes_its_completions_along),
	BODY(destroy__mr_before_qp),
	BODY_IN(connect__to_a_process_that_is_stopped, PROCESSES_ONLY),
	BODY_IN(connect__while_the_peer_is_stopped, PROCESSES_ONLY),
	BODY_IN(connect__with_another_user, PROCESSES_ONLY),
	BODY_IN(fork__child_talks_to_its_parent, PROCESSES_ONLY),
	BODY_IN(fork__parent_goes_on, PROCESSES_ONLY),
	BODY_IN(fork__orphans_hold_no_connection, PROCESSES_ONLY),
};
RC_MAIN(bodies)
