/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that run on libverbatim-sockets: their cancelled and interrupted threads, and their epoll sets.
 * This program is linked with it.
 */
#include "preloaded.h"

enum { SIGNALS = 5, EVERY_US = 10000 };

/* ---- cancelled threads ---- */

static void cancel_asleep(void *(*call)(void *arg), void *arg)
{
	pthread_t thread;
	void *result;

	assert_int_equal(pthread_create(&thread, NULL, call, arg), 0);
	usleep(ASLEEP_US);
	pthread_cancel(thread);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
}

static void *receive_one(void *fd)
{
	char c;

	(void)recv(*(int *)fd, &c, 1, 0);
	return NULL;
}

static void *send_much(void *fd)
{
	static const char zeros[1 << 20];

	while (send(*(int *)fd, zeros, sizeof(zeros), 0) > 0)
		;
	return NULL;
}

static void *accept_one(void *fd)
{
	(void)accept(*(int *)fd, NULL, NULL);
	return NULL;
}

/* A socket is closed with its last number, which the peer hears of: no cancelled thread holds it. */
static void reading__is_cancelled(void **state)
{
	if (SANITIZED)
		SKIP(SANITIZERS_HIDE_LOCKS);
	struct ends e = connected();
	char c;

	(void)state;
	cancel_asleep(receive_one, &e.server);
	assert_ok(close(e.server));
	assert_true(events_within(e.client, POLLIN, WAIT_MS) & POLLIN);
	assert_int_equal(recv(e.client, &c, 1, 0), 0);
	assert_ok(close(e.client));
}

static void writing__is_cancelled(void **state)
{
	if (SANITIZED)
		SKIP(SANITIZERS_HIDE_LOCKS);
	struct ends e = connected();
	struct linger cut = { 1, 0 };

	(void)state;
	cancel_asleep(send_much, &e.client);
	assert_ok(setsockopt(e.client, SOL_SOCKET, SO_LINGER, &cut, sizeof(cut)));
	assert_ok(close(e.client));
	assert_true(events_within(e.server, POLLRDHUP, WAIT_MS) & POLLRDHUP);
	assert_ok(close(e.server));
}

static void accepting__is_cancelled(void **state)
{
	if (SANITIZED)
		SKIP(SANITIZERS_HIDE_LOCKS);
	struct sockaddr_in at;
	int listener = listen_here(&at, 4), fd = socket(AF_INET, SOCK_STREAM, 0);

	(void)state;
	cancel_asleep(accept_one, &listener);
	assert_ok(close(listener));
	assert_refused(ECONNREFUSED, connect(fd, (struct sockaddr *)&at, sizeof(at)));
	assert_ok(close(fd));
}

struct attempt {
	int fd;
	struct sockaddr_in at;
};

static void *connect_one(void *attempt)
{
	struct attempt *a = attempt;

	return connect(a->fd, (struct sockaddr *)&a->at, sizeof(a->at)) ? a : NULL;
}

/* The socket can try again. */
static void connecting__is_cancelled(void **state)
{
	if (SANITIZED)
		SKIP(SANITIZERS_HIDE_LOCKS);
	struct attempt a = { .fd = socket(AF_INET, SOCK_STREAM, 0) };
	int listener = listen_here(&a.at, 1), first = connect_to(&a.at);
	struct timespec end;
	pthread_t thread;
	void *failed = &a;
	char c;

	(void)state;
	cancel_asleep(connect_one, &a);
	assert_int_equal(pthread_create(&thread, NULL, connect_one, &a), 0);
	int accepted = accept(listener, NULL, NULL);
	assert_true(accepted >= 0);
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += WAIT_MS / 1000;
	assert_int_equal(pthread_timedjoin_np(thread, &failed, &end), 0);
	assert_null(failed);
	do { /* the first attempt may have got as far as the backlog */
		int server = accept(listener, NULL, NULL);
		assert_true(server >= 0);
		assert_int_equal(send(a.fd, "x", 1, 0), 1);
		assert_true(events_within(server, POLLIN, WAIT_MS) & POLLIN);
		c = 0;
		(void)recv(server, &c, 1, 0);
		assert_ok(close(server));
	} while (!c);
	assert_int_equal(c, 'x');
	assert_ok(close(accepted));
	assert_ok(close(first));
	assert_ok(close(a.fd));
	assert_ok(close(listener));
}

/* ---- interrupted threads ---- */

/* After some signals. */
static void *connect_late(void *at)
{
	while (num_signals < SIGNALS)
		usleep(1000);
	int fd = connect_to(at);
	return (void *)(intptr_t)fd;
}

static void ring(int flags, suseconds_t every_us)
{
	struct sigaction action = { .sa_handler = count, .sa_flags = flags };
	struct itimerval often = { { 0, every_us }, { 0, every_us } };

	assert_ok(sigaction(SIGALRM, &action, NULL));
	assert_ok(setitimer(ITIMER_REAL, &often, NULL));
}

static void accepting__is_interrupted(void **state)
{
	if (SANITIZED)
		SKIP(SANITIZERS_HIDE_LOCKS);
	struct sockaddr_in at;
	int listener = listen_here(&at, 4);
	pthread_t thread;
	sigset_t set, before;
	void *client;

	(void)state;
	ring(0, EVERY_US);
	assert_refused(EINTR, accept(listener, NULL, NULL));
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &set, &before);
	num_signals = 0;
	assert_int_equal(pthread_create(&thread, NULL, connect_late, &at), 0);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	ring(SA_RESTART, EVERY_US);
	int server = accept(listener, NULL, NULL);
	assert_true(server >= 0);
	assert_true(is_rdma(server));
	pthread_join(thread, &client);
	ring(0, 0);
	assert_ok(close(server));
	assert_ok(close((int)(intptr_t)client));
	assert_ok(close(listener));
}

/* By handlers with SA_RESTART, too. */
static void accepting_for_a_time__is_interrupted(void **state)
{
	if (SANITIZED)
		SKIP(SANITIZERS_HIDE_LOCKS);
	if (!kernel_tells_timeouts())
		SKIP(NO_TIMEOUTS);
	struct sockaddr_in at;
	struct timeval tv = { .tv_sec = WAIT_MS / 1000 };
	int listener = listen_here(&at, 4);

	(void)state;
	assert_ok(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	ring(SA_RESTART, EVERY_US);
	assert_refused(EINTR, accept(listener, NULL, NULL));
	ring(0, 0);
	assert_ok(close(listener));
}

/* ---- a handler that polls ---- */

enum { MANY = 40 };

static int polled_by_handler;
static volatile sig_atomic_t seen_by_handler;

/* A longer list than the thread's. */
static void poll_in_handler(int number)
{
	struct pollfd p[MANY];
	int err = errno;

	for (int i = 0; i < MANY; i++)
		p[i] = (struct pollfd){ polled_by_handler, POLLIN, 0 };
	if (poll(p, MANY, 0) == MANY)
		seen_by_handler |= p[MANY - 1].revents;
	num_signals++;
	errno = err;
}

static void poll__in_a_handler_while_the_thread_polls(void **state)
{
	struct ends polled = connected(), other = connected();
	struct sigaction action = { .sa_handler = poll_in_handler };
	struct itimerval often = { { 0, EVERY_US }, { 0, EVERY_US } }, never = { 0 };
	struct pollfd p = { polled.server, POLLIN, 0 };
	sigset_t set, before;

	(void)state;
	polled_by_handler = other.server;
	assert_int_equal(send(other.client, "x", 1, 0), 1);
	assert_int_equal(events_within(other.server, POLLIN, WAIT_MS), POLLIN);
	num_signals = 0;
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &set, &before); /* it comes while the thread sleeps, and holds no lock */
	assert_ok(sigaction(SIGALRM, &action, NULL));
	assert_ok(setitimer(ITIMER_REAL, &often, NULL));
	while (num_signals < SIGNALS)
		assert_refused(EINTR, ppoll(&p, 1, NULL, &before));
	assert_ok(setitimer(ITIMER_REAL, &never, NULL));
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	assert_int_equal(seen_by_handler, POLLIN);
	assert_int_equal(send(polled.client, "x", 1, 0), 1);
	assert_int_equal(events_within(polled.server, POLLIN, WAIT_MS), POLLIN);
	assert_ok(close(polled.client));
	assert_ok(close(polled.server));
	assert_ok(close(other.client));
	assert_ok(close(other.server));
}

/* ---- sets ---- */

/* A client over RDMA, as soon as this process listens for it. */
static int connect_over_rdma(int listener, const struct sockaddr_in *at)
{
	for (int ms = 0; ms < WAIT_MS; ms += 20) {
		(void)events_within(listener, POLLIN, 0);
		int client = connect_to(at);
		if (is_rdma(client))
			return client;
		assert_ok(close(accept(listener, NULL, NULL)));
		assert_ok(close(client));
		usleep(20000);
	}
	fail_msg("the listener does not listen for RDMA");
	return -1;
}

/* A set that has the listener before it listens for RDMA tells of connections over RDMA, too. */
static void set_has_listener(uint32_t flags)
{
	struct epoll_event event = { .events = EPOLLIN | flags };
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0);

	assert_ok(bind(listener, (struct sockaddr *)&at, sizeof(at)));
	assert_ok(getsockname(listener, (struct sockaddr *)&at, &len));
	assert_ok(listen(listener, 4));
	pid_t child = take_rdma(listener);
	assert_ok(epoll_ctl(set, EPOLL_CTL_ADD, listener, &event));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	int client = connect_over_rdma(listener, &at);
	assert_int_equal(epoll_wait(set, &event, 1, WAIT_MS), 1);
	int server = accept(listener, NULL, NULL);
	assert_true(is_rdma(server));
	assert_ok(close(server));
	assert_ok(close(client));
	assert_ok(close(set));
	assert_ok(close(listener));
}

static void set__has_a_listener_that_gets_rdma_later(void **state)
{
	(void)state;
	set_has_listener(0);
	set_has_listener(EPOLLEXCLUSIVE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(poll__in_a_handler_while_the_thread_polls),
		cmocka_unit_test(set__has_a_listener_that_gets_rdma_later),
		cmocka_unit_test(reading__is_cancelled),
		cmocka_unit_test(writing__is_cancelled),
		cmocka_unit_test(accepting__is_cancelled),
		cmocka_unit_test(connecting__is_cancelled),
		cmocka_unit_test(accepting__is_interrupted),
		cmocka_unit_test(accepting_for_a_time__is_interrupted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
