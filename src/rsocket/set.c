/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sets of sockets among ordinary descriptors: epoll for rsockets.
 *
 *	the program's number: a kernel epoll
 *	  ├── ordinary descriptors, with the program's data: all the kernel's business
 *	  ├── bell: an eventfd, readable while a member is pending
 *	  └── inner: a kernel epoll of the members' own descriptors, edge-triggered, its data the membership (struct vb_rs_watch)
 *
 * A member that something happened to is *pending*: vb_rs_wake_locked puts it there, whichever thread caused
 * it, and so does news of its descriptors. Waiting looks at the pending members alone: progress, then its
 * events; one that has none is armed and leaves the list, one with level-triggered events stays. So a wait
 * costs what happens, not what is watched. Without sockets among its members a set is the kernel's alone.
 *
 * Edge-triggered members are told when more came in (bytes, requests, ends) since they were told last, or
 * when there is room again after a look or a write that found none.
 *
 * Locks: `collector` (never held while sleeping) > a socket's lock > the set's lock. A membership is freed
 * under the collector, off both lists. A child's copy of a set has no sockets.
 */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/waits.h"
#include "rsocket/rs.h"

#define NS_PER_MS UINT64_C(1000000)
/* Of data in the inner epoll: which of a member's descriptors; memberships are aligned. */
#define WHICH     ((uintptr_t)1)

enum { BATCH = 64, OWN_EVENTS = EPOLLERR | EPOLLHUP };

struct vb_rs_set {
	struct vb_numbered number;
	int fd, inner, bell;            /* the latter two -1 until there is a socket */
	unsigned generation;
	pthread_mutex_t collector, lock;
	/* vb_rs_watch: of_set, under the collector; in_pending, under the lock */
	struct vb_list members, pending;
	unsigned num_members;
	bool is_rung;                   /* under the lock */
	unsigned turns;                 /* of waits for one event */
};

struct vb_rs_watch {
	struct vb_list of_set, of_socket, in_pending;
	struct vb_rs_set *set;
	struct vb_rs *socket;           /* without a reference: a socket that closes leaves its sets first */
	uint32_t interest;              /* EPOLLIN, …, EPOLLET, EPOLLONESHOT */
	epoll_data_t data;
	int fds[VB_RS_SLEEP_FDS];       /* in the inner epoll */
	unsigned endpoints;             /* of the socket, when fds were added */
	/* what an edge-triggered program knows */
	uint64_t seen_bytes;
	unsigned seen_arrivals, seen_refusals;
	bool was_full;
};

static void finish(struct vb_numbered *n);

static struct vb_numbers sets = { .object_bytes = sizeof(struct vb_rs_set),
				  .finish = finish,
				  .lock = VB_LOCK_INIT };

static void forget(void)
{
	vb_numbers_forked(&sets);
}

static bool is_inherited(const struct vb_rs_set *set) { return set->generation != vb_host_generation(); }

/* ---- pending members ---- */

static void ring_locked(struct vb_rs_set *set)
{
	if (!set->is_rung && set->bell >= 0)
		eventfd_write(set->bell, 1);
	set->is_rung = true;
}

static void make_pending(struct vb_rs_watch *w)
{
	struct vb_rs_set *set = w->set;

	pthread_mutex_lock(&set->lock);
	if (vb_list_is_empty(&w->in_pending)) {
		vb_list_add_tail(&set->pending, &w->in_pending);
		ring_locked(set);
	}
	pthread_mutex_unlock(&set->lock);
}

static void drop_pending(struct vb_rs_watch *w)
{
	pthread_mutex_lock(&w->set->lock);
	vb_list_del(&w->in_pending);
	pthread_mutex_unlock(&w->set->lock);
}

/* The bell says whether there are any: for who waits for the set itself. */
static void settle(struct vb_rs_set *set)
{
	eventfd_t count;

	pthread_mutex_lock(&set->lock);
	if (set->is_rung && vb_list_is_empty(&set->pending)) {
		eventfd_read(set->bell, &count);
		set->is_rung = false;
	}
	pthread_mutex_unlock(&set->lock);
}

void vb_rs_watchers_wake_locked(struct vb_rs *s)
{
	struct vb_rs_watch *w;

	vb_list_for_each(w, &s->watchers, of_socket)
		make_pending(w);
}

/* ---- looking at one ---- */

static bool has_edge(const struct vb_rs_watch *w, const struct vb_rs *s, uint32_t revents)
{
	bool is_new = s->stream.received != w->seen_bytes || s->arrivals != w->seen_arrivals;
	bool has_room =
		revents & (EPOLLOUT | EPOLLWRNORM) && (w->was_full || s->refusals != w->seen_refusals);

	return is_new || has_room;
}

/* Events to tell now. Under the socket's lock. */
static uint32_t look_locked(struct vb_rs_watch *w)
{
	struct vb_rs *s = w->socket;
	uint32_t asked = w->interest & 0xffff;
	uint32_t revents = (uint16_t)vb_rs_revents_locked(s, (short)(asked | EPOLLOUT)) &
			   (asked | EPOLLOUT | OWN_EVENTS);
	bool has_room = revents & EPOLLOUT;

	revents &= asked | OWN_EVENTS;
	if (w->interest & EPOLLET && vb_rs_is_stream(s)) {
		if (!revents || !has_edge(w, s, revents))
			revents = 0;
		w->seen_bytes = s->stream.received;
		w->seen_arrivals = s->arrivals;
		w->seen_refusals = s->refusals;
		w->was_full = !has_room;
	}
	return asked ? revents : revents & (w->interest & EPOLLONESHOT ? 0 : OWN_EVENTS);
}

/* A member's descriptors change when it connects. False: no memory in the kernel. */
static bool watch_fds_locked(struct vb_rs_watch *w, const struct pollfd *fds, unsigned n)
{
	if (w->endpoints != w->socket->endpoints)
		w->fds[1] = -1; /* the kernel forgot what was closed */
	w->endpoints = w->socket->endpoints;
	for (unsigned i = 0; i < n; i++) {
		struct epoll_event event = { .events = EPOLLIN | EPOLLET,
					     .data.u64 = (uintptr_t)w | (i ? WHICH : 0) };

		if (fds[i].fd < 0 || fds[i].fd == w->fds[i])
			continue;
		if (vb_epoll_ctl(w->set->inner, EPOLL_CTL_ADD, fds[i].fd, &event) && errno != EEXIST)
			return false;
		w->fds[i] = fds[i].fd;
	}
	return true;
}

/* Gets it ready to be slept on. False: something happened meanwhile. */
static bool arm_locked(struct vb_rs_watch *w)
{
	struct pollfd fds[VB_RS_SLEEP_FDS];
	unsigned n = vb_rs_sleep_fds_locked(w->socket, fds);

	return n && watch_fds_locked(w, fds, n);
}

/*
 * Under the socket's lock. Returns the events to tell; *stays: it is to be looked at again by the next wait.
 */
static uint32_t examine_locked(struct vb_rs_watch *w, bool *stays)
{
	enum { TIMES = 4 };
	uint32_t revents = 0;

	*stays = true; /* busier than we can look */
	for (int i = 0; i < TIMES && *stays && !revents; i++) {
		vb_rs_progress_locked(w->socket);
		revents = look_locked(w);
		if (!revents || w->interest & (EPOLLET | EPOLLONESHOT))
			*stays = !arm_locked(w);
	}
	if (revents && w->interest & EPOLLONESHOT)
		w->interest &= ~0xffffu;
	return revents;
}

static struct vb_rs_watch *pop(struct vb_rs_set *set)
{
	pthread_mutex_lock(&set->lock);
	struct vb_list *node = vb_list_pop(&set->pending);
	pthread_mutex_unlock(&set->lock);
	return node ? vb_container_of(node, struct vb_rs_watch, in_pending) : NULL;
}

static unsigned count_pending(struct vb_rs_set *set)
{
	const struct vb_list *node;
	unsigned n = 0;

	pthread_mutex_lock(&set->lock);
	for (node = set->pending.next; node != &set->pending; node = node->next)
		n++;
	pthread_mutex_unlock(&set->lock);
	return n;
}

/* Fills in what members tell that are pending now, each once; up to `most`. Under the collector. */
static int collect(struct vb_rs_set *set, struct epoll_event *events, int most)
{
	unsigned left = count_pending(set);
	struct vb_rs_watch *w;
	int n = 0;

	while (n < most && left-- && (w = pop(set))) {
		bool stays;

		pthread_mutex_lock(&w->socket->lock);
		uint32_t revents = examine_locked(w, &stays);
		drop_pending(w); /* what we caused ourselves */
		if (stays)
			make_pending(w);
		pthread_mutex_unlock(&w->socket->lock);
		if (revents)
			events[n++] = (struct epoll_event){ .events = revents, .data = w->data };
	}
	return n;
}

/* ---- news of members' descriptors ---- */

static void take_news(struct vb_rs_set *set)
{
	VB_UNCANCELLED;
	struct epoll_event events[BATCH];
	int n;

	pthread_mutex_lock(&set->collector);
	do {
		n = vb_epoll_wait(set->inner, events, BATCH, 0);
		for (int i = 0; i < n; i++) {
			struct vb_rs_watch *w =
				(struct vb_rs_watch *)(uintptr_t)(events[i].data.u64 & ~(uint64_t)WHICH);

			pthread_mutex_lock(&w->socket->lock);
			vb_rs_sleep_news_locked(w->socket, events[i].data.u64 & WHICH ? 2 : 1);
			make_pending(w);
			pthread_mutex_unlock(&w->socket->lock);
		}
	} while (n == BATCH);
	pthread_mutex_unlock(&set->collector);
}

/* Takes our own entries out of what the kernel told. */
static int strip(struct vb_rs_set *set, struct epoll_event *events, int n, bool *has_news)
{
	int kept = 0;

	*has_news = false;
	for (int i = 0; i < n; i++) {
		if (events[i].data.ptr == &set->inner)
			*has_news = true;
		else if (events[i].data.ptr != &set->bell)
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
	return deadline <= now ? 0 : (int)vb_min_u64((deadline - now + NS_PER_MS - 1) / NS_PER_MS, INT32_MAX);
}

static int collect_some(struct vb_rs_set *set, struct epoll_event *events, int max)
{
	/* Room for an ordinary descriptor, so that busy sockets do not hide it. */
	int most = max > 1 ? max - 1 : (int)(set->turns++ & 1);

	VB_UNCANCELLED;
	pthread_mutex_lock(&set->collector);
	int n = collect(set, events, most);
	pthread_mutex_unlock(&set->collector);
	settle(set);
	return n;
}

static bool has_pending(struct vb_rs_set *set)
{
	pthread_mutex_lock(&set->lock);
	bool has = !vb_list_is_empty(&set->pending);
	pthread_mutex_unlock(&set->lock);
	return has;
}

static void cancelled(void *set)
{
	vb_numbers_put(&sets, &((struct vb_rs_set *)set)->number);
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

/* The ordinary descriptors beside members that have something to tell already. */
static int look_at_ordinary(struct vb_rs_set *set, struct epoll_event *events, int max, const sigset_t *mask)
{
	VB_UNCANCELLED;
	int n = epoll_pwait(set->fd, events, max, 0, mask);
	return n < 0 ? -errno : n;
}

static int wait_mixed(struct vb_rs_set *set, struct epoll_event *events, int max, uint64_t deadline,
		      const sigset_t *mask)
{
	bool has_news, is_last;

	do {
		int n = has_pending(set) ? collect_some(set, events, max) : 0;
		int k = n || has_pending(set) ?
				look_at_ordinary(set, events + n, max - n, mask) :
				wait_cancelled(set, events, max, time_left_ms(deadline), mask);

		if (k < 0)
			return n ? n : k;
		k = strip(set, events + n, k, &has_news);
		if (has_news)
			take_news(set);
		if (n + k)
			return n + k;
		is_last = deadline != VB_RS_NEVER && vb_now_ns() >= deadline;
	} while (!is_last || has_news);
	return 0;
}

static struct vb_rs_set *get(int fd)
{
	struct vb_numbered *n = vb_numbers_get(&sets, fd);

	return n ? vb_container_of(n, struct vb_rs_set, number) : NULL;
}

/* A child sees the parent's entries, which mean nothing to it. */
static int wait_inherited(struct vb_rs_set *set, struct epoll_event *events, int max, uint64_t deadline,
			  const sigset_t *mask)
{
	bool unused;
	int n = wait_cancelled(set, events, max, time_left_ms(deadline), mask);

	return n < 0 ? n : strip(set, events, n, &unused);
}

static int wait_set(int fd, struct epoll_event *events, int max, uint64_t timeout_ns, const sigset_t *mask)
{
	VB_DEFERRED;
	struct vb_rs_set *set = get(fd);
	uint64_t deadline =
		timeout_ns == VB_RS_NEVER ? VB_RS_NEVER : timeout_ns + (timeout_ns ? vb_now_ns() : 0);

	if (!set)
		return -EBADF;
	int n = max <= 0	  ? -EINVAL :
		!events		  ? -EFAULT :
		is_inherited(set) ? wait_inherited(set, events, max, deadline, mask) :
				    wait_mixed(set, events, max, deadline, mask);
	vb_numbers_put(&sets, &set->number);
	return n;
}

VB_EXPORT int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout)
{
	return (int)vb_rs_result(wait_set(epfd, events, maxevents,
					  timeout < 0 ? VB_RS_NEVER : (uint64_t)timeout * NS_PER_MS, NULL));
}

VB_EXPORT int vb_repoll_wait(int epfd, struct epoll_event *events, int maxevents, uint64_t timeout_ns,
			     const sigset_t *mask)
{
	return (int)vb_rs_result(wait_set(epfd, events, maxevents, timeout_ns, mask));
}

/* ---- members ---- */

static struct vb_rs_watch *find_locked(struct vb_rs *s, const struct vb_rs_set *set)
{
	struct vb_rs_watch *w;

	vb_list_for_each(w, &s->watchers, of_socket)
		if (w->set == set)
			return w;
	return NULL;
}

static void close_own(int fd)
{
	if (fd >= 0)
		close(fd);
}

static int add_own(struct vb_rs_set *set, int fd, void *data)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = data };

	return fd < 0 || vb_epoll_ctl(set->fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* The first socket of a set brings the inner epoll and the bell. */
static int make_mixed(struct vb_rs_set *set)
{
	if (set->inner >= 0)
		return 0;
	int inner = vb_epoll_open(), bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int err = add_own(set, inner, &set->inner);
	if (!err)
		err = add_own(set, bell, &set->bell);
	if (!err) {
		set->inner = inner;
		set->bell = bell;
		return 0;
	}
	close_own(inner);
	close_own(bell);
	return err;
}

static void set_interest(struct vb_rs_watch *w, const struct epoll_event *event)
{
	w->interest = event->events;
	w->data = event->data;
	/* What is there already is told once. */
	w->seen_arrivals = w->socket->arrivals - 1;
	w->was_full = true;
}

static int add_locked(struct vb_rs_set *set, struct vb_rs *s, const struct epoll_event *event)
{
	int err = find_locked(s, set) ? -EEXIST : s->number.is_closed ? -EBADF : make_mixed(set);
	struct vb_rs_watch *w = err ? NULL : calloc(1, sizeof(*w));

	if (!w)
		return err ? err : -ENOMEM;
	w->set = set;
	w->socket = s;
	for (int i = 0; i < VB_RS_SLEEP_FDS; i++)
		w->fds[i] = -1;
	vb_list_init(&w->in_pending);
	vb_list_add_tail(&set->members, &w->of_set);
	vb_list_add_tail(&s->watchers, &w->of_socket);
	set->num_members++;
	set_interest(w, event);
	make_pending(w);
	return 0;
}

/* Under the collector and the socket's lock. */
static int remove_locked(struct vb_rs_watch *w)
{
	for (int i = 0; i < VB_RS_SLEEP_FDS; i++)
		if (w->fds[i] >= 0)
			vb_epoll_ctl(w->set->inner, EPOLL_CTL_DEL, w->fds[i], NULL);
	drop_pending(w);
	vb_list_del(&w->of_set);
	vb_list_del(&w->of_socket);
	w->set->num_members--;
	free(w);
	return 0;
}

static int change_locked(struct vb_rs_set *set, int op, struct vb_rs *s, const struct epoll_event *event)
{
	struct vb_rs_watch *w = find_locked(s, set);

	if (op == EPOLL_CTL_ADD)
		return add_locked(set, s, event);
	if (!w)
		return -ENOENT;
	if (op == EPOLL_CTL_DEL)
		return remove_locked(w);
	set_interest(w, event);
	make_pending(w);
	return 0;
}

static int change(struct vb_rs_set *set, int op, struct vb_rs *s, const struct epoll_event *event)
{
	if (is_inherited(set) || vb_rs_is_inherited(s))
		return -EPERM;
	if (op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD && op != EPOLL_CTL_DEL)
		return -EINVAL;
	if (op != EPOLL_CTL_DEL && !event)
		return -EFAULT;
	pthread_mutex_lock(&set->collector);
	pthread_mutex_lock(&s->lock);
	int err = change_locked(set, op, s, event);
	pthread_mutex_unlock(&s->lock);
	pthread_mutex_unlock(&set->collector);
	settle(set);
	return err;
}

VB_EXPORT int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	VB_UNCANCELLED;
	struct vb_rs_set *set = get(epfd);
	struct vb_rs *s = vb_rs_get(fd);
	int err = 0;

	if (!set)
		err = -EBADF;
	else if (s)
		err = change(set, op, s, event);
	else if (vb_epoll_ctl(epfd, op, fd, event))
		err = -errno;
	if (s)
		vb_rs_put(s);
	if (set)
		vb_numbers_put(&sets, &set->number);
	return (int)vb_rs_result(err);
}

/* The set of one of the memberships, referenced. */
static struct vb_rs_set *any_set_of(struct vb_rs *s)
{
	struct vb_rs_set *set = NULL;

	pthread_mutex_lock(&s->lock);
	if (!vb_list_is_empty(&s->watchers)) {
		set = vb_container_of(s->watchers.next, struct vb_rs_watch, of_socket)->set;
		/* it cannot be gone: it frees its memberships first */
		atomic_fetch_add(&set->number.refs, 1);
	}
	pthread_mutex_unlock(&s->lock);
	return set;
}

void vb_rs_leave_sets(struct vb_rs *s)
{
	struct vb_rs_set *set;

	while ((set = any_set_of(s))) {
		pthread_mutex_lock(&set->collector);
		pthread_mutex_lock(&s->lock);
		struct vb_rs_watch *w = find_locked(s, set);
		if (w)
			remove_locked(w);
		pthread_mutex_unlock(&s->lock);
		pthread_mutex_unlock(&set->collector);
		settle(set);
		vb_numbers_put(&sets, &set->number);
	}
}

/* ---- life ---- */

static void remove_members(struct vb_rs_set *set)
{
	struct vb_rs_watch *w;

	pthread_mutex_lock(&set->collector);
	vb_list_for_each(w, &set->members, of_set) {
		struct vb_rs *s = w->socket;

		pthread_mutex_lock(&s->lock);
		remove_locked(w);
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&set->collector);
}

/* A set whose number was closed behind our back is nobody's any more; the number is another's. */
static void drop_stale(int fd)
{
	struct vb_rs_set *stale = get(fd);

	if (!stale)
		return;
	stale->fd = -1;
	(void)vb_numbers_withdraw(&sets, &stale->number, fd);
	if (!is_inherited(stale))
		remove_members(stale);
	vb_numbers_put(&sets, &stale->number);
}

VB_EXPORT int repoll_create(int flags)
{
	VB_UNCANCELLED;
	vb_host_at_fork(forget);
	int fd = vb_epoll_create(flags);
	if (fd < 0)
		return -1;
	drop_stale(fd);
	struct vb_numbered *n = vb_numbers_create(&sets);
	struct vb_rs_set *set = n ? vb_container_of(n, struct vb_rs_set, number) : NULL;
	if (!set) {
		close(fd);
		return vb_rs_fail(ENOMEM, "out of memory");
	}
	set->fd = fd;
	set->inner = set->bell = -1;
	set->generation = vb_host_generation();
	pthread_mutex_init(&set->collector, NULL);
	pthread_mutex_init(&set->lock, NULL);
	vb_list_init(&set->members);
	vb_list_init(&set->pending);
	if (vb_numbers_publish(&sets, n, fd)) {
		vb_numbers_discard(&sets, n);
		return vb_rs_fail(ENOMEM, "out of memory");
	}
	vb_numbers_put(&sets, n);
	return fd;
}

static void finish(struct vb_numbered *n)
{
	VB_UNCANCELLED;
	struct vb_rs_set *set = vb_container_of(n, struct vb_rs_set, number);

	close_own(set->fd);
	close_own(set->inner);
	close_own(set->bell);
	pthread_mutex_destroy(&set->collector);
	pthread_mutex_destroy(&set->lock);
}

int vb_rs_set_close(int fd)
{
	struct vb_rs_set *set = get(fd);

	if (!set)
		return -EBADF;
	bool was_open = vb_numbers_withdraw(&sets, &set->number, fd);
	if (was_open && !is_inherited(set))
		remove_members(set);
	vb_numbers_put(&sets, &set->number);
	return was_open ? 0 : -EBADF;
}
