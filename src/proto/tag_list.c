/* SPDX-License-Identifier: BSD-2-Clause */
#include "proto/tag_list.h"

enum { INDEX_BITS = 16 };

static struct vb_tag_entry *at(const struct vb_tag_list *list, int index) { return &list->entries[index]; }

static void put_free(struct vb_tag_list *list, int index)
{
	struct vb_tag_entry *e = at(list, index);
	e->state = VB_TAG_FREE;
	e->generation++;
	e->next = list->free;
	list->free = index;
}

void vb_tag_list_init(struct vb_tag_list *list, struct vb_tag_entry *entries, uint32_t room)
{
	*list = (struct vb_tag_list){ .entries = entries,
				      .room = room,
				      .free = VB_TAG_NONE,
				      .first = VB_TAG_NONE,
				      .last = VB_TAG_NONE,
				      .idle = VB_TAG_NONE };
	for (uint32_t i = room; i-- > 0;) {
		entries[i].generation = 0;
		put_free(list, (int)i);
	}
}

static void append(struct vb_tag_list *list, int index)
{
	struct vb_tag_entry *e = at(list, index);
	e->previous = list->last;
	e->next = VB_TAG_NONE;
	if (list->last == VB_TAG_NONE)
		list->first = index;
	else
		at(list, list->last)->next = index;
	list->last = index;
}

static void unlink_entry(struct vb_tag_list *list, int index)
{
	const struct vb_tag_entry *e = at(list, index);
	if (e->previous == VB_TAG_NONE)
		list->first = e->next;
	else
		at(list, e->previous)->next = e->next;
	if (e->next == VB_TAG_NONE)
		list->last = e->previous;
	else
		at(list, e->next)->previous = e->previous;
	if (list->idle == index)
		list->idle = e->next;
}

int vb_tag_list_add(struct vb_tag_list *list, uint64_t tag, uint64_t mask, uint32_t *handle)
{
	int index = list->free;
	if (index == VB_TAG_NONE)
		return VB_TAG_NONE;
	struct vb_tag_entry *e = at(list, index);
	list->free = e->next;
	e->tag = tag;
	e->mask = mask;
	e->state = VB_TAG_LISTED;
	append(list, index);
	if (list->idle == VB_TAG_NONE && vb_tag_list_lag(list))
		list->idle = index;
	*handle = (uint32_t)e->generation << INDEX_BITS | (uint32_t)index;
	return index;
}

int vb_tag_list_remove(struct vb_tag_list *list, uint32_t handle)
{
	uint32_t index = handle & ((1u << INDEX_BITS) - 1);
	if (index >= list->room || at(list, (int)index)->state != VB_TAG_LISTED ||
	    at(list, (int)index)->generation != handle >> INDEX_BITS)
		return VB_TAG_NONE;
	unlink_entry(list, (int)index);
	put_free(list, (int)index);
	return (int)index;
}

int vb_tag_list_match(struct vb_tag_list *list, uint64_t tag)
{
	for (int i = list->first; i != list->idle; i = at(list, i)->next) {
		struct vb_tag_entry *e = at(list, i);
		if ((tag & e->mask) != e->tag)
			continue;
		unlink_entry(list, i);
		e->state = VB_TAG_TAKEN;
		return i;
	}
	return VB_TAG_NONE;
}

void vb_tag_list_give(struct vb_tag_list *list, int index)
{
	put_free(list, index);
}

void vb_tag_list_note_unexpected(struct vb_tag_list *list)
{
	list->unexpected++;
}

void vb_tag_list_sync(struct vb_tag_list *list, uint32_t handled)
{
	list->handled = handled;
	if (!vb_tag_list_lag(list))
		list->idle = VB_TAG_NONE;
}
