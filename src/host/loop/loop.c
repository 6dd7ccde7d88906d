/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The progress thread. One round: sleep until a descriptor, a timer, the pass's deadline or the eventfd; call
 * the watches of the descriptors; fire the timers that are due; run the adapter's pass.
 *
 * Watches are looked up by descriptor in a table and carry a serial number that the epoll event repeats, so
 * an event that was fetched before its watch was stopped finds nothing. Timers are in a heap. Both, and what
 * runs now, are under `lock`; callbacks run without it. Whoever stops the watch or cancels the timer that
 * runs now waits for `idle`.
 *
 * wait_until is the time until which the thread sleeps, 0 while it is awake: a new earliest timer wakes the
 * thread only if that would oversleep it.
 */
#include "host/private.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/list.h"
#include "base/log.h"
#include "base/nanoseconds.h"
#include "base/thread.h"
#include "base/waits.h"

enum {
	EVENTS_PER_ROUND = 64,
	/* a timer that re-arms itself for the past must not keep descriptors and pass waiting */
	TIMERS_PER_ROUND = 256,
	TIMERS_NS = VB_NS_PER_MS, /* for the timers of a round, after the first */
	SLICE_NS = 100 * VB_NS_PER_US,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;
static unsigned idle_waiters;

static struct vb_watch **watches; /* by descriptor */
static size_t watches_size;
static uint32_t last_serial;
static struct vb_heap timers = VB_HEAP_INIT;
/*
 * A thread that waits in vb_timer_cancel. Its timer cannot be armed meanwhile, or a callback that re-arms
 * itself could keep the thread waiting for ever.
 */
struct canceller {
	const struct vb_timer *timer;
	struct vb_list all;
};
static struct vb_list cancellers = VB_LIST_INIT(cancellers);

static const struct vb_watch *running_watch;
static const struct vb_timer *running_timer;
static bool running_stopped; /* running_watch was stopped meanwhile */
static uint64_t wait_until;

static int epoll_fd = -1;
static atomic_bool is_running;
static atomic_int event_fd = -1, waiter_fd = -1;
static _Thread_local bool in_loop;
static _Atomic(uint64_t (*)(uint64_t)) pass_hook;

/* ---- waking ---- */

static void ring_own(const atomic_int *eventfd)
{
	VB_UNCANCELLED;
	int fd = atomic_load_explicit(eventfd, memory_order_relaxed);
	int saved_errno = errno;
	uint64_t one = 1;
	/* a full counter wakes the reader, too */
	if (fd >= 0 && write(fd, &one, sizeof one) < 0)
		errno = saved_errno;
}

/*
 * While the progress thread is awake, nobody needs to write to its eventfd. Before it sleeps, it sets
 * is_asleep, and then checks that `wakes` has not changed since it last looked for work. Only the progress
 * thread clears is_asleep: if a waker stops before its write, others still write.
 */
static atomic_uint wakes;
static unsigned seen_wakes; /* the thread's own */
static atomic_bool is_asleep;

void vb_loop_wake(void)
{
	atomic_fetch_add(&wakes, 1);
	if (atomic_load(&is_asleep))
		ring_own(&event_fd);
}

/* False: it may not sleep. */
static bool fall_asleep(void)
{
	atomic_store(&is_asleep, true);
	return atomic_load(&wakes) == seen_wakes;
}

/* It looks for work next. */
static void be_awake(void)
{
	atomic_store(&is_asleep, false);
	seen_wakes = atomic_load(&wakes);
}

void vb_loop_wake_waiter(void) { ring_own(&waiter_fd); }

void vb_eventfd_ring(int fd)
{
	VB_UNCANCELLED;
	uint64_t one = 1;
	ssize_t n = write(fd, &one, sizeof one); /* EAGAIN: the counter is full, so the reader wakes anyway */
	(void)n;
}

int vb_loop_eventfd(void) { return atomic_load_explicit(&event_fd, memory_order_relaxed); }
int vb_loop_waiter_eventfd(void) { return atomic_load_explicit(&waiter_fd, memory_order_relaxed); }

/* ---- sleeping ---- */

static _Atomic(uint64_t) sleeps, asleep_ns;

/* It may end by a cancellation, a jump out of a signal handler, or a fork: then it is not counted. */
static void note_sleep(uint64_t since_ns)
{
	atomic_fetch_add_explicit(&sleeps, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&asleep_ns, vb_now_ns() - since_ns, memory_order_relaxed);
}

uint64_t vb_loop_sleeps(void) { return atomic_load_explicit(&sleeps, memory_order_relaxed); }
uint64_t vb_loop_asleep_ns(void) { return atomic_load_explicit(&asleep_ns, memory_order_relaxed); }

/* A blocking read, because the kernel restarts it under SA_RESTART. */
int vb_loop_wait(void)
{
	uint64_t rings, since = vb_now_ns();
	int err = read(vb_loop_waiter_eventfd(), &rings, sizeof rings) < 0 ? -errno : 0;
	note_sleep(since);
	return err;
}

bool vb_loop_is_current(void) { return in_loop; }

void vb_loop_set_pass(uint64_t (*pass)(uint64_t now_ns))
{
	atomic_store(&pass_hook, pass);
	vb_loop_wake();
}

static void wait_idle_locked(void)
{
	VB_UNCANCELLED;
	idle_waiters++;
	pthread_cond_wait(&idle, &lock);
	idle_waiters--;
}

static void callback_done_locked(void)
{
	running_watch = NULL;
	running_timer = NULL;
	if (idle_waiters)
		pthread_cond_broadcast(&idle);
}

/* ---- watches ---- */

static int table_reserve_locked(int fd)
{
	if ((size_t)fd < watches_size)
		return 0;
	size_t size = (size_t)fd + 64;
	struct vb_watch **table = realloc(watches, size * sizeof(struct vb_watch *));
	if (!table)
		return -ENOMEM;
	memset(table + watches_size, 0, (size - watches_size) * sizeof(struct vb_watch *));
	watches = table;
	watches_size = size;
	return 0;
}

/* Reads w->fd only if w was started: before that it may be anything. */
static bool is_started_locked(const struct vb_watch *w)
{
	return w->serial && w->fd >= 0 && (size_t)w->fd < watches_size && watches[w->fd] == w;
}

static int epoll_change_locked(struct vb_watch *w, int op, uint32_t epoll_events)
{
	struct epoll_event e = { .events = epoll_events,
				 .data.u64 = (uint64_t)w->serial << 32 | (uint32_t)w->fd };
	return vb_epoll_ctl(epoll_fd, op, w->fd, &e) < 0 ? -errno : 0;
}

static int watch_start_locked(struct vb_watch *w, uint32_t epoll_events)
{
	if (epoll_fd < 0)
		return -ENOTCONN;
	if (w->fd < 0)
		return -EBADF;
	if (is_started_locked(w))
		return epoll_change_locked(w, EPOLL_CTL_MOD, epoll_events);
	int err = table_reserve_locked(w->fd);
	if (err)
		return err;
	if (++last_serial == 0)
		last_serial = 1;
	w->serial = last_serial;
	err = epoll_change_locked(w, EPOLL_CTL_ADD, epoll_events);
	if (err)
		w->serial = 0;
	else
		watches[w->fd] = w;
	return err;
}

int vb_watch_start(struct vb_watch *w, uint32_t epoll_events)
{
	pthread_mutex_lock(&lock);
	int err = watch_start_locked(w, epoll_events);
	pthread_mutex_unlock(&lock);
	return err;
}

void vb_watch_stop(struct vb_watch *w)
{
	pthread_mutex_lock(&lock);
	if (is_started_locked(w)) {
		vb_epoll_ctl(epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
		watches[w->fd] = NULL;
		w->serial = 0;
	}
	if (running_watch == w)
		running_stopped = true;
	while (running_watch == w && !in_loop)
		wait_idle_locked();
	pthread_mutex_unlock(&lock);
}

bool vb_loop_callback_is_stopped(void)
{
	pthread_mutex_lock(&lock);
	bool stopped = running_stopped;
	pthread_mutex_unlock(&lock);
	return stopped;
}

static void dispatch(const struct epoll_event *e)
{
	uint32_t fd = (uint32_t)e->data.u64, serial = (uint32_t)(e->data.u64 >> 32);

	pthread_mutex_lock(&lock);
	struct vb_watch *w = fd < watches_size ? watches[fd] : NULL;
	if (w && w->serial == serial) {
		void (*ready)(struct vb_watch *, uint32_t) = w->ready;
		running_watch = w;
		running_stopped = false;
		pthread_mutex_unlock(&lock);
		ready(w, e->events);
		pthread_mutex_lock(&lock);
		callback_done_locked();
	}
	pthread_mutex_unlock(&lock);
}

/* ---- timers ---- */

static bool is_being_cancelled_locked(const struct vb_timer *t)
{
	const struct canceller *c;
	vb_list_for_each(c, &cancellers, all)
		if (c->timer == t)
			return true;
	return false;
}

void vb_timer_set(struct vb_timer *t, uint64_t deadline_ns)
{
	bool oversleeps = false;
	pthread_mutex_lock(&lock);
	if (!is_being_cancelled_locked(t)) {
		vb_heap_remove(&timers, &t->node);
		vb_heap_insert(&timers, &t->node, deadline_ns);
		oversleeps = deadline_ns < wait_until;
	}
	if (oversleeps)
		wait_until = deadline_ns; /* the next timer need not wake the thread again */
	pthread_mutex_unlock(&lock);
	if (oversleeps)
		vb_loop_wake();
}

void vb_timer_cancel(struct vb_timer *t)
{
	pthread_mutex_lock(&lock);
	vb_heap_remove(&timers, &t->node);
	if (running_timer == t && !in_loop) {
		struct canceller self = { .timer = t };
		vb_list_add_tail(&cancellers, &self.all);
		while (running_timer == t)
			wait_idle_locked();
		vb_list_del(&self.all);
	}
	pthread_mutex_unlock(&lock);
}

/*
 * A callback that sends may lose the processor to a receiver. So if callbacks take long, few of them run
 * before the thread looks at its descriptors again.
 */
static void fire_timers(uint64_t now)
{
	pthread_mutex_lock(&lock);
	for (unsigned fired = 0; fired < TIMERS_PER_ROUND; fired++) {
		if (fired && vb_now_ns() - now >= TIMERS_NS)
			break;
		struct vb_heap_node *first = vb_heap_first(&timers);
		if (!first || first->key > now)
			break;
		struct vb_timer *t = vb_container_of(first, struct vb_timer, node);
		void (*fire)(struct vb_timer *, uint64_t) = t->fire;
		vb_heap_remove(&timers, first);
		running_timer = t;
		pthread_mutex_unlock(&lock);
		fire(t, now);
		pthread_mutex_lock(&lock);
		callback_done_locked();
	}
	pthread_mutex_unlock(&lock);
}

/* ---- calls ---- */

/*
 * One at a time, under call_lock. The function may move the pages of the caller's stack, so the caller waits
 * on static storage only.
 */
static pthread_mutex_t call_lock = PTHREAD_MUTEX_INITIALIZER;
static void (*call_function)(void *);
static void *call_arg;
static _Atomic(uint32_t) call_waits;

bool vb_loop_has_caller(void) { return atomic_load(&call_waits); }

static void run_call(void)
{
	if (vb_likely(!atomic_load_explicit(&call_waits, memory_order_acquire)))
		return;
	call_function(call_arg);
	atomic_store(&call_waits, 0);
	syscall(SYS_futex, &call_waits, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void call_locked(void (*function)(void *), void *arg)
{
	call_function = function;
	call_arg = arg;
	atomic_store(&call_waits, 1);
	vb_loop_wake();
	while (atomic_load(&call_waits))
		syscall(SYS_futex, &call_waits, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
}

int vb_loop_call(void (*function)(void *), void *arg)
{
	sigset_t all, before;
	if (in_loop) {
		function(arg);
		return 0;
	}
	if (!atomic_load_explicit(&is_running, memory_order_relaxed))
		return -ENOTCONN;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_mutex_lock(&call_lock);
	call_locked(function, arg);
	pthread_mutex_unlock(&call_lock);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return 0;
}

/* ---- the thread ---- */

/* Decides how long to sleep, at most until pass_deadline. */
static uint64_t plan_sleep(uint64_t pass_deadline)
{
	pthread_mutex_lock(&lock);
	const struct vb_heap_node *first = vb_heap_first(&timers);
	wait_until = first ? vb_min_u64(first->key, pass_deadline) : pass_deadline;
	uint64_t until = wait_until;
	pthread_mutex_unlock(&lock);
	return until;
}

static void end_sleep(void)
{
	pthread_mutex_lock(&lock);
	wait_until = 0;
	pthread_mutex_unlock(&lock);
}

static int wait_ms(struct epoll_event *events, uint64_t until, uint64_t now)
{
	int ms = -1;
	if (until != UINT64_MAX) {
		enum { MOST_MS = 1000000 };
		ms = (int)vb_min_u64(vb_ms_of_ns(until > now ? until - now : 0), MOST_MS);
	}
	return vb_epoll_wait(epoll_fd, events, EVENTS_PER_ROUND, ms);
}

/* Sleeps with the resolution that the kernel offers: ns since Linux 5.11, else ms rounded up. */
static int wait_events(struct epoll_event *events, uint64_t until)
{
	static bool no_pwait2; /* this thread's alone */
	uint64_t now = until && until != UINT64_MAX ? vb_now_ns() : 0;

#ifdef SYS_epoll_pwait2
	if (!no_pwait2 && until > now && until != UINT64_MAX) {
		struct {
			int64_t sec, ns;
		} t = { (int64_t)((until - now) / VB_NS_PER_S), (int64_t)((until - now) % VB_NS_PER_S) };
		int n = (int)syscall(SYS_epoll_pwait2, epoll_fd, events, EVENTS_PER_ROUND, &t, NULL, 0);
		if (n >= 0 || errno == EINTR)
			return n;
		no_pwait2 = true; /* an old kernel, or a sandbox, which may answer with any error */
	}
#else
	(void)no_pwait2;
#endif
	return wait_ms(events, until, now);
}

/*
 * The program has closed the library's descriptors, as one does that closes every number. The thread still
 * runs timers and whatever polling finds. It does not spin, and it does not write to the files that have the
 * descriptors' numbers now.
 */
__attribute__((cold)) static void sleep_without_descriptors(uint64_t until)
{
	uint64_t now = vb_now_ns();
	if (atomic_exchange(&event_fd, -1) >= 0)
		vb_explain("close", "the program has closed descriptors of this library; from now on its "
				    "progress thread looks each ms, and connections may stand still");
	if (until > now)
		vb_sleep_ns(vb_min_u64(until - now, VB_NS_PER_MS));
}

static void drain_event_fd(void)
{
	uint64_t count;
	ssize_t n = read(vb_loop_eventfd(), &count, sizeof count);
	(void)n; /* it may be empty: the last read took several wake-ups */
}

/* The first version of the kernel's struct sched_attr (linux/sched/types.h). */
struct sched_attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime_ns, deadline_ns, period_ns;
};

/*
 * This thread works for microseconds at a time, often while the program's threads occupy all processors. From
 * 6.12 on Linux lets threads with short slices preempt others at once. Older kernels ignore the request.
 */
static void ask_for_short_slices(void)
{
#if defined(SYS_sched_getattr) && defined(SYS_sched_setattr)
	struct sched_attributes a = { 0 };
	if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) < 0 || a.policy != SCHED_OTHER)
		return;
	a.size = sizeof a;
	a.runtime_ns = SLICE_NS;
	syscall(SYS_sched_setattr, 0, &a, 0); /* a sandbox may refuse it, which does no harm */
#endif
}

__attribute__((noreturn)) static void *loop_main(void *unused)
{
	struct epoll_event events[EVENTS_PER_ROUND];
	uint64_t deadline = 0;

	ask_for_short_slices();
	in_loop = true;
	for (;;) {
		uint64_t until = plan_sleep(deadline);
		if (until && !fall_asleep())
			until = 0;
		uint64_t since = until ? vb_now_ns() : 0;
		int n = wait_events(events, until);
		if (vb_unlikely(n < 0 && errno != EINTR))
			sleep_without_descriptors(until);
		be_awake();
		end_sleep();
		if (since)
			note_sleep(since);
		for (int i = 0; i < n; i++) {
			if (events[i].data.u64 == 0)
				drain_event_fd();
			else
				dispatch(&events[i]);
		}
		run_call();
		fire_timers(vb_now_ns());
		uint64_t (*pass)(uint64_t) = atomic_load(&pass_hook);
		deadline = pass ? pass(vb_now_ns()) : UINT64_MAX;
	}
}

static void close_descriptors_locked(void)
{
	vb_fd_close_locked(atomic_exchange(&event_fd, -1));
	vb_fd_close_locked(atomic_exchange(&waiter_fd, -1));
	vb_fd_close_locked(epoll_fd);
	epoll_fd = -1;
}

/* The eventfd's event has data 0, which no watch has: serials start at 1. */
static int open_descriptors_locked(void)
{
	struct epoll_event e = { .events = EPOLLIN };
	int fd = vb_fd_own(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
	    waiter = fd < 0 ? -1 : vb_fd_own(eventfd(0, EFD_CLOEXEC));
	epoll_fd = waiter < 0 ? -1 : vb_fd_own(vb_epoll_open());
	int err = epoll_fd < 0 ? -errno : 0;
	atomic_store(&event_fd, fd);
	atomic_store(&waiter_fd, waiter);
	if (!err)
		err = vb_epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0 ? -errno : 0;
	if (err)
		close_descriptors_locked();
	return err;
}

int vb_loop_open_locked(void)
{
	pthread_mutex_lock(&lock);
	int err = open_descriptors_locked();
	pthread_mutex_unlock(&lock);
	return err;
}

void vb_loop_close_locked(void)
{
	pthread_mutex_lock(&lock);
	close_descriptors_locked();
	pthread_mutex_unlock(&lock);
}

int vb_loop_run_locked(void)
{
	pthread_t thread;
	if (atomic_load(&is_running))
		return 0;
	pthread_mutex_lock(&lock);
	int err = vb_thread_start(&thread, loop_main, NULL);
	if (!err) {
		pthread_setname_np(thread, "verbatim");
		atomic_store(&is_running, true);
	}
	pthread_mutex_unlock(&lock);
	if (err)
		vb_explain_limit(
			"host",
			"connections need a thread, and none can be had now (RLIMIT_NPROC, or pids.max of the control group)");
	return err ? -EAGAIN : 0;
}

void vb_loop_fork_begin(void) { pthread_mutex_lock(&lock); }
void vb_loop_fork_end(void) { pthread_mutex_unlock(&lock); }

/*
 * The descriptors were closed already. From now on inherited timers count as not armed, and inherited watches
 * as not started.
 */
void vb_loop_forget(void)
{
	vb_loop_fork_end(); /* the lock, which this thread took before the fork */
	idle = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	idle_waiters = 0;
	vb_list_init(&cancellers);
	epoll_fd = -1;
	atomic_store(&is_running, false);
	atomic_store(&event_fd, -1);
	atomic_store(&waiter_fd, -1);
	call_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	atomic_store(&call_waits, 0);
	in_loop = false; /* if it was a callback that forked */
	running_watch = NULL;
	running_timer = NULL;
	wait_until = 0;
	atomic_store(&is_asleep, false);
	atomic_store(&sleeps, 0);
	atomic_store(&asleep_ns, 0);
	if (watches)
		memset(watches, 0, watches_size * sizeof(struct vb_watch *));
	vb_heap_forget(&timers);
}
