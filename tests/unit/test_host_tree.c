/* SPDX-License-Identifier: BSD-2-Clause */
/* A tree of files that processes write together, and how seldom its files are opened. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../sanitized.h"
#include "host/host.h"
#include "host/tree.h"

static unsigned opened; /* since it was set to 0 */

int openat(int folder, const char *path, int flags, ...)
{
	va_list args;
	va_start(args, flags);
	mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
	va_end(args);
	opened++;
	return (int)syscall(SYS_openat, folder, path, flags, mode);
}

static bool forks; /* another thread forks while the root is looked at */
static int status_of_child = -1;

static void *fork_and_look(void *unused)
{
	pid_t child = fork();
	if (!child) {
		alarm(60);
		_exit(!vb_tree_root());
	}
	waitpid(child, &status_of_child, 0);
	return NULL;
}

static unsigned removals; /* so often another process removes the root that is looked at */

int access(const char *path, int mode)
{
	if (forks) {
		pthread_t thread;
		forks = false;
		assert_int_equal(pthread_create(&thread, NULL, fork_and_look, NULL), 0);
		pthread_join(thread, NULL);
	}
	if (removals) {
		removals--;
		assert_int_equal(rmdir(path), 0);
	}
	return (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
}

static char base[] = "/tmp/tree.XXXXXX";

static int make_base(void **state) { return !mkdtemp(base) || setenv("XDG_RUNTIME_DIR", base, 1); }

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static int remove_base(void **state) { return nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

/* Which entries a whole tree has. */
struct wanted {
	const char *name, *count; /* of a file and of a counter */
	bool has_more;
};

static void write_whole(const struct wanted *w)
{
	struct vb_tree tree = { .entries = NULL };
	vb_tree_add(&tree, VB_TREE_FILE, w->name, "device/name");
	vb_tree_add(&tree, VB_TREE_LINK, "../device", "class/device");
	vb_tree_add(&tree, VB_TREE_COUNTER, w->count, "device/count");
	if (w->has_more)
		vb_tree_add(&tree, VB_TREE_FILE, "more", "device/more/%s", "text");
	vb_tree_write(&tree, true);
	vb_tree_free(&tree);
}

static const char *path_of(const char *name)
{
	static char path[2 * VB_TREE_PATH];
	snprintf(path, sizeof(path), "%s/%s", vb_tree_root(), name);
	return path;
}

static bool has(const char *name, const char *text)
{
	char now[64] = "";
	FILE *f = fopen(path_of(name), "re");
	if (!f)
		return false;
	bool is_read = fgets(now, sizeof(now), f) != NULL;
	fclose(f);
	now[strcspn(now, "\n")] = 0;
	return is_read && !strcmp(now, text);
}

static void assert_has(const struct wanted *w)
{
	assert_true(has("device/name", w->name));
	assert_true(has("class/device/name", w->name));
	assert_true(has("device/count", w->count));
	assert_int_equal(has("device/more/text", "more"), w->has_more);
}

static void tree__is_what_was_written_last(void **state)
{
	const struct wanted steps[] = {
		{ "a", "1", true },  { "a", "1", true },  { "b", "1", true },  { "b", "2", false },
		{ "b", "2", false }, { "b", "2", true },  { "a", "10", true },
	};
	for (size_t i = 0; i < VB_ARRAY_LEN(steps); i++) {
		write_whole(&steps[i]);
		assert_has(&steps[i]);
	}
}

/* Also one that is not there. */
static void tree__keeps_what_is_in_a_kept_folder(void **state)
{
	struct vb_tree tree = { .entries = NULL };
	write_whole(&(struct wanted){ "a", "1", true });
	vb_tree_add(&tree, VB_TREE_FILE, "b", "device/name");
	vb_tree_add(&tree, VB_TREE_KEPT, "", "device/more");
	vb_tree_add(&tree, VB_TREE_KEPT, "", "device/none");
	vb_tree_write(&tree, true);
	vb_tree_free(&tree);
	assert_true(has("device/name", "b"));
	assert_true(has("device/more/text", "more"));
	assert_false(has("device/count", "1"));
	assert_int_not_equal(access(path_of("device/none"), F_OK), 0);
	write_whole(&(struct wanted){ "a", "1", false });
	assert_has(&(struct wanted){ "a", "1", false });
}

/* Of what has not changed only the counter is compared, and the root opened by open(2). */
static void tree__files_that_are_known_are_not_opened(void **state)
{
	const struct wanted same = { "a", "1", true };
	write_whole(&same);
	write_whole(&same);
	opened = 0;
	write_whole(&same);
	assert_true(opened <= 1);
	assert_has(&same);
}

static void tree__counters_of_others_are_replaced_at_once(void **state)
{
	const struct wanted same = { "a", "1", true };
	write_whole(&same);
	assert_int_equal(truncate(path_of("device/count"), 0), 0);
	write_whole(&same);
	assert_has(&same);
}

static void tree__what_others_remove_comes_back(void **state)
{
	const struct wanted same = { "a", "1", true };
	write_whole(&same);
	assert_int_equal(unlink(path_of("device/name")), 0);
	while (!has("device/name", "a")) {
		usleep(50000);
		write_whole(&same);
	}
	assert_has(&same);
}

/* A process of another namespace takes it for unused while this one begins. */
static void tree__root_is_made_again(void **state)
{
	char other[sizeof(base) + 8];

	snprintf(other, sizeof(other), "%s/other", base);
	assert_int_equal(mkdir(other, 0700), 0);
	assert_int_equal(setenv("XDG_RUNTIME_DIR", other, 1), 0);
	removals = 10;
	assert_memory_equal(vb_tree_root(), other, strlen(other));
	assert_int_equal(removals, 0);
	assert_int_equal(setenv("XDG_RUNTIME_DIR", base, 1), 0);
	assert_non_null(vb_tree_root());
}

static void tree__root_is_found_by_a_child_of_that_moment(void **state)
{
	char other[sizeof(base) + 8];

	snprintf(other, sizeof(other), "%s/child", base);
	assert_int_equal(mkdir(other, 0700), 0);
	assert_int_equal(setenv("XDG_RUNTIME_DIR", other, 1), 0);
	forks = true;
	assert_memory_equal(vb_tree_root(), other, strlen(other));
	assert_int_equal(status_of_child, 0);
	assert_int_equal(setenv("XDG_RUNTIME_DIR", base, 1), 0);
	assert_non_null(vb_tree_root());
}

/* Of another namespace, by a process that was killed while it made a file. */
static void tree__of_who_was_killed_goes(void **state)
{
	char other[sizeof(base) + 8], left[sizeof(other) + 32], file[sizeof(left) + 8];

	snprintf(other, sizeof(other), "%s/killed", base);
	assert_int_equal(mkdir(other, 0700), 0);
	snprintf(left, sizeof(left), "%s/verbatim-%u", other, (unsigned)geteuid());
	assert_int_equal(mkdir(left, 0700), 0);
	strcat(left, "/1");
	assert_int_equal(mkdir(left, 0700), 0);
	snprintf(file, sizeof(file), "%s/.new-7", left);
	assert_int_equal(symlink("nowhere", file), 0);
	assert_int_equal(setenv("XDG_RUNTIME_DIR", other, 1), 0);
	assert_non_null(vb_tree_root());
	assert_int_equal(rmdir(left), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(setenv("XDG_RUNTIME_DIR", base, 1), 0);
	assert_non_null(vb_tree_root());
}

static bool leads_to(int fd, const char *end)
{
	char link[64], path[2 * VB_TREE_PATH];
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof(path));
	return n >= (ssize_t)strlen(end) && !memcmp(path + n - strlen(end), end, strlen(end));
}

/* The descriptor of the lock; -1: this process has none. */
static int find_lock(void)
{
	enum { MOST = 1024 };
	for (int fd = 0; fd < MOST; fd++)
		if (leads_to(fd, "/.users"))
			return fd;
	return -1;
}

/* Would a process of another namespace remove the tree? */
static bool is_unused(void)
{
	int fd = open(path_of(".users"), O_RDWR | O_CLOEXEC);
	bool is_free = !flock(fd, LOCK_EX | LOCK_NB);
	assert_true(fd >= 0);
	close(fd);
	return is_free;
}

/* The program closes descriptors that it does not know, and uses their numbers. */
static void tree__stays_locked_when_the_program_closes_descriptors(void **state)
{
	char other[sizeof(base) + 8];
	assert_non_null(vb_tree_root());
	int lock = find_lock(), own = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_true(own >= 0);
	assert_int_equal(dup3(own, lock, O_CLOEXEC), lock);
	assert_non_null(vb_tree_root());
	assert_false(is_unused());
	assert_true(leads_to(lock, "/dev/null"));
	/* the next tree: the lock on the last one is given up, and nothing else */
	close(own);
	int second = find_lock();
	own = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_int_equal(dup3(own, second, O_CLOEXEC), second);
	snprintf(other, sizeof(other), "%s/closed", base);
	assert_int_equal(mkdir(other, 0700), 0);
	assert_int_equal(setenv("XDG_RUNTIME_DIR", other, 1), 0);
	assert_memory_equal(vb_tree_root(), other, strlen(other));
	assert_true(leads_to(second, "/dev/null"));
	close(own);
	close(lock);
	close(second);
	assert_int_equal(setenv("XDG_RUNTIME_DIR", base, 1), 0);
	assert_non_null(vb_tree_root());
}

static void tree__leaves_low_numbers_to_the_program(void **state)
{
	assert_non_null(vb_tree_root());
	assert_true(find_lock() >= VB_FD_LEAST);
}

/* The kernel ends a process that writes beyond that. */
static void tree__nothing_is_written_beyond_the_limit_of_files(void **state)
{
	const struct rlimit none = { 0, 0 };
	int status;
	write_whole(&(struct wanted){ "a", "1", true });
	pid_t child = fork();
	if (!child) {
		if (setrlimit(RLIMIT_FSIZE, &none))
			_exit(2);
		write_whole(&(struct wanted){ "b", "22", true });
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_has(&(struct wanted){ "a", "1", true });
}

#if !SANITIZED /* sanitizers have a free() of their own */
void __libc_free(void *p);
enum { BYTES = 256 * sizeof(struct vb_tree_entry) }; /* that a tree takes at first */
static bool forks_when_freed;

/* Memory that the parent has just freed is in use again, and stays so. */
static int written_in_child(void)
{
	void *volatile own = malloc(BYTES);
	alarm(60);
	memset(own, 'x', BYTES);
	write_whole(&(struct wanted){ "b", "2", false });
	free(own);
	return has("device/name", "b");
}

__attribute__((visibility("default"))) void free(void *p)
{
	bool is_tree = forks_when_freed && p && malloc_usable_size(p) >= BYTES;
	__libc_free(p);
	if (!is_tree)
		return;
	forks_when_freed = false;
	status_of_child = -1;
	pid_t child = fork();
	if (!child)
		_exit(!written_in_child());
	waitpid(child, &status_of_child, 0);
}

/* As if another thread forked while this one forgets what it knew. */
static void tree__is_written_by_a_child_of_that_moment(void **state)
{
	const struct wanted same = { "a", "1", true };
	write_whole(&same);
	forks_when_freed = true;
	write_whole(&same);
	assert_false(forks_when_freed);
	assert_int_equal(status_of_child, 0);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tree__is_what_was_written_last),
		cmocka_unit_test(tree__keeps_what_is_in_a_kept_folder),
		cmocka_unit_test(tree__files_that_are_known_are_not_opened),
		cmocka_unit_test(tree__counters_of_others_are_replaced_at_once),
		cmocka_unit_test(tree__what_others_remove_comes_back),
		cmocka_unit_test(tree__root_is_made_again),
		cmocka_unit_test(tree__root_is_found_by_a_child_of_that_moment),
		cmocka_unit_test(tree__of_who_was_killed_goes),
		cmocka_unit_test(tree__stays_locked_when_the_program_closes_descriptors),
		cmocka_unit_test(tree__leaves_low_numbers_to_the_program),
		cmocka_unit_test(tree__nothing_is_written_beyond_the_limit_of_files),
#if !SANITIZED
		cmocka_unit_test(tree__is_written_by_a_child_of_that_moment),
#endif
	};
	return cmocka_run_group_tests_name("host_tree", tests, make_base, remove_base);
}
