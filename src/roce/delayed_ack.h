/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Delayed ACKs. Some programs poll, and answer each message with one of their own. There one system call can
 * send both, the answer and behind it the ACK. So a connection that is used like this delays its ACK: until
 * it posts; until the next poll, which says that the program has nothing to post; or for 30 µs if it stops
 * polling.
 *
 * The table has few places. Whoever takes a queue pair out of its place, by an exchange, has its reference.
 */
#ifndef VB_ROCE_DELAYED_ACK_H
#define VB_ROCE_DELAYED_ACK_H

#include "adapter/object.h"

/* Who sends a queue pair's ACK, if it is still due. No lock held. Set by a constructor. */
void vb_delayed_ack_set_handler(void (*due)(struct vb_qp *qp));
/* Takes a reference. False: the place is not free, so the ACK is not delayed. resp_lock may be held. */
bool vb_delayed_ack_put(struct vb_qp *qp, uint64_t now_ns);
/* The ACK has been sent, or the queue pair goes. Cheap if it is not delayed. */
void vb_delayed_ack_drop(struct vb_qp *qp);
/* Sends all delayed ACKs; in the progress thread those that are due. No lock held. */
void vb_delayed_ack_send(void);

#endif
