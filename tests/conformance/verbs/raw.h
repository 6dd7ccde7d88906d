/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of raw packet queue pairs share: queue pairs that are ready, frames, and rules for them. */
#ifndef VERBS_TEST_RAW_H
#define VERBS_TEST_RAW_H

#include "world.h"

#include <arpa/inet.h>

enum { FRAME = 80, SLOT = 256 };

static UNUSED struct ibv_qp_init_attr_ex raw_attr(struct world *w, struct ibv_cq *send_cq,
						  struct ibv_cq *recv_cq)
{
	return (struct ibv_qp_init_attr_ex){
		.send_cq = send_cq,
		.recv_cq = recv_cq,
		.qp_type = IBV_QPT_RAW_PACKET,
		.sq_sig_all = 1,
		.pd = w->pd,
		.cap = { .max_send_wr = DEPTH,
			 .max_recv_wr = DEPTH,
			 .max_send_sge = SGES,
			 .max_recv_sge = SGES,
			 .max_inline_data = INLINE },
		.comp_mask = IBV_QP_INIT_ATTR_PD,
	};
}

static UNUSED struct ibv_qp *make_raw_of(struct world *w, struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *qp = ibv_create_qp_ex(w->ctx, attr);
	if (!qp && errno == EPERM)
		skip(); /* leaves the case */
	assert_non_null(qp);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	assert_errno(0, ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT));
	assert_errno(0, set_state(qp, IBV_QPS_RTR));
	assert_errno(0, set_state(qp, IBV_QPS_RTS));
	return qp;
}

static UNUSED struct ibv_qp *make_raw_on(struct world *w, struct ibv_cq *send_cq)
{
	struct ibv_qp_init_attr_ex attr = raw_attr(w, send_cq, w->cq);
	return make_raw_of(w, &attr);
}

static UNUSED struct ibv_qp *make_raw(struct world *w) { return make_raw_on(w, w->cq); }

/* With a CQ of its own: a frame may be received before its send completes. */
static UNUSED struct ibv_qp *make_sender(struct world *w)
{
	struct ibv_cq *cq = ibv_create_cq(w->ctx, 16, NULL, NULL, 0);
	return make_raw_on(w, cq);
}

static UNUSED void destroy_sender(struct ibv_qp *qp)
{
	struct ibv_cq *cq = qp->send_cq;
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_cq(cq));
}

/* All who listen on the interface hear each other: this process's own ports for 1000 to 3000. */
static UNUSED uint16_t own(uint16_t port)
{
	return (uint16_t)(port + getpid() % 3000 * 20);
}

/* Ethernet, IPv4, UDP from the process's own port to the next; the kernel has no use for it. */
static UNUSED void build(uint8_t *f, uint8_t address, uint16_t port)
{
	port = own(port);
	memset(f, 0, FRAME);
	memcpy(f, "\x01\x50\x56\x11\x22\x33\x02\x00\x00\x00\x00\x01\x08\x00", 14);
	f[14] = 0x45;
	f[17] = FRAME - 14;
	f[22] = 64;
	f[23] = 17;
	memcpy(f + 26, "\x0a\x01\x01\x00\x0a\x02\x02\x02", 8);
	f[29] = address;
	f[34] = (uint8_t)(port >> 8);
	f[35] = (uint8_t)port;
	f[36] = (uint8_t)((port + 1) >> 8);
	f[37] = (uint8_t)(port + 1);
}

static UNUSED void send_frame(struct world *w, struct ibv_qp *qp, uint8_t address, uint16_t port)
{
	struct ibv_sge sge = sge_at(w, 0, FRAME);
	struct ibv_send_wr *bad, wr = { .wr_id = 1,
					.sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED };
	build((uint8_t *)w->buffer, address, port);
	assert_errno(0, ibv_post_send(qp, &wr, &bad));
	assert_int_equal(next_wc(qp->send_cq).opcode, IBV_WC_SEND);
}

static UNUSED void post_at(struct world *w, struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge sge = sge_at(w, id * SLOT, SLOT);
	struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };
	assert_errno(0, ibv_post_recv(qp, &wr, &bad));
}

struct rule {
	struct ibv_flow_attr attr;
	struct ibv_flow_spec_eth eth;
	struct ibv_flow_spec_tcp_udp udp;
};

static UNUSED struct rule rule_for(uint16_t port, uint16_t priority)
{
	struct rule r = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(r), .num_of_specs = 2, .port = 1,
		.priority = priority },
		.eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(r.eth), .val = { .dst_mac = { 1, 0x50,
		0x56, 0x11, 0x22, 0x33 } },
			 .mask = { .dst_mac = { 255, 255, 255, 255, 255, 255 } } },
		.udp = { .type = IBV_FLOW_SPEC_UDP, .size = sizeof(r.udp),
		.val = { .src_port = htons(own(port)) }, .mask = { .src_port = 0xffff } },
	};
	return r;
}

static UNUSED struct ibv_flow *steer(struct ibv_qp *qp, struct rule *r)
{
	struct ibv_flow *flow = ibv_create_flow(qp, &r->attr);
	assert_non_null(flow);
	return flow;
}

static UNUSED void nothing_more(struct world *w)
{
	struct ibv_wc wc;
	usleep(20000);
	assert_int_equal(ibv_poll_cq(w->cq, 1, &wc), 0);
}

#endif
