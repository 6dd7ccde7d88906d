/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the adapter tells to whoever watches the program for mistakes (src/check), at the few places where
 * something goes wrong that only it knows the reason of. Nobody does unless VERBATIM_CHECK is set, and none
 * of this is on the way of work that succeeds.
 */
#ifndef VB_ADAPTER_WATCHER_H
#define VB_ADAPTER_WATCHER_H

#include "adapter/memory/key.h"
#include "adapter/object.h"

/* Why a request failed that was nobody's mistake. */
#define VB_PEER_GONE "the peer's process has ended"

struct vb_watcher {
	/* The entry completes with an error that is not a flush. sq.lock is held. why: or NULL. */
	void (*send_failed)(struct vb_qp *qp, const struct vb_sqe *sqe, enum ibv_wc_status status,
			    const char *why);
	/* The first completion found no room in the queue. cq->lock is not held, locks of the QP are. */
	void (*cq_overran)(struct vb_cq *cq, const struct vb_qp *qp);
	/*
	 * A message of the peer found no receive. For how long it is asked again: retry_ns; UINT64_MAX: for
	 * ever. resp_lock is held.
	 */
	void (*starved)(struct vb_qp *qp, uint64_t retry_ns);
	/* Why an access through a key of this process was refused; good until the thread's next call. */
	const char *(*key_story)(enum vb_key_fault fault, uint32_t key, uint64_t addr, uint64_t length,
				 unsigned access, uint32_t pd);
	/* The same of a queue pair whose access flags lack some of these. */
	const char *(*rights_story)(const struct vb_qp *qp, unsigned access);
};

/* NULL: nobody watches. Set by a constructor. */
extern const struct vb_watcher *vb_watcher;

/*
 * The fault's sentence (vb_key_fault_text), or more than that if somebody watches. Of keys of this process.
 */
const char *vb_key_story(enum vb_key_fault fault, uint32_t key, uint64_t addr, uint64_t length,
			 unsigned access, uint32_t pd);
/* Why the queue pair's own access flags refuse a peer. */
const char *vb_rights_story(const struct vb_qp *qp, unsigned access);

#endif
