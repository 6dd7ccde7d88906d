/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections between two ids of one process, asynchronous, without QPs: the connection manager alone. */
#include <pthread.h>

#include "cm.h"

enum { REQ_DATA = 56, REP_DATA = 196, REJ_DATA = 148, SIDR_REQ_DATA = 180, SIDR_REP_DATA = 136 };

enum {
	REJECTED_INVALID_SERVICE_ID = 8,
	REJECTED_CONSUMER = 28,
	REJECTED_VENDOR_OPTION = 35,
	SIDR_UNSUPPORTED = 1,
	SIDR_REJECTED = 2
};

static uint8_t pattern[256];

static int setup(void **state)
{
	(void)state;
	for (int i = 0; i < 256; i++)
		pattern[i] = (uint8_t)(i * 7 + 1);
	return 0;
}

/* data holds the first len bytes of the pattern, then zeros up to size. */
static void assert_data(const void *data, uint8_t data_len, uint8_t size, uint8_t len)
{
	static const uint8_t zeros[256];

	assert_int_equal(data_len, size);
	assert_non_null(data);
	assert_memory_equal(data, pattern, len);
	assert_memory_equal((const uint8_t *)data + len, zeros, size - len);
}

/* ---- the whole life of a connection ---- */

static void check_request_event(const struct pair *p, const struct rdma_cm_event *event)
{
	assert_int_equal(event->status, 0);
	assert_ptr_equal(event->listen_id, p->listener);
	assert_ptr_not_equal(event->id, p->listener);
	assert_ptr_equal(event->id->channel, p->server_ch);
	assert_ptr_equal(event->id->context, p->listener->context);
	assert_int_equal(event->id->ps, RDMA_PS_TCP);
	assert_int_equal(event->id->qp_type, IBV_QPT_RC);
	assert_non_null(event->id->verbs);
	assert_non_null(event->id->pd);
	assert_int_equal(event->id->port_num, 1);
	assert_null(event->id->qp);
	assert_int_equal(rdma_get_src_port(event->id), rdma_get_src_port(p->listener));
	assert_int_equal(rdma_get_dst_port(event->id), rdma_get_src_port(p->client));
	assert_memory_equal(rdma_get_local_addr(event->id), rdma_get_peer_addr(p->client), 24);
	assert_memory_equal(rdma_get_peer_addr(event->id), rdma_get_local_addr(p->client), 24);
}

static void life_on(const char *ip)
{
	struct pair p = listening_pair(ip, RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();
	int context;

	p.listener->context = &context;
	param.private_data = pattern;
	param.private_data_len = 10;
	param.flow_control = 1;
	param.srq = 1;
	assert_ok(rdma_connect(p.client, &param));

	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p.server = event->id;
	check_request_event(&p, event);
	assert_int_equal(event->param.conn.responder_resources, param.initiator_depth);
	assert_int_equal(event->param.conn.initiator_depth, param.responder_resources);
	assert_int_equal(event->param.conn.retry_count, param.retry_count);
	assert_int_equal(event->param.conn.rnr_retry_count, param.rnr_retry_count);
	assert_int_equal(event->param.conn.flow_control, 1);
	assert_int_equal(event->param.conn.srq, 1);
	assert_int_equal(event->param.conn.qp_num, param.qp_num);
	assert_data(event->param.conn.private_data, event->param.conn.private_data_len, REQ_DATA, 10);
	assert_ok(rdma_ack_cm_event(event));

	struct rdma_conn_param answer = { .private_data = pattern,
					  .private_data_len = 20,
					  .responder_resources = 1,
					  .initiator_depth = 4,
					  .rnr_retry_count = 6,
					  .qp_num = some_param().qp_num };
	assert_ok(rdma_accept(p.server, &answer));
	event = expect(p.client_ch, RDMA_CM_EVENT_CONNECT_RESPONSE);
	assert_ptr_equal(event->id, p.client);
	assert_int_equal(event->param.conn.responder_resources, 4);
	assert_int_equal(event->param.conn.initiator_depth, 1);
	assert_int_equal(event->param.conn.rnr_retry_count, 6);
	assert_int_equal(event->param.conn.qp_num, answer.qp_num);
	assert_data(event->param.conn.private_data, event->param.conn.private_data_len, REP_DATA, 20);
	assert_ok(rdma_ack_cm_event(event));
	assert_false(readable(p.server_ch->fd, 0));

	assert_ok(rdma_establish(p.client));
	expect_acked(p.server_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
	assert_false(readable(p.client_ch->fd, 0));
	assert_refused(EINVAL, rdma_establish(p.client));

	assert_ok(rdma_disconnect(p.client));
	expect_acked(p.server_ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	assert_ok(rdma_disconnect(p.server));
	expect_acked(p.client_ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	expect_acked(p.server_ch, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
	expect_acked(p.client_ch, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
	destroy_pair(&p);
}

static void connect__whole_life(void **state)
{
	(void)state;
	on_each_address(life_on);
}

static void connect_via(const char *bound_to, const char *reached_at)
{
	if (!is_here(reached_at))
		return;
	struct pair p = { .server_ch = new_channel(), .client_ch = new_channel() };
	struct rdma_conn_param param = some_param();

	p.listener = new_listener(p.server_ch, bound_to, RDMA_PS_TCP, 1);
	p.client = new_resolved(p.client_ch, reached_at, rdma_get_src_port(p.listener), RDMA_PS_TCP);
	assert_ok(rdma_connect(p.client, &param));
	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p.server = event->id;
	assert_int_equal(rdma_get_local_addr(p.server)->sa_family, rdma_get_peer_addr(p.client)->sa_family);
	assert_ok(rdma_ack_cm_event(event));
	destroy_pair(&p);
}

static void listen__wildcard_is_reached_at_every_address(void **state)
{
	char eth[INET6_ADDRSTRLEN];

	(void)state;
	connect_via("0.0.0.0", "127.0.0.1");
	connect_via("0.0.0.0", "127.0.0.2");
	connect_via("::", "::1");
	connect_via("::", "127.0.0.1");
	if (ethernet_address(eth))
		connect_via("0.0.0.0", eth);
}

static void refused_at(const char *bound_to, const char *reached_at)
{
	if (!is_here(reached_at))
		return;
	struct pair p = { .server_ch = new_channel(), .client_ch = new_channel() };
	struct rdma_conn_param param = some_param();

	p.listener = new_listener(p.server_ch, bound_to, RDMA_PS_TCP, 1);
	p.client = new_resolved(p.client_ch, reached_at, rdma_get_src_port(p.listener), RDMA_PS_TCP);
	assert_ok(rdma_connect(p.client, &param));
	expect_acked(p.client_ch, RDMA_CM_EVENT_REJECTED, REJECTED_INVALID_SERVICE_ID);
	destroy_pair(&p);
}

static void listen__one_address_is_not_another(void **state)
{
	char eth[INET6_ADDRSTRLEN];

	(void)state;
	refused_at("127.0.0.1", "::1");
	refused_at("0.0.0.0", "::1");
	if (ethernet_address(eth))
		refused_at("127.0.0.1", eth);
}

static void connect__nobody_listens(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_conn_param param = some_param();
	struct rdma_cm_id *bound = new_id(ch, RDMA_PS_TCP);
	struct address lo = address("127.0.0.1", 0);

	(void)state;
	assert_ok(rdma_bind_addr(bound, sockaddr(&lo))); /* bound, but not listening */
	struct rdma_cm_id *id = new_resolved(ch, "127.0.0.1", rdma_get_src_port(bound), RDMA_PS_TCP);
	assert_ok(rdma_connect(id, &param));
	expect_acked(ch, RDMA_CM_EVENT_REJECTED, REJECTED_INVALID_SERVICE_ID);
	assert_refused(EINVAL, rdma_connect(id, &param));
	assert_ok(rdma_disconnect(id)); /* as of the kernel: it is over already */
	assert_false(readable(ch->fd, 0));
	assert_ok(rdma_destroy_id(id));

	__be16 port = rdma_get_src_port(bound);
	assert_ok(rdma_destroy_id(bound));
	id = new_resolved(ch, "127.0.0.1", port, RDMA_PS_TCP);
	assert_ok(rdma_connect(id, &param));
	expect_acked(ch, RDMA_CM_EVENT_REJECTED, REJECTED_INVALID_SERVICE_ID);
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

/* Servers tell their clients a port that they have bound, and listen to it afterwards. */
static void connect__to_who_is_about_to_listen(void **state)
{
	struct rdma_event_channel *server_ch = new_channel(), *ch = new_channel();
	struct rdma_cm_id *listener = new_id(server_ch, RDMA_PS_TCP);
	struct address lo = address("127.0.0.1", 0);
	struct rdma_conn_param param = some_param();

	(void)state;
	assert_ok(rdma_bind_addr(listener, sockaddr(&lo)));
	struct rdma_cm_id *id = new_resolved(ch, "127.0.0.1", rdma_get_src_port(listener), RDMA_PS_TCP);
	assert_ok(rdma_connect(id, &param));
	assert_false(readable(ch->fd, 400)); /* longer than for a port that nobody has */
	assert_ok(rdma_listen(listener, 1));
	struct rdma_cm_event *event = expect(server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *child = event->id;
	assert_ok(rdma_ack_cm_event(event));
	assert_ok(rdma_destroy_id(child));
	expect_acked(ch, RDMA_CM_EVENT_REJECTED, REJECTED_CONSUMER);
	assert_ok(rdma_destroy_id(id));
	assert_ok(rdma_destroy_id(listener));
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(server_ch);
}

static void connect__port_spaces_are_apart(void **state)
{
	struct rdma_event_channel *server_ch = new_channel(), *ch = new_channel();
	struct rdma_cm_id *udp = new_listener(server_ch, "127.0.0.1", RDMA_PS_UDP, 1);
	struct rdma_cm_id *id = new_resolved(ch, "127.0.0.1", rdma_get_src_port(udp), RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();

	(void)state;
	assert_ok(rdma_connect(id, &param));
	expect_acked(ch, RDMA_CM_EVENT_REJECTED, REJECTED_INVALID_SERVICE_ID);
	assert_ok(rdma_destroy_id(id));
	assert_ok(rdma_destroy_id(udp));
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(server_ch);
}

/* ---- arguments ---- */

static void connect__refuses_what_does_not_fit(void **state)
{
	struct pair p = listening_pair("127.0.0.1", RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();

	(void)state;
	assert_refused(EINVAL, rdma_connect(p.client, NULL)); /* no QP, no number of one */
	param.private_data = pattern;
	param.private_data_len = REQ_DATA + 1;
	assert_refused(EINVAL, rdma_connect(p.client, &param));
	param.private_data_len = REQ_DATA;
	param.responder_resources = 254;
	assert_refused(EINVAL, rdma_connect(p.client, &param));
	param.responder_resources = RDMA_MAX_RESP_RES;
	param.initiator_depth = 254;
	assert_refused(EINVAL, rdma_connect(p.client, &param));
	param.initiator_depth = RDMA_MAX_INIT_DEPTH;
	assert_false(readable(p.server_ch->fd, 0));
	assert_ok(rdma_connect(p.client, &param));
	assert_refused(EINVAL, rdma_connect(p.client, &param));

	struct ibv_device_attr attr;
	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(ibv_query_device(event->id->verbs, &attr), 0);
	assert_int_equal(event->param.conn.responder_resources, attr.max_qp_init_rd_atom);
	assert_int_equal(event->param.conn.initiator_depth, attr.max_qp_rd_atom);
	assert_data(event->param.conn.private_data, event->param.conn.private_data_len, REQ_DATA, REQ_DATA);
	p.server = event->id;
	assert_ok(rdma_ack_cm_event(event));
	destroy_pair(&p);
}

static void accept__refuses_what_does_not_fit(void **state)
{
	struct pair p = requested_pair("127.0.0.1", RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();

	(void)state;
	assert_refused(EINVAL, rdma_accept(p.server, NULL)); /* no QP, no number of one */
	assert_refused(EINVAL, rdma_accept(p.listener, &param));
	assert_refused(EINVAL, rdma_accept(p.client, &param));
	param.private_data = pattern;
	param.private_data_len = REP_DATA + 1;
	assert_refused(EINVAL, rdma_accept(p.server, &param));
	param.private_data_len = REP_DATA;
	param.responder_resources = 254;
	assert_refused(EINVAL, rdma_accept(p.server, &param));
	param.responder_resources = RDMA_MAX_RESP_RES;
	assert_refused(EINVAL, rdma_connect(p.server, &param));
	assert_refused(EINVAL, rdma_listen(p.server, 1));
	assert_ok(rdma_accept(p.server, &param));
	assert_refused(EINVAL, rdma_accept(p.server, &param));
	struct rdma_cm_event *event = expect(p.client_ch, RDMA_CM_EVENT_CONNECT_RESPONSE);
	assert_data(event->param.conn.private_data, event->param.conn.private_data_len, REP_DATA, REP_DATA);
	assert_ok(rdma_ack_cm_event(event));
	destroy_pair(&p);
}

/* The most that there is: of what the request asks for, not of what the device has. */
static void accept__most_is_what_the_peer_has(void **state)
{
	struct pair p = requested_pair("127.0.0.1", RDMA_PS_TCP);
	struct rdma_conn_param param = some_param(), asked = some_param();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	int mask;

	(void)state;
	param.responder_resources = RDMA_MAX_RESP_RES;
	param.initiator_depth = RDMA_MAX_INIT_DEPTH;
	assert_ok(rdma_accept(p.server, &param));
	struct rdma_cm_event *event = expect(p.client_ch, RDMA_CM_EVENT_CONNECT_RESPONSE);
	assert_int_equal(event->param.conn.responder_resources, asked.responder_resources);
	assert_int_equal(event->param.conn.initiator_depth, asked.initiator_depth);
	assert_ok(rdma_ack_cm_event(event));
	assert_ok(rdma_init_qp_attr(p.server, &attr, &mask));
	assert_int_equal(attr.max_rd_atomic, asked.responder_resources);
	destroy_pair(&p);
}

static void retry_counts__are_three_bits(void **state)
{
	struct pair p = listening_pair("127.0.0.1", RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();

	(void)state;
	param.retry_count = 100;
	param.rnr_retry_count = 200;
	assert_ok(rdma_connect(p.client, &param));
	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(event->param.conn.retry_count, 7);
	assert_int_equal(event->param.conn.rnr_retry_count, 7);
	p.server = event->id;
	assert_ok(rdma_ack_cm_event(event));
	destroy_pair(&p);
}

/* ---- reject ---- */

static void reject_with(uint8_t len)
{
	struct pair p = requested_pair("127.0.0.1", RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();

	assert_ok(rdma_reject(p.server, pattern, len));
	struct rdma_cm_event *event = expect(p.client_ch, RDMA_CM_EVENT_REJECTED);
	assert_ptr_equal(event->id, p.client);
	assert_int_equal(event->status, REJECTED_CONSUMER);
	assert_data(event->param.conn.private_data, event->param.conn.private_data_len, REJ_DATA, len);
	assert_ok(rdma_ack_cm_event(event));
	assert_refused(EINVAL, rdma_reject(p.server, NULL, 0));
	assert_refused(EINVAL, rdma_accept(p.server, &param));
	assert_ok(rdma_disconnect(p.server));
	assert_ok(rdma_disconnect(p.client));
	destroy_pair(&p);
}

static void reject__carries_private_data(void **state)
{
	(void)state;
	reject_with(0);
	reject_with(1);
	reject_with(REJ_DATA);
}

static void reject__refusals(void **state)
{
	struct pair p = requested_pair("127.0.0.1", RDMA_PS_TCP);

	(void)state;
	assert_refused(EINVAL, rdma_reject(p.server, pattern, REJ_DATA + 1));
	assert_refused(EINVAL, rdma_reject(p.listener, NULL, 0));
	assert_refused(EINVAL, rdma_reject(p.client, NULL, 0)); /* nothing came yet */
	assert_ok(rdma_reject_ece(p.server, NULL, 7)); /* no data, whatever its length */
	expect_acked(p.client_ch, RDMA_CM_EVENT_REJECTED, REJECTED_VENDOR_OPTION);
	destroy_pair(&p);
}

static void reject__of_a_response(void **state)
{
	struct pair p = requested_pair("127.0.0.1", RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();

	(void)state;
	assert_ok(rdma_accept(p.server, &param));
	expect_acked(p.client_ch, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_ok(rdma_reject(p.client, pattern, 3));
	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_REJECTED);
	assert_ptr_equal(event->id, p.server);
	assert_int_equal(event->status, REJECTED_CONSUMER);
	assert_data(event->param.conn.private_data, event->param.conn.private_data_len, REJ_DATA, 3);
	assert_ok(rdma_ack_cm_event(event));
	destroy_pair(&p);
}

/*
 * Who asked goes before the program has answered. Its request's id has the listener's context until the
 * program gives it one, so no event names that id; to accept fails.
 */
static void request__is_taken_back_unseen(void **state)
{
	struct pair p = requested_pair("127.0.0.1", RDMA_PS_TCP), other;
	struct rdma_conn_param param = some_param();

	(void)state;
	assert_ok(rdma_destroy_id(p.client));
	p.client = new_resolved(p.client_ch, "127.0.0.1", rdma_get_src_port(p.listener), RDMA_PS_TCP);
	assert_ok(rdma_connect(p.client, &param)); /* what came before it has been taken by then */
	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	other = (struct pair){ .server = event->id };
	assert_ok(rdma_ack_cm_event(event));
	assert_refused(EINVAL, rdma_accept(p.server, &param));
	assert_false(readable(p.server_ch->fd, 0));
	assert_ok(rdma_destroy_id(other.server));
	destroy_pair(&p);
}

/* ---- disconnect ---- */

static void disconnect__by_the_passive_side(void **state)
{
	struct pair p = connected_pair("127.0.0.1");

	(void)state;
	assert_ok(rdma_disconnect(p.server));
	expect_acked(p.client_ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	assert_ok(rdma_disconnect(p.client));
	expect_acked(p.server_ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	assert_ok(rdma_disconnect(p.server)); /* again: nothing to do */
	destroy_pair(&p);
}

static void disconnect__by_both_at_once(void **state)
{
	struct pair p = connected_pair("127.0.0.1");

	(void)state;
	assert_ok(rdma_disconnect(p.server));
	assert_ok(rdma_disconnect(p.client));
	expect_acked(p.client_ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	expect_acked(p.server_ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	destroy_pair(&p);
}

static void disconnect__answered_by_destruction(void **state)
{
	struct pair p = connected_pair("127.0.0.1");

	(void)state;
	assert_ok(rdma_disconnect(p.client));
	expect_acked(p.server_ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	assert_ok(rdma_destroy_id(p.server));
	p.server = NULL;
	expect_acked(p.client_ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	destroy_pair(&p);
}

/* ---- destruction in every state ---- */

static void destroy__connected_disconnects_the_peer(void **state)
{
	struct pair p = connected_pair("127.0.0.1");

	(void)state;
	assert_ok(rdma_destroy_id(p.client));
	p.client = NULL;
	expect_acked(p.server_ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	destroy_pair(&p);
}

static void destroy__requested_rejects(void **state)
{
	struct pair p = requested_pair("127.0.0.1", RDMA_PS_TCP);

	(void)state;
	assert_ok(rdma_destroy_id(p.server));
	p.server = NULL;
	expect_acked(p.client_ch, RDMA_CM_EVENT_REJECTED, REJECTED_CONSUMER);
	destroy_pair(&p);
}

static void destroy__listener_rejects_unseen_requests(void **state)
{
	struct pair p = listening_pair("127.0.0.1", RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();

	(void)state;
	assert_ok(rdma_connect(p.client, &param));
	assert_true(readable(p.server_ch->fd, WAIT_MS));
	assert_ok(rdma_destroy_id(p.listener));
	p.listener = NULL;
	assert_false(readable(p.server_ch->fd, 0));
	expect_acked(p.client_ch, RDMA_CM_EVENT_REJECTED, REJECTED_CONSUMER);
	destroy_pair(&p);
}

static void destroy__listener_keeps_seen_requests(void **state)
{
	struct pair p = requested_pair("127.0.0.1", RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();

	(void)state;
	assert_ok(rdma_destroy_id(p.listener));
	p.listener = NULL;
	assert_ok(rdma_accept(p.server, &param));
	expect_acked(p.client_ch, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_ok(rdma_establish(p.client));
	expect_acked(p.server_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
	destroy_pair(&p);
}

static void destroy__client_after_response(void **state)
{
	struct pair p = requested_pair("127.0.0.1", RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();

	(void)state;
	assert_ok(rdma_accept(p.server, &param));
	expect_acked(p.client_ch, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_ok(rdma_destroy_id(p.client));
	p.client = NULL;
	expect_acked(p.server_ch, RDMA_CM_EVENT_REJECTED, REJECTED_CONSUMER);
	destroy_pair(&p);
}

static void destroy__server_after_accept(void **state)
{
	struct pair p = requested_pair("127.0.0.1", RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();

	(void)state;
	assert_ok(rdma_accept(p.server, &param));
	expect_acked(p.client_ch, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_ok(rdma_destroy_id(p.server));
	p.server = NULL;
	expect_acked(p.client_ch, RDMA_CM_EVENT_REJECTED, REJECTED_CONSUMER);
	assert_refused(EINVAL, rdma_establish(p.client));
	destroy_pair(&p);
}

/* ---- the rest ---- */

static void notify__establishes_the_passive_side(void **state)
{
	struct pair p = requested_pair("127.0.0.1", RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();

	(void)state;
	assert_refused(EINVAL, rdma_notify(p.server, IBV_EVENT_COMM_EST));
	assert_ok(rdma_accept(p.server, &param));
	assert_refused(EINVAL, rdma_notify(p.server, IBV_EVENT_PORT_ERR));
	assert_ok(rdma_notify(p.server, IBV_EVENT_COMM_EST));
	expect_acked(p.server_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
	assert_refused(EISCONN, rdma_notify(p.server, IBV_EVENT_COMM_EST));
	expect_acked(p.client_ch, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_ok(rdma_establish(p.client));
	assert_refused(EISCONN, rdma_notify(p.client, IBV_EVENT_COMM_EST));
	destroy_pair(&p);
}

static struct rdma_cm_id *request(struct rdma_event_channel *ch, struct rdma_cm_id *listener)
{
	struct rdma_cm_id *id = new_resolved(ch, "127.0.0.1", rdma_get_src_port(listener), RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();

	assert_ok(rdma_connect(id, &param));
	return id;
}

/*
 * Only what waits unseen is rejected with the listener; what found no room finds nobody when it is repeated.
 */
static void listen__backlog_limits_unseen_requests(void **state)
{
	struct rdma_event_channel *server_ch = new_channel(), *fits_ch = new_channel(), *ch = new_channel();
	struct rdma_cm_id *listener = new_listener(server_ch, "127.0.0.1", RDMA_PS_TCP, 1);
	struct rdma_cm_id *fits = request(fits_ch, listener), *surplus[2];

	(void)state;
	assert_true(readable(server_ch->fd, WAIT_MS));
	for (int i = 0; i < 2; i++)
		surplus[i] = request(ch, listener);
	usleep(50000); /* a chance to go wrong */
	assert_ok(rdma_destroy_id(listener));
	expect_acked(fits_ch, RDMA_CM_EVENT_REJECTED, REJECTED_CONSUMER);
	for (int i = 0; i < 2; i++)
		expect_acked(ch, RDMA_CM_EVENT_REJECTED, REJECTED_INVALID_SERVICE_ID);
	assert_ok(rdma_destroy_id(fits));
	for (int i = 0; i < 2; i++)
		assert_ok(rdma_destroy_id(surplus[i]));
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(fits_ch);
	rdma_destroy_event_channel(server_ch);
}

static void listen__surplus_request_is_seen_once_there_is_room(void **state)
{
	struct rdma_event_channel *server_ch = new_channel(), *ch = new_channel();
	struct rdma_cm_id *listener = new_listener(server_ch, "127.0.0.1", RDMA_PS_TCP, 1), *id[3], *child[3];

	(void)state;
	for (int i = 0; i < 3; i++)
		id[i] = request(ch, listener);
	for (int i = 0; i < 3; i++) {
		struct rdma_cm_event *event = expect(server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
		child[i] = event->id;
		assert_ok(rdma_ack_cm_event(event));
	}
	assert_false(readable(ch->fd, 0)); /* nobody was rejected */
	for (int i = 0; i < 3; i++) {
		assert_ok(rdma_destroy_id(child[i]));
		assert_ok(rdma_destroy_id(id[i]));
	}
	assert_ok(rdma_destroy_id(listener));
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(server_ch);
}

/* Requests that went with the channel on which they waited unseen do not count on the next one. */
static void listen__backlog_does_not_outlive_the_channel(void **state)
{
	struct rdma_event_channel *server_ch = new_channel(), *ch = new_channel();
	struct rdma_cm_id *listener = new_listener(server_ch, "127.0.0.1", RDMA_PS_TCP, 1);
	struct rdma_cm_id *first = request(ch, listener);

	(void)state;
	assert_true(readable(server_ch->fd, WAIT_MS));
	rdma_destroy_event_channel(server_ch);
	expect_acked(ch, RDMA_CM_EVENT_REJECTED, REJECTED_CONSUMER);
	server_ch = new_channel();
	assert_ok(rdma_migrate_id(listener, server_ch));
	struct rdma_cm_id *second = request(ch, listener);
	struct rdma_cm_event *event = expect(server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *child = event->id;
	assert_ok(rdma_ack_cm_event(event));
	assert_ok(rdma_destroy_id(child));
	assert_ok(rdma_destroy_id(first));
	assert_ok(rdma_destroy_id(second));
	assert_ok(rdma_destroy_id(listener));
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(server_ch);
}

static void migrate__listener_takes_unseen_requests_along(void **state)
{
	struct pair p = listening_pair("127.0.0.1", RDMA_PS_TCP);
	struct rdma_event_channel *other = new_channel();
	struct rdma_conn_param param = some_param();

	(void)state;
	assert_ok(rdma_connect(p.client, &param));
	assert_true(readable(p.server_ch->fd, WAIT_MS));
	assert_ok(rdma_migrate_id(p.listener, other));
	assert_false(readable(p.server_ch->fd, 0));
	struct rdma_cm_event *event = expect(other, RDMA_CM_EVENT_CONNECT_REQUEST);
	p.server = event->id;
	assert_ptr_equal(p.server->channel, other);
	assert_ok(rdma_ack_cm_event(event));
	param = some_param();
	assert_ok(rdma_accept(p.server, &param));
	expect_acked(p.client_ch, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_ok(rdma_establish(p.client));
	expect_acked(other, RDMA_CM_EVENT_ESTABLISHED, 0);
	destroy_pair(&p);
	rdma_destroy_event_channel(other);
}

static void migrate__child_goes_its_own_way(void **state)
{
	struct pair p = requested_pair("127.0.0.1", RDMA_PS_TCP);
	struct rdma_event_channel *own = new_channel();
	struct rdma_conn_param param = some_param();

	(void)state;
	assert_ok(rdma_migrate_id(p.server, own));
	assert_ok(rdma_accept(p.server, &param));
	expect_acked(p.client_ch, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_ok(rdma_establish(p.client));
	expect_acked(own, RDMA_CM_EVENT_ESTABLISHED, 0);
	assert_false(readable(p.server_ch->fd, 0));
	destroy_pair(&p);
	rdma_destroy_event_channel(own);
}

static void ece__reaches_the_peer(void **state)
{
	struct pair p = listening_pair("127.0.0.1", RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();
	struct ibv_ece ours = { .vendor_id = 0x15b3, .options = 0xdeadbeef },
		       theirs = { .vendor_id = 0x123456, .options = 5 };
	struct ibv_ece seen;

	(void)state;
	assert_ok(rdma_set_local_ece(p.client, &ours));
	assert_ok(rdma_connect(p.client, &param));
	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p.server = event->id;
	assert_ok(rdma_ack_cm_event(event));
	assert_ok(rdma_get_remote_ece(p.server, &seen));
	assert_int_equal(seen.vendor_id, ours.vendor_id);
	assert_int_equal(seen.options, ours.options);
	assert_ok(rdma_set_local_ece(p.server, &theirs));
	param = some_param();
	assert_ok(rdma_accept(p.server, &param));
	expect_acked(p.client_ch, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_ok(rdma_get_remote_ece(p.client, &seen));
	assert_int_equal(seen.vendor_id, theirs.vendor_id);
	assert_int_equal(seen.options, theirs.options);
	destroy_pair(&p);
}

static void init_qp_attr__describes_the_connection(void **state)
{
	struct pair p = listening_pair("127.0.0.1", RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT }, server_attr;
	uint8_t timeout = 9;
	int mask;

	(void)state;
	assert_ok(rdma_set_option(p.client, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1));
	assert_ok(rdma_init_qp_attr(p.client, &attr, &mask));
	assert_int_equal(mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	assert_int_equal(attr.port_num, 1);
	attr.qp_state = IBV_QPS_RTR;
	assert_refused(EINVAL, rdma_init_qp_attr(p.client, &attr, &mask));

	assert_ok(rdma_connect(p.client, &param));
	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p.server = event->id;
	assert_ok(rdma_ack_cm_event(event));
	param.qp_num = some_param().qp_num;
	assert_ok(rdma_accept(p.server, &param));
	expect_acked(p.client_ch, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);

	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT };
	assert_ok(rdma_init_qp_attr(p.client, &attr, &mask));
	assert_int_equal(attr.qp_access_flags,
			 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR };
	assert_ok(rdma_init_qp_attr(p.client, &attr, &mask));
	assert_int_equal(mask, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	assert_int_equal(attr.dest_qp_num, param.qp_num);
	assert_int_equal(attr.ah_attr.is_global, 1);
	assert_memory_equal(&attr.ah_attr.grh.dgid, &p.client->route.addr.addr.ibaddr.dgid, 16);
	assert_int_equal(attr.max_dest_rd_atomic, param.initiator_depth);
	assert_int_equal(attr.min_rnr_timer, 0);
	server_attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS };
	assert_ok(rdma_init_qp_attr(p.server, &server_attr, &mask));
	assert_int_equal(mask, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	assert_int_equal(server_attr.sq_psn, attr.rq_psn); /* each side starts where the other expects it */
	assert_int_equal(server_attr.timeout, timeout);
	assert_int_equal(server_attr.retry_cnt, param.retry_count);
	assert_int_equal(server_attr.rnr_retry, param.rnr_retry_count);
	assert_int_equal(server_attr.max_rd_atomic, param.initiator_depth);
	server_attr.qp_state = IBV_QPS_SQD;
	assert_refused(EINVAL, rdma_init_qp_attr(p.server, &server_attr, &mask));
	destroy_pair(&p);
}

/* The client's, from the other end. */
static void request_has_path(const char *ip)
{
	struct pair p = requested_pair(ip, RDMA_PS_TCP);
	const struct ibv_sa_path_rec *theirs = p.client->route.path_rec, *ours = p.server->route.path_rec;

	assert_int_equal(p.server->route.num_paths, 1);
	assert_non_null(ours);
	assert_int_equal(ours->mtu, theirs->mtu);
	assert_int_equal(ours->pkey, theirs->pkey);
	assert_int_equal(ours->hop_limit, theirs->hop_limit);
	assert_int_equal(ours->traffic_class, theirs->traffic_class);
	assert_memory_equal(&ours->sgid, &theirs->dgid, 16);
	assert_memory_equal(&ours->dgid, &theirs->sgid, 16);
	destroy_pair(&p);
}

static void request__has_a_path(void **state)
{
	(void)state;
	on_each_address(request_has_path);
}

static void request__of_datagrams_has_none(void **state)
{
	struct pair p = requested_pair("127.0.0.1", RDMA_PS_UDP);

	(void)state;
	assert_int_equal(p.server->route.num_paths, 0);
	assert_null(p.server->route.path_rec);
	destroy_pair(&p);
}

static uint8_t ack_timeout_of(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	int mask;

	assert_ok(rdma_init_qp_attr(id, &attr, &mask));
	assert_int_equal(mask & IBV_QP_TIMEOUT, IBV_QP_TIMEOUT);
	return attr.timeout;
}

/* Each side's is its own. One that says nothing takes the requester's, and a listener's is nobody's. */
static void ack_timeout__of_each_side(void **state)
{
	struct pair p = listening_pair("127.0.0.1", RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();
	uint8_t listeners = 20, clients = 9, servers = 11;

	(void)state;
	assert_ok(rdma_set_option(p.listener, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &listeners, 1));
	assert_ok(rdma_set_option(p.client, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &clients, 1));
	assert_ok(rdma_connect(p.client, &param));
	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p.server = event->id;
	assert_ok(rdma_ack_cm_event(event));
	assert_int_equal(ack_timeout_of(p.server), clients);
	assert_ok(rdma_set_option(p.server, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &servers, 1));
	assert_int_equal(ack_timeout_of(p.server), servers);
	param = some_param();
	assert_ok(rdma_accept(p.server, &param));
	expect_acked(p.client_ch, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_int_equal(ack_timeout_of(p.client), clients);
	destroy_pair(&p);
}

/* ---- datagrams ---- */

static void datagram_on(const char *ip)
{
	struct pair p = listening_pair(ip, RDMA_PS_UDP);
	struct rdma_conn_param param = { .private_data = pattern, .private_data_len = 9 };

	assert_ok(rdma_connect(p.client, &param));
	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p.server = event->id;
	assert_int_equal(p.server->qp_type, IBV_QPT_UD);
	assert_int_equal(p.server->ps, RDMA_PS_UDP);
	assert_data(event->param.ud.private_data, event->param.ud.private_data_len, SIDR_REQ_DATA, 9);
	assert_ok(rdma_ack_cm_event(event));
	param.private_data_len = SIDR_REP_DATA + 1;
	param.qp_num = SOME_QPN;
	assert_refused(EINVAL, rdma_accept(p.server, &param));
	assert_refused(EINVAL, rdma_accept(p.server, NULL));
	param.private_data_len = 11;
	assert_ok(rdma_accept(p.server, &param));
	assert_ok(rdma_disconnect(p.server)); /* there is no QP to flush */

	event = expect(p.client_ch, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(event->status, 0);
	assert_int_equal(event->param.ud.qp_num, SOME_QPN);
	assert_int_equal(event->param.ud.qkey, RDMA_UDP_QKEY);
	assert_int_equal(event->param.ud.ah_attr.is_global, 1);
	assert_int_equal(event->param.ud.ah_attr.port_num, 1);
	assert_memory_equal(&event->param.ud.ah_attr.grh.dgid, &p.client->route.addr.addr.ibaddr.dgid, 16);
	assert_data(event->param.ud.private_data, event->param.ud.private_data_len, SIDR_REP_DATA, 11);
	assert_ok(rdma_ack_cm_event(event));
	destroy_pair(&p);
}

static void datagram__lookup(void **state)
{
	(void)state;
	on_each_address(datagram_on);
}

static void datagram__rejected(void **state)
{
	struct pair p = requested_pair("127.0.0.1", RDMA_PS_UDP);

	(void)state;
	assert_ok(rdma_reject(p.server, pattern, SIDR_REP_DATA));
	struct rdma_cm_event *event = expect(p.client_ch, RDMA_CM_EVENT_UNREACHABLE);
	assert_int_equal(event->status, SIDR_REJECTED);
	assert_ok(rdma_ack_cm_event(event));
	destroy_pair(&p);
}

static void datagram__nobody_listens(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_resolved(ch, "127.0.0.1", htons(1), RDMA_PS_UDP);
	struct rdma_conn_param param = { .private_data = pattern, .private_data_len = SIDR_REQ_DATA + 1 };

	(void)state;
	assert_refused(EINVAL, rdma_connect(id, &param));
	assert_ok(rdma_connect(id, NULL));
	expect_acked(ch, RDMA_CM_EVENT_UNREACHABLE, SIDR_UNSUPPORTED);
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

/* Nobody tells the server, and no event names an id that has the listener's context. */
static void datagram__client_leaves_before_the_answer(void **state)
{
	struct pair p = requested_pair("127.0.0.1", RDMA_PS_UDP);
	struct rdma_conn_param param = some_param();

	(void)state;
	assert_ok(rdma_destroy_id(p.client));
	p.client = new_resolved(p.client_ch, "127.0.0.1", rdma_get_src_port(p.listener), RDMA_PS_UDP);
	assert_ok(rdma_connect(p.client, &param)); /* what came before it has been taken by then */
	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *other = event->id;
	assert_ptr_not_equal(other, p.server);
	assert_ok(rdma_ack_cm_event(event));
	assert_ok(rdma_reject(p.server, NULL, 0));
	assert_false(readable(p.server_ch->fd, 0));
	assert_ok(rdma_destroy_id(other));
	destroy_pair(&p);
}

static void datagram__destroyed_unanswered(void **state)
{
	struct pair p = requested_pair("127.0.0.1", RDMA_PS_UDP);

	(void)state;
	assert_ok(rdma_destroy_id(p.server));
	p.server = NULL;
	struct rdma_cm_event *event = expect(p.client_ch, RDMA_CM_EVENT_UNREACHABLE);
	assert_int_not_equal(event->status, 0);
	assert_ok(rdma_ack_cm_event(event));
	destroy_pair(&p);
}

/* ---- many ---- */

enum { MANY = 100 };

static void connect__many_at_once(void **state)
{
	struct rdma_event_channel *server_ch = new_channel(), *ch = new_channel();
	struct rdma_cm_id *listener = new_listener(server_ch, "127.0.0.1", RDMA_PS_TCP, MANY), *id[MANY],
			  *child[MANY];
	struct rdma_conn_param param = some_param();

	(void)state;
	for (int i = 0; i < MANY; i++) {
		id[i] = new_resolved(ch, "127.0.0.1", rdma_get_src_port(listener), RDMA_PS_TCP);
		param.qp_num = some_param().qp_num;
		assert_ok(rdma_connect(id[i], &param));
	}
	for (int i = 0; i < MANY; i++) {
		struct rdma_cm_event *event = expect(server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
		child[i] = event->id;
		param.qp_num = some_param().qp_num;
		assert_ok(rdma_accept(child[i], &param));
		assert_ok(rdma_ack_cm_event(event));
	}
	for (int i = 0; i < MANY; i++) {
		struct rdma_cm_event *event = expect(ch, RDMA_CM_EVENT_CONNECT_RESPONSE);
		assert_ok(rdma_establish(event->id));
		assert_ok(rdma_ack_cm_event(event));
	}
	for (int i = 0; i < MANY; i++)
		expect_acked(server_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
	for (int i = 0; i < MANY; i++)
		assert_ok(rdma_disconnect(id[i]));
	for (int i = 0; i < MANY; i++) {
		struct rdma_cm_event *event = expect(server_ch, RDMA_CM_EVENT_DISCONNECTED);
		assert_ok(rdma_disconnect(event->id));
		assert_ok(rdma_ack_cm_event(event));
	}
	for (int i = 0; i < MANY; i++) {
		assert_ok(rdma_destroy_id(id[i]));
		assert_ok(rdma_destroy_id(child[i]));
	}
	assert_ok(rdma_destroy_id(listener));
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(server_ch);
}

enum { THREADS = 4, ROUNDS = 50 };

/* Takes part in serving one channel: accepts requests, answers disconnects, until told to stop. */
static void *serve(void *arg)
{
	struct rdma_event_channel *ch = arg;
	struct rdma_cm_event *event;

	while (rdma_get_cm_event(ch, &event) == 0) {
		struct rdma_conn_param param = some_param();
		struct rdma_cm_id *id = event->id, *gone = NULL;
		switch (event->event) {
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			rdma_accept(id, &param);
			break;
		case RDMA_CM_EVENT_DISCONNECTED:
			rdma_disconnect(id);
			gone = id;
			break;
		case RDMA_CM_EVENT_ADDR_RESOLVED: /* the word to stop */
			rdma_ack_cm_event(event);
			return NULL;
		default:
			break;
		}
		rdma_ack_cm_event(event);
		if (gone)
			rdma_destroy_id(gone);
	}
	return NULL;
}

static void *connect_often(void *arg)
{
	struct rdma_cm_id *listener = arg;
	struct rdma_conn_param param = some_param();
	struct rdma_event_channel *ch = rdma_create_event_channel();
	intptr_t done = 0;

	for (int i = 0; i < ROUNDS; i++) {
		struct rdma_cm_id *id =
			new_resolved(ch, "127.0.0.1", rdma_get_src_port(listener), RDMA_PS_TCP);
		param.qp_num = some_param().qp_num;
		rdma_connect(id, &param);
		struct rdma_cm_event *event = next_event(ch);
		done += event->event == RDMA_CM_EVENT_CONNECT_RESPONSE;
		rdma_ack_cm_event(event);
		rdma_establish(id);
		rdma_disconnect(id);
		rdma_destroy_id(id);
	}
	rdma_destroy_event_channel(ch);
	return (void *)done;
}

static void connect__many_threads_on_one_channel(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *listener = new_listener(ch, "127.0.0.1", RDMA_PS_TCP, 100), *stop[THREADS];
	struct address lo = address("127.0.0.1", 1);
	pthread_t server[THREADS], client[THREADS];
	void *done;

	(void)state;
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_create(&server[i], NULL, serve, ch), 0);
		assert_int_equal(pthread_create(&client[i], NULL, connect_often, listener), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(client[i], &done);
		assert_int_equal((intptr_t)done, ROUNDS);
	}
	for (int i = 0; i < THREADS; i++) {
		stop[i] = new_id(ch, RDMA_PS_TCP);
		assert_ok(rdma_resolve_addr(stop[i], NULL, sockaddr(&lo), 100));
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(server[i], NULL);
	for (int i = 0; i < THREADS; i++)
		assert_ok(rdma_destroy_id(stop[i]));
	assert_ok(rdma_destroy_id(listener));
	rdma_destroy_event_channel(ch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(connect__whole_life),
		cmocka_unit_test(listen__wildcard_is_reached_at_every_address),
		cmocka_unit_test(listen__one_address_is_not_another),
		cmocka_unit_test(connect__nobody_listens),
		cmocka_unit_test(connect__to_who_is_about_to_listen),
		cmocka_unit_test(connect__port_spaces_are_apart),
		cmocka_unit_test(connect__refuses_what_does_not_fit),
		cmocka_unit_test(accept__refuses_what_does_not_fit),
		cmocka_unit_test(accept__most_is_what_the_peer_has),
		cmocka_unit_test(retry_counts__are_three_bits),
		cmocka_unit_test(reject__carries_private_data),
		cmocka_unit_test(reject__refusals),
		cmocka_unit_test(reject__of_a_response),
		cmocka_unit_test(request__is_taken_back_unseen),
		cmocka_unit_test(disconnect__by_the_passive_side),
		cmocka_unit_test(disconnect__by_both_at_once),
		cmocka_unit_test(disconnect__answered_by_destruction),
		cmocka_unit_test(destroy__connected_disconnects_the_peer),
		cmocka_unit_test(destroy__requested_rejects),
		cmocka_unit_test(destroy__listener_rejects_unseen_requests),
		cmocka_unit_test(destroy__listener_keeps_seen_requests),
		cmocka_unit_test(destroy__client_after_response),
		cmocka_unit_test(destroy__server_after_accept),
		cmocka_unit_test(notify__establishes_the_passive_side),
		cmocka_unit_test(listen__backlog_limits_unseen_requests),
		cmocka_unit_test(listen__surplus_request_is_seen_once_there_is_room),
		cmocka_unit_test(listen__backlog_does_not_outlive_the_channel),
		cmocka_unit_test(migrate__listener_takes_unseen_requests_along),
		cmocka_unit_test(migrate__child_goes_its_own_way),
		cmocka_unit_test(ece__reaches_the_peer),
		cmocka_unit_test(init_qp_attr__describes_the_connection),
		cmocka_unit_test(request__has_a_path),
		cmocka_unit_test(request__of_datagrams_has_none),
		cmocka_unit_test(ack_timeout__of_each_side),
		cmocka_unit_test(datagram__lookup),
		cmocka_unit_test(datagram__rejected),
		cmocka_unit_test(datagram__nobody_listens),
		cmocka_unit_test(datagram__client_leaves_before_the_answer),
		cmocka_unit_test(datagram__destroyed_unanswered),
		cmocka_unit_test(connect__many_at_once),
		cmocka_unit_test(connect__many_threads_on_one_channel),
	};

	enter_own_network();
	return cmocka_run_group_tests(tests, setup, NULL);
}
