/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting on a set: its pending members, and the ordinary descriptors beside them. */
#include <signal.h>

#include "base/waits.h"
#include "rsocket/set.h"

/* Of data in the inner epoll: which of a member's descriptors; members are aligned. */
#define WHICH ((uintptr_t)1)

enum { BATCH = 64, OWN_EVENTS = EPOLLERR | EPOLLHUP };

/* ---- examining one member ---- */

static bool has_edge(const struct vb_rs_member *m, const struct vb_rs *s, uint32_t revents)
{
	bool is_new = s->stream.received != m->seen_bytes || s->changes != m->seen_changes;
	bool has_room =
		revents & (EPOLLOUT | EPOLLWRNORM) && (m->was_full || s->full_writes != m->seen_full_writes);

	return is_new || has_room;
}

/* The events to report now. Under the socket's lock. */
static uint32_t events_locked(struct vb_rs_member *m)
{
	struct vb_rs *s = m->socket;
	uint32_t asked = m->interest & 0xffff;
	uint32_t revents = (uint16_t)vb_rs_revents_locked(s, (short)(asked | EPOLLOUT)) &
			   (asked | EPOLLOUT | OWN_EVENTS);
	bool has_room = revents & EPOLLOUT;

	revents &= asked | OWN_EVENTS;
	if (m->interest & EPOLLET && vb_rs_is_stream(s)) {
		if (!revents || !has_edge(m, s, revents))
			revents = 0;
		m->seen_bytes = s->stream.received;
		m->seen_changes = s->changes;
		m->seen_full_writes = s->full_writes;
		m->was_full = !has_room;
	}
	return asked ? revents : revents & (m->interest & EPOLLONESHOT ? 0 : OWN_EVENTS);
}

/* A member's descriptors change when it connects. False: no memory in the kernel. */
static bool add_fds_locked(struct vb_rs_member *m, const struct pollfd *fds, unsigned n)
{
	vb_rs_member_forget_closed_locked(m);
	for (unsigned i = 0; i < n; i++) {
		struct epoll_event event = { .events = EPOLLIN | EPOLLET,
					     .data.u64 = (uintptr_t)m | (i ? WHICH : 0) };

		if (fds[i].fd < 0 || fds[i].fd == m->fds[i])
			continue;
		if (vb_epoll_ctl(m->set->inner, EPOLL_CTL_ADD, fds[i].fd, &event) && errno != EEXIST)
			return false;
		m->fds[i] = fds[i].fd;
	}
	return true;
}

/* Gets it ready to be slept on. False: something happened meanwhile. */
static bool arm_locked(struct vb_rs_member *m)
{
	struct pollfd fds[VB_RS_SLEEP_FDS];
	unsigned n = vb_rs_sleep_fds_locked(m->socket, fds);

	return n && add_fds_locked(m, fds, n);
}

/* Under the socket's lock. Returns the events to report; *stays: the next wait examines it again. */
static uint32_t examine_locked(struct vb_rs_member *m, bool *stays)
{
	enum { TIMES = 4 };
	uint32_t revents = 0;

	*stays = true; /* something happened each time */
	for (int i = 0; i < TIMES && *stays && !revents; i++) {
		vb_rs_progress_locked(m->socket);
		revents = events_locked(m);
		if (!revents || m->interest & (EPOLLET | EPOLLONESHOT))
			*stays = !arm_locked(m);
	}
	if (revents && m->interest & EPOLLONESHOT)
		m->interest &= ~0xffffu;
	return revents;
}

/* Fills in the events of members that are pending now, each once; up to `most`. Under `examining`. */
static int examine_pending(struct vb_rs_set *set, struct epoll_event *events, int most)
{
	unsigned left = vb_rs_pending_count(&set->pending);
	struct vb_rs_membership *next;
	int n = 0;

	while (n < most && left-- && (next = vb_rs_pending_pop(&set->pending))) {
		struct vb_rs_member *m = vb_container_of(next, struct vb_rs_member, membership);
		bool stays;

		pthread_mutex_lock(&m->socket->lock);
		uint32_t revents = examine_locked(m, &stays);
		vb_rs_pending_remove(next); /* our own progress made it pending again */
		if (stays)
			vb_rs_pending_add(next);
		pthread_mutex_unlock(&m->socket->lock);
		if (revents)
			events[n++] = (struct epoll_event){ .events = revents, .data = m->data };
	}
	return n;
}

/* ---- events of members' descriptors ---- */

static void take_inner_events(struct vb_rs_set *set)
{
	VB_UNCANCELLED;
	struct epoll_event events[BATCH];
	int n;

	pthread_mutex_lock(&set->examining);
	do {
		n = vb_epoll_wait(set->inner, events, BATCH, 0);
		for (int i = 0; i < n; i++) {
			struct vb_rs_member *m =
				(struct vb_rs_member *)(uintptr_t)(events[i].data.u64 & ~(uint64_t)WHICH);

			pthread_mutex_lock(&m->socket->lock);
			vb_rs_sleep_events_locked(m->socket, events[i].data.u64 & WHICH ? 2 : 1);
			vb_rs_pending_add(&m->membership);
			pthread_mutex_unlock(&m->socket->lock);
		}
	} while (n == BATCH);
	pthread_mutex_unlock(&set->examining);
}

/* Takes our own entries out of the kernel's answer. */
static int strip(struct vb_rs_set *set, struct epoll_event *events, int n, bool *has_inner)
{
	int kept = 0;

	*has_inner = false;
	for (int i = 0; i < n; i++) {
		if (events[i].data.ptr == &set->inner)
			*has_inner = true;
		else if (events[i].data.ptr != &set->pending)
			events[kept++] = events[i];
	}
	return kept;
}

/* ---- waiting ---- */

static int time_left_ms(uint64_t deadline)
{
	uint64_t now = deadline == VB_RS_NEVER ? 0 : vb_now_ns();

	if (deadline == VB_RS_NEVER)
		return -1;
	return deadline <= now ? 0 : (int)vb_min_u64(vb_ms_of_ns(deadline - now), INT32_MAX);
}

/* One place is for an ordinary descriptor, so that busy sockets do not hide it. */
static int places_for_members(struct vb_rs_set *set, int max)
{
	return max > 1 ? max - 1 : (int)(set->one_event_waits++ & 1);
}

static int examine_some(struct vb_rs_set *set, struct epoll_event *events, int most)
{
	VB_UNCANCELLED;
	pthread_mutex_lock(&set->examining);
	int n = examine_pending(set, events, most);
	pthread_mutex_unlock(&set->examining);
	vb_rs_pending_settle(&set->pending);
	return n;
}

static void cancelled(void *set)
{
	vb_rs_set_put(set);
}

/* As epoll_pwait(2), with a negative errno; a thread that is cancelled in it gives up its reference. */
static int wait_cancelled(struct vb_rs_set *set, struct epoll_event *events, int max, int time_ms,
			  const sigset_t *mask)
{
	int n;

	pthread_cleanup_push(cancelled, set);
	n = epoll_pwait(set->fd, events, max, time_ms, mask);
	pthread_cleanup_pop(0);
	return n < 0 ? -errno : n;
}

/* The ordinary descriptors, where members have events already. */
static int poll_ordinary(struct vb_rs_set *set, struct epoll_event *events, int max, const sigset_t *mask)
{
	VB_UNCANCELLED;
	int n = epoll_pwait(set->fd, events, max, 0, mask);
	return n < 0 ? -errno : n;
}

static int wait_mixed(struct vb_rs_set *set, struct epoll_event *events, int max, uint64_t deadline,
		      const sigset_t *mask)
{
	bool has_inner, is_last;

	do {
		int n = vb_rs_pending_has_any(&set->pending) ?
				examine_some(set, events, places_for_members(set, max)) :
				0;
		int k = n || vb_rs_pending_has_any(&set->pending) ?
				poll_ordinary(set, events + n, max - n, mask) :
				wait_cancelled(set, events, max, time_left_ms(deadline), mask);

		if (k < 0)
			return n ? n : k;
		k = strip(set, events + n, k, &has_inner);
		if (has_inner)
			take_inner_events(set);
		if (!(n + k) && max == 1) /* an ordinary descriptor has not come for the only place */
			n = examine_some(set, events, 1);
		if (n + k)
			return n + k;
		is_last = deadline != VB_RS_NEVER && vb_now_ns() >= deadline;
	} while (!is_last || has_inner);
	return 0;
}

/* As poll(2) of nothing; a thread that is cancelled in it gives up its reference. */
static int sleep_cancelled(struct vb_rs_set *set, int time_ms, const sigset_t *mask)
{
	int n;

	pthread_cleanup_push(cancelled, set);
	n = vb_poll_masked(NULL, 0, time_ms, mask);
	pthread_cleanup_pop(0);
	return n < 0 ? -errno : 0;
}

/*
 * The entries for sockets of the process that made the set have an event that only that process takes. Once
 * it is gone they can go; until then they would end each wait at once.
 */
static int pass_makers_events(struct vb_rs_set *set, uint64_t deadline, const sigset_t *mask)
{
	enum { REST_MS = 10 };
	int left = time_left_ms(deadline);

	if (!kill(set->maker, 0) || errno != ESRCH)
		return sleep_cancelled(set, left < 0 || left > REST_MS ? REST_MS : left, mask);
	vb_epoll_ctl(set->fd, EPOLL_CTL_DEL, set->inner, NULL);
	vb_epoll_ctl(set->fd, EPOLL_CTL_DEL, set->pending.eventfd, NULL);
	return 0;
}

/* A child has the kernel's set in common with the process that made it, and has no sockets in it. */
static int wait_inherited(struct vb_rs_set *set, struct epoll_event *events, int max, uint64_t deadline,
			  const sigset_t *mask)
{
	bool unused, is_last;

	do {
		is_last = deadline != VB_RS_NEVER && vb_now_ns() >= deadline;
		int all = wait_cancelled(set, events, max, time_left_ms(deadline), mask);
		int n = all < 0 ? all : strip(set, events, all, &unused);

		if (!n && all && !is_last)
			n = pass_makers_events(set, deadline, mask);
		if (n)
			return n;
	} while (!is_last);
	return 0;
}

static int wait_set(int fd, struct epoll_event *events, int max, uint64_t timeout_ns, const sigset_t *mask)
{
	VB_DEFERRED;
	struct vb_rs_set *set = vb_rs_set_get(fd);
	uint64_t deadline =
		timeout_ns == VB_RS_NEVER ? VB_RS_NEVER : timeout_ns + (timeout_ns ? vb_now_ns() : 0);

	if (!set)
		return -EBADF;
	int n = max <= 0		    ? -EINVAL :
		!events			    ? -EFAULT :
		vb_rs_set_is_inherited(set) ? wait_inherited(set, events, max, deadline, mask) :
					      wait_mixed(set, events, max, deadline, mask);
	vb_rs_set_put(set);
	return n;
}

VB_EXPORT int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout)
{
	uint64_t timeout_ns = timeout < 0 ? VB_RS_NEVER : (uint64_t)timeout * VB_NS_PER_MS;

	return (int)vb_rs_result(wait_set(epfd, events, maxevents, timeout_ns, NULL));
}

VB_EXPORT int vb_repoll_wait(int epfd, struct epoll_event *events, int maxevents, uint64_t timeout_ns,
			     const sigset_t *mask)
{
	return (int)vb_rs_result(wait_set(epfd, events, maxevents, timeout_ns, mask));
}
