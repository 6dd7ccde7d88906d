/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server and so many clients that come at once, each a process that connects through rdma_cm, as those of a
 * key-value server do. Both sides register regions for each connection; the client writes a few values into
 * the server's, tells of each by a message, and gets an answer; then both take down all that they made.
 * usage: clients COUNT
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_verbs.h>
#include <stdlib.h>
#include <string.h>

#include "pair.h"

enum { MAX_CLIENTS = 1024, MESSAGES = 4, VALUE = 4096, TIMEOUT_MS = 10000 };

/* What the server says of a connection's values when it accepts. */
struct offer {
	uint64_t address;
	uint32_t rkey;
};

static struct shared {
	struct meeting meeting;
	uint16_t port;
} *shared;

static unsigned count;

/* One side's memory of a connection: value i goes with message i, which is its number. */
struct connection {
	uint8_t values[MESSAGES][VALUE];
	uint32_t in[MESSAGES], out[MESSAGES];
	struct ibv_mr *values_mr, *in_mr, *out_mr;
	uint32_t received;
};

static struct ibv_qp_init_attr queues(void)
{
	return (struct ibv_qp_init_attr){ .qp_type = IBV_QPT_RC, .cap = { 2 * MESSAGES, MESSAGES, 1, 1, 0 } };
}

static struct connection *new_connection(struct rdma_cm_id *id)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	check(connection, "memory");
	id->context = connection;
	connection->values_mr = rdma_reg_write(id, connection->values, sizeof(connection->values));
	connection->in_mr = rdma_reg_msgs(id, connection->in, sizeof(connection->in));
	connection->out_mr = rdma_reg_msgs(id, connection->out, sizeof(connection->out));
	check(connection->values_mr && connection->in_mr && connection->out_mr, "memory regions");
	for (unsigned i = 0; i < MESSAGES; i++)
		check(rdma_post_recv(id, id, &connection->in[i], sizeof(connection->in[i]),
				     connection->in_mr) == 0,
		      "rdma_post_recv");
	return connection;
}

static void send_number(struct rdma_cm_id *id, uint32_t number)
{
	struct connection *connection = id->context;

	connection->out[number] = number;
	check(rdma_post_send(id, id, &connection->out[number], sizeof(connection->out[number]),
			     connection->out_mr, 0) == 0,
	      "rdma_post_send");
}

static void received(struct connection *connection, uint32_t number)
{
	if (connection->in[number] != number)
		die("message %u says %u", number, connection->in[number]);
	connection->received++;
}

static void take_down(struct rdma_cm_id *id)
{
	struct connection *connection = id->context;

	rdma_destroy_qp(id);
	check(rdma_dereg_mr(connection->values_mr) == 0 && rdma_dereg_mr(connection->in_mr) == 0 &&
		      rdma_dereg_mr(connection->out_mr) == 0,
	      "rdma_dereg_mr");
	check(rdma_destroy_id(id) == 0, "rdma_destroy_id");
	free(connection);
}

/* ---- the server ---- */

static struct {
	struct rdma_event_channel *events;
	struct ibv_pd *pd;
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq;
	unsigned gone;
} server;

static void make_queue(struct ibv_context *context)
{
	server.pd = ibv_alloc_pd(context);
	server.completions = ibv_create_comp_channel(context);
	check(server.pd && server.completions, "protection domain and completion channel");
	server.cq = ibv_create_cq(context, (int)(count * 3 * MESSAGES), NULL, server.completions, 0);
	check(server.cq && ibv_req_notify_cq(server.cq, 0) == 0, "completion queue");
}

static void accept_one(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = queues();
	struct connection *connection;

	if (!server.cq)
		make_queue(id->verbs);
	init.send_cq = init.recv_cq = server.cq;
	check(rdma_create_qp(id, server.pd, &init) == 0, "rdma_create_qp");
	connection = new_connection(id);

	struct offer offer = { (uintptr_t)connection->values, connection->values_mr->rkey };
	struct rdma_conn_param parameters = { .private_data = &offer,
					      .private_data_len = sizeof(offer),
					      .rnr_retry_count = 7 };

	check(rdma_accept(id, &parameters) == 0, "rdma_accept");
}

static void take_event(void)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	enum rdma_cm_event_type type;

	check(rdma_get_cm_event(server.events, &event) == 0, "rdma_get_cm_event");
	type = event->event;
	id = event->id;
	rdma_ack_cm_event(event);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		accept_one(id);
	} else if (type == RDMA_CM_EVENT_DISCONNECTED) {
		rdma_disconnect(id);
		take_down(id);
		server.gone++;
	} else if (type != RDMA_CM_EVENT_ESTABLISHED && type != RDMA_CM_EVENT_TIMEWAIT_EXIT) {
		die("server: %s", rdma_event_str(type));
	}
}

/* A request: the value that it tells of is there. */
static void answer(struct rdma_cm_id *id)
{
	struct connection *connection = id->context;
	uint32_t number = connection->received;
	const uint8_t *value = connection->values[number];

	received(connection, number);
	if (value[0] != number + 1 || value[VALUE - 1] != number + 1)
		die("value %u is not there", number);
	send_number(id, number);
}

static void take_completions(void)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;

	check(ibv_get_cq_event(server.completions, &cq, &context) == 0, "ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
	check(ibv_req_notify_cq(cq, 0) == 0, "ibv_req_notify_cq");
	while (ibv_poll_cq(cq, 1, &wc) > 0)
		if (wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV)
			answer((void *)(uintptr_t)wc.wr_id);
		else if (wc.status != IBV_WC_SUCCESS && wc.status != IBV_WC_WR_FLUSH_ERR)
			die("server: %s", ibv_wc_status_str(wc.status));
}

static void serve(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct rdma_cm_id *listener;
	uint64_t start;

	server.events = rdma_create_event_channel();
	check(server.events, "rdma_create_event_channel");
	check(rdma_create_id(server.events, &listener, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	check(rdma_bind_addr(listener, (struct sockaddr *)&addr) == 0 &&
		      rdma_listen(listener, (int)count) == 0,
	      "rdma_listen");
	shared->port = rdma_get_src_port(listener);
	meet(&shared->meeting, count + 1);
	start = now_ns();
	while (server.gone < count) {
		struct pollfd looks[] = { { .fd = server.events->fd, .events = POLLIN },
					  { .fd = server.completions ? server.completions->fd : -1,
					    .events = POLLIN } };

		if (poll(looks, 2, TIMEOUT_MS) <= 0)
			die("server: nothing comes");
		if (looks[1].revents)
			take_completions();
		if (looks[0].revents)
			take_event();
	}
	figure("connections_per_s", count / ((double)(now_ns() - start) / 1e9));
	meet(&shared->meeting, count + 1);
}

/* ---- a client ---- */

static struct rdma_cm_id *connect_to_server(struct offer *offer)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				    .sin_port = shared->port };
	struct rdma_conn_param parameters = { .retry_count = 7, .rnr_retry_count = 7 };
	struct ibv_qp_init_attr init = queues();
	struct rdma_cm_id *id;

	check(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	check(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, TIMEOUT_MS) == 0, "rdma_resolve_addr");
	check(rdma_resolve_route(id, TIMEOUT_MS) == 0, "rdma_resolve_route");
	check(rdma_create_qp(id, NULL, &init) == 0, "rdma_create_qp");
	new_connection(id);
	check(rdma_connect(id, &parameters) == 0, "rdma_connect");
	memcpy(offer, id->event->param.conn.private_data, sizeof(*offer));
	return id;
}

static void put(struct rdma_cm_id *id, const struct offer *offer, uint32_t number)
{
	struct connection *connection = id->context;
	struct ibv_wc wc;

	memset(connection->values[number], (int)number + 1, VALUE);
	check(rdma_post_write(id, id, connection->values[number], VALUE, connection->values_mr, 0,
			      offer->address + number * VALUE, offer->rkey) == 0,
	      "rdma_post_write");
	send_number(id, number);
	check(rdma_get_recv_comp(id, &wc) == 1, "rdma_get_recv_comp");
	if (wc.status != IBV_WC_SUCCESS)
		die("client: %s", ibv_wc_status_str(wc.status));
	received(connection, number);
}

static void ask(unsigned me)
{
	struct offer offer;
	struct rdma_cm_id *id;
	int devices;

	(void)me;
	check(rdma_get_devices(&devices) != NULL, "rdma_get_devices");
	meet(&shared->meeting, count + 1);
	id = connect_to_server(&offer);
	for (uint32_t number = 0; number < MESSAGES; number++)
		put(id, &offer, number);
	check(rdma_disconnect(id) == 0, "rdma_disconnect");
	take_down(id);
	meet(&shared->meeting, count + 1);  /* the end of a process is not measured */
}

int main(int argc, char **argv)
{
	count = argc == 2 ? (unsigned)atoi(argv[1]) : 0;
	if (count < 1 || count > MAX_CLIENTS)
		die("usage: clients COUNT");
	shared = shared_memory(sizeof(*shared));
	for (unsigned number = 0; number < count; number++)
		fork_child(ask, number);
	serve();
	await_children();
	return 0;
}
