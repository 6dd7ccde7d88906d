/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the engines do in memory. Of the responder: receives are taken, requests of the peer checked and
 * carried out, all through vb_key_check. Of the requester: payload is gathered when a packet is sent, answers
 * are placed where the request wants them.
 */
#ifndef VB_ADAPTER_EXECUTE_H
#define VB_ADAPTER_EXECUTE_H

#include "adapter/memory/key.h"
#include "adapter/queues/queue.h"
#include "proto/rc/message.h"

/* The responder's half, under resp_lock. */
struct vb_execution {
	struct vb_qp *qp;
	bool have_rwqe;
	struct vb_rwqe rwqe;
	enum ibv_wc_status receive_status; /* SUCCESS, or what is wrong with the receive that was taken */
	const char *why;                   /* the last refusal's sentence; NULL: none */
	uint32_t away_srqn;                /* the queue of another process that was selected last */
};

/*
 * ctx is the struct vb_execution. The second one is for an XRC queue pair of a domain that processes share.
 */
extern const struct vb_responder_ops vb_execution_ops, vb_shared_execution_ops;

/* Copies what a READ response carries; false: it may not be read any more. */
bool vb_execution_read(struct vb_execution *execution, uint32_t srqn, uint32_t rkey, uint64_t address,
		       void *to, size_t bytes);
/* After each packet: an XRC queue that no message is under way for is let go. */
void vb_execution_settle(struct vb_execution *execution);
/* Completes the receive that is taken, if one is. */
void vb_execution_end_receive(struct vb_execution *execution, enum ibv_wc_status status);

/*
 * Notes in a request, and explains, that an entry of its list cannot be used so. sq.lock is held, as below.
 */
void vb_payload_fail(struct vb_sqe *sqe, enum vb_key_fault fault, unsigned bad);
/*
 * May all that a SEND or WRITE carries be read? vb_payload_fail has noted it if not. Asked before a peer sees
 * a part of it, or is waited for: what is wrong here comes before all that can be wrong there. True of
 * requests that carry nothing.
 */
bool vb_payload_is_readable(const struct vb_qp *qp, struct vb_sqe *sqe);
/*
 * Payload [offset, offset + bytes) of a request that was posted, or places such of its answer. False: not
 * accessible, which vb_payload_fail has noted.
 */
bool vb_payload_gather(struct vb_qp *qp, struct vb_sqe *sqe, uint64_t offset, void *to, size_t bytes);
bool vb_payload_place(struct vb_qp *qp, struct vb_sqe *sqe, uint64_t offset, const void *from, size_t bytes);

#endif
