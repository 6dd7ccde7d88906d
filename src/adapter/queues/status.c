/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/queues/status.h"

#include "base/base.h"

#define STATUSES(X)                                                                                     \
	X(SUCCESS) X(LOC_LEN_ERR) X(LOC_QP_OP_ERR) X(LOC_EEC_OP_ERR) X(LOC_PROT_ERR) X(WR_FLUSH_ERR) X(MW_BIND_ERR) \
	X(BAD_RESP_ERR) X(LOC_ACCESS_ERR) X(REM_INV_REQ_ERR) X(REM_ACCESS_ERR) X(REM_OP_ERR) X(RETRY_EXC_ERR) \
	X(RNR_RETRY_EXC_ERR) X(LOC_RDD_VIOL_ERR) X(REM_INV_RD_REQ_ERR) X(REM_ABORT_ERR) X(INV_EECN_ERR) \
	X(INV_EEC_STATE_ERR) X(FATAL_ERR) X(RESP_TIMEOUT_ERR) X(GENERAL_ERR) X(TM_ERR) X(TM_RNDV_INCOMPLETE)

const char *vb_wc_status_name(enum ibv_wc_status status)
{
	static const char *const names[] = {
#define X(name) [IBV_WC_##name] = "IBV_WC_" #name,
		STATUSES(X)
#undef X
	};
	unsigned s = status;
	return s < VB_ARRAY_LEN(names) && names[s] ? names[s] : "unknown status";
}

const char *vb_wc_status_text(enum ibv_wc_status status)
{
	static const char *const texts[] = {
		[IBV_WC_LOC_QP_OP_ERR] =
			"a READ or atomic needs max_rd_atomic of at least 1 (ibv_modify_qp to RTS); or "
			"no memory is left for the bytes of requests",
		[IBV_WC_LOC_PROT_ERR] =
			"an lkey does not cover its list, or the memory that the list names is not there",
		[IBV_WC_BAD_RESP_ERR] = "the peer's answer does not fit the request",
		[IBV_WC_REM_INV_REQ_ERR] =
			"the peer refused it as invalid: the message is longer than its receive buffer, an atomic is "
			"not aligned, or its queue pair's qp_access_flags or max_dest_rd_atomic do not allow it "
			"(ibv_modify_qp there)",
		[IBV_WC_REM_ACCESS_ERR] =
			"the peer's memory may not be accessed so: remote key, range, the region's access flags or "
			"its protection domain (VERBATIM_DEBUG=1 there says which)",
		[IBV_WC_REM_OP_ERR] =
			"the peer could not carry it out: its receive buffer's memory is not accessible",
		[IBV_WC_RNR_RETRY_EXC_ERR] =
			"the peer had no receive posted during rnr_retry times min_rnr_timer",
	};
	unsigned s = status;
	return s < VB_ARRAY_LEN(texts) ? texts[s] : NULL;
}
