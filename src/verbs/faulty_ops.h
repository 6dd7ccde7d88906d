/* SPDX-License-Identifier: BSD-2-Clause */
/* Faults on purpose in the tables of a context. Only with vb_faults_on. */
#ifndef VB_VERBS_FAULTY_OPS_H
#define VB_VERBS_FAULTY_OPS_H

#include "verbs/verbs.h"

/* Puts wrappers around the functions in the tables. */
void vb_fault_wrap(struct verbs_context *ext);

/* The queue is reset or destroyed: forgets receives that are withheld from it. */
void vb_fault_forget_qp(struct ibv_qp *qp);
void vb_fault_forget_srq(struct ibv_srq *srq);

#endif
