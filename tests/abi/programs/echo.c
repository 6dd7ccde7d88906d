/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server and a client in one process, connected by rdma_cm with synchronous ids: the client sends, the
 * server sends back. Exit status 77 without a device.
 */
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE	1000

static void must(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static struct rdma_cm_id *make_id(struct rdma_addrinfo *address)
{
	struct ibv_qp_init_attr attr;
	struct rdma_cm_id *id;

	memset(&attr, 0, sizeof(attr));
	attr.cap.max_send_wr = attr.cap.max_recv_wr = 2;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
	attr.sq_sig_all = 1;
	must(!rdma_create_ep(&id, address, NULL, &attr), "rdma_create_ep");
	return id;
}

static struct rdma_cm_id *make_listener(void)
{
	struct rdma_addrinfo hints, *address;
	struct rdma_cm_id *id;

	memset(&hints, 0, sizeof(hints));
	hints.ai_flags = RAI_PASSIVE;
	hints.ai_port_space = RDMA_PS_TCP;
	must(!rdma_getaddrinfo("127.0.0.1", "0", &hints, &address), "rdma_getaddrinfo");
	id = make_id(address);
	rdma_freeaddrinfo(address);
	must(!rdma_listen(id, 1), "rdma_listen");
	return id;
}

static void *serve(void *arg)
{
	struct rdma_cm_id *listener = (struct rdma_cm_id *)arg, *id;
	char *memory = (char *)malloc(SIZE);
	struct ibv_mr *mr;
	struct ibv_wc wc;

	must(!rdma_get_request(listener, &id), "rdma_get_request");
	mr = rdma_reg_msgs(id, memory, SIZE);
	must(mr != NULL, "rdma_reg_msgs");
	must(!rdma_post_recv(id, NULL, memory, SIZE, mr), "rdma_post_recv");
	must(!rdma_accept(id, NULL), "rdma_accept");
	must(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "request");
	must(!rdma_post_send(id, NULL, memory, wc.byte_len, mr, 0), "rdma_post_send");
	must(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "answer");
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	free(memory);
	return NULL;
}

static void ask(__be16 port)
{
	struct rdma_addrinfo hints, *address;
	char service[8], memory[2][SIZE];
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	memset(&hints, 0, sizeof(hints));
	hints.ai_port_space = RDMA_PS_TCP;
	snprintf(service, sizeof(service), "%u", ntohs(port));
	must(!rdma_getaddrinfo("127.0.0.1", service, &hints, &address), "rdma_getaddrinfo");
	id = make_id(address);
	rdma_freeaddrinfo(address);
	mr = rdma_reg_msgs(id, memory, sizeof(memory));
	must(mr != NULL, "rdma_reg_msgs");
	must(!rdma_post_recv(id, NULL, memory[1], SIZE, mr), "rdma_post_recv");
	must(!rdma_connect(id, NULL), "rdma_connect");
	memset(memory[0], 'v', SIZE);
	must(!rdma_post_send(id, NULL, memory[0], SIZE, mr, 0), "rdma_post_send");
	must(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "question");
	must(rdma_get_recv_comp(id, &wc) == 1 && wc.byte_len == SIZE, "answer");
	must(!memcmp(memory[0], memory[1], SIZE), "the same data");
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
}

int main(void)
{
	struct ibv_context **devices = rdma_get_devices(NULL);
	struct rdma_cm_id *listener;
	pthread_t server;

	if (!devices || !devices[0]) {
		printf("skipped: no RDMA device\n");
		return 77;
	}
	rdma_free_devices(devices);
	listener = make_listener();
	must(!pthread_create(&server, NULL, serve, listener), "pthread_create");
	ask(rdma_get_src_port(listener));
	pthread_join(server, NULL);
	rdma_destroy_ep(listener);
	return 0;
}
