/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/progress/progress.h"

#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include "adapter/memory/arena.h"
#include "adapter/progress/path.h"
#include "adapter/memory/segment.h"
#include "adapter/progress/prefetch.h"
#include "base/signals.h"
#include "base/ticks.h"
#include "base/tuned.h"
#include "host/loop/activity.h"
#include "host/loop/poll_pause.h"

enum {
	RUN_BATCH  = 16,       /* QPs taken off the run queue at once */
	PASS_ROUNDS = 64,
};

struct vb_lock vb_progress_lock = VB_LOCK_INIT;

/* The QPs that a thread has taken off the run queue and works on. They stay until it is done. */
struct round {
	struct vb_list node;
	unsigned n;
	struct vb_qp *qps[RUN_BATCH];
};

static struct vb_list run_queue = VB_LIST_INIT(run_queue); /* vb_qp.run_node */
static struct vb_list rounds = VB_LIST_INIT(rounds);       /* under vb_progress_lock, as the run queue */

/* Several threads bump these counters without atomic read-modify-write: a lost increment is harmless. */
static atomic_uint polls;       /* rounds by pollers */
static atomic_uint spins;       /* of these since the last arming or wake-up */
static atomic_uint empty_polls; /* rounds in a row that found nothing */
static atomic_uint hot_polls;   /* polls that found news of a hot QP */
static atomic_bool contended;   /* a QP's turn was put off because another thread had its lock */
static _Atomic(uint64_t) round_ticks; /* when a poller last looked further */
static atomic_uint spin_polls = VB_SPIN_POLLS; /* so many make a poller now */
static atomic_bool took_arrivals; /* the progress thread took arrivals since its last pass */
static atomic_bool spinning;    /* a thread polls in a loop: the progress thread stands aside */
static unsigned seen_polls;     /* by the progress thread, */
static uint64_t next_look_ns;   /* which looks again then, however often it wakes up meanwhile; 0: at once, */
static bool was_missed;         /* and has seen no polls once */
static _Atomic(pid_t) poller;   /* the thread that last began to poll in a loop */
static uint64_t trusted_ns;     /* the last look that took it for a poller, */
static uint64_t poller_ran_ns;  /* and its processor time then */
static uint64_t tick_ns = VB_TICK_NS; /* from one look to the next; longer if pollers lack processors */
atomic_bool vb_progress_stands_in;
/* its last sleep while arrivals were left to the poller; 0: they are not. Its own */
static uint64_t unwoken_ns;
static atomic_uint sleep_generation;
static atomic_bool is_led;      /* a thread leads */
static _Thread_local bool leads_here; /* it is this thread */
static _Thread_local struct vb_poll_time poll_time; /* as a leader */
static _Thread_local const void *rounds_for; /* what it makes rounds for now; NULL: it does not */
static atomic_uint leads;       /* that have ended */
static unsigned seen_leads;     /* by the progress thread */
atomic_bool vb_progress_ticks;  /* it looks in while threads lead now and then */

static void bump(atomic_uint *counter)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

/* A value of asleep that no peer has seen, without VB_ASLEEP_LEADER. */
static unsigned next_sleep(void)
{
	unsigned g = atomic_fetch_add(&sleep_generation, 2) + 2;
	return g ? g : atomic_fetch_add(&sleep_generation, 2) + 2;
}

static void fall_asleep(void)
{
	atomic_store(&vb_arena->asleep, next_sleep());
	vb_path_sleep();
}

/* Unless another thread has: it may lead by now. */
static void fall_asleep_if_awake(void)
{
	unsigned awake = 0;
	if (atomic_compare_exchange_strong(&vb_arena->asleep, &awake, next_sleep()))
		vb_path_sleep();
}

static bool run_queue_is_empty(void)
{
	vb_lock(&vb_progress_lock);
	bool empty = vb_list_is_empty(&run_queue);
	vb_unlock(&vb_progress_lock);
	return empty;
}

void vb_progress_schedule_locked(struct vb_qp *qp)
{
	if (!vb_list_is_empty(&qp->run_node))
		return;
	vb_list_add_tail(&run_queue, &qp->run_node);
}

void vb_progress_schedule(struct vb_qp *qp)
{
	vb_lock(&vb_progress_lock);
	vb_progress_schedule_locked(qp);
	vb_unlock(&vb_progress_lock);
	/*
	 * pass() looks at the queue under the lock, after fall_asleep: behind the insertion, or so that this
	 * load is behind fall_asleep.
	 */
	if (atomic_load(&vb_arena->asleep))
		vb_loop_wake();
}

void vb_progress_retry(struct vb_qp *qp)
{
	atomic_store_explicit(&contended, true, memory_order_relaxed);
	vb_progress_schedule(qp);
}

/* The thread that holds the lock may be waiting for this one's processor. */
static void let_holder_run(void)
{
	if (vb_likely(!atomic_load_explicit(&contended, memory_order_relaxed)))
		return;
	atomic_store_explicit(&contended, false, memory_order_relaxed);
	sched_yield();
}

/* Prefetches path_state first: path->fetch reads through it. */
static void fetch_state(struct vb_qp *qp)
{
	if (atomic_load_explicit(&qp->path, memory_order_acquire))
		vb_prefetch_path_state(qp->path_state);
}

static void fetch(struct vb_qp *qp)
{
	const struct vb_path_ops *path = atomic_load_explicit(&qp->path, memory_order_acquire);
	if (path && path->fetch)
		path->fetch(qp);
}

static void run(struct vb_qp *qp)
{
	const struct vb_path_ops *path = atomic_load(&qp->path);
	if (path)
		path->run(qp);
}

/* With many QPs none is in a near cache: fetch what several will touch at once. */
static void run_all(const struct round *r)
{
	for (unsigned i = 0; r->n > 1 && i < r->n; i++)
		fetch_state(r->qps[i]);
	for (unsigned i = 0; r->n > 1 && i < r->n; i++)
		fetch(r->qps[i]);
	for (unsigned i = 0; i < r->n; i++)
		run(r->qps[i]);
}

static void begin_locked(struct round *r)
{
	r->n = 0;
	for (struct vb_list *node; r->n < RUN_BATCH && (node = vb_list_pop(&run_queue));)
		r->qps[r->n++] = vb_container_of(node, struct vb_qp, run_node);
	if (r->n)
		vb_list_add_tail(&rounds, &r->node);
}

static void end(struct round *r)
{
	vb_lock(&vb_progress_lock);
	vb_list_del(&r->node);
	vb_unlock(&vb_progress_lock);
}

static bool is_in_round_locked(const struct vb_qp *qp)
{
	struct round *r;
	vb_list_for_each(r, &rounds, node)
		for (unsigned i = 0; i < r->n; i++)
			if (r->qps[i] == qp)
				return true;
	return false;
}

/* Collects arrivals unless another thread does so now, and runs a batch of QPs. False: there was nothing. */
static bool round_once(void)
{
	struct round round;
	static atomic_uint pumped;
	bool found = vb_path_pump();
	if (found) {
		bump(&pumped);
		if (atomic_load_explicit(&pumped, memory_order_relaxed) % VB_HOT_POLLS)
			return true;
	}
	if (!vb_lock_try(&vb_progress_lock)) {
		atomic_store_explicit(&contended, true, memory_order_relaxed);
		return true;
	}
	found |= vb_path_poll_all();
	begin_locked(&round);
	vb_unlock(&vb_progress_lock);
	if (!round.n)
		return found;
	run_all(&round);
	end(&round);
	return true;
}

void vb_progress_note_poll(void)
{
	bump(&polls);
	if (vb_likely(!atomic_load_explicit(&vb_arena->asleep, memory_order_relaxed)))
		return;
	bump(&spins);
	if (atomic_load_explicit(&spins, memory_order_relaxed) <
	    atomic_load_explicit(&spin_polls, memory_order_relaxed))
		return;
	atomic_store(&poller, gettid());
	atomic_store(&spinning, true);
	atomic_store(&vb_arena->asleep, 0);
	vb_loop_wake(); /* so that the progress thread starts to tick */
}

/* The thread that a poller waits for may be waiting for the poller's processor. */
static void back_off(void)
{
	bump(&empty_polls);
	unsigned n = atomic_load_explicit(&empty_polls, memory_order_relaxed);
	if (n > VB_PAUSE_AFTER_POLLS)
		vb_pause();
	if (n == VB_RING_AFTER_POLLS)
		vb_path_ring_delayed();
	if (n > VB_YIELD_AFTER_POLLS && n % VB_YIELD_EVERY_POLLS == 0)
		sched_yield();
}

bool vb_progress_is_due(void)
{
	bump(&hot_polls);
	if (atomic_load_explicit(&hot_polls, memory_order_relaxed) % VB_HOT_POLLS == 0)
		return true;
	atomic_store_explicit(&empty_polls, 0, memory_order_relaxed);
	return false;
}

/* Is it time to look further than at the hot QP? */
static bool is_round_due(void)
{
	if (atomic_load_explicit(&empty_polls, memory_order_relaxed) % VB_CLOCK_EVERY_POLLS)
		return false;
	uint64_t now = vb_ticks();
	if (now - atomic_load_explicit(&round_ticks, memory_order_relaxed) < vb_ticks_us() / VB_ROUNDS_PER_US)
		return false;
	atomic_store_explicit(&round_ticks, now, memory_order_relaxed);
	return true;
}

bool vb_progress_poll(bool found)
{
	if (vb_unlikely(!vb_arena))
		return false; /* a forked child that polls its parent's CQ */
	vb_progress_note_poll();
	vb_segment_yield();
	if (found)
		vb_path_note_shm();
	if (found || is_round_due())
		found |= round_once();
	else
		found = vb_path_peek();
	if (found)
		atomic_store_explicit(&empty_polls, 0, memory_order_relaxed);
	else
		back_off();
	let_holder_run();
	return found;
}

/* ---- leading ---- */

/* False: there was nothing. */
static bool make_rounds(void)
{
	bool found = false;
	for (int i = 0; i < PASS_ROUNDS && round_once(); i++) {
		found = true;
		let_holder_run();
	}
	return found;
}

static bool is_work_waiting(void) { return vb_path_is_pending() || !run_queue_is_empty(); }

static int sleep_as_leader(bool (*is_over)(void *arg), void *arg)
{
	vb_path_set_wakeup(true);
	atomic_store(&vb_arena->asleep, next_sleep() | VB_ASLEEP_LEADER);
	vb_path_sleep();
	vb_path_ring_delayed();
	return is_work_waiting() || is_over(arg) ? 0 : vb_loop_wait();
}

/*
 * Nobody need ring a leader that polls. If it loses its processor, the progress thread's next tick takes
 * over; without ticks it does not poll.
 */
static bool is_covered_by_tick(void)
{
	vb_path_set_wakeup(false);
	/* pairs with pass(), which stops to tick, and then asks for wake-ups */
	if (atomic_load(&vb_progress_ticks))
		return true;
	vb_path_set_wakeup(true);
	return false;
}

/* Nothing has come at so many looks. False: others want the processor. */
static bool pause_as_leader(unsigned looks)
{
	if (looks == VB_RING_AFTER_POLLS)
		vb_path_ring_delayed();
	return vb_poll_pause(&poll_time, looks);
}

static void look_until(bool (*is_over)(void *arg), void *arg, uint64_t until_ns)
{
	unsigned empty = 0;
	bool pays = true;
	while (pays && !is_over(arg) && vb_now_ns() < until_ns) {
		empty = make_rounds() ? 0 : empty + 1;
		pays = !empty || pause_as_leader(empty);
	}
}

/*
 * Signals wait meanwhile: a handler may jump out, and here the thread may hold locks. -EINTR: one came that
 * ends a read(2), and what the caller waits for did not.
 */
static int poll_as_leader(bool (*is_over)(void *arg), void *arg, uint64_t until_ns)
{
	sigset_t mask;
	vb_signals_hold(&mask);
	atomic_store(&vb_arena->asleep, 0);
	rounds_for = arg;
	if (is_covered_by_tick())
		look_until(is_over, arg, until_ns);
	rounds_for = NULL;
	bool ends = !is_over(arg) && vb_signals_interrupt(&mask);
	vb_signals_release(&mask);
	return ends ? -EINTR : 0;
}

/* A leading thread may be here again: its signal handler has jumped out of the wait. */
static void end_abandoned_lead(void)
{
	if (vb_unlikely(leads_here))
		vb_progress_lead_end();
}

bool vb_progress_lead(void)
{
	end_abandoned_lead();
	leads_here = vb_arena && !atomic_exchange(&is_led, true);
	return leads_here;
}

bool vb_progress_leads_for(const void *arg) { return rounds_for == arg; }

int vb_progress_lead_until(bool (*is_over)(void *arg), void *arg)
{
	uint64_t start = vb_now_ns(), until = vb_poll_time_end(&poll_time, start);
	int err = until > start ? poll_as_leader(is_over, arg, until) : 0;
	while (!err && !is_over(arg)) {
		err = sleep_as_leader(is_over, arg);
		atomic_store(&vb_arena->asleep, 0);
		rounds_for = arg;
		make_rounds();
		rounds_for = NULL;
	}
	if (err)
		vb_poll_time_learn_silence(&poll_time);
	else
		vb_poll_time_learn(&poll_time, start, vb_now_ns());
	return is_over(arg) ? 0 : err;
}

/*
 * While the progress thread ticks, nobody need ring: the program comes back soon, or the next tick takes
 * over.
 */
void vb_progress_lead_end(void)
{
	leads_here = false;
	atomic_store(&vb_arena->asleep, 0);
	unsigned n = atomic_fetch_add(&leads, 1);
	atomic_store(&is_led, false);
	/* pairs with pass(), which looks at asleep after it has stopped ticking */
	if (atomic_load(&vb_progress_ticks))
		return;
	fall_asleep();
	if (n % VB_LEADS_TO_TICK == 0 || is_work_waiting())
		vb_loop_wake();
}

/* ---- arming, and the progress thread ---- */

void vb_progress_before_arming(void)
{
	if (vb_likely(vb_arena))
		round_once();
}

void vb_progress_arm(void)
{
	end_abandoned_lead();
	atomic_store(&spins, 0);
	atomic_store(&spinning, false);
	if (!atomic_load(&vb_arena->asleep))
		fall_asleep();
	vb_path_ring_delayed();
	vb_path_set_wakeup(true);
	/* for what came before peers could know that they must ring */
	if (is_work_waiting())
		vb_loop_wake();
}

/* Grows while the poller takes all arrivals: what a late look costs stays a share of that time. */
static uint64_t unwoken_tick_ns(void)
{
	unwoken_ns = vb_min_u64(unwoken_ns ? unwoken_ns * 5 / 4 : VB_UNWOKEN_TICK_NS, tick_ns);
	return unwoken_ns;
}

/*
 * Something had arrived for which the poller did not poll. A program that polls in short bouts, and spins on
 * its memory in between, must seldom count as a busy poller.
 */
static void note_unpolled_arrivals(void)
{
	atomic_store(&spins, 0);
	atomic_store(&spin_polls, vb_min_u32(atomic_load(&spin_polls) * 8, VB_MOST_SPIN_POLLS));
}

static void ask_for_fewer_polls(void)
{
	unsigned now = atomic_load(&spin_polls);
	if (now > VB_SPIN_POLLS)
		atomic_store(&spin_polls, now / 2);
}

/* Have threads led since the last pass? Then the next one is due in a tick, and they may count on it. */
static bool keep_ticking(void)
{
	unsigned n = atomic_load(&leads);
	bool more = n != seen_leads;
	seen_leads = n;
	/* whoever delays a doorbell has done so by the return, or finds that it may not */
	vb_lock(&vb_progress_lock);
	atomic_store(&vb_progress_ticks, more);
	vb_unlock(&vb_progress_lock);
	return more;
}

/*
 * Has the poller, which wants a processor, run for less than enough_ns since the last look that trusted it,
 * and others for more than half of that time?
 */
static bool poller_lacks_processor(uint64_t now_ns, uint64_t enough_ns)
{
	return vb_thread_lacks_processor(atomic_load(&poller), poller_ran_ns,
					 vb_min_u64((now_ns - trusted_ns) / 2, enough_ns));
}

/*
 * Does a thread still poll? It may have had no processor since the last look, if this thread has used it; so
 * it gets a second chance. A thread in the middle of a system call polls.
 */
static bool is_polled(unsigned n)
{
	bool polled = n != seen_polls || vb_path_is_busy(), is_trusted = polled || !was_missed;
	was_missed = !polled;
	return is_trusted;
}

/* True: nobody needs the poller's polls. */
static bool leave_to_poller(void)
{
	vb_path_ring_delayed();
	bool is_covered = vb_path_set_wakeup(false);
	if (!atomic_load(&spinning)) /* armed meanwhile: pairs with vb_progress_arm */
		is_covered = vb_path_set_wakeup(true);
	return is_covered;
}

/*
 * The program has polled since the last look. If packets wait, it may have stopped and be spinning on its
 * memory. Then a second look follows soon, which finds out.
 */
static uint64_t look_interval_ns(void)
{
	static bool second_follows;
	if (leave_to_poller())
		return tick_ns;
	second_follows = !second_follows && vb_path_has_arrivals();
	if (!second_follows)
		return unwoken_tick_ns();
	was_missed = true;
	return VB_SECOND_LOOK_NS;
}

/*
 * It polls on when it gets a processor. So peers need not learn to ring: with many such processes, each
 * message would wake a progress thread, and these would keep the pollers from their processors.
 */
static uint64_t stand_in_for_poller(uint64_t now_ns)
{
	atomic_store(&vb_progress_stands_in, true);
	make_rounds();
	vb_path_ring_delayed();
	tick_ns = vb_min_u64(2 * tick_ns, VB_MOST_TICK_NS);
	next_look_ns = now_ns + tick_ns;
	return next_look_ns;
}

/* The poller had a processor since the last look. Where others compete for it, the looks do so too. */
static void note_polls(uint64_t now_ns)
{
	atomic_store(&vb_progress_stands_in, false);
	tick_ns = poller_lacks_processor(now_ns, UINT64_MAX) ? vb_min_u64(2 * tick_ns, VB_MOST_TICK_NS) :
							       vb_max_u64(tick_ns * 7 / 8, VB_TICK_NS);
	ask_for_fewer_polls();
}

static void note_trust(uint64_t now_ns)
{
	trusted_ns = now_ns;
	poller_ran_ns = vb_thread_ran_ns(atomic_load(&poller));
}

/* The progress thread's part. */
static uint64_t pass(uint64_t now_ns)
{
	unsigned n = atomic_load(&polls) + atomic_load(&hot_polls);
	bool spins_now = atomic_load(&spinning);
	if (spins_now && now_ns < next_look_ns) {
		leave_to_poller();
		return next_look_ns;
	}
	if (spins_now && is_polled(n)) {
		seen_polls = n;
		next_look_ns = now_ns + look_interval_ns();
		if (!was_missed)
			note_polls(now_ns);
		note_trust(now_ns);
		return next_look_ns;
	}
	if (spins_now && poller_lacks_processor(now_ns, VB_HARDLY_RUNS_NS))
		return stand_in_for_poller(now_ns);
	next_look_ns = 0;
	was_missed = false;
	atomic_store(&vb_progress_stands_in, false);
	unwoken_ns = 0;
	seen_polls = n;
	bool was_polled = atomic_exchange(&spinning, false), ticks = keep_ticking();
	vb_path_set_wakeup(true);
	if (!(atomic_load(&vb_arena->asleep) & VB_ASLEEP_LEADER))
		atomic_store(&vb_arena->asleep, 0);
	bool found = make_rounds();
	if ((atomic_exchange(&took_arrivals, false) || found) && was_polled)
		note_unpolled_arrivals();
	fall_asleep_if_awake();
	vb_path_ring_delayed();
	return is_work_waiting() ? 0 : ticks ? now_ns + VB_TICK_NS : UINT64_MAX;
}

bool vb_progress_is_polled(void) { return atomic_load(&spinning); }
unsigned vb_progress_polls(void) { return atomic_load_explicit(&polls, memory_order_relaxed); }

void vb_progress_note_arrivals(void)
{
	if (vb_loop_is_current())
		atomic_store_explicit(&took_arrivals, true, memory_order_relaxed);
}

void vb_progress_note_work(void)
{
	if (!vb_loop_is_current())
		bump(&polls);
}

/* A thread that runs the QP may queue it again before it is done. */
static bool is_let_go(struct vb_qp *qp)
{
	vb_lock(&vb_progress_lock);
	vb_list_del(&qp->run_node);
	bool is_free = !is_in_round_locked(qp) && !atomic_load(&qp->refs);
	vb_unlock(&vb_progress_lock);
	return is_free;
}

void vb_qp_drain(struct vb_qp *qp)
{
	while (!is_let_go(qp))
		sched_yield();
}

/*
 * A forked child has no QPs and no threads. Its new progress thread runs before the adapter is started again.
 */
static void forget(void)
{
	vb_loop_set_pass(NULL);
	vb_lock_init(&vb_progress_lock);
	vb_list_init(&run_queue);
	vb_list_init(&rounds);
	atomic_store(&spinning, false);
	atomic_store(&is_led, false);
	atomic_store(&vb_progress_ticks, false);
	atomic_store(&polls, 0);
	seen_polls = 0;
}

void vb_progress_start(void)
{
	vb_host_at_fork(forget);
	fall_asleep();
	vb_loop_set_pass(pass);
}
