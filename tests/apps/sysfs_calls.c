/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each file call that may name a device in sysfs does, by its own name in libc: the calls of programs built
 * with and without large file support, with and without fortification, and before glibc 2.33. One line of TAP
 * per call. Needs `verbatim run` in front.
 */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define CLASS  "/sys/class/infiniband"
#define DEVICE CLASS "/vb_lo"
#define FILE_  DEVICE "/node_type"
#define TEXT   "1: CA\n"

extern int __open_2(const char *, int);
extern int __open64_2(const char *, int);
extern int __openat_2(int, const char *, int);
extern int __openat64_2(int, const char *, int);
extern ssize_t __read_chk(int, void *, size_t, size_t);
extern ssize_t __pread_chk(int, void *, size_t, off_t, size_t);
extern ssize_t __pread64_chk(int, void *, size_t, off64_t, size_t);
extern ssize_t __readlink_chk(const char *, char *, size_t, size_t);
extern ssize_t __readlinkat_chk(int, const char *, char *, size_t, size_t);
extern char *__realpath_chk(const char *, char *, size_t);
extern char *__getcwd_chk(char *, size_t, size_t);
/* Where such programs have these from: the first version of the architecture's glibc, or when they came. */
#if defined(__x86_64__)
#define STAT_NODE   "GLIBC_2.2.5"
#define STATAT_NODE "GLIBC_2.4"
#else
#define STAT_NODE   "GLIBC_2.17"
#define STATAT_NODE "GLIBC_2.17"
#endif
__asm__(".symver old_xstat, __xstat@" STAT_NODE);
__asm__(".symver old_xstat64, __xstat64@" STAT_NODE);
__asm__(".symver old_lxstat, __lxstat@" STAT_NODE);
__asm__(".symver old_lxstat64, __lxstat64@" STAT_NODE);
__asm__(".symver old_fxstatat, __fxstatat@" STATAT_NODE);
__asm__(".symver old_fxstatat64, __fxstatat64@" STATAT_NODE);
extern int old_xstat(int, const char *, struct stat *);
extern int old_xstat64(int, const char *, struct stat64 *);
extern int old_lxstat(int, const char *, struct stat *);
extern int old_lxstat64(int, const char *, struct stat64 *);
extern int old_fxstatat(int, int, const char *, struct stat *, int);
extern int old_fxstatat64(int, int, const char *, struct stat64 *, int);

static unsigned count, failed;

static void report(const char *what, int good)
{
	failed += !good;
	printf("%sok %u - %s\n", good ? "" : "not ", ++count, what);
	if (!good)
		printf("# %s\n", strerror(errno));
}

#define REPORT(good) report(#good, good)

/* ---- what a call gave ---- */

static int shows(int fd)
{
	char text[64] = "";
	int good = fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && !strcmp(text, TEXT);
	close(fd);
	return good;
}

static int streams(FILE *f)
{
	char text[64] = "";
	int good = f && fgets(text, sizeof(text), f) && !strcmp(text, TEXT);
	if (f)
		fclose(f);
	return good;
}

static int lists(DIR *dir)
{
	int good = 0;
	for (struct dirent *d; dir && (d = readdir(dir));)
		good |= !strcmp(d->d_name, "vb_lo");
	if (dir)
		closedir(dir);
	return good;
}

static struct stat st;
static struct stat64 st64;
static struct statx stx;
static struct statfs fs;
static struct statfs64 fs64;
static struct dirent **found;
static struct dirent64 **found64;
static glob_t globbed;
static glob64_t globbed64;
static char path[PATH_MAX];

static int is_file(int err) { return !err && S_ISREG(st.st_mode) && st.st_size == strlen(TEXT); }
static int is_file64(int err) { return !err && S_ISREG(st64.st_mode) && st64.st_size == strlen(TEXT); }
static int is_link(int err) { return !err && S_ISLNK(st.st_mode); }
static int is_link64(int err) { return !err && S_ISLNK(st64.st_mode); }
static int says(const char *got, const char *want) { return got && !strcmp(got, want); }
static int leads(ssize_t n) { return n == 38 && !memcmp(path, "../../devices/virtual/infiniband/vb_lo", 38); }

/* ---- calls ---- */

static void opening(void)
{
	REPORT(shows(open(FILE_, O_RDONLY)));
	REPORT(shows(open64(FILE_, O_RDONLY)));
	REPORT(shows(openat(AT_FDCWD, FILE_, O_RDONLY)));
	REPORT(shows(openat64(AT_FDCWD, FILE_, O_RDONLY)));
	REPORT(shows(__open_2(FILE_, O_RDONLY)));
	REPORT(shows(__open64_2(FILE_, O_RDONLY)));
	REPORT(shows(__openat_2(AT_FDCWD, FILE_, O_RDONLY)));
	REPORT(shows(__openat64_2(AT_FDCWD, FILE_, O_RDONLY)));
	REPORT(streams(fopen(FILE_, "r")));
	REPORT(streams(fopen64(FILE_, "re")));
	REPORT(streams(freopen(FILE_, "r", fopen("/dev/null", "r"))));
	REPORT(streams(freopen64(FILE_, "r", fopen("/dev/null", "r"))));
	int dir = open(DEVICE, O_RDONLY | O_DIRECTORY);
	REPORT(shows(openat(dir, "node_type", O_RDONLY)));
	REPORT(openat(dir, "node_typ", O_RDONLY) < 0 && errno == ENOENT);
	REPORT(open(CLASS "/vb_nonsense", O_RDONLY) < 0 && errno == ENOENT);
	REPORT(open("/sys/class/infinibandit", O_RDONLY) < 0 && errno == ENOENT);
	REPORT(open(DEVICE, O_WRONLY) < 0 && errno == EISDIR);
}

static void listing(void)
{
	REPORT(lists(opendir(CLASS)));
	REPORT(lists(opendir(CLASS "/")));
	REPORT(lists(opendir(DEVICE "/../")));
	REPORT(lists(fdopendir(open(CLASS, O_RDONLY | O_DIRECTORY))));
	REPORT(scandir(CLASS, &found, NULL, alphasort) >= 3);
	REPORT(scandir64(CLASS, &found64, NULL, alphasort64) >= 3);
	REPORT(scandirat(AT_FDCWD, CLASS, &found, NULL, alphasort) >= 3);
	REPORT(scandirat64(AT_FDCWD, CLASS, &found64, NULL, alphasort64) >= 3);
	REPORT(!glob(CLASS "/*lo/ports/*/state", 0, NULL, &globbed) && globbed.gl_pathc == 1 &&
	       says(globbed.gl_pathv[0], DEVICE "/ports/1/state"));
	REPORT(!glob(CLASS "_verbs/*/ibdev", GLOB_APPEND, NULL, &globbed) && globbed.gl_pathc > 1 &&
	       says(globbed.gl_pathv[0], DEVICE "/ports/1/state") &&
	       !strncmp(globbed.gl_pathv[1], CLASS, strlen(CLASS)));
	globbed64.gl_offs = 2;
	REPORT(!glob64(CLASS "/vb_l?", GLOB_DOOFFS, NULL, &globbed64) && says(globbed64.gl_pathv[2], DEVICE));
	REPORT(glob(CLASS "/mlx5_*", 0, NULL, &globbed) == GLOB_NOMATCH);
}

static void asking(void)
{
	REPORT(is_file(stat(FILE_, &st)));
	REPORT(is_file64(stat64(FILE_, &st64)));
	REPORT(is_link(lstat(DEVICE, &st)));
	REPORT(is_link64(lstat64(DEVICE, &st64)));
	REPORT(is_file(fstatat(AT_FDCWD, FILE_, &st, 0)));
	REPORT(is_link64(fstatat64(AT_FDCWD, DEVICE, &st64, AT_SYMLINK_NOFOLLOW)));
	REPORT(!statx(AT_FDCWD, FILE_, 0, STATX_SIZE, &stx) && stx.stx_size == strlen(TEXT));
	REPORT(is_file(old_xstat(1, FILE_, &st)));
	REPORT(is_file64(old_xstat64(1, FILE_, &st64)));
	REPORT(is_link(old_lxstat(1, DEVICE, &st)));
	REPORT(is_link64(old_lxstat64(1, DEVICE, &st64)));
	REPORT(is_file(old_fxstatat(1, AT_FDCWD, FILE_, &st, 0)));
	REPORT(is_file64(old_fxstatat64(1, AT_FDCWD, FILE_, &st64, 0)));
	REPORT(!statfs(FILE_, &fs));
	REPORT(!statfs64(FILE_, &fs64));
	REPORT(!access(FILE_, R_OK));
	REPORT(!euidaccess(FILE_, R_OK));
	REPORT(!eaccess(FILE_, R_OK));
	REPORT(!faccessat(AT_FDCWD, FILE_, R_OK, 0));
	REPORT(getxattr(FILE_, "user.none", path, sizeof(path)) < 0 && errno != ENOENT);
	REPORT(lgetxattr(DEVICE, "user.none", path, sizeof(path)) < 0 && errno != ENOENT);
	REPORT(listxattr(FILE_, path, sizeof(path)) >= 0);
	REPORT(llistxattr(DEVICE, path, sizeof(path)) >= 0);
}

static void naming(void)
{
	REPORT(leads(readlink(DEVICE, path, sizeof(path))));
	REPORT(leads(readlinkat(AT_FDCWD, DEVICE, path, sizeof(path))));
	REPORT(leads(__readlink_chk(DEVICE, path, sizeof(path), sizeof(path))));
	REPORT(leads(__readlinkat_chk(AT_FDCWD, DEVICE, path, sizeof(path), sizeof(path))));
	REPORT(says(realpath(FILE_, path), "/sys/devices/virtual/infiniband/vb_lo/node_type"));
	REPORT(says(realpath(FILE_, NULL), "/sys/devices/virtual/infiniband/vb_lo/node_type"));
	REPORT(says(__realpath_chk(FILE_, path, sizeof(path)),
		    "/sys/devices/virtual/infiniband/vb_lo/node_type"));
	REPORT(says(canonicalize_file_name(CLASS), CLASS));
	REPORT(says(realpath("/sys/devices/virtual/infiniband/vb_lo", NULL),
		    "/sys/devices/virtual/infiniband/vb_lo"));
	REPORT(!realpath(CLASS "/vb_nonsense", NULL) && errno == ENOENT);
	REPORT(says(realpath("/proc/../usr", path), "/usr"));
	REPORT(!chdir(CLASS));
	REPORT(says(getcwd(path, sizeof(path)), CLASS));
	REPORT(says(__getcwd_chk(path, sizeof(path), sizeof(path)), CLASS));
	REPORT(says(get_current_dir_name(), CLASS));
	REPORT(shows(open("vb_lo/node_type", O_RDONLY)));
	REPORT(getcwd(path, 4) == NULL && errno == ERANGE);
	REPORT(!chdir("/dev/infiniband") && says(getcwd(path, sizeof(path)), "/dev/infiniband"));
	REPORT(!chdir("/"));
	REPORT(says(getcwd(path, sizeof(path)), "/"));
}

/* A mode reaches the kernel, and errno of before is not touched by a call that succeeds. */
static void elsewhere(void)
{
	const char *folder = getenv("TMPDIR");
	char name[4096];
	snprintf(name, sizeof(name), "%s/sysfs-calls-XXXXXX", folder ? folder : ".");
	close(mkstemp(name));
	unlink(name);
	umask(0);
	int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0640);
	REPORT(fd >= 0 && !fstat(fd, &st) && (st.st_mode & 07777) == 0640);
	errno = EXDEV;
	REPORT(shows(open(FILE_, O_RDONLY)) && errno == EXDEV);
	close(fd);
	unlink(name);
}

/* Of the UDP datagrams that were sent; it is read again from one descriptor. */
static long long sent(int fd, ssize_t (*reads)(int, void *, size_t))
{
	char text[32] = "";
	return reads(fd, text, sizeof(text) - 1) > 0 ? atoll(text) : -1;
}

static ssize_t read_again(int fd, void *to, size_t n)
{
	return lseek(fd, 0, SEEK_SET) ? -1 : read(fd, to, n);
}
static ssize_t pread_32(int fd, void *to, size_t n) { return pread(fd, to, n, 0); }
static ssize_t pread_64(int fd, void *to, size_t n) { return pread64(fd, to, n, 0); }
static ssize_t read_fortified(int fd, void *to, size_t n)
{
	return lseek(fd, 0, SEEK_SET) ? -1 : __read_chk(fd, to, n, n);
}
static ssize_t pread_fortified(int fd, void *to, size_t n) { return __pread_chk(fd, to, n, 0, n); }
static ssize_t pread64_fortified(int fd, void *to, size_t n) { return __pread64_chk(fd, to, n, 0, n); }

static int send_datagram(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(9),
				  .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int udp = socket(AF_INET, SOCK_DGRAM, 0);
	int good = sendto(udp, "", 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1;
	close(udp);
	return good;
}

static int moves(int fd, ssize_t (*reads)(int, void *, size_t))
{
	long long before = sent(fd, reads);
	return before >= 0 && send_datagram() && sent(fd, reads) > before;
}

/* The file is looked at by another name, which updates nothing. */
static int is_of_one_moment_in_pieces(int fd)
{
	char name[64], text[64] = "", whole[64] = "";
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	int same = open(name, O_RDONLY);
	for (int i = 0; i < 10; i++) /* its number gets two digits */
		send_datagram();
	int good = !lseek(fd, 0, SEEK_SET) && read(fd, text, 1) == 1 &&
		   pread(same, whole, sizeof(whole) - 1, 0) > 0 && send_datagram() &&
		   read(fd, text + 1, sizeof(text) - 2) > 0 && !strcmp(text, whole);
	close(same);
	return good;
}

static void reading_again(void)
{
	int fd = open(DEVICE "/ports/1/hw_counters/sent_pkts", O_RDONLY);
	REPORT(moves(fd, read_again));
	REPORT(moves(fd, pread_32));
	REPORT(moves(fd, pread_64));
	REPORT(moves(fd, read_fortified));
	REPORT(moves(fd, pread_fortified));
	REPORT(moves(fd, pread64_fortified));
	REPORT(is_of_one_moment_in_pieces(fd));
	FILE *stream = fopen(DEVICE "/ports/1/hw_counters/sent_pkts", "r");
	REPORT(stream && moves(fileno(stream), read_again));
	if (stream)
		fclose(stream);
	close(fd);
	REPORT(open("/dev/zero", O_RDONLY) == fd && !sent(fd, pread_32)); /* the number's next file */
	REPORT(close(fd) == 0 && sent(fd, pread_32) == -1 && errno == EBADF);
	for (int i = 0; i < 100; i++) /* more than are kept in mind */
		fd = open(DEVICE "/ports/1/counters/port_xmit_data", O_RDONLY);
	REPORT(sent(fd, pread_32) >= 0);
}

static int in_child(void)
{
	int status;
	pid_t pid = fork();
	if (!pid)
		_exit(shows(open(FILE_, O_RDONLY)) ? 0 : 1);
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

static void *open_cancelled(void *unused)
{
	pthread_cancel(pthread_self());
	close(open(DEVICE "/ports/1/hw_counters/sent_pkts", O_RDONLY));
	return NULL;
}

/* A thread that is cancelled in open(2) leaves no lock behind: the next call would wait for ever. */
static int behind_a_cancelled_thread(void)
{
	pthread_t thread;
	void *result;
	if (pthread_create(&thread, NULL, open_cancelled, NULL) || pthread_join(thread, &result))
		return 0;
	alarm(60);
	int good = result == PTHREAD_CANCELED && shows(open(FILE_, O_RDONLY));
	alarm(0);
	return good;
}

/* ---- what happens while the preloaded library has a lock ---- */

static _Thread_local void (*in_next_lock)(void); /* called when this thread has it */

__attribute__((visibility("default"))) int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	static int (*real)(pthread_mutex_t *);
	if (!real)
		real = (int (*)(pthread_mutex_t *))(uintptr_t)dlsym(RTLD_NEXT, "pthread_mutex_lock");
	int err = real(mutex);
	void (*call)(void) = in_next_lock;
	in_next_lock = NULL;
	if (call)
		call();
	return err;
}

static int ends[2];
static volatile sig_atomic_t handled;

static void read_in_handler(int number)
{
	char byte;
	handled = read(ends[0], &byte, 1) == 1;
}

static void raise_signal(void) { raise(SIGUSR1); }

/* A handler may read: read(2) is async-signal-safe. */
static int behind_a_signal(int counter)
{
	signal(SIGUSR1, read_in_handler);
	alarm(60);
	in_next_lock = raise_signal;
	int good = !pipe(ends) && write(ends[1], "", 1) == 1 && sent(counter, pread_32) >= 0 && handled;
	alarm(0);
	in_next_lock = NULL;
	return good;
}

static void cancel_itself(void) { pthread_cancel(pthread_self()); }

static void *read_cancelled(void *counter)
{
	int before;
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
	in_next_lock = cancel_itself;
	sent(*(int *)counter, pread_32);
	return NULL;
}

static int behind_a_thread_that_is_cancelled_anywhere(int counter)
{
	pthread_t thread;
	void *result;
	if (pthread_create(&thread, NULL, read_cancelled, &counter) || pthread_join(thread, &result))
		return 0;
	alarm(60);
	int good = result == PTHREAD_CANCELED && sent(counter, pread_32) >= 0;
	alarm(0);
	return good;
}

static pid_t child; /* forked while the library has the lock on what ports have counted, */
static bool forks;  /* if this is set */

__attribute__((visibility("default"))) int flock(int fd, int how)
{
	int err = (int)syscall(SYS_flock, fd, how);
	if (forks && !err && (how & LOCK_EX)) {
		forks = false;
		child = fork();
		if (!child) {
			pause();
			_exit(0);
		}
	}
	return err;
}

/* The file with that lock, beside the tree (host/tree.h). Afterwards what was asked of processes is stale. */
static int open_ports(void)
{
	const struct timespec stale = { .tv_nsec = 100000000 };
	char name[64];
	int folder = open(CLASS, O_RDONLY | O_DIRECTORY);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", folder);
	ssize_t n = readlink(name, path, sizeof(path) - 1);
	close(folder);
	path[n < 0 ? 0 : n] = 0;
	char *end = strstr(path, "/class/infiniband");
	if (!end)
		return -1;
	strcpy(end, "/.ports");
	nanosleep(&stale, NULL);
	return open(path, O_RDWR | O_CLOEXEC);
}

/* When processes were last asked what they have counted. */
static int64_t last_asked(int ports)
{
	struct stat file;
	return fstat(ports, &file) ? -1 :
				     file.st_mtim.tv_sec * INT64_C(1000000000) + file.st_mtim.tv_nsec;
}

static int without_asking_others(int ports)
{
	int64_t before = last_asked(ports);
	int file = open(FILE_, O_RDONLY), none = open(DEVICE "/ports/1/gid_attrs/types/255", O_RDONLY),
	    good = file >= 0 && none < 0 && before >= 0 && last_asked(ports) == before;
	close(file);
	return good;
}

/* A program may go on from a folder to its counters. */
static int asking_others_for_a_folder(int ports)
{
	int64_t before = last_asked(ports);
	int folder = open(DEVICE "/ports/1", O_RDONLY | O_DIRECTORY),
	    good = folder >= 0 && last_asked(ports) > before;
	close(folder);
	return good;
}

static int beside_a_reader_that_keeps_its_lock(int counter)
{
	int ports = open_ports();
	alarm(60);
	int good = !flock(ports, LOCK_EX) && sent(counter, pread_32) >= 0;
	alarm(0);
	close(ports);
	return good;
}

static int behind_a_fork(int counter)
{
	int ports = open_ports();
	forks = true;
	int good = sent(counter, pread_32) >= 0 && child > 0 && !flock(ports, LOCK_EX | LOCK_NB);
	if (child > 0)
		kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(ports);
	return good;
}

static void while_it_has_a_lock(void)
{
	int counter = open(DEVICE "/ports/1/hw_counters/sent_pkts", O_RDONLY);
	int ports = open_ports();
	REPORT(without_asking_others(ports));
	REPORT(asking_others_for_a_folder(ports));
	close(ports);
	REPORT(behind_a_signal(counter));
	REPORT(behind_a_thread_that_is_cancelled_anywhere(counter));
	REPORT(beside_a_reader_that_keeps_its_lock(counter));
	REPORT(behind_a_fork(counter));
	close(counter);
}

/* ---- while another thread loads a library ---- */

static pthread_t beside;
static atomic_int tid_beside;
static int has_opened;

static void *open_beside(void *unused)
{
	atomic_store(&tid_beside, (int)gettid());
	return shows(open(FILE_, O_RDONLY)) ? &has_opened : NULL;
}

/* As in /proc/PID/stat; '?': it is no more, or has not begun. */
static char state_beside(void)
{
	char name[64], text[256] = "";
	snprintf(name, sizeof(name), "/proc/self/task/%d/stat", atomic_load(&tid_beside));
	int fd = open(name, O_RDONLY);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	const char *end = n > 0 ? strrchr(text, ')') : NULL;
	return end ? end[2] : '?';
}

/* The other thread wants the loader's lock, which this one has; then this one opens a path, too. */
__attribute__((visibility("default"))) void in_constructor(void);
void in_constructor(void)
{
	char state = '?';
	if (pthread_create(&beside, NULL, open_beside, NULL))
		return;
	while (!atomic_load(&tid_beside))
		usleep(1000);
	for (int asleep = 0; asleep < 20 && (state = state_beside()) != '?'; usleep(1000))
		asleep = state == 'S' ? asleep + 1 : 0;
	has_opened = shows(open(FILE_, O_RDONLY));
}

static int beside_a_constructor(void)
{
	void *result = NULL;
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);
	path[n < 0 ? 0 : n] = 0;
	char *name = strrchr(path, '/');
	if (!name)
		return 0;
	strcpy(name, "/libconstructed.so");
	static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&first); /* names that are looked up now are not then */
	pthread_mutex_unlock(&first);
	close(open("/dev/null", O_RDONLY));
	alarm(60);
	int good = dlopen(path, RTLD_NOW) && !pthread_join(beside, &result) && result && has_opened;
	alarm(0);
	return good;
}

int main(void)
{
	REPORT(beside_a_constructor()); /* before the first path is led */
	opening();
	listing();
	asking();
	naming();
	elsewhere();
	reading_again();
	REPORT(in_child());
	REPORT(behind_a_cancelled_thread());
	while_it_has_a_lock();
	printf("1..%u\n", count);
	return failed != 0;
}
