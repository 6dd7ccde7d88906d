/* SPDX-License-Identifier: BSD-2-Clause */
#include "way.h"

/* What chance decides of a packet, each by a number of its own. */
enum choice { LOSS, DUPLICATE, REORDER, CORRUPT, BIT, JITTER, MARK, CHOICES };

/* A bijection that leaves no pattern (a finalizer of 64 bits with two multiplications). */
static uint64_t mix(uint64_t v)
{
	v = (v ^ (v >> 32)) * 0xd6e8feb86659fd93ull;
	v = (v ^ (v >> 32)) * 0xd6e8feb86659fd93ull;
	return v ^ (v >> 32);
}

static uint64_t chance(const struct lab_way *way, enum choice choice)
{
	return mix(mix(way->seed + way->packets * CHOICES + choice) + way->seed);
}

static bool happens(const struct lab_way *way, enum choice choice, uint64_t share)
{
	return chance(way, choice) % LAB_SHARE_ONE < share;
}

void lab_way_start(struct lab_way *way, uint64_t seed, uint64_t number)
{
	*way = (struct lab_way){ .seed = mix(mix(seed) + number + 1) };
}

bool lab_way_is_plain(const struct lab_rule *rule)
{
	return !rule->rate && !rule->delay_ns && !rule->jitter_ns && !rule->loss && !rule->duplicate &&
	       !rule->reorder && !rule->corrupt && !rule->is_cut;
}

/* ---- the queue ---- */

/* Bytes that have not left yet. */
static uint64_t backlog(const struct lab_way *way, uint64_t now)
{
	return way->free_ns > now ?
		(uint64_t)((unsigned __int128)(way->free_ns - now) * way->rule.rate / 8000000000u) : 0;
}

static bool is_to_be_marked(const struct lab_way *way, uint64_t queued)
{
	const struct lab_rule *rule = &way->rule;

	if (!rule->mark_to || queued < rule->mark_from)
		return false;
	return queued >= rule->mark_to ||
	       happens(way, MARK,
		       (queued - rule->mark_from) * LAB_SHARE_ONE / (rule->mark_to - rule->mark_from));
}

/* When a packet has left; false: there is no room for it. */
static bool queue(struct lab_way *way, uint64_t now, uint64_t bytes, bool can_mark, struct lab_fate *fate,
		  uint64_t *left)
{
	uint64_t queued;

	*left = now;
	if (!way->rule.rate)
		return true;
	queued = backlog(way, now);
	if (way->rule.queue_bytes && queued + bytes > way->rule.queue_bytes && queued)
		return false;
	fate->is_marked = can_mark && is_to_be_marked(way, queued);
	if (way->free_ns < now)
		way->free_ns = now;
	way->free_ns += (uint64_t)((unsigned __int128)bytes * 8000000000u / way->rule.rate);
	*left = way->free_ns;
	return true;
}

/* ---- a packet ---- */

static uint64_t arrival(struct lab_way *way, uint64_t left)
{
	if (lab_way_is_plain(&way->rule) && left > way->last_ns)
		return left;
	uint64_t at = left + way->rule.delay_ns;

	if (way->rule.jitter_ns)
		at += chance(way, JITTER) % (way->rule.jitter_ns + 1);
	if (happens(way, REORDER, way->rule.reorder)) {
		way->reordered++;
		return at + way->rule.late_ns;
	}
	if (at <= way->last_ns) /* later by so little, for packets of one time have no order */
		at = way->last_ns + 1;
	return way->last_ns = at;
}

static void decide(struct lab_way *way, uint64_t now, uint64_t bytes, bool can_mark, struct lab_fate *fate)
{
	uint64_t left;

	if (way->rule.is_cut || happens(way, LOSS, way->rule.loss)) {
		way->lost++;
		return;
	}
	if (!queue(way, now, bytes, can_mark, fate, &left)) {
		way->overflowed++;
		return;
	}
	fate->at_ns[0] = fate->at_ns[1] = arrival(way, left);
	fate->copies = happens(way, DUPLICATE, way->rule.duplicate) ? 2 : 1;
	fate->is_corrupt = happens(way, CORRUPT, way->rule.corrupt);
	fate->bit = chance(way, BIT);
	way->passed++;
	way->duplicated += fate->copies - 1;
	way->corrupted += fate->is_corrupt;
	way->marked += fate->is_marked;
}

void lab_way_pass(struct lab_way *way, uint64_t now_ns, uint64_t bytes, bool can_mark, struct lab_fate *fate)
{
	*fate = (struct lab_fate){ 0 };
	decide(way, now_ns, bytes, can_mark, fate);
	way->packets++;
}
