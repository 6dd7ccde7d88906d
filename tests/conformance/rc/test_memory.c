/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registered memory stays the program's, whatever the library does so that a peer reaches it fast: a fork
 * copies it, what is given back is zero, what is unmapped is gone. test_hammer.c does the same at random,
 * beside threads.
 */
#include "rc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 96 * 1024 };

static struct params memory_params(void)
{
	struct params p = params();
	p.bytes = 4 * MOST + 64;
	return p;
}

static void write_once(struct end *e, uint8_t value)
{
	struct ibv_sge from = { (uintptr_t)e->buf, 64, e->mr->lkey };
	rc_set(e->buf, 64, value);
	POST(e, .id = 1, .opcode = IBV_WR_RDMA_WRITE, .sge = &from, .nsge = 1);
	rc_expect(e->scq, 1, IBV_WC_SUCCESS);
}

static void write_often(struct end *e, unsigned n)
{
	for (unsigned k = 0; k < n; k++)
		write_once(e, k);
}

/* So often that a peer wants it mapped. */
enum { FOR_A_WHILE = 1000 };

/* ---- connections that carry little ---- */

/* Moving a region costs more than a few messages save. */
static void memory__stays_where_it_is_for_a_few_messages(struct end *e)
{
	const char *how = getenv("VERBATIM_COPY");
	struct params p = memory_params();
	rc_start(e, &p);
	if (!e->passive)
		write_often(e, 20);
	meet(e);
	CHECK(!rc_is_moved(e->buf) || (how && !strcmp(how, "mapped")));
	rc_finish(e);
}

/* ---- forks ---- */

/* The child has what the parent had, and neither sees what the other or the peer writes afterwards. */
static void memory__of_a_child_is_its_own(struct end *e)
{
	struct params p = memory_params();
	rc_start(e, &p);
	for (unsigned i = 1; i < 20; i++) {
		if (!e->passive) {
			write_often(e, FOR_A_WHILE);
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
			CHECK(!rc_is_moved(e->buf));
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

/*
 * The zeros that a program expects of pages that it has given back are there once it has deregistered them.
 */
static void memory__given_back_is_zero(struct end *e)
{
	struct params p = memory_params();
	rc_start(e, &p);
	if (!e->passive)
		write_often(e, FOR_A_WHILE);
	meet(e);
	rc_set(e->buf, p.bytes, 0x55);
	CHECK_EQ(ibv_dereg_mr(e->mr), 0);
	VERIFY_BYTE(e->buf, p.bytes, 0x55);
	CHECK(!rc_is_moved(e->buf));
	CHECK_EQ(madvise(e->buf, MOST, MADV_DONTNEED), 0);
	VERIFY_BYTE(e->buf, MOST, 0);
	CHECK(e->mr = ibv_reg_mr(e->pd, e->buf, p.bytes, p.mr_access));
	rc_finish(e);
}

/* A program that unmaps first and deregisters then: what it has mapped there by then is not touched. */
static void memory__unmapped_before_deregistration(struct end *e)
{
	rc_needs_holes();
	struct params p = memory_params();
	rc_start(e, &p);
	if (!e->passive)
		write_often(e, FOR_A_WHILE);
	meet(e);
	if (e->passive) {
		size_t page = (size_t)sysconf(_SC_PAGESIZE);
		uint8_t *at = (uint8_t *)(((uintptr_t)e->buf + MOST + page - 1) & ~(page - 1));
		rc_take_away(at, MOST / 2);
		CHECK(mmap(at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
			   0) == at);
		rc_set(at, 4096, 0x66);
		CHECK_EQ(ibv_dereg_mr(e->mr), 0);
		VERIFY_BYTE(at, 4096, 0x66);
		VERIFY_BYTE(e->buf, 64, (FOR_A_WHILE - 1) & 0xff);
		CHECK(!rc_is_moved(e->buf));
		CHECK(mmap(at, MOST / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
			   0) == at);
		CHECK(e->mr = ibv_reg_mr(e->pd, e->buf, p.bytes, p.mr_access));
	}
	meet(e);
	rc_finish(e);
}

/* ---- what the library has mapped ---- */

static uint64_t writable_shared_bytes(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long long from, to, sum = 0;
	char line[512], rights[5];
	CHECK(maps);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%llx-%llx %4s", &from, &to, rights) == 3 && rights[1] == 'w' &&
		    strstr(line, "memfd:"))
			sum += to - from;
	fclose(maps);
	return sum;
}

/* Who reads all that a process could write, as valgrind does in search of leaks, makes pages of it. */
static void memory__that_is_shared_is_writable_where_used(struct end *e)
{
	enum { SOME = 32 << 20 };
	struct params p = memory_params();
	rc_start(e, &p);
	if (!e->passive)
		write_often(e, FOR_A_WHILE);
	meet(e);
	CHECK(writable_shared_bytes() < SOME);
	rc_finish(e);
}

static const struct body bodies[] = {
	BODY_IN(memory__stays_where_it_is_for_a_few_messages, PROCESSES_ONLY),
	BODY_IN(memory__that_is_shared_is_writable_where_used, PROCESSES_ONLY),
	BODY_IN(memory__of_a_child_is_its_own, PROCESSES_ONLY),
	BODY_IN(memory__given_back_is_zero, PROCESSES_ONLY),
	BODY_IN(memory__unmapped_before_deregistration, PROCESSES_ONLY),
};
RC_MAIN(bodies)
