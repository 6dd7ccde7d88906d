/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of enumerators for the sentences that explain errors. */
#ifndef VB_ADAPTER_STATUS_H
#define VB_ADAPTER_STATUS_H

#include <infiniband/verbs.h>

/* "IBV_WC_REM_ACCESS_ERR"; never NULL. */
const char *vb_wc_status_name(enum ibv_wc_status status);

#endif
