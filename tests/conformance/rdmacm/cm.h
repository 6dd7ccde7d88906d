/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the tests of rdma_cm share: addresses to test on, waiting for events, ids in a given state. A wait
 * that is never satisfied fails its test after WAIT_MS; no test asserts that something takes a time.
 */
#ifndef CM_TEST_H
#define CM_TEST_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../unit/netns.h"

enum { WAIT_MS = 30000, SOME_QPN = 0x123456 };

#define UNUSED __attribute__((unused))

#define assert_ok(call)                                                                  \
	do {                                                                             \
		errno = 0;                                                               \
		if ((call) != 0)                                                         \
			fail_msg("%s: %s", #call, strerror(errno));                      \
	} while (0)

/* The call fails with -1 and this errno. */
#define assert_refused(err, call)                                                        \
	do {                                                                             \
		errno = 0;                                                               \
		int ret_ = (call);                                                       \
		int errno_ = errno;                                                      \
		if (ret_ != -1 || errno_ != (err))                                       \
			fail_msg("%s: returned %d, %s; expected -1, %s", #call, ret_,    \
				 strerror(errno_), strerror(err));                       \
	} while (0)

/*
 * VERBATIM_LOCAL=off: all goes over UDP port 4791, which other programs of this host share; what they have in
 * their sockets when they end is lost, ours included. So first of all to a network of our own.
 */
UNUSED static bool is_on_wire(void)
{
	const char *local = getenv("VERBATIM_LOCAL");

	return local && strcmp(local, "off") == 0;
}

UNUSED static void enter_own_network(void)
{
	if (is_on_wire() && netns_enter())
		netns_add_wire();
}

/* ---- addresses ---- */

struct address {
	char ip[INET6_ADDRSTRLEN];
	struct sockaddr_storage sa;
};

UNUSED static struct sockaddr *sockaddr(struct address *a) { return (struct sockaddr *)&a->sa; }

UNUSED static struct address address(const char *ip, uint16_t port)
{
	struct address a = { 0 };
	struct sockaddr_in *sin = (struct sockaddr_in *)&a.sa;
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)&a.sa;

	snprintf(a.ip, sizeof(a.ip), "%s", ip);
	if (inet_pton(AF_INET, ip, &sin->sin_addr) == 1) {
		sin->sin_family = AF_INET;
		sin->sin_port = htons(port);
	} else {
		assert_int_equal(inet_pton(AF_INET6, ip, &sin6->sin6_addr), 1);
		sin6->sin6_family = AF_INET6;
		sin6->sin6_port = htons(port);
	}
	return a;
}

UNUSED static struct address with_port(struct address a, __be16 port)
{
	((struct sockaddr_in *)&a.sa)->sin_port = port; /* at the same place in both kinds */
	return a;
}

/* Is it a wildcard or one of this host's addresses? Not every machine has IPv6. */
UNUSED static bool is_here(const char *ip)
{
	struct address a = address(ip, 0);
	int s;
	bool here;

	if (!strcmp(ip, "::") || !strcmp(ip, "0.0.0.0"))
		return true;
	s = socket(a.sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	here = s >= 0 && bind(s, sockaddr(&a),
			      a.sa.ss_family == AF_INET ? sizeof(struct sockaddr_in) :
							  sizeof(struct sockaddr_in6)) == 0;
	if (s >= 0)
		close(s);
	if (!here)
		print_message("# not tried with %s, which this machine does not have\n", ip);
	return here;
}

/* The first IPv4 address of the first Ethernet interface that is up; false: none. */
UNUSED static bool ethernet_address(char ip[INET6_ADDRSTRLEN])
{
	struct ifaddrs *list, *i;
	bool found = false;

	assert_int_equal(getifaddrs(&list), 0);
	for (i = list; i && !found; i = i->ifa_next)
		if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
		    !(i->ifa_flags & IFF_LOOPBACK))
			found = inet_ntop(AF_INET, &((struct sockaddr_in *)i->ifa_addr)->sin_addr, ip,
					  INET6_ADDRSTRLEN) != NULL;
	freeifaddrs(list);
	return found;
}

/* Runs body(address) for the loopback addresses and the first Ethernet address. */
UNUSED static void on_each_address(void (*body)(const char *ip))
{
	char ethernet[INET6_ADDRSTRLEN];

	body("127.0.0.1");
	if (is_here("::1"))
		body("::1");
	if (ethernet_address(ethernet))
		body(ethernet);
	else
		print_message("# no Ethernet address here: not tested on one\n");
}

/* ---- events ---- */

UNUSED static bool readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) == 1;
}

UNUSED static struct rdma_cm_event *next_event(struct rdma_event_channel *ch)
{
	struct rdma_cm_event *event;

	if (!readable(ch->fd, WAIT_MS))
		fail_msg("no event came");
	assert_ok(rdma_get_cm_event(ch, &event));
	return event;
}

UNUSED static struct rdma_cm_event *expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = next_event(ch);

	if (event->event != type)
		fail_msg("%s (status %d), expected %s", rdma_event_str(event->event), event->status,
			 rdma_event_str(type));
	return event;
}

UNUSED static void expect_acked(struct rdma_event_channel *ch, enum rdma_cm_event_type type, int status)
{
	struct rdma_cm_event *event = expect(ch, type);

	assert_int_equal(event->status, status);
	assert_ok(rdma_ack_cm_event(event));
}

/* A command that changes the test's network. */
UNUSED static void must_run(const char *command)
{
	assert_int_equal(system(command), 0);
}

UNUSED static struct rdma_event_channel *new_channel(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();

	assert_non_null(ch);
	return ch;
}

/* ---- ids ---- */

UNUSED static struct rdma_cm_id *new_id(struct rdma_event_channel *ch, enum rdma_port_space ps)
{
	struct rdma_cm_id *id;

	assert_ok(rdma_create_id(ch, &id, NULL, ps));
	return id;
}

/* A listener on any free port of ip. */
UNUSED static struct rdma_cm_id *new_listener(struct rdma_event_channel *ch, const char *ip,
					      enum rdma_port_space ps, int backlog)
{
	struct rdma_cm_id *id = new_id(ch, ps);
	struct address a = address(ip, 0);

	assert_ok(rdma_bind_addr(id, sockaddr(&a)));
	assert_ok(rdma_listen(id, backlog));
	assert_int_not_equal(rdma_get_src_port(id), 0);
	return id;
}

UNUSED static void resolve(struct rdma_cm_id *id, struct address to)
{
	assert_ok(rdma_resolve_addr(id, NULL, sockaddr(&to), 2000));
	expect_acked(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	assert_ok(rdma_resolve_route(id, 2000));
	expect_acked(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
}

/* An id with a route to (ip, port). */
UNUSED static struct rdma_cm_id *new_resolved(struct rdma_event_channel *ch, const char *ip, __be16 port,
					      enum rdma_port_space ps)
{
	struct rdma_cm_id *id = new_id(ch, ps);

	resolve(id, with_port(address(ip, 0), port));
	return id;
}

/*
 * Each with a QP number of its own, as real QPs have: the connection manager takes a second one for a stale
 * connection.
 */
UNUSED static struct rdma_conn_param some_param(void)
{
	static atomic_uint next_qpn = SOME_QPN;

	return (struct rdma_conn_param){ .responder_resources = 3, .initiator_depth = 2, .retry_count = 5,
					 .rnr_retry_count = 4, .qp_num = next_qpn++ };
}

/* Two ends in one process, each with a channel, and a listener. */
struct pair {
	struct rdma_event_channel *server_ch, *client_ch;
	struct rdma_cm_id *listener, *server, *client;
};

UNUSED static struct pair listening_pair(const char *ip, enum rdma_port_space ps)
{
	struct pair p = { .server_ch = new_channel(), .client_ch = new_channel() };

	p.listener = new_listener(p.server_ch, ip, ps, 10);
	p.client = new_resolved(p.client_ch, ip, rdma_get_src_port(p.listener), ps);
	return p;
}

/* The request has arrived and p.server is its id. */
UNUSED static struct pair requested_pair(const char *ip, enum rdma_port_space ps)
{
	struct pair p = listening_pair(ip, ps);
	struct rdma_conn_param param = some_param();

	assert_ok(rdma_connect(p.client, &param));
	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p.server = event->id;
	assert_ok(rdma_ack_cm_event(event));
	return p;
}

UNUSED static struct pair connected_pair(const char *ip)
{
	struct pair p = requested_pair(ip, RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();

	assert_ok(rdma_accept(p.server, &param));
	expect_acked(p.client_ch, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_ok(rdma_establish(p.client));
	expect_acked(p.server_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
	return p;
}

UNUSED static void destroy_pair(struct pair *p)
{
	if (p->client)
		assert_ok(rdma_destroy_id(p->client));
	if (p->server)
		assert_ok(rdma_destroy_id(p->server));
	if (p->listener)
		assert_ok(rdma_destroy_id(p->listener));
	rdma_destroy_event_channel(p->client_ch);
	rdma_destroy_event_channel(p->server_ch);
}

UNUSED static void set_nonblocking(int fd)
{
	assert_int_not_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), -1);
}

#endif
