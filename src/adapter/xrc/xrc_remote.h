/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests for shared receive queues of other processes (xrc_protocol.h), on behalf of a receiving queue pair
 * of this one.
 *
 * Each call waits for the other process's answer, some seconds at most, so it must not be made in a busy
 * section or under any lock but resp_lock, which covers the queue pair's connections.
 *
 * Results are those of vb_responder_ops; a process that is gone or does not answer: -EINVAL before the
 * request has begun there (there is no such queue), then -EIO.
 */
#ifndef VB_ADAPTER_XRC_REMOTE_H
#define VB_ADAPTER_XRC_REMOTE_H

#include "adapter/xrc/xrc_protocol.h"
#include "proto/rc/message.h"

/* Turns to the queue, until the next call. */
int vb_xrc_remote_select(struct vb_qp *qp, uint32_t srqn);
int vb_xrc_remote_take(struct vb_qp *qp);
/*
 * *status: what a refusal makes of the receive. At most VB_XRC_DATA_BYTES, as in vb_xrc_remote_write and
 * vb_xrc_remote_read.
 */
int vb_xrc_remote_place(struct vb_qp *qp, uint64_t offset, const void *bytes, size_t n,
			enum ibv_wc_status *status);
void vb_xrc_remote_done(struct vb_qp *qp, const struct vb_received *received);
void vb_xrc_remote_end(struct vb_qp *qp, enum ibv_wc_status status);
int vb_xrc_remote_check(struct vb_qp *qp, uint32_t rkey, uint64_t address, uint64_t length,
			enum vb_access access);
int vb_xrc_remote_write(struct vb_qp *qp, uint32_t rkey, uint64_t address, const void *bytes, size_t n);
int vb_xrc_remote_read(struct vb_qp *qp, uint32_t rkey, uint64_t address, void *bytes, size_t n);
int vb_xrc_remote_atomic(struct vb_qp *qp, const struct vb_atomic *atomic, uint64_t *original);
int vb_xrc_remote_invalidate(struct vb_qp *qp, uint32_t rkey);
/* The queue pair has no connection any more. resp_lock is held. */
void vb_xrc_remote_forget(struct vb_qp *qp);

/* ---- further handles on queue pairs of other processes ---- */

/* *fd is the handle. -EINVAL: there is no such queue pair. */
int vb_xrc_remote_open_qp(const struct vb_xrcd *xrcd, uint32_t qpn, int *fd);
void vb_xrc_remote_close_qp(int fd);
/* -EIO: its process has gone. One at a time. */
int vb_xrc_remote_query_qp(int fd, struct ibv_qp_attr *attr);
int vb_xrc_remote_modify_qp(int fd, const struct ibv_qp_attr *attr, int mask);

#endif
