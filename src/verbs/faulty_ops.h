/* SPDX-License-Identifier: BSD-2-Clause */
/* Faults on purpose in the tables of a context. Only with vb_faults_on. */
#ifndef VB_VERBS_FAULTY_OPS_H
#define VB_VERBS_FAULTY_OPS_H

#include "verbs/verbs.h"

/* Puts wrappers before what the tables hold. */
void vb_fault_wrap(struct verbs_context *ext);

/* It is reset or destroyed: receives that are kept for it are none any more. */
void vb_fault_forget_qp(struct ibv_qp *qp);
void vb_fault_forget_srq(struct ibv_srq *srq);

#endif
