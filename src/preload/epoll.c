/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * epoll: each set of the program is one of librdmacm's (repoll_create), which is a kernel epoll with the
 * same number. Sockets that are not RDMA (yet) are members as ordinary descriptors. Their memberships are
 * kept for when they become RDMA, or listen for it.
 */
#include <limits.h>

#include "preload/preload.h"

enum { MOST_NUMBERS = VB_NUMBERS_PAGE * VB_NUMBERS_PAGES };

static atomic_uint sets[MOST_NUMBERS]; /* by number: the generation whose set it is, and 1; 0: none */
static atomic_int highest = -1;        /* number of a set */
static atomic_uint inherited_use;      /* the last generation that used a set of an ancestor's */

static bool is_in_range(int fd) { return fd >= 0 && fd < MOST_NUMBERS; }

static bool is_set(int fd) { return is_in_range(fd) && sets[fd]; }

static void note_set(int fd, unsigned value)
{
	int before = highest;

	if (!is_in_range(fd))
		return;
	sets[fd] = value;
	while (before < fd && !atomic_compare_exchange_weak(&highest, &before, fd))
		;
}

static void note_use(int fd)
{
	if (vb_unlikely(is_set(fd) && sets[fd] != vb_generation() + 1))
		inherited_use = vb_generation();
}

bool vb_uses_inherited_set(void)
{
	return vb_unlikely(inherited_use) && inherited_use == vb_generation();
}

VB_EXPORT int epoll_create1(int flags)
{
	int fd = repoll_create(flags);

	note_set(fd, vb_generation() + 1);
	return fd;
}

VB_EXPORT int epoll_create(int size)
{
	if (size > 0)
		return epoll_create1(0);
	errno = EINVAL;
	return -1;
}

bool vb_close_set(int fd)
{
	return is_set(fd) && atomic_exchange(&sets[fd], 0) && !rclose(fd);
}

void vb_close_sets(unsigned first, unsigned last)
{
	int most = highest;

	for (unsigned fd = first; fd <= last && most >= 0 && fd <= (unsigned)most; fd++)
		(void)vb_close_set((int)fd);
}

bool vb_share_set(int fd, int copy)
{
	if (!is_set(fd))
		return false;
	if (!vb_repoll_share(fd, copy))
		note_set(copy, sets[fd]);
	return true;
}

void vb_forget_set(int fd)
{
	if (is_set(fd) && atomic_exchange(&sets[fd], 0))
		vb_repoll_forget(fd);
}

/* ---- memberships ---- */

static struct vb_membership *find_locked(struct vb_sock *v, int set, int fd)
{
	for (unsigned i = 0; i < v->num_memberships; i++)
		if (v->memberships[i].set == set && v->memberships[i].fd == fd)
			return &v->memberships[i];
	return NULL;
}

static void note_locked(struct vb_sock *v, int set, int op, int fd, const struct epoll_event *event)
{
	struct vb_membership *m = find_locked(v, set, fd);

	if (op == EPOLL_CTL_DEL) {
		if (m)
			*m = v->memberships[--v->num_memberships];
		return;
	}
	if (!m) {
		struct vb_membership *more =
			realloc(v->memberships, (v->num_memberships + 1) * sizeof(*more));
		if (!more)
			return;
		v->memberships = more;
		m = &more[v->num_memberships++];
	}
	*m = (struct vb_membership){ set, fd, *event };
}

/* Is the kernel's socket still in the set? A set that was closed, and whose number was reused, has it not. */
static bool is_member(const struct vb_membership *m)
{
	bool is_exclusive = m->event.events & EPOLLEXCLUSIVE;
	struct epoll_event same = m->event;

	/* The kernel changes no exclusive member: EINVAL. It says ENOENT of others only without the flag. */
	same.events &= ~(uint32_t)EPOLLEXCLUSIVE;
	return !vb_real()->epoll_ctl(m->set, EPOLL_CTL_MOD, m->fd, &same) ||
	       (is_exclusive && errno == EINVAL);
}

/* A number that was closed may stand for something else. */
static bool is_number_of(const struct vb_sock *v, int fd)
{
	struct vb_sock *now = vb_sock_get(fd);

	if (now)
		vb_sock_put(now);
	return now == v;
}

void vb_move_memberships_locked(struct vb_sock *v)
{
	for (unsigned i = 0; i < v->num_memberships; i++) {
		struct vb_membership *m = &v->memberships[i];

		if (!is_number_of(v, m->fd))
			continue;
		if (v->kind == VB_LISTENING ? is_member(m) :
					      !vb_real()->epoll_ctl(m->set, EPOLL_CTL_DEL, m->fd, NULL))
			(void)vb_repoll_ctl(m->set, EPOLL_CTL_ADD, v->rs, m->fd, &m->event);
	}
}

static int control_locked(struct vb_sock *v, int set, int op, int fd, struct epoll_event *event)
{
	if (v->kind == VB_RDMA)
		return vb_repoll_ctl(set, op, v->rs, fd, event);
	int result = vb_real()->epoll_ctl(set, op, fd, event);
	if (result || v->kind == VB_TCP)
		return result;
	note_locked(v, set, op, fd, event);
	if (v->kind == VB_LISTENING && v->rs >= 0)
		(void)vb_repoll_ctl(set, op, v->rs, fd, event);
	return 0;
}

VB_EXPORT int epoll_ctl(int set, int op, int fd, struct epoll_event *event)
{
	VB_DEFERRED;
	struct vb_sock *v = vb_sock_get(fd);

	if (op != EPOLL_CTL_DEL) /* with which a child may only clean up */
		note_use(set);
	if (!v)
		return vb_real()->epoll_ctl(set, op, fd, event);
	if (v->kind == VB_LISTENING && op != EPOLL_CTL_DEL)
		vb_listen_for_rdma(v, fd);
	pthread_mutex_lock(&v->lock);
	int result = control_locked(v, set, op, fd, event), err = errno;
	pthread_mutex_unlock(&v->lock);
	vb_sock_put(v);
	errno = err;
	return result;
}

/* ---- waiting ---- */

/* librdmacm calls these too, to wait for a set's kernel half. */
static int wait_ns(int set, struct epoll_event *events, int max, uint64_t timeout_ns, const sigset_t *mask,
		   const void *caller)
{
	if (is_set(set) && !vb_is_our_library(caller)) {
		note_use(set);
		return vb_repoll_wait(set, events, max, timeout_ns, mask);
	}
	uint64_t ms = vb_ms_of_ns(timeout_ns);
	return vb_real()->epoll_pwait(set, events, max,
				      timeout_ns == VB_RS_NEVER ? -1 :
				      ms > INT_MAX		? INT_MAX :
								  (int)ms,
				      mask);
}

static uint64_t ns_of_ms(int ms) { return ms < 0 ? VB_RS_NEVER : (uint64_t)ms * VB_NS_PER_MS; }

VB_EXPORT int epoll_pwait(int set, struct epoll_event *events, int max, int timeout, const sigset_t *mask)
{
	return wait_ns(set, events, max, ns_of_ms(timeout), mask, __builtin_return_address(0));
}

VB_EXPORT int epoll_wait(int set, struct epoll_event *events, int max, int timeout)
{
	return wait_ns(set, events, max, ns_of_ms(timeout), NULL, __builtin_return_address(0));
}

VB_EXPORT int epoll_pwait2(int set, struct epoll_event *events, int max, const struct timespec *timeout,
			   const sigset_t *mask)
{
	if (!vb_is_time(timeout)) {
		errno = EINVAL;
		return -1;
	}
	return wait_ns(set, events, max, vb_ns_of(timeout), mask, __builtin_return_address(0));
}
