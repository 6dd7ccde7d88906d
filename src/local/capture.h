/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Local traffic for a capture (adapter/inspection/packet_view.h). There are no PSNs in shared memory, so each
 * half counts those that its messages would take while it is captured: the requester from its sq_psn on, and,
 * since it executes much that the responder never sees, it publishes the PSN of the first message
 * of each run through the ring (vb_shm_qp.captured). What was under way when the capture began has no number,
 * and its answer is not shown.
 *
 * All of this costs one branch per message while nobody captures, on a flag beside others that the path
 * reads.
 */
#ifndef VB_LOCAL_CAPTURE_H
#define VB_LOCAL_CAPTURE_H

#include "adapter/inspection/packet_view.h"
#include "local/qp.h"

/* sq.lock is held. */
void vb_capture_published(struct vb_local_qp *l, const struct vb_sqe *sqe) __attribute__((cold));
void vb_capture_acknowledged(struct vb_local_qp *l, const struct vb_sqe *sqe, enum ibv_wc_status status)
	__attribute__((cold));
void vb_capture_executed_here(struct vb_local_qp *l, const struct vb_sqe *sqe) __attribute__((cold));
/* resp_lock is held; the request's memory is still allowed. */
void vb_capture_served(struct vb_local_qp *l, enum ibv_wc_status status) __attribute__((cold));

/* As vb_show_passed. */
void vb_capture_passed(struct vb_local_qp *l, uint64_t n) __attribute__((cold));

/* An entry goes through the ring: after its place is counted, before the peer can see it. */
static inline void vb_show_published(struct vb_local_qp *l, const struct vb_sqe *sqe)
{
	if (vb_qp_is_captured(l->qp))
		vb_capture_published(l, sqe);
}

/*
 * The oldest entry in the ring is answered: with SUCCESS, before it is counted as such, or with what the
 * responder refused it for.
 */
static inline void vb_show_acknowledged(struct vb_local_qp *l, const struct vb_sqe *sqe,
					enum ibv_wc_status status)
{
	if (vb_qp_is_captured(l->qp))
		vb_capture_acknowledged(l, sqe, status);
}

/* This side has done all of it. */
static inline void vb_show_executed_here(struct vb_local_qp *l, const struct vb_sqe *sqe)
{
	if (vb_qp_is_captured(l->qp))
		vb_capture_executed_here(l, sqe);
}

/* The current request has been executed, or refused with this status; the peer does not know yet. */
static inline void vb_show_served(struct vb_local_qp *l, enum ibv_wc_status status)
{
	if (vb_qp_is_captured(l->qp))
		vb_capture_served(l, status);
}

/*
 * The next n bytes of the current request, which is for a queue of another process, have gone through the
 * piece. resp_lock is held.
 */
static inline void vb_show_passed(struct vb_local_qp *l, uint64_t n)
{
	if (vb_qp_is_captured(l->qp))
		vb_capture_passed(l, n);
}

#endif
