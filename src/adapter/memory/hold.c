/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/memory/hold.h"

#include <pthread.h>
#include <sched.h>

#include "host/host.h"

/*
 * A holder counts itself in the counter that `phase` names when it begins, and later leaves the same one. A
 * waiter directs new holders to the other counter and waits until the old one is 0, twice: a holder may have
 * read `phase` long before it counts itself.
 */
static struct {
	VB_ALIGNED_LINE atomic_uint count;
} holders[2];
static VB_ALIGNED_LINE atomic_uint phase;
static pthread_mutex_t quiesce_lock = PTHREAD_MUTEX_INITIALIZER;
static bool (*await_peers)(uint64_t deadline_ns); /* NULL: no peer accesses memory by itself */

void vb_memory_set_peers(bool (*await)(uint64_t deadline_ns)) { await_peers = await; }

unsigned vb_memory_hold(void)
{
	unsigned mine = atomic_load_explicit(&phase, memory_order_relaxed) % 2;
	atomic_fetch_add(&holders[mine].count, 1);
	/* before keys are looked at: pairs with await_holders */
	vb_fence_behind_addition();
	return mine;
}

void vb_memory_release(unsigned mine)
{
	atomic_fetch_sub_explicit(&holders[mine].count, 1, memory_order_release);
}

static void await_holders(void)
{
	pthread_mutex_lock(&quiesce_lock);
	atomic_thread_fence(memory_order_seq_cst); /* behind what was revoked: pairs with vb_memory_hold */
	for (unsigned turn = 0; turn < 2; turn++) {
		unsigned old = atomic_fetch_add(&phase, 1) % 2;
		while (atomic_load(&holders[old].count))
			sched_yield();
	}
	pthread_mutex_unlock(&quiesce_lock);
}

bool vb_memory_quiesce_until(uint64_t deadline_ns)
{
	if (await_peers && !await_peers(deadline_ns))
		return false;
	await_holders();
	return true;
}

void vb_memory_quiesce(void)
{
	vb_memory_quiesce_until(UINT64_MAX);
}

/* Threads of the parent may have held it. */
static void forget(void)
{
	atomic_store(&holders[0].count, 0);
	atomic_store(&holders[1].count, 0);
	pthread_mutex_init(&quiesce_lock, NULL);
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}
