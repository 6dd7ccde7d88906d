/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies a file with RDMA WRITE, from one mapped file into the other, without a buffer in between. (An empty
 * file cannot be mapped.)
 *
 *     copy PORT FILE             receives into FILE, then ends
 *     copy PORT FILE ADDRESS     sends FILE
 *
 * The sender's request for a connection carries the size; the receiver makes a file of that size, and its
 * answer says where it is mapped. The last write brings immediate data, which completes a receive over there:
 * only by that does the receiver learn that all the bytes are in.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

enum { CHUNK = 1 << 20, DEPTH = 16 };

struct place {
	uint64_t address;
	uint32_t rkey;
};

static struct rdma_cm_id *create(const char *address, const char *port)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = address ? 0 : RAI_PASSIVE },
			     *found;
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
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

static void receive_file(const char *port, const char *name)
{
	uint64_t size;
	struct ibv_wc wc;
	struct rdma_cm_id *listener = create(NULL, port), *id;
	check(rdma_listen(listener, 1), "rdma_listen");
	check(rdma_get_request(listener, &id), "rdma_get_request");
	if (id->event->param.conn.private_data_len < sizeof(size))
		fail("the sender's request", "it does not tell the size");
	memcpy(&size, id->event->param.conn.private_data, sizeof(size));

	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
	check(fd < 0 || ftruncate(fd, (off_t)size), name);
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(at == MAP_FAILED, "mmap");
	struct ibv_mr *mr = rdma_reg_write(id, at, size);
	check(!mr, "rdma_reg_write");
	check(rdma_post_recv(id, NULL, at, 0, mr), "rdma_post_recv");

	struct place place = { .address = (uintptr_t)at, .rkey = mr->rkey };
	struct rdma_conn_param param = { .private_data = &place,
					 .private_data_len = sizeof(place),
					 .rnr_retry_count = 7 };
	check(rdma_accept(id, &param), "rdma_accept");
	check_completion(rdma_get_recv_comp(id, &wc), &wc, "receive");
	if (!(wc.wc_flags & IBV_WC_WITH_IMM))
		fail("receive", "not by a write");
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	munmap(at, size);
	close(fd);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
	printf("received %llu bytes\n", (unsigned long long)size);
}

/* rdma_post_write has no immediate data: the verb itself has. */
static void post_chunk(struct rdma_cm_id *id, void *at, uint32_t size, struct ibv_mr *mr, uint64_t to,
		       uint32_t rkey, int last)
{
	struct ibv_sge sge = { .addr = (uintptr_t)at, .length = size, .lkey = mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = last ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
				  .wr.rdma = { .remote_addr = to, .rkey = rkey } },
			   *bad;
	errno = ibv_post_send(id->qp, &wr, &bad);
	check(errno, "ibv_post_send");
}

static void complete(struct rdma_cm_id *id)
{
	struct ibv_wc wc;
	check_completion(rdma_get_send_comp(id, &wc), &wc, "write");
}

static void send_file(const char *port, const char *name, const char *address)
{
	struct stat st;
	int fd = open(name, O_RDONLY);
	check(fd < 0 || fstat(fd, &st), name);
	if (st.st_size == 0)
		fail(name, "it is empty");
	uint64_t size = (uint64_t)st.st_size, done = 0;
	void *at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	check(at == MAP_FAILED, "mmap");

	struct rdma_cm_id *id = create(address, port);
	/* only read from: needs no right, not even to be written here */
	struct ibv_mr *mr = ibv_reg_mr(id->pd, at, size, 0);
	check(!mr, "ibv_reg_mr");
	struct rdma_conn_param param = { .private_data = &size,
					 .private_data_len = sizeof(size),
					 .retry_count = 7,
					 .rnr_retry_count = 7 };
	check(rdma_connect(id, &param), "rdma_connect");
	struct place place;
	if (id->event->param.conn.private_data_len < sizeof(place))
		fail("the receiver's answer", "it does not say where to write");
	memcpy(&place, id->event->param.conn.private_data, sizeof(place));

	int open_writes = 0;
	while (done < size) {
		uint32_t chunk = size - done < CHUNK ? (uint32_t)(size - done) : CHUNK;
		if (open_writes == DEPTH) {
			complete(id);
			open_writes--;
		}
		post_chunk(id, (char *)at + done, chunk, mr, place.address + done, place.rkey,
			   done + chunk == size);
		open_writes++;
		done += chunk;
	}
	while (open_writes--)
		complete(id);
	rdma_disconnect(id);
	ibv_dereg_mr(mr);
	munmap(at, size);
	close(fd);
	rdma_destroy_ep(id);
	printf("sent %llu bytes\n", (unsigned long long)size);
}

int main(int argc, char **argv)
{
	if (argc == 3)
		receive_file(argv[1], argv[2]);
	else if (argc == 4)
		send_file(argv[1], argv[2], argv[3]);
	else
		fprintf(stderr, "usage: copy PORT FILE [ADDRESS]\n");
	return argc < 3 || argc > 4;
}
