/* SPDX-License-Identifier: BSD-2-Clause */
/* Fences between a process that makes light ones and one that makes heavy ones: at least one of the two sees what the other stored. */
#include "child.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "host/fence.h"

enum { ROUNDS = 2000, LOG = 1 << 16 };

/* Each side writes lines of its own. The user counts its stores, and notes for each what it saw of the owner's behind it. */
static struct shared {
	_Alignas(64) _Atomic(uint32_t) user;
	_Alignas(64) _Atomic(uint32_t) owner;
	_Alignas(64) atomic_bool over;
	_Alignas(64) _Atomic(uint64_t) log[LOG]; /* count << 32 | what was seen */
} *shared;

static void use(int sock)
{
	say(sock, vb_fence_prepare());
	for (uint32_t n = 1; !atomic_load_explicit(&shared->over, memory_order_relaxed); n++) {
		atomic_store_explicit(&shared->user, n, memory_order_relaxed);
		atomic_signal_fence(memory_order_seq_cst);
		uint64_t saw = atomic_load_explicit(&shared->owner, memory_order_relaxed);
		atomic_store_explicit(&shared->log[n % LOG], (uint64_t)n << 32 | saw, memory_order_release);
	}
}

/* What the user saw behind its n-th store; UINT64_MAX: the note has been written over. */
static uint64_t seen_behind(uint32_t n)
{
	for (unsigned looks = 1;; looks++) {
		uint64_t note = atomic_load_explicit(&shared->log[n % LOG], memory_order_acquire);
		uint32_t of = note >> 32;
		if (of == n)
			return (uint32_t)note;
		if (of > n)
			return UINT64_MAX;
		if (looks % 1000 == 0)
			sched_yield(); /* the user may be waiting for this processor */
	}
}

static void fence__one_of_two_processes_sees_the_other(void **state)
{
	unsigned checked = 0;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	struct child c = child_start(use);
	bool works = hear(c.sock) && vb_fence_prepare();
	for (uint32_t i = 1; works && i <= ROUNDS; i++) {
		atomic_store_explicit(&shared->owner, i, memory_order_relaxed);
		assert_true(vb_fence_heavy());
		/* The next store is one that was not seen here: behind it the user must have seen this one. */
		uint64_t saw = seen_behind(atomic_load_explicit(&shared->user, memory_order_relaxed) + 1);
		assert_true(saw >= i);
		checked += saw != UINT64_MAX;
	}
	atomic_store(&shared->over, true);
	assert_int_equal(child_end(&c), 0);
	munmap(shared, sizeof(*shared));
	if (!works)
		SKIP("this kernel, or what confines this process, has no membarrier");
	assert_true(checked > ROUNDS / 100);
}

static void fence__is_light_once_it_is_prepared(void **state)
{
	bool works = vb_fence_prepare();
	assert_int_equal(vb_fence_is_light(), works);
	assert_true(!works || vb_fence_heavy());
}

static bool forbid(unsigned syscall_number)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, syscall_number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };
	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

/* Says whether it could, and then whether light fences are said to suffice before and after it was forbidden the heavy one. */
static void lose_the_heavy_one(int sock)
{
	bool works = vb_fence_prepare(), before = vb_fence_is_light();
	works = works && forbid(SYS_membarrier);
	vb_fence_others();
	say(sock, works);
	say(sock, before);
	say(sock, vb_fence_is_light());
}

static void fence__is_not_light_once_the_heavy_one_is_forbidden(void **state)
{
	struct child c = child_start(lose_the_heavy_one);
	uint64_t works = hear(c.sock), before = hear(c.sock), after = hear(c.sock);
	assert_int_equal(child_end(&c), 0);
	if (!works)
		SKIP("no membarrier here, or no seccomp");
	assert_true(before);
	assert_false(after);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fence__is_not_light_once_the_heavy_one_is_forbidden),
		cmocka_unit_test(fence__one_of_two_processes_sees_the_other),
		cmocka_unit_test(fence__is_light_once_it_is_prepared),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
