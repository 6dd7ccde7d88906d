/* SPDX-License-Identifier: BSD-2-Clause */
/* Synchronous ids and endpoints. Each side is a thread of its own, as both would wait for the other. */
#include <pthread.h>

#include "cm.h"

static struct rdma_cm_id *sync_id(void)
{
	return new_id(NULL, RDMA_PS_TCP);
}

static struct ibv_qp_init_attr qp_attr(void)
{
	return (struct ibv_qp_init_attr){
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 }
	};
}

static struct rdma_addrinfo *info(const char *ip, __be16 port, int flags)
{
	struct rdma_addrinfo *res, hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP };
	char service[8];

	snprintf(service, sizeof(service), "%u", ntohs(port));
	assert_int_equal(rdma_getaddrinfo(ip, service, &hints, &res), 0);
	return res;
}

static enum ibv_qp_state qp_state(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

/* ---- single calls ---- */

static void sync__each_call_leaves_its_event(void **state)
{
	struct rdma_cm_id *id = sync_id();
	struct address to = address("127.0.0.1", 1);

	(void)state;
	assert_ok(rdma_resolve_addr(id, NULL, sockaddr(&to), 2000));
	assert_int_equal(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_ok(rdma_resolve_route(id, 2000));
	assert_int_equal(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
	assert_int_equal(id->event->status, 0);
	assert_ok(rdma_destroy_id(id));
}

static void sync__refusal_is_the_calls(void **state)
{
	struct rdma_cm_id *id = sync_id();
	struct address to = address("127.0.0.1", 1);
	struct rdma_conn_param param = some_param();

	(void)state;
	assert_ok(rdma_resolve_addr(id, NULL, sockaddr(&to), 2000));
	assert_ok(rdma_resolve_route(id, 2000));
	assert_refused(ECONNREFUSED, rdma_connect(id, &param));
	assert_int_equal(id->event->event, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(id->event->status, 8);
	assert_ok(rdma_destroy_id(id));
}

static void get_request__only_for_synchronous_listeners(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *async = new_listener(ch, "127.0.0.1", RDMA_PS_TCP, 1), *id = sync_id(), *child;

	(void)state;
	assert_refused(EINVAL, rdma_get_request(async, &child));
	assert_refused(EINVAL, rdma_get_request(id, &child));
	assert_refused(EINVAL, rdma_get_request(id, NULL));
	assert_ok(rdma_destroy_id(id));
	assert_ok(rdma_destroy_id(async));
	rdma_destroy_event_channel(ch);
}

/* ---- both sides ---- */

struct server {
	struct rdma_cm_id *listener, *child;
	const char *failure;
	uint8_t data[196];
	int reject;
};

#define CHECK(server, condition)                          \
	do {                                              \
		if (!(condition)) {                       \
			(server)->failure = #condition;   \
			return NULL;                      \
		}                                         \
	} while (0)

/* get_request, accept or reject; disconnect once the peer did. */
static void *serve(void *arg)
{
	struct server *s = arg;
	struct rdma_conn_param param = some_param();

	CHECK(s, rdma_get_request(s->listener, &s->child) == 0);
	CHECK(s, s->child->event != NULL);
	CHECK(s, s->child->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(s, s->child->event->listen_id == s->listener);
	CHECK(s, s->child->channel != s->listener->channel);
	memcpy(s->data, s->child->event->param.conn.private_data, 56);
	if (s->reject) {
		CHECK(s, rdma_reject(s->child, "no", 2) == 0);
		return NULL;
	}
	param.private_data = "welcome";
	param.private_data_len = 7;
	CHECK(s, rdma_accept(s->child, &param) == 0);
	CHECK(s, s->child->event->event == RDMA_CM_EVENT_ESTABLISHED);
	CHECK(s, rdma_disconnect(s->child) == 0);
	CHECK(s, s->child->event->event == RDMA_CM_EVENT_DISCONNECTED);
	CHECK(s, rdma_disconnect(s->child) == 0); /* does not wait for a second end */
	return NULL;
}

static void start(struct server *s, pthread_t *thread, const char *ip)
{
	s->listener = sync_id();
	struct address a = address(ip, 0);

	assert_ok(rdma_bind_addr(s->listener, sockaddr(&a)));
	assert_ok(rdma_listen(s->listener, 1));
	assert_int_equal(pthread_create(thread, NULL, serve, s), 0);
}

static void finish(struct server *s, pthread_t thread)
{
	pthread_join(thread, NULL);
	if (s->failure)
		fail_msg("server: %s", s->failure);
	assert_ok(rdma_destroy_id(s->child));
	assert_ok(rdma_destroy_id(s->listener));
}

static struct rdma_cm_id *resolved_sync(const char *ip, __be16 port)
{
	struct rdma_cm_id *id = sync_id();
	struct address to = with_port(address(ip, 0), port);

	assert_ok(rdma_resolve_addr(id, NULL, sockaddr(&to), 2000));
	assert_ok(rdma_resolve_route(id, 2000));
	return id;
}

static void connect_sync(const char *ip)
{
	struct server s = { 0 };
	struct rdma_conn_param param = some_param();
	struct ibv_qp_init_attr attr = qp_attr();
	pthread_t thread;

	start(&s, &thread, ip);
	struct rdma_cm_id *id = resolved_sync(ip, rdma_get_src_port(s.listener));
	assert_ok(rdma_create_qp(id, NULL, &attr));
	param.private_data = "hello";
	param.private_data_len = 5;
	assert_ok(rdma_connect(id, &param));
	assert_int_equal(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
	assert_memory_equal(id->event->param.conn.private_data, "welcome", 8);
	assert_int_equal(qp_state(id), IBV_QPS_RTS);
	assert_ok(rdma_disconnect(id));
	assert_int_equal(id->event->event, RDMA_CM_EVENT_DISCONNECTED);
	assert_int_equal(qp_state(id), IBV_QPS_ERR);
	finish(&s, thread);
	assert_memory_equal(s.data, "hello", 6);
	rdma_destroy_qp(id);
	assert_null(id->qp);
	assert_null(id->send_cq);
	assert_null(id->recv_cq_channel);
	assert_ok(rdma_destroy_id(id));
}

static void sync__whole_life(void **state)
{
	(void)state;
	on_each_address(connect_sync);
}

static void sync__rejected(void **state)
{
	struct server s = { .reject = 1 };
	struct rdma_conn_param param = some_param();
	pthread_t thread;

	(void)state;
	start(&s, &thread, "127.0.0.1");
	struct rdma_cm_id *id = resolved_sync("127.0.0.1", rdma_get_src_port(s.listener));
	assert_refused(ECONNREFUSED, rdma_connect(id, &param));
	assert_int_equal(id->event->status, 28);
	assert_memory_equal(id->event->param.conn.private_data, "no", 3);
	finish(&s, thread);
	assert_ok(rdma_destroy_id(id));
}

/* ---- endpoints ---- */

static void *serve_endpoint(void *arg)
{
	struct server *s = arg;

	CHECK(s, rdma_get_request(s->listener, &s->child) == 0);
	CHECK(s, s->child->qp != NULL);
	CHECK(s, s->child->send_cq != NULL && s->child->recv_cq != NULL);
	CHECK(s, s->child->send_cq_channel != NULL && s->child->recv_cq_channel != NULL);
	CHECK(s, s->child->pd == s->child->qp->pd);
	CHECK(s, rdma_accept(s->child, NULL) == 0);
	CHECK(s, rdma_disconnect(s->child) == 0);
	return NULL;
}

static void endpoints_on(const char *ip)
{
	struct server s = { 0 };
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_addrinfo *res = info(ip, 0, RAI_PASSIVE | RAI_NUMERICHOST);
	struct rdma_cm_id *id;
	pthread_t thread;

	attr.qp_type = IBV_QPT_UD; /* the address information has the last word */
	assert_ok(rdma_create_ep(&s.listener, res, NULL, &attr));
	rdma_freeaddrinfo(res);
	assert_null(s.listener->qp);
	assert_ok(rdma_listen(s.listener, 0));
	assert_int_equal(pthread_create(&thread, NULL, serve_endpoint, &s), 0);

	res = info(ip, rdma_get_src_port(s.listener), 0);
	attr = qp_attr();
	assert_ok(rdma_create_ep(&id, res, NULL, &attr));
	rdma_freeaddrinfo(res);
	assert_non_null(id->qp);
	assert_int_equal(id->qp->qp_type, IBV_QPT_RC);
	assert_int_equal(qp_state(id), IBV_QPS_INIT);
	assert_ok(rdma_connect(id, NULL));
	assert_ok(rdma_disconnect(id));
	pthread_join(thread, NULL);
	if (s.failure)
		fail_msg("server: %s", s.failure);
	rdma_destroy_ep(id);
	rdma_destroy_ep(s.child);
	rdma_destroy_ep(s.listener);
}

static void endpoint__whole_life(void **state)
{
	(void)state;
	on_each_address(endpoints_on);
}

static struct ibv_context *loopback_device(void)
{
	struct rdma_cm_id *id = resolved_sync("127.0.0.1", htons(1));
	struct ibv_context *verbs = id->verbs; /* open until the process ends */

	assert_ok(rdma_destroy_id(id));
	return verbs;
}

static void passive_endpoint_in(const char *ip, struct ibv_pd *pd)
{
	struct server s = { 0 };
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_addrinfo *res = info(ip, 0, RAI_PASSIVE | RAI_NUMERICHOST);
	char buf[16];
	pthread_t thread;

	assert_ok(rdma_create_ep(&s.listener, res, pd, NULL));
	assert_ptr_equal(s.listener->pd, pd);
	rdma_destroy_ep(s.listener);
	assert_ok(rdma_create_ep(&s.listener, res, pd, &attr));
	rdma_freeaddrinfo(res);
	assert_ptr_equal(s.listener->pd, pd);
	struct ibv_mr *mr = rdma_reg_msgs(s.listener, buf, sizeof(buf));
	assert_non_null(mr);
	assert_ptr_equal(mr->pd, pd);
	assert_ok(rdma_listen(s.listener, 0));
	assert_int_equal(pthread_create(&thread, NULL, serve_endpoint, &s), 0);
	struct rdma_cm_id *id = resolved_sync("127.0.0.1", rdma_get_src_port(s.listener));
	attr = qp_attr();
	assert_ok(rdma_create_qp(id, NULL, &attr));
	assert_ok(rdma_connect(id, NULL));
	assert_ok(rdma_disconnect(id));
	pthread_join(thread, NULL);
	if (s.failure)
		fail_msg("server: %s", s.failure);
	assert_ptr_equal(s.child->pd, pd);
	assert_ok(rdma_dereg_mr(mr));
	rdma_destroy_ep(id);
	rdma_destroy_ep(s.child);
	rdma_destroy_ep(s.listener);
}

/* What is registered on the listener serves the QPs of its requests. The domain stays the program's. */
static void endpoint__passive_in_a_domain(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(loopback_device());

	(void)state;
	assert_non_null(pd);
	passive_endpoint_in("127.0.0.1", pd);
	passive_endpoint_in("0.0.0.0", pd);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void endpoint__without_qp(void **state)
{
	struct rdma_addrinfo *res = info("127.0.0.1", htons(1), 0);
	struct rdma_cm_id *id;

	(void)state;
	assert_ok(rdma_create_ep(&id, res, NULL, NULL));
	assert_null(id->qp);
	assert_non_null(id->verbs);
	assert_non_null(id->pd);
	assert_refused(EINVAL, rdma_connect(id, NULL));
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(res);
}

static void endpoint__connect_data_goes_first(void **state)
{
	struct server s = { .reject = 1 };
	struct rdma_conn_param param = some_param();
	struct rdma_cm_id *id;
	pthread_t thread;

	(void)state;
	start(&s, &thread, "127.0.0.1");
	struct rdma_addrinfo *res = info("127.0.0.1", rdma_get_src_port(s.listener), 0);
	res->ai_connect = strdup("abc");
	res->ai_connect_len = 3;
	assert_ok(rdma_create_ep(&id, res, NULL, NULL));
	rdma_freeaddrinfo(res);
	param.private_data = "def";
	param.private_data_len = 54;
	assert_refused(EINVAL, rdma_connect(id, &param));
	param.private_data_len = 3;
	assert_refused(ECONNREFUSED, rdma_connect(id, &param));
	finish(&s, thread);
	assert_memory_equal(s.data, "abcdef", 7);
	rdma_destroy_ep(id);
}

/* As much as fits into the request, which is more for datagrams. */
static void endpoint__connect_data_fits(void **state)
{
	static const struct {
		int port_space, qp_type, most;
	} cases[] = { { RDMA_PS_TCP, IBV_QPT_RC, 56 }, { RDMA_PS_UDP, IBV_QPT_UD, 180 } };
	struct rdma_cm_id *id;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rdma_addrinfo *res = info("127.0.0.1", htons(1), 0);

		res->ai_port_space = cases[i].port_space;
		res->ai_qp_type = cases[i].qp_type;
		res->ai_connect = calloc(1, 256);
		res->ai_connect_len = (size_t)cases[i].most + 1;
		assert_refused(EINVAL, rdma_create_ep(&id, res, NULL, NULL));
		res->ai_connect_len--;
		assert_ok(rdma_create_ep(&id, res, NULL, NULL));
		rdma_destroy_ep(id);
		rdma_freeaddrinfo(res);
	}
}

static void endpoint__refusals(void **state)
{
	struct rdma_addrinfo *res = info("127.0.0.1", htons(1), 0), none = { .ai_port_space = RDMA_PS_TCP };
	struct rdma_cm_id *id;

	(void)state;
	assert_refused(EINVAL, rdma_create_ep(NULL, res, NULL, NULL));
	assert_refused(EINVAL, rdma_create_ep(&id, NULL, NULL, NULL));
	assert_refused(EINVAL, rdma_create_ep(&id, &none, NULL, NULL));
	none.ai_flags = RAI_PASSIVE;
	assert_refused(EINVAL, rdma_create_ep(&id, &none, NULL, NULL));
	res->ai_port_space = 0;
	assert_refused(EINVAL, rdma_create_ep(&id, res, NULL, NULL));
	rdma_freeaddrinfo(res);
}

static void endpoint__occupied_port(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *other = new_listener(ch, "127.0.0.1", RDMA_PS_TCP, 1), *id;
	struct rdma_addrinfo *res = info("127.0.0.1", rdma_get_src_port(other), RAI_PASSIVE);

	(void)state;
	assert_refused(EADDRINUSE, rdma_create_ep(&id, res, NULL, NULL));
	rdma_freeaddrinfo(res);
	assert_ok(rdma_destroy_id(other));
	rdma_destroy_event_channel(ch);
}

/* ---- QPs and SRQs of ids ---- */

static void qp__what_is_left_out_is_made(void **state)
{
	struct rdma_cm_id *id = resolved_sync("127.0.0.1", htons(1));
	struct ibv_qp_init_attr attr = qp_attr();

	(void)state;
	assert_ok(rdma_create_qp(id, NULL, &attr));
	assert_ptr_equal(id->qp->pd, id->pd);
	assert_ptr_equal(attr.send_cq, id->send_cq);
	assert_ptr_equal(attr.recv_cq, id->recv_cq);
	assert_ptr_equal(id->send_cq->cq_context, id);
	assert_ptr_equal(id->send_cq->channel, id->send_cq_channel);
	assert_int_equal(qp_state(id), IBV_QPS_INIT);
	assert_refused(EINVAL, rdma_create_qp(id, NULL, &attr));
	rdma_destroy_qp(id);
	assert_null(id->qp);
	assert_null(id->send_cq);
	assert_ok(rdma_destroy_id(id));
}

static void qp__what_is_given_is_used(void **state)
{
	struct rdma_cm_id *id = resolved_sync("127.0.0.1", htons(1));
	struct ibv_qp_init_attr attr = qp_attr();
	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
	struct ibv_cq *cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);

	(void)state;
	attr.send_cq = attr.recv_cq = cq;
	assert_ok(rdma_create_qp(id, pd, &attr));
	assert_ptr_equal(id->qp->pd, pd);
	assert_ptr_equal(id->pd, pd);
	assert_ptr_equal(id->qp->send_cq, cq);
	assert_null(id->send_cq);
	assert_null(id->recv_cq);
	rdma_destroy_qp(id);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_ok(rdma_destroy_id(id));
}

/* Each CQ and channel that the program put into the id is destroyed once, also if the QP cannot be made. */
static void destroy_with_shared(bool one_cq, uint32_t max_send_wr)
{
	struct rdma_cm_id *id = resolved_sync("127.0.0.1", htons(1));
	struct ibv_qp_init_attr attr = qp_attr();

	id->recv_cq_channel = id->send_cq_channel = ibv_create_comp_channel(id->verbs);
	int fd = id->recv_cq_channel->fd;
	id->recv_cq = ibv_create_cq(id->verbs, 8, id, id->recv_cq_channel, 0);
	id->send_cq = one_cq ? id->recv_cq : ibv_create_cq(id->verbs, 8, id, id->send_cq_channel, 0);
	attr.cap.max_send_wr = max_send_wr;
	if (rdma_create_qp(id, NULL, &attr) == 0) {
		assert_ptr_equal(id->qp->send_cq, id->send_cq);
		assert_ptr_equal(id->qp->recv_cq, id->recv_cq);
		rdma_destroy_qp(id);
	}
	assert_null(id->send_cq);
	assert_null(id->recv_cq);
	assert_null(id->send_cq_channel);
	assert_null(id->recv_cq_channel);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	assert_ok(rdma_destroy_id(id));
}

static void qp__directions_share_a_completion_queue(void **state)
{
	(void)state;
	destroy_with_shared(true, 4);
	destroy_with_shared(false, 4);
	destroy_with_shared(true, UINT32_MAX);
	destroy_with_shared(false, UINT32_MAX);
}

static void qp__foreign_protection_domain(void **state)
{
	struct rdma_cm_id *id = resolved_sync("127.0.0.1", htons(1));
	struct ibv_context *other = ibv_open_device(id->verbs->device); /* same device, another context */
	struct ibv_pd *pd = ibv_alloc_pd(other);
	struct ibv_qp_init_attr attr = qp_attr();
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 2, .max_sge = 1 } };

	(void)state;
	assert_refused(EINVAL, rdma_create_qp(id, pd, &attr));
	assert_refused(EINVAL, rdma_create_srq(id, pd, &srq));
	assert_null(id->qp);
	assert_null(id->send_cq);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(other), 0);
	assert_ok(rdma_destroy_id(id));
}

static void qp__datagram_is_ready_to_send(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_resolved(ch, "127.0.0.1", htons(1), RDMA_PS_UDP);
	struct ibv_qp_init_attr attr = qp_attr();

	(void)state;
	attr.qp_type = IBV_QPT_UD;
	assert_ok(rdma_create_qp(id, NULL, &attr));
	assert_int_equal(qp_state(id), IBV_QPS_RTS);
	rdma_destroy_qp(id);
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void srq__is_used_by_the_qp(void **state)
{
	struct rdma_cm_id *id = resolved_sync("127.0.0.1", htons(1));
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_qp_init_attr attr = qp_attr();

	(void)state;
	assert_ok(rdma_create_srq(id, NULL, &srq));
	assert_non_null(id->srq);
	assert_ptr_equal(id->srq->pd, id->pd);
	assert_true(srq.attr.max_wr >= 8);
	assert_refused(EINVAL, rdma_create_srq(id, NULL, &srq));
	assert_ok(rdma_create_qp(id, NULL, &attr));
	assert_ptr_equal(id->qp->srq, id->srq);
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	assert_null(id->srq);
	assert_ok(rdma_destroy_id(id));
}

/* An XRC domain of NULL means that of the device, as a protection domain of NULL does. */
static void srq__of_the_devices_xrc_domain(void **state)
{
	struct rdma_cm_id *id = resolved_sync("127.0.0.1", htons(1));
	struct ibv_srq_init_attr_ex srq = { .attr = { .max_wr = 8, .max_sge = 1 },
					    .srq_type = IBV_SRQT_XRC,
					    .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD };
	struct ibv_qp_init_attr_ex qp = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD };

	(void)state;
	assert_ok(rdma_create_srq_ex(id, &srq));
	assert_non_null(id->srq);
	assert_non_null(srq.xrcd);
	assert_ok(rdma_create_qp_ex(id, &qp));
	assert_ptr_equal(qp.xrcd, srq.xrcd);
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	assert_null(id->srq);
	assert_ok(rdma_destroy_id(id));
}

/* One that cannot be made leaves the completion queue of the id's QP where it is, for both directions. */
static void srq__refused_beside_a_qp(void **state)
{
	struct rdma_cm_id *id = resolved_sync("127.0.0.1", htons(1));
	struct ibv_cq *cq = ibv_create_cq(id->verbs, 8, id, NULL, 0);
	struct ibv_qp_init_attr attr = qp_attr();
	struct ibv_srq_init_attr_ex srq = { .attr = { .max_wr = UINT32_MAX, .max_sge = 1 },
					    .srq_type = IBV_SRQT_XRC,
					    .comp_mask = IBV_SRQ_INIT_ATTR_TYPE };

	(void)state;
	assert_non_null(cq);
	id->send_cq = id->recv_cq = cq;
	assert_ok(rdma_create_qp(id, NULL, &attr));
	assert_refused(EINVAL, rdma_create_srq_ex(id, &srq));
	assert_ptr_equal(id->send_cq, cq);
	assert_ptr_equal(id->recv_cq, cq);
	rdma_destroy_qp(id);
	assert_null(id->send_cq);
	assert_null(id->recv_cq);
	assert_ok(rdma_destroy_id(id));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sync__each_call_leaves_its_event),
		cmocka_unit_test(sync__refusal_is_the_calls),
		cmocka_unit_test(get_request__only_for_synchronous_listeners),
		cmocka_unit_test(sync__whole_life),
		cmocka_unit_test(sync__rejected),
		cmocka_unit_test(endpoint__whole_life),
		cmocka_unit_test(endpoint__passive_in_a_domain),
		cmocka_unit_test(endpoint__without_qp),
		cmocka_unit_test(endpoint__connect_data_goes_first),
		cmocka_unit_test(endpoint__connect_data_fits),
		cmocka_unit_test(endpoint__refusals),
		cmocka_unit_test(endpoint__occupied_port),
		cmocka_unit_test(qp__what_is_left_out_is_made),
		cmocka_unit_test(qp__what_is_given_is_used),
		cmocka_unit_test(qp__directions_share_a_completion_queue),
		cmocka_unit_test(qp__foreign_protection_domain),
		cmocka_unit_test(qp__datagram_is_ready_to_send),
		cmocka_unit_test(srq__is_used_by_the_qp),
		cmocka_unit_test(srq__of_the_devices_xrc_domain),
		cmocka_unit_test(srq__refused_beside_a_qp),
	};

	enter_own_network();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
