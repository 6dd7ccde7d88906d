/* SPDX-License-Identifier: BSD-2-Clause */
/* riomap, riowrite, riounmap: memory that the peer writes without us. */
#include "rs.h"

enum { ENTRIES = 2, BYTES = 200000 };

static uint8_t target[BYTES], source[BYTES];

static struct ends mapped_ends(void)
{
	struct listener l = listen_at("127.0.0.1");
	int client = rsocket(AF_INET, SOCK_STREAM, 0), entries = ENTRIES;

	/* Who writes has the map. */
	assert_ok(rsetsockopt(client, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof(entries)));
	struct ends e = connect_socket(&l, client);
	assert_ok(rclose(l.fd));
	memset(target, 0, sizeof(target));
	fill(source, sizeof(source), 3);
	return e;
}

/* What was mapped is known to the peer when the next data arrive. */
static void notify(int from, int to)
{
	char c;

	send_all(from, "n", 1);
	receive_all(to, &c, 1);
}

static void riowrite__lands_before_what_follows(void **state)
{
	struct ends e = mapped_ends();

	(void)state;
	assert_int_equal(riomap(e.server, target, sizeof(target), PROT_WRITE, 0, 1000), 1000);
	notify(e.server, e.client);
	assert_int_equal(riowrite(e.client, source, sizeof(source), 1000, 0), sizeof(source));
	notify(e.client, e.server);
	assert_memory_equal(target, source, sizeof(source));
	assert_int_equal(riowrite(e.client, source, 10, 1000 + 77, 0), 10);
	notify(e.client, e.server);
	assert_memory_equal(target + 77, source, 10);
	assert_works(&e);
	close_ends(&e);
}

static void riomap__chooses_the_address(void **state)
{
	struct ends e = mapped_ends();

	(void)state;
	assert_true(riomap(e.server, target, 100, PROT_WRITE, 0, -1) == (off_t)(uintptr_t)target);
	assert_int_equal(riomap(e.server, target, 50, PROT_NONE, 0, -1), (off_t)(uintptr_t)target);
	assert_ok(riounmap(e.server, target, 50));
	close_ends(&e);
}

static void riowrite__outside_the_map(void **state)
{
	struct ends e = mapped_ends();

	(void)state;
	assert_int_equal(riowrite(e.client, source, 10, 0, 0), 0); /* nothing is mapped */
	assert_int_equal(riomap(e.server, target, 100, PROT_WRITE, 0, 1000), 1000);
	notify(e.server, e.client);
	assert_int_equal(riowrite(e.client, source, 10, 999, 0), 0);
	assert_int_equal(riowrite(e.client, source, 10, 1100, 0), 0);
	assert_int_equal(riowrite(e.client, source, 50, 1090, 0), 10); /* what fits */
	notify(e.client, e.server);
	assert_memory_equal(target + 90, source, 10);
	assert_int_equal(target[100], 0);
	close_ends(&e);
}

static void riomap__full_and_free_again(void **state)
{
	struct ends e = mapped_ends();

	(void)state;
	assert_int_equal(riomap(e.server, target, 100, PROT_WRITE, 0, 0), 0);
	assert_int_equal(riomap(e.server, target + 100, 100, PROT_WRITE, 0, 100), 100);
	assert_refused(ENOMEM, (int)riomap(e.server, target + 200, 100, PROT_WRITE, 0, 200));
	assert_refused(EINVAL, riounmap(e.server, target, 99));
	assert_ok(riounmap(e.server, target, 100));
	assert_int_equal(riomap(e.server, target + 200, 100, PROT_WRITE, 0, 200), 200);
	notify(e.server, e.client);
	assert_int_equal(riowrite(e.client, source, 200, 100, 0), 200);
	notify(e.client, e.server);
	assert_memory_equal(target + 100, source, 200);
	close_ends(&e);
}

/* riostream's server does so: its listener's requests are accepted as they come. */
static void riomap__at_a_server_that_sets_the_size_late(void **state)
{
	struct listener l = listen_at("127.0.0.1");
	int client = rsocket(AF_INET, SOCK_STREAM, 0), entries = 1;
	struct ends e = { .client = client };

	(void)state;
	assert_ok(rconnect(client, sockaddr(&l.address), length_of(&l.address)));
	assert_ok(rsetsockopt(l.fd, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof(entries)));
	e.server = raccept(l.fd, NULL, NULL);
	assert_true(e.server >= 0);
	assert_int_equal(riomap(e.client, target, 100, PROT_WRITE, 0, 0), 0);
	notify(e.client, e.server);
	assert_int_equal(riowrite(e.server, source, 100, 0, 0), 100);
	notify(e.server, e.client);
	assert_memory_equal(target, source, 100);
	assert_ok(rclose(l.fd));
	close_ends(&e);
}

static void riomap__refused(void **state)
{
	struct ends e = mapped_ends(), unmapped = connected("127.0.0.1");
	int s = rsocket(AF_INET, SOCK_STREAM, 0);

	(void)state;
	assert_refused(ENOTCONN, (int)riomap(s, target, 10, PROT_WRITE, 0, 0));
	assert_refused(EINVAL, (int)riomap(e.server, target, 0, PROT_WRITE, 0, 0));
	assert_refused(EINVAL, (int)riomap(e.server, target, 10, PROT_EXEC, 0, 0));
	/* the client has no map */
	assert_refused(ENOMEM, (int)riomap(unmapped.server, target, 10, PROT_WRITE, 0, 0));
	assert_ok(rclose(s));
	close_ends(&unmapped);
	close_ends(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(riowrite__lands_before_what_follows),
		cmocka_unit_test(riomap__chooses_the_address),
		cmocka_unit_test(riowrite__outside_the_map),
		cmocka_unit_test(riomap__full_and_free_again),
		cmocka_unit_test(riomap__at_a_server_that_sets_the_size_late),
		cmocka_unit_test(riomap__refused),
	};

	enter_own_network();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
