/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Destinations on another host, in a network of the test's own: an Ethernet, 10.9.0.1 and fd09::1, on which
 * nobody else is. A neighbour is there once the kernel has been told its link address.
 */
#include "../../kernel.h"
#include "cm.h"

enum { SOON_MS = 50, PORT = 7471 };

#define NEIGHBOUR  "10.9.0.77"
#define NEIGHBOUR6 "fd09::77"
#define LLADDR     " lladdr 02:00:00:00:00:77 dev wire"

static struct rdma_event_channel *ch;

static int setup(void **state)
{
	(void)state;
	ch = rdma_create_event_channel();
	return ch ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	rdma_destroy_event_channel(ch);
	return system("ip neigh flush dev wire nud all");
}

static void absent(const char *ip)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address to = address(ip, PORT), lo = address("127.0.0.1", PORT);

	assert_ok(rdma_resolve_addr(id, NULL, sockaddr(&to), SOON_MS));
	expect_acked(ch, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
	assert_null(id->verbs);
	assert_refused(EINVAL, rdma_resolve_route(id, SOON_MS));
	assert_ok(rdma_resolve_addr(id, NULL, sockaddr(&lo), SOON_MS)); /* as good as new */
	expect_acked(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	assert_non_null(id->verbs);
	assert_ok(rdma_destroy_id(id));
}

static void absent__is_an_address_error(void **state)
{
	(void)state;
	absent(NEIGHBOUR);
	absent(NEIGHBOUR6);
}

static void absent__leaves_a_bound_id_bound(void **state)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address to = address(NEIGHBOUR, PORT), from = address("10.9.0.1", 0);

	(void)state;
	assert_ok(rdma_bind_addr(id, sockaddr(&from)));
	from = with_port(from, rdma_get_src_port(id));
	assert_ok(rdma_resolve_addr(id, NULL, sockaddr(&to), SOON_MS));
	expect_acked(ch, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
	assert_non_null(id->verbs);
	assert_memory_equal(rdma_get_local_addr(id), sockaddr(&from), 8);
	assert_ok(rdma_listen(id, 1));
	assert_ok(rdma_destroy_id(id));
}

static void absent__synchronous(void **state)
{
	struct rdma_cm_id *id = new_id(NULL, RDMA_PS_TCP);
	struct address to = address(NEIGHBOUR, PORT);

	(void)state;
	assert_refused(ETIMEDOUT, rdma_resolve_addr(id, NULL, sockaddr(&to), SOON_MS));
	assert_ok(rdma_destroy_id(id));
}

static void resolving__ends_when_the_neighbour_is_found(void **state)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address to = address(NEIGHBOUR, PORT);

	(void)state;
	assert_ok(rdma_resolve_addr(id, NULL, sockaddr(&to), WAIT_MS));
	must_run("ip neigh replace " NEIGHBOUR LLADDR);
	expect_acked(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	assert_ok(rdma_destroy_id(id));
}

static void resolving__id_is_destroyed(void **state)
{
	struct rdma_cm_id *first = new_id(ch, RDMA_PS_TCP), *second = new_id(ch, RDMA_PS_TCP);
	struct address to = address(NEIGHBOUR, PORT);

	(void)state;
	assert_ok(rdma_resolve_addr(first, NULL, sockaddr(&to), WAIT_MS));
	assert_refused(EINVAL, rdma_resolve_addr(first, NULL, sockaddr(&to), SOON_MS)); /* one at a time */
	assert_ok(rdma_resolve_addr(second, NULL, sockaddr(&to), SOON_MS));
	assert_ok(rdma_destroy_id(first));
	struct rdma_cm_event *event = expect(ch, RDMA_CM_EVENT_ADDR_ERROR);
	assert_ptr_equal(event->id, second);
	assert_ok(rdma_ack_cm_event(event));
	assert_ok(rdma_destroy_id(second));
}

static void resolve__no_route(void **state)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address to = address("203.0.113.77", PORT), to6 = address("2001:db8::77", PORT);

	(void)state;
	assert_refused(ENETUNREACH, rdma_resolve_addr(id, NULL, sockaddr(&to), SOON_MS));
	assert_refused(ENETUNREACH, rdma_resolve_addr(id, NULL, sockaddr(&to6), SOON_MS));
	assert_false(readable(ch->fd, 0));
	assert_ok(rdma_destroy_id(id));
}

static void check_path(const char *ip, uint8_t mtu)
{
	struct rdma_cm_id *id = new_resolved(ch, ip, htons(PORT), RDMA_PS_TCP);
	const struct ibv_sa_path_rec *path = id->route.path_rec;
	union ibv_gid sgid, dgid;

	assert_int_equal(id->route.num_paths, 1);
	assert_int_equal(path->mtu, mtu);
	assert_int_equal(path->mtu_selector, 2);
	assert_int_not_equal(path->hop_limit, 0);
	assert_int_equal(path->pkey, 0xffff);
	memset(&sgid, 0, sizeof(sgid));
	memset(&dgid, 0, sizeof(dgid));
	if (strchr(ip, ':')) {
		inet_pton(AF_INET6, "fd09::1", &sgid);
		inet_pton(AF_INET6, ip, &dgid);
	} else {
		sgid.raw[10] = sgid.raw[11] = dgid.raw[10] = dgid.raw[11] = 0xff;
		inet_pton(AF_INET, "10.9.0.1", &sgid.raw[12]);
		inet_pton(AF_INET, ip, &dgid.raw[12]);
	}
	assert_memory_equal(&path->sgid, &sgid, sizeof(sgid));
	assert_memory_equal(&path->dgid, &dgid, sizeof(dgid));
	assert_string_equal(ibv_get_device_name(id->verbs->device), "vb_wire");
	assert_ok(rdma_destroy_id(id));
}

/* A route may say less than the interface. */
static void path__has_the_mtu_of_device_and_route(void **state)
{
	(void)state;
	if (!kernel_tells_mtu())
		SKIP(NO_MTU);
	must_run("ip neigh replace " NEIGHBOUR LLADDR "; ip neigh replace " NEIGHBOUR6 LLADDR);
	check_path(NEIGHBOUR, IBV_MTU_1024);
	check_path(NEIGHBOUR6, IBV_MTU_1024);
	must_run("ip route add 10.9.0.77/32 dev wire mtu 600");
	check_path(NEIGHBOUR, IBV_MTU_512);
	must_run("ip route del 10.9.0.77/32");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(absent__is_an_address_error),
		CASE(absent__leaves_a_bound_id_bound),
		CASE(absent__synchronous),
		CASE(resolving__ends_when_the_neighbour_is_found),
		CASE(resolving__id_is_destroyed),
		CASE(resolve__no_route),
		CASE(path__has_the_mtu_of_device_and_route),
	};

	if (!netns_enter() || !netns_add_wire()) {
		printf("1..0 # SKIP no network of its own\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
