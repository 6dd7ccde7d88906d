/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Desks: abstract names at which other processes of this user, its guests, ask this one for something.
 *
 * A thread per desk answers its guests, a request at a time. Whoever asks waits, so that no circle of waiting may come about, it is
 * for the desk's functions not to wait for another process, nor for a lock whose holder may. A guest who does not take his answers is
 * shown out. Names vanish with their process; a forked child has no desks, and its parent's are the parent's alone.
 *
 * Threading: come, ask and leave are called by the desk's thread alone.
 */
#ifndef VB_HOST_RPC_H
#define VB_HOST_RPC_H

#include "host/host.h"

enum {
	VB_RPC_MAX_BYTES = 1 << 15, /* of a request or an answer */
	VB_RPC_NAME = 100,
};

struct vb_rpc_server;

struct vb_rpc_ops {
	/* A process has connected; owner as given to vb_rpc_open. What ask and leave are told of it, or NULL: it is turned away. */
	void *(*come)(void *owner);
	/* Hostile input. reply has room for VB_RPC_MAX_BYTES, both are aligned to 16 bytes. The answer's bytes, or 0: there is none. */
	size_t (*ask)(void *guest, const void *request, size_t bytes, void *reply);
	void (*leave)(void *guest);
};

/* -EADDRINUSE: somebody has the name. */
int vb_rpc_open(const char *name, const struct vb_rpc_ops *ops, void *owner, struct vb_rpc_server **desk);
/* Its guests leave. After it returns nothing of ops runs for it; so not to be called from there. */
void vb_rpc_close(struct vb_rpc_server *desk);
/* Does any process have a name that begins so, but for this one name? */
bool vb_rpc_exists(const char *prefix, const char *except);

/* A connection to a desk of this user's, to be closed with vb_fd_close. -ECONNREFUSED: there is none; -EPERM: another user's. */
int vb_rpc_connect(const char *name, int *fd);
/*
 * Sends a request and waits for the answer: its bytes, or a negative errno (-EPIPE: the process has gone; -ETIMEDOUT: it did not answer;
 * then the connection is of no use any more).
 */
ssize_t vb_rpc_call(int fd, const void *request, size_t bytes, void *reply, size_t room);

#endif
