/* SPDX-License-Identifier: BSD-2-Clause */
#include "local/cut.h"

#include <sched.h>

#include "base/log.h"
#include "host/guard.h"

enum {
	SPINS = 64,
	LOOKS = 3,          /* in a row that find the process halted: one may meet all its threads between two waits for each other */
	LOOK_NS = 10000000, /* apart */
	BLIND_LOOKS = 100,  /* where /proc does not tell: 1 s */
	MAX_LOOKS = 1000,   /* of who has the time, and does not use it: 10 s */
	PAUSE_NS = 200000,  /* between two looks at the word, once it has not changed for LOOK_NS */
};

/* What one wait has seen of the peer. */
struct patience {
	uint64_t next_look_ns;
	unsigned looks, halted;
};

/* The time has come to look at the process; true: it is not waited for any more. */
static bool look(struct patience *w, const struct vb_peer *peer)
{
	enum vb_pace pace = vb_process_pace(peer->pid);
	w->halted = pace == VB_PACE_HALTED ? w->halted + 1 : 0;
	w->looks++;
	return w->halted == LOOKS || w->looks == MAX_LOOKS || (pace == VB_PACE_UNKNOWN && w->looks >= BLIND_LOOKS);
}

static bool is_over(struct patience *w, const struct vb_peer *peer, uint64_t now_ns)
{
	if (!w->next_look_ns)
		w->next_look_ns = now_ns + LOOK_NS;
	if (now_ns < w->next_look_ns)
		return false;
	w->next_look_ns = now_ns + LOOK_NS;
	return look(w, peer);
}

static void pause_for(const struct patience *w)
{
	if (w->looks)
		vb_sleep_ns(PAUSE_NS);
	else
		sched_yield();
}

bool vb_cut_or_await(const _Atomic(uint32_t) *busy, struct vb_peer *peer, uint64_t deadline_ns)
{
	struct patience w = { 0 };
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
		if (spins % SPINS == 0 && vb_peer_is_dead(peer))
			return true;
		if (is_over(&w, peer, now)) {
			vb_explain("link", "process %d stopped in the middle of an access to this process's memory: its connections to here end",
				   (int)peer->pid);
			vb_peer_cut(peer);
			return true;
		}
	}
	return true;
}
