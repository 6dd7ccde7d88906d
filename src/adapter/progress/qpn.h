/* SPDX-License-Identifier: BSD-2-Clause */
/* QP numbers, and the queue pairs of this process that have them. */
#ifndef VB_ADAPTER_QPN_H
#define VB_ADAPTER_QPN_H

#include "adapter/object.h"

/* Gives the QP a number that has rested as long as possible. */
int vb_qpn_take(struct vb_qp *qp);
/* From its return on vb_qpn_find does not find it. */
void vb_qpn_drop(struct vb_qp *qp);
/* vb_progress_lock is held. NULL: not ours, or no such QP. */
struct vb_qp *vb_qpn_find(uint32_t qpn);
/* The same without the lock; returns a reference. A forked child does not find its parent's queue pairs. */
struct vb_qp *vb_qpn_get(uint32_t qpn);
/*
 * Iterates over all: *qp is the next at or behind *cursor (0 at first), with a reference, or NULL if the
 * looked at stretch has none. False: that was all.
 */
bool vb_qpn_next(uint64_t *cursor, struct vb_qp **qp);
/* The order of creation: how many numbers of its slot were handed out before this one. */
uint32_t vb_qpn_place(uint32_t qpn);
/* The offset of its control block in this process's arena. */
uint64_t vb_qpn_block(uint32_t qpn);

#endif
