/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread that waits for a completion event which nobody has asked for. While ibv_get_cq_event waits, a
 * timer looks at the channel's completion queues. It is a mistake if none of them is armed, one has
 * completions, and the last thread that polled or armed them is the one that waits. Another thread might yet
 * arm them.
 */
#include "adapter/inspection/registry.h"
#include "adapter/queues/queue.h"
#include "base/nanoseconds.h"
#include "check/check.h"

enum { LOOK_NS = VB_NS_PER_S };

void vb_check_cq_used(struct vb_cq *cq)
{
	vb_check_run_held();
	if (cq->checked)
		atomic_store_explicit(&cq->checked->last_user, vb_lock_self(), memory_order_relaxed);
}

/* What a look finds among the completion queues of a channel. */
struct found {
	const struct vb_check_wait *wait;
	uint32_t completions;
	bool may_go_on; /* an event may come */
};

/* The registry's lock is held: a queue that is in use now is not waited for. */
static bool look_at(struct vb_registered *registered, void *arg)
{
	struct found *f = arg;
	struct vb_cq *cq = vb_container_of(registered, struct vb_cq, registered);
	struct vb_checked_cq *c = __atomic_load_n(&cq->checked, __ATOMIC_ACQUIRE);
	if (cq->channel != f->wait->channel)
		return true;
	uintptr_t user = c ? atomic_load_explicit(&c->last_user, memory_order_relaxed) : 0;
	if (!vb_lock_try(&cq->lock)) {
		f->may_go_on = true;
		return false;
	}
	uint32_t n = cq->tail - cq->head;
	f->may_go_on |= cq->armed || (user ? user != f->wait->thread : n);
	vb_unlock(&cq->lock);
	f->completions += n;
	return !f->may_go_on;
}

/* The second look in a row that finds it so is sure of it. */
static void look(struct vb_timer *timer, uint64_t now_ns)
{
	struct vb_check_wait *wait = timer->arg;
	struct found f = { .wait = wait };
	uint64_t cursor = 0;
	vb_registry_look(VB_REGISTRY_CQS, &cursor, look_at, &f);
	bool is_stuck = f.completions && !f.may_go_on;
	if (is_stuck && wait->was_stuck)
		vb_check_report(
			VB_CHECK_UNASKED_EVENT, NULL, &(struct vb_place){ "waits", &wait->at }, wait->channel,
			"ibv_get_cq_event waits for an event that nobody has asked for, while %u completions "
			"wait: each event takes a new ibv_req_notify_cq, and a last poll after that",
			f.completions);
	wait->was_stuck = is_stuck;
	vb_timer_set(timer, now_ns + LOOK_NS);
}

void vb_check_wait_begin(struct vb_check_wait *wait, struct vb_channel *channel)
{
	vb_check_run_held();
	*wait = (struct vb_check_wait){ .timer = { .fire = look, .arg = wait },
					.channel = channel,
					.thread = vb_lock_self() };
	if (!atomic_load(&channel->refs))
		return;
	vb_trace_take(&wait->at);
	vb_timer_set(&wait->timer, vb_now_ns() + LOOK_NS);
}

void vb_check_wait_end(void *wait)
{
	vb_timer_cancel(&((struct vb_check_wait *)wait)->timer);
}
