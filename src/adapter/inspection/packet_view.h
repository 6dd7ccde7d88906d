/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Captures of shared memory: a message and its answer as the RoCEv2 packets that the wire would carry, with
 * the connection's addresses, path MTU and PSNs. Callers ask vb_qp_is_captured first.
 */
#ifndef VB_ADAPTER_PACKET_VIEW_H
#define VB_ADAPTER_PACKET_VIEW_H

#include "adapter/object.h"
#include "adapter/queues/noted.h"
#include "host/ipc/capture.h"

struct vb_captured {
	struct vb_qp *qp;
	const struct vb_sqe *what; /* as the requester posted it */
	uint32_t srqn;             /* of XRC: the queue that it is for */
	uint32_t psn;              /* of its first packet */
	uint32_t msn;              /* messages that the responder has finished, this one included */
	uint64_t original;         /* of an atomic: what it found */
	pid_t peer_pid;            /* at the other end of the connection; 0: unknown */
	bool by_requester;         /* this process is the requester, so requests go out and answers come in */
	/*
	 * Copies bytes of the message, or of the answer to a READ; false: they are not to be had, and nothing
	 * more is shown.
	 */
	bool (*fetch)(void *ctx, uint64_t offset, size_t bytes, uint8_t *to);
	void *ctx;
};

/* PSNs that it takes. */
uint32_t vb_captured_packets(const struct vb_qp *qp, const struct vb_sqe *what);
void vb_capture_request(const struct vb_captured *m);
/* Its ACK, or the answers to a READ or an atomic. */
void vb_capture_answer(const struct vb_captured *m);
/*
 * The NAK that gives the requester this status. There is none if its own memory is at fault: on a wire the
 * request would not have left.
 */
void vb_capture_nak(const struct vb_captured *m, enum ibv_wc_status status);

#endif
