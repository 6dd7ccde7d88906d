/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/qp_state.h"

#include "base/base.h"

/* The attributes by their bits. */
#define ATTRIBUTES(X)                                                                                        \
	X(STATE) X(CUR_STATE) X(EN_SQD_ASYNC_NOTIFY) X(ACCESS_FLAGS) X(PKEY_INDEX) X(PORT) X(QKEY) X(AV)     \
	X(PATH_MTU) X(TIMEOUT) X(RETRY_CNT) X(RNR_RETRY) X(RQ_PSN) X(MAX_QP_RD_ATOMIC) X(ALT_PATH)           \
	X(MIN_RNR_TIMER) X(SQ_PSN) X(MAX_DEST_RD_ATOMIC) X(PATH_MIG_STATE) X(CAP) X(DEST_QPN) X(RATE_LIMIT)

enum {
#define X(name) name = IBV_QP_##name,
	ATTRIBUTES(X)
#undef X
};

/* The QP types that the table knows; each is a column. */
enum column { RC, UC, UD, XRC_SEND, XRC_RECV, RAW, COLUMNS };

static int column_of(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return RC;
	case IBV_QPT_UC:
		return UC;
	case IBV_QPT_UD:
		return UD;
	case IBV_QPT_XRC_SEND:
		return XRC_SEND;
	case IBV_QPT_XRC_RECV:
		return XRC_RECV;
	case IBV_QPT_RAW_PACKET:
		return RAW;
	case IBV_QPT_DRIVER:
		break;
	}
	return -1;
}

struct cell {
	int required, optional;
};

struct row {
	uint8_t from, to;
	struct cell cells[COLUMNS]; /* one that is not given: the transition takes nothing but the state */
};

#define PATH_AND_PEER (AV | PATH_MTU | DEST_QPN | RQ_PSN)
#define RESPONDER     (MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER)
#define REQUESTER     (TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC)
#define MIGRATION     (ALT_PATH | PATH_MIG_STATE)

static const struct row rows[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, {
		[RC]       = { PKEY_INDEX | PORT | ACCESS_FLAGS, 0 },
		[UC]       = { PKEY_INDEX | PORT | ACCESS_FLAGS, 0 },
		[UD]       = { PKEY_INDEX | PORT | QKEY, 0 },
		[XRC_SEND] = { PKEY_INDEX | PORT | ACCESS_FLAGS, 0 },
		[XRC_RECV] = { PKEY_INDEX | PORT | ACCESS_FLAGS, 0 },
		[RAW]      = { PORT, 0 } } },
	{ IBV_QPS_INIT, IBV_QPS_INIT, {
		[RC]       = { 0, PKEY_INDEX | PORT | ACCESS_FLAGS },
		[UC]       = { 0, PKEY_INDEX | PORT | ACCESS_FLAGS },
		[UD]       = { 0, PKEY_INDEX | PORT | QKEY },
		[XRC_SEND] = { 0, PKEY_INDEX | PORT | ACCESS_FLAGS },
		[XRC_RECV] = { 0, PKEY_INDEX | PORT | ACCESS_FLAGS } } },
	{ IBV_QPS_INIT, IBV_QPS_RTR, {
		[RC]       = { PATH_AND_PEER | RESPONDER, ALT_PATH | ACCESS_FLAGS | PKEY_INDEX },
		[UC]       = { PATH_AND_PEER, ALT_PATH | ACCESS_FLAGS | PKEY_INDEX },
		[UD]       = { 0, PKEY_INDEX | QKEY },
		[XRC_SEND] = { PATH_AND_PEER, ALT_PATH | ACCESS_FLAGS | PKEY_INDEX },
		[XRC_RECV] = { PATH_AND_PEER | RESPONDER, ALT_PATH | ACCESS_FLAGS | PKEY_INDEX } } },
	{ IBV_QPS_RTR, IBV_QPS_RTS, {
		[RC]       = { REQUESTER | SQ_PSN, CUR_STATE | ACCESS_FLAGS | MIN_RNR_TIMER | MIGRATION },
		[UC]       = { SQ_PSN, CUR_STATE | ACCESS_FLAGS | MIGRATION },
		[UD]       = { SQ_PSN, CUR_STATE | QKEY },
		[XRC_SEND] = { REQUESTER | SQ_PSN, CUR_STATE | ACCESS_FLAGS | MIGRATION },
		[XRC_RECV] = { TIMEOUT | SQ_PSN, CUR_STATE | ACCESS_FLAGS | MIN_RNR_TIMER | MIGRATION },
		[RAW]      = { 0, RATE_LIMIT } } },
	{ IBV_QPS_RTS, IBV_QPS_RTS, {
		[RC]       = { 0, CUR_STATE | ACCESS_FLAGS | MIN_RNR_TIMER | MIGRATION },
		[UC]       = { 0, CUR_STATE | ACCESS_FLAGS | MIGRATION },
		[UD]       = { 0, CUR_STATE | QKEY },
		[XRC_SEND] = { 0, CUR_STATE | ACCESS_FLAGS | MIGRATION },
		[XRC_RECV] = { 0, CUR_STATE | ACCESS_FLAGS | MIN_RNR_TIMER | MIGRATION },
		[RAW]      = { 0, RATE_LIMIT } } },
	{ IBV_QPS_RTS, IBV_QPS_SQD, {
		[RC]       = { 0, EN_SQD_ASYNC_NOTIFY },
		[UC]       = { 0, EN_SQD_ASYNC_NOTIFY },
		[UD]       = { 0, EN_SQD_ASYNC_NOTIFY },
		[XRC_SEND] = { 0, EN_SQD_ASYNC_NOTIFY },
		[XRC_RECV] = { 0, EN_SQD_ASYNC_NOTIFY } } },
	{ IBV_QPS_SQD, IBV_QPS_RTS, {
		[RC]       = { 0, CUR_STATE | ACCESS_FLAGS | MIN_RNR_TIMER | MIGRATION },
		[UC]       = { 0, CUR_STATE | ACCESS_FLAGS | MIGRATION },
		[UD]       = { 0, CUR_STATE | QKEY },
		[XRC_SEND] = { 0, CUR_STATE | ACCESS_FLAGS | MIGRATION },
		[XRC_RECV] = { 0, CUR_STATE | ACCESS_FLAGS | MIN_RNR_TIMER | MIGRATION } } },
	{ IBV_QPS_SQD, IBV_QPS_SQD, {
		[RC]       = { 0, PORT | AV | REQUESTER | RESPONDER | ACCESS_FLAGS | PKEY_INDEX | MIGRATION },
		[UC]       = { 0, AV | ACCESS_FLAGS | PKEY_INDEX | MIGRATION },
		[UD]       = { 0, PKEY_INDEX | QKEY },
		[XRC_SEND] = { 0, PORT | AV | REQUESTER | ACCESS_FLAGS | PKEY_INDEX | MIGRATION },
		[XRC_RECV] = { 0, PORT | AV | TIMEOUT | RESPONDER | ACCESS_FLAGS | PKEY_INDEX | MIGRATION } } },
	{ IBV_QPS_SQE, IBV_QPS_RTS, {
		[UC]       = { 0, CUR_STATE | ACCESS_FLAGS },
		[UD]       = { 0, CUR_STATE | QKEY } } },
};

static const struct row *row_of(enum ibv_qp_state cur, enum ibv_qp_state next)
{
	for (size_t i = 0; i < VB_ARRAY_LEN(rows); i++)
		if (rows[i].from == cur && rows[i].to == next)
			return &rows[i];
	return NULL;
}

/* Only queue pairs without an answer for each request stop at a send error (volume 1, 10.3.1.7). */
static bool exists(int column, enum ibv_qp_state cur, enum ibv_qp_state next)
{
	if (column < 0 || cur > IBV_QPS_ERR || next > IBV_QPS_ERR)
		return false;
	return cur != IBV_QPS_SQE || column == UC || column == UD || column == RAW || next != IBV_QPS_RTS;
}

enum vb_transition vb_qp_transition(enum ibv_qp_type type, enum ibv_qp_state cur, enum ibv_qp_state next,
				    int mask, int *which)
{
	int column = column_of(type);
	struct cell cell = { 0, 0 };
	*which = 0;
	if (!exists(column, cur, next))
		return VB_TRANSITION_NONE;
	if (next != IBV_QPS_RESET && next != IBV_QPS_ERR) {
		const struct row *row = row_of(cur, next);
		if (!row)
			return VB_TRANSITION_NONE;
		cell = row->cells[column];
	}
	*which = cell.required & ~mask;
	if (*which)
		return VB_TRANSITION_MISSING;
	*which = mask & ~(cell.required | cell.optional | STATE);
	return *which ? VB_TRANSITION_SURPLUS : VB_TRANSITION_OK;
}

const char *vb_qp_state_name(enum ibv_qp_state state)
{
	switch (state) {
#define X(name)                 \
	case IBV_QPS_##name:    \
		return #name;
	X(RESET) X(INIT) X(RTR) X(RTS) X(SQD) X(SQE) X(ERR) X(UNKNOWN)
#undef X
	}
	return "an unknown state";
}

const char *vb_qp_attr_name(int bit)
{
	switch (bit & -bit) {
#define X(name)                      \
	case IBV_QP_##name:          \
		return "IBV_QP_" #name;
	ATTRIBUTES(X)
#undef X
	}
	return "an unknown attribute";
}
