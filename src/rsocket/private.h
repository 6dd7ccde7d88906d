/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls of librdmacm at its private version node, for the preload library (src/preload): what rsocket.h has
 * no call for.
 */
#ifndef VB_RSOCKET_PRIVATE_H
#define VB_RSOCKET_PRIVATE_H

#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>

#define VB_RS_NEVER UINT64_MAX

/*
 * rpoll and repoll_wait with ppoll's and epoll_pwait's mask (or NULL) and times in ns; VB_RS_NEVER: no end.
 */
int vb_rpoll(struct pollfd *fds, nfds_t nfds, uint64_t timeout_ns, const sigset_t *mask);
int vb_repoll_wait(int epfd, struct epoll_event *events, int maxevents, uint64_t timeout_ns,
		   const sigset_t *mask);
/*
 * Bytes that wait to be read (of a datagram socket: of the next one), and those that the peer's adapter has
 * not taken yet. 0 or -1.
 */
int vb_rs_count_bytes(int socket, int *unread, int *unsent);

#endif
