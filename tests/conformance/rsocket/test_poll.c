/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rpoll and rselect: what is told when, sockets beside ordinary descriptors, several threads on one socket.
 */
#include <limits.h>

#include "rs.h"

static void poll__tells_what_happens(void **state)
{
	struct listener l = listen_at("127.0.0.1");
	int client = rsocket(AF_INET, SOCK_STREAM, 0);
	char c;

	(void)state;
	assert_int_equal(events_of(l.fd, POLLIN), 0);
	connect_to(client, &l);
	assert_int_equal(wait_for(l.fd, POLLIN), POLLIN);
	assert_int_equal(wait_for(client, POLLIN | POLLOUT), POLLOUT); /* from the backlog on */
	int server = raccept(l.fd, NULL, NULL);
	assert_int_equal(events_of(l.fd, POLLIN), 0);
	assert_int_equal(wait_for(server, POLLIN | POLLOUT), POLLOUT);
	send_all(client, "x", 1);
	assert_int_equal(wait_for(server, POLLIN), POLLIN);
	receive_all(server, &c, 1);
	assert_int_equal(events_of(server, POLLIN), 0);
	assert_ok(rshutdown(client, SHUT_WR));
	assert_int_equal(wait_for(server, POLLIN | POLLRDHUP), POLLIN | POLLRDHUP);
	assert_ok(rclose(client));
	assert_true(wait_for(server, 0) & POLLHUP);
	assert_ok(rclose(server));
	assert_ok(rclose(l.fd));
}

static void poll__among_ordinary_descriptors(void **state)
{
	struct ends e = connected("127.0.0.1");
	int ordinary[2];
	char c;

	(void)state;
	assert_ok(pipe(ordinary));
	struct pollfd fds[] = { { e.server, POLLIN, 7 },
				{ ordinary[0], POLLIN, 7 },
				{ -1, POLLIN, 7 },
				{ e.client, POLLIN, 7 } };
	assert_int_equal(rpoll(fds, 4, 0), 0);
	assert_int_equal(rpoll(fds, 4, 5), 0); /* sleeping */
	for (int i = 0; i < 4; i++)
		assert_int_equal(fds[i].revents, 0);
	assert_int_equal(write(ordinary[1], "x", 1), 1);
	assert_int_equal(rpoll(fds, 4, WAIT_MS), 1);
	assert_int_equal(fds[1].revents, POLLIN);
	send_all(e.client, "x", 1);
	assert_int_equal(wait_for(e.server, POLLIN), POLLIN);
	assert_int_equal(rpoll(fds, 4, WAIT_MS), 2);
	assert_int_equal(fds[0].revents, POLLIN);
	receive_all(e.server, &c, 1);
	assert_int_equal(read(ordinary[0], &c, 1), 1);
	assert_int_equal(rpoll(fds, 4, 0), 0);
	close(ordinary[0]);
	assert_int_equal(rpoll(fds, 4, WAIT_MS), 1);
	assert_int_equal(fds[1].revents, POLLNVAL);
	close(ordinary[1]);
	close_ends(&e);
}

static bool selects_write(int fd)
{
	struct timeval later = { .tv_sec = WAIT_MS / 1000 };
	fd_set out;

	FD_ZERO(&out);
	FD_SET(fd, &out);
	return rselect(fd + 1, NULL, &out, NULL, &later) == 1 && FD_ISSET(fd, &out);
}

/* What fails at once does not wait, either. */
static void poll__after_ends(void **state)
{
	struct ends e = connected("127.0.0.1");

	(void)state;
	assert_ok(rshutdown(e.client, SHUT_WR));
	assert_int_equal(events_of(e.client, POLLIN | POLLOUT | POLLRDHUP), POLLOUT);
	assert_true(selects_write(e.client));
	assert_ok(rshutdown(e.server, SHUT_RD));
	assert_int_equal(events_of(e.server, POLLIN | POLLOUT | POLLRDHUP) & ~POLLHUP,
			 POLLIN | POLLOUT | POLLRDHUP);
	assert_ok(rclose(e.server));
	assert_true(wait_for(e.client, POLLOUT) & POLLHUP);
	assert_int_equal(events_of(e.client, POLLOUT) & POLLOUT, POLLOUT);
	assert_true(selects_write(e.client));
	assert_ok(rclose(e.client));
}

/* Longer than any program: as none. */
static void select__for_ages(void **state)
{
	struct timeval ages = { .tv_sec = LONG_MAX };
	struct ends e = connected("127.0.0.1");
	fd_set in;

	(void)state;
	FD_ZERO(&in);
	FD_SET(e.server, &in);
	send_all(e.client, "x", 1);
	assert_int_equal(rselect(e.server + 1, &in, NULL, NULL, &ages), 1);
	close_ends(&e);
}

static void select__as_poll(void **state)
{
	struct ends e = connected("127.0.0.1");
	int most = e.client > e.server ? e.client : e.server;
	struct timeval now = { 0 }, later = { .tv_sec = WAIT_MS / 1000 };
	fd_set in, out, except;

	(void)state;
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_ZERO(&except);
	FD_SET(e.server, &in);
	assert_int_equal(rselect(most + 1, &in, NULL, NULL, &now), 0);
	assert_false(FD_ISSET(e.server, &in));
	send_all(e.client, "x", 1);
	FD_SET(e.server, &in);
	FD_SET(e.server, &except);
	assert_int_equal(rselect(most + 1, &in, NULL, &except, &later), 1);
	assert_true(FD_ISSET(e.server, &in));
	assert_false(FD_ISSET(e.server, &except));
	FD_SET(e.client, &out);
	FD_SET(e.client, &in);
	assert_int_equal(rselect(most + 1, &in, &out, NULL, NULL), 2);
	assert_true(FD_ISSET(e.client, &out));
	assert_false(FD_ISSET(e.client, &in));
	assert_refused(EINVAL, rselect(-1, NULL, NULL, NULL, NULL));
	close_ends(&e);
}

/* ---- threads ---- */

enum { ROUNDS = 3000 };

struct echo {
	int fd;
	bool polls; /* before each read */
	unsigned done;
};

static void *echo(void *arg)
{
	struct echo *t = arg;
	char c;

	for (; t->done < ROUNDS; t->done++) {
		struct pollfd p = { .fd = t->fd, .events = POLLIN };

		if (t->polls && rpoll(&p, 1, WAIT_MS) != 1)
			break;
		if (rrecv(t->fd, &c, 1, 0) != 1 || rsend(t->fd, &c, 1, 0) != 1)
			break;
	}
	return NULL;
}

/* A thread that is woken by what another one took from the CQ. */
static void *watch(void *arg)
{
	struct echo *t = arg;
	struct pollfd p = { .fd = t->fd, .events = POLLRDHUP };

	t->done = rpoll(&p, 1, WAIT_MS) == 1 && p.revents & POLLRDHUP;
	return NULL;
}

static void poll__while_others_read_and_write(void **state)
{
	struct ends e = connected("127.0.0.1");
	struct echo server = { .fd = e.server, .polls = true }, watcher = { .fd = e.server };
	pthread_t threads[2];
	char c = 'c';

	(void)state;
	pthread_create(&threads[0], NULL, echo, &server);
	pthread_create(&threads[1], NULL, watch, &watcher);
	for (unsigned i = 0; i < ROUNDS; i++) {
		send_all(e.client, &c, 1);
		receive_all(e.client, &c, 1);
	}
	pthread_join(threads[0], NULL);
	assert_int_equal(server.done, ROUNDS);
	assert_ok(rshutdown(e.client, SHUT_WR));
	pthread_join(threads[1], NULL);
	assert_int_equal(watcher.done, 1);
	close_ends(&e);
}

static void poll__many_at_once(void **state)
{
	enum { MANY = 40 };
	struct listener l = listen_at("127.0.0.1");
	struct ends e[MANY];
	struct pollfd fds[MANY];
	char c;

	(void)state;
	for (int i = 0; i < MANY; i++) {
		e[i] = connect_socket(&l, rsocket(AF_INET, SOCK_STREAM, 0));
		fds[i] = (struct pollfd){ .fd = e[i].server, .events = POLLIN };
	}
	for (int i = 0; i < MANY; i++) {
		int k = i * 7 % MANY;
		send_all(e[k].client, "x", 1);
		assert_int_equal(rpoll(fds, MANY, WAIT_MS), 1);
		assert_int_equal(fds[k].revents, POLLIN);
		receive_all(e[k].server, &c, 1);
	}
	for (int i = 0; i < MANY; i++)
		close_ends(&e[i]);
	assert_ok(rclose(l.fd));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(poll__tells_what_happens),
		cmocka_unit_test(poll__among_ordinary_descriptors),
		cmocka_unit_test(poll__after_ends),
		cmocka_unit_test(select__as_poll),
		cmocka_unit_test(select__for_ages),
		cmocka_unit_test(poll__while_others_read_and_write),
		cmocka_unit_test(poll__many_at_once),
	};

	enter_own_network();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
