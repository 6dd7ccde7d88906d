/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sockets interface over RDMA is not there yet: every call fails with ENOSYS, so that a program that was linked
 * against it starts and hears why.
 */
#include <errno.h>
#include <rdma/rsocket.h>

#include "base/base.h"
#include "base/log.h"

static int refuse(const char *call)
{
	vb_explain(call, "sockets over RDMA are not implemented yet");
	errno = ENOSYS;
	return -1;
}

/* X(result type, name, parameters) */
#define CALLS(X)                                                                                                     \
	X(int, rsocket, (int domain, int type, int protocol))                                                         \
	X(int, rbind, (int socket, const struct sockaddr *addr, socklen_t addrlen))                                   \
	X(int, rlisten, (int socket, int backlog))                                                                    \
	X(int, raccept, (int socket, struct sockaddr *addr, socklen_t *addrlen))                                      \
	X(int, rconnect, (int socket, const struct sockaddr *addr, socklen_t addrlen))                                \
	X(int, rshutdown, (int socket, int how))                                                                      \
	X(int, rclose, (int socket))                                                                                  \
	X(ssize_t, rrecv, (int socket, void *buf, size_t len, int flags))                                             \
	X(ssize_t, rrecvfrom, (int socket, void *buf, size_t len, int flags, struct sockaddr *src, socklen_t *addrlen)) \
	X(ssize_t, rrecvmsg, (int socket, struct msghdr *msg, int flags))                                             \
	X(ssize_t, rsend, (int socket, const void *buf, size_t len, int flags))                                       \
	X(ssize_t, rsendto, (int socket, const void *buf, size_t len, int flags, const struct sockaddr *dest,         \
			     socklen_t addrlen))                                                                      \
	X(ssize_t, rsendmsg, (int socket, const struct msghdr *msg, int flags))                                       \
	X(ssize_t, rread, (int socket, void *buf, size_t count))                                                      \
	X(ssize_t, rreadv, (int socket, const struct iovec *iov, int iovcnt))                                         \
	X(ssize_t, rwrite, (int socket, const void *buf, size_t count))                                               \
	X(ssize_t, rwritev, (int socket, const struct iovec *iov, int iovcnt))                                        \
	X(int, rpoll, (struct pollfd *fds, nfds_t nfds, int timeout))                                                 \
	X(int, rselect, (int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout))    \
	X(int, rgetpeername, (int socket, struct sockaddr *addr, socklen_t *addrlen))                                 \
	X(int, rgetsockname, (int socket, struct sockaddr *addr, socklen_t *addrlen))                                 \
	X(int, rsetsockopt, (int socket, int level, int optname, const void *optval, socklen_t optlen))               \
	X(int, rgetsockopt, (int socket, int level, int optname, void *optval, socklen_t *optlen))                    \
	X(int, rfcntl, (int socket, int cmd, ...))                                                                    \
	X(off_t, riomap, (int socket, void *buf, size_t len, int prot, int flags, off_t offset))                      \
	X(int, riounmap, (int socket, void *buf, size_t len))                                                         \
	X(size_t, riowrite, (int socket, const void *buf, size_t count, off_t offset, int flags))

#define X(result, name, parameters)                                     \
	VB_EXPORT result name parameters                                \
	{                                                               \
		return (result)refuse(#name);                           \
	}
CALLS(X)
#undef X
