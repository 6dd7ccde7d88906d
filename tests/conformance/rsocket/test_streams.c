/* SPDX-License-Identifier: BSD-2-Clause */
/* Stream sockets: connecting, bytes, ends. */
#include <endian.h>
#include <infiniband/ib.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/time.h>

#include "rs.h"

#include <limits.h>

enum { TOTAL = 4 << 20, LONGEST = 300000 };

/* ---- connecting ---- */

static void works_on(const char *ip)
{
	struct ends e = connected(ip);

	assert_works(&e);
	close_ends(&e);
}

static void connect__on_each_address(void **state)
{
	(void)state;
	on_each_address(works_on);
}

static void names__of_both_ends(void **state)
{
	struct ends e = connected("127.0.0.1");
	struct sockaddr_in a, b;
	socklen_t len = sizeof(a);

	(void)state;
	assert_ok(rgetsockname(e.client, (struct sockaddr *)&a, &len));
	len = sizeof(b);
	assert_ok(rgetpeername(e.server, (struct sockaddr *)&b, &len));
	assert_int_equal(len, sizeof(b));
	assert_memory_equal(&a, &b, offsetof(struct sockaddr_in, sin_zero));
	len = 2; /* cut, and the whole length told */
	assert_ok(rgetpeername(e.client, (struct sockaddr *)&b, &len));
	assert_int_equal(len, sizeof(b));
	len = 0; /* the length alone */
	assert_ok(rgetsockname(e.client, NULL, &len));
	assert_int_equal(len, sizeof(a));
	len = 0;
	assert_ok(rgetpeername(e.client, NULL, &len));
	assert_int_equal(len, sizeof(b));
	assert_refused(EFAULT, rgetsockname(e.client, NULL, &len));
	assert_refused(EFAULT, rgetpeername(e.client, NULL, &len));
	assert_refused(EFAULT, rgetsockname(e.client, (struct sockaddr *)&a, NULL));
	close_ends(&e);
}

/* The GID 127.0.0.1 and a service id for the port. */
static struct sockaddr_ib gid_of_host(uint16_t port)
{
	struct sockaddr_ib sib = { .sib_family = AF_IB, .sib_pkey = 0xffff, .sib_sid_mask = UINT64_MAX };

	memcpy(sib.sib_addr.sib_raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1", 16);
	sib.sib_sid = htobe64((uint64_t)RDMA_PS_TCP << 16 | port);
	return sib;
}

static void stream__between_gids(void **state)
{
	struct sockaddr_ib at = gid_of_host(0), named;
	socklen_t len = sizeof(at);
	int listener = rsocket(AF_IB, SOCK_STREAM, 0);
	struct ends e = { .client = rsocket(AF_IB, SOCK_STREAM, 0) };

	(void)state;
	assert_ok(rbind(listener, (struct sockaddr *)&at, sizeof(at)));
	assert_ok(rlisten(listener, 1));
	assert_ok(rgetsockname(listener, (struct sockaddr *)&at, &len));
	assert_int_equal(len, sizeof(at));
	assert_int_not_equal((uint16_t)be64toh(at.sib_sid), 0);
	assert_ok(rconnect(e.client, (struct sockaddr *)&at, sizeof(at)));
	e.server = raccept(listener, (struct sockaddr *)&named, &len);
	assert_true(e.server >= 0);
	assert_int_equal(named.sib_family, AF_IB);
	assert_memory_equal(&named.sib_addr, &at.sib_addr, sizeof(at.sib_addr));
	assert_works(&e);
	close_ends(&e);
	assert_ok(rclose(listener));
}

static void stream__is_read_and_written_like_a_file(void **state)
{
	struct ends e = connected("127.0.0.1");
	char got[8];

	(void)state;
	assert_int_equal(rwrite(e.client, "abcdef", 6), 6);
	assert_true(wait_for(e.server, POLLIN) & POLLIN);
	assert_int_equal(rread(e.server, got, sizeof(got)), 6);
	assert_memory_equal(got, "abcdef", 6);
	close_ends(&e);
}

static void accept__names_the_peer(void **state)
{
	struct listener l = listen_at("127.0.0.1");
	int client = rsocket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in peer = { 0 };
	socklen_t len = sizeof(peer);

	(void)state;
	connect_to(client, &l);
	int server = raccept(l.fd, (struct sockaddr *)&peer, &len);
	assert_true(server >= 0);
	assert_int_equal(peer.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
	assert_ok(rclose(client));
	assert_ok(rclose(server));
	assert_ok(rclose(l.fd));
}

static void accept__nothing_waits(void **state)
{
	struct listener l = listen_at("127.0.0.1");

	(void)state;
	set_blocking(l.fd, false);
	assert_refused(EAGAIN, raccept(l.fd, NULL, NULL));
	assert_ok(rclose(l.fd));
}

/* As rdma-core's librspreload: it opens a descriptor for the program, and then the socket behind it. */
/* The connection stays until there is a number. */
static void accept__without_a_number(void **state)
{
	struct listener l = listen_at("127.0.0.1");
	struct ends e = { .client = rsocket(AF_INET, SOCK_STREAM, 0) };
	struct rlimit before, few;

	(void)state;
	connect_to(e.client, &l);
	assert_int_equal(wait_for(l.fd, POLLIN), POLLIN);
	assert_int_equal(wait_for(e.client, POLLOUT), POLLOUT);
	set_blocking(e.client, true);
	set_blocking(l.fd, false);
	int lowest = dup(STDERR_FILENO);
	assert_ok(close(lowest));
	assert_ok(getrlimit(RLIMIT_NOFILE, &before));
	few = before;
	few.rlim_cur = (rlim_t)lowest;
	assert_ok(setrlimit(RLIMIT_NOFILE, &few));
	e.server = raccept(l.fd, NULL, NULL);
	int err = errno;
	assert_ok(setrlimit(RLIMIT_NOFILE, &before));
	assert_int_equal(e.server, -1);
	assert_int_equal(err, EMFILE);
	e.server = raccept(l.fd, NULL, NULL);
	assert_true(e.server >= 0);
	assert_works(&e);
	close_ends(&e);
	assert_ok(rclose(l.fd));
}

static int open_null(void)
{
	int fd = open("/dev/null", O_RDONLY);

	assert_true(fd >= 0);
	return fd;
}

/* What another thread closes between the two leaves a lower number free. */
static int open_with_a_gap_below(void)
{
	int below = open_null(), fd = open_null();

	assert_true(below < fd);
	close(below);
	return fd;
}

static void numbers__above_what_was_opened_before(void **state)
{
	struct listener l = listen_at("127.0.0.1");
	int opened[3] = { open_with_a_gap_below() }, stream = rsocket(AF_INET, SOCK_STREAM, 0);

	assert_true(stream > opened[0]);
	connect_to(stream, &l);
	wait_for(l.fd, POLLIN);
	opened[1] = open_with_a_gap_below();
	int accepted = raccept(l.fd, NULL, NULL);
	assert_true(accepted > opened[1]);
	/* rclose would wait for it in vain: this thread is that end, too */
	assert_true(wait_for(stream, POLLOUT) & POLLOUT);
	opened[2] = open_with_a_gap_below();
	int datagram = rsocket(AF_INET, SOCK_DGRAM, 0);
	assert_true(datagram > opened[2]);
	for (int i = 0; i < 3; i++)
		close(opened[i]);
	assert_ok(rclose(datagram));
	assert_ok(rclose(accepted));
	assert_ok(rclose(stream));
	assert_ok(rclose(l.fd));
}

/* Where the limit leaves no room there, any number will do. */
static void numbers__under_a_low_limit(void **state)
{
	struct rlimit before, low;

	assert_ok(getrlimit(RLIMIT_NOFILE, &before));
	low = before;
	low.rlim_cur = 128;
	assert_ok(setrlimit(RLIMIT_NOFILE, &low));
	struct ends e = connected("127.0.0.1");
	assert_true(e.client < 128 && e.server < 128);
	close_ends(&e);
	assert_ok(setrlimit(RLIMIT_NOFILE, &before));
}

static void connect__refused(void **state)
{
	struct listener l = listen_at("127.0.0.1");
	int s = rsocket(AF_INET, SOCK_STREAM, 0), err = 0;
	socklen_t len = sizeof(err);

	(void)state;
	assert_ok(rclose(l.fd));
	assert_refused(ECONNREFUSED, rconnect(s, sockaddr(&l.address), length_of(&l.address)));
	/* Once more, without waiting. */
	connect_to(s, &l);
	assert_true(wait_for(s, POLLOUT) & POLLERR);
	assert_ok(rgetsockopt(s, SOL_SOCKET, SO_ERROR, &err, &len));
	assert_int_equal(err, ECONNREFUSED);
	assert_ok(rclose(s));
}

static void connect__again_after_a_refusal(void **state)
{
	struct listener gone = listen_at("127.0.0.1"), l = listen_at("127.0.0.1");
	int s = rsocket(AF_INET, SOCK_STREAM, 0);

	(void)state;
	assert_ok(rclose(gone.fd));
	assert_refused(ECONNREFUSED, rconnect(s, sockaddr(&gone.address), length_of(&gone.address)));
	struct ends e = connect_socket(&l, s);
	assert_works(&e);
	close_ends(&e);
	assert_ok(rclose(l.fd));
}

/* It does nothing else with the socket. */
static int ask_again(int s, struct listener *l)
{
	for (int ms = 0; ms < WAIT_MS; ms++) {
		if (rconnect(s, sockaddr(&l->address), length_of(&l->address)) || errno == EISCONN)
			if (errno != EINPROGRESS && errno != EALREADY)
				return errno;
		usleep(1000);
	}
	return 0;
}

static void connect__asked_again_and_again(void **state)
{
	struct listener l = listen_at("127.0.0.1");
	struct ends e = { .client = rsocket(AF_INET, SOCK_STREAM, 0) };
	int s = rsocket(AF_INET, SOCK_STREAM, 0);

	(void)state;
	set_blocking(e.client, false);
	assert_int_equal(ask_again(e.client, &l), EISCONN);
	e.server = raccept(l.fd, NULL, NULL);
	set_blocking(e.client, true);
	assert_works(&e);
	close_ends(&e);
	assert_ok(rshutdown(l.fd, SHUT_RD));
	set_blocking(s, false);
	assert_int_equal(ask_again(s, &l), ECONNREFUSED);
	assert_ok(rclose(s));
	assert_ok(rclose(l.fd));
}

static void addresses__too_short(void **state)
{
	struct listener l = listen_at("127.0.0.1"), l6 = listen_at("::1");
	int s = rsocket(AF_INET, SOCK_STREAM, 0);

	(void)state;
	assert_refused(EINVAL, rbind(s, sockaddr(&l.address), length_of(&l.address) - 1));
	assert_refused(EINVAL, rconnect(s, sockaddr(&l.address), length_of(&l.address) - 1));
	assert_refused(EINVAL, rconnect(s, sockaddr(&l6.address), length_of(&l.address)));
	assert_refused(EINVAL, rconnect(s, NULL, 0));
	assert_ok(rclose(s));
	assert_ok(rclose(l.fd));
	assert_ok(rclose(l6.fd));
}

static void calls__in_the_wrong_state(void **state)
{
	struct listener l = listen_at("127.0.0.1");
	int s = rsocket(AF_INET, SOCK_STREAM, 0), other = rsocket(AF_INET, SOCK_STREAM, 0);
	char c;

	(void)state;
	assert_refused(ENOTCONN, (int)rrecv(s, &c, 1, 0));
	assert_refused(ENOTCONN, (int)rsend(s, "x", 1, 0));
	assert_refused(ENOTCONN, rshutdown(s, SHUT_RDWR));
	assert_refused(EINVAL, raccept(s, NULL, NULL));
	assert_refused(EINVAL, rbind(l.fd, sockaddr(&l.address), length_of(&l.address)));
	assert_refused(EADDRINUSE, rbind(other, sockaddr(&l.address), length_of(&l.address)));
	struct ends e = connect_socket(&l, s);
	assert_refused(EISCONN, rconnect(s, sockaddr(&l.address), length_of(&l.address)));
	close_ends(&e);
	assert_ok(rclose(other));
	assert_ok(rclose(l.fd));
}

static void calls__on_no_socket(void **state)
{
	char c;

	(void)state;
	assert_refused(ENOTSUP, rsocket(AF_UNIX, SOCK_STREAM, 0));
	assert_refused(ENOTSUP, rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
	assert_refused(ENOTSUP, rsocket(AF_IB, SOCK_DGRAM, 0));
	assert_refused(EBADF, rclose(0));
	assert_refused(EBADF, rclose(-1));
	assert_refused(EBADF, (int)rrecv(INT32_MAX, &c, 1, 0));
	assert_refused(EBADF, (int)rsend(0, &c, 1, 0));
	assert_refused(EBADF, rlisten(0, 1));
}

/* ---- bytes ---- */

static void *write_stream(void *arg)
{
	int fd = *(int *)arg;
	uint8_t *data = malloc(LONGEST);
	uint64_t place = 0;

	for (unsigned i = 1; place < TOTAL; i++) {
		size_t n = i % 3 ? i * 7 % 5000 + 1 : i * 7919 % LONGEST + 1;
		if (n > TOTAL - place)
			n = TOTAL - place;
		fill(data, n, place);
		if (rsend(fd, data, n, 0) != (ssize_t)n)
			break;
		place += n;
	}
	free(data);
	return place == TOTAL ? NULL : arg;
}

static void *read_stream(void *arg)
{
	int fd = *(int *)arg;
	uint8_t *data = malloc(LONGEST);
	uint64_t place = 0;

	for (unsigned i = 1; place < TOTAL; i++) {
		ssize_t n = rrecv(fd, data, i % 2 ? i * 6151 % LONGEST + 1 : i % 100 + 1, 0);
		if (n <= 0 || !is_filled(data, (size_t)n, place))
			break;
		place += (uint64_t)n;
	}
	free(data);
	return place == TOTAL ? NULL : arg;
}

/* Four threads: both ends read and write at once. */
static void exchange(struct ends *e)
{
	pthread_t threads[4];
	void *result;

	pthread_create(&threads[0], NULL, write_stream, &e->client);
	pthread_create(&threads[1], NULL, write_stream, &e->server);
	pthread_create(&threads[2], NULL, read_stream, &e->client);
	pthread_create(&threads[3], NULL, read_stream, &e->server);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &result);
		assert_null(result);
	}
}

static void bytes__both_ways_at_once(void **state)
{
	struct ends e = connected("127.0.0.1");

	(void)state;
	exchange(&e);
	close_ends(&e);
}

static void set(int fd, int level, int name, int value)
{
	assert_ok(rsetsockopt(fd, level, name, &value, sizeof(value)));
}

static void bytes__with_small_queues_and_rings(void **state)
{
	struct listener l = listen_at("127.0.0.1");
	int client = rsocket(AF_INET, SOCK_STREAM, 0);

	(void)state;
	for (int i = 0; i < 2; i++) {
		int s = i ? client : l.fd;
		set(s, SOL_RDMA, RDMA_SQSIZE, 1);
		set(s, SOL_RDMA, RDMA_RQSIZE, 1);
		set(s, SOL_RDMA, RDMA_INLINE, i ? 0 : 100);
		set(s, SOL_SOCKET, SO_RCVBUF, 1);
		set(s, SOL_SOCKET, SO_SNDBUF, 1);
	}
	struct ends e = connect_socket(&l, client);
	exchange(&e);
	close_ends(&e);
	assert_ok(rclose(l.fd));
}

static void write__without_waiting_is_partial(void **state)
{
	struct ends e = connected("127.0.0.1");
	static uint8_t data[1 << 20], got[1 << 20];

	(void)state;
	fill(data, sizeof(data), 0);
	ssize_t n = rsend(e.client, data, sizeof(data), MSG_DONTWAIT);
	assert_true(n > 0 && n < (ssize_t)sizeof(data));
	while (rsend(e.client, data + n, 1, MSG_DONTWAIT) == 1)
		n++;
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(events_of(e.client, POLLOUT), 0);
	assert_int_equal(rrecv(e.server, got, (size_t)n, MSG_WAITALL), n);
	assert_true(is_filled(got, (size_t)n, 0));
	assert_int_equal(wait_for(e.client, POLLOUT), POLLOUT);
	assert_works(&e);
	close_ends(&e);
}

static void read__without_waiting_and_peeking(void **state)
{
	struct ends e = connected("127.0.0.1");
	char got[20] = { 0 };

	(void)state;
	assert_refused(EAGAIN, (int)rrecv(e.server, got, sizeof(got), MSG_DONTWAIT));
	send_all(e.client, "one", 3);
	send_all(e.client, "two", 3);
	assert_int_equal(wait_for(e.server, POLLIN), POLLIN);
	assert_int_equal(rrecv(e.server, got, 2, MSG_PEEK), 2);
	assert_memory_equal(got, "on", 2);
	receive_all(e.server, got, 6);
	assert_memory_equal(got, "onetwo", 6);
	assert_refused(EAGAIN, (int)rrecv(e.server, got, sizeof(got), MSG_DONTWAIT));
	set_blocking(e.server, false);
	assert_int_equal(rfcntl(e.server, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	assert_refused(EAGAIN, (int)rread(e.server, got, sizeof(got)));
	close_ends(&e);
}

/* ---- a peek at all ---- */

struct sending {
	int fd;
	size_t bytes, piece;
	bool ends;
};

/* Begins when the other side sleeps. */
static void *send_late(void *arg)
{
	const struct sending *s = arg;
	uint8_t piece[4096];

	usleep(30000);
	for (size_t sent = 0, n; sent < s->bytes; sent += n) {
		n = s->bytes - sent < s->piece ? s->bytes - sent : s->piece;
		fill(piece, n, sent);
		if (rsend(s->fd, piece, n, 0) != (ssize_t)n)
			return arg;
	}
	return s->ends && rshutdown(s->fd, SHUT_WR) ? arg : NULL;
}

/* What a peek for `wanted` bytes saw, of those that are sent meanwhile; it stays to be read. */
static ssize_t peek_all(struct ends *e, struct sending sending, size_t wanted)
{
	static uint8_t seen[1 << 20], got[1 << 20];
	pthread_t thread;
	void *failed;

	assert_true(wanted <= sizeof(seen));
	assert_int_equal(pthread_create(&thread, NULL, send_late, &sending), 0);
	ssize_t n = rrecv(e->server, seen, wanted, MSG_PEEK | MSG_WAITALL);
	assert_true(n >= 0 && is_filled(seen, (size_t)n, 0));
	receive_all(e->server, got, sending.bytes);
	assert_true(is_filled(got, sending.bytes, 0));
	pthread_join(thread, &failed);
	assert_null(failed);
	return n;
}

static void peek__waits_for_all(void **state)
{
	enum { BYTES = 5000 };
	struct ends e = connected("127.0.0.1");

	(void)state;
	assert_int_equal(peek_all(&e, (struct sending){ e.client, BYTES, 100, false }, BYTES), BYTES);
	/* the end */
	assert_int_equal(peek_all(&e, (struct sending){ e.client, BYTES, 100, true }, 2 * BYTES), BYTES);
	close_ends(&e);
}

/* Bytes that cannot come before others are read, for want of room or of receives, are not waited for. */
static void peek__waits_for_no_more_than_can_come(void **state)
{
	enum { MUCH = 1 << 20, MANY = 2000 };
	struct ends e = connected("127.0.0.1");
	int size, queue;
	socklen_t len = sizeof(size);

	(void)state;
	assert_ok(rgetsockopt(e.server, SOL_SOCKET, SO_RCVBUF, &size, &len));
	assert_ok(rgetsockopt(e.server, SOL_RDMA, RDMA_RQSIZE, &queue, &len));
	assert_int_equal(peek_all(&e, (struct sending){ e.client, MUCH, 4096, false }, MUCH), size);
	assert_int_equal(peek_all(&e, (struct sending){ e.client, MANY, 1, false }, MANY), queue);
	close_ends(&e);
}

/* A program may do nothing but peek until a message is whole. */
static void peek__again_and_again_sees_more(void **state)
{
	struct ends e = connected("127.0.0.1");
	char seen[6];
	int ms = 0;

	(void)state;
	send_all(e.client, "one", 3);
	assert_int_equal(rrecv(e.server, seen, sizeof(seen), MSG_PEEK), 3);
	send_all(e.client, "two", 3);
	for (; ms < WAIT_MS &&
	       rrecv(e.server, seen, sizeof(seen), MSG_PEEK | MSG_DONTWAIT) < (ssize_t)sizeof(seen);
	     ms++)
		usleep(1000);
	assert_true(ms < WAIT_MS);
	assert_memory_equal(seen, "onetwo", 6);
	close_ends(&e);
}

static void peek__is_over_when_its_time_is(void **state)
{
	struct ends e = connected("127.0.0.1");
	struct timeval tv = { .tv_usec = 20000 };
	char seen[10];

	(void)state;
	send_all(e.client, "one", 3);
	assert_int_equal(wait_for(e.server, POLLIN), POLLIN);
	assert_int_equal(rrecv(e.server, seen, sizeof(seen), MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT), 3);
	assert_ok(rsetsockopt(e.server, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	assert_int_equal(rrecv(e.server, seen, sizeof(seen), MSG_PEEK | MSG_WAITALL), 3);
	close_ends(&e);
}

static void read__times_out(void **state)
{
	struct ends e = connected("127.0.0.1");
	struct timeval tv = { .tv_usec = 20000 };
	char c;

	(void)state;
	assert_ok(rsetsockopt(e.server, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	assert_refused(EAGAIN, (int)rrecv(e.server, &c, 1, 0));
	close_ends(&e);
}

/* ---- calls behind another thread's ---- */

enum { ASLEEP_US = 30000 };

/* It may begin late, and meet the timeout that is meant for the other thread. */
static void *read_a_byte(void *fd)
{
	ssize_t n;
	char c;

	do
		n = rrecv(*(int *)fd, &c, 1, 0);
	while (n < 0 && errno == EAGAIN);
	return n == 1 ? NULL : fd;
}

static void join_well(pthread_t thread)
{
	void *failed;

	assert_int_equal(pthread_join(thread, &failed), 0);
	assert_null(failed);
}

/* A call that does not wait, or not for long, does not wait for a thread that does, either. */
static void read__behind_a_reader_that_waits(void **state)
{
	struct ends e = connected("127.0.0.1");
	struct timeval tv = { .tv_usec = 20000 };
	pthread_t readers[2];
	char c;

	(void)state;
	assert_int_equal(pthread_create(&readers[0], NULL, read_a_byte, &e.server), 0);
	usleep(ASLEEP_US);
	assert_refused(EAGAIN, (int)rrecv(e.server, &c, 1, MSG_DONTWAIT));
	assert_refused(EAGAIN, (int)rrecv(e.server, &c, 1, MSG_DONTWAIT | MSG_PEEK));
	assert_int_equal(pthread_create(&readers[1], NULL, read_a_byte, &e.server), 0);
	usleep(ASLEEP_US);
	assert_ok(rsetsockopt(e.server, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	assert_refused(EAGAIN, (int)rrecv(e.server, &c, 1, 0));
	send_all(e.client, "x", 1);
	send_all(e.client, "y", 1);
	join_well(readers[0]);
	join_well(readers[1]); /* its turn came */
	assert_works(&e);
	close_ends(&e);
}

static void *write_a_byte(void *fd)
{
	ssize_t n;

	do
		n = rsend(*(int *)fd, "x", 1, 0);
	while (n < 0 && errno == EAGAIN);
	return n == 1 ? NULL : fd;
}

/* Until all that the peer has room for has arrived there. */
static void fill_up(struct ends *e)
{
	static char block[1 << 20];
	int size;
	socklen_t len = sizeof(size);

	assert_ok(rgetsockopt(e->server, SOL_SOCKET, SO_RCVBUF, &size, &len));
	assert_true((size_t)size <= sizeof(block));
	do {
		while (rsend(e->client, block, sizeof(block), MSG_DONTWAIT) > 0)
			;
		assert_int_equal(errno, EAGAIN);
	} while (rrecv(e->server, block, (size_t)size, MSG_PEEK | MSG_DONTWAIT) != size);
}

static void write__behind_a_writer_that_waits(void **state)
{
	struct ends e = connected("127.0.0.1");
	struct timeval tv = { .tv_usec = 20000 };
	static char block[65536];
	pthread_t writer;

	(void)state;
	fill_up(&e);
	assert_int_equal(pthread_create(&writer, NULL, write_a_byte, &e.client), 0);
	usleep(ASLEEP_US);
	assert_refused(EAGAIN, (int)rsend(e.client, "y", 1, MSG_DONTWAIT));
	assert_ok(rsetsockopt(e.client, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)));
	assert_refused(EAGAIN, (int)rsend(e.client, "y", 1, 0));
	for (ssize_t n = 1; n > 0;)
		n = rrecv(e.server, block, sizeof(block), MSG_DONTWAIT);
	assert_int_equal(wait_for(e.client, POLLOUT), POLLOUT);
	join_well(writer);
	close_ends(&e);
}

/* ---- times for a whole call ---- */

/* A peer that lets each of the call's waits go on, but not the call end. */
struct trickle {
	int fd;
	atomic_bool is_over;
};

enum { TRICKLE_US = 10000, TRICKLES = 1000, SHORT_US = 100000 };

static void *send_by_one(void *arg)
{
	struct trickle *t = arg;

	for (int i = 0; i < TRICKLES && !t->is_over; i++) {
		send_all(t->fd, "x", 1);
		usleep(TRICKLE_US);
	}
	return NULL;
}

static void read__times_out_as_a_whole(void **state)
{
	struct ends e = connected("127.0.0.1");
	struct timeval tv = { .tv_usec = SHORT_US };
	struct trickle t = { .fd = e.client };
	static char got[TRICKLES];
	pthread_t thread;

	(void)state;
	assert_ok(rsetsockopt(e.server, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	pthread_create(&thread, NULL, send_by_one, &t);
	assert_true(rrecv(e.server, got, sizeof(got), MSG_WAITALL) < TRICKLES);
	t.is_over = true;
	pthread_join(thread, NULL);
	close_ends(&e);
}

enum { HALF_RING = 65536 };

static void *read_by_halves(void *arg)
{
	struct trickle *t = arg;
	static char got[HALF_RING];

	for (int i = 0; i < TRICKLES && !t->is_over; i++) {
		(void)rrecv(t->fd, got, sizeof(got), MSG_DONTWAIT);
		usleep(TRICKLE_US);
	}
	return NULL;
}

static void write__times_out_as_a_whole(void **state)
{
	struct ends e = connected("127.0.0.1");
	struct timeval tv = { .tv_usec = SHORT_US };
	struct trickle t = { .fd = e.server };
	struct linger at_once = { .l_onoff = 1 };
	const size_t much = (size_t)HALF_RING * TRICKLES;
	char *data = calloc(1, much);
	pthread_t thread;

	(void)state;
	assert_non_null(data);
	assert_ok(rsetsockopt(e.client, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)));
	pthread_create(&thread, NULL, read_by_halves, &t);
	assert_true(rsend(e.client, data, much, 0) < (ssize_t)much);
	t.is_over = true;
	pthread_join(thread, NULL);
	free(data);
	assert_ok(rsetsockopt(e.client, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)));
	close_ends(&e);
}

static void vectors__in_and_out(void **state)
{
	struct ends e = connected("127.0.0.1");
	char in[3][5] = { { 0 } };
	struct iovec out_iov[] = { { "ab", 2 }, { NULL, 0 }, { "cdefg", 5 }, { "h", 1 } };
	struct iovec in_iov[] = { { in[0], 3 }, { in[1], 1 }, { in[2], 4 } };
	struct msghdr msg = { .msg_iov = out_iov, .msg_iovlen = 4 };

	(void)state;
	assert_int_equal(rwritev(e.client, out_iov, 4), 8);
	assert_int_equal(wait_for(e.server, POLLIN), POLLIN);
	assert_int_equal(rreadv(e.server, in_iov, 3), 8);
	assert_string_equal(in[0], "abc");
	assert_string_equal(in[1], "d");
	assert_memory_equal(in[2], "efgh", 4);
	assert_int_equal(rsendmsg(e.client, &msg, 0), 8);
	msg = (struct msghdr){ .msg_iov = in_iov, .msg_iovlen = 3 };
	memset(in, 0, sizeof(in));
	assert_int_equal(wait_for(e.server, POLLIN), POLLIN);
	assert_int_equal(rrecvmsg(e.server, &msg, 0), 8);
	assert_memory_equal(in[2], "efgh", 4);
	close_ends(&e);
}

/* As of readv(2) and recvmsg(2): of a list that cannot be one, nothing is read. */
static void vectors__refused(void **state)
{
	struct ends e = connected("127.0.0.1");
	char c;
	struct iovec one = { &c, 1 }, endless[] = { { &c, SIZE_MAX }, { &c, 2 } };
	struct msghdr msg = { .msg_iov = &one, .msg_iovlen = (1ull << 32) + 1 };

	(void)state;
	assert_refused(EINVAL, (int)rreadv(e.server, &one, INT_MAX));
	assert_refused(EINVAL, (int)rwritev(e.client, &one, INT_MAX));
	assert_refused(EINVAL, (int)rreadv(e.server, &one, -1));
	assert_refused(EINVAL, (int)rwritev(e.client, &one, IOV_MAX + 1));
	assert_refused(EINVAL, (int)rreadv(e.server, NULL, 1));
	assert_refused(EINVAL, (int)rreadv(e.server, endless, 2));
	assert_refused(EINVAL, (int)rwritev(e.client, endless, 2));
	assert_refused(EMSGSIZE, (int)rrecvmsg(e.server, &msg, MSG_DONTWAIT));
	assert_refused(EMSGSIZE, (int)rsendmsg(e.client, &msg, 0));
	send_all(e.client, "x", 1); /* nothing of all that has gone */
	assert_int_equal(wait_for(e.server, POLLIN), POLLIN);
	assert_int_equal(rrecv(e.server, &c, 1, 0), 1);
	assert_int_equal(c, 'x');
	close_ends(&e);
}

/* As rrecvfrom. */
static void message__names_the_peer(void **state)
{
	struct ends e = connected("127.0.0.1");
	struct sockaddr_in from = { 0 }, local;
	char c;
	struct iovec iov = { &c, 1 };
	struct msghdr msg = {
		.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &iov, .msg_iovlen = 1
	};
	socklen_t len = sizeof(local);

	(void)state;
	assert_ok(rgetsockname(e.client, (struct sockaddr *)&local, &len));
	send_all(e.client, "x", 1);
	assert_int_equal(rrecvmsg(e.server, &msg, 0), 1);
	assert_int_equal(from.sin_port, local.sin_port);
	assert_int_equal(msg.msg_namelen, sizeof(from));
	close_ends(&e);
}

/* ---- ends ---- */

static void shutdown__half(void **state)
{
	struct ends e = connected("127.0.0.1");
	char c = 0;

	(void)state;
	send_all(e.client, "q", 1);
	assert_ok(rshutdown(e.client, SHUT_WR));
	assert_refused(EPIPE, (int)rsend(e.client, "x", 1, 0));
	receive_all(e.server, &c, 1);
	assert_int_equal(c, 'q');
	assert_int_equal(rrecv(e.server, &c, 1, 0), 0);
	send_all(e.server, "a", 1); /* the other direction goes on */
	receive_all(e.client, &c, 1);
	assert_int_equal(c, 'a');
	assert_ok(rshutdown(e.server, SHUT_WR));
	assert_int_equal(rrecv(e.client, &c, 1, 0), 0);
	assert_true(wait_for(e.client, POLLIN) & POLLHUP);
	close_ends(&e);
}

/* Before anybody looked whether it is established. */
static void shutdown__at_once_after_accept(void **state)
{
	enum { ROUNDS = 20 };
	char c;

	(void)state;
	for (int i = 0; i < ROUNDS; i++) {
		struct ends e = connected("127.0.0.1");

		assert_ok(rshutdown(e.server, SHUT_WR));
		assert_ok(rclose(e.server));
		assert_int_equal(rrecv(e.client, &c, 1, 0), 0);
		assert_ok(rclose(e.client));
	}
}

static void *close_it(void *fd)
{
	return rclose(*(int *)fd) ? fd : NULL;
}

/* A connection that has been requested and accepted; the client has not looked since. */
static struct ends accepted_unseen(void)
{
	struct listener l = listen_at("127.0.0.1");
	struct ends e = { .client = rsocket(AF_INET, SOCK_STREAM, 0) };

	assert_true(e.client >= 0);
	connect_to(e.client, &l);
	while (!events_of(l.fd, POLLIN))
		assert_int_equal(events_of(e.client, 0), 0);
	e.server = raccept(l.fd, NULL, NULL);
	assert_true(e.server >= 0);
	assert_ok(rclose(l.fd));
	return e;
}

/* To the client it was a connection, and one that came to its end. */
static void close__at_once_after_accept(void **state)
{
	enum { ROUNDS = 10 };

	(void)state;
	for (int i = 0; i < ROUNDS; i++) {
		struct ends e = accepted_unseen();
		pthread_t thread;
		void *failed;
		int err = -1;
		socklen_t len = sizeof(err);
		char c;

		assert_int_equal(pthread_create(&thread, NULL, close_it, &e.server), 0);
		usleep(ASLEEP_US); /* closed, or about to be */
		assert_true(wait_for(e.client, POLLOUT) & POLLOUT);
		assert_ok(rgetsockopt(e.client, SOL_SOCKET, SO_ERROR, &err, &len));
		assert_int_equal(err, 0);
		set_blocking(e.client, true);
		assert_int_equal(rrecv(e.client, &c, 1, 0), 0);
		pthread_join(thread, &failed);
		assert_null(failed);
		assert_ok(rclose(e.client));
	}
}

static void close__data_arrive_before_the_end(void **state)
{
	struct ends e = connected("127.0.0.1");
	uint8_t sent[50000], got[50000];
	char c;

	(void)state;
	fill(sent, sizeof(sent), 5);
	send_all(e.client, sent, sizeof(sent));
	assert_ok(rclose(e.client));
	assert_true(wait_for(e.server, POLLRDHUP) & POLLRDHUP);
	/* no POLLHUP while there is something to read */
	assert_int_equal(events_of(e.server, POLLIN), POLLIN);
	receive_all(e.server, got, sizeof(got));
	assert_memory_equal(got, sent, sizeof(sent));
	assert_int_equal(rrecv(e.server, &c, 1, 0), 0);
	assert_true(wait_for(e.server, POLLIN) & POLLHUP);
	assert_refused(ECONNRESET, (int)rsend(e.server, "x", 1, 0));
	assert_refused(EPIPE, (int)rsend(e.server, "x", 1, 0)); /* as of TCP, it is told once */
	assert_ok(rclose(e.server));
	assert_refused(EBADF, rclose(e.server));
}

/* ---- a close that waits ---- */

enum { LATE_BYTES = 50000, SIGNALS = 5 };

static pid_t late_reader;
static volatile sig_atomic_t num_signals;

/* Only after some of them can the peer's adapter take what was sent. */
static void be_interrupted(int signal)
{
	if (++num_signals == SIGNALS)
		kill(late_reader, SIGCONT);
}

static void child_reads(struct listener *l)
{
	static uint8_t got[LATE_BYTES + 1];
	int s = rsocket(AF_INET, SOCK_STREAM, 0);

	if (rconnect(s, sockaddr(&l->address), length_of(&l->address)) || rsend(s, "x", 1, 0) != 1)
		_exit(1);
	ssize_t n = rrecv(s, got, sizeof(got), MSG_WAITALL);
	int closed = rclose(s); /* over the wire, the other end would wait in vain for who just exits */
	_exit(n == LATE_BYTES && is_filled(got, LATE_BYTES, 7) && !closed ? 0 : 2);
}

/* A child that reads is stopped, and all bytes are on their way to it. The socket. */
static int send_to_late_reader(struct listener *l)
{
	static uint8_t sent[LATE_BYTES];
	int status = -1;
	char c;

	fill(sent, sizeof(sent), 7);
	late_reader = fork();
	if (!late_reader)
		child_reads(l);
	int s = raccept(l->fd, NULL, NULL);
	assert_true(s >= 0);
	receive_all(s, &c, 1);
	assert_ok(kill(late_reader, SIGSTOP));
	assert_int_equal(waitpid(late_reader, &status, WUNTRACED), late_reader);
	send_all(s, sent, sizeof(sent));
	return s;
}

/* The child has read all bytes, and the end behind them. */
static void end_late_reader(struct listener *l)
{
	int status = -1;

	assert_int_equal(waitpid(late_reader, &status, 0), late_reader);
	assert_int_equal(status, 0);
	assert_ok(rclose(l->fd));
}

/* Signals interrupt its wait, and cost no byte of what was sent. */
static void close__among_signals(void **state)
{
	struct listener l = listen_at("127.0.0.1");
	struct sigaction action = { .sa_handler = be_interrupted };
	struct itimerval often = { { 0, 10000 }, { 0, 10000 } }, never = { 0 };

	(void)state;
	int s = send_to_late_reader(&l);
	num_signals = 0;
	assert_ok(sigaction(SIGALRM, &action, NULL));
	assert_ok(setitimer(ITIMER_REAL, &often, NULL));
	assert_ok(rclose(s));
	while (num_signals < SIGNALS)
		pause();
	assert_ok(setitimer(ITIMER_REAL, &never, NULL));
	end_late_reader(&l);
}

static volatile sig_atomic_t was_continued;

static void let_it_read(int signal)
{
	was_continued = 1;
	kill(late_reader, SIGCONT);
}

/* Nothing goes to the peer. So the call does not wait for what the peer does not take yet. */
static void shutdown__of_reading_alone_waits_for_nothing(void **state)
{
	enum { PATIENCE_S = 8 };
	struct listener l = listen_at("127.0.0.1");
	struct sigaction action = { .sa_handler = let_it_read };
	char c;

	(void)state;
	int s = send_to_late_reader(&l);
	was_continued = 0;
	assert_ok(sigaction(SIGALRM, &action, NULL));
	alarm(PATIENCE_S);
	assert_ok(rshutdown(s, SHUT_RD));
	assert_false(was_continued);
	alarm(0);
	assert_int_equal(rrecv(s, &c, 1, 0), 0);
	kill(late_reader, SIGCONT);
	assert_ok(rclose(s));
	end_late_reader(&l);
}

static void *read_one(void *arg)
{
	char c;
	ssize_t n = rrecv(*(int *)arg, &c, 1, 0);

	return n == 0 ? NULL : arg;
}

static void shutdown__wakes_a_reader(void **state)
{
	struct ends e = connected("127.0.0.1");
	pthread_t thread;
	void *result;

	(void)state;
	assert_works(&e);
	pthread_create(&thread, NULL, read_one, &e.server);
	usleep(20000);
	assert_ok(rshutdown(e.server, SHUT_RDWR));
	pthread_join(thread, &result);
	assert_null(result);
	close_ends(&e);
}

static void close__cut_by_linger(void **state)
{
	struct ends e = connected("127.0.0.1");
	struct linger l = { .l_onoff = 1 };
	char c;

	(void)state;
	assert_works(&e);
	assert_ok(rsetsockopt(e.client, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	assert_ok(rclose(e.client));
	assert_refused(ECONNRESET, (int)rrecv(e.server, &c, 1, 0));
	assert_int_equal(rrecv(e.server, &c, 1, 0), 0); /* told once */
	assert_ok(rclose(e.server));
}

/* As the kernel has it, a negative time has no end. */
static void close__lingers_without_end(void **state)
{
	struct ends e = connected("127.0.0.1");
	struct linger l = { .l_onoff = 1, .l_linger = -1 };
	char got[3];

	(void)state;
	send_all(e.client, "abc", 3);
	assert_ok(rsetsockopt(e.client, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	assert_ok(rclose(e.client));
	receive_all(e.server, got, sizeof(got));
	assert_memory_equal(got, "abc", 3);
	assert_int_equal(rrecv(e.server, got, sizeof(got), 0), 0);
	assert_ok(rclose(e.server));
}

/* Of a connection that is lost, the bytes that came before can be read. The error comes then, not an end. */
static void close__cut_behind_bytes(void **state)
{
	struct linger l = { .l_onoff = 1 };
	char got[10];

	(void)state;
	for (int flags = 0; flags <= MSG_WAITALL; flags += MSG_WAITALL) {
		struct ends e = connected("127.0.0.1");

		send_all(e.client, "abc", 3);
		assert_int_equal(wait_for(e.server, POLLIN), POLLIN);
		assert_ok(rsetsockopt(e.client, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
		assert_ok(rclose(e.client));
		assert_int_equal(rrecv(e.server, got, sizeof(got), flags), 3);
		assert_refused(ECONNRESET, (int)rrecv(e.server, got, sizeof(got), 0));
		assert_int_equal(rrecv(e.server, got, sizeof(got), 0), 0);
		assert_ok(rclose(e.server));
	}
}

static void child_connects(struct listener *l, int ready)
{
	int s = rsocket(AF_INET, SOCK_STREAM, 0);

	if (rconnect(s, sockaddr(&l->address), length_of(&l->address)) || rsend(s, "x", 1, 0) != 1)
		_exit(1);
	(void)!write(ready, "x", 1);
	pause();
}

/* A socket whose peer is another process, which has sent a byte, and writes one into ready[1] when it has. */
static int accept_from_child(struct listener *l, int ready[2], pid_t *child)
{
	char c;

	assert_ok(pipe(ready));
	*child = fork();
	if (!*child)
		child_connects(l, ready[1]);
	int s = raccept(l->fd, NULL, NULL);
	assert_true(s >= 0);
	receive_all(s, &c, 1);
	return s;
}

/* It has come to where it waits. */
static int accept_ready_child(struct listener *l, int ready[2], pid_t *child)
{
	int s = accept_from_child(l, ready, child);
	char c;

	assert_int_equal(read(ready[0], &c, 1), 1);
	return s;
}

static void close_all(int s, const struct listener *l, const int ready[2])
{
	assert_ok(rclose(s));
	assert_ok(rclose(l->fd));
	close(ready[0]);
	close(ready[1]);
}

static void peer__dies(void **state)
{
	struct listener l = listen_at("127.0.0.1");
	int ready[2];
	pid_t child;
	char c;

	(void)state;
	int s = accept_ready_child(&l, ready, &child);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	assert_true(wait_for(s, POLLIN) & POLLHUP);
	assert_refused(ECONNRESET, (int)rrecv(s, &c, 1, 0));
	close_all(s, &l, ready);
}

enum { MOST_CALLS = 200, BETWEEN_CALLS_US = 150000 };

/* Looks now and then, without waiting. The error that comes; EAGAIN: none. */
static int look_often(int s, int calls)
{
	char c;
	int err = EAGAIN;

	for (int i = 0; err == EAGAIN && i < calls; i++) {
		usleep(BETWEEN_CALLS_US);
		assert_int_equal(rrecv(s, &c, 1, MSG_DONTWAIT), -1);
		err = errno;
	}
	return err;
}

static void peer__dies_while_nobody_waits(void **state)
{
	enum { UNTIL_ALL_IS_SENT = 3 };
	struct listener l = listen_at("127.0.0.1");
	int ready[2];
	pid_t child;

	(void)state;
	int s = accept_ready_child(&l, ready, &child);
	assert_int_equal(look_often(s, UNTIL_ALL_IS_SENT), EAGAIN); /* no request is left to fail */
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	assert_int_equal(look_often(s, MOST_CALLS), ECONNRESET);
	close_all(s, &l, ready);
}

/* A program that only writes hears of its peer's end by a write, long before there is no more room. */
static void peer__dies_while_it_is_written_to(void **state)
{
	struct listener l = listen_at("127.0.0.1");
	int ready[2], calls = 0;
	const char data[100] = "";
	pid_t child;
	ssize_t n = 0;

	(void)state;
	int s = accept_ready_child(&l, ready, &child);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	for (; n >= 0 && calls < MOST_CALLS; calls++) {
		usleep(BETWEEN_CALLS_US);
		n = rsend(s, data, sizeof(data), 0);
	}
	assert_int_equal(n, -1);
	assert_int_equal(errno, ECONNRESET);
	close_all(s, &l, ready);
}

/* News may take a while on a busy machine; only the first write counts. */
static void close__fails_the_peers_next_write(void **state)
{
	ssize_t n = 1;

	(void)state;
	for (unsigned us = BETWEEN_CALLS_US; n == 1 && us < WAIT_MS * 1000u; us *= 2) {
		struct ends e = connected("127.0.0.1");

		assert_works(&e);
		assert_ok(rclose(e.server));
		usleep(us);
		n = rsend(e.client, "x", 1, 0);
		assert_true(n == 1 || errno == ECONNRESET);
		assert_ok(rclose(e.client));
	}
	assert_int_equal(n, -1);
}

/* On the wire, where that is all that can be known, keepalive finds out. */
static void peer__is_silent(void **state)
{
	struct listener l = listen_at("127.0.0.1");
	int ready[2];
	pid_t child;
	char c;

	(void)state;
	int s = accept_ready_child(&l, ready, &child);
	kill(child, SIGSTOP);
	if (is_on_wire()) {
		set(s, IPPROTO_TCP, TCP_KEEPIDLE, 1);
		set(s, SOL_SOCKET, SO_KEEPALIVE, 1);
		assert_true(wait_for(s, POLLIN) & POLLHUP);
		assert_refused(ETIMEDOUT, (int)rrecv(s, &c, 1, 0));
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close_all(s, &l, ready);
}

/* Pages of this process that a peer can map. */
static bool has_moved_memory(void)
{
	char line[512];
	bool found = false;
	FILE *maps = fopen("/proc/self/maps", "r");

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		found |= strstr(line, "verbatim-memory") != NULL;
	fclose(maps);
	return found;
}

/*
 * Memory moves to where the peer can map it when that is worth while: not for a connection that says a word
 * and goes.
 */
static void short__moves_no_memory(void **state)
{
	struct listener l = listen_at("127.0.0.1");
	int ready[2];
	pid_t child;

	(void)state;
	int s = accept_from_child(&l, ready, &child);
	usleep(200000); /* it would have moved soon after the connection was made */
	bool moved = has_moved_memory();
	struct linger at_once = { .l_onoff = 1 };
	/* over the wire it would wait for who is dead */
	assert_ok(rsetsockopt(s, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	assert_false(moved);
	close_all(s, &l, ready);
}

static int child_with_copies(struct ends *e)
{
	char c;

	if (rrecv(e->server, &c, 1, 0) != -1 || errno != ENOTCONN)
		return 1;
	if (rclose(e->server) || rclose(e->client))
		return 2;
	struct listener l = listen_at("127.0.0.1"); /* new ones work */
	struct ends own = connect_socket(&l, rsocket(AF_INET, SOCK_STREAM, 0));
	assert_works(&own);
	return rclose(own.client) || rclose(own.server) ? 3 : 0;
}

static void fork__a_child_has_only_its_own(void **state)
{
	struct ends e = connected("127.0.0.1");
	int status;

	(void)state;
	assert_works(&e);
	pid_t child = fork();
	if (!child)
		_exit(child_with_copies(&e));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_works(&e);
	close_ends(&e);
}

static unsigned open_files(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) != -1;
	return n;
}

static void close__nothing_is_left(void **state)
{
	enum { ROUNDS = 30 };
	unsigned before = 0;

	(void)state;
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct ends e = connected("127.0.0.1");

		assert_works(&e);
		close_ends(&e);
		if (i == 0)
			before = open_files();
	}
	/* Links and the like come and go meanwhile, but not one a round. */
	assert_true(open_files() < before + ROUNDS / 2);
}

/* One thread is both sides: connections and bytes wait for raccept in the backlog. */
static void backlog__holds_connections_and_their_bytes(void **state)
{
	enum { BACKLOG = 2, CLIENTS = 5 };
	struct listener l = { .address = address("127.0.0.1", 0) };
	socklen_t len = sizeof(l.address.sa);
	int clients[CLIENTS], servers[CLIENTS];
	char c;

	(void)state;
	l.fd = rsocket(AF_INET, SOCK_STREAM, 0);
	assert_ok(rbind(l.fd, sockaddr(&l.address), length_of(&l.address)));
	assert_ok(rlisten(l.fd, BACKLOG));
	assert_ok(rgetsockname(l.fd, sockaddr(&l.address), &len));
	for (int i = 0; i < CLIENTS; i++) {
		clients[i] = rsocket(AF_INET, SOCK_STREAM, 0);
		if (i < BACKLOG) {
			assert_ok(rconnect(clients[i], sockaddr(&l.address), length_of(&l.address)));
			send_all(clients[i], &"abcde"[i], 1);
		} else {
			connect_to(clients[i], &l);
		}
	}
	for (int i = BACKLOG; i < CLIENTS; i++)
		assert_int_equal(events_of(clients[i], POLLOUT), 0); /* the backlog is full */
	for (int i = 0; i < CLIENTS; i++) {
		servers[i] = raccept(l.fd, NULL, NULL);
		assert_true(servers[i] >= 0);
	}
	for (int i = 0; i < BACKLOG; i++) {
		receive_all(servers[i], &c, 1);
		assert_int_equal(c, "abcde"[i]);
	}
	for (int i = 0; i < CLIENTS; i++) {
		assert_true(wait_for(clients[i], POLLOUT) & POLLOUT);
		assert_ok(rclose(clients[i]));
		assert_ok(rclose(servers[i]));
	}
	assert_ok(rclose(l.fd));
}

static void backlog__goes_with_its_listener(void **state)
{
	struct listener l = listen_at("127.0.0.1");
	int client = rsocket(AF_INET, SOCK_STREAM, 0);
	char c;

	(void)state;
	assert_ok(rconnect(client, sockaddr(&l.address), length_of(&l.address)));
	assert_ok(rclose(l.fd));
	assert_true(wait_for(client, POLLIN) & POLLIN);
	/* An end, or an error if it was not established yet. */
	if (rrecv(client, &c, 1, 0))
		assert_int_equal(errno, ECONNRESET);
	assert_ok(rclose(client));
}

static void *shut_later(void *fd)
{
	usleep(20000);
	assert_ok(rshutdown(*(int *)fd, SHUT_RD));
	return NULL;
}

static void shutdown__of_a_listener_ends_raccept(void **state)
{
	struct listener l = listen_at("127.0.0.1");
	pthread_t thread;

	(void)state;
	pthread_create(&thread, NULL, shut_later, &l.fd);
	assert_refused(EINVAL, raccept(l.fd, NULL, NULL));
	pthread_join(thread, NULL);
	assert_refused(EINVAL, raccept(l.fd, NULL, NULL));
	assert_ok(rclose(l.fd));
}

/*
 * As where nobody listens: those that wait hear of it, and whoever comes later is refused, though nobody
 * looks any more.
 */
static void shutdown__of_a_listener_refuses_peers(void **state)
{
	enum { LATER = 3 };
	struct listener l = listen_at("127.0.0.1");
	int clients[2 + LATER];
	char c;

	(void)state;
	for (int i = 0; i < 2 + LATER; i++)
		clients[i] = rsocket(AF_INET, SOCK_STREAM, 0);
	assert_ok(rlisten(l.fd, 1)); /* room for one: the second request is not answered yet */
	assert_ok(rconnect(clients[0], sockaddr(&l.address), length_of(&l.address)));
	connect_to(clients[1], &l);
	assert_ok(rshutdown(l.fd, SHUT_RD));
	assert_true(wait_for(clients[0], POLLIN) & POLLIN);
	if (rrecv(clients[0], &c, 1, 0))
		assert_int_equal(errno, ECONNRESET);
	wait_for(clients[1], POLLIN); /* refused, or accepted and closed if it was there in time */
	for (int i = 0; i < LATER; i++) {
		assert_int_equal(events_of(l.fd, POLLIN), POLLIN | POLLHUP); /* takes nothing */
		assert_refused(ECONNREFUSED,
			       rconnect(clients[2 + i], sockaddr(&l.address), length_of(&l.address)));
	}
	assert_refused(EINVAL, rlisten(l.fd, 1));
	assert_refused(EINVAL, rconnect(l.fd, sockaddr(&l.address), length_of(&l.address)));
	for (int i = 0; i < 2 + LATER; i++)
		assert_ok(rclose(clients[i]));
	assert_ok(rclose(l.fd));
}

enum { ENDING = 8 };

static void *close_them(void *fds)
{
	for (int i = 0; i < ENDING; i++)
		assert_ok(rclose(((int *)fds)[i]));
	return NULL;
}

/* Connections in the backlog hear of their ends while it goes. */
static void backlog__goes_while_its_connections_end(void **state)
{
	enum { ROUNDS = 20 };
	int clients[ENDING];
	pthread_t thread;

	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		struct listener l = listen_at("127.0.0.1");
		for (int i = 0; i < ENDING; i++) {
			clients[i] = rsocket(AF_INET, SOCK_STREAM, 0);
			assert_ok(rconnect(clients[i], sockaddr(&l.address), length_of(&l.address)));
		}
		pthread_create(&thread, NULL, close_them, clients);
		assert_ok(rclose(l.fd));
		pthread_join(thread, NULL);
	}
}

static atomic_bool is_over;

static void *ask_names(void *fd)
{
	while (!is_over) {
		struct address a;
		socklen_t len = sizeof(a.sa);
		assert_ok(rgetsockname(*(int *)fd, sockaddr(&a), &len));
		(void)rgetpeername(*(int *)fd, sockaddr(&a), &len);
	}
	return NULL;
}

static void *poll_often(void *fd)
{
	while (!is_over) {
		struct pollfd p = { *(int *)fd, POLLIN, 0 };
		assert_int_not_equal(rpoll(&p, 1, 1), -1);
	}
	return NULL;
}

/*
 * Each attempt after a failure is made with another id and another endpoint. Who has shut its listener
 * refuses at once.
 */
static void attempts_while(void *(*meanwhile)(void *fd))
{
	enum { ATTEMPTS = 200 };
	struct listener l = listen_at("127.0.0.1");
	int s = rsocket(AF_INET, SOCK_STREAM, 0);
	pthread_t thread;

	assert_ok(rshutdown(l.fd, SHUT_RD));
	is_over = false;
	pthread_create(&thread, NULL, meanwhile, &s);
	for (int i = 0; i < ATTEMPTS; i++)
		assert_refused(ECONNREFUSED, rconnect(s, sockaddr(&l.address), length_of(&l.address)));
	is_over = true;
	pthread_join(thread, NULL);
	assert_ok(rclose(s));
	assert_ok(rclose(l.fd));
}

static void names__while_another_thread_connects(void **state)
{
	(void)state;
	attempts_while(ask_names);
}

static void poll__while_another_thread_connects(void **state)
{
	(void)state;
	attempts_while(poll_often);
}

/*
 * Few messages fit the peer's queue: a write that was cut into crumbs where the ring ends would not be taken
 * whole.
 */
static void write__goes_on_behind_the_rings_end(void **state)
{
	enum { RING = 4096, BEFORE_ITS_END = 30, BYTES = 1000 };
	struct listener l = listen_at("127.0.0.1");
	int client = rsocket(AF_INET, SOCK_STREAM, 0), size = RING / 2, queue = 16;
	uint8_t bytes[RING];

	(void)state;
	assert_ok(rsetsockopt(client, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)));
	assert_ok(rsetsockopt(l.fd, SOL_RDMA, RDMA_RQSIZE, &queue, sizeof(queue)));
	struct ends e = connect_socket(&l, client);
	fill(bytes, RING - BEFORE_ITS_END, 0);
	send_all(e.client, bytes, RING - BEFORE_ITS_END);
	receive_all(e.server, bytes, RING - BEFORE_ITS_END);
	assert_int_equal(wait_for(e.client, POLLOUT), POLLOUT);
	fill(bytes, BYTES, RING - BEFORE_ITS_END);
	assert_int_equal(rsend(e.client, bytes, BYTES, MSG_DONTWAIT), BYTES);
	receive_all(e.server, bytes, BYTES);
	assert_true(is_filled(bytes, BYTES, RING - BEFORE_ITS_END));
	close_ends(&e);
	assert_ok(rclose(l.fd));
}

enum { FEW_MESSAGES = 16 };

static void child_holds_few_messages(struct listener *l)
{
	int s = rsocket(AF_INET, SOCK_STREAM, 0), queue = FEW_MESSAGES;

	if (rsetsockopt(s, SOL_RDMA, RDMA_RQSIZE, &queue, sizeof(queue)) ||
	    rconnect(s, sockaddr(&l->address), length_of(&l->address)) || rsend(s, "x", 1, 0) != 1)
		_exit(1);
	pause();
}

/* Short pieces let an idle peer start early. One that has not taken earlier bytes gets each write whole. */
static void write__is_not_cut_behind_earlier_ones(void **state)
{
	enum { BLOCK = 8192 };
	struct listener l = listen_at("127.0.0.1");
	struct linger at_once = { .l_onoff = 1 };
	static const char block[BLOCK];
	int blocks = 0, status;
	char c;

	(void)state;
	pid_t child = fork();
	if (!child)
		child_holds_few_messages(&l);
	int s = raccept(l.fd, NULL, NULL);
	assert_true(s >= 0);
	receive_all(s, &c, 1);
	assert_ok(kill(child, SIGSTOP));
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	while (rsend(s, block, BLOCK, MSG_DONTWAIT) == BLOCK)
		blocks++;
	/* the first one may take two messages */
	assert_true(blocks >= FEW_MESSAGES - 2);
	assert_ok(rsetsockopt(s, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)));
	assert_ok(rclose(s));
	assert_ok(rclose(l.fd));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(backlog__holds_connections_and_their_bytes),
		cmocka_unit_test(backlog__goes_with_its_listener),
		cmocka_unit_test(write__goes_on_behind_the_rings_end),
		cmocka_unit_test(write__is_not_cut_behind_earlier_ones),
		cmocka_unit_test(shutdown__of_a_listener_ends_raccept),
		cmocka_unit_test(shutdown__of_a_listener_refuses_peers),
		cmocka_unit_test(backlog__goes_while_its_connections_end),
		cmocka_unit_test(names__while_another_thread_connects),
		cmocka_unit_test(poll__while_another_thread_connects),
		cmocka_unit_test(connect__on_each_address),
		cmocka_unit_test(names__of_both_ends),
		cmocka_unit_test(numbers__above_what_was_opened_before),
		cmocka_unit_test(numbers__under_a_low_limit),
		cmocka_unit_test(stream__between_gids),
		cmocka_unit_test(stream__is_read_and_written_like_a_file),
		cmocka_unit_test(accept__names_the_peer),
		cmocka_unit_test(accept__nothing_waits),
		cmocka_unit_test(accept__without_a_number),
		cmocka_unit_test(connect__refused),
		cmocka_unit_test(connect__again_after_a_refusal),
		cmocka_unit_test(connect__asked_again_and_again),
		cmocka_unit_test(addresses__too_short),
		cmocka_unit_test(calls__in_the_wrong_state),
		cmocka_unit_test(calls__on_no_socket),
		cmocka_unit_test(bytes__both_ways_at_once),
		cmocka_unit_test(bytes__with_small_queues_and_rings),
		cmocka_unit_test(write__without_waiting_is_partial),
		cmocka_unit_test(read__without_waiting_and_peeking),
		cmocka_unit_test(peek__waits_for_all),
		cmocka_unit_test(peek__waits_for_no_more_than_can_come),
		cmocka_unit_test(peek__again_and_again_sees_more),
		cmocka_unit_test(peek__is_over_when_its_time_is),
		cmocka_unit_test(read__times_out),
		cmocka_unit_test(read__times_out_as_a_whole),
		cmocka_unit_test(write__times_out_as_a_whole),
		cmocka_unit_test(vectors__in_and_out),
		cmocka_unit_test(vectors__refused),
		cmocka_unit_test(message__names_the_peer),
		cmocka_unit_test(shutdown__half),
		cmocka_unit_test(shutdown__at_once_after_accept),
		cmocka_unit_test(close__at_once_after_accept),
		cmocka_unit_test(close__data_arrive_before_the_end),
		cmocka_unit_test(close__among_signals),
		cmocka_unit_test(shutdown__of_reading_alone_waits_for_nothing),
		cmocka_unit_test(shutdown__wakes_a_reader),
		cmocka_unit_test(close__cut_by_linger),
		cmocka_unit_test(close__cut_behind_bytes),
		cmocka_unit_test(close__lingers_without_end),
		cmocka_unit_test(peer__dies),
		cmocka_unit_test(peer__dies_while_nobody_waits),
		cmocka_unit_test(peer__dies_while_it_is_written_to),
		cmocka_unit_test(close__fails_the_peers_next_write),
		cmocka_unit_test(peer__is_silent),
		cmocka_unit_test(short__moves_no_memory),
		cmocka_unit_test(fork__a_child_has_only_its_own),
		cmocka_unit_test(close__nothing_is_left),
		cmocka_unit_test(read__behind_a_reader_that_waits),
		cmocka_unit_test(write__behind_a_writer_that_waits),
	};

	enter_own_network();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
