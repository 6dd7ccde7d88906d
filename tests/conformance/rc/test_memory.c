/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registered memory stays the program's: whatever the library does so that a peer reaches it fast, threads use it meanwhile, system calls
 * write into it, neighbours on its pages come and go, forks copy it, and each byte is as it should be. VERBATIM_HAMMER=n: how many regions.
 */
#include "rc.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 120, MOST = 96 * 1024, WORD = 8, THREADS = 3, MOVE_MS = 3 };

/* Is this page shared with a file? False as well if nothing is there. */
static bool is_moved(const void *at)
{
	char line[4300], perms[5];
	unsigned long first, last, inode;
	bool found = false, moved = false;
	FILE *f = fopen("/proc/self/maps", "r");
	CHECK(f);
	while (!found && fgets(line, sizeof(line), f)) {
		CHECK_EQ(sscanf(line, "%lx-%lx %4s %*s %*s %lu", &first, &last, perms, &inode), 4);
		found = first <= (uintptr_t)at && (uintptr_t)at < last;
		moved = found && inode && perms[3] == 's';
	}
	fclose(f);
	return moved;
}

/* A region in quarters: the peer's (its first word is counted up by both), a thread's, a system call's, and one that nobody changes. */
struct region {
	uint64_t addr, len, quarter; /* quarter: bytes, whole words */
	uint32_t rkey, rkey2;        /* rkey2, if not 0: of the middle two quarters */
	uint64_t seed;
	bool ends;
};

static _Atomic(uint64_t) *words_of(const struct region *r, int quarter)
{
	return (void *)(uintptr_t)(r->addr + quarter * r->quarter);
}

/* ---- the owner's threads ---- */

static struct {
	struct region r;
	pthread_barrier_t barrier;
	atomic_bool stop, quit;
	uint64_t added; /* to the common word by this process */
} work;

static void each_round(void (*body)(void))
{
	for (;;) {
		pthread_barrier_wait(&work.barrier);
		if (atomic_load(&work.quit))
			return;
		body();
		pthread_barrier_wait(&work.barrier);
	}
}

static void count_words(void)
{
	size_t n = work.r.quarter / WORD;
	_Atomic(uint64_t) *words = words_of(&work.r, 1), *common = words_of(&work.r, 0);
	for (uint64_t turn = 0; !atomic_load(&work.stop); turn++) {
		for (size_t i = 0; i < n; i++) {
			CHECK_EQ(atomic_load_explicit(&words[i], memory_order_relaxed), turn);
			atomic_store_explicit(&words[i], turn + 1, memory_order_relaxed);
		}
		atomic_fetch_add(common, 1);
		work.added++;
		if (turn % 16 == 0)
			sched_yield();
	}
}

static void read_files(void)
{
	static int zero = -1;
	if (zero < 0)
		zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	uint8_t *at = (void *)words_of(&work.r, 2);
	while (!atomic_load(&work.stop)) {
		memset(at, 0x77, work.r.quarter);
		CHECK_EQ(read(zero, at, work.r.quarter), work.r.quarter);
		for (size_t i = 0; i < work.r.quarter; i++)
			CHECK_EQ(at[i], 0);
		sched_yield();
	}
}

/* Allocates and frees around the region, on its pages too. */
static void allocate(void)
{
	enum { BLOCKS = 48, MOST_BYTES = 3000 };
	static uint64_t state = 5;
	uint8_t *block[BLOCKS] = { NULL };
	uint32_t bytes[BLOCKS] = { 0 };
	while (!atomic_load(&work.stop)) {
		uint32_t i = rc_below(&state, BLOCKS), n = 1 + rc_below(&state, MOST_BYTES);
		VERIFY_BYTE(block[i], bytes[i], i + 1);
		if (rc_below(&state, 3)) {
			block[i] = realloc(block[i], n);
			VERIFY_BYTE(block[i], n < bytes[i] ? n : bytes[i], i + 1);
			rc_set(block[i], n, i + 1);
			bytes[i] = n;
		} else {
			free(block[i]);
			block[i] = NULL;
			bytes[i] = 0;
		}
		if (i == 0)
			sched_yield();
	}
	for (uint32_t i = 0; i < BLOCKS; i++) {
		VERIFY_BYTE(block[i], bytes[i], i + 1);
		free(block[i]);
	}
}

static void *run_count_words(void *unused) { each_round(count_words); return NULL; }
static void *run_read_files(void *unused) { each_round(read_files); return NULL; }
static void *run_allocate(void *unused) { each_round(allocate); return NULL; }

/* ---- the owner ---- */

/* How many bytes from which place on, and whether they come from malloc or from mmap. */
static void choose(struct region *r, uint64_t *state, uint8_t **block, size_t *block_bytes, bool *mapped)
{
	*mapped = rc_below(state, 4) == 0;
	r->quarter = (rc_below(state, MOST / 4) >> rc_below(state, 10) & ~7u) + 2 * WORD;
	r->len = 4 * r->quarter + rc_below(state, WORD);
	size_t skip = rc_below(state, 600) * WORD;
	*block_bytes = skip + r->len + rc_below(state, 5000);
	*block = *mapped ? rc_map(*block_bytes) : malloc(*block_bytes);
	CHECK(*block);
	rc_set(*block, *block_bytes, 0x11);
	r->addr = (uintptr_t)*block + skip;
	r->seed = rc_random(state);
	memset((void *)(uintptr_t)r->addr, 0, 2 * r->quarter);
	rc_fill((void *)words_of(r, 3), r->len - 3 * r->quarter, r->seed);
}

static bool wait_until_moved(const struct region *r)
{
	uint64_t until = rc_now_ms() + MOVE_MS;
	while (!is_moved((void *)(uintptr_t)r->addr))
		if (rc_now_ms() > until)
			return false;
	return true;
}

static void verify_region(const struct region *r, uint64_t adds, uint8_t written)
{
	CHECK_EQ(atomic_load(words_of(r, 0)), adds + work.added);
	VERIFY_BYTE((uint8_t *)words_of(r, 0) + WORD, r->quarter - WORD, written);
	VERIFY((void *)words_of(r, 3), r->len - 3 * r->quarter, r->seed);
}

static void free_block(uint8_t *block, size_t bytes, bool mapped, const struct region *r, uint64_t *state)
{
	size_t skip = r->addr - (uintptr_t)block;
	VERIFY_BYTE(block, skip, 0x11);
	VERIFY_BYTE(block + skip + r->len, bytes - skip - r->len, 0x11);
	if (mapped) {
		munmap(block, bytes);
	} else if (rc_below(state, 2)) {
		free(block);
	} else {
		block = realloc(block, bytes + rc_below(state, 200000));
		CHECK(block);
		VERIFY(block + skip + 3 * r->quarter, r->len - 3 * r->quarter, r->seed);
		free(block);
	}
}

static bool use_region(struct end *e, uint64_t *state)
{
	uint8_t *block;
	size_t block_bytes;
	bool mapped;
	struct region *r = &work.r;
	*r = (struct region){ 0 };
	choose(r, state, &block, &block_bytes, &mapped);
	struct ibv_mr *mr = ibv_reg_mr(e->pd, (void *)(uintptr_t)r->addr, r->len, e->p.mr_access), *mr2 = NULL;
	CHECK(mr);
	r->rkey = mr->rkey;
	if (rc_below(state, 3) == 0) {
		CHECK(mr2 = ibv_reg_mr(e->pd, (void *)words_of(r, 1), 2 * r->quarter, e->p.mr_access));
		r->rkey2 = mr2->rkey;
	}
	work.added = 0;
	atomic_store(&work.stop, false);
	pthread_barrier_wait(&work.barrier);
	tell_bytes(e, r, sizeof(*r));
	bool moved = wait_until_moved(r);
	struct ibv_sge sge = { (uintptr_t)words_of(r, 3), r->quarter, mr->lkey };
	POST(e, .id = 9, .opcode = IBV_WR_SEND, .sge = &sge, .nsge = 1);
	rc_expect(e->scq, 9, IBV_WC_SUCCESS);
	uint64_t adds = hear(e), written = hear(e);
	if (rc_below(state, 8) == 0)
		moved &= is_moved((void *)(uintptr_t)r->addr); /* a little later */
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	if (mr2)
		CHECK_EQ(ibv_dereg_mr(mr2), 0);
	CHECK(!is_moved((void *)(uintptr_t)r->addr));
	atomic_store(&work.stop, true);
	pthread_barrier_wait(&work.barrier);
	verify_region(r, adds, written);
	free_block(block, block_bytes, mapped, r, state);
	return moved;
}

static void own(struct end *e, unsigned rounds)
{
	static void *(*const run[THREADS])(void *) = { run_count_words, run_read_files, run_allocate };
	pthread_t threads[THREADS];
	uint64_t state = e->seed;
	unsigned moved = 0;
	mallopt(M_ARENA_MAX, 1); /* so that the threads' blocks are the region's neighbours */
	mallopt(M_MMAP_THRESHOLD, 64 * 1024);
	pthread_barrier_init(&work.barrier, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, run[i], NULL));
	for (unsigned i = 1; i <= rounds; i++) {
		moved += use_region(e, &state);
		if (i % 10000 == 0)
			fprintf(stderr, "# %u regions, %u of them moved\n", i, moved);
	}
	atomic_store(&work.quit, true);
	pthread_barrier_wait(&work.barrier);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	struct region end = { .ends = true };
	tell_bytes(e, &end, sizeof(end));
	fprintf(stderr, "# %u of %u regions moved while they were used\n", moved, rounds);
}

/* ---- the peer ---- */

static void read_region(struct end *e, const struct region *r, uint64_t *before, uint8_t written)
{
	struct ibv_sge whole = { (uintptr_t)e->buf, r->len, e->mr->lkey };
	POST(e, .id = 1, .opcode = IBV_WR_RDMA_READ, .sge = &whole, .nsge = 1, .rkey = r->rkey, .remote_at = r->addr - e->peer.addr);
	rc_expect(e->scq, 1, IBV_WC_SUCCESS);
	VERIFY_BYTE(e->buf + WORD, r->quarter - WORD, written);
	VERIFY(e->buf + 3 * r->quarter, r->len - 3 * r->quarter, r->seed);
	uint64_t now = rc_word(e->buf + r->quarter);
	CHECK(now >= *before);
	*before = now;
	if (!r->rkey2)
		return;
	struct ibv_sge middle = { (uintptr_t)e->buf, WORD, e->mr->lkey };
	POST(e, .id = 2, .opcode = IBV_WR_RDMA_READ, .sge = &middle, .nsge = 1, .rkey = r->rkey2,
	     .remote_at = r->addr + r->quarter - e->peer.addr);
	rc_expect(e->scq, 2, IBV_WC_SUCCESS);
	CHECK(rc_word(e->buf) >= now);
}

static void write_region(struct end *e, const struct region *r, uint8_t value)
{
	struct ibv_sge from = { (uintptr_t)e->buf + MOST, r->quarter - WORD, e->mr->lkey };
	struct ibv_sge found = { (uintptr_t)e->buf + 2 * MOST, WORD, e->mr->lkey };
	rc_set(e->buf + MOST, r->quarter - WORD, value);
	POST(e, .id = 3, .opcode = IBV_WR_RDMA_WRITE, .sge = &from, .nsge = 1, .rkey = r->rkey,
	     .remote_at = r->addr + WORD - e->peer.addr);
	POST(e, .id = 4, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sge = &found, .nsge = 1, .rkey = r->rkey,
	     .remote_at = r->addr - e->peer.addr, .compare = 1);
	rc_expect(e->scq, 3, IBV_WC_SUCCESS);
	rc_expect(e->scq, 4, IBV_WC_SUCCESS);
}

static void use_peers_regions(struct end *e)
{
	struct region r;
	struct ibv_wc wc;
	for (;;) {
		uint64_t adds = 0, before = 0;
		hear_bytes(e, &r, sizeof(r));
		if (r.ends)
			return;
		rc_recv(e, 5, 3 * MOST, MOST);
		do {
			adds++;
			write_region(e, &r, adds);
			read_region(e, &r, &before, adds);
		} while (!ibv_poll_cq(e->rcq, 1, &wc));
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.byte_len, r.quarter);
		VERIFY(e->buf + 3 * MOST, r.quarter, r.seed);
		tell(e, adds);
		tell(e, adds & 0xff);
	}
}

static struct params memory_params(void)
{
	struct params p = params();
	p.bytes = 4 * MOST + 64;
	return p;
}

static void memory__hammer(struct end *e)
{
	const char *n = getenv("VERBATIM_HAMMER");
	struct params p = memory_params();
	if (n)
		alarm(0);
	rc_start(e, &p);
	if (e->passive)
		own(e, n ? strtoul(n, NULL, 0) : ROUNDS / (rc_sanitized ? 4 : 1));
	else
		use_peers_regions(e);
	rc_finish(e);
}

/* ---- forks ---- */

static void write_once(struct end *e, uint8_t value)
{
	struct ibv_sge from = { (uintptr_t)e->buf, 64, e->mr->lkey };
	rc_set(e->buf, 64, value);
	POST(e, .id = 1, .opcode = IBV_WR_RDMA_WRITE, .sge = &from, .nsge = 1);
	rc_expect(e->scq, 1, IBV_WC_SUCCESS);
}

/* The child has what the parent had, and neither sees what the other or the peer writes afterwards. */
static void memory__of_a_child_is_its_own(struct end *e)
{
	struct params p = memory_params();
	rc_start(e, &p);
	for (unsigned i = 1; i < 20; i++) {
		if (!e->passive) {
			for (unsigned k = 0; k < 400; k++)
				write_once(e, i);
			meet(e); /* the parent forks */
			meet(e);
			write_once(e, i + 100);
			meet(e);
			meet(e);
			continue;
		}
		int go[2];
		rc_fill(e->buf + MOST, MOST, i);
		CHECK(!pipe(go));
		meet(e);
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			char c;
			CHECK_EQ(read(go[0], &c, 1), 1);
			VERIFY_BYTE(e->buf, 64, i);
			VERIFY(e->buf + MOST, MOST, i);
			CHECK(!is_moved(e->buf));
			rc_set(e->buf, MOST, 0xcc);
			_exit(0);
		}
		rc_set(e->buf + MOST, MOST, 0x33);
		meet(e);
		meet(e);
		CHECK_EQ(write(go[1], "", 1), 1);
		CHECK_EQ(rc_reap(pid), 0);
		VERIFY_BYTE(e->buf, 64, i + 100);
		VERIFY_BYTE(e->buf + MOST, MOST, 0x33);
		close(go[0]);
		close(go[1]);
		meet(e);
	}
	rc_finish(e);
}

/* ---- what a program may do to memory that it has registered ---- */

static void use_for_a_while(struct end *e)
{
	for (unsigned k = 0; k < 400; k++)
		write_once(e, k);
}

/* The zeros that a program expects of pages that it has given back are there once it has deregistered them. */
static void memory__given_back_is_zero(struct end *e)
{
	struct params p = memory_params();
	rc_start(e, &p);
	if (!e->passive)
		use_for_a_while(e);
	meet(e);
	rc_set(e->buf, p.bytes, 0x55);
	CHECK_EQ(ibv_dereg_mr(e->mr), 0);
	VERIFY_BYTE(e->buf, p.bytes, 0x55);
	CHECK(!is_moved(e->buf));
	CHECK_EQ(madvise(e->buf, MOST, MADV_DONTNEED), 0);
	VERIFY_BYTE(e->buf, MOST, 0);
	CHECK(e->mr = ibv_reg_mr(e->pd, e->buf, p.bytes, p.mr_access));
	rc_finish(e);
}

/* A program that unmaps first and deregisters then: what it has mapped there by then is not touched. */
static void memory__unmapped_before_deregistration(struct end *e)
{
	struct params p = memory_params();
	rc_start(e, &p);
	if (!e->passive)
		use_for_a_while(e);
	meet(e);
	if (e->passive) {
		uint8_t *at = (uint8_t *)(((uintptr_t)e->buf + MOST + 4095) & ~4095ul);
		CHECK_EQ(munmap(at, MOST / 2), 0);
		CHECK(mmap(at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
		rc_set(at, 4096, 0x66);
		CHECK_EQ(ibv_dereg_mr(e->mr), 0);
		VERIFY_BYTE(at, 4096, 0x66);
		VERIFY_BYTE(e->buf, 64, 399 & 0xff);
		CHECK(!is_moved(e->buf));
		CHECK(mmap(at, MOST / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
		CHECK(e->mr = ibv_reg_mr(e->pd, e->buf, p.bytes, p.mr_access));
	}
	meet(e);
	rc_finish(e);
}

static const struct body bodies[] = {
	BODY_IN(memory__hammer, PROCESSES_ONLY),
	BODY_IN(memory__of_a_child_is_its_own, PROCESSES_ONLY),
	BODY_IN(memory__given_back_is_zero, PROCESSES_ONLY),
	BODY_IN(memory__unmapped_before_deregistration, PROCESSES_ONLY),
};
RC_MAIN(bodies)
