/* SPDX-License-Identifier: BSD-2-Clause */
#include "child.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>

#include "host/ipc/guard.h"
#include "host/activity.h"

enum { ROUNDS = 200, PIECE = 64 };

/* Shared with the child: what it may not write any more, and how often it has. */
static struct shared {
	_Atomic(uint32_t) stop;
	_Atomic(uint64_t) writes, refusals;
} *shared;
/* Private: each process has its own at the same address. */
static uint8_t target[PIECE];

static ssize_t write_target(pid_t pid, const void *from)
{
	struct iovec here = { (void *)(uintptr_t)from, PIECE }, there = { target, PIECE };
	return vb_guarded_write(pid, &here, 1, &there, 1, &shared->stop);
}

/* Writes the parent's memory as fast as it can. */
static void write_on(int sock)
{
	uint8_t bytes[PIECE];
	memset(bytes, 0xbb, sizeof(bytes));
	say(sock, vb_guard_is_there());
	for (;;) {
		ssize_t n = write_target(getppid(), bytes);
		CHILD_CHECK(n == PIECE || errno == ECANCELED);
		atomic_fetch_add(n == PIECE ? &shared->writes : &shared->refusals, 1);
	}
}

static struct child writer;

static int start(void **state)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	atomic_store(&shared->stop, 0);
	vb_copy_allow_peers();
	writer = child_start(write_on);
	return 0;
}

static int end(void **state)
{
	child_kill(&writer);
	munmap(shared, sizeof(*shared));
	return 0;
}

static bool is_forbidden(void)
{
	uint8_t byte;
	struct iovec here = { &byte, 1 }, there = { target, 1 };
	return hear(writer.sock) != 1 || process_vm_readv(writer.pid, &here, 1, &there, 1, 0) != 1;
}

static void guard__writes_until_it_is_told_not_to(void **state)
{
	if (is_forbidden())
		SKIP("no process_vm_writev, or no restartable sequences");
	assert_true(WAIT_FOR(atomic_load(&shared->writes) > 10));
	assert_int_equal(((volatile uint8_t *)target)[PIECE - 1], 0xbb);
	atomic_store(&shared->stop, 1);
	assert_true(WAIT_FOR(atomic_load(&shared->refusals) > 10));
	memset(target, 0, PIECE);
	uint64_t refusals = atomic_load(&shared->refusals);
	assert_true(WAIT_FOR(atomic_load(&shared->refusals) > refusals + 1000));
	assert_int_equal(((volatile uint8_t *)target)[0], 0);
}

/*
 * Wherever the writer is when it stops, also between its look at the word and the kernel: once it is told,
 * nothing comes any more.
 */
static void guard__holds_for_who_was_stopped(void **state)
{
	static const uint8_t none[PIECE];
	if (is_forbidden())
		SKIP("no process_vm_writev, or no restartable sequences");
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t writes = atomic_load(&shared->writes);
		assert_true(WAIT_FOR(atomic_load(&shared->writes) > writes + (uint64_t)i % 50));
		kill(writer.pid, SIGSTOP);
		assert_true(WAIT_FOR(vb_process_activity(writer.pid) == VB_ACTIVITY_HALTED));
		atomic_store(&shared->stop, 1);
		memset(target, 0, PIECE);
		uint64_t refusals = atomic_load(&shared->refusals);
		kill(writer.pid, SIGCONT);
		assert_true(WAIT_FOR(atomic_load(&shared->refusals) > refusals + 1));
		assert_memory_equal(target, none, PIECE);
		atomic_store(&shared->stop, 0);
	}
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

static bool step(pid_t pid)
{
	int status;
	return !ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) && waitpid(pid, &status, 0) == pid &&
	       WIFSTOPPED(status);
}
#endif

/*
 * The moment itself: the writer has seen that it may, and is told that it may not. A debugger finds it in
 * front of the call, unless the kernel has sent it back each time that it was stopped there.
 */
static void guard__holds_between_look_and_call(void **state)
{
#ifdef __x86_64__
	static const uint8_t none[PIECE];
	int status;
	if (is_forbidden())
		SKIP("no process_vm_writev, or no restartable sequences");
	if (ptrace(PTRACE_SEIZE, writer.pid, NULL, NULL))
		SKIP("no debugging");
	assert_true(WAIT_FOR(atomic_load(&shared->writes) > 10));
	assert_int_equal(ptrace(PTRACE_INTERRUPT, writer.pid, NULL, NULL), 0);
	assert_int_equal(waitpid(writer.pid, &status, 0), writer.pid);
	bool found = false;
	for (int i = 0; !found && i < 20000; i++) {
		assert_true(step(writer.pid));
		found = is_between(writer.pid);
	}
	atomic_store(&shared->stop, 1);
	memset(target, 0, PIECE);
	uint64_t refusals = atomic_load(&shared->refusals);
	assert_int_equal(ptrace(PTRACE_CONT, writer.pid, NULL, NULL), 0);
	assert_true(WAIT_FOR(atomic_load(&shared->refusals) > refusals + 1));
	assert_memory_equal(target, none, PIECE);
#else
	SKIP("the instructions to look for are x86-64's");
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(guard__writes_until_it_is_told_not_to, start, end),
		cmocka_unit_test_setup_teardown(guard__holds_for_who_was_stopped, start, end),
		cmocka_unit_test_setup_teardown(guard__holds_between_look_and_call, start, end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
