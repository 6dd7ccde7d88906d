/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kinds of connections that programs rarely ask for: port spaces besides TCP and UDP, addresses of the family
 * AF_IB, the traffic class and the path that a program chooses, and an answer that comes too late for its
 * queue pair.
 */
#include <infiniband/ib.h>
#include <infiniband/sa.h>

#include "cm.h"

enum { SIDR_UNSUPPORTED = 1, TOS = 0xb8, OTHER_TOS = 0x28 };

/* ---- port spaces ---- */

static void ipoib__is_a_space_of_its_own(void **state)
{
	struct pair p = listening_pair("127.0.0.1", RDMA_PS_IPOIB);
	struct rdma_conn_param param = some_param();
	struct rdma_cm_id *stranger =
		new_resolved(p.client_ch, "127.0.0.1", rdma_get_src_port(p.listener), RDMA_PS_UDP);

	(void)state;
	assert_ok(rdma_connect(stranger, &param));
	expect_acked(p.client_ch, RDMA_CM_EVENT_UNREACHABLE, SIDR_UNSUPPORTED);
	assert_ok(rdma_destroy_id(stranger));

	assert_ok(rdma_connect(p.client, &param));
	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p.server = event->id;
	assert_int_equal(p.server->ps, RDMA_PS_IPOIB);
	assert_int_equal(p.server->qp_type, IBV_QPT_UD);
	assert_ok(rdma_ack_cm_event(event));
	assert_ok(rdma_accept(p.server, &param));
	event = expect(p.client_ch, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(event->param.ud.qp_num, param.qp_num);
	assert_int_equal(event->param.ud.qkey, RDMA_UDP_QKEY);
	assert_ok(rdma_ack_cm_event(event));
	destroy_pair(&p);
}

static struct sockaddr_ib gid_address(const char *ip, uint64_t sid, uint64_t mask)
{
	struct sockaddr_ib ib = { .sib_family = AF_IB,
				  .sib_pkey = htobe16(0xffff),
				  .sib_sid = htobe64(sid),
				  .sib_sid_mask = htobe64(mask) };

	assert_int_equal(inet_pton(AF_INET6, ip, &ib.sib_addr), 1);
	return ib;
}

static void expect_gid(const struct sockaddr *sa, const struct sockaddr_ib *like)
{
	assert_int_equal(sa->sa_family, AF_IB);
	assert_memory_equal(&((const struct sockaddr_ib *)(const void *)sa)->sib_addr, &like->sib_addr,
			    sizeof(like->sib_addr));
}

/*
 * From the request to the end of the connection, both sides with GIDs for addresses and in the port space of
 * InfiniBand.
 */
static void ib__whole_life(void **state)
{
	struct pair p = { .server_ch = new_channel(), .client_ch = new_channel() };
	struct sockaddr_ib any_port = gid_address("::ffff:127.0.0.1", (uint64_t)RDMA_PS_IB << 16, UINT64_MAX);
	struct rdma_conn_param param = some_param();

	(void)state;
	p.listener = new_id(p.server_ch, RDMA_PS_IB);
	assert_ok(rdma_bind_addr(p.listener, (struct sockaddr *)&any_port));
	assert_ok(rdma_listen(p.listener, 1));
	struct sockaddr_ib there;
	memcpy(&there, rdma_get_local_addr(p.listener), sizeof(there));
	expect_gid((struct sockaddr *)&there, &any_port);

	p.client = new_id(p.client_ch, RDMA_PS_IB);
	assert_ok(rdma_resolve_addr(p.client, (struct sockaddr *)&any_port, (struct sockaddr *)&there, 2000));
	expect_acked(p.client_ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	assert_ok(rdma_resolve_route(p.client, 2000));
	expect_acked(p.client_ch, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	expect_gid(rdma_get_peer_addr(p.client), &there);
	assert_ok(rdma_connect(p.client, &param));
	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p.server = event->id;
	assert_ok(rdma_ack_cm_event(event));
	expect_gid(rdma_get_local_addr(p.server), &there);
	expect_gid(rdma_get_peer_addr(p.server), &there);
	assert_int_equal(rdma_get_dst_port(p.client), rdma_get_src_port(p.server));
	assert_int_equal(rdma_get_src_port(p.client), rdma_get_dst_port(p.server));
	param.qp_num = some_param().qp_num;
	assert_ok(rdma_accept(p.server, &param));
	expect_acked(p.client_ch, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_ok(rdma_establish(p.client));
	expect_acked(p.server_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
	assert_ok(rdma_disconnect(p.server));
	expect_acked(p.client_ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	destroy_pair(&p);
}

/* ---- the way ---- */

/* Both ends' queue pairs get the traffic class. */
static void expect_class(struct pair *p, uint8_t tos)
{
	struct rdma_cm_id *const ends[] = { p->client, p->server };

	for (size_t i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
		int mask;

		assert_ok(rdma_init_qp_attr(ends[i], &attr, &mask));
		assert_int_equal(attr.ah_attr.grh.traffic_class, tos);
	}
}

static void establish(struct pair *p)
{
	struct rdma_conn_param param = some_param();

	assert_ok(rdma_connect(p->client, &param));
	struct rdma_cm_event *event = expect(p->server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p->server = event->id;
	assert_ok(rdma_ack_cm_event(event));
	param.qp_num = some_param().qp_num;
	assert_ok(rdma_accept(p->server, &param));
	expect_acked(p->client_ch, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_ok(rdma_establish(p->client));
	expect_acked(p->server_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
}

static struct pair half_resolved_pair(uint8_t tos)
{
	struct pair p = { .server_ch = new_channel(), .client_ch = new_channel() };

	p.listener = new_listener(p.server_ch, "127.0.0.1", RDMA_PS_TCP, 1);
	p.client = new_id(p.client_ch, RDMA_PS_TCP);
	assert_ok(rdma_set_option(p.client, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)));
	struct address to = with_port(address("127.0.0.1", 0), rdma_get_src_port(p.listener));
	assert_ok(rdma_resolve_addr(p.client, NULL, sockaddr(&to), 2000));
	expect_acked(p.client_ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	return p;
}

static void tos__is_both_ends_traffic_class(void **state)
{
	struct pair p = half_resolved_pair(TOS);

	(void)state;
	assert_ok(rdma_resolve_route(p.client, 2000));
	expect_acked(p.client_ch, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	assert_int_equal(p.client->route.path_rec->traffic_class, TOS);
	establish(&p);
	expect_class(&p, TOS);
	destroy_pair(&p);
}

static void path__brings_its_traffic_class(void **state)
{
	struct pair p = half_resolved_pair(TOS);
	struct ibv_path_data path = { .flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY,
				      .path.tclass = OTHER_TOS };

	(void)state;
	assert_ok(rdma_set_option(p.client, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof(path)));
	expect_acked(p.client_ch, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	establish(&p);
	expect_class(&p, OTHER_TOS);
	destroy_pair(&p);
}

static void datagram__has_the_traffic_class(void **state)
{
	struct pair p = { .server_ch = new_channel(), .client_ch = new_channel() };
	struct rdma_conn_param param = some_param();
	uint8_t tos = TOS;

	(void)state;
	p.listener = new_listener(p.server_ch, "127.0.0.1", RDMA_PS_UDP, 1);
	p.client = new_id(p.client_ch, RDMA_PS_UDP);
	assert_ok(rdma_set_option(p.client, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)));
	resolve(p.client, with_port(address("127.0.0.1", 0), rdma_get_src_port(p.listener)));
	assert_ok(rdma_connect(p.client, &param));
	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p.server = event->id;
	assert_ok(rdma_ack_cm_event(event));
	assert_ok(rdma_accept(p.server, &param));
	event = expect(p.client_ch, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(event->param.ud.ah_attr.grh.traffic_class, TOS);
	assert_ok(rdma_ack_cm_event(event));
	destroy_pair(&p);
}

/* ---- a response that comes too late ---- */

/*
 * Meanwhile the client's queue pair went to another state: the connection cannot be, and both sides hear so.
 */
static void response__is_no_use_to_the_queue_pair(void **state)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC
	};
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct pair p = listening_pair("127.0.0.1", RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();

	(void)state;
	assert_ok(rdma_create_qp(p.client, NULL, &init));
	assert_ok(rdma_connect(p.client, &param));
	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p.server = event->id;
	assert_ok(rdma_ack_cm_event(event));
	assert_ok(ibv_modify_qp(p.client->qp, &error, IBV_QP_STATE));
	assert_ok(rdma_accept(p.server, &param));
	event = expect(p.client_ch, RDMA_CM_EVENT_CONNECT_ERROR);
	assert_ptr_equal(event->id, p.client);
	assert_true(event->status < 0);
	assert_ok(rdma_ack_cm_event(event));
	rdma_ack_cm_event(expect(p.server_ch, RDMA_CM_EVENT_REJECTED));
	assert_ok(rdma_disconnect(p.client));
	assert_false(readable(p.client_ch->fd, 0));
	rdma_destroy_qp(p.client);
	destroy_pair(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ipoib__is_a_space_of_its_own),
		cmocka_unit_test(ib__whole_life),
		cmocka_unit_test(tos__is_both_ends_traffic_class),
		cmocka_unit_test(path__brings_its_traffic_class),
		cmocka_unit_test(datagram__has_the_traffic_class),
		cmocka_unit_test(response__is_no_use_to_the_queue_pair),
	};

	enter_own_network();
	return cmocka_run_group_tests_name("rdmacm_kinds", tests, NULL, NULL);
}
