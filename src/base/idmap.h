/* SPDX-License-Identifier: BSD-2-Clause */
/* Hands out small integers 0 … count-1, each to one holder at a time. A bitmap; thread-safety is the caller's. */
#ifndef VB_IDMAP_H
#define VB_IDMAP_H

#include "base/base.h"

struct vb_idmap {
	uint64_t *words;   /* a set bit is a taken id; bits past count are set */
	uint32_t count;
	uint32_t taken;    /* ids in use */
	uint32_t low_word; /* all words below it are full */
	uint32_t next;     /* where the rotating search goes on */
};

/* -ENOMEM, -EINVAL (count 0). */
int vb_idmap_init(struct vb_idmap *m, uint32_t count) VB_MUST_USE;
void vb_idmap_destroy(struct vb_idmap *m);

/* The lowest free id. -ENOSPC. */
int vb_idmap_take_lowest(struct vb_idmap *m, uint32_t *id) VB_MUST_USE;
/* The next free id after the one that was taken last, so that an id is reused as late as possible. -ENOSPC. */
int vb_idmap_take_rotating(struct vb_idmap *m, uint32_t *id) VB_MUST_USE;
/* This id. -EBUSY: it is taken; -EINVAL: out of range. */
int vb_idmap_take(struct vb_idmap *m, uint32_t id) VB_MUST_USE;
/* id must be taken. */
void vb_idmap_put(struct vb_idmap *m, uint32_t id);
bool vb_idmap_is_taken(const struct vb_idmap *m, uint32_t id);

#endif
