/* SPDX-License-Identifier: BSD-2-Clause */
#include "program.h"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "adapter/device/device.h"
#include "adapter/start.h"

struct program program;

/* ---- an end of a connection ---- */

void add_end(struct end *e, enum ibv_qp_type type, struct vb_pd *pd)
{
	struct vb_qp_init_attr init = {
		.type = type,
		.send_cq = &e->cq,
		.recv_cq = &e->cq,
		.sq_sig_all = true,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 }
	};

	memset(e, 0, sizeof(*e));
	must(vb_cq_init(&e->cq, &program.ctx, NULL, NULL, 64) == 0);
	must(vb_qp_init(&e->qp, pd, &init) == 0);
}

void remove_end(struct end *e)
{
	must(vb_qp_fini(&e->qp) == 0);
	must(vb_cq_fini(&e->cq) == 0);
}

static int to_init(struct end *e)
{
	bool is_ud = e->qp.type == IBV_QPT_UD;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY, .qp_access_flags = ALL
	};

	return vb_qp_modify(&e->qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    (is_ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

int connect_end(struct end *e, uint32_t address, uint32_t qpn)
{
	int mask = IBV_QP_STATE, connected = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_256,
				    .dest_qp_num = qpn,
				    .max_dest_rd_atomic = 4,
				    .max_rd_atomic = 4,
				    .min_rnr_timer = 1,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .ah_attr = { .is_global = 1, .port_num = 1, .grh.hop_limit = 1 } };
	uint8_t *gid = attr.ah_attr.grh.dgid.raw;

	gid[10] = gid[11] = 0xff;
	for (unsigned i = 0; i < 4; i++)
		gid[12 + i] = (uint8_t)(address >> (24 - 8 * i));
	mask |= e->qp.type == IBV_QPT_UD ? 0 : connected;
	mask |= e->qp.type == IBV_QPT_RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
	int err = to_init(e);
	if (!err)
		err = vb_qp_modify(&e->qp, &attr, mask);
	attr.qp_state = IBV_QPS_RTS;
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	mask |= e->qp.type == IBV_QPT_RC ?
			IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC :
			0;
	return err ? err : vb_qp_modify(&e->qp, &attr, mask);
}

void receive_into(struct end *e, uint8_t *at, uint32_t lkey, uint32_t bytes)
{
	struct ibv_sge sge = { .addr = (uintptr_t)at, .length = bytes, .lkey = lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	e->posted += vb_qp_post_recv(&e->qp, &wr, &bad) == 0;
}

void open_program(void)
{
	struct vb_device **devices;
	unsigned count;

	must(vb_host_get() == 0 && vb_adapter_start() == 0);
	must(vb_device_list(&devices, &count) == 0 && count);
	must(vb_context_init(&program.ctx, devices[count - 1]) == 0); /* the loopback */
	for (unsigned i = 0; i < count; i++)
		vb_device_put(devices[i]);
	free(devices);
	uint8_t *pages =
		mmap(NULL, 2 * ZONE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(pages != MAP_FAILED);
	program.zone = pages;
	program.closed = pages + ZONE_BYTES;
	must(vb_pd_init(&program.pd, &program.ctx) == 0 && vb_pd_init(&program.closed_pd, &program.ctx) == 0);
	must(vb_mr_init(&program.mr, &program.pd, program.zone, ZONE_BYTES, (uintptr_t)program.zone, ALL) ==
	     0);
	must(vb_mr_init(&program.closed_mr, &program.closed_pd, program.closed, ZONE_BYTES,
			(uintptr_t)program.closed, ALL) == 0);
}

static struct vb_cqe await_completion(struct end *e)
{
	struct vb_cqe c;
	uint64_t until = vb_now_ns() + 120 * UINT64_C(1000000000);

	while (vb_cq_poll(&e->cq, 1, &c) == 0) {
		must(vb_now_ns() < until);
		sched_yield();
	}
	return c;
}

void post(struct end *e, enum ibv_wr_opcode opcode, uint8_t *at, uint32_t lkey, uint32_t bytes,
	  uint64_t remote, uint32_t rkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)at, .length = bytes, .lkey = lkey };
	struct ibv_send_wr wr = { .opcode = opcode,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .wr.rdma = { remote, rkey } },
			   *bad;

	e->posted += vb_qp_post_send(&e->qp, &wr, &bad) == 0;
}

/* ---- the friend ---- */

struct card {
	uint32_t qpn, rkey;
	uint64_t at;
};

enum { LETTER_BYTES = 64, LETTER_AT = 1024 };

static void swap_cards(int sock, struct end *e, struct card *other)
{
	struct card own = { e->qp.qpn, program.mr.key, (uintptr_t)program.zone };

	must(send(sock, &own, sizeof(own), 0) == sizeof(own));
	await(sock);
	must(recv(sock, other, sizeof(*other), 0) == sizeof(*other));
	must(connect_end(e, LOCALHOST, other->qpn) == 0);
}

/* Answers each letter with the same. */
void be_friend(int sock)
{
	static struct end e;
	struct card other;

	open_program();
	add_end(&e, IBV_QPT_RC, &program.pd);
	swap_cards(sock, &e, &other);
	for (;;) {
		receive_into(&e, program.zone, program.mr.key, LETTER_BYTES);
		must(send(sock, "r", 1, 0) == 1);
		struct pollfd p = { .fd = sock, .events = POLLIN };
		char c;
		if (poll(&p, 1, -1) != 1 || recv(sock, &c, 1, 0) != 1)
			_exit(0);
		must(await_completion(&e).status == IBV_WC_SUCCESS);
		post(&e, IBV_WR_SEND, program.zone, program.mr.key, LETTER_BYTES, 0, 0);
		must(await_completion(&e).status == IBV_WC_SUCCESS);
	}
}

static struct end to_friend;
static int to_him;
static struct card friends;
static uint8_t letters;

void write_to_friend(void)
{
	uint8_t *out = program.closed, *in = program.closed + LETTER_AT;
	uint32_t key = program.closed_mr.key;
	char ready;

	await(to_him);
	must(recv(to_him, &ready, 1, 0) == 1);
	memset(out, ++letters, LETTER_BYTES);
	memset(in, 0, 2 * LETTER_AT);
	receive_into(&to_friend, in, key, LETTER_BYTES);
	must(send(to_him, "l", 1, MSG_NOSIGNAL) == 1);
	post(&to_friend, IBV_WR_SEND, out, key, LETTER_BYTES, 0, 0);
	post(&to_friend, IBV_WR_RDMA_WRITE, out, key, LETTER_BYTES, friends.at + LETTER_AT, friends.rkey);
	post(&to_friend, IBV_WR_RDMA_READ, in + LETTER_AT, key, LETTER_BYTES, friends.at + LETTER_AT,
	     friends.rkey);
	for (int i = 0; i < 4; i++)
		must(await_completion(&to_friend).status == IBV_WC_SUCCESS);
	must(memcmp(out, in, LETTER_BYTES) == 0 && memcmp(out, in + LETTER_AT, LETTER_BYTES) == 0);
}

void meet_friend(struct actor *friend)
{
	to_him = friend->sock;
	add_end(&to_friend, IBV_QPT_RC, &program.closed_pd);
	swap_cards(to_him, &to_friend, &friends);
	write_to_friend();
}
