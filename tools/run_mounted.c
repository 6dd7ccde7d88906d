/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that make their system calls themselves, as Go's and static ones do: no library can lead them to
 * the devices' files. Such a program gets a mount namespace of its own instead, in which the tree of
 * src/answers stands among the folders of /sys. A helper keeps the tree up to date until the program ends.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"

enum { REFRESH_MS = 500, MOST_HEADERS = 64, MOST_NOTES = 4096, GO_BUILD_ID = 4 };

/* ---- which programs ---- */

static size_t padded(size_t n) { return (n + 3) & ~(size_t)3; }

/* Go's linker leaves a note of its own in each program. */
static bool has_go_note(const char *notes, size_t bytes)
{
	ElfW(Nhdr) note;

	for (size_t at = 0; at + sizeof(note) <= bytes;) {
		memcpy(&note, notes + at, sizeof(note));
		at += sizeof(note);
		if (note.n_namesz > bytes - at)
			return false;
		if (note.n_type == GO_BUILD_ID && note.n_namesz == 4 && memcmp(notes + at, "Go\0", 4) == 0)
			return true;
		at += padded(note.n_namesz) + padded(note.n_descsz);
	}
	return false;
}

static bool is_go(int fd, const ElfW(Phdr) *header)
{
	char notes[MOST_NOTES];
	size_t bytes = header->p_filesz < sizeof(notes) ? header->p_filesz : sizeof(notes);
	ssize_t got = pread(fd, notes, bytes, (off_t)header->p_offset);

	return got > 0 && has_go_note(notes, (size_t)got);
}

static bool makes_own_calls(int fd)
{
	ElfW(Phdr) headers[MOST_HEADERS];
	ElfW(Ehdr) elf;
	bool is_static = true, go = false;

	if (pread(fd, &elf, sizeof(elf), 0) != sizeof(elf) || memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0 ||
	    elf.e_phentsize != sizeof(headers[0]) || elf.e_phnum > MOST_HEADERS)
		return false;
	ssize_t bytes = (ssize_t)(elf.e_phnum * sizeof(headers[0]));
	if (pread(fd, headers, (size_t)bytes, (off_t)elf.e_phoff) != bytes)
		return false;
	for (unsigned i = 0; i < elf.e_phnum; i++) {
		is_static &= headers[i].p_type != PT_INTERP;
		go |= headers[i].p_type == PT_NOTE && is_go(fd, &headers[i]);
	}
	return is_static || go;
}

bool needs_mounts(const char *program)
{
	char path[PATH_MAX];
	/* no pipe, which would be waited for */
	bool is_file = search_path(program, path) && is_executable(path);
	int fd = is_file ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	bool needs = fd >= 0 && makes_own_calls(fd);

	if (fd >= 0)
		close(fd);
	return needs;
}

/* ---- the helper ---- */

typedef const char *root_fn(void);

static root_fn *find_root_function(void)
{
	char libdir[PATH_MAX], path[PATH_MAX + 64];

	if (!find_libraries(libdir))
		return NULL;
	snprintf(path, sizeof(path), "%s/libverbatim-answers.so", libdir);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	return library ? (root_fn *)(uintptr_t)dlsym(library, "vb_answers_root") : NULL;
}

/* It holds nothing of the program's: no terminal, no pipe that somebody reads to its end. */
static void let_go(int program, int told)
{
	int null = open("/dev/null", O_RDWR);

	setsid();
	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	dup2(program, 3);
	dup2(told, 4);
	syscall(__NR_close_range, 5, ~0U, 0); /* the C library's own name for it is newer than glibc 2.31 */
	prctl(PR_SET_NAME, "verbatim-sysfs");
}

__attribute__((noreturn)) static void help(int program, int told)
{
	let_go(program, told);
	struct pollfd end = { .fd = 3, .events = POLLIN };
	root_fn *root_of = find_root_function();
	const char *root = root_of ? root_of() : NULL;

	if (!root || write(4, root, strlen(root)) < 0)
		_exit(1);
	close(4);
	while (poll(&end, 1, REFRESH_MS) == 0)
		root_of();
	_exit(0);
}

/* As a child of nobody's, so that the program has no child that it does not know. */
static void start_helper(int program, int told)
{
	pid_t child = fork();

	if (child == 0) {
		if (fork() == 0)
			help(program, told);
		_exit(0);
	}
	if (child > 0)
		waitpid(child, NULL, 0);
}

/* The tree's root, which a helper keeps up to date from now on until this process ends. */
static bool keep_tree(char root[PATH_MAX])
{
	int program = (int)syscall(SYS_pidfd_open, getpid(), 0), ends[2];
	ssize_t n;

	if (program < 0 || pipe2(ends, O_CLOEXEC) != 0)
		return false;
	start_helper(program, ends[1]);
	close(program);
	close(ends[1]);
	n = read(ends[0], root, PATH_MAX - 1);
	close(ends[0]);
	root[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* ---- the mounts ---- */

static bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return done;
}

/* A user who may not mount may do so in a user namespace, where he keeps his number. False: maybe halfway. */
static bool leave_mounts(void)
{
	char uid[64], gid[64];

	snprintf(uid, sizeof(uid), "%u %u 1\n", (unsigned)geteuid(), (unsigned)geteuid());
	snprintf(gid, sizeof(gid), "%u %u 1\n", (unsigned)getegid(), (unsigned)getegid());
	if (unshare(CLONE_NEWNS) != 0 &&
	    (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || !write_text("/proc/self/setgroups", "deny") ||
	     !write_text("/proc/self/uid_map", uid) || !write_text("/proc/self/gid_map", gid)))
		return false;
	return mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0;
}

/*
 * Whether that works shows in a child: where a user namespace can be made but not used, as Ubuntu's AppArmor
 * has it, a process that is in it has lost its number, and cannot go back.
 */
static bool may_leave_mounts(void)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(leave_mounts() ? 0 : errno);
	if (child < 0 || waitpid(child, &status, 0) != child)
		return false;
	errno = WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
	return status == 0;
}

/* A folder of `from` in a folder of the same name. What is there already is covered. */
static bool bind_one(const char *from, const char *to, const char *name)
{
	char source[PATH_MAX + 300], target[PATH_MAX + 300];

	snprintf(source, sizeof(source), "%s/%s", from, name);
	snprintf(target, sizeof(target), "%s/%s", to, name);
	return (mkdir(target, 0755) == 0 || errno == EEXIST) &&
	       mount(source, target, NULL, MS_BIND | MS_REC, NULL) == 0;
}

/* All folders of `from` whose names begin with a word. */
static bool bind_all(const char *from, const char *to, const char *word)
{
	DIR *dir = opendir(from);
	struct dirent *entry;
	struct stat st;
	bool good = dir;

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' && strncmp(entry->d_name, word, strlen(word)) == 0 &&
		    fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
			good &= bind_one(from, to, entry->d_name);
	if (dir)
		closedir(dir);
	return good;
}

/* Folders of `place` as they are, and ours beside them. */
static bool add_ours(const char *root, const char *place)
{
	char real[64], ours[PATH_MAX + 64], to[64];
	int fd;
	bool good;

	snprintf(to, sizeof(to), "/sys/%s", place);
	snprintf(ours, sizeof(ours), "%s/%s", root, place);
	fd = open(to, O_PATH | O_DIRECTORY | O_CLOEXEC);
	snprintf(real, sizeof(real), "/proc/self/fd/%d", fd);
	good = fd >= 0 && mount("tmpfs", to, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755") == 0 &&
	       bind_all(real, to, "") && bind_all(ours, to, "infiniband");
	if (fd >= 0)
		close(fd);
	return good;
}

bool mount_sysfs(void)
{
	char root[PATH_MAX];

	return may_leave_mounts() && keep_tree(root) && leave_mounts() && add_ours(root, "devices/virtual") &&
	       add_ours(root, "class");
}
