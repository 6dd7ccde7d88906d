/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sealed memfds. The owner maps one before it seals it. So only its own mapping can ever be writable, in the
 * parts that it opens; peers map it read-only. Segments (remap.h) may be writable. All mappings are listed,
 * so that a forked child can put private zero pages over them: it must neither write into its parent's queues
 * nor crash on pointers that it inherited.
 */
#include "host/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <linux/magic.h>
#include <unistd.h>

#include "base/list.h"
#include "host/memory/memory.h"
#include "host/memory/pages.h"

struct mapping {
	struct vb_list all;
	void *addr;
	size_t bytes;
};

static struct vb_list mappings = VB_LIST_INIT(mappings); /* under the host lock */

/* Maps fd, or, where that is -1, memory of this process alone, and lists the mapping. */
static int map_listed(int fd, size_t bytes, int prot, void **addr)
{
	int flags = MAP_NORESERVE | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
	struct mapping *m = malloc(sizeof *m);
	if (!m)
		return -ENOMEM;
	vb_host_lock();
	void *p = vb_map_pages(NULL, bytes, prot, flags, fd, 0);
	int err = p == MAP_FAILED ? -errno : 0;
	if (!err) {
		vb_advise_pages(p, bytes, MADV_DONTDUMP); /* sparse and huge: keep it out of core dumps */
		*m = (struct mapping){ .addr = p, .bytes = bytes };
		vb_list_add_tail(&mappings, &m->all);
	}
	vb_host_unlock();
	if (err)
		free(m);
	else
		*addr = p;
	return err;
}

void vb_shm_unmap(const void *addr, size_t bytes)
{
	struct mapping *m;
	vb_host_lock();
	vb_list_for_each(m, &mappings, all) {
		if (m->addr == addr) {
			vb_list_del(&m->all);
			free(m);
			break;
		}
	}
	vb_unmap_pages((void *)addr, bytes);
	vb_host_unlock();
}

static int new_memfd(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	return fd < 0 && errno == EINVAL ? memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING) : fd;
}

static bool map_over(const struct mapping *m, int prot, int kind, int fd)
{
	return vb_map_pages(m->addr, m->bytes, prot, kind | MAP_FIXED | MAP_NORESERVE, fd, 0) != MAP_FAILED;
}

static bool map_memfd_over(const struct mapping *m)
{
	int fd = m->bytes > vb_file_limit() ? -1 : new_memfd("verbatim-child");
	bool is_mapped = fd >= 0 && ftruncate(fd, (off_t)m->bytes) == 0 &&
			 map_over(m, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	if (fd >= 0)
		close(fd);
	return is_mapped;
}

/*
 * Private memory takes fewer calls. But all of it counts for RLIMIT_DATA, and with vm.overcommit_memory 2 the
 * kernel may refuse so much. A memfd counts as it is used. At the worst there is nothing, rather than the
 * parent's memory.
 */
static void put_zero_pages(const struct mapping *m, bool is_limited)
{
	bool done = (is_limited && map_memfd_over(m)) ||
		    map_over(m, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1) || map_memfd_over(m);
	if (!done)
		map_over(m, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

/* The list stays: vb_shm_unmap works in the child, and a child's child has pages of its own anyway. */
void vb_shm_forget(void)
{
	struct mapping *m;
	bool is_limited = vb_data_limit() != UINT64_MAX;
	vb_list_for_each(m, &mappings, all)
		put_zero_pages(m, is_limited);
}

/* ---- creating ---- */

static int create_fd(size_t bytes, const char *name, int *fd)
{
	char full_name[64];
	if (bytes > vb_file_limit())
		return -EFBIG;
	snprintf(full_name, sizeof full_name, "verbatim-%s", name);
	vb_host_lock();
	int f = vb_fd_own(new_memfd(full_name)), err = f < 0 || ftruncate(f, (off_t)bytes) < 0 ? -errno : 0;
	if (err)
		vb_fd_close_locked(f);
	vb_host_unlock();
	*fd = f;
	return err;
}

/* Before Linux 5.1 only a read-only descriptor prevents a peer's writable mapping. */
static int reopen_read_only(int *fd)
{
	char path[32];
	snprintf(path, sizeof path, "/proc/self/fd/%d", *fd);
	vb_host_lock();
	int f = vb_fd_own(open(path, O_RDONLY | O_CLOEXEC)), err = f < 0 ? -errno : 0;
	if (!err) {
		vb_fd_close_locked(*fd);
		*fd = f;
	}
	vb_host_unlock();
	return err;
}

static int seal(int *fd)
{
	const int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;
	if (fcntl(*fd, F_ADD_SEALS, size_seals | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0)
		return 0;
	if (errno != EINVAL)
		return -errno;
	if (fcntl(*fd, F_ADD_SEALS, size_seals | F_SEAL_SEAL) < 0)
		return -errno;
	return reopen_read_only(fd);
}

int vb_shm_create(size_t bytes, const char *name, int *fd, void **addr)
{
	int f = -1, err = create_fd(bytes, name, &f);
	if (err)
		return err;
	err = map_listed(f, bytes, PROT_READ, addr);
	if (err)
		goto close_fd;
	err = seal(&f);
	if (err)
		goto unmap;
	*fd = f;
	return 0;
unmap:
	vb_shm_unmap(*addr, bytes);
close_fd:
	vb_fd_close(f);
	return err;
}

int vb_shm_create_alone(size_t bytes, void **addr)
{
	return map_listed(-1, bytes, PROT_READ, addr);
}

bool vb_shm_has_room(size_t bytes)
{
	void *p = vb_map_pages(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return false;
	vb_unmap_pages(p, bytes);
	return true;
}

int vb_shm_open(void *addr, size_t bytes)
{
	return mprotect(addr, bytes, PROT_READ | PROT_WRITE) < 0 ? -errno : 0;
}

/* ---- a peer's ---- */

size_t vb_shm_size(int fd)
{
	struct stat st;
	return fstat(fd, &st) == 0 && st.st_size > 0 ? (size_t)st.st_size : 0;
}

/*
 * A file that can shrink, or whose holes cannot be filled (huge pages), could kill its reader with SIGBUS. So
 * only plain shmem of fixed size is mapped.
 */
static int check_peer_fd(int fd, size_t bytes)
{
	struct stat st;
	struct statfs fs;
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return -EPERM;
	if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
		return -errno;
	if (!bytes || st.st_size < 0 || (size_t)st.st_size != bytes || fs.f_type != TMPFS_MAGIC)
		return -EINVAL;
	return 0;
}

int vb_shm_map_segment(int fd, size_t bytes, bool writable, void **addr)
{
	int err = check_peer_fd(fd, bytes);
	return err ? err : map_listed(fd, bytes, PROT_READ | (writable ? PROT_WRITE : 0), addr);
}

int vb_shm_map_peer(int fd, size_t bytes, const void **addr)
{
	void *p = NULL;
	int err = vb_shm_map_segment(fd, bytes, false, &p);
	if (!err)
		*addr = p;
	return err;
}
