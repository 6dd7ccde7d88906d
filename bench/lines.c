/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ping-pong of 8-byte sends whose accesses valgrind's lackey writes down: lines.py counts which cache lines
 * of shared memory each side stores into and loads from. What is counted lies between two stores to `mark`.
 * usage: valgrind --tool=lackey --trace-mem=yes --log-file=PATH.%p lines output: for each side its pid, the
 * address of `mark`, and where it has its own arena and the other's: "arena SIDE PID MARK OWN THEIRS..."
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pair.h"

enum { WARM_UP = 64, MESSAGES = 64, DEPTH = 4, BYTES = 8 };

static struct shared {
	struct meeting meeting;
	uint32_t qpn[2];
} *shared;

static struct device device;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static uint8_t (*bytes)[64]; /* what comes, what goes */
static atomic_ulong mark;

static void set_up(unsigned me)
{
	open_device(&device);
	cq = ibv_create_cq(device.context, 4 * DEPTH, NULL, NULL, 0);
	bytes = calloc(2, sizeof(*bytes));
	check(bytes, "memory");
	mr = ibv_reg_mr(device.pd, bytes, 2 * sizeof(*bytes), IBV_ACCESS_LOCAL_WRITE);
	check(cq && mr, "completion queue and memory region");
	qp = make_qp(&device, cq, DEPTH, true);
	shared->qpn[me] = qp->qp_num;
	meet(&shared->meeting, 2);
	connect_qp(&device, qp, shared->qpn[!me]);
	meet(&shared->meeting, 2);
}

/*
 * Prints where the library's memory is mapped with these rights: the other's arena more than once if both
 * connected at the same time.
 */
static void print_mappings(const char *rights)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[4300];

	check(maps, "/proc/self/maps");
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "/memfd:verbatim-verbatim") && strstr(line, rights))
			printf(" %lx", strtoul(line, NULL, 16));
	fclose(maps);
}

static void say_where(unsigned me)
{
	printf("arena %u %d %lx", me, (int)getpid(), (unsigned long)&mark);
	print_mappings("rw-s");
	print_mappings("r--s");
	printf("\n");
	fflush(stdout);
}

static void post_receive(void)
{
	struct ibv_sge sge = { (uintptr_t)bytes[0], BYTES, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	check(ibv_post_recv(qp, &wr, &bad) == 0, "ibv_post_recv");
}

static void send_message(void)
{
	struct ibv_sge sge = { (uintptr_t)bytes[1], BYTES, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	check(ibv_post_send(qp, &wr, &bad) == 0, "ibv_post_send");
}

static void await_message(void)
{
	struct ibv_wc wc;

	for (bool received = false; !received;) {
		int n = ibv_poll_cq(cq, 1, &wc);
		check(n == 0 || (n == 1 && wc.status == IBV_WC_SUCCESS), "ibv_poll_cq");
		received = n && wc.opcode == IBV_WC_RECV;
	}
	post_receive();
}

static void ping_pong(unsigned me, unsigned messages)
{
	for (unsigned i = 0; i < messages; i++) {
		if (me == 1)
			await_message();
		send_message();
		if (me == 0)
			await_message();
	}
}

static void run(unsigned me)
{
	set_up(me);
	for (unsigned i = 0; i < DEPTH; i++)
		post_receive();
	say_where(me);
	meet(&shared->meeting, 2);
	ping_pong(me, WARM_UP);
	atomic_fetch_add(&mark, 1);
	ping_pong(me, MESSAGES);
	atomic_fetch_add(&mark, 1);
	meet(&shared->meeting, 2);
}

int main(void)
{
	shared = shared_memory(sizeof(*shared));
	fork_child(run, 1);
	run(0);
	await_children();
	return 0;
}
