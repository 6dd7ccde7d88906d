/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the adapter tells the checks (src/check), which look for mistakes of the program: the few things that
 * go wrong and of which only the adapter knows the reason. There is an observer only where VERBATIM_CHECK is
 * set; work that succeeds never calls it.
 */
#ifndef VB_ADAPTER_OBSERVER_H
#define VB_ADAPTER_OBSERVER_H

#include "adapter/object.h"

/* Why a request failed that was nobody's mistake. */
#define VB_PEER_GONE "the peer's process has ended"

struct vb_observer {
	/* The entry completes with an error that is not a flush. sq.lock is held. why: or NULL. */
	void (*send_failed)(struct vb_qp *qp, const struct vb_sqe *sqe, enum ibv_wc_status status,
			    const char *why);
	/* The first completion found no room in the queue. cq->lock is not held, locks of the QP are. */
	void (*cq_overran)(struct vb_cq *cq, const struct vb_qp *qp);
	/*
	 * A message of the peer found no receive. The peer tries again for retry_ns; UINT64_MAX: for ever.
	 * resp_lock is held.
	 */
	void (*starved)(struct vb_qp *qp, uint64_t retry_ns);
	/* Why a queue pair refused a peer: its access flags lack some of these. Good until the next call. */
	const char *(*explain_rights)(const struct vb_qp *qp, unsigned access);
};

/* NULL, or set by a constructor. */
extern const struct vb_observer *vb_observer;

#endif
