/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A min-heap of intrusive nodes (a pairing heap): never allocates, so insertion cannot fail. Insertion is
 * O(1), removal O(log n) amortized. Equal keys come out in any order. The caller provides thread-safety.
 *
 * A stamp tells whether a node is queued. vb_heap_forget changes the heap's stamp and thereby unqueues all
 * nodes without touching them: their memory may be reused by then, or belong to another process. A zeroed
 * node is not queued.
 */
#ifndef VB_HEAP_H
#define VB_HEAP_H

#include "base/base.h"

struct vb_heap_node {
	uint64_t key;
	struct vb_heap_node *child, *next; /* first child; next sibling */
	struct vb_heap_node *prev;         /* previous sibling, or the parent of a first child, or NULL */
	uint32_t stamp;
};

struct vb_heap {
	struct vb_heap_node *root;
	uint32_t stamp; /* never 0 */
};

#define VB_HEAP_INIT { NULL, 1 }

static inline struct vb_heap_node *vb_heap_first(const struct vb_heap *h) { return h->root; }

static inline bool vb_heap_contains(const struct vb_heap *h, const struct vb_heap_node *n)
{
	return n->stamp == h->stamp;
}

/* n must not be queued. */
void vb_heap_insert(struct vb_heap *h, struct vb_heap_node *n, uint64_t key);
/* Does nothing if n is not queued. */
void vb_heap_remove(struct vb_heap *h, struct vb_heap_node *n);
/* Empties the heap without touching a node. */
void vb_heap_forget(struct vb_heap *h);

#endif
