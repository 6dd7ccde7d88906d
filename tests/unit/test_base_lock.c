/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Locks that belong to a thread: only one is inside at any time, whoever owns the lock, loses it and gets it
 * back.
 */
#include "child.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lock.h"
#include "host/memory/fence.h"

enum { MANY = 1 << 14, ROUNDS = 2000, THREADS = 3, FEW = 32, HELD_US = 20000 };

static struct vb_lock lock;
static atomic_uint yields;

int sched_yield(void)
{
	atomic_fetch_add(&yields, 1);
	return (int)syscall(SYS_sched_yield);
}

static bool prepare(void)
{
	vb_lock_init(&lock);
	return vb_fence_prepare();
}

#define PREPARE() \
	if (!prepare()) SKIP("no lock has an owner here: this kernel, or what confines or examines this process, has no membarrier")

static void take_often(void)
{
	for (unsigned i = 0; i < MANY; i++) {
		vb_lock(&lock);
		vb_unlock(&lock);
	}
}

static bool is_mine(void) { return atomic_load(&lock.owner) == (vb_lock_self() | VB_LOCK_OWNS); }

static void *try_once(void *arg)
{
	*(bool *)arg = vb_lock_try(&lock);
	if (*(bool *)arg)
		vb_unlock(&lock);
	return NULL;
}

static bool another_gets_it(void)
{
	pthread_t t;
	bool got;
	assert_int_equal(pthread_create(&t, NULL, try_once, &got), 0);
	pthread_join(t, NULL);
	return got;
}

static void lock__becomes_its_only_users(void **state)
{
	PREPARE();
	take_often();
	assert_true(is_mine());
	assert_true(vb_lock_try(&lock));
	assert_false(vb_lock_try(&lock));
	vb_unlock(&lock);
	assert_true(vb_lock_try(&lock));
	vb_unlock(&lock);
}

static void lock__is_taken_from_its_owner(void **state)
{
	PREPARE();
	take_often();
	assert_true(another_gets_it());
	assert_false(is_mine());
	take_often();
	assert_true(is_mine());
}

static void lock__stays_held_when_its_owner_loses_it_inside(void **state)
{
	PREPARE();
	take_often();
	vb_lock(&lock);
	assert_true(is_mine());
	assert_false(another_gets_it());
	assert_false(is_mine());
	assert_false(another_gets_it());
	assert_false(vb_lock_try(&lock));
	vb_unlock(&lock);
	assert_true(another_gets_it());
	assert_true(vb_lock_try(&lock));
	assert_false(another_gets_it());
	vb_unlock(&lock);
}

static void *take_it_often(void *arg)
{
	take_often();
	*(bool *)arg = is_mine();
	return NULL;
}

static void lock__has_one_heir(void **state)
{
	pthread_t t;
	bool is_theirs;
	PREPARE();
	take_often();
	assert_true(is_mine());
	assert_int_equal(pthread_create(&t, NULL, take_it_often, &is_theirs), 0);
	pthread_join(t, NULL);
	assert_false(is_theirs);
}

static void lock__has_no_owner_without_fences(void **state)
{
	void (*fence)(void) = vb_lock_fence;
	vb_lock_init(&lock);
	vb_lock_fence = NULL;
	take_often();
	assert_false(is_mine());
	vb_lock_fence = fence;
}

static void *take_once(void *arg)
{
	vb_lock(&lock);
	vb_unlock(&lock);
	return NULL;
}

/* Who has it may be of lower priority: to yield to it would be in vain. */
static void lock__is_waited_for_asleep(void **state)
{
	pthread_t t;
	vb_lock_init(&lock);
	vb_lock(&lock);
	atomic_store(&yields, 0);
	assert_int_equal(pthread_create(&t, NULL, take_once, NULL), 0);
	while (atomic_load(&yields) == 0)
		usleep(100);
	usleep(HELD_US);
	assert_true(atomic_load(&yields) < FEW);
	vb_unlock(&lock);
	pthread_join(t, NULL);
}

/* ---- all at once, with a new lock each time: an old one has no owner for long ---- */

static struct cell {
	struct vb_lock lock;
	unsigned long inside[2]; /* both written inside, so they agree there */
} cells[ROUNDS];
static atomic_uint current, disagreements;
static atomic_bool over;

static void count_inside(struct cell *c)
{
	if (c->inside[0] != c->inside[1])
		atomic_fetch_add(&disagreements, 1);
	c->inside[0]++;
	atomic_signal_fence(memory_order_seq_cst);
	c->inside[1]++;
}

static void *interfere(void *arg)
{
	unsigned long taken = 0;
	for (unsigned i = 0; !atomic_load(&over); i++) {
		struct cell *c = &cells[atomic_load(&current)];
		if (i % 2 ? vb_lock_try(&c->lock) : (vb_lock(&c->lock), true)) {
			count_inside(c);
			taken++;
			vb_unlock(&c->lock);
		}
		for (unsigned n = 0; n < 2; n++)
			sched_yield();
	}
	return (void *)taken;
}

static void lock__has_one_inside(void **state)
{
	pthread_t t[THREADS];
	unsigned long taken = 0, owned = 0, sum = 0;
	vb_fence_prepare();
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, interfere, NULL), 0);
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct cell *c = &cells[round];
		atomic_store(&current, round);
		for (unsigned i = 0; i < MANY; i++) {
			vb_lock(&c->lock);
			count_inside(c);
			owned += atomic_load(&c->lock.owner) == (vb_lock_self() | VB_LOCK_OWNS);
			vb_unlock(&c->lock);
		}
		taken += MANY;
	}
	atomic_store(&over, true);
	for (unsigned i = 0; i < THREADS; i++) {
		void *n;
		pthread_join(t[i], &n);
		taken += (unsigned long)n;
	}
	for (unsigned round = 0; round < ROUNDS; round++)
		sum += cells[round].inside[0];
	assert_int_equal(atomic_load(&disagreements), 0);
	assert_int_equal(sum, taken);
	assert_true(owned || !vb_lock_fence);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lock__becomes_its_only_users),
		cmocka_unit_test(lock__is_taken_from_its_owner),
		cmocka_unit_test(lock__stays_held_when_its_owner_loses_it_inside),
		cmocka_unit_test(lock__has_one_heir),
		cmocka_unit_test(lock__has_no_owner_without_fences),
		cmocka_unit_test(lock__is_waited_for_asleep),
		cmocka_unit_test(lock__has_one_inside),
	};
	return cmocka_run_group_tests_name("base-lock", tests, NULL, NULL);
}
