/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hammer: regions of all kinds of memory are registered, used by a peer, and deregistered, batch after
 * batch, while threads of their owner write into them, read(2) into them, and allocate and free around them;
 * and every byte is as it should be. VERBATIM_TEST_HAMMER=n: how many.
 *
 *	choose, register ─▶ threads and peer at work ─▶ moved? a fork? ─▶ the peer stops ─▶ deregister ─▶ threads stop ─▶ verify
 *	                                                                      or: threads stop ─▶ unmap, mremap, … ─▶ deregister ─▶ verify
 */
#include "rc.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	ROUNDS = 600,
	BATCH = 24,
	MOST = 96 * 1024,   /* bytes of a region */
	WORD = 8,
	THREADS = 3,
	MOVE_MS = 3,
	PAUSE_US = 40,
	FORKS = 12,         /* in all: a program that forks too often with mapped memory gets no more of it */
	FEW_FILES = 48,     /* descriptors that leave room for fewer mapped regions than a batch has */
	REPORT_EVERY = 10000,
	STACK_BYTES = 3 * 65536,
};
#define PAGE ((size_t)sysconf(_SC_PAGESIZE))

enum kind { HEAP, MAPPED, HUGE, LOCKED, FILE_COPY, STACK, KINDS };

/*
 * A region in quarters: the peer's (its first word is counted up by both), a thread's, a system call's, and
 * one that nobody changes.
 */
struct region {
	uint64_t addr, len, quarter; /* quarter: bytes, whole words */
	uint32_t rkey, rkey2;        /* rkey2, if not 0: of the middle two quarters */
	uint64_t seed;
};

struct batch {
	uint32_t n; /* 0: the end */
	struct region region[BATCH];
};

static _Atomic(uint64_t) *words_of(const struct region *r, int quarter)
{
	return (void *)(uintptr_t)(r->addr + quarter * r->quarter);
}

static void *fixed_part(const struct region *r) { return (void *)words_of(r, 3); }
static size_t fixed_bytes(const struct region *r) { return r->len - 3 * r->quarter; }

/* ---- the owner's threads ---- */

static struct {
	struct batch batch;
	pthread_barrier_t barrier;
	atomic_bool stop, quit;
	uint64_t added; /* to each common word by this process */
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

static void let_others_run(void) { usleep(PAUSE_US); }

static void count_words_of(const struct region *r, uint64_t turn)
{
	_Atomic(uint64_t) *words = words_of(r, 1);
	for (size_t i = 0, n = r->quarter / WORD; i < n; i++) {
		CHECK_EQ(atomic_load_explicit(&words[i], memory_order_relaxed), turn);
		atomic_store_explicit(&words[i], turn + 1, memory_order_relaxed);
	}
	atomic_fetch_add(words_of(r, 0), 1);
}

static void count_words(void)
{
	for (uint64_t turn = 0; !atomic_load(&work.stop); turn++) {
		for (unsigned k = 0; k < work.batch.n; k++)
			count_words_of(&work.batch.region[k], turn);
		work.added++;
		let_others_run();
	}
}

static void read_files(void)
{
	static int zero = -1;
	if (zero < 0)
		zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	for (unsigned k = 0; !atomic_load(&work.stop); k = (k + 1) % work.batch.n) {
		const struct region *r = &work.batch.region[k];
		void *at = (void *)words_of(r, 2);
		memset(at, 0x77, r->quarter);
		CHECK_EQ(read(zero, at, r->quarter), r->quarter);
		VERIFY_BYTE(at, r->quarter, 0);
		if (k == 0)
			let_others_run();
	}
}

/* Allocates and frees around the regions, on their pages too. */
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
			let_others_run();
	}
	for (uint32_t i = 0; i < BLOCKS; i++) {
		VERIFY_BYTE(block[i], bytes[i], i + 1);
		free(block[i]);
	}
}

static void *run_count_words(void *unused) { each_round(count_words); return NULL; }
static void *run_read_files(void *unused) { each_round(read_files); return NULL; }
static void *run_allocate(void *unused) { each_round(allocate); return NULL; }

/* ---- the owner: memory ---- */

static struct own {
	enum kind kind;
	uint8_t *block;
	size_t bytes;
	struct ibv_mr *mr, *mr2; /* mr2: of the middle, or NULL */
	bool is_elsewhere, is_unmapped; /* the program has done something to it before it deregistered it */
} owned[BATCH];

static enum kind choose_kind(uint64_t *state)
{
	return rc_below(state, 8) ? rc_below(state, 2) ? HEAP : MAPPED : (enum kind)rc_below(state, STACK);
}

static uint8_t *map_file(size_t bytes)
{
	int fd = memfd_create("hammer", MFD_CLOEXEC);
	CHECK(fd >= 0 && !ftruncate(fd, (off_t)bytes));
	uint8_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(at != MAP_FAILED);
	close(fd);
	return at;
}

static uint8_t *allocate_block(struct own *o)
{
	switch (o->kind) {
	case HEAP:
		return malloc(o->bytes);
	case FILE_COPY:
		return map_file(o->bytes);
	case STACK:
		return o->block; /* the caller's */
	case MAPPED:
	case HUGE:
	case LOCKED:
	case KINDS:
		break;
	}
	uint8_t *at = rc_map(o->bytes);
	if (o->kind == HUGE)
		(void)madvise(at, o->bytes, MADV_HUGEPAGE);
	if (o->kind == LOCKED && syscall(SYS_mlock, at, o->bytes)) /* sanitizers leave mlock() out */
		o->kind = MAPPED; /* beyond what this user may lock */
	return at;
}

static bool stays(enum kind kind) { return kind == LOCKED || kind == FILE_COPY || kind == STACK; }

/* The block's bytes around the region are 0x11. */
static void choose(struct own *o, struct region *r, uint64_t *state, void *stack, size_t stack_bytes)
{
	*o = (struct own){ .kind = stack ? STACK : choose_kind(state), .block = stack };
	*r = (struct region){ .seed = rc_random(state) };
	r->quarter =
		(rc_below(state, stack ? (uint32_t)stack_bytes / 8 : MOST / 4) >> rc_below(state, 10) & ~7u) +
		2 * WORD;
	r->len = 4 * r->quarter + rc_below(state, WORD);
	size_t skip = rc_below(state, stack ? 64 : 600) * WORD;
	o->bytes = stack ? stack_bytes : skip + r->len + rc_below(state, 5000);
	CHECK(o->block = allocate_block(o));
	rc_set(o->block, o->bytes, 0x11);
	r->addr = (uintptr_t)o->block + skip;
	memset((void *)(uintptr_t)r->addr, 0, 2 * r->quarter);
	rc_fill(fixed_part(r), fixed_bytes(r), r->seed);
}

static void register_region(struct end *e, struct own *o, struct region *r, uint64_t *state)
{
	CHECK(o->mr = ibv_reg_mr(e->pd, (void *)(uintptr_t)r->addr, r->len, e->p.mr_access));
	r->rkey = o->mr->rkey;
	if (rc_below(state, 4))
		return;
	CHECK(o->mr2 = ibv_reg_mr(e->pd, (void *)words_of(r, 1), 2 * r->quarter, e->p.mr_access));
	r->rkey2 = o->mr2->rkey;
}

static void deregister(struct own *o)
{
	CHECK_EQ(ibv_dereg_mr(o->mr), 0);
	if (o->mr2)
		CHECK_EQ(ibv_dereg_mr(o->mr2), 0);
}

/* ---- the owner: a batch ---- */

/* Bit k: region k's first page is shared with a file. */
static uint32_t which_are_moved(void)
{
	const void *at[BATCH];
	for (unsigned k = 0; k < work.batch.n; k++)
		at[k] = (void *)(uintptr_t)work.batch.region[k].addr;
	return rc_which_are_moved(at, work.batch.n);
}

static uint32_t which_may_move(void)
{
	uint32_t set = 0;
	for (unsigned k = 0; k < work.batch.n; k++)
		set |= (uint32_t)!stays(owned[k].kind) << k;
	return set;
}

/* Until all are that can be, or nothing has moved for a while. */
static uint32_t wait_until_moved(void)
{
	uint64_t since = rc_now_ms();
	uint32_t wanted = which_may_move(), moved = 0;
	while (moved != wanted && rc_now_ms() - since <= MOVE_MS) {
		uint32_t before = moved;
		moved = which_are_moved();
		CHECK_EQ(moved & ~wanted, 0);
		if (moved != before)
			since = rc_now_ms();
	}
	return moved;
}

/* A child has what the parent had, and what it changes is its own. */
static void fork_a_child(void)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		CHECK_EQ(which_are_moved(), 0);
		for (unsigned k = 0; k < work.batch.n; k++) {
			const struct region *r = &work.batch.region[k];
			VERIFY(fixed_part(r), fixed_bytes(r), r->seed);
			rc_set((void *)(uintptr_t)r->addr, r->len, 0xcc);
		}
		_exit(0);
	}
	CHECK_EQ(rc_reap(pid), 0);
}

/* The whole pages of the fixed part, if it has some. */
static uint8_t *fixed_pages(const struct region *r, size_t *bytes)
{
	uintptr_t from = ((uintptr_t)fixed_part(r) + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
	uintptr_t end = (r->addr + r->len) & ~(uintptr_t)(PAGE - 1);
	*bytes = end > from ? end - from : 0;
	return (uint8_t *)from;
}

static void move_elsewhere(struct own *o, struct region *r)
{
	size_t bytes = o->bytes + 3 * PAGE;
	uint8_t *to = mremap(o->block, o->bytes, bytes, MREMAP_MAYMOVE);
	if (to == MAP_FAILED)
		return; /* a kernel that does not move several mappings at once */
	r->addr += (uint64_t)(to - o->block);
	o->block = to;
	munmap(to + ((o->bytes + PAGE - 1) & ~(size_t)(PAGE - 1)), 3 * PAGE);
	o->is_elsewhere = true;
}

/* Of a registered region that nobody uses now; what programs may do before they deregister it. */
static void disturb(struct own *o, struct region *r, uint64_t *state)
{
	size_t bytes;
	uint8_t *pages = fixed_pages(r, &bytes);
	if ((o->kind != MAPPED && o->kind != HUGE) || !bytes)
		return;
	switch (rc_below(state, 4)) {
	case 0:
		CHECK_EQ(munmap(pages, bytes), 0);
		o->is_unmapped = true;
		return;
	case 1: /* something else is there by then */
		CHECK(mmap(pages, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
			   0) == pages);
		rc_fill(fixed_part(r), fixed_bytes(r), r->seed);
		return;
	case 2:
		CHECK_EQ(mprotect(pages, bytes, PROT_READ), 0);
		return;
	case 3:
		move_elsewhere(o, r);
		return;
	}
}

static void verify_block(const struct own *o, const struct region *r, uint64_t adds, uint8_t written)
{
	size_t skip = r->addr - (uintptr_t)o->block;
	CHECK_EQ(atomic_load(words_of(r, 0)), adds + work.added);
	VERIFY_BYTE((uint8_t *)words_of(r, 0) + WORD, r->quarter - WORD, written);
	VERIFY_BYTE(o->block, skip, 0x11);
	VERIFY_BYTE(o->block + skip + r->len, o->bytes - skip - r->len, 0x11);
	if (!o->is_unmapped)
		VERIFY(fixed_part(r), fixed_bytes(r), r->seed);
}

static void free_block(struct own *o, const struct region *r, uint64_t *state)
{
	size_t skip = r->addr - (uintptr_t)o->block;
	if (o->kind == STACK)
		return;
	if (o->kind != HEAP) {
		munmap(o->block, o->bytes);
		return;
	}
	if (rc_below(state, 2)) {
		CHECK(o->block = realloc(o->block, o->bytes + rc_below(state, 200000)));
		VERIFY(o->block + skip + 3 * r->quarter, fixed_bytes(r), r->seed);
	}
	free(o->block);
}

static void stop_threads(void)
{
	atomic_store(&work.stop, true);
	pthread_barrier_wait(&work.barrier);
}

static void deregister_all(uint64_t *state, bool disturbed)
{
	unsigned first = rc_below(state, work.batch.n);
	for (unsigned i = 0; i < work.batch.n; i++) {
		unsigned k = (first + i) % work.batch.n;
		if (disturbed)
			disturb(&owned[k], &work.batch.region[k], state);
		deregister(&owned[k]);
	}
	CHECK_EQ(which_are_moved(), 0);
}

static unsigned use_batch(struct end *e, unsigned n, uint64_t *state, bool forks)
{
	uint8_t stack[STACK_BYTES];
	struct batch *b = &work.batch;
	bool disturbs = rc_below(state, 4) == 0;
	b->n = n;
	for (unsigned k = 0; k < n; k++) {
		bool on_stack = k == 1 && rc_below(state, 8) == 0;
		choose(&owned[k], &b->region[k], state, on_stack ? stack : NULL, sizeof(stack));
		register_region(e, &owned[k], &b->region[k], state);
	}
	work.added = 0;
	atomic_store(&work.stop, false);
	pthread_barrier_wait(&work.barrier);
	tell_bytes(e, b, sizeof(*b));
	hear(e); /* each region was used */
	uint32_t moved = wait_until_moved();
	if (forks)
		fork_a_child();
	unsigned sent = rc_below(state, n);
	struct ibv_sge sge = { (uintptr_t)fixed_part(&b->region[sent]), (uint32_t)b->region[sent].quarter,
			       owned[sent].mr->lkey };
	tell(e, sent);
	POST(e, .id = 9, .opcode = IBV_WR_SEND, .sge = &sge, .nsge = 1);
	rc_expect(e->scq, 9, IBV_WC_SUCCESS);
	uint64_t adds = hear(e);
	if (disturbs)
		stop_threads();
	deregister_all(state, disturbs);
	if (!disturbs)
		stop_threads();
	for (unsigned k = 0; k < n; k++) {
		verify_block(&owned[k], &b->region[k], adds, (uint8_t)adds);
		free_block(&owned[k], &b->region[k], state);
	}
	return (unsigned)__builtin_popcount(moved);
}

/* For a part of the rounds the process may have but few descriptors, and so few mapped regions. */
static void limit_files(bool few)
{
	static rlim_t usual;
	struct rlimit files;
	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
	if (!usual)
		usual = files.rlim_cur;
	files.rlim_cur = few ? FEW_FILES : usual;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
}

static void start_threads(pthread_t *threads)
{
	static void *(*const run[THREADS])(void *) = { run_count_words, run_read_files, run_allocate };
	mallopt(M_ARENA_MAX, 1); /* so that the threads' blocks are the regions' neighbours */
	mallopt(M_MMAP_THRESHOLD, 64 * 1024);
	pthread_barrier_init(&work.barrier, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, run[i], NULL));
}

static void own(struct end *e, unsigned rounds)
{
	pthread_t threads[THREADS];
	uint64_t state = e->seed;
	unsigned moved = 0, forks = 0, n;
	start_threads(threads);
	for (unsigned done = 0; done < rounds; done += n) {
		bool fork_now = (uint64_t)done * FORKS / rounds >= forks;
		n = 1 + rc_below(&state, BATCH);
		if (n > rounds - done)
			n = rounds - done;
		limit_files(done >= rounds / 2 && done < rounds / 8 * 5);
		moved += use_batch(e, n, &state, fork_now);
		forks += fork_now;
		if ((done + n) / REPORT_EVERY != done / REPORT_EVERY)
			fprintf(stderr, "# %u regions, %u of them moved\n", done + n, moved);
	}
	atomic_store(&work.quit, true);
	pthread_barrier_wait(&work.barrier);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	struct batch end = { .n = 0 };
	tell_bytes(e, &end, sizeof(end));
	fprintf(stderr, "# %u of %u regions moved while they were used\n", moved, rounds);
}

/* ---- the peer ---- */

static void read_region(struct end *e, const struct region *r, uint64_t *before, uint8_t written)
{
	struct ibv_sge whole = { (uintptr_t)e->buf, (uint32_t)r->len, e->mr->lkey };
	POST(e, .id = 1, .opcode = IBV_WR_RDMA_READ, .sge = &whole, .nsge = 1, .rkey = r->rkey,
	     .remote_at = r->addr - e->peer.addr);
	rc_expect(e->scq, 1, IBV_WC_SUCCESS);
	VERIFY_BYTE(e->buf + WORD, r->quarter - WORD, written);
	VERIFY(e->buf + 3 * r->quarter, fixed_bytes(r), r->seed);
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
	struct ibv_sge from = { (uintptr_t)e->buf + MOST, (uint32_t)(r->quarter - WORD), e->mr->lkey };
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
	struct batch b;
	struct ibv_wc wc;
	for (;;) {
		uint64_t adds = 0, before[BATCH] = { 0 };
		hear_bytes(e, &b, sizeof(b));
		if (!b.n)
			return;
		rc_recv(e, 5, 3 * MOST, MOST);
		do {
			adds++;
			for (unsigned k = 0; k < b.n; k++) {
				write_region(e, &b.region[k], (uint8_t)adds);
				read_region(e, &b.region[k], &before[k], (uint8_t)adds);
			}
			if (adds == 1)
				tell(e, 1);
		} while (!ibv_poll_cq(e->rcq, 1, &wc));
		const struct region *sent = &b.region[hear(e)];
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.byte_len, sent->quarter);
		VERIFY(e->buf + 3 * MOST, sent->quarter, sent->seed);
		tell(e, adds);
	}
}

static void memory__hammer(struct end *e)
{
	const char *n = getenv("VERBATIM_TEST_HAMMER");
	struct params p = params();
	p.bytes = 4 * MOST + 64;
	if (n)
		alarm(0);
	rc_start(e, &p);
	if (e->passive)
		own(e, n ? (unsigned)strtoul(n, NULL, 0) : rc_times(ROUNDS));
	else
		use_peers_regions(e);
	rc_finish(e);
}

static const struct body bodies[] = {
	BODY_IN(memory__hammer, PROCESSES_ONLY),
};
RC_MAIN(bodies)
