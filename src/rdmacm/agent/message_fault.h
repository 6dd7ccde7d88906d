/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Faults on purpose in the messages of the connection manager (adapter/fault_injection.h), whichever way they
 * go. Only with vb_faults_on.
 */
#ifndef VB_RDMACM_MESSAGE_FAULT_H
#define VB_RDMACM_MESSAGE_FAULT_H

#include "adapter/fault_injection.h"
#include "proto/cm/cm.h"

struct vb_cma_fate {
	bool is_lost;
	unsigned refusal; /* of a request: enum vb_cm_rej_reason; 0: it is not refused */
};

struct vb_cma_fate vb_cma_fate_of(enum vb_fault_direction direction, const struct vb_cm_msg *msg,
				  const struct in6_addr *peer);

#endif
