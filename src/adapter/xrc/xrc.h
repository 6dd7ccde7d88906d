/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Extended reliable connections (IB vol. 1, annex A14). A domain ties receiving queue pairs, which have no
 * queue of their own, to shared receive queues, which have a number of 24 bits and a CQ. Each request names
 * the queue that it is for; the queue's protection domain counts for it.
 *
 * A receiving queue pair's srq is the queue of the request that it works on: chosen by vb_xrc_select, held
 * until the request's completion (vb_receive_complete) or vb_srq_release. resp_lock covers all three. The
 * queue can be destroyed as soon as the completion can be polled.
 */
#ifndef VB_ADAPTER_XRC_H
#define VB_ADAPTER_XRC_H

#include "adapter/object.h"

/* A handle on a domain. Handles with one number share it. */
struct vb_xrcd {
	struct vb_context *ctx;
	uint32_t number; /* never 0 */
	atomic_uint refs; /* queues and queue pairs made with this handle */
	/* of a file's domain: how other processes have it (xrc_protocol.h); else NULL */
	struct vb_xrc_server *share;
};

/* An SRQ of the domain srq->xrcd gets a number, by which requests find it. -ENOMEM: none is left. */
int vb_xrc_number_take(struct vb_srq *srq);
/* It cannot be shared after all. */
void vb_xrc_number_drop(const struct vb_srq *srq);
/*
 * False: a request is being worked on for it. Otherwise nobody finds it any more, and its completions are
 * forgotten.
 */
bool vb_xrc_srq_leave(struct vb_srq *srq);

/*
 * Turns a receiving queue pair to the queue that a request names; false: its domain has none of this number.
 */
bool vb_xrc_select(struct vb_qp *qp, uint32_t srqn);
/* The protection domain of a queue of qp's domain; 0: there is no such queue. */
uint32_t vb_xrc_pd(const struct vb_qp *qp, uint32_t srqn);
/* A receiving queue pair goes: no CQ looks at it first any more. */
void vb_xrc_forget(struct vb_qp *qp);

#endif
