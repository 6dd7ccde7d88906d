/* SPDX-License-Identifier: BSD-2-Clause */
#include "roce/delayed_ack.h"

#include "adapter/progress/progress.h"
#include "base/tuned.h"

enum { PLACES = 8 }; /* a queue pair's is found by its number */

static struct place {
	_Atomic(struct vb_qp *) qp;
	_Atomic uint64_t since;
} places[PLACES];

static struct place *place_of(const struct vb_qp *qp) { return &places[qp->qpn % PLACES]; }

static void fire(struct vb_timer *t, uint64_t now_ns) { vb_delayed_ack_send(); }
static struct vb_timer timer = { .fire = fire };

bool vb_delayed_ack_put(struct vb_qp *qp, uint64_t now_ns)
{
	struct place *p = place_of(qp);
	struct vb_qp *nobody = NULL;
	if (atomic_load_explicit(&p->qp, memory_order_relaxed))
		return false;
	atomic_store_explicit(&p->since, now_ns, memory_order_relaxed);
	vb_qp_ref(qp);
	if (!atomic_compare_exchange_strong(&p->qp, &nobody, qp)) {
		vb_qp_unref(qp);
		return false;
	}
	/*
	 * When the program stops polling, the progress thread looks at the places behind that: either it sees
	 * this one, or this thread sees that nobody polls.
	 */
	if (!vb_progress_is_polled())
		vb_timer_set(&timer, now_ns + VB_ACK_DELAY_NS);
	return true;
}

void vb_delayed_ack_drop(struct vb_qp *qp)
{
	struct vb_qp *expected = qp;
	struct place *p = place_of(qp);
	if (atomic_load_explicit(&p->qp, memory_order_relaxed) == qp &&
	    atomic_compare_exchange_strong(&p->qp, &expected, NULL))
		vb_qp_unref(qp);
}

static void (*acknowledge)(struct vb_qp *qp);

void vb_delayed_ack_set_handler(void (*due)(struct vb_qp *qp)) { acknowledge = due; }

static void take(struct place *p)
{
	struct vb_qp *qp = atomic_exchange(&p->qp, NULL);
	if (!qp)
		return;
	acknowledge(qp);
	vb_qp_unref(qp);
}

/*
 * A thread that polls has come back from its program, which had nothing to post. The progress thread waits.
 */
void vb_delayed_ack_send(void)
{
	uint64_t oldest = UINT64_MAX;
	bool waits = vb_loop_is_current();
	for (struct place *p = places; p < places + PLACES; p++) {
		if (vb_likely(!atomic_load(&p->qp)))
			continue;
		uint64_t since = atomic_load_explicit(&p->since, memory_order_relaxed);
		if (!waits || vb_now_ns() >= since + VB_ACK_DELAY_NS)
			take(p);
		else
			oldest = vb_min_u64(oldest, since);
	}
	if (oldest != UINT64_MAX)
		vb_timer_set(&timer, oldest + VB_ACK_DELAY_NS);
}

static void forget(void)
{
	for (struct place *p = places; p < places + PLACES; p++)
		atomic_store(&p->qp, NULL);
}

__attribute__((constructor)) static void watch_forks(void) { vb_host_at_fork(forget); }

/* A program that ends without destroying its queue pairs still acknowledges what it has received. */
__attribute__((destructor)) static void send_the_last(void)
{
	for (struct place *p = places; p < places + PLACES; p++)
		if (atomic_load(&p->qp))
			take(p);
}
