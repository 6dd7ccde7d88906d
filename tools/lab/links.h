/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the links of a lab do to packets, what they are called, and the way of a packet over them. Pure.
 * A pair of hosts has a link of its own besides those of the topology, which a packet passes first.
 */
#ifndef VB_TOOLS_LAB_LINKS_H
#define VB_TOOLS_LAB_LINKS_H

#include "topology.h"
#include "way.h"

struct lab_links {
	const struct lab_topology *topology;
	struct lab_routes routes;
	struct lab_way (*ways)[2]; /* of each link of the topology: from its first end, from the second */
	struct lab_way **pairs; /* [from * hosts + to], NULL if it was never set */
	bool are_plain; /* all of them */
};

/* The topology is whole, and lives as long. */
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

/* The same, as one text: "LINK SETTING...". */
bool lab_links_order(struct lab_links *links, const char *text, char why[LAB_WHY_BYTES]);

/* The name and the way with this number, of all that there are; false: there are fewer. */
bool lab_links_each(const struct lab_links *links, unsigned *number, char name[64],
		    const struct lab_way **way);

#endif
