/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Raw packet queue pairs, steering, counters, work queues. Without the right to packet sockets: one refusal.
 */
#include "raw.h"

#include <net/ethernet.h>
#include <sys/resource.h>

#include "../../kernel.h"

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
	struct ibv_counter_attach_attr packets = { .counter_desc = IBV_COUNTER_PACKETS, .index = 1 },
				       bytes = { .counter_desc = IBV_COUNTER_BYTES };
	assert_errno(0, ibv_attach_counters_point_flow(counters, &packets, NULL));
	assert_errno(0, ibv_attach_counters_point_flow(counters, &bytes, NULL));
	assert_errno(EINVAL, ibv_attach_counters_point_flow(counters, &bytes, NULL));
	struct {
		struct rule rule;
		struct ibv_flow_spec_counter_action count;
		struct ibv_flow_spec_action_drop drop;
	} r = {
		.rule = rule_for(1000, 0),
		.count = { .type = IBV_FLOW_SPEC_ACTION_COUNT,
			   .size = sizeof(r.count),
			   .counters = counters },
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

/* ---- offloads ---- */

enum { TAGGED = FRAME + 4, TCI = 0x2123 };

/* The frame with a VLAN tag. */
static void send_tagged(struct world *w, struct ibv_qp *qp, uint16_t port)
{
	struct ibv_sge sge = sge_at(w, 0, TAGGED);
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	build(w->buffer, 1, port);
	memmove(w->buffer + 16, w->buffer + 12, FRAME - 12);
	memcpy(w->buffer + 12, "\x81\x00\x21\x23", 4);
	assert_errno(0, ibv_post_send(qp, &wr, &bad));
	assert_int_equal(next_wc(qp->send_cq).status, IBV_WC_SUCCESS);
}

/* CRC-32 as Ethernet has it, bit by bit. */
static uint32_t crc(const uint8_t *at, size_t n)
{
	uint32_t c = 0xffffffff;
	for (size_t i = 0; i < n; i++) {
		c ^= at[i];
		for (int bit = 0; bit < 8; bit++)
			c = c >> 1 ^ (c & 1 ? 0xedb88320 : 0);
	}
	return ~c;
}

static struct ibv_cq_ex *make_cq(struct world *w)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(w->ctx, &attr);
	assert_non_null(cq);
	return cq;
}

static void next(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int err;
	while ((err = ibv_start_poll(cq, &attr)) == ENOENT)
		;
	assert_errno(0, err);
	assert_int_equal(cq->status, IBV_WC_SUCCESS);
}

struct tagged_rule {
	struct rule rule;
	struct ibv_flow_spec_action_tag tag;
};

static void flow__tags_what_it_steers(void **state)
{
	struct world *w = *state;
	struct ibv_qp *sender = make_sender(w);
	struct ibv_cq_ex *cq = make_cq(w);
	struct ibv_qp_init_attr_ex attr = raw_attr(w, ibv_cq_ex_to_cq(cq), ibv_cq_ex_to_cq(cq));
	struct ibv_qp *qp = make_raw_of(w, &attr);
	struct rule plain = rule_for(2000, 0);
	struct tagged_rule r = {
		.rule = rule_for(1000, 0),
		.tag = { .type = IBV_FLOW_SPEC_ACTION_TAG, .size = sizeof(r.tag), .tag_id = 0xbeef }
	};
	r.rule.attr.num_of_specs = 3;
	r.rule.udp.size += offsetof(struct tagged_rule, tag) - sizeof(r.rule);
	struct ibv_flow *flow = steer(qp, &r.rule), *other = steer(qp, &plain);
	post_at(w, qp, 2);
	post_at(w, qp, 3);
	send_frame(w, sender, 1, 1000);
	next(cq);
	assert_int_equal(ibv_wc_read_flow_tag(cq), 0xbeef);
	assert_int_equal(ibv_wc_read_cvlan(cq), 0);
	ibv_end_poll(cq);
	send_frame(w, sender, 1, 2000);
	next(cq);
	assert_int_equal(ibv_wc_read_flow_tag(cq), 0);
	ibv_end_poll(cq);
	assert_errno(0, ibv_destroy_flow(flow));
	assert_errno(0, ibv_destroy_flow(other));
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	destroy_sender(sender);
}

static void qp__takes_vlan_tags_out_and_gives_check_sequences(void **state)
{
	if (!kernel_tells_vlan_tags())
		SKIP(NO_VLAN_TAGS);
	struct world *w = *state;
	struct ibv_qp *sender = make_sender(w);
	struct ibv_cq_ex *cq = make_cq(w);
	struct ibv_qp_init_attr_ex attr = raw_attr(w, ibv_cq_ex_to_cq(cq), ibv_cq_ex_to_cq(cq));
	attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	attr.create_flags = IBV_QP_CREATE_CVLAN_STRIPPING | IBV_QP_CREATE_SCATTER_FCS;
	struct ibv_qp *qp = make_raw_of(w, &attr), *whole = make_raw(w);
	struct rule r = rule_for(1000, 0);
	struct ibv_flow *a = steer(qp, &r), *b = steer(whole, &r);
	post_at(w, qp, 2);
	post_at(w, whole, 3);
	send_tagged(w, sender, 1000);
	next(cq);
	assert_int_equal(ibv_wc_read_cvlan(cq), TCI);
	assert_int_equal(ibv_wc_read_byte_len(cq), FRAME + 4);
	ibv_end_poll(cq);
	const uint8_t *got = w->buffer + 2 * SLOT;
	assert_memory_equal(got, w->buffer, 12);
	assert_memory_equal(got + 12, w->buffer + 16, FRAME - 12);
	uint32_t fcs = crc(w->buffer, TAGGED);
	assert_memory_equal(got + FRAME, &fcs, 4);
	assert_int_equal(next_wc(w->cq).byte_len, TAGGED); /* another queue pair gets it as it is */
	assert_memory_equal(w->buffer + 3 * SLOT, w->buffer, TAGGED);
	assert_errno(0, ibv_destroy_flow(a));
	assert_errno(0, ibv_destroy_flow(b));
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_qp(whole));
	assert_errno(0, ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	destroy_sender(sender);
}

static void qp__need_not_hear_its_own_host(void **state)
{
	struct world *w = *state;
	struct ibv_qp *sender = make_sender(w);
	struct ibv_qp_init_attr_ex attr = raw_attr(w, w->cq, w->cq);
	attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	attr.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
	struct ibv_qp *qp = make_raw_of(w, &attr);
	struct rule r = rule_for(1000, 0);
	struct ibv_flow *flow = steer(qp, &r);
	post_at(w, qp, 2);
	send_frame(w, sender, 1, 1000);
	nothing_more(w);
	assert_errno(0, ibv_destroy_flow(flow));
	assert_errno(0, ibv_destroy_qp(qp));
	destroy_sender(sender);
}

static uint32_t add_words(uint32_t s, const uint8_t *at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		s += i % 2 ? at[i] : (uint32_t)at[i] << 8;
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	return s;
}

/* Of an untagged frame of IPv4 without options. */
static bool is_right(const uint8_t *f)
{
	uint32_t l4 = (uint32_t)(f[16] << 8 | f[17]) - 20;
	return add_words(0, f + 14, 20) == 0xffff &&
	       add_words(add_words(l4 + f[23], f + 26, 8), f + 34, l4) == 0xffff;
}

/* What the interface does not take is no success; without a VLAN tag that begins 4 bytes earlier. */
static void post__longer_than_the_mtu(void **state)
{
	enum { LO_MTU = 65536, LONGEST = LO_MTU + 14 };
	struct world *w = *state;
	struct ibv_qp *sender = make_sender(w);
	uint8_t *frame = calloc(1, LONGEST + 1);
	assert_non_null(frame);
	struct ibv_mr *mr = ibv_reg_mr(w->pd, frame, LONGEST + 1, 0);
	assert_non_null(mr);
	build(frame, 1, 1000);
	for (uint32_t more = 0; more < 2; more++) {
		struct ibv_sge sge = { (uintptr_t)frame, LONGEST + more, mr->lkey };
		struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
		assert_errno(0, ibv_post_send(sender, &wr, &bad));
		assert_int_equal(next_wc(sender->send_cq).status, more ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS);
	}
	destroy_sender(sender);
	assert_errno(0, ibv_dereg_mr(mr));
	free(frame);
}

static void post__fills_checksums(void **state)
{
	struct world *w = *state;
	struct ibv_qp *sender = make_sender(w), *qp = make_raw(w), *rc = make_qp(w, NULL);
	struct rule r = rule_for(1000, 0);
	struct ibv_flow *flow = steer(qp, &r);
	struct ibv_sge sge = sge_at(w, 0, FRAME);
	struct ibv_send_wr *bad,
		wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_IP_CSUM };
	post_at(w, qp, 2);
	post_at(w, qp, 3);
	send_frame(w, sender, 1, 1000); /* without */
	struct ibv_wc wc = next_wc(w->cq);
	assert_false(wc.wc_flags & IBV_WC_IP_CSUM_OK);
	assert_false(is_right(w->buffer + 2 * SLOT));
	w->buffer[38] = 0;
	w->buffer[39] = FRAME - 34; /* UDP's length */
	assert_errno(0, ibv_post_send(sender, &wr, &bad));
	assert_int_equal(next_wc(sender->send_cq).status, IBV_WC_SUCCESS);
	wc = next_wc(w->cq);
	assert_true(wc.wc_flags & IBV_WC_IP_CSUM_OK);
	assert_true(is_right(w->buffer + 3 * SLOT));
	bring_to(w, rc, IBV_QPS_RTS, rc->qp_num);
	assert_errno(EINVAL, ibv_post_send(rc, &wr, &bad)); /* no frames there */
	assert_errno(0, ibv_destroy_flow(flow));
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_qp(rc));
	destroy_sender(sender);
}

enum { TCP_HEADER = 54, MSS = 100, SEGMENT = 250 };

/* Ethernet, IPv4 and TCP with FIN, PSH and CWR. */
static void tcp_header(uint8_t *h)
{
	build(h, 1, 1000);
	memset(h + TCP_HEADER, 0, FRAME - TCP_HEADER);
	h[23] = 6;
	h[18] = 0xff;
	h[19] = 0xff;                               /* identification */
	memcpy(h + 38, "\xff\xff\xff\xf0", 4);      /* the sequence number wraps */
	h[46] = 0x50;
	h[47] = 0x89;
}

static struct ibv_qp *make_cutter(struct world *w, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr_ex attr = raw_attr(w, cq, w->cq);
	attr.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.max_tso_header = TCP_HEADER;
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO;
	return make_raw_of(w, &attr);
}

static void check_piece(struct world *w, const uint8_t *header, int i)
{
	const uint8_t *f = w->buffer + (2 + i) * SLOT;
	static const uint8_t flags[] = { 0x80, 0x00, 0x09 }, sequences[][4] = { { 255, 255, 255, 0xf0 },
										{ 0, 0, 0, 0x54 },
										{ 0, 0, 0, 0xb8 } };
	uint32_t piece = i == 2 ? SEGMENT - 2 * MSS : MSS;
	assert_memory_equal(f, header, 16);
	assert_int_equal(f[16] << 8 | f[17], TCP_HEADER - 14 + piece);
	assert_int_equal((f[18] << 8 | f[19]), (0xffff + i) & 0xffff);
	assert_memory_equal(f + 38, sequences[i], 4);
	assert_int_equal(f[47], flags[i]);
	assert_memory_equal(f + TCP_HEADER, w->buffer + 2048 + i * MSS, piece);
	assert_true(is_right(f));
}

static void post__cuts_segments_up(void **state)
{
	struct world *w = *state;
	struct ibv_cq *cq = ibv_create_cq(w->ctx, 16, NULL, NULL, 0);
	struct ibv_qp *sender = make_cutter(w, cq), *qp = make_raw(w);
	struct rule r = rule_for(1000, 0);
	r.udp.type = IBV_FLOW_SPEC_TCP;
	struct ibv_flow *flow = steer(qp, &r);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(sender);
	uint8_t header[FRAME], kept[FRAME];
	tcp_header(header);
	memcpy(kept, header, FRAME);
	for (int i = 0; i < SEGMENT; i++)
		w->buffer[2048 + i] = (uint8_t)(i * 7);
	for (uint64_t i = 2; i < 5; i++)
		post_at(w, qp, i);
	ibv_wr_start(ex);
	ex->wr_id = 9;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_tso(ex, header, TCP_HEADER, MSS);
	ibv_wr_set_sge(ex, w->mr->lkey, (uintptr_t)w->buffer + 2048, SEGMENT);
	memset(header, 0, FRAME); /* it has been copied */
	assert_errno(0, ibv_wr_complete(ex));
	struct ibv_wc wc = next_wc(cq);
	assert_true(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_TSO && wc.wr_id == 9);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(next_wc(w->cq).byte_len, TCP_HEADER + (i == 2 ? SEGMENT - 2 * MSS : MSS));
		check_piece(w, kept, i);
	}
	for (uint64_t i = 5; i < 8; i++)
		post_at(w, qp, i);
	ibv_wr_start(ex);
	for (int i = 0; i < 3; i++) {
		memcpy(header, kept, FRAME);
		ibv_wr_send_tso(ex, header, TCP_HEADER, MSS);
		ibv_wr_set_sge_list(ex, 0, NULL); /* the header alone is a frame, too */
		memset(header, 0, FRAME);
	}
	assert_errno(0, ibv_wr_complete(ex));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(next_wc(cq).status, IBV_WC_SUCCESS);
		assert_int_equal(next_wc(w->cq).byte_len, TCP_HEADER);
		assert_memory_equal(w->buffer + (5 + i) * SLOT, kept, 16);
	}
	nothing_more(w);
	assert_errno(0, ibv_destroy_flow(flow));
	assert_errno(0, ibv_destroy_qp(sender));
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_cq(cq));
}

static void post__segments_refused(void **state)
{
	struct world *w = *state;
	struct ibv_qp *sender = make_cutter(w, w->cq), *plain = make_raw(w);
	uint8_t header[FRAME];
	tcp_header(header);
	struct ibv_sge sge = sge_at(w, 0, SEGMENT);
	struct ibv_send_wr *bad, wr = { .sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_TSO,
					.tso = { .hdr = header, .hdr_sz = TCP_HEADER, .mss = MSS } };
	assert_errno(EINVAL, ibv_post_send(plain, &wr, &bad)); /* it was made without room for headers */
	wr.tso.hdr_sz = TCP_HEADER + 3;
	assert_errno(EINVAL, ibv_post_send(sender, &wr, &bad));
	wr.tso.hdr_sz = TCP_HEADER;
	wr.tso.mss = 0;
	assert_errno(EINVAL, ibv_post_send(sender, &wr, &bad));
	wr.tso.mss = MSS;
	wr.send_flags = IBV_SEND_INLINE;
	assert_errno(EINVAL, ibv_post_send(sender, &wr, &bad));
	wr.send_flags = 0;
	header[23] = 17; /* of UDP there are no segments */
	assert_errno(0, ibv_post_send(sender, &wr, &bad));
	assert_int_equal(next_wc(w->cq).status, IBV_WC_LOC_QP_OP_ERR);
	assert_int_equal(state_of(sender), IBV_QPS_SQE);
	assert_errno(0, ibv_destroy_qp(sender));
	assert_errno(0, ibv_destroy_qp(plain));
}

static void rate__is_limited(void **state)
{
	struct world *w = *state;
	struct ibv_qp *sender = make_sender(w), *rc = make_qp(w, NULL);
	struct ibv_qp_rate_limit_attr limit = { .rate_limit = 1, .max_burst_sz = 1, .comp_mask = 1 };
	struct ibv_sge sge = sge_at(w, 0, 1024);
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	assert_errno(EOPNOTSUPP, ibv_modify_qp_rate_limit(rc, &limit));
	assert_errno(EINVAL, ibv_modify_qp_rate_limit(sender, &limit));
	limit.comp_mask = 0;
	limit.rate_limit = UINT32_MAX;
	assert_errno(EINVAL, ibv_modify_qp_rate_limit(sender, &limit));
	limit.rate_limit = 1; /* 125 bytes a second: the second of these frames has to wait for 8 s */
	assert_errno(0, ibv_modify_qp_rate_limit(sender, &limit));
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	assert_errno(0, ibv_query_qp(sender, &attr, IBV_QP_RATE_LIMIT, &init));
	assert_int_equal(attr.rate_limit, 1);
	memset(w->buffer, 0, 1024);
	for (int i = 0; i < 3; i++)
		assert_errno(0, ibv_post_send(sender, &wr, &bad));
	struct ibv_wc wc = next_wc(sender->send_cq);
	usleep(20000);
	assert_int_equal(ibv_poll_cq(sender->send_cq, 1, &wc), 0);
	limit.rate_limit = 8000000; /* 1 us for each of them: the timer lets them go */
	assert_errno(0, ibv_modify_qp_rate_limit(sender, &limit));
	drain(sender->send_cq, 2);
	attr.rate_limit = 0;
	assert_errno(0, ibv_modify_qp(sender, &attr, IBV_QP_RATE_LIMIT)); /* and none again */
	assert_errno(0, ibv_post_send(sender, &wr, &bad));
	drain(sender->send_cq, 1);
	limit.rate_limit = 1;
	assert_errno(0, ibv_modify_qp_rate_limit(sender, &limit));
	for (int i = 0; i < 2; i++)
		assert_errno(0, ibv_post_send(sender, &wr, &bad));
	assert_errno(0, set_state(sender, IBV_QPS_ERR)); /* what waits is flushed */
	assert_int_equal(next_wc(sender->send_cq).status, IBV_WC_SUCCESS);
	assert_int_equal(next_wc(sender->send_cq).status, IBV_WC_WR_FLUSH_ERR);
	assert_errno(EINVAL, ibv_modify_qp_rate_limit(sender, &limit));
	assert_errno(0, set_state(sender, IBV_QPS_RESET));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1 };
	assert_errno(0, ibv_modify_qp(sender, &attr, IBV_QP_STATE | IBV_QP_PORT));
	assert_errno(0, set_state(sender, IBV_QPS_RTR));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .rate_limit = 1 };
	assert_errno(0, ibv_modify_qp(sender, &attr, IBV_QP_STATE | IBV_QP_RATE_LIMIT));
	for (int i = 0; i < 2; i++) /* the burst that was given before holds no more */
		assert_errno(0, ibv_post_send(sender, &wr, &bad));
	assert_errno(0, set_state(sender, IBV_QPS_ERR));
	for (int i = 0; i < 2; i++)
		assert_int_equal(next_wc(sender->send_cq).status, IBV_WC_SUCCESS);
	assert_errno(0, ibv_destroy_qp(rc));
	destroy_sender(sender);
}

static void qp__flags_refused(void **state)
{
	struct world *w = *state;
	struct ibv_qp_init_attr_ex attr = raw_attr(w, w->cq, w->cq);
	static const uint32_t never[] = { IBV_QP_CREATE_SOURCE_QPN, IBV_QP_CREATE_PCI_WRITE_END_PADDING,
					  1u << 31 };
	attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	for (size_t i = 0; i < COUNT(never); i++) {
		attr.create_flags = never[i];
		attr.qp_type = i % 2 ? IBV_QPT_RAW_PACKET : IBV_QPT_UD;
		ibv_destroy_qp(make_raw(w)); /* which is refused where there are no packet sockets */
		assert_null_errno(EOPNOTSUPP, ibv_create_qp_ex(w->ctx, &attr));
	}
	attr.create_flags = IBV_QP_CREATE_CVLAN_STRIPPING;
	attr.qp_type = IBV_QPT_UD;
	assert_null_errno(EOPNOTSUPP, ibv_create_qp_ex(w->ctx, &attr));
	attr.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
	attr.qp_type = IBV_QPT_RC;
	assert_null_errno(EOPNOTSUPP, ibv_create_qp_ex(w->ctx, &attr));
	attr.qp_type = IBV_QPT_UD;
	struct ibv_qp *ud = ibv_create_qp_ex(w->ctx, &attr);
	assert_non_null(ud);
	assert_errno(0, ibv_destroy_qp(ud));
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
	attr.max_tso_header = 64;
	assert_null_errno(EOPNOTSUPP, ibv_create_qp_ex(w->ctx, &attr));
	attr.qp_type = IBV_QPT_RAW_PACKET;
	attr.max_tso_header = 2000;
	assert_null_errno(EINVAL, ibv_create_qp_ex(w->ctx, &attr));
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
		struct ibv_wq_init_attr attr = {
			.wq_type = IBV_WQT_RQ, .max_wr = 64, .max_sge = 1, .pd = w->pd, .cq = w->cq
		};
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
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.pd = w->pd,
		.rwq_ind_tbl = table,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.rx_hash_conf = { .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
				  .rx_hash_key_len = sizeof(key),
				  .rx_hash_key = key,
				  .rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 }
	};
	struct ibv_context *other = open_test_device();
	assert_non_null(attr.pd = ibv_alloc_pd(other));
	assert_null_errno(EINVAL, ibv_create_qp_ex(w->ctx, &attr));
	assert_errno(0, ibv_dealloc_pd(attr.pd));
	assert_int_equal(ibv_close_device(other), 0);
	attr.pd = w->pd;
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

/* A change that fails leaves the work queue in its state, from which it can be tried again. */
static void wq__gets_no_descriptor(void **state)
{
	struct world *w = *state;
	struct ibv_qp *sender = make_sender(w); /* or there is no right to packet sockets */
	struct ibv_wq_init_attr attr = {
		.wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = w->pd, .cq = w->cq
	};
	struct ibv_wq_attr ready = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
	struct ibv_wq *wq = ibv_create_wq(w->ctx, &attr);
	struct rlimit files, none;
	assert_non_null(wq);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	none = (struct rlimit){ 0, files.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	int err = ibv_modify_wq(wq, &ready);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
	assert_errno(EMFILE, err);
	assert_int_equal(wq->state, IBV_WQS_RESET);
	assert_errno(0, ibv_modify_wq(wq, &ready));
	assert_int_equal(wq->state, IBV_WQS_RDY);
	assert_errno(0, ibv_destroy_wq(wq));
	destroy_sender(sender);
}

static void wq__flags(void **state)
{
	if (!kernel_tells_vlan_tags())
		SKIP(NO_VLAN_TAGS);
	struct world *w = *state;
	struct ibv_qp *sender = make_sender(w); /* or there is no right to packet sockets */
	struct ibv_wq_init_attr attr = { .wq_type = IBV_WQT_RQ,
					 .max_wr = 4,
					 .max_sge = 1,
					 .pd = w->pd,
					 .cq = w->cq,
					 .comp_mask = IBV_WQ_INIT_ATTR_FLAGS,
					 .create_flags = IBV_WQ_FLAGS_DELAY_DROP };
	assert_null_errno(EOPNOTSUPP, ibv_create_wq(w->ctx, &attr));
	attr.create_flags = IBV_WQ_FLAGS_PCI_WRITE_END_PADDING;
	assert_null_errno(EOPNOTSUPP, ibv_create_wq(w->ctx, &attr));
	attr.create_flags = IBV_WQ_FLAGS_SCATTER_FCS | IBV_WQ_FLAGS_CVLAN_STRIPPING;
	struct ibv_wq *wq = ibv_create_wq(w->ctx, &attr);
	assert_non_null(wq);
	struct ibv_wq_attr change = { .attr_mask = IBV_WQ_ATTR_FLAGS,
				      .flags_mask = IBV_WQ_FLAGS_SCATTER_FCS };
	assert_errno(EOPNOTSUPP, ibv_modify_wq(wq, &change));
	change = (struct ibv_wq_attr){ .attr_mask = IBV_WQ_ATTR_FLAGS | IBV_WQ_ATTR_STATE,
				       .wq_state = IBV_WQS_RDY,
				       .flags_mask = IBV_WQ_FLAGS_CVLAN_STRIPPING }; /* no longer */
	assert_errno(0, ibv_modify_wq(wq, &change));
	struct ibv_rwq_ind_table_init_attr ind = { .ind_tbl = &wq };
	struct ibv_rwq_ind_table *table = ibv_create_rwq_ind_table(w->ctx, &ind);
	uint8_t key[40] = { 1 };
	struct ibv_qp_init_attr_ex rss = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.pd = w->pd,
		.rwq_ind_tbl = table,
		.create_flags = IBV_QP_CREATE_CVLAN_STRIPPING,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH |
			     IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.rx_hash_conf = { .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
				  .rx_hash_key_len = 40,
				  .rx_hash_key = key,
				  .rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 },
	};
	assert_null_errno(EINVAL, ibv_create_qp_ex(w->ctx, &rss)); /* it is the work queues' to say */
	rss.create_flags = 0;
	struct ibv_qp *qp = ibv_create_qp_ex(w->ctx, &rss);
	assert_non_null(qp);
	struct rule r = rule_for(1000, 0);
	struct ibv_flow *flow = steer(qp, &r);
	struct ibv_sge sge = sge_at(w, 2 * SLOT, SLOT);
	struct ibv_recv_wr recv = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 }, *bad;
	assert_errno(0, ibv_post_wq_recv(wq, &recv, &bad));
	send_tagged(w, sender, 1000);
	assert_int_equal(next_wc(w->cq).byte_len, TAGGED + 4);
	uint32_t fcs = crc(w->buffer, TAGGED);
	assert_memory_equal(w->buffer + 2 * SLOT, w->buffer, TAGGED);
	assert_memory_equal(w->buffer + 2 * SLOT + TAGGED, &fcs, 4);
	assert_errno(0, ibv_destroy_flow(flow));
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_rwq_ind_table(table));
	assert_errno(0, ibv_destroy_wq(wq));
	destroy_sender(sender);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(flow__tags_what_it_steers),
		WORLD_TEST(qp__takes_vlan_tags_out_and_gives_check_sequences),
		WORLD_TEST(qp__need_not_hear_its_own_host),
		WORLD_TEST(qp__flags_refused),
		WORLD_TEST(post__longer_than_the_mtu),
		WORLD_TEST(post__fills_checksums),
		WORLD_TEST(post__cuts_segments_up),
		WORLD_TEST(post__segments_refused),
		WORLD_TEST(rate__is_limited),
		WORLD_TEST(wq__gets_no_descriptor),
		WORLD_TEST(wq__flags),
		WORLD_TEST(flow__goes_where_rules_say),
		WORLD_TEST(flow__counts_and_drops),
		WORLD_TEST(flow__refused),
		WORLD_TEST(rss__spreads_by_flow),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
