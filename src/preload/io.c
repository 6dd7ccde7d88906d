/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls that move bytes. */
#include "preload/preload.h"

/*
 * Checked variants, which programs built with _FORTIFY_SOURCE call; the check is the compiler's and libc's.
 */
VB_EXPORT ssize_t __read_chk(int fd, void *buf, size_t n, size_t room);
VB_EXPORT ssize_t __recv_chk(int fd, void *buf, size_t n, size_t room, int flags);
VB_EXPORT ssize_t __recvfrom_chk(int fd, void *buf, size_t n, size_t room, int flags, struct sockaddr *from,
				 socklen_t *len);
void __chk_fail(void) __attribute__((noreturn));

/* A write to a connection that has ended raises SIGPIPE too, whose handler may not return. */
static ssize_t written(struct vb_sock **v, ssize_t n, int flags)
{
	bool signals = n < 0 && errno == EPIPE && (*v)->type == SOCK_STREAM && !(flags & MSG_NOSIGNAL);

	vb_sock_let_go(v);
	if (signals) {
		pthread_kill(pthread_self(), SIGPIPE);
		errno = EPIPE;
	}
	return n;
}

/* ---- receiving ---- */

/* There are no queued errors and no urgent bytes. */
static bool is_for_nothing(int flags)
{
	if (!(flags & (MSG_OOB | MSG_ERRQUEUE)))
		return false;
	errno = flags & MSG_ERRQUEUE ? EAGAIN : EINVAL;
	return true;
}

VB_EXPORT ssize_t read(int fd, void *buf, size_t n)
{
	VB_HELD struct vb_sock *v = vb_sock_rdma(fd);

	return v ? rread(v->rs, buf, n) : vb_real()->read(fd, buf, n);
}

VB_EXPORT ssize_t readv(int fd, const struct iovec *iov, int count)
{
	VB_HELD struct vb_sock *v = vb_sock_rdma(fd);

	return v ? rreadv(v->rs, iov, count) : vb_real()->readv(fd, iov, count);
}

VB_EXPORT ssize_t recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *from, socklen_t *len)
{
	VB_HELD struct vb_sock *v = vb_sock_rdma(fd);

	if (!v)
		return vb_real()->recvfrom(fd, buf, n, flags, from, len);
	if (is_for_nothing(flags))
		return -1;
	if (v->type != SOCK_STREAM)
		return rrecvfrom(v->rs, buf, n, flags, from, len);
	ssize_t got = rrecv(v->rs, buf, n, flags);
	if (got >= 0 && from && len)
		*len = 0; /* as of TCP */
	return got;
}

VB_EXPORT ssize_t recv(int fd, void *buf, size_t n, int flags)
{
	return recvfrom(fd, buf, n, flags, NULL, NULL);
}

static ssize_t receive_message(const struct vb_sock *v, struct msghdr *msg, int flags)
{
	struct msghdr got = *msg;

	if (is_for_nothing(flags))
		return -1;
	if (v->type == SOCK_STREAM) { /* TCP tells no name */
		got.msg_name = NULL;
		got.msg_namelen = 0;
	}
	ssize_t n = rrecvmsg(v->rs, &got, flags);
	if (n >= 0) {
		msg->msg_namelen = got.msg_namelen;
		msg->msg_controllen = got.msg_controllen;
		msg->msg_flags = got.msg_flags;
	}
	return n;
}

VB_EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	VB_HELD struct vb_sock *v = vb_sock_rdma(fd);

	if (!v) {
		ssize_t got = vb_real()->recvmsg(fd, msg, flags);
		if (got >= 0 && msg->msg_controllen && vb_is_our_library(__builtin_return_address(0)))
			vb_raise_received(msg);
		return got;
	}
	return receive_message(v, msg, flags);
}

/* *timeout: until `end`. */
static bool has_time(struct timespec *timeout, uint64_t end)
{
	uint64_t left = vb_time_left(end);

	if (left != VB_RS_NEVER)
		*timeout = vb_timespec_of_ns(left);
	return left;
}

/* The time ends it after a message, not while it waits for one (recvmmsg(2)). */
static int receive_messages(const struct vb_sock *v, struct mmsghdr *msgs, unsigned count, int flags,
			    struct timespec *timeout)
{
	uint64_t end = vb_end_of(vb_ns_of(timeout));
	unsigned i = 0;
	ssize_t n = 0;

	while (i < count) {
		n = receive_message(v, &msgs[i].msg_hdr, flags & ~MSG_WAITFORONE);
		if (n < 0)
			break;
		msgs[i++].msg_len = (unsigned)n;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		if (!has_time(timeout, end))
			break;
	}
	if (n >= 0 || !i)
		return n < 0 ? -1 : (int)i;
	if (errno != EAGAIN && errno != EINTR)
		vb_rs_leave_error(v->rs, errno);
	return (int)i;
}

VB_EXPORT int recvmmsg(int fd, struct mmsghdr *msgs, unsigned count, int flags, struct timespec *timeout)
{
	VB_HELD struct vb_sock *v = vb_sock_rdma(fd);

	if (!v)
		return vb_real()->recvmmsg(fd, msgs, count, flags, timeout);
	if (!vb_is_time(timeout)) {
		errno = EINVAL;
		return -1;
	}
	return receive_messages(v, msgs, count, flags, timeout);
}

VB_EXPORT ssize_t __read_chk(int fd, void *buf, size_t n, size_t room)
{
	if (n > room)
		__chk_fail();
	return read(fd, buf, n);
}

VB_EXPORT ssize_t __recv_chk(int fd, void *buf, size_t n, size_t room, int flags)
{
	if (n > room)
		__chk_fail();
	return recv(fd, buf, n, flags);
}

VB_EXPORT ssize_t __recvfrom_chk(int fd, void *buf, size_t n, size_t room, int flags, struct sockaddr *from,
				 socklen_t *len)
{
	if (n > room)
		__chk_fail();
	return recvfrom(fd, buf, n, flags, from, len);
}

/* ---- sending ---- */

VB_EXPORT ssize_t write(int fd, const void *buf, size_t n)
{
	VB_HELD struct vb_sock *v = vb_sock_rdma(fd);

	return v ? written(&v, rwrite(v->rs, buf, n), 0) : vb_real()->write(fd, buf, n);
}

VB_EXPORT ssize_t writev(int fd, const struct iovec *iov, int count)
{
	VB_HELD struct vb_sock *v = vb_sock_rdma(fd);

	return v ? written(&v, rwritev(v->rs, iov, count), 0) : vb_real()->writev(fd, iov, count);
}

VB_EXPORT ssize_t sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to,
			 socklen_t len)
{
	VB_HELD struct vb_sock *v = vb_sock_rdma(fd);

	if (!v)
		return vb_real()->sendto(fd, buf, n, flags, to, len);
	if (v->type == SOCK_STREAM)
		return written(&v, rsend(v->rs, buf, n, flags), flags); /* TCP ignores the address */
	return written(&v, rsendto(v->rs, buf, n, flags, to, len), flags);
}

VB_EXPORT ssize_t send(int fd, const void *buf, size_t n, int flags)
{
	return sendto(fd, buf, n, flags, NULL, 0);
}

/* Ancillary data are advice to the kernel's TCP. */
static ssize_t send_message(const struct vb_sock *v, const struct msghdr *msg, int flags)
{
	struct msghdr plain = *msg;

	plain.msg_control = NULL;
	plain.msg_controllen = 0;
	if (v->type == SOCK_STREAM) {
		plain.msg_name = NULL;
		plain.msg_namelen = 0;
	}
	return rsendmsg(v->rs, &plain, flags);
}

VB_EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	VB_HELD struct vb_sock *v = vb_sock_rdma(fd);

	return v ? written(&v, send_message(v, msg, flags), flags) : vb_real()->sendmsg(fd, msg, flags);
}

static size_t bytes_of(const struct msghdr *msg)
{
	size_t bytes = 0;

	for (size_t i = 0; i < msg->msg_iovlen; i++)
		bytes += msg->msg_iov[i].iov_len;
	return bytes;
}

/* What follows a message that was cut would not follow its bytes. */
VB_EXPORT int sendmmsg(int fd, struct mmsghdr *msgs, unsigned count, int flags)
{
	VB_HELD struct vb_sock *v = vb_sock_rdma(fd);
	unsigned i = 0;
	bool is_cut = false;

	if (!v)
		return vb_real()->sendmmsg(fd, msgs, count, flags);
	while (i < count && !is_cut) {
		ssize_t n = send_message(v, &msgs[i].msg_hdr, flags);

		if (n < 0)
			break;
		is_cut = (size_t)n < bytes_of(&msgs[i].msg_hdr);
		msgs[i++].msg_len = (unsigned)n;
	}
	return (int)written(&v, i || !count ? (ssize_t)i : -1, flags);
}

/* ---- files ---- */

enum { BLOCK = 65536 };

static ssize_t fetch(int in, off_t *offset, char *block, size_t n)
{
	return offset ? pread(in, block, n, *offset) : vb_real()->read(in, block, n);
}

/* Bytes that the file gave and the socket did not take count as not read. */
static void advance(int in, off_t *offset, ssize_t fetched, ssize_t sent)
{
	if (offset)
		*offset += sent > 0 ? sent : 0;
	else if (sent < fetched)
		(void)lseek(in, (sent > 0 ? sent : 0) - fetched, SEEK_CUR);
}

static ssize_t send_file(struct vb_sock *v, int in, off_t *offset, size_t count)
{
	size_t total = 0;
	char block[BLOCK];

	/* What the socket does not take could not be put back to a pipe. The kernel refuses those, too. */
	if (!offset && lseek(in, 0, SEEK_CUR) < 0) {
		errno = errno == ESPIPE ? EINVAL : errno;
		return -1;
	}
	while (total < count) {
		ssize_t fetched = fetch(in, offset, block, count - total < BLOCK ? count - total : BLOCK);
		ssize_t sent = fetched > 0 ? rwrite(v->rs, block, (size_t)fetched) : fetched;
		int err = errno;

		if (fetched > 0)
			advance(in, offset, fetched, sent);
		errno = err;
		if (sent <= 0)
			return total ? (ssize_t)total : sent;
		total += (size_t)sent;
		if (sent < fetched)
			break;
	}
	return (ssize_t)total;
}

VB_EXPORT ssize_t sendfile(int out, int in, off_t *offset, size_t count)
{
	VB_HELD struct vb_sock *v = vb_sock_rdma(out);

	return v ? written(&v, send_file(v, in, offset, count), 0) :
		   vb_real()->sendfile(out, in, offset, count);
}

VB_EXPORT ssize_t sendfile64(int out, int in, off64_t *offset, size_t count)
{
	_Static_assert(sizeof(off_t) == sizeof(off64_t), "one sendfile");
	return sendfile(out, in, offset, count);
}

/* Programs copy when descriptors cannot be spliced. */
VB_EXPORT ssize_t splice(int in, off64_t *in_offset, int out, off64_t *out_offset, size_t n, unsigned flags)
{
	VB_HELD struct vb_sock *v = vb_sock_rdma(in);

	if (!v)
		v = vb_sock_rdma(out);
	if (!v)
		return vb_real()->splice(in, in_offset, out, out_offset, n, flags);
	errno = EINVAL;
	return -1;
}

/* ---- ioctl ---- */

static int set_nonblocking(int fd, const int *on)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 ? flags : fcntl(fd, F_SETFL, *on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
}

static int count(const struct vb_sock *v, unsigned long request, int *value)
{
	int unread, unsent, result = vb_rs_count_bytes(v->rs, &unread, &unsent);

	if (!result)
		*value = request == FIONREAD ? unread : unsent;
	return result;
}

VB_EXPORT int ioctl(int fd, unsigned long request, ...)
{
	va_list args;

	va_start(args, request);
	void *arg = va_arg(args, void *);
	va_end(args);
	if (request != FIONBIO && request != FIONREAD && request != TIOCOUTQ)
		return vb_real()->ioctl(fd, request, arg);
	VB_HELD struct vb_sock *v = request == FIONBIO ? vb_sock_get(fd) : vb_sock_rdma(fd);
	if (!v)
		return vb_real()->ioctl(fd, request, arg);
	return request == FIONBIO ? set_nonblocking(fd, arg) : count(v, request, arg);
}
