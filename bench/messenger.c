/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests and answers as a storage messenger has them: two processes of three threads each, a connection
 * between each two of them, 16 requests of 200 bytes outstanding, and answers of one size. Over RC queue
 * pairs, threads sleep on a completion channel; over TCP, in read(2). usage: messenger rdma|tcp BYTES ANSWERS
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pair.h"

enum { THREADS = 3, OUTSTANDING = 16, REQUEST = 200, WARM_UP = 8 /* one of so many answers, before */ };

enum side { CLIENT, SERVER };

static struct shared {
	struct meeting meeting, of_threads;
	uint32_t qpn[2][THREADS];
	uint16_t port;
} *shared;

static bool is_tcp;
static size_t answer_bytes;
static unsigned answers;         /* of each thread */
static struct device device;

/* One thread's end of its connection. Slot i of `received` and of `sent` belong to request i. */
struct end {
	enum side side;
	unsigned number;
	unsigned outstanding;        /* of this connection */
	size_t receives, sends;      /* bytes of a message */
	uint8_t *received, *sent;
	pthread_t thread;

	int fd;                      /* TCP's */

	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr_received, *mr_sent;
};

static struct end ends[THREADS];

static void make_end(struct end *end, enum side side, unsigned number)
{
	*end = (struct end){ .side = side, .number = number, .fd = -1 };
	end->outstanding = OUTSTANDING / THREADS + (number < OUTSTANDING % THREADS);
	end->receives = side == CLIENT ? answer_bytes : REQUEST;
	end->sends = side == CLIENT ? REQUEST : answer_bytes;
	end->received = calloc(end->outstanding, end->receives);
	end->sent = calloc(end->outstanding, end->sends);
	check(end->received && end->sent, "memory");
	memset(end->sent, 1, end->outstanding * end->sends);
}

/* ---- RC queue pairs ---- */

static void post_receive(struct end *end, uint64_t slot)
{
	struct ibv_sge sge = { (uintptr_t)(end->received + slot * end->receives), (uint32_t)end->receives,
			       end->mr_received->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	check(ibv_post_recv(end->qp, &wr, &bad) == 0, "ibv_post_recv");
}

static void post_send(struct end *end, uint64_t slot)
{
	struct ibv_sge sge = { (uintptr_t)(end->sent + slot * end->sends), (uint32_t)end->sends,
			       end->mr_sent->lkey };
	struct ibv_send_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	check(ibv_post_send(end->qp, &wr, &bad) == 0, "ibv_post_send");
}

static void make_queues(struct end *end)
{
	unsigned depth = 2 * end->outstanding;  /* a request is sent again before its last send is polled */

	end->channel = ibv_create_comp_channel(device.context);
	check(end->channel, "ibv_create_comp_channel");
	end->cq = ibv_create_cq(device.context, (int)(2 * depth), NULL, end->channel, 0);
	end->mr_received = ibv_reg_mr(device.pd, end->received, end->outstanding * end->receives,
				      IBV_ACCESS_LOCAL_WRITE);
	end->mr_sent = ibv_reg_mr(device.pd, end->sent, end->outstanding * end->sends, 0);
	check(end->cq && end->mr_received && end->mr_sent, "completion queue and memory regions");
	end->qp = make_qp(&device, end->cq, depth, true);
	shared->qpn[end->side][end->number] = end->qp->qp_num;
	for (unsigned slot = 0; slot < end->outstanding; slot++)
		post_receive(end, slot);
}

static void connect_by_rdma(enum side side)
{
	open_device(&device);
	for (unsigned i = 0; i < THREADS; i++)
		make_queues(&ends[i]);
	meet(&shared->meeting, 2);
	for (unsigned i = 0; i < THREADS; i++)
		connect_qp(&device, ends[i].qp, shared->qpn[!side][i]);
	meet(&shared->meeting, 2);
}

/* A completion, for which the thread sleeps where none is there. */
static struct ibv_wc next_completion(struct end *end)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;

	for (bool armed = false;; armed = true) {
		int n = ibv_poll_cq(end->cq, 1, &wc);

		check(n >= 0, "ibv_poll_cq");
		if (n) {
			if (wc.status != IBV_WC_SUCCESS)
				die("%s", ibv_wc_status_str(wc.status));
			return wc;
		}
		if (armed) {
			check(ibv_get_cq_event(end->channel, &cq, &context) == 0, "ibv_get_cq_event");
			ibv_ack_cq_events(cq, 1);
		}
		check(ibv_req_notify_cq(end->cq, 0) == 0, "ibv_req_notify_cq");
	}
}

/* Waits for a message, and posts the receive of its slot again. Returns the slot. */
static uint64_t await_message(struct end *end)
{
	struct ibv_wc wc;

	do
		wc = next_completion(end);
	while (wc.opcode != IBV_WC_RECV);
	post_receive(end, wc.wr_id);
	return wc.wr_id;
}

/* ---- TCP ---- */

static int tcp_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	check(fd >= 0 && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0, "socket");
	return fd;
}

static void connect_by_tcp(enum side side)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(addr);
	int listener = -1;

	if (side == SERVER) {
		listener = tcp_socket();
		check(bind(listener, (struct sockaddr *)&addr, sizeof(addr)) == 0 &&
			      listen(listener, THREADS) == 0 &&
			      getsockname(listener, (struct sockaddr *)&addr, &length) == 0,
		      "listen");
		shared->port = addr.sin_port;
	}
	meet(&shared->meeting, 2);
	addr.sin_port = shared->port;
	for (unsigned i = 0; i < THREADS; i++)
		if (side == SERVER) {
			check((ends[i].fd = accept(listener, NULL, NULL)) >= 0, "accept");
		} else {
			ends[i].fd = tcp_socket();
			check(connect(ends[i].fd, (struct sockaddr *)&addr, sizeof(addr)) == 0, "connect");
		}
	if (side == SERVER)
		close(listener);
	meet(&shared->meeting, 2);
}

static void read_whole(int fd, uint8_t *to, size_t bytes)
{
	while (bytes) {
		ssize_t n = read(fd, to, bytes);

		check(n > 0, "read");
		to += n;
		bytes -= (size_t)n;
	}
}

static void write_whole(int fd, const uint8_t *from, size_t bytes)
{
	while (bytes) {
		ssize_t n = write(fd, from, bytes);

		check(n > 0, "write");
		from += n;
		bytes -= (size_t)n;
	}
}

/* ---- a thread ---- */

static void send_message(struct end *end, uint64_t slot)
{
	if (is_tcp)
		write_whole(end->fd, end->sent + slot * end->sends, end->sends);
	else
		post_send(end, slot);
}

/* count: of the message, the first of which is 0. Returns the slot of what is to be sent for it. */
static uint64_t receive_message(struct end *end, unsigned count)
{
	uint64_t slot = count % end->outstanding;

	if (!is_tcp)
		return await_message(end);
	read_whole(end->fd, end->received + slot * end->receives, end->receives);
	return slot;
}

/* Each answer is followed by the next request, each request by its answer. */
static void exchange(struct end *end, unsigned messages)
{
	for (unsigned slot = 0; end->side == CLIENT && slot < end->outstanding; slot++)
		send_message(end, slot);
	for (unsigned count = 0; count < messages; count++) {
		uint64_t slot = receive_message(end, count);

		if (end->side == SERVER || count + end->outstanding < messages)
			send_message(end, slot);
	}
}

static void *run_thread(void *context)
{
	struct end *end = context;
	uint64_t start;

	exchange(end, answers / WARM_UP + OUTSTANDING);
	meet(&shared->of_threads, 2 * THREADS);
	start = now_ns();
	exchange(end, answers);
	meet(&shared->of_threads, 2 * THREADS);
	if (end == ends && end->side == CLIENT)
		figure("bytes_per_s", (double)answers * THREADS * (double)answer_bytes /
					      ((double)(now_ns() - start) / 1e9));
	return NULL;
}

static void run(unsigned side)
{
	for (unsigned i = 0; i < THREADS; i++)
		make_end(&ends[i], side, i);
	(is_tcp ? connect_by_tcp : connect_by_rdma)(side);
	for (unsigned i = 1; i < THREADS; i++)
		check(pthread_create(&ends[i].thread, NULL, run_thread, &ends[i]) == 0, "pthread_create");
	run_thread(&ends[0]);
	for (unsigned i = 1; i < THREADS; i++)
		pthread_join(ends[i].thread, NULL);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		die("usage: messenger rdma|tcp BYTES ANSWERS");
	is_tcp = strcmp(argv[1], "tcp") == 0;
	answer_bytes = strtoul(argv[2], NULL, 10);
	answers = (unsigned)atoi(argv[3]) / THREADS;
	shared = shared_memory(sizeof(*shared));
	fork_child(run, SERVER);
	run(CLIENT);
	await_children();
	return 0;
}
