/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A lock in a server's memory, taken by compare-and-swap, and a counter that it guards. The server does
 * nothing meanwhile.
 *
 *     lock PORT CLIENTS          the server: waits for so many clients, then compares the counter
 *     lock PORT ADDRESS NAME     a client: 100 times takes the lock, adds one to the counter, releases it; NAME: a number, not 0
 *
 * The word is 0, or the name of the client that holds the lock. The counter is read and written by separate
 * operations, which without the lock would lose additions of others.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { TURNS = 100, MAX_CLIENTS = 16 };

static struct {
	uint64_t lock, counter;
} shared __attribute__((aligned(8)));

struct place {
	uint64_t address;
	uint32_t rkey;
};

static struct rdma_cm_id *create(const char *address, const char *port)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = address ? 0 : RAI_PASSIVE },
			     *found;
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
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

/*
 * Each client's connection has a region of its own over the same memory: keys end with the protection domain.
 */
static struct rdma_cm_id *take_client(struct rdma_cm_id *listener, struct ibv_mr **mr)
{
	struct rdma_cm_id *id;
	check(rdma_get_request(listener, &id), "rdma_get_request");
	*mr = ibv_reg_mr(id->pd, &shared, sizeof(shared),
			 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
				 IBV_ACCESS_REMOTE_ATOMIC);
	check(!*mr, "ibv_reg_mr");
	check(rdma_post_recv(id, NULL, &shared, 0, *mr), "rdma_post_recv"); /* of a goodbye without bytes */
	struct place place = { .address = (uintptr_t)&shared, .rkey = (*mr)->rkey };
	struct rdma_conn_param param = { .private_data = &place,
					 .private_data_len = sizeof(place),
					 .responder_resources = 1,
					 .initiator_depth = 1,
					 .rnr_retry_count = 7 };
	check(rdma_accept(id, &param), "rdma_accept");
	return id;
}

static void serve(const char *port, int clients)
{
	struct rdma_cm_id *ids[MAX_CLIENTS], *listener = create(NULL, port);
	struct ibv_mr *mrs[MAX_CLIENTS];
	struct ibv_wc wc;
	if (clients < 1 || clients > MAX_CLIENTS)
		fail("CLIENTS", "a number from 1 to 16");
	check(rdma_listen(listener, MAX_CLIENTS), "rdma_listen");
	for (int i = 0; i < clients; i++)
		ids[i] = take_client(listener, &mrs[i]);
	for (int i = 0; i < clients; i++)
		check_completion(rdma_get_recv_comp(ids[i], &wc), &wc, "a client's goodbye");
	for (int i = 0; i < clients; i++) {
		rdma_disconnect(ids[i]);
		ibv_dereg_mr(mrs[i]);
		rdma_destroy_ep(ids[i]);
	}
	rdma_destroy_ep(listener);
	if (shared.lock != 0 || shared.counter != (uint64_t)clients * TURNS)
		fail("the counter", "an addition is lost");
	printf("%d clients added %llu\n", clients, (unsigned long long)shared.counter);
}

static void complete(struct rdma_cm_id *id, const char *what)
{
	struct ibv_wc wc;
	check_completion(rdma_get_send_comp(id, &wc), &wc, what);
}

/* Puts `to` into the lock's word if `from` is in it; returns what was there. */
static uint64_t swap(struct rdma_cm_id *id, const struct place *place, uint64_t from, uint64_t to,
		     uint64_t *old, struct ibv_mr *mr)
{
	struct ibv_sge sge = { .addr = (uintptr_t)old, .length = sizeof(*old), .lkey = mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
				  .wr.atomic = { .remote_addr = place->address,
						 .compare_add = from,
						 .swap = to,
						 .rkey = place->rkey } },
			   *bad;
	errno = ibv_post_send(id->qp, &wr, &bad);
	check(errno, "ibv_post_send");
	complete(id, "compare and swap");
	return *old;
}

static void add_one(struct rdma_cm_id *id, const struct place *place, uint64_t *value, struct ibv_mr *mr)
{
	uint64_t at = place->address + sizeof(uint64_t);
	check(rdma_post_read(id, NULL, value, sizeof(*value), mr, 0, at, place->rkey), "rdma_post_read");
	complete(id, "read");
	++*value;
	check(rdma_post_write(id, NULL, value, sizeof(*value), mr, 0, at, place->rkey), "rdma_post_write");
	complete(id, "write");
}

static void take_turns(const char *port, const char *address, uint64_t name)
{
	uint64_t word = 0;
	struct place place;
	struct rdma_conn_param param = {
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7
	};
	struct rdma_cm_id *id = create(address, port);
	struct ibv_mr *mr = rdma_reg_msgs(id, &word, sizeof(word));
	check(!mr, "rdma_reg_msgs");
	check(rdma_connect(id, &param), "rdma_connect");
	if (id->event->param.conn.private_data_len < sizeof(place))
		fail("the server's answer", "it does not say where the lock is");
	memcpy(&place, id->event->param.conn.private_data, sizeof(place));
	for (int i = 0; i < TURNS; i++) {
		while (swap(id, &place, 0, name, &word, mr) != 0)
			;
		add_one(id, &place, &word, mr);
		if (swap(id, &place, name, 0, &word, mr) != name)
			fail("release", "somebody else has the lock");
	}
	check(rdma_post_send(id, NULL, &word, 0, mr, 0), "rdma_post_send");
	complete(id, "goodbye");
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	printf("client %llu had its %d turns\n", (unsigned long long)name, TURNS);
}

int main(int argc, char **argv)
{
	if (argc == 3)
		serve(argv[1], atoi(argv[2]));
	else if (argc == 4 && atoi(argv[3]))
		take_turns(argv[1], argv[2], strtoull(argv[3], NULL, 10));
	else
		fprintf(stderr, "usage: lock PORT CLIENTS | lock PORT ADDRESS NAME\n");
	return argc < 3 || argc > 4;
}
