/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/memory/trap.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/kernel.h"
#include "host/memory/pages.h"
#include "host/memory/remap.h"
#include "host/private.h"

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

int vb_trap_begin(uintptr_t at, size_t bytes, uint64_t mode)
{
	struct uffdio_register r = { .range = { at, bytes }, .mode = mode };
	return self.uffd >= 0 && ioctl(self.uffd, UFFDIO_REGISTER, &r) < 0 ? -errno : 0;
}

void vb_trap_wake(uintptr_t at, size_t bytes)
{
	struct uffdio_range r = { at, bytes };
	if (self.uffd >= 0)
		ioctl(self.uffd, UFFDIO_WAKE, &r);
}

int vb_trap_protect(uintptr_t at, size_t bytes, bool on)
{
	struct uffdio_writeprotect w = { .range = { at, bytes },
					 .mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0 };
	return self.uffd >= 0 && ioctl(self.uffd, UFFDIO_WRITEPROTECT, &w) < 0 ? -errno : 0;
}

/*
 * The kernel fills only pages of a trapped range, and else says ENOENT. In a trapped range it then reads the
 * source, which fails with EFAULT.
 */
bool vb_trap_holds(uintptr_t at, size_t bytes)
{
	struct uffdio_copy c = {
		.dst = at, .src = (uintptr_t)self.nothing, .len = bytes, .mode = UFFDIO_COPY_MODE_DONTWAKE
	};
	return self.uffd < 0 || (ioctl(self.uffd, UFFDIO_COPY, &c) < 0 && errno == EFAULT);
}

void vb_trap_end(uintptr_t at, size_t bytes)
{
	struct uffdio_range r = { at, bytes };
	if (self.uffd >= 0)
		ioctl(self.uffd, UFFDIO_UNREGISTER, &r);
	vb_trap_wake(at, bytes);
}

enum vb_remap_way vb_remap_way(void)
{
	if (self.known && self.generation == vb_host_generation())
		return self.way;
	if (!self.nothing)
		self.nothing = vb_map_pages(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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
