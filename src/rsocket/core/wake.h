/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that sleep on sockets, and waking them. */
#ifndef VB_RSOCKET_WAKE_H
#define VB_RSOCKET_WAKE_H

#include "rsocket/core/rs.h"

/* A thread that sleeps on a socket; in the socket's list. */
struct vb_rs_sleeper {
	struct vb_list node;
	int fd; /* the thread's eventfd */
};

/* The eventfd of this thread. Negative errno. */
int vb_rs_thread_fd(void);
void vb_rs_thread_fd_clear(int fd);
/* Under the lock, when s has changed: wakes all who sleep on s, and makes s pending in its sets. */
void vb_rs_wake_locked(struct vb_rs *s);

#endif
