/* SPDX-License-Identifier: BSD-2-Clause */
/* socket, bind, connect and shutdown. */
#include <netinet/in.h>

#include "preload/preload.h"

/*
 * How long another host may take to answer over RDMA, before TCP is tried; and for how long RDMA is then not
 * tried with it.
 */
#define ANSWER_NS (1 * VB_NS_PER_S)
#define REST_NS   (60 * VB_NS_PER_S)
/* A non-blocking connect within this host waits for the answer too, which comes at once, at most so long. */
#define HERE_NS   (2 * VB_NS_PER_S)

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

/* Waits for a connection that was begun. 0, EINPROGRESS after time_ns, EINTR, or why there is none. */
static int await(int rs, uint64_t time_ns, bool has_timeout)
{
	struct pollfd p = { .fd = rs, .events = POLLOUT };
	int n = vb_wait_for(&p, 1, time_ns, has_timeout);

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
	bool here = is_here(to, len), waits = !vb_is_nonblocking(fd);
	uint64_t program_ns = vb_timeout_of(fd, SO_SNDTIMEO);
	uint64_t time_ns = !here ? ANSWER_NS : waits ? program_ns : HERE_NS;

	if (is_silent(to))
		return EHOSTUNREACH;
	int rs __attribute__((cleanup(close_rsocket))) = rsocket(to->ss_family, SOCK_STREAM, 0);
	if (rs < 0)
		return errno;
	vb_set_up(v, fd, rs);
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
	vb_move_memberships_locked(v);
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

/* ---- shutdown ---- */

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
