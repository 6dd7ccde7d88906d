/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "links.h"

static bool allocate(struct lab_links *l)
{
	const struct lab_topology *t = l->topology;

	l->ways = calloc(t->links, sizeof(*l->ways));
	l->pairs = calloc((size_t)t->hosts * t->hosts, sizeof(*l->pairs));
	return l->ways && l->pairs && lab_routes_open(&l->routes, t);
}

bool lab_links_open(struct lab_links *l, const struct lab_topology *t)
{
	*l = (struct lab_links){ .topology = t, .are_plain = true };
	if (!allocate(l)) {
		lab_links_close(l);
		return false;
	}
	for (unsigned i = 0; i < 2 * t->links; i++)
		lab_way_start(&l->ways[i / 2][i % 2], t->seed, i);
	return true;
}

void lab_links_close(struct lab_links *l)
{
	for (size_t i = 0; l->pairs && i < (size_t)l->topology->hosts * l->topology->hosts; i++)
		free(l->pairs[i]);
	free(l->pairs);
	free(l->ways);
	lab_routes_close(&l->routes);
	*l = (struct lab_links){ 0 };
}

/* ---- the way of a packet ---- */

/* Over a link with this number, to its other end. */
static struct lab_way *cross(struct lab_links *l, struct lab_hop *hop, unsigned number)
{
	const unsigned *ends = l->topology->ends[number];
	unsigned side = hop->node == ends[1];

	hop->node = ends[!side];
	return &l->ways[number][side];
}

/* The switch of a host, which routes know without the hosts before it. */
static unsigned switch_of(const struct lab_topology *t, unsigned host) { return t->ends[host][1] - t->hosts; }

struct lab_way *lab_links_next(struct lab_links *l, struct lab_hop *hop)
{
	const struct lab_topology *t = l->topology;
	struct lab_way *pair = l->pairs[hop->from * t->hosts + hop->to];
	unsigned here = hop->node - t->hosts, there = switch_of(t, hop->to);

	if (!hop->has_begun) {
		hop->has_begun = true;
		hop->node = hop->from;
		if (pair)
			return pair;
	}
	if (hop->node == hop->to)
		return NULL;
	if (hop->node < t->hosts)
		return cross(l, hop, hop->node);
	if (here == there)
		return cross(l, hop, hop->to);
	/* A pair of hosts always takes the same way, so that its packets keep their order. */
	return cross(l, hop, lab_routes_next(&l->routes, here, there, hop->from + hop->to));
}

/* ---- names ---- */

/* The nodes between commas; their number, 0 after a reason. */
static unsigned find_nodes(const struct lab_topology *t, char *names, unsigned nodes[LAB_NODES_MAX],
			   char why[LAB_WHY_BYTES])
{
	unsigned n = 0;
	char *rest;

	for (char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
		unsigned node = n < LAB_NODES_MAX ? lab_topology_find(t, name) : LAB_NOWHERE;
		if (node == LAB_NOWHERE) {
			snprintf(why, LAB_WHY_BYTES, "the lab has neither a host nor a switch '%.30s'", name);
			return 0;
		}
		nodes[n++] = node;
	}
	if (n == 0)
		snprintf(why, LAB_WHY_BYTES, "a link's name is A-B, or A>B for one direction");
	return n;
}

/* NULL: there is none, and no memory for one. */
static struct lab_way *pair_way(struct lab_links *l, unsigned from, unsigned to)
{
	unsigned number = from * l->topology->hosts + to;

	if (!l->pairs[number]) {
		l->pairs[number] = malloc(sizeof(struct lab_way));
		if (l->pairs[number]) /* behind those of all links */
			lab_way_start(l->pairs[number], l->topology->seed, (1ull << 32) + number);
	}
	return l->pairs[number];
}

/* makes_pair: else a pair of hosts that has no way of its own gets one that is nobody's. */
static struct lab_way *way_between(struct lab_links *l, unsigned from, unsigned to, bool makes_pair)
{
	static struct lab_way none;

	if (from < l->topology->hosts && to < l->topology->hosts) {
		if (from == to)
			return NULL;
		return makes_pair || l->pairs[from * l->topology->hosts + to] ? pair_way(l, from, to) : &none;
	}
	for (unsigned i = 0; i < l->topology->links; i++)
		for (unsigned side = 0; side < 2; side++)
			if (l->topology->ends[i][side] == from && l->topology->ends[i][!side] == to)
				return &l->ways[i][side];
	return NULL;
}

/* ---- settings ---- */

/* Changes a way, or only tries to. */
static bool change(struct lab_way *way, const char *text, bool in_earnest, char why[LAB_WHY_BYTES])
{
	struct lab_rule rule = way->rule;

	if (!lab_rule_parse(&rule, text, why))
		return false;
	if (in_earnest)
		way->rule = rule;
	return true;
}

static bool change_group(struct lab_links *l, bool of_hosts, const char *text, bool in_earnest,
			 char why[LAB_WHY_BYTES])
{
	unsigned hosts = l->topology->hosts, first = of_hosts ? 0 : hosts;
	unsigned end = of_hosts ? hosts : l->topology->links;

	for (unsigned i = first; i < end; i++)
		if (!change(&l->ways[i][0], text, in_earnest, why) ||
		    !change(&l->ways[i][1], text, in_earnest, why))
			return false;
	return true;
}

static bool change_one(struct lab_links *l, unsigned from, unsigned to, const char *text, bool in_earnest,
		       char why[LAB_WHY_BYTES])
{
	struct lab_way *way = way_between(l, from, to, in_earnest);
	char (*names)[LAB_NODE_BYTES] = l->topology->names;

	if (way)
		return change(way, text, in_earnest, why);
	snprintf(why, LAB_WHY_BYTES, "there is no link between %s and %s", names[from], names[to]);
	return false;
}

static bool change_named(struct lab_links *l, const char *name, const char *text, bool in_earnest,
			 char why[LAB_WHY_BYTES])
{
	static unsigned from[LAB_NODES_MAX], to[LAB_NODES_MAX];
	char names[1024];
	size_t cut = strcspn(name, "->");
	bool both = name[cut] == '-';
	unsigned n, m;

	if (strcmp(name, "hosts") == 0 || strcmp(name, "switches") == 0)
		return change_group(l, *name == 'h', text, in_earnest, why);
	snprintf(names, sizeof(names), "%s", name);
	if (cut < sizeof(names) - 1)
		names[cut] = '\0';
	n = find_nodes(l->topology, names, from, why);
	m = n && name[cut] ? find_nodes(l->topology, names + cut + 1, to, why) : 0;
	for (unsigned i = 0; i < n; i++)
		for (unsigned j = 0; j < m; j++)
			if (!change_one(l, from[i], to[j], text, in_earnest, why) ||
			    (both && !change_one(l, to[j], from[i], text, in_earnest, why)))
				return false;
	if (n && !name[cut])
		snprintf(why, LAB_WHY_BYTES, "a link's name is A-B, or A>B for one direction");
	return n && m;
}

bool lab_links_set(struct lab_links *l, const char *name, const char *text, char why[LAB_WHY_BYTES])
{
	const struct lab_way *way;
	char ignored[64];

	if (!change_named(l, name, text, false, why) || !change_named(l, name, text, true, why))
		return false;
	l->are_plain = true;
	for (unsigned i = 0; lab_links_each(l, &i, ignored, &way);)
		l->are_plain &= lab_way_is_plain(&way->rule);
	return true;
}

bool lab_links_order(struct lab_links *l, const char *text, char why[LAB_WHY_BYTES])
{
	size_t cut = strcspn(text, " ");
	char name[1024];

	if (cut >= sizeof(name))
		return lab_refuse(why, "a link's name is too long", text);
	snprintf(name, sizeof(name), "%.*s", (int)cut, text);
	return lab_links_set(l, name, text + cut, why);
}

bool lab_links_each(const struct lab_links *l, unsigned *number, char name[64], const struct lab_way **way)
{
	const struct lab_topology *t = l->topology;
	unsigned from, to, i = *number - 2 * t->links;

	if (*number < 2 * t->links) {
		from = t->ends[*number / 2][*number % 2];
		to = t->ends[*number / 2][!(*number % 2)];
		*way = &l->ways[*number / 2][*number % 2];
	} else {
		while (i < t->hosts * t->hosts && !l->pairs[i])
			i++;
		if (i >= t->hosts * t->hosts)
			return false;
		from = i / t->hosts;
		to = i % t->hosts;
		*way = l->pairs[i];
		*number = 2 * t->links + i;
	}
	++*number;
	snprintf(name, 64, "%s>%s", t->names[from], t->names[to]);
	return true;
}
