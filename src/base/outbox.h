/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A queue of messages whose receiver has no room for them, or is not there yet. Each receiver gets its
 * messages in order: while one waits, those after it wait behind it, and each attempt ends at the first that
 * finds no room. Attempts are frequent while the receiver accepts messages, and rarer while it does not.
 *
 * A receiver that accepts nothing for VB_OUTBOX_FULL_NS loses what waits for it, as on any network. Some
 * messages wait for an absent receiver, for VB_OUTBOX_ABSENT_NS. They wait longer for one that has its name
 * and is about to accept messages, VB_OUTBOX_UNREADY_NS after it was first found so.
 *
 * A message older than its type's max_age_ns is dropped, because delivering it would do harm. Its age counts
 * from the moment the receiver was last found unready: nobody can have accepted a copy before.
 *
 * Pure: time is an argument in ns, and the owner provides the function that sends. The owner provides
 * thread-safety, too. Its functions may call vb_outbox_send, and no other of these.
 */
#ifndef VB_OUTBOX_H
#define VB_OUTBOX_H

#include "base/list.h"
#include "base/nanoseconds.h"

#define VB_OUTBOX_FULL_NS    VB_NS_PER_S
#define VB_OUTBOX_ABSENT_NS  (200 * VB_NS_PER_MS)
#define VB_OUTBOX_UNREADY_NS (2 * VB_NS_PER_S)
#define VB_OUTBOX_NEVER      UINT64_MAX

struct vb_outbox_type {
	size_t message_bytes; /* a message is copied as it is */
	unsigned max_waiting; /* more are dropped */
	uint64_t max_age_ns;  /* older ones are dropped; 0: none are */
	/*
	 * 0: sent. -EAGAIN: no room. -ECONNREFUSED: nobody is there. -EPERM: it is unready, there but
	 * not accepting messages yet. Anything else: lost.
	 */
	int (*send)(const void *message);
	bool (*is_for_same)(const void *a, const void *b);
	/* Does the message wait for a receiver that is absent or unready? */
	bool (*waits_if_absent)(const void *message);
	/* The receiver was not there, or not ready, in time. */
	void (*absent)(const void *message);
};

struct vb_outbox {
	const struct vb_outbox_type *type;
	struct vb_list receivers;
	unsigned waiting;
};

void vb_outbox_init(struct vb_outbox *o, const struct vb_outbox_type *type);
/* Frees what waits. */
void vb_outbox_clear(struct vb_outbox *o);
void vb_outbox_send(struct vb_outbox *o, const void *message, uint64_t now_ns);
/* Do messages wait for this one's receiver? */
bool vb_outbox_waits_for(const struct vb_outbox *o, const void *message);
/* When vb_outbox_try is due. */
uint64_t vb_outbox_deadline(const struct vb_outbox *o);
void vb_outbox_try(struct vb_outbox *o, uint64_t now_ns);

#endif
