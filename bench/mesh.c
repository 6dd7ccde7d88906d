/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many processes, each connected to each other: all send to all, sleep until something comes, and check what
 * they get. usage: mesh PROCESSES
 */
#include <poll.h>
#include <stdlib.h>

#include "pair.h"

enum { MAX_PROCESSES = 256, ROUNDS = 50, DEPTH = 4, BATCH = 32, PATIENCE_MS = 20000 };

struct message {
	uint16_t from, to;
	uint32_t round;
};

static struct shared {
	struct meeting meeting;
	uint32_t qpn[MAX_PROCESSES][MAX_PROCESSES];
} *shared;

static unsigned processes;

/*
 * One end of a connection; each side may be a round ahead of the other, so there are more buffers than one.
 */
struct link {
	struct ibv_qp *qp;
	struct message out, in[DEPTH];
	unsigned sent, completed, received;
};

static struct {
	unsigned me;
	struct device device;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct link links[MAX_PROCESSES];
} own;

static void post_receive(unsigned peer, unsigned slot)
{
	struct ibv_sge sge = { (uintptr_t)&own.links[peer].in[slot], sizeof(struct message), own.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = peer, .sg_list = &sge, .num_sge = 1 }, *bad;

	check(ibv_post_recv(own.links[peer].qp, &wr, &bad) == 0, "ibv_post_recv");
}

static void send_next(unsigned peer)
{
	struct link *link = &own.links[peer];
	struct ibv_sge sge = { (uintptr_t)&link->out, sizeof(link->out), own.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = peer, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	link->out = (struct message){ (uint16_t)own.me, (uint16_t)peer, link->sent++ };
	check(ibv_post_send(link->qp, &wr, &bad) == 0, "ibv_post_send");
}

static void set_up(void)
{
	open_device(&own.device);
	own.channel = ibv_create_comp_channel(own.device.context);
	check(own.channel, "ibv_create_comp_channel");
	own.cq = ibv_create_cq(own.device.context, (int)processes * 2 * DEPTH, NULL, own.channel, 0);
	own.mr = ibv_reg_mr(own.device.pd, own.links, sizeof(own.links), IBV_ACCESS_LOCAL_WRITE);
	check(own.cq && own.mr, "completion queue and memory region");
	for (unsigned peer = 0; peer < processes; peer++) {
		if (peer == own.me)
			continue;
		own.links[peer].qp = make_qp(&own.device, own.cq, DEPTH, true);
		shared->qpn[own.me][peer] = own.links[peer].qp->qp_num;
		for (unsigned slot = 0; slot < DEPTH; slot++)
			post_receive(peer, slot);
	}
	meet(&shared->meeting, processes);
	for (unsigned peer = 0; peer < processes; peer++)
		if (peer != own.me)
			connect_qp(&own.device, own.links[peer].qp, shared->qpn[peer][own.me]);
	meet(&shared->meeting, processes);
}

static void received(unsigned peer)
{
	struct link *link = &own.links[peer];
	unsigned slot = link->received % DEPTH;
	struct message *in = &link->in[slot];

	if (in->from != peer || in->to != own.me || in->round != link->received)
		die("process %u got %u to %u, round %u, from %u in round %u", own.me, in->from, in->to,
		    in->round, peer, link->received);
	link->received++;
	post_receive(peer, slot);
}

/*
 * The next message goes when the last one has gone and the peer's of that round is here. Returns whether it
 * was the last round.
 */
static bool complete(const struct ibv_wc *wc)
{
	unsigned peer = (unsigned)wc->wr_id;
	struct link *link = &own.links[peer];

	if (wc->status != IBV_WC_SUCCESS)
		die("process %u, peer %u: %s", own.me, peer, ibv_wc_status_str(wc->status));
	if (wc->opcode == IBV_WC_RECV)
		received(peer);
	else
		link->completed++;
	if (link->completed < link->sent || link->received < link->sent)
		return false;
	if (link->sent < ROUNDS)
		send_next(peer);
	return link->completed == ROUNDS;
}

static void await_event(void)
{
	struct pollfd p = { .fd = own.channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&p, 1, PATIENCE_MS) <= 0)
		die("process %u: nothing comes", own.me);
	check(ibv_get_cq_event(own.channel, &cq, &context) == 0, "ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
}

static void carry(void)
{
	unsigned finished = 0;
	struct ibv_wc wc[BATCH];

	for (unsigned peer = 0; peer < processes; peer++)
		if (peer != own.me)
			send_next(peer);
	while (finished < processes - 1) {
		check(ibv_req_notify_cq(own.cq, 0) == 0, "ibv_req_notify_cq");
		int n = ibv_poll_cq(own.cq, BATCH, wc);

		check(n >= 0, "ibv_poll_cq");
		for (int i = 0; i < n; i++)
			finished += complete(&wc[i]);
		if (n == 0)
			await_event();
	}
}

static void run(unsigned me)
{
	uint64_t begin = now_ns(), connected;

	own.me = me;
	set_up();
	connected = now_ns();
	carry();
	meet(&shared->meeting, processes);
	if (me == 0) {
		double carried_s = (double)(now_ns() - connected) / 1e9;

		figure("connect_s", (double)(connected - begin) / 1e9);
		figure("carry_s", carried_s);
		figure("messages_per_s", (double)processes * (processes - 1) * ROUNDS / carried_s);
	}
	meet(&shared->meeting, processes);
}

int main(int argc, char **argv)
{
	processes = argc == 2 ? (unsigned)atoi(argv[1]) : 0;
	if (processes < 2 || processes > MAX_PROCESSES)
		die("usage: mesh PROCESSES");
	shared = shared_memory(sizeof(*shared));
	for (unsigned number = 1; number < processes; number++)
		fork_child(run, number);
	run(0);
	await_children();
	return 0;
}
