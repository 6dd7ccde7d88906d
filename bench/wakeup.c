/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From an event to the running program: two processes that sleep wake each other, by completion events of
 * 8-byte messages and, in turn with these, by eventfds. Half a round trip each. usage: wakeup CPU CPU
 */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "pair.h"

enum { BATCHES = 9, ROUNDS = 500, DEPTH = 16, BYTES = 8 };

static struct shared {
	struct meeting meeting;
	uint32_t qpn[2];
} *shared;

static int eventfds[2];
static int cpus[2];

static struct end {
	struct device device;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t bytes[2][BYTES];
} end;

static void post_receive(void)
{
	struct ibv_sge sge = { (uintptr_t)end.bytes[0], BYTES, end.mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	check(ibv_post_recv(end.qp, &wr, &bad) == 0, "ibv_post_recv");
}

static void send_message(void)
{
	struct ibv_sge sge = { (uintptr_t)end.bytes[1], BYTES, end.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	check(ibv_post_send(end.qp, &wr, &bad) == 0, "ibv_post_send");
}

static void set_up(unsigned me)
{
	use_cpu(cpus[me]);
	open_device(&end.device);
	end.channel = ibv_create_comp_channel(end.device.context);
	check(end.channel, "ibv_create_comp_channel");
	end.cq = ibv_create_cq(end.device.context, 2 * DEPTH, NULL, end.channel, 0);
	end.mr = ibv_reg_mr(end.device.pd, end.bytes, sizeof(end.bytes), IBV_ACCESS_LOCAL_WRITE);
	check(end.cq && end.mr, "completion queue and memory region");
	end.qp = make_qp(&end.device, end.cq, DEPTH, false);
	shared->qpn[me] = end.qp->qp_num;
	for (unsigned i = 0; i < DEPTH; i++)
		post_receive();
	meet(&shared->meeting, 2);
	connect_qp(&end.device, end.qp, shared->qpn[!me]);
	meet(&shared->meeting, 2);
}

static void await_event(void)
{
	struct ibv_cq *cq;
	void *context;

	check(ibv_get_cq_event(end.channel, &cq, &context) == 0, "ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
}

/* Takes what is there; returns whether a message is. */
static bool take(void)
{
	bool message = false;
	struct ibv_wc wc;

	for (int n; (n = ibv_poll_cq(end.cq, 1, &wc)) != 0;) {
		check(n > 0, "ibv_poll_cq");
		if (wc.status != IBV_WC_SUCCESS)
			die("%s", ibv_wc_status_str(wc.status));
		if (wc.opcode == IBV_WC_RECV) {
			post_receive();
			message = true;
		}
	}
	return message;
}

/* As a program does that sleeps: take all, arm, look once more, sleep. */
static void await_message(void)
{
	while (!take()) {
		check(ibv_req_notify_cq(end.cq, 0) == 0, "ibv_req_notify_cq");
		if (take())
			return;
		await_event();
	}
}

static void messages(unsigned me)
{
	for (unsigned i = 0; i < ROUNDS; i++) {
		if (me == 1)
			await_message();
		send_message();
		if (me == 0)
			await_message();
	}
}

static void eventfd_signals(unsigned me)
{
	eventfd_t value;

	for (unsigned i = 0; i < ROUNDS; i++) {
		if (me == 1)
			check(eventfd_read(eventfds[1], &value) == 0, "eventfd_read");
		check(eventfd_write(eventfds[!me], 1) == 0, "eventfd_write");
		if (me == 0)
			check(eventfd_read(eventfds[0], &value) == 0, "eventfd_read");
	}
}

static double half_round_ns(unsigned me, void (*exchange)(unsigned))
{
	meet(&shared->meeting, 2);
	usleep(2000);
	uint64_t start = now_ns();
	exchange(me);
	return (double)(now_ns() - start) / ROUNDS / 2;
}

static void measure(unsigned me)
{
	double by_event[BATCHES], by_eventfd[BATCHES];

	set_up(me);
	for (unsigned batch = 0; batch < BATCHES; batch++) {
		by_event[batch] = half_round_ns(me, messages);
		by_eventfd[batch] = half_round_ns(me, eventfd_signals);
	}
	meet(&shared->meeting, 2);
	if (me == 0) {
		figure("event_ns", median(by_event, BATCHES));
		figure("eventfd_ns", median(by_eventfd, BATCHES));
	}
}

int main(int argc, char **argv)
{
	if (argc != 3)
		die("usage: wakeup CPU CPU");
	for (int i = 0; i < 2; i++) {
		cpus[i] = atoi(argv[i + 1]);
		eventfds[i] = eventfd(0, 0);
		check(eventfds[i] >= 0, "eventfd");
	}
	shared = shared_memory(sizeof(*shared));
	fork_child(measure, 1);
	measure(0);
	await_children();
	return 0;
}
