/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "faults/plan.h"

#define PSN_MASK  0xffffffu
#define PSN_KNOWN (1u << 24)

enum vb_fault_site vb_fault_site_of(enum vb_fault_kind kind)
{
	switch (kind) {
	case VB_FAULT_DROP:
	case VB_FAULT_DELAY:
	case VB_FAULT_DUPLICATE:
	case VB_FAULT_REORDER:
	case VB_FAULT_CORRUPT:
		return VB_FAULT_PACKET;
	case VB_FAULT_STALL:
	case VB_FAULT_FAIL:
		return VB_FAULT_CALL;
	case VB_FAULT_COMPLETE:
		return VB_FAULT_COMPLETION;
	case VB_FAULT_RNR:
		return VB_FAULT_RECEIVE;
	case VB_FAULT_LOSE:
	case VB_FAULT_REFUSE:
		return VB_FAULT_MESSAGE;
	case VB_FAULT_FREEZE:
	case VB_FAULT_LINK:
	case VB_FAULT_EVENT:
	case VB_FAULT_VANISH:
	case VB_FAULT_NKINDS:
		break;
	}
	return VB_FAULT_TRIGGER;
}

bool vb_fault_plan_has(const struct vb_fault_plan *plan, uint32_t kinds)
{
	for (unsigned i = 0; i < plan->count; i++)
		if (kinds >> plan->rules[i].kind & 1)
			return true;
	return false;
}

/* ---- does a rule look at it? ---- */

static bool is_of_way(const struct vb_fault_rule *r, const struct vb_fault_subject *s)
{
	return r->direction == VB_FAULT_BOTH || r->direction == s->direction;
}

static bool is_of_peer(const struct vb_fault_rule *r, const struct vb_fault_subject *s)
{
	return !r->has_peer || (s->peer && memcmp(s->peer, r->peer, sizeof(r->peer)) == 0);
}

static bool is_of_call(const struct vb_fault_rule *r, const struct vb_fault_subject *s)
{
	return r->verb && strcmp(r->verb->name, s->verb) == 0;
}

static bool concerns(const struct vb_fault_rule *r, const struct vb_fault_subject *s)
{
	if (vb_fault_site_of(r->kind) != s->site || (r->qp && r->qp != s->qp) || s->elapsed_ns < r->after_ns)
		return false;
	switch (s->site) {
	case VB_FAULT_PACKET:
		return is_of_way(r, s) && (s->packets >> r->of & 1) && is_of_peer(r, s);
	case VB_FAULT_CALL:
	case VB_FAULT_TRIGGER:
		return is_of_call(r, s);
	case VB_FAULT_COMPLETION:
		return s->completion >> r->of & 1;
	case VB_FAULT_RECEIVE:
		return true;
	case VB_FAULT_MESSAGE:
		return is_of_way(r, s) && (!r->port || r->port == s->port) && is_of_peer(r, s) &&
		       (r->kind == VB_FAULT_LOSE ? (unsigned)r->value == s->message : s->port != 0);
	}
	return false;
}

/* ---- does it bite? ---- */

/* Scrambles a number so that each of its bits hangs on all of them (the finaliser of a 64-bit hash). */
static uint64_t scramble(uint64_t v)
{
	v ^= v >> 30;
	v *= 0xbf58476d1ce4e5b9u;
	v ^= v >> 27;
	v *= 0x94d049bb133111ebu;
	return v ^ v >> 31;
}

static uint64_t draw(uint64_t seed, unsigned rule, uint32_t qp, uint64_t count, uint64_t repeat)
{
	uint64_t v = scramble(seed + 0x9e3779b97f4a7c15u);
	v = scramble(v ^ rule);
	v = scramble(v ^ qp);
	v = scramble(v ^ count);
	return scramble(v ^ repeat);
}

static bool is_hit(const struct vb_fault_rule *r, uint64_t count, uint64_t random, bool is_repeat)
{
	enum { MILLION = 1000000 };
	switch ((enum vb_fault_how)r->how) {
	case VB_FAULT_EACH:
		return true;
	case VB_FAULT_RANGE:
		return count >= r->first && count <= r->last && (!is_repeat || r->last == VB_FAULT_FOREVER);
	case VB_FAULT_EVERY:
		return !is_repeat && count % r->first == 0;
	case VB_FAULT_SHARE:
		return random % MILLION < r->first;
	}
	return false;
}

static bool bites(const struct vb_fault_plan *plan, struct vb_fault_state *state, unsigned at,
		  const struct vb_fault_subject *s, struct vb_fault_bite *bite)
{
	const struct vb_fault_rule *r = &plan->rules[at];
	uint32_t object = s->qp % VB_FAULT_OBJECTS;
	uint64_t repeat = s->is_repeat ? ++state->repeats[at] : 0;
	uint64_t count = s->is_repeat ? state->counts[at][object] : ++state->counts[at][object];
	uint64_t random = draw(plan->seed, at, object, count, repeat);
	if ((r->times && state->bites[at] >= r->times) || !is_hit(r, count, random, s->is_repeat))
		return false;
	state->bites[at]++;
	*bite = (struct vb_fault_bite){
		.rule = r, .number = at + 1, .count = count, .random = scramble(random)
	};
	return true;
}

bool vb_fault_next(const struct vb_fault_plan *plan, struct vb_fault_state *state,
		   const struct vb_fault_subject *subject, unsigned *cursor, struct vb_fault_bite *bite)
{
	while (*cursor < plan->count) {
		unsigned at = (*cursor)++;
		if (concerns(&plan->rules[at], subject) && bites(plan, state, at, subject, bite))
			return true;
	}
	return false;
}

/* Half of all PSNs are behind a given one, half before. */
bool vb_fault_is_repeat(struct vb_fault_state *state, enum vb_fault_direction direction, bool answers,
			uint32_t qp, uint32_t psn)
{
	uint32_t *next = &state->psn[direction][answers][qp % VB_FAULT_OBJECTS];
	bool behind = ((psn - *next) & PSN_MASK) > PSN_MASK / 2;
	if ((*next & PSN_KNOWN) && behind)
		return true;
	*next = ((psn + 1) & PSN_MASK) | PSN_KNOWN;
	return false;
}

uint64_t vb_fault_delay_ns(const struct vb_fault_bite *bite)
{
	const struct vb_fault_rule *r = bite->rule;
	return r->time_ns + bite->random % (r->time_max_ns - r->time_ns + 1);
}
