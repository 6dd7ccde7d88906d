/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Events of queues for a capture (host/inspect.h): posts, completions as they enter their queue, and polls.
 * Callers ask first whether there is a capture: posts by a flag of the queue pair, completions and polls by a
 * bit of the completion queue, which is beside others that they test anyway. Without one these do nothing.
 */
#ifndef VB_ADAPTER_NOTED_H
#define VB_ADAPTER_NOTED_H

#include "adapter/object.h"
#include "host/ipc/capture.h"

static inline bool vb_qp_is_captured(const struct vb_qp *qp)
{
	return vb_unlikely(atomic_load_explicit(&qp->is_captured, memory_order_relaxed));
}

/* A list of requests, and what became of it. */
struct vb_noted_post {
	uint64_t time_ns;     /* 0: now */
	const struct vb_qp *qp;
	const struct vb_srq *srq; /* where receives were posted, if not to qp */
	int err;              /* errno value */
	/* If it is not 0: from which request on all were refused, and the one that is wrong. */
	const void *refused, *wrong;
};

/* sq.lock is held, and the path does not know of the requests yet. */
void vb_note_sends(const struct vb_noted_post *post, const struct ibv_send_wr *wr) __attribute__((cold));
void vb_note_receives(const struct vb_noted_post *post, const struct ibv_recv_wr *wr) __attribute__((cold));
/*
 * The same once they are posted. The moment, which is from before, ends. post: its time and what was refused
 * are filled in here; bad: where the call has put the request that was refused, if there is an error.
 */
void vb_note_posted_receives(struct vb_capture_moment moment, struct vb_noted_post post,
			     const struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) __attribute__((cold));
/* cq->lock is held. */
void vb_note_completion(const struct vb_cq *cq, const struct vb_cqe *e) __attribute__((cold));
/* The program gets the completions from position `first` on, up to head. */
void vb_note_polled(const struct vb_cq *cq, uint32_t first) __attribute__((cold));

#endif
