/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/queues/status.h"

#include "base/base.h"

#define STATUSES(X)                                                                                     \
	X(SUCCESS) X(LOC_LEN_ERR) X(LOC_QP_OP_ERR) X(LOC_EEC_OP_ERR) X(LOC_PROT_ERR) X(WR_FLUSH_ERR) X(MW_BIND_ERR) \
	X(BAD_RESP_ERR) X(LOC_ACCESS_ERR) X(REM_INV_REQ_ERR) X(REM_ACCESS_ERR) X(REM_OP_ERR) X(RETRY_EXC_ERR) \
	X(RNR_RETRY_EXC_ERR) X(LOC_RDD_VIOL_ERR) X(REM_INV_RD_REQ_ERR) X(REM_ABORT_ERR) X(INV_EECN_ERR) \
	X(INV_EEC_STATE_ERR) X(FATAL_ERR) X(RESP_TIMEOUT_ERR) X(GENERAL_ERR)

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
