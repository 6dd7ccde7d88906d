/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What went through shared memory, as the RoCEv2 packets that it stands for, for a capture: a message and its
 * answer are cut as the wire would have them, with the connection's addresses, path MTU and numbers. Nothing
 * here changes what it shows. Callers ask vb_qp_is_shown first.
 */
#ifndef VB_ADAPTER_SHOW_H
#define VB_ADAPTER_SHOW_H

#include "adapter/object.h"
#include "host/ipc/capture.h"

struct vb_shown {
	struct vb_qp *qp;
	const struct vb_sqe *what; /* as the requester posted it */
	uint32_t psn;              /* of its first packet */
	uint32_t msn;              /* messages that the responder has finished, this one included */
	uint64_t original;         /* of an atomic: what it found */
	bool by_requester;         /* this process is the requester, so requests go out and answers come in */
	/*
	 * Copies bytes of the message, or of the answer to a READ; false: they are not to be had, and nothing
	 * more is shown.
	 */
	bool (*fetch)(void *ctx, uint64_t offset, size_t bytes, uint8_t *to);
	void *ctx;
};

static inline bool vb_qp_is_shown(const struct vb_qp *qp)
{
	return vb_unlikely(atomic_load_explicit(&qp->is_shown, memory_order_relaxed));
}

/* PSNs that it takes. */
uint32_t vb_shown_packets(const struct vb_qp *qp, const struct vb_sqe *what);
void vb_show_request(const struct vb_shown *m);
/* Its ACK, or the answers to a READ or an atomic. */
void vb_show_answer(const struct vb_shown *m);
/* The NAK that gives the requester this status. */
void vb_show_nak(const struct vb_shown *m, enum ibv_wc_status status);

#endif
