/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One of two programs that are connected, for killed.py: what its peer's end does to it. It says "ready",
 * "connected" once all its connections are, and "disconnected" once all have been told so. Then it
 * disconnects each, as a program should, and says "flushed" when nothing of what was posted is left.
 *
 * Words on its standard input: "write" writes into the peer's memory by each connection and says "written";
 * "hang" sends what the peer has no receive for; "stream" keeps its connections busy with WRITEs.
 *
 * usage: killed serve|connect ADDRESS PORT [CONNECTIONS]
 */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

enum { TIMEOUT_MS = 10000, DEPTH = 16, BYTES = 65536, MAX_CONNECTIONS = 4096 };

struct memory {
	uint64_t addr;
	uint32_t rkey;
} __attribute__((packed));

struct connection {
	struct rdma_cm_id *id;
	struct memory peer;
	unsigned open; /* requests without completion */
};

static struct {
	struct rdma_event_channel *events;
	struct ibv_comp_channel *completions;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct connection connections[MAX_CONNECTIONS];
	unsigned wanted, made, connected, disconnected, open;
	bool streams, writes;
} here = { .wanted = 1 };

static uint8_t memory[BYTES];

__attribute__((format(printf, 2, 3))) static void must(bool ok, const char *format, ...)
{
	va_list args;
	if (ok)
		return;
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf(": %s\n", strerror(errno));
	exit(1);
}

static void say(const char *what)
{
	puts(what);
	fflush(stdout);
}

/* ---- requests ---- */

static void post(struct connection *c, enum ibv_wr_opcode opcode)
{
	struct ibv_sge piece = { (uintptr_t)memory, BYTES, here.mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = (uintptr_t)c,
					.sg_list = &piece,
					.num_sge = 1,
					.opcode = opcode,
					.send_flags = IBV_SEND_SIGNALED,
					.wr.rdma = { c->peer.addr, c->peer.rkey } };
	errno = ibv_post_send(c->id->qp, &wr, &bad);
	must(!errno, "ibv_post_send");
	c->open++;
	here.open++;
}

static void completed(const struct ibv_wc *wc)
{
	struct connection *c = (struct connection *)(uintptr_t)wc->wr_id;
	c->open--;
	here.open--;
	if (wc->status == IBV_WC_SUCCESS && here.streams)
		post(c, IBV_WR_RDMA_WRITE);
	else if (wc->status != IBV_WC_SUCCESS && here.disconnected < here.connected)
		printf("completion: %s\n", ibv_wc_status_str(wc->status));
	if (here.writes && !here.open)
		say("written");
	here.writes &= here.open > 0;
}

static void take_completions(void)
{
	struct ibv_wc wc[DEPTH];
	int n;
	while ((n = ibv_poll_cq(here.cq, DEPTH, wc)) > 0)
		for (int i = 0; i < n; i++)
			completed(&wc[i]);
	must(n == 0, "ibv_poll_cq");
}

static void take_completion_event(void)
{
	struct ibv_cq *cq;
	void *context;
	must(!ibv_get_cq_event(here.completions, &cq, &context), "ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
	must(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
	take_completions();
}

/* ---- connections ---- */

static void open_device(struct ibv_context *device)
{
	if (here.pd)
		return;
	here.pd = ibv_alloc_pd(device);
	must(here.pd, "ibv_alloc_pd");
	here.mr = ibv_reg_mr(here.pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	must(here.mr, "ibv_reg_mr");
	here.completions = ibv_create_comp_channel(device);
	must(here.completions, "ibv_create_comp_channel");
	here.cq = ibv_create_cq(device, (int)here.wanted * DEPTH, NULL, here.completions, 0);
	must(here.cq, "ibv_create_cq");
	must(!ibv_req_notify_cq(here.cq, 0), "ibv_req_notify_cq");
}

static struct connection *adopt(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC
	};
	struct connection *c = &here.connections[here.made++];
	must(here.made <= here.wanted, "one connection too many");
	open_device(id->verbs);
	attr.send_cq = attr.recv_cq = here.cq;
	must(!rdma_create_qp(id, here.pd, &attr), "rdma_create_qp");
	c->id = id;
	id->context = c;
	return c;
}

static struct rdma_conn_param parameters(struct memory *own)
{
	*own = (struct memory){ (uintptr_t)memory, here.mr->rkey };
	return (struct rdma_conn_param){
		.private_data = own, .private_data_len = sizeof *own, .retry_count = 7, .rnr_retry_count = 7
	};
}

static void accept_one(struct rdma_cm_id *id, const struct rdma_conn_param *said)
{
	struct connection *c = adopt(id);
	struct memory own;
	struct rdma_conn_param param = parameters(&own);
	memcpy(&c->peer, said->private_data, sizeof c->peer);
	must(!rdma_accept(id, &param), "rdma_accept");
}

static void connect_one(struct rdma_cm_id *id)
{
	struct memory own;
	struct rdma_conn_param param;
	adopt(id);
	param = parameters(&own);
	must(!rdma_connect(id, &param), "rdma_connect");
}

static void established(struct connection *c, const struct rdma_conn_param *said)
{
	if (said->private_data)
		memcpy(&c->peer, said->private_data, sizeof c->peer);
	if (++here.connected == here.wanted)
		say("connected");
}

static void take_event(void)
{
	struct rdma_cm_event *e;
	must(!rdma_get_cm_event(here.events, &e), "rdma_get_cm_event");
	struct rdma_cm_id *id = e->id;
	switch (e->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		must(!rdma_resolve_route(id, TIMEOUT_MS), "rdma_resolve_route");
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		connect_one(id);
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		accept_one(id, &e->param.conn);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		established(id->context, &e->param.conn);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		if (++here.disconnected == here.connected)
			say("disconnected");
		must(!rdma_disconnect(id), "rdma_disconnect");
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		must(false, "%s, status %d", rdma_event_str(e->event), e->status);
	}
	rdma_ack_cm_event(e);
}

static struct sockaddr *address(const char *host, const char *port)
{
	struct addrinfo *found, hints = { .ai_flags = AI_NUMERICHOST };
	must(!getaddrinfo(host, port, &hints, &found), "getaddrinfo");
	return found->ai_addr;
}

static void begin(bool serves, struct sockaddr *addr)
{
	struct rdma_cm_id *id;
	for (unsigned i = 0; i < (serves ? 1 : here.wanted); i++) {
		must(!rdma_create_id(here.events, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
		if (serves)
			must(!rdma_bind_addr(id, addr) && !rdma_listen(id, (int)here.wanted), "rdma_listen");
		else
			must(!rdma_resolve_addr(id, NULL, addr, TIMEOUT_MS), "rdma_resolve_addr");
	}
}

/* ---- commands ---- */

static void post_on_all(enum ibv_wr_opcode opcode, unsigned times)
{
	for (unsigned i = 0; i < here.made; i++)
		for (unsigned n = 0; n < times; n++)
			post(&here.connections[i], opcode);
}

static bool take_command(void)
{
	char word[16];
	if (!fgets(word, sizeof word, stdin))
		return false;
	here.writes = word[0] == 'w';
	here.streams = !strcmp(word, "stream\n");
	post_on_all(word[0] == 'h' ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, here.streams ? DEPTH : 1);
	return true;
}

static bool is_flushed(void) { return here.connected && here.disconnected == here.connected && !here.open; }

int main(int argc, char **argv)
{
	must(argc >= 4, "usage: killed serve|connect ADDRESS PORT [CONNECTIONS]");
	bool was_flushed = false;
	if (argc > 4)
		here.wanted = (unsigned)atoi(argv[4]);
	must(here.wanted && here.wanted <= MAX_CONNECTIONS, "connections");
	here.events = rdma_create_event_channel();
	must(here.events, "rdma_create_event_channel");
	begin(argv[1][0] == 's', address(argv[2], argv[3]));
	say("ready");
	for (;;) {
		struct pollfd fds[] = { { STDIN_FILENO, POLLIN, 0 }, { here.events->fd, POLLIN, 0 },
					{ here.completions ? here.completions->fd : -1, POLLIN, 0 } };
		must(poll(fds, 3, -1) > 0 || errno == EINTR, "poll");
		if (fds[2].revents)
			take_completion_event();
		if (fds[1].revents)
			take_event();
		if (here.cq)
			take_completions();
		if (is_flushed() && !was_flushed)
			say("flushed");
		was_flushed = is_flushed();
		if (fds[0].revents && !take_command())
			return 0;
	}
}
