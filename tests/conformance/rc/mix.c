/* SPDX-License-Identifier: BSD-2-Clause */
#include "mix.h"

#include "rc.h"

#define MIX_FACTS(kind, ...) [kind] = { #kind, __VA_ARGS__ },
const struct kind_facts kinds[KINDS] = { MIX_KINDS(MIX_FACTS) };

/* What a phase does to one queue pair; most have a character of their own. */
struct mood {
	unsigned acts;
	unsigned weight[KINDS];
	unsigned quiet, replies, fences, solicited; /* in a hundred */
	unsigned sizes;      /* the higher, the larger */
	bool alternates;     /* one end, then the other */
	unsigned windows[2]; /* 1: the end's own is bound now */
	bool lent[2];        /* the end's, to the other */
	uint64_t word[2];    /* what ADD and SWAP have led to */
};

static unsigned below(struct mix *m, unsigned limit) { return rc_below(&m->random, limit); }
static bool chance(struct mix *m, unsigned percent) { return below(m, 100) < percent; }
static unsigned one_of(struct mix *m, const unsigned *values, unsigned n) { return values[below(m, n)]; }
#define ONE_OF(m, ...) \
	one_of(m, (const unsigned[]){ __VA_ARGS__ }, sizeof((unsigned[]){ __VA_ARGS__ }) / sizeof(unsigned))

/* ---- queue pairs and their queues ---- */

static void draw_end(struct mix *m, struct mix_end *end)
{
	end->groups = 1 + below(m, m->qps < MIX_GROUPS ? m->qps : MIX_GROUPS);
	end->cqs = 1 + below(m, MIX_CQS);
	end->threads = chance(m, 60) ? 1 : 1 + below(m, MIX_GROUPS);
	end->shares = chance(m, 30);
	end->srq_depth = ONE_OF(m, 1, 4, 16, 64);
	unsigned srqs = ONE_OF(m, 0, 0, 30, 100);
	for (unsigned q = 0; q < m->qps; q++)
		end->qp[q] = (struct mix_qp){
			.group = below(m, end->groups),
			.scq = below(m, end->cqs),
			.rcq = below(m, end->cqs),
			.srq = chance(m, srqs),
			.sends = ONE_OF(m, 1, 2, 5, 16, MIX_SENDS),
			.recvs = ONE_OF(m, 1, 2, 8, MIX_SENDS),
			.inline_bytes = ONE_OF(m, 0, 64, 220),
		};
}

void mix_start(struct mix *m, uint64_t seed)
{
	memset(m, 0, sizeof(*m));
	m->seed = m->random = rc_hash(seed);
	m->hot = chance(m, 30);
	m->qps = m->hot || chance(m, 40) ? 1 + below(m, 2) : 1 + below(m, MIX_QPS);
	m->phases = 1 + below(m, 5);
	m->depth = 1 + below(m, 8);
	draw_end(m, &m->end[0]);
	draw_end(m, &m->end[1]);
}

/* ---- acts ---- */

static uint64_t take(struct mix *m, unsigned end, uint64_t bytes)
{
	uint64_t at = m->used[end];
	m->used[end] += (bytes + 7) & ~7ull;
	return at;
}

static uint64_t take_anywhere(struct mix *m, unsigned end, uint64_t bytes)
{
	unsigned off = chance(m, 20) ? below(m, 8) : 0;
	return take(m, end, bytes + off) + off;
}

static unsigned draw_length(struct mix *m, const struct mood *o, unsigned most)
{
	unsigned n = below(m, 100), limit = n >= 100 - o->sizes ? 100000 : n >= 90 - 3 * o->sizes ? 5000 : 65;
	bool is_full = m->used[0] > MIX_BYTES / 2 || m->used[1] > MIX_BYTES / 2;
	return below(m, is_full ? 65 : limit < most ? limit : most);
}

static bool is_possible(const struct mix *m, const struct mood *o, const struct course *c, unsigned d,
			enum kind kind)
{
	switch (kind) {
	case SEND_INV:
		return o->lent[!d];
	case BIND:
		return !o->windows[d];
	case UNBIND:
		return o->windows[d];
	case DRAIN:
		return c->n && c->act[c->n - 1].kind != DRAIN;
	default:
		return true;
	}
}

static enum kind draw_kind(struct mix *m, const struct mood *o, const struct course *c, unsigned d)
{
	unsigned sum = 0;
	for (int k = 0; k < KINDS; k++)
		sum += o->weight[k];
	for (;;) {
		unsigned at = below(m, sum), k = 0;
		for (; at >= o->weight[k]; k++)
			at -= o->weight[k];
		if (is_possible(m, o, c, d, k))
			return k;
	}
}

static void draw_payload(struct mix *m, const struct mood *o, unsigned q, unsigned d, struct act *a)
{
	const struct mix_qp *mine = &m->end[d].qp[q], *theirs = &m->end[!d].qp[q];
	bool is_write = a->kind == WRITE || a->kind == WRITE_IMM;
	a->len = draw_length(m, o, theirs->srq && !is_write ? MIX_SRQ_BYTES : UINT32_MAX);
	a->inlined = a->len <= mine->inline_bytes && chance(m, 40);
	a->at = take_anywhere(m, d, a->len);
	if (is_write || !theirs->srq)
		a->to = take_anywhere(m, !d, a->len);
	a->lent = a->kind == SEND_INV || (is_write && o->lent[!d] && chance(m, 50));
}

/* From memory of its own, or what this course has written before. */
static void draw_read(struct mix *m, const struct mood *o, const struct course *c, unsigned d, struct act *a)
{
	const struct act *before = c->n ? &c->act[below(m, c->n)] : NULL;
	a->again = before && (before->kind == WRITE || before->kind == WRITE_IMM);
	if (a->again) {
		a->len = before->len;
		a->to = before->to;
		a->seed = before->seed;
	} else {
		a->len = draw_length(m, o, UINT32_MAX);
		a->to = take_anywhere(m, !d, a->len);
	}
	a->at = take_anywhere(m, d, a->len);
}

static void draw_atomic(struct mix *m, struct mood *o, const struct course *c, unsigned d, struct act *a)
{
	a->len = 8;
	a->at = take(m, d, 8);
	a->to = a->kind == TALLY ? m->tally_at[!d] : c->word;
	a->found = o->word[d];
	a->compare = a->kind == SWAP && chance(m, 70) ? o->word[d] : rc_random(&m->random);
	a->swap = rc_random(&m->random);
	if (a->kind == TALLY)
		m->counter[!d] += a->compare;
	else if (a->kind == ADD)
		o->word[d] += a->compare;
	else if (a->compare == o->word[d])
		o->word[d] = a->swap;
}

static void draw_act(struct mix *m, struct mood *o, unsigned q, unsigned d)
{
	struct course *c = &m->course[q][d], *other = &m->course[q][!d];
	struct act *a = &c->act[c->n];
	*a = (struct act){ .kind = draw_kind(m, o, c, d), .seed = rc_random(&m->random) };
	a->pieces = chance(m, 80) ? 1 : 1 + below(m, MIX_PIECES);
	const struct kind_facts *k = &kinds[a->kind];
	if (k->is & PAYLOAD)
		draw_payload(m, o, q, d, a);
	else if (a->kind == READ)
		draw_read(m, o, c, d, a);
	else if (k->is & FETCHES)
		draw_atomic(m, o, c, d, a);
	else if (k->is & LOCAL)
		o->windows[d] = a->kind == BIND;
	if (a->kind == SEND_INV)
		o->lent[!d] = false;
	if (k->is & HAS_IMM)
		a->imm = (uint32_t)rc_random(&m->random);
	a->solicited = (k->is & MESSAGE) && chance(m, o->solicited);
	a->fence = chance(m, o->fences);
	a->after = chance(m, o->replies) ? other->nmessages : c->n ? a[-1].after : 0;
	if (k->is & MESSAGE)
		c->message[c->nmessages++] = c->n;
	c->n++;
}

/* ---- which have completions ---- */

/*
 * Never so many without one that the queue is full of them. At the end of a phase the peer's receive may tell
 * as much as a completion does, but not that something has been fetched.
 */
static void draw_signals(struct mix *m, const struct mood *o, unsigned q, unsigned d)
{
	struct course *c = &m->course[q][d];
	unsigned *row = &m->unsignaled[q][d], depth = m->end[d].qp[q].sends;
	bool owes = false;
	for (unsigned i = 0; i < c->n; i++) {
		struct act *a = &c->act[i];
		unsigned is = kinds[a->kind].is;
		if (a->kind == DRAIN)
			continue;
		owes |= (is & FETCHES) || (is & LOCAL);
		a->quiet = *row + 1 < depth && chance(m, o->quiet);
		if (i + 1 == c->n && (owes || !(is & MESSAGE)))
			a->quiet = false;
		*row = a->quiet ? *row + 1 : 0;
		owes &= a->quiet;
	}
}

/* ---- phases ---- */

static struct mood draw_mood(struct mix *m)
{
	struct mood o = {
		.acts = m->hot ? MIX_ACTS / 2 + below(m, MIX_ACTS / 2) :
				 below(m, chance(m, 10) ? MIX_ACTS : 40),
		.quiet = ONE_OF(m, 0, 30, 60, 95, 100),
		.replies = m->hot ? 100 : ONE_OF(m, 0, 0, 20, 100),
		.fences = ONE_OF(m, 0, 0, 20),
		.solicited = ONE_OF(m, 0, 10, 100),
		.sizes = m->hot ? 0 : ONE_OF(m, 0, 0, 3, 15),
		.alternates = chance(m, m->hot ? 80 : 30),
		.lent = { true, true },
	};
	bool all = chance(m, 30);
	for (int k = 0; k < KINDS; k++)
		o.weight[k] = all || chance(m, 35) ? kinds[k].weight : 0;
	o.weight[SEND] += !o.weight[SEND]; /* so that something is always possible */
	return o;
}

static void draw_courses(struct mix *m, unsigned q)
{
	struct mood o = draw_mood(m);
	for (unsigned d = 0; d < 2; d++) {
		struct course *c = &m->course[q][d];
		c->n = c->nmessages = 0;
		c->word = take(m, !d, 8);
	}
	for (unsigned i = 0; i < o.acts; i++)
		draw_act(m, &o, q, o.alternates ? i % 2 : below(m, 2));
	for (unsigned d = 0; d < 2; d++) {
		struct course *c = &m->course[q][d];
		/* each phase begins with the own window unbound */
		if (o.windows[d] || (c->n && c->act[c->n - 1].kind == DRAIN)) {
			c->act[c->n] = (struct act){ .kind = o.windows[d] ? UNBIND : SEND,
						     .pieces = 1,
						     .after = c->n ? c->act[c->n - 1].after : 0 };
			if (!o.windows[d])
				c->message[c->nmessages++] = c->n;
			c->n++;
		}
		draw_signals(m, &o, q, d);
	}
}

void mix_next(struct mix *m)
{
	m->nth++;
	for (unsigned end = 0; end < 2; end++) {
		m->used[end] = 0;
		m->counter[end] = 0;
		m->tally_at[end] = take(m, end, 8);
		m->srq_messages[end] = 0;
	}
	for (unsigned q = 0; q < m->qps; q++) {
		m->reset[q] = m->nth > 1 && chance(m, 10);
		if (m->reset[q])
			m->unsignaled[q][0] = m->unsignaled[q][1] = 0;
		draw_courses(m, q);
		for (unsigned d = 0; d < 2; d++)
			if (m->end[!d].qp[q].srq)
				m->srq_messages[!d] += m->course[q][d].nmessages;
	}
	for (unsigned end = 0; end < 2; end++)
		m->srq_at[end] = take(m, end, (uint64_t)m->srq_messages[end] * MIX_SRQ_BYTES);
}
