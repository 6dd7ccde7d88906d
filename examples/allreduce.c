/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sum over all processes of a vector, in each of them, without MPI: the ring algorithm with RDMA WRITE.
 *
 *     allreduce PORT ADDRESS RANK RANKS      one of RANKS processes; rank r listens on PORT + r at ADDRESS
 *
 * Each rank is connected to the next one, to which it writes, and to the one before, which writes to it. The
 * vector is cut into as many parts as there are ranks. In the first RANKS - 1 steps each part travels round
 * the ring and grows by everybody's share; in the next RANKS - 1 the finished parts travel round once more. A
 * write's immediate data announce it. What is written lies in a buffer per step, so nothing is overwritten
 * before it is read.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { PART = 10000, MAX_RANKS = 16, MAX_STEPS = 2 * MAX_RANKS, TRIES = 100 };

struct place {
	uint64_t address;
	uint32_t rkey;
};

static int64_t vector[MAX_RANKS][PART];
static int64_t inbox[MAX_STEPS][PART]; /* by step */

static struct rdma_cm_id *create(const char *address, int port, int passive)
{
	char service[16];
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = passive ? RAI_PASSIVE : 0 },
			     *found;
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 2, .max_recv_wr = MAX_STEPS, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
	struct rdma_cm_id *id;
	snprintf(service, sizeof(service), "%d", port);
	int err = rdma_getaddrinfo(address, service, &hints, &found); /* as getaddrinfo(3) */
	if (err)
		fail("rdma_getaddrinfo", gai_strerror(err));
	check(rdma_create_ep(&id, found, NULL, &attr), "rdma_create_ep");
	rdma_freeaddrinfo(found);
	return id;
}

/* Ranks start in any order: the next one may not listen yet. */
static struct rdma_cm_id *connect_to(const char *address, int port, struct place *place)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	for (int i = 0; i < TRIES; i++) {
		struct rdma_cm_id *id = create(address, port, 0);
		if (!rdma_connect(id, &param)) {
			if (id->event->param.conn.private_data_len < sizeof(*place))
				fail("rdma_connect", "the answer does not say where to write");
			memcpy(place, id->event->param.conn.private_data, sizeof(*place));
			return id;
		}
		rdma_destroy_ep(id);
		usleep(100000);
	}
	check(1, "rdma_connect");
	return NULL;
}

/*
 * All receives are posted before the answer: whatever the writer announces finds one. NULL: the writer has
 * given up waiting, and asks again.
 */
static struct rdma_cm_id *try_accept(struct rdma_cm_id *listener, struct ibv_mr **mr, int steps)
{
	struct rdma_cm_id *id;
	check(rdma_get_request(listener, &id), "rdma_get_request");
	*mr = rdma_reg_write(id, inbox, sizeof(inbox));
	check(!*mr, "rdma_reg_write");
	for (int i = 0; i < steps; i++)
		check(rdma_post_recv(id, NULL, inbox, 0, *mr), "rdma_post_recv");
	struct place place = { .address = (uintptr_t)inbox, .rkey = (*mr)->rkey };
	struct rdma_conn_param param = { .private_data = &place,
					 .private_data_len = sizeof(place),
					 .rnr_retry_count = 7 };
	if (!rdma_accept(id, &param))
		return id;
	check(errno != ECONNREFUSED, "rdma_accept");
	rdma_dereg_mr(*mr);
	rdma_destroy_ep(id);
	return NULL;
}

static struct rdma_cm_id *accept_from(struct rdma_cm_id *listener, struct ibv_mr **mr, int steps)
{
	struct rdma_cm_id *id;
	do
		id = try_accept(listener, mr, steps);
	while (!id);
	return id;
}

static void write_part(struct rdma_cm_id *id, int part, struct ibv_mr *mr, const struct place *place,
		       int step)
{
	struct ibv_sge sge = { .addr = (uintptr_t)vector[part],
			       .length = sizeof(vector[part]),
			       .lkey = mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				  .imm_data = htonl((uint32_t)step),
				  .wr.rdma = { .remote_addr = place->address + step * sizeof(inbox[0]),
					       .rkey = place->rkey } },
			   *bad;
	struct ibv_wc wc;
	errno = ibv_post_send(id->qp, &wr, &bad);
	check(errno, "ibv_post_send");
	check_completion(rdma_get_send_comp(id, &wc), &wc, "write");
}

static void await_step(struct rdma_cm_id *id, int step)
{
	struct ibv_wc wc;
	check_completion(rdma_get_recv_comp(id, &wc), &wc, "receive");
	if (!(wc.wc_flags & IBV_WC_WITH_IMM) || ntohl(wc.imm_data) != (uint32_t)step)
		fail("receive", "another step than was expected");
}

static void all_reduce(struct rdma_cm_id *next, struct rdma_cm_id *before, struct ibv_mr *mr,
		       const struct place *place, int rank, int ranks)
{
	for (int step = 0; step < 2 * (ranks - 1); step++) {
		int sent = (rank + 2 * ranks - step) % ranks, got = (sent + ranks - 1) % ranks;
		write_part(next, sent, mr, place, step);
		await_step(before, step);
		for (int i = 0; i < PART; i++)
			vector[got][i] = inbox[step][i] + (step < ranks - 1 ? vector[got][i] : 0);
	}
}

int main(int argc, char **argv)
{
	if (argc != 5) {
		fprintf(stderr, "usage: allreduce PORT ADDRESS RANK RANKS\n");
		return 1;
	}
	int port = atoi(argv[1]), rank = atoi(argv[3]), ranks = atoi(argv[4]), steps = 2 * (ranks - 1);
	if (ranks < 2 || ranks > MAX_RANKS || rank < 0 || rank >= ranks)
		fail("RANK and RANKS", "2 to 16 ranks, numbered from 0");
	for (int part = 0; part < ranks; part++)
		for (int i = 0; i < PART; i++)
			vector[part][i] = (int64_t)(rank + 1) * (part * PART + i);

	/*
	 * If all connected first, each would wait for the next one's answer for ever: rank 0 does, the others
	 * answer first.
	 */
	struct place place;
	struct ibv_mr *inbox_mr;
	struct rdma_cm_id *next, *before, *listener = create(argv[2], port + rank, 1);
	check(rdma_listen(listener, 1), "rdma_listen");
	if (rank == 0) {
		next = connect_to(argv[2], port + 1 % ranks, &place);
		before = accept_from(listener, &inbox_mr, steps);
	} else {
		before = accept_from(listener, &inbox_mr, steps);
		next = connect_to(argv[2], port + (rank + 1) % ranks, &place);
	}
	struct ibv_mr *mr = rdma_reg_msgs(next, vector, sizeof(vector));
	check(!mr, "rdma_reg_msgs");

	all_reduce(next, before, mr, &place, rank, ranks);

	int64_t factor = (int64_t)ranks * (ranks + 1) / 2;
	for (int part = 0; part < ranks; part++)
		for (int i = 0; i < PART; i++)
			if (vector[part][i] != factor * (part * PART + i))
				fail("the sum", "it is wrong");
	/* A disconnection is over when the other end has disconnected too: again rank 0 breaks the circle. */
	rdma_disconnect(rank == 0 ? before : next);
	rdma_disconnect(rank == 0 ? next : before);
	rdma_dereg_mr(mr);
	rdma_dereg_mr(inbox_mr);
	rdma_destroy_ep(next);
	rdma_destroy_ep(before);
	rdma_destroy_ep(listener);
	printf("rank %d of %d has the sums\n", rank, ranks);
	return 0;
}
