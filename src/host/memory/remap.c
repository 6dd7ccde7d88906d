/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/memory/remap.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cancel.h"
#include "host/kernel.h"
#include "host/memory/memory.h"
#include "host/memory/movable.h"
#include "host/memory/pages.h"
#include "host/memory/trap.h"
#include "host/memory/vma.h"
#include "host/private.h"

enum { PAGEMAP_BATCH = 512, PAGES_HELD = 64 };
#define PAGEMAP_POPULATED (3ull << 62) /* present or swapped */

/* ---- system calls ---- */

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

static void advise(void *at, size_t bytes, unsigned advice)
{
	if (advice & VB_VMA_HUGE)
		vb_advise_pages(at, bytes, MADV_HUGEPAGE);
	if (advice & VB_VMA_NO_HUGE)
		vb_advise_pages(at, bytes, MADV_NOHUGEPAGE);
	if (advice & VB_VMA_NO_DUMP)
		vb_advise_pages(at, bytes, MADV_DONTDUMP);
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
	int err = vb_may_be_pinned() ? -EBUSY : copy_populated(aside, bytes, fd, offset);
	if (err)
		return err;
	if (!vb_trap_holds((uintptr_t)at, bytes))
		return -EFAULT;
	if (vb_map_pages(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, offset) == MAP_FAILED)
		return -errno;
	advise(at, bytes, advice);
	return 0;
}

/*
 * Maps a place for the pages while they are copied. A guard page on each side keeps it apart from the range:
 * the kernel would merge the two into one mapping if no page of the range was ever touched, and end the trap.
 */
static char *map_aside(size_t bytes)
{
	size_t page = vb_page_bytes();
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	char *first = vb_map_pages(NULL, bytes + 2 * page, PROT_NONE, flags, -1, 0);
	return first == MAP_FAILED ? MAP_FAILED : first + page;
}

static void unmap_aside(char *aside, size_t bytes)
{
	vb_unmap_pages(aside - vb_page_bytes(), bytes + 2 * vb_page_bytes());
}

/* What was there between is gone, and may be somebody else's by now. */
static void unmap_around(char *aside, size_t bytes)
{
	vb_unmap_pages(aside - vb_page_bytes(), vb_page_bytes());
	vb_unmap_pages(aside + bytes, vb_page_bytes());
}

/*
 * Moves the pages back over the empty range, which ends the trap. Pages whose place the program has unmapped
 * meanwhile are dropped.
 */
static void put_back(char *aside, uintptr_t at, size_t bytes)
{
	size_t page = vb_page_bytes(), half = bytes / page / 2 * page;
	if (vb_trap_holds(at, bytes)) {
		move_pages_to(aside, bytes, 0, (void *)at);
	} else if (!half) {
		vb_unmap_pages(aside, bytes);
	} else {
		put_back(aside, at, half);
		put_back(aside + half, at + half, bytes - half);
	}
}

int vb_remap_in(uintptr_t at, size_t bytes, unsigned advice, int fd, uint64_t offset)
{
	if (bytes > VB_REMAP_SLICE || !vb_remap_may_now())
		return -EPERM;
	char *aside = map_aside(bytes);
	if (aside == MAP_FAILED)
		return -errno;
	int err = vb_trap_begin(at, bytes, UFFDIO_REGISTER_MODE_MISSING);
	if (err)
		goto unmap;
	err = move_pages_to((void *)at, bytes, MREMAP_DONTUNMAP, aside);
	if (err) {
		vb_trap_end(at, bytes);
		goto unmap;
	}
	err = finish_in((void *)at, bytes, advice, aside, fd, offset);
	if (err) {
		put_back(aside, at, bytes);
		unmap_around(aside, bytes);
		vb_trap_wake(at, bytes);
		return err;
	}
	vb_trap_wake(at, bytes);
unmap:
	unmap_aside(aside, bytes);
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
	void *to = vb_map_pages(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (to == MAP_FAILED)
		return -errno;
	int err = copy_data(fd, v->offset, bytes, to);
	if (!err && v->prot != (PROT_READ | PROT_WRITE) && syscall(SYS_mprotect, to, bytes, v->prot) < 0)
		err = -errno;
	if (err)
		vb_unmap_pages(to, bytes);
	else
		*aside = to;
	return err;
}

static int finish_back(int fd, const struct vb_vma *v, unsigned advice)
{
	size_t bytes = v->end - v->start;
	void *aside;
	int err = vb_may_be_pinned() ? -EBUSY : copy_aside(fd, v, &aside);
	if (err)
		return err;
	advise(aside, bytes, advice);
	err = vb_trap_protect(v->start, bytes, true); /* -ENOENT: it is no longer mapped there */
	if (!err)
		err = move_pages_to(aside, bytes, 0, (void *)v->start);
	if (err)
		vb_unmap_pages(aside, bytes);
	return err;
}

static int piece_back(int fd, const struct vb_vma *v, unsigned advice)
{
	size_t bytes = v->end - v->start;
	int err = vb_trap_begin(v->start, bytes, UFFDIO_REGISTER_MODE_WP);
	if (err)
		return err;
	err = vb_trap_protect(v->start, bytes, true);
	if (!err)
		err = finish_back(fd, v, advice);
	if (err) {
		vb_trap_protect(v->start, bytes, false);
		vb_trap_end(v->start, bytes);
	}
	vb_trap_wake(v->start, bytes);
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
		vb_unmap_pages(held.copy[held.n - 1].aside, held.copy[held.n - 1].bytes);
}
