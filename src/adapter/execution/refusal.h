/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a responder's refusals mean (IB vol. 1, 9.9.3), whichever path the request came by. Its queue pair
 * goes to the error state with each of them. Not in the table:
 *
 *	class B  no receive, a packet out of order: the requester tries again, and the responder goes on
 *	class D  a duplicate that is not known, a packet of another connection: dropped in silence
 *	class E  a message of UC that was dropped has taken a receive of a shared queue: this receive
 *	         completes in error, and the responder goes on
 *	class J  a key that cannot be invalidated: the receive completes as by an invalid request; for the requester
 *	         the message is done
 *
 * A receive that is itself at fault (too short, memory that cannot be written) completes with what is wrong
 * with it.
 */
#ifndef VB_ADAPTER_REFUSAL_H
#define VB_ADAPTER_REFUSAL_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include "wire/syndrome.h"

/*
 * X(class, NAK, the requester's completion, that of the receive if the request has used one, else the event)
 * Class A: the responder's own queues are at fault; C: the request is.
 */
#define VB_REFUSALS(X)                                                                                       \
	X(C, INVALID_REQUEST, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR)          \
	X(C, REMOTE_ACCESS, IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR)           \
	X(A, REMOTE_OPERATIONAL, IBV_WC_REM_OP_ERR, IBV_WC_LOC_QP_OP_ERR, -1)

struct vb_refusal {
	enum ibv_wc_status requester, receive;
	int event; /* -1: none */
};

/* Does a requester get this status by a NAK that ends the connection? */
static inline bool vb_is_nak(enum ibv_wc_status status)
{
	return status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ACCESS_ERR ||
	       status == IBV_WC_REM_OP_ERR;
}

/* NULL: that is no refusal. */
static inline const struct vb_refusal *vb_refusal_of(enum vb_nak_code nak)
{
	static const struct vb_refusal refusals[] = {
#define X(class, nak, requester, receive, event) [VB_NAK_##nak] = { requester, receive, event },
		VB_REFUSALS(X)
#undef X
	};
	return nak < sizeof(refusals) / sizeof(*refusals) && refusals[nak].requester ? &refusals[nak] : NULL;
}

#endif
