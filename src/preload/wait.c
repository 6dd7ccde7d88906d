/* SPDX-License-Identifier: BSD-2-Clause */
/* poll and select. A list without our sockets goes to libc. */
#include "base/fdsets.h"
#include "base/signals.h"
#include "preload/preload.h"

VB_EXPORT int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t room);
VB_EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask,
			  size_t room);
void __chk_fail(void) __attribute__((noreturn));

/*
 * A list with rsockets' numbers in it. A listening socket has two entries: `also` of the kernel's is that of
 * its rsocket. A thread keeps its memory. A call takes that and puts it back: a signal handler that polls
 * while the thread sleeps makes its own.
 */
struct list {
	struct pollfd *fds;
	nfds_t *also;
	nfds_t n, room;
};

static __thread struct list own;

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void free_own(void *unused)
{
	free(own.fds);
	free(own.also);
	own = (struct list){ 0 };
}

static void make_key(void)
{
	pthread_key_create(&key, free_own);
}

static struct list take_own(void)
{
	struct list l = own;

	own = (struct list){ 0 };
	return l;
}

/* Keeps errno. */
static void put_back(struct list *l)
{
	int err = errno;

	free_own(NULL);
	own = *l;
	errno = err;
}

static bool make_room(struct list *l, nfds_t n)
{
	if (n <= l->room)
		return true;
	pthread_once(&once, make_key);
	free(l->fds);
	free(l->also);
	l->fds = calloc(n, sizeof(*l->fds));
	l->also = calloc(n, sizeof(*l->also));
	l->room = l->fds && l->also ? n : 0;
	pthread_setspecific(key, &own);
	return l->room > 0;
}

/* The rsocket behind a number, and whether the kernel's socket counts too. -1: none. */
static int rsocket_of(int fd, bool *is_both)
{
	struct vb_sock *v = fd < 0 ? NULL : vb_sock_get(fd);
	int rs = -1;

	*is_both = false;
	if (!v)
		return -1;
	if (v->kind == VB_LISTENING) {
		*is_both = true;
		vb_listen_for_rdma(v, fd);
		rs = v->rs;
	} else if (v->kind == VB_RDMA) {
		rs = v->rs;
	}
	vb_sock_put(v);
	return rs;
}

/* Returns whether there is an rsocket in the list. */
static bool translate(struct list *l, const struct pollfd *fds, nfds_t n)
{
	nfds_t extra = n;
	bool any = false;

	for (nfds_t i = 0; i < n; i++) {
		bool is_both;
		int rs = rsocket_of(fds[i].fd, &is_both);

		l->fds[i] =
			(struct pollfd){ .fd = rs < 0 || is_both ? fds[i].fd : rs, .events = fds[i].events };
		l->also[i] = 0;
		if (rs >= 0 && is_both) {
			l->also[i] = extra;
			l->fds[extra++] = (struct pollfd){ .fd = rs, .events = fds[i].events };
		}
		any |= rs >= 0;
	}
	l->n = extra;
	return any;
}

static int tell(const struct list *l, struct pollfd *fds, nfds_t n)
{
	int ready = 0;

	for (nfds_t i = 0; i < n; i++) {
		fds[i].revents = l->fds[i].revents;
		if (l->also[i])
			fds[i].revents |= l->fds[l->also[i]].revents & (POLLIN | POLLRDNORM);
		ready += fds[i].revents != 0;
	}
	return ready;
}

/* librdmacm calls these too; there a number means the kernel's socket. */
static int poll_any(struct pollfd *fds, nfds_t n, uint64_t timeout_ns, const sigset_t *mask,
		    const void *caller)
{
	VB_DEFERRED;
	struct timespec time = vb_timespec_of_ns(timeout_ns);
	__attribute__((cleanup(put_back))) struct list l = take_own();

	if (!n || !fds || vb_is_our_library(caller) || !make_room(&l, 2 * n) || !translate(&l, fds, n))
		return vb_real()->ppoll(fds, n, timeout_ns == VB_RS_NEVER ? NULL : &time, mask);
	int result = vb_rpoll(l.fds, l.n, timeout_ns, mask);
	return result < 0 ? result : tell(&l, fds, n);
}

VB_EXPORT int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	return poll_any(fds, n, timeout < 0 ? VB_RS_NEVER : (uint64_t)timeout * VB_NS_PER_MS, NULL,
			__builtin_return_address(0));
}

VB_EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	if (!vb_is_time(timeout)) {
		errno = EINVAL;
		return -1;
	}
	return poll_any(fds, n, vb_ns_of(timeout), mask, __builtin_return_address(0));
}

VB_EXPORT int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t room)
{
	if (n > room / sizeof(*fds))
		__chk_fail();
	return poll(fds, n, timeout);
}

VB_EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask,
			  size_t room)
{
	if (n > room / sizeof(*fds))
		__chk_fail();
	return ppoll(fds, n, timeout, mask);
}

/* ---- select ---- */

static bool has_rsocket(const struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++) {
		bool is_both;

		if (rsocket_of(fds[i].fd, &is_both) >= 0)
			return true;
	}
	return false;
}

VB_EXPORT int pselect(int nfds, fd_set *in, fd_set *out, fd_set *except, const struct timespec *timeout,
		      const sigset_t *mask)
{
	struct pollfd fds[FD_SETSIZE];

	/* Larger sets than libc's fd_set go to libc: our sockets in them are not looked for. */
	if (nfds < 0 || nfds > FD_SETSIZE || !vb_is_time(timeout))
		return vb_real()->pselect(nfds, in, out, except, timeout, mask);
	nfds_t n = vb_polls_from_sets(nfds, in, out, except, fds);
	if (!has_rsocket(fds, n))
		return vb_real()->pselect(nfds, in, out, except, timeout, mask);
	int ready = poll_any(fds, n, vb_ns_of(timeout), mask, __builtin_return_address(0));
	if (ready >= 0)
		ready = vb_polls_to_sets(fds, n, in, out, except);
	if (ready >= -1)
		return ready;
	errno = -ready;
	return -1;
}

/* Returns the time that is left, as Linux does. */
VB_EXPORT int select(int nfds, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout)
{
	struct timespec time;

	if (!timeout)
		return pselect(nfds, in, out, except, NULL, NULL);
	if (timeout->tv_sec < 0 || timeout->tv_usec < 0) {
		errno = EINVAL;
		return -1;
	}
	time.tv_sec = timeout->tv_sec + timeout->tv_usec / 1000000;
	time.tv_nsec = timeout->tv_usec % 1000000 * 1000;
	uint64_t end = vb_end_of(vb_ns_of(&time));
	int ready = pselect(nfds, in, out, except, &time, NULL), err = errno;
	uint64_t left = vb_time_left(end);
	if (left != VB_RS_NEVER) {
		timeout->tv_sec = (time_t)(left / VB_NS_PER_S);
		timeout->tv_usec = (suseconds_t)(left % VB_NS_PER_S / 1000);
	}
	errno = err;
	return ready;
}

int vb_wait_for(struct pollfd *fds, nfds_t n, uint64_t time_ns, bool has_timeout)
{
	uint64_t end = vb_end_of(time_ns);

	for (;;) {
		int ready = vb_rpoll(fds, n, vb_time_left(end), NULL);
		if (ready >= 0 || errno != EINTR || has_timeout || !vb_goes_on_after_signal(NULL))
			return ready;
	}
}
