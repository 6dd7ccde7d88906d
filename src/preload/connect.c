/* SPDX-License-Identifier: BSD-2-Clause */
/* socket, bind, listen, accept, connect and shutdown; close and dup, which end and make descriptors. */
#include <asm/unistd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "base/cancel.h"
#include "base/signals.h"
#include "preload/preload.h"

/*
 * How long another host may take to answer over RDMA, before TCP is tried; and for how long RDMA is then not
 * tried with it.
 */
#define ANSWER_NS (1 * VB_NS_PER_S)
#define REST_NS   (60 * VB_NS_PER_S)
/* A non-blocking connect within this host waits for the answer too, which comes at once, at most so long. */
#define HERE_NS   (2 * VB_NS_PER_S)
/* After this, listening for RDMA is tried again on a port that another process has. */
#define RETRY_NS  (1 * VB_NS_PER_S)

/* ---- socket ---- */

static int open_datagram(int domain, int type, int protocol)
{
	int rs = rsocket(domain, SOCK_DGRAM, protocol);

	if (rs < 0)
		return vb_real()->socket(domain, type, protocol);
	vb_apply_sizes(rs);
	int fd = vb_real()->fcntl(rs, type & SOCK_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
	struct vb_sock *v = fd < 0 ? NULL : vb_sock_create(fd, domain, SOCK_DGRAM, VB_RDMA, rs);
	if (!v) {
		rclose(rs);
		return fd;
	}
	if (type & SOCK_NONBLOCK)
		(void)rfcntl(rs, F_SETFL, O_NONBLOCK);
	vb_sock_put(v);
	return fd;
}

VB_EXPORT int socket(int domain, int type, int protocol)
{
	int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (vb_is_our_library(__builtin_return_address(0)))
		return vb_number_for(__builtin_return_address(0), vb_real()->socket(domain, type, protocol));
	if (!vb_is_wanted(domain, kind, protocol))
		return vb_real()->socket(domain, type, protocol);
	if (kind == SOCK_DGRAM)
		return open_datagram(domain, type, protocol);
	int fd = vb_real()->socket(domain, type, protocol);
	struct vb_sock *v = fd < 0 ? NULL : vb_sock_create(fd, domain, SOCK_STREAM, VB_PLAIN, -1);
	if (v)
		vb_sock_put(v);
	return fd;
}

VB_EXPORT int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct vb_sock *v = vb_sock_rdma(fd);
	int result;

	if (!v)
		return vb_real()->bind(fd, addr, len);
	result = rbind(v->rs, addr, len);
	vb_sock_put(v);
	return result;
}

/* ---- options ---- */

/* Sets an option of an rsocket or of a kernel's socket. */
typedef int (*vb_set_option)(int to, int level, int name, const void *value, socklen_t len);

static void copy_option(int fd, int level, int name, vb_set_option set, int to)
{
	char value[64];
	socklen_t len = sizeof(value);

	if (!vb_real()->getsockopt(fd, level, name, value, &len))
		(void)set(to, level, name, value, len);
}

/* The kernel reports twice the size that was set. */
static void copy_size(int fd, int name, vb_set_option set, int to)
{
	int value = 0;
	socklen_t len = sizeof(value);

	if (vb_real()->getsockopt(fd, SOL_SOCKET, name, &value, &len))
		return;
	value /= 2;
	(void)set(to, SOL_SOCKET, name, &value, sizeof(value));
}

/* What was set on the socket is set on `to` as well. */
static void copy_options(const struct vb_sock *v, int fd, vb_set_option set, int to)
{
	static const struct {
		int level, name;
	} copied[] = {
		{ SOL_SOCKET, SO_REUSEADDR }, { SOL_SOCKET, SO_KEEPALIVE }, { SOL_SOCKET, SO_OOBINLINE }, { SOL_SOCKET, SO_LINGER },
		{ SOL_SOCKET, SO_RCVTIMEO }, { SOL_SOCKET, SO_SNDTIMEO }, { SOL_SOCKET, SO_PRIORITY }, { IPPROTO_TCP, TCP_NODELAY },
		{ IPPROTO_TCP, TCP_KEEPIDLE }, { IPPROTO_TCP, TCP_KEEPINTVL }, { IPPROTO_TCP, TCP_KEEPCNT },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT }, { IPPROTO_IP, IP_TOS }, { IPPROTO_IPV6, IPV6_V6ONLY }, { IPPROTO_IPV6, IPV6_TCLASS },
	};

	for (size_t i = 0; i < VB_ARRAY_LEN(copied); i++)
		copy_option(fd, copied[i].level, copied[i].name, set, to);
	if (v->has_send_size)
		copy_size(fd, SO_SNDBUF, set, to);
	if (v->has_receive_size)
		copy_size(fd, SO_RCVBUF, set, to);
}

static void set_up(const struct vb_sock *v, int fd, int rs)
{
	copy_options(v, fd, rsetsockopt, rs);
	vb_apply_sizes(rs);
}

static bool is_nonblocking(int fd)
{
	return vb_real()->fcntl(fd, F_GETFL) & O_NONBLOCK;
}

/* ---- connect ---- */

/* An IPv4-mapped address counts as IPv4. */
static socklen_t unmap(const struct sockaddr *addr, socklen_t len, struct sockaddr_storage *out)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;
	struct sockaddr_in in = { .sin_family = AF_INET };

	if (len > sizeof(*out) || len < sizeof(in) ||
	    (addr->sa_family != AF_INET && addr->sa_family != AF_INET6) ||
	    (addr->sa_family == AF_INET6 && len < sizeof(*in6)))
		return 0;
	if (addr->sa_family == AF_INET || !IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
		memcpy(out, addr, len);
		return len;
	}
	in.sin_port = in6->sin6_port;
	memcpy(&in.sin_addr, &in6->sin6_addr.s6_addr[12], sizeof(in.sin_addr));
	memcpy(out, &in, sizeof(in));
	return sizeof(in);
}

static size_t address_of(const struct sockaddr_storage *a, const void **bytes)
{
	bool is_v6 = a->ss_family == AF_INET6;

	*bytes = is_v6 ? (const void *)&((const struct sockaddr_in6 *)a)->sin6_addr :
			 &((const struct sockaddr_in *)a)->sin_addr;
	return is_v6 ? sizeof(struct in6_addr) : sizeof(struct in_addr);
}

/* Is the address of this host? If so, the kernel would send from it. */
static bool is_here(const struct sockaddr_storage *to, socklen_t len)
{
	VB_UNCANCELLED;
	struct sockaddr_storage from;
	socklen_t from_len = sizeof(from);
	const void *a, *b;
	int fd = vb_real()->socket(to->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool here = fd >= 0 && !vb_real()->connect(fd, (const struct sockaddr *)to, len) &&
		    !vb_real()->getsockname(fd, (struct sockaddr *)&from, &from_len);

	if (fd >= 0)
		vb_real()->close(fd);
	return here && address_of(to, &a) == address_of(&from, &b) && !memcmp(a, b, address_of(to, &a));
}

/* Hosts that did not answer over RDMA lately. */
enum { SILENT = 64 };
static struct {
	struct in6_addr address;
	uint64_t until_ns;
} silent[SILENT];
static pthread_mutex_t silent_lock = PTHREAD_MUTEX_INITIALIZER;

static void silent_key(const struct sockaddr_storage *to, struct in6_addr *key, unsigned *place)
{
	const void *bytes;
	size_t n = address_of(to, &bytes);

	memset(key, 0, sizeof(*key));
	memcpy(key, bytes, n);
	*place = 0;
	for (size_t i = 0; i < sizeof(key->s6_addr); i++)
		*place = (*place * 31 + key->s6_addr[i]) % SILENT;
}

static bool is_silent(const struct sockaddr_storage *to)
{
	struct in6_addr key;
	unsigned place;

	silent_key(to, &key, &place);
	pthread_mutex_lock(&silent_lock);
	bool is = !memcmp(&silent[place].address, &key, sizeof(key)) && vb_now() < silent[place].until_ns;
	pthread_mutex_unlock(&silent_lock);
	return is;
}

void vb_connect_forked(void)
{
	pthread_mutex_init(&silent_lock, NULL);
}

static void note_silent(const struct sockaddr_storage *to)
{
	struct in6_addr key;
	unsigned place;

	silent_key(to, &key, &place);
	pthread_mutex_lock(&silent_lock);
	silent[place].address = key;
	silent[place].until_ns = vb_now() + REST_NS;
	pthread_mutex_unlock(&silent_lock);
}

static int error_of(int rs)
{
	int err = ECONNREFUSED;
	socklen_t len = sizeof(err);

	(void)rgetsockopt(rs, SOL_SOCKET, SO_ERROR, &err, &len);
	return err ? err : ECONNREFUSED;
}

/* SO_RCVTIMEO or SO_SNDTIMEO; VB_RS_NEVER: none. */
static uint64_t timeout_of(int fd, int name)
{
	struct timeval tv = { 0 };
	socklen_t len = sizeof(tv);

	if (vb_real()->getsockopt(fd, SOL_SOCKET, name, &tv, &len) || (!tv.tv_sec && !tv.tv_usec))
		return VB_RS_NEVER;
	return (uint64_t)tv.tv_sec * VB_NS_PER_S + (uint64_t)tv.tv_usec * 1000;
}

/*
 * As vb_rpoll; but a signal ends it only where it ends the kernel's call, which it does in any case if that
 * has a timeout.
 */
static int wait_for(struct pollfd *fds, nfds_t n, uint64_t time_ns, bool has_timeout)
{
	uint64_t end = vb_end_of(time_ns);

	for (;;) {
		int ready = vb_rpoll(fds, n, vb_time_left(end), NULL);
		if (ready >= 0 || errno != EINTR || has_timeout || !vb_goes_on_after_signal(NULL))
			return ready;
	}
}

/* Waits for a connection that was begun. 0, EINPROGRESS after time_ns, EINTR, or why there is none. */
static int await(int rs, uint64_t time_ns, bool has_timeout)
{
	struct pollfd p = { .fd = rs, .events = POLLOUT };
	int n = wait_for(&p, 1, time_ns, has_timeout);

	if (n <= 0)
		return n ? errno : EINPROGRESS;
	return p.revents & (POLLERR | POLLHUP) ? error_of(rs) : 0;
}

/* The same local port, if the program bound one. */
static void bind_as(int fd, int rs)
{
	struct sockaddr_storage local, plain;
	socklen_t len = sizeof(local);

	if (vb_real()->getsockname(fd, (struct sockaddr *)&local, &len) ||
	    !((struct sockaddr_in *)&local)->sin_port)
		return;
	len = unmap((struct sockaddr *)&local, len, &plain);
	if (len)
		(void)rbind(rs, (struct sockaddr *)&plain, len);
}

static void close_rsocket(int *rs)
{
	if (*rs >= 0)
		rclose(*rs);
}

/* 0 and EINPROGRESS, EINTR: the socket is an rsocket now. Else why it is none. */
static int connect_rdma_locked(struct vb_sock *v, int fd, const struct sockaddr_storage *to, socklen_t len)
{
	bool here = is_here(to, len), waits = !is_nonblocking(fd);
	uint64_t program_ns = timeout_of(fd, SO_SNDTIMEO);
	uint64_t time_ns = !here ? ANSWER_NS : waits ? program_ns : HERE_NS;

	if (is_silent(to))
		return EHOSTUNREACH;
	int rs __attribute__((cleanup(close_rsocket))) = rsocket(to->ss_family, SOCK_STREAM, 0);
	if (rs < 0)
		return errno;
	set_up(v, fd, rs);
	bind_as(fd, rs);
	(void)rfcntl(rs, F_SETFL, O_NONBLOCK);
	int err = rconnect(rs, (const struct sockaddr *)to, len) ? errno : 0;
	if (err == EINPROGRESS)
		err = await(rs, time_ns, program_ns != VB_RS_NEVER);
	bool goes_on = !err || (err == EINTR && here) || (err == EINPROGRESS && here);
	if (!goes_on) {
		if (err == EINPROGRESS || err == ETIMEDOUT || err == EHOSTUNREACH)
			note_silent(to);
		return EHOSTUNREACH;
	}
	(void)rfcntl(rs, F_SETFL, waits ? 0 : O_NONBLOCK);
	v->rs = rs;
	v->kind = VB_RDMA;
	rs = -1;
	vb_move_memberships_locked(v, fd);
	return err;
}

static int connect_first(struct vb_sock *v, int fd, const struct sockaddr *addr, socklen_t len)
{
	struct sockaddr_storage to;
	socklen_t to_len = unmap(addr, len, &to);
	int err = EHOSTUNREACH;

	if (to_len && v->generation == vb_generation() && !vb_uses_inherited_set()) {
		err = connect_rdma_locked(v, fd, &to, to_len);
		if (v->kind == VB_RDMA) {
			errno = err;
			return err ? -1 : 0;
		}
	}
	int result = vb_real()->connect(fd, addr, len);
	if (!result || errno == EINPROGRESS || errno == EINTR)
		v->kind = VB_TCP;
	return result;
}

static void unlock(pthread_mutex_t **lock)
{
	pthread_mutex_unlock(*lock);
}

static int connect_sock(struct vb_sock *v, int fd, const struct sockaddr *addr, socklen_t len)
{
	pthread_mutex_t *held __attribute__((cleanup(unlock))) = &v->lock;

	pthread_mutex_lock(held);
	if (v->kind == VB_PLAIN && addr)
		return connect_first(v, fd, addr, len);
	return v->kind == VB_RDMA ? rconnect(v->rs, addr, len) : vb_real()->connect(fd, addr, len);
}

VB_EXPORT int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	VB_HELD struct vb_sock *v = vb_sock_get(fd);

	return v ? connect_sock(v, fd, addr, len) : vb_real()->connect(fd, addr, len);
}

/* ---- listen ---- */

static void listen_locked(struct vb_sock *v, int fd)
{
	struct sockaddr_storage local;
	socklen_t len = sizeof(local);
	int rs;

	if (vb_real()->getsockname(fd, (struct sockaddr *)&local, &len) ||
	    (rs = rsocket(v->domain, SOCK_STREAM, 0)) < 0)
		return;
	set_up(v, fd, rs);
	(void)rfcntl(rs, F_SETFL, O_NONBLOCK);
	if (rbind(rs, (struct sockaddr *)&local, len) || rlisten(rs, v->backlog)) {
		rclose(rs);
		return;
	}
	v->rs = rs;
	vb_move_memberships_locked(v, fd);
}

static void stop_listening_locked(struct vb_sock *v)
{
	if (v->rs >= 0)
		rclose(v->rs);
	v->rs = -1;
}

void vb_listen_for_rdma(struct vb_sock *v, int fd)
{
	if (v->rs >= 0 && v->generation == vb_generation() && !vb_uses_inherited_set())
		return;
	pthread_mutex_lock(&v->lock);
	if (v->generation != vb_generation()) {
		stop_listening_locked(v); /* the parent's */
		v->generation = vb_generation();
		v->retry_ns = 0;
	}
	if (vb_uses_inherited_set()) {
		stop_listening_locked(v);
	} else if (v->kind == VB_LISTENING && v->rs < 0 && vb_now() >= v->retry_ns && !vb_serves_forks()) {
		v->retry_ns = vb_now() + RETRY_NS;
		listen_locked(v, fd);
	}
	pthread_mutex_unlock(&v->lock);
}

static void begin_listening_locked(struct vb_sock *v, int fd)
{
	v->nonblocking = is_nonblocking(fd);
	(void)vb_real()->fcntl(fd, F_SETFL, vb_real()->fcntl(fd, F_GETFL) | O_NONBLOCK);
	v->kind = VB_LISTENING;
}

VB_EXPORT int listen(int fd, int backlog)
{
	struct vb_sock *v = vb_sock_get(fd);
	int result;

	if (!v)
		return vb_real()->listen(fd, backlog);
	pthread_mutex_lock(&v->lock);
	result = v->kind == VB_RDMA ? rlisten(v->rs, backlog) : vb_real()->listen(fd, backlog);
	if (!result)
		v->backlog = backlog;
	if (!result && v->kind == VB_PLAIN)
		begin_listening_locked(v, fd);
	else if (!result && v->kind == VB_LISTENING && v->rs >= 0 && v->generation == vb_generation())
		(void)rlisten(v->rs, backlog);
	pthread_mutex_unlock(&v->lock);
	vb_sock_put(v);
	return result;
}

/* ---- accept ---- */

/* Gives an rsocket the number of a kernel's socket, which has what a connection inherits. */
static bool give_number(const struct vb_sock *listener, int listener_fd, int rs, int fd, int flags)
{
	struct vb_sock *v = vb_sock_create(fd, listener->domain, SOCK_STREAM, VB_RDMA, rs);

	if (!v) {
		rclose(rs);
		return false;
	}
	copy_options(listener, listener_fd, vb_real()->setsockopt, fd);
	(void)rfcntl(rs, F_SETFL, flags & SOCK_NONBLOCK ? O_NONBLOCK : 0);
	vb_sock_put(v);
	return true;
}

/* Without waiting: EAGAIN. A connection for which there is no number stays in the backlog. */
static int accept_rdma(const struct vb_sock *v, int listener_fd, struct sockaddr *addr, socklen_t *len,
		       int flags)
{
	struct pollfd p = { .fd = v->rs, .events = POLLIN };

	if (p.fd < 0 || vb_rpoll(&p, 1, 0, NULL) <= 0) {
		errno = EAGAIN;
		return -1;
	}
	int fd = vb_real()->socket(v->domain, SOCK_STREAM | flags, 0);
	int rs = fd < 0 ? -1 : raccept(p.fd, NULL, NULL), err = errno;
	if (rs < 0 || !give_number(v, listener_fd, rs, fd, flags)) {
		err = rs < 0 ? err : ENOMEM;
		if (fd >= 0)
			vb_real()->close(fd);
		errno = err;
		return -1;
	}
	if (addr)
		(void)getpeername(fd, addr, len);
	return fd;
}

/* Without waiting, from TCP and RDMA, which are the first in turn. */
static int accept_any(struct vb_sock *v, int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	int taken = -1;

	v->prefers_tcp = !v->prefers_tcp;
	for (int i = 0; i < 2; i++) {
		bool is_tcps = v->prefers_tcp == !i;

		taken = is_tcps ? vb_real()->accept4(fd, addr, len, flags) :
				  accept_rdma(v, fd, addr, len, flags);
		if (taken >= 0 || errno != EAGAIN)
			break;
	}
	return taken;
}

/* At most until `end`. 1: look again; or -1. */
static int await_any(struct vb_sock *v, int fd, uint64_t end)
{
	struct pollfd p[] = { { .fd = fd, .events = POLLIN }, { .fd = v->rs, .events = POLLIN } };
	uint64_t time_ns = vb_time_left(end);
	/* For when another process gives up the port. */
	bool tries_again = v->rs < 0 && time_ns > RETRY_NS && !vb_serves_forks();
	int n = wait_for(p, 2, tries_again ? RETRY_NS : time_ns, end != VB_RS_NEVER);

	if (n)
		return n < 0 ? -1 : 1;
	errno = EAGAIN;
	return tries_again ? 1 : -1;
}

static int accept_now(struct vb_sock *v, int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	vb_listen_for_rdma(v, fd);
	return accept_any(v, fd, addr, len, flags);
}

static int accept_listening(struct vb_sock *v, int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	int taken = accept_now(v, fd, addr, len, flags);

	if (taken >= 0 || errno != EAGAIN || v->nonblocking)
		return taken;
	uint64_t end = vb_end_of(timeout_of(fd, SO_RCVTIMEO));
	while (taken < 0 && errno == EAGAIN && await_any(v, fd, end) > 0)
		taken = accept_now(v, fd, addr, len, flags);
	return taken;
}

VB_EXPORT int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	VB_HELD struct vb_sock *v = vb_sock_get(fd);

	if (!v)
		return vb_number_for(__builtin_return_address(0), vb_real()->accept4(fd, addr, len, flags));
	if (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) {
		errno = EINVAL;
		return -1;
	}
	if (v->kind == VB_LISTENING)
		return accept_listening(v, fd, addr, len, flags);
	return v->kind == VB_RDMA ? raccept(v->rs, addr, len) : vb_real()->accept4(fd, addr, len, flags);
}

VB_EXPORT int accept(int fd, struct sockaddr *addr, socklen_t *len)
{
	return accept4(fd, addr, len, 0);
}

/* ---- ends ---- */

VB_EXPORT int shutdown(int fd, int how)
{
	struct vb_sock *v = vb_sock_get(fd);
	int result;

	if (!v)
		return vb_real()->shutdown(fd, how);
	if (v->kind == VB_LISTENING && v->rs >= 0 && v->generation == vb_generation())
		(void)rshutdown(v->rs, how);
	result = v->kind == VB_RDMA ? rshutdown(v->rs, how) : vb_real()->shutdown(fd, how);
	vb_sock_put(v);
	return result;
}

VB_EXPORT int close(int fd)
{
	if (!vb_is_borrowed_process()) {
		vb_sock_forget(fd);
		if (vb_close_set(fd))
			return 0;
	}
	return vb_real()->close(fd);
}

static void forget_range(unsigned first, unsigned last)
{
	enum { MOST = VB_NUMBERS_PAGE * VB_NUMBERS_PAGES };

	if (vb_is_borrowed_process())
		return;
	for (unsigned fd = first; fd <= last && fd < MOST; fd++)
		vb_sock_forget((int)fd);
	vb_close_sets(first, last);
}

VB_EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	if (!flags)
		forget_range(first, last);
	return (int)syscall(__NR_close_range, first, last, flags);
}

VB_EXPORT void closefrom(int first)
{
	unsigned from = first < 0 ? 0 : (unsigned)first;

	if (close_range(from, ~0u, 0) == 0)
		return;
	for (long fd = from, end = sysconf(_SC_OPEN_MAX); fd < end; fd++) /* before Linux 5.9 */
		close((int)fd);
}

/* ---- duplicates ---- */

/* `copy` is a descriptor of what fd is. */
static int duplicated(int fd, int copy)
{
	if (copy < 0 || copy == fd || vb_is_borrowed_process() || vb_share_set(fd, copy))
		return copy;
	struct vb_sock *v = vb_sock_get(fd);
	if (!v)
		return copy;
	vb_sock_add(v, copy);
	vb_sock_put(v);
	return copy;
}

/* The same, where `copy` may have been one of our numbers. */
static int replaced(int fd, int copy)
{
	if (copy < 0 || copy == fd || vb_is_borrowed_process())
		return copy;
	vb_sock_forget(copy);
	vb_forget_set(copy);
	return duplicated(fd, copy);
}

VB_EXPORT int dup(int fd)
{
	return duplicated(fd, vb_real()->dup(fd));
}

VB_EXPORT int dup2(int fd, int copy)
{
	return replaced(fd, vb_real()->dup2(fd, copy));
}

VB_EXPORT int dup3(int fd, int copy, int flags)
{
	return replaced(fd, vb_real()->dup3(fd, copy, flags));
}

/* ---- fcntl ---- */

static int set_flags(struct vb_sock *v, int fd, int flags)
{
	if (v->kind == VB_LISTENING) {
		v->nonblocking = flags & O_NONBLOCK;
		flags |= O_NONBLOCK;
	} else if (v->kind == VB_RDMA) {
		(void)rfcntl(v->rs, F_SETFL, flags & O_NONBLOCK);
		if (v->type == SOCK_DGRAM)
			flags |= O_NONBLOCK;
	}
	return vb_real()->fcntl(fd, F_SETFL, flags);
}

static int get_flags(const struct vb_sock *v, int fd)
{
	int flags = vb_real()->fcntl(fd, F_GETFL);
	bool is_datagrams = v->kind == VB_RDMA && v->type == SOCK_DGRAM;

	/* These kernel's sockets never block. */
	if (flags < 0 || (v->kind != VB_LISTENING && !is_datagrams))
		return flags;
	bool nonblocking = is_datagrams ? rfcntl(v->rs, F_GETFL) & O_NONBLOCK : v->nonblocking;
	return nonblocking ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
}

static int control(int fd, int cmd, void *arg)
{
	struct vb_sock *v;
	int result;

	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
		return duplicated(fd, vb_real()->fcntl(fd, cmd, arg));
	v = cmd == F_SETFL || cmd == F_GETFL ? vb_sock_get(fd) : NULL;
	if (!v)
		return vb_real()->fcntl(fd, cmd, arg);
	result = cmd == F_SETFL ? set_flags(v, fd, (int)(intptr_t)arg) : get_flags(v, fd);
	vb_sock_put(v);
	return result;
}

VB_EXPORT int fcntl(int fd, int cmd, ...)
{
	va_list args;

	va_start(args, cmd);
	void *arg = va_arg(args, void *);
	va_end(args);
	return control(fd, cmd, arg);
}

VB_EXPORT int fcntl64(int fd, int cmd, ...)
{
	va_list args;

	va_start(args, cmd);
	void *arg = va_arg(args, void *);
	va_end(args);
	return control(fd, cmd, arg);
}
