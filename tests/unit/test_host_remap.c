/* SPDX-License-Identifier: BSD-2-Clause */
/* Pages that move into a memfd and back under a program that uses them. */
#include "../between.h"
#include "host/memory/remap.h"

#include "../kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PAGES = 64 };
#define PAGE  ((size_t)sysconf(_SC_PAGESIZE))
#define BYTES (PAGES * PAGE)

static void call_may_now(void *arg)
{
	*(bool *)arg = vb_remap_may_now();
}

/* An ordinary user's program must have one thread; ThreadSanitizer and emulators add others. */
static bool can_move(void)
{
	bool may = false;
	return vb_host_get() == 0 && vb_loop_call(call_may_now, &may) == 0 && may;
}

static uint8_t *map(size_t bytes)
{
	uint8_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(p != MAP_FAILED);
	return p;
}

static void fill(uint8_t *p, size_t bytes, unsigned seed)
{
	for (size_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)(i * 7 + i / 251 + seed);
}

static void check(const uint8_t *p, size_t bytes, unsigned seed)
{
	for (size_t i = 0; i < bytes; i++)
		if (p[i] != (uint8_t)(i * 7 + i / 251 + seed))
			fail_msg("byte %zu is %u", i, p[i]);
}

/* /proc/self/status names them all, in tens of kilobytes. */
static bool join_many_groups(void)
{
	static gid_t groups[4000];
	for (unsigned i = 0; i < VB_ARRAY_LEN(groups); i++)
		groups[i] = 1000000000 + i;
	return !setgroups(VB_ARRAY_LEN(groups), groups);
}

/* ---- calls, as they are made in the library: by the progress thread, while this one waits ---- */

struct call {
	uint8_t *at;
	size_t bytes;
	unsigned advice;
	int fd, err;
	struct vb_remap_plan plan;
};

static void call_check(void *arg)
{
	struct call *c = arg;
	c->err = vb_remap_check((uintptr_t)c->at, c->bytes, &c->plan);
}

/* Results go to the caller's stack only after everything was moved. */
static void call_in(void *arg)
{
	struct call *c = arg;
	int fd, err = vb_remap_check((uintptr_t)c->at, c->bytes, &c->plan);
	if (!err)
		err = vb_remap_open(c->bytes, &fd);
	if (err) {
		c->err = err;
		return;
	}
	uintptr_t start = (uintptr_t)c->at;
	for (unsigned i = 0; !err && i < c->plan.pieces; i++)
		err = vb_remap_in(c->plan.piece[i].at, c->plan.piece[i].bytes, c->plan.advice, fd,
				  c->plan.piece[i].at - start);
	c->advice = c->plan.advice;
	c->fd = fd;
	c->err = err;
}

/* The same of a region of one piece that is longer than a slice. */
static void call_in_slices(void *arg)
{
	struct call *c = arg;
	int fd, err = vb_remap_check((uintptr_t)c->at, c->bytes, &c->plan);
	if (!err)
		err = vb_remap_open(c->bytes, &fd);
	for (size_t done = 0; !err && done < c->bytes; done += VB_REMAP_SLICE)
		err = vb_remap_in((uintptr_t)c->at + done, vb_min_u64(VB_REMAP_SLICE, c->bytes - done),
				  c->plan.advice, fd, done);
	c->advice = c->plan.advice;
	c->fd = fd;
	c->err = err;
}

static void call_back(void *arg)
{
	struct call *c = arg;
	c->err = vb_remap_back(c->fd, c->advice);
}

static int check_range(void *at, size_t bytes)
{
	struct call c = { .at = at, .bytes = bytes };
	assert_int_equal(vb_loop_call(call_check, &c), 0);
	return c.err;
}

static struct call move_in(void *at, size_t bytes)
{
	struct call c = { .at = at, .bytes = bytes };
	assert_int_equal(vb_loop_call(call_in, &c), 0);
	return c;
}

static int move_back(struct call *c)
{
	assert_int_equal(vb_loop_call(call_back, c), 0);
	if (!c->err)
		vb_fd_close(c->fd);
	return c->err;
}

/* Is the page shared with a file? */
static bool is_moved(const void *at)
{
	char line[512];
	unsigned long first, last, inode;
	char perms[5];
	bool found = false, moved = false;
	FILE *f = fopen("/proc/self/maps", "r");
	assert_non_null(f);
	while (!found && fgets(line, sizeof line, f)) {
		assert_int_equal(sscanf(line, "%lx-%lx %4s %*s %*s %lu", &first, &last, perms, &inode), 4);
		found = first <= (uintptr_t)at && (uintptr_t)at < last;
		moved = found && inode && perms[3] == 's';
	}
	fclose(f);
	assert_true(found);
	return moved;
}


/* ---- cases ---- */

static void remap__contents_stay_on_the_way_in_and_back(void **state)
{
	uint8_t *p = map(BYTES);
	fill(p, BYTES, 1);
	struct call c = move_in(p, BYTES);
	assert_int_equal(c.err, 0);
	assert_true(is_moved(p));
	check(p, BYTES, 1);
	uint8_t *other = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, c.fd, 0);
	assert_true(other != MAP_FAILED);
	check(other, BYTES, 1);
	fill(other, BYTES, 2);
	check(p, BYTES, 2);
	munmap(other, BYTES);
	assert_int_equal(move_back(&c), 0);
	assert_false(is_moved(p));
	check(p, BYTES, 2);
	fill(p, BYTES, 3);
	check(p, BYTES, 3);
	munmap(p, BYTES);
}

static void remap__a_part_of_a_mapping_leaves_its_neighbours(void **state)
{
	uint8_t *p = map(BYTES);
	fill(p, BYTES, 4);
	struct call c = move_in(p + 8 * PAGE, 16 * PAGE);
	assert_int_equal(c.err, 0);
	assert_false(is_moved(p + 7 * PAGE));
	assert_true(is_moved(p + 8 * PAGE));
	assert_true(is_moved(p + 23 * PAGE));
	assert_false(is_moved(p + 24 * PAGE));
	check(p, BYTES, 4);
	assert_int_equal(move_back(&c), 0);
	check(p, BYTES, 4);
	munmap(p, BYTES);
}

/*
 * A page that was never touched takes no memory: not before the move, not in the memfd, and not after the
 * move back. Huge pages are off, since one touch would fill 2 MiB.
 */
static void remap__holes_stay_holes(void **state)
{
	size_t bytes = 3 * (size_t)VB_REMAP_SLICE;
	uint8_t *p = map(bytes), resident[3];
	struct stat st;
	(void)madvise(p, bytes, MADV_NOHUGEPAGE); /* a kernel without huge pages refuses */
	p[5 * PAGE] = 77;
	p[bytes - 1] = 78;
	struct call c = { .at = p };
	c = move_in(p, VB_REMAP_SLICE);
	assert_int_equal(c.err, 0);
	assert_int_equal(fstat(c.fd, &st), 0);
	assert_int_equal(st.st_blocks * 512, PAGE);
	assert_int_equal(move_back(&c), 0);
	assert_int_equal(mincore(p + 4 * PAGE, 3 * PAGE, resident), 0);
	assert_int_equal(resident[0] & 1, 0);
	assert_int_equal(resident[1] & 1, 1);
	assert_int_equal(resident[2] & 1, 0);
	assert_int_equal(p[5 * PAGE], 77);
	assert_int_equal(p[bytes - 1], 78);
	munmap(p, bytes);
}

/*
 * Such memory can become one mapping with a neighbour, even with the place where its pages wait; then the
 * kernel ends its trap.
 */
static void remap__memory_that_was_never_touched(void **state)
{
	uint8_t *p = map(BYTES);
	struct call c = move_in(p, BYTES);
	assert_int_equal(c.err, 0);
	assert_true(is_moved(p));
	assert_int_equal(move_back(&c), 0);
	for (size_t i = 0; i < BYTES; i++)
		assert_int_equal(p[i], 0);
	munmap(p, BYTES);
}

/* The most that this process has had resident since the last reset, in KiB. */
static unsigned long peak_kib(void)
{
	unsigned long kib = 0;
	char line[256];
	FILE *f = fopen("/proc/self/status", "r");
	assert_non_null(f);
	while (!kib && fgets(line, sizeof(line), f))
		sscanf(line, "VmHWM: %lu", &kib);
	fclose(f);
	return kib;
}

static bool reset_peak(void)
{
	FILE *f = fopen("/proc/self/clear_refs", "w");
	return f && fputs("5", f) >= 0 && fclose(f) == 0;
}

/* A slice at a time is there twice. */
static void remap__needs_little_memory_beside_the_region(void **state)
{
	size_t bytes = (size_t)32 << 20;
	uint8_t *p = map(bytes);
	fill(p, bytes, 5);
	if (!reset_peak()) {
		print_message("/proc/self/clear_refs cannot be written: nothing to measure with\n");
		munmap(p, bytes);
		return;
	}
	unsigned long before = peak_kib();
	struct call c = { .at = p, .bytes = bytes };
	assert_int_equal(vb_loop_call(call_in_slices, &c), 0);
	assert_int_equal(c.err, 0);
	check(p, bytes, 5);
	assert_int_equal(move_back(&c), 0);
	check(p, bytes, 5);
	assert_between(peak_kib(), before / 2, before + (bytes >> 10) / 5);
	munmap(p, bytes);
}

static void remap__refuses_what_is_not_plain_memory(void **state)
{
	uint8_t *p = map(BYTES), stack[3 * 65536];
	int fd = memfd_create("test", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, BYTES), 0);
	uintptr_t in_stack = ((uintptr_t)stack + PAGE) & ~(uintptr_t)(PAGE - 1);
	assert_int_equal(check_range(p, BYTES), 0);
	assert_int_equal(check_range((void *)in_stack, PAGE), -EPERM);
	assert_int_equal(check_range(p + 1, PAGE), -EINVAL);
	assert_int_equal(mprotect(p, PAGE, PROT_READ), 0);
	assert_int_equal(check_range(p, 2 * PAGE), -EPERM);
	assert_int_equal(syscall(SYS_mlock, p + 2 * PAGE, PAGE), 0); /* sanitizers leave mlock() out */
	assert_int_equal(check_range(p + PAGE, 2 * PAGE), -EPERM);
	assert_int_equal(madvise(p + 4 * PAGE, PAGE, MADV_DONTFORK), 0);
	assert_int_equal(check_range(p + 4 * PAGE, PAGE), -EPERM);
	assert_int_equal(madvise(p + 5 * PAGE, PAGE, MADV_WIPEONFORK), 0);
	assert_int_equal(check_range(p + 5 * PAGE, PAGE), -EPERM);
	assert_true(mmap(p + 6 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) !=
		    MAP_FAILED);
	assert_int_equal(check_range(p + 6 * PAGE, PAGE), -EPERM);
	assert_true(mmap(p + 7 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) !=
		    MAP_FAILED);
	assert_int_equal(check_range(p + 7 * PAGE, PAGE), -EPERM);
	munmap(p + 8 * PAGE, PAGE);
	assert_int_equal(check_range(p + 8 * PAGE, 2 * PAGE), -EFAULT);
	assert_int_equal(check_range(p + 9 * PAGE, BYTES - 9 * PAGE), 0);
	munmap(p, BYTES);
	close(fd);
}

static void map_anew(uint8_t *at)
{
	if (mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at)
		memset(at, 0x66, PAGE);
}

struct place {
	int fd;
	uint8_t *at;
	size_t bytes, offset;
	bool is_there;
};

static void call_is_at(void *arg)
{
	struct place *p = arg;
	p->is_there = vb_remap_is_at(p->fd, p->offset, (uintptr_t)p->at, p->bytes);
}

static bool is_at(const struct call *c, size_t offset, uint8_t *at, size_t bytes)
{
	struct place p = { c->fd, at, bytes, offset, false };
	assert_int_equal(vb_loop_call(call_is_at, &p), 0);
	return p.is_there;
}

/* The program may map other memory where the moved pages were: those are not the memfd's. */
static void remap__knows_what_is_still_its_own(void **state)
{
	uint8_t *p = map(BYTES), *elsewhere = map(BYTES);
	fill(p, BYTES, 6);
	struct call c = move_in(p, BYTES);
	assert_int_equal(c.err, 0);
	assert_true(is_at(&c, 0, p, BYTES));
	assert_true(is_at(&c, 3 * PAGE, p + 3 * PAGE, 2 * PAGE));
	assert_false(is_at(&c, 3 * PAGE, p + 4 * PAGE, PAGE));
	assert_false(is_at(&c, 0, elsewhere, BYTES));
	assert_int_equal(mprotect(p + 8 * PAGE, PAGE, PROT_READ), 0); /* in three mappings now */
	assert_true(is_at(&c, 0, p, BYTES));
	map_anew(p + 4 * PAGE);
	assert_false(is_at(&c, 0, p, BYTES));
	assert_false(is_at(&c, 4 * PAGE, p + 4 * PAGE, PAGE));
	assert_true(is_at(&c, 0, p, 4 * PAGE));
	assert_true(is_at(&c, 5 * PAGE, p + 5 * PAGE, BYTES - 5 * PAGE));
	munmap(p, PAGE);
	assert_false(is_at(&c, 0, p, 4 * PAGE));
	assert_int_equal(move_back(&c), 0);
	munmap(p, BYTES);
	munmap(elsewhere, BYTES);
}

/* What the program unmapped, or put elsewhere, while its pages were in the memfd. */
static void remap__comes_back_where_it_is_by_then(void **state)
{
	uint8_t *p = map(BYTES), *elsewhere = map(BYTES);
	fill(p, BYTES, 5);
	struct call c = move_in(p, BYTES);
	assert_int_equal(c.err, 0);
	munmap(p + 4 * PAGE, PAGE);
	uint8_t *new = mmap(p + 4 * PAGE, PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	assert_ptr_equal(new, p + 4 * PAGE);
	assert_int_equal(mprotect(p + 8 * PAGE, PAGE, PROT_READ), 0);
	uint8_t *moved = mremap(p + 10 * PAGE, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere);
	assert_ptr_equal(moved, elsewhere);
	assert_int_equal(move_back(&c), 0);
	check(p, 4 * PAGE, 5);
	assert_int_equal(new[0], 0);
	check(p + 5 * PAGE, 0, 5);
	assert_int_equal(p[8 * PAGE], (uint8_t)(8 * PAGE * 7 + 8 * PAGE / 251 + 5));
	assert_int_equal(moved[PAGE], (uint8_t)(11 * PAGE * 7 + 11 * PAGE / 251 + 5));
	assert_false(is_moved(p));
	assert_false(is_moved(moved));
	assert_int_equal(vb_mem_check(p + 8 * PAGE, PAGE, false), 0);
	assert_int_equal(vb_mem_check(p + 8 * PAGE, PAGE, true), -EFAULT);
	assert_int_equal(vb_mem_check(p + 10 * PAGE, PAGE, false), -EFAULT);
	munmap(p, BYTES);
	munmap(elsewhere, BYTES);
}

static void remap__waits_for_what_may_pin_pages(void **state)
{
	char name[] = "remap-XXXXXX";
	int file = mkstemp(name);
	unlink(name);
	uint8_t *p = map(BYTES);
	fill(p, BYTES, 6);
	struct call c = move_in(p, BYTES);
	assert_int_equal(c.err, 0);
	if (fcntl(file, F_SETFL, O_DIRECT) < 0) {
		move_back(&c);
		SKIP("the file system of the build directory has no O_DIRECT");
	}
	assert_int_equal(move_back(&c), -EBUSY);
	assert_true(is_moved(p));
	check(p, BYTES, 6);
	fill(p, BYTES, 7);
	uint8_t *q = map(BYTES);
	fill(q, BYTES, 8);
	struct call d = move_in(q, BYTES);
	assert_int_equal(d.err, -EBUSY);
	assert_false(is_moved(q));
	check(q, BYTES, 8);
	vb_fd_close(d.fd);
	close(file);
	assert_int_equal(move_back(&c), 0);
	check(p, BYTES, 7);
	munmap(p, BYTES);
	munmap(q, BYTES);
}

static void remap__a_sealed_memfd_keeps_its_size_and_its_reader_reads(void **state)
{
	int fd;
	for (int writable = 0; writable < 2; writable++) {
		assert_int_equal(vb_remap_open(BYTES, &fd), 0);
		void *own = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		assert_true(own != MAP_FAILED);
		assert_int_equal(vb_remap_seal(fd, writable), 0);
		assert_int_equal(ftruncate(fd, PAGE), -1);
		void *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		assert_int_equal(p != MAP_FAILED, writable);
		if (p != MAP_FAILED)
			munmap(p, BYTES);
		*(char *)own = 1;
		munmap(own, BYTES);
		vb_fd_close(fd);
	}
}

static struct call forked;
static void call_fork_copy(void *arg)
{
	*(int *)arg = vb_remap_fork_copy(forked.fd);
}

static void remap__a_child_gets_copies(void **state)
{
	int status, err;
	uint8_t *p = map(BYTES);
	fill(p, BYTES, 9);
	forked = move_in(p, BYTES);
	assert_int_equal(forked.err, 0);
	assert_int_equal(vb_loop_call(call_fork_copy, &err), 0);
	assert_int_equal(err, 0);
	pid_t pid = fork();
	if (!pid) {
		vb_remap_fork_restore();
		bool ok = p[100] == (uint8_t)(709);
		p[100] = 1;
		_exit(!ok || is_moved(p));
	}
	vb_remap_fork_drop();
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	check(p, BYTES, 9);
	assert_int_equal(move_back(&forked), 0);
	munmap(p, BYTES);
}

/* ---- beside other threads ---- */

enum { MOVES = 200 };
#define COUNTERS (BYTES / 8)

static struct {
	_Atomic(uint64_t) *words;
	atomic_bool stop;
	int zero;
} beside;

/* Counts in its own half of the words; each must have been counted as often as this thread has. */
static void *count_words(void *arg)
{
	uintptr_t odd = (uintptr_t)arg;
	uint64_t rounds = 0, lost = 0;
	for (; !atomic_load(&beside.stop); rounds++)
		for (size_t i = odd; i < COUNTERS / 2; i += 2) {
			uint64_t now = atomic_load_explicit(&beside.words[i], memory_order_relaxed);
			lost += now != rounds;
			atomic_store_explicit(&beside.words[i], rounds + 1, memory_order_relaxed);
		}
	return (void *)lost;
}

/* System calls write into the other half. */
static void *read_files(void *arg)
{
	uint64_t wrong = 0;
	uint8_t *at = (uint8_t *)&beside.words[COUNTERS / 2];
	while (!atomic_load(&beside.stop)) {
		memset(at, 1, BYTES / 2);
		wrong += pread(beside.zero, at, BYTES / 2, 0) != (ssize_t)(BYTES / 2);
		for (size_t i = 0; i < BYTES / 2; i += 61)
			wrong += at[i] != 0;
	}
	return (void *)wrong;
}

/* The memory is usable all the time, whoever asks for it meanwhile. */
static void *look(void *arg)
{
	uint64_t refusals = 0;
	for (size_t at = 0; !atomic_load(&beside.stop); at = (at + PAGE) % BYTES) {
		refusals += vb_mem_check((uint8_t *)beside.words + at, 8, true) != 0;
		refusals += vb_mem_check((uint8_t *)beside.words + at, 8, false) != 0;
	}
	return (void *)refusals;
}

static void remap__threads_that_use_the_memory_lose_nothing(void **state)
{
	pthread_t threads[4];
	if (vb_remap_way() != VB_REMAP_ANYTIME)
		SKIP("pages cannot be moved beside other threads here");
	uint8_t *p = map(BYTES);
	beside.words = (void *)p;
	beside.zero = open("/dev/zero", O_RDONLY);
	atomic_store(&beside.stop, false);
	for (uintptr_t i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, count_words, (void *)i);
	pthread_create(&threads[2], NULL, read_files, NULL);
	pthread_create(&threads[3], NULL, look, NULL);
	int err = 0;
	for (int i = 0; i < MOVES && !err; i++) {
		struct call c = move_in(p, BYTES);
		err = c.err ? c.err : move_back(&c);
	}
	atomic_store(&beside.stop, true);
	void *bad;
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &bad);
		assert_null(bad);
	}
	assert_int_equal(err, 0);
	close(beside.zero);
	munmap(p, BYTES);
}

/* What the program does while its pages are being copied into the memfd. */
static struct {
	void (*act)(uint8_t *at);
	uint8_t *at;
} meanwhile;

/* In place of the C library's: what copies the pages. */
ssize_t pwrite(int fd, const void *from, size_t bytes, off_t offset)
{
	void (*act)(uint8_t *at) = meanwhile.act;
	meanwhile.act = NULL;
	if (act)
		act(meanwhile.at);
	return syscall(SYS_pwrite64, fd, from, bytes, offset);
}

static void unmap_pages(uint8_t *at) { munmap(at, PAGE); }

/* The page has another fate than its neighbours, which keep what they had. */
static void move_while(void (*act)(uint8_t *at), size_t page)
{
	uint8_t *p = map(BYTES);
	fill(p, BYTES, 3);
	meanwhile.at = p + page * PAGE;
	meanwhile.act = act;
	struct call c = move_in(p, BYTES);
	assert_null(meanwhile.act);
	assert_int_equal(c.err, -EFAULT);
	for (size_t i = 0; i < BYTES; i++)
		if (i / PAGE != page)
			assert_int_equal(p[i], (uint8_t)(i * 7 + i / 251 + 3));
	if (act == map_anew)
		for (size_t i = 0; i < PAGE; i++)
			assert_int_equal(p[page * PAGE + i], 0x66);
	else
		assert_int_equal(vb_mem_check(p + page * PAGE, PAGE, false), -EFAULT);
	assert_false(is_moved(p + PAGE));
	assert_false(is_moved(p + BYTES - PAGE));
	fill(p, page * PAGE, 4);
	fill(p + (page + 1) * PAGE, BYTES - (page + 1) * PAGE, 4);
	munmap(p, BYTES);
}

static void remap__what_the_program_does_meanwhile_counts(void **state)
{
	if (vb_remap_way() != VB_REMAP_ANYTIME)
		SKIP("pages cannot be moved beside other threads here");
	for (size_t page = 0; page < PAGES; page += 5) {
		move_while(map_anew, page);
		move_while(unmap_pages, page);
	}
}

static __thread uint8_t own_word[8];

/* 0: as it should be; 77: pages can be moved beside any thread, or not at all. */
static int move_own_storage(void)
{
	struct call own = { .at = (uint8_t *)((uintptr_t)own_word & ~(uintptr_t)(PAGE - 1)), .bytes = PAGE };
	struct call thread = { .at = (uint8_t *)((uintptr_t)pthread_self() & ~(uintptr_t)(PAGE - 1)),
			       .bytes = PAGE };
	struct call other = { .at = map(PAGE), .bytes = PAGE };
	bool may = false;
	/* Root has the trap; of a user namespace alone, he has not. Who has been another user cannot look
	 * at himself unless he says so. */
	if (setresuid(65534, 65534, 65534) == 0)
		prctl(PR_SET_DUMPABLE, 1);
	if (vb_host_get() || vb_remap_way() != VB_REMAP_ALONE)
		return 77;
	if (vb_loop_call(call_may_now, &may) || !may)
		return 77;
	fill(other.at, PAGE, 1);
	vb_remap_exclude_caller();
	if (vb_loop_call(call_in, &own) || vb_loop_call(call_in, &thread) || vb_loop_call(call_in, &other))
		return 1;
	return own.err == -EPERM && thread.err == -EPERM && !other.err && is_moved(other.at) ? 0 : 2;
}

/* A program may register its thread-local storage, which its only thread needs for waiting. */
static void remap__spares_the_storage_of_who_waits(void **state)
{
	int status;
	fflush(NULL);
	pid_t child = fork();
	if (!child)
		_exit(move_own_storage());
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		SKIP("pages can be moved beside any thread here, or not at all");
	assert_int_equal(status, 0);
}

static void remap__of_a_user_in_many_groups(void **state)
{
	gid_t before[64];
	int n = getgroups(VB_ARRAY_LEN(before), before);
	if (n < 0 || !join_many_groups())
		SKIP("this process cannot join groups");
	uint8_t *p = map(BYTES);
	fill(p, BYTES, 9);
	struct call c = move_in(p, BYTES);
	int err = c.err ? c.err : move_back(&c);
	assert_int_equal(setgroups((size_t)n, before), 0);
	assert_int_equal(err, 0);
	check(p, BYTES, 9);
	munmap(p, BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(remap__contents_stay_on_the_way_in_and_back),
		cmocka_unit_test(remap__a_part_of_a_mapping_leaves_its_neighbours),
		cmocka_unit_test(remap__holes_stay_holes),
		cmocka_unit_test(remap__memory_that_was_never_touched),
		cmocka_unit_test(remap__needs_little_memory_beside_the_region),
		cmocka_unit_test(remap__refuses_what_is_not_plain_memory),
		cmocka_unit_test(remap__knows_what_is_still_its_own),
		cmocka_unit_test(remap__comes_back_where_it_is_by_then),
		cmocka_unit_test(remap__waits_for_what_may_pin_pages),
		cmocka_unit_test(remap__a_sealed_memfd_keeps_its_size_and_its_reader_reads),
		cmocka_unit_test(remap__of_a_user_in_many_groups),
		cmocka_unit_test(remap__a_child_gets_copies),
		cmocka_unit_test(remap__spares_the_storage_of_who_waits),
		cmocka_unit_test(remap__threads_that_use_the_memory_lose_nothing),
		cmocka_unit_test(remap__what_the_program_does_meanwhile_counts),
	};
	if (!can_move()) {
		printf("1..0 # SKIP no userfaultfd of the full kind here, and this process has other threads than its own\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
