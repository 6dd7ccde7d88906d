/* SPDX-License-Identifier: BSD-2-Clause */
#include "local/cut.h"

#include <sched.h>

#include "base/log.h"
#include "base/nanoseconds.h"
#include "host/memory/fence.h"
#include "host/loop/activity.h"

enum {
	SPINS = 64,
	PAUSE_NS = 200 * VB_NS_PER_US, /* between two looks at the word, once it rests */
};

/*
 * A process may forbid itself the heavy fence after it
 * was prepared: users make full ones from then on, and what they did before has come through by the time that
 * they are looked at.
 */
void vb_fence_users(void)
{
	vb_arena_next_generation();
	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load_explicit(&vb_arena->fences, memory_order_relaxed))
		return;
	if (vb_unlikely(!vb_fence_heavy())) {
		atomic_store(&vb_arena->fences, 0);
		vb_fence_others();
	}
}

static void pause_for(const struct vb_process_wait *w)
{
	if (w->looks)
		vb_sleep_ns(PAUSE_NS);
	else
		sched_yield();
}

bool vb_cut_or_await(const _Atomic(uint32_t) *busy, struct vb_peer *peer, uint64_t deadline_ns)
{
	struct vb_process_wait w = { 0 };
	uint32_t seen = atomic_load(busy);
	for (unsigned spins = 1; seen % 2 && atomic_load(busy) == seen; spins++) {
		if (spins < SPINS)
			continue;
		pause_for(&w);
		uint64_t now = vb_now_ns();
		if (deadline_ns != UINT64_MAX && now > deadline_ns)
			return false;
		if (!peer)
			continue;
		/* A link that the peer cut has ended, but its process goes on. */
		if (spins % SPINS == 0 && vb_peer_is_dead(peer) && !vb_is_cut_by(peer))
			return true;
		if (vb_process_wait_is_over(&w, peer->pid, now)) {
			vb_explain(
				"link",
				"process %d stopped in the middle of an access to this process's memory: its connections to here end",
				(int)peer->pid);
			vb_peer_cut(peer);
			return true;
		}
	}
	return true;
}
