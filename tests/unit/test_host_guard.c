/* SPDX-License-Identifier: BSD-2-Clause */
#include "child.h"

#include "../between.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <unistd.h>

#include "host/ipc/guard.h"
#include "host/loop/activity.h"
#include "host/memory/touch.h"

enum { ROUNDS = 200, PIECE = 64, MOST = 300000 };
enum { OLD = 0xbb, NEW = 0xcc };

/* How the child copies, and how much at once. */
struct way {
	bool maps;  /* what is shared is mapped by both; or each has its own, and the kernel copies */
	bool reads;
	size_t bytes;
};

/* Shared with the child: what it may not copy any more, and how often it has. */
static struct shared {
	_Atomic(uint32_t) stop;
	_Atomic(uint64_t) copies, refusals;
	uint8_t area[MOST];
} *shared;
/* Private: each process has its own at the same address. */
static uint8_t target[MOST], own[MOST];
static struct way way;

/* The parent's memory, that the child copies from or to. */
static uint8_t *parents(void) { return way.maps ? shared->area : target; }

/* 0, ECANCELED or another error. */
static int copy_once(void)
{
	if (way.maps)
		return -vb_touch_copy_unless(&shared->stop, way.reads ? own : shared->area,
					     way.reads ? shared->area : own, way.bytes);
	struct iovec here = { own, way.bytes }, there = { target, way.bytes };
	ssize_t n = vb_guarded_copy(!way.reads, getppid(), &here, 1, &there, 1, &shared->stop);
	return n == (ssize_t)way.bytes ? 0 : errno;
}

/* Copies as fast as it can. What it has read is never what it may not see. */
static void copy_on(int sock)
{
	vb_touch_prepare();
	memset(own, OLD, MOST);
	say(sock, vb_rseq() != NULL);
	for (;;) {
		int error = copy_once();
		CHILD_CHECK(!error || error == ECANCELED);
		CHILD_CHECK(!memchr(own, NEW, way.bytes));
		atomic_fetch_add(error ? &shared->refusals : &shared->copies, 1);
	}
}

static struct child copier;

static int start(void **state)
{
	way = *(const struct way *)*state;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memset(parents(), OLD, MOST);
	vb_copy_allow_peers();
	copier = child_start(copy_on);
	return 0;
}

static int end(void **state)
{
	child_kill(&copier);
	munmap(shared, sizeof(*shared));
	return 0;
}

static bool is_forbidden(void)
{
	uint8_t byte;
	struct iovec here = { &byte, 1 }, there = { target, 1 };
	return hear(copier.sock) != 1 || process_vm_readv(copier.pid, &here, 1, &there, 1, 0) != 1;
}

/* What the child does behind this call it began behind it. */
static void let_it_try_again(void)
{
	uint64_t refusals = atomic_load(&shared->refusals);
	assert_true(WAIT_FOR(atomic_load(&shared->refusals) > refusals + 1));
}

static void guard__copies_until_it_is_told_not_to(void **state)
{
	if (is_forbidden())
		SKIP("no process_vm_writev, or no restartable sequences");
	memset(parents(), 0, way.bytes);
	uint64_t copies = atomic_load(&shared->copies);
	assert_true(WAIT_FOR(atomic_load(&shared->copies) > copies + 1));
	assert_int_equal(((volatile uint8_t *)parents())[way.bytes - 1], way.reads ? 0 : OLD);
	atomic_store(&shared->stop, 1);
	assert_true(WAIT_FOR(atomic_load(&shared->refusals) > 1));
	memset(parents(), NEW, way.bytes);
	uint64_t refusals = atomic_load(&shared->refusals);
	assert_true(WAIT_FOR(atomic_load(&shared->refusals) > refusals + 1000));
	assert_int_equal(((volatile uint8_t *)parents())[0], NEW);
}

/*
 * The kernel reports a thread as stopped shortly before the thread leaves its processor. If SIGCONT comes in
 * between, nothing interrupts the thread. Reading this file waits until the thread has left.
 */
static bool has_left_its_processor(pid_t pid)
{
	char path[32], text[8] = "";
	snprintf(path, sizeof(path), "/proc/%d/syscall", (int)pid);
	FILE *file = fopen(path, "re");
	bool is_told = file && fgets(text, sizeof(text), file);
	if (file)
		fclose(file);
	if (!is_told)	/* nobody may look; most likely it has by then */
		usleep(10000);
	return strcmp(text, "running") != 0;
}

/*
 * SIGSTOP may catch the child anywhere: between its look at the word and the copy, or in the middle of the
 * copy. Once it is told, it copies nothing more.
 */
static void guard__holds_for_who_was_stopped(void **state)
{
	static uint8_t as_it_was[MOST];
	if (is_forbidden())
		SKIP("no process_vm_writev, or no restartable sequences");
	memset(as_it_was, NEW, MOST);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t copies = atomic_load(&shared->copies);
		assert_true(WAIT_FOR(atomic_load(&shared->copies) > copies + (uint64_t)i % 50));
		kill(copier.pid, SIGSTOP);
		assert_true(WAIT_FOR(vb_process_activity(copier.pid) == VB_ACTIVITY_HALTED &&
				     has_left_its_processor(copier.pid)));
		atomic_store(&shared->stop, 1);
		memset(parents(), NEW, way.bytes);
		kill(copier.pid, SIGCONT);
		let_it_try_again();
		assert_memory_equal(parents(), as_it_was, way.bytes);
		memset(parents(), OLD, way.bytes);
		let_it_try_again();
		atomic_store(&shared->stop, 0);
	}
}

static bool step(pid_t pid)
{
	int status;
	return !ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) && waitpid(pid, &status, 0) == pid &&
	       WIFSTOPPED(status);
}

/* False: nobody may debug here. */
static bool halt_copier(void)
{
	int status;
	if (ptrace(PTRACE_SEIZE, copier.pid, NULL, NULL))
		return false;
	assert_true(WAIT_FOR(atomic_load(&shared->copies) > 10));
	assert_int_equal(ptrace(PTRACE_INTERRUPT, copier.pid, NULL, NULL), 0);
	assert_int_equal(waitpid(copier.pid, &status, 0), copier.pid);
	return true;
}

/*
 * There is no instruction behind which an interrupted copy goes on without another look: who is interrupted
 * behind each of them copies nothing, but what was being counted when that began.
 */
static void guard__sends_everyone_back(void **state)
{
	enum { STEPS = 3000 }; /* some twenty copies */
	if (is_forbidden())
		SKIP("no process_vm_writev, or no restartable sequences");
	if (!halt_copier())
		SKIP("no debugging");
	uint64_t copies = atomic_load(&shared->copies);
	for (int i = 0; i < STEPS; i++)
		assert_true(step(copier.pid));
	assert_between(atomic_load(&shared->copies), copies, copies + 1);
	assert_int_equal(ptrace(PTRACE_CONT, copier.pid, NULL, NULL), 0);
	assert_true(WAIT_FOR(atomic_load(&shared->copies) > copies + 10));
}

#ifdef __x86_64__
/* At the jump behind the look at the word, in front of the call: jne, syscall. */
static bool is_between(pid_t pid)
{
	struct user_regs_struct r;
	ptrace(PTRACE_GETREGS, pid, NULL, &r);
	uint64_t text = (uint64_t)ptrace(PTRACE_PEEKTEXT, pid, (void *)r.rip, NULL);
	return r.rax == SYS_process_vm_writev && (text & 0xffff00ff) == 0x050f0075;
}
#endif

/*
 * The moment itself: the writer has seen that it may, and is told that it may not. A debugger finds it in
 * front of the call, unless the kernel has sent it back each time that it was stopped there.
 */
static void guard__holds_between_look_and_call(void **state)
{
#ifdef __x86_64__
	if (is_forbidden())
		SKIP("no process_vm_writev, or no restartable sequences");
	if (!halt_copier())
		SKIP("no debugging");
	bool found = false;
	for (int i = 0; !found && i < 20000; i++) {
		assert_true(step(copier.pid));
		found = is_between(copier.pid);
	}
	atomic_store(&shared->stop, 1);
	target[0] = NEW;
	assert_int_equal(ptrace(PTRACE_CONT, copier.pid, NULL, NULL), 0);
	let_it_try_again();
	assert_int_equal(target[0], NEW);
#else
	SKIP("the instructions to look for are x86-64's");
#endif
}

static struct way call_writes = { false, false, PIECE }, call_reads = { false, true, PIECE },
		  stores_byte = { true, false, 1 }, stores_half = { true, false, 4 },
		  stores_word = { true, false, 8 },
		  stores_few = { true, false, PIECE }, stores_many = { true, false, MOST },
		  loads_word = { true, true, 8 }, loads_many = { true, true, MOST };

#define CASE(body, way) { #body " (" #way ")", body, start, end, &way }
#define BOTH(way)                                                \
	CASE(guard__copies_until_it_is_told_not_to, way),        \
		CASE(guard__holds_for_who_was_stopped, way)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(call_writes),
		BOTH(call_reads),
		BOTH(stores_byte),
		BOTH(stores_word),
		BOTH(stores_few),
		BOTH(stores_many),
		BOTH(loads_word),
		BOTH(loads_many),
		CASE(guard__sends_everyone_back, call_writes),
		CASE(guard__sends_everyone_back, stores_byte),
		CASE(guard__sends_everyone_back, stores_half),
		CASE(guard__sends_everyone_back, stores_word),
		CASE(guard__sends_everyone_back, stores_few),
		CASE(guard__sends_everyone_back, stores_many),
		CASE(guard__sends_everyone_back, loads_word),
		CASE(guard__sends_everyone_back, loads_many),
		CASE(guard__holds_between_look_and_call, call_writes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
