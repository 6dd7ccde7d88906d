/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program as compilers of 2006 left it: it imports the 1.0 versions and lays structures out as they were
 * then. It connects two queue pairs on the loopback device, sends 8 bytes, and tells an SRQ limit event in
 * the old way.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct context;

struct device {
	void *obsolete[2], *real, *ops[2];
};

struct pd {
	struct context *context;
	uint32_t handle;
	void *real;
};

struct mr {
	struct context *context;
	struct pd *pd;
	uint32_t handle, lkey, rkey;
	void *real;
};

struct cq {
	struct context *context;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events[2];
	void *real;
};

struct srq {
	struct context *context;
	void *srq_context;
	struct pd *pd;
	uint32_t handle;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events;
	void *real;
};

struct qp {
	struct context *context;
	void *qp_context;
	struct pd *pd;
	struct cq *send_cq, *recv_cq;
	struct srq *srq;
	uint32_t handle, qp_num;
	enum ibv_qp_state state;
	enum ibv_qp_type qp_type;
};

struct init_attr {
	void *qp_context;
	struct cq *send_cq, *recv_cq;
	struct srq *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;
};

struct send_wr {
	struct send_wr *next;
	uint64_t wr_id;
	struct ibv_sge *sg_list;
	int num_sge;
	enum ibv_wr_opcode opcode;
	int send_flags;
	uint32_t imm_data;
	uint64_t wr[4];
};

struct recv_wr {
	struct recv_wr *next;
	uint64_t wr_id;
	struct ibv_sge *sg_list;
	int num_sge;
};

struct context {
	struct device *device;
	void *before_poll[7];
	int (*poll_cq)(struct cq *cq, int n, struct ibv_wc *wc);
	int (*req_notify_cq)(struct cq *cq, int solicited_only);
	void *before_post_srq[7];
	int (*post_srq_recv)(struct srq *srq, struct recv_wr *wr, struct recv_wr **bad);
	void *before_post_send[4];
	int (*post_send)(struct qp *qp, struct send_wr *wr, struct send_wr **bad);
	int (*post_recv)(struct qp *qp, struct recv_wr *wr, struct recv_wr **bad);
	void *after[4];
	int cmd_fd, async_fd, num_comp_vectors;
};

/* Imports by version; the names in C are our own. */
#define OLD(type, name, ...)        \
	type old_##name(__VA_ARGS__); \
	__asm__(".symver old_" #name ", ibv_" #name "@IBVERBS_1.0")
OLD(struct device **, get_device_list, int *num);
OLD(void, free_device_list, struct device **list);
OLD(const char *, get_device_name, struct device *device);
OLD(struct context *, open_device, struct device *device);
OLD(int, close_device, struct context *context);
OLD(int, query_gid, struct context *context, uint8_t port, int index, union ibv_gid *gid);
OLD(struct pd *, alloc_pd, struct context *context);
OLD(int, dealloc_pd, struct pd *pd);
OLD(struct mr *, reg_mr, struct pd *pd, void *addr, size_t length, int access);
OLD(int, dereg_mr, struct mr *mr);
OLD(struct cq *, create_cq, struct context *context, int cqe, void *cq_context, void *channel, int vector);
OLD(int, resize_cq, struct cq *cq, int cqe);
OLD(int, destroy_cq, struct cq *cq);
OLD(struct srq *, create_srq, struct pd *pd, struct ibv_srq_init_attr *attr);
OLD(int, modify_srq, struct srq *srq, struct ibv_srq_attr *attr, int mask);
OLD(int, destroy_srq, struct srq *srq);
OLD(struct qp *, create_qp, struct pd *pd, struct init_attr *attr);
OLD(int, query_qp, struct qp *qp, struct ibv_qp_attr *attr, int mask, struct init_attr *init);
OLD(int, modify_qp, struct qp *qp, struct ibv_qp_attr *attr, int mask);
OLD(int, destroy_qp, struct qp *qp);
OLD(int, get_async_event, struct context *context, struct ibv_async_event *event);
OLD(void, ack_async_event, struct ibv_async_event *event);

#define CHECK(condition)                                                                \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "old_program: line %d: %s\n", __LINE__, #condition); \
			exit(1);                                                        \
		}                                                                       \
	} while (0)

static uint8_t buffer[64];

static void connect_qp(struct qp *qp, uint32_t dest, const union ibv_gid *gid)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
				 .port_num = 1,
				 .path_mtu = IBV_MTU_1024,
				 .dest_qp_num = dest,
				 .min_rnr_timer = 12,
				 .timeout = 14,
				 .retry_cnt = 7,
				 .rnr_retry = 7,
				 .ah_attr = { .is_global = 1, .port_num = 1 } };
	a.ah_attr.grh.dgid = *gid;
	CHECK(old_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
	      0);
	a.qp_state = IBV_QPS_RTR;
	CHECK(old_modify_qp(qp, &a,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	a.qp_state = IBV_QPS_RTS;
	CHECK(old_modify_qp(qp, &a,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
	CHECK(qp->state == IBV_QPS_RTS);
}

static struct context *open_loopback(struct device ***list)
{
	int n;
	CHECK(*list = old_get_device_list(&n));
	CHECK(n > 0 && !(*list)[n]);
	CHECK(strcmp(old_get_device_name((*list)[n - 1]), "vb_lo") == 0);
	return old_open_device((*list)[n - 1]);
}

static void exchange(struct context *ctx, struct qp *a, struct cq *cq, struct srq *srq, struct mr *mr)
{
	struct ibv_sge from = { (uintptr_t)buffer, 8, mr->lkey },
		       to = { (uintptr_t)buffer + 32, 8, mr->lkey };
	struct recv_wr recv = { .wr_id = 1, .sg_list = &to, .num_sge = 1 }, *bad_recv;
	struct send_wr send = { .wr_id = 2,
				.sg_list = &from,
				.num_sge = 1,
				.opcode = IBV_WR_SEND,
				.send_flags = IBV_SEND_SIGNALED },
		       *bad;
	struct send_wr wrong = { .opcode = 99 };
	struct ibv_wc wc;
	memcpy(buffer, "old ways", 8);
	CHECK(ctx->post_srq_recv(srq, &recv, &bad_recv) == 0);
	CHECK(ctx->post_recv(a, &recv, &bad_recv) != 0 && bad_recv == &recv);
	send.next = &wrong;
	CHECK(ctx->post_send(a, &send, &bad) != 0 && bad == &wrong);
	for (int got = 0; got < 2;) {
		int n = ctx->poll_cq(cq, 1, &wc);
		CHECK(n >= 0);
		CHECK(!n || wc.status == IBV_WC_SUCCESS);
		CHECK(!n || wc.wr_id == (wc.opcode & IBV_WC_RECV ? 1 : 2));
		got += n;
	}
	CHECK(memcmp(buffer + 32, "old ways", 8) == 0);
	CHECK(ctx->req_notify_cq(cq, 0) == 0);
}

int main(void)
{
	struct device **list;
	union ibv_gid gid;
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_attr limit = { .srq_limit = 2 };
	struct ibv_async_event event;
	struct ibv_qp_attr now;
	struct context *ctx = open_loopback(&list);
	CHECK(ctx);
	CHECK(old_query_gid(ctx, 1, 0, &gid) == 0);
	struct pd *pd = old_alloc_pd(ctx);
	struct mr *mr = old_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);
	struct cq *cq = old_create_cq(ctx, 16, NULL, NULL, 0);
	CHECK(pd && mr && cq && mr->pd == pd && cq->cqe >= 16);
	CHECK(old_resize_cq(cq, 32) == 0 && cq->cqe >= 32);
	srq_attr.srq_context = &limit;
	struct srq *srq = old_create_srq(pd, &srq_attr);
	CHECK(srq && srq->srq_context == &limit);
	struct init_attr init = { .qp_context = &gid,
				  .send_cq = cq,
				  .recv_cq = cq,
				  .srq = srq,
				  .qp_type = IBV_QPT_RC,
				  .cap = { .max_send_wr = 4, .max_send_sge = 1 } },
			 got;
	struct qp *a = old_create_qp(pd, &init), *b = old_create_qp(pd, &init);
	CHECK(a && b && a->qp_num != b->qp_num && a->srq == srq && a->qp_context == &gid);
	connect_qp(a, b->qp_num, &gid);
	connect_qp(b, a->qp_num, &gid);
	CHECK(old_query_qp(a, &now, IBV_QP_STATE, &got) == 0);
	CHECK(now.qp_state == IBV_QPS_RTS && got.send_cq == cq && got.srq == srq && got.qp_context == &gid);
	exchange(ctx, a, cq, srq, mr);

	CHECK(old_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0);
	CHECK(old_get_async_event(ctx, &event) == 0);
	CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && (struct srq *)event.element.srq == srq);
	old_ack_async_event(&event);

	CHECK(old_destroy_srq(srq) != 0 && old_dealloc_pd(pd) != 0);
	CHECK(old_destroy_qp(a) == 0 && old_destroy_qp(b) == 0);
	CHECK(old_destroy_srq(srq) == 0 && old_destroy_cq(cq) == 0 && old_dereg_mr(mr) == 0 &&
	      old_dealloc_pd(pd) == 0);
	CHECK(old_close_device(ctx) == 0);
	old_free_device_list(list);
	return 0;
}
