/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The links of a lab: which there are, what they are called, and the way of a packet over them. Pure.
 *
 *     star           line                      leaf-spine:2,2
 *     h1 ─┐          h1   h2   h3              h1 h2   h3 h4
 *     h2 ─┼─ net     │    │    │               leaf1   leaf2
 *     h3 ─┘          s1 ─ s2 ─ s3                  ╲╱ ╱╲ (each with each)
 *                                              spine1  spine2
 *
 * A pair of hosts has a link of its own besides, which a packet passes first.
 */
#ifndef VB_TOOLS_LAB_LINKS_H
#define VB_TOOLS_LAB_LINKS_H

#include "way.h"

enum lab_shape { LAB_STAR, LAB_LINE, LAB_LEAF_SPINE };

struct lab_topology {
	enum lab_shape shape;
	unsigned hosts, leaves, spines;
	uint64_t seed;
};

struct lab_links {
	struct lab_topology topology;
	unsigned count; /* besides those of pairs */
	struct lab_link {
		unsigned ends[2]; /* nodes: hosts, and behind them switches */
		struct lab_way ways[2]; /* from the first end, from the second */
	} *links;
	struct lab_way **pairs; /* [from * hosts + to], NULL if it was never set */
	bool are_plain; /* all of them */
};

/* "star", "line" or "leaf-spine:LEAVES,SPINES"; false: none of them. */
bool lab_topology_parse(struct lab_topology *topology, const char *text);

/* False: out of memory. */
bool lab_links_open(struct lab_links *links, const struct lab_topology *topology);
void lab_links_close(struct lab_links *links);

/* Where a packet is. */
struct lab_hop {
	unsigned from, to; /* hosts */
	unsigned node;
	bool has_begun;
};

/* The way that a packet takes next, at whose end `hop` is then; NULL: it has arrived. */
struct lab_way *lab_links_next(struct lab_links *links, struct lab_hop *hop);

/*
 * Changes the ways with a name: A-B both directions, A>B one; A and B are names of hosts and switches, or
 * several with commas. "hosts": all links of hosts to switches; "switches": all others.
 * On failure, it says why and changes nothing.
 */
bool lab_links_set(struct lab_links *links, const char *name, const char *text, char why[LAB_WHY_BYTES]);

/* The name and the way with this number, of all that there are; false: there are fewer. */
bool lab_links_each(const struct lab_links *links, unsigned *number, char name[64],
		    const struct lab_way **way);

#endif
