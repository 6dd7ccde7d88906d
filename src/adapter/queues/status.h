/* SPDX-License-Identifier: BSD-2-Clause */
/* What the sentences that explain errors say of completion statuses. */
#ifndef VB_ADAPTER_STATUS_H
#define VB_ADAPTER_STATUS_H

#include <infiniband/verbs.h>

/* "IBV_WC_REM_ACCESS_ERR"; never NULL. */
const char *vb_wc_status_name(enum ibv_wc_status status);
/*
 * Why a request of a connected queue pair completes so, as far as its requester can know it; NULL: others say
 * more of it.
 */
const char *vb_wc_status_text(enum ibv_wc_status status);

#endif
