/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rectangle input x state (IB vol. 1, 12.9.7 and 12.9.8), and the step through it.
 *
 * Differences from the book, all invisible on the wire or more tolerant than it:
 * - After a rejection the book goes to IDLE. Here LINGER keeps the answer for repeated messages, and CLOSED
 *   waits for the user.
 * - The machine itself answers a repeated REQ or REP with MRA if the user has not decided yet.
 * - DREQ may be sent while REP waits for its RTU, because the peer may be established already.
 */
#include "proto/cm/cm_internal.h"

#include <errno.h>

enum { EARLY_REPETITIONS = 3 }; /* after 1/8, 1/4, 1/2 of the timeout */

/* M(code, action, next state, other state). `other` is taken when the action returns false. */
#define GO_MOVES(M)                                     \
	M(req, send_req, REQ_SENT, IDLE)                \
	M(sid, send_sidr_req, SIDR_REQ_SENT, IDLE)      \
	M(tak, take_req, REQ_RCVD, IDLE)                \
	M(tks, take_sidr_req, SIDR_REQ_RCVD, IDLE)      \
	M(mrq, mra_req, MRA_REQ_SENT, MRA_REQ_SENT)     \
	M(mrp, mra_rep, MRA_REP_SENT, MRA_REP_SENT)     \
	M(acc, send_rep, REP_SENT, REP_SENT)            \
	M(rej, reject, LINGER, LINGER)                  \
	M(rtu, send_rtu, ESTABLISHED, ESTABLISHED)      \
	M(est, established, ESTABLISHED, ESTABLISHED)   \
	M(dis, send_dreq, DREQ_SENT, DREQ_SENT)         \
	M(drp, send_drep, TIMEWAIT, TIMEWAIT)           \
	M(srp, send_sidr_rep, LINGER, LINGER)           \
	M(abt, abort, CLOSED, CLOSED)                   \
	M(cls, nothing, CLOSED, CLOSED)                 \
	M(tmw, nothing, TIMEWAIT, TIMEWAIT)             \
	M(unr, unreachable, CLOSED, CLOSED)             \
	M(dsc, disconnected, TIMEWAIT, TIMEWAIT)        \
	M(pRq, mra_received, MRA_REQ_RCVD, MRA_REQ_RCVD) \
	M(pRp, mra_received, MRA_REP_RCVD, MRA_REP_RCVD) \
	M(rjA, rejected, CLOSED, CLOSED)                \
	M(rjP, rejected, LINGER, LINGER)                \
	M(rep, rep_received, REP_RCVD, REP_RCVD)        \
	M(dqr, dreq_received, DREQ_RCVD, TIMEWAIT)      \
	M(dqe, dreq_before_rtu, DREQ_RCVD, TIMEWAIT)    \
	M(dqx, dreq_crossed, TIMEWAIT, TIMEWAIT)        \
	M(srr, sidr_rep_received, CLOSED, CLOSED)       \
	M(tRq, retry, REQ_SENT, CLOSED)                 \
	M(tRp, retry, REP_SENT, LINGER)                 \
	M(tDq, retry_dreq, DREQ_SENT, TIMEWAIT)         \
	M(tSq, retry, SIDR_REQ_SENT, CLOSED)            \
	M(twx, timewait_exit, CLOSED, CLOSED)           \
	M(prb, probe, ESTABLISHED, TIMEWAIT)            \
	M(unk, peer_unknown, TIMEWAIT, TIMEWAIT)

/* Answers that leave state and timer alone. */
#define STAY_MOVES(M)           \
	M(aRT, repeat_rtu)      \
	M(aSQ, stale_req)       \
	M(aSP, stale_rep)       \
	M(aDQ, answer_dreq)     \
	M(aLP, answer_lap)

enum {
	xxx,	/* illegal */
	___,	/* ignore */
	dup,	/* repeat the last message */
#define M(code, ...) code,
	GO_MOVES(M) STAY_MOVES(M)
#undef M
	NUM_MOVES
};

static const struct vb_cm_move moves[NUM_MOVES] = {
	[xxx] = { .kind = VB_CM_MOVE_ILLEGAL },
	[___] = { .kind = VB_CM_MOVE_IGNORE },
	[dup] = { .kind = VB_CM_MOVE_DUPLICATE },
#define M(code, act, to, otherwise) [code] = { VB_CM_MOVE_GO, vb_cm_do_##act, VB_CM_##to, VB_CM_##otherwise },
	GO_MOVES(M)
#undef M
#define M(code, act) [code] = { .kind = VB_CM_MOVE_STAY, .action = vb_cm_do_##act },
	STAY_MOVES(M)
#undef M
};

/* All 17 arguments are required, so no cell can be forgotten. */
#define ROW(input, i, rqs, mrqr, rpr, mrps, rqr, mrqs, rps, mrpr, es, dqs, dq, tw, sqs, sqr, li, cl)         \
	[VB_CM_IN_##input] = { i, rqs, mrqr, rpr, mrps, rqr, mrqs, rps, mrpr, es, dqs, dq, tw, sqs, sqr, li, cl }

static const uint8_t cells[VB_CM_INPUT_COUNT][VB_CM_STATE_COUNT] = {
	/*
	 *                 IDLE  active, before ESTABLISHED  passive, before ESTABLISHED                      SIDR
	 *                       REQ  MRArq REP  MRArp  REQ  MRArq REP  MRArp  EST  DREQ DREQ  TIME  REQ  REQ
	 *                       SENT RCVD  RCVD SENT   RCVD SENT  SENT RCVD        SENT RCVD  WAIT  SENT RCVD LINGER CLOSED
	 */
	ROW(CONNECT,       req,  xxx, xxx,  xxx, xxx,   xxx, xxx,  xxx, xxx,   xxx, xxx, xxx,  xxx,  xxx, xxx,  xxx,  xxx),
	ROW(SIDR_CONNECT,  sid,  xxx, xxx,  xxx, xxx,   xxx, xxx,  xxx, xxx,   xxx, xxx, xxx,  xxx,  xxx, xxx,  xxx,  xxx),
	ROW(REQUEST,       tak,  xxx, xxx,  xxx, xxx,   xxx, xxx,  xxx, xxx,   xxx, xxx, xxx,  xxx,  xxx, xxx,  xxx,  xxx),
	ROW(SIDR_REQUEST,  tks,  xxx, xxx,  xxx, xxx,   xxx, xxx,  xxx, xxx,   xxx, xxx, xxx,  xxx,  xxx, xxx,  xxx,  xxx),
	ROW(MRA,           xxx,  xxx, xxx,  mrp, xxx,   mrq, xxx,  xxx, xxx,   xxx, xxx, xxx,  xxx,  xxx, xxx,  xxx,  xxx),
	ROW(ACCEPT,        xxx,  xxx, xxx,  xxx, xxx,   acc, acc,  xxx, xxx,   xxx, xxx, xxx,  xxx,  xxx, xxx,  xxx,  xxx),
	ROW(REJECT,        xxx,  xxx, xxx,  rej, rej,   rej, rej,  rej, rej,   xxx, xxx, xxx,  xxx,  xxx, xxx,  xxx,  xxx),
	ROW(ESTABLISH,     xxx,  xxx, xxx,  rtu, rtu,   xxx, xxx,  xxx, xxx,   xxx, xxx, xxx,  xxx,  xxx, xxx,  xxx,  xxx),
	ROW(NOTIFY,        xxx,  xxx, xxx,  xxx, xxx,   xxx, xxx,  est, est,   xxx, xxx, xxx,  xxx,  xxx, xxx,  xxx,  xxx),
	ROW(DISCONNECT,    xxx,  xxx, xxx,  xxx, xxx,   xxx, xxx,  dis, dis,   dis, xxx, drp,  xxx,  xxx, xxx,  xxx,  xxx),
	ROW(SIDR_REPLY,    xxx,  xxx, xxx,  xxx, xxx,   xxx, xxx,  xxx, xxx,   xxx, xxx, xxx,  xxx,  xxx, srp,  xxx,  xxx),
	ROW(DESTROY,       ___,  abt, abt,  rej, rej,   rej, rej,  rej, rej,   dis, ___, drp,  ___,  cls, srp,  ___,  ___),
	ROW(PEER_DIED,     ___,  unr, unr,  unr, unr,   unr, unr,  unr, unr,   dsc, dsc, tmw,  ___,  unr, unr,  cls,  ___),
	ROW(STALE,         ___,  ___, ___,  ___, ___,   ___, ___,  ___, ___,   dis, ___, ___,  ___,  ___, ___,  ___,  ___),
	ROW(RX_REQ,        ___,  ___, ___,  ___, ___,   mrq, dup,  dup, ___,   ___, aSQ, ___,  aSQ,  ___, ___,  dup,  ___),
	ROW(RX_MRA_REQ,    ___,  pRq, pRq,  ___, ___,   ___, ___,  ___, ___,   ___, ___, ___,  ___,  ___, ___,  ___,  ___),
	ROW(RX_MRA_REP,    ___,  ___, ___,  ___, ___,   ___, ___,  pRp, pRp,   ___, ___, ___,  ___,  ___, ___,  ___,  ___),
	ROW(RX_REJ,        ___,  rjA, rjA,  rjA, rjA,   rjP, rjP,  rjP, rjP,   unk, dsc, ___,  ___,  ___, ___,  ___,  ___),
	ROW(RX_REP,        ___,  rep, rep,  mrp, dup,   ___, ___,  ___, ___,   aRT, ___, ___,  aSP,  ___, ___,  dup,  ___),
	ROW(RX_RTU,        ___,  ___, ___,  ___, ___,   ___, ___,  est, est,   ___, ___, ___,  ___,  ___, ___,  dup,  ___),
	ROW(RX_DREQ,       ___,  ___, ___,  dqx, dqx,   ___, ___,  dqe, dqe,   dqr, dqx, ___,  aDQ,  ___, ___,  aDQ,  ___),
	ROW(RX_DREP,       ___,  ___, ___,  ___, ___,   ___, ___,  ___, ___,   ___, dsc, ___,  ___,  ___, ___,  ___,  ___),
	ROW(RX_SIDR_REQ,   ___,  ___, ___,  ___, ___,   ___, ___,  ___, ___,   ___, ___, ___,  ___,  ___, ___,  dup,  ___),
	ROW(RX_SIDR_REP,   ___,  ___, ___,  ___, ___,   ___, ___,  ___, ___,   ___, ___, ___,  ___,  srr, ___,  ___,  ___),
	ROW(RX_LAP,        ___,  ___, ___,  ___, ___,   ___, ___,  ___, ___,   aLP, ___, ___,  ___,  ___, ___,  ___,  ___),
	ROW(RX_APR,        ___,  ___, ___,  ___, ___,   ___, ___,  ___, ___,   ___, ___, ___,  ___,  ___, ___,  ___,  ___),
	ROW(TIMER,         ___,  tRq, tRq,  ___, ___,   ___, ___,  tRp, tRp,   prb, tDq, ___,  twx,  tSq, ___,  cls,  ___),
};

const struct vb_cm_move *vb_cm_move(enum vb_cm_input input, enum vb_cm_state state)
{
	return &moves[cells[input][state]];
}

const char *vb_cm_state_name(enum vb_cm_state state)
{
	static const char *const names[VB_CM_STATE_COUNT] = {
#define X(name, text) text,
		VB_CM_STATES(X)
#undef X
	};

	return state < VB_CM_STATE_COUNT ? names[state] : "?";
}

/*
 * The first repetitions of a message come sooner than agreed. A message that gets no answer was mostly lost,
 * not delayed, and some programs wait only a second (perftest -R).
 */
static uint64_t until_repetition_ns(const struct vb_cm_conn *c)
{
	unsigned repetitions = c->max_retries - c->retries_left;

	return repetitions < EARLY_REPETITIONS ? c->timeout_ns >> (EARLY_REPETITIONS - repetitions) :
						 c->timeout_ns;
}

/* How long a state lasts before its timer; VB_CM_NEVER: it has none. */
static uint64_t state_duration_ns(const struct vb_cm_conn *c, const struct vb_cm_step *s)
{
	switch (c->state) {
	case VB_CM_REQ_SENT:
	case VB_CM_REP_SENT:
	case VB_CM_DREQ_SENT:
	case VB_CM_SIDR_REQ_SENT:
		return until_repetition_ns(c);
	case VB_CM_MRA_REQ_RCVD:
	case VB_CM_MRA_REP_RCVD:
		return s->mra_wait_ns;
	case VB_CM_TIMEWAIT:
		return c->timewait_ns;
	case VB_CM_LINGER:
		return c->linger_ns;
	case VB_CM_ESTABLISHED:
		return vb_cm_keepalive_pause_ns(c, s->now_ns);
	case VB_CM_IDLE:
	case VB_CM_REP_RCVD:
	case VB_CM_MRA_REP_SENT:
	case VB_CM_REQ_RCVD:
	case VB_CM_MRA_REQ_SENT:
	case VB_CM_DREQ_RCVD:
	case VB_CM_SIDR_REQ_RCVD:
	case VB_CM_CLOSED:
	case VB_CM_STATE_COUNT:
		break;
	}
	return VB_CM_NEVER;
}

static bool is_over(enum vb_cm_state state)
{
	return state == VB_CM_TIMEWAIT || state == VB_CM_LINGER || state == VB_CM_CLOSED;
}

static void enter(struct vb_cm_conn *c, enum vb_cm_state state, struct vb_cm_step *s)
{
	enum vb_cm_state before = c->state;
	uint64_t duration;

	c->state = state;
	if (before == VB_CM_ESTABLISHED && state != VB_CM_ESTABLISHED)
		vb_cm_keepalive_end(s->t, c, s->now_ns);
	else if (state == VB_CM_ESTABLISHED && before != VB_CM_ESTABLISHED)
		vb_cm_keepalive_begin(s->t, c);
	duration = state_duration_ns(c, s);
	vb_heap_remove(&s->t->timers, &c->timer);
	if (duration != VB_CM_NEVER)
		vb_heap_insert(&s->t->timers, &c->timer, s->now_ns + duration);
	if (is_over(state))
		vb_cm_conns_unindex_qpn(c);
	if (state == VB_CM_CLOSED)
		vb_cm_conns_unindex_remote(c);
}

int vb_cm_step(struct vb_cm_conn *c, enum vb_cm_input input, struct vb_cm_step *s)
{
	const struct vb_cm_move *m = vb_cm_move(input, c->state);

	switch (m->kind) {
	case VB_CM_MOVE_ILLEGAL:
		return -EINVAL;
	case VB_CM_MOVE_IGNORE:
		s->t->counters.ignored++;
		break;
	case VB_CM_MOVE_DUPLICATE:
		s->t->counters.duplicates++;
		vb_cm_repeat(c, s);
		break;
	case VB_CM_MOVE_STAY:
		m->action(c, s);
		break;
	case VB_CM_MOVE_GO:
		enter(c, m->action(c, s) ? m->next : m->other, s);
		break;
	}
	if (c->state == VB_CM_CLOSED && c->destroyed)
		vb_cm_conns_release(s->t, c, s->out);
	return 0;
}
