/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Extended reliable connections: the active end sends to shared receive queues of the passive one, by number.
 */
#include "xrc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static void start(struct end *e, struct xrc *x)
{
	struct params p = params();
	p.bytes = 1 << 20;
	rc_open(e, &p);
	*x = (struct xrc){ .xrcd = open_domain(e, -1, O_CREAT) };
	CHECK(x->xrcd);
	if (e->passive)
		for (int i = 0; i < 2; i++) {
			make_queue(e, x->xrcd, &x->q[i]);
			tell_queue(e, &x->q[i]);
		}
	else
		for (int i = 0; i < 2; i++) {
			x->number[i] = (uint32_t)hear(e);
			x->rkey[i] = (uint32_t)hear(e);
			x->addr[i] = hear(e);
		}
	CHECK(x->qp = make_xrc_qp(e, x));
	connect_xrc_qp(e, x);
}

static void finish(struct end *e, struct xrc *x)
{
	meet(e);
	CHECK_EQ(ibv_destroy_qp(x->qp), 0);
	if (e->passive) {
		CHECK_EQ(ibv_close_xrcd(x->xrcd), EBUSY);
		free_queue(&x->q[0]);
		free_queue(&x->q[1]);
	}
	CHECK_EQ(ibv_close_xrcd(x->xrcd), 0);
	rc_close(e);
}

static void send__to_the_queue_that_it_names(struct end *e)
{
	static const uint32_t sizes[] = { 0, 8, 100, 1024, 5000, 60000 };
	struct xrc x;
	start(e, &x);
	for (int i = 0; i < 12; i++) {
		uint32_t n = sizes[i / 2];
		struct queue *q = &x.q[i % 2];
		if (e->passive) {
			CHECK_EQ(post_srq(q, 10 + i, 0, 1 << 16), 0);
			meet(e);
			struct ibv_wc wc = rc_expect(q->cq, 10 + i, IBV_WC_SUCCESS);
			CHECK_EQ(wc.opcode, IBV_WC_RECV);
			CHECK_EQ(wc.byte_len, n);
			CHECK_EQ(wc.qp_num, x.qp->qp_num);
			CHECK_EQ(wc.src_qp, x.peer.qpn);
			CHECK_EQ(ntohl(wc.imm_data), 99);
			VERIFY(q->memory, n, e->seed + i);
			rc_expect_none(x.q[!(i % 2)].cq);
		} else {
			rc_fill(e->buf, n, e->seed + i);
			meet(e);
			CHECK_EQ(post_xrc(e, &x, i, IBV_WR_SEND_WITH_IMM, 0, n, x.number[i % 2], 0, 0), 0);
			CHECK_EQ(rc_expect(e->scq, i, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
		}
	}
	finish(e, &x);
}

/* The queue's domain counts for what the request touches. */
static void one_sided__in_the_queues_domain(struct end *e)
{
	struct xrc x;
	start(e, &x);
	for (int i = 0; i < 2; i++) {
		if (e->passive) {
			rc_set_word(x.q[i].memory + 64, 7);
			meet(e);
			hear(e);
			VERIFY(x.q[i].memory + 4096, 5000, e->seed);
			CHECK_EQ(rc_word(x.q[i].memory + 64), 12);
			continue;
		}
		meet(e);
		rc_fill(e->buf, 5000, e->seed);
		CHECK_EQ(post_xrc(e, &x, 1, IBV_WR_RDMA_WRITE, 0, 5000, x.number[i], x.addr[i] + 4096,
				  x.rkey[i]),
			 0);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
		CHECK_EQ(post_xrc(e, &x, 2, IBV_WR_RDMA_READ, 8192, 5000, x.number[i], x.addr[i] + 4096,
				  x.rkey[i]),
			 0);
		rc_expect(e->scq, 2, IBV_WC_SUCCESS);
		VERIFY(e->buf + 8192, 5000, e->seed);
		CHECK_EQ(post_xrc(e, &x, 3, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, x.number[i], x.addr[i] + 64,
				  x.rkey[i]),
			 0);
		rc_expect(e->scq, 3, IBV_WC_SUCCESS);
		CHECK_EQ(rc_word(e->buf), 7);
		tell(e, 0);
	}
	if (!e->passive) {
		CHECK_EQ(post_xrc(e, &x, 4, IBV_WR_RDMA_WRITE, 0, 8, x.number[0], x.addr[1], x.rkey[1]), 0);
		rc_expect(e->scq, 4, IBV_WC_REM_ACCESS_ERR);
	} else {
		rc_expect_event(e, IBV_EVENT_QP_ACCESS_ERR);
	}
	finish(e, &x);
}

/* The queue's owner unmaps what it has registered: the request fails, and nobody ends. */
static void memory__taken_away(struct end *e)
{
	static const uint32_t lengths[] = { 8, 5000 };
	rc_needs_holes();
	for (unsigned i = 0; i < 4; i++) {
		bool is_send = i % 2;
		uint32_t n = lengths[i / 2];
		struct xrc x;
		start(e, &x);
		if (e->passive) {
			CHECK_EQ(post_srq(&x.q[0], 1, 0, 1 << 16), 0);
			rc_take_away(x.q[0].memory, 1 << 16);
			meet(e);
			if (is_send)
				rc_expect(x.q[0].cq, 1, IBV_WC_LOC_PROT_ERR);
			else
				rc_expect_event(e, IBV_EVENT_QP_ACCESS_ERR);
			CHECK_EQ(rc_state(x.qp), IBV_QPS_ERR);
		} else {
			meet(e);
			CHECK_EQ(post_xrc(e, &x, 2, is_send ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, 0, n,
					  x.number[0], x.addr[0], x.rkey[0]),
				 0);
			rc_expect(e->scq, 2, is_send ? IBV_WC_REM_OP_ERR : IBV_WC_REM_ACCESS_ERR);
		}
		finish(e, &x);
		rc_start_watchdog();
	}
}

/* An initiator has no responder: what another one sends to it is dropped. */
static void request__to_an_initiator(struct end *e)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_SEND };
	struct params p = params();
	bool passive = e->passive;
	p.timeout = 14;
	p.retry_cnt = 1;
	rc_open(e, &p);
	rc_set(e->buf, 64, passive ? 0 : 7);
	for (unsigned i = 0; i < 2; i++) {
		struct xrc x = { 0 };
		e->passive = false; /* both make the sending half */
		CHECK(x.qp = make_xrc_qp(e, &x));
		connect_xrc_qp(e, &x);
		e->passive = passive;
		if (!passive) {
			CHECK_EQ(post_xrc(e, &x, 1, opcodes[i], 0, 64, 1, x.peer.addr, x.peer.rkey), 0);
			rc_expect(e->scq, 1, IBV_WC_RETRY_EXC_ERR);
		}
		meet(e);
		if (passive) {
			CHECK_EQ(rc_state(x.qp), IBV_QPS_RTS);
			VERIFY_BYTE(e->buf, 64, 0);
			rc_expect_no_event(e);
		}
		CHECK_EQ(ibv_destroy_qp(x.qp), 0);
	}
	rc_close(e);
}

/* RC and XRC are two services: a queue pair that is connected to one of the other kind hears nothing. */
static void request__of_another_service(struct end *e)
{
	struct params p = params();
	p.timeout = 14;
	p.retry_cnt = 1;
	rc_open(e, &p);
	rc_set(e->buf, 64, e->passive ? 0 : 7);
	struct xrc x = { .xrcd = open_domain(e, -1, O_CREAT) };
	CHECK(x.xrcd);
	/* once the responder is the XRC one, once the requester */
	for (unsigned xrc_end = 0; xrc_end < 2; xrc_end++) {
		bool is_xrc = e->passive == (xrc_end == 0);
		CHECK(x.qp = is_xrc ? make_xrc_qp(e, &x) : rc_make_qp(e));
		connect_xrc_qp(e, &x);
		if (!e->passive) {
			const struct card *to = &x.peer;
			CHECK_EQ(post_xrc(e, &x, 1, IBV_WR_RDMA_WRITE, 0, 64, 1, to->addr, to->rkey), 0);
			rc_expect(e->scq, 1, IBV_WC_RETRY_EXC_ERR);
		}
		meet(e);
		if (e->passive) {
			CHECK_EQ(rc_state(x.qp), IBV_QPS_RTS);
			VERIFY_BYTE(e->buf, 64, 0);
			rc_expect_no_event(e);
		}
		CHECK_EQ(ibv_destroy_qp(x.qp), 0);
	}
	CHECK_EQ(ibv_close_xrcd(x.xrcd), 0);
	rc_close(e);
}

static void send__to_no_queue(struct end *e)
{
	struct xrc x;
	start(e, &x);
	if (!e->passive) {
		CHECK_EQ(post_xrc(e, &x, 1, IBV_WR_SEND, 0, 8, 0xabcdef, 0, 0), 0);
		rc_expect(e->scq, 1, IBV_WC_REM_INV_REQ_ERR);
		CHECK_EQ(rc_state(x.qp), IBV_QPS_ERR);
	}
	finish(e, &x);
}

/* Its completion queue has overrun: messages that come later are refused, and break the connection. */
static void send__to_a_queue_that_has_overrun(struct end *e)
{
	struct xrc x;
	start(e, &x);
	if (e->passive) {
		CHECK_EQ(ibv_resize_cq(x.q[0].cq, 8), 0);
		tell(e, x.q[0].cq->cqe);
	}
	int room = e->passive ? x.q[0].cq->cqe : (int)hear(e);
	CHECK(room + 2 <= RECEIVES);
	for (int i = 0; i < room + 2; i++) {
		if (e->passive)
			CHECK_EQ(post_srq(&x.q[0], i, 0, 8), 0);
		meet(e);
		if (!e->passive) {
			CHECK_EQ(post_xrc(e, &x, i, IBV_WR_SEND, 0, 8, x.number[0], 0, 0), 0);
			rc_expect(e->scq, i, i <= room ? IBV_WC_SUCCESS : IBV_WC_REM_INV_REQ_ERR);
		}
		meet(e);
	}
	if (e->passive) {
		CHECK(rc_expect_event(e, IBV_EVENT_CQ_ERR).element.cq == x.q[0].cq);
		for (int i = 0; i < room; i++)
			rc_expect(x.q[0].cq, i, IBV_WC_SUCCESS);
		while (rc_state(x.qp) != IBV_QPS_ERR)
			rc_pause_ms(1);
	}
	finish(e, &x);
}

/*
 * Numbers are of the host: a queue of the sender's own process is none of the receiver's, and not mistaken
 * for one.
 */
static void send__to_a_queue_of_another_domain(struct end *e)
{
	struct xrc x;
	struct queue own;
	start(e, &x);
	if (e->passive) {
		for (int i = 0; i < 2; i++)
			CHECK_EQ(post_srq(&x.q[i], i, 0, 64), 0);
		meet(e);
		hear(e);
		for (int i = 0; i < 2; i++)
			rc_expect_none(x.q[i].cq);
	} else {
		make_queue(e, x.xrcd, &own);
		CHECK(own.number != x.number[0] && own.number != x.number[1]);
		meet(e);
		CHECK_EQ(post_xrc(e, &x, 1, IBV_WR_SEND, 0, 8, own.number, 0, 0), 0);
		rc_expect(e->scq, 1, IBV_WC_REM_INV_REQ_ERR);
		free_queue(&own);
		tell(e, 0);
	}
	finish(e, &x);
}

/* Nothing posted yet: the sender waits, the receive wakes it. */
static void send__before_the_receive(struct end *e)
{
	struct xrc x;
	start(e, &x);
	for (int i = 0; i < 10; i++) {
		if (e->passive) {
			hear(e);
			rc_pause_ms(2);
			CHECK_EQ(post_srq(&x.q[1], i, 0, 64), 0);
			rc_expect(x.q[1].cq, i, IBV_WC_SUCCESS);
		} else {
			CHECK_EQ(post_xrc(e, &x, i, IBV_WR_SEND, 0, 64, x.number[1], 0, 0), 0);
			tell(e, 0);
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		}
		meet(e);
	}
	finish(e, &x);
}

/* It is refused, and works on. */
static void send__by_a_receiving_queue_pair(struct end *e)
{
	struct xrc x;
	start(e, &x);
	if (e->passive) {
		struct ibv_send_wr *bad = NULL, wr = { .opcode = IBV_WR_SEND };
		CHECK_EQ(ibv_post_send(x.qp, &wr, &bad), EINVAL);
		CHECK(bad == &wr);
		CHECK_EQ(post_srq(&x.q[0], 1, 0, 64), 0);
		meet(e);
		rc_expect(x.q[0].cq, 1, IBV_WC_SUCCESS);
	} else {
		meet(e);
		CHECK_EQ(post_xrc(e, &x, 1, IBV_WR_SEND, 0, 64, x.number[0], 0, 0), 0);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
	}
	finish(e, &x);
}

/* A second handle keeps the queue pair. */
static void qp__opened_again(struct end *e)
{
	struct xrc x;
	start(e, &x);
	if (e->passive) {
		struct ibv_qp_open_attr attr = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
							      IBV_QP_OPEN_ATTR_TYPE |
							      IBV_QP_OPEN_ATTR_CONTEXT,
						 .qp_num = x.qp->qp_num,
						 .xrcd = x.xrcd,
						 .qp_context = &x,
						 .qp_type = IBV_QPT_XRC_RECV };
		struct ibv_qp *again = ibv_open_qp(e->ctx, &attr);
		CHECK(again && again->qp_num == x.qp->qp_num && again->qp_context == &x);
		attr.qp_num ^= 1;
		CHECK(!ibv_open_qp(e->ctx, &attr) && errno == EINVAL);
		attr.qp_num ^= 1;
		attr.qp_type = IBV_QPT_RC;
		CHECK(!ibv_open_qp(e->ctx, &attr) && errno == EINVAL);
		CHECK_EQ(rc_state(again), IBV_QPS_RTS);
		CHECK_EQ(ibv_destroy_qp(x.qp), 0);
		x.qp = again;
		CHECK_EQ(post_srq(&x.q[0], 1, 0, 64), 0);
		meet(e);
		rc_expect(x.q[0].cq, 1, IBV_WC_SUCCESS);
		struct ibv_recv_wr *bad, wr = { .wr_id = 1 };
		CHECK_EQ(ibv_post_recv(again, &wr, &bad), EINVAL);
	} else {
		meet(e);
		CHECK_EQ(post_xrc(e, &x, 1, IBV_WR_SEND, 0, 64, x.number[0], 0, 0), 0);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
		struct ibv_recv_wr *bad, wr = { .wr_id = 1 };
		CHECK_EQ(ibv_post_recv(x.qp, &wr, &bad), EINVAL);
	}
	finish(e, &x);
}

static void domain__shared_by_file(struct end *e)
{
	char name[] = "xrcd-XXXXXX";
	struct params p = params();
	rc_open(e, &p);
	int fd = mkstemp(name);
	CHECK(fd >= 0 && !unlink(name));
	CHECK(!open_domain(e, -1, 0) && errno == EINVAL);
	CHECK(!open_domain(e, -1, O_RDWR | O_CREAT) && errno == EINVAL);
	CHECK(!open_domain(e, fd, 0) && errno == EAGAIN);
	struct ibv_xrcd *first = open_domain(e, fd, O_CREAT), *second = open_domain(e, fd, 0);
	CHECK(first && second);
	CHECK(!open_domain(e, fd, O_CREAT | O_EXCL) && errno == EEXIST);
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_XRC_RECV,
					    .comp_mask = IBV_QP_INIT_ATTR_XRCD,
					    .xrcd = first };
	struct ibv_qp *qp = ibv_create_qp_ex(e->ctx, &attr);
	CHECK(qp);
	struct ibv_qp_open_attr open = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
						      IBV_QP_OPEN_ATTR_TYPE,
					 .qp_num = qp->qp_num,
					 .xrcd = second,
					 .qp_type = IBV_QPT_XRC_RECV };
	struct ibv_qp *same = ibv_open_qp(e->ctx, &open);
	CHECK(same);
	CHECK_EQ(ibv_close_xrcd(second), EBUSY);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_destroy_qp(same), 0);
	CHECK_EQ(ibv_close_xrcd(second), 0);
	CHECK_EQ(ibv_close_xrcd(first), 0);
	CHECK(!open_domain(e, fd, 0) && errno == EAGAIN); /* gone with its last handle */
	struct ibv_srq_init_attr basic = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(e->pd, &basic);
	uint32_t number;
	CHECK_EQ(ibv_get_srq_num(srq, &number), EINVAL);
	CHECK_EQ(ibv_destroy_srq(srq), 0);
	struct ibv_qp_init_attr plain = { .qp_type = IBV_QPT_XRC_RECV, .send_cq = e->scq, .recv_cq = e->rcq };
	CHECK(!ibv_create_qp(e->pd, &plain) && errno == EINVAL);
	close(fd);
	rc_close(e);
}

/* Two requests of one batch, for a queue each. */
static void send__built_call_by_call(struct end *e)
{
	struct xrc x;
	start(e, &x);
	if (e->passive) {
		for (int i = 0; i < 2; i++)
			CHECK_EQ(post_srq(&x.q[i], 20 + i, 0, 1 << 16), 0);
		meet(e);
		for (int i = 0; i < 2; i++) {
			CHECK_EQ(rc_expect(x.q[i].cq, 20 + i, IBV_WC_SUCCESS).byte_len, 100);
			VERIFY(x.q[i].memory, 100, e->seed);
		}
	} else {
		struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(x.qp);
		rc_fill(e->buf, 100, e->seed);
		meet(e);
		ibv_wr_start(ex);
		ex->wr_flags = IBV_SEND_SIGNALED;
		for (int i = 0; i < 2; i++) {
			ex->wr_id = 30 + i;
			ibv_wr_send(ex);
			ibv_wr_set_xrc_srqn(ex, x.number[i]);
			ibv_wr_set_sge(ex, e->mr->lkey, (uintptr_t)e->buf, 100);
		}
		CHECK_EQ(ibv_wr_complete(ex), 0);
		for (int i = 0; i < 2; i++)
			rc_expect(e->scq, 30 + i, IBV_WC_SUCCESS);
	}
	finish(e, &x);
}

/* Memory that has been given back is somebody else's. */
static void spoil_memory(void **kept, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		size_t bytes = 256 + 16 * (i % 256);
		CHECK(kept[i] = malloc(bytes));
		rc_set(kept[i], bytes, 0xa5);
	}
}

/* The completion queue stays, and knows nothing of either afterwards. */
static void queue__goes_before_the_queue_pair(struct end *e)
{
	static void *kept[1024];
	struct xrc x;
	start(e, &x);
	struct queue *q = &x.q[0];
	if (e->passive) {
		CHECK_EQ(post_srq(q, 1, 0, 64), 0);
		meet(e);
		rc_expect(q->cq, 1, IBV_WC_SUCCESS);
		CHECK_EQ(ibv_destroy_srq(q->srq), 0);
	} else {
		meet(e);
		CHECK_EQ(post_xrc(e, &x, 1, IBV_WR_SEND, 0, 64, x.number[0], 0, 0), 0);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
	}
	meet(e);
	if (e->passive) {
		CHECK_EQ(ibv_destroy_qp(x.qp), 0);
		spoil_memory(kept, 1024);
		rc_expect_none(q->cq);
		for (unsigned i = 0; i < 1024; i++)
			free(kept[i]);
		q->srq = ibv_create_srq(q->pd,
					&(struct ibv_srq_init_attr){ .attr = { .max_wr = 1, .max_sge = 1 } });
		CHECK(q->srq && (x.qp = make_xrc_qp(e, &x)));
	}
	finish(e, &x);
}

/*
 * What a queue pair that has gone brought is the queue's, whatever other queue pairs share the completion
 * queue.
 */
static void completion__outlives_its_queue_pair(struct end *e)
{
	struct ibv_qp *others[32];
	struct xrc x;
	start(e, &x);
	struct queue *q = &x.q[0];
	if (e->passive)
		CHECK_EQ(post_srq(q, 1, 0, 64), 0);
	meet(e);
	if (!e->passive) {
		CHECK_EQ(post_xrc(e, &x, 1, IBV_WR_SEND, 0, 64, x.number[0], 0, 0), 0);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
	}
	meet(e);
	if (e->passive) {
		struct ibv_qp_init_attr init = {
			.send_cq = q->cq, .recv_cq = q->cq, .qp_type = IBV_QPT_RC, .cap = e->p.cap
		};
		CHECK_EQ(ibv_destroy_qp(x.qp), 0);
		for (int i = 0; i < 32; i++)
			CHECK(others[i] = ibv_create_qp(e->pd, &init));
		for (int i = 0; i < 32; i++)
			CHECK_EQ(ibv_destroy_qp(others[i]), 0);
		rc_expect(q->cq, 1, IBV_WC_SUCCESS);
		CHECK(x.qp = make_xrc_qp(e, &x));
	}
	finish(e, &x);
}

/*
 * No queue pair is attached to the queue, so it can go: the message that waits for a receive there is for no
 * queue then.
 */
static void queue__goes_while_a_message_waits(struct end *e)
{
	struct xrc x;
	start(e, &x);
	struct queue *q = &x.q[0];
	meet(e);
	if (e->passive) {
		rc_pause_ms(50);
		CHECK_EQ(ibv_destroy_srq(q->srq), 0);
		rc_expect_event(e, IBV_EVENT_QP_REQ_ERR);
		q->srq = ibv_create_srq(q->pd,
					&(struct ibv_srq_init_attr){ .attr = { .max_wr = 1, .max_sge = 1 } });
		CHECK(q->srq);
	} else {
		CHECK_EQ(post_xrc(e, &x, 1, IBV_WR_SEND, 0, 64, x.number[0], 0, 0), 0);
		rc_expect(e->scq, 1, IBV_WC_REM_INV_REQ_ERR);
	}
	finish(e, &x);
}

static const struct body bodies[] = {
	BODY(send__built_call_by_call),
	BODY(send__to_the_queue_that_it_names),
	BODY(one_sided__in_the_queues_domain),
	BODY(memory__taken_away),
	BODY(request__to_an_initiator),
	BODY(request__of_another_service),
	BODY(send__to_no_queue),
	BODY(send__to_a_queue_of_another_domain),
	BODY(send__to_a_queue_that_has_overrun),
	BODY(send__before_the_receive),
	BODY(send__by_a_receiving_queue_pair),
	BODY(qp__opened_again),
	BODY_IN(domain__shared_by_file, ALONE),
	BODY(completion__outlives_its_queue_pair),
	BODY(queue__goes_before_the_queue_pair),
	BODY(queue__goes_while_a_message_waits),
};

RC_MAIN(bodies)
