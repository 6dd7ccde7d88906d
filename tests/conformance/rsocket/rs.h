/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of rsockets share: connected pairs in one process, and bytes that can be told apart. */
#ifndef RS_TEST_H
#define RS_TEST_H

#include <rdma/rsocket.h>
#include <pthread.h>

#include "../rdmacm/cm.h"

UNUSED static socklen_t length_of(const struct address *a)
{
	return a->sa.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

UNUSED static void set_blocking(int fd, bool blocks)
{
	assert_ok(rfcntl(fd, F_SETFL, blocks ? 0 : O_NONBLOCK));
}

/* The events that come within WAIT_MS. */
UNUSED static short wait_for(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };

	if (rpoll(&p, 1, WAIT_MS) != 1)
		fail_msg("socket %d: none of the events 0x%x came", fd, events);
	return p.revents;
}

/* What is there without waiting. */
UNUSED static short events_of(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };

	assert_int_not_equal(rpoll(&p, 1, 0), -1);
	return p.revents;
}

struct listener {
	int fd;
	struct address address;
};

UNUSED static struct listener listen_at(const char *ip)
{
	struct listener l = { .address = address(ip, 0) };
	socklen_t len = sizeof(l.address.sa);

	l.fd = rsocket(l.address.sa.ss_family, SOCK_STREAM, 0);
	assert_true(l.fd >= 0);
	assert_ok(rbind(l.fd, sockaddr(&l.address), length_of(&l.address)));
	assert_ok(rlisten(l.fd, 16));
	assert_ok(rgetsockname(l.fd, sockaddr(&l.address), &len));
	assert_int_not_equal(((struct sockaddr_in *)&l.address.sa)->sin_port, 0);
	return l;
}

/* Begins to connect; options are the caller's. */
UNUSED static void connect_to(int fd, struct listener *l)
{
	set_blocking(fd, false);
	if (rconnect(fd, sockaddr(&l->address), length_of(&l->address)))
		assert_int_equal(errno, EINPROGRESS);
}

struct ends {
	int client, server;
};

UNUSED static struct ends connect_socket(struct listener *l, int client)
{
	struct ends e = { .client = client };
	int err = -1;
	socklen_t len = sizeof(err);

	connect_to(client, l);
	e.server = raccept(l->fd, NULL, NULL);
	assert_true(e.server >= 0);
	assert_true(wait_for(client, POLLOUT) == POLLOUT);
	assert_ok(rgetsockopt(client, SOL_SOCKET, SO_ERROR, &err, &len));
	assert_int_equal(err, 0);
	set_blocking(client, true);
	return e;
}

UNUSED static struct ends connected(const char *ip)
{
	struct listener l = listen_at(ip);
	int client = rsocket(l.address.sa.ss_family, SOCK_STREAM, 0);

	assert_true(client >= 0);
	struct ends e = connect_socket(&l, client);
	assert_ok(rclose(l.fd));
	return e;
}

UNUSED static void close_ends(struct ends *e)
{
	assert_ok(rclose(e->client));
	assert_ok(rclose(e->server));
}

/* The byte at this place of a stream. */
UNUSED static uint8_t byte_at(uint64_t place)
{
	return (uint8_t)((place * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
}

UNUSED static void fill(uint8_t *to, size_t n, uint64_t place)
{
	for (size_t i = 0; i < n; i++)
		to[i] = byte_at(place + i);
}

UNUSED static bool is_filled(const uint8_t *from, size_t n, uint64_t place)
{
	for (size_t i = 0; i < n; i++)
		if (from[i] != byte_at(place + i))
			return false;
	return true;
}

UNUSED static void send_all(int fd, const void *data, size_t n)
{
	assert_int_equal(rsend(fd, data, n, 0), n);
}

UNUSED static void receive_all(int fd, void *data, size_t n)
{
	assert_int_equal(rrecv(fd, data, n, MSG_WAITALL), n);
}

/* Data pass in both directions. */
UNUSED static void assert_works(struct ends *e)
{
	uint8_t sent[100], got[100];

	fill(sent, sizeof(sent), 1);
	for (int i = 0; i < 2; i++) {
		int from = i ? e->client : e->server, to = i ? e->server : e->client;
		send_all(from, sent, sizeof(sent));
		receive_all(to, got, sizeof(got));
		assert_memory_equal(got, sent, sizeof(sent));
	}
}

#endif
