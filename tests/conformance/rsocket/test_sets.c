/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * repoll_*: what a set tells when, level- and edge-triggered, sockets beside ordinary descriptors, threads,
 * ends.
 */
#include "rs.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#define IN_OUT (EPOLLIN | EPOLLOUT)

static void control(int set, int op, int fd, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.u64 = 1000u + (unsigned)fd };

	assert_ok(repoll_ctl(set, op, fd, &e));
}

/* The events of the one descriptor that has any; 0: none within the time. */
static uint32_t one(int set, int fd, int timeout_ms)
{
	struct epoll_event e[4];
	int n = repoll_wait(set, e, 4, timeout_ms);

	if (!n)
		return 0;
	assert_int_equal(n, 1);
	assert_int_equal(e[0].data.u64, 1000u + (unsigned)fd);
	return e[0].events;
}

static uint32_t wait_one(int set, int fd) { return one(set, fd, WAIT_MS); }
static uint32_t now(int set, int fd) { return one(set, fd, 0); }

static int make_set(void)
{
	int set = repoll_create(EPOLL_CLOEXEC);

	assert_true(set >= 0);
	return set;
}

static void level__as_long_as_it_is_so(void **state)
{
	struct ends e = connected("127.0.0.1");
	int set = make_set();
	char bytes[2];

	(void)state;
	control(set, EPOLL_CTL_ADD, e.server, EPOLLIN | EPOLLRDHUP);
	assert_int_equal(now(set, e.server), 0);
	send_all(e.client, "xy", 2);
	for (int i = 0; i < 3; i++)
		assert_int_equal(wait_one(set, e.server), EPOLLIN);
	receive_all(e.server, bytes, 1);
	assert_int_equal(now(set, e.server), EPOLLIN);
	receive_all(e.server, bytes, 1);
	assert_int_equal(now(set, e.server), 0);
	assert_int_equal(one(set, e.server, 20), 0); /* sleeping */
	assert_ok(rshutdown(e.client, SHUT_WR));
	for (int i = 0; i < 2; i++)
		assert_int_equal(wait_one(set, e.server), EPOLLIN | EPOLLRDHUP);
	control(set, EPOLL_CTL_MOD, e.server, EPOLLOUT);
	assert_int_equal(wait_one(set, e.server), EPOLLOUT);
	control(set, EPOLL_CTL_MOD, e.server, 0);
	assert_int_equal(now(set, e.server), 0);
	assert_ok(rclose(e.client));
	assert_true(wait_one(set, e.server) & EPOLLHUP); /* needs not be asked for */
	assert_ok(rclose(set));
	assert_ok(rclose(e.server));
}

static void drain(int fd)
{
	static char block[65536];

	set_blocking(fd, false);
	while (rrecv(fd, block, sizeof(block), 0) > 0)
		;
	assert_int_equal(errno, EAGAIN);
}

/* A wait for one event that does not wait sees what is there each time. */
static void level__one_event_at_a_time(void **state)
{
	struct ends e = connected("127.0.0.1");
	int set = make_set();
	struct epoll_event event;

	(void)state;
	control(set, EPOLL_CTL_ADD, e.server, EPOLLIN);
	send_all(e.client, "x", 1);
	assert_int_equal(wait_for(e.server, POLLIN), POLLIN);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(repoll_wait(set, &event, 1, 0), 1);
		assert_int_equal(event.events, EPOLLIN);
	}
	drain(e.server);
	for (int i = 0; i < 2; i++)
		assert_int_equal(repoll_wait(set, &event, 1, 0), 0);
	assert_ok(rclose(set));
	close_ends(&e);
}

static void fill_up(int fd)
{
	static char block[65536];

	set_blocking(fd, false);
	while (rsend(fd, block, sizeof(block), 0) > 0)
		;
	assert_int_equal(errno, EAGAIN);
}

static void edge__once_for_each_arrival(void **state)
{
	struct ends e = connected("127.0.0.1");
	int set = make_set();

	(void)state;
	control(set, EPOLL_CTL_ADD, e.server, IN_OUT | EPOLLET);
	assert_int_equal(wait_one(set, e.server), EPOLLOUT);
	assert_int_equal(one(set, e.server, 10), 0);
	send_all(e.client, "x", 1);
	assert_int_equal(wait_one(set, e.server), IN_OUT);
	assert_int_equal(one(set, e.server, 10), 0); /* though it is not read */
	send_all(e.client, "y", 1);
	assert_int_equal(wait_one(set, e.server), IN_OUT);
	control(set, EPOLL_CTL_MOD, e.server, IN_OUT | EPOLLET);
	assert_int_equal(wait_one(set, e.server), IN_OUT); /* a change tells what is there */
	drain(e.server);
	assert_int_equal(one(set, e.server, 10), 0);
	assert_ok(rclose(e.client));
	assert_true(wait_one(set, e.server) & EPOLLHUP);
	assert_ok(rclose(e.server));
	assert_ok(rclose(set));
}

static void edge__room_after_there_was_none(void **state)
{
	struct ends e = connected("127.0.0.1");
	int set = make_set();

	(void)state;
	control(set, EPOLL_CTL_ADD, e.client, EPOLLOUT | EPOLLET);
	assert_int_equal(wait_one(set, e.client), EPOLLOUT);
	fill_up(e.client);
	while (one(set, e.client, 100)) /* what the send ring got back meanwhile */
		fill_up(e.client);
	drain(e.server);
	assert_int_equal(wait_one(set, e.client), EPOLLOUT);
	assert_ok(rclose(set));
	close_ends(&e);
}

static void oneshot__until_it_is_armed_again(void **state)
{
	struct ends e = connected("127.0.0.1");
	int set = make_set();

	(void)state;
	control(set, EPOLL_CTL_ADD, e.server, EPOLLIN | EPOLLONESHOT);
	send_all(e.client, "x", 1);
	assert_int_equal(wait_one(set, e.server), EPOLLIN);
	send_all(e.client, "x", 1);
	assert_int_equal(one(set, e.server, 10), 0);
	control(set, EPOLL_CTL_MOD, e.server, EPOLLIN | EPOLLONESHOT);
	assert_int_equal(wait_one(set, e.server), EPOLLIN);
	assert_ok(rclose(set));
	close_ends(&e);
}

static void mixed__with_ordinary_descriptors(void **state)
{
	struct ends e = connected("127.0.0.1");
	int set = make_set(), ordinary = eventfd(0, EFD_NONBLOCK);
	struct epoll_event both[8], single;
	eventfd_t count;
	uint64_t seen = 0;

	(void)state;
	control(set, EPOLL_CTL_ADD, ordinary, EPOLLIN);
	assert_int_equal(now(set, ordinary), 0); /* the kernel's alone */
	control(set, EPOLL_CTL_ADD, e.server, EPOLLIN);
	assert_ok(eventfd_write(ordinary, 1));
	assert_int_equal(wait_one(set, ordinary), EPOLLIN);
	send_all(e.client, "x", 1);
	assert_int_equal(wait_for(e.server, POLLIN), POLLIN);
	assert_int_equal(repoll_wait(set, both, 8, WAIT_MS), 2);
	assert_int_equal(both[0].data.u64 + both[1].data.u64, 2000u + (unsigned)(ordinary + e.server));
	/* One at a time, neither starves. */
	for (int i = 0; i < 16; i++) {
		assert_int_equal(repoll_wait(set, &single, 1, WAIT_MS), 1);
		seen |= 1u << (single.data.u64 == 1000u + (unsigned)ordinary);
	}
	assert_int_equal(seen, 3);
	/* The set's own number is readable while it has something to tell. */
	struct pollfd p = { .fd = set, .events = POLLIN };
	assert_int_equal(rpoll(&p, 1, WAIT_MS), 1);
	drain(e.server);
	assert_ok(eventfd_read(ordinary, &count));
	assert_int_equal(repoll_wait(set, both, 8, 0), 0);
	assert_int_equal(rpoll(&p, 1, 0), 0);
	control(set, EPOLL_CTL_DEL, ordinary, 0);
	close(ordinary);
	assert_ok(rclose(set));
	close_ends(&e);
}

static void connecting__tells_its_end(void **state)
{
	struct listener l = listen_at("127.0.0.1");
	int set = make_set(), client = rsocket(AF_INET, SOCK_STREAM, 0),
	    refused = rsocket(AF_INET, SOCK_STREAM, 0);
	struct address nowhere = address("127.0.0.1", 1);

	(void)state;
	control(set, EPOLL_CTL_ADD, l.fd, EPOLLIN);
	connect_to(client, &l);
	assert_int_equal(wait_one(set, l.fd), EPOLLIN);
	assert_int_equal(now(set, l.fd), EPOLLIN);
	control(set, EPOLL_CTL_MOD, l.fd, EPOLLIN | EPOLLET);
	assert_int_equal(now(set, l.fd), EPOLLIN);
	assert_int_equal(now(set, l.fd), 0);
	control(set, EPOLL_CTL_DEL, l.fd, 0);
	control(set, EPOLL_CTL_ADD, client, EPOLLOUT | EPOLLET);
	assert_int_equal(wait_one(set, client), EPOLLOUT);
	control(set, EPOLL_CTL_DEL, client, 0);
	control(set, EPOLL_CTL_ADD, refused, EPOLLOUT); /* before it is connected */
	set_blocking(refused, false);
	if (!rconnect(refused, sockaddr(&nowhere), length_of(&nowhere)))
		fail();
	assert_int_equal(wait_one(set, refused), EPOLLOUT | EPOLLERR | EPOLLHUP);
	assert_ok(rclose(set));
	assert_ok(rclose(client));
	assert_ok(rclose(refused));
	assert_ok(rclose(l.fd));
}

/*
 * The descriptor of its failed attempt is closed. The client's endpoint, which is made next, may have that
 * number.
 */
static void failed__takes_nothing_along(void **state)
{
	struct listener l = listen_at("127.0.0.1");
	struct address nowhere = address("127.0.0.1", 1), unreachable = address("240.0.0.1", 1);
	int set = make_set(), failed = rsocket(AF_INET, SOCK_STREAM, 0),
	    client = rsocket(AF_INET, SOCK_STREAM, 0), err;
	socklen_t len = sizeof(err);

	(void)state;
	set_blocking(failed, false);
	control(set, EPOLL_CTL_ADD, failed, EPOLLIN);
	assert_int_equal(rconnect(failed, sockaddr(&nowhere), length_of(&nowhere)), -1);
	assert_true(wait_one(set, failed) & EPOLLERR);
	assert_ok(rgetsockopt(failed, SOL_SOCKET, SO_ERROR, &err, &len));
	assert_int_equal(rconnect(failed, sockaddr(&unreachable), length_of(&unreachable)), -1);
	struct ends e = connect_socket(&l, client);
	control(set, EPOLL_CTL_ADD, e.client, EPOLLIN);
	(void)now(set, failed); /* the client's descriptors are in the set */
	control(set, EPOLL_CTL_DEL, failed, 0);
	send_all(e.server, "x", 1);
	assert_int_equal(wait_one(set, e.client), EPOLLIN);
	assert_ok(rclose(set));
	assert_ok(rclose(failed));
	assert_ok(rclose(l.fd));
	close_ends(&e);
}

static void closed__is_in_no_set(void **state)
{
	struct ends e = connected("127.0.0.1");
	int first = make_set(), second = make_set();

	(void)state;
	control(first, EPOLL_CTL_ADD, e.server, IN_OUT);
	control(second, EPOLL_CTL_ADD, e.server, IN_OUT);
	assert_int_equal(wait_one(first, e.server), EPOLLOUT);
	assert_ok(rclose(e.server));
	assert_int_equal(now(first, 0), 0);
	assert_int_equal(now(second, 0), 0);
	control(first, EPOLL_CTL_ADD, e.client, EPOLLOUT);
	assert_ok(rclose(first)); /* with a member */
	assert_ok(rclose(second));
	assert_refused(EBADF, rclose(second));
	assert_ok(rclose(e.client));
}

static void errors__as_of_epoll(void **state)
{
	struct ends e = connected("127.0.0.1");
	int set = make_set();
	struct epoll_event event = { .events = EPOLLIN };

	(void)state;
	assert_refused(EINVAL, repoll_create(1));
	assert_refused(ENOENT, repoll_ctl(set, EPOLL_CTL_MOD, e.server, &event));
	assert_refused(ENOENT, repoll_ctl(set, EPOLL_CTL_DEL, e.server, NULL));
	assert_refused(EFAULT, repoll_ctl(set, EPOLL_CTL_ADD, e.server, NULL));
	assert_refused(EINVAL, repoll_ctl(set, 77, e.server, &event));
	assert_refused(EBADF, repoll_ctl(set, EPOLL_CTL_ADD, -1, &event));
	assert_refused(EBADF, repoll_ctl(e.server, EPOLL_CTL_ADD, e.client, &event));
	assert_ok(repoll_ctl(set, EPOLL_CTL_ADD, e.server, &event));
	assert_refused(EEXIST, repoll_ctl(set, EPOLL_CTL_ADD, e.server, &event));
	assert_refused(EINVAL, repoll_wait(set, &event, 0, 0));
	assert_refused(EFAULT, repoll_wait(set, NULL, 1, 0));
	assert_refused(EBADF, repoll_wait(e.server, &event, 1, 0));
	assert_ok(rclose(set));
	close_ends(&e);
}

static void *send_later(void *fd)
{
	usleep(20000);
	send_all(*(int *)fd, "x", 1);
	return NULL;
}

/* A socket is added, and news come, while a thread sleeps in the set. */
static void threads__wake_who_waits(void **state)
{
	struct ends e = connected("127.0.0.1");
	int set = make_set();
	pthread_t thread;

	(void)state;
	for (int i = 0; i < 5; i++) {
		pthread_create(&thread, NULL, send_later, &e.client);
		if (!i)
			control(set, EPOLL_CTL_ADD, e.server, EPOLLIN);
		assert_int_equal(wait_one(set, e.server), EPOLLIN);
		pthread_join(thread, NULL);
		drain(e.server);
	}
	assert_ok(rclose(set));
	close_ends(&e);
}

/* An echo of many sockets over one set, edge-triggered, checked byte by byte. */
static void load__echoes(void **state)
{
	enum { PAIRS = 16, ROUNDS = 200, BYTES = 777 };
	struct ends e[PAIRS];
	int set = make_set(), done = 0, rounds[PAIRS] = { 0 };
	uint8_t bytes[BYTES];

	(void)state;
	for (int i = 0; i < PAIRS; i++) {
		e[i] = connected("127.0.0.1");
		struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.u32 = (uint32_t)i };
		assert_ok(repoll_ctl(set, EPOLL_CTL_ADD, e[i].server, &event));
		fill(bytes, BYTES, 0);
		send_all(e[i].client, bytes, BYTES);
	}
	while (done < PAIRS) {
		struct epoll_event events[4];
		int n = repoll_wait(set, events, 4, WAIT_MS);
		assert_true(n > 0);
		for (int k = 0; k < n; k++) {
			unsigned i = events[k].data.u32;
			receive_all(e[i].server, bytes, BYTES);
			assert_true(is_filled(bytes, BYTES, (uint64_t)rounds[i] * BYTES));
			if (++rounds[i] == ROUNDS) {
				done++;
				continue;
			}
			fill(bytes, BYTES, (uint64_t)rounds[i] * BYTES);
			send_all(e[i].client, bytes, BYTES);
		}
	}
	for (int i = 0; i < PAIRS; i++)
		close_ends(&e[i]);
	assert_ok(rclose(set));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(level__as_long_as_it_is_so),
		cmocka_unit_test(level__one_event_at_a_time),
		cmocka_unit_test(edge__once_for_each_arrival),
		cmocka_unit_test(edge__room_after_there_was_none),
		cmocka_unit_test(oneshot__until_it_is_armed_again),
		cmocka_unit_test(mixed__with_ordinary_descriptors),
		cmocka_unit_test(connecting__tells_its_end),
		cmocka_unit_test(failed__takes_nothing_along),
		cmocka_unit_test(closed__is_in_no_set),
		cmocka_unit_test(errors__as_of_epoll),
		cmocka_unit_test(threads__wake_who_waits),
		cmocka_unit_test(load__echoes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
