/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/nanoseconds.h"
#include "host/host.h"
#include "host/memory/memory.h"

#define USERS ".users"
#define NEW   ".new-" /* of a file that is being made; the thread follows */

enum { TRUST_NS = VB_NS_PER_S, TRUST_TIMES = 20 };

/* ---- the folder ---- */

/* A folder of this user alone; one that another user made is refused. */
static bool own_folder(const char *path)
{
	struct stat st;
	if (mkdir(path, 0700) && errno != EEXIST)
		return false;
	if (lstat(path, &st))
		return false;
	if (S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 077))
		return true;
	errno = EPERM;
	return false;
}

/* ---- entries ---- */

void vb_tree_add(struct vb_tree *tree, enum vb_tree_kind kind, const char *text, const char *path, ...)
{
	va_list args;
	if (tree->count == tree->room) {
		size_t room = tree->room ? 2 * tree->room : 256;
		struct vb_tree_entry *grown = realloc(tree->entries, room * sizeof(*grown));
		if (!grown) {
			tree->failed = true;
			return;
		}
		tree->entries = grown;
		tree->room = room;
	}
	struct vb_tree_entry *e = &tree->entries[tree->count];
	e->kind = kind;
	va_start(args, path);
	bool fits = vsnprintf(e->path, sizeof(e->path), path, args) < (int)sizeof(e->path);
	va_end(args);
	fits = fits && snprintf(e->text, sizeof(e->text), kind == VB_TREE_LINK ? "%s" : "%s\n", text) <
			       (int)sizeof(e->text);
	tree->count += fits;
}

void vb_tree_free(struct vb_tree *tree)
{
	free(tree->entries);
	*tree = (struct vb_tree){ .entries = NULL };
}

/* ---- writing ---- */

static ssize_t read_all(int root, const char *path, char *to, size_t room)
{
	int fd = openat(root, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -1;
	ssize_t n = read(fd, to, room);
	close(fd);
	return n;
}

static bool is_there(int root, const struct vb_tree_entry *e)
{
	char now[VB_TREE_TEXT + 1];
	ssize_t n = e->kind == VB_TREE_LINK ? readlinkat(root, e->path, now, sizeof(now)) :
					      read_all(root, e->path, now, sizeof(now));
	return n >= 0 && (size_t)n == strlen(e->text) && !memcmp(now, e->text, (size_t)n);
}

static void make_folders(int root, const char *path)
{
	char folder[VB_TREE_PATH];
	for (const char *slash = path; (slash = strchr(slash, '/')); slash++) {
		snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
		mkdirat(root, folder, 0755);
	}
}

static bool write_file(int root, const char *name, const struct vb_tree_entry *e)
{
	int fd = openat(root, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	ssize_t bytes = (ssize_t)strlen(e->text);
	if (fd < 0)
		return false;
	bool done = write(fd, e->text, (size_t)bytes) == bytes &&
		    fchmod(fd, e->kind == VB_TREE_COUNTER ? 0644 : 0444) == 0;
	close(fd);
	return done;
}

static bool rewrite_counter(int root, const struct vb_tree_entry *e)
{
	int fd = e->kind == VB_TREE_COUNTER ? openat(root, e->path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
	ssize_t bytes = (ssize_t)strlen(e->text);
	if (fd < 0)
		return false;
	bool done = pwrite(fd, e->text, (size_t)bytes, 0) == bytes && ftruncate(fd, bytes) == 0;
	close(fd);
	return done;
}

/* Made under a temporary name, then renamed. */
static bool place(int root, const struct vb_tree_entry *e)
{
	char name[64];
	snprintf(name, sizeof(name), NEW "%d", (int)gettid());
	unlinkat(root, name, 0);
	bool made = e->kind == VB_TREE_LINK ? symlinkat(e->text, root, name) == 0 : write_file(root, name, e);
	if (made && renameat(root, name, root, e->path) == 0)
		return true;
	unlinkat(root, name, 0);
	return false;
}

static void put(int root, const struct vb_tree_entry *e)
{
	if (e->kind == VB_TREE_KEPT || is_there(root, e) || rewrite_counter(root, e) || place(root, e))
		return;
	make_folders(root, e->path);
	place(root, e);
}

/* ---- sweeping ---- */

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct vb_tree_entry *)a)->path, ((const struct vb_tree_entry *)b)->path);
}

/* The first entry that is not before path. */
static size_t find(const struct vb_tree *tree, const char *path)
{
	size_t low = 0, high = tree->count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (strcmp(tree->entries[middle].path, path) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_kept(const struct vb_tree *tree, const char *path)
{
	size_t at = find(tree, path);
	return at < tree->count && tree->entries[at].kind == VB_TREE_KEPT &&
	       !strcmp(tree->entries[at].path, path);
}

/* Is it an entry, or a folder of one? */
static bool is_wanted(const struct vb_tree *tree, const char *path)
{
	size_t len = strlen(path);
	for (size_t low = find(tree, path);
	     low < tree->count && !strncmp(tree->entries[low].path, path, len); low++)
		if (!tree->entries[low].path[len] || tree->entries[low].path[len] == '/')
			return true;
	return false;
}

/* No part of the tree? A file that was being made is one where nothing is wanted: who made it was killed. */
static bool is_beside(const struct vb_tree *tree, const char *name)
{
	return name[0] == '.' && (tree->count || strncmp(name, NEW, strlen(NEW)));
}

static void sweep(const struct vb_tree *tree, int root, const char *folder)
{
	int fd = openat(root, *folder ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (struct dirent *d; (d = readdir(dir));) {
		char path[VB_TREE_PATH];
		if (is_beside(tree, d->d_name) ||
		    snprintf(path, sizeof(path), *folder ? "%s/%s" : "%s%s", folder, d->d_name) >=
			    (int)sizeof(path))
			continue;
		if (d->d_type == DT_DIR && !is_kept(tree, path))
			sweep(tree, root, path);
		if (!is_wanted(tree, path))
			unlinkat(root, path, d->d_type == DT_DIR ? AT_REMOVEDIR : 0);
	}
	closedir(dir);
}

/* ---- the tree of this namespace, and those of others ---- */

static bool is_same(int fd, const char *path)
{
	struct stat here, there;
	return !fstat(fd, &here) && !lstat(path, &there) && here.st_dev == there.st_dev &&
	       here.st_ino == there.st_ino;
}

static void find_users(const char *root, char path[VB_TREE_PATH + sizeof(USERS)])
{
	snprintf(path, VB_TREE_PATH + sizeof(USERS), "%s/" USERS, root);
}

/*
 * Locks the tree's `.users`: shared for users, exclusively for a process that removes it. The file locked
 * must still be the one at the path, as a removal may have come between. -1: it cannot be locked.
 */
static int take_users(const char *root, int how)
{
	char path[VB_TREE_PATH + sizeof(USERS)];
	find_users(root, path);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || (!flock(fd, how) && is_same(fd, path)))
		return fd;
	close(fd);
	return -1;
}

/* Trees of namespaces in which nobody uses them any more. */
static void sweep_others(const char *folder, const char *own)
{
	static const struct vb_tree nothing;
	DIR *dir = opendir(folder);
	for (struct dirent *d; dir && (d = readdir(dir));) {
		char path[VB_TREE_PATH];
		if (d->d_name[0] == '.' ||
		    snprintf(path, sizeof(path), "%s/%s", folder, d->d_name) >= (int)sizeof(path) ||
		    !strcmp(path, own))
			continue;
		int users = take_users(path, LOCK_EX | LOCK_NB),
		    root = users < 0 ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (root >= 0) {
			sweep(&nothing, root, "");
			unlinkat(root, USERS, 0);
			unlinkat(root, VB_TREE_PORTS, 0);
			close(root);
			rmdir(path);
		}
		if (users >= 0)
			close(users);
	}
	if (dir)
		closedir(dir);
}

/*
 * Makes the root and returns the lock on it. -1: a process of another namespace found the root unused and is
 * removing it; the caller tries again.
 */
static int take_root(const char *root)
{
	return own_folder(root) && access(root, W_OK | X_OK) == 0 ? take_users(root, LOCK_SH) : -1;
}

static pthread_mutex_t holding = PTHREAD_MUTEX_INITIALIZER;

/* In a forked child, which keeps its parent's place: another thread of the parent may have the lock. */
static void forget_lock(void)
{
	pthread_mutex_init(&holding, NULL);
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget_lock);
}

/*
 * A process has one tree, that of its namespace, as long as it lives. A child shares its parent's lock on
 * the file.
 */
static struct {
	char root[VB_TREE_PATH];
	int users; /* -1: none */
	dev_t device; /* and inode: of the file that is locked */
	ino_t inode;
} held = { .users = -1 };

/* The program may have closed the descriptor, and have a file of its own there now. */
static bool has_users(void)
{
	struct stat st;
	return held.users >= 0 && !fstat(held.users, &st) && st.st_dev == held.device &&
	       st.st_ino == held.inode;
}

/* Is the tree at that root locked? Somebody may have removed it in spite of the lock. */
static bool is_held(const char *root)
{
	char path[VB_TREE_PATH + sizeof(USERS)];
	find_users(root, path);
	return !strcmp(held.root, root) && has_users() && is_same(held.users, path);
}

static void change_held(const char *root)
{
	struct stat st;
	int last = has_users() ? held.users : -1, users = -1;
	held.users = -1; /* before it is closed: a fork may come between */
	if (last >= 0)
		close(last);
	for (int tries = 0; tries < 64 && (users = take_root(root)) < 0; tries++)
		;
	snprintf(held.root, sizeof(held.root), "%s", root);
	if (users < 0 || fstat(users, &st))
		return;
	held.device = st.st_dev;
	held.inode = st.st_ino;
	held.users = vb_fd_raise(users);
}

static bool hold(const char *folder, const char *root)
{
	pthread_mutex_lock(&holding);
	if (!is_held(root)) {
		change_held(root);
		if (held.users >= 0)
			sweep_others(folder, root);
	}
	bool holds = held.users >= 0;
	pthread_mutex_unlock(&holding);
	return holds;
}

static bool find_place(const char *base, char *root, size_t room)
{
	struct stat ns;
	char folder[VB_TREE_PATH];
	if (!base || *base != '/' || stat("/proc/self/ns/net", &ns))
		return false;
	if (snprintf(folder, sizeof(folder), "%s/verbatim-%u", base, (unsigned)geteuid()) >=
		    (int)sizeof(folder) ||
	    !own_folder(folder))
		return false;
	return snprintf(root, room, "%s/%llu", folder, (unsigned long long)ns.st_ino) < (int)room &&
	       hold(folder, root);
}

const char *vb_tree_root(void)
{
	VB_UNCANCELLED;
	static __thread char root[VB_TREE_PATH];
	const char *const bases[] = { getenv("XDG_RUNTIME_DIR"), "/dev/shm", getenv("TMPDIR"), "/tmp" };
	for (size_t i = 0; i < VB_ARRAY_LEN(bases); i++)
		if (find_place(bases[i], root, sizeof(root)))
			return root;
	return NULL;
}

/* ---- what this process knows of it ---- */

/*
 * The last whole tree that this process has written, and when it compared that with the files. Other
 * processes write the same, so for a while it trusts that what it knows is there. Counters differ from
 * process to process.
 */
static struct {
	char root[VB_TREE_PATH];
	struct vb_tree tree;
	uint64_t trusted_until_ns;
} known;

static bool is_known(const struct vb_tree_entry *e)
{
	const struct vb_tree *t = &known.tree;
	const struct vb_tree_entry *k = t->count ? bsearch(e, t->entries, t->count, sizeof(*e), by_path) :
						   NULL;
	return k && k->kind == e->kind && !strcmp(k->text, e->text);
}

/* Has the whole tree other paths than before? Then what is there no more is to be removed. */
static bool has_other_paths(const struct vb_tree *tree)
{
	if (tree->count != known.tree.count)
		return true;
	for (size_t i = 0; i < tree->count; i++)
		if (strcmp(tree->entries[i].path, known.tree.entries[i].path) != 0)
			return true;
	return false;
}

/* Takes the entries. */
static void know(const char *root, struct vb_tree *tree)
{
	struct vb_tree before = known.tree; /* freed last, for a child that another thread forks meanwhile */
	known.tree = *tree;
	*tree = (struct vb_tree){ .entries = NULL };
	vb_tree_free(&before);
	snprintf(known.root, sizeof(known.root), "%s", root);
}

/* The kernel ends a process that writes beyond its limit (SIGXFSZ). What others wrote is there. */
static bool may_write(void) { return vb_file_limit() >= VB_TREE_TEXT; }

/* A tree that takes long to compare is compared more rarely, so that this takes a small share of the time. */
static uint64_t trust_after(uint64_t began_ns)
{
	uint64_t now = vb_now_ns();
	return now + vb_max_u64(TRUST_NS, TRUST_TIMES * (now - began_ns));
}

void vb_tree_write(struct vb_tree *tree, bool is_all)
{
	VB_UNCANCELLED;
	const char *path = vb_tree_root();
	int root = path && !tree->failed && may_write() ?
			   open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) :
			   -1;
	if (root < 0)
		return;
	uint64_t now = vb_now_ns();
	bool trusts = !strcmp(known.root, path) && now < known.trusted_until_ns;
	qsort(tree->entries, tree->count, sizeof(*tree->entries), by_path);
	for (size_t i = 0; i < tree->count; i++)
		if (!trusts || tree->entries[i].kind == VB_TREE_COUNTER || !is_known(&tree->entries[i]))
			put(root, &tree->entries[i]);
	if (is_all && (!trusts || has_other_paths(tree)))
		sweep(tree, root, "");
	if (is_all && !trusts)
		known.trusted_until_ns = trust_after(now);
	if (is_all)
		know(path, tree);
	close(root);
}
