/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waiting on many: sockets among ordinary descriptors. A wait polls all for polling_time. Then it gets every
 * socket ready to be slept on, and one ppoll(2) waits for the descriptors of all. That also wakes up for what
 * the program need not know (credits, steps of a connection): then the wait begins anew.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fdsets.h"
#include "base/lock.h"
#include "base/signals.h"
#include "base/waits.h"
#include "rsocket/calls.h"

/* One of the program's descriptors. */
struct entry {
	struct vb_rs *socket;         /* NULL: an ordinary descriptor */
	struct vb_rs_sleeper sleeper;
	bool sleeps;
	unsigned first, num;          /* its descriptors in polled */
};

/*
 * A thread keeps it, so that polling does not allocate. A call takes it and puts it back: a signal handler
 * that polls while the thread sleeps makes its own.
 */
struct workspace {
	struct entry *entries;
	struct pollfd *polled;        /* for a poll(2) of the kernel */
	nfds_t size;
	bool happened;                /* something, to a socket, in the last look */
	uint64_t since;               /* the wait's begin or its last event */
	sigset_t mask;                /* the thread's, while a wait holds signals back */
};

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void free_workspace(void *p)
{
	struct workspace *w = p;

	free(w->entries);
	free(w->polled);
	free(w);
}

static void make_key(void)
{
	pthread_key_create(&key, free_workspace);
}

static struct workspace *make_workspace(nfds_t nfds)
{
	struct workspace *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->size = nfds < 16 ? 16 : nfds * 2;
	w->entries = calloc(w->size, sizeof(*w->entries));
	w->polled = calloc(w->size * VB_RS_SLEEP_FDS + 1, sizeof(*w->polled));
	if (w->entries && w->polled)
		return w;
	free_workspace(w);
	return NULL;
}

static struct workspace *take_workspace(nfds_t nfds)
{
	pthread_once(&once, make_key);
	struct workspace *w = pthread_getspecific(key);

	if (w)
		pthread_setspecific(key, NULL);
	if (w && w->size >= nfds)
		return w;
	if (w)
		free_workspace(w);
	return make_workspace(nfds);
}

static void put_workspace(struct workspace *w)
{
	if (pthread_getspecific(key))
		free_workspace(w);
	else
		pthread_setspecific(key, w);
}

/* ---- polling ---- */

static void find_sockets(struct workspace *w, const struct pollfd *fds, nfds_t nfds)
{
	for (nfds_t i = 0; i < nfds; i++)
		w->entries[i] = (struct entry){ .socket = fds[i].fd < 0 ? NULL : vb_rs_get(fds[i].fd) };
}

static void put_sockets(struct workspace *w, nfds_t nfds)
{
	for (nfds_t i = 0; i < nfds; i++)
		if (w->entries[i].socket)
			vb_rs_put(w->entries[i].socket);
}

static short poll_socket(struct vb_rs *s, short events, bool *happened)
{
	if (vb_rs_is_inherited(s))
		return POLLNVAL;
	pthread_mutex_lock(&s->lock);
	*happened |= vb_rs_progress_locked(s);
	short revents = vb_rs_revents_locked(s, events);
	pthread_mutex_unlock(&s->lock);
	return revents;
}

/* All ordinary descriptors in one call. */
static int poll_ordinary(struct workspace *w, struct pollfd *fds, nfds_t nfds)
{
	VB_UNCANCELLED;
	nfds_t n = 0;
	int ready = 0;

	for (nfds_t i = 0; i < nfds; i++)
		if (!w->entries[i].socket)
			w->polled[n++] = (struct pollfd){ .fd = fds[i].fd, .events = fds[i].events };
	if (n && (ready = vb_poll(w->polled, n, 0)) < 0)
		return -errno;
	for (nfds_t i = nfds; i-- > 0;)
		if (!w->entries[i].socket)
			fds[i].revents = w->polled[--n].revents;
	return ready;
}

static int poll_once(struct workspace *w, struct pollfd *fds, nfds_t nfds)
{
	int ready = poll_ordinary(w, fds, nfds);

	w->happened = false;
	for (nfds_t i = 0; i < nfds && ready >= 0; i++) {
		if (!w->entries[i].socket)
			continue;
		fds[i].revents = poll_socket(w->entries[i].socket, fds[i].events, &w->happened);
		ready += fds[i].revents != 0;
	}
	return ready;
}

/* ---- sleeping ---- */

/* False: something happened to it. */
static bool begin_sleep(struct workspace *w, struct entry *one, const struct pollfd *fd, nfds_t *n,
			int thread_fd)
{
	struct vb_rs *s = one->socket;

	if (!s) {
		w->polled[(*n)++] = (struct pollfd){ .fd = fd->fd, .events = fd->events };
		return true;
	}
	one->sleeper.fd = thread_fd;
	one->first = (unsigned)*n;
	pthread_mutex_lock(&s->lock);
	one->num = vb_rs_sleep_begin_locked(s, &one->sleeper, &w->polled[*n]);
	one->sleeps = one->num > 0;
	/* Another thread may have taken completions since we polled. */
	bool is_ready = vb_rs_revents_locked(s, fd->events) != 0;
	pthread_mutex_unlock(&s->lock);
	*n += one->num;
	return one->sleeps && !is_ready;
}

static void end_sleep(struct workspace *w, struct entry *one)
{
	unsigned readable = 0;

	if (!one->socket || !one->sleeps)
		return;
	for (unsigned i = 0; i < one->num; i++)
		readable |= (w->polled[one->first + i].revents != 0) << i;
	pthread_mutex_lock(&one->socket->lock);
	vb_rs_sleep_end_locked(one->socket, &one->sleeper, readable);
	pthread_mutex_unlock(&one->socket->lock);
	one->sleeps = false;
}

struct sleep {
	struct workspace *workspace;
	nfds_t nfds;
};

static void cancelled(void *arg)
{
	const struct sleep *sleep = arg;
	struct workspace *w = sleep->workspace;

	for (nfds_t i = 0; i < sleep->nfds; i++)
		end_sleep(w, &w->entries[i]);
	put_sockets(w, sleep->nfds);
	const sigset_t mask = w->mask;
	put_workspace(w);
	vb_signals_release(&mask);
}

/* n descriptors of the workspace, for nfds of the program's. */
static int poll_cancelled(struct workspace *w, nfds_t n, nfds_t nfds, uint64_t timeout_ns,
			  const sigset_t *mask)
{
	struct timespec time = vb_timespec_of_ns(timeout_ns);
	struct sleep sleep = { w, nfds };
	int ready;

	pthread_cleanup_push(cancelled, &sleep);
	ready = ppoll(w->polled, n, &time, mask);
	pthread_cleanup_pop(0);
	return ready < 0 ? -errno : ready;
}

/* 1: something happened; 0: it slept as long as it may; or a negative errno. */
static int sleep_on_all(struct workspace *w, const struct pollfd *fds, nfds_t nfds, uint64_t timeout_ns,
			const sigset_t *mask)
{
	int thread_fd = vb_rs_thread_fd(), result = 1;
	nfds_t n = 0, i = 0;

	if (thread_fd < 0)
		return thread_fd;
	while (i < nfds && begin_sleep(w, &w->entries[i], &fds[i], &n, thread_fd))
		i++;
	for (nfds_t k = 0; k < n; k++)
		w->polled[k].revents = 0;
	if (i == nfds) {
		w->polled[n] = (struct pollfd){ .fd = thread_fd, .events = POLLIN };
		int ready = poll_cancelled(w, n + 1, nfds, timeout_ns, mask);
		result = ready < 0 ? ready : ready > 0;
		if (ready > 0 && w->polled[n].revents)
			vb_rs_thread_fd_clear(thread_fd);
	}
	for (i = 0; i < nfds; i++)
		end_sleep(w, &w->entries[i]);
	return result;
}

/* ---- rpoll ---- */

static uint64_t sleep_ns(uint64_t deadline)
{
	const uint64_t most = vb_rs_config()->wake_up_ms * VB_NS_PER_MS;
	uint64_t now = vb_now_ns();

	if (deadline == VB_RS_NEVER)
		return most;
	return deadline <= now ? 0 : vb_min_u64(deadline - now, most);
}

/* As poll_once. An event of which the program need not know begins another wait for the next one. */
static int look(struct workspace *w, struct pollfd *fds, nfds_t nfds, bool happened)
{
	int ready = poll_once(w, fds, nfds);

	if (happened || w->happened || ready > 0)
		w->since = vb_rs_note_event(w->since);
	return ready;
}

static int spin(struct workspace *w, struct pollfd *fds, nfds_t nfds, uint64_t deadline)
{
	int ready = 0;

	for (unsigned turn = 1; !ready; turn++) {
		if (vb_now_ns() >= vb_min_u64(deadline, vb_rs_poll_end(w->since)) || !vb_rs_poll_pause(turn))
			break;
		ready = look(w, fds, nfds, false);
	}
	return ready;
}

static int wait_until(struct workspace *w, struct pollfd *fds, nfds_t nfds, uint64_t deadline,
		      const sigset_t *mask)
{
	int ready = spin(w, fds, nfds, deadline);

	while (!ready && (deadline == VB_RS_NEVER || vb_now_ns() < deadline)) {
		int slept = sleep_on_all(w, fds, nfds, sleep_ns(deadline), mask);

		ready = look(w, fds, nfds, slept > 0);
		if (slept < 0 && !ready)
			return slept;
		if (!ready)
			ready = spin(w, fds, nfds, deadline);
	}
	return ready;
}

static int wait_for_any(struct workspace *w, struct pollfd *fds, nfds_t nfds, uint64_t deadline,
			const sigset_t *mask)
{
	w->since = vb_now_ns();
	int ready = look(w, fds, nfds, false);
	if (!ready) {
		vb_signals_hold(&w->mask);
		ready = wait_until(w, fds, nfds, deadline, mask ? mask : &w->mask);
		vb_signals_release(&w->mask);
	}
	if (ready <= 0)
		vb_rs_note_silence();
	return ready;
}

/* Signals that the mask lets in end a wait that found nothing, however short it was. */
static int let_signals_in(const sigset_t *mask)
{
	static const struct timespec none;

	return ppoll(NULL, 0, &none, mask) < 0 ? -errno : 0;
}

static int poll_all(struct pollfd *fds, nfds_t nfds, uint64_t timeout_ns, const sigset_t *mask)
{
	VB_DEFERRED;
	struct workspace *w = take_workspace(nfds);
	uint64_t now = timeout_ns == VB_RS_NEVER || !timeout_ns ? 0 : vb_now_ns();

	if (!w)
		return -ENOMEM;
	find_sockets(w, fds, nfds);
	int ready = !timeout_ns ?
			    poll_once(w, fds, nfds) :
			    wait_for_any(w, fds, nfds,
					 timeout_ns == VB_RS_NEVER ? VB_RS_NEVER : now + timeout_ns, mask);
	put_sockets(w, nfds);
	put_workspace(w);
	return !ready && mask ? let_signals_in(mask) : ready;
}

VB_EXPORT int vb_rpoll(struct pollfd *fds, nfds_t nfds, uint64_t timeout_ns, const sigset_t *mask)
{
	if (nfds && !fds)
		return vb_rs_fail(EFAULT, "no descriptors");
	return (int)vb_rs_result(poll_all(fds, nfds, timeout_ns, mask));
}

VB_EXPORT int rpoll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	return vb_rpoll(fds, nfds, timeout < 0 ? VB_RS_NEVER : (uint64_t)timeout * VB_NS_PER_MS, NULL);
}

/* ---- rselect ---- */

static uint64_t time_of(const struct timeval *timeout)
{
	if (!timeout || timeout->tv_sec > VB_RS_LONGEST_S)
		return VB_RS_NEVER;
	return vb_ns_of_timeval(*timeout);
}

VB_EXPORT int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout)
{
	struct pollfd fds[FD_SETSIZE];

	if (nfds < 0 || (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0)))
		return vb_rs_fail(EINVAL, "nfds or the time is negative");
	if (nfds > FD_SETSIZE)
		nfds = FD_SETSIZE;
	nfds_t n = vb_polls_from_sets(nfds, readfds, writefds, exceptfds, fds);
	int ready = poll_all(fds, n, time_of(timeout), NULL);
	return (int)vb_rs_result(ready < 0 ? ready : vb_polls_to_sets(fds, n, readfds, writefds, exceptfds));
}
