/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages there and back: the smallest complete RDMA program.
 *
 *     ping PORT                  the server: answers one client, then ends
 *     ping PORT ADDRESS          the client: 1000 messages, and how long one took there and back
 *
 * A message needs a receive that was posted before it arrives. So each side posts its receive for the next
 * message before it sends the message that the other side answers.
 */
#include <errno.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"

enum { ROUNDS = 1000, SIZE = 64 };

/* An endpoint is a connection's end with its queue pair and its completion queues. */
static struct rdma_cm_id *create(const char *address, const char *port)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = address ? 0 : RAI_PASSIVE },
			     *found;
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 1,
			 .max_recv_wr = 2,
			 .max_send_sge = 1,
			 .max_recv_sge = 1,
			 .max_inline_data = SIZE },
		.sq_sig_all = 1,
	};
	struct rdma_cm_id *id;
	int err = rdma_getaddrinfo(address, port, &hints, &found); /* as getaddrinfo(3) */
	if (err)
		fail("rdma_getaddrinfo", gai_strerror(err));
	check(rdma_create_ep(&id, found, NULL, &attr), "rdma_create_ep");
	rdma_freeaddrinfo(found);
	return id;
}

static void receive(struct rdma_cm_id *id)
{
	struct ibv_wc wc;
	check_completion(rdma_get_recv_comp(id, &wc), &wc, "receive");
}

/* Inline data are taken at once: the buffer may be changed as soon as the call returns. */
static void send_message(struct rdma_cm_id *id, void *message)
{
	struct ibv_wc wc;
	check(rdma_post_send(id, NULL, message, SIZE, NULL, IBV_SEND_INLINE), "rdma_post_send");
	check_completion(rdma_get_send_comp(id, &wc), &wc, "send");
}

static void serve(const char *port)
{
	char in[SIZE];
	struct rdma_cm_id *listener = create(NULL, port), *id;
	check(rdma_listen(listener, 1), "rdma_listen");
	check(rdma_get_request(listener, &id), "rdma_get_request");
	struct ibv_mr *mr = rdma_reg_msgs(id, in, sizeof(in));
	check(!mr, "rdma_reg_msgs");
	check(rdma_post_recv(id, NULL, in, SIZE, mr), "rdma_post_recv");
	check(rdma_accept(id, NULL), "rdma_accept");
	for (int i = 0; i < ROUNDS; i++) {
		char out[SIZE];
		receive(id);
		memcpy(out, in, SIZE);
		check(rdma_post_recv(id, NULL, in, SIZE, mr), "rdma_post_recv");
		send_message(id, out);
	}
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
	printf("answered %d messages\n", ROUNDS);
}

static void ping(const char *port, const char *address)
{
	char in[SIZE], out[SIZE];
	struct timespec start, end;
	struct rdma_cm_id *id = create(address, port);
	struct ibv_mr *mr = rdma_reg_msgs(id, in, sizeof(in));
	check(!mr, "rdma_reg_msgs");
	check(rdma_connect(id, NULL), "rdma_connect");
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (int i = 0; i < ROUNDS; i++) {
		memset(out, i, SIZE);
		check(rdma_post_recv(id, NULL, in, SIZE, mr), "rdma_post_recv");
		send_message(id, out);
		receive(id);
		if (memcmp(in, out, SIZE) != 0)
			fail("compare", "another message came back");
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	printf("%d messages came back, %.1f us each\n", ROUNDS,
	       ((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)) / ROUNDS / 1e3);
}

int main(int argc, char **argv)
{
	if (argc == 2)
		serve(argv[1]);
	else if (argc == 3)
		ping(argv[1], argv[2]);
	else
		fprintf(stderr, "usage: ping PORT [ADDRESS]\n");
	return argc < 2 || argc > 3;
}
