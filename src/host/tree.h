/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A small tree of text files and links that this user's processes in a network namespace keep together, each
 * writing what it knows: whoever is last is right. It lies in memory where there is such a place
 * ($XDG_RUNTIME_DIR, /dev/shm), else in $TMPDIR or /tmp, in a folder that this user alone may enter. A file's
 * contents change as a whole, and only if they are others. A file is replaced; a counter is written where it
 * is, so that who has it open finds the new value when reading again.
 *
 *	BASE/verbatim-UID/NETNS/...
 *
 * Who uses a tree holds a lock on its `.users`; a process that takes up its own removes those that nobody
 * uses any more.
 */
#ifndef VB_HOST_TREE_H
#define VB_HOST_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

enum { VB_TREE_PATH = 256, VB_TREE_TEXT = 256 };

enum vb_tree_kind { VB_TREE_FILE, VB_TREE_COUNTER, VB_TREE_LINK };

/* What is to be there. A path is relative to the tree's root; its folders come with it. */
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

/* The root's path; NULL with errno: there is no place that is safe to write to. */
const char *vb_tree_root(void);
void vb_tree_add(struct vb_tree *tree, enum vb_tree_kind kind, const char *text, const char *path, ...)
	__attribute__((format(printf, 4, 5)));
/* Makes the tree under the root so; if the entries are all that there is, what else is there goes. */
void vb_tree_write(struct vb_tree *tree, bool is_all);
void vb_tree_free(struct vb_tree *tree);

#endif
