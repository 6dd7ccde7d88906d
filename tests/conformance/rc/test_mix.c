/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random traffic (mix.h) between two ends that wait in ever other ways. What is posted, received and
 * completed is compared with the plan one by one; a wake-up that is lost stalls, and then each end says what
 * it waits for.
 *
 * VERBATIM_TEST_MIX=n: so many seeds on each path, from VERBATIM_TEST_SEED on. A stall of ends that poll is
 * seen on a quiet machine alone: a poller that has no processor for some milliseconds is missed by the
 * progress thread, which then looks at everything.
 */
#include "mix_run.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { SEEDS = 20, STALL_S = 60 };

#define WAYS(X) X(SPIN) X(YIELD) X(NAP) X(BLOCK) X(POLL) X(WATCH_MEMORY)
#define WAY(name) name,
enum way { WAYS(WAY) WAY_COUNT };

struct worker {
	struct party *p;
	unsigned nth;
	uint64_t random;
	pthread_t thread;
};

/* ---- stalls ---- */

static struct party *parties[2];
atomic_ulong mix_steps;

static void tell_side(const struct party *p, const struct side *s)
{
	char line[400];
	const struct act *next = &s->out->act[s->done],
			 *in = s->taken < s->in->nmessages ? &s->in->act[s->in->message[s->taken]] : NULL;
	const char *doing = s->done < s->out->n ? kinds[next->kind].name : "-",
		   *quiet = s->done < s->out->n && next->quiet ? ", quiet" : "";
	int n = snprintf(
		line, sizeof(line),
		"#   queue pair %u (0x%x): of %u acts %u posted, %u done (%s%s); of %u messages %u receives, "
		"%u taken (%s)%s\n",
		nth_of(p, s), s->qp->qp_num, s->out->n, s->posted, s->done, doing, quiet, s->in->nmessages,
		s->given, s->taken, in ? kinds[in->kind].name : "-", s->draining ? ", draining" : "");
	(void)!write(STDERR_FILENO, line, n);
}

void mix_tell(const struct party *p)
{
	char line[200];
	int n = snprintf(line, sizeof(line), "# %s end, seed %llu, phase %u of %u:\n",
			 p->e->passive ? "passive" : "active", (unsigned long long)p->e->seed, p->m->nth,
			 p->m->phases);
	(void)!write(STDERR_FILENO, line, n);
	for (unsigned q = 0; p->m->nth && q < p->m->qps; q++)
		tell_side(p, &p->side[q]);
}

static void look_for_stall(int signal)
{
	static unsigned long seen;
	unsigned long now = atomic_load(&mix_steps);
	alarm(STALL_S * (SANITIZED ? 3 : 1));
	if (now != seen) {
		seen = now;
		return;
	}
	for (int i = 0; i < 2; i++)
		if (parties[i])
			mix_tell(parties[i]);
	sleep(3); /* for the other process */
	rc_fail(__FILE__, __LINE__, "it goes on");
}

/* ---- a group's turn; its lock is held ---- */

static bool is_of(const struct party *p, const struct side *s, const struct group *g)
{
	return &p->group[s->plan->group] == g;
}

static bool is_through(const struct side *s)
{
	bool all = s->posted == s->out->n && s->taken == s->in->nmessages && !s->draining;
	for (unsigned i = s->done; all && i < s->out->n; i++)
		all = s->out->act[i].quiet || s->out->act[i].kind == DRAIN;
	return all;
}

#define FOR_SIDES(s, p, g) \
	for (struct side *s = (p)->side; s < (p)->side + (p)->m->qps; s++) \
		if (is_of(p, s, g))

static bool post_in_turn(struct worker *w, struct side *s)
{
	struct party *p = w->p;
	bool any = false;
	if (s->draining)
		mix_look_whether_drained(p, s);
	if (mix_may_give(s)) {
		any = true;
		for (unsigned n = rc_below(&w->random, p->eagerness) ? 0 : 1 + rc_below(&w->random, 4);
		     n && mix_may_give(s); n--)
			mix_give(p, s);
	}
	if (!mix_may_post(s, s->posted, 0))
		return any;
	if (rc_below(&w->random, p->eagerness))
		return true;
	if (s->out->act[s->posted].kind == DRAIN)
		mix_drain(p, s, rc_below(&w->random, 2));
	else
		mix_post(p, s, 1 + (rc_below(&w->random, 2) ? rc_below(&w->random, MIX_BATCH) : 0),
			 rc_below(&w->random, 2));
	atomic_fetch_add(&mix_steps, 1);
	return true;
}

static bool poll_in_turn(struct worker *w, struct group *g)
{
	struct party *p = w->p;
	struct ibv_wc wc[MIX_BATCH];
	bool any = false;
	for (unsigned c = 0; c < p->plan->cqs; c++) {
		int n = ibv_poll_cq(g->cq[c], 1 + (int)rc_below(&w->random, MIX_BATCH), wc);
		MUST(p, n >= 0);
		for (int i = 0; i < n; i++)
			mix_take(p, g, c, &wc[i]);
		any |= n > 0;
	}
	if (any)
		atomic_fetch_add(&mix_steps, 1);
	return any;
}

/* False: all that is left is to wait. */
static bool take_turn(struct worker *w, struct group *g)
{
	bool any = false, is_over = true;
	FOR_SIDES (s, w->p, g)
		any |= post_in_turn(w, s);
	any |= poll_in_turn(w, g);
	FOR_SIDES (s, w->p, g)
		is_over &= is_through(s);
	atomic_store(&g->is_over, is_over);
	return any || is_over;
}

/* ---- waiting ---- */

/*
 * Whether something of the peer's comes without any more from this group: its act, in a direction whose
 * receives are all there.
 */
static bool comes(const struct side *s, const struct act *a) { return !s->plan->srq && a->after <= s->told; }

/* All that these queue pairs have to do is posted: so nobody waits for their threads. */
static bool is_all_posted(const struct party *p, const struct group *g)
{
	for (const struct side *s = p->side; s < p->side + p->m->qps; s++)
		if (is_of(p, s, g) &&
		    (s->posted < s->out->n || s->draining || s->plan->srq || s->given < s->in->nmessages))
			return false;
	return true;
}

static bool will_be_solicited(struct party *p, const struct group *g, unsigned cq)
{
	if (!is_all_posted(p, g))
		return false;
	FOR_SIDES (s, p, g)
		for (unsigned i = s->taken; s->plan->rcq == cq && i < s->in->nmessages; i++)
			if (s->in->act[s->in->message[i]].solicited &&
			    comes(s, &s->in->act[s->in->message[i]]))
				return true;
	return false;
}

/* True: there is nothing to wait for yet. */
static bool arm(struct worker *w, struct group *g)
{
	for (unsigned c = 0; c < w->p->plan->cqs; c++)
		MUST_EQ(w->p,
			ibv_req_notify_cq(g->cq[c], rc_below(&w->random, 2) && will_be_solicited(w->p, g, c)),
			0);
	return take_turn(w, g);
}

static void take_cq_event(struct party *p, struct group *g)
{
	struct ibv_cq *cq;
	void *context;
	if (ibv_get_cq_event(g->channel, &cq, &context))
		MUST(p, errno == EINTR || errno == EAGAIN);
	else
		ibv_ack_cq_events(cq, 1);
}

enum { TAIL = 8 }; /* bytes, which no older data have by chance */

static bool has_arrived(const uint8_t *end, const uint8_t *wanted_end)
{
	for (int i = 1; i <= TAIL; i++)
		if (rc_byte(end - i) != wanted_end[-i])
			return false;
	return true;
}

/* The last WRITE of a direction, which arrives without any more calls of this end. */
static void watch_memory(struct party *p, struct group *g)
{
	static _Thread_local uint8_t wanted[100000];
	FOR_SIDES (s, p, g) {
		const struct act *a = NULL;
		for (unsigned i = s->seen; i < s->in->n; i++)
			if (s->in->act[i].kind == WRITE && s->in->act[i].len >= TAIL &&
			    comes(s, &s->in->act[i]))
				a = &s->in->act[i];
		if (!a)
			continue;
		rc_fill(wanted, a->len, a->seed);
		while (!has_arrived(p->e->buf + a->to + a->len, wanted + a->len))
			;
		mix_verify(p, a->to, a->len, a->seed);
		return;
	}
}

static bool serves(const struct worker *w, unsigned group)
{
	return w->p->plan->shares || group % w->p->plan->threads == w->nth;
}

/* The groups that nobody else looks at; NULL-terminated. */
static unsigned groups_of(struct worker *w, struct group *groups[MIX_GROUPS])
{
	unsigned n = 0;
	for (unsigned g = 0; g < w->p->plan->groups; g++)
		if (serves(w, g) && !atomic_load(&w->p->group[g].is_over))
			groups[n++] = &w->p->group[g];
	return n;
}

static void sleep_in_poll(struct worker *w, struct group *const *groups, unsigned n, bool is_alone)
{
	struct pollfd fds[MIX_GROUPS + 1] = { { .fd = w->p->e->ctx->async_fd, .events = POLLIN } };
	for (unsigned i = 0; i < n; i++) {
		fds[i + 1] = (struct pollfd){ .fd = groups[i]->channel->fd, .events = POLLIN };
		pthread_mutex_lock(&groups[i]->lock);
		bool more = arm(w, groups[i]);
		pthread_mutex_unlock(&groups[i]->lock);
		if (more)
			return;
	}
	poll(fds, n + 1, is_alone ? -1 : 2);
	/* so that the call does not wait, whoever else looks at the channel */
	for (unsigned i = 0; i < n; i++)
		if (is_alone && (fds[i + 1].revents & POLLIN))
			take_cq_event(w->p, groups[i]);
}

static void sleep_in_call(struct worker *w, struct group *g)
{
	pthread_mutex_lock(&g->lock);
	bool more = arm(w, g);
	pthread_mutex_unlock(&g->lock);
	if (!more)
		take_cq_event(w->p, g);
}

/*
 * There was nothing to be done. Without an end only where it is this thread alone that anything would wait
 * for.
 */
static void wait_somehow(struct worker *w)
{
	struct party *p = w->p;
	struct group *groups[MIX_GROUPS];
	unsigned n = groups_of(w, groups);
	bool is_alone = !(p->plan->shares && p->plan->threads > 1) && !atomic_load(&p->draining);
	enum way way = p->sticks_to_it || rc_below(&w->random, 8) ? (enum way)p->way :
								    (enum way)rc_below(&w->random, WAY_COUNT);
	switch (way) {
	case SPIN:
		break;
	case YIELD:
		sched_yield();
		break;
	case NAP:
		usleep(rc_below(&w->random, rc_below(&w->random, 10) ? 100 : 3000));
		break;
	case BLOCK:
		if (n == 1 && is_alone)
			sleep_in_call(w, groups[0]);
		break;
	case POLL:
		if (n)
			sleep_in_poll(w, groups, n, is_alone);
		break;
	case WATCH_MEMORY:
		if (n == 1 && is_alone && is_all_posted(p, groups[0]))
			watch_memory(p, groups[0]);
		break;
	case WAY_COUNT:
		break;
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct group *groups[MIX_GROUPS];
	for (unsigned n; (n = groups_of(w, groups));) {
		bool any = false;
		for (unsigned i = 0; i < n; i++) {
			if (pthread_mutex_trylock(&groups[i]->lock))
				continue;
			any |= take_turn(w, groups[i]);
			pthread_mutex_unlock(&groups[i]->lock);
		}
		if (!any)
			wait_somehow(w);
	}
	return NULL;
}

/* ---- phases ---- */

static void connect_side(struct party *p, struct side *s)
{
	p->e->peer = rc_connect(p->e, s->qp);
	s->places = s->carried = 0;
	MUST(p, s->own = ibv_alloc_mw(p->e->pd, IBV_MW_TYPE_2));
	MUST(p, s->lent = ibv_alloc_mw(p->e->pd, IBV_MW_TYPE_2));
	s->own_rkey = s->own->rkey;
	s->lent_rkey = 0;
}

static void free_windows(struct side *s)
{
	CHECK_EQ(ibv_dealloc_mw(s->own), 0);
	CHECK_EQ(ibv_dealloc_mw(s->lent), 0);
}

static void reconnect(struct party *p, struct side *s)
{
	CHECK_EQ(rc_to(s->qp, IBV_QPS_RESET), 0);
	free_windows(s);
	meet(p->e);
	connect_side(p, s);
}

/* The window that the peer may write through in this phase, and end. */
static void lend(struct party *p, struct side *s)
{
	if (s->lent_rkey)
		return;
	s->lent_rkey = ibv_inc_rkey(s->lent->rkey);
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = s->lent, .rkey = s->lent_rkey, .bind_info = mix_own_window(p) },
	};
	MUST_EQ(p, ibv_post_send(s->qp, &wr, &bad), 0);
	MUST_EQ(p, rc_expect(p->group[s->plan->group].cq[s->plan->scq], 0, IBV_WC_SUCCESS).qp_num,
		s->qp->qp_num);
	s->places = s->carried = 0;
}

/* What the courses find in this end's buffer. */
static void fill(struct party *p)
{
	uint8_t *buf = p->e->buf;
	for (struct side *s = p->side; s < p->side + p->m->qps; s++) {
		rc_set_word(buf + s->in->word, 0);
		for (const struct act *a = s->out->act; a < s->out->act + s->out->n; a++)
			if (kinds[a->kind].is & PAYLOAD)
				rc_fill(buf + a->at, a->len, a->seed);
		for (const struct act *a = s->in->act; a < s->in->act + s->in->n; a++)
			if (a->kind == READ && !a->again)
				rc_fill(buf + a->to, a->len, a->seed);
	}
	rc_set_word(buf + p->m->tally_at[d_of(p)], 0);
}

static void begin_phase(struct party *p)
{
	struct mix *m = p->m;
	unsigned d = d_of(p);
	for (unsigned q = 0; q < m->qps; q++) {
		struct side *s = &p->side[q];
		s->carried = s->places;
		s->out = &m->course[q][d];
		s->in = &m->course[q][!d];
		s->posted = s->done = s->told = s->given = s->taken = s->seen = 0;
		if (m->reset[q])
			reconnect(p, s);
		lend(p, s);
	}
	fill(p);
	for (unsigned q = 0; q < m->qps; q++)
		tell(p->e, p->side[q].lent_rkey);
	for (unsigned q = 0; q < m->qps; q++)
		p->side[q].peers_rkey = (uint32_t)hear(p->e);
	for (unsigned g = 0; g < p->plan->groups; g++)
		atomic_store(&p->group[g].is_over, false);
	static const unsigned eagerness[] = { 1, 1, 3, 40 };
	p->eagerness = m->hot ? 1 : eagerness[rc_below(&p->random, 4)];
	p->way = m->hot ? SPIN : rc_below(&p->random, WAY_COUNT);
	p->sticks_to_it = m->hot || rc_below(&p->random, 2);
	p->srq_given = 0;
	memset(p->srq_used, 0, sizeof(p->srq_used));
	if (!rc_below(&p->random, 4))
		rc_pause_ms(rc_below(&p->random, 5));
	mix_give_shared(p, p->plan->srq_depth);
}

static void run_phase(struct party *p)
{
	struct worker worker[MIX_GROUPS];
	for (unsigned i = 0; i < p->plan->threads; i++) {
		worker[i] = (struct worker){ .p = p, .nth = i, .random = rc_random(&p->random) };
		if (i)
			CHECK(!pthread_create(&worker[i].thread, NULL, work, &worker[i]));
	}
	work(&worker[0]);
	for (unsigned i = 1; i < p->plan->threads; i++)
		pthread_join(worker[i].thread, NULL);
}

/* A program that polls all the time does so until the other end is through, too. */
static void poll_on(struct party *p)
{
	while (p->m->hot && !rc_readable(p->e->sock, 0))
		for (unsigned c = 0; c < p->plan->groups * p->plan->cqs; c++)
			rc_expect_none(p->group[c / p->plan->cqs].cq[c % p->plan->cqs]);
}

/* Both ends are through: all is there, and nothing else. */
static void end_phase(struct party *p)
{
	for (struct side *s = p->side; s < p->side + p->m->qps; s++) {
		if (s->in->n)
			mix_check_writes(p, s, s->in->n - 1);
		for (const struct act *a = s->in->act; a < s->in->act + s->in->n; a++)
			if (a->kind == SEND_INV)
				s->lent_rkey = 0;
	}
	MUST_EQ(p, rc_word(p->e->buf + p->m->tally_at[d_of(p)]), p->m->counter[d_of(p)]);
	for (unsigned g = 0; g < p->plan->groups; g++)
		for (unsigned c = 0; c < p->plan->cqs; c++)
			rc_expect_none(p->group[g].cq[c]);
	atomic_fetch_add(&mix_steps, 1);
}

/* ---- one seed ---- */

static void make_side(struct party *p, struct side *s)
{
	struct group *g = &p->group[s->plan->group];
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC, .send_cq = g->cq[s->plan->scq], .recv_cq = g->cq[s->plan->rcq],
		.srq = s->plan->srq ? p->e->srq : NULL,
		.pd = p->e->pd, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.cap = { .max_send_wr = s->plan->sends, .max_recv_wr = s->plan->recvs,
		.max_send_sge = MIX_PIECES, .max_recv_sge = MIX_PIECES,
			 .max_inline_data = s->plan->inline_bytes },
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
		IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				  	IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
				  IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
				  	IBV_QP_EX_WITH_SEND_WITH_INV,
	};
	MUST(p, s->qp = ibv_create_qp_ex(p->e->ctx, &attr));
}

static void open_party(struct party *p)
{
	struct params params_ = params();
	params_.bytes = MIX_BYTES;
	params_.mr_access |= IBV_ACCESS_MW_BIND;
	params_.srq_wr = p->plan->srq_depth;
	params_.timeout = 17;
	params_.min_rnr_timer = 1;
	params_.max_rd_atomic = params_.max_dest_rd_atomic = (uint8_t)p->m->depth;
	rc_open(p->e, &params_);
	for (unsigned g = 0; g < p->plan->groups; g++) {
		pthread_mutex_init(&p->group[g].lock, NULL);
		MUST(p, p->group[g].channel = ibv_create_comp_channel(p->e->ctx));
		for (unsigned c = 0; c < p->plan->cqs; c++)
			MUST(p, p->group[g].cq[c] = ibv_create_cq(p->e->ctx, MIX_QPS * 2 * MIX_SENDS, NULL,
								  p->group[g].channel, 0));
	}
	for (unsigned q = 0; q < p->m->qps; q++) {
		p->side[q].plan = &p->plan->qp[q];
		make_side(p, &p->side[q]);
		connect_side(p, &p->side[q]);
	}
}

static void close_party(struct party *p)
{
	for (unsigned q = 0; q < p->m->qps; q++) {
		free_windows(&p->side[q]);
		CHECK_EQ(ibv_destroy_qp(p->side[q].qp), 0);
	}
	for (unsigned g = 0; g < p->plan->groups; g++) {
		for (unsigned c = 0; c < p->plan->cqs; c++)
			CHECK_EQ(ibv_destroy_cq(p->group[g].cq[c]), 0);
		CHECK_EQ(ibv_destroy_comp_channel(p->group[g].channel), 0);
	}
	rc_close(p->e);
}

static void play(struct end *e, struct mix *m)
{
	struct party *p = calloc(1, sizeof(*p));
	CHECK(p);
	mix_start(m, e->seed);
	atomic_fetch_add(&mix_steps, 1);
	*p = (struct party){
		.e = e, .m = m, .plan = &m->end[e->passive], .random = rc_hash(e->seed * 2 + e->passive)
	};
	pthread_mutex_init(&p->srq_lock, NULL);
	pthread_mutex_init(&p->events_lock, NULL);
	open_party(p);
	parties[e->passive] = p;
	for (unsigned i = 0; i < m->phases; i++) {
		mix_next(m);
		begin_phase(p);
		run_phase(p);
		tell(e, i);
		poll_on(p);
		CHECK_EQ(hear(e), i);
		end_phase(p);
		meet(e);
	}
	parties[e->passive] = NULL;
	close_party(p);
	free(p);
	meet(e);
}

static void traffic(struct end *e)
{
	const char *asked = getenv("VERBATIM_TEST_MIX");
	unsigned long seeds = asked ? strtoul(asked, NULL, 0) : rc_times(SEEDS);
	struct mix *m = malloc(sizeof(*m));
	CHECK(m);
	sigaction(SIGALRM, &(struct sigaction){ .sa_handler = look_for_stall, .sa_flags = SA_RESTART }, NULL);
	alarm(STALL_S);
	for (unsigned long i = 0; i < seeds; i++, e->seed++)
		play(e, m);
	free(m);
}

static const struct body bodies[] = {
	BODY(traffic),
};
RC_MAIN(bodies)
