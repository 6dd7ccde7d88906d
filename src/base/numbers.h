/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers to objects, as a process's descriptors: finding one takes no lock. The memory of an object stays an
 * object's of the same table for ever, so a reference can be taken first and the table asked again afterwards
 * whether it was the right one.
 *
 * An object is finished when its last number is withdrawn (or it is discarded) and its last reference is
 * gone; then its memory is used again. A thread may be late with a number that has gone: for a moment it has
 * a reference to whatever lives there now.
 */
#ifndef VB_BASE_NUMBERS_H
#define VB_BASE_NUMBERS_H

#include "base/base.h"
#include "base/lock.h"

enum { VB_NUMBERS_PAGE = 1024, VB_NUMBERS_PAGES = 1024 };

/* The head of each object; what follows it is the owner's. */
struct vb_numbered {
	struct vb_numbered *next_free;
	atomic_uint refs, numbers;
	atomic_bool is_closed; /* no number leads to it, and it is not finished yet */
};

typedef _Atomic(struct vb_numbered *) vb_numbers_entry;

struct vb_numbers {
	size_t object_bytes;
	void (*finish)(struct vb_numbered *n); /* with the last reference */
	_Atomic(vb_numbers_entry *) pages[VB_NUMBERS_PAGES];
	struct vb_lock lock;
	struct vb_numbered *recycled; /* under the lock */
};

/* An object with one reference and no number, zero behind its head. NULL: no memory. */
struct vb_numbered *vb_numbers_create(struct vb_numbers *t);
/* Gives it a (further) number, and that a reference. 0 or -ENOMEM. */
int vb_numbers_publish(struct vb_numbers *t, struct vb_numbered *n, int number);
/* The object with this number, referenced; NULL: none. */
struct vb_numbered *vb_numbers_get(struct vb_numbers *t, int number);
void vb_numbers_put(struct vb_numbers *t, struct vb_numbered *n);
/* Takes the number from it and drops the number's reference; false: it has it no more. */
bool vb_numbers_withdraw(struct vb_numbers *t, struct vb_numbered *n, int number);
/* An object without a number is of no use any more. Drops a reference. */
void vb_numbers_discard(struct vb_numbers *t, struct vb_numbered *n);
/* In a forked child: another thread may have held the lock. */
static inline void vb_numbers_forked(struct vb_numbers *t) { vb_lock_init(&t->lock); }

#endif
