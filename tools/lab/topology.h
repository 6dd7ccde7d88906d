/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the hosts of a lab are joined: nodes, which are hosts and behind them switches, and links. Pure.
 *
 *     star           line                      leaf-spine:2,2
 *     h1 ─┐          h1   h2   h3              h1 h2   h3 h4
 *     h2 ─┼─ net     │    │    │               leaf1   leaf2
 *     h3 ─┘          s1 ─ s2 ─ s3                  ╲╱ ╱╲ (each with each)
 *                                              spine1  spine2
 *
 * Or as a list of links says. Each host has one link, to a switch.
 */
#ifndef VB_TOOLS_LAB_TOPOLOGY_H
#define VB_TOOLS_LAB_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "why.h"

enum { LAB_NODE_BYTES = 16, LAB_NODES_MAX = 600, LAB_NOWHERE = ~0u };

struct lab_topology {
	unsigned hosts, nodes, links;
	char (*names)[LAB_NODE_BYTES]; /* of the nodes */
	unsigned (*ends)[2]; /* of links: a host's link has its number, those between switches follow */
	uint64_t seed;
};

/* Hosts with these names, or h1, h2, ... without any. False after a reason; 'close' in any case. */
bool lab_topology_open(struct lab_topology *t, unsigned hosts, char *const *names, char why[LAB_WHY_BYTES]);
void lab_topology_close(struct lab_topology *t);

/* "star", "line" or "leaf-spine:LEAVES,SPINES". */
bool lab_topology_is_shape(const char *text);
/* Joins the hosts so, once; false after a reason. */
bool lab_topology_shape(struct lab_topology *t, const char *text, char why[LAB_WHY_BYTES]);
/* Adds the link "A-B"; what is no host is a switch. False after a reason, and nothing has changed. */
bool lab_topology_add(struct lab_topology *t, const char *link, char why[LAB_WHY_BYTES]);
/* Has each host a link, and a way to each other? Else why not. */
bool lab_topology_is_whole(const struct lab_topology *t, char why[LAB_WHY_BYTES]);

/* LAB_NOWHERE: there is no such node. */
unsigned lab_topology_find(const struct lab_topology *t, const char *name);

/* The shortest ways between switches, which have the numbers of their nodes less that of the hosts. */
struct lab_routes {
	unsigned switches;
	struct lab_route {
		uint16_t hops; /* of the shortest ways */
		uint16_t first, count; /* of the switch's links that begin one */
	} *routes; /* [from * switches + to] */
	unsigned *begin; /* of a switch's links in `links`, and behind the last one the end */
	unsigned *links; /* numbers, in order */
	const struct lab_topology *topology;
};

/* The topology must live as long. False: out of memory. */
bool lab_routes_open(struct lab_routes *r, const struct lab_topology *t);
void lab_routes_close(struct lab_routes *r);
/* The number of the link that leads from a switch to another; of several, the choice picks one. */
unsigned lab_routes_next(const struct lab_routes *r, unsigned from, unsigned to, unsigned choice);

#endif
