/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A small tree of text files and links that this user's processes in a network namespace write together. The
 * last writer wins. The tree is in memory where there is such a folder ($XDG_RUNTIME_DIR, /dev/shm), else in
 * $TMPDIR or /tmp, in a folder that only this user may enter. A file changes as a whole, and only if its
 * contents differ. A file is replaced. A counter is rewritten in place, so that a reader that keeps it open
 * sees the new value.
 *
 *	BASE/verbatim-UID/NETNS/...
 *
 * A user of a tree holds a lock on its `.users`. A process that starts to use its tree removes those that
 * nobody uses any more.
 */
#ifndef VB_HOST_TREE_H
#define VB_HOST_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

/* Below the root: what ports have counted (answers/ports.c). No part of the tree. */
#define VB_TREE_PORTS ".ports"

enum { VB_TREE_PATH = 256, VB_TREE_TEXT = 256 };

enum vb_tree_kind {
	VB_TREE_FILE,
	VB_TREE_COUNTER,
	VB_TREE_LINK,
	VB_TREE_KEPT, /* a folder: what is in it stays as it is, and it need not be there */
};

/* One wanted entry. The path is relative to the tree's root; its folders are made as well. */
struct vb_tree_entry {
	char path[VB_TREE_PATH];
	char text[VB_TREE_TEXT]; /* of a file; where a link leads */
	enum vb_tree_kind kind;
};

struct vb_tree {
	struct vb_tree_entry *entries;
	size_t count, room;
	bool failed; /* no memory */
};

/* The root's path; NULL with errno: no folder is safe to write to. */
const char *vb_tree_root(void);
void vb_tree_add(struct vb_tree *tree, enum vb_tree_kind kind, const char *text, const char *path, ...)
	__attribute__((format(printf, 4, 5)));
/*
 * Writes the entries below the root. is_all: removes everything else there. What this process wrote itself in
 * the last second counts as still there, but for counters. If the process may not write such long files
 * (RLIMIT_FSIZE), nothing is written. One caller at a time.
 */
void vb_tree_write(struct vb_tree *tree, bool is_all);
void vb_tree_free(struct vb_tree *tree);

#endif
