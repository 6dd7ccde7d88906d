/* SPDX-License-Identifier: BSD-2-Clause */
/* The state machine of an RC queue pair through ibv_modify_qp. */
#include "world.h"

/* The attributes that can be asked for; a walk leaves out one after the other. */
static const int attributes[] = {
	IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_AV, IBV_QP_PATH_MTU, IBV_QP_TIMEOUT,
	IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY,
	IBV_QP_RQ_PSN, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_SQ_PSN,
	IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_DEST_QPN,
};

static void walk__every_missing_attribute(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = make_qp(w, NULL);
	for (enum ibv_qp_state to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++) {
		struct ibv_qp_attr a = connect_attr(w, qp->qp_num);
		a.qp_state = to;
		for (size_t i = 0; i < COUNT(attributes); i++) {
			if (!(mask_to[to] & attributes[i]))
				continue;
			assert_errno(EINVAL, ibv_modify_qp(qp, &a, mask_to[to] & ~attributes[i]));
			assert_int_equal(state_of(qp), to - 1);
		}
		assert_errno(0, ibv_modify_qp(qp, &a, mask_to[to]));
		assert_int_equal(state_of(qp), to);
		assert_int_equal(qp->state, to);
	}
	assert_errno(0, ibv_destroy_qp(qp));
}

static void walk__every_surplus_attribute(void **state)
{
	struct world *w = *state;
	static const int optional[] = {
		[IBV_QPS_INIT] = 0,
		[IBV_QPS_RTR] = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
		[IBV_QPS_RTS] = IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER,
	};
	struct ibv_qp *qp = make_qp(w, NULL);
	for (enum ibv_qp_state to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++) {
		struct ibv_qp_attr a = connect_attr(w, qp->qp_num);
		a.qp_state = to;
		for (int bit = IBV_QP_CUR_STATE; bit <= IBV_QP_DEST_QPN; bit <<= 1)
			if (!((mask_to[to] | optional[to]) & bit))
				assert_errno(EINVAL, ibv_modify_qp(qp, &a, mask_to[to] | bit));
		assert_errno(0, ibv_modify_qp(qp, &a, mask_to[to]));
	}
	assert_errno(0, ibv_destroy_qp(qp));
}

/* From each state to each: only those that exist. */
static void walk__transitions_that_do_not_exist(void **state)
{
	struct world *w = *state;
	for (enum ibv_qp_state from = IBV_QPS_RESET; from <= IBV_QPS_ERR; from++)
		for (enum ibv_qp_state to = IBV_QPS_INIT; to <= IBV_QPS_SQE; to++) {
			struct ibv_qp *qp = make_qp(w, NULL);
			if (from <= IBV_QPS_RTS)
				bring_to(w, qp, from, qp->qp_num);
			else if (from == IBV_QPS_SQD)
				bring_to(w, qp, IBV_QPS_RTS, qp->qp_num);
			if (from == IBV_QPS_SQD || from == IBV_QPS_ERR)
				assert_errno(0, set_state(qp, from));
			bool next = to == from + 1 && from <= IBV_QPS_RTR;
			bool same = to == from && from != IBV_QPS_RTR && from != IBV_QPS_SQE;
			bool drain = from == IBV_QPS_RTS && to == IBV_QPS_SQD,
			     resume = from == IBV_QPS_SQD && to == IBV_QPS_RTS;
			if (from != IBV_QPS_SQE && !next && !same && !drain && !resume) {
				struct ibv_qp_attr a = connect_attr(w, qp->qp_num);
				a.qp_state = to;
				int mask = to < (int)COUNT(mask_to) ? mask_to[to] : IBV_QP_STATE;
				assert_errno(EINVAL, ibv_modify_qp(qp, &a, mask));
				assert_errno(EINVAL, set_state(qp, to));
				assert_int_equal(state_of(qp), from);
			}
			assert_errno(0, ibv_destroy_qp(qp));
		}
}

static void walk__reset_and_error_from_everywhere(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = make_qp(w, NULL);
	for (enum ibv_qp_state from = IBV_QPS_RESET; from <= IBV_QPS_RTS; from++) {
		bring_to(w, qp, from, qp->qp_num);
		assert_errno(0, set_state(qp, IBV_QPS_ERR));
		assert_int_equal(state_of(qp), IBV_QPS_ERR);
		assert_errno(0, set_state(qp, IBV_QPS_ERR));
		assert_errno(0, set_state(qp, IBV_QPS_RESET));
		assert_int_equal(state_of(qp), IBV_QPS_RESET);
		bring_to(w, qp, from, qp->qp_num);
		assert_errno(0, set_state(qp, IBV_QPS_RESET));
		assert_errno(0, set_state(qp, IBV_QPS_RESET));
	}
	assert_errno(0, ibv_destroy_qp(qp));
}

static void values__out_of_range(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = make_qp(w, NULL);
	struct ibv_qp_attr good = connect_attr(w, qp->qp_num), a;
	const union ibv_gid nowhere = { .raw = { 0 } }, nowhere_v4 = { .raw = { [10] = 0xff, 0xff } },
			    group = { .raw = { 0xff, 0x02, [15] = 1 } },
			    group_v4 = { .raw = { [10] = 0xff, 0xff, 239, 1, 2, 3 } },
			    other_kind = { .raw = { 0xfd, [15] = 1 } }; /* of an IPv4 address's peer */
#define REFUSED_WITH(to, more, member, value)                                   \
	do {                                                                    \
		a = good;                                                       \
		a.qp_state = to;                                                \
		a.member = value;                                               \
		assert_errno(EINVAL, ibv_modify_qp(qp, &a, mask_to[to] | (more))); \
		assert_int_equal(state_of(qp), (to) - 1);                       \
	} while (0)
#define REFUSED(to, member, value) REFUSED_WITH(to, 0, member, value)
	REFUSED(IBV_QPS_INIT, port_num, 0);
	REFUSED(IBV_QPS_INIT, port_num, 2);
	REFUSED(IBV_QPS_INIT, pkey_index, 1);
	REFUSED(IBV_QPS_INIT, qp_access_flags, ~0u);
	REFUSED(IBV_QPS_INIT, qp_access_flags, IBV_ACCESS_REMOTE_READ | 1u << 31);
	REFUSED(IBV_QPS_INIT, qp_access_flags, IBV_ACCESS_REMOTE_READ | 1 << 10);
	assert_errno(0, step(w, qp, IBV_QPS_INIT, 0));
	REFUSED(IBV_QPS_RTR, path_mtu, 0);
	REFUSED(IBV_QPS_RTR, path_mtu, 6);
	REFUSED(IBV_QPS_RTR, dest_qp_num, 1 << 24);
	REFUSED(IBV_QPS_RTR, max_dest_rd_atomic, 255);
	REFUSED(IBV_QPS_RTR, min_rnr_timer, 32);
	REFUSED(IBV_QPS_RTR, ah_attr.is_global, 0);
	REFUSED(IBV_QPS_RTR, ah_attr.port_num, 2);
	REFUSED(IBV_QPS_RTR, ah_attr.grh.sgid_index, 250);
	REFUSED(IBV_QPS_RTR, ah_attr.grh.dgid, nowhere);
	REFUSED(IBV_QPS_RTR, ah_attr.grh.dgid, nowhere_v4);
	REFUSED(IBV_QPS_RTR, ah_attr.grh.dgid, group);
	REFUSED(IBV_QPS_RTR, ah_attr.grh.dgid, group_v4);
	REFUSED(IBV_QPS_RTR, ah_attr.grh.dgid, other_kind);
	REFUSED(IBV_QPS_RTR, ah_attr.static_rate, 255);
	REFUSED(IBV_QPS_RTR, ah_attr.static_rate, 1);
	REFUSED(IBV_QPS_RTR, ah_attr.sl, 16);
	good.alt_ah_attr = good.ah_attr;
	good.alt_port_num = 1;
	REFUSED_WITH(IBV_QPS_RTR, IBV_QP_ALT_PATH, alt_port_num, 2);
	REFUSED_WITH(IBV_QPS_RTR, IBV_QP_ALT_PATH, alt_pkey_index, 1);
	REFUSED_WITH(IBV_QPS_RTR, IBV_QP_ALT_PATH, alt_timeout, 32);
	REFUSED_WITH(IBV_QPS_RTR, IBV_QP_ALT_PATH, alt_ah_attr.is_global, 0);
	REFUSED_WITH(IBV_QPS_RTR, IBV_QP_ALT_PATH, alt_ah_attr.static_rate, 255);
	REFUSED_WITH(IBV_QPS_RTR, IBV_QP_ALT_PATH, alt_ah_attr.grh.dgid, nowhere);
	REFUSED_WITH(IBV_QPS_RTR, IBV_QP_ALT_PATH, alt_ah_attr.grh.dgid, other_kind);
	assert_errno(0, step(w, qp, IBV_QPS_RTR, qp->qp_num));
	REFUSED_WITH(IBV_QPS_RTS, IBV_QP_PATH_MIG_STATE, path_mig_state, 3);
	REFUSED(IBV_QPS_RTS, timeout, 32);
	REFUSED(IBV_QPS_RTS, retry_cnt, 8);
	REFUSED(IBV_QPS_RTS, rnr_retry, 8);
	REFUSED(IBV_QPS_RTS, max_rd_atomic, 255);
	assert_errno(0, step(w, qp, IBV_QPS_RTS, 0));
#undef REFUSED
#undef REFUSED_WITH
	assert_errno(0, ibv_destroy_qp(qp));
}

/* What a program may say of a region, it may say of a queue pair; and rates that exist, or are none. */
static void values__that_say_too_much_are_taken(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = make_qp(w, NULL);
	struct ibv_qp_attr a = connect_attr(w, qp->qp_num), got;
	struct ibv_qp_init_attr init;
	a.qp_state = IBV_QPS_INIT;
	a.qp_access_flags =
		ANY_ACCESS | IBV_ACCESS_MW_BIND | IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_OPTIONAL_RANGE;
	assert_errno(0, ibv_modify_qp(qp, &a, mask_to[IBV_QPS_INIT]));
	assert_errno(0, ibv_query_qp(qp, &got, -1, &init));
	assert_int_equal(got.qp_access_flags, a.qp_access_flags);
	a.qp_state = IBV_QPS_RTR;
	a.ah_attr.static_rate = IBV_RATE_1200_GBPS;
	a.ah_attr.sl = 15;
	a.ah_attr.grh.flow_label = 0xfffff;
	assert_errno(0, ibv_modify_qp(qp, &a, mask_to[IBV_QPS_RTR]));
	assert_errno(0, ibv_destroy_qp(qp));
}

static void values__queried_as_set(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = make_qp(w, NULL);
	struct ibv_qp_attr set = connect_attr(w, qp->qp_num), got;
	struct ibv_qp_init_attr init;
	bring_to(w, qp, IBV_QPS_RTS, qp->qp_num);
	assert_errno(0, ibv_query_qp(qp, &got, -1, &init));
	assert_int_equal(got.qp_state, IBV_QPS_RTS);
	assert_int_equal(got.cur_qp_state, IBV_QPS_RTS);
	assert_int_equal(got.path_mtu, set.path_mtu);
	assert_int_equal(got.dest_qp_num, qp->qp_num);
	assert_int_equal(got.rq_psn, set.rq_psn);
	assert_int_equal(got.sq_psn, set.sq_psn);
	assert_int_equal(got.qp_access_flags, set.qp_access_flags);
	assert_int_equal(got.max_rd_atomic, set.max_rd_atomic);
	assert_int_equal(got.max_dest_rd_atomic, set.max_dest_rd_atomic);
	assert_int_equal(got.min_rnr_timer, set.min_rnr_timer);
	assert_int_equal(got.timeout, set.timeout);
	assert_int_equal(got.retry_cnt, set.retry_cnt);
	assert_int_equal(got.rnr_retry, set.rnr_retry);
	assert_int_equal(got.port_num, 1);
	assert_memory_equal(&got.ah_attr.grh.dgid, &set.ah_attr.grh.dgid, sizeof(union ibv_gid));
	assert_int_equal(got.sq_draining, 0);

	struct ibv_qp_attr change = { .qp_access_flags = IBV_ACCESS_REMOTE_READ, .min_rnr_timer = 3 };
	assert_errno(0, ibv_modify_qp(qp, &change, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER));
	assert_errno(0, ibv_query_qp(qp, &got, -1, &init));
	assert_int_equal(got.qp_access_flags, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(got.min_rnr_timer, 3);
	assert_int_equal(got.timeout, set.timeout);
	assert_errno(0, ibv_destroy_qp(qp));
}

static void values__refused_call_changes_nothing(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = make_qp(w, NULL);
	struct ibv_qp_attr a = { .qp_access_flags = 0, .min_rnr_timer = 99 }, before, after;
	struct ibv_qp_init_attr init;
	bring_to(w, qp, IBV_QPS_RTS, qp->qp_num);
	assert_errno(0, ibv_query_qp(qp, &before, -1, &init));
	assert_errno(EINVAL, ibv_modify_qp(qp, &a, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER));
	assert_errno(0, ibv_query_qp(qp, &after, -1, &init));
	assert_memory_equal(&before, &after, sizeof(before));
	assert_errno(0, ibv_destroy_qp(qp));
}

static void cur_state__must_be_right(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = make_qp(w, NULL);
	struct ibv_qp_attr a = connect_attr(w, qp->qp_num);
	bring_to(w, qp, IBV_QPS_RTR, qp->qp_num);
	a.qp_state = IBV_QPS_RTS;
	a.cur_qp_state = IBV_QPS_RTS;
	assert_errno(EINVAL, ibv_modify_qp(qp, &a, mask_to[IBV_QPS_RTS] | IBV_QP_CUR_STATE));
	a.cur_qp_state = IBV_QPS_RTR;
	assert_errno(0, ibv_modify_qp(qp, &a, mask_to[IBV_QPS_RTS] | IBV_QP_CUR_STATE));
	assert_errno(0, ibv_destroy_qp(qp));
}

/* What was connected once can be connected anew, and then data flows. */
static void reset__and_again(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	for (int round = 0; round < 3; round++) {
		assert_errno(0, post_recv(w, x.b, 1));
		assert_errno(0, post_send(w, x.a, 2, IBV_SEND_SIGNALED));
		for (int i = 0; i < 2; i++)
			assert_int_equal(next_wc(w->cq).status, IBV_WC_SUCCESS);
		assert_errno(0, set_state(x.a, IBV_QPS_RESET));
		assert_errno(0, set_state(x.b, IBV_QPS_RESET));
		bring_to(w, x.a, IBV_QPS_RTS, x.b->qp_num);
		bring_to(w, x.b, IBV_QPS_RTS, x.a->qp_num);
	}
	disconnected(&x);
}

static void reset__drops_completions(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = make_qp(w, NULL);
	struct ibv_wc wc;
	bring_to(w, qp, IBV_QPS_INIT, 0);
	assert_errno(0, post_recv(w, qp, 1));
	assert_errno(0, set_state(qp, IBV_QPS_ERR));
	assert_errno(0, set_state(qp, IBV_QPS_RESET));
	assert_int_equal(ibv_poll_cq(w->cq, 1, &wc), 0);
	assert_errno(0, ibv_destroy_qp(qp));
}

/* Programs from before rate limits have a structure that ends in front of that member. */
static void query__writes_no_more_than_old_programs_have(void **state)
{
	enum { OLD = offsetof(struct ibv_qp_attr, rate_limit) };
	struct world *w = *state;
	struct ibv_qp *qp = make_qp(w, NULL);
	struct ibv_qp_init_attr init;
	uint8_t *room = malloc(sizeof(struct ibv_qp_attr));
	memset(room, 0xa5, sizeof(struct ibv_qp_attr));
	assert_errno(0, ibv_query_qp(qp, (void *)room, IBV_QP_STATE | IBV_QP_CAP, &init));
	for (size_t i = OLD; i < sizeof(struct ibv_qp_attr); i++)
		assert_int_equal(room[i], 0xa5);
	free(room);
	assert_errno(0, ibv_destroy_qp(qp));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(walk__every_missing_attribute),
		WORLD_TEST(walk__every_surplus_attribute),
		WORLD_TEST(walk__transitions_that_do_not_exist),
		WORLD_TEST(walk__reset_and_error_from_everywhere),
		WORLD_TEST(values__out_of_range),
		WORLD_TEST(values__that_say_too_much_are_taken),
		WORLD_TEST(values__queried_as_set),
		WORLD_TEST(query__writes_no_more_than_old_programs_have),
		WORLD_TEST(values__refused_call_changes_nothing),
		WORLD_TEST(cur_state__must_be_right),
		WORLD_TEST(reset__and_again),
		WORLD_TEST(reset__drops_completions),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
