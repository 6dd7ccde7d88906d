/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The instructions of single calls, for callgrind: two processes that go step by step, one call between two
 * steps. Each counted call becomes a dump of its own with the call's name; instructions.py takes the median,
 * since the progress thread may come in between.
 *
 * Both sides look like programs that poll all the time: before each message they poll in vain often enough to
 * be taken for such. usage: valgrind --tool=callgrind --collect-atstart=no --callgrind-out-file=PATH.%p
 * instructions
 */
#include <stdlib.h>
#include <valgrind/callgrind.h>

#include "pair.h"

enum { SAMPLES = 21, WARM = 100, LIST = 64, DEPTH = 2 * LIST, IN_VAIN = LIST, BYTES = 8, PAGE = 4096 };

static struct shared {
	struct meeting meeting;
	uint64_t sink;
	uint32_t rkey, qpn[2];
} *shared;

static struct device device;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static uint8_t (*bytes)[64];      /* what comes, what goes */

/*
 * The calls that are counted, one in each exchange: writing a dump takes so long that the progress thread
 * would take over.
 */
enum call { POST_RECV, POST_SEND, POLL_RECEIVER, POLL_SENDER, POST_BUILT, POST_FILLED, CALLS };

static enum call counted;

static void begin(enum call call)
{
	if (call == counted)
		CALLGRIND_TOGGLE_COLLECT;
}

static void end(enum call call)
{
	if (call == counted)
		CALLGRIND_TOGGLE_COLLECT;
}

static void step(void)
{
	meet_spinning(&shared->meeting, 2);
}

static void set_up(unsigned me)
{
	open_device(&device);
	cq = ibv_create_cq(device.context, 2 * DEPTH, NULL, NULL, 0);
	bytes = aligned_alloc(PAGE, PAGE);
	check(bytes, "memory");
	mr = ibv_reg_mr(device.pd, bytes, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	check(cq && mr, "completion queue and memory region");
	qp = make_qp(&device, cq, DEPTH, true);
	shared->qpn[me] = qp->qp_num;
	if (me == 1) {
		shared->sink = (uintptr_t)bytes[0];
		shared->rkey = mr->rkey;
	}
	meet(&shared->meeting, 2);
	connect_qp(&device, qp, shared->qpn[!me]);
	meet(&shared->meeting, 2);
}

static void poll_in_vain(void)
{
	struct ibv_wc wc;

	for (unsigned i = 0; i < IN_VAIN; i++)
		check(ibv_poll_cq(cq, 1, &wc) == 0, "nothing should be there");
}

static __attribute__((noinline)) void poll_for(int wanted)
{
	struct ibv_wc wc[LIST];

	for (int n; wanted > 0; wanted -= n) {
		n = ibv_poll_cq(cq, LIST, wc);
		if (n < 0 || (n > 0 && wc[n - 1].status != IBV_WC_SUCCESS))
			die("a completion went wrong");
	}
}

static __attribute__((noinline)) void nothing(void)
{
	__asm__ volatile("");
}

/* Lists of work requests are made beforehand: what is counted is the call. */
static struct ibv_sge send_sge, recv_sge;
static struct ibv_send_wr sends[2][LIST];
static struct ibv_recv_wr receives[LIST];

static void make_lists(void)
{
	send_sge = (struct ibv_sge){ (uintptr_t)bytes[1], BYTES, mr->lkey };
	recv_sge = (struct ibv_sge){ (uintptr_t)bytes[0], BYTES, mr->lkey };
	for (int i = 0; i < LIST; i++) {
		sends[0][i] =
			(struct ibv_send_wr){ .sg_list = &send_sge, .num_sge = 1, .opcode = IBV_WR_SEND };
		sends[1][i] = (struct ibv_send_wr){ .sg_list = &send_sge,
						    .num_sge = 1,
						    .opcode = IBV_WR_RDMA_WRITE,
						    .wr.rdma = { .remote_addr = shared->sink,
								 .rkey = shared->rkey } };
		receives[i] = (struct ibv_recv_wr){ .sg_list = &recv_sge, .num_sge = 1 };
	}
}

/* The first `length` of a list. */
static void cut(int length)
{
	for (int i = 0; i < LIST; i++) {
		sends[0][i].next = i + 1 < length ? &sends[0][i + 1] : NULL;
		sends[1][i].next = i + 1 < length ? &sends[1][i + 1] : NULL;
		receives[i].next = i + 1 < length ? &receives[i + 1] : NULL;
	}
}

static __attribute__((noinline)) void post_sends(int kind)
{
	struct ibv_send_wr *bad;

	check(ibv_post_send(qp, sends[kind], &bad) == 0, "ibv_post_send");
}

/* The same sends by the calls of ibv_wr_post(3). */
static __attribute__((noinline)) void build_sends(int length)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);

	ibv_wr_start(ex);
	for (int i = 0; i < length; i++) {
		ex->wr_id = 0;
		ex->wr_flags = 0;
		ibv_wr_send(ex);
		ibv_wr_set_sge(ex, send_sge.lkey, send_sge.addr, send_sge.length);
	}
	check(ibv_wr_complete(ex) == 0, "ibv_wr_complete");
}

/* What a program does for the same without them: it fills requests in, and posts these. */
static __attribute__((noinline)) void fill_and_post(int length)
{
	static struct ibv_send_wr wrs[LIST];
	static struct ibv_sge sges[LIST];
	struct ibv_send_wr *bad;

	for (int i = 0; i < length; i++) {
		sges[i] = (struct ibv_sge){ send_sge.addr, send_sge.length, send_sge.lkey };
		wrs[i] = (struct ibv_send_wr){ .next = i + 1 < length ? &wrs[i + 1] : NULL,
					       .sg_list = &sges[i],
					       .num_sge = 1,
					       .opcode = IBV_WR_SEND };
	}
	check(ibv_post_send(qp, wrs, &bad) == 0, "ibv_post_send");
}

static void post_write(void)
{
	post_sends(1);
}

static __attribute__((noinline)) void post_receives(void)
{
	struct ibv_recv_wr *bad;

	check(ibv_post_recv(qp, receives, &bad) == 0, "ibv_post_recv");
}

/* One message, or a list of them. */
static void exchange_sends(unsigned me, int length)
{
	if (me == 1) {
		begin(POST_RECV);
		post_receives();
		end(POST_RECV);
	}
	step();
	poll_in_vain();
	step();
	if (me == 0 && (counted == POST_BUILT || counted == POST_FILLED)) {
		begin(counted);
		(counted == POST_BUILT ? build_sends : fill_and_post)(length);
		end(counted);
	} else if (me == 0) {
		begin(POST_SEND);
		post_sends(0);
		end(POST_SEND);
	}
	step();
	if (me == 1) {
		begin(POLL_RECEIVER);
		poll_for(length);
		end(POLL_RECEIVER);
	}
	step();
	if (me == 0) {
		begin(POLL_SENDER);
		poll_for(length);
		end(POLL_SENDER);
	}
	step();
}

static void exchange_writes(unsigned me, int length)
{
	step();
	poll_in_vain();
	step();
	if (me == 0) {
		begin(POST_SEND);
		post_sends(1);
		end(POST_SEND);
	}
	step();
	if (me == 1)
		poll_in_vain();    /* over the wire, whoever polls there executes */
	step();
	if (me == 0) {
		begin(POLL_SENDER);
		poll_for(length);
		end(POLL_SENDER);
	}
	step();
}

static void count_sends(unsigned me, int length)
{
	static const char *const names[] = { "send: post_recv", "send: post_send", "send: poll_cq, receiver",
					     "send: poll_cq, sender" };

	for (counted = 0; counted < POST_BUILT; counted++) {
		exchange_sends(me, length);
		if (me == (counted == POST_RECV || counted == POLL_RECEIVER))
			CALLGRIND_DUMP_STATS_AT(names[counted]);
	}
}

static void count_built_sends(unsigned me, int length)
{
	for (counted = POST_BUILT; counted <= POST_FILLED; counted++) {
		exchange_sends(me, length);
		if (me == 0)
			CALLGRIND_DUMP_STATS_AT(counted == POST_BUILT ? "send: ibv_wr_*" :
									"send: filled in and post_send");
	}
}

static void count_writes(unsigned me, int length)
{
	static const char *const names[CALLS] = {
		[POST_SEND] = "write: post_send", [POLL_SENDER] = "write: poll_cq"
	};

	for (counted = 0; counted < CALLS; counted++) {
		if (!names[counted])
			continue;
		exchange_writes(me, length);
		if (me == 0)
			CALLGRIND_DUMP_STATS_AT(names[counted]);
	}
}

static void count_alone(void (*call)(void), const char *name)
{
	CALLGRIND_TOGGLE_COLLECT;
	call();
	CALLGRIND_TOGGLE_COLLECT;
	CALLGRIND_DUMP_STATS_AT(name);
}

/*
 * callgrind lets no memory be mapped by a peer; plain copies are counted within one address space, as they
 * are once a shortcut is known.
 */
static void count_writes_within(void)
{
	struct ibv_qp *ends[2] = { make_qp(&device, cq, DEPTH, true), make_qp(&device, cq, DEPTH, true) },
		      *between = qp;

	connect_qp(&device, ends[0], ends[1]->qp_num);
	connect_qp(&device, ends[1], ends[0]->qp_num);
	sends[1][0].wr.rdma.remote_addr = (uintptr_t)bytes[0];
	sends[1][0].wr.rdma.rkey = mr->rkey;
	qp = ends[0];
	for (int i = 0; i < WARM; i++) {
		post_write();
		poll_for(1);
	}
	for (int i = 0; i < SAMPLES; i++) {
		poll_in_vain();
		count_alone(post_write, "write within a process: post_send");
		poll_for(1);
	}
	qp = between;
	sends[1][0].wr.rdma.remote_addr = shared->sink;
	sends[1][0].wr.rdma.rkey = shared->rkey;
}

static void count(unsigned me)
{
	/* Over the wire a window opens while both sides poll; what is counted then is waiting. */
	int longest = getenv("VERBATIM_LOCAL") ? 1 : LIST;

	set_up(me);
	make_lists();
	for (int i = 0; i < SAMPLES && me == 0; i++) {
		count_alone(nothing, "nothing");
		poll_in_vain();
		count_alone(poll_in_vain, "poll_cq, empty");
	}
	cut(1);
	if (me == 0 && longest > 1)
		count_writes_within();
	for (int length = 1; length <= longest; length += LIST - 1) {
		cut(length);
		CALLGRIND_DUMP_STATS_AT(length == 1 ? "begin single" : "begin list");
		for (int i = 0; i < SAMPLES; i++) {
			count_sends(me, length);
			count_writes(me, length);
		}
		for (int i = 0; i < SAMPLES; i++)
			count_built_sends(me, length);
	}
	meet(&shared->meeting, 2);
}

int main(void)
{
	shared = shared_memory(sizeof(*shared));
	fork_child(count, 1);
	count(0);
	await_children();
	return 0;
}
