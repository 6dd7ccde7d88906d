/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long a thread polls before it sleeps: about as long as its waits take, and not at all when they take
 * long. So an answer that comes soon needs no wake-up, and a program that waits for long uses no processor.
 * KVM decides in the same way how long a halted processor polls.
 *
 * A thread that polls uses up its share of the processor. If others want to run, it stops polling for a
 * while: one of them may have to send the answer. If the answer then comes at once, it was the peer that ran,
 * and the thread goes on polling. Otherwise two programs on one processor would sleep and wake each other.
 * Only one of them could run at a time, so the kernel would not move the other to a free processor.
 *
 * If another thread ran during the last wait, the peer may share this processor. Then the peer runs only once
 * this thread yields, so the next wait yields after its first look.
 */
#ifndef VB_BASE_POLL_TIME_H
#define VB_BASE_POLL_TIME_H

#include "base/numbers.h"
#include "base/tuned.h"

struct vb_poll_time {
	uint32_t ns;            /* to poll in the next wait; 0 at first */
	uint64_t rests_from_ns, rests_until_ns; /* it does not poll in between */
	uint64_t others_ran_ns; /* when another thread last had its turn while this one yielded */
	bool yields_first;      /* that was in the last wait: the peer may need this processor */
};

/* A wait begins. When does its polling end? now_ns: at once. */
static inline uint64_t vb_poll_time_end(const struct vb_poll_time *t, uint64_t now_ns)
{
	return now_ns < t->rests_until_ns ? now_ns : now_ns + t->ns;
}

/*
 * The thread called sched_yield(2) at before_ns, and the call returned at now_ns. Returns true if another
 * thread has run for so long in between that the caller should stop polling.
 */
static inline bool vb_poll_time_met_others(struct vb_poll_time *t, uint64_t before_ns, uint64_t now_ns)
{
	uint64_t took_ns = now_ns - before_ns;
	if (took_ns >= VB_TURN_NS)
		t->others_ran_ns = now_ns;
	if (took_ns < VB_SWITCH_NS)
		return false;
	t->rests_from_ns = now_ns;
	t->rests_until_ns = now_ns + vb_min_u64(took_ns * VB_REST_TIMES, VB_MOST_REST_NS);
	return true;
}

/* A wait began at since_ns, and its event came at now_ns. */
static inline void vb_poll_time_learn(struct vb_poll_time *t, uint64_t since_ns, uint64_t now_ns)
{
	uint64_t waited_ns = now_ns - since_ns;
	t->yields_first = t->others_ran_ns > since_ns;
	if (waited_ns > VB_MOST_POLL_NS) {
		t->ns = 0;
		return;
	}
	if (waited_ns > t->ns)
		t->ns = t->ns ? vb_min_u32(2 * t->ns, VB_MOST_POLL_NS) : VB_FIRST_POLL_NS;
	if (t->rests_from_ns > since_ns)
		t->rests_until_ns = now_ns;
}

/* A wait ended without an event. */
static inline void vb_poll_time_learn_silence(struct vb_poll_time *t) { t->ns = 0; }

#endif
