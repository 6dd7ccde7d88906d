/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages whose receiver has no room for them, or is not there yet. Per receiver they keep their order:
 * while one waits, those after it wait behind it, and each attempt ends at the first that finds no room.
 * Attempts follow each other quickly while the receiver takes something, and less often while it does not.
 *
 * A receiver that takes nothing for VB_OUTBOX_FULL_NS loses what waits for it, as on any network. One that is
 * absent is waited for by patient messages for VB_OUTBOX_ABSENT_NS. A type of messages may have an age beyond
 * which it is worse to arrive than to be lost.
 *
 * Pure: time is an argument in ns, sending is a function of the owner's. Thread-safety is the owner's. The
 * owner's functions may call vb_outbox_send, and no other of these.
 */
#ifndef VB_OUTBOX_H
#define VB_OUTBOX_H

#include "base/list.h"

#define VB_OUTBOX_FULL_NS   UINT64_C(1000000000)
#define VB_OUTBOX_ABSENT_NS UINT64_C(200000000)
#define VB_OUTBOX_NEVER     UINT64_MAX

struct vb_outbox_type {
	size_t message_bytes; /* a message is copied as it is */
	unsigned max_waiting; /* more are lost */
	uint64_t max_age_ns;  /* older ones are lost; 0: they are not */
	/* 0: sent. -EAGAIN: no room. -ECONNREFUSED: nobody is there. Anything else: lost. */
	int (*send)(const void *message);
	bool (*is_for_same)(const void *a, const void *b);
	/* Is it worth waiting for a receiver that is not there? */
	bool (*is_patient)(const void *message);
	/* Nobody was there, in time. */
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
/* Whether messages for this one's receiver wait. */
bool vb_outbox_waits_for(const struct vb_outbox *o, const void *message);
/* When vb_outbox_try is due. */
uint64_t vb_outbox_deadline(const struct vb_outbox *o);
void vb_outbox_try(struct vb_outbox *o, uint64_t now_ns);

#endif
