/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls of programs that run on libverbatim-sockets, with arguments and at moments that few programs choose:
 * each does what the kernel's does. This program is linked with the library.
 */
#include <limits.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>

#include "preloaded.h"

/* Calls that glibc 2.31 does not have. */
int close_range(unsigned first, unsigned last, int flags);
int epoll_pwait2(int epfd, struct epoll_event *events, int max, const struct timespec *timeout,
		 const sigset_t *mask);

static void close_ends(struct ends *e)
{
	assert_ok(close(e->client));
	assert_ok(close(e->server));
}

static void send_text(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), 0), strlen(text));
}

/* A case that waits for ever ends the program. */
static int begin_case(void **state)
{
	alarm(4 * WAIT_MS / 1000);
	return 0;
}

static void assert_child_succeeds(pid_t child)
{
	int status;

	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* ---- many messages ---- */

/* Messages of one byte. */
struct letters {
	char bytes[4];
	struct iovec iov[4];
	struct mmsghdr msgs[4];
};

static struct mmsghdr *begin_letters(struct letters *l)
{
	*l = (struct letters){ 0 };
	for (int i = 0; i < 4; i++) {
		l->iov[i] = (struct iovec){ &l->bytes[i], 1 };
		l->msgs[i].msg_hdr = (struct msghdr){ .msg_iov = &l->iov[i], .msg_iovlen = 1 };
	}
	return l->msgs;
}

static void recvmmsg__leaves_an_error_to_the_next_call(void **state)
{
	struct linger cut = { 1, 0 };
	struct ends e = connected();
	struct letters l;
	char c;

	(void)state;
	send_text(e.client, "x");
	assert_int_equal(events_within(e.server, POLLIN, WAIT_MS), POLLIN);
	assert_ok(setsockopt(e.client, SOL_SOCKET, SO_LINGER, &cut, sizeof(cut)));
	assert_ok(close(e.client));
	assert_true(events_within(e.server, 0, WAIT_MS) & POLLERR);
	assert_int_equal(recvmmsg(e.server, begin_letters(&l), 3, 0, NULL), 1);
	assert_int_equal(l.msgs[0].msg_len, 1);
	assert_refused(ECONNRESET, (int)recv(e.server, &c, 1, 0));
	assert_ok(close(e.server));
}

static void recvmmsg__looks_at_its_flags_and_its_time(void **state)
{
	struct timespec none = { 0 }, bad = { 0, 1000000000 }, long_time = { WAIT_MS, 0 };
	struct ends e = connected();
	struct letters l;

	(void)state;
	send_text(e.client, "abcd");
	assert_int_equal(events_within(e.server, POLLIN, WAIT_MS), POLLIN);
	assert_refused(EINVAL, recvmmsg(e.server, begin_letters(&l), 4, MSG_OOB, NULL));
	assert_refused(EINVAL, recvmmsg(e.server, begin_letters(&l), 4, 0, &bad));
	assert_int_equal(recvmmsg(e.server, begin_letters(&l), 4, 0, &none), 1);
	assert_int_equal(recvmmsg(e.server, begin_letters(&l), 2, 0, &long_time), 2);
	assert_memory_equal(l.bytes, "bc", 2);
	assert_true(long_time.tv_sec > 0 && long_time.tv_sec < WAIT_MS);
	close_ends(&e);
}

/* What follows a message that was cut must not be sent behind its beginning. */
static void sendmmsg__ends_with_a_message_that_is_cut(void **state)
{
	static char zeros[8 << 20];
	struct ends e = connected();
	struct iovec iov = { zeros, sizeof(zeros) };
	struct mmsghdr msgs[] = { { .msg_hdr = { .msg_iov = &iov, .msg_iovlen = 1 } }, { .msg_len = 1 } };

	(void)state;
	assert_int_equal(sendmmsg(e.client, msgs, 2, MSG_DONTWAIT), 1);
	assert_true(msgs[0].msg_len > 0 && msgs[0].msg_len < sizeof(zeros));
	close_ends(&e);
}

/* ---- times ---- */

static void *send_late(void *fd)
{
	usleep(ASLEEP_US);
	send_text(*(int *)fd, "x");
	return NULL;
}

static int ppoll_longest(int fd)
{
	struct timespec longest = { LONG_MAX, 0 };
	struct pollfd p = { fd, POLLIN, 0 };

	return ppoll(&p, 1, &longest, NULL);
}

static int pselect_longest(int fd)
{
	struct timespec longest = { LONG_MAX, 999999999 };
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	return pselect(fd + 1, &set, NULL, NULL, &longest, NULL);
}

static int select_longest(int fd)
{
	struct timeval longest = { LONG_MAX, 0 };
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	int n = select(fd + 1, &set, NULL, NULL, &longest);
	assert_true(longest.tv_sec > INT_MAX);
	return n;
}

static int epoll_longest(int fd)
{
	struct timespec longest = { LONG_MAX, 0 };
	struct epoll_event event = { .events = EPOLLIN };
	int set = epoll_create1(0);

	assert_ok(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	int n = epoll_pwait2(set, &event, 1, &longest, NULL);
	assert_ok(close(set));
	return n;
}

/* They wait for the byte. */
static void waits__for_the_longest_time(void **state)
{
	int (*const calls[])(int fd) = { ppoll_longest, pselect_longest, select_longest, epoll_longest };
	struct ends e = connected();
	pthread_t thread;
	char c;

	(void)state;
	for (unsigned i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		assert_int_equal(pthread_create(&thread, NULL, send_late, &e.client), 0);
		if (calls[i](e.server) != 1)
			fail_msg("call %u did not wait", i);
		pthread_join(thread, NULL);
		assert_int_equal(recv(e.server, &c, 1, 0), 1);
	}
	close_ends(&e);
}

/* A program that has no time to wait lets signals in all the same. */
static void waits__of_no_time_let_signals_in(void **state)
{
	struct sigaction action = { .sa_handler = count };
	struct timespec none = { 0 };
	struct ends e = connected();
	struct pollfd p = { e.server, POLLIN, 0 };
	sigset_t set, before;
	fd_set fds;

	(void)state;
	assert_ok(sigaction(SIGUSR1, &action, NULL));
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, &before);
	num_signals = 0;
	raise(SIGUSR1);
	assert_refused(EINTR, ppoll(&p, 1, &none, &before));
	assert_int_equal(num_signals, 1);
	raise(SIGUSR1);
	FD_ZERO(&fds);
	FD_SET(e.server, &fds);
	assert_refused(EINTR, pselect(e.server + 1, &fds, NULL, NULL, &none, &before));
	assert_int_equal(num_signals, 2);
	assert_int_equal(ppoll(&p, 1, &none, &before), 0);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	close_ends(&e);
}

static void select__that_fails_leaves_its_sets_alone(void **state)
{
	struct ends e = connected();
	struct timeval none = { 0 };
	int closed = fcntl(e.server, F_DUPFD, e.server + 1);
	fd_set fds;

	(void)state;
	FD_ZERO(&fds);
	FD_SET(e.server, &fds);
	FD_SET(closed, &fds);
	assert_ok(close(closed));
	assert_refused(EBADF, select(closed + 1, &fds, NULL, NULL, &none));
	assert_true(FD_ISSET(e.server, &fds) && FD_ISSET(closed, &fds));
	close_ends(&e);
}

static void *connect_one(void *at)
{
	return (void *)(intptr_t)connect_to(at);
}

static void *connect_late(void *at)
{
	enum { AFTER_US = 600000 };

	usleep(AFTER_US);
	return connect_one(at);
}

/* A time whose nanoseconds are 290 million beyond 2^64. */
static void accept__waits_for_centuries(void **state)
{
	struct timeval tv = { .tv_sec = 18446744074 };
	struct sockaddr_in at;
	int listener = listen_here(&at, 4);
	pthread_t thread;
	void *client;

	(void)state;
	assert_ok(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	assert_int_equal(pthread_create(&thread, NULL, connect_late, &at), 0);
	struct ends e = { .server = accept(listener, NULL, NULL) };
	assert_true(e.server >= 0);
	pthread_join(thread, &client);
	e.client = (int)(intptr_t)client;
	close_ends(&e);
	assert_ok(close(listener));
}

/* Another process has the port for RDMA. */
static void accept__ends_in_time_without_rdma(void **state)
{
	struct timeval tv = { .tv_sec = 1, .tv_usec = 500000 };
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	(void)state;
	if (!kernel_tells_timeouts())
		SKIP(NO_TIMEOUTS);
	assert_ok(bind(listener, (struct sockaddr *)&at, sizeof(at)));
	assert_ok(listen(listener, 4));
	pid_t child = take_rdma(listener);
	assert_ok(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	assert_refused(EAGAIN, accept(listener, NULL, NULL));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	assert_ok(close(listener));
}

static void *accept_late(void *fd)
{
	usleep(ASLEEP_US);
	return (void *)(intptr_t)accept(*(int *)fd, NULL, NULL);
}

/* A call that comes again waits for the connection that the first began. */
static void connect__for_a_time_and_again(void **state)
{
	struct timeval tv = { .tv_usec = 50000 }, none = { 0 };
	struct sockaddr_in at;
	int listener = listen_here(&at, 1), first = connect_to(&at), fd = socket(AF_INET, SOCK_STREAM, 0);
	pthread_t thread;
	void *accepted;

	(void)state;
	if (!kernel_tells_timeouts())
		SKIP(NO_TIMEOUTS);
	assert_ok(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)));
	assert_refused(EINPROGRESS, connect(fd, (struct sockaddr *)&at, sizeof(at)));
	assert_ok(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof(none)));
	assert_int_equal(pthread_create(&thread, NULL, accept_late, &listener), 0);
	assert_ok(connect(fd, (struct sockaddr *)&at, sizeof(at)));
	pthread_join(thread, &accepted);
	assert_true((intptr_t)accepted >= 0);
	assert_true(is_rdma(fd));
	assert_ok(close((int)(intptr_t)accepted));
	assert_ok(close(first));
	assert_ok(close(fd));
	assert_ok(close(listener));
}

/* ---- listening ---- */

static void connect_many(const struct sockaddr_in *at, int *fds, int n)
{
	for (int i = 0; i < n; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		if (connect(fds[i], (const struct sockaddr *)at, sizeof(*at)))
			assert_int_equal(errno, EINPROGRESS);
		assert_int_equal(events_within(fds[i], POLLOUT, WAIT_MS), POLLOUT);
		assert_true(is_rdma(fds[i]));
	}
}

/* Nobody accepts. */
static void backlog__changes(void **state)
{
	struct sockaddr_in at;
	int listener = listen_here(&at, 1), fds[3];

	(void)state;
	assert_ok(listen(listener, 3));
	connect_many(&at, fds, 3);
	for (int i = 0; i < 3; i++)
		assert_ok(close(fds[i]));
	assert_ok(close(listener));
}

static void backlog__that_is_negative_is_the_longest(void **state)
{
	struct sockaddr_in at;
	int listener = listen_here(&at, -1), fds[3];

	(void)state;
	connect_many(&at, fds, 3);
	for (int i = 0; i < 3; i++)
		assert_ok(close(fds[i]));
	assert_ok(close(listener));
}

static void accept__without_a_number_leaves_the_connection(void **state)
{
	struct sockaddr_in at;
	struct rlimit before, few;
	int listener = listen_here(&at, 4), client = connect_to(&at), lowest = dup(client);
	char c;

	(void)state;
	assert_ok(close(lowest));
	assert_ok(getrlimit(RLIMIT_NOFILE, &before));
	few = before;
	few.rlim_cur = (rlim_t)lowest;
	assert_ok(setrlimit(RLIMIT_NOFILE, &few));
	for (int i = 0; i < 2; i++) /* from TCP and RDMA in turn */
		assert_refused(EMFILE, accept(listener, NULL, NULL));
	assert_ok(setrlimit(RLIMIT_NOFILE, &before));
	struct ends e = { client, accept(listener, NULL, NULL) };
	assert_true(e.server >= 0 && is_rdma(e.server));
	send_text(e.client, "x");
	assert_int_equal(recv(e.server, &c, 1, 0), 1);
	close_ends(&e);
	assert_ok(close(listener));
}

/* What getsockopt(2) tells of a connection that was accepted is what the listener had. */
static void accept__inherits_options(void **state)
{
	static const struct {
		int level, name, value;
	} options[] = {
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },   { SOL_SOCKET, SO_OOBINLINE, 1 }, { SOL_SOCKET, SO_REUSEADDR, 1 },
		{ IPPROTO_TCP, TCP_NODELAY, 1 },   { IPPROTO_TCP, TCP_KEEPIDLE, 77 }, { IPPROTO_TCP, TCP_KEEPINTVL, 7 },
		{ IPPROTO_TCP, TCP_KEEPCNT, 3 },   { IPPROTO_TCP, TCP_USER_TIMEOUT, 5000 },
		{ IPPROTO_IP, IP_TOS, 0x10 },
	};
	const size_t n = sizeof(options) / sizeof(*options);
	struct linger lingers = { 1, 5 };
	struct sockaddr_in at;
	int listener = listen_here(&at, 4), value;
	socklen_t len = sizeof(lingers);

	(void)state;
	for (size_t i = 0; i < n; i++)
		assert_ok(setsockopt(listener, options[i].level, options[i].name, &options[i].value,
				     sizeof(options[i].value)));
	assert_ok(setsockopt(listener, SOL_SOCKET, SO_LINGER, &lingers, sizeof(lingers)));
	struct ends e = { connect_to(&at), accept(listener, NULL, NULL) };
	assert_true(is_rdma(e.server));
	memset(&lingers, 0, sizeof(lingers));
	assert_ok(getsockopt(e.server, SOL_SOCKET, SO_LINGER, &lingers, &len));
	assert_true(lingers.l_onoff == 1 && lingers.l_linger == 5);
	for (size_t i = 0; i < n; i++) {
		len = sizeof(value);
		assert_ok(getsockopt(e.server, options[i].level, options[i].name, &value, &len));
		if (value != options[i].value)
			fail_msg("level %d, option %d is %d", options[i].level, options[i].name, value);
	}
	close_ends(&e);
	assert_ok(close(listener));
}

/* ---- bytes ---- */

/* A pipe's bytes cannot be put back if the socket does not take them. */
static void sendfile__takes_files_alone(void **state)
{
	struct ends e = connected();
	int ends[2];
	off_t start = 0;
	char got[4];

	(void)state;
	assert_ok(pipe(ends));
	assert_int_equal(write(ends[1], "abcd", 4), 4);
	assert_refused(EINVAL, (int)sendfile(e.client, ends[0], NULL, 4));
	assert_refused(ESPIPE, (int)sendfile(e.client, ends[0], &start, 4));
	assert_int_equal(read(ends[0], got, sizeof(got)), 4);
	close(ends[0]);
	close(ends[1]);
	close_ends(&e);
}

/* tcp(7): the bytes are discarded. */
static void recv__drops_bytes(void **state)
{
	struct ends e = connected();
	char got[4] = "";

	(void)state;
	send_text(e.client, "abcd");
	assert_int_equal(events_within(e.server, POLLIN, WAIT_MS), POLLIN);
	assert_int_equal(recv(e.server, got, 2, MSG_TRUNC | MSG_PEEK), 2);
	assert_int_equal(recv(e.server, got, 2, MSG_TRUNC), 2);
	assert_string_equal(got, "");
	assert_int_equal(recv(e.server, got, sizeof(got), 0), 2);
	assert_string_equal(got, "cd");
	close_ends(&e);
}

static void recvfrom__that_fails_tells_no_name(void **state)
{
	struct ends e = connected();
	struct sockaddr_storage from;
	socklen_t len = sizeof(from);
	char c;

	(void)state;
	assert_refused(EAGAIN,
		       (int)recvfrom(e.server, &c, 1, MSG_DONTWAIT, (struct sockaddr *)&from, &len));
	assert_int_equal(len, sizeof(from));
	send_text(e.client, "xy");
	assert_int_equal(recvfrom(e.server, &c, 1, 0, (struct sockaddr *)&from, &len), 1);
	assert_int_equal(len, 0); /* as of TCP */
	len = sizeof(from);
	assert_int_equal(recvfrom(e.server, &c, 1, 0, NULL, &len), 1);
	assert_int_equal(len, sizeof(from));
	close_ends(&e);
}

/* A program that ignores the errors of its writes ends by SIGPIPE. */
static void write__to_a_peer_that_is_gone(void **state)
{
	struct sigaction action = { .sa_handler = count }, before;
	struct ends e = connected();

	(void)state;
	assert_ok(sigaction(SIGPIPE, &action, &before));
	num_signals = 0;
	assert_ok(close(e.server));
	assert_true(events_within(e.client, POLLIN, WAIT_MS) & POLLHUP);
	assert_refused(ECONNRESET, (int)send(e.client, "x", 1, 0));
	assert_int_equal(num_signals, 0);
	assert_refused(EPIPE, (int)send(e.client, "x", 1, MSG_NOSIGNAL));
	assert_int_equal(num_signals, 0);
	assert_refused(EPIPE, (int)send(e.client, "x", 1, 0));
	assert_int_equal(num_signals, 1);
	assert_ok(sigaction(SIGPIPE, &before, NULL));
	assert_ok(close(e.client));
}

/* Nothing would ever tell that the buffers are free. */
static void zero_copies__are_refused(void **state)
{
	struct ends e = connected();
	int on = 1;

	(void)state;
	assert_refused(EOPNOTSUPP, setsockopt(e.client, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)));
	close_ends(&e);
}

struct writer {
	FILE *stream;
	const char *data;
	size_t bytes, written;
};

static void *write_stream(void *arg)
{
	struct writer *w = arg;

	w->written = fwrite(w->data, 1, w->bytes, w->stream);
	return NULL;
}

/* A signal ends the write of a part. */
static void stream__writes_the_rest(void **state)
{
	static char zeros[4 << 20], got[65536];
	struct sigaction action = { .sa_handler = count };
	struct ends e = connected();
	struct writer w = { fdopen(e.client, "w"), zeros, sizeof(zeros), 0 };
	pthread_t thread;
	int unread = -1, before;
	size_t total = 0;

	(void)state;
	assert_ok(setvbuf(w.stream, NULL, _IONBF, 0));
	assert_ok(sigaction(SIGUSR1, &action, NULL));
	num_signals = 0;
	assert_int_equal(pthread_create(&thread, NULL, write_stream, &w), 0);
	do { /* until no more comes, so that the writer waits, or is about to */
		before = unread;
		usleep(ASLEEP_US);
		assert_ok(ioctl(e.server, FIONREAD, &unread));
	} while (!unread || unread != before);
	pthread_kill(thread, SIGUSR1);
	while (!num_signals)
		usleep(1000);
	while (total < sizeof(zeros)) {
		assert_true(events_within(e.server, POLLIN, WAIT_MS) & POLLIN);
		ssize_t n = recv(e.server, got, sizeof(got), 0);
		assert_true(n > 0);
		total += (size_t)n;
	}
	pthread_join(thread, NULL);
	assert_int_equal(w.written, sizeof(zeros));
	assert_ok(fclose(w.stream));
	assert_ok(close(e.server));
}

/* It has read more than the program has. */
static void stream__is_flushed_while_it_reads(void **state)
{
	struct ends e = connected();
	FILE *stream = fdopen(e.server, "r");
	char line[8];

	(void)state;
	send_text(e.client, "one\ntwo\n");
	assert_ptr_equal(fgets(line, sizeof(line), stream), line);
	errno = 0;
	assert_ok(fflush(stream));
	assert_refused(ESPIPE, (int)ftell(stream));
	assert_ptr_equal(fgets(line, sizeof(line), stream), line);
	assert_string_equal(line, "two\n");
	assert_ok(fclose(stream));
	assert_ok(close(e.client));
}

/* ---- numbers ---- */

static void tells_of(int set, const struct ends *e)
{
	struct epoll_event event;
	char c;

	send_text(e->client, "x");
	assert_int_equal(epoll_wait(set, &event, 1, WAIT_MS), 1);
	assert_int_equal(event.data.fd, e->server);
	assert_int_equal(recv(e->server, &c, 1, 0), 1);
}

/* A set lives as long as one of its numbers. */
static void set__has_several_numbers(void **state)
{
	struct ends e = connected();
	struct epoll_event event = { .events = EPOLLIN, .data.fd = e.server };
	int set = epoll_create1(EPOLL_CLOEXEC), copy = fcntl(set, F_DUPFD_CLOEXEC, 0), third = dup(0);

	(void)state;
	assert_ok(epoll_ctl(copy, EPOLL_CTL_ADD, e.server, &event));
	tells_of(set, &e);
	tells_of(copy, &e);
	assert_ok(close(set));
	tells_of(copy, &e);
	assert_int_equal(dup2(copy, third), third);
	assert_ok(close(copy));
	tells_of(third, &e);
	assert_ok(epoll_ctl(third, EPOLL_CTL_DEL, e.server, NULL));
	assert_ok(close(third));
	assert_refused(EBADF, epoll_wait(third, &event, 1, 0));
	close_ends(&e);
}

static void add(int set, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = fd };

	assert_ok(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
}

/* The one event of a set. */
static void assert_tells(int set, int fd, uint32_t events)
{
	struct epoll_event event[3];

	assert_int_equal(epoll_wait(set, event, 3, WAIT_MS), 1);
	assert_int_equal(event[0].data.fd, fd);
	assert_int_equal(event[0].events, events);
}

/* As in the kernel, a duplicate is a member of its own. */
static void set__has_a_duplicate_too(void **state)
{
	struct ends e = connected();
	struct epoll_event event[3] = { { .events = EPOLLIN } };
	int copy = dup(e.server), set = epoll_create1(0);

	(void)state;
	add(set, e.server, EPOLLIN);
	add(set, copy, EPOLLOUT);
	assert_refused(EEXIST, epoll_ctl(set, EPOLL_CTL_ADD, copy, event));
	assert_tells(set, copy, EPOLLOUT);
	send_text(e.client, "x");
	assert_int_equal(events_within(e.server, POLLIN, WAIT_MS), POLLIN);
	assert_int_equal(epoll_wait(set, event, 3, WAIT_MS), 2);
	assert_int_equal(event[0].data.fd + event[1].data.fd, e.server + copy);
	assert_ok(epoll_ctl(set, EPOLL_CTL_DEL, e.server, NULL));
	event[0] = (struct epoll_event){ .events = EPOLLIN | EPOLLET, .data.fd = copy };
	assert_ok(epoll_ctl(set, EPOLL_CTL_MOD, copy, event));
	assert_tells(set, copy, EPOLLIN);
	assert_int_equal(epoll_wait(set, event, 3, 0), 0);
	send_text(e.client, "y"); /* told by the rsocket's descriptors, which both had in common */
	assert_tells(set, copy, EPOLLIN);
	assert_ok(close(copy));
	close_ends(&e);
	assert_ok(close(set));
}

/* The set has a number of the socket that the program does not connect. */
static void set__has_a_duplicate_that_connects(void **state)
{
	struct sockaddr_in at;
	int listener = listen_here(&at, 4), copy, set = epoll_create1(0);
	struct ends e = { .client = socket(AF_INET, SOCK_STREAM, 0) };

	(void)state;
	copy = dup(e.client);
	add(set, copy, EPOLLIN);
	assert_ok(connect(e.client, (struct sockaddr *)&at, sizeof(at)));
	e.server = accept(listener, NULL, NULL);
	assert_true(is_rdma(copy));
	send_text(e.server, "x");
	assert_tells(set, copy, EPOLLIN);
	assert_ok(close(copy));
	close_ends(&e);
	assert_ok(close(set));
	assert_ok(close(listener));
}

/* Its number stands for something else, which other calls than close(2) can bring about. */
static void set__loses_its_number(void **state)
{
	struct ends e = connected();
	struct epoll_event event = { .events = EPOLLIN };
	int set = epoll_create1(0);

	(void)state;
	assert_ok(epoll_ctl(set, EPOLL_CTL_ADD, e.client, &event));
	assert_int_equal(dup2(e.client, set), set);
	assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, e.server, &event), -1);
	assert_ok(close(set));
	send_text(e.client, "x");
	set = epoll_create1(0);
	assert_ok(epoll_ctl(set, EPOLL_CTL_ADD, e.client, &event));
	assert_ok(close_range((unsigned)set, (unsigned)set, 0));
	assert_int_equal(dup(e.client), set);
	assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, e.server, &event), -1);
	assert_ok(close(set));
	close_ends(&e);
}

/* ---- forks ---- */

struct attempt {
	int fd;
	struct sockaddr_in at;
};

static void *connect_this(void *attempt)
{
	struct attempt *a = attempt;

	return connect(a->fd, (struct sockaddr *)&a->at, sizeof(a->at)) ? a : NULL;
}

/* The child has the thread's socket, but not the thread. */
static void fork__while_a_thread_connects(void **state)
{
	struct attempt a = { .fd = socket(AF_INET, SOCK_STREAM, 0) };
	int listener = listen_here(&a.at, 1), first = connect_to(&a.at);
	pthread_t thread;
	void *failed;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, connect_this, &a), 0);
	usleep(ASLEEP_US);
	pid_t child = fork();
	if (!child) {
		struct epoll_event event = { .events = EPOLLIN };

		alarm(WAIT_MS / 1000);
		_exit(epoll_ctl(epoll_create1(0), EPOLL_CTL_ADD, a.fd, &event) != 0);
	}
	assert_child_succeeds(child);
	int accepted = accept(listener, NULL, NULL);
	pthread_join(thread, &failed);
	assert_null(failed);
	assert_ok(close(accepted));
	assert_ok(close(first));
	assert_ok(close(a.fd));
	assert_ok(close(listener));
}

enum { TIMES = 3 };

/* A server that makes its set, and then goes into the background; it tells of itself by `told`. */
static void serve_in_background(bool parent_stays, int told)
{
	struct sockaddr_in at;
	struct epoll_event event = { .events = EPOLLIN };
	int listener = listen_here(&at, 4), set = epoll_create1(0);

	assert_ok(epoll_ctl(set, EPOLL_CTL_ADD, listener, &event));
	pid_t parent = getpid(), child = fork();
	if (child) {
		assert_ok(close(set));
		assert_ok(close(listener));
		if (parent_stays)
			assert_child_succeeds(child);
		_exit(0);
	}
	alarm(4 * WAIT_MS / 1000);
	while (!parent_stays && getppid() == parent)
		usleep(1000);
	if (epoll_wait(set, &event, 1, 0) || write(told, &at, sizeof(at)) != sizeof(at))
		_exit(1);
	for (int i = 0; i < TIMES; i++) {
		if (epoll_wait(set, &event, 1, -1) != 1)
			_exit(2);
		int fd = accept(listener, NULL, NULL);
		if (fd < 0 || send(fd, "x", 1, 0) != 1 || close(fd) || write(told, "x", 1) != 1)
			_exit(3);
	}
	_exit(0);
}

static void use_background(bool parent_stays)
{
	struct sockaddr_in at;
	int told[2];
	pthread_t thread;
	void *client;
	char c;

	assert_ok(pipe(told));
	pid_t child = fork();
	if (!child)
		serve_in_background(parent_stays, told[1]);
	close(told[1]);
	assert_int_equal(read(told[0], &at, sizeof(at)), sizeof(at));
	for (int i = 0; i < TIMES; i++) {
		assert_int_equal(pthread_create(&thread, NULL, connect_one, &at), 0);
		if (read(told[0], &c, 1) != 1)
			fail_msg("connection %d: the server hears nothing of it", i);
		pthread_join(thread, &client);
		assert_int_equal(recv((int)(intptr_t)client, &c, 1, 0), 1);
		assert_ok(close((int)(intptr_t)client));
	}
	assert_int_equal(read(told[0], &c, 1), 0);
	close(told[0]);
	assert_child_succeeds(child);
}

static void set__is_inherited_with_its_listener(void **state)
{
	(void)state;
	use_background(true);
	use_background(false);
}

#define CASE(name) cmocka_unit_test_setup(name, begin_case)

/* usage: test_rsocket_preloaded_calls [PATTERN], with * and ? */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(recvmmsg__leaves_an_error_to_the_next_call),
		CASE(recvmmsg__looks_at_its_flags_and_its_time),
		CASE(sendmmsg__ends_with_a_message_that_is_cut),
		CASE(waits__for_the_longest_time),
		CASE(waits__of_no_time_let_signals_in),
		CASE(select__that_fails_leaves_its_sets_alone),
		CASE(accept__waits_for_centuries),
		CASE(accept__ends_in_time_without_rdma),
		CASE(connect__for_a_time_and_again),
		CASE(backlog__changes),
		CASE(backlog__that_is_negative_is_the_longest),
		CASE(accept__without_a_number_leaves_the_connection),
		CASE(accept__inherits_options),
		CASE(sendfile__takes_files_alone),
		CASE(recv__drops_bytes),
		CASE(recvfrom__that_fails_tells_no_name),
		CASE(write__to_a_peer_that_is_gone),
		CASE(zero_copies__are_refused),
		CASE(stream__writes_the_rest),
		CASE(stream__is_flushed_while_it_reads),
		CASE(set__has_several_numbers),
		CASE(set__has_a_duplicate_too),
		CASE(set__has_a_duplicate_that_connects),
		CASE(set__loses_its_number),
		CASE(fork__while_a_thread_connects),
		CASE(set__is_inherited_with_its_listener),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
