/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections through rdma_cm: from resolving an address to ESTABLISHED, WINDOW of them under way, each with
 * a queue pair; then they are all taken down again. usage: connect COUNT WINDOW CPU CPU
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>

#include "pair.h"

enum { BACKLOG = 1024, TIMEOUT_MS = 2000 };

static struct shared {
	struct meeting meeting;
	uint16_t port;
} *shared;

static unsigned count, window;
static int cpus[2];

static struct rdma_conn_param parameters = {
	.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7
};

static void make_cm_qp(struct rdma_cm_id *id)
{
	static struct ibv_pd *pd;
	static struct ibv_cq *cq;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };

	if (!pd) {
		pd = ibv_alloc_pd(id->verbs);
		cq = ibv_create_cq(id->verbs, 64, NULL, NULL, 0);
		check(pd && cq, "protection domain and completion queue");
	}
	init.send_cq = init.recv_cq = cq;
	check(rdma_create_qp(id, pd, &init) == 0, "rdma_create_qp");
}

static void take_down(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	check(rdma_destroy_id(id) == 0, "rdma_destroy_id");
}

/* Takes an event; what has to be done is done with it acknowledged. */
static enum rdma_cm_event_type next_event(struct rdma_event_channel *channel, struct rdma_cm_id **id)
{
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;

	check(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
	type = event->event;
	*id = event->id;
	if (event->status)
		die("%s: %d", rdma_event_str(type), event->status);
	rdma_ack_cm_event(event);
	return type;
}

static void serve(unsigned me)
{
	struct rdma_event_channel *channel;
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct rdma_cm_id *listener, *id;
	unsigned gone = 0;

	use_cpu(cpus[me]);
	channel = rdma_create_event_channel();
	check(channel, "rdma_create_event_channel");
	check(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	check(rdma_bind_addr(listener, (struct sockaddr *)&addr) == 0 && rdma_listen(listener, BACKLOG) == 0,
	      "rdma_listen");
	shared->port = rdma_get_src_port(listener);
	meet(&shared->meeting, 2);
	while (gone < count) {
		enum rdma_cm_event_type type = next_event(channel, &id);

		if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			make_cm_qp(id);
			check(rdma_accept(id, &parameters) == 0, "rdma_accept");
		} else if (type == RDMA_CM_EVENT_DISCONNECTED) {
			rdma_disconnect(id);
			take_down(id);
			gone++;
		} else if (type != RDMA_CM_EVENT_ESTABLISHED) {
			die("server: %s", rdma_event_str(type));
		}
	}
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(channel);
}

static void start_one(struct rdma_event_channel *channel)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				    .sin_port = shared->port };
	struct rdma_cm_id *id;

	check(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	check(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, TIMEOUT_MS) == 0, "rdma_resolve_addr");
}

/* Returns the id if it is connected now. */
static struct rdma_cm_id *advance(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id;
	enum rdma_cm_event_type type = next_event(channel, &id);

	if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
		check(rdma_resolve_route(id, TIMEOUT_MS) == 0, "rdma_resolve_route");
	} else if (type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
		make_cm_qp(id);
		check(rdma_connect(id, &parameters) == 0, "rdma_connect");
	} else if (type == RDMA_CM_EVENT_ESTABLISHED) {
		return id;
	} else {
		die("client: %s", rdma_event_str(type));
	}
	return NULL;
}

static void connect_all(struct rdma_event_channel *channel, struct rdma_cm_id **ids)
{
	unsigned started = 0;

	for (unsigned connected = 0; connected < count;) {
		for (; started < count && started - connected < window; started++)
			start_one(channel);
		ids[connected] = advance(channel);
		connected += ids[connected] != NULL;
	}
}

static void disconnect_all(struct rdma_event_channel *channel, struct rdma_cm_id **ids)
{
	struct rdma_cm_id *id;

	for (unsigned i = 0; i < count; i++)
		check(rdma_disconnect(ids[i]) == 0, "rdma_disconnect");
	for (unsigned gone = 0; gone < count;) {
		enum rdma_cm_event_type type = next_event(channel, &id);

		if (type == RDMA_CM_EVENT_DISCONNECTED) {
			take_down(id);
			gone++;
		} else if (type != RDMA_CM_EVENT_TIMEWAIT_EXIT) {
			die("client: %s", rdma_event_str(type));
		}
	}
}

static void ask(void)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id **ids = calloc(count + 1, sizeof(*ids));
	uint64_t start, connected;

	use_cpu(cpus[0]);
	channel = rdma_create_event_channel();
	check(channel && ids, "rdma_create_event_channel");
	meet(&shared->meeting, 2);
	start = now_ns();
	connect_all(channel, ids);
	connected = now_ns();
	disconnect_all(channel, ids);
	figure("connections_per_s", count / ((double)(connected - start) / 1e9));
	figure("disconnections_per_s", count / ((double)(now_ns() - connected) / 1e9));
	rdma_destroy_event_channel(channel);
	free(ids);
}

int main(int argc, char **argv)
{
	if (argc != 5)
		die("usage: connect COUNT WINDOW CPU CPU");
	count = (unsigned)atoi(argv[1]);
	window = (unsigned)atoi(argv[2]);
	cpus[0] = atoi(argv[3]);
	cpus[1] = atoi(argv[4]);
	shared = shared_memory(sizeof(*shared));
	fork_child(serve, 1);
	ask();
	await_children();
	return 0;
}
