/* SPDX-License-Identifier: BSD-2-Clause */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "host/host.h"

enum { REGION = 1 << 20 };

/* As with vm.overcommit_memory 2: no memory is promised that there may not be. */
static bool promises_nothing;

void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	bool is_promise = (flags & MAP_PRIVATE) && (prot & PROT_WRITE);
	if (!promises_nothing || !is_promise)
		return (void *)syscall(SYS_mmap, at, bytes, prot, flags, fd, offset);
	errno = ENOMEM;
	return MAP_FAILED;
}

struct region {
	int fd;
	char *addr;
};

static bool are_holes_told;

static struct region create(void)
{
	struct region r;
	void *addr;
	assert_int_equal(vb_shm_create(REGION, "test", &r.fd, &addr), 0);
	if (are_holes_told)
		assert_int_equal(vb_mem_check(addr, REGION, true), -EFAULT);
	assert_int_equal(vb_shm_open(addr, REGION), 0);
	assert_int_equal(vb_mem_check(addr, REGION, true), 0);
	r.addr = addr;
	return r;
}

static void destroy(struct region *r)
{
	vb_shm_unmap(r->addr, REGION);
	vb_fd_close(r->fd);
}

/* ---- the owner's side ---- */

static void shm_create__gives_zero_pages_and_takes_little_memory(void **state)
{
	void *addr;
	int fd;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	assert_int_equal(vb_shm_create((size_t)1 << 36, "sparse", &fd, &addr), 0);
	char *p = addr;
	assert_int_equal(p[0], 0);
	assert_int_equal(vb_shm_open(p + ((size_t)1 << 36) - page, page), 0);
	p[((size_t)1 << 36) - 1] = 1;
	vb_shm_unmap(addr, (size_t)1 << 36);
	vb_fd_close(fd);
}

static void shm_map_peer__shows_what_the_owner_writes(void **state)
{
	struct region r = create();
	const void *peer;
	assert_int_equal(vb_shm_map_peer(r.fd, REGION, &peer), 0);
	strcpy(r.addr + 5000, "hello");
	assert_string_equal((const char *)peer + 5000, "hello");
	if (are_holes_told)
		assert_int_equal(vb_mem_check(peer, REGION, true), -EFAULT);
	assert_int_equal(vb_mem_check(peer, REGION, false), 0);
	vb_shm_unmap(peer, REGION);
	destroy(&r);
}

/* ---- what a peer must not be able to do ---- */

static void shm__can_not_be_written_or_resized_by_descriptor(void **state)
{
	struct region r = create();
	strcpy(r.addr, "mine");
	assert_true(mmap(NULL, REGION, PROT_WRITE, MAP_SHARED, r.fd, 0) == MAP_FAILED);
	void *p = mmap(NULL, REGION, PROT_READ, MAP_SHARED, r.fd, 0);
	assert_true(p != MAP_FAILED);
	assert_int_equal(mprotect(p, REGION, PROT_READ | PROT_WRITE), -1);
	munmap(p, REGION);
	assert_true(pwrite(r.fd, "x", 1, 0) < 0);
	assert_true(ftruncate(r.fd, 0) < 0);
	assert_true(ftruncate(r.fd, 2 * REGION) < 0);
	assert_true(fallocate(r.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0);
	assert_true(fcntl(r.fd, F_ADD_SEALS, F_SEAL_WRITE) < 0);
	assert_string_equal(r.addr, "mine");
	destroy(&r);
}

static int shared_fd;

static void attack(int sock)
{
	struct region r = { .fd = shared_fd };
	char path[64];
	hear(sock);
	CHILD_CHECK(mmap(NULL, REGION, PROT_WRITE, MAP_SHARED, r.fd, 0) == MAP_FAILED);
	CHILD_CHECK(ftruncate(r.fd, 0) < 0);
	CHILD_CHECK(pwrite(r.fd, "x", 1, 0) < 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", r.fd);
	int again = open(path, O_RDWR | O_CLOEXEC);
	if (again >= 0) { /* by way of /proc no more is allowed */
		CHILD_CHECK(mmap(NULL, REGION, PROT_WRITE, MAP_SHARED, again, 0) == MAP_FAILED);
		CHILD_CHECK(pwrite(again, "x", 1, 0) < 0);
		CHILD_CHECK(ftruncate(again, 0) < 0);
	}
}

static void shm__can_not_be_written_or_shrunk_by_another_process(void **state)
{
	struct region r = create();
	shared_fd = dup(r.fd);
	struct child c = child_start(attack);
	say(c.sock, 1);
	assert_int_equal(hear(c.sock), UINT64_MAX);
	assert_int_equal(child_end(&c), 0);
	close(shared_fd);
	destroy(&r);
}

/* ---- what a peer must not be able to make this side map ---- */

static void shm_map_peer__refuses_what_could_crash_the_reader(void **state)
{
	const void *addr;
	struct region r = create();
	assert_int_equal(vb_shm_map_peer(r.fd, REGION - 4096, &addr), -EINVAL);
	assert_int_equal(vb_shm_map_peer(r.fd, REGION + 4096, &addr), -EINVAL);
	assert_int_equal(vb_shm_map_peer(r.fd, 0, &addr), -EINVAL);
	destroy(&r);

	int shrinkable = memfd_create("shrinkable", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(shrinkable, REGION), 0);
	assert_int_equal(vb_shm_map_peer(shrinkable, REGION, &addr), -EPERM);
	close(shrinkable);

	int huge = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
	if (huge >= 0 && ftruncate(huge, 2 << 20) == 0 && fcntl(huge, F_ADD_SEALS, F_SEAL_SHRINK) == 0)
		assert_int_equal(vb_shm_map_peer(huge, 2 << 20, &addr), -EINVAL);
	close(huge);

	int pair[2];
	assert_int_equal(pipe(pair), 0);
	assert_int_equal(vb_shm_map_peer(pair[0], REGION, &addr), -EPERM);
	assert_int_equal(vb_shm_map_peer(-1, REGION, &addr), -EPERM);
	close(pair[0]);
	close(pair[1]);
}

/* ---- forks ---- */

static struct region inherited;

static void use_inherited(int sock)
{
	CHILD_CHECK(inherited.addr[0] == 0);
	memset(inherited.addr, 'c', REGION);
	CHILD_CHECK(fcntl(inherited.fd, F_GETFD) < 0);
	vb_shm_unmap(inherited.addr, REGION);
	CHILD_CHECK(vb_mem_check(inherited.addr, 1, false) == -EFAULT);
}

static void check_inherited(void)
{
	inherited = create();
	inherited.addr[0] = 'p';
	struct child c = child_start(use_inherited);
	assert_int_equal(hear(c.sock), UINT64_MAX);
	assert_int_equal(child_end(&c), 0);
	assert_int_equal(inherited.addr[0], 'p');
	assert_int_equal(inherited.addr[REGION - 1], 0);
	destroy(&inherited);
}

static void shm__in_a_forked_child_is_private_zero_pages(void **state) { check_inherited(); }

static void shm__in_a_forked_child_needs_no_promise_of_memory(void **state)
{
	promises_nothing = true;
	check_inherited();
	promises_nothing = false;
}

static bool can_allocate(void)
{
	void *p = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p != MAP_FAILED && !munmap(p, REGION);
}

static void allocate(int sock) { CHILD_CHECK(can_allocate()); }

/* The kernel counts all private memory that can be written, touched or not. */
static void shm__in_a_forked_child_takes_nothing_of_its_data_limit(void **state)
{
	struct rlimit before, limit;
	void *addr;
	int fd;
	assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
	limit = (struct rlimit){ (rlim_t)1 << 32, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_DATA, &limit), 0);
	bool works = can_allocate();
	assert_int_equal(vb_shm_create((size_t)1 << 34, "sparse", &fd, &addr), 0);
	struct child c = child_start(allocate);
	assert_int_equal(hear(c.sock), UINT64_MAX);
	int status = child_end(&c);
	setrlimit(RLIMIT_DATA, &before);
	vb_shm_unmap(addr, (size_t)1 << 34);
	vb_fd_close(fd);
	if (!works)
		SKIP("a sanitizer has more memory than that");
	assert_int_equal(status, 0);
}

/* ---- vb_mem_check ---- */

static void mem_check__finds_holes_and_protections(void **state)
{
	if (!are_holes_told)
		SKIP(NOT_TOLD);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *p = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(p != MAP_FAILED);

	assert_int_equal(vb_mem_check(p, 8 * page, true), 0);
	assert_int_equal(vb_mem_check(p + 1, 1, true), 0);
	assert_int_equal(vb_mem_check(p + page - 1, 2, true), 0);
	assert_int_equal(vb_mem_check(NULL, 0, true), 0);
	assert_int_equal(vb_mem_check(NULL, 1, false), -EFAULT);
	assert_int_equal(vb_mem_check(NULL, 1, true), -EFAULT);
	assert_int_equal(vb_mem_check(NULL, 3 * page, false), -EFAULT);
	assert_int_equal(vb_mem_check(p, SIZE_MAX, false), -EFAULT);
	assert_int_equal(vb_mem_check((void *)UINTPTR_MAX, 1, false), -EFAULT);

	mprotect(p + 7 * page, page, PROT_READ);
	assert_int_equal(vb_mem_check(p, 8 * page, false), 0);
	assert_int_equal(vb_mem_check(p, 8 * page, true), -EFAULT);
	assert_int_equal(vb_mem_check(p, 7 * page, true), 0);
	mprotect(p, page, PROT_NONE);
	assert_int_equal(vb_mem_check(p + page - 1, 2, false), -EFAULT);
	munmap(p + 3 * page, page);
	assert_int_equal(vb_mem_check(p + page, 5 * page, false), -EFAULT);
	assert_int_equal(vb_mem_check(p + page, 2 * page, true), 0);
	assert_int_equal(vb_mem_check(p + 3 * page, 1, false), -EFAULT);
	assert_int_equal(vb_mem_check(p + 3 * page, 1, true), -EFAULT);
	assert_int_equal(vb_mem_check(p + 4 * page - 1, 2, true), -EFAULT);
	assert_int_equal(vb_mem_check(p + 3 * page - 1, 2, true), -EFAULT);
	assert_int_equal(vb_mem_check(p + 2 * page, 3 * page, true), -EFAULT);
	mprotect(p + page, page, PROT_WRITE);
	assert_int_equal(vb_mem_check(p + page, page, true), 0);
	munmap(p, 8 * page);
}

static void mem_check__changes_nothing(void **state)
{
	if (!are_holes_told)
		SKIP(NOT_TOLD);
	uint32_t words[3] = { 0x80000000, 7, 0xfffffffe };
	errno = ENOENT;
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(vb_mem_check(&words[i], sizeof words[i], true), 0);
	assert_int_equal(vb_mem_check(NULL, 1, true), -EFAULT);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(words[0], 0x80000000);
	assert_int_equal(words[1], 7);
	assert_int_equal(words[2], 0xfffffffe);
}

static int start_host(void **state)
{
	are_holes_told = kernel_tells_what_is_mapped();
	return vb_host_get();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shm_create__gives_zero_pages_and_takes_little_memory),
		cmocka_unit_test(shm_map_peer__shows_what_the_owner_writes),
		cmocka_unit_test(shm__can_not_be_written_or_resized_by_descriptor),
		cmocka_unit_test(shm__can_not_be_written_or_shrunk_by_another_process),
		cmocka_unit_test(shm_map_peer__refuses_what_could_crash_the_reader),
		cmocka_unit_test(shm__in_a_forked_child_is_private_zero_pages),
		cmocka_unit_test(shm__in_a_forked_child_needs_no_promise_of_memory),
		cmocka_unit_test(shm__in_a_forked_child_takes_nothing_of_its_data_limit),
		cmocka_unit_test(mem_check__finds_holes_and_protections),
		cmocka_unit_test(mem_check__changes_nothing),
	};
	return cmocka_run_group_tests(tests, start_host, NULL);
}
