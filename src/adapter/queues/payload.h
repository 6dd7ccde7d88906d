/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requester's memory: payload is gathered from a request's list when it is sent, and answers are placed
 * where the list says.
 */
#ifndef VB_ADAPTER_PAYLOAD_H
#define VB_ADAPTER_PAYLOAD_H

#include "adapter/memory/key.h"
#include "adapter/queues/queue.h"

/*
 * Notes in a request, and explains, that an entry of its list cannot be used so. sq.lock is held, as below.
 */
void vb_payload_fail(struct vb_sqe *sqe, enum vb_key_fault fault, unsigned bad);
/* The same when the memory of some entry could not be touched. */
void vb_payload_fail_unmapped(const struct vb_qp *qp, struct vb_sqe *sqe);
/*
 * May all that a SEND or WRITE carries be read? If not, vb_payload_fail has noted it. Asked before the peer
 * sees a part of it, as local errors come first. True for requests that carry nothing.
 */
bool vb_payload_is_readable(const struct vb_qp *qp, struct vb_sqe *sqe);
/*
 * Payload [offset, offset + bytes) of a request that was posted, or places such of its answer. False: not
 * accessible, which vb_payload_fail has noted.
 */
bool vb_payload_gather(struct vb_qp *qp, struct vb_sqe *sqe, uint64_t offset, void *to, size_t bytes);
bool vb_payload_place(struct vb_qp *qp, struct vb_sqe *sqe, uint64_t offset, const void *from, size_t bytes);

#endif
