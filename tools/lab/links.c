/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "links.h"

enum { NAME_BYTES = 24, NODES_MAX = 512, NOWHERE = ~0u };

/* ---- shapes ---- */

bool lab_topology_parse(struct lab_topology *t, const char *text)
{
	char rest;

	t->leaves = t->spines = 0;
	t->shape = strcmp(text, "line") == 0 ? LAB_LINE : LAB_STAR;
	if (t->shape == LAB_LINE || strcmp(text, "star") == 0)
		return true;
	t->shape = LAB_LEAF_SPINE;
	return sscanf(text, "leaf-spine:%u,%u%c", &t->leaves, &t->spines, &rest) == 2 && t->leaves > 0 &&
	       t->leaves <= t->hosts && t->spines > 0 && t->spines <= 64;
}

static unsigned count_switches(const struct lab_topology *t)
{
	return t->shape == LAB_STAR ? 1 : t->shape == LAB_LINE ? t->hosts : t->leaves + t->spines;
}

/* The node that a host's own link, which has the host's number, leads to. */
static unsigned switch_of(const struct lab_topology *t, unsigned host)
{
	switch (t->shape) {
	case LAB_STAR:
		return t->hosts;
	case LAB_LINE:
		return t->hosts + host;
	case LAB_LEAF_SPINE:
		return t->hosts + host * t->leaves / t->hosts;
	}
	return NOWHERE;
}

static void join(struct lab_links *l, unsigned a, unsigned b)
{
	struct lab_link *link = &l->links[l->count];

	link->ends[0] = a;
	link->ends[1] = b;
	lab_way_start(&link->ways[0], l->topology.seed, 2 * l->count);
	lab_way_start(&link->ways[1], l->topology.seed, 2 * l->count + 1);
	l->count++;
}

bool lab_links_open(struct lab_links *l, const struct lab_topology *t)
{
	size_t most = t->hosts + (size_t)t->hosts + (size_t)t->leaves * t->spines;

	*l = (struct lab_links){ .topology = *t, .are_plain = true };
	l->links = calloc(most, sizeof(*l->links));
	l->pairs = calloc((size_t)t->hosts * t->hosts, sizeof(struct lab_way *));
	if (!l->links || !l->pairs) {
		lab_links_close(l);
		return false;
	}
	for (unsigned host = 0; host < t->hosts; host++)
		join(l, host, switch_of(t, host));
	for (unsigned i = 0; t->shape == LAB_LINE && i + 1 < t->hosts; i++)
		join(l, t->hosts + i, t->hosts + i + 1);
	for (unsigned leaf = 0; leaf < t->leaves; leaf++)
		for (unsigned spine = 0; spine < t->spines; spine++)
			join(l, t->hosts + leaf, t->hosts + t->leaves + spine);
	return true;
}

void lab_links_close(struct lab_links *l)
{
	for (size_t i = 0; l->pairs && i < (size_t)l->topology.hosts * l->topology.hosts; i++)
		free(l->pairs[i]);
	free(l->pairs);
	free(l->links);
}

/* ---- the way of a packet ---- */

/* Over a link with this number, to its other end. */
static struct lab_way *cross(struct lab_links *l, struct lab_hop *hop, unsigned number)
{
	struct lab_link *link = &l->links[number];
	unsigned side = hop->node == link->ends[1];

	hop->node = link->ends[!side];
	return &link->ways[side];
}

/* A pair of hosts always takes the same spine, so that its packets keep their order. */
static unsigned between_switches(const struct lab_topology *t, const struct lab_hop *hop)
{
	unsigned here = hop->node - t->hosts, there = switch_of(t, hop->to) - t->hosts;

	if (t->shape == LAB_LINE)
		return t->hosts + (here < there ? here : here - 1);
	if (here >= t->leaves)
		return t->hosts + there * t->spines + here - t->leaves;
	return t->hosts + here * t->spines + (hop->from + hop->to) % t->spines;
}

struct lab_way *lab_links_next(struct lab_links *l, struct lab_hop *hop)
{
	const struct lab_topology *t = &l->topology;
	struct lab_way *pair = l->pairs[hop->from * t->hosts + hop->to];

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
	if (hop->node == switch_of(t, hop->to))
		return cross(l, hop, hop->to);
	return cross(l, hop, between_switches(t, hop));
}

/* ---- names ---- */

static void name_node(const struct lab_topology *t, unsigned node, char name[NAME_BYTES])
{
	unsigned number = node - t->hosts + 1;

	if (node < t->hosts)
		snprintf(name, NAME_BYTES, "h%u", node + 1);
	else if (t->shape == LAB_STAR)
		snprintf(name, NAME_BYTES, "net");
	else if (t->shape == LAB_LINE)
		snprintf(name, NAME_BYTES, "s%u", number);
	else if (number <= t->leaves)
		snprintf(name, NAME_BYTES, "leaf%u", number);
	else
		snprintf(name, NAME_BYTES, "spine%u", number - t->leaves);
}

static unsigned find_node(const struct lab_topology *t, const char *wanted)
{
	char name[NAME_BYTES];

	for (unsigned node = 0; node < t->hosts + count_switches(t); node++) {
		name_node(t, node, name);
		if (strcmp(name, wanted) == 0)
			return node;
	}
	return NOWHERE;
}

/* The nodes between commas; their number, 0 after a reason. */
static unsigned find_nodes(const struct lab_topology *t, char *names, unsigned nodes[NODES_MAX],
			   char why[LAB_WHY_BYTES])
{
	unsigned n = 0;
	char *rest;

	for (char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
		unsigned node = n < NODES_MAX ? find_node(t, name) : NOWHERE;
		if (node == NOWHERE) {
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
	unsigned number = from * l->topology.hosts + to;

	if (!l->pairs[number]) {
		l->pairs[number] = malloc(sizeof(struct lab_way));
		if (l->pairs[number]) /* behind those of all links */
			lab_way_start(l->pairs[number], l->topology.seed, (1ull << 32) + number);
	}
	return l->pairs[number];
}

static struct lab_way *way_between(struct lab_links *l, unsigned from, unsigned to)
{
	if (from < l->topology.hosts && to < l->topology.hosts)
		return from == to ? NULL : pair_way(l, from, to);
	for (unsigned i = 0; i < l->count; i++)
		for (unsigned side = 0; side < 2; side++)
			if (l->links[i].ends[side] == from && l->links[i].ends[!side] == to)
				return &l->links[i].ways[side];
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
	unsigned first = of_hosts ? 0 : l->topology.hosts, end = of_hosts ? l->topology.hosts : l->count;

	for (unsigned i = first; i < end; i++)
		if (!change(&l->links[i].ways[0], text, in_earnest, why) ||
		    !change(&l->links[i].ways[1], text, in_earnest, why))
			return false;
	return true;
}

static bool change_one(struct lab_links *l, unsigned from, unsigned to, const char *text, bool in_earnest,
		       char why[LAB_WHY_BYTES])
{
	struct lab_way *way = way_between(l, from, to);
	char a[NAME_BYTES], b[NAME_BYTES];

	if (way)
		return change(way, text, in_earnest, why);
	name_node(&l->topology, from, a);
	name_node(&l->topology, to, b);
	snprintf(why, LAB_WHY_BYTES, "there is no link between %s and %s", a, b);
	return false;
}

static bool change_named(struct lab_links *l, const char *name, const char *text, bool in_earnest,
			 char why[LAB_WHY_BYTES])
{
	static unsigned from[NODES_MAX], to[NODES_MAX];
	char names[1024];
	size_t cut = strcspn(name, "->");
	bool both = name[cut] == '-';
	unsigned n, m;

	if (strcmp(name, "hosts") == 0 || strcmp(name, "switches") == 0)
		return change_group(l, *name == 'h', text, in_earnest, why);
	snprintf(names, sizeof(names), "%s", name);
	if (cut < sizeof(names) - 1)
		names[cut] = '\0';
	n = find_nodes(&l->topology, names, from, why);
	m = n && name[cut] ? find_nodes(&l->topology, names + cut + 1, to, why) : 0;
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

bool lab_links_each(const struct lab_links *l, unsigned *number, char name[64], const struct lab_way **way)
{
	const struct lab_topology *t = &l->topology;
	unsigned from, to, i = *number - 2 * l->count;
	char a[NAME_BYTES], b[NAME_BYTES];

	if (*number < 2 * l->count) {
		const struct lab_link *link = &l->links[*number / 2];
		from = link->ends[*number % 2];
		to = link->ends[!(*number % 2)];
		*way = &link->ways[*number % 2];
	} else {
		while (i < t->hosts * t->hosts && !l->pairs[i])
			i++;
		if (i >= t->hosts * t->hosts)
			return false;
		from = i / t->hosts;
		to = i % t->hosts;
		*way = l->pairs[i];
		*number = 2 * l->count + i;
	}
	++*number;
	name_node(t, from, a);
	name_node(t, to, b);
	snprintf(name, 64, "%s>%s", a, b);
	return true;
}
