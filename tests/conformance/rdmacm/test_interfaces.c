/* SPDX-License-Identifier: BSD-2-Clause */
/* Interfaces that come, change and go while ids are on their devices, in a network of the test's own. */
#include "cm.h"

#define ADDRESS "10.9.0.1"
#define LATER   "10.9.0.2"

static void must_run(const char *command)
{
	assert_int_equal(system(command), 0);
}

static struct rdma_cm_id *bound_to(struct rdma_event_channel *ch, const char *ip)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address a = address(ip, 0);

	assert_ok(rdma_bind_addr(id, sockaddr(&a)));
	return id;
}

static void expect_for(struct rdma_event_channel *ch, enum rdma_cm_event_type type, const struct rdma_cm_id *id)
{
	struct rdma_cm_event *event = expect(ch, type);

	assert_int_equal(event->status, 0);
	assert_ptr_equal(event->id, id);
	assert_ok(rdma_ack_cm_event(event));
}

/* Each id has a channel, so that the order among them does not matter. */
static void interface__changes_and_goes(void **state)
{
	struct pair p = connected_pair(ADDRESS), other = connected_pair("127.0.0.1");
	struct rdma_event_channel *ch = new_channel(), *any_ch = new_channel();
	struct rdma_cm_id *bound = bound_to(ch, ADDRESS), *anywhere = new_listener(any_ch, "0.0.0.0", RDMA_PS_TCP, 1);

	must_run("ip link set wire address 02:00:00:00:09:09");
	expect_for(p.client_ch, RDMA_CM_EVENT_ADDR_CHANGE, p.client);
	expect_for(ch, RDMA_CM_EVENT_ADDR_CHANGE, bound);
	expect_acked(p.server_ch, RDMA_CM_EVENT_ADDR_CHANGE, 0); /* the listener's */
	expect_acked(p.server_ch, RDMA_CM_EVENT_ADDR_CHANGE, 0); /* and the server's */

	must_run("ip link del wire");
	expect_for(p.client_ch, RDMA_CM_EVENT_DEVICE_REMOVAL, p.client);
	expect_for(ch, RDMA_CM_EVENT_DEVICE_REMOVAL, bound);
	expect_acked(p.server_ch, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
	expect_acked(p.server_ch, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);

	assert_false(readable(other.client_ch->fd, 0)); /* who is elsewhere hears nothing */
	assert_false(readable(other.server_ch->fd, 0));
	assert_false(readable(any_ch->fd, 0));
	assert_ok(rdma_destroy_id(bound));
	assert_ok(rdma_destroy_id(anywhere));
	destroy_pair(&p);
	destroy_pair(&other);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(any_ch);
}

/* Of the same name as the one that went; its device is a new one. */
static void interface__comes_again(void **state)
{
	assert_true(netns_add_wire());
	struct pair p = connected_pair(ADDRESS);
	destroy_pair(&p);
}

/* A listener on all addresses is on those too that come later. */
static void wildcard__has_later_addresses(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *listener = new_listener(ch, "0.0.0.0", RDMA_PS_TCP, 1);
	struct rdma_conn_param param = some_param();

	must_run("ip addr add " LATER "/24 dev wire");
	struct rdma_event_channel *client_ch = new_channel();
	struct rdma_cm_id *client = new_resolved(client_ch, LATER, rdma_get_src_port(listener), RDMA_PS_TCP);
	assert_ok(rdma_connect(client, &param));
	struct rdma_cm_event *event = expect(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *server = event->id;
	assert_ok(rdma_ack_cm_event(event));
	assert_non_null(server->verbs);
	assert_ok(rdma_destroy_id(server));
	assert_ok(rdma_destroy_id(client));
	assert_ok(rdma_destroy_id(listener));
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(client_ch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(interface__changes_and_goes),
		cmocka_unit_test(interface__comes_again),
		cmocka_unit_test(wildcard__has_later_addresses),
	};

	if (!netns_enter() || !netns_add_wire()) {
		printf("1..0 # SKIP no network of its own\n");
		return 0;
	}
	return cmocka_run_group_tests_name("rdmacm_interfaces", tests, NULL, NULL);
}
