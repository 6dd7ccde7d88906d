/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fences between a process that makes light ones and one that makes heavy ones: at least one of the two sees
 * what the other stored.
 */
#include "child.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/lock.h"
#include "host/memory/fence.h"
#include "host/host.h"

enum { ROUNDS = 4000, LOG = 1 << 16, LOOK_EVERY = 1 << 10, LOOKS = 1000 };
#define PATIENCE_NS UINT64_C(5000000000)

/*
 * Each side writes lines of its own. The user counts its stores, and notes for each what it saw of the
 * owner's behind it. It keeps so close to the note that the owner wants that this is not written over.
 */
static struct shared {
	_Alignas(64) _Atomic(uint32_t) user;
	_Alignas(64) _Atomic(uint32_t) owner;
	_Alignas(64) _Atomic(uint32_t) wanted;
	_Alignas(64) atomic_bool over;
	_Alignas(64) _Atomic(uint64_t) log[LOG]; /* count << 32 | what was seen */
} *shared;

static bool is_over(void) { return atomic_load_explicit(&shared->over, memory_order_relaxed); }

static bool is_far_ahead(uint32_t n)
{
	return n - atomic_load_explicit(&shared->wanted, memory_order_relaxed) > LOG / 2;
}

static void use(int sock)
{
	say(sock, vb_fence_prepare());
	for (uint32_t n = 1; !is_over(); n++) {
		while (n % LOOK_EVERY == 0 && is_far_ahead(n) && !is_over())
			; /* at work when the owner is, too */
		atomic_store_explicit(&shared->user, n, memory_order_relaxed);
		atomic_signal_fence(memory_order_seq_cst);
		uint64_t saw = atomic_load_explicit(&shared->owner, memory_order_relaxed);
		atomic_store_explicit(&shared->log[n % LOG], (uint64_t)n << 32 | saw, memory_order_release);
	}
}

/*
 * What the user saw behind its n-th store. Yields where the user may be waiting for this processor, and
 * tells.
 */
static uint32_t seen_behind(uint32_t n, bool *has_yielded)
{
	atomic_store_explicit(&shared->wanted, n, memory_order_relaxed); /* makes no fence */
	*has_yielded = false;
	for (unsigned looks = 1;; looks++) {
		uint64_t note = atomic_load_explicit(&shared->log[n % LOG], memory_order_acquire);
		if (note >> 32 == n)
			return (uint32_t)note;
		if (looks % LOOKS == 0) {
			*has_yielded = true;
			sched_yield();
		}
	}
}

/* The store behind the fence is one that was not seen here: behind it the user must have seen the owner's. */
static bool is_seen(uint32_t i, bool *has_yielded)
{
	atomic_store_explicit(&shared->owner, i, memory_order_relaxed);
	assert_true(vb_fence_heavy());
	return seen_behind(atomic_load_explicit(&shared->user, memory_order_relaxed) + 1, has_yielded) >= i;
}

/*
 * What counts is rounds with both at work, as far as there are any: they may share one processor, with
 * others.
 */
static void fence__one_of_two_processes_sees_the_other(void **state)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	struct child c = child_start(use);
	bool works = hear(c.sock) && vb_fence_prepare();
	uint64_t until = vb_now_ns() + PATIENCE_NS;
	for (uint32_t i = 1, rounds = 0; works && rounds < ROUNDS && vb_now_ns() < until; i++) {
		bool has_yielded;
		assert_true(is_seen(i, &has_yielded));
		rounds += !has_yielded;
	}
	atomic_store(&shared->over, true);
	assert_int_equal(child_end(&c), 0);
	munmap(shared, sizeof(*shared));
	if (!works)
		SKIP("this kernel, or what confines this process, has no membarrier");
}

static void fence__is_light_once_it_is_prepared(void **state)
{
	bool works = vb_fence_prepare();
	assert_int_equal(vb_fence_is_light(), works);
	assert_true(!works || vb_fence_heavy());
}

/*
 * Says whether it could, and then whether light fences are said to suffice before and after it was forbidden
 * the heavy one.
 */
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

static struct vb_lock lock;

static void *take_it(void *unused)
{
	vb_lock(&lock);
	vb_unlock(&lock);
	return NULL;
}

/* As a child does whose parent's sandbox is stricter by then: it has the parent's locks, and their owners. */
static void prepare_again_without(int sock)
{
	pthread_t other;
	bool works = vb_fence_prepare();
	for (unsigned i = 0; i < 100000 && !(lock.owner & VB_LOCK_OWNS); i++)
		take_it(NULL);
	works = works && (lock.owner & VB_LOCK_OWNS) && forbid(SYS_membarrier);
	say(sock, works);
	CHILD_CHECK(!works || !vb_fence_prepare());
	CHILD_CHECK(!pthread_create(&other, NULL, take_it, NULL));
	pthread_join(other, NULL);
	CHILD_CHECK(!works || !(lock.owner & VB_LOCK_OWNS));
}

static void fence__of_locks_with_owners_stays(void **state)
{
	struct child c = child_start(prepare_again_without);
	uint64_t works = hear(c.sock);
	assert_int_equal(child_end(&c), 0);
	if (!works)
		SKIP("no membarrier here, or no seccomp");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fence__is_not_light_once_the_heavy_one_is_forbidden),
		cmocka_unit_test(fence__of_locks_with_owners_stays),
		cmocka_unit_test(fence__one_of_two_processes_sees_the_other),
		cmocka_unit_test(fence__is_light_once_it_is_prepared),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
