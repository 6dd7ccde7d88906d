/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The list that messages with tags are matched with: entries in the order in which they were added; a message
 * takes the oldest entry with (its tag & mask) == entry's tag. An entry that was taken keeps its place in
 * memory until it is given back.
 *
 *	free --add--> listed --match--> taken --give--> free
 *	               '------remove-----------------------'
 *
 * Phases. The program matches unexpected messages with its tags itself, and adds tags while messages arrive.
 * So that no message passes a tag on its way to the program and the tag goes on to take a later one, both
 * sides count unexpected messages. An entry that is added while the program has handled fewer than there were
 * waits ("idle") until it says that it has handled all; it is then that it cannot be about a message which
 * the program has yet to see. Idle entries are the newest ones.
 *
 * No locks and no memory of its own; which entry is which of the caller's is said by its index.
 */
#ifndef VB_PROTO_TAG_LIST_H
#define VB_PROTO_TAG_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

enum { VB_TAG_LIST_MAX = 0x7fff, VB_TAG_NONE = -1 };

struct vb_tag_entry {
	uint64_t tag, mask;
	int32_t previous, next; /* listed: its neighbours; free: the next free one */
	uint16_t generation;    /* tells handles of one place apart */
	uint8_t state;          /* enum vb_tag_state */
};

enum vb_tag_state { VB_TAG_FREE, VB_TAG_LISTED, VB_TAG_TAKEN };

struct vb_tag_list {
	struct vb_tag_entry *entries;
	uint32_t room;
	int32_t free, first, last;
	int32_t idle;        /* the oldest entry that waits for the program to catch up */
	uint32_t unexpected; /* messages that were; wraps */
	uint32_t handled;    /* so many the program says */
};

/* room: 1 to VB_TAG_LIST_MAX. */
void vb_tag_list_init(struct vb_tag_list *list, struct vb_tag_entry *entries, uint32_t room);
/* The new entry's index; VB_TAG_NONE: all are in use. */
int vb_tag_list_add(struct vb_tag_list *list, uint64_t tag, uint64_t mask, uint32_t *handle) VB_MUST_USE;
/* The index of the entry, which is free now; VB_TAG_NONE: no listed entry has this handle. */
int vb_tag_list_remove(struct vb_tag_list *list, uint32_t handle);
/* The entry that a message with this tag takes, which is taken now; VB_TAG_NONE: none. */
int vb_tag_list_match(struct vb_tag_list *list, uint64_t tag) VB_MUST_USE;
/* One that was taken is free now. */
void vb_tag_list_give(struct vb_tag_list *list, int index);
/* A message with a tag went to the program unmatched. */
void vb_tag_list_note_unexpected(struct vb_tag_list *list);
/* The program has handled so many of those. */
void vb_tag_list_sync(struct vb_tag_list *list, uint32_t handled);

/* How many it has not handled yet; more than 2^31: it claims more than there were. */
static inline uint32_t vb_tag_list_lag(const struct vb_tag_list *list)
{
	return list->unexpected - list->handled;
}
static inline bool vb_tag_list_is_full(const struct vb_tag_list *list) { return list->free == VB_TAG_NONE; }

#endif
