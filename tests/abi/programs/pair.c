/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two connected queue pairs in one process on the first device: a message, an RDMA write and a look at the
 * completion queue in both styles. Exit status 77 without a device.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT	1
#define SIZE	4096

struct ends {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp[2];
	char *memory;		/* SIZE bytes to send from, SIZE bytes to receive into */
};

static void must(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static struct ibv_qp *make_qp(struct ends *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	memset(&init, 0, sizeof(init));
	init.send_cq = e->cq;
	init.recv_cq = e->cq;
	init.qp_type = IBV_QPT_RC;
	init.cap.max_send_wr = init.cap.max_recv_wr = 4;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	struct ibv_qp *qp = ibv_create_qp(e->pd, &init);
	must(qp != NULL, "ibv_create_qp");

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = PORT;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	     "INIT");
	return qp;
}

static void connect_qp(struct ends *e, struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr;
	union ibv_gid gid;

	must(!ibv_query_gid(e->context, PORT, 0, &gid), "ibv_query_gid");
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = peer;
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 12;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = PORT;
	attr.ah_attr.grh.dgid = gid;
	attr.ah_attr.grh.hop_limit = 64;
	must(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	     "RTR");
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static void make_ends(struct ends *e, struct ibv_device *device)
{
	e->context = ibv_open_device(device);
	must(e->context != NULL, "ibv_open_device");
	e->pd = ibv_alloc_pd(e->context);
	must(e->pd != NULL, "ibv_alloc_pd");
	e->memory = (char *)calloc(2, SIZE);
	e->mr = ibv_reg_mr(e->pd, e->memory, 2 * SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	must(e->mr != NULL, "ibv_reg_mr");
	e->cq = ibv_create_cq(e->context, 16, NULL, NULL, 0);
	must(e->cq != NULL, "ibv_create_cq");
	e->qp[0] = make_qp(e);
	e->qp[1] = make_qp(e);
	connect_qp(e, e->qp[0], e->qp[1]->qp_num);
	connect_qp(e, e->qp[1], e->qp[0]->qp_num);
}

static struct ibv_wc next_completion(struct ends *e)
{
	struct ibv_wc wc;
	int n;

	do
		n = ibv_poll_cq(e->cq, 1, &wc);
	while (!n);
	must(n == 1, "ibv_poll_cq");
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "work request %llu: %s\n", (unsigned long long)wc.wr_id,
			ibv_wc_status_str(wc.status));
		exit(1);
	}
	return wc;
}

static void send_one(struct ends *e, enum ibv_wr_opcode opcode)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge = { (uintptr_t)e->memory, SIZE, e->mr->lkey };

	memset(&wr, 0, sizeof(wr));
	wr.wr_id = opcode;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.opcode = opcode;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = (uintptr_t)e->memory + SIZE;
	wr.wr.rdma.rkey = e->mr->rkey;
	must(!ibv_post_send(e->qp[0], &wr, &bad), "ibv_post_send");
}

static void receive_one(struct ends *e)
{
	struct ibv_sge sge = { (uintptr_t)e->memory + SIZE, SIZE, e->mr->lkey };
	struct ibv_recv_wr wr, *bad;

	memset(&wr, 0, sizeof(wr));
	wr.wr_id = 99;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	must(!ibv_post_recv(e->qp[1], &wr, &bad), "ibv_post_recv");
}

static void expect_copy(struct ends *e, const char *what)
{
	must(!memcmp(e->memory, e->memory + SIZE, SIZE), what);
	memset(e->memory + SIZE, 0, SIZE);
}

static void destroy_ends(struct ends *e)
{
	must(!ibv_destroy_qp(e->qp[0]) && !ibv_destroy_qp(e->qp[1]), "ibv_destroy_qp");
	must(!ibv_destroy_cq(e->cq), "ibv_destroy_cq");
	must(!ibv_dereg_mr(e->mr), "ibv_dereg_mr");
	must(!ibv_dealloc_pd(e->pd), "ibv_dealloc_pd");
	must(!ibv_close_device(e->context), "ibv_close_device");
	free(e->memory);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_wc first, second;
	struct ends e;

	if (!list || !list[0]) {
		printf("skipped: no RDMA device\n");
		return 77;
	}
	make_ends(&e, list[0]);
	ibv_free_device_list(list);

	memset(e.memory, 0x5a, SIZE);
	receive_one(&e);
	send_one(&e, IBV_WR_SEND);
	first = next_completion(&e);
	second = next_completion(&e);
	must(((first.opcode ^ second.opcode) & IBV_WC_RECV) != 0, "one completion is a receive");
	must((first.opcode & IBV_WC_RECV ? first : second).byte_len == SIZE, "byte_len");
	expect_copy(&e, "sent data");

	memset(e.memory, 0xa5, SIZE);
	send_one(&e, IBV_WR_RDMA_WRITE);
	must(next_completion(&e).opcode == IBV_WC_RDMA_WRITE, "opcode of a write");
	expect_copy(&e, "written data");
	destroy_ends(&e);
	return 0;
}
