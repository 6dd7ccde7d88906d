/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System calls are made directly: the sanitizers' wrappers of mmap and mremap would take the move for the
 * program's own.
 */
#include "host/memory/remap.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cancel.h"
#include "host/kernel.h"
#include "host/memory/memory.h"
#include "host/private.h"
#include "host/memory/vma.h"

enum { PAGEMAP_BATCH = 512, PAGES_HELD = 64 };
#define PAGEMAP_POPULATED (3ull << 62) /* present or swapped */

/* ---- system calls ---- */

static void *map(void *at, size_t bytes, int prot, int flags, int fd, uint64_t offset)
{
	return (void *)syscall(SYS_mmap, at, bytes, prot, flags, fd, offset);
}

static void unmap(void *at, size_t bytes)
{
	syscall(SYS_munmap, at, bytes);
}

static int move_pages_to(void *from, size_t bytes, int flags, void *to)
{
	return (void *)syscall(SYS_mremap, from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | flags, to) ==
			       MAP_FAILED ?
		       -errno :
		       0;
}

static int write_all(int fd, const char *from, size_t bytes, uint64_t offset)
{
	while (bytes) {
		ssize_t n = pwrite(fd, from, bytes, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		from += n;
		bytes -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

static int read_all(int fd, char *to, size_t bytes, uint64_t offset)
{
	while (bytes) {
		ssize_t n = pread(fd, to, bytes, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		to += n;
		bytes -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

/* ---- the trap ---- */

static struct {
	enum vb_remap_way way;
	bool known;
	int uffd;
	void *nothing; /* a page that cannot be read */
	unsigned generation;
} self = { .uffd = -1 };

static int open_uffd(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0)
		return fd;
	int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (device < 0)
		return -1;
	fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	close(device);
	return fd;
}

/* The full kind, which can trap first accesses to private memory and writes to shared memory. -1: none. */
static int open_trap(void)
{
	struct uffdio_api api = { .api = UFFD_API,
				  .features =
					  UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM };
	int fd = open_uffd();
	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static int trap(uintptr_t at, size_t bytes, uint64_t mode)
{
	struct uffdio_register r = { .range = { at, bytes }, .mode = mode };
	return self.uffd >= 0 && ioctl(self.uffd, UFFDIO_REGISTER, &r) < 0 ? -errno : 0;
}

static void wake(uintptr_t at, size_t bytes)
{
	struct uffdio_range r = { at, bytes };
	if (self.uffd >= 0)
		ioctl(self.uffd, UFFDIO_WAKE, &r);
}

static int protect(uintptr_t at, size_t bytes, bool on)
{
	struct uffdio_writeprotect w = { .range = { at, bytes },
					 .mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0 };
	return self.uffd >= 0 && ioctl(self.uffd, UFFDIO_WRITEPROTECT, &w) < 0 ? -errno : 0;
}

/*
 * Is this still the empty range that was trapped? The program may have unmapped it meanwhile, or mapped
 * something else there. The kernel fills only pages of a trapped range, and else says ENOENT. In a trapped
 * range it then reads the source, which fails with EFAULT.
 */
static bool is_trapped(uintptr_t at, size_t bytes)
{
	struct uffdio_copy c = {
		.dst = at, .src = (uintptr_t)self.nothing, .len = bytes, .mode = UFFDIO_COPY_MODE_DONTWAKE
	};
	return self.uffd < 0 || (ioctl(self.uffd, UFFDIO_COPY, &c) < 0 && errno == EFAULT);
}

static void end_trap(uintptr_t at, size_t bytes)
{
	struct uffdio_range r = { at, bytes };
	if (self.uffd >= 0)
		ioctl(self.uffd, UFFDIO_UNREGISTER, &r);
	wake(at, bytes);
}

enum vb_remap_way vb_remap_way(void)
{
	if (self.known && self.generation == vb_host_generation())
		return self.way;
	if (!self.nothing)
		self.nothing = map(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	vb_host_lock();
	self.uffd = self.nothing == MAP_FAILED ? -1 : vb_fd_own(open_trap());
	vb_host_unlock();
	self.way = self.uffd >= 0 ? VB_REMAP_ANYTIME : VB_REMAP_ALONE;
	self.generation = vb_host_generation();
	self.known = true;
	return self.way;
}

/* Each thread is a directory, which adds a link to the one above. */
static unsigned count_threads(void)
{
	struct stat st;
	return stat("/proc/self/task", &st) < 0 || st.st_nlink < 2 ? UINT32_MAX : (unsigned)st.st_nlink - 2;
}

bool vb_remap_may_now(void)
{
	return vb_remap_way() == VB_REMAP_ANYTIME || (vb_loop_has_caller() && count_threads() == 2);
}

/* ---- the thread that waits ---- */

enum { MAX_EXCLUDED = 64,
	THREAD_BYTES = 4096 /* as much as the C library's struct of a thread takes at most */ };

static struct {
	unsigned n;
	bool overflow;
	struct vb_remap_piece block[MAX_EXCLUDED];
} excluded;

static void exclude(uintptr_t at, size_t bytes)
{
	if (excluded.n < MAX_EXCLUDED)
		excluded.block[excluded.n++] = (struct vb_remap_piece){ at, bytes };
	else
		excluded.overflow = true;
}

static int exclude_module(struct dl_phdr_info *module, size_t size, void *unused)
{
	for (unsigned i = 0; i < module->dlpi_phnum; i++)
		if (module->dlpi_phdr[i].p_type == PT_TLS && module->dlpi_tls_data)
			exclude((uintptr_t)module->dlpi_tls_data, module->dlpi_phdr[i].p_memsz);
	return 0;
}

void vb_remap_exclude_caller(void)
{
	if (vb_remap_way() != VB_REMAP_ALONE)
		return;
	excluded.n = 0;
	excluded.overflow = false;
	exclude((uintptr_t)pthread_self(), THREAD_BYTES); /* glibc's pthread_t is that struct's address */
	dl_iterate_phdr(exclude_module, NULL);
}

static bool is_excluded(uintptr_t at, size_t bytes)
{
	if (vb_remap_way() != VB_REMAP_ALONE)
		return false;
	for (unsigned i = 0; i < excluded.n; i++)
		if (at < excluded.block[i].at + excluded.block[i].bytes && excluded.block[i].at < at + bytes)
			return true;
	return excluded.overflow;
}

/* ---- pinned pages ---- */

/* A kernel may not count it. */
static bool is_memory_pinned(void)
{
	char text[32];
	int err = vb_file_field("/proc/self/status", "VmPin:", text, sizeof text);
	return err ? err != -ENODATA : strcmp(text, "0 kB") != 0;
}

static bool pins(int proc_fd, const char *name)
{
	char target[64];
	int fd = 0;
	for (const char *c = name; *c; c++) {
		if (*c < '0' || *c > '9')
			return false; /* "." and ".." */
		fd = fd * 10 + (*c - '0');
	}
	int flags = fcntl(fd, F_GETFL);
	if (flags >= 0 && (flags & O_DIRECT))
		return true;
	ssize_t n = readlinkat(proc_fd, name, target, sizeof target - 1);
	if (n < 0)
		return false;
	target[n] = 0;
	return strstr(target, "[io_uring]") != NULL;
}

/* As the kernel fills it in for getdents64. */
struct entry {
	uint64_t inode, next;
	unsigned short bytes;
	unsigned char type;
	char name[];
};

static bool a_file_pins(void)
{
	static char entries[8192] __attribute__((aligned(8)));
	int dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool found = dir < 0;
	long n = 0;
	while (!found && (n = syscall(SYS_getdents64, dir, entries, sizeof entries)) > 0) {
		for (long at = 0; at < n && !found;) {
			const struct entry *e = (const void *)(entries + at);
			found = pins(dir, e->name);
			at += e->bytes;
		}
	}
	if (dir >= 0)
		close(dir);
	return found || n < 0;
}

static bool note_aio(void *arg, const struct vb_vma *v)
{
	*(bool *)arg |= v->is_aio;
	return !v->is_aio;
}

static bool may_be_pinned(void)
{
	bool aio = false;
	return is_memory_pinned() || a_file_pins() || vb_vma_each(false, note_aio, &aio) || aio;
}

/* ---- what may be moved ---- */

struct check {
	uintptr_t at, end;
	struct vb_remap_plan *plan;
	int err;
};

static bool check_vma(void *arg, const struct vb_vma *v)
{
	struct check *c = arg;
	struct vb_remap_plan *p = c->plan;
	if (v->end <= c->at)
		return true;
	unsigned advice = v->flags & (VB_VMA_HUGE | VB_VMA_NO_HUGE | VB_VMA_NO_DUMP);
	if (v->start > c->at)
		c->err = -EFAULT;
	else if (v->shared || v->inode || v->is_stack || v->prot != (PROT_READ | PROT_WRITE) ||
		 (v->flags & VB_VMA_SPECIAL) || p->pieces == VB_REMAP_PIECES ||
		 (p->pieces && advice != p->advice))
		c->err = -EPERM;
	if (c->err)
		return false;
	uintptr_t end = v->end < c->end ? v->end : c->end;
	p->advice = advice;
	p->piece[p->pieces++] = (struct vb_remap_piece){ c->at, end - c->at };
	c->at = end;
	return c->at < c->end;
}

int vb_remap_check(uintptr_t at, size_t bytes, struct vb_remap_plan *plan)
{
	struct check c = { .at = at, .end = at + bytes, .plan = plan };
	plan->pieces = plan->advice = 0;
	if (!bytes || (at | bytes) % vb_page_bytes() || at + bytes < at)
		return -EINVAL;
	if (is_excluded(at, bytes))
		return -EPERM;
	int err = vb_vma_each(true, check_vma, &c);
	if (!err)
		err = c.err;
	return err ? err : c.at < c.end ? -EFAULT : 0;
}

static void find_stack(uintptr_t *low, uintptr_t *high)
{
	pthread_attr_t attr;
	void *at;
	size_t bytes;
	*high = 1;
	if (syscall(SYS_gettid) == getpid() || pthread_getattr_np(pthread_self(), &attr))
		return;
	if (!pthread_attr_getstack(&attr, &at, &bytes)) {
		*low = (uintptr_t)at;
		*high = (uintptr_t)at + bytes;
	}
	pthread_attr_destroy(&attr);
}

bool vb_remap_is_own_stack(const void *addr, size_t bytes)
{
	static _Thread_local uintptr_t low, high;
	uintptr_t at = (uintptr_t)addr;
	if (vb_unlikely(!high))
		find_stack(&low, &high);
	return at < high && at + bytes > low;
}

static void advise(void *at, size_t bytes, unsigned advice)
{
	if (advice & VB_VMA_HUGE)
		syscall(SYS_madvise, at, bytes, MADV_HUGEPAGE);
	if (advice & VB_VMA_NO_HUGE)
		syscall(SYS_madvise, at, bytes, MADV_NOHUGEPAGE);
	if (advice & VB_VMA_NO_DUMP)
		syscall(SYS_madvise, at, bytes, MADV_DONTDUMP);
}

/* ---- in ---- */

int vb_remap_open(size_t bytes, int *fd)
{
	int err = 0;
	if (bytes > vb_file_limit())
		return -EFBIG;
	vb_host_lock();
	int f = vb_fd_own(memfd_create("verbatim-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (f < 0 || ftruncate(f, (off_t)bytes) < 0)
		err = -errno;
	if (err)
		vb_fd_close_locked(f);
	vb_host_unlock();
	if (!err)
		*fd = f;
	return err;
}

int vb_remap_seal(int fd, bool writable)
{
	int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | (writable ? 0 : F_SEAL_FUTURE_WRITE);
	return fcntl(fd, F_ADD_SEALS, seals) < 0 ? -errno : 0;
}

/* Of pages [first, first + n) from `from` on: the populated ones to the file. Holes stay holes. */
static int copy_runs(const uint64_t *pagemap, size_t first, size_t n, const char *from, int fd,
		     uint64_t offset)
{
	size_t page = vb_page_bytes();
	for (size_t i = 0; i < n;) {
		size_t run = 0;
		while (i + run < n && (pagemap[i + run] & PAGEMAP_POPULATED))
			run++;
		size_t skipped = (first + i) * page;
		int err = run ? write_all(fd, from + skipped, run * page, offset + skipped) : 0;
		if (err)
			return err;
		i += run ? run : 1;
	}
	return 0;
}

static int copy_populated(const char *from, size_t bytes, int fd, uint64_t offset)
{
	static uint64_t pagemap[PAGEMAP_BATCH];
	int map_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	int err = map_fd < 0 ? -errno : 0;
	size_t page = vb_page_bytes(), pages = bytes / page;
	for (size_t first = 0; !err && first < pages; first += PAGEMAP_BATCH) {
		size_t n = pages - first < PAGEMAP_BATCH ? pages - first : PAGEMAP_BATCH;
		err = read_all(map_fd, (char *)pagemap, n * sizeof(*pagemap),
			       ((uintptr_t)from / page + first) * sizeof(*pagemap));
		if (!err)
			err = copy_runs(pagemap, first, n, from, fd, offset);
	}
	if (map_fd >= 0)
		close(map_fd);
	return err;
}

/* The range is empty and trapped; its pages are at `aside`. */
static int finish_in(void *at, size_t bytes, unsigned advice, const char *aside, int fd, uint64_t offset)
{
	int err = may_be_pinned() ? -EBUSY : copy_populated(aside, bytes, fd, offset);
	if (err)
		return err;
	if (!is_trapped((uintptr_t)at, bytes))
		return -EFAULT;
	if (map(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, offset) == MAP_FAILED)
		return -errno;
	advise(at, bytes, advice);
	return 0;
}

/*
 * Moves the pages back over the empty range, which ends the trap. Pages whose place the program has unmapped
 * meanwhile are dropped.
 */
static void put_back(char *aside, uintptr_t at, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), half = bytes / page / 2 * page;
	if (is_trapped(at, bytes)) {
		move_pages_to(aside, bytes, 0, (void *)at);
	} else if (!half) {
		unmap(aside, bytes);
	} else {
		put_back(aside, at, half);
		put_back(aside + half, at + half, bytes - half);
	}
}

int vb_remap_in(uintptr_t at, size_t bytes, unsigned advice, int fd, uint64_t offset)
{
	if (bytes > VB_REMAP_SLICE || !vb_remap_may_now())
		return -EPERM;
	char *aside = map(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (aside == MAP_FAILED)
		return -errno;
	int err = trap(at, bytes, UFFDIO_REGISTER_MODE_MISSING);
	if (err)
		goto unmap_aside;
	err = move_pages_to((void *)at, bytes, MREMAP_DONTUNMAP, aside);
	if (err) {
		end_trap(at, bytes);
		goto unmap_aside;
	}
	err = finish_in((void *)at, bytes, advice, aside, fd, offset);
	if (err) {
		put_back(aside, at, bytes);
		wake(at, bytes);
		return err;
	}
	wake(at, bytes);
unmap_aside:
	unmap(aside, bytes);
	return err;
}

/* ---- back ---- */

/* Where a memfd is mapped now: the program may have unmapped parts, or moved them. */
struct places {
	uint64_t device, inode;
	unsigned n;
	bool overflow;
	struct vb_vma vma[PAGES_HELD];
};

static bool note_place(void *arg, const struct vb_vma *v)
{
	struct places *p = arg;
	if (v->inode != p->inode || v->device != p->device || !v->shared)
		return true;
	p->overflow = p->n == PAGES_HELD;
	if (!p->overflow)
		p->vma[p->n++] = *v;
	return !p->overflow;
}

static int find_places(int fd, struct places *p)
{
	struct stat st;
	if (fstat(fd, &st) < 0)
		return -errno;
	p->device = st.st_dev;
	p->inode = st.st_ino;
	p->n = 0;
	p->overflow = false;
	int err = vb_vma_each(false, note_place, p);
	return err ? err : p->overflow ? -E2BIG : 0;
}

/* Copies what the file has of [offset, offset + bytes); its holes are zero at `to` already. */
static int copy_data(int fd, uint64_t offset, size_t bytes, char *to)
{
	uint64_t end = offset + bytes;
	for (uint64_t at = offset; at < end;) {
		off_t data = lseek(fd, (off_t)at, SEEK_DATA);
		if (data < 0)
			return errno == ENXIO ? 0 : -errno;
		if ((uint64_t)data >= end)
			return 0;
		off_t hole = lseek(fd, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		uint64_t stop = vb_min_u64((uint64_t)hole, end);
		int err = read_all(fd, to + ((uint64_t)data - offset), stop - (uint64_t)data, (uint64_t)data);
		if (err)
			return err;
		at = stop;
	}
	return 0;
}

/* Private pages with the file's contents; zeros beyond its end. */
static int copy_aside(int fd, const struct vb_vma *v, void **aside)
{
	size_t bytes = v->end - v->start;
	void *to = map(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (to == MAP_FAILED)
		return -errno;
	int err = copy_data(fd, v->offset, bytes, to);
	if (!err && v->prot != (PROT_READ | PROT_WRITE) && syscall(SYS_mprotect, to, bytes, v->prot) < 0)
		err = -errno;
	if (err)
		unmap(to, bytes);
	else
		*aside = to;
	return err;
}

static int finish_back(int fd, const struct vb_vma *v, unsigned advice)
{
	size_t bytes = v->end - v->start;
	void *aside;
	int err = may_be_pinned() ? -EBUSY : copy_aside(fd, v, &aside);
	if (err)
		return err;
	advise(aside, bytes, advice);
	err = protect(v->start, bytes, true); /* -ENOENT: it is no longer mapped there */
	if (!err)
		err = move_pages_to(aside, bytes, 0, (void *)v->start);
	if (err)
		unmap(aside, bytes);
	return err;
}

static int piece_back(int fd, const struct vb_vma *v, unsigned advice)
{
	size_t bytes = v->end - v->start;
	int err = trap(v->start, bytes, UFFDIO_REGISTER_MODE_WP);
	if (err)
		return err;
	err = protect(v->start, bytes, true);
	if (!err)
		err = finish_back(fd, v, advice);
	if (err) {
		protect(v->start, bytes, false);
		end_trap(v->start, bytes);
	}
	wake(v->start, bytes);
	return err;
}

static struct places places; /* one call at a time */

bool vb_remap_is_at(int fd, uint64_t offset, uintptr_t at, size_t bytes)
{
	if (find_places(fd, &places))
		return false;
	for (unsigned i = 0; bytes && i < places.n; i++) {
		const struct vb_vma *v = &places.vma[i];
		if (at < v->start || at >= v->end || v->offset + (at - v->start) != offset)
			continue;
		size_t here = vb_min_u64(v->end - at, bytes);
		at += here;
		offset += here;
		bytes -= here;
	}
	return !bytes;
}

int vb_remap_back(int fd, unsigned advice)
{
	if (!vb_remap_may_now())
		return -EPERM;
	int err = find_places(fd, &places);
	for (unsigned i = 0; !err && i < places.n; i++) {
		struct vb_vma v = places.vma[i];
		for (; !err && v.start < places.vma[i].end; v.start = v.end, v.offset += VB_REMAP_SLICE) {
			v.end = vb_min_u64(v.start + VB_REMAP_SLICE, places.vma[i].end);
			err = piece_back(fd, &v, advice);
		}
	}
	return err;
}

/* ---- across a fork ---- */

static struct {
	unsigned n;
	struct {
		void *aside, *at;
		size_t bytes;
	} copy[2 * PAGES_HELD];
} held;

int vb_remap_fork_copy(int fd)
{
	VB_UNCANCELLED;
	static struct places p;
	int err = find_places(fd, &p);
	for (unsigned i = 0; !err && i < p.n; i++) {
		void *aside;
		err = held.n == VB_ARRAY_LEN(held.copy) ? -E2BIG : copy_aside(fd, &p.vma[i], &aside);
		if (err)
			break;
		held.copy[held.n].aside = aside;
		held.copy[held.n].at = (void *)p.vma[i].start;
		held.copy[held.n++].bytes = p.vma[i].end - p.vma[i].start;
	}
	return err;
}

void vb_remap_fork_restore(void)
{
	for (; held.n; held.n--)
		move_pages_to(held.copy[held.n - 1].aside, held.copy[held.n - 1].bytes, 0,
			      held.copy[held.n - 1].at);
}

void vb_remap_fork_drop(void)
{
	for (; held.n; held.n--)
		unmap(held.copy[held.n - 1].aside, held.copy[held.n - 1].bytes);
}
