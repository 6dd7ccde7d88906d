/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A reliable connection over the wire: the two engines of proto/rc/rc_*.h with queues, memory, packets and
 * time around them. Its requester is in rc_requests.c, its responder in rc_answers.c; rc.c has what arrives
 * for it, and the path.
 *
 *	sq entries -> requester engine -> packets     (sq.lock)
 *	ACKs, answers -> requester engine -> completions
 *	requests -> responder engine -> memory, receives; ACKs and answers at the end of the batch   (resp_lock)
 *
 * Sending is a system call, and the thread that it wakes may get this processor before it returns. No thread
 * may wait for a lock meanwhile, so bursts go out with neither lock held. One thread at a time sends a
 * connection's requests, and one its answers, which keeps them in order; others leave what they have to that
 * one.
 */
#ifndef VB_ROCE_RC_H
#define VB_ROCE_RC_H

#include "adapter/execution/execute.h"
#include "adapter/progress/path.h"
#include "adapter/progress/progress.h"
#include "proto/rc/cnp.h"
#include "proto/rc/rc_requester.h"
#include "proto/rc/rc_responder.h"
#include "roce/qp_route.h"

enum { VB_RC_SLICE_PACKETS = 256 /* sent in one go, so that no lock is held for long */ };

struct vb_rc_connection {
	struct vb_qp *qp;
	struct vb_roce_route route;        /* changes under both locks */
	struct vb_rc_req requester;
	struct vb_rc_entry *entries;
	bool requests;                     /* the requester has begun; under sq.lock */
	/* a thread sends requests; it is to look for more when it has. Under sq.lock */
	bool is_sending, sends_more;
	bool is_answering, answers_more;   /* the same of answers; under resp_lock */
	bool answers_ack_alone;            /* what is being sent is an ACK and nothing else */
	bool has_refused;                  /* and said so; under resp_lock */
	struct vb_timer timer;
	uint64_t timer_at;                 /* what it is set to at the latest; under sq.lock */
	struct vb_rc_resp responder;
	struct vb_execution execution;
	struct vb_cnp cnp;                 /* under resp_lock */
	bool cnp_due;
	/*
	 * Does the program answer what it gets with a message of its own? Hints, written under one of the
	 * locks.
	 */
	/* when the last batch with requests was done; 0: a post has followed it */
	_Atomic uint64_t arrived_at;
	atomic_uint answered;              /* posts that followed soon, in a row */
	/* an ACK is due, or may become so, or is about to be sent; written under resp_lock */
	atomic_bool owes_ack;
};

static inline struct vb_rc_connection *vb_rc_of(const struct vb_qp *qp) { return qp->path_state; }

/* Where its packets go. */
static inline struct vb_packet_to vb_rc_peer_of(const struct vb_qp *qp)
{
	return (struct vb_packet_to){ .qpn = qp->attr.dest_qp_num, .pkey = VB_PKEY_DEFAULT,
				       .service = qp->type == IBV_QPT_RC ? VB_SERVICE_RC : VB_SERVICE_XRC };
}

static inline bool vb_rc_has_channel(const struct vb_cq *cq) { return cq && cq->channel; }

/*
 * May a thread wait for completion events of the queue pair? Programs that do rely on an order that adapters
 * give, which acknowledge at once: a SEND completes before the answer to it arrives. Both ends are taken to
 * be of a kind.
 */
static inline bool vb_rc_may_wait_for_events(const struct vb_rc_connection *c)
{
	return (vb_rc_has_channel(c->qp->send_cq) || vb_rc_has_channel(c->qp->recv_cq)) &&
	       !vb_progress_is_polled();
}

/* ---- the requester (rc_requests.c): sq.lock is held ---- */

/* It exists from RTS on, when the first PSN is known. */
void vb_rc_begin_requests(struct vb_rc_connection *c);

static inline bool vb_rc_is_running(const struct vb_qp *qp)
{
	enum ibv_qp_state state = atomic_load(&qp->state);
	return state == IBV_QPS_RTS || state == IBV_QPS_SQD;
}

/* Reports what has been answered. */
void vb_rc_complete(struct vb_rc_connection *c);
/* Hands over what was posted, sends what may be sent, and completes. Releases sq.lock while it sends. */
void vb_rc_go_on(struct vb_rc_connection *c, uint64_t now);
/* The path's: the program has posted. */
void vb_rc_send_posted(struct vb_qp *qp);
/* Of vb_rc_connection.timer; no lock is held. */
void vb_rc_timer_fired(struct vb_timer *timer, uint64_t now_ns);

/* ---- the responder (rc_answers.c): resp_lock is held ---- */

/* In the error state there is only a NAK to repeat. */
static inline bool vb_rc_may_respond(const struct vb_rc_connection *c)
{
	return vb_qp_listens(c->qp) || (c->responder.broken && atomic_load(&c->qp->state) == IBV_QPS_ERR);
}

static inline void vb_rc_note_owed_ack(struct vb_rc_connection *c)
{
	atomic_store_explicit(&c->owes_ack, c->responder.ack_due || c->is_answering, memory_order_relaxed);
}

/*
 * Sends answers and ACKs that are due, without the lock. If the responder has refused a request, the queue
 * pair ends. Releases resp_lock.
 */
void vb_rc_respond_and_unlock(struct vb_rc_connection *c);
/* The queue pair leaves RTR and RTS. Both locks are held all the time. */
void vb_rc_repeat_last_ack(struct vb_rc_connection *c);
/*
 * The receive that is taken, if one is: what it failed with counts, though the queue pair may be stopped
 * before that is reported.
 */
void vb_rc_end_receive(struct vb_rc_connection *c);

#endif
