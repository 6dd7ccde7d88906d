/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libverbatim-sockets.so: preloaded into a program, it makes rsockets of the program's TCP sockets.
 *
 *	the program's number ── a kernel socket, always: bound, listening, with all options and flags; what fork, exec, fstat, … see
 *	                     └─ struct vb_sock (sockets.c), the same one for all duplicates ── the rsocket, once it is known that there is one
 *
 * A new socket is PLAIN: calls go to the kernel. connect tries RDMA first, then TCP: the socket is RDMA or
 * TCP from then on. listen makes it LISTENING: for TCP in the kernel, and for RDMA from the first call on
 * that waits for connections, in the process that does (so a master may listen and fork its workers); accept
 * takes from both. Connections that accept takes over TCP are left to the kernel.
 *
 * The functions of this library override libc's in the whole process, librdmacm included. A call on a number
 * without a vb_sock goes to libc. The return address shows which sockets our own libraries make; these are
 * left alone.
 *
 * Threads: an RDMA socket does not change any more, so calls that move bytes take no lock; vb_sock.lock
 * guards the steps before. A thread that is cancelled in a call that waits leaves no reference and no lock
 * behind.
 */
#ifndef VB_PRELOAD_H
#define VB_PRELOAD_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/numbers.h"
#include "rsocket/private.h"

/* Calls that glibc 2.31 does not have. */
int close_range(unsigned first, unsigned last, int flags);
void closefrom(int first);
int epoll_pwait2(int epfd, struct epoll_event *events, int max, const struct timespec *timeout,
		 const sigset_t *mask);

/* ---- libc's functions (real.c) ---- */

#define VB_REAL_CALLS(X)                                                                                     \
	X(socket) X(bind) X(listen) X(accept4) X(connect) X(shutdown) X(close) X(dup) X(dup2) X(dup3) X(fcntl) \
	X(ioctl) X(read) X(readv) X(write) X(writev) X(recvfrom) X(recvmsg) X(recvmmsg) X(sendto) X(sendmsg) \
	X(sendmmsg) X(sendfile) X(splice) X(ppoll) X(pselect) X(epoll_ctl) X(epoll_pwait)                    \
	X(getpeername) X(getsockname) X(getsockopt) X(setsockopt) X(fdopen) X(fileno) X(vdprintf) X(eventfd) \
	X(memfd_create)

struct vb_real {
#define X(name) __typeof__(&(name)) name;
	VB_REAL_CALLS(X)
#undef X
};

const struct vb_real *vb_real(void);
/* Is this return address in libibverbs or librdmacm? */
bool vb_is_our_library(const void *address);

/* ---- numbers (numbers.c) ---- */

/* What a call that makes a descriptor returns to this caller. */
int vb_number_for(const void *caller, int fd);
/* Of a message that one of our libraries received. */
void vb_raise_received(struct msghdr *msg);

/* ---- switches (config.c) ---- */

/* Does such a socket become an rsocket? type: without flags. */
bool vb_is_wanted(int domain, int type, int protocol);
/* RDMAV_FORK_SAFE: accepted connections must stay usable in children. */
bool vb_serves_forks(void);
/* Sizes that the environment gives. */
void vb_apply_sizes(int rs);

/* ---- sockets (sockets.c) ---- */

enum vb_kind { VB_PLAIN, VB_LISTENING, VB_RDMA, VB_TCP };

/* An epoll set that has it while it is not RDMA, under one of its numbers. */
struct vb_membership {
	int set, fd;
	struct epoll_event event;
};

struct vb_sock {
	struct vb_numbered number;
	int domain, type;
	_Atomic(enum vb_kind) kind;
	atomic_int rs;                /* -1: none; LISTENING: none in this process, yet */
	unsigned generation;          /* of the process whose rs it is */
	pthread_mutex_t lock;
	/* a listening kernel socket is so always; this is what the program asked for */
	bool nonblocking;
	bool has_send_size, has_receive_size; /* set by the program */
	bool prefers_tcp;             /* accept takes from RDMA and TCP in turn */
	int backlog;
	uint64_t retry_ns;            /* when to try to listen for RDMA again */
	struct vb_membership *memberships;
	unsigned num_memberships;
};

unsigned vb_generation(void);
/* A child by vfork shares our memory, and must not change it. */
bool vb_is_borrowed_process(void);
/* A new one with this number and a reference; NULL: no memory. */
struct vb_sock *vb_sock_create(int fd, int domain, int type, enum vb_kind kind, int rs);
struct vb_sock *vb_sock_get(int fd);
void vb_sock_put(struct vb_sock *v);
/* The number means this socket, too. */
void vb_sock_add(struct vb_sock *v, int fd);
/* The number means no socket of ours any more. */
void vb_sock_forget(int fd);
/* Referenced, if it is RDMA. */
struct vb_sock *vb_sock_rdma(int fd);

/* Keeps errno. */
static inline void vb_sock_let_go(struct vb_sock **v)
{
	int err = errno;

	if (*v)
		vb_sock_put(*v);
	*v = NULL;
	errno = err;
}

/*
 * Declares a reference that goes with its block, or with a thread that is cancelled there, where it waits
 * (-fexceptions has it unwind). NULL: none.
 */
#define VB_HELD VB_DEFERRED; __attribute__((cleanup(vb_sock_let_go)))

/* ---- times ---- */

static inline uint64_t vb_now(void) { return vb_clock_ns(CLOCK_MONOTONIC); }

static inline bool vb_is_time(const struct timespec *t)
{
	return !t || (t->tv_sec >= 0 && t->tv_nsec >= 0 && t->tv_nsec < (long)VB_NS_PER_S);
}

/* VB_RS_NEVER: there is none, or it ends after decades. */
static inline uint64_t vb_ns_of(const struct timespec *t)
{
	return !t || t->tv_sec > VB_RS_LONGEST_S ? VB_RS_NEVER : vb_ns_of_timespec(*t);
}

/* When a time from now on ends, and how much of it is left. */
static inline uint64_t vb_end_of(uint64_t time_ns)
{
	return time_ns == VB_RS_NEVER ? VB_RS_NEVER : vb_now() + time_ns;
}

static inline uint64_t vb_time_left(uint64_t end)
{
	uint64_t now = end == VB_RS_NEVER ? 0 : vb_now();

	return end == VB_RS_NEVER ? VB_RS_NEVER : now < end ? end - now : 0;
}

/* ---- options (options.c) ---- */

/* Sets an option of an rsocket or of a kernel's socket. */
typedef int (*vb_set_option)(int to, int level, int name, const void *value, socklen_t len);

/* What the program has set on the socket is set on `to` as well. */
void vb_copy_options(const struct vb_sock *v, int fd, vb_set_option set, int to);
/* The same for its rsocket, which has the sizes that the environment gives, too. */
void vb_set_up(const struct vb_sock *v, int fd, int rs);
bool vb_is_nonblocking(int fd);
/* SO_RCVTIMEO or SO_SNDTIMEO; VB_RS_NEVER: none. */
uint64_t vb_timeout_of(int fd, int name);

/* ---- waiting (wait.c) ---- */

/*
 * As vb_rpoll; but a signal ends it only where it ends the kernel's call, which it does in any case if that
 * has a timeout.
 */
int vb_wait_for(struct pollfd *fds, nfds_t n, uint64_t time_ns, bool has_timeout);

/* ---- listeners (listen.c) ---- */

/* Listens for RDMA in this process if it can. */
void vb_listen_for_rdma(struct vb_sock *v, int fd);

/* ---- epoll (epoll.c) ---- */

/* Adds its rsocket to the sets that have the socket. Under its lock. */
void vb_move_memberships_locked(struct vb_sock *v);
/* The number was an epoll set's: true. */
bool vb_close_set(int fd);
/* Those of these numbers. */
void vb_close_sets(unsigned first, unsigned last);
/* `copy` is another descriptor of the same; of a set: true. */
bool vb_share_set(int fd, int copy);
/* The number is no set's any more: the kernel has made it something else. */
void vb_forget_set(int fd);
/*
 * Does this process use a set that it inherited? That cannot have rsockets: then sockets stay with TCP, so
 * that the set tells of all that happens to them.
 */
bool vb_uses_inherited_set(void);

/* ---- forks ---- */

/* In a child, where locks may be held that another thread of the parent had. */
void vb_connect_forked(void);
void vb_stdio_forked(void);

#endif
