/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What it takes to register memory that is in use (its pages are there), and for a peer to write into it for
 * the first time. usage: register CPU CPU
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "pair.h"

enum {
	SMALL_TIMES = 5000,
	LARGE_TIMES = 3,
	DEPTH = 4,
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
};
static const size_t SMALL = 4096, LARGE = (size_t)1 << 30;

static struct shared {
	struct meeting meeting;
	uint64_t address;
	uint32_t rkey, qpn[2];
} *shared;

static int cpus[2];
static struct device device;
static struct ibv_cq *cq;
static struct ibv_qp *qp;

static void set_up(unsigned me)
{
	use_cpu(cpus[me]);
	open_device(&device);
	cq = ibv_create_cq(device.context, 2 * DEPTH, NULL, NULL, 0);
	check(cq, "ibv_create_cq");
	qp = make_qp(&device, cq, DEPTH, true);
	shared->qpn[me] = qp->qp_num;
	meet(&shared->meeting, 2);
	connect_qp(&device, qp, shared->qpn[!me]);
	meet(&shared->meeting, 2);
}

static uint8_t *used_memory(size_t bytes)
{
	uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(memory != MAP_FAILED, "mmap");
	memset(memory, 1, bytes);
	return memory;
}

/* Regions of their own, one after the other. */
static double small_ns(void)
{
	static double ns[SMALL_TIMES];
	uint8_t *memory = used_memory(SMALL_TIMES * SMALL);

	for (unsigned i = 0; i < SMALL_TIMES; i++) {
		uint64_t start = now_ns();
		struct ibv_mr *mr = ibv_reg_mr(device.pd, memory + i * SMALL, SMALL, ALL);

		ns[i] = (double)(now_ns() - start);
		check(mr && ibv_dereg_mr(mr) == 0, "registration");
	}
	munmap(memory, SMALL_TIMES * SMALL);
	return median(ns, SMALL_TIMES);
}

/* What the write takes, from the call to its completion. */
static double first_use_ns(void)
{
	uint8_t byte = 7;
	struct ibv_mr *mr = ibv_reg_mr(device.pd, &byte, 1, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = { (uintptr_t)&byte, 1, mr ? mr->lkey : 0 };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = shared->address, .rkey = shared->rkey } }, *bad;
	struct ibv_wc wc;
	uint64_t start = now_ns();
	double took_ns;
	int n;

	check(mr && ibv_post_send(qp, &wr, &bad) == 0, "ibv_post_send");
	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	took_ns = (double)(now_ns() - start);
	if (n < 0 || wc.status != IBV_WC_SUCCESS)
		die("first use: %s", n < 0 ? "ibv_poll_cq" : ibv_wc_status_str(wc.status));
	check(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
	return took_ns;
}

/* The child registers and knows how long that took; the parent writes a byte into its middle. */
static void large(unsigned me, double *register_ns, double *use_ns)
{
	uint8_t *memory = me == 1 ? used_memory(LARGE) : NULL;
	uint64_t start = now_ns();
	struct ibv_mr *mr = NULL;

	if (me == 1) {
		mr = ibv_reg_mr(device.pd, memory, LARGE, ALL);
		*register_ns = (double)(now_ns() - start);
		check(mr, "1 GiB");
		shared->address = (uintptr_t)memory + LARGE / 2;
		shared->rkey = mr->rkey;
	}
	meet(&shared->meeting, 2);
	if (me == 0)
		*use_ns = first_use_ns();
	meet(&shared->meeting, 2);
	if (me == 1) {
		check(memory[LARGE / 2] == 7, "the byte written");
		check(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
		munmap(memory, LARGE);
	}
}

static void run(unsigned me)
{
	double register_ns[LARGE_TIMES], use_ns[LARGE_TIMES];

	set_up(me);
	for (unsigned i = 0; i < LARGE_TIMES; i++)
		large(me, &register_ns[i], &use_ns[i]);
	if (me == 0) {
		figure("first_use_1_gib_ns", median(use_ns, LARGE_TIMES));
		figure("register_4_kib_ns", small_ns());
	} else {
		figure("register_1_gib_ns", median(register_ns, LARGE_TIMES));
	}
	meet(&shared->meeting, 2);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		die("usage: register CPU CPU");
	cpus[0] = atoi(argv[1]);
	cpus[1] = atoi(argv[2]);
	shared = shared_memory(sizeof(*shared));
	fork_child(run, 1);
	run(0);
	await_children();
	return 0;
}
