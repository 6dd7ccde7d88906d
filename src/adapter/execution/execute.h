/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a responder does with a request, step by step. Each way by which requests come drives these steps:
 *
 *	local/responder.c	the ring of a peer on this host
 *	execute_ops.c		packets, by the engines of proto/rc
 *	xrc_server.c		another process, for a shared receive queue of this one
 *
 * All that a peer asks for in this process's memory goes through vb_execution_translate.
 *
 * A step returns 0, or the negative errno of a refusal (proto/rc/message.h). Then `why` is a sentence for the
 * log. If the receive that was taken is at fault, receive_status says why. resp_lock is held. Steps that
 * access memory run in a busy section (local/qp.h) or under vb_memory_hold.
 */
#ifndef VB_ADAPTER_EXECUTE_H
#define VB_ADAPTER_EXECUTE_H

#include "adapter/memory/key.h"
#include "adapter/memory/ranges.h"
#include "adapter/queues/queue.h"
#include "proto/rc/message.h"

struct vb_execution {
	struct vb_qp *qp;
	bool have_rwqe;
	enum ibv_wc_status receive_status; /* SUCCESS, or what is wrong with the receive that was taken */
	const char *why;		   /* the last refusal's sentence; NULL: none */
	uint32_t remote_srqn;		   /* the last queue of another process that was selected */
	struct vb_rwqe rwqe;		   /* the last: it may be cut short behind its list */
};

/* Is the shared receive queue that was selected another process's? */
static inline bool vb_execution_is_remote(const struct vb_execution *x)
{
	return vb_unlikely(x->qp->xrcd != NULL) && !x->qp->srq;
}

static inline int vb_execution_refuse(struct vb_execution *x, int err, const char *why)
{
	x->why = why;
	return err;
}

/* Explains the last refusal: by x->why, or by `otherwise` if the step did not say it. */
void vb_execution_explain(const struct vb_execution *x, const char *otherwise);

/* ---- the receive ---- */

/* Takes the next receive. False: none is posted. */
bool vb_execution_take(struct vb_execution *x);
/* The same for a message to a queue that matches tags; `head` is its beginning, whole: all of it. */
bool vb_execution_take_tagged(struct vb_execution *x, const void *head, size_t bytes, bool whole);
/* Is the receive long enough for a message of this many bytes? */
int vb_execution_fits(struct vb_execution *x, uint64_t bytes) VB_MUST_USE;
/* Bytes [offset, offset + bytes) of the receive. */
int vb_execution_receive_ranges(struct vb_execution *x, uint64_t offset, uint64_t bytes,
				struct vb_ranges *out) VB_MUST_USE;
/* A copy there failed: the program has unmapped its memory. */
int vb_execution_receive_is_unmapped(struct vb_execution *x) VB_MUST_USE;
/* Completes the receive by a message. */
void vb_execution_complete(struct vb_execution *x, const struct vb_received *received);
/* Completes the receive that is taken, if one is, without a message. */
void vb_execution_end_receive(struct vb_execution *x, enum ibv_wc_status status);

/* ---- the memory that a request names ---- */

/* What a request asks for with one of the remote rights (enum ibv_access_flags). */
static inline struct vb_key_use vb_execution_use(const struct vb_execution *x, uint32_t rkey, uint64_t addr,
						 uint64_t length, unsigned right)
{
	return (struct vb_key_use){ .key = rkey, .pd = vb_qp_domain(x->qp), .qpn = x->qp->qpn,
				    .access = right, .addr = addr, .length = length };
}
/* Does the queue pair allow such accesses (an enum ibv_access_flags)? */
int vb_execution_check_right(struct vb_execution *x, unsigned right) VB_MUST_USE;
/*
 * The one check: the rights of the queue pair, then key, domain, rights and bounds of the region. *va: where
 * the range is in this process. use->length 0: no key counts, and *va stays as it is.
 */
int vb_execution_translate(struct vb_execution *x, const struct vb_key_use *use, uint64_t *va) VB_MUST_USE;
/* Of a translated range, or a part of it. */
void vb_execution_target_ranges(struct vb_ranges *out, uint32_t rkey, uint64_t va, uint64_t bytes);
/* A copy there failed: the region's program has unmapped its memory. */
int vb_execution_target_is_unmapped(struct vb_execution *x, const struct vb_key_use *use) VB_MUST_USE;

/* ---- whole operations ---- */

int vb_execution_atomic(struct vb_execution *x, const struct vb_atomic *atomic,
			uint64_t *original) VB_MUST_USE;
/* placement, level: enum ibv_placement_type, enum ibv_selectivity_level; anything is allowed. */
int vb_execution_flush(struct vb_execution *x, uint32_t rkey, uint64_t addr, uint64_t length,
		       unsigned placement, unsigned level) VB_MUST_USE;
/* The peer's earlier accesses through the window are over: they came before on this connection. */
int vb_execution_invalidate(struct vb_execution *x, uint32_t rkey) VB_MUST_USE;

/* ---- for the engines of proto/rc ---- */

/* ctx is the struct vb_execution. These hold the memory themselves. */
extern const struct vb_responder_ops vb_execution_ops;

/* What follows is for this shared receive queue of this process. -ENOENT: there is none. */
int vb_execution_select_here(struct vb_execution *x, uint32_t srqn) VB_MUST_USE;

/* Copies what a READ response carries; false: it may not be read any more. Holds the memory itself. */
bool vb_execution_read(struct vb_execution *x, uint32_t srqn, uint32_t rkey, uint64_t address, void *to,
		       size_t bytes);
/* After each packet: lets an XRC queue go unless a message for it is under way. */
void vb_execution_release_queue(struct vb_execution *x);

#endif
