/* SPDX-License-Identifier: BSD-2-Clause */
/* Extended completion queues (ibv_create_cq_ex) and work requests built call by call (ibv_wr_post). */
#include "world.h"

#include <arpa/inet.h>

struct extended {
	struct ibv_cq_ex *cq;
	struct ibv_qp *a, *b;
	struct ibv_qp_ex *ex; /* a's */
};

enum {
	RC_OPS = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
		 IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
		 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
};

static struct ibv_qp *make_qp_ex(struct world *w, struct ibv_cq *cq, uint64_t ops)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .pd = w->pd,
		.send_ops_flags = ops,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = SGES,
		.max_recv_sge = SGES, .max_inline_data = INLINE },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	};
	return ibv_create_qp_ex(w->ctx, &attr);
}

/* wc_flags: beside the usual ones. */
static struct extended extended_with(struct world *w, uint64_t wc_flags)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 64,
					    .cq_context = w,
					    .wc_flags = IBV_WC_STANDARD_FLAGS | wc_flags };
	struct extended x;
	assert_non_null(x.cq = ibv_create_cq_ex(w->ctx, &attr));
	assert_non_null(x.a = make_qp_ex(w, ibv_cq_ex_to_cq(x.cq), RC_OPS));
	assert_non_null(x.b = make_qp_ex(w, ibv_cq_ex_to_cq(x.cq), RC_OPS));
	assert_non_null(x.ex = ibv_qp_to_qp_ex(x.a));
	bring_to(w, x.a, IBV_QPS_RTS, x.b->qp_num);
	bring_to(w, x.b, IBV_QPS_RTS, x.a->qp_num);
	return x;
}

static struct extended extended(struct world *w)
{
	return extended_with(w, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
					IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
}

static void end_extended(struct extended *x)
{
	assert_errno(0, ibv_destroy_qp(x->a));
	assert_errno(0, ibv_destroy_qp(x->b));
	assert_errno(0, ibv_destroy_cq(ibv_cq_ex_to_cq(x->cq)));
}

static void start_poll(struct extended *x)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int err;
	while ((err = ibv_start_poll(x->cq, &attr)) == ENOENT)
		;
	assert_errno(0, err);
}

/* ---- completion queues ---- */

/* 16 bytes and a number, with the wr_id 2; the receive has 1. */
static void exchange(struct world *w, struct extended *x)
{
	struct ibv_sge sge = sge_at(w, 1024, 16);
	struct ibv_send_wr wr = { .wr_id = 2,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND_WITH_IMM,
				  .imm_data = htonl(77) },
			   *bad;
	assert_errno(0, post_recv(w, x->b, 1));
	assert_errno(0, ibv_post_send(x->a, &wr, &bad));
}

static void cq__reads_everything(void **state)
{
	struct world *w = *state;
	struct extended x = extended(w);
	struct ibv_poll_cq_attr attr = { 0 };
	assert_errno(ENOENT, ibv_start_poll(x.cq, &attr));
	exchange(w, &x);
	start_poll(&x);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(x.cq->status, IBV_WC_SUCCESS);
		assert_true(ibv_wc_read_completion_ts(x.cq) > 0);
		assert_true(ibv_wc_read_completion_wallclock_ns(x.cq) > ibv_wc_read_completion_ts(x.cq));
		assert_int_equal(ibv_wc_read_vendor_err(x.cq), 0);
		assert_int_equal(ibv_wc_read_slid(x.cq), 0);
		assert_int_equal(ibv_wc_read_sl(x.cq), 0);
		assert_int_equal(ibv_wc_read_dlid_path_bits(x.cq), 0);
		if (ibv_wc_read_opcode(x.cq) == IBV_WC_RECV) {
			assert_int_equal(x.cq->wr_id, 1);
			assert_int_equal(ibv_wc_read_qp_num(x.cq), x.b->qp_num);
			assert_int_equal(ibv_wc_read_byte_len(x.cq), 16);
			assert_true(ibv_wc_read_wc_flags(x.cq) & IBV_WC_WITH_IMM);
			assert_int_equal(ibv_wc_read_imm_data(x.cq), htonl(77));
		} else {
			assert_int_equal(x.cq->wr_id, 2);
			assert_int_equal(ibv_wc_read_opcode(x.cq), IBV_WC_SEND);
			assert_int_equal(ibv_wc_read_qp_num(x.cq), x.a->qp_num);
		}
		int err;
		while ((err = ibv_next_poll(x.cq)) == ENOENT && i == 0)
			;
		assert_errno(i == 0 ? 0 : ENOENT, err);
	}
	ibv_end_poll(x.cq);
	end_extended(&x);
}

/* What only frames have is 0 for messages. */
static void cq__reads_of_messages_what_frames_have(void **state)
{
	struct world *w = *state;
	struct extended x = extended_with(w, IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG);
	exchange(w, &x);
	for (int i = 0; i < 2; i++) {
		start_poll(&x);
		assert_int_equal(x.cq->status, IBV_WC_SUCCESS);
		assert_int_equal(ibv_wc_read_cvlan(x.cq), 0);
		assert_int_equal(ibv_wc_read_flow_tag(x.cq), 0);
		ibv_end_poll(x.cq);
	}
	end_extended(&x);
}

static void cq__polled_both_ways(void **state)
{
	struct world *w = *state;
	struct extended x = extended(w);
	assert_errno(0, post_recv(w, x.b, 1));
	assert_errno(0, post_send(w, x.a, 2, 0));
	start_poll(&x);
	ibv_end_poll(x.cq);
	assert_int_equal(next_wc(ibv_cq_ex_to_cq(x.cq)).status, IBV_WC_SUCCESS);
	end_extended(&x);
}

static void cq__refused(void **state)
{
	struct world *w = *state;
	struct ibv_cq_init_attr_ex attr = { .cqe = 8, .wc_flags = 1 << 20 };
	assert_null_errno(EOPNOTSUPP, ibv_create_cq_ex(w->ctx, &attr));
	attr = (struct ibv_cq_init_attr_ex){ .cqe = 8, .comp_mask = 1 << 9 };
	assert_null_errno(EOPNOTSUPP, ibv_create_cq_ex(w->ctx, &attr));
	attr = (struct ibv_cq_init_attr_ex){ .cqe = 8,
					     .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					     .flags = 1 << 9 };
	assert_null_errno(EOPNOTSUPP, ibv_create_cq_ex(w->ctx, &attr));
	attr = (struct ibv_cq_init_attr_ex){ .cqe = 0 };
	assert_null_errno(EINVAL, ibv_create_cq_ex(w->ctx, &attr));
	attr = (struct ibv_cq_init_attr_ex){ .cqe = 8,
					     .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					     .flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(w->ctx, &attr);
	struct ibv_poll_cq_attr poll = { .comp_mask = 1 };
	assert_non_null(cq);
	assert_errno(EINVAL, ibv_start_poll(cq, &poll));
	assert_errno(0, ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
}

/* Three completions make an event, or one that has waited. */
static void cq__moderated(void **state)
{
	struct world *w = *state;
	struct extended x = extended(w);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(w->ctx);
	struct ibv_cq *cq = ibv_create_cq(w->ctx, 16, NULL, channel, 0), *got;
	struct ibv_qp_init_attr attr = qp_attr(w);
	void *context;
	struct pollfd readable = { .fd = channel->fd, .events = POLLIN };
	struct ibv_modify_cq_attr moderate = { .attr_mask = IBV_CQ_ATTR_MODERATE,
					       .moderate = { .cq_count = 3, .cq_period = 60000 } };
	attr.send_cq = cq;
	attr.recv_cq = cq;
	struct ibv_qp *qp = ibv_create_qp(w->pd, &attr);
	bring_to(w, qp, IBV_QPS_RTS, qp->qp_num);
	assert_errno(0, ibv_modify_cq(cq, &moderate));
	assert_errno(0, ibv_req_notify_cq(cq, 0));
	assert_errno(0, post_recv(w, qp, 1));
	assert_errno(0, post_send(w, qp, 2, 0)); /* two completions */
	while (poll(&readable, 1, 0) == 0)
		; /* the period ends */
	assert_int_equal(ibv_get_cq_event(channel, &got, &context), 0);
	moderate.moderate.cq_period = UINT16_MAX;
	assert_errno(0, ibv_modify_cq(cq, &moderate));
	assert_errno(0, ibv_req_notify_cq(cq, 0));
	for (int i = 0; i < 2; i++) {
		assert_errno(0, post_recv(w, qp, 1));
		assert_errno(0, post_send(w, qp, 2, 0));
	}
	assert_int_equal(poll(&readable, 1, 10000), 1);
	assert_int_equal(ibv_get_cq_event(channel, &got, &context), 0);
	ibv_ack_cq_events(cq, 2);
	moderate.attr_mask = 1 << 5;
	assert_errno(EOPNOTSUPP, ibv_modify_cq(cq, &moderate));
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_cq(cq));
	assert_errno(0, ibv_destroy_comp_channel(channel));
	end_extended(&x);
}

/* ---- work requests ---- */

static void wr__batch(void **state)
{
	struct world *w = *state;
	struct extended x = extended(w);
	uint64_t *word = (uint64_t *)w->buffer + 300; /* what the atomics work on */
	struct ibv_sge sges[2] = { sge_at(w, 1024, 8), sge_at(w, 1032, 8) };
	char text[] = "inline data";
	struct ibv_data_buf parts[2] = { { text, 6 }, { text + 6, 6 } };
	*word = 10;
	memset(w->buffer + 1024, 0x5a, 16);
	assert_errno(0, post_recv(w, x.b, 1));
	assert_errno(0, post_recv(w, x.b, 2));

	ibv_wr_start(x.ex);
	x.ex->wr_id = 100;
	x.ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(x.ex);
	ibv_wr_set_sge_list(x.ex, 2, sges);
	x.ex->wr_id = 101;
	ibv_wr_rdma_write(x.ex, w->mr->rkey, (uintptr_t)w->buffer + 512);
	ibv_wr_set_inline_data_list(x.ex, 2, parts);
	x.ex->wr_id = 102;
	ibv_wr_rdma_read(x.ex, w->mr->rkey, (uintptr_t)w->buffer + 512);
	ibv_wr_set_sge(x.ex, w->mr->lkey, (uintptr_t)w->buffer + 768, 12);
	x.ex->wr_id = 103;
	ibv_wr_atomic_fetch_add(x.ex, w->mr->rkey, (uintptr_t)word, 5);
	ibv_wr_set_sge(x.ex, w->mr->lkey, (uintptr_t)w->buffer + 2048, 8);
	x.ex->wr_id = 104;
	ibv_wr_atomic_cmp_swp(x.ex, w->mr->rkey, (uintptr_t)word, 15, 99);
	ibv_wr_set_sge(x.ex, w->mr->lkey, (uintptr_t)w->buffer + 2056, 8);
	x.ex->wr_id = 105;
	ibv_wr_send_imm(x.ex, htonl(3));
	ibv_wr_set_inline_data(x.ex, text, 12);
	assert_errno(0, ibv_wr_complete(x.ex));

	uint64_t next_send = 100;
	for (int i = 0; i < 8; i++) {
		struct ibv_wc wc = next_wc(ibv_cq_ex_to_cq(x.cq));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		if (!(wc.opcode & IBV_WC_RECV))
			assert_int_equal(wc.wr_id, next_send++);
	}
	assert_int_equal(next_send, 106);
	assert_string_equal((char *)w->buffer + 512, text);
	assert_string_equal((char *)w->buffer + 768, text);
	assert_int_equal(*(uint64_t *)(w->buffer + 2048), 10);
	assert_int_equal(*(uint64_t *)(w->buffer + 2056), 15);
	assert_int_equal(*word, 99);
	end_extended(&x);
}

static void wr__mistakes_post_nothing(void **state)
{
	struct world *w = *state;
	struct extended x = extended(w);
	struct ibv_sge sges[SGES + 1] = { sge_at(w, 0, 8) };
	uint8_t data[INLINE + 1] = { 0 };
	struct ibv_wc wc;
	assert_errno(0, post_recv(w, x.b, 1));

	ibv_wr_start(x.ex);
	ibv_wr_send(x.ex);
	ibv_wr_set_sge(x.ex, w->mr->lkey, (uintptr_t)w->buffer, 8);
	ibv_wr_send(x.ex);
	ibv_wr_set_sge_list(x.ex, SGES + 1, sges);
	assert_errno(EINVAL, ibv_wr_complete(x.ex));

	ibv_wr_start(x.ex);
	ibv_wr_send(x.ex);
	ibv_wr_set_inline_data(x.ex, data, sizeof(data));
	assert_errno(EINVAL, ibv_wr_complete(x.ex));

	struct ibv_data_buf beyond[] = { { data, SIZE_MAX }, { data, 2 } }; /* a byte together, modulo 2^64 */
	ibv_wr_start(x.ex);
	ibv_wr_send(x.ex);
	ibv_wr_set_inline_data_list(x.ex, 2, beyond);
	assert_errno(EINVAL, ibv_wr_complete(x.ex));

	ibv_wr_start(x.ex);
	ibv_wr_set_sge(x.ex, w->mr->lkey, (uintptr_t)w->buffer, 8);
	assert_errno(EINVAL, ibv_wr_complete(x.ex));

	ibv_wr_start(x.ex);
	for (int i = 0; i <= DEPTH; i++)
		ibv_wr_send(x.ex);
	assert_errno(ENOMEM, ibv_wr_complete(x.ex));

	ibv_wr_start(x.ex);
	ibv_wr_send(x.ex);
	ibv_wr_abort(x.ex);

	ibv_wr_start(x.ex);
	assert_errno(0, ibv_wr_complete(x.ex));
	for (int i = 0; i < 1000; i++)
		assert_int_equal(ibv_poll_cq(ibv_cq_ex_to_cq(x.cq), 1, &wc), 0);
	end_extended(&x);
}

/* What ibv_post_send would refuse in the middle of a list keeps all of the batch from being posted. */
static void wr__all_or_none(void **state)
{
	struct world *w = *state;
	struct extended x = extended(w);
	struct ibv_wc wc;
	assert_errno(0, post_recv(w, x.b, 1));
	for (unsigned bad_one = 0; bad_one < 3; bad_one++) {
		ibv_wr_start(x.ex);
		for (unsigned i = 0; i < 3; i++) {
			x.ex->wr_flags = i == bad_one ? 1 << 12 : IBV_SEND_SIGNALED;
			ibv_wr_send(x.ex);
			ibv_wr_set_sge(x.ex, w->mr->lkey, (uintptr_t)w->buffer, 8);
		}
		assert_errno(EINVAL, ibv_wr_complete(x.ex));
	}
	for (int i = 0; i < 1000; i++)
		assert_int_equal(ibv_poll_cq(ibv_cq_ex_to_cq(x.cq), 1, &wc), 0);
	assert_errno(0, post_send(w, x.a, 7, 0)); /* the first that goes */
	for (int i = 0; i < 2; i++) {
		wc = next_wc(ibv_cq_ex_to_cq(x.cq));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, wc.opcode & IBV_WC_RECV ? 1 : 7);
	}
	end_extended(&x);
}

/*
 * Lists and inline data by turns, more each time: what was built before stays right where its memory moves.
 */
static void wr__batches_that_grow(void **state)
{
	struct world *w = *state;
	struct extended x = extended(w);
	for (unsigned count = 1; count <= DEPTH; count++) {
		ibv_wr_start(x.ex);
		x.ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE; /* the latter is the setters' to say */
		for (unsigned i = 0; i < count; i++) {
			uint64_t word = 1000 * count + i;
			size_t at = 1024 + 16 * i;
			memcpy(w->buffer + at, &word, 8);
			x.ex->wr_id = i;
			ibv_wr_rdma_write(x.ex, w->mr->rkey, (uintptr_t)w->buffer + 8 * i);
			if (i % 2)
				ibv_wr_set_inline_data(x.ex, &word, 8);
			else
				ibv_wr_set_sge_list(
					x.ex, 2,
					(struct ibv_sge[]){ sge_at(w, at, 3), sge_at(w, at + 3, 5) });
		}
		assert_errno(0, ibv_wr_complete(x.ex));
		for (unsigned i = 0; i < count; i++) {
			struct ibv_wc wc = next_wc(ibv_cq_ex_to_cq(x.cq));
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_int_equal(wc.wr_id, i);
			assert_int_equal(((uint64_t *)w->buffer)[i], 1000 * count + i);
		}
	}
	end_extended(&x);
}

/* Of two setters the last one counts, though the memory of what the first one has set moves. */
static void wr__data_that_is_set_again(void **state)
{
	struct world *w = *state;
	struct extended x = extended(w);
	uint8_t other[INLINE];
	memset(w->buffer, 0, BUFFER);
	memset(w->buffer + 1024, 0x5a, 8);
	memset(other, 0x77, sizeof(other));
	ibv_wr_start(x.ex);
	x.ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(x.ex, w->mr->rkey, (uintptr_t)w->buffer);
	ibv_wr_set_inline_data(x.ex, other, 8);
	ibv_wr_set_sge(x.ex, w->mr->lkey, (uintptr_t)w->buffer + 1024, 8);
	ibv_wr_rdma_write(x.ex, w->mr->rkey, (uintptr_t)w->buffer + 512);
	ibv_wr_set_inline_data(x.ex, other, sizeof(other));
	assert_errno(0, ibv_wr_complete(x.ex));
	for (int i = 0; i < 2; i++)
		assert_int_equal(next_wc(ibv_cq_ex_to_cq(x.cq)).status, IBV_WC_SUCCESS);
	assert_memory_equal(w->buffer, w->buffer + 1024, 8);
	assert_memory_equal(w->buffer + 512, other, sizeof(other));
	end_extended(&x);
}

static void qp__refused(void **state)
{
	struct world *w = *state;
	struct ibv_qp *plain = make_qp(w, NULL);
	assert_null(ibv_qp_to_qp_ex(plain));
	assert_errno(0, ibv_destroy_qp(plain));
	assert_null_errno(EOPNOTSUPP, make_qp_ex(w, w->cq, IBV_QP_EX_WITH_TSO));
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = w->cq, .recv_cq = w->cq, .qp_type = IBV_QPT_RC, .pd = w->pd
	};
	attr.comp_mask = IBV_QP_INIT_ATTR_CREATE_FLAGS;
	assert_null_errno(EINVAL, ibv_create_qp_ex(w->ctx, &attr));
	attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
	attr.create_flags = IBV_QP_CREATE_SCATTER_FCS;
	assert_null_errno(EOPNOTSUPP, ibv_create_qp_ex(w->ctx, &attr));
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH;
	assert_null_errno(EOPNOTSUPP, ibv_create_qp_ex(w->ctx, &attr));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(cq__reads_everything),
		WORLD_TEST(cq__reads_of_messages_what_frames_have),
		WORLD_TEST(cq__polled_both_ways),
		WORLD_TEST(cq__refused),
		WORLD_TEST(cq__moderated),
		WORLD_TEST(wr__batch),
		WORLD_TEST(wr__mistakes_post_nothing),
		WORLD_TEST(wr__all_or_none),
		WORLD_TEST(wr__batches_that_grow),
		WORLD_TEST(wr__data_that_is_set_again),
		WORLD_TEST(qp__refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
