/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/memory/memory.h"

#include <errno.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/private.h"

/* ---- null pages ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *null_pages;

static int make_null_pages_locked(size_t bytes)
{
	if (null_pages)
		return 0;
	void *pages = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (pages == MAP_FAILED)
		return -ENOMEM;
	if (mprotect((char *)pages + bytes / 2, bytes / 2, PROT_READ | PROT_WRITE)) {
		munmap(pages, bytes);
		return -ENOMEM;
	}
	null_pages = pages;
	return 0;
}

int vb_null_pages(size_t bytes, void **pages)
{
	pthread_mutex_lock(&lock);
	int err = make_null_pages_locked(bytes);
	*pages = null_pages;
	pthread_mutex_unlock(&lock);
	return err;
}

/* ---- presence ---- */

/* Where the kernel has no such advice, pages are present when they are touched. */
int vb_mem_populate(const void *addr, size_t bytes, bool writable)
{
	uintptr_t start = (uintptr_t)addr & ~(vb_page_bytes() - 1);
	size_t length = (uintptr_t)addr + bytes - start;
	int saved_errno = errno, err = 0;
	if (madvise((void *)start, length, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ))
		err = errno == EINVAL ? vb_mem_check(addr, bytes, writable) : -EFAULT;
	errno = saved_errno;
	return err;
}

/* ---- mappings ---- */

int vb_file_map(int fd, uint64_t offset, size_t bytes, bool writable, void **addr)
{
	*addr = mmap(NULL, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, (off_t)offset);
	return *addr == MAP_FAILED ? -errno : 0;
}

uint64_t vb_page_bytes(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The first stack, where the kernel has left this, is at the upper end. */
uint64_t vb_address_space(void)
{
	uint64_t near_the_end = getauxval(AT_RANDOM);
	return near_the_end ? UINT64_C(1) << (64 - __builtin_clzll(near_the_end)) : UINT64_C(1) << 47;
}

uint64_t vb_address_limit(void)
{
	struct rlimit limit;
	uint64_t space = vb_address_space();
	return getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY ?
		       space :
		       vb_min_u64(limit.rlim_cur, space);
}

void vb_unmap(void *addr, size_t bytes)
{
	munmap(addr, bytes);
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
	close(fd);
}
