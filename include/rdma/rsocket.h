/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sockets interface over RDMA: each call does what the one without the r does, on numbers that rsocket()
 * gives, with the same results and errno values. Link with -lrdmacm. rsocket(7)
 */
#ifndef RSOCKET_H
#define RSOCKET_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/epoll.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Make, name, connect and close sockets. domain: AF_INET, AF_INET6 or AF_IB; type: SOCK_STREAM or
 * SOCK_DGRAM.
 */
int rsocket(int domain, int type, int protocol);
int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen);
int rlisten(int socket, int backlog);
int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen);
int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen);
int rshutdown(int socket, int how);
int rclose(int socket);

/* Receive; flags: MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL. Bytes received, 0 at the end, -1 with errno. */
ssize_t rrecv(int socket, void *buf, size_t len, int flags);
ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags, struct sockaddr *src_addr,
	socklen_t *addrlen);
ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags);
ssize_t rread(int socket, void *buf, size_t count);
ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt);

/* Send; the buffer is free again on return. flags: MSG_DONTWAIT. Bytes sent, -1 with errno. */
ssize_t rsend(int socket, const void *buf, size_t len, int flags);
ssize_t rsendto(int socket, const void *buf, size_t len, int flags, const struct sockaddr *dest_addr,
		socklen_t addrlen);
ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags);
ssize_t rwrite(int socket, const void *buf, size_t count);
ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt);

/* Wait for events; ordinary file descriptors may be among the sockets. timeout in ms. */
int rpoll(struct pollfd *fds, nfds_t nfds, int timeout);
int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout);

/*
 * Sets of sockets and ordinary file descriptors, as epoll(7) with all its events and flags; flags of
 * repoll_create: EPOLL_CLOEXEC. A set is closed with rclose().
 */
int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

/* The addresses of both ends. */
int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen);
int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen);

/*
 * Options of level SOL_RDMA, all int but the last, set before connecting: send and receive requests of the
 * QP, bytes of inline data, regions that riomap() can take, path records (struct ibv_path_data[]).
 */
#define SOL_RDMA	0x10000
enum {
	RDMA_SQSIZE,
	RDMA_RQSIZE,
	RDMA_INLINE,
	RDMA_IOMAPSIZE,
	RDMA_ROUTE,
};

/*
 * Options of the levels SOL_SOCKET, IPPROTO_TCP, IPPROTO_IPV6 and SOL_RDMA; F_GETFL and F_SETFL with
 * O_NONBLOCK.
 */
int rsetsockopt(int socket, int level, int optname, const void *optval, socklen_t optlen);
int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen);
int rfcntl(int socket, int cmd, ...);

/*
 * Let the peer write len bytes at buf directly. prot: PROT_WRITE; offset: the place in the peer's view, -1
 * to have one chosen. Returns the offset, or -1 with errno; holds until riounmap() or rclose().
 */
off_t riomap(int socket, void *buf, size_t len, int prot, int flags, off_t offset);
int riounmap(int socket, void *buf, size_t len);

/*
 * Write count bytes to the peer's memory at offset; what is sent afterwards arrives afterwards. Bytes, or
 * -1.
 */
size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags);

#ifdef __cplusplus
}
#endif

#endif /* RSOCKET_H */
