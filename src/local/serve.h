/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What serving a request takes, whoever's queue it is for: this process's (responder.c), or another one's
 * (xrc_remote.c).
 */
#ifndef VB_LOCAL_SERVE_H
#define VB_LOCAL_SERVE_H

#include "adapter/memory/ranges.h"
#include "adapter/execution/refusal.h"
#include "local/reach.h"

/*
 * STEP_UNMAPPED: this process's program has taken away the memory where bytes were to go, or come from.
 * STEP_REMOTE: the request is for another process's queue, and nobody waits for that process in a busy
 * section.
 */
enum step { STEP_IDLE, STEP_WAIT, STEP_MORE, STEP_DONE, STEP_FAIL, STEP_UNMAPPED, STEP_REMOTE };

/* What a failed request means for both ends. */
struct failure {
	enum ibv_wc_status nak;		  /* for the requester; SUCCESS: what it asked for is done */
	const struct vb_refusal *refusal; /* what it means for this QP, which breaks; NULL: nothing */
	const char *why;
};

/* err: what a step of the execution has returned (adapter/execution/execute.h). Fills it in. STEP_FAIL. */
enum step vb_serve_refuse(struct failure *f, int err, const char *why);
/* The same of a SEND whose data are there, but not what it asks for beside. */
enum step vb_serve_refuse_invalidation(struct failure *f, const char *why);
/* The message that completes a receive. */
struct vb_received vb_serve_received(const struct vb_local_qp *l);
/* An ATOMIC_CMP_AND_SWP or ATOMIC_FETCH_AND_ADD, and what it has found, for the requester. */
struct vb_atomic vb_serve_atomic(const struct vb_local_qp *l);
void vb_serve_found(struct vb_local_qp *l, uint64_t found);

/* Does the peer's requester send to this QP's epoch? It is so before its first entry. */
static inline bool vb_serve_is_bound(const struct vb_local_qp *l)
{
	return atomic_load(&vb_theirs_of(l)->bound_epoch) == l->epoch;
}

/* Inside a busy section: is the requester there, and the one whom we serve? */
bool vb_serve_may(struct vb_local_qp *l);

/* The requester that was served is not served again. resp_lock is held. */
void vb_serve_end(struct vb_local_qp *l);

/* Is the epoch that is served still the requester's? */
static inline bool vb_serve_goes_on(const struct vb_local_qp *l)
{
	uint32_t mode = atomic_load_explicit(&vb_theirs_of(l)->mode, memory_order_acquire);
	return (mode & VB_SHM_REQUESTS) && vb_mode_epoch(mode) == l->resp.their_epoch;
}

/*
 * How many bytes to move in this step; 0: none can be now; UINT64_MAX: the peer's byte stream is malformed.
 */
uint64_t vb_serve_slice(struct vb_local_qp *l);
/* Brings the requester's next bytes to `ours`. In a busy section. */
enum step vb_serve_pull(struct vb_local_qp *l, const struct vb_ranges *ours, struct failure *f);
/* Brings the requester the next bytes of its READ. In a busy section. */
enum step vb_serve_push(struct vb_local_qp *l, const struct vb_ranges *ours, struct failure *f);
/* After a slice. */
enum step vb_serve_moved(struct vb_local_qp *l, uint64_t bytes);
/* Is the request a WRITE that needs a receive before its key counts? On a wire it would be one packet. */
bool vb_serve_takes_receive_first(const struct vb_local_qp *l);
enum step vb_serve_not_ready(struct vb_local_qp *l, struct failure *f);
enum step vb_serve_have_receive(struct vb_local_qp *l);
void vb_serve_rnr_fired(struct vb_timer *timer, uint64_t now_ns);

/*
 * Goes on with the request that is worked on, which is for a queue of another process
 * (adapter/xrc/xrc_remote.h). Not in a busy section.
 */
enum step vb_xrc_remote_serve(struct vb_local_qp *l, struct failure *f);
/* The receive that was taken there is complete. */
void vb_xrc_remote_finish(struct vb_local_qp *l);
void vb_xrc_remote_look_again(struct vb_timer *timer, uint64_t now_ns);

#endif
