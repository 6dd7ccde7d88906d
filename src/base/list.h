/* SPDX-License-Identifier: BSD-2-Clause */
/* Intrusive doubly linked lists. A node that is in no list is linked to itself (after vb_list_init or vb_list_del). */
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

/* Iterates; the current element may be removed. */
#define vb_list_for_each(pos, head, member)                                                                  \
	for (__typeof__(pos) vb_next_, vb_once_ = NULL;                                                       \
	     !vb_once_; vb_once_ = (void *)1)                                                                 \
		for (pos = vb_container_of((head)->next, __typeof__(*pos), member),                           \
		    vb_next_ = vb_container_of(pos->member.next, __typeof__(*pos), member);                   \
		     &pos->member != (head);                                                                  \
		     pos = vb_next_, vb_next_ = vb_container_of(pos->member.next, __typeof__(*pos), member))

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
