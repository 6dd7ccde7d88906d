/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A table from numbers to objects, as for descriptors. A lookup takes no lock. The memory of an object is
 * only ever reused for objects of the same table. So a lookup can take a reference first, and then check that
 * the table still has the object.
 *
 * An object is finished when its last number is withdrawn (or it is discarded) and its last reference is
 * gone. Then its memory is reused. A late lookup of a withdrawn number briefly has a reference to the object
 * that is there now.
 */
#ifndef VB_BASE_NUMBERS_H
#define VB_BASE_NUMBERS_H

#include "base/base.h"
#include "base/lock.h"

enum { VB_NUMBERS_PAGE = 1024, VB_NUMBERS_PAGES = 1024 };

/* The head of each object. What follows belongs to the table's user. */
struct vb_numbered {
	struct vb_numbered *next_free;
	atomic_uint refs, numbers;
	atomic_bool is_closed; /* it has no number, and is not finished yet */
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
/* Gives it a (further) number, which holds a reference. 0 or -ENOMEM. */
int vb_numbers_publish(struct vb_numbers *t, struct vb_numbered *n, int number);
/* The object with this number, referenced; NULL: none. */
struct vb_numbered *vb_numbers_get(struct vb_numbers *t, int number);
void vb_numbers_put(struct vb_numbers *t, struct vb_numbered *n);
/* Withdraws the number and drops its reference. False: the object does not have that number. */
bool vb_numbers_withdraw(struct vb_numbers *t, struct vb_numbered *n, int number);
/* Ends an object that has no number. Drops a reference. */
void vb_numbers_discard(struct vb_numbers *t, struct vb_numbered *n);
/* In a forked child: another thread may have held the lock. */
static inline void vb_numbers_forked(struct vb_numbers *t) { vb_lock_init(&t->lock); }

#endif
