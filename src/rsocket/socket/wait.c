/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting on a socket: polling for a while, then sleeping in poll(2). */
#include "base/lock.h"
#include "base/restart.h"
#include "base/waits.h"
#include "rsocket/socket/socket.h"

unsigned vb_rs_sleep_begin_locked(struct vb_rs *s, struct vb_rs_sleeper *sleeper,
				  struct pollfd fds[VB_RS_SLEEP_FDS])
{
	vb_list_init(&sleeper->node);
	unsigned n = vb_rs_sleep_fds_locked(s, fds);
	if (n)
		vb_list_add_tail(&s->sleepers, &sleeper->node);
	return n;
}

void vb_rs_sleep_end_locked(struct vb_rs *s, struct vb_rs_sleeper *sleeper, unsigned readable)
{
	vb_list_del(&sleeper->node);
	vb_rs_sleep_events_locked(s, readable);
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

/* Sleeps once; nothing need have happened then. 0, -EINTR, or why it cannot sleep. */
static int sleep_locked(struct vb_rs *s, uint64_t deadline, pthread_mutex_t *held)
{
	struct pollfd fds[VB_RS_SLEEP_FDS + 1];
	struct sleep sleep = { .socket = s, .sleeper.fd = vb_rs_thread_fd(), .held = held };
	unsigned readable = 0;

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
		readable |= (fds[i].revents != 0) << i;
	pthread_mutex_lock(&s->lock);
	vb_rs_sleep_end_locked(s, &sleep.sleeper, readable);
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

/* See signal(7): a signal always ends a call with a timeout. */
static bool goes_on(int err, uint64_t deadline)
{
	return err == -EINTR && deadline == VB_RS_NEVER && vb_goes_on_after_signal();
}

static int wait_until_locked(struct vb_rs *s, bool (*is_ready)(struct vb_rs *s), uint64_t start,
			     uint64_t deadline, pthread_mutex_t *held)
{
	if (spin_locked(s, is_ready, vb_min_u64(deadline, start + vb_rs_poll_ns())))
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

int vb_rs_wait_locked(struct vb_rs *s, bool (*is_ready)(struct vb_rs *s), bool may_block, uint64_t timeout_ns,
		      pthread_mutex_t *held)
{
	vb_rs_progress_locked(s);
	if (is_ready(s))
		return 0;
	if (!may_block)
		return -EAGAIN;
	uint64_t start = vb_now_ns(), deadline = timeout_ns ? start + timeout_ns : VB_RS_NEVER;
	int err = wait_until_locked(s, is_ready, start, deadline, held);
	vb_rs_note_wait(start, !err);
	return err;
}
