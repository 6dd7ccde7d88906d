/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting on a socket: polling for a while, then sleeping in poll(2). */
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/restart.h"
#include "base/waits.h"
#include "rsocket/rs.h"

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)

/* ---- the eventfd of a thread ---- */

static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static __thread struct {
	int fd;
	unsigned generation;
	bool is_open;
} own;

static void close_own(void *unused)
{
	if (own.is_open)
		close(own.fd);
	own.is_open = false;
}

static void make_key(void)
{
	pthread_key_create(&key, close_own);
}

/* A child's is another's still: both would take each other's news. */
static void drop_inherited(void)
{
	if (own.is_open && own.generation != vb_host_generation())
		close_own(NULL);
}

int vb_rs_thread_fd(void)
{
	VB_UNCANCELLED;
	drop_inherited();
	if (own.is_open)
		return own.fd;
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	own.fd = fd;
	own.generation = vb_host_generation();
	own.is_open = true;
	pthread_once(&key_once, make_key);
	pthread_setspecific(key, &own); /* anything that is not NULL: the destructor runs */
	return fd;
}

void vb_rs_thread_fd_clear(int fd)
{
	VB_UNCANCELLED;
	eventfd_t count;

	eventfd_read(fd, &count);
}

void vb_rs_wake_locked(struct vb_rs *s)
{
	struct vb_rs_sleeper *sleeper;

	if (vb_list_is_empty(&s->sleepers) && vb_list_is_empty(&s->watchers))
		return;
	VB_UNCANCELLED;
	vb_list_for_each(sleeper, &s->sleepers, node)
		eventfd_write(sleeper->fd, 1);
	vb_rs_watchers_wake_locked(s);
}

/* ---- progress ---- */

bool vb_rs_progress_locked(struct vb_rs *s)
{
	bool happened;

	if (!vb_rs_is_stream(s)) {
		happened = vb_rs_datagram_progress_locked(s);
	} else {
		happened = s->end.cq && vb_rs_endpoint_progress_locked(s);
		/*
		 * A connection's own events are rare: they are looked for now and then, and when its
		 * descriptor is readable.
		 */
		enum { LOOKS = 256 };
		bool is_due = s->state != VB_RS_CONNECTED || (!happened && ++s->looks >= LOOKS);
		if (is_due && !vb_rs_has_backlog(s)) {
			s->looks = 0;
			happened |= vb_rs_connect_progress_locked(s);
		}
	}
	if (happened)
		vb_rs_wake_locked(s);
	return happened;
}

/* ---- sleeping ---- */

/* After arming the CQ is looked at once more: what came before makes no event. False: something was there. */
static bool arm_locked(struct vb_rs *s)
{
	if (!s->end.cq || s->end.is_armed)
		return true;
	if (ibv_req_notify_cq(s->end.cq, 0))
		return true;
	s->end.is_armed = true;
	return !vb_rs_progress_locked(s); /* a CQ makes one event per arming */
}

unsigned vb_rs_sleep_fds_locked(struct vb_rs *s, struct pollfd fds[VB_RS_SLEEP_FDS])
{
	unsigned n = 0;
	int fd;

	if (!vb_rs_is_stream(s)) {
		if (!vb_rs_datagram_arm_locked(s, &fd))
			return 0;
		fds[n++] = (struct pollfd){ .fd = fd, .events = POLLIN };
		return n;
	}
	if (!arm_locked(s))
		return 0;
	/* A listener's channel is its backlog's to read: who waits is woken. */
	fds[n++] = (struct pollfd){ .fd = vb_rs_has_backlog(s) || !s->channel ? -1 : s->channel->fd,
				    .events = POLLIN };
	if (s->end.channel)
		fds[n++] = (struct pollfd){ .fd = s->end.channel->fd, .events = POLLIN };
	return n;
}

unsigned vb_rs_sleep_begin_locked(struct vb_rs *s, struct vb_rs_sleeper *sleeper,
				  struct pollfd fds[VB_RS_SLEEP_FDS])
{
	vb_list_init(&sleeper->node);
	unsigned n = vb_rs_sleep_fds_locked(s, fds);
	if (n)
		vb_list_add_tail(&s->sleepers, &sleeper->node);
	return n;
}

/* Where a stream's descriptors stand in the list. */
enum { NEWS_OF_ID = 1 << 0, NEWS_OF_CQ = 1 << 1 };

static void take_news_locked(struct vb_rs *s, unsigned news)
{
	VB_UNCANCELLED;
	/* Another attempt to connect may have taken the endpoint that it slept on. */
	if (news & NEWS_OF_CQ && s->end.channel && vb_rs_cq_take_event(s->end.channel)) {
		s->end.events++;
		s->end.is_armed = false;
		vb_rs_wake_locked(s); /* who sleeps on does so with an unarmed CQ: it must look, and arm it */
	}
	if (news & NEWS_OF_ID && !vb_rs_has_backlog(s) && vb_rs_connect_progress_locked(s))
		vb_rs_wake_locked(s);
}

void vb_rs_sleep_news_locked(struct vb_rs *s, unsigned news)
{
	if (news && !vb_rs_is_stream(s))
		vb_rs_datagram_news_locked(s);
	else if (news)
		take_news_locked(s, news);
}

void vb_rs_sleep_end_locked(struct vb_rs *s, struct vb_rs_sleeper *sleeper, unsigned news)
{
	vb_list_del(&sleeper->node);
	vb_rs_sleep_news_locked(s, news);
}

static int time_left_ms(uint64_t deadline)
{
	const int most = (int)vb_rs_config()->wake_up_ms;
	uint64_t now = vb_now_ns();

	if (deadline == VB_RS_NEVER)
		return most;
	if (deadline <= now)
		return 0;
	return (int)vb_min_u64((deadline - now + NS_PER_MS - 1) / NS_PER_MS, (uint64_t)most);
}

struct sleep {
	struct vb_rs *socket;
	struct vb_rs_sleeper sleeper;
	pthread_mutex_t *held;
};

static void cancelled(void *arg)
{
	struct sleep *sleep = arg;
	struct vb_rs *s = sleep->socket;

	pthread_mutex_lock(&s->lock);
	vb_rs_sleep_end_locked(s, &sleep->sleeper, 0);
	pthread_mutex_unlock(&s->lock);
	if (sleep->held)
		pthread_mutex_unlock(sleep->held);
	vb_rs_put(s);
}

/* Without the lock. As poll(2), with a negative errno. */
static int poll_cancelled(struct sleep *sleep, struct pollfd *fds, nfds_t n, int time_ms)
{
	int ready;

	pthread_cleanup_push(cancelled, sleep);
	ready = vb_poll(fds, n, time_ms);
	pthread_cleanup_pop(0);
	return ready < 0 ? -errno : ready;
}

/* One sleep, also after which nothing may have happened. 0, -EINTR, or why there can be no sleep. */
static int sleep_locked(struct vb_rs *s, uint64_t deadline, pthread_mutex_t *held)
{
	struct pollfd fds[VB_RS_SLEEP_FDS + 1];
	struct sleep sleep = { .socket = s, .sleeper.fd = vb_rs_thread_fd(), .held = held };
	unsigned news = 0;

	if (sleep.sleeper.fd < 0)
		return sleep.sleeper.fd;
	unsigned n = vb_rs_sleep_begin_locked(s, &sleep.sleeper, fds);
	if (!n)
		return 0;
	fds[n] = (struct pollfd){ .fd = sleep.sleeper.fd, .events = POLLIN };
	pthread_mutex_unlock(&s->lock);
	int ready = poll_cancelled(&sleep, fds, n + 1, time_left_ms(deadline));
	if (ready > 0 && fds[n].revents)
		vb_rs_thread_fd_clear(sleep.sleeper.fd);
	for (unsigned i = 0; i < n && ready > 0; i++)
		news |= (fds[i].revents != 0) << i;
	pthread_mutex_lock(&s->lock);
	vb_rs_sleep_end_locked(s, &sleep.sleeper, news);
	return ready < 0 ? ready : 0;
}

/* True: it became ready. */
static bool spin_locked(struct vb_rs *s, bool (*is_ready)(struct vb_rs *s), uint64_t until)
{
	while (vb_now_ns() < until) {
		pthread_mutex_unlock(&s->lock);
		vb_pause();
		pthread_mutex_lock(&s->lock);
		vb_rs_progress_locked(s);
		if (is_ready(s))
			return true;
	}
	return false;
}

/* As signal(7) has it: where a time was set, a signal ends the call in any case. */
static bool goes_on(int err, uint64_t deadline)
{
	return err == -EINTR && deadline == VB_RS_NEVER && vb_goes_on_after_signal();
}

int vb_rs_wait_locked(struct vb_rs *s, bool (*is_ready)(struct vb_rs *s), bool may_block, uint64_t timeout_ns,
		      pthread_mutex_t *held)
{
	vb_rs_progress_locked(s);
	if (is_ready(s))
		return 0;
	if (!may_block)
		return -EAGAIN;
	uint64_t start = vb_now_ns(), deadline = timeout_ns ? start + timeout_ns : VB_RS_NEVER;
	if (spin_locked(s, is_ready, vb_min_u64(deadline, start + vb_rs_config()->polling_us * NS_PER_US)))
		return 0;
	for (;;) {
		int err = sleep_locked(s, deadline, held);

		vb_rs_progress_locked(s);
		if (is_ready(s))
			return 0;
		if (err && !goes_on(err, deadline))
			return err;
		if (deadline != VB_RS_NEVER && vb_now_ns() >= deadline)
			return -EAGAIN;
	}
}
