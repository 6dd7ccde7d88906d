/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * With VERBATIM_DEBUG=1 each refused call says one line on standard error, under its name; without it,
 * nothing is said.
 */
#include <netdb.h>

#include "cm.h"

#include "../explain.h"

static void ids(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP), *other;
	struct rdma_cm_event *event;
	struct ibv_ece ece = { 0 };
	uint8_t byte = 0;

	(void)state;
	EXPLAINS("rdma_create_id", rdma_create_id(ch, &other, NULL, (enum rdma_port_space)7));
	EXPLAINS("rdma_destroy_id", rdma_destroy_id(NULL));
	EXPLAINS("rdma_get_cm_event", rdma_get_cm_event(NULL, &event));
	EXPLAINS("rdma_ack_cm_event", rdma_ack_cm_event(NULL));
	EXPLAINS("rdma_migrate_id", rdma_migrate_id(NULL, ch));
	EXPLAINS("rdma_set_option", rdma_set_option(id, 5, 5, &byte, 1));
	EXPLAINS("rdma_set_option", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &byte, 1));
	EXPLAINS("rdma_set_option", rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &byte, 1));
	EXPLAINS("rdma_set_local_ece", rdma_set_local_ece(id, &ece));
	EXPLAINS("rdma_get_remote_ece", rdma_get_remote_ece(id, NULL));
	EXPLAINS("rdma_get_request", rdma_get_request(id, &other));
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void addresses(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP),
			  *taken = new_listener(ch, "127.0.0.1", RDMA_PS_TCP, 1), *ep;
	struct address far = address("203.0.113.77", 0), near = address("127.0.0.1", 0);
	struct rdma_addrinfo hints = { .ai_flags = 1 << 20 }, *res,
			     nowhere = { .ai_port_space = RDMA_PS_TCP };

	(void)state;
	near = with_port(near, rdma_get_src_port(taken));
	EXPLAINS("rdma_bind_addr", rdma_bind_addr(id, NULL));
	EXPLAINS("rdma_bind_addr", rdma_bind_addr(id, sockaddr(&far)));
	EXPLAINS("rdma_bind_addr", rdma_bind_addr(id, sockaddr(&near)));
	EXPLAINS("rdma_resolve_addr", rdma_resolve_addr(id, NULL, NULL, 1));
	EXPLAINS("rdma_resolve_addr", rdma_resolve_addr(id, sockaddr(&far), sockaddr(&near), 1));
	EXPLAINS("rdma_resolve_route", rdma_resolve_route(id, 1));
	EXPLAINS("rdma_listen", rdma_listen(taken, 1));
	EXPLAINS("rdma_getaddrinfo", rdma_getaddrinfo(NULL, NULL, NULL, &res));
	EXPLAINS("rdma_getaddrinfo", rdma_getaddrinfo("127.0.0.1", NULL, &hints, &res));
	EXPLAINS("rdma_getaddrinfo", rdma_getaddrinfo("127.0.0.1", "no-such-service", NULL, &res));
	EXPLAINS("rdma_create_ep", rdma_create_ep(&ep, NULL, NULL, NULL));
	EXPLAINS("rdma_resolve_addr", rdma_create_ep(&ep, &nowhere, NULL, NULL));
	assert_ok(rdma_destroy_id(id));
	assert_ok(rdma_destroy_id(taken));
	rdma_destroy_event_channel(ch);
}

static void connections(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *fresh = new_id(ch, RDMA_PS_TCP),
			  *id = new_resolved(ch, "127.0.0.1", htons(1), RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	uint8_t data[255] = { 0 };
	int mask;

	(void)state;
	EXPLAINS("rdma_connect", rdma_connect(fresh, &param));
	EXPLAINS("rdma_connect", rdma_connect(id, NULL));
	param.private_data = data;
	param.private_data_len = 57;
	EXPLAINS("rdma_connect", rdma_connect(id, &param));
	param.private_data_len = 0;
	param.responder_resources = 254;
	EXPLAINS("rdma_connect", rdma_connect(id, &param));
	EXPLAINS("rdma_accept", rdma_accept(id, &param));
	EXPLAINS("rdma_reject", rdma_reject(id, NULL, 0));
	EXPLAINS("rdma_reject", rdma_reject(id, data, 149));
	EXPLAINS("rdma_reject_ece", rdma_reject_ece(NULL, NULL, 0));
	EXPLAINS("rdma_establish", rdma_establish(id));
	EXPLAINS("rdma_notify", rdma_notify(id, IBV_EVENT_COMM_EST));
	EXPLAINS("rdma_disconnect", rdma_disconnect(id));
	EXPLAINS("rdma_init_qp_attr", rdma_init_qp_attr(id, &attr, &mask));
	EXPLAINS("rdma_join_multicast", rdma_join_multicast(id, rdma_get_peer_addr(id), NULL));
	EXPLAINS("rdma_join_multicast_ex", rdma_join_multicast_ex(id, NULL, NULL));
	EXPLAINS("rdma_leave_multicast", rdma_leave_multicast(id, rdma_get_peer_addr(id)));
	assert_ok(rdma_destroy_id(id));
	assert_ok(rdma_destroy_id(fresh));

	id = new_id(NULL, RDMA_PS_TCP); /* a synchronous call says how it ended */
	struct address nobody = address("127.0.0.1", 1);
	param = some_param();
	assert_ok(rdma_resolve_addr(id, NULL, sockaddr(&nobody), 100));
	assert_ok(rdma_resolve_route(id, 100));
	EXPLAINS("rdma_connect", rdma_connect(id, &param));
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void queue_pairs(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *fresh = new_id(ch, RDMA_PS_TCP),
			  *id = new_resolved(ch, "127.0.0.1", htons(1), RDMA_PS_TCP);
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } }, huge = attr;
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 1, .max_sge = 1 } },
				 huge_srq = { .attr = { .max_wr = 1u << 30 } };

	(void)state;
	huge.cap.max_send_sge = 1u << 20;
	EXPLAINS("rdma_create_qp", rdma_create_qp(fresh, NULL, &attr));
	EXPLAINS("rdma_create_qp", rdma_create_qp(id, NULL, NULL));
	EXPLAINS("ibv_create_qp", rdma_create_qp(id, NULL, &huge));
	EXPLAINS("rdma_create_srq", rdma_create_srq(fresh, NULL, &srq));
	EXPLAINS("ibv_create_srq", rdma_create_srq(id, NULL, &huge_srq));
	assert_ok(rdma_create_qp(id, NULL, &attr));
	EXPLAINS("rdma_create_qp", rdma_create_qp(id, NULL, &attr));
	rdma_destroy_qp(id);
	assert_ok(rdma_destroy_id(id));
	assert_ok(rdma_destroy_id(fresh));
	rdma_destroy_event_channel(ch);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids),
		cmocka_unit_test(addresses),
		cmocka_unit_test(connections),
		cmocka_unit_test(queue_pairs),
	};

	with_debugging(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
