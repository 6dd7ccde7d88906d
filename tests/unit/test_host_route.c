/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Routes and neighbours, in a network of the test's own: the loopback interface, and an Ethernet with
 * 10.9.0.1 and fd09::1.
 */
#include "child.h"

#include <arpa/inet.h>
#include <errno.h>

#include "host/net/route.h"
#include "netns.h"

static struct in6_addr ip(const char *text)
{
	struct in6_addr a = { .s6_addr = { [10] = 0xff, 0xff } };

	if (inet_pton(AF_INET, text, &a.s6_addr[12]) != 1)
		assert_int_equal(inet_pton(AF_INET6, text, &a), 1);
	return a;
}

static void must_run(const char *command)
{
	assert_int_equal(system(command), 0);
}

static int find(const char *to, uint32_t scope, const char *from, struct vb_route *route)
{
	struct in6_addr dst = ip(to), src = from ? ip(from) : in6addr_any;

	return vb_route_find(&dst, scope, from ? &src : NULL, route);
}

static void assert_route(const char *to, const char *source, const char *next_hop, const char *interface)
{
	struct vb_route r;
	struct in6_addr dst = ip(to), src = ip(source), hop = ip(next_hop);

	assert_int_equal(find(to, 0, NULL, &r), 0);
	assert_memory_equal(&r.destination, &dst, sizeof(dst));
	assert_memory_equal(&r.source, &src, sizeof(src));
	assert_memory_equal(&r.next_hop, &hop, sizeof(hop));
	assert_int_equal(r.ifindex, if_nametoindex(interface));
}

static void route__tells_source_interface_and_next_hop(void **state)
{
	assert_route("127.0.0.1", "127.0.0.1", "127.0.0.1", "lo");
	assert_route("::1", "::1", "::1", "lo");
	assert_route("10.9.0.77", "10.9.0.1", "10.9.0.77", "wire");
	assert_route("fd09::77", "fd09::1", "fd09::77", "wire");
	must_run("ip route add 198.51.100.0/24 via 10.9.0.254; ip -6 route add 2001:db8::/64 via fd09::254");
	assert_route("198.51.100.7", "10.9.0.1", "10.9.0.254", "wire");
	assert_route("2001:db8::7", "fd09::1", "fd09::254", "wire");
	must_run("ip route del 198.51.100.0/24; ip -6 route del 2001:db8::/64");
}

static void route__has_the_source_asked_for(void **state)
{
	struct in6_addr second = ip("10.9.0.2");
	struct vb_route r;

	must_run("ip address add 10.9.0.2/24 dev wire");
	assert_int_equal(find("10.9.0.77", 0, "10.9.0.2", &r), 0);
	assert_memory_equal(&r.source, &second, sizeof(second));
	must_run("ip address del 10.9.0.2/24 dev wire");
	assert_int_equal(find("10.9.0.77", 0, "10.9.0.2", &r), -EADDRNOTAVAIL);
}

static void route__there_is_none(void **state)
{
	struct vb_route r;

	assert_int_equal(find("203.0.113.7", 0, NULL, &r), -ENETUNREACH);
	assert_int_equal(find("2001:db8:1::7", 0, NULL, &r), -ENETUNREACH);
	assert_int_equal(find("fe80::7", 0, NULL, &r), -EINVAL); /* on which interface? */
	must_run("ip route add prohibit 198.51.100.0/24");
	assert_true(find("198.51.100.7", 0, NULL, &r) < 0);
	must_run("ip route del 198.51.100.0/24");
}

static void route__link_local_has_its_interface(void **state)
{
	struct vb_route r;
	unsigned wire = if_nametoindex("wire");

	/* The interface's own link-local address comes a while after the interface. */
	assert_true(WAIT_FOR(find("fe80::7", wire, NULL, &r) == 0 && IN6_IS_ADDR_LINKLOCAL(&r.source)));
	assert_int_equal(r.ifindex, wire);
}

static void route__tells_the_mtu(void **state)
{
	struct vb_route r;

	if (!kernel_tells_mtu())
		SKIP(NO_MTU);
	assert_int_equal(find("10.9.0.77", 0, NULL, &r), 0);
	assert_int_equal(r.mtu, 1500);
	must_run("ip link set wire mtu 4200");
	assert_int_equal(find("10.9.0.77", 0, NULL, &r), 0);
	assert_int_equal(r.mtu, 4200);
	must_run("ip route add 198.51.100.0/24 via 10.9.0.254 mtu 1400; ip link set wire mtu 1500");
	assert_int_equal(find("198.51.100.7", 0, NULL, &r), 0);
	assert_int_equal(r.mtu, 1400);
	must_run("ip route del 198.51.100.0/24");
}

static bool is_ready(const char *to)
{
	struct vb_route r;

	assert_int_equal(find(to, 0, NULL, &r), 0);
	return vb_route_is_ready(&r);
}

static void ready__where_no_link_address_is_needed(void **state)
{
	struct vb_route r;

	assert_true(is_ready("127.0.0.1"));
	assert_true(is_ready("::1"));
	assert_true(is_ready("10.9.0.1")); /* this host's */
	must_run("ip route add 239.0.0.0/8 dev wire");
	assert_true(is_ready("239.1.2.3"));
	must_run("ip route del 239.0.0.0/8");
	must_run("ip link set wire arp off");
	assert_true(is_ready("10.9.0.77"));
	must_run("ip link set wire arp on");
	assert_int_equal(find("10.9.0.77", 0, NULL, &r), 0);
	r.ifindex = 0; /* nothing is known */
	assert_true(vb_route_is_ready(&r));
}

static void ready__once_the_neighbour_is_known(void **state)
{
	assert_false(is_ready("10.9.0.78"));
	assert_false(is_ready("fd09::78"));
	must_run(
		"ip neigh add 10.9.0.78 lladdr 02:00:00:00:00:78 dev wire; ip neigh add fd09::78 lladdr 02:00:00:00:00:78 dev wire");
	assert_true(is_ready("10.9.0.78"));
	assert_true(is_ready("fd09::78"));
	must_run("ip neigh del 10.9.0.78 dev wire; ip neigh del fd09::78 dev wire");
}

static void ready__asks_about_the_gateway(void **state)
{
	must_run("ip route add 198.51.100.0/24 via 10.9.0.254");
	assert_false(is_ready("198.51.100.7"));
	must_run("ip neigh add 10.9.0.254 lladdr 02:00:00:00:00:54 dev wire");
	assert_true(is_ready("198.51.100.7"));
	must_run("ip neigh del 10.9.0.254 dev wire; ip route del 198.51.100.0/24");
}

/* A kick makes the kernel look for a neighbour that it has never heard of; nobody is there. */
static void kick__makes_the_kernel_ask(void **state)
{
	struct vb_route r;

	assert_int_equal(system("ip neigh show 10.9.0.79 | grep -q ."), 256);
	assert_int_equal(find("10.9.0.79", 0, NULL, &r), 0);
	/* finding a route sends nothing */
	assert_int_equal(system("ip neigh show 10.9.0.79 | grep -q ."), 256);
	vb_route_kick(&r);
	must_run("ip neigh show 10.9.0.79 | grep -q .");
	assert_false(vb_route_is_ready(&r));
}

static void check_rule(const char *to, const char *from, const char *next_hop)
{
	char command[128];
	struct vb_route r;
	struct in6_addr hop = ip(next_hop);

	assert_int_equal(find(to, 0, from, &r), 0);
	assert_memory_equal(&r.next_hop, &hop, sizeof(hop));
	assert_int_equal(r.ifindex, if_nametoindex("other"));
	vb_route_kick(&r);
	snprintf(command, sizeof(command), "ip neigh show %s dev other | grep -q .", next_hop);
	must_run(command);
}

/* As on hosts with several adapters: packets leave by the adapter that has their source. */
static void route__goes_by_its_source(void **state)
{
	must_run("ip address add 10.8.0.1/24 dev other");
	assert_true(netns_add_v6("fd08::1", "other"));
	must_run("ip route add 198.51.100.0/24 via 10.9.0.254; ip -6 route add 2001:db8::/64 via fd09::254");
	must_run("ip rule add from 10.8.0.1 table 100; ip -6 rule add from fd08::1 table 100");
	must_run("ip route add default via 10.8.0.254 dev other table 100");
	must_run("ip -6 route add default via fd08::254 dev other table 100");
	check_rule("198.51.100.7", "10.8.0.1", "10.8.0.254");
	check_rule("2001:db8::7", "fd08::1", "fd08::254");
	assert_route("198.51.100.7", "10.9.0.1", "10.9.0.254", "wire");
	assert_route("2001:db8::7", "fd09::1", "fd09::254", "wire");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(route__tells_source_interface_and_next_hop),
		cmocka_unit_test(route__has_the_source_asked_for),
		cmocka_unit_test(route__there_is_none),
		cmocka_unit_test(route__link_local_has_its_interface),
		cmocka_unit_test(route__tells_the_mtu),
		cmocka_unit_test(ready__where_no_link_address_is_needed),
		cmocka_unit_test(ready__once_the_neighbour_is_known),
		cmocka_unit_test(ready__asks_about_the_gateway),
		cmocka_unit_test(kick__makes_the_kernel_ask),
		cmocka_unit_test(route__goes_by_its_source),
	};

	if (!netns_enter() || !netns_add_wire()) {
		printf("1..0 # SKIP no network of its own\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
