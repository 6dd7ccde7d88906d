/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The preload library of `verbatim run`: paths under /sys/class/infiniband* (or where its links lead) and
 * /dev/infiniband. File calls that name such a path get the path in the tree that libibverbs keeps of the
 * devices (src/verbs/sysfs_tree.c). The tree consists of real files, so what follows an open works as ever:
 * reading, listing, changing into a folder, names relative to it. Calls that return a path of the tree
 * return the path that it replaces.
 *
 * A call with another path costs a few comparisons. A read costs one, until a counter was opened. Programs
 * that make system calls by themselves (static ones, Go) are shown the tree by mounts (tools/run_mounted.c).
 * Those that raise privileges are not served.
 * libibverbs is loaded at the first use, and updates the tree at each: state, addresses and counters are
 * current. Where there is no place for the tree, paths stay what they are.
 */
#undef _FILE_OFFSET_BITS /* both names of each call are defined here */
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "answers/ports.h"
#include "answers/real.h"
#include "base/base.h"
#include "base/cancel.h"

enum { ROOM = 512 };

/* ---- which paths ---- */

/* A beginning of paths, and how much of it is not in the tree. */
static const struct stem {
	const char *path, *outside;
} stems[] = {
	{ "/sys/class/infiniband", "/sys" },
	{ "/sys/devices/virtual/infiniband", "/sys" },
	{ "/dev/infiniband", "" },
};

static bool begins(const char *path, const char *with)
{
	return !strncmp(path, with, strlen(with));
}

/*
 * The stem with which a path begins, from `outside` on if it is in a tree. infiniband_verbs and the like
 * match too; a longer word without `_` does not.
 */
static const struct stem *stem_of(const char *path, bool in_tree)
{
	for (size_t i = 0; i < VB_ARRAY_LEN(stems); i++) {
		const char *stem = stems[i].path + (in_tree ? strlen(stems[i].outside) : 0);
		char next = begins(path, stem) ? path[strlen(stem)] : 'x';
		if (!next || next == '/' || next == '_')
			return &stems[i];
	}
	return NULL;
}

static inline bool is_ours(const char *path)
{
	if (!path || path[0] != '/' || (path[1] != 's' && path[1] != 'd') ||
	    (path[2] != 'y' && path[2] != 'e'))
		return false;
	return stem_of(path, false) != NULL;
}

/* ---- the tree ---- */

typedef const char *refresh_fn(const char *path);
typedef void set_sums_fn(unsigned (*sums)(const char *root, struct vb_record_port *list, unsigned room));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(refresh_fn *) refresh;
static __thread bool inside; /* libibverbs makes file calls itself */

/* The library beside this one. */
static refresh_fn *find_refresh(void)
{
	char path[PATH_MAX];
	Dl_info self;
	if (!dladdr((void *)(uintptr_t)stem_of, &self) || !self.dli_fname || !strrchr(self.dli_fname, '/'))
		return NULL;
	int folder = (int)(strrchr(self.dli_fname, '/') - self.dli_fname);
	snprintf(path, sizeof(path), "%.*s/libibverbs.so.1", folder, self.dli_fname);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	set_sums_fn *set_sums = library ? (set_sums_fn *)(uintptr_t)dlsym(library, "vb_sysfs_set_sums") : NULL;
	if (set_sums)
		set_sums(ports_sum);
	return library ? (refresh_fn *)(uintptr_t)dlsym(library, "vb_sysfs_refresh") : NULL;
}

/*
 * The tree's root as it is now, or NULL. The library is loaded without the lock: another thread may have the
 * loader's lock, and wait for ours in the constructor of a library that opens a path.
 */
static const char *tree_root(const char *path)
{
	VB_UNCANCELLED;
	inside = true;
	refresh_fn *update = atomic_load(&refresh);
	if (!update)
		atomic_store(&refresh, update = find_refresh());
	pthread_mutex_lock(&lock);
	const char *root = update ? update(path) : NULL;
	pthread_mutex_unlock(&lock);
	inside = false;
	return root;
}

/* For `verbatim run`, which shows the tree by mounts to programs that this library cannot lead. */
VB_EXPORT const char *vb_answers_root(void);
VB_EXPORT const char *vb_answers_root(void) { return tree_root(stems[0].path); }

static const char *lead(const char *path, char room[ROOM])
{
	int saved = errno;
	const char *root = inside ? NULL : tree_root(path);
	errno = saved;
	return root && snprintf(room, ROOM, "%s%s", root, path + strlen(stem_of(path, false)->outside)) <
				       ROOM ?
		       room :
		       path;
}

/* ---- open counters: each read from the beginning updates them ---- */

enum { OPEN_COUNTERS = 64 };

static struct counter {
	int fd;
	dev_t dev;
	ino_t ino;
	char path[256];
} open_counters[OPEN_COUNTERS]; /* under counting_lock */
static atomic_uint tracked;      /* of these have been used */

/* Apart from the tree's lock: a read of any file must not wait while another thread updates the tree. */
static pthread_mutex_t counting_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread bool counts; /* has it, and so a signal handler that reads or opens must not wait for it */

static void begin_counting(void)
{
	counts = true;
	pthread_mutex_lock(&counting_lock);
}

static void end_counting(void)
{
	pthread_mutex_unlock(&counting_lock);
	counts = false;
}

/*
 * Notes a descriptor that was opened by a path of ours; gives it. When there is no place left, the oldest
 * loses its own.
 */
static int track(int fd, const char *path)
{
	VB_UNCANCELLED;
	struct stat st;
	int saved = errno;
	if (fd >= 0 && !inside && !counts && strstr(path, "counters/") &&
	    strlen(path) < sizeof(open_counters->path) && !fstat(fd, &st) && S_ISREG(st.st_mode)) {
		begin_counting();
		struct counter *c = &open_counters[atomic_load(&tracked) % OPEN_COUNTERS];
		*c = (struct counter){ .fd = fd, .dev = st.st_dev, .ino = st.st_ino };
		strcpy(c->path, path);
		atomic_fetch_add(&tracked, 1);
		end_counting();
	}
	errno = saved;
	return fd;
}

/* The descriptor may have been closed and reused. */
static bool is_counter(int fd, char path[ROOM])
{
	VB_UNCANCELLED;
	struct stat st;
	bool found = false;
	if (fstat(fd, &st))
		return false;
	begin_counting();
	for (unsigned i = 0; i < OPEN_COUNTERS && i < atomic_load(&tracked) && !found; i++) {
		const struct counter *c = &open_counters[i];
		found = c->fd == fd && c->dev == st.st_dev && c->ino == st.st_ino;
		if (found)
			strcpy(path, c->path);
	}
	end_counting();
	return found;
}

/* at: where is read; -1: where the descriptor is. Later pieces are of the number that the first one is of. */
static void freshen(int fd, off64_t at)
{
	char path[ROOM];
	int saved = errno;
	if (!inside && !counts && at <= 0 && is_counter(fd, path) &&
	    (!at || !lseek64(fd, 0, SEEK_CUR)))
		tree_root(path);
	errno = saved;
}

static inline bool may_count(void)
{
	return vb_unlikely(atomic_load_explicit(&tracked, memory_order_relaxed));
}

/*
 * The part of a path that is in a tree of this user's, which is BASE/verbatim-UID/NETNS; NULL: it is in none.
 */
static char *part_in_tree(char *path)
{
	char name[64];
	snprintf(name, sizeof(name), "/verbatim-%u/", (unsigned)geteuid());
	char *at = strstr(path, name);
	size_t digits = at ? strspn(at + strlen(name), "0123456789") : 0;
	return digits ? at + strlen(name) + digits : NULL;
}

/* Replaces a path of the tree, in place, by the one that it stands for, which is shorter. */
static void tell(char *path)
{
	char *part = path ? part_in_tree(path) : NULL;
	const struct stem *stem = part ? stem_of(part, true) : NULL;
	if (!stem)
		return;
	size_t outside = strlen(stem->outside);
	memcpy(path, stem->outside, outside);
	memmove(path + outside, part, strlen(part) + 1);
}

static char *told(char *path)
{
	tell(path);
	return path;
}

static void unlock_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_mutex_init(&counting_lock, NULL);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, unlock_in_child);
}

/* ---- calls ---- */

#define AT(path) (vb_likely(!is_ours(path)) ? (path) : lead(path, room))

/* A call that takes a path by the name `path`. */
#define LEAD(type, name, params, ...)                    \
	VB_EXPORT type name params;                      \
	VB_EXPORT type name params                       \
	{                                                \
		char room[ROOM];                         \
		return REAL(name)(__VA_ARGS__);          \
	}

/* A mode follows if the flags say so. */
#define LEAD_OPEN(name, params, last, ...)                                        \
	VB_EXPORT int name params;                                                \
	VB_EXPORT int name params                                                 \
	{                                                                         \
		char room[ROOM];                                                  \
		bool led = is_ours(path);                                         \
		mode_t mode = 0;                                                  \
		if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {      \
			va_list args;                                             \
			va_start(args, last);                                     \
			mode = va_arg(args, mode_t);                              \
			va_end(args);                                             \
		}                                                                 \
		int fd = REAL(name)(__VA_ARGS__, mode);                           \
		return vb_likely(!led) ? fd : track(fd, path);                    \
	}

LEAD_OPEN(open, (const char *path, int flags, ...), flags, AT(path), flags)
LEAD_OPEN(open64, (const char *path, int flags, ...), flags, AT(path), flags)
LEAD_OPEN(openat, (int dir, const char *path, int flags, ...), flags, dir, AT(path), flags)
LEAD_OPEN(openat64, (int dir, const char *path, int flags, ...), flags, dir, AT(path), flags)

int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);
#define LEAD_FORTIFIED(name, params, ...)                                         \
	VB_EXPORT int name params                                                 \
	{                                                                         \
		char room[ROOM];                                                  \
		bool led = is_ours(path);                                         \
		int fd = REAL(name)(__VA_ARGS__, flags);                          \
		return vb_likely(!led) ? fd : track(fd, path);                    \
	}

LEAD_FORTIFIED(__open_2, (const char *path, int flags), AT(path))
LEAD_FORTIFIED(__open64_2, (const char *path, int flags), AT(path))
LEAD_FORTIFIED(__openat_2, (int dir, const char *path, int flags), dir, AT(path))
LEAD_FORTIFIED(__openat64_2, (int dir, const char *path, int flags), dir, AT(path))

#define FRESHEN(name, params, where, ...)                \
	VB_EXPORT ssize_t name params;                   \
	VB_EXPORT ssize_t name params                    \
	{                                                \
		if (may_count())                         \
			freshen(fd, where);              \
		return REAL(name)(fd, __VA_ARGS__);      \
	}

ssize_t __read_chk(int fd, void *to, size_t n, size_t to_bytes);
ssize_t __pread_chk(int fd, void *to, size_t n, off_t at, size_t to_bytes);
ssize_t __pread64_chk(int fd, void *to, size_t n, off64_t at, size_t to_bytes);
FRESHEN(read, (int fd, void *to, size_t n), -1, to, n)
FRESHEN(pread, (int fd, void *to, size_t n, off_t at), at, to, n, at)
FRESHEN(pread64, (int fd, void *to, size_t n, off64_t at), at, to, n, at)
FRESHEN(__read_chk, (int fd, void *to, size_t n, size_t to_bytes), -1, to, n, to_bytes)
FRESHEN(__pread_chk, (int fd, void *to, size_t n, off_t at, size_t to_bytes), at, to, n, at, to_bytes)
FRESHEN(__pread64_chk, (int fd, void *to, size_t n, off64_t at, size_t to_bytes), at, to, n, at, to_bytes)

/* C++ reads streams by their descriptors. */
#define LEAD_STREAM(name, params, ...)                   \
	VB_EXPORT FILE *name params;                     \
	VB_EXPORT FILE *name params                      \
	{                                                \
		char room[ROOM];                         \
		bool led = is_ours(path);                \
		FILE *stream = REAL(name)(__VA_ARGS__);  \
		if (vb_unlikely(led) && stream)          \
			track(fileno(stream), path);     \
		return stream;                           \
	}

LEAD_STREAM(fopen, (const char *path, const char *mode), AT(path), mode)
LEAD_STREAM(fopen64, (const char *path, const char *mode), AT(path), mode)
LEAD_STREAM(freopen, (const char *path, const char *mode, FILE *f), AT(path), mode, f)
LEAD_STREAM(freopen64, (const char *path, const char *mode, FILE *f), AT(path), mode, f)

LEAD(DIR *, opendir, (const char *path), AT(path))
LEAD(int, chdir, (const char *path), AT(path))

typedef int select_fn(const struct dirent *);
typedef int compare_fn(const struct dirent **, const struct dirent **);
typedef int select64_fn(const struct dirent64 *);
typedef int compare64_fn(const struct dirent64 **, const struct dirent64 **);
LEAD(int, scandir, (const char *path, struct dirent ***list, select_fn *select, compare_fn *compare),
     AT(path), list, select, compare)
LEAD(int, scandir64, (const char *path, struct dirent64 ***list, select64_fn *select, compare64_fn *compare),
     AT(path), list, select, compare)
LEAD(int, scandirat,
     (int dir, const char *path, struct dirent ***list, select_fn *select, compare_fn *compare), dir,
     AT(path), list, select, compare)
LEAD(int, scandirat64,
     (int dir, const char *path, struct dirent64 ***list, select64_fn *select, compare64_fn *compare), dir,
     AT(path), list, select, compare)

LEAD(int, stat, (const char *path, struct stat *st), AT(path), st)
LEAD(int, stat64, (const char *path, struct stat64 *st), AT(path), st)
LEAD(int, lstat, (const char *path, struct stat *st), AT(path), st)
LEAD(int, lstat64, (const char *path, struct stat64 *st), AT(path), st)
LEAD(int, fstatat, (int dir, const char *path, struct stat *st, int flags), dir, AT(path), st, flags)
LEAD(int, fstatat64, (int dir, const char *path, struct stat64 *st, int flags), dir, AT(path), st, flags)
LEAD(int, statx, (int dir, const char *path, int flags, unsigned mask, struct statx *st), dir, AT(path),
     flags, mask, st)
LEAD(int, statfs, (const char *path, struct statfs *fs), AT(path), fs)
LEAD(int, statfs64, (const char *path, struct statfs64 *fs), AT(path), fs)

/* As programs from before glibc 2.33 call them. */
int __xstat(int version, const char *path, struct stat *st);
int __xstat64(int version, const char *path, struct stat64 *st);
int __lxstat(int version, const char *path, struct stat *st);
int __lxstat64(int version, const char *path, struct stat64 *st);
int __fxstatat(int version, int dir, const char *path, struct stat *st, int flags);
int __fxstatat64(int version, int dir, const char *path, struct stat64 *st, int flags);
LEAD(int, __xstat, (int version, const char *path, struct stat *st), version, AT(path), st)
LEAD(int, __xstat64, (int version, const char *path, struct stat64 *st), version, AT(path), st)
LEAD(int, __lxstat, (int version, const char *path, struct stat *st), version, AT(path), st)
LEAD(int, __lxstat64, (int version, const char *path, struct stat64 *st), version, AT(path), st)
LEAD(int, __fxstatat, (int version, int dir, const char *path, struct stat *st, int flags), version, dir,
     AT(path), st, flags)
LEAD(int, __fxstatat64, (int version, int dir, const char *path, struct stat64 *st, int flags), version, dir,
     AT(path), st, flags)

LEAD(int, access, (const char *path, int mode), AT(path), mode)
LEAD(int, euidaccess, (const char *path, int mode), AT(path), mode)
LEAD(int, eaccess, (const char *path, int mode), AT(path), mode)
LEAD(int, faccessat, (int dir, const char *path, int mode, int flags), dir, AT(path), mode, flags)

LEAD(ssize_t, getxattr, (const char *path, const char *name, void *value, size_t n), AT(path), name, value, n)
LEAD(ssize_t, lgetxattr, (const char *path, const char *name, void *value, size_t n), AT(path), name, value,
     n)
LEAD(ssize_t, listxattr, (const char *path, char *list, size_t n), AT(path), list, n)
LEAD(ssize_t, llistxattr, (const char *path, char *list, size_t n), AT(path), list, n)

/* Links in the tree are relative, or lead out of it. */
LEAD(ssize_t, readlink, (const char *path, char *to, size_t n), AT(path), to, n)
LEAD(ssize_t, readlinkat, (int dir, const char *path, char *to, size_t n), dir, AT(path), to, n)
ssize_t __readlink_chk(const char *path, char *to, size_t n, size_t to_bytes);
ssize_t __readlinkat_chk(int dir, const char *path, char *to, size_t n, size_t to_bytes);
LEAD(ssize_t, __readlink_chk, (const char *path, char *to, size_t n, size_t to_bytes), AT(path), to, n,
     to_bytes)
LEAD(ssize_t, __readlinkat_chk, (int dir, const char *path, char *to, size_t n, size_t to_bytes), dir,
     AT(path), to, n, to_bytes)

/* ---- calls that return a path ---- */

#define LEAD_TELL(name, params, ...)                     \
	VB_EXPORT char *name params;                     \
	VB_EXPORT char *name params                      \
	{                                                \
		char room[ROOM];                         \
		(void)room;                              \
		return told(REAL(name)(__VA_ARGS__));    \
	}

char *__realpath_chk(const char *path, char *to, size_t to_bytes);
char *__getcwd_chk(char *to, size_t n, size_t to_bytes);
LEAD_TELL(realpath, (const char *path, char *to), AT(path), to)
LEAD_TELL(__realpath_chk, (const char *path, char *to, size_t to_bytes), AT(path), to, to_bytes)
LEAD_TELL(canonicalize_file_name, (const char *path), AT(path))
LEAD_TELL(getcwd, (char *to, size_t n), to, n)
LEAD_TELL(__getcwd_chk, (char *to, size_t n, size_t to_bytes), to, n, to_bytes)
LEAD_TELL(get_current_dir_name, (void))

#define LEAD_GLOB(name, glob_type)                                                                           \
	VB_EXPORT int name(const char *path, int flags, int (*failed)(const char *, int), glob_type *found); \
	VB_EXPORT int name(const char *path, int flags, int (*failed)(const char *, int), glob_type *found)  \
	{                                                                                                    \
		char room[ROOM];                                                                             \
		if (vb_likely(!is_ours(path)))                                                               \
			return REAL(name)(path, flags, failed, found);                                       \
		int err = REAL(name)(lead(path, room), flags, failed, found);                                \
		size_t skipped = flags & GLOB_DOOFFS ? found->gl_offs : 0;                                   \
		for (size_t i = 0; !err && i < found->gl_pathc; i++)                                         \
			tell(found->gl_pathv[skipped + i]);                                                  \
		return err;                                                                                  \
	}

LEAD_GLOB(glob, glob_t)
LEAD_GLOB(glob64, glob64_t)
