/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls that a signal interrupts: with SA_RESTART those go on that the kernel's do (signal(7)), others fail
 * with EINTR.
 */
#include <signal.h>
#include <sys/time.h>
#include <time.h>

#include "../../between.h"
#include "../../spin.h"
#include "rs.h"
#include "rsocket/private.h"

enum { SIGNALS = 5, EVERY_US = 10000, PATIENCE_S = 60 };

static atomic_int num_signals;

static void count(int number) { num_signals++; }

/* What a call waits for. */
struct scene {
	struct listener l;
	struct ends e;
	int second; /* a socket that connects while the backlog is full */
};

static void begin(struct scene *s)
{
	s->l = listen_at("127.0.0.1");
	s->e = connect_socket(&s->l, rsocket(AF_INET, SOCK_STREAM, 0));
	s->second = rsocket(AF_INET, SOCK_STREAM, 0);
}

static void end(struct scene *s)
{
	close_ends(&s->e);
	assert_ok(rclose(s->second));
	assert_ok(rclose(s->l.fd));
}

/* ---- calls, and what ends their waiting ---- */

static int receive(struct scene *s)
{
	char c;

	return (int)rrecv(s->e.server, &c, 1, 0);
}

static void send_one(struct scene *s) { send_all(s->e.client, "x", 1); }

/* Until all that the peer has room for has arrived there. */
static void fill_up(struct scene *s)
{
	static const char zeros[65536];
	static char seen[1 << 20];
	int size;
	socklen_t len = sizeof(size);

	assert_ok(rgetsockopt(s->e.server, SOL_SOCKET, SO_RCVBUF, &size, &len));
	assert_true((size_t)size <= sizeof(seen));
	do {
		while (rsend(s->e.client, zeros, sizeof(zeros), MSG_DONTWAIT) > 0)
			;
		assert_int_equal(errno, EAGAIN);
	} while (rrecv(s->e.server, seen, (size_t)size, MSG_PEEK | MSG_DONTWAIT) != size);
}

static int transmit(struct scene *s) { return (int)rsend(s->e.client, "x", 1, 0); }

static void take_all(struct scene *s)
{
	static char taken[65536];

	while (rrecv(s->e.server, taken, sizeof(taken), MSG_DONTWAIT) > 0)
		;
}

static int take_connection(struct scene *s)
{
	int fd = raccept(s->l.fd, NULL, NULL);

	if (fd < 0)
		return -1;
	assert_ok(rclose(fd));
	return 1;
}

static void request(struct scene *s)
{
	connect_to(s->second, &s->l);
	assert_true(wait_for(s->second, POLLOUT) & POLLOUT);
}

/* Nobody answers as long as one connection is in the backlog. */
static void fill_backlog(struct scene *s)
{
	assert_ok(rlisten(s->l.fd, 1));
	close_ends(&s->e);
	s->e.client = rsocket(AF_INET, SOCK_STREAM, 0);
	connect_to(s->e.client, &s->l);
	assert_true(wait_for(s->e.client, POLLOUT) & POLLOUT);
}

static int connect_second(struct scene *s)
{
	return rconnect(s->second, sockaddr(&s->l.address), length_of(&s->l.address)) ? -1 : 1;
}

static void take_first(struct scene *s)
{
	s->e.server = raccept(s->l.fd, NULL, NULL);
	assert_true(s->e.server >= 0);
}

static int poll_one(struct scene *s)
{
	struct pollfd p = { s->e.server, POLLIN, 0 };

	return rpoll(&p, 1, -1);
}

static int wait_in_set(struct scene *s)
{
	struct epoll_event event = { .events = EPOLLIN };
	int set = repoll_create(0);

	assert_ok(repoll_ctl(set, EPOLL_CTL_ADD, s->e.server, &event));
	int n = repoll_wait(set, &event, 1, -1), err = errno;
	assert_ok(rclose(set));
	errno = err;
	return n;
}

static const struct waiting {
	const char *name;
	int (*call)(struct scene *s);
	void (*arrange)(struct scene *s), (*release)(struct scene *s);
	bool goes_on;
	int timeout; /* the option that ends it in time; 0: none */
} calls[] = {
	{ "rrecv", receive, NULL, send_one, true, SO_RCVTIMEO },
	{ "rsend", transmit, fill_up, take_all, true, SO_SNDTIMEO },
	{ "raccept", take_connection, NULL, request, true, SO_RCVTIMEO },
	{ "rconnect", connect_second, fill_backlog, take_first, true, SO_SNDTIMEO },
	{ "rpoll", poll_one, NULL, send_one, false, 0 },
	{ "repoll_wait", wait_in_set, NULL, send_one, false, 0 },
};

/* ---- signals ---- */

static void catch(int number, int flags)
{
	struct sigaction action = { .sa_handler = count, .sa_flags = flags };

	assert_ok(sigaction(number, &action, NULL));
}

static void ring_every(suseconds_t us)
{
	struct itimerval often = { { 0, us }, { 0, us } };

	assert_ok(setitimer(ITIMER_REAL, &often, NULL));
}

struct rescue {
	const struct waiting *w;
	struct scene *s;
};

/* After some signals the call may end. */
static void *release(void *arg)
{
	struct rescue *r = arg;

	while (num_signals < SIGNALS)
		usleep(1000);
	r->w->release(r->s);
	return NULL;
}

static void block(int how)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	assert_int_equal(pthread_sigmask(how, &set, NULL), 0);
}

/* The other thread is not to be interrupted. */
static pthread_t start_rescue(struct rescue *r)
{
	pthread_t thread;

	block(SIG_BLOCK);
	assert_int_equal(pthread_create(&thread, NULL, release, r), 0);
	block(SIG_UNBLOCK);
	return thread;
}

static void set_timeout(const struct waiting *w, struct scene *s)
{
	struct timeval tv = { .tv_sec = PATIENCE_S };
	int fds[] = { s->e.client, s->e.server, s->l.fd, s->second };

	for (unsigned i = 0; i < sizeof(fds) / sizeof(*fds); i++)
		(void)rsetsockopt(fds[i], SOL_SOCKET, w->timeout, &tv, sizeof(tv));
}

static void check(const struct waiting *w, int flags, bool is_timed, bool goes_on)
{
	struct scene s;
	struct rescue rescue = { w, &s };

	begin(&s);
	if (w->arrange)
		w->arrange(&s);
	if (is_timed)
		set_timeout(w, &s);
	num_signals = 0;
	catch(SIGALRM, flags);
	pthread_t thread = goes_on ? start_rescue(&rescue) : pthread_self();
	ring_every(EVERY_US);
	int n = w->call(&s), err = errno;
	ring_every(0);
	num_signals = SIGNALS;
	if (goes_on)
		pthread_join(thread, NULL);
	else
		w->release(&s);
	if (n != (goes_on ? 1 : -1) || (!goes_on && err != EINTR))
		fail_msg("%s, flags 0x%x%s: %d, %s", w->name, (unsigned)flags, is_timed ? ", a timeout" : "",
			 n, strerror(err));
	end(&s);
	catch(SIGALRM, 0);
}

static void each_call(int flags, bool is_timed, bool go_on)
{
	for (unsigned i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		if (!is_timed || calls[i].timeout)
			check(&calls[i], flags, is_timed, go_on && calls[i].goes_on);
}

static void handler__ends_calls(void **state)
{
	(void)state;
	each_call(0, false, false);
}

static void handler__with_restart_lets_calls_go_on(void **state)
{
	(void)state;
	each_call(SA_RESTART, false, true);
}

static void handler__with_restart_ends_calls_that_have_a_timeout(void **state)
{
	(void)state;
	each_call(SA_RESTART, true, false);
}

/*
 * Which handler it was cannot be told: with one that ends calls, calls end. But not with one of a signal that
 * this thread does not take.
 */
static void handler__among_others(void **state)
{
	(void)state;
	catch(SIGUSR1, 0);
	check(&calls[0], SA_RESTART, false, false);
	sigset_t usr1;
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &usr1, NULL), 0);
	check(&calls[0], SA_RESTART, false, true);
	assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &usr1, NULL), 0);
	signal(SIGUSR1, SIG_DFL);
}

/* ---- a call that polls before it sleeps ---- */

enum { ROUNDS = 100, SHORT_WAITS = 10, SHORT_US = 20, RESCUE_MS = 500 };

struct caller {
	struct scene s;
	pthread_t thread;
	atomic_uint calls, ended; /* begun, over */
	unsigned missed;          /* signals that a call did not end for */
};

/* Answers all calls but the last of each round soon; that one meets a signal. */
static void *answer_or_ring(void *arg)
{
	struct caller *c = arg;

	for (unsigned n = 1; n <= ROUNDS * (SHORT_WAITS + 1); n++) {
		while (atomic_load(&c->calls) < n)
			;
		spin_us(SHORT_US);
		if (n % (SHORT_WAITS + 1)) {
			send_one(&c->s);
			continue;
		}
		pthread_kill(c->thread, SIGALRM);
		for (unsigned ms = 0; ms < RESCUE_MS && atomic_load(&c->ended) < n; ms++)
			usleep(1000);
		if (atomic_load(&c->ended) < n) {
			c->missed++;
			send_one(&c->s);
		}
	}
	return NULL;
}

/*
 * A wait that was short lets the next call poll, where a signal must end it, too. One that comes just before
 * the call is missed as by the kernel's calls.
 */
static void handler__ends_a_call_that_polls(void **state)
{
	struct caller c = { .thread = pthread_self() };
	pthread_t thread;
	unsigned interrupted = 0;

	(void)state;
	begin(&c.s);
	catch(SIGALRM, 0);
	assert_int_equal(pthread_create(&thread, NULL, answer_or_ring, &c), 0);
	for (unsigned n = 1; n <= ROUNDS * (SHORT_WAITS + 1); n++) {
		atomic_store(&c.calls, n);
		int got = receive(&c.s);
		interrupted += got < 0 && errno == EINTR;
		atomic_store(&c.ended, n);
	}
	pthread_join(thread, NULL);
	assert_int_equal(interrupted + c.missed, ROUNDS);
	assert_between(c.missed, 0, ROUNDS / 2);
	end(&c.s);
}

/* ---- a handler that polls ---- */

enum { MANY = 40 };

static int polled_by_handler;
static volatile sig_atomic_t num_polls, seen_by_handler;

/* A longer list than the thread's. */
static void poll_in_handler(int number)
{
	struct pollfd p[MANY];
	int err = errno;

	for (int i = 0; i < MANY; i++)
		p[i] = (struct pollfd){ polled_by_handler, POLLIN, 0 };
	if (rpoll(p, MANY, 0) == MANY)
		seen_by_handler |= p[MANY - 1].revents;
	num_polls++;
	errno = err;
}

static void poll__in_a_handler_while_the_thread_polls(void **state)
{
	struct ends polled = connected("127.0.0.1"), other = connected("127.0.0.1");
	struct sigaction action = { .sa_handler = poll_in_handler };
	struct itimerval often = { { 0, EVERY_US }, { 0, EVERY_US } }, never = { 0 };
	struct pollfd p = { polled.server, POLLIN, 0 };
	sigset_t set, before;
	char c;

	(void)state;
	polled_by_handler = other.server;
	send_all(other.client, "x", 1);
	assert_int_equal(wait_for(other.server, POLLIN), POLLIN);
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &set, &before); /* it comes while the thread sleeps, and holds no lock */
	assert_ok(sigaction(SIGALRM, &action, NULL));
	assert_ok(setitimer(ITIMER_REAL, &often, NULL));
	while (num_polls < SIGNALS)
		assert_refused(EINTR, vb_rpoll(&p, 1, VB_RS_NEVER, &before));
	assert_ok(setitimer(ITIMER_REAL, &never, NULL));
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	assert_int_equal(seen_by_handler, POLLIN);
	receive_all(other.server, &c, 1);
	assert_works(&polled);
	assert_works(&other);
	close_ends(&polled);
	close_ends(&other);
	assert_int_equal(fcntl(polled.server, F_GETFD), -1); /* nobody has a reference any more */
	assert_int_equal(fcntl(other.server, F_GETFD), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(handler__ends_calls),
		cmocka_unit_test(handler__with_restart_lets_calls_go_on),
		cmocka_unit_test(handler__with_restart_ends_calls_that_have_a_timeout),
		cmocka_unit_test(handler__among_others),
		cmocka_unit_test(handler__ends_a_call_that_polls),
		cmocka_unit_test(poll__in_a_handler_while_the_thread_polls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
