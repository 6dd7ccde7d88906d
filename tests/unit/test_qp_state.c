/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of transitions against a second writing of the specification's tables, by names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "../between.h"
#include "adapter/qp_state.h"
#include "adapter/queues/status.h"
#include "base/base.h"

#define INIT_CONNECTED "PKEY_INDEX PORT ACCESS_FLAGS"
#define TO_RTR         "AV PATH_MTU DEST_QPN RQ_PSN"
#define RTR_OPTIONS    "ALT_PATH ACCESS_FLAGS PKEY_INDEX"
#define TO_RTS         "TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC"
#define RTS_OPTIONS    "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE"

static const struct {
	enum ibv_qp_type type;
	enum ibv_qp_state from, to;
	const char *required, *optional;
} facts[] = {
	{ IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, INIT_CONNECTED, "" },
	{ IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_INIT, "", INIT_CONNECTED },
	{ IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, TO_RTR " MAX_DEST_RD_ATOMIC MIN_RNR_TIMER", RTR_OPTIONS },
	{ IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, TO_RTS, RTS_OPTIONS " MIN_RNR_TIMER" },
	{ IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, "", RTS_OPTIONS " MIN_RNR_TIMER" },
	{ IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_SQD, "", "EN_SQD_ASYNC_NOTIFY" },
	{ IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_RTS, "", RTS_OPTIONS " MIN_RNR_TIMER" },
	{ IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_SQD, "",
	  "PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER "
	  "PATH_MIG_STATE" },

	{ IBV_QPT_UC, IBV_QPS_RESET, IBV_QPS_INIT, INIT_CONNECTED, "" },
	{ IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_INIT, "", INIT_CONNECTED },
	{ IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, TO_RTR, RTR_OPTIONS },
	{ IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, "SQ_PSN", RTS_OPTIONS },
	{ IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_RTS, "", RTS_OPTIONS },
	{ IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_SQD, "", "EN_SQD_ASYNC_NOTIFY" },
	{ IBV_QPT_UC, IBV_QPS_SQD, IBV_QPS_RTS, "", RTS_OPTIONS },
	{ IBV_QPT_UC, IBV_QPS_SQD, IBV_QPS_SQD, "", "AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE" },
	{ IBV_QPT_UC, IBV_QPS_SQE, IBV_QPS_RTS, "", "CUR_STATE ACCESS_FLAGS" },

	{ IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, "PKEY_INDEX PORT QKEY", "" },
	{ IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_INIT, "", "PKEY_INDEX PORT QKEY" },
	{ IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, "", "PKEY_INDEX QKEY" },
	{ IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, "SQ_PSN", "CUR_STATE QKEY" },
	{ IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_RTS, "", "CUR_STATE QKEY" },
	{ IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_SQD, "", "EN_SQD_ASYNC_NOTIFY" },
	{ IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_RTS, "", "CUR_STATE QKEY" },
	{ IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_SQD, "", "PKEY_INDEX QKEY" },
	{ IBV_QPT_UD, IBV_QPS_SQE, IBV_QPS_RTS, "", "CUR_STATE QKEY" },

	{ IBV_QPT_XRC_SEND, IBV_QPS_RESET, IBV_QPS_INIT, INIT_CONNECTED, "" },
	{ IBV_QPT_XRC_SEND, IBV_QPS_INIT, IBV_QPS_INIT, "", INIT_CONNECTED },
	{ IBV_QPT_XRC_SEND, IBV_QPS_INIT, IBV_QPS_RTR, TO_RTR, RTR_OPTIONS },
	{ IBV_QPT_XRC_SEND, IBV_QPS_RTR, IBV_QPS_RTS, TO_RTS, RTS_OPTIONS },
	{ IBV_QPT_XRC_SEND, IBV_QPS_RTS, IBV_QPS_RTS, "", RTS_OPTIONS },
	{ IBV_QPT_XRC_SEND, IBV_QPS_RTS, IBV_QPS_SQD, "", "EN_SQD_ASYNC_NOTIFY" },
	{ IBV_QPT_XRC_SEND, IBV_QPS_SQD, IBV_QPS_RTS, "", RTS_OPTIONS },
	{ IBV_QPT_XRC_SEND, IBV_QPS_SQD, IBV_QPS_SQD, "",
	  "PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE" },

	{ IBV_QPT_XRC_RECV, IBV_QPS_RESET, IBV_QPS_INIT, INIT_CONNECTED, "" },
	{ IBV_QPT_XRC_RECV, IBV_QPS_INIT, IBV_QPS_INIT, "", INIT_CONNECTED },
	{ IBV_QPT_XRC_RECV, IBV_QPS_INIT, IBV_QPS_RTR, TO_RTR " MAX_DEST_RD_ATOMIC MIN_RNR_TIMER",
	  RTR_OPTIONS },
	{ IBV_QPT_XRC_RECV, IBV_QPS_RTR, IBV_QPS_RTS, "TIMEOUT SQ_PSN", RTS_OPTIONS " MIN_RNR_TIMER" },
	{ IBV_QPT_XRC_RECV, IBV_QPS_RTS, IBV_QPS_RTS, "", RTS_OPTIONS " MIN_RNR_TIMER" },
	{ IBV_QPT_XRC_RECV, IBV_QPS_RTS, IBV_QPS_SQD, "", "EN_SQD_ASYNC_NOTIFY" },
	{ IBV_QPT_XRC_RECV, IBV_QPS_SQD, IBV_QPS_RTS, "", RTS_OPTIONS " MIN_RNR_TIMER" },
	{ IBV_QPT_XRC_RECV, IBV_QPS_SQD, IBV_QPS_SQD, "",
	  "PORT AV TIMEOUT MAX_DEST_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE" },

	{ IBV_QPT_RAW_PACKET, IBV_QPS_RESET, IBV_QPS_INIT, "PORT", "" },
	{ IBV_QPT_RAW_PACKET, IBV_QPS_INIT, IBV_QPS_INIT, "", "" },
	{ IBV_QPT_RAW_PACKET, IBV_QPS_INIT, IBV_QPS_RTR, "", "" },
	{ IBV_QPT_RAW_PACKET, IBV_QPS_RTR, IBV_QPS_RTS, "", "RATE_LIMIT" },
	{ IBV_QPT_RAW_PACKET, IBV_QPS_RTS, IBV_QPS_RTS, "", "RATE_LIMIT" },
	{ IBV_QPT_RAW_PACKET, IBV_QPS_RTS, IBV_QPS_SQD, "", "" },
	{ IBV_QPT_RAW_PACKET, IBV_QPS_SQD, IBV_QPS_RTS, "", "" },
	{ IBV_QPT_RAW_PACKET, IBV_QPS_SQD, IBV_QPS_SQD, "", "" },
	{ IBV_QPT_RAW_PACKET, IBV_QPS_SQE, IBV_QPS_RTS, "", "" },
};

static const enum ibv_qp_type types[] = { IBV_QPT_RC,	    IBV_QPT_UC,	      IBV_QPT_UD,
					  IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_RAW_PACKET };

static const struct {
	const char *name;
	int bit;
} attributes[] = {
	{ "CUR_STATE", IBV_QP_CUR_STATE }, { "EN_SQD_ASYNC_NOTIFY", IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ "ACCESS_FLAGS", IBV_QP_ACCESS_FLAGS }, { "PKEY_INDEX", IBV_QP_PKEY_INDEX }, { "PORT", IBV_QP_PORT },
	{ "QKEY", IBV_QP_QKEY }, { "AV", IBV_QP_AV }, { "PATH_MTU", IBV_QP_PATH_MTU }, { "TIMEOUT", IBV_QP_TIMEOUT },
	{ "RETRY_CNT", IBV_QP_RETRY_CNT }, { "RNR_RETRY", IBV_QP_RNR_RETRY }, { "RQ_PSN", IBV_QP_RQ_PSN },
	{ "MAX_QP_RD_ATOMIC", IBV_QP_MAX_QP_RD_ATOMIC }, { "ALT_PATH", IBV_QP_ALT_PATH }, { "MIN_RNR_TIMER", IBV_QP_MIN_RNR_TIMER },
	{ "SQ_PSN", IBV_QP_SQ_PSN }, { "MAX_DEST_RD_ATOMIC", IBV_QP_MAX_DEST_RD_ATOMIC }, { "PATH_MIG_STATE", IBV_QP_PATH_MIG_STATE },
	{ "CAP", IBV_QP_CAP }, { "DEST_QPN", IBV_QP_DEST_QPN }, { "RATE_LIMIT", IBV_QP_RATE_LIMIT },
};

static int mask_of(const char *names)
{
	int mask = 0;
	while (*names) {
		size_t n = strcspn(names, " "), i = 0;
		while (strncmp(attributes[i].name, names, n) || attributes[i].name[n])
			assert_between(++i, 0, VB_ARRAY_LEN(attributes) - 1);
		mask |= attributes[i].bit;
		names += n + (names[n] == ' ');
	}
	return mask;
}

static int fact_of(enum ibv_qp_type type, int from, int to)
{
	for (size_t i = 0; i < VB_ARRAY_LEN(facts); i++)
		if (facts[i].type == type && (int)facts[i].from == from && (int)facts[i].to == to)
			return (int)i;
	return -1;
}

/* Each attribute by itself: missing if required and absent, surplus if unknown and present. */
static void walk_masks(enum ibv_qp_type type, int from, int to, int required, int optional)
{
	int which;
	assert_int_equal(vb_qp_transition(type, from, to, required | IBV_QP_STATE, &which), VB_TRANSITION_OK);
	assert_int_equal(vb_qp_transition(type, from, to, required | optional | IBV_QP_STATE, &which),
			 VB_TRANSITION_OK);
	assert_int_equal(which, 0);
	for (size_t i = 0; i < VB_ARRAY_LEN(attributes); i++) {
		int bit = attributes[i].bit;
		enum vb_transition with =
			vb_qp_transition(type, from, to, required | bit | IBV_QP_STATE, &which);
		bool known = (required | optional) & bit;
		assert_int_equal(with, known ? VB_TRANSITION_OK : VB_TRANSITION_SURPLUS);
		assert_int_equal(which, known ? 0 : bit);
		enum vb_transition without =
			vb_qp_transition(type, from, to, (required & ~bit) | IBV_QP_STATE, &which);
		assert_int_equal(without, required & bit ? VB_TRANSITION_MISSING : VB_TRANSITION_OK);
		assert_int_equal(which, required & bit);
	}
}

static void transition__whole_table(void **state)
{
	int which;
	for (size_t t = 0; t < VB_ARRAY_LEN(types); t++)
		for (int from = IBV_QPS_RESET; from <= IBV_QPS_ERR; from++)
			for (int to = IBV_QPS_RESET; to <= IBV_QPS_ERR; to++) {
				int fact = fact_of(types[t], from, to);
				if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
					walk_masks(types[t], from, to, 0, 0);
				else if (fact >= 0)
					walk_masks(types[t], from, to, mask_of(facts[fact].required),
						   mask_of(facts[fact].optional));
				else
					assert_int_equal(vb_qp_transition(types[t], from, to, -1, &which),
							 VB_TRANSITION_NONE);
			}
}

static void transition__without_state(void **state)
{
	int which;
	assert_int_equal(vb_qp_transition(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, IBV_QP_ACCESS_FLAGS, &which),
			 VB_TRANSITION_OK);
	assert_int_equal(vb_qp_transition(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTR, IBV_QP_ACCESS_FLAGS, &which),
			 VB_TRANSITION_NONE);
}

static void transition__what_does_not_exist(void **state)
{
	int which;
	assert_int_equal(vb_qp_transition(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_UNKNOWN, IBV_QP_STATE, &which),
			 VB_TRANSITION_NONE);
	assert_int_equal(vb_qp_transition(IBV_QPT_RC, IBV_QPS_RESET, 1000, IBV_QP_STATE, &which),
			 VB_TRANSITION_NONE);
	assert_int_equal(vb_qp_transition(IBV_QPT_RC, IBV_QPS_RESET, -1, IBV_QP_STATE, &which),
			 VB_TRANSITION_NONE);
	assert_int_equal(vb_qp_transition(IBV_QPT_DRIVER, IBV_QPS_RESET, IBV_QPS_RESET, IBV_QP_STATE, &which),
			 VB_TRANSITION_NONE);
	assert_int_equal(vb_qp_transition(77, IBV_QPS_RESET, IBV_QPS_RESET, IBV_QP_STATE, &which),
			 VB_TRANSITION_NONE);
}

static void names__all(void **state)
{
	for (size_t i = 0; i < VB_ARRAY_LEN(attributes); i++) {
		const char *name = vb_qp_attr_name(attributes[i].bit);
		assert_memory_equal(name, "IBV_QP_", 7);
		assert_string_equal(name + 7, attributes[i].name);
	}
	assert_string_equal(vb_qp_attr_name(IBV_QP_TIMEOUT | IBV_QP_PORT), "IBV_QP_PORT");
	assert_string_equal(vb_qp_state_name(IBV_QPS_RTR), "RTR");
	assert_non_null(vb_qp_attr_name(1 << 30));
	assert_non_null(vb_qp_state_name(99));
	for (unsigned s = 0; s <= IBV_WC_TM_RNDV_INCOMPLETE; s++)
		assert_memory_equal(vb_wc_status_name(s), "IBV_WC_", 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(transition__whole_table),
		cmocka_unit_test(transition__without_state),
		cmocka_unit_test(transition__what_does_not_exist),
		cmocka_unit_test(names__all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
