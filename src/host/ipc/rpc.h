/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Remote procedure calls between processes of one user. A server has an abstract name, at which its clients
 * send requests.
 *
 * Each server has a thread that answers its clients, a request at a time. A client waits for its answer. So a
 * server's functions must not wait for another process, nor for a lock whose holder may: that could deadlock.
 * The server hangs up on a client that does not read its answers. Names vanish with their process. A forked
 * child has no servers; its parent's stay the parent's alone.
 *
 * Threading: only the server's thread calls connect, call and disconnect.
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
	 * A process has connected; owner as given to vb_rpc_open. Returns the argument of the other two, or
	 * NULL to refuse the process.
	 */
	void *(*connect)(void *owner);
	/*
	 * The request is hostile input. reply has room for VB_RPC_MAX_BYTES; both are aligned to 16 bytes.
	 * Returns the answer's length, or 0 for no answer.
	 */
	size_t (*call)(void *client, const void *request, size_t bytes, void *reply);
	void (*disconnect)(void *client);
};

/* -EADDRINUSE: somebody has the name. */
int vb_rpc_open(const char *name, const struct vb_rpc_ops *ops, void *owner, struct vb_rpc_server **server);
/* Disconnects its clients. After it returns nothing of ops runs for it. Not to be called from ops. */
void vb_rpc_close(struct vb_rpc_server *server);
/*
 * Does any process that may share memory with this one have a name that begins so, other than `except`?
 */
bool vb_rpc_exists(const char *prefix, const char *except);

/*
 * A connection to a server of this user's, to be closed with vb_fd_close. -ECONNREFUSED: there is none;
 * -EPERM: it is another user's.
 */
int vb_rpc_connect(const char *name, int *fd);
/*
 * Sends a request and waits for the answer: at most five seconds, or 1.5 s if the server's process is
 * stopped. Returns the answer's length, or a negative errno. -EPIPE: the process has gone. -ETIMEDOUT: it did
 * not answer, and the connection is of no further use.
 */
ssize_t vb_rpc_call(int fd, const void *request, size_t bytes, void *reply, size_t room);

#endif
