/* SPDX-License-Identifier: BSD-2-Clause */
/* Options: what is set is told; when it may be set; what it does. */
#include <limits.h>
#include <netinet/tcp.h>

#include "rs.h"

static int stream(void)
{
	int s = rsocket(AF_INET, SOCK_STREAM, 0);

	assert_true(s >= 0);
	return s;
}

static int get(int s, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	assert_ok(rgetsockopt(s, level, name, &value, &len));
	assert_int_equal(len, sizeof(value));
	return value;
}

static int set(int s, int level, int name, int value)
{
	return rsetsockopt(s, level, name, &value, sizeof(value));
}

static void options__are_told_as_set(void **state)
{
	static const struct { int level, name, value, told; } cases[] = {
		{ SOL_SOCKET, SO_REUSEADDR, 1, 1 },   { SOL_SOCKET, SO_KEEPALIVE, 1, 1 },   { SOL_SOCKET, SO_OOBINLINE, 1, 1 },
		{ SOL_SOCKET, SO_SNDBUF, 50000, 100000 }, { SOL_SOCKET, SO_RCVBUF, 60000, 120000 },
		{ IPPROTO_TCP, TCP_NODELAY, 1, 1 },   { IPPROTO_TCP, TCP_KEEPIDLE, 30, 30 }, { IPPROTO_TCP, TCP_KEEPINTVL, 5, 5 },
		{ IPPROTO_TCP, TCP_KEEPCNT, 3, 3 },   { IPPROTO_IPV6, IPV6_V6ONLY, 1, 1 },  { SOL_RDMA, RDMA_SQSIZE, 100, 100 },
		{ SOL_RDMA, RDMA_RQSIZE, 200, 200 },  { SOL_RDMA, RDMA_INLINE, 32, 32 },    { SOL_RDMA, RDMA_IOMAPSIZE, 100, 100 },
		{ SOL_RDMA, RDMA_IOMAPSIZE, 1000, 768 }, /* eight bits tell the peer: above 128 in steps of 256 */
		{ SOL_RDMA, RDMA_SQSIZE, 70000, 0xfffe },
	};
	int s = stream();

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_ok(set(s, cases[i].level, cases[i].name, cases[i].value));
		assert_int_equal(get(s, cases[i].level, cases[i].name), cases[i].told);
	}
	assert_ok(rclose(s));
}

static void options__of_a_new_socket(void **state)
{
	int s = stream(), d = rsocket(AF_INET6, SOCK_DGRAM, 0);

	(void)state;
	assert_int_equal(get(s, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
	assert_int_equal(get(d, SOL_SOCKET, SO_TYPE), SOCK_DGRAM);
	assert_int_equal(get(d, SOL_SOCKET, SO_DOMAIN), AF_INET6);
	assert_int_equal(get(s, SOL_SOCKET, SO_ERROR), 0);
	assert_int_equal(get(s, SOL_SOCKET, SO_ACCEPTCONN), 0);
	assert_int_equal(get(s, SOL_RDMA, RDMA_IOMAPSIZE), 0);
	assert_int_equal(get(s, SOL_SOCKET, SO_KEEPALIVE), 0);
	assert_true(get(s, IPPROTO_TCP, TCP_MAXSEG) > 0);
	assert_int_equal(rfcntl(s, F_GETFL) & O_NONBLOCK, 0);
	assert_ok(rclose(d));
	assert_ok(rclose(s));
}

static void options__refused(void **state)
{
	int s = stream(), value = 1;
	socklen_t len = 2;

	(void)state;
	assert_refused(ENOTSUP, set(s, SOL_SOCKET, 12345, 1));
	assert_refused(ENOTSUP, rgetsockopt(s, 12345, 1, &value, &(socklen_t){ 4 }));
	assert_refused(EINVAL, rsetsockopt(s, SOL_SOCKET, SO_REUSEADDR, &value, 1));
	assert_refused(EINVAL, rgetsockopt(s, SOL_SOCKET, SO_REUSEADDR, &value, &len));
	assert_refused(EFAULT, rsetsockopt(s, SOL_SOCKET, SO_REUSEADDR, NULL, 4));
	assert_refused(EINVAL, set(s, IPPROTO_TCP, TCP_KEEPIDLE, 0));
	assert_refused(EINVAL, rsetsockopt(s, SOL_RDMA, RDMA_ROUTE, &value, sizeof(value)));
	assert_refused(ENOTSUP, rfcntl(s, F_GETLK));
	assert_ok(rclose(s));
}

/* What is not of SOL_RDMA is its UDP socket's, too. */
static void options__of_a_datagram_socket(void **state)
{
	int d = rsocket(AF_INET, SOCK_DGRAM, 0), value = 1;
	socklen_t len = sizeof(value);

	(void)state;
	assert_true(d >= 0);
	assert_ok(set(d, SOL_RDMA, RDMA_SQSIZE, 100));
	assert_int_equal(get(d, SOL_RDMA, RDMA_SQSIZE), 100);
	assert_ok(set(d, SOL_SOCKET, SO_BROADCAST, 1));
	assert_int_equal(get(d, SOL_SOCKET, SO_BROADCAST), 1);
	assert_refused(ENOTSUP, set(d, SOL_RDMA, 12345, 1));
	assert_refused(ENOTSUP, rgetsockopt(d, SOL_RDMA, 12345, &value, &len));
	assert_refused(ENOPROTOOPT, set(d, SOL_SOCKET, 12345, 1));
	assert_refused(ENOPROTOOPT, rgetsockopt(d, SOL_SOCKET, 12345, &value, &len));
	assert_ok(rclose(d));
}

/* iperf3 gives up on a socket that does not tell. */
static void congestion__any_name_is_taken(void **state)
{
	char name[32] = { [0] = 'x' };
	socklen_t len = sizeof(name), part = 4;
	int s = stream();

	(void)state;
	assert_ok(rsetsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "bbr", 3));
	assert_ok(rgetsockopt(s, IPPROTO_TCP, TCP_CONGESTION, name, &len));
	assert_string_equal(name, "verbatim");
	assert_int_equal(len, 16);
	assert_ok(rgetsockopt(s, IPPROTO_TCP, TCP_CONGESTION, name, &part));
	assert_int_equal(part, 4);
	assert_refused(EINVAL, rsetsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "", 0));
	assert_ok(rclose(s));
}

static void sizes__only_before_the_connection(void **state)
{
	struct ends e = connected("127.0.0.1");

	(void)state;
	assert_refused(EINVAL, set(e.client, SOL_RDMA, RDMA_SQSIZE, 10));
	assert_refused(EINVAL, set(e.server, SOL_RDMA, RDMA_IOMAPSIZE, 10));
	assert_int_equal(get(e.client, IPPROTO_TCP, TCP_MAXSEG) % 256, 0);
	assert_int_equal(get(e.server, IPPROTO_TCP, TCP_MAXSEG), get(e.client, IPPROTO_TCP, TCP_MAXSEG));
	close_ends(&e);
}

static void accepted__inherits(void **state)
{
	struct listener l = listen_at("127.0.0.1");

	(void)state;
	assert_ok(set(l.fd, SOL_SOCKET, SO_RCVBUF, 10000));
	assert_ok(set(l.fd, SOL_RDMA, RDMA_IOMAPSIZE, 3));
	struct ends e = connect_socket(&l, stream());
	assert_int_equal(get(e.server, SOL_SOCKET, SO_RCVBUF), 20000);
	assert_int_equal(get(e.server, SOL_RDMA, RDMA_IOMAPSIZE), 3);
	assert_int_equal(get(l.fd, SOL_SOCKET, SO_ACCEPTCONN), 1);
	close_ends(&e);
	assert_ok(rclose(l.fd));
}

static void route__of_a_connection(void **state)
{
	struct ends e = connected("127.0.0.1");
	struct ibv_path_data path[2];
	socklen_t len = sizeof(path), none = 1;

	(void)state;
	assert_ok(rgetsockopt(e.client, SOL_RDMA, RDMA_ROUTE, path, &len));
	assert_int_equal(len, sizeof(path[0]));
	assert_int_equal(path[0].path.dgid.raw[15], 1);
	assert_refused(EINVAL, rgetsockopt(e.client, SOL_RDMA, RDMA_ROUTE, path, &none));
	close_ends(&e);
}

static void keepalive__goes_on_beside_data(void **state)
{
	struct ends e = connected("127.0.0.1");

	(void)state;
	assert_ok(set(e.client, IPPROTO_TCP, TCP_KEEPIDLE, 1));
	assert_ok(set(e.client, SOL_SOCKET, SO_KEEPALIVE, 1));
	assert_int_equal(get(e.client, SOL_SOCKET, SO_KEEPALIVE), 1);
	usleep(1300000); /* one is sent */
	assert_works(&e);
	assert_ok(set(e.client, SOL_SOCKET, SO_KEEPALIVE, 0));
	assert_works(&e);
	assert_ok(set(e.client, SOL_SOCKET, SO_KEEPALIVE, 1));
	close_ends(&e); /* with the timer running */
}

static atomic_bool has_begun, is_over;

static void *set_keepalive(void *fd)
{
	while (!is_over) {
		int s = *(int *)fd;
		(void)set(s, IPPROTO_TCP, TCP_KEEPIDLE, 1);
		(void)set(s, SOL_SOCKET, SO_KEEPALIVE, 1);
		has_begun = true;
	}
	return NULL;
}

/*
 * Though another thread sets it while the socket is closed: a timer that went on would be found in a later
 * socket's memory.
 */
static void keepalive__ends_with_its_socket(void **state)
{
	enum { ROUNDS = 50 };
	pthread_t thread;

	(void)state;
	for (int i = 0; i < ROUNDS; i++) {
		struct ends e = connected("127.0.0.1");
		has_begun = is_over = false;
		pthread_create(&thread, NULL, set_keepalive, &e.client);
		while (!has_begun)
			sched_yield();
		close_ends(&e);
		is_over = true;
		pthread_join(thread, NULL);
	}
	usleep(1300000); /* it would fire */
	struct ends e = connected("127.0.0.1");
	assert_works(&e);
	close_ends(&e);
}

/* Longer than any program: as none. */
static void timeout__of_ages(void **state)
{
	struct timeval ages = { .tv_sec = LONG_MAX / 1000 }, told = { 1, 1 };
	struct ends e = connected("127.0.0.1");
	socklen_t len = sizeof(told);
	char c;

	(void)state;
	assert_ok(rsetsockopt(e.server, SOL_SOCKET, SO_RCVTIMEO, &ages, sizeof(ages)));
	assert_ok(rgetsockopt(e.server, SOL_SOCKET, SO_RCVTIMEO, &told, &len));
	assert_int_equal(told.tv_sec, 0);
	assert_int_equal(told.tv_usec, 0);
	send_all(e.client, "x", 1);
	assert_int_equal(rrecv(e.server, &c, 1, 0), 1);
	close_ends(&e);
}

static void linger__is_told(void **state)
{
	struct linger set_to = { 1, 7 }, told = { 0 };
	socklen_t len = sizeof(told);
	int s = stream();

	(void)state;
	assert_ok(rsetsockopt(s, SOL_SOCKET, SO_LINGER, &set_to, sizeof(set_to)));
	assert_ok(rgetsockopt(s, SOL_SOCKET, SO_LINGER, &told, &len));
	assert_memory_equal(&told, &set_to, sizeof(told));
	assert_ok(rclose(s));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options__are_told_as_set),
		cmocka_unit_test(options__of_a_new_socket),
		cmocka_unit_test(options__refused),
		cmocka_unit_test(options__of_a_datagram_socket),
		cmocka_unit_test(congestion__any_name_is_taken),
		cmocka_unit_test(sizes__only_before_the_connection),
		cmocka_unit_test(accepted__inherits),
		cmocka_unit_test(route__of_a_connection),
		cmocka_unit_test(keepalive__goes_on_beside_data),
		cmocka_unit_test(keepalive__ends_with_its_socket),
		cmocka_unit_test(timeout__of_ages),
		cmocka_unit_test(linger__is_told),
	};

	enter_own_network();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
