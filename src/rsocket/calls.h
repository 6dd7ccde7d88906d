/* SPDX-License-Identifier: BSD-2-Clause */
/* Public calls, and what blocks in them. Functions that return int or ssize_t give a negative errno. */
#ifndef VB_RSOCKET_CALLS_H
#define VB_RSOCKET_CALLS_H

#include "rsocket/socket/socket.h"

/* ---- the end of a connection (close.c) ---- */

/* Under the lock. As shutdown(2), of a stream that is no listener. */
int vb_rs_stream_shut_locked(struct vb_rs *s, int how);
/* Under the lock, before it is closed: the same in both directions. Calls on it that block return. */
void vb_rs_stream_end_locked(struct vb_rs *s);
/* Closes a connection that has no number, and drops the reference. */
void vb_rs_drop(struct vb_rs *s);

/* ---- backlogs (backlog.c) ---- */

/* Takes the listener's requests from now on, up to `length` before raccept. Again: another length. */
int vb_rs_backlog_open_locked(struct vb_rs *s, int length);
/* The oldest connection, with a reference; NULL: none. */
struct vb_rs *vb_rs_backlog_take_locked(struct vb_rs *s);
/* The listener stops: its peers are refused from now on, and vb_rs_backlog_empty is due. */
void vb_rs_backlog_shut_locked(struct vb_rs *s);
/* Closes all connections that wait. s is shut, or was no listener. */
void vb_rs_backlog_empty(struct vb_rs *s);
/* The same; and the socket is closed. */
void vb_rs_backlog_close(struct vb_rs *s);

/* ---- connecting (connect.c) ---- */

/* Under the lock. Waits while a connection is opening; turn: as vb_rs_wait_locked's. */
int vb_rs_await_connection_locked(struct vb_rs *s, uint64_t deadline, struct vb_rs_turn *turn);

/* ---- streams (stream_io.c, iomap.c) ---- */

/* A write in progress: when it gives up, and the bytes of its next piece at most. */
struct vb_rs_writing {
	uint64_t deadline;
	size_t most;
};

/*
 * Before a write, without the lock: takes the writer's turn, waits for the connection, and sends the peer
 * mappings new to it. Unless it fails, vb_rs_end_write is due.
 */
int vb_rs_begin_write(struct vb_rs *s, int flags, struct vb_rs_writing *w);
/* A piece was written. */
void vb_rs_next_piece(struct vb_rs_writing *w);
void vb_rs_end_write(struct vb_rs *s);
/* Bytes of iov. */
ssize_t vb_rs_stream_read(struct vb_rs *s, const struct iovec *iov, int iovcnt, int flags);
ssize_t vb_rs_stream_write(struct vb_rs *s, const struct iovec *iov, int iovcnt, int flags);

/* ---- datagrams (datagram_io.c) ---- */

int vb_rs_datagram_bind(struct vb_rs *s, const struct sockaddr *addr, socklen_t len);
int vb_rs_datagram_connect(struct vb_rs *s, const struct sockaddr *addr, socklen_t len);
/* As recvmsg(2) and sendmsg(2), of which they know name, buffers and MSG_TRUNC. */
ssize_t vb_rs_datagram_receive(struct vb_rs *s, struct msghdr *msg, int flags);
ssize_t vb_rs_datagram_send(struct vb_rs *s, const struct msghdr *msg, int flags);

/* ---- sets (set.c) ---- */

/* A socket that is closed is in no set. Its number is withdrawn. */
void vb_rs_leave_sets(struct vb_rs *s);
/* -EBADF: it is no set. */
int vb_rs_set_close(int fd);

#endif
