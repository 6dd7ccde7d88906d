/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Intrusive doubly linked lists. A node that is in no list is linked to itself (after vb_list_init or
 * vb_list_del).
 */
#ifndef VB_LIST_H
#define VB_LIST_H

#include "base/base.h"

struct vb_list {
	struct vb_list *next, *prev;
};

#define VB_LIST_INIT(name) { &(name), &(name) }

static inline void vb_list_init(struct vb_list *n) { n->next = n->prev = n; }

static inline bool vb_list_is_empty(const struct vb_list *head) { return head->next == head; }

static inline void vb_list_add_tail(struct vb_list *head, struct vb_list *n)
{
	n->prev = head->prev;
	n->next = head;
	head->prev->next = n;
	head->prev = n;
}

static inline void vb_list_del(struct vb_list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	vb_list_init(n);
}

/*
 * Iterates; the current element may be removed. The line number in the helper's name lets loops nest (on
 * different lines). break and continue work as in any loop.
 */
#define vb_list_for_each(pos, head, member) \
	vb_list_for_each_(pos, head, member, VB_CONCAT(vb_next_, __LINE__))
#define vb_list_for_each_(pos, head, member, next_node)                                                      \
	for (struct vb_list *next_node = ((pos) = vb_container_of((head)->next, __typeof__(*(pos)), member), \
					  (pos)->member.next);                                               \
	     &(pos)->member != (head);                                                                       \
	     (pos) = vb_container_of(next_node, __typeof__(*(pos)), member), next_node = (pos)->member.next)

/* Removes and returns the first element's node, or NULL. */
static inline struct vb_list *vb_list_pop(struct vb_list *head)
{
	struct vb_list *n = head->next;
	if (n == head)
		return NULL;
	vb_list_del(n);
	return n;
}

#endif
