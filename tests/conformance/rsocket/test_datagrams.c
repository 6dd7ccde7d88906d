/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagram sockets: over UDP until the queue pairs know each other, then between these. */
#include "../../kernel.h"
#include "rs.h"

static struct listener bound_to(struct address a)
{
	struct listener l = { .address = a };
	socklen_t len = sizeof(l.address.sa);

	l.fd = rsocket(l.address.sa.ss_family, SOCK_DGRAM, 0);
	assert_true(l.fd >= 0);
	assert_ok(rbind(l.fd, sockaddr(&l.address), length_of(&l.address)));
	assert_ok(rgetsockname(l.fd, sockaddr(&l.address), &len));
	return l;
}

static struct listener bound(const char *ip) { return bound_to(address(ip, 0)); }

static uint16_t port_of(const struct listener *l)
{
	return ntohs(((const struct sockaddr_in *)&l->address.sa)->sin_port); /* where IPv6 has it, too */
}

static void send_to(int from, struct listener *to, const void *data, size_t n)
{
	assert_int_equal(rsendto(from, data, n, 0, sockaddr(&to->address), length_of(&to->address)), n);
}

/* The sender's name. */
static struct address receive_from(int at, const void *data, size_t n)
{
	uint8_t got[2048];
	struct address src = { { 0 } };
	socklen_t len = sizeof(src.sa);

	assert_int_equal(wait_for(at, POLLIN), POLLIN);
	assert_int_equal(rrecvfrom(at, got, sizeof(got), 0, sockaddr(&src), &len), n);
	assert_memory_equal(got, data, n);
	assert_int_equal(len, length_of(&src));
	return src;
}

static void expect_from(struct listener *at, struct listener *from, const void *data, size_t n)
{
	struct address src = receive_from(at->fd, data, n);

	assert_memory_equal(&src.sa, &from->address.sa, length_of(&from->address));
}

/* The first ones go over UDP; after an answer they no longer do. */
static void back_and_forth(const char *ip)
{
	struct listener a = bound(ip), b = bound(ip);
	uint8_t data[900];

	for (size_t i = 0; i < 20; i++) {
		fill(data, sizeof(data), i);
		send_to(a.fd, &b, data, i * 40);
		expect_from(&b, &a, data, i * 40);
		send_to(b.fd, &a, data, 900 - i);
		expect_from(&a, &b, data, 900 - i);
	}
	assert_ok(rclose(a.fd));
	assert_ok(rclose(b.fd));
}

static void datagrams__on_each_address(void **state)
{
	(void)state;
	on_each_address(back_and_forth);
}

static void datagrams__on_a_wildcard(void **state)
{
	struct listener server = bound("0.0.0.0"), a = bound("127.0.0.1");
	uint16_t port = ((struct sockaddr_in *)&server.address.sa)->sin_port;

	(void)state;
	server.address = with_port(address("127.0.0.1", 0), port);
	for (int i = 0; i < 5; i++) {
		send_to(a.fd, &server, "question", 8);
		expect_from(&server, &a, "question", 8);
		send_to(server.fd, &a, "answer", 6);
		expect_from(&a, &server, "answer", 6);
	}
	assert_ok(rclose(a.fd));
	assert_ok(rclose(server.fd));
}

/* They know each other's queue pairs then. */
static void introduce(struct listener *a, struct listener *b)
{
	for (int i = 0; i < 2; i++) {
		send_to(a->fd, b, "to b", 4);
		expect_from(b, a, "to b", 4);
		send_to(b->fd, a, "to a", 4);
		expect_from(a, b, "to a", 4);
	}
}

/* By a receive that does not wait, though the socket has queue pairs already and polls only these often. */
static void receive__a_strangers_first_at_once(void **state)
{
	enum { LOOKS = 4, BETWEEN_US = 1000 };
	struct listener a = bound("127.0.0.1"), b = bound("127.0.0.1"), stranger = bound("127.0.0.1");
	ssize_t n = -1;
	char got[8];

	(void)state;
	introduce(&a, &b);
	for (int i = 0; i < LOOKS; i++)
		assert_refused(EAGAIN, (int)rrecv(a.fd, got, sizeof(got), MSG_DONTWAIT));
	send_to(stranger.fd, &a, "first", 5);
	for (int i = 0; i < LOOKS && n < 0; i++) {
		usleep(BETWEEN_US);
		n = rrecv(a.fd, got, sizeof(got), MSG_DONTWAIT);
	}
	assert_int_equal(n, 5);
	assert_ok(rclose(a.fd));
	assert_ok(rclose(b.fd));
	assert_ok(rclose(stranger.fd));
}

/*
 * The socket finds a datagram at its queue pair in each round, and still hears the stranger. The rounds last
 * longer than a stranger has to wait.
 */
static void receive__a_strangers_first_among_many(void **state)
{
	enum { AHEAD = 32, BEFORE = 100, ROUNDS = 10000 };
	struct listener a = bound("127.0.0.1"), b = bound("127.0.0.1"), stranger = bound("127.0.0.1");
	ssize_t n = 0;
	char got[8];

	(void)state;
	introduce(&a, &b);
	for (int i = 0; i < AHEAD; i++)
		send_to(b.fd, &a, "x", 1);
	for (int i = 0; n != 5 && i < ROUNDS; i++) {
		if (i == BEFORE)
			send_to(stranger.fd, &a, "first", 5);
		send_to(b.fd, &a, "x", 1);
		n = rrecv(a.fd, got, sizeof(got), MSG_DONTWAIT);
	}
	assert_int_equal(n, 5);
	assert_ok(rclose(a.fd));
	assert_ok(rclose(b.fd));
	assert_ok(rclose(stranger.fd));
}

static atomic_bool is_over;

static void *send_to_peer(void *fd)
{
	while (!is_over)
		assert_int_equal(rsend(*(int *)fd, "x", 1, 0), 1);
	return NULL;
}

/* Each datagram goes to one of them. */
static void connected__to_another_while_a_thread_sends(void **state)
{
	enum { TIMES = 500 };
	struct listener a = bound("127.0.0.1"), b[2] = { bound("127.0.0.1"), bound("127.0.0.1") };
	pthread_t thread;

	(void)state;
	assert_ok(rconnect(a.fd, sockaddr(&b[0].address), length_of(&b[0].address)));
	is_over = false;
	pthread_create(&thread, NULL, send_to_peer, &a.fd);
	for (int i = 0; i < TIMES || !events_of(b[0].fd, POLLIN) || !events_of(b[1].fd, POLLIN); i++)
		assert_ok(rconnect(a.fd, sockaddr(&b[i % 2].address), length_of(&b[i % 2].address)));
	is_over = true;
	pthread_join(thread, NULL);
	expect_from(&b[0], &a, "x", 1);
	expect_from(&b[1], &a, "x", 1);
	assert_ok(rclose(a.fd));
	assert_ok(rclose(b[0].fd));
	assert_ok(rclose(b[1].fd));
}

static void connected__hears_its_peer_alone(void **state)
{
	struct listener a = bound("127.0.0.1"), b = bound("127.0.0.1"), stranger = bound("127.0.0.1");
	struct address name;
	socklen_t len = sizeof(name.sa);
	char got[8];

	(void)state;
	assert_refused(EDESTADDRREQ, (int)rsend(a.fd, "x", 1, 0));
	assert_ok(rconnect(a.fd, sockaddr(&b.address), length_of(&b.address)));
	assert_ok(rgetpeername(a.fd, sockaddr(&name), &len));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(rsend(a.fd, "to b", 4, 0), 4);
		expect_from(&b, &a, "to b", 4);
		send_to(stranger.fd, &a, "no", 2);
		send_to(b.fd, &a, "yes", 3);
		assert_int_equal(wait_for(a.fd, POLLIN), POLLIN);
		assert_int_equal(rrecv(a.fd, got, sizeof(got), 0), 3);
		assert_memory_equal(got, "yes", 3);
	}
	assert_ok(rclose(a.fd));
	assert_ok(rclose(b.fd));
	assert_ok(rclose(stranger.fd));
}

/* a is connected to b. */
static void talk(struct listener *a, struct listener *b)
{
	for (int i = 0; i < 3; i++) {
		assert_int_equal(rsend(a->fd, "to b", 4, 0), 4);
		expect_from(b, a, "to b", 4);
		send_to(b->fd, a, "to a", 4);
		expect_from(a, b, "to a", 4);
	}
}

/* As a destination it is this host. */
static void connected__to_a_wildcard(void **state)
{
	struct listener a = bound("127.0.0.1"), b = bound("127.0.0.1");
	struct address any = with_port(address("0.0.0.0", 0), htons(port_of(&b)));

	(void)state;
	assert_ok(rconnect(a.fd, sockaddr(&any), length_of(&any)));
	talk(&a, &b);
	assert_ok(rclose(a.fd));
	assert_ok(rclose(b.fd));
}

/* A socket that chose no port number gets another one, which its datagrams name. */
static void connected__no_more(void **state)
{
	struct listener a = { .fd = rsocket(AF_INET, SOCK_DGRAM, 0) }, b = bound("127.0.0.1"),
			c = bound("127.0.0.1");
	struct address nobody = { .sa.ss_family = AF_UNSPEC };

	(void)state;
	assert_ok(rconnect(a.fd, sockaddr(&b.address), length_of(&b.address)));
	assert_int_equal(rsend(a.fd, "to b", 4, 0), 4);
	(void)receive_from(b.fd, "to b", 4);
	assert_ok(rconnect(a.fd, sockaddr(&nobody), sizeof(struct sockaddr_in)));
	for (int i = 0; i < 3; i++) {
		socklen_t len = sizeof(a.address.sa);

		send_to(a.fd, &c, "to c", 4);
		struct listener src = { .address = receive_from(c.fd, "to c", 4) };
		assert_ok(rgetsockname(a.fd, sockaddr(&a.address), &len));
		assert_int_equal(port_of(&src), port_of(&a));
		send_to(c.fd, &src, "to a", 4);
		(void)receive_from(a.fd, "to a", 4);
	}
	assert_ok(rclose(a.fd));
	assert_ok(rclose(b.fd));
	assert_ok(rclose(c.fd));
}

/* The stranger knows its queue pair. */
static void connected__is_not_woken_by_a_stranger(void **state)
{
	enum { A_WHILE_MS = 100 };
	struct listener a = bound("127.0.0.1"), b = bound("127.0.0.1"), stranger = bound("127.0.0.1");
	struct pollfd p = { a.fd, POLLIN, 0 };

	(void)state;
	for (int i = 0; i < 2; i++) {
		send_to(stranger.fd, &a, "x", 1);
		expect_from(&a, &stranger, "x", 1);
		send_to(a.fd, &stranger, "y", 1);
		expect_from(&stranger, &a, "y", 1);
	}
	assert_ok(rconnect(a.fd, sockaddr(&b.address), length_of(&b.address)));
	for (int i = 0; i < 3; i++)
		send_to(stranger.fd, &a, "no", 2);
	assert_int_equal(rpoll(&p, 1, A_WHILE_MS), 0);
	send_to(b.fd, &a, "yes", 3);
	expect_from(&a, &b, "yes", 3);
	assert_ok(rclose(a.fd));
	assert_ok(rclose(b.fd));
	assert_ok(rclose(stranger.fd));
}

/* On a busy machine the socket may be closed before it begins. */
static void *receive_one(void *fd)
{
	char c;
	ssize_t n = rrecv(*(int *)fd, &c, 1, 0);

	return n == 0 || errno == EBADF ? fd : NULL;
}

static void *poll_one(void *fd)
{
	struct pollfd p = { *(int *)fd, POLLIN, 0 };

	return rpoll(&p, 1, -1) == 1 && p.revents & POLLHUP ? fd : NULL;
}

static void ends(void *(*wait)(void *fd), int (*end)(int fd))
{
	struct listener a = bound("127.0.0.1");
	pthread_t thread;
	void *result;

	pthread_create(&thread, NULL, wait, &a.fd);
	usleep(20000);
	assert_ok(end(a.fd));
	pthread_join(thread, &result);
	assert_ptr_equal(result, &a.fd);
	(void)rclose(a.fd);
}

static int shut(int fd) { return rshutdown(fd, SHUT_RDWR); }

static void ends__wake_who_waits(void **state)
{
	(void)state;
	ends(receive_one, shut);
	ends(receive_one, rclose);
	ends(poll_one, shut);
}

/* What came before is still received. */
static void shutdown__each_direction(void **state)
{
	struct listener a = bound("127.0.0.1"), b = bound("127.0.0.1");
	char c;

	(void)state;
	send_to(a.fd, &b, "x", 1);
	assert_int_equal(wait_for(b.fd, POLLIN), POLLIN);
	assert_ok(rshutdown(b.fd, SHUT_RD));
	assert_int_equal(rrecv(b.fd, &c, 1, 0), 1);
	assert_int_equal(rrecv(b.fd, &c, 1, 0), 0);
	assert_int_equal(events_of(b.fd, POLLIN | POLLOUT | POLLRDHUP), POLLIN | POLLOUT | POLLRDHUP);
	send_to(b.fd, &a, "y", 1);
	expect_from(&a, &b, "y", 1);
	assert_ok(rshutdown(b.fd, SHUT_WR));
	assert_refused(EPIPE, (int)rsendto(b.fd, "z", 1, 0, sockaddr(&a.address), length_of(&a.address)));
	assert_ok(rclose(a.fd));
	assert_ok(rclose(b.fd));
}

static void receive__cut_and_peeked(void **state)
{
	struct listener a = bound("127.0.0.1"), b = bound("127.0.0.1");
	char got[8] = { 0 };
	struct iovec iov = { got, 2 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	(void)state;
	for (int i = 0; i < 2; i++) { /* over UDP, then between queue pairs */
		assert_refused(EAGAIN, (int)rrecv(b.fd, got, sizeof(got), MSG_DONTWAIT));
		send_to(a.fd, &b, "abcdef", 6);
		assert_int_equal(wait_for(b.fd, POLLIN), POLLIN);
		assert_int_equal(rrecv(b.fd, got, sizeof(got), MSG_PEEK), 6);
		assert_int_equal(rrecvmsg(b.fd, &msg, 0), 2);
		assert_true(msg.msg_flags & MSG_TRUNC);
		assert_memory_equal(got, "ab", 2);
		assert_int_equal(events_of(b.fd, POLLIN), 0);
		send_to(b.fd, &a, "x", 1);
		expect_from(&a, &b, "x", 1);
	}
	assert_ok(rclose(a.fd));
	assert_ok(rclose(b.fd));
}

/* The longest ones arrive whole, over UDP and between queue pairs. */
static void longest(const char *ip, size_t n)
{
	struct listener a = bound(ip), b = bound(ip);
	uint8_t data[2048];

	for (int i = 0; i < 3; i++) {
		fill(data, sizeof(data), i);
		assert_refused(EMSGSIZE, (int)rsendto(a.fd, data, n + 1, 0, sockaddr(&b.address),
						      length_of(&b.address)));
		send_to(a.fd, &b, data, n);
		expect_from(&b, &a, data, n);
		send_to(b.fd, &a, data, n);
		expect_from(&a, &b, data, n);
	}
	assert_ok(rclose(a.fd));
	assert_ok(rclose(b.fd));
}

static void send__the_longest(void **state)
{
	(void)state;
	longest("127.0.0.1", 2048 - 8);
	if (is_here("::1"))
		longest("::1", 2048 - 24);
}

static void send__many_pieces(void **state)
{
	enum { PIECES = 200 };
	struct listener a = bound("127.0.0.1"), b = bound("127.0.0.1");
	uint8_t data[PIECES];
	struct iovec pieces[PIECES];
	struct msghdr msg = { .msg_iov = pieces, .msg_iovlen = PIECES };

	(void)state;
	fill(data, sizeof(data), 1);
	for (size_t i = 0; i < PIECES; i++)
		pieces[i] = (struct iovec){ &data[i], 1 };
	msg.msg_name = sockaddr(&b.address);
	msg.msg_namelen = length_of(&b.address);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(rsendmsg(a.fd, &msg, 0), PIECES);
		expect_from(&b, &a, data, PIECES);
		send_to(b.fd, &a, "x", 1);
		expect_from(&a, &b, "x", 1);
	}
	assert_ok(rclose(a.fd));
	assert_ok(rclose(b.fd));
}

static void send__too_long(void **state)
{
	struct listener a = bound("127.0.0.1"), b = bound("127.0.0.1");
	static char data[5000];

	(void)state;
	assert_refused(EMSGSIZE, (int)rsendto(a.fd, data, sizeof(data), 0, sockaddr(&b.address),
					      length_of(&b.address)));
	assert_int_equal(events_of(a.fd, POLLOUT), POLLOUT);
	assert_ok(rclose(a.fd));
	assert_ok(rclose(b.fd));
}

/* Anybody may send anything to the UDP socket. */
static void udp__nonsense_is_dropped(void **state)
{
	struct listener a = bound("127.0.0.1"), b = bound("127.0.0.1");
	uint8_t data[60];
	int s = socket(AF_INET, SOCK_DGRAM, 0);

	(void)state;
	for (unsigned i = 0; i < 200; i++) {
		fill(data, sizeof(data), i);
		if (i & 1)
			memset(data, 0x55, 4);
		if (i & 2)
			/* as data of an unknown peer, or of an unknown kind */
			memcpy(data + 4, "\4\0\20", 3);
		if (i & 4)
			data[5] = 9;
		(void)!sendto(s, data, i % sizeof(data), 0, sockaddr(&b.address), length_of(&b.address));
		(void)events_of(b.fd, POLLIN);
		while (rrecv(b.fd, data, sizeof(data), MSG_DONTWAIT) >= 0)
			;
	}
	send_to(a.fd, &b, "sense", 5);
	/* What looks like data is received as such, at any time. */
	for (ssize_t n = 0; n != 5 || memcmp(data, "sense", 5); n = rrecv(b.fd, data, sizeof(data), 0))
		assert_int_equal(wait_for(b.fd, POLLIN), POLLIN);
	close(s);
	assert_ok(rclose(a.fd));
	assert_ok(rclose(b.fd));
}

/* ---- link-local addresses ---- */

static struct address on_link(const char *link, uint16_t port)
{
	struct address a = address(NETNS_LINK_LOCAL, port);

	((struct sockaddr_in6 *)&a.sa)->sin6_scope_id = if_nametoindex(link);
	return a;
}

/* The name says on which link, over UDP and between queue pairs. */
static void name__tells_the_link(void **state)
{
	(void)state;
	if (!if_nametoindex("wire"))
		SKIP("no network of its own");
	assert_true(netns_add_link_local("wire"));
	struct listener a = bound_to(on_link("wire", 0)), b = bound_to(on_link("wire", 0));
	assert_ok(rconnect(a.fd, sockaddr(&b.address), length_of(&b.address)));
	talk(&a, &b);
	assert_ok(rclose(a.fd));
	assert_ok(rclose(b.fd));
}

/* Sockets on two links may have one name but for the link. */
static void name__is_one_on_each_link(void **state)
{
	static const char *const links[] = { "wire", "other" };

	(void)state;
	if (!if_nametoindex("wire"))
		SKIP("no network of its own");
	assert_true(netns_add_link_local("wire") && netns_add_link_local("other"));
	struct listener on[2], anywhere = bound("::");
	on[0] = bound_to(on_link(links[0], 0));
	on[1] = bound_to(on_link(links[1], port_of(&on[0])));
	for (int i = 0; i < 6; i++) {
		struct listener *l = &on[i % 2];
		unsigned link = if_nametoindex(links[i % 2]);

		send_to(anywhere.fd, l, links[i % 2], 4);
		struct address src = receive_from(l->fd, links[i % 2], 4);
		assert_int_equal(((struct sockaddr_in6 *)&src.sa)->sin6_scope_id, link);
		assert_int_equal(rsendto(l->fd, "answer", 6, 0, sockaddr(&src), length_of(&src)), 6);
		expect_from(&anywhere, l, "answer", 6);
	}
	for (int i = 0; i < 2; i++)
		assert_ok(rclose(on[i].fd));
	assert_ok(rclose(anywhere.fd));
}

/* ---- the service type ---- */

/* Of the last packet between queue pairs with this text, without its ECN bits. -1: there is none. */
static int tos_of(int raw, const char *text)
{
	enum { ROCE_PORT = 4791, ECN = 3 };
	uint8_t packet[4096];
	int tos = -1;
	ssize_t n;

	while ((n = recv(raw, packet, sizeof(packet), 0)) > 0) {
		const uint8_t *udp = packet + 4 * (packet[0] & 15);

		if ((udp[2] << 8 | udp[3]) == ROCE_PORT && memmem(packet, (size_t)n, text, strlen(text)))
			tos = packet[1] & ~ECN;
	}
	return tos;
}

static void tos__is_that_of_the_packets(void **state)
{
	int raw = is_on_wire() ? socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK, IPPROTO_UDP) : -1;

	(void)state;
	if (raw < 0)
		SKIP("packets cannot be seen");
	struct listener a = bound("127.0.0.1"), b = bound("127.0.0.1");
	for (int i = 0; i < 2; i++) { /* until queue pairs are known */
		send_to(a.fd, &b, "x", 1);
		expect_from(&b, &a, "x", 1);
		send_to(b.fd, &a, "y", 1);
		expect_from(&a, &b, "y", 1);
	}
	for (int tos = 0x20; tos <= 0x60; tos += 0x20) {
		assert_ok(rsetsockopt(a.fd, IPPROTO_IP, IP_TOS, &tos, sizeof(tos)));
		send_to(a.fd, &b, "these bytes", 11);
		expect_from(&b, &a, "these bytes", 11);
		assert_int_equal(tos_of(raw, "these bytes"), tos);
	}
	close(raw);
	assert_ok(rclose(a.fd));
	assert_ok(rclose(b.fd));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(datagrams__on_each_address),
		cmocka_unit_test(datagrams__on_a_wildcard),
		cmocka_unit_test(receive__a_strangers_first_at_once),
		cmocka_unit_test(receive__a_strangers_first_among_many),
		cmocka_unit_test(connected__hears_its_peer_alone),
		cmocka_unit_test(connected__to_a_wildcard),
		cmocka_unit_test(connected__no_more),
		cmocka_unit_test(connected__is_not_woken_by_a_stranger),
		cmocka_unit_test(connected__to_another_while_a_thread_sends),
		cmocka_unit_test(ends__wake_who_waits),
		cmocka_unit_test(shutdown__each_direction),
		cmocka_unit_test(receive__cut_and_peeked),
		cmocka_unit_test(send__too_long),
		cmocka_unit_test(send__the_longest),
		cmocka_unit_test(send__many_pieces),
		cmocka_unit_test(udp__nonsense_is_dropped),
		cmocka_unit_test(name__tells_the_link),
		cmocka_unit_test(name__is_one_on_each_link),
		cmocka_unit_test(tos__is_that_of_the_packets),
	};

	enter_own_network();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
