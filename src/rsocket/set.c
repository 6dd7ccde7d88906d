/* SPDX-License-Identifier: BSD-2-Clause */
/* Sets: their lives and members. */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/waits.h"
#include "rsocket/set.h"

static void finish(struct vb_numbered *n);

static struct vb_numbers sets = { .object_bytes = sizeof(struct vb_rs_set),
				  .finish = finish,
				  .lock = VB_LOCK_INIT };

static void forget(void)
{
	vb_numbers_forked(&sets);
}

struct vb_rs_set *vb_rs_set_get(int fd)
{
	struct vb_numbered *n = vb_numbers_get(&sets, fd);

	return n ? vb_container_of(n, struct vb_rs_set, number) : NULL;
}

void vb_rs_set_put(struct vb_rs_set *set)
{
	vb_numbers_put(&sets, &set->number);
}

/* ---- members ---- */

static struct vb_rs_member *member_of(struct vb_rs_membership *m)
{
	return vb_container_of(m, struct vb_rs_member, membership);
}

static struct vb_rs_member *find_locked(struct vb_rs *s, const struct vb_rs_set *set, int number)
{
	struct vb_rs_membership *m;

	vb_list_for_each(m, &s->memberships, of_socket)
		if (m->pending == &set->pending && member_of(m)->number == number)
			return member_of(m);
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

/* The first socket of a set brings the inner epoll and the eventfd. */
static int make_mixed(struct vb_rs_set *set)
{
	if (set->inner >= 0)
		return 0;
	int inner = vb_epoll_open(), pending = vb_fd_raise(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	int err = add_own(set, inner, &set->inner);
	if (!err)
		err = add_own(set, pending, &set->pending);
	if (!err) {
		set->inner = inner;
		set->pending.eventfd = pending;
		return 0;
	}
	close_own(inner);
	close_own(pending);
	return err;
}

static void set_interest(struct vb_rs_member *m, const struct epoll_event *event)
{
	m->interest = event->events;
	m->data = event->data;
	/* What is there already is reported once. */
	m->seen_changes = m->socket->changes - 1;
	m->was_full = true;
}

static int add_locked(struct vb_rs_set *set, struct vb_rs *s, int number, const struct epoll_event *event)
{
	int err = find_locked(s, set, number) ? -EEXIST : s->number.is_closed ? -EBADF : make_mixed(set);
	struct vb_rs_member *m = err ? NULL : calloc(1, sizeof(*m));

	if (!m)
		return err ? err : -ENOMEM;
	m->set = set;
	m->socket = s;
	m->number = number;
	for (int i = 0; i < VB_RS_SLEEP_FDS; i++)
		m->fds[i] = -1;
	m->membership.pending = &set->pending;
	vb_list_init(&m->membership.in_pending);
	vb_list_add_tail(&set->members, &m->of_set);
	vb_list_add_tail(&s->memberships, &m->membership.of_socket);
	set_interest(m, event);
	vb_rs_pending_add(&m->membership);
	return 0;
}

static void remove_fds_locked(struct vb_rs_member *m)
{
	vb_rs_member_forget_closed_locked(m);
	for (int i = 0; i < VB_RS_SLEEP_FDS; i++) {
		if (m->fds[i] >= 0)
			vb_epoll_ctl(m->set->inner, EPOLL_CTL_DEL, m->fds[i], NULL);
		m->fds[i] = -1;
	}
}

/* All members of one socket have its descriptors in common. Those that stay add them anew. */
static void leave_inner_locked(struct vb_rs_member *m)
{
	struct vb_rs_membership *any;

	vb_list_for_each(any, &m->socket->memberships, of_socket) {
		if (any->pending != m->membership.pending)
			continue;
		remove_fds_locked(member_of(any));
		vb_rs_pending_add(any);
	}
}

/* Under `examining` and the socket's lock. */
static int remove_locked(struct vb_rs_member *m)
{
	leave_inner_locked(m);
	vb_rs_pending_remove(&m->membership);
	vb_list_del(&m->of_set);
	vb_list_del(&m->membership.of_socket);
	free(m);
	return 0;
}

static int change_locked(struct vb_rs_set *set, int op, struct vb_rs *s, int number,
			 const struct epoll_event *event)
{
	struct vb_rs_member *m = find_locked(s, set, number);

	if (op == EPOLL_CTL_ADD)
		return add_locked(set, s, number, event);
	if (!m)
		return -ENOENT;
	if (op == EPOLL_CTL_DEL)
		return remove_locked(m);
	set_interest(m, event);
	vb_rs_pending_add(&m->membership);
	return 0;
}

static int change(struct vb_rs_set *set, int op, struct vb_rs *s, int number, const struct epoll_event *event)
{
	if (vb_rs_set_is_inherited(set) || vb_rs_is_inherited(s))
		return -EPERM;
	if (op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD && op != EPOLL_CTL_DEL)
		return -EINVAL;
	if (op != EPOLL_CTL_DEL && !event)
		return -EFAULT;
	pthread_mutex_lock(&set->examining);
	pthread_mutex_lock(&s->lock);
	int err = change_locked(set, op, s, number, event);
	pthread_mutex_unlock(&s->lock);
	pthread_mutex_unlock(&set->examining);
	vb_rs_pending_settle(&set->pending);
	return err;
}

VB_EXPORT int vb_repoll_ctl(int epfd, int op, int fd, int number, struct epoll_event *event)
{
	VB_UNCANCELLED;
	struct vb_rs_set *set = vb_rs_set_get(epfd);
	struct vb_rs *s = vb_rs_get(fd);
	int err = 0;

	if (!set)
		err = -EBADF;
	else if (s)
		err = change(set, op, s, number, event);
	else if (vb_epoll_ctl(epfd, op, fd, event))
		err = -errno;
	if (s)
		vb_rs_put(s);
	if (set)
		vb_rs_set_put(set);
	return (int)vb_rs_result(err);
}

VB_EXPORT int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	return vb_repoll_ctl(epfd, op, fd, fd, event);
}

/* The set of one of the memberships, referenced. */
static struct vb_rs_set *any_set_of(struct vb_rs *s)
{
	struct vb_rs_set *set = NULL;

	pthread_mutex_lock(&s->lock);
	if (!vb_list_is_empty(&s->memberships)) {
		set = vb_container_of(s->memberships.next, struct vb_rs_member, membership.of_socket)->set;
		/* it cannot be gone: it frees its members first */
		atomic_fetch_add(&set->number.refs, 1);
	}
	pthread_mutex_unlock(&s->lock);
	return set;
}

void vb_rs_leave_sets(struct vb_rs *s)
{
	struct vb_rs_membership *m;
	struct vb_rs_set *set;

	while ((set = any_set_of(s))) {
		pthread_mutex_lock(&set->examining);
		pthread_mutex_lock(&s->lock);
		vb_list_for_each(m, &s->memberships, of_socket)
			if (m->pending == &set->pending)
				remove_locked(member_of(m));
		pthread_mutex_unlock(&s->lock);
		pthread_mutex_unlock(&set->examining);
		vb_rs_pending_settle(&set->pending);
		vb_rs_set_put(set);
	}
}

/* ---- life ---- */

static void remove_members(struct vb_rs_set *set)
{
	struct vb_rs_member *m;

	pthread_mutex_lock(&set->examining);
	vb_list_for_each(m, &set->members, of_set) {
		struct vb_rs *s = m->socket;

		pthread_mutex_lock(&s->lock);
		remove_locked(m);
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&set->examining);
}

static bool withdraw(struct vb_rs_set *set, int number)
{
	bool had_it = vb_numbers_withdraw(&sets, &set->number, number);

	if (had_it && set->number.is_closed && !vb_rs_set_is_inherited(set))
		remove_members(set);
	return had_it;
}

VB_EXPORT void vb_repoll_forget(int epfd)
{
	VB_UNCANCELLED;
	struct vb_rs_set *set = vb_rs_set_get(epfd);
	int number = epfd;

	if (!set)
		return;
	(void)atomic_compare_exchange_strong(&set->fd, &number, -1);
	(void)withdraw(set, epfd);
	vb_rs_set_put(set);
}

/* From now on the set does without its number, which the program may close while it has others. */
static int make_independent(struct vb_rs_set *set)
{
	int first = set->first;

	if (set->fd != first)
		return 0;
	int own = vb_fd_raise(vb_epoll_copy(first));
	if (own < 0)
		return -errno;
	if (!atomic_compare_exchange_strong(&set->fd, &first, own))
		close(own); /* another thread did it */
	return 0;
}

VB_EXPORT int vb_repoll_share(int epfd, int copy)
{
	VB_UNCANCELLED;
	struct vb_rs_set *set = vb_rs_set_get(epfd);

	if (!set)
		return vb_rs_fail(EBADF, "%d is no set of rsockets", epfd);
	int err = make_independent(set);
	if (!err) {
		vb_repoll_forget(copy);
		err = vb_numbers_publish(&sets, &set->number, copy);
	}
	vb_rs_set_put(set);
	return (int)vb_rs_result(err);
}

VB_EXPORT int repoll_create(int flags)
{
	VB_UNCANCELLED;
	vb_host_at_fork(forget);
	int fd = vb_epoll_create(flags);
	if (fd < 0)
		return -1;
	vb_repoll_forget(fd); /* a program closed it by close(2) */
	struct vb_numbered *n = vb_numbers_create(&sets);
	struct vb_rs_set *set = n ? vb_container_of(n, struct vb_rs_set, number) : NULL;
	if (!set) {
		close(fd);
		return vb_rs_fail(ENOMEM, "out of memory");
	}
	set->fd = set->first = fd;
	set->inner = -1;
	set->generation = vb_host_generation();
	set->maker = getpid();
	pthread_mutex_init(&set->examining, NULL);
	vb_list_init(&set->members);
	vb_rs_pending_init(&set->pending);
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
	pthread_mutex_destroy(&set->examining);
	vb_rs_pending_destroy(&set->pending);
}

int vb_rs_set_close(int fd)
{
	struct vb_rs_set *set = vb_rs_set_get(fd);

	if (!set)
		return -EBADF;
	bool was_open = withdraw(set, fd);
	if (was_open && set->fd != fd)
		close(fd); /* one of several */
	vb_rs_set_put(set);
	return was_open ? 0 : -EBADF;
}
