/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Acknowledgements that wait for company. A program that answers each message with one of its own sends its
 * acknowledgement in the same system call, behind the answer, if that is left the time to be posted. So a
 * connection that is used like this puts its acknowledgement off: until it posts; until the next poll, which
 * says that the program has nothing to post; or, where nobody polls, for some ten microseconds.
 *
 * A place is taken by exchange and belongs, with its reference, to whoever takes the queue pair out again.
 */
#ifndef VB_ROCE_DELAYED_ACK_H
#define VB_ROCE_DELAYED_ACK_H

#include "adapter/object.h"

/* Who sends what is due of a queue pair, if it still is. No lock held. Set by a constructor. */
void vb_delayed_ack_set_handler(void (*due)(struct vb_qp *qp));
/* Takes a reference. False: its place is taken, so it is not put off. resp_lock may be held. */
bool vb_delayed_ack_put(struct vb_qp *qp, uint64_t now_ns);
/* It has been sent, or the queue pair goes. Cheap if it is not there. */
void vb_delayed_ack_drop(struct vb_qp *qp);
/* Sends all that were put off; called by the progress thread, those that have waited long. No lock held. */
void vb_delayed_ack_send(void);

#endif
