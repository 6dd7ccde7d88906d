/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting on a socket: polling for a while after each event, then sleeping in poll(2). */
#include "base/lock.h"
#include "base/signals.h"
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
	return (int)vb_min_u64(vb_ms_of_ns(deadline - now), (uint64_t)most);
}

/* ---- turns ---- */

/* Whoever finds it taken hears when it is free. */
static bool is_free(struct vb_rs_turn *turn)
{
	turn->is_wanted |= turn->is_taken;
	return !turn->is_taken;
}

static bool reader_is_free(struct vb_rs *s) { return is_free(&s->reader); }
static bool writer_is_free(struct vb_rs *s) { return is_free(&s->writer); }

int vb_rs_turn_take_locked(struct vb_rs *s, struct vb_rs_turn *turn, uint64_t deadline)
{
	int err = vb_rs_await_locked(s, turn == &s->reader ? reader_is_free : writer_is_free, deadline, NULL);

	turn->is_taken |= !err;
	return err;
}

/* A call that was refused may have left bytes or room behind: an edge-triggered set tells of them again. */
void vb_rs_turn_give_locked(struct vb_rs *s, struct vb_rs_turn *turn)
{
	bool was_wanted = turn->is_wanted;

	*turn = (struct vb_rs_turn){ 0 };
	if (!was_wanted)
		return;
	s->changes++;
	vb_rs_wake_locked(s);
}

/* ---- waits ---- */

/* Signals are held back but for its sleeps. */
struct wait {
	struct vb_rs *socket;
	bool (*is_ready)(struct vb_rs *s);
	uint64_t since, deadline; /* since: its begin or the last event */
	struct vb_rs_turn *turn;
	sigset_t mask;
	struct vb_rs_sleeper sleeper;
};

static void cancelled(void *arg)
{
	struct wait *w = arg;
	struct vb_rs *s = w->socket;

	pthread_mutex_lock(&s->lock);
	vb_rs_sleep_end_locked(s, &w->sleeper, 0);
	if (w->turn)
		vb_rs_turn_give_locked(s, w->turn);
	pthread_mutex_unlock(&s->lock);
	vb_rs_put(s);
	vb_signals_release(&w->mask);
}

/* Without the lock. As poll(2), with a negative errno. */
static int poll_cancelled(struct wait *w, struct pollfd *fds, nfds_t n)
{
	int ready;

	pthread_cleanup_push(cancelled, w);
	ready = vb_poll_masked(fds, n, time_left_ms(w->deadline), &w->mask);
	pthread_cleanup_pop(0);
	return ready < 0 ? -errno : ready;
}

/* Sleeps once. 1: something happened; 0, -EINTR, or why it cannot sleep. */
static int sleep_locked(struct wait *w)
{
	struct vb_rs *s = w->socket;
	struct pollfd fds[VB_RS_SLEEP_FDS + 1];
	unsigned readable = 0;

	w->sleeper.fd = vb_rs_thread_fd();
	if (w->sleeper.fd < 0)
		return w->sleeper.fd;
	unsigned n = vb_rs_sleep_begin_locked(s, &w->sleeper, fds);
	if (!n)
		return 1;
	fds[n] = (struct pollfd){ .fd = w->sleeper.fd, .events = POLLIN };
	pthread_mutex_unlock(&s->lock);
	int ready = poll_cancelled(w, fds, n + 1);
	if (ready > 0 && fds[n].revents)
		vb_rs_thread_fd_clear(w->sleeper.fd);
	for (unsigned i = 0; i < n && ready > 0; i++)
		readable |= (fds[i].revents != 0) << i;
	pthread_mutex_lock(&s->lock);
	vb_rs_sleep_end_locked(s, &w->sleeper, readable);
	return ready < 0 ? ready : ready > 0;
}

/* True: it is ready. An event that does not make it so begins another wait for the next one. */
static bool look_locked(struct wait *w, bool happened)
{
	happened |= vb_rs_progress_locked(w->socket);
	bool is_ready = w->is_ready(w->socket);
	if (happened || is_ready)
		w->since = vb_rs_note_event(w->since);
	return is_ready;
}

/* True: it became ready. */
static bool spin_locked(struct wait *w)
{
	struct vb_rs *s = w->socket;
	bool pays = true, is_ready = false;

	for (unsigned turn = 1; pays && !is_ready; turn++) {
		if (vb_now_ns() >= vb_min_u64(w->deadline, vb_rs_poll_end(w->since)))
			break;
		pthread_mutex_unlock(&s->lock);
		pays = vb_rs_poll_pause(turn);
		pthread_mutex_lock(&s->lock);
		is_ready = look_locked(w, false);
	}
	return is_ready;
}

/* See signal(7): a signal always ends a call with a deadline. */
static bool goes_on(const struct wait *w, int err)
{
	return err == -EINTR && w->deadline == VB_RS_NEVER && vb_goes_on_after_signal(&w->mask);
}

static int wait_until_locked(struct wait *w)
{
	while (!spin_locked(w)) {
		int err = sleep_locked(w);

		if (look_locked(w, err > 0))
			return 0;
		if (err < 0 && !goes_on(w, err))
			return err;
		if (w->deadline != VB_RS_NEVER && vb_now_ns() >= w->deadline)
			return -EAGAIN;
	}
	return 0;
}

int vb_rs_wait_locked(struct vb_rs *s, bool (*is_ready)(struct vb_rs *s), uint64_t deadline,
		      struct vb_rs_turn *turn)
{
	vb_rs_progress_locked(s);
	if (is_ready(s))
		return 0;
	if (deadline == VB_RS_AT_ONCE)
		return -EAGAIN;
	struct wait w = {
		.socket = s, .is_ready = is_ready, .since = vb_now_ns(), .deadline = deadline, .turn = turn
	};
	vb_signals_hold(&w.mask);
	int err = wait_until_locked(&w);
	vb_signals_release(&w.mask);
	if (err)
		vb_rs_note_silence();
	return err;
}
