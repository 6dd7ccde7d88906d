/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared receive queues that match tags (ibv_create_srq_ex with IBV_SRQT_TM). Next to its receives such a
 * queue has a list of tagged buffers (proto/tag_list.h). The headers at the beginning of a message
 * (wire/tag.h) decide where it goes:
 *
 *	eager, a tag matches         the tag's buffer, without the header            TM_RECV, TM_MATCH | TM_DATA_VALID
 *	rendezvous, a tag matches    the adapter reads the data into the buffer      TM_RECV, TM_MATCH; later TM_RECV, TM_DATA_VALID;
 *	                             and sends FIN                                   the sender receives FIN
 *	either, no tag matches       the next receive, with all headers              TM_RECV, and the program handles it
 *	anything else                the next receive                                TM_NO_TAG
 *
 * A rendezvous request whose headers make no sense is unexpected. One that this queue pair may not read for
 * (max_rd_atomic 0) goes into the tag's buffer as it is, with IBV_WC_TM_RNDV_INCOMPLETE. A message, or the
 * data of a rendezvous, that is longer than the tag's buffer is a local length error, and the connection
 * ends.
 *
 * A rendezvous is two entries in the queue pair's send queue, a READ and a fenced SEND. They have places of
 * their own beside the program's. The tag's entry keeps its buffer until the READ is done.
 *
 * Locks: srq->rq.lock for the list, the buffers and rendezvous that wait; resp_lock for the message that is
 * being received; sq.lock for what was posted.
 */
#ifndef VB_ADAPTER_TAGS_H
#define VB_ADAPTER_TAGS_H

#include "adapter/queues/queue.h"
#include "wire/tag.h"

enum {
	VB_MAX_TAGS = 4096,
	VB_MAX_TAG_OPS = 4096,    /* whose completions have not been polled */
	VB_RENDEZVOUS_AT_ONCE = 8, /* of a queue pair */
	VB_OWN_SENDS = 2 * VB_RENDEZVOUS_AT_ONCE,
};

/*
 * Makes a queue that was initialised one that matches tags, with all completions in cq. -EINVAL (cap),
 * -ENOMEM.
 */
int vb_tags_init(struct vb_srq *srq, struct vb_cq *cq, const struct ibv_tm_cap *cap);
/* Nothing uses the queue any more. */
void vb_tags_fini(struct vb_srq *srq);
/* As ibv_post_srq_ops: 0 or a positive errno, *bad the first operation not taken. */
int vb_tags_post(struct vb_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad);

/* ---- a queue pair on such a queue; qp->tags ---- */

int vb_tag_receiver_init(struct vb_qp *qp);
void vb_tag_receiver_fini(struct vb_qp *qp);

/* Room for the beginning of a message that a responder receives, if that is not in one piece. */
uint8_t *vb_tag_receiver_head(struct vb_qp *qp);

/*
 * Instead of vb_receive_take, for a SEND: where it goes. head: its first bytes, all of it or
 * VB_RENDEZVOUS_MAX_BYTES at least; whole: there are no more. False: nowhere yet, and the QP is noted as
 * starved. resp_lock is held, as for all up to vb_tags_complete.
 */
bool vb_tags_take(struct vb_qp *qp, const void *head, size_t bytes, bool whole, struct vb_rwqe *out);
/*
 * How many bytes at the beginning of the message do not go into the receive; UINT64_MAX: none do, it was a
 * rendezvous request.
 */
uint64_t vb_tags_skip(const struct vb_qp *qp);
/* Makes a receive's completion what it is for such a queue, and pushes it. */
void vb_tags_complete(struct vb_qp *qp, struct vb_cqe *e);

/* Posts rendezvous that wait. No lock held: a responder's lock comes after the send queue's. */
void vb_tags_run(struct vb_qp *qp);
/* One of the adapter's own entries is done. sq.lock is held. */
void vb_tags_sent(struct vb_qp *qp, const struct vb_sqe *sqe, enum ibv_wc_status status);
/* The error state: what waits is flushed. sq.lock and resp_lock are held. */
void vb_tags_flush(struct vb_qp *qp);
/* The QP is reset or goes: what waits and what was posted is forgotten. Nobody works on it. */
void vb_tags_forget(struct vb_qp *qp);

#endif
