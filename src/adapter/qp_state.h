/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The QP state machine as a table: which transitions exist, and for each QP type which attributes a
 * transition needs and which it also takes (InfiniBand specification volume 1, tables of Modify QP attributes
 * by state transition; man ibv_modify_qp).
 */
#ifndef VB_ADAPTER_QP_STATE_H
#define VB_ADAPTER_QP_STATE_H

#include <infiniband/verbs.h>

enum vb_transition { VB_TRANSITION_OK, VB_TRANSITION_NONE, VB_TRANSITION_MISSING, VB_TRANSITION_SURPLUS };

/*
 * mask: enum ibv_qp_attr_mask as the caller gave it (IBV_QP_STATE may be absent: next == cur then). *which
 * gets the offending attribute bits for MISSING and SURPLUS.
 */
enum vb_transition vb_qp_transition(enum ibv_qp_type type, enum ibv_qp_state cur, enum ibv_qp_state next,
				    int mask, int *which);
const char *vb_qp_state_name(enum ibv_qp_state state);
/* The first bit's name, "IBV_QP_PATH_MTU" for example. */
const char *vb_qp_attr_name(int bit);

#endif
