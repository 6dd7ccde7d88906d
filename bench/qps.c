/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What many RC queue pairs between two processes cost: memory, and CPU time of sleepers; messages when all
 * carry data, which go around over the queue pairs, WINDOW under way; and a ping-pong over one of them while
 * the others are idle. usage: qps COUNT CPU CPU
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pair.h"

enum {
	MAX_COUNT = 50000,
	WINDOW = 64,
	MESSAGES = 200000,     /* at least; and each QP has some */
	PER_QP = 4,
	PING_PONGS = 20000,
	BYTES = 8,
	PAGE = 4096,
	BATCH = 16,
	IDLE_S = 2,
	REPEATS = 3,
};

static struct shared {
	struct meeting meeting;
	uint64_t sink;                  /* address of the child's memory that is written to */
	uint32_t rkey;
	double memory[2], idle_ns[2];   /* of each process */
	uint32_t qpn[2][MAX_COUNT];
} *shared;

static unsigned count, depth;
static int cpus[2];
static struct device device;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp **qps;
static uint8_t (*bytes)[64];      /* what comes, what goes */

/* ---- memory ---- */

/* Resident memory of this process, what is shared with the other counted half. */
static double resident_bytes(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	char line[256];
	double kib = 0;

	check(file, "smaps_rollup");
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Pss: %lf", &kib) == 1)
			break;
	fclose(file);
	return kib * 1024;
}

static void open_all(unsigned me)
{
	double before;

	open_device(&device);
	channel = ibv_create_comp_channel(device.context);
	check(channel, "ibv_create_comp_channel");
	/* a receiver may be late */
	cq = ibv_create_cq(device.context, (int)(4 * WINDOW + count * depth), NULL, channel, 0);
	bytes = aligned_alloc(PAGE, PAGE);
	check(bytes, "memory");
	mr = ibv_reg_mr(device.pd, bytes, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	qps = calloc(count, sizeof(*qps));
	check(cq && mr && qps, "completion queue, memory");
	if (me == 1) {
		shared->sink = (uintptr_t)bytes[0];
		shared->rkey = mr->rkey;
	}
	memset(shared->qpn[me], 0xff, count * sizeof(shared->qpn[0][0]));
	memset(qps, 0xff, count * sizeof(*qps));
	meet(&shared->meeting, 2);
	before = resident_bytes();
	meet(&shared->meeting, 2);
	for (unsigned i = 0; i < count; i++) {
		qps[i] = make_qp(&device, cq, depth, true);
		shared->qpn[me][i] = qps[i]->qp_num;
	}
	meet(&shared->meeting, 2);
	for (unsigned i = 0; i < count; i++)
		connect_qp(&device, qps[i], shared->qpn[!me][i]);
	meet(&shared->meeting, 2);
	shared->memory[me] = resident_bytes() - before;
	meet(&shared->meeting, 2);
}

/* ---- messages ---- */

static void post_receive(unsigned number)
{
	struct ibv_sge sge = { (uintptr_t)bytes[0], BYTES, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = number, .sg_list = &sge, .num_sge = 1 }, *bad;

	check(ibv_post_recv(qps[number], &wr, &bad) == 0, "ibv_post_recv");
}

static void post(unsigned number, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = { (uintptr_t)bytes[1], BYTES, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = number, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.wr.rdma = { .remote_addr = shared->sink, .rkey = shared->rkey } }, *bad;

	check(ibv_post_send(qps[number], &wr, &bad) == 0, "ibv_post_send");
}

static int poll_some(struct ibv_wc *wc, int batch)
{
	int n = ibv_poll_cq(cq, batch, wc);

	check(n >= 0, "ibv_poll_cq");
	for (int i = 0; i < n; i++)
		if (wc[i].status != IBV_WC_SUCCESS)
			die("QP %u of %u: %s", (unsigned)wc[i].wr_id, count, ibv_wc_status_str(wc[i].status));
	return n;
}

static void request(unsigned messages, enum ibv_wr_opcode opcode)
{
	struct ibv_wc wc[BATCH];
	unsigned posted = 0, completed = 0;

	while (completed < messages) {
		for (; posted < messages && posted - completed < WINDOW; posted++)
			post(posted % count, opcode);
		completed += (unsigned)poll_some(wc, BATCH);
	}
}

static void receive(unsigned messages)
{
	struct ibv_wc wc[BATCH];

	for (unsigned received = 0; received < messages;) {
		int n = poll_some(wc, BATCH);

		for (int i = 0; i < n; i++)
			post_receive((unsigned)wc[i].wr_id);
		received += (unsigned)n;
	}
}

/* The parent sends, the child receives or sleeps meanwhile: nanoseconds for a message. */
static double message_ns(unsigned me, enum ibv_wr_opcode opcode)
{
	unsigned messages = MESSAGES > PER_QP * count ? MESSAGES : PER_QP * count;
	uint64_t start;

	meet_spinning(&shared->meeting, 2);
	start = now_ns();
	if (me == 0)
		request(messages, opcode);
	else if (opcode == IBV_WR_SEND)
		receive(messages);
	meet_spinning(&shared->meeting, 2);
	return (double)(now_ns() - start) / messages;
}

/* One message to and fro at a time; each side has send and receive completions in one queue. */
static void ping_pong_once(unsigned me, unsigned number)
{
	bool sent = false, got = false;
	struct ibv_wc wc;

	if (me == 0)
		post(number, IBV_WR_SEND);
	while (!sent || !got) {
		if (poll_some(&wc, 1) == 0)
			continue;
		if (wc.opcode == IBV_WC_RECV) {
			got = true;
			post_receive(number);
			if (me == 1)
				post(number, IBV_WR_SEND);
		} else {
			sent = true;
		}
	}
}

static double ping_pong_ns(unsigned me)
{
	uint64_t start;

	meet_spinning(&shared->meeting, 2);
	start = now_ns();
	for (unsigned i = 0; i < PING_PONGS; i++)
		ping_pong_once(me, count / 2);
	return (double)(now_ns() - start) / PING_PONGS / 2;
}

static double repeated(unsigned me, double (*measure)(unsigned, enum ibv_wr_opcode),
		       enum ibv_wr_opcode opcode)
{
	double values[REPEATS];

	for (unsigned i = 0; i < REPEATS; i++)
		values[i] = measure(me, opcode);
	return median(values, REPEATS);
}

static double ping_pong(unsigned me, enum ibv_wr_opcode unused)
{
	return ping_pong_ns(me);
}

static void sleep_armed(unsigned me)
{
	uint64_t before;

	check(ibv_req_notify_cq(cq, 0) == 0, "ibv_req_notify_cq");
	meet(&shared->meeting, 2);
	sleep(1);
	before = cpu_ns();
	sleep(IDLE_S);
	shared->idle_ns[me] = (double)(cpu_ns() - before);
	meet(&shared->meeting, 2);
}

static void run(unsigned me)
{
	double write_ns, send_ns, pong_ns;

	use_cpu(cpus[me]);
	open_all(me);
	if (count > 1)
		sleep_armed(me);
	for (unsigned i = 0; i < count; i++)
		for (unsigned n = 0; n < depth; n++)
			post_receive(i);
	meet(&shared->meeting, 2);
	write_ns = repeated(me, message_ns, IBV_WR_RDMA_WRITE);
	send_ns = repeated(me, message_ns, IBV_WR_SEND);
	pong_ns = repeated(me, ping_pong, IBV_WR_SEND);
	meet(&shared->meeting, 2);
	if (me == 1)
		return;
	figure("memory_bytes_per_qp", (shared->memory[0] + shared->memory[1]) / 2 / count);
	if (count > 1)
		figure("idle_cpu_percent",
		       (shared->idle_ns[0] + shared->idle_ns[1]) / 2 / (IDLE_S * 1e9) * 100);
	figure("write_ns", write_ns);
	figure("send_ns", send_ns);
	figure("ping_pong_ns", pong_ns);
}

int main(int argc, char **argv)
{
	count = argc == 4 ? (unsigned)atoi(argv[1]) : 0;
	if (!count || count > MAX_COUNT)
		die("usage: qps COUNT CPU CPU");
	cpus[0] = atoi(argv[2]);
	cpus[1] = atoi(argv[3]);
	depth = count < WINDOW ? 2 * WINDOW : PER_QP;
	shared = shared_memory(sizeof(*shared));
	fork_child(run, 1);
	run(0);
	await_children();
	return 0;
}
