/* SPDX-License-Identifier: BSD-2-Clause */
/* What becomes of packets in a lab: shapes, settings as text, decisions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lab/links.h"

enum { PACKETS = 20000, BYTES = 1000, MICROSECOND = 1000 };

static struct lab_way way_of(const char *text, uint64_t seed)
{
	struct lab_way way;
	char why[LAB_WHY_BYTES];

	lab_way_start(&way, seed, 3);
	assert_true(lab_rule_parse(&way.rule, text, why));
	return way;
}

static void assert_near(uint64_t found, uint64_t wanted)
{
	assert_true(found > wanted * 8 / 10 && found < wanted * 12 / 10);
}

/* ---- decisions ---- */

static void decide__plain(void **state)
{
	struct lab_way way = way_of("clear", 1);
	struct lab_fate fate;

	assert_true(lab_way_is_plain(&way.rule));
	for (uint64_t at = 5; at < 8; at++) {
		lab_way_pass(&way, at, BYTES, true, &fate);
		assert_int_equal(fate.copies, 1);
		assert_int_equal(fate.at_ns[0], at);
		assert_false(fate.is_marked || fate.is_corrupt);
	}
}

static void decide__shares(void **state)
{
	struct lab_way way = way_of("loss 5% duplicate 10% reorder 20% corrupt 1%", 1);
	struct lab_fate fate;

	for (uint64_t n = 0; n < PACKETS; n++)
		lab_way_pass(&way, n, BYTES, false, &fate);
	assert_int_equal(way.packets, PACKETS);
	assert_int_equal(way.passed + way.lost, PACKETS);
	assert_near(way.lost, PACKETS / 20);
	assert_near(way.duplicated, way.passed / 10);
	assert_near(way.reordered, way.passed / 5);
	assert_near(way.corrupted, way.passed / 100);
}

/* Neither time nor another setting changes what becomes of a packet. */
static void decide__seed(void **state)
{
	struct lab_way a = way_of("loss 30%", 1), b = way_of("loss 30% delay 1ms jitter 1ms corrupt 50%", 1);
	struct lab_way c = way_of("loss 30%", 2);
	struct lab_fate of_a, of_b, of_c;
	unsigned differences = 0;

	for (uint64_t n = 0; n < 1000; n++) {
		lab_way_pass(&a, n, BYTES, false, &of_a);
		lab_way_pass(&b, n * n, 64, false, &of_b);
		lab_way_pass(&c, n, BYTES, false, &of_c);
		assert_int_equal(of_a.copies, of_b.copies);
		differences += of_a.copies != of_c.copies;
	}
	assert_true(differences > 100);
}

static void decide__jitter_keeps_order(void **state)
{
	struct lab_way way = way_of("delay 10us jitter 100us", 1);
	struct lab_fate fate;
	uint64_t last = 0;

	for (uint64_t n = 0; n < 1000; n++) {
		lab_way_pass(&way, n, BYTES, false, &fate);
		assert_true(fate.at_ns[0] > last && fate.at_ns[0] >= n + 10 * MICROSECOND);
		assert_true(fate.at_ns[0] <= n + 111 * MICROSECOND);
		last = fate.at_ns[0];
	}
}

static void decide__rate_and_queue(void **state)
{
	struct lab_way way = way_of("rate 8mbit queue 10k", 1); /* a packet in a millisecond, ten wait */
	struct lab_fate fate;

	for (uint64_t n = 0; n < 15; n++) {
		lab_way_pass(&way, 0, BYTES, false, &fate);
		assert_int_equal(fate.copies, n < 10);
		if (n < 10)
			assert_int_equal(fate.at_ns[0], (n + 1) * 1000 * MICROSECOND);
	}
	assert_int_equal(way.overflowed, 5);
	lab_way_pass(&way, 1000 * MICROSECOND, BYTES, false, &fate); /* one has left */
	assert_int_equal(fate.copies, 1);
	assert_int_equal(fate.at_ns[0], 11 * 1000 * MICROSECOND);
}

static void decide__marks(void **state)
{
	struct lab_way way = way_of("rate 8mbit queue 100k ecn 20k-40k", 1);
	struct lab_fate fate;
	unsigned before = 0, between = 0;

	for (uint64_t n = 0; n < 60; n++) {
		lab_way_pass(&way, 0, BYTES, n != 59, &fate);
		before += n < 20 && fate.is_marked;
		between += n >= 20 && n < 40 && fate.is_marked;
		assert_int_equal(fate.is_marked, n >= 40 ? n != 59 : fate.is_marked);
	}
	assert_int_equal(before, 0);
	assert_true(between > 2 && between < 18);
}

static void decide__cut(void **state)
{
	struct lab_way way = way_of("down", 1);
	struct lab_fate fate;
	char why[LAB_WHY_BYTES];

	assert_false(lab_way_is_plain(&way.rule));
	lab_way_pass(&way, 0, BYTES, false, &fate);
	assert_int_equal(fate.copies, 0);
	assert_true(lab_rule_parse(&way.rule, "up", why));
	lab_way_pass(&way, 0, BYTES, false, &fate);
	assert_int_equal(fate.copies, 1);
}

/* ---- text ---- */

static void text__there_and_back(void **state)
{
	static const char *const texts[] = {
		"clear", "down", "rate 10gbit delay 50us", "loss 0.5%", "jitter 1500ns duplicate 100%",
		"reorder 1% late 2ms", "rate 1mbit queue 1000 ecn 100-900",
	};
	char text[256];

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct lab_way way = way_of(texts[i], 1);
		lab_rule_text(&way.rule, text, sizeof(text));
		assert_string_equal(text, texts[i]);
	}
}

static void text__wrong(void **state)
{
	static const char *const texts[] = {
		"loss", "loss 2", "loss 101%", "loss 0.000000000001%", "loss -1%", "delay 5", "delay 5min",
		"rate fast", "rate 0.1bit", "ecn 5k", "ecn 9k-8k", "queue 5x", "nonsense", "down loss",
	};
	struct lab_rule rule = { .delay_ns = 5 };
	char why[LAB_WHY_BYTES];

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		why[0] = '\0';
		assert_false(lab_rule_parse(&rule, texts[i], why));
		assert_true(why[0]);
		assert_false(rule.is_cut);
		assert_int_equal(rule.delay_ns, 5);
	}
}

/* ---- shapes ---- */

static void walk(struct lab_links *links, unsigned from, unsigned to, unsigned ways)
{
	struct lab_hop hop = { .from = from, .to = to };
	unsigned n = 0;

	while (lab_links_next(links, &hop))
		assert_true(++n <= ways);
	assert_int_equal(n, ways);
	assert_int_equal(hop.node, to);
}

static struct lab_topology topology;

static void open_hosts(unsigned hosts)
{
	char why[LAB_WHY_BYTES];

	topology = (struct lab_topology){ 0 };
	assert_true(lab_topology_open(&topology, hosts, NULL, why));
}

static void open_links(struct lab_links *links, unsigned hosts, const char *shape)
{
	char why[LAB_WHY_BYTES];

	open_hosts(hosts);
	assert_true(lab_topology_is_shape(shape));
	assert_true(lab_topology_shape(&topology, shape, why));
	assert_true(lab_topology_is_whole(&topology, why));
	assert_true(lab_links_open(links, &topology));
}

static void close_links(struct lab_links *links)
{
	lab_links_close(links);
	lab_topology_close(&topology);
}

static void shapes__ways(void **state)
{
	struct lab_links links;
	char why[LAB_WHY_BYTES];

	open_links(&links, 5, "star");
	walk(&links, 0, 4, 2);
	assert_true(lab_links_set(&links, "h1-h5", "loss 1%", why));
	walk(&links, 0, 4, 3);
	walk(&links, 4, 0, 3);
	walk(&links, 1, 4, 2);
	close_links(&links);
	open_links(&links, 5, "line");
	for (unsigned a = 0; a < 5; a++)
		for (unsigned b = 0; b < 5; b++)
			if (a != b)
				walk(&links, a, b, 2 + (a < b ? b - a : a - b));
	close_links(&links);
	open_links(&links, 7, "leaf-spine:3,2"); /* h1 to h3, h4 and h5, h6 and h7 */
	for (unsigned a = 0; a < 7; a++)
		for (unsigned b = 0; b < 7; b++)
			if (a != b)
				walk(&links, a, b, a * 3 / 7 == b * 3 / 7 ? 2 : 4);
	close_links(&links);
}

static void shapes__wrong(void **state)
{
	static const char *const shapes[] = { "ring", "leaf-spine", "leaf-spine:0,1", "leaf-spine:5,1",
					      "leaf-spine:2,2x", "leaf-spine:1,0", "leaf-spine:4294967297,1",
					      "leaf-spine:1,4294967297" };
	char why[LAB_WHY_BYTES];

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		open_hosts(4);
		assert_false(lab_topology_shape(&topology, shapes[i], why));
		lab_topology_close(&topology);
	}
}

/* With the largest of all, each pair has a way. */
static void shapes__most(void **state)
{
	struct lab_links links;

	open_links(&links, 250, "leaf-spine:250,64");
	walk(&links, 0, 249, 4);
	close_links(&links);
	open_links(&links, 250, "line");
	walk(&links, 249, 0, 251);
	close_links(&links);
}

/* The spine that a pair takes is the one that the sum of its hosts names. */
static void shapes__same_spine(void **state)
{
	struct lab_hop hop = { .from = 1, .to = 7 };
	struct lab_links links;

	open_links(&links, 8, "leaf-spine:2,3");
	lab_links_next(&links, &hop);
	lab_links_next(&links, &hop);
	assert_int_equal(hop.node, lab_topology_find(&topology, "spine3"));
	close_links(&links);
}

/* ---- links that are listed ---- */

/*
 *     h1 ─ a ─ b ─ c ─ h3
 *          │   h2  │
 *          d ───── e
 */
static void listed__shortest(void **state)
{
	static const char *const list[] = { "h1-a", "b-h2", "h3-c", "a-b", "b-c", "a-d", "d-e", "e-c" };
	struct lab_links links;
	char why[LAB_WHY_BYTES];

	open_hosts(3);
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		assert_true(lab_topology_add(&topology, list[i], why));
	assert_true(lab_topology_is_whole(&topology, why));
	assert_true(lab_links_open(&links, &topology));
	walk(&links, 0, 2, 4);
	walk(&links, 0, 1, 3);
	assert_true(lab_links_set(&links, "d-e", "loss 1%", why));
	assert_true(lab_links_set(&links, "hosts", "loss 1%", why));
	assert_true(lab_links_order(&links, "switches clear", why));
	assert_false(lab_links_set(&links, "a-c", "loss 1%", why));
	close_links(&links);
}

static void listed__wrong(void **state)
{
	static const char *const list[] = { "", "h1", "h1-", "-a", "h1-h2", "h1-b", "a-a", "b-a", "a-hosts",
					    "a-B", "a-1b", "a-localhost", "a-averyverylongname", "a-c-d" };
	char why[LAB_WHY_BYTES];

	open_hosts(2);
	assert_true(lab_topology_add(&topology, "h1-a", why));
	assert_true(lab_topology_add(&topology, "a-b", why));
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		why[0] = '\0';
		assert_false(lab_topology_add(&topology, list[i], why));
		assert_true(why[0]);
		assert_int_equal(topology.nodes, 4);
		assert_int_equal(topology.links, 3);
	}
	assert_false(lab_topology_is_whole(&topology, why));
	assert_true(lab_topology_add(&topology, "h2-c", why));
	assert_false(lab_topology_is_whole(&topology, why));
	assert_true(lab_topology_add(&topology, "b-c", why));
	assert_true(lab_topology_is_whole(&topology, why));
	lab_topology_close(&topology);
}

static void listed__names_of_hosts(void **state)
{
	static const char *const wrong[] = { "", "Server", "a-b", "a.b", "1a", "hosts", "localhost", "one" };
	char *names[] = { "one", "two" }, why[LAB_WHY_BYTES];

	topology = (struct lab_topology){ 0 };
	assert_true(lab_topology_open(&topology, 2, names, why));
	assert_int_equal(lab_topology_find(&topology, "two"), 1);
	assert_int_equal(lab_topology_find(&topology, "h1"), LAB_NOWHERE);
	lab_topology_close(&topology);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		names[1] = (char *)wrong[i];
		assert_false(lab_topology_open(&topology, 2, names, why));
		lab_topology_close(&topology);
	}
}

static unsigned changed(const struct lab_links *links)
{
	const struct lab_way *way;
	unsigned n = 0;
	char name[64];

	for (unsigned i = 0; lab_links_each(links, &i, name, &way);)
		n += !lab_way_is_plain(&way->rule);
	return n;
}

static void names__ways(void **state)
{
	static const struct {
		const char *name;
		unsigned ways;
	} names[] = {
		{ "h1-h2", 2 }, { "h1>h2", 1 }, { "h1,h2-h3,h4", 8 }, { "h1-leaf1", 2 }, { "leaf1>h1", 1 },
		{ "leaf1,leaf2-spine1", 4 }, { "hosts", 8 }, { "switches", 8 },
	};
	struct lab_links links;
	char why[LAB_WHY_BYTES];

	open_links(&links, 4, "leaf-spine:2,2");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		assert_true(lab_links_set(&links, names[i].name, "loss 1%", why));
		assert_int_equal(changed(&links), names[i].ways);
		assert_false(links.are_plain);
		assert_true(lab_links_set(&links, names[i].name, "clear", why));
		assert_true(links.are_plain);
	}
	close_links(&links);
}

static void names__wrong(void **state)
{
	static const char *const names[] = { "", "h1", "h1-", "-h1", "h1-h5", "h1-h1", "h1-spine1", "h1-leaf2",
					     "leaf1-leaf2", "h2,h1-leaf1,spine1" };
	struct lab_links links;
	char why[LAB_WHY_BYTES];

	open_links(&links, 4, "leaf-spine:2,2");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		why[0] = '\0';
		assert_false(lab_links_set(&links, names[i], "down", why));
		assert_true(why[0]);
		assert_int_equal(changed(&links), 0);
	}
	close_links(&links);
}

static unsigned listed(const struct lab_links *links)
{
	const struct lab_way *way;
	unsigned n = 0;
	char name[64];

	for (unsigned i = 0; lab_links_each(links, &i, name, &way);)
		n++;
	return n;
}

static void settings__that_are_refused_leave_no_way(void **state)
{
	struct lab_links links;
	char why[LAB_WHY_BYTES];
	unsigned before;

	open_links(&links, 4, "leaf-spine:2,2");
	before = listed(&links);
	assert_false(lab_links_set(&links, "h1-h2", "loss much", why));
	assert_int_equal(listed(&links), before);
	assert_true(lab_links_set(&links, "h1-h2", "loss 1%", why));
	assert_int_equal(listed(&links), before + 2);
	assert_false(lab_links_set(&links, "h1-h2", "loss much", why));
	assert_int_equal(changed(&links), 2);
	close_links(&links);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decide__plain),
		cmocka_unit_test(decide__shares),
		cmocka_unit_test(decide__seed),
		cmocka_unit_test(decide__jitter_keeps_order),
		cmocka_unit_test(decide__rate_and_queue),
		cmocka_unit_test(decide__marks),
		cmocka_unit_test(decide__cut),
		cmocka_unit_test(text__there_and_back),
		cmocka_unit_test(text__wrong),
		cmocka_unit_test(shapes__ways),
		cmocka_unit_test(shapes__wrong),
		cmocka_unit_test(shapes__most),
		cmocka_unit_test(shapes__same_spine),
		cmocka_unit_test(listed__shortest),
		cmocka_unit_test(listed__wrong),
		cmocka_unit_test(listed__names_of_hosts),
		cmocka_unit_test(names__ways),
		cmocka_unit_test(names__wrong),
		cmocka_unit_test(settings__that_are_refused_leave_no_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
