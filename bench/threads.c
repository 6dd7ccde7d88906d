/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The bandwidth of WRITEs and of SENDs between two processes of four threads each, three of which sleep, as
 * those of most programs do: memory that another thread may use at any time is shared differently.
 * usage: threads BYTES ITERATIONS CPU CPU
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "pair.h"

enum { THREADS = 4, DEPTH = 64, BATCHES = 5 };

static struct shared {
	struct meeting meeting;
	uint32_t qpn[2];
	uint64_t address;
	uint32_t rkey;
} *shared;

static size_t bytes;
static unsigned iterations;
static int cpus[2];

static struct end {
	struct device device;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
} end;

static void *sleep_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static void post_receive(void)
{
	struct ibv_sge sge = { (uintptr_t)end.mr->addr, (uint32_t)bytes, end.mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	check(ibv_post_recv(end.qp, &wr, &bad) == 0, "ibv_post_recv");
}

static void post(enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = { (uintptr_t)end.mr->addr, (uint32_t)bytes, end.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .wr.rdma = { .remote_addr = shared->address, .rkey = shared->rkey } },
			   *bad;

	check(ibv_post_send(end.qp, &wr, &bad) == 0, "ibv_post_send");
}

static void await_completion(void)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(end.cq, 1, &wc)) == 0)
		;
	check(n > 0, "ibv_poll_cq");
	if (wc.status != IBV_WC_SUCCESS)
		die("%s", ibv_wc_status_str(wc.status));
}

static void request(enum ibv_wr_opcode opcode)
{
	for (unsigned posted = 0, done = 0; done < iterations; done++) {
		for (; posted < iterations && posted - done < DEPTH; posted++)
			post(opcode);
		await_completion();
	}
}

/* A receive is posted again when it has been used, so that the sender seldom finds none. */
static void receive(void)
{
	for (unsigned done = 0; done < iterations; done++) {
		await_completion();
		post_receive();
	}
}

static double bytes_per_s(unsigned me, enum ibv_wr_opcode opcode)
{
	uint64_t start;

	meet(&shared->meeting, 2);
	start = now_ns();
	if (me == 0)
		request(opcode);
	else if (opcode == IBV_WR_SEND)
		receive();
	meet(&shared->meeting, 2);
	return (double)bytes * iterations / ((double)(now_ns() - start) / 1e9);
}

static void set_up(unsigned me)
{
	pthread_t thread;
	void *memory = aligned_alloc(4096, bytes);

	use_cpu(cpus[me]);
	for (unsigned i = 1; i < THREADS; i++)
		check(pthread_create(&thread, NULL, sleep_for_ever, NULL) == 0, "pthread_create");
	open_device(&end.device);
	end.cq = ibv_create_cq(end.device.context, 2 * DEPTH, NULL, NULL, 0);
	check(memory && end.cq, "memory and completion queue");
	end.mr = ibv_reg_mr(end.device.pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	check(end.mr, "ibv_reg_mr");
	end.qp = make_qp(&end.device, end.cq, 2 * DEPTH, true);
	shared->qpn[me] = end.qp->qp_num;
	if (me == 1) {
		shared->address = (uintptr_t)memory;
		shared->rkey = end.mr->rkey;
		for (unsigned i = 0; i < 2 * DEPTH; i++)
			post_receive();
	}
	meet(&shared->meeting, 2);
	connect_qp(&end.device, end.qp, shared->qpn[!me]);
	meet(&shared->meeting, 2);
}

static void measure(unsigned me)
{
	double writes[BATCHES], sends[BATCHES];

	set_up(me);
	bytes_per_s(me, IBV_WR_RDMA_WRITE);  /* not counted: the memory becomes shared meanwhile */
	for (unsigned batch = 0; batch < BATCHES; batch++) {
		writes[batch] = bytes_per_s(me, IBV_WR_RDMA_WRITE);
		sends[batch] = bytes_per_s(me, IBV_WR_SEND);
	}
	if (me == 0) {
		figure("write_bytes_per_s", median(writes, BATCHES));
		figure("send_bytes_per_s", median(sends, BATCHES));
	}
}

int main(int argc, char **argv)
{
	if (argc != 5)
		die("usage: threads BYTES ITERATIONS CPU CPU");
	bytes = strtoul(argv[1], NULL, 10);
	iterations = (unsigned)atoi(argv[2]);
	cpus[0] = atoi(argv[3]);
	cpus[1] = atoi(argv[4]);
	shared = shared_memory(sizeof(*shared));
	fork_child(measure, 1);
	measure(0);
	await_children();
	return 0;
}
