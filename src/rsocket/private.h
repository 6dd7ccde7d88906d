/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls that rsocket.h lacks, for the preload library (src/preload): librdmacm has them at its private
 * version node.
 */
#ifndef VB_RSOCKET_PRIVATE_H
#define VB_RSOCKET_PRIVATE_H

#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>

#define VB_RS_NEVER UINT64_MAX
/* Longer times have no end: in nanoseconds they might not fit. */
enum { VB_RS_LONGEST_S = 1000000000 };

/* rpoll and repoll_wait with a time in ns (VB_RS_NEVER: no end), and a mask (as ppoll(2) has it) or NULL. */
int vb_rpoll(struct pollfd *fds, nfds_t nfds, uint64_t timeout_ns, const sigset_t *mask);
int vb_repoll_wait(int epfd, struct epoll_event *events, int maxevents, uint64_t timeout_ns,
		   const sigset_t *mask);
/*
 * As repoll_ctl. `number` is the program's for the socket, which is a member once for each that it has: as
 * duplicates are in the kernel.
 */
int vb_repoll_ctl(int epfd, int op, int socket, int number, struct epoll_event *event);
/*
 * Counts bytes that wait to be read (of a datagram socket: in the next datagram), and those that the peer's
 * adapter has not acknowledged. 0 or -1.
 */
int vb_rs_count_bytes(int socket, int *unread, int *unsent);
/* The next call on the socket is to fail with this errno, unless another error waits. */
void vb_rs_leave_error(int socket, int err);
/*
 * `copy` is another descriptor of a set's epoll: now it is a number of the set as well, which lives as
 * long as one of them. Each is closed with rclose. 0 or -1.
 */
int vb_repoll_share(int epfd, int copy);
/* The number is no set's any more: the kernel has made it something else. */
void vb_repoll_forget(int epfd);

#endif
