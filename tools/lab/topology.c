/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "topology.h"

enum { SPINES_MAX = 64, LINKS_MAX = 32768, FAR = UINT16_MAX };

/* ---- nodes ---- */

unsigned lab_topology_find(const struct lab_topology *t, const char *name)
{
	for (unsigned node = 0; node < t->nodes; node++)
		if (strcmp(t->names[node], name) == 0)
			return node;
	return LAB_NOWHERE;
}

/* Such that it is a word in the names of links, in /etc/hosts and on a command line. */
static bool is_name(const char *name)
{
	size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789");

	return *name >= 'a' && *name <= 'z' && len < LAB_NODE_BYTES && !name[len];
}

/* Words that mean something else where a node or an address is named. */
static bool is_taken(const struct lab_topology *t, const char *name)
{
	return lab_topology_find(t, name) != LAB_NOWHERE || strcmp(name, "localhost") == 0 ||
	       strcmp(name, "hosts") == 0 || strcmp(name, "switches") == 0;
}

static bool add_node(struct lab_topology *t, const char *name, char why[LAB_WHY_BYTES])
{
	if (!is_name(name))
		return lab_refuse(why, "a name is a small letter, and small letters and digits, 15 in all", name);
	if (is_taken(t, name))
		return lab_refuse(why, "this name is taken already", name);
	if (t->nodes == LAB_NODES_MAX)
		return lab_refuse(why, "there are too many switches", name);
	strcpy(t->names[t->nodes++], name);
	return true;
}

bool lab_topology_open(struct lab_topology *t, unsigned hosts, char *const *names, char why[LAB_WHY_BYTES])
{
	char name[LAB_NODE_BYTES];

	*t = (struct lab_topology){ .hosts = hosts, .links = hosts, .seed = t->seed };
	t->names = calloc(LAB_NODES_MAX, sizeof(*t->names));
	t->ends = malloc(LINKS_MAX * sizeof(*t->ends));
	if (!t->names || !t->ends)
		return lab_refuse(why, "out of memory", "");
	for (unsigned host = 0; host < hosts; host++) {
		snprintf(name, sizeof(name), "h%u", host + 1);
		if (!add_node(t, names ? names[host] : name, why))
			return false;
		t->ends[host][0] = host;
		t->ends[host][1] = LAB_NOWHERE;
	}
	return true;
}

void lab_topology_close(struct lab_topology *t)
{
	free(t->names);
	free(t->ends);
	*t = (struct lab_topology){ 0 };
}

/* ---- links ---- */

static void join(struct lab_topology *t, unsigned a, unsigned b)
{
	unsigned number = a < t->hosts ? a : t->links++;

	t->ends[number][0] = a;
	t->ends[number][1] = b;
}

static bool is_joined(const struct lab_topology *t, unsigned a, unsigned b)
{
	if (a < t->hosts)
		return t->ends[a][1] != LAB_NOWHERE;
	for (unsigned i = t->hosts; i < t->links; i++)
		if ((t->ends[i][0] == a && t->ends[i][1] == b) || (t->ends[i][0] == b && t->ends[i][1] == a))
			return true;
	return false;
}

/* A switch that is named for the first time comes to be so. */
static unsigned find_or_add(struct lab_topology *t, const char *name, char why[LAB_WHY_BYTES])
{
	unsigned node = lab_topology_find(t, name);

	if (node == LAB_NOWHERE && add_node(t, name, why))
		node = t->nodes - 1;
	return node;
}

static bool add_between(struct lab_topology *t, const char *link, unsigned a, unsigned b,
			char why[LAB_WHY_BYTES])
{
	if (b < t->hosts)
		return lab_refuse(why, "a link joins a host and a switch, or two switches", link);
	if (a == b)
		return lab_refuse(why, "a link joins two nodes", link);
	if (is_joined(t, a, b))
		return lab_refuse(why, a < t->hosts ? "a host has one link" : "there is this link already", link);
	if (t->links == LINKS_MAX)
		return lab_refuse(why, "there are too many links", link);
	join(t, a, b);
	return true;
}

bool lab_topology_add(struct lab_topology *t, const char *link, char why[LAB_WHY_BYTES])
{
	unsigned nodes = t->nodes, a, b;
	const char *cut = strchr(link, '-');
	char first[LAB_NODE_BYTES + 1];

	if (!cut)
		return lab_refuse(why, "a link's name is A-B", link);
	snprintf(first, sizeof(first), "%.*s", (int)(cut - link), link);
	a = find_or_add(t, first, why);
	b = a == LAB_NOWHERE ? a : find_or_add(t, cut + 1, why);
	if (b != LAB_NOWHERE && add_between(t, link, a < b ? a : b, a < b ? b : a, why))
		return true;
	t->nodes = nodes;
	return false;
}

/* ---- shapes ---- */

static bool add_switches(struct lab_topology *t, const char *stem, unsigned count, char why[LAB_WHY_BYTES])
{
	char name[LAB_NODE_BYTES + 8];

	for (unsigned i = 1; i <= count; i++) {
		snprintf(name, sizeof(name), "%s%u", stem, i);
		if (!add_node(t, name, why))
			return false;
	}
	return true;
}

static bool make_star(struct lab_topology *t, char why[LAB_WHY_BYTES])
{
	if (!add_node(t, "net", why))
		return false;
	for (unsigned host = 0; host < t->hosts; host++)
		join(t, host, t->hosts);
	return true;
}

static bool make_line(struct lab_topology *t, char why[LAB_WHY_BYTES])
{
	if (!add_switches(t, "s", t->hosts, why))
		return false;
	for (unsigned host = 0; host < t->hosts; host++)
		join(t, host, t->hosts + host);
	for (unsigned host = 0; host + 1 < t->hosts; host++)
		join(t, t->hosts + host, t->hosts + host + 1);
	return true;
}

static bool make_leaf_spine(struct lab_topology *t, unsigned leaves, unsigned spines, char why[LAB_WHY_BYTES])
{
	if (!add_switches(t, "leaf", leaves, why) || !add_switches(t, "spine", spines, why))
		return false;
	for (unsigned host = 0; host < t->hosts; host++)
		join(t, host, t->hosts + host * leaves / t->hosts);
	for (unsigned leaf = 0; leaf < leaves; leaf++)
		for (unsigned spine = 0; spine < spines; spine++)
			join(t, t->hosts + leaf, t->hosts + leaves + spine);
	return true;
}

static const char leaf_spine[] = "leaf-spine:";

bool lab_topology_is_shape(const char *text)
{
	return strcmp(text, "star") == 0 || strcmp(text, "line") == 0 ||
	       strncmp(text, leaf_spine, sizeof(leaf_spine) - 1) == 0;
}

bool lab_topology_shape(struct lab_topology *t, const char *text, char why[LAB_WHY_BYTES])
{
	unsigned leaves, spines;
	char rest;

	if (strcmp(text, "star") == 0)
		return make_star(t, why);
	if (strcmp(text, "line") == 0)
		return make_line(t, why);
	/* of so few digits: larger numbers would lose their high bits */
	if (sscanf(text, "leaf-spine:%3u,%2u%c", &leaves, &spines, &rest) == 2 && leaves > 0 && spines > 0 &&
	    leaves <= t->hosts && spines <= SPINES_MAX)
		return make_leaf_spine(t, leaves, spines, why);
	return lab_refuse(why, "no star, line or leaf-spine:LEAVES,SPINES with no more leaves than hosts", text);
}

/* ---- routes ---- */

/* Lists the links of each switch. */
static void list_links(struct lab_routes *r)
{
	const struct lab_topology *t = r->topology;
	unsigned n = 0;

	for (unsigned node = t->hosts; node < t->nodes; node++) {
		r->begin[node - t->hosts] = n;
		for (unsigned i = t->hosts; i < t->links; i++)
			if (t->ends[i][0] == node || t->ends[i][1] == node)
				r->links[n++] = i;
	}
	r->begin[r->switches] = n;
}

static unsigned other_end(const struct lab_routes *r, unsigned link, unsigned from)
{
	const unsigned *ends = r->topology->ends[link];

	return (ends[0] == from + r->topology->hosts ? ends[1] : ends[0]) - r->topology->hosts;
}

static struct lab_route *route(const struct lab_routes *r, unsigned from, unsigned to)
{
	return &r->routes[from * r->switches + to];
}

/* From a switch outwards, one hop after the other. */
static void measure(struct lab_routes *r, unsigned to, unsigned *queue)
{
	unsigned head = 0, tail = 0;

	for (unsigned from = 0; from < r->switches; from++)
		route(r, from, to)->hops = FAR;
	route(r, to, to)->hops = 0;
	for (queue[tail++] = to; head < tail; head++) {
		unsigned here = queue[head];
		for (unsigned i = r->begin[here]; i < r->begin[here + 1]; i++) {
			unsigned next = other_end(r, r->links[i], here);
			if (route(r, next, to)->hops != FAR)
				continue;
			route(r, next, to)->hops = (uint16_t)(route(r, here, to)->hops + 1);
			queue[tail++] = next;
		}
	}
}

static bool leads(const struct lab_routes *r, unsigned i, unsigned from, unsigned to)
{
	return route(r, other_end(r, r->links[i], from), to)->hops + 1 == route(r, from, to)->hops;
}

static void choose(struct lab_routes *r, unsigned from, unsigned to)
{
	struct lab_route *found = route(r, from, to);

	for (unsigned i = r->begin[from + 1]; i-- > r->begin[from];)
		if (found->hops != FAR && leads(r, i, from, to)) {
			found->first = (uint16_t)(i - r->begin[from]);
			found->count++;
		}
}

bool lab_routes_open(struct lab_routes *r, const struct lab_topology *t)
{
	unsigned queue[LAB_NODES_MAX];

	*r = (struct lab_routes){ .switches = t->nodes - t->hosts, .topology = t };
	r->routes = calloc((size_t)r->switches * r->switches, sizeof(*r->routes));
	r->begin = calloc(r->switches + 1u, sizeof(*r->begin));
	r->links = calloc(2 * (size_t)t->links, sizeof(*r->links));
	if (!r->routes || !r->begin || !r->links) {
		lab_routes_close(r);
		return false;
	}
	list_links(r);
	for (unsigned to = 0; to < r->switches; to++)
		measure(r, to, queue);
	for (unsigned from = 0; from < r->switches; from++)
		for (unsigned to = 0; to < r->switches; to++)
			choose(r, from, to);
	return true;
}

void lab_routes_close(struct lab_routes *r)
{
	free(r->routes);
	free(r->begin);
	free(r->links);
	*r = (struct lab_routes){ 0 };
}

unsigned lab_routes_next(const struct lab_routes *r, unsigned from, unsigned to, unsigned choice)
{
	const struct lab_route *found = route(r, from, to);
	unsigned i = r->begin[from] + found->first;

	for (choice %= found->count; choice > 0; choice--)
		do
			i++;
		while (!leads(r, i, from, to));
	return r->links[i];
}

bool lab_topology_is_whole(const struct lab_topology *t, char why[LAB_WHY_BYTES])
{
	struct lab_routes routes;
	bool is_whole = true;

	for (unsigned host = 0; host < t->hosts; host++)
		if (t->ends[host][1] == LAB_NOWHERE)
			return lab_refuse(why, "a host has no link", t->names[host]);
	if (!lab_routes_open(&routes, t))
		return lab_refuse(why, "out of memory", "");
	for (unsigned host = 1; is_whole && host < t->hosts; host++)
		if (route(&routes, t->ends[0][1] - t->hosts, t->ends[host][1] - t->hosts)->hops == FAR)
			is_whole = lab_refuse(why, "the first host has no way to this one", t->names[host]);
	lab_routes_close(&routes);
	return is_whole;
}
