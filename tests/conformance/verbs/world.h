/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the tests of verbs share: an open device with a PD, a CQ and a channel, and QPs in a given state. The
 * device is vb_lo, or the one that VERBATIM_TEST_DEVICE names. Teardown checks that everything can be
 * destroyed.
 */
#ifndef VERBS_TEST_WORLD_H
#define VERBS_TEST_WORLD_H

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define UNUSED __attribute__((unused))
#define COUNT(a) (sizeof(a) / sizeof(*(a)))

/* INLINE is more than SGES entries take up, so that no more than asked for is granted. */
enum {
	DEPTH = 8,
	SGES = 3,
	INLINE = 64,
	BUFFER = 4096,
	ANY_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC
};

/* In a forked child there is no cmocka to go back to: what fails there ends it. */
static UNUSED bool is_forked_child;

#define FAILS(...)                                              \
	do {                                                    \
		if (is_forked_child) {                          \
			fprintf(stderr, "# child: " __VA_ARGS__); \
			fputc('\n', stderr);                    \
			_exit(1);                               \
		}                                               \
		fail_msg(__VA_ARGS__);                          \
	} while (0)

/* A call that makes an object refuses with NULL and this errno. */
#define assert_null_errno(err, call)                                                                         \
	do {                                                                                                 \
		errno = 0;                                                                                   \
		const void *made_ = (call);                                                                  \
		int errno_ = errno;                                                                          \
		if (made_ || errno_ != (err))                                                                \
			FAILS("%s: %s, errno %s; expected NULL, %s", #call, made_ ? "an object" : "NULL",    \
				 strerror(errno_), strerror(err));                                           \
	} while (0)

/* A call returns -1 and sets this errno. */
#define assert_minus1_errno(err, call)             \
	do {                                       \
		errno = 0;                         \
		int ret_ = (call);                 \
		int errno_ = errno;                \
		if (ret_ != -1 || errno_ != (err)) \
			FAILS("%s: %d, errno %s; expected -1, %s", #call, ret_, strerror(errno_), strerror(err)); \
	} while (0)

/* A call returns this errno value (0: none). */
#define assert_errno(err, call)    \
	do {                       \
		int ret_ = (call); \
		if (ret_ != (err)) \
			FAILS("%s: %d (%s), expected %d (%s)", #call, ret_, strerror(ret_), (err), strerror(err)); \
	} while (0)

/* ibv_rereg_mr refuses with this errno, and has left the region as it was. */
#define assert_rereg_errno(err, call)                              \
	do {                                                       \
		assert_errno(IBV_REREG_MR_ERR_INPUT, call);        \
		assert_errno(err, errno);                          \
	} while (0)

struct world {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq; /* of the channel */
	struct ibv_mr *mr; /* of buffer, with every right */
	uint8_t buffer[BUFFER];
};

static UNUSED struct ibv_context *open_test_device(void)
{
	const char *name = getenv("VERBATIM_TEST_DEVICE");
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	assert_non_null(list);
	for (struct ibv_device **d = list; *d && !ctx; d++)
		if (!strcmp(ibv_get_device_name(*d), name ? name : "vb_lo"))
			ctx = ibv_open_device(*d);
	ibv_free_device_list(list);
	if (!ctx)
		FAILS("the device cannot be opened: %s", strerror(errno));
	return ctx;
}

static UNUSED int make_world(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	w->ctx = open_test_device();
	assert_non_null(w->pd = ibv_alloc_pd(w->ctx));
	assert_non_null(w->channel = ibv_create_comp_channel(w->ctx));
	assert_non_null(w->cq = ibv_create_cq(w->ctx, 64, w, w->channel, 0));
	assert_non_null(w->mr = ibv_reg_mr(w->pd, w->buffer, BUFFER, ANY_ACCESS));
	*state = w;
	return 0;
}

static UNUSED int end_world(void **state)
{
	struct world *w = *state;
	assert_errno(0, ibv_dereg_mr(w->mr));
	assert_errno(0, ibv_destroy_cq(w->cq));
	assert_errno(0, ibv_destroy_comp_channel(w->channel));
	assert_errno(0, ibv_dealloc_pd(w->pd));
	assert_int_equal(ibv_close_device(w->ctx), 0);
	free(w);
	return 0;
}

#define WORLD_TEST(function) cmocka_unit_test_setup_teardown(function, make_world, end_world)

/* ---- queue pairs ---- */

static UNUSED struct ibv_qp_init_attr qp_attr(struct world *w)
{
	return (struct ibv_qp_init_attr){
		.send_cq = w->cq,
		.recv_cq = w->cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = DEPTH,
			 .max_recv_wr = DEPTH,
			 .max_send_sge = SGES,
			 .max_recv_sge = SGES,
			 .max_inline_data = INLINE },
	};
}

/* Of a shared receive queue with a list of tags. */
static UNUSED struct ibv_srq_init_attr_ex tags_attr(struct world *w, uint32_t most_tags, uint32_t most_ops)
{
	return (struct ibv_srq_init_attr_ex){
		.attr = { .max_wr = 4, .max_sge = 1 },
		.srq_type = IBV_SRQT_TM,
		.pd = w->pd,
		.cq = w->cq,
		.tm_cap = { .max_num_tags = most_tags, .max_ops = most_ops },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_TM,
	};
}

static UNUSED struct ibv_qp *make_qp(struct world *w, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr attr = qp_attr(w);
	attr.srq = srq;
	struct ibv_qp *qp = ibv_create_qp(w->pd, &attr);
	assert_non_null(qp);
	return qp;
}

/* What the way from RESET over INIT and RTR to RTS needs, towards QP dest of the same device. */
static UNUSED struct ibv_qp_attr connect_attr(struct world *w, uint32_t dest)
{
	struct ibv_qp_attr a = {
		.port_num = 1, .qp_access_flags = ANY_ACCESS & ~IBV_ACCESS_LOCAL_WRITE,
		.path_mtu = IBV_MTU_1024, .dest_qp_num = dest,
		.rq_psn = 11, .sq_psn = 11, .max_dest_rd_atomic = 4, .max_rd_atomic = 4, .min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7, .rnr_retry = 7, .ah_attr = { .is_global = 1, .port_num = 1,
		.grh = { .hop_limit = 64 } },
	};
	assert_int_equal(ibv_query_gid(w->ctx, 1, 0, &a.ah_attr.grh.dgid), 0);
	return a;
}

static const int mask_to[] = {
	[IBV_QPS_INIT] = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	[IBV_QPS_RTR] = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			IBV_QP_MIN_RNR_TIMER,
	[IBV_QPS_RTS] = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
};

/* One step of the way; returns what ibv_modify_qp returns. */
static UNUSED int step(struct world *w, struct ibv_qp *qp, enum ibv_qp_state to, uint32_t dest)
{
	struct ibv_qp_attr a = connect_attr(w, dest);
	a.qp_state = to;
	return ibv_modify_qp(qp, &a, mask_to[to]);
}

/* From RESET. */
static UNUSED void bring_to(struct world *w, struct ibv_qp *qp, enum ibv_qp_state to, uint32_t dest)
{
	for (enum ibv_qp_state s = IBV_QPS_INIT; s <= to; s++)
		assert_errno(0, step(w, qp, s, dest));
}

static UNUSED int set_state(struct ibv_qp *qp, enum ibv_qp_state to)
{
	return ibv_modify_qp(qp, &(struct ibv_qp_attr){ .qp_state = to }, IBV_QP_STATE);
}

static UNUSED enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	assert_errno(0, ibv_query_qp(qp, &a, IBV_QP_STATE, &init));
	return a.qp_state;
}

struct wire {
	struct ibv_qp *a, *b;
};

static UNUSED struct wire connected(struct world *w, struct ibv_srq *srq)
{
	struct wire x = { make_qp(w, srq), make_qp(w, srq) };
	bring_to(w, x.a, IBV_QPS_RTS, x.b->qp_num);
	bring_to(w, x.b, IBV_QPS_RTS, x.a->qp_num);
	return x;
}

static UNUSED void disconnected(struct wire *x)
{
	assert_errno(0, ibv_destroy_qp(x->a));
	assert_errno(0, ibv_destroy_qp(x->b));
}

/* A shared receive queue of DEPTH receives. */
static UNUSED struct ibv_srq *make_srq(struct world *w)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(w->pd, &init);
	assert_non_null(srq);
	return srq;
}

/* ---- work ---- */

static UNUSED struct ibv_sge sge_at(struct world *w, size_t at, uint32_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)w->buffer + at, .length = length, .lkey = w->mr->lkey };
}

static UNUSED int post_recv(struct world *w, struct ibv_qp *qp, uint64_t wr_id)
{
	struct ibv_sge sge = sge_at(w, 0, 64);
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;
	return ibv_post_recv(qp, &wr, &bad);
}

static UNUSED int post_srq(struct world *w, struct ibv_srq *srq, uint64_t wr_id)
{
	struct ibv_sge sge = sge_at(w, 0, 64);
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;
	return ibv_post_srq_recv(srq, &wr, &bad);
}

static UNUSED int post_send(struct world *w, struct ibv_qp *qp, uint64_t wr_id, unsigned flags)
{
	struct ibv_sge sge = sge_at(w, 1024, 16);
	struct ibv_send_wr wr = { .wr_id = wr_id,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = flags },
			   *bad;
	return ibv_post_send(qp, &wr, &bad);
}

/* The next completion; a test that waits in vain is ended by its watchdog. */
static UNUSED struct ibv_wc next_wc(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;
	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	assert_int_equal(n, 1);
	return wc;
}

static UNUSED void drain(struct ibv_cq *cq, int count)
{
	while (count--)
		next_wc(cq);
}

/* ---- descriptors ---- */

static UNUSED bool is_readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	return poll(&p, 1, timeout_ms) == 1;
}

static UNUSED void set_nonblocking(int fd)
{
	assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

/* ---- a call that must not return yet ---- */

struct waiting {
	void (*call)(void *arg);
	void *arg;
	atomic_bool returned;
	pthread_t thread;
};

static UNUSED void *waiting_thread(void *arg)
{
	struct waiting *w = arg;
	w->call(w->arg);
	atomic_store(&w->returned, true);
	return NULL;
}

static UNUSED void start_waiting(struct waiting *w)
{
	atomic_init(&w->returned, false);
	assert_int_equal(pthread_create(&w->thread, NULL, waiting_thread, w), 0);
	usleep(20000); /* time to get it wrong */
	assert_false(atomic_load(&w->returned));
}

static UNUSED void end_waiting(struct waiting *w)
{
	pthread_join(w->thread, NULL);
	assert_true(atomic_load(&w->returned));
}

#endif
