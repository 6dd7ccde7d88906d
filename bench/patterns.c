/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The instructions of SENDs as programs differ in them, for callgrind: numbers of pieces, inline data, sizes,
 * shared receive queues, unsignalled requests, completion queues, the calls of ibv_wr_post(3), XRC. What the
 * table `patterns` lists is sent from one queue pair to another of this process, so every call comes in a
 * known order and any size is copied as between processes that have mapped their memory.
 *
 * Each dump has one kind of call of MESSAGES messages. instructions.py takes the median of the dumps, since
 * the progress thread may come in between. usage: valgrind --tool=callgrind --collect-atstart=no
 * --callgrind-out-file=PATH.%p patterns
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valgrind/callgrind.h>

#include "pair.h"

enum {
	SAMPLES = 5,
	MESSAGES = 64,         /* LIST in instructions.py */
	DEPTH = 2 * MESSAGES,
	IN_VAIN = 64,          /* polls that make a program one that polls all the time */
	MOST_POLLS = 1000000,
	POLL_BATCH = 16,
	MOST_PIECES = 16,
	INLINE_BYTES = 64,
	MOST_BYTES = 8192,
};

enum flags {
	INLINE = 1,
	SRQ = 2,
	TWO_CQS = 4,
	EXTENDED = 8,          /* ibv_start_poll */
	BUILT = 16,            /* ibv_wr_start */
	XRC = 32,
	ANSWERED = 64,         /* by a message of the same kind, which is not counted */
};

static const struct pattern {
	const char *name;
	unsigned bytes, pieces, receive_pieces, signal_each, flags;
} patterns[] = {
	{ "64 B", 64, 1, 1, 1, 0 },
	{ "64 B, 2 pieces", 64, 2, 1, 1, 0 },
	{ "64 B, 4 pieces", 64, 4, 1, 1, 0 },
	{ "64 B, 16 pieces", 64, 16, 1, 1, 0 },
	{ "64 B, inline", 64, 1, 1, 1, INLINE },
	{ "64 B, inline, 2 pieces", 64, 2, 1, 1, INLINE },
	{ "64 B, inline, 4 pieces", 64, 4, 1, 1, INLINE },
	{ "64 B, inline, 16 pieces", 64, 16, 1, 1, INLINE },
	{ "64 B, received in 2 pieces", 64, 1, 2, 1, 0 },
	{ "64 B, SRQ", 64, 1, 1, 1, SRQ },
	{ "64 B, signalled each 64", 64, 1, 1, MESSAGES, 0 },
	{ "64 B, two CQs", 64, 1, 1, 1, TWO_CQS },
	{ "64 B, extended CQ", 64, 1, 1, 1, EXTENDED },
	{ "64 B, ibv_wr_*", 64, 1, 1, 1, BUILT },
	{ "64 B, ibv_wr_*, inline, 2 pieces", 64, 2, 1, 1, INLINE | BUILT },
	{ "64 B, XRC", 64, 1, 1, 1, XRC },
	{ "64 B, ping-pong", 64, 1, 1, 1, ANSWERED },
	{ "64 B, as UCX's rc_verbs", 64, 2, 1, MESSAGES, INLINE | SRQ | TWO_CQS | ANSWERED },
	{ "1 KiB", 1024, 1, 1, 1, 0 },
	{ "1 KiB, 16 pieces", 1024, 16, 1, 1, 0 },
	{ "1 KiB, SRQ", 1024, 1, 1, 1, SRQ },
	{ "8 KiB", 8192, 1, 1, 1, 0 },
	{ "8 KiB, 2 pieces", 8192, 2, 1, 1, 0 },
	{ "8 KiB, 4 pieces", 8192, 4, 1, 1, 0 },
	{ "8 KiB, 16 pieces", 8192, 16, 1, 1, 0 },
	{ "8 KiB, received in 2 pieces", 8192, 1, 2, 1, 0 },
	{ "8 KiB, SRQ", 8192, 1, 1, 1, SRQ },
	{ "8 KiB, signalled each 64", 8192, 1, 1, MESSAGES, 0 },
	{ "8 KiB, ibv_wr_*", 8192, 1, 1, 1, BUILT },
	{ "8 KiB, XRC", 8192, 1, 1, 1, XRC },
};

enum call { POST_RECV, POST_SEND, POLL_RECEIVER, POLL_SENDER, POLL_EMPTY, CALLS, NOTHING = CALLS };

static const char *const call_names[CALLS] = { "post_recv", "post_send", "poll_cq, receiver",
					       "poll_cq, sender", "poll_cq, empty" };

/* One end of the connection. */
struct side {
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;   /* or NULL */
	struct ibv_qp *qp;     /* of an XRC domain: it sends, */
	struct ibv_qp *target; /* and this one receives; else the same */
	uint8_t *bytes;        /* what goes, and behind that what comes */
	struct ibv_mr *mr;
	struct ibv_sge pieces[MOST_PIECES], receive_pieces[MOST_PIECES];
	unsigned posted;
};

static struct device device;
static struct ibv_xrcd *xrcd;
static struct side sides[2];
static const struct pattern *pattern;
static enum call counted;

static bool has(enum flags flag)
{
	return pattern->flags & flag;
}

static void toggle(enum call call)
{
	if (call == counted)
		CALLGRIND_TOGGLE_COLLECT;
}

/* ---- set-up ---- */

static struct ibv_cq *make_cq(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 2 * DEPTH, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_cq *cq = has(EXTENDED) ?
				    ibv_cq_ex_to_cq(ibv_create_cq_ex(device.context, &attr)) :
				    ibv_create_cq(device.context, attr.cqe, NULL, NULL, 0);

	check(cq, "completion queue");
	return cq;
}

static struct ibv_srq *make_srq(struct ibv_cq *cq)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = DEPTH, .max_sge = pattern->receive_pieces },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_BASIC,
		.pd = device.pd,
	};

	if (has(XRC)) {
		init.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
		init.srq_type = IBV_SRQT_XRC;
		init.xrcd = xrcd;
		init.cq = cq;
	}
	struct ibv_srq *srq = ibv_create_srq_ex(device.context, &init);
	check(srq, "shared receive queue");
	return srq;
}

/* The same room for all patterns, as programs have it that use several of them. */
static struct ibv_qp *make_qp_of(const struct side *side, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = side->send_cq,
		.recv_cq = side->recv_cq,
		.srq = side->srq,
		.qp_type = type,
		.pd = device.pd,
		.cap = { .max_send_wr = DEPTH,
			 .max_recv_wr = DEPTH,
			 .max_send_sge = MOST_PIECES,
			 .max_recv_sge = pattern->receive_pieces,
			 .max_inline_data = INLINE_BYTES },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};

	if (type == IBV_QPT_XRC_SEND)
		init.srq = NULL;
	if (type == IBV_QPT_XRC_RECV)
		init = (struct ibv_qp_init_attr_ex){ .qp_type = type,
						     .comp_mask = IBV_QP_INIT_ATTR_XRCD,
						     .xrcd = xrcd };
	struct ibv_qp *qp = ibv_create_qp_ex(device.context, &init);
	check(qp, "ibv_create_qp_ex");
	initialize_qp(qp);
	return qp;
}

/* `bytes` in so many pieces of one size. */
static void cut_up(struct ibv_sge *to, unsigned pieces, uint8_t *bytes, uint32_t lkey)
{
	uint32_t length = pattern->bytes / pieces;

	for (unsigned i = 0; i < pieces; i++)
		to[i] = (struct ibv_sge){ (uintptr_t)bytes + i * length, length, lkey };
}

static void make_side(struct side *side)
{
	*side = (struct side){ 0 };
	side->recv_cq = make_cq();
	side->send_cq = has(TWO_CQS) ? make_cq() : side->recv_cq;
	if (has(SRQ | XRC))
		side->srq = make_srq(side->recv_cq);
	side->qp = make_qp_of(side, has(XRC) ? IBV_QPT_XRC_SEND : IBV_QPT_RC);
	side->target = has(XRC) ? make_qp_of(side, IBV_QPT_XRC_RECV) : side->qp;
	side->bytes = aligned_alloc(MOST_BYTES, 2 * MOST_BYTES);
	check(side->bytes, "memory");
	memset(side->bytes, 0, 2 * MOST_BYTES);
	side->mr = ibv_reg_mr(device.pd, side->bytes, 2 * MOST_BYTES, IBV_ACCESS_LOCAL_WRITE);
	check(side->mr, "ibv_reg_mr");
	cut_up(side->pieces, pattern->pieces, side->bytes, side->mr->lkey);
	cut_up(side->receive_pieces, pattern->receive_pieces, side->bytes + MOST_BYTES, side->mr->lkey);
}

static void connect_sides(void)
{
	for (int i = 0; i < 2; i++) {
		connect_qp(&device, sides[i].qp, sides[!i].target->qp_num);
		if (has(XRC))
			connect_qp(&device, sides[i].target, sides[!i].qp->qp_num);
	}
}

static void drop_side(struct side *side)
{
	bool good = ibv_destroy_qp(side->qp) == 0;

	good = good && (side->target == side->qp || ibv_destroy_qp(side->target) == 0);
	good = good && (!side->srq || ibv_destroy_srq(side->srq) == 0);
	good = good && ibv_destroy_cq(side->recv_cq) == 0;
	good = good && (side->send_cq == side->recv_cq || ibv_destroy_cq(side->send_cq) == 0);
	check(good && ibv_dereg_mr(side->mr) == 0, "the end of a pattern");
	free(side->bytes);
}

/* ---- the calls ---- */

static void post_receive(struct side *to)
{
	struct ibv_recv_wr *bad, wr = { .sg_list = to->receive_pieces,
					.num_sge = (int)pattern->receive_pieces };

	toggle(POST_RECV);
	int err = to->srq ? ibv_post_srq_recv(to->srq, &wr, &bad) : ibv_post_recv(to->qp, &wr, &bad);
	toggle(POST_RECV);
	check(err == 0, "posting a receive");
}

static unsigned flags_of_next(struct side *from)
{
	return (++from->posted % pattern->signal_each == 0 ? IBV_SEND_SIGNALED : 0) |
	       (has(INLINE) ? IBV_SEND_INLINE : 0);
}

static int build_send(struct ibv_qp_ex *ex, struct side *from, unsigned flags, uint32_t srqn)
{
	struct ibv_data_buf buffers[MOST_PIECES];

	for (unsigned i = 0; i < pattern->pieces; i++)
		buffers[i] = (struct ibv_data_buf){ (void *)(uintptr_t)from->pieces[i].addr,
						    from->pieces[i].length };
	toggle(POST_SEND);
	ibv_wr_start(ex);
	ex->wr_id = 0;
	ex->wr_flags = flags;
	ibv_wr_send(ex);
	if (srqn)
		ibv_wr_set_xrc_srqn(ex, srqn);
	if (has(INLINE))
		ibv_wr_set_inline_data_list(ex, pattern->pieces, buffers);
	else
		ibv_wr_set_sge_list(ex, pattern->pieces, from->pieces);
	int err = ibv_wr_complete(ex);
	toggle(POST_SEND);
	return err;
}

static int post_send(struct ibv_qp *qp, struct side *from, unsigned flags, uint32_t srqn)
{
	struct ibv_send_wr *bad, wr = { .sg_list = from->pieces,
					.num_sge = (int)pattern->pieces,
					.opcode = IBV_WR_SEND,
					.send_flags = flags,
					.qp_type.xrc.remote_srqn = srqn };

	toggle(POST_SEND);
	int err = ibv_post_send(qp, &wr, &bad);
	toggle(POST_SEND);
	return err;
}

static void send_one(struct side *from, const struct side *to)
{
	unsigned flags = flags_of_next(from);
	uint32_t srqn = 0;

	if (has(XRC))
		check(ibv_get_srq_num(to->srq, &srqn) == 0, "ibv_get_srq_num");
	int err = has(BUILT) ? build_send(ibv_qp_to_qp_ex(from->qp), from, flags, srqn) :
				      post_send(from->qp, from, flags, srqn);
	check(err == 0, "posting a send");
}

/* Takes at most one completion that way, as much of it as programs read. */
static int poll_extended(struct ibv_cq_ex *cq)
{
	int err = ibv_start_poll(cq, &(struct ibv_poll_cq_attr){ 0 });

	if (err)
		return 0;
	bool good = cq->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(cq) <= IBV_WC_RECV_RDMA_WITH_IMM &&
		    ibv_wc_read_byte_len(cq) <= MOST_BYTES && ibv_wc_read_qp_num(cq);
	ibv_end_poll(cq);
	check(good, "a completion");
	return 1;
}

static int poll_once(struct ibv_cq *cq)
{
	struct ibv_wc wc[POLL_BATCH];

	if (has(EXTENDED))
		return poll_extended((struct ibv_cq_ex *)cq);
	int n = ibv_poll_cq(cq, POLL_BATCH, wc);
	if (n < 0 || (n && wc[0].status != IBV_WC_SUCCESS))
		die("a completion went wrong (%d)", n);
	return n;
}

static void poll_for_message(const struct side *to)
{
	int n = 0;

	toggle(POLL_RECEIVER);
	for (unsigned i = 0; i < MOST_POLLS && !n; i++)
		n = poll_once(to->recv_cq);
	toggle(POLL_RECEIVER);
	check(n == 1, "one message");
}

/* Once for a request without a completion: the program cannot know. */
static void poll_for_sent(const struct side *from)
{
	int n = 0;

	toggle(POLL_SENDER);
	do
		n = poll_once(from->send_cq);
	while (!n && from->posted % pattern->signal_each == 0);
	toggle(POLL_SENDER);
}

static void poll_in_vain(unsigned polls)
{
	for (unsigned i = 0; i < polls; i++)
		for (int k = 0; k < 2; k++) {
			if (!k)
				toggle(POLL_EMPTY);
			int n = poll_once(sides[k].recv_cq);
			if (!k)
				toggle(POLL_EMPTY);
			check(n == 0, "nothing should be there");
		}
}

static void one_way(struct side *from, struct side *to)
{
	post_receive(to);
	send_one(from, to);
	poll_for_message(to);
	poll_for_sent(from);
}

static void exchange(void)
{
	enum call now = counted;

	one_way(&sides[0], &sides[1]);
	if (!has(ANSWERED))
		return;
	counted = NOTHING;
	one_way(&sides[1], &sides[0]);
	counted = now;
}

/* ---- counting ---- */

static void exchange_all(enum call call)
{
	counted = NOTHING;
	poll_in_vain(IN_VAIN);
	counted = call;
	for (int i = 0; i < MESSAGES; i++)
		exchange();
}

/* Takes long: the progress thread takes over meanwhile. */
static void dump(const char *name)
{
	CALLGRIND_DUMP_STATS_AT(name);
	poll_in_vain(IN_VAIN);
}

static void count_call(enum call call)
{
	char name[128];

	snprintf(name, sizeof(name), "%s: %s", pattern->name, call_names[call]);
	if (call == POLL_EMPTY) {
		counted = call;
		poll_in_vain(MESSAGES);
	} else {
		exchange_all(call);
	}
	counted = NOTHING;
	dump(name);
}

static void count_nothing(void)
{
	for (int i = 0; i < MESSAGES; i++) {
		CALLGRIND_TOGGLE_COLLECT;
		CALLGRIND_TOGGLE_COLLECT;
	}
	CALLGRIND_DUMP_STATS_AT("nothing");
}

static void count_pattern(unsigned number)
{
	struct ibv_xrcd_init_attr domain = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
					     .fd = -1,
					     .oflags = O_CREAT };

	pattern = &patterns[number];
	open_device(&device);
	xrcd = ibv_open_xrcd(device.context, &domain);
	check(xrcd, "ibv_open_xrcd");
	for (int i = 0; i < 2; i++)
		make_side(&sides[i]);
	connect_sides();
	for (int i = 0; i < SAMPLES; i++)
		exchange_all(NOTHING);
	CALLGRIND_DUMP_STATS_AT("begin patterns");
	for (int i = 0; i < SAMPLES; i++) {
		count_nothing();
		for (enum call call = 0; call < CALLS; call++)
			count_call(call);
	}
	for (int i = 0; i < 2; i++)
		drop_side(&sides[i]);
}

/* Each in a process of its own: a lock that another thread has taken costs its owner more from then on. */
int main(int argc, char **argv)
{
	counted = NOTHING;
	for (unsigned i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		if (argc > 1 && strcmp(argv[1], patterns[i].name) != 0)
			continue;
		fork_child(count_pattern, i);
		await_children();
	}
	return 0;
}
