/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A key-value store whose server does nothing for a lookup: clients read its table with RDMA READ.
 *
 *     kv PORT                    the server: holds the squares of 0 to 999, serves one client, then ends
 *     kv PORT ADDRESS            the client: looks all of them up, and one that is not there
 *
 * The server's answer to a connection carries what a client needs to read: where the table is and its key. A
 * slot has a version that is odd while the server writes: a reader that sees it odd, or different before and
 * after, reads again.
 */
#include <errno.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { SLOTS = 4096, KEYS = 1000, EMPTY = 0 };

struct slot {
	_Atomic uint64_t version;      /* EMPTY: never used; odd: being written */
	uint64_t key, value;
	_Atomic uint64_t version_again;
};

/* What the server tells in its answer. Both ends are taken to have the same byte order. */
struct place {
	uint64_t address;
	uint32_t rkey, slots;
};

static struct slot table[SLOTS];

static uint32_t hash(uint64_t key)
{
	return (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 40) % SLOTS;
}

/* Linear probing: the first free slot from the hash on, or the key's own. */
static void put(uint64_t key, uint64_t value)
{
	uint32_t i = hash(key);
	while (table[i].version != EMPTY && table[i].key != key)
		i = (i + 1) % SLOTS;
	uint64_t next = table[i].version + 2;
	table[i].version = next - 1;
	atomic_thread_fence(memory_order_release); /* odd before anything else changes */
	table[i].key = key;
	table[i].value = value;
	table[i].version_again = next;
	table[i].version = next;
}

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

static void serve(const char *port)
{
	char nothing[1];
	struct ibv_wc wc;
	for (uint64_t key = 0; key < KEYS; key++)
		put(key, key * key);
	struct rdma_cm_id *listener = create(NULL, port), *id;
	check(rdma_listen(listener, 1), "rdma_listen");
	check(rdma_get_request(listener, &id), "rdma_get_request");
	struct ibv_mr *mr = rdma_reg_read(id, table, sizeof(table)), *msg = rdma_reg_msgs(id, nothing, 1);
	check(!mr || !msg, "register");
	check(rdma_post_recv(id, NULL, nothing, 1, msg), "rdma_post_recv");
	struct place place = { .address = (uintptr_t)table, .rkey = mr->rkey, .slots = SLOTS };
	struct rdma_conn_param param = { .private_data = &place,
					 .private_data_len = sizeof(place),
					 .responder_resources = 1,
					 .initiator_depth = 1,
					 .rnr_retry_count = 7 };
	check(rdma_accept(id, &param), "rdma_accept");
	check_completion(rdma_get_recv_comp(id, &wc), &wc, "the client's goodbye"); /* sleeps until then */
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_dereg_mr(msg);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
	printf("served %d keys\n", KEYS);
}

static void read_slot(struct rdma_cm_id *id, const struct place *place, uint32_t i, struct slot *slot,
		      struct ibv_mr *mr)
{
	struct ibv_wc wc;
	do {
		check(rdma_post_read(id, NULL, slot, sizeof(*slot), mr, 0, place->address + i * sizeof(*slot),
				     place->rkey),
		      "rdma_post_read");
		check_completion(rdma_get_send_comp(id, &wc), &wc, "read");
	} while (slot->version % 2 || (slot->version != EMPTY && slot->version != slot->version_again));
}

/* 1 and the value, or 0. */
static int get(struct rdma_cm_id *id, const struct place *place, uint64_t key, struct slot *slot,
	       struct ibv_mr *mr, uint64_t *value)
{
	for (uint32_t i = hash(key);; i = (i + 1) % place->slots) {
		read_slot(id, place, i, slot, mr);
		if (slot->version == EMPTY)
			return 0;
		if (slot->key == key) {
			*value = slot->value;
			return 1;
		}
	}
}

static void look_up(const char *port, const char *address)
{
	struct slot slot;
	struct place place;
	uint64_t value;
	struct ibv_wc wc;
	struct rdma_conn_param param = {
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7
	};
	struct rdma_cm_id *id = create(address, port);
	struct ibv_mr *mr = rdma_reg_msgs(id, &slot, sizeof(slot));
	check(!mr, "rdma_reg_msgs");
	check(rdma_connect(id, &param), "rdma_connect");
	if (id->event->param.conn.private_data_len < sizeof(place))
		fail("the server's answer", "it does not say where the table is");
	memcpy(&place, id->event->param.conn.private_data, sizeof(place));
	for (uint64_t key = 0; key < KEYS; key++)
		if (!get(id, &place, key, &slot, mr, &value) || value != key * key)
			fail("look up", "a key is missing or has another value");
	if (get(id, &place, 123456789, &slot, mr, &value))
		fail("look up", "a key is there that nobody has put");
	check(rdma_post_send(id, NULL, &slot, 1, mr, 0), "rdma_post_send");
	check_completion(rdma_get_send_comp(id, &wc), &wc, "goodbye");
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	printf("%d keys found\n", KEYS);
}

int main(int argc, char **argv)
{
	if (argc == 2)
		serve(argv[1]);
	else if (argc == 3)
		look_up(argv[1], argv[2]);
	else
		fprintf(stderr, "usage: kv PORT [ADDRESS]\n");
	return argc < 2 || argc > 3;
}
