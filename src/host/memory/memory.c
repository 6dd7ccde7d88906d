/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/memory/memory.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cancel.h"
#include "host/memory/pages.h"
#include "host/private.h"

/* ---- null pages ---- */

static void *null_pages; /* under the host lock */

static int make_null_pages_locked(size_t bytes)
{
	if (null_pages)
		return 0;
	void *pages =
		vb_map_pages(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (pages == MAP_FAILED)
		return -ENOMEM;
	if (mprotect((char *)pages + bytes / 2, bytes / 2, PROT_READ | PROT_WRITE)) {
		vb_unmap_pages(pages, bytes);
		return -ENOMEM;
	}
	null_pages = pages;
	return 0;
}

int vb_null_pages(size_t bytes, void **pages)
{
	vb_host_lock();
	int err = make_null_pages_locked(bytes);
	*pages = null_pages;
	vb_host_unlock();
	return err;
}

/* ---- access ---- */

/*
 * Asks the kernel what may be done with an address, without a signal handler and without changing a byte:
 *   mapped    msync(MS_ASYNC) does nothing since Linux 2.6.19 but walk the mappings and report holes
 *   readable  rt_sigprocmask with an invalid `how` reads the new mask before it looks at `how`
 *   writable  FUTEX_WAKE_OP with "or 0" is an atomic read-modify-write; it wakes nobody but waiters for words below -2048
 * The first and the last page are checked fully; those between them only for being mapped.
 */
enum { KERNEL_SIGSET_BYTES = 8, NO_SUCH_HOW = -1 };

/* A mask at 0 would be none. */
static bool is_readable(uintptr_t addr)
{
	uintptr_t mask = addr < KERNEL_SIGSET_BYTES ? KERNEL_SIGSET_BYTES :
						      addr & ~(uintptr_t)(KERNEL_SIGSET_BYTES - 1);
	return syscall(SYS_rt_sigprocmask, NO_SUCH_HOW, mask, NULL, KERNEL_SIGSET_BYTES) == 0 ||
	       errno != EFAULT;
}

static bool can_be_modified(uintptr_t addr)
{
	static uint32_t nobody_waits_here;
	const int or_zero =
		(int)((uint32_t)FUTEX_OP_OR << 28 | (uint32_t)FUTEX_OP_CMP_LT << 24 | 0u << 12 | 0x800u);
	return syscall(SYS_futex, &nobody_waits_here, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, 0L,
		       addr & ~(uintptr_t)3, or_zero) >= 0 ||
	       errno != EFAULT;
}

/*
 * Memory that is being moved (host/memory/remap.h) cannot be modified in that way for the moment. Whoever
 * populates it waits until it is there.
 */
static bool is_writable(uintptr_t addr)
{
	return can_be_modified(addr) ||
	       vb_advise_pages((void *)(addr & ~(vb_page_bytes() - 1)), 1, MADV_POPULATE_WRITE) == 0;
}

static bool is_mapped(uintptr_t start, uintptr_t end)
{
	VB_UNCANCELLED;
	return msync((void *)start, end - start, MS_ASYNC) == 0;
}

/* What can be modified can be read, too. */
static bool is_usable(uintptr_t addr, bool writable)
{
	return writable ? is_writable(addr) : is_readable(addr);
}

static bool are_usable(uintptr_t first, uintptr_t last, bool writable)
{
	uintptr_t page = vb_page_bytes(), second_page = (first & ~(page - 1)) + page,
		  last_page = last & ~(page - 1);
	return is_usable(first, writable) && (last < second_page || is_usable(last, writable)) &&
	       (last_page <= second_page || is_mapped(second_page, last_page));
}

int vb_mem_check(const void *addr, size_t bytes, bool writable)
{
	uintptr_t first = (uintptr_t)addr, last = first + bytes - 1;
	int saved_errno = errno;

	if (!bytes)
		return 0;
	bool ok = last >= first && are_usable(first, last, writable);
	errno = saved_errno;
	return ok ? 0 : -EFAULT;
}

/* ---- presence ---- */

/* Where the kernel has no such advice, pages are present when they are touched. */
int vb_mem_populate(const void *addr, size_t bytes, bool writable)
{
	uintptr_t start = (uintptr_t)addr & ~(vb_page_bytes() - 1);
	size_t length = (uintptr_t)addr + bytes - start;
	int saved_errno = errno, err = 0;
	if (vb_advise_pages((void *)start, length, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ))
		err = errno == EINVAL ? vb_mem_check(addr, bytes, writable) : -EFAULT;
	errno = saved_errno;
	return err;
}

/* ---- mappings ---- */

int vb_file_map(int fd, uint64_t offset, size_t bytes, bool writable, void **addr)
{
	*addr = vb_map_pages(NULL, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, offset);
	return *addr == MAP_FAILED ? -errno : 0;
}

uint64_t vb_page_bytes(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The main stack, which holds these bytes, is at the upper end. */
uint64_t vb_address_space(void)
{
	uint64_t near_the_end = getauxval(AT_RANDOM);
	return near_the_end ? UINT64_C(1) << (64 - __builtin_clzll(near_the_end)) : UINT64_C(1) << 47;
}

static uint64_t limit_of(int resource)
{
	struct rlimit limit;
	return getrlimit(resource, &limit) || limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

uint64_t vb_address_limit(void) { return vb_min_u64(limit_of(RLIMIT_AS), vb_address_space()); }
uint64_t vb_file_limit(void) { return limit_of(RLIMIT_FSIZE); }
uint64_t vb_data_limit(void) { return limit_of(RLIMIT_DATA); }

void vb_unmap(void *addr, size_t bytes)
{
	vb_unmap_pages(addr, bytes);
}

/* ---- tokens ---- */

int vb_token_create(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

bool vb_token_is_same(int a, int b)
{
	struct stat x, y;
	return !fstat(a, &x) && !fstat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

void vb_token_close(int fd)
{
	VB_UNCANCELLED;
	close(fd);
}
