/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pthread_cancel ends a thread where it sleeps; it leaves no lock, no place in a list and no reference
 * behind.
 */
#include "../../kernel.h"
#include "../../sanitized.h"
#include "rs.h"

enum { ASLEEP_US = 30000 };

static void cancel(pthread_t thread)
{
	void *result;

	pthread_cancel(thread);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
}

/* The thread's call waits; what its stack held is overwritten by the next one's. */
static void cancel_asleep(void *(*call)(void *arg), void *arg)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, call, arg), 0);
	usleep(ASLEEP_US);
	cancel(thread);
}

/* Nobody has a reference to it any more. */
static void close_last(int fd)
{
	assert_ok(rclose(fd));
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void close_both(struct ends *e)
{
	close_last(e->client);
	close_last(e->server);
}

static void *receive_one(void *fd)
{
	char c;

	(void)rrecv(*(int *)fd, &c, 1, 0);
	return NULL;
}

static void *poll_both(void *ends)
{
	struct ends *e = ends;
	struct pollfd fds[] = { { e->client, POLLIN, 0 }, { e->server, POLLIN, 0 } };

	(void)rpoll(fds, 2, -1);
	return NULL;
}

static void reading__is_cancelled(void **state)
{
	struct ends e = connected("127.0.0.1");

	(void)state;
	if (SANITIZED)
		SKIP(SANITIZERS_LOSE_THREADS);
	cancel_asleep(receive_one, &e.client);
	cancel_asleep(receive_one, &e.server);
	cancel_asleep(poll_both, &e);
	assert_works(&e);
	close_both(&e);
}

/* It waits for another reader, not for bytes. */
static void reading__is_cancelled_behind_another(void **state)
{
	struct ends e = connected("127.0.0.1");
	pthread_t first;

	(void)state;
	if (SANITIZED)
		SKIP(SANITIZERS_LOSE_THREADS);
	assert_int_equal(pthread_create(&first, NULL, receive_one, &e.server), 0);
	usleep(ASLEEP_US);
	cancel_asleep(receive_one, &e.server);
	cancel(first);
	assert_works(&e);
	close_both(&e);
}

static void *send_much(void *fd)
{
	static const char zeros[1 << 20];

	for (;;)
		(void)rsend(*(int *)fd, zeros, sizeof(zeros), 0);
	return NULL;
}

static void writing__is_cancelled(void **state)
{
	struct ends e = connected("127.0.0.1");
	char got[4096];
	ssize_t n;

	(void)state;
	if (SANITIZED)
		SKIP(SANITIZERS_LOSE_THREADS);
	cancel_asleep(send_much, &e.client);
	assert_true(rrecv(e.server, got, sizeof(got), 0) > 0); /* the writer's place is free: */
	assert_ok(rshutdown(e.client, SHUT_WR));
	assert_refused(EPIPE, (int)rsend(e.client, "x", 1, 0));
	while ((n = rrecv(e.server, got, sizeof(got), 0)) > 0)
		;
	assert_int_equal(n, 0);
	close_both(&e);
}

static void *accept_one(void *fd)
{
	(void)raccept(*(int *)fd, NULL, NULL);
	return NULL;
}

struct attempt {
	int fd;
	struct listener *to;
};

static void *connect_one(void *attempt)
{
	struct attempt *a = attempt;

	(void)rconnect(a->fd, sockaddr(&a->to->address), length_of(&a->to->address));
	return NULL;
}

/* The second connection is not answered as long as the first is in the backlog. */
static void connecting__is_cancelled(void **state)
{
	struct listener l = listen_at("127.0.0.1");
	struct ends e[2] = { { .client = rsocket(AF_INET, SOCK_STREAM, 0) },
			     { .client = rsocket(AF_INET, SOCK_STREAM, 0) } };
	struct attempt second = { e[1].client, &l };

	(void)state;
	if (SANITIZED)
		SKIP(SANITIZERS_LOSE_THREADS);
	assert_ok(rlisten(l.fd, 1));
	cancel_asleep(accept_one, &l.fd);
	connect_to(e[0].client, &l);
	assert_true(wait_for(l.fd, POLLIN) & POLLIN);
	cancel_asleep(connect_one, &second);
	for (int i = 0; i < 2; i++) {
		e[i].server = raccept(l.fd, NULL, NULL);
		assert_true(e[i].server >= 0);
		assert_true(wait_for(e[i].client, POLLOUT) == POLLOUT);
		set_blocking(e[i].client, true);
		assert_works(&e[i]);
		close_both(&e[i]);
	}
	close_last(l.fd);
}

static void *wait_in_set(void *fd)
{
	struct epoll_event event;

	(void)repoll_wait(*(int *)fd, &event, 1, -1);
	return NULL;
}

static void set__waiting_is_cancelled(void **state)
{
	struct ends e = connected("127.0.0.1");
	struct epoll_event event = { .events = EPOLLIN };
	int set = repoll_create(0);

	(void)state;
	if (SANITIZED)
		SKIP(SANITIZERS_LOSE_THREADS);
	assert_ok(repoll_ctl(set, EPOLL_CTL_ADD, e.server, &event));
	cancel_asleep(wait_in_set, &set);
	send_all(e.client, "x", 1);
	assert_int_equal(repoll_wait(set, &event, 1, WAIT_MS), 1);
	assert_int_equal(event.events, EPOLLIN);
	close_last(set);
	close_both(&e);
}

static void datagrams__waiting_is_cancelled(void **state)
{
	struct address at = address("127.0.0.1", 0);
	int s = rsocket(AF_INET, SOCK_DGRAM, 0);
	socklen_t len = sizeof(at.sa);
	char c;

	(void)state;
	if (SANITIZED)
		SKIP(SANITIZERS_LOSE_THREADS);
	assert_ok(rbind(s, sockaddr(&at), length_of(&at)));
	assert_ok(rgetsockname(s, sockaddr(&at), &len));
	cancel_asleep(receive_one, &s);
	assert_int_equal(rsendto(s, "x", 1, 0, sockaddr(&at), length_of(&at)), 1);
	assert_int_equal(rrecv(s, &c, 1, 0), 1);
	close_last(s);
}

/* A thread that always has something to do is cancelled in between, somewhere. */
struct echo {
	int fd, type;
};

static void *echo(void *arg)
{
	const struct echo *e = arg;
	struct pollfd p = { e->fd, POLLIN, 0 };
	int before;
	char c;

	pthread_setcanceltype(e->type, &before);
	for (;;) {
		(void)rpoll(&p, 1, -1);
		(void)rrecv(p.fd, &c, 1, 0);
		(void)rsend(p.fd, "y", 1, 0);
	}
	return NULL;
}

/* Takes what is under way. */
static void drain(int from, int to)
{
	char c = 0;

	send_all(from, "z", 1);
	while (c != 'z')
		receive_all(to, &c, 1);
}

static void cancel_echoes(int type)
{
	enum { ROUNDS = 30, MESSAGES = 20 };
	struct ends e = connected("127.0.0.1");
	struct echo server = { e.server, type };

	for (int round = 0; round < ROUNDS; round++) {
		pthread_t thread;
		char c;

		assert_int_equal(pthread_create(&thread, NULL, echo, &server), 0);
		for (int i = 0; i < MESSAGES + round; i++) {
			send_all(e.client, "x", 1);
			receive_all(e.client, &c, 1);
		}
		send_all(e.client, "x", 1); /* is it answered? */
		pthread_cancel(thread);
		assert_int_equal(pthread_join(thread, NULL), 0);
		drain(e.client, e.server);
		drain(e.server, e.client);
	}
	assert_works(&e);
	close_both(&e);
}

static void echo__is_cancelled_at_any_time(void **state)
{
	(void)state;
	if (SANITIZED)
		SKIP(SANITIZERS_LOSE_THREADS);
	cancel_echoes(PTHREAD_CANCEL_DEFERRED);
	cancel_echoes(PTHREAD_CANCEL_ASYNCHRONOUS);
}

/* As iperf3 ends its threads. */
static void *write_on(void *fd)
{
	static const char zeros[1 << 12];
	int before;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
	for (;;)
		(void)rwrite(*(int *)fd, zeros, sizeof(zeros));
	return NULL;
}

static void *read_on(void *fd)
{
	static char got[1 << 12];
	int before;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
	for (;;)
		(void)rread(*(int *)fd, got, sizeof(got));
	return NULL;
}

static void stream__is_cancelled_asynchronously(void **state)
{
	enum { ROUNDS = 20, RUNS_US = 3000 };

	(void)state;
	if (SANITIZED)
		SKIP(SANITIZERS_LOSE_THREADS);
	for (int round = 0; round < ROUNDS; round++) {
		struct ends e = connected("127.0.0.1");
		pthread_t reader, writer;

		assert_int_equal(pthread_create(&reader, NULL, read_on, &e.server), 0);
		assert_int_equal(pthread_create(&writer, NULL, write_on, &e.client), 0);
		usleep(RUNS_US + 100 * (unsigned)round);
		cancel(writer);
		cancel(reader);
		close_both(&e);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reading__is_cancelled),
		cmocka_unit_test(reading__is_cancelled_behind_another),
		cmocka_unit_test(writing__is_cancelled),
		cmocka_unit_test(connecting__is_cancelled),
		cmocka_unit_test(set__waiting_is_cancelled),
		cmocka_unit_test(datagrams__waiting_is_cancelled),
		cmocka_unit_test(echo__is_cancelled_at_any_time),
		cmocka_unit_test(stream__is_cancelled_asynchronously),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
