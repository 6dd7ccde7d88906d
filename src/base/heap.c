/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/heap.h"

/* Makes the root with the larger key the other's first child. */
static struct vb_heap_node *meld(struct vb_heap_node *a, struct vb_heap_node *b)
{
	if (!a || !b)
		return a ? a : b;
	if (b->key < a->key) {
		struct vb_heap_node *t = a;
		a = b;
		b = t;
	}
	b->prev = a;
	b->next = a->child;
	if (b->next)
		b->next->prev = b;
	a->child = b;
	return a;
}

static struct vb_heap_node *detach(struct vb_heap_node *n)
{
	n->next = n->prev = NULL;
	return n;
}

/*
 * Melds a list of siblings pairwise from the left, then all pairs from the right: the order that bounds the
 * cost.
 */
static struct vb_heap_node *meld_siblings(struct vb_heap_node *n)
{
	struct vb_heap_node *pairs = NULL, *root = NULL;
	while (n) {
		struct vb_heap_node *a = n, *b = n->next;
		n = b ? b->next : NULL;
		a = meld(detach(a), b ? detach(b) : NULL);
		a->next = pairs;
		pairs = a;
	}
	while (pairs) {
		struct vb_heap_node *rest = pairs->next;
		root = meld(root, detach(pairs));
		pairs = rest;
	}
	return root;
}

void vb_heap_insert(struct vb_heap *h, struct vb_heap_node *n, uint64_t key)
{
	*n = (struct vb_heap_node){ .key = key, .stamp = h->stamp };
	h->root = meld(h->root, n);
}

static void cut(struct vb_heap_node *n)
{
	if (n->prev->child == n)
		n->prev->child = n->next;
	else
		n->prev->next = n->next;
	if (n->next)
		n->next->prev = n->prev;
	detach(n);
}

void vb_heap_remove(struct vb_heap *h, struct vb_heap_node *n)
{
	if (!vb_heap_contains(h, n))
		return;
	if (n == h->root) {
		h->root = meld_siblings(n->child);
	} else {
		cut(n);
		h->root = meld(h->root, meld_siblings(n->child));
	}
	*n = (struct vb_heap_node){ 0 };
}

void vb_heap_forget(struct vb_heap *h)
{
	h->root = NULL;
	if (++h->stamp == 0)
		h->stamp = 1;
}
