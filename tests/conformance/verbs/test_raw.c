/* SPDX-License-Identifier: BSD-2-Clause */
/* Raw packet queue pairs, steering, counters, work queues. Without the right to packet sockets: one refusal. */
#include "world.h"

#include <arpa/inet.h>
#include <net/ethernet.h>

enum { FRAME = 80, SLOT = 256 };

static struct ibv_qp *make_raw_on(struct world *w, struct ibv_cq *send_cq)
{
	struct ibv_qp_init_attr attr = qp_attr(w);
	attr.qp_type = IBV_QPT_RAW_PACKET;
	attr.send_cq = send_cq;
	struct ibv_qp *qp = ibv_create_qp(w->pd, &attr);
	if (!qp && errno == EPERM)
		skip(); /* leaves the case */
	assert_non_null(qp);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	assert_errno(0, ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT));
	assert_errno(0, set_state(qp, IBV_QPS_RTR));
	assert_errno(0, set_state(qp, IBV_QPS_RTS));
	return qp;
}

static struct ibv_qp *make_raw(struct world *w) { return make_raw_on(w, w->cq); }

/* With a CQ of its own: a frame may be received before its send completes. */
static struct ibv_qp *make_sender(struct world *w)
{
	struct ibv_cq *cq = ibv_create_cq(w->ctx, 16, NULL, NULL, 0);
	return make_raw_on(w, cq);
}

static void destroy_sender(struct ibv_qp *qp)
{
	struct ibv_cq *cq = qp->send_cq;
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_cq(cq));
}

/* Ethernet, IPv4, UDP from port to port + 1; the kernel has no use for it. */
static void build(uint8_t *f, uint8_t address, uint16_t port)
{
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

static void send_frame(struct world *w, struct ibv_qp *qp, uint8_t address, uint16_t port)
{
	struct ibv_sge sge = sge_at(w, 0, FRAME);
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	build((uint8_t *)w->buffer, address, port);
	assert_errno(0, ibv_post_send(qp, &wr, &bad));
	assert_int_equal(next_wc(qp->send_cq).opcode, IBV_WC_SEND);
}

static void post_at(struct world *w, struct ibv_qp *qp, uint64_t id)
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

static struct rule rule_for(uint16_t port, uint16_t priority)
{
	struct rule r = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(r), .num_of_specs = 2, .port = 1, .priority = priority },
		.eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(r.eth), .val = { .dst_mac = { 1, 0x50, 0x56, 0x11, 0x22, 0x33 } },
			 .mask = { .dst_mac = { 255, 255, 255, 255, 255, 255 } } },
		.udp = { .type = IBV_FLOW_SPEC_UDP, .size = sizeof(r.udp), .val = { .src_port = htons(port) }, .mask = { .src_port = 0xffff } },
	};
	return r;
}

static struct ibv_flow *steer(struct ibv_qp *qp, struct rule *r)
{
	struct ibv_flow *flow = ibv_create_flow(qp, &r->attr);
	assert_non_null(flow);
	return flow;
}

static void nothing_more(struct world *w)
{
	struct ibv_wc wc;
	usleep(20000);
	assert_int_equal(ibv_poll_cq(w->cq, 1, &wc), 0);
}

static void flow__goes_where_rules_say(void **state)
{
	struct world *w = *state;
	struct ibv_qp *sender = make_sender(w), *a = make_raw(w), *b = make_raw(w);
	struct rule first = rule_for(1000, 0), second = rule_for(1000, 1), other = rule_for(2000, 0);
	struct ibv_flow *fa = steer(a, &first), *fb = steer(b, &second), *fc = steer(b, &other);
	assert_errno(EBUSY, ibv_destroy_qp(a));
	post_at(w, a, 2);
	post_at(w, b, 3);
	send_frame(w, sender, 1, 1000);
	struct ibv_wc wc = next_wc(w->cq); /* the better priority */
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(wc.qp_num, a->qp_num);
	assert_int_equal(wc.byte_len, FRAME);
	assert_memory_equal((uint8_t *)w->buffer + 2 * SLOT, w->buffer, FRAME);
	nothing_more(w);
	send_frame(w, sender, 1, 2000);
	assert_int_equal(next_wc(w->cq).wr_id, 3);
	send_frame(w, sender, 1, 3000); /* no rule */
	nothing_more(w);
	assert_errno(0, ibv_destroy_flow(fa));
	post_at(w, b, 4);
	send_frame(w, sender, 1, 1000); /* now the next */
	assert_int_equal(next_wc(w->cq).wr_id, 4);
	send_frame(w, sender, 1, 1000); /* no receive: lost */
	nothing_more(w);
	assert_errno(0, ibv_destroy_flow(fb));
	assert_errno(0, ibv_destroy_flow(fc));
	assert_errno(0, ibv_destroy_qp(a));
	assert_errno(0, ibv_destroy_qp(b));
	destroy_sender(sender);
}

static void flow__counts_and_drops(void **state)
{
	struct world *w = *state;
	struct ibv_qp *sender = make_sender(w), *a = make_raw(w);
	struct ibv_counters_init_attr none = { 0 }, bad = { .comp_mask = 1 };
	assert_null_errno(EINVAL, ibv_create_counters(w->ctx, &bad));
	struct ibv_counters *counters = ibv_create_counters(w->ctx, &none);
	assert_non_null(counters);
	struct ibv_counter_attach_attr packets = { .counter_desc = IBV_COUNTER_PACKETS, .index = 1 }, bytes = { .counter_desc = IBV_COUNTER_BYTES };
	assert_errno(0, ibv_attach_counters_point_flow(counters, &packets, NULL));
	assert_errno(0, ibv_attach_counters_point_flow(counters, &bytes, NULL));
	assert_errno(EINVAL, ibv_attach_counters_point_flow(counters, &bytes, NULL));
	struct {
		struct rule rule;
		struct ibv_flow_spec_counter_action count;
		struct ibv_flow_spec_action_drop drop;
	} r = {
		.rule = rule_for(1000, 0),
		.count = { .type = IBV_FLOW_SPEC_ACTION_COUNT, .size = sizeof(r.count), .counters = counters },
		.drop = { .type = IBV_FLOW_SPEC_ACTION_DROP, .size = sizeof(r.drop) },
	};
	r.rule.attr.num_of_specs = 4;
	r.rule.udp.size += offsetof(__typeof__(r), count) - sizeof(r.rule); /* up to the next */
	struct ibv_flow *flow = steer(a, &r.rule);
	assert_errno(EBUSY, ibv_destroy_counters(counters));
	assert_errno(EBUSY, ibv_attach_counters_point_flow(counters, &packets, NULL));
	post_at(w, a, 2);
	send_frame(w, sender, 1, 1000);
	send_frame(w, sender, 1, 1000);
	nothing_more(w);
	uint64_t values[2];
	assert_errno(0, ibv_read_counters(counters, values, 2, 0));
	assert_int_equal(values[1], 2);
	assert_int_equal(values[0], 2 * FRAME);
	assert_errno(EINVAL, ibv_read_counters(counters, values, 2, 8));
	assert_errno(0, ibv_destroy_flow(flow));
	assert_errno(0, ibv_destroy_counters(counters));
	assert_errno(0, ibv_destroy_qp(a));
	destroy_sender(sender);
}

static void flow__refused(void **state)
{
	struct world *w = *state;
	struct ibv_qp *raw = make_raw(w), *rc = make_qp(w, NULL);
	struct rule r = rule_for(1, 0);
	assert_null_errno(EINVAL, ibv_create_flow(rc, &r.attr));
	r.attr.port = 2;
	assert_null_errno(EINVAL, ibv_create_flow(raw, &r.attr));
	r.attr.port = 1;
	r.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
	assert_null_errno(EOPNOTSUPP, ibv_create_flow(raw, &r.attr));
	r.attr.flags = 0;
	r.eth.size = 8;
	assert_null_errno(EINVAL, ibv_create_flow(raw, &r.attr));
	r.eth.size = sizeof(r.eth);
	r.eth.type = IBV_FLOW_SPEC_GRE;
	assert_null_errno(EOPNOTSUPP, ibv_create_flow(raw, &r.attr));
	struct ibv_sge sge = sge_at(w, 0, 13); /* no whole Ethernet header */
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	assert_errno(0, ibv_post_send(raw, &wr, &bad));
	assert_int_equal(next_wc(w->cq).status, IBV_WC_LOC_LEN_ERR);
	wr.opcode = IBV_WR_RDMA_WRITE;
	assert_errno(EINVAL, ibv_post_send(raw, &wr, &bad));
	assert_errno(0, ibv_destroy_qp(raw));
	assert_errno(0, ibv_destroy_qp(rc));
}

/* ---- receive-side scaling ---- */

static void rss__spreads_by_flow(void **state)
{
	enum { QUEUES = 4, FLOWS = 16 };
	struct world *w = *state;
	struct ibv_qp *sender = make_sender(w);
	struct ibv_wq *wqs[QUEUES];
	uint8_t key[40];
	for (unsigned i = 0; i < sizeof(key); i++)
		key[i] = (uint8_t)(i * 37 + 11);
	struct ibv_wq_init_attr bad = { .wq_type = IBV_WQT_RQ, .max_wr = 64, .max_sge = 1, .pd = w->pd };
	assert_null_errno(EINVAL, ibv_create_wq(w->ctx, &bad));
	for (int i = 0; i < QUEUES; i++) {
		struct ibv_wq_init_attr attr = { .wq_type = IBV_WQT_RQ, .max_wr = 64, .max_sge = 1, .pd = w->pd, .cq = w->cq };
		struct ibv_wq_attr ready = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
		assert_non_null(wqs[i] = ibv_create_wq(w->ctx, &attr));
		assert_errno(0, ibv_modify_wq(wqs[i], &ready));
		struct ibv_sge sge = sge_at(w, (size_t)(i + 2) * SLOT, SLOT);
		struct ibv_recv_wr *bad_wr, wr = { .wr_id = (uint64_t)i, .sg_list = &sge, .num_sge = 1 };
		for (int n = 0; n < 2 * FLOWS; n++)
			assert_errno(0, ibv_post_wq_recv(wqs[i], &wr, &bad_wr));
	}
	struct ibv_rwq_ind_table_init_attr table_attr = { .log_ind_tbl_size = 2, .ind_tbl = wqs };
	struct ibv_rwq_ind_table *table = ibv_create_rwq_ind_table(w->ctx, &table_attr);
	assert_non_null(table);
	assert_errno(EBUSY, ibv_destroy_wq(wqs[0]));
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_RAW_PACKET, .pd = w->pd, .rwq_ind_tbl = table,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.rx_hash_conf = { .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ, .rx_hash_key_len = sizeof(key), .rx_hash_key = key,
				  .rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 } };
	struct ibv_qp *qp = ibv_create_qp_ex(w->ctx, &attr);
	assert_non_null(qp);
	attr.rx_hash_conf.rx_hash_key_len = 39;
	assert_null_errno(EINVAL, ibv_create_qp_ex(w->ctx, &attr));
	assert_errno(EBUSY, ibv_destroy_rwq_ind_table(table));
	struct rule r = rule_for(1000, 0);
	struct ibv_flow *flow = steer(qp, &r);
	unsigned used[QUEUES] = { 0 }, different = 0;
	for (int i = 0; i < FLOWS; i++) {
		send_frame(w, sender, (uint8_t)i, 1000);
		uint64_t queue = next_wc(w->cq).wr_id;
		send_frame(w, sender, (uint8_t)i, 1000);
		assert_int_equal(next_wc(w->cq).wr_id, queue); /* a flow stays */
		used[queue]++;
	}
	for (int i = 0; i < QUEUES; i++)
		different += used[i] != 0;
	assert_true(different > 1);
	assert_errno(0, ibv_destroy_flow(flow));
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_rwq_ind_table(table));
	for (int i = 0; i < QUEUES; i++)
		assert_errno(0, ibv_destroy_wq(wqs[i]));
	destroy_sender(sender);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(flow__goes_where_rules_say),
		WORLD_TEST(flow__counts_and_drops),
		WORLD_TEST(flow__refused),
		WORLD_TEST(rss__spreads_by_flow),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
