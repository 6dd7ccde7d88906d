/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many RC connections between two processes, all carrying data at once, then idle, then carrying data again.
 *
 * A server and a client open the same number of queue pairs and tell each other about them over TCP. Then
 * both sides do the same: in each round every QP writes a block into the peer's memory and sends a message
 * behind it, and goes on to the next round when it has its two completions and the peer's message, whose
 * bytes, and those of the block, are checked. One side can be at most one round ahead on a QP, so there are
 * two of each buffer.
 *
 * While idle, each side has an armed completion channel; the CPU time that its process uses must be below
 * MAX_IDLE_SHARE.
 *
 * usage: many -d DEVICE -g GID_INDEX -p PORT [-n CONNECTIONS] [-r ROUNDS] [-i IDLE_SECONDS] [SERVER_ADDRESS]
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	BLOCK_BYTES = 5000,    /* of a WRITE */
	MESSAGE_BYTES = 3000,  /* of a SEND */
	DEPTH = 2,             /* rounds that may be under way */
	POLL_BATCH = 64,
	PATIENCE_MS = 20000,   /* without any completion */
};

static const double MAX_IDLE_SHARE = 0.05;

/* What a QP has in registered memory. */
struct buffers {
	uint8_t block_out[DEPTH][BLOCK_BYTES], block_in[DEPTH][BLOCK_BYTES];
	uint8_t message_out[DEPTH][MESSAGE_BYTES], message_in[DEPTH][MESSAGE_BYTES];
};

/* What the peer must know of a QP, in network order. */
struct introduction {
	uint32_t qpn, psn, rkey;
	uint64_t block_in;
	uint8_t gid[16];
} __attribute__((packed));

struct connection {
	struct ibv_qp *qp;
	struct introduction peer;
	unsigned sent, received;  /* rounds begun, rounds checked */
	unsigned open;            /* sends and writes without completion */
};

static struct {
	const char *device, *server;
	int gid_index, port;
	unsigned count, rounds, idle_s;
} options = { .count = 1000, .rounds = 5, .idle_s = 4, .port = 18600 };

static int tcp;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct buffers *buffers;
static struct connection *connections;
static enum ibv_mtu mtu;
static union ibv_gid own_gid;

static __attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "many: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	exit(1);
}

static void check(bool good, const char *what)
{
	if (!good)
		fail("%s: %s", what, strerror(errno));
}

static double now_s(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- the TCP connection ---- */

static void tcp_connect(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons((uint16_t)options.port) };
	int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);

	if (options.server) {
		inet_pton(AF_INET, options.server, &addr.sin_addr);
		tcp = listener;
		check(connect(tcp, (struct sockaddr *)&addr, sizeof(addr)) == 0, "connect");
	} else {
		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		check(bind(listener, (struct sockaddr *)&addr, sizeof(addr)) == 0, "bind");
		check(listen(listener, 1) == 0, "listen");
		tcp = accept(listener, NULL, NULL);
		check(tcp >= 0, "accept");
		close(listener);
	}
	setsockopt(tcp, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static void tcp_exchange(const void *out, void *in, size_t len)
{
	char *to = in;

	for (size_t done = 0; done < len;) {
		ssize_t n = send(tcp, (const char *)out + done, len - done, MSG_NOSIGNAL);
		check(n > 0, "send to the peer");
		done += (size_t)n;
	}
	for (size_t done = 0; done < len;) {
		ssize_t n = recv(tcp, to + done, len - done, 0);
		if (n == 0)
			fail("the peer has gone");
		check(n > 0, "recv from the peer");
		done += (size_t)n;
	}
}

static void barrier(void)
{
	char out = 'b', in;

	tcp_exchange(&out, &in, 1);
}

/* ---- patterns ---- */

/* A byte of what a side puts into a block or message. */
static uint8_t pattern(bool server, bool block, unsigned number, unsigned round, unsigned at)
{
	uint32_t x = number * 2654435761u + round * 40503u + at * 97u + (server ? 0x5a5a5u : 0) +
		     (block ? 77777u : 0);

	return (uint8_t)(x >> 7 ^ x >> 17);
}

static void fill(uint8_t *bytes, unsigned len, bool block, unsigned number, unsigned round)
{
	for (unsigned at = 0; at < len; at++)
		bytes[at] = pattern(!options.server, block, number, round, at);
}

static void verify(const uint8_t *bytes, unsigned len, bool block, unsigned number, unsigned round)
{
	for (unsigned at = 0; at < len; at++)
		if (bytes[at] != pattern(options.server, block, number, round, at))
			fail("connection %u, round %u: byte %u of the %s is wrong", number, round, at,
			     block ? "block" : "message");
}

/* ---- set-up ---- */

static void open_device(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_port_attr port;

	for (int i = 0; i < count && !context; i++)
		if (strcmp(ibv_get_device_name(list[i]), options.device) == 0)
			context = ibv_open_device(list[i]);
	if (!context)
		fail("no device %s", options.device);
	ibv_free_device_list(list);
	check(ibv_query_port(context, 1, &port) == 0, "ibv_query_port");
	mtu = port.active_mtu;
	check(ibv_query_gid(context, 1, options.gid_index, &own_gid) == 0, "ibv_query_gid");
}

static void make_objects(void)
{
	size_t bytes = options.count * sizeof(*buffers);

	buffers = calloc(1, bytes);
	connections = calloc(options.count, sizeof(*connections));
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	check(buffers && connections && pd && channel, "set-up");
	mr = ibv_reg_mr(pd, buffers, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	cq = ibv_create_cq(context, (int)options.count * 3 * DEPTH, NULL, channel, 0);
	check(mr && cq, "memory region and completion queue");
}

static void post_receive(unsigned number, unsigned slot)
{
	struct ibv_sge sge = { (uintptr_t)buffers[number].message_in[slot], MESSAGE_BYTES, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = number, .sg_list = &sge, .num_sge = 1 }, *bad;

	check(ibv_post_recv(connections[number].qp, &wr, &bad) == 0, "ibv_post_recv");
}

static void make_qp(unsigned number, struct introduction *about)
{
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1,
					 .cap = { .max_send_wr = 2 * DEPTH,
						  .max_recv_wr = DEPTH,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	check(qp, "ibv_create_qp");
	check(ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
	      "to INIT");
	connections[number].qp = qp;
	for (unsigned slot = 0; slot < DEPTH; slot++)
		post_receive(number, slot);
	*about = (struct introduction){ .qpn = htonl(qp->qp_num),
					.psn = htonl(number * 7919 & 0xffffff),
					.rkey = htonl(mr->rkey),
					.block_in = htobe64((uintptr_t)buffers[number].block_in) };
	memcpy(about->gid, own_gid.raw, sizeof(about->gid));
}

static void connect_qp(struct connection *connection, const struct introduction *own)
{
	const struct introduction *peer = &connection->peer;
	struct ibv_qp_attr to_receive = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu,
		.dest_qp_num = ntohl(peer->qpn),
		.rq_psn = ntohl(peer->psn),
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .hop_limit = 64, .sgid_index = (uint8_t)options.gid_index } }
	};
	struct ibv_qp_attr to_send = { .qp_state = IBV_QPS_RTS,
				       .sq_psn = ntohl(own->psn),
				       .timeout = 18,
				       .retry_cnt = 7,
				       .rnr_retry = 7,
				       .max_rd_atomic = 1 };

	memcpy(to_receive.ah_attr.grh.dgid.raw, peer->gid, sizeof(peer->gid));
	check(ibv_modify_qp(connection->qp, &to_receive,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
	      "to RTR");
	check(ibv_modify_qp(connection->qp, &to_send,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
	      "to RTS");
}

static void connect_all(void)
{
	struct introduction *own = calloc(options.count, sizeof(*own)),
			    *peers = calloc(options.count, sizeof(*peers));

	check(own && peers, "memory");
	for (unsigned i = 0; i < options.count; i++)
		make_qp(i, &own[i]);
	tcp_exchange(own, peers, options.count * sizeof(*own));
	for (unsigned i = 0; i < options.count; i++) {
		connections[i].peer = peers[i];
		connect_qp(&connections[i], &own[i]);
	}
	free(own);
	free(peers);
	barrier();
}

/* ---- rounds ---- */

static void begin_round(unsigned number)
{
	struct connection *connection = &connections[number];
	unsigned round = connection->sent++, slot = round % DEPTH;
	struct buffers *b = &buffers[number];
	struct ibv_sge block = { (uintptr_t)b->block_out[slot], BLOCK_BYTES, mr->lkey };
	struct ibv_sge message = { (uintptr_t)b->message_out[slot], MESSAGE_BYTES, mr->lkey };
	struct ibv_send_wr send = {
		.wr_id = number, .sg_list = &message, .num_sge = 1, .opcode = IBV_WR_SEND
	};
	struct ibv_send_wr write = { .wr_id = number,
				     .next = &send,
				     .sg_list = &block,
				     .num_sge = 1,
				     .opcode = IBV_WR_RDMA_WRITE,
				     .wr.rdma = { .remote_addr = be64toh(connection->peer.block_in) +
								 slot * BLOCK_BYTES,
						  .rkey = ntohl(connection->peer.rkey) } };
	struct ibv_send_wr *bad;

	fill(b->block_out[slot], BLOCK_BYTES, true, number, round);
	fill(b->message_out[slot], MESSAGE_BYTES, false, number, round);
	connection->open += 2;
	check(ibv_post_send(connection->qp, &write, &bad) == 0, "ibv_post_send");
}

static void received(unsigned number, const struct ibv_wc *wc)
{
	struct connection *connection = &connections[number];
	unsigned round = connection->received++, slot = round % DEPTH;

	if (wc->byte_len != MESSAGE_BYTES)
		fail("connection %u, round %u: %u bytes came", number, round, wc->byte_len);
	verify(buffers[number].message_in[slot], MESSAGE_BYTES, false, number, round);
	verify(buffers[number].block_in[slot], BLOCK_BYTES, true, number, round);
	post_receive(number, slot);
}

/* Returns true when this completion was the last of its connection. */
static bool complete(const struct ibv_wc *wc, unsigned last_round)
{
	unsigned number = (unsigned)wc->wr_id;
	struct connection *connection = &connections[number];

	if (wc->status != IBV_WC_SUCCESS)
		fail("connection %u: %s", number, ibv_wc_status_str(wc->status));
	if (wc->opcode & IBV_WC_RECV)
		received(number, wc);
	else
		connection->open--;
	if (connection->open || connection->received < connection->sent)
		return false;
	if (connection->sent == last_round)
		return true;
	begin_round(number);
	return false;
}

static void wait_for_event(void)
{
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *event_cq;
	void *cq_context;

	if (poll(&p, 1, PATIENCE_MS) <= 0)
		fail("no event for %d ms", PATIENCE_MS);
	check(ibv_get_cq_event(channel, &event_cq, &cq_context) == 0, "ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
}

static void carry(unsigned rounds, bool by_events)
{
	unsigned last_round = connections[0].sent + rounds, finished = 0;
	double start = now_s(CLOCK_MONOTONIC), heard = start;
	struct ibv_wc wc[POLL_BATCH];

	for (unsigned i = 0; i < options.count; i++)
		begin_round(i);
	while (finished < options.count) {
		if (by_events)
			check(ibv_req_notify_cq(cq, 0) == 0, "ibv_req_notify_cq");
		int n = ibv_poll_cq(cq, POLL_BATCH, wc);
		check(n >= 0, "ibv_poll_cq");
		for (int i = 0; i < n; i++)
			finished += complete(&wc[i], last_round);
		if (n)
			heard = now_s(CLOCK_MONOTONIC);
		else if (by_events)
			wait_for_event();
		else if (now_s(CLOCK_MONOTONIC) - heard > PATIENCE_MS / 1000)
			fail("no completion for %d ms, %u of %u connections have finished", PATIENCE_MS,
			     finished, options.count);
	}
	double took = now_s(CLOCK_MONOTONIC) - start;
	printf("%u connections, %u rounds, %s: %.2f s, %.1f MB/s each way\n", options.count, rounds,
	       by_events ? "by events" : "polling", took,
	       (double)options.count * rounds * (BLOCK_BYTES + MESSAGE_BYTES) / took / 1e6);
	barrier();
}

static void idle(void)
{
	check(ibv_req_notify_cq(cq, 0) == 0, "ibv_req_notify_cq");
	barrier();
	sleep(1);  /* what still had to be acknowledged has been */
	double before = now_s(CLOCK_PROCESS_CPUTIME_ID), start = now_s(CLOCK_MONOTONIC);
	sleep(options.idle_s);
	double used = now_s(CLOCK_PROCESS_CPUTIME_ID) - before,
	       share = used / (now_s(CLOCK_MONOTONIC) - start);
	printf("%u idle connections: %.2f ms of CPU time in %u s (%.3f %%)\n", options.count, used * 1e3,
	       options.idle_s, share * 100);
	if (share > MAX_IDLE_SHARE)
		fail("idle connections use CPU time");
	barrier();
}

static void close_all(void)
{
	for (unsigned i = 0; i < options.count; i++)
		check(ibv_destroy_qp(connections[i].qp) == 0, "ibv_destroy_qp");
	check(ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0 && ibv_dereg_mr(mr) == 0 &&
	      ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0, "the end");
	free(buffers);
	free(connections);
}

static void parse(int argc, char **argv)
{
	for (int option; (option = getopt(argc, argv, "d:g:p:n:r:i:")) != -1;) {
		switch (option) {
		case 'd': options.device = optarg; break;
		case 'g': options.gid_index = atoi(optarg); break;
		case 'p': options.port = atoi(optarg); break;
		case 'n': options.count = (unsigned)atoi(optarg); break;
		case 'r': options.rounds = (unsigned)atoi(optarg); break;
		case 'i': options.idle_s = (unsigned)atoi(optarg); break;
		default: exit(2);
		}
	}
	options.server = argv[optind];
	if (!options.device || !options.count || !options.rounds)
		fail("needs a device, connections and rounds");
}

int main(int argc, char **argv)
{
	parse(argc, argv);
	setvbuf(stdout, NULL, _IOLBF, 0);
	tcp_connect();
	open_device();
	make_objects();
	connect_all();
	carry(options.rounds, false);
	idle();
	carry(options.rounds, true);
	close_all();
	printf("all data right\n");
	return 0;
}
