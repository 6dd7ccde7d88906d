/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An XRC domain that processes share by a file: the active end sends to queues of an owner, a third process,
 * by the passive end's queue pair.
 *
 *	active end: XRC_SEND ───▶ passive end: XRC_RECV, a queue of its own (q[0])
 *	                              │  one domain
 *	                          owner: a queue (x->q[1] there, number[1] to the active end)
 */
#include "xrc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OTHER_USER = 65533 };

struct shared {
	struct xrc x;
	struct end owner; /* the passive end's, to talk to the owner */
	pid_t pid;
	int fd;
};

typedef void owners_part(struct end *o, struct xrc *x, int fd);
typedef void disguise(void); /* what makes an owner somebody else; NULL: nothing does */

static int make_file(void)
{
	char name[] = "xrcd-XXXXXX";
	int fd = mkstemp(name);
	CHECK(fd >= 0 && !unlink(name));
	return fd;
}

/* The passive end has opened it. For another user that is no domain, and its name is nobody's. */
static struct ibv_xrcd *open_as_owner(struct end *o, int fd)
{
	bool is_strange = geteuid() == OTHER_USER;
	struct ibv_xrcd *xrcd = open_domain(o, fd, 0);
	if (is_strange) {
		CHECK(!xrcd && errno == EAGAIN);
		CHECK(xrcd = open_domain(o, fd, O_CREAT | O_EXCL));
	}
	CHECK(xrcd);
	CHECK(!open_domain(o, fd, O_CREAT | O_EXCL) && errno == EEXIST);
	return xrcd;
}

/* The owner's whole life; o talks to the passive end. */
_Noreturn static void own(const struct end *like, int sock, int fd, owners_part *part, disguise *put_on)
{
	struct end o = { .passive = true, .sock = sock, .seed = like->seed };
	struct params p = params();
	struct xrc x = { 0 };
	alarm(120);
	hear(&o); /* the domain is there */
	if (put_on)
		put_on();
	rc_open(&o, &p);
	x.xrcd = open_as_owner(&o, fd);
	make_queue(&o, x.xrcd, &x.q[1]);
	tell_queue(&o, &x.q[1]);
	part(&o, &x, fd);
	free_queue(&x.q[1]);
	CHECK_EQ(ibv_close_xrcd(x.xrcd), 0);
	rc_close(&o);
	_exit(0);
}

static void start_owner(struct end *e, struct shared *s, owners_part *part, disguise *put_on)
{
	int pair[2];
	s->fd = make_file();
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
	CHECK((s->pid = fork()) >= 0);
	if (!s->pid)
		own(e, pair[1], s->fd, part, put_on);
	close(pair[1]);
	s->owner = (struct end){ .sock = pair[0], .seed = e->seed };
}

static void hear_queue(struct end *from, struct xrc *x, int i)
{
	x->number[i] = (uint32_t)hear(from);
	x->rkey[i] = (uint32_t)hear(from);
	x->addr[i] = hear(from);
}

static void start_with(struct end *e, struct shared *s, owners_part *part, disguise *put_on,
		       uint8_t rnr_retry)
{
	struct params p = params();
	p.rnr_retry = rnr_retry;
	struct xrc *x = &s->x;
	p.bytes = 1 << 20;
	*s = (struct shared){ 0 };
	if (e->passive)
		start_owner(e, s, part, put_on);
	rc_open(e, &p);
	if (e->passive) {
		CHECK(!open_domain(e, s->fd, 0) && errno == EAGAIN);
		CHECK(x->xrcd = open_domain(e, s->fd, O_CREAT | O_EXCL));
		tell(&s->owner, 0);
		hear_queue(&s->owner, x, 1);
		make_queue(e, x->xrcd, &x->q[0]);
		tell_queue(e, &x->q[0]);
		tell(e, x->number[1]);
		tell(e, x->rkey[1]);
		tell(e, x->addr[1]);
	} else {
		hear_queue(e, x, 0);
		hear_queue(e, x, 1);
	}
	CHECK(x->qp = make_xrc_qp(e, x));
	connect_xrc_qp(e, x);
}

static void start(struct end *e, struct shared *s, owners_part *part) { start_with(e, s, part, NULL, 7); }

static void finish(struct end *e, struct shared *s)
{
	meet(e);
	if (s->x.qp)
		CHECK_EQ(ibv_destroy_qp(s->x.qp), 0);
	if (e->passive) {
		free_queue(&s->x.q[0]);
		CHECK_EQ(ibv_close_xrcd(s->x.xrcd), 0);
		if (s->pid)
			CHECK_EQ(rc_reap(s->pid), 0);
		close(s->fd);
	}
	rc_close(e);
}

/* ---- sends ---- */

static const uint32_t sizes[] = { 0, 8, 100, 1024, 5000, 60000 };
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void expect_receive(struct end *e, struct queue *q, uint64_t id, uint32_t n, uint32_t qpn,
			   uint32_t src_qpn)
{
	struct ibv_wc wc = rc_expect(q->cq, id, IBV_WC_SUCCESS);
	CHECK_EQ(wc.opcode, IBV_WC_RECV);
	CHECK_EQ(wc.byte_len, n);
	CHECK_EQ(wc.qp_num, qpn);
	CHECK_EQ(wc.src_qp, src_qpn);
	CHECK_EQ(wc.wc_flags, IBV_WC_WITH_IMM);
	CHECK_EQ(ntohl(wc.imm_data), 99);
	VERIFY(q->memory, n, e->seed + id);
}

static void owner_receives(struct end *o, struct xrc *x, int fd)
{
	uint32_t qpn = (uint32_t)hear(o), src_qpn = (uint32_t)hear(o);
	for (uint64_t i = 0; i < SIZES; i++) {
		CHECK_EQ(post_srq(&x->q[1], i, 0, 1 << 16), 0);
		tell(o, 0);
		expect_receive(o, &x->q[1], i, sizes[i], qpn, src_qpn);
		rc_expect_none(x->q[1].cq);
		tell(o, 0);
	}
}

/* One to the owner's queue, one to the passive end's own, in turn. */
static void send__to_a_queue_of_another_process(struct end *e)
{
	struct shared s;
	start(e, &s, owner_receives);
	if (e->passive) {
		tell(&s.owner, s.x.qp->qp_num);
		tell(&s.owner, s.x.peer.qpn);
	}
	for (uint64_t i = 0; i < SIZES; i++) {
		if (e->passive) {
			CHECK_EQ(post_srq(&s.x.q[0], i, 0, 1 << 16), 0);
			hear(&s.owner);
			meet(e);
			hear(&s.owner);
			expect_receive(e, &s.x.q[0], i, sizes[i], s.x.qp->qp_num, s.x.peer.qpn);
		} else {
			rc_fill(e->buf, sizes[i], e->seed + i);
			meet(e);
			for (uint64_t k = 0; k < 2; k++)
				CHECK_EQ(post_xrc(e, &s.x, 2 * i + k, IBV_WR_SEND_WITH_IMM, 0, sizes[i],
						  s.x.number[1 - k], 0, 0),
					 0);
			for (uint64_t k = 0; k < 2; k++)
				rc_expect(e->scq, 2 * i + k, IBV_WC_SUCCESS);
		}
	}
	finish(e, &s);
}

static void owner_receives_late(struct end *o, struct xrc *x, int fd)
{
	for (uint64_t i = 0; i < 10; i++) {
		hear(o);
		rc_pause_ms(2);
		CHECK_EQ(post_srq(&x->q[1], i, 0, 64), 0);
		rc_expect(x->q[1].cq, i, IBV_WC_SUCCESS);
		tell(o, 0);
	}
}

static void send__before_the_receive(struct end *e)
{
	struct shared s;
	start(e, &s, owner_receives_late);
	for (uint64_t i = 0; i < 10; i++) {
		if (e->passive) {
			tell(&s.owner, hear(e));
			hear(&s.owner);
		} else {
			CHECK_EQ(post_xrc(e, &s.x, i, IBV_WR_SEND, 0, 64, s.x.number[1], 0, 0), 0);
			tell(e, 0);
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		}
		meet(e);
	}
	finish(e, &s);
}

static void owner_receives_little(struct end *o, struct xrc *x, int fd)
{
	CHECK_EQ(post_srq(&x->q[1], 7, 0, 64), 0);
	tell(o, 0);
	rc_expect(x->q[1].cq, 7, IBV_WC_LOC_LEN_ERR);
	rc_expect_none(x->q[1].cq);
}

static void send__longer_than_the_receive(struct end *e)
{
	struct shared s;
	start(e, &s, owner_receives_little);
	if (e->passive)
		hear(&s.owner);
	meet(e);
	if (!e->passive) {
		CHECK_EQ(post_xrc(e, &s.x, 1, IBV_WR_SEND, 0, 100, s.x.number[1], 0, 0), 0);
		rc_expect(e->scq, 1, IBV_WC_REM_INV_REQ_ERR);
		CHECK_EQ(rc_state(s.x.qp), IBV_QPS_ERR);
	}
	finish(e, &s);
}

static void owner_does_nothing(struct end *o, struct xrc *x, int fd)
{
	hear(o);
}

static void send__to_a_queue_that_stays_empty(struct end *e)
{
	struct shared s;
	start_with(e, &s, owner_does_nothing, NULL, 1);
	if (!e->passive) {
		CHECK_EQ(post_xrc(e, &s.x, 1, IBV_WR_SEND, 0, 100, s.x.number[1], 0, 0), 0);
		rc_expect(e->scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	}
	meet(e);
	if (e->passive)
		tell(&s.owner, 0);
	finish(e, &s);
}

/* The owner's slot has other numbers too. */
static void send__to_no_queue(struct end *e)
{
	struct shared s;
	start(e, &s, owner_does_nothing);
	if (e->passive) {
		rc_expect_event(e, IBV_EVENT_QP_REQ_ERR);
		tell(&s.owner, 0);
	} else {
		CHECK_EQ(post_xrc(e, &s.x, 1, IBV_WR_SEND, 0, 100, s.x.number[1] ^ 0x800, 0, 0), 0);
		rc_expect(e->scq, 1, IBV_WC_REM_INV_REQ_ERR);
	}
	finish(e, &s);
}

/* ---- one-sided ---- */

static void owner_is_reached(struct end *o, struct xrc *x, int fd)
{
	rc_set_word(x->q[1].memory + 64, 7);
	CHECK_EQ(post_srq(&x->q[1], 9, 0, 64), 0);
	tell(o, 0);
	struct ibv_wc wc = rc_expect(x->q[1].cq, 9, IBV_WC_SUCCESS);
	CHECK_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK_EQ(wc.byte_len, 50000);
	VERIFY(x->q[1].memory + 4096, 50000, o->seed);
	CHECK_EQ(rc_word(x->q[1].memory + 64), 12);
	hear(o);
}

static void one_sided__in_another_process(struct end *e)
{
	struct shared s;
	struct xrc *x = &s.x;
	start(e, &s, owner_is_reached);
	if (e->passive)
		hear(&s.owner);
	meet(e);
	if (e->passive) {
		rc_expect_event(e, IBV_EVENT_QP_ACCESS_ERR);
		tell(&s.owner, 0);
		finish(e, &s);
		return;
	}
	rc_fill(e->buf, 50000, e->seed);
	CHECK_EQ(post_xrc(e, x, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, 1 << 19, 8, x->number[1], x->addr[1] + 64,
			  x->rkey[1]),
		 0);
	rc_expect(e->scq, 1, IBV_WC_SUCCESS);
	CHECK_EQ(rc_word(e->buf + (1 << 19)), 7);
	CHECK_EQ(post_xrc(e, x, 2, IBV_WR_RDMA_WRITE, 0, 50000, x->number[1], x->addr[1] + 4096, x->rkey[1]),
		 0);
	rc_expect(e->scq, 2, IBV_WC_SUCCESS);
	CHECK_EQ(post_xrc(e, x, 3, IBV_WR_RDMA_READ, 100000, 50000, x->number[1], x->addr[1] + 4096,
			  x->rkey[1]),
		 0);
	rc_expect(e->scq, 3, IBV_WC_SUCCESS);
	VERIFY(e->buf + 100000, 50000, e->seed);
	CHECK_EQ(post_xrc(e, x, 4, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 50000, x->number[1], x->addr[1] + 4096,
			  x->rkey[1]),
		 0);
	rc_expect(e->scq, 4, IBV_WC_SUCCESS);
	CHECK_EQ(post_xrc(e, x, 5, IBV_WR_RDMA_WRITE, 0, 8, x->number[1], x->addr[1], x->rkey[1] + 1), 0);
	rc_expect(e->scq, 5, IBV_WC_REM_ACCESS_ERR);
	finish(e, &s);
}

/* ---- ends ---- */

static void owner_is_killed(struct end *o, struct xrc *x, int fd)
{
	CHECK_EQ(post_srq(&x->q[1], 0, 0, 64), 0);
	tell(o, 0);
	rc_expect(x->q[1].cq, 0, IBV_WC_SUCCESS);
	raise(SIGKILL);
}

/* With its process goes the queue; what it had received it has received. */
static void owner__that_dies(struct end *e)
{
	struct shared s;
	start(e, &s, owner_is_killed);
	if (e->passive) {
		hear(&s.owner);
		meet(e);
		int status = rc_reap(s.pid);
		CHECK(WIFSIGNALED(status));
		s.pid = 0;
		meet(e);
		rc_expect_event(e, IBV_EVENT_QP_REQ_ERR);
	} else {
		meet(e);
		CHECK_EQ(post_xrc(e, &s.x, 1, IBV_WR_SEND, 0, 64, s.x.number[1], 0, 0), 0);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
		meet(e);
		CHECK_EQ(post_xrc(e, &s.x, 2, IBV_WR_SEND, 0, 64, s.x.number[1], 0, 0), 0);
		rc_expect(e->scq, 2, IBV_WC_REM_INV_REQ_ERR);
	}
	finish(e, &s);
}

static struct ibv_qp *open_again(struct end *e, struct ibv_xrcd *xrcd, uint32_t qpn)
{
	struct ibv_qp_open_attr attr = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
						      IBV_QP_OPEN_ATTR_TYPE,
					 .qp_num = qpn,
					 .xrcd = xrcd,
					 .qp_type = IBV_QPT_XRC_RECV };
	return ibv_open_qp(e->ctx, &attr);
}

static void *query_often(void *qp)
{
	for (int i = 0; i < 200; i++)
		CHECK_EQ(rc_state(qp), IBV_QPS_RTS);
	return NULL;
}

/* A counter that could not be attached can go. */
static void cannot_count(struct end *o, struct ibv_qp *qp)
{
	struct ibv_comp_cntr_init_attr attr = { .type = IBV_COMP_CNTR_TYPE_WRS };
	struct ibv_qp_attach_comp_cntr_attr attach = { .op_mask = IBV_QP_ATTACH_COMP_CNTR_OP_RECV };
	struct ibv_comp_cntr *counter = ibv_create_comp_cntr(o->ctx, &attr);
	CHECK(counter);
	CHECK_EQ(ibv_qp_attach_comp_cntr(qp, counter, &attach), EOPNOTSUPP);
	CHECK_EQ(ibv_destroy_comp_cntr(counter), 0);
}

/* Two threads use one handle. */
static void modify_while_queried(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .min_rnr_timer = 5 };
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, query_often, qp), 0);
	for (int i = 0; i < 200; i++)
		CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_MIN_RNR_TIMER), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

/* Has it, when the passive end has given it up. */
static void owner_keeps_the_queue_pair(struct end *o, struct xrc *x, int fd)
{
	uint32_t qpn = (uint32_t)hear(o);
	struct ibv_qp *qp = open_again(o, x->xrcd, qpn);
	struct ibv_recv_wr *bad, wr = { .wr_id = 1 };
	struct ibv_qp_attr attr = { 0 };
	CHECK(qp && qp->qp_num == qpn && qp->state == IBV_QPS_RTS && qp->qp_type == IBV_QPT_XRC_RECV);
	CHECK(!open_again(o, x->xrcd, qpn ^ 1) && errno == EINVAL);
	modify_while_queried(qp);
	cannot_count(o, qp);
	attr.qp_state = IBV_QPS_INIT;
	CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	CHECK_EQ(ibv_post_recv(qp, &wr, &bad), EINVAL);
	CHECK_EQ(ibv_close_xrcd(x->xrcd), EBUSY);
	CHECK_EQ(post_srq(&x->q[1], 3, 0, 64), 0);
	tell(o, 0);
	hear(o); /* it has been destroyed there */
	tell(o, 0);
	rc_expect(x->q[1].cq, 3, IBV_WC_SUCCESS);
	CHECK_EQ(rc_state(qp), IBV_QPS_RTS);
	hear(o);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	tell(o, 0);
}

static void qp__kept_by_another_process(struct end *e)
{
	struct shared s;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	start(e, &s, owner_keeps_the_queue_pair);
	if (e->passive) {
		tell(&s.owner, s.x.qp->qp_num);
		hear(&s.owner);
		CHECK_EQ(ibv_query_qp(s.x.qp, &attr, IBV_QP_MIN_RNR_TIMER, &init), 0);
		CHECK_EQ(attr.min_rnr_timer, 5);
		CHECK_EQ(ibv_destroy_qp(s.x.qp), 0);
		CHECK_EQ(ibv_close_xrcd(s.x.xrcd), EBUSY);
		s.x.qp = NULL;
		tell(&s.owner, 0);
		hear(&s.owner);
		meet(e);
		meet(e);
		tell(&s.owner, 0);
		hear(&s.owner);
		while (open_again(e, s.x.xrcd, (uint32_t)hear(e)))
			rc_fail(__FILE__, __LINE__, "it is there still");
	} else {
		meet(e);
		CHECK_EQ(post_xrc(e, &s.x, 1, IBV_WR_SEND, 0, 64, s.x.number[1], 0, 0), 0);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
		meet(e);
		tell(e, s.x.peer.qpn);
	}
	finish(e, &s);
}

static void owner_loses_the_queue_pair(struct end *o, struct xrc *x, int fd)
{
	struct ibv_qp *qp = open_again(o, x->xrcd, (uint32_t)hear(o));
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp_init_attr init;
	CHECK(qp);
	tell(o, 0);
	hear(o);
	CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), EIO);
	CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EIO);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK(!open_domain(o, fd, O_CREAT | O_EXCL) && errno == EEXIST); /* its own */
	tell(o, 0);
}

/* The queue pair's process is a fourth one, which is killed. */
static void qp__of_a_process_that_dies(struct end *e)
{
	struct end o, w;
	struct params p = params();
	int fd = make_file(), pair[2], way[2];
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) &&
	      !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, way));
	pid_t owner = fork();
	if (!owner)
		own(e, pair[1], fd, owner_loses_the_queue_pair, NULL);
	pid_t other = fork();
	if (!other) {
		struct xrc x = { 0 };
		w = (struct end){ .passive = true, .sock = way[1] };
		rc_open(&w, &p);
		CHECK(x.xrcd = open_domain(&w, fd, O_CREAT));
		CHECK(x.qp = make_xrc_qp(&w, &x));
		tell(&w, x.qp->qp_num);
		hear(&w);
		raise(SIGKILL);
	}
	o = (struct end){ .sock = pair[0] };
	w = (struct end){ .sock = way[0] };
	uint64_t qpn = hear(&w);
	tell(&o, 0);
	for (int i = 0; i < 3; i++)
		hear(&o); /* of its queue */
	tell(&o, qpn);
	hear(&o);
	tell(&w, 0);
	CHECK(WIFSIGNALED(rc_reap(other)));
	tell(&o, 0);
	hear(&o);
	CHECK_EQ(rc_reap(owner), 0);
	close(fd);
}

/* ---- owners that may not share memory with the passive end ---- */

static void be_another_user(void)
{
	CHECK(!setresuid(OTHER_USER, OTHER_USER, OTHER_USER));
	CHECK(!prctl(PR_SET_DUMPABLE, 1));
}

static void hide(void) { CHECK(!prctl(PR_SET_DUMPABLE, 0)); }

static bool can_be_another_user(void)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		_exit(setresuid(OTHER_USER, OTHER_USER, OTHER_USER) != 0);
	return !rc_reap(pid);
}

/* Neither has a use for the other's queue pair. */
static void stranger_gets_nothing(struct end *o, struct xrc *x, int fd)
{
	struct xrc own = { .xrcd = x->xrcd };
	CHECK(own.qp = make_xrc_qp(o, &own));
	CHECK(!open_again(o, x->xrcd, (uint32_t)hear(o)) && errno == EINVAL);
	CHECK_EQ(post_srq(&x->q[1], 3, 0, 64), 0);
	rc_set(x->q[1].memory, 64, 0x5a);
	tell(o, own.qp->qp_num);
	hear(o);
	rc_expect_none(x->q[1].cq);
	VERIFY_BYTE(x->q[1].memory, 64, 0x5a);
	CHECK_EQ(ibv_destroy_qp(own.qp), 0);
}

/* A process that may not share memory opens a domain of its own: neither reaches the other's queues. */
static void send_to_stranger(struct end *e, disguise *put_on)
{
	struct shared s;
	start_with(e, &s, stranger_gets_nothing, put_on, 7);
	if (e->passive) {
		tell(&s.owner, s.x.qp->qp_num);
		CHECK(!open_again(e, s.x.xrcd, (uint32_t)hear(&s.owner)) && errno == EINVAL);
		meet(e);
		rc_expect_event(e, IBV_EVENT_QP_REQ_ERR);
		meet(e);
		tell(&s.owner, 0);
	} else {
		meet(e);
		CHECK_EQ(post_xrc(e, &s.x, 1, IBV_WR_SEND, 0, 64, s.x.number[1], 0, 0), 0);
		rc_expect(e->scq, 1, IBV_WC_REM_INV_REQ_ERR);
		meet(e);
	}
	finish(e, &s);
}

static void send__to_a_queue_of_another_user(struct end *e)
{
	if (e->passive && !can_be_another_user())
		rc_skip("this process cannot become another user");
	send_to_stranger(e, be_another_user);
}

static void send__to_a_queue_of_a_process_that_hides(struct end *e) { send_to_stranger(e, hide); }

/* ---- an owner that is stopped ---- */

/*
 * The queue is in use until its server has seen that the client is gone. Meanwhile no request arrives that
 * the client has seen fail.
 */
static void destroy_at_last(struct queue *q)
{
	struct ibv_wc wc;
	int err;
	while ((err = ibv_destroy_srq(q->srq)) == EBUSY) {
		CHECK(!ibv_poll_cq(q->cq, 1, &wc) || wc.status != IBV_WC_SUCCESS);
		rc_pause_ms(1);
	}
	CHECK_EQ(err, 0);
	q->srq = NULL;
}

static void owner_is_stopped(struct end *o, struct xrc *x, int fd)
{
	CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
	CHECK_EQ(post_srq(&x->q[1], 0, 0, 64), 0);
	CHECK_EQ(post_srq(&x->q[1], 1, 0, 64), 0);
	tell(o, 0);
	rc_expect(x->q[1].cq, 0, IBV_WC_SUCCESS);
	tell(o, 0);
	hear(o);
	destroy_at_last(&x->q[1]);
}

/* Another queue pair of both ends goes on. */
static void exchange(struct end *e)
{
	enum { MESSAGES = 50 };
	for (uint64_t i = 0; i < MESSAGES; i++) {
		rc_recv(e, i, 0, 64);
		meet(e);
		POST(e, .id = 100 + i, .opcode = IBV_WR_SEND, .at = 4096, .len = 64, .quiet = true);
		rc_expect(e->rcq, i, IBV_WC_SUCCESS);
	}
}

static void expect_failure(struct end *e, uint64_t id)
{
	struct ibv_wc wc = rc_wait(e->scq);
	CHECK_EQ(wc.wr_id, id);
	CHECK(wc.status == IBV_WC_REM_INV_REQ_ERR || wc.status == IBV_WC_REM_OP_ERR ||
	      wc.status == IBV_WC_RETRY_EXC_ERR);
}

static void stop_owner(const struct shared *s)
{
	int status;
	CHECK(!kill(s->pid, SIGSTOP));
	CHECK_EQ(TEMP_FAILURE_RETRY(waitpid(s->pid, &status, WUNTRACED)), s->pid);
	CHECK(WIFSTOPPED(status));
}

/* The first request comes through. The owner is stopped when the second one comes. */
static void ask_and_stop_owner(struct end *e, struct shared *s)
{
	start(e, s, owner_is_stopped);
	e->peer = rc_connect(e, e->qp);
	if (e->passive)
		hear(&s->owner);
	meet(e);
	if (e->passive) {
		hear(&s->owner);
		stop_owner(s);
	} else {
		CHECK_EQ(post_xrc(e, &s->x, 1, IBV_WR_SEND, 0, 64, s->x.number[1], 0, 0), 0);
		rc_expect(e->scq, 1, IBV_WC_SUCCESS);
	}
	meet(e);
	if (!e->passive)
		CHECK_EQ(post_xrc(e, &s->x, 2, IBV_WR_SEND, 0, 64, s->x.number[1], 0, 0), 0);
}

static void give_up_region_and_queue_pair(struct end *e, struct shared *s)
{
	struct ibv_mr *mr = ibv_reg_mr(e->pd, e->buf, 4096, e->p.mr_access);
	CHECK(mr);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_destroy_qp(s->x.qp), 0);
	s->x.qp = NULL;
}

static void let_owner_go_on(struct end *e, struct shared *s)
{
	meet(e);
	if (e->passive) {
		CHECK(!kill(s->pid, SIGCONT));
		tell(&s->owner, 0);
	}
	finish(e, s);
}

static void owner__that_is_stopped(struct end *e)
{
	struct shared s;
	ask_and_stop_owner(e, &s);
	exchange(e);
	if (!e->passive)
		expect_failure(e, 2);
	meet(e);
	if (e->passive)
		give_up_region_and_queue_pair(e, &s);
	let_owner_go_on(e, &s);
}

/* Nor do the calls of its peer's peer wait for it. */
static void owner__that_is_stopped_while_the_queue_pair_goes(struct end *e)
{
	struct shared s;
	ask_and_stop_owner(e, &s);
	meet(e);
	if (e->passive)
		give_up_region_and_queue_pair(e, &s);
	else
		expect_failure(e, 2);
	exchange(e);
	let_owner_go_on(e, &s);
}

/* ---- a handle that comes while the last one goes ---- */

struct opener {
	struct end *e;
	struct ibv_xrcd *xrcd;
	_Atomic(uint32_t) qpn;
	atomic_bool is_over;
};

static void *open_often(void *arg)
{
	struct opener *o = arg;
	while (!atomic_load(&o->is_over)) {
		struct ibv_qp *qp = open_again(o->e, o->xrcd, atomic_load(&o->qpn));
		if (qp)
			CHECK_EQ(ibv_destroy_qp(qp), 0);
	}
	return NULL;
}

/* Who finds it has it; who comes too late finds none. */
static void qp__opened_while_it_goes(struct end *e)
{
	struct params p = params();
	struct opener o = { .e = e };
	pthread_t thread;
	int fd = make_file();
	rc_open(e, &p);
	CHECK(o.xrcd = open_domain(e, fd, O_CREAT));
	struct xrc x = { .xrcd = o.xrcd };
	e->passive = true;
	CHECK_EQ(pthread_create(&thread, NULL, open_often, &o), 0);
	for (int i = 0; i < 100000; i++) {
		struct ibv_qp *qp = make_xrc_qp(e, &x);
		CHECK(qp);
		atomic_store(&o.qpn, qp->qp_num);
		for (unsigned wait = 0; wait < (unsigned)i % 64; wait++)
			atomic_load(&o.qpn);
		CHECK_EQ(ibv_destroy_qp(qp), 0);
	}
	atomic_store(&o.is_over, true);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(ibv_close_xrcd(o.xrcd), 0);
	rc_close(e);
	close(fd);
}

static const struct body bodies[] = {
	BODY_IN(send__to_a_queue_of_another_process, PROCESSES_ONLY),
	BODY_IN(send__before_the_receive, PROCESSES_ONLY),
	BODY_IN(send__longer_than_the_receive, PROCESSES_ONLY),
	BODY_IN(send__to_a_queue_that_stays_empty, PROCESSES_ONLY),
	BODY_IN(send__to_no_queue, PROCESSES_ONLY),
	BODY_IN(one_sided__in_another_process, PROCESSES_ONLY),
	BODY_IN(owner__that_dies, PROCESSES_ONLY),
	BODY_IN(send__to_a_queue_of_another_user, PROCESSES_ONLY),
	BODY_IN(send__to_a_queue_of_a_process_that_hides, PROCESSES_ONLY),
	BODY_IN(owner__that_is_stopped, PROCESSES_ONLY),
	BODY_IN(owner__that_is_stopped_while_the_queue_pair_goes, PROCESSES_ONLY),
	BODY_IN(qp__kept_by_another_process, PROCESSES_ONLY),
	BODY_IN(qp__of_a_process_that_dies, ALONE),
	BODY_IN(qp__opened_while_it_goes, ALONE),
};

RC_MAIN(bodies)
