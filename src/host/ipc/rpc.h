/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls between processes of one user: a server has an abstract name, at which its clients ask it for
 * something.
 *
 * Each server has a thread that answers its clients, a request at a time. A client waits for its answer. So
 * that no circle of waiting comes about, a server's functions must not wait for another process, nor for a
 * lock whose holder may. The server hangs up on a client that does not take its answers. Names vanish with
 * their process; a forked child has no servers, and its parent's are the parent's alone.
 *
 * Threading: come, ask and leave are called by the server's thread alone.
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
	/*
	 * A process has connected; owner as given to vb_rpc_open. What ask and leave are told of it, or NULL:
	 * it is turned away.
	 */
	void *(*come)(void *owner);
	/*
	 * Hostile input. reply has room for VB_RPC_MAX_BYTES, both are aligned to 16 bytes. The answer's
	 * bytes, or 0: there is none.
	 */
	size_t (*ask)(void *client, const void *request, size_t bytes, void *reply);
	void (*leave)(void *client);
};

/* -EADDRINUSE: somebody has the name. */
int vb_rpc_open(const char *name, const struct vb_rpc_ops *ops, void *owner, struct vb_rpc_server **server);
/* Its clients leave. After it returns nothing of ops runs for it; so not to be called from there. */
void vb_rpc_close(struct vb_rpc_server *server);
/* Does any process have a name that begins so, but for this one name? */
bool vb_rpc_exists(const char *prefix, const char *except);

/*
 * A connection to a server of this user's, to be closed with vb_fd_close. -ECONNREFUSED: there is none;
 * -EPERM: another user's.
 */
int vb_rpc_connect(const char *name, int *fd);
/*
 * Sends a request and waits for the answer: its bytes, or a negative errno (-EPIPE: the process has gone;
 * -ETIMEDOUT: it did not answer; then the connection is of no use any more).
 */
ssize_t vb_rpc_call(int fd, const void *request, size_t bytes, void *reply, size_t room);

#endif
