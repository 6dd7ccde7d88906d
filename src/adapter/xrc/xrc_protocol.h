/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests between processes that share an XRC domain. Queues and queue pairs are memory of the process that
 * made them, and only that process works on them:
 *
 *	the owner of a receiving queue pair   takes the peer's requests in order, and answers them (NAKs, acks, PSNs)
 *	the owner of a shared receive queue   takes its receives, checks and moves memory, completes: for requests that the first brings it
 *
 * The first is a client at the second's server (host/ipc/rpc.h), one connection for each queue pair and
 * process. Further handles on a queue pair (ibv_open_qp) are the other way round: the handle's process is a
 * client of the queue pair's owner, which keeps it as long.
 *
 * The domain is the server's name: file and device, then what it is for, and the slot that the queue's or
 * queue pair's number is of. Other users, and processes with another file, find no such name.
 *
 * A client holds its queue pair's resp_lock while it waits for a server of queues. That server takes the lock
 * of its own queue pair that stands for the client's, and no other queue pair's: nobody who has it waits for
 * a client. The server of handles takes such locks, and may wait for a server of queues thereby; its clients
 * hold none.
 *
 * When a queue's owner ends, the queue is gone, and a request for it is invalid. When a queue pair's owner
 * ends, the connection is gone: receives that it had taken are flushed, and further handles fail.
 */
#ifndef VB_ADAPTER_XRC_PROTOCOL_H
#define VB_ADAPTER_XRC_PROTOCOL_H

#include "adapter/xrc/xrc.h"
#include "host/ipc/rpc.h"

enum { VB_XRC_VERSION = 1, VB_XRC_DATA_BYTES = VB_RPC_MAX_BYTES - 128 /* of payload in one message */ };

enum vb_xrc_op {
	VB_XRC_SELECT,     /* the queue is there */
	VB_XRC_TAKE,       /* a receive; -EAGAIN: none is posted */
	VB_XRC_PLACE,      /* data into it, from address on */
	/*
	 * it is complete: length bytes; kind: enum vb_request_tail, operands[0] its value, operands[1]
	 * VB_XRC_IS_*
	 */
	VB_XRC_DONE,
	VB_XRC_END,        /* it is complete with an error; kind: enum ibv_wc_status. Not answered */
	VB_XRC_CHECK,      /* kind: enum vb_access */
	VB_XRC_WRITE,
	VB_XRC_READ,       /* answered with data */
	VB_XRC_ATOMIC,     /* kind, operands as in vb_responder_ops; answered with value */
	VB_XRC_INVALIDATE,
	VB_XRC_OPEN_QP,    /* a further handle on qpn */
	VB_XRC_QUERY_QP,   /* answered with a struct ibv_qp_attr */
	VB_XRC_MODIFY_QP,  /* data: a struct ibv_qp_attr; kind: its mask */
	VB_XRC_CLOSE_QP,   /* the handle is given back */
};

enum { VB_XRC_IS_WRITE = 1, VB_XRC_IS_SOLICITED = 2 };

/* Data follow both. */
struct vb_xrc_request {
	uint32_t version;
	uint32_t op;
	uint32_t qpn, src_qpn, access; /* the queue pair's, its peer's number, its qp_access_flags */
	uint32_t srqn;
	uint32_t kind, rkey;
	uint64_t address, length;
	uint64_t operands[2];
};
_Static_assert(sizeof(struct vb_xrc_request) == 64, "layout");

struct vb_xrc_reply {
	int32_t err;             /* 0 or a negative errno, as vb_responder_ops say */
	/* enum ibv_wc_status: what the refusal makes of the receive that is taken; 0: nothing */
	uint32_t receive_status;
	uint64_t value;
};
_Static_assert(sizeof(struct vb_xrc_reply) == 16, "layout");

/* Whose domain it is for others to find: its file and device, as the beginning of the servers' names. */
struct vb_xrc_server {
	char name[VB_RPC_NAME - 16];
	struct vb_xrcd xrcd; /* for clients: number alone */
	struct vb_list servers; /* under share_lock (xrc_server.c): of this process */
};

enum vb_xrc_what { VB_XRC_QUEUES = 'q', VB_XRC_HANDLES = 'h' };

void vb_xrc_server_name(const struct vb_xrc_server *share, enum vb_xrc_what what, uint32_t number,
			char name[VB_RPC_NAME]);

#endif
