/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Flows that share a network: by RC queue pairs and by the kernel's TCP, with one of its congestion controls.
 * All ends of a run name the same KIND: rdma, or a congestion control, such as cubic or bbr.
 *
 *     flows receive KIND PORT FLOWS WARM_MS WINDOW_MS
 *         waits for so many flows, and for WARM_MS more; says what each got through in the window, if nothing, too
 *     flows send KIND HOST PORT NUMBER
 *         long messages one behind the other, for as long as somebody takes them
 *     flows ask KIND HOST PORT BYTES WARM_MS WINDOW_MS
 *         a short message now and then; says how long it took until the answer was there
 *     flows ring KIND PORT NEXT_HOST RANK RANKS BYTES ROUNDS
 *         an all-reduce of so many bytes: each rank sends to the next one; rank 0 says how long one took
 */
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pair.h"

enum {
	PIECE = 64 << 10,     /* bytes of a long message */
	SENDS = 8,            /* long messages under way in one flow */
	RECEIVES = 64,
	MAX_FLOWS = 256,
	MAX_ANSWERS = 1 << 16,
	PAUSE_US = 1000,      /* between two short messages */
	RETRY_US = 20000      /* until whoever listens is there */
};

#define RDMA "rdma"

/* One end of a connection. Nobody looks at the data, so all messages share one buffer. */
struct flow {
	int fd;                      /* TCP's */
	struct rdma_cm_id *id;       /* or NULL */
	struct ibv_mr *mr;
	void *memory;                /* PIECE bytes */
	unsigned under_way;          /* sends, of RDMA's */
};

/* The first message of a flow to the receiver. */
struct hello {
	uint32_t number;
	uint32_t answered;           /* each of its messages, of so many bytes; 0: none is */
};

static const char *kind;

static bool is_rdma(void)
{
	return strcmp(kind, RDMA) == 0;
}

/* ---- connections ---- */

static struct ibv_qp_init_attr queues(void)
{
	return (struct ibv_qp_init_attr){ .cap = { SENDS, RECEIVES, 1, 1, 0 }, .sq_sig_all = 1 };
}

static struct flow *new_flow(int fd, struct rdma_cm_id *id)
{
	struct flow *flow = calloc(1, sizeof(*flow));

	check(flow && (flow->memory = calloc(1, PIECE)), "memory");
	flow->fd = fd;
	flow->id = id;
	if (!id)
		return flow;
	flow->mr = rdma_reg_msgs(id, flow->memory, PIECE);
	check(flow->mr, "rdma_reg_msgs");
	for (int i = 0; i < RECEIVES; i++)
		check(rdma_post_recv(id, NULL, flow->memory, PIECE, flow->mr) == 0, "rdma_post_recv");
	return flow;
}

static void end_flow(struct flow *flow)
{
	if (flow->mr)
		rdma_dereg_mr(flow->mr);
	if (flow->id)
		rdma_destroy_ep(flow->id);
	else
		close(flow->fd);
	free(flow->memory);
	free(flow);
}

static int tcp_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	check(fd >= 0, "socket");
	check(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kind, (socklen_t)strlen(kind)) == 0, kind);
	check(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0, "TCP_NODELAY");
	return fd;
}

static struct flow *try_tcp(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
	int fd = tcp_socket();

	if (getaddrinfo(host, port, &hints, &found) != 0)
		die("nobody knows %s", host);
	if (connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
		close(fd);
		fd = -1;
	}
	freeaddrinfo(found);
	return fd >= 0 ? new_flow(fd, NULL) : NULL;
}

static struct rdma_cm_id *endpoint(const char *host, const char *port, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr attr = queues();
	struct rdma_cm_id *id;

	if (rdma_getaddrinfo(host, port, &hints, &found) != 0)
		die("nobody knows %s", host);
	check(rdma_create_ep(&id, found, NULL, &attr) == 0, "rdma_create_ep");
	rdma_freeaddrinfo(found);
	return id;
}

static struct rdma_conn_param connection(void)
{
	return (struct rdma_conn_param){ .retry_count = 7, .rnr_retry_count = 7 };
}

static struct flow *try_rdma(const char *host, const char *port)
{
	struct flow *flow = new_flow(-1, endpoint(host, port, 0));
	struct rdma_conn_param param = connection();

	if (rdma_connect(flow->id, &param) == 0)
		return flow;
	end_flow(flow);
	return NULL;
}

static struct flow *connect_flow(const char *host, const char *port)
{
	struct flow *flow;

	while (!(flow = is_rdma() ? try_rdma(host, port) : try_tcp(host, port)))
		usleep(RETRY_US);
	return flow;
}

/* A listening socket, or a listening id. */
struct listener {
	int fd;
	struct rdma_cm_id *id;
};

static struct listener listen_at(const char *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };
	struct listener listener = { .fd = -1 };

	if (is_rdma()) {
		listener.id = endpoint(NULL, port, RAI_PASSIVE);
		check(rdma_listen(listener.id, MAX_FLOWS) == 0, "rdma_listen");
		return listener;
	}
	listener.fd = tcp_socket();
	check(bind(listener.fd, (struct sockaddr *)&address, sizeof(address)) == 0, "bind");
	check(listen(listener.fd, MAX_FLOWS) == 0, "listen");
	return listener;
}

static struct flow *accept_flow(struct listener *listener)
{
	struct rdma_conn_param param = connection();
	struct rdma_cm_id *id;
	struct flow *flow;
	int fd;

	if (!listener->id) {
		fd = accept(listener->fd, NULL, NULL);
		check(fd >= 0, "accept");
		return new_flow(fd, NULL);
	}
	check(rdma_get_request(listener->id, &id) == 0, "rdma_get_request");
	flow = new_flow(-1, id);
	check(rdma_accept(id, &param) == 0, "rdma_accept");
	return flow;
}

/* ---- messages ---- */

static bool await_send(struct flow *flow)
{
	struct ibv_wc wc;

	if (rdma_get_send_comp(flow->id, &wc) <= 0 || wc.status != IBV_WC_SUCCESS)
		return false;
	flow->under_way--;
	return true;
}

/* One message, which may be under way still. Returns whether somebody takes it. */
static bool put(struct flow *flow, uint32_t bytes)
{
	if (!flow->id) {
		for (ssize_t n; bytes; bytes -= (uint32_t)n)
			if ((n = send(flow->fd, flow->memory, bytes, MSG_NOSIGNAL)) <= 0)
				return false;
		return true;
	}
	while (flow->under_way >= SENDS)
		if (!await_send(flow))
			return false;
	if (rdma_post_send(flow->id, NULL, flow->memory, bytes, flow->mr, 0) != 0)
		return false;
	flow->under_way++;
	return true;
}

static bool drain(struct flow *flow)
{
	while (flow->under_way)
		if (!await_send(flow))
			return false;
	return true;
}

/* A message's bytes; of TCP's, at most so many, or `all` of them. 0: nothing comes any more. */
static uint32_t take(struct flow *flow, uint32_t bytes, bool all)
{
	struct ibv_wc wc;
	ssize_t n;

	if (!flow->id) {
		n = recv(flow->fd, flow->memory, bytes, all ? MSG_WAITALL : 0);
		return n > 0 ? (uint32_t)n : 0;
	}
	if (rdma_get_recv_comp(flow->id, &wc) <= 0 || wc.status != IBV_WC_SUCCESS)
		return 0;
	check(rdma_post_recv(flow->id, NULL, flow->memory, PIECE, flow->mr) == 0, "rdma_post_recv");
	return wc.byte_len;
}

static struct flow *begin_flow(const char *host, const char *port, struct hello hello)
{
	struct flow *flow = connect_flow(host, port);

	memcpy(flow->memory, &hello, sizeof(hello));
	if (!put(flow, sizeof(hello)) || !drain(flow))
		die("%s does not listen", host);
	return flow;
}

/* ---- many to one ---- */

static _Atomic uint64_t received[MAX_FLOWS];   /* bytes, by the flow's number */
static atomic_bool streams[MAX_FLOWS];         /* is there such a flow that nobody answers? */
static atomic_uint askers;
static sem_t begun, asked;                     /* once for each flow; for each that has no more questions */

static void *serve(void *argument)
{
	struct flow *flow = argument;
	struct hello hello;

	if (take(flow, sizeof(hello), true) != sizeof(hello))
		die("a flow without a beginning");
	memcpy(&hello, flow->memory, sizeof(hello));
	if (hello.number >= MAX_FLOWS || hello.answered > PIECE)
		die("a flow with a strange beginning");
	if (hello.answered)
		askers++;
	else
		streams[hello.number] = true;
	sem_post(&begun);
	if (!hello.answered) {
		for (uint32_t n; (n = take(flow, PIECE, false));)
			received[hello.number] += n;
		return NULL;
	}
	while (take(flow, hello.answered, true) == hello.answered && put(flow, 1))
		;
	sem_post(&asked);
	return NULL;
}

static void receive(char **argv)
{
	unsigned flows = (unsigned)atoi(argv[1]);
	useconds_t warm_us = (useconds_t)atoi(argv[2]) * 1000, window_us = (useconds_t)atoi(argv[3]) * 1000;
	struct listener listener = listen_at(argv[0]);
	uint64_t before[MAX_FLOWS], begin;
	char name[64];
	pthread_t thread;
	double seconds;

	for (unsigned i = 0; i < flows; i++)
		check(pthread_create(&thread, NULL, serve, accept_flow(&listener)) == 0, "pthread_create");
	for (unsigned i = 0; i < flows; i++)
		sem_wait(&begun);
	usleep(warm_us);
	for (unsigned i = 0; i < MAX_FLOWS; i++)
		before[i] = received[i];
	begin = now_ns();
	usleep(window_us);
	seconds = (double)(now_ns() - begin) / 1e9;
	for (unsigned i = 0; i < MAX_FLOWS; i++) {
		if (!streams[i])
			continue;
		snprintf(name, sizeof(name), "flow_%u_bytes_per_s", i);
		figure(name, (double)(received[i] - before[i]) / seconds);
	}
	for (unsigned i = 0; i < askers; i++)
		sem_wait(&asked);
}

static void send_on(char **argv)
{
	struct flow *flow = begin_flow(argv[0], argv[1], (struct hello){ (uint32_t)atoi(argv[2]), 0 });

	while (put(flow, PIECE))
		;
}

static void ask(char **argv)
{
	uint32_t bytes = (uint32_t)atoi(argv[2]);
	uint64_t warm = (uint64_t)atoi(argv[3]) * 1000000, window = (uint64_t)atoi(argv[4]) * 1000000;
	struct flow *flow = begin_flow(argv[0], argv[1], (struct hello){ 0, bytes });
	static double took[MAX_ANSWERS];
	uint64_t start = now_ns(), before;
	size_t count = 0;

	while ((before = now_ns()) - start < warm + window && count < MAX_ANSWERS) {
		if (!put(flow, bytes) || !take(flow, 1, true))
			die("no answer");
		if (before - start >= warm)
			took[count++] = (double)(now_ns() - before);
		usleep(PAUSE_US);
	}
	if (!count)
		die("no answer in time");
	figure("median_ns", median(took, count));
	figure("p99_ns", took[count * 99 / 100]);    /* median() has sorted them */
	put(flow, 1);                                /* not as long as a question: the last */
}

/* ---- a ring ---- */

static struct ring {
	struct flow *next, *previous;
	uint32_t part;               /* bytes of one step */
	unsigned steps;
	sem_t may_send;              /* once for each step that has its bytes */
} ring;

static void *send_parts(void *unused)
{
	(void)unused;
	for (unsigned step = 0; step < ring.steps; step++) {
		sem_wait(&ring.may_send);
		for (uint32_t sent = 0, n; sent < ring.part; sent += n) {
			n = ring.part - sent < PIECE ? ring.part - sent : PIECE;
			if (!put(ring.next, n))
				die("the next rank takes nothing more");
		}
	}
	return NULL;
}

static void take_part(void)
{
	for (uint32_t got = 0, n; got < ring.part; got += n) {
		n = ring.part - got < PIECE ? ring.part - got : PIECE;
		if (!(n = take(ring.previous, n, false)))
			die("the rank before gives nothing more");
	}
}

/* What has come in one step is what goes in the next. */
static double all_reduce(void)
{
	uint64_t begin = now_ns();
	pthread_t sender;

	sem_post(&ring.may_send);
	check(pthread_create(&sender, NULL, send_parts, NULL) == 0, "pthread_create");
	for (unsigned step = 0; step < ring.steps; step++) {
		take_part();
		if (step + 1 < ring.steps)
			sem_post(&ring.may_send);
	}
	pthread_join(sender, NULL);
	return (double)(now_ns() - begin);
}

static void *accept_previous(void *listener)
{
	ring.previous = accept_flow(listener);
	return NULL;
}

static void go_round(char **argv)
{
	unsigned rank = (unsigned)atoi(argv[2]), ranks = (unsigned)atoi(argv[3]);
	size_t rounds = (size_t)atoi(argv[5]);
	double *took = calloc(rounds, sizeof(*took));
	struct listener listener = listen_at(argv[0]);
	pthread_t thread;

	ring.part = (uint32_t)atoi(argv[4]) / ranks;
	ring.steps = 2 * (ranks - 1);
	check(took && sem_init(&ring.may_send, 0, 0) == 0, "memory");
	check(pthread_create(&thread, NULL, accept_previous, &listener) == 0, "pthread_create");
	ring.next = connect_flow(argv[1], argv[0]);
	pthread_join(thread, NULL);
	for (size_t i = 0; i < rounds; i++)
		took[i] = all_reduce();
	/* A rank stays until the rank before it is done. */
	if (!put(ring.next, 1) || !take(ring.previous, 1, true) || !drain(ring.next))
		die("the ring has broken");
	if (rank == 0)
		figure("all_reduce_ns", median(took, rounds));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int arguments;
		void (*run)(char **argv);
	} roles[] = {
		{ "receive", 4, receive },
		{ "send", 3, send_on },
		{ "ask", 5, ask },
		{ "ring", 6, go_round },
	};

	check(sem_init(&begun, 0, 0) == 0 && sem_init(&asked, 0, 0) == 0, "semaphores");
	for (size_t i = 0; argc > 3 && i < sizeof(roles) / sizeof(roles[0]); i++)
		if (strcmp(argv[1], roles[i].name) == 0 && argc == 3 + roles[i].arguments) {
			kind = argv[2];
			roles[i].run(argv + 3);
			return 0;
		}
	die("usage: see the beginning of flows.c");
}
