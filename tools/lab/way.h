/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One direction of a link: what it does to each packet. Pure: packets and time in, decisions out. What chance
 * decides depends on the seed, the way's number and the packet's number alone, not on time, nor on what else
 * the way is set to.
 */
#ifndef VB_TOOLS_LAB_WAY_H
#define VB_TOOLS_LAB_WAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "why.h"

#define LAB_SHARE_ONE 1000000u /* shares are in millionths */

struct lab_rule {
	uint64_t rate; /* bits per second; 0: without limit */
	uint64_t delay_ns, jitter_ns; /* each packet is late by delay, and up to jitter more; order stays */
	uint32_t loss, duplicate, reorder, corrupt; /* shares of packets */
	uint64_t late_ns; /* how much later a reordered packet comes, so that others overtake it */
	uint64_t queue_bytes; /* in front of a limited rate; what finds it full is lost */
	uint64_t mark_from, mark_to; /* RED: from so many bytes queued on some are marked, and all; 0: none */
	bool is_cut; /* nothing passes */
};

struct lab_way {
	struct lab_rule rule;
	uint64_t seed;
	uint64_t packets; /* that have come */
	uint64_t free_ns; /* when the last queued bit has left */
	uint64_t last_ns; /* when the last packet arrives that keeps its place */
	uint64_t passed, lost, overflowed, duplicated, reordered, corrupted, marked;
};

struct lab_fate {
	unsigned copies; /* 0: it is lost */
	uint64_t at_ns[2]; /* when each arrives at the other end */
	bool is_marked; /* congestion experienced, in the IP header */
	bool is_corrupt; /* flip a bit, */
	uint64_t bit; /* the one with this number modulo theirs */
};

void lab_way_start(struct lab_way *way, uint64_t seed, uint64_t number);
/* Does the way pass on all packets at once, as they are? */
bool lab_way_is_plain(const struct lab_rule *rule);
/* `bytes` on the wire. Only what is able to carry a mark is marked. */
void lab_way_pass(struct lab_way *way, uint64_t now_ns, uint64_t bytes, bool can_mark, struct lab_fate *fate);

/*
 * Changes the settings that text names: "loss 2% delay 50us". On failure, it says why and changes nothing.
 */
bool lab_rule_parse(struct lab_rule *rule, const char *text, char why[LAB_WHY_BYTES]);
/* A number with its unit: "50us". */
bool lab_time_parse(const char *text, uint64_t *ns);
/* In the same words; "clear" for a plain one. */
void lab_rule_text(const struct lab_rule *rule, char *text, size_t size);

#endif
