/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs that hold their sends back. When the program polls a completion queue, arms it or waits for its
 * event, all of them run, whatever queue that is. If the program does none of these, the progress thread runs
 * them after 1 ms. Until then the progress thread leaves them alone.
 */
#include "adapter/progress/progress.h"
#include "base/nanoseconds.h"
#include "check/check.h"

enum { HOLD_NS = VB_NS_PER_MS };

static void time_is_over(struct vb_timer *timer, uint64_t now_ns)
{
	vb_check_run_held();
}

static struct {
	struct vb_lock lock;
	struct vb_list qps; /* vb_checked_qp.held */
	atomic_bool is_any; /* in it; a hint */
	struct vb_timer timer;
} held = { .lock = VB_LOCK_INIT, .qps = VB_LIST_INIT(held.qps), .timer = { .fire = time_is_over } };

/* A forked child has none of its parent's queue pairs. */
static void forget(void)
{
	vb_lock_init(&held.lock);
	vb_list_init(&held.qps);
	atomic_store(&held.is_any, false);
	held.timer = (struct vb_timer){ .fire = time_is_over };
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}

void vb_check_hold(struct vb_checked_qp *c)
{
	vb_lock(&held.lock);
	bool is_first = vb_list_is_empty(&held.qps);
	if (vb_list_is_empty(&c->held))
		vb_list_add_tail(&held.qps, &c->held);
	atomic_store(&held.is_any, true);
	vb_unlock(&held.lock);
	if (is_first)
		vb_timer_set(&held.timer, vb_now_ns() + HOLD_NS);
}

void vb_check_hold_no_more(struct vb_checked_qp *c)
{
	vb_lock(&held.lock);
	vb_list_del(&c->held);
	vb_unlock(&held.lock);
}

bool vb_check_is_held(struct vb_checked_qp *c)
{
	if (atomic_exchange(&c->is_due, false) || !vb_loop_is_current())
		return false;
	vb_lock(&held.lock);
	bool is_held = !vb_list_is_empty(&c->held);
	vb_unlock(&held.lock);
	return is_held;
}

/* Scheduled under the lock: a queue pair that has left the list is not touched. */
void vb_check_run_held(void)
{
	struct vb_list *node;
	if (!atomic_load(&held.is_any))
		return;
	vb_lock(&held.lock);
	atomic_store(&held.is_any, false);
	while ((node = vb_list_pop(&held.qps))) {
		struct vb_checked_qp *c = vb_container_of(node, struct vb_checked_qp, held);
		atomic_store(&c->is_due, true);
		vb_progress_schedule(c->qp);
	}
	vb_unlock(&held.lock);
}
