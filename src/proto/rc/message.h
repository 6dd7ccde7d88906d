/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Execution of incoming SENDs and WRITEs, packet by packet, for RC and UC alike: does a packet fit its place
 * in a message, may it do what it asks for, and doing it. The order of packets is the caller's business.
 *
 *	        first            last
 *	no message ---> in a SEND ---> no message
 *	no message ---> in a WRITE --> no message	("only" packets do both)
 */
#ifndef VB_PROTO_MESSAGE_H
#define VB_PROTO_MESSAGE_H

#include <errno.h>

#include "proto/rc/request.h"
#include "wire/syndrome.h"

enum vb_access { VB_ACCESS_READ, VB_ACCESS_WRITE, VB_ACCESS_ATOMIC };

/* A message that ends a receive. */
struct vb_received {
	uint64_t bytes;
	uint32_t tail_value;	/* immediate data as it lies in memory, or the rkey that was invalidated */
	uint8_t tail;		/* enum vb_request_tail */
	bool is_refused;	/* that rkey is not to be invalidated: the receive completes with an error */
	bool is_write;		/* a WRITE with immediate data: bytes went elsewhere */
	bool solicited;
};

/* The NAK that an operation's negative errno becomes. */
static inline enum vb_nak_code vb_nak_of(int err)
{
	switch (err) {
	case -EINVAL:
	case -EMSGSIZE: return VB_NAK_INVALID_REQUEST;
	case -EACCES: return VB_NAK_REMOTE_ACCESS;
	}
	return VB_NAK_REMOTE_OPERATIONAL;
}

/*
 * Negative returns become what vb_nak_of says; -EAGAIN (receive_take alone) an RNR NAK. UC drops the message
 * for each of them. A call that fails must have changed nothing that the program may look at.
 */
struct vb_responder_ops {
	/*
	 * Takes the next receive for the message that the packet is of. It stays taken until receive_done or
	 * the end of the connection, over messages that are given up on the way (UC).
	 */
	int (*receive_take)(void *ctx, const struct vb_packet *packet);
	/* SEND data into the taken receive; -EMSGSIZE beyond its end. */
	int (*receive_place)(void *ctx, uint64_t offset, const void *bytes, size_t len);
	void (*receive_done)(void *ctx, const struct vb_received *received);
	/*
	 * May the peer access this range so? len 0: may it access anything so at all (the queue pair's
	 * rights; no key counts)?
	 */
	int (*check)(void *ctx, uint32_t rkey, uint64_t addr, uint64_t len, enum vb_access access);
	/* WRITE data; checks again. */
	int (*write)(void *ctx, uint32_t rkey, uint64_t addr, const void *bytes, size_t len);
	/*
	 * On 8 aligned bytes; kind is VB_REQ_COMPARE_SWAP, VB_REQ_FETCH_ADD or VB_REQ_ATOMIC_WRITE
	 * (swap_or_add: the bytes as they lie).
	 */
	int (*atomic)(void *ctx, uint32_t rkey, uint64_t addr, uint8_t kind, uint64_t swap_or_add,
		uint64_t compare, uint64_t *original);
	/*
	 * RC alone, as are atomics. The message's data are there; that it fails is no NAK (9.9.3, class J).
	 */
	int (*invalidate)(void *ctx, uint32_t rkey);
	/*
	 * XRC alone, or NULL: the next calls are for this shared receive queue. -EINVAL: there is none, or a
	 * message for another is not done.
	 */
	int (*select)(void *ctx, uint32_t srqn);
	/*
	 * RC alone, or NULL: bytes that were written, or their region, to where vb_flush's value says. May
	 * the peer have that?
	 */
	int (*flush)(void *ctx, uint32_t rkey, uint64_t addr, uint64_t len, uint32_t flush);
};

struct vb_message {
	enum { VB_NO_MESSAGE, VB_IN_SEND, VB_IN_WRITE } state;
	bool has_receive;		/* one is taken and not done */
	uint64_t offset;		/* bytes so far */
	uint64_t address;		/* where a WRITE begins, from its first packet */
	uint32_t rkey, length;
};

/* What vb_message_execute returns of a message that is done, and behind which the connection is to end. */
enum { VB_MESSAGE_IS_LAST = 1 };

/*
 * packet: a SEND's or WRITE's. A negative errno as in vb_responder_ops: nothing was done, but a receive may
 * have been taken.
 */
int vb_message_execute(struct vb_message *message, const struct vb_responder_ops *ops, void *ctx,
		       uint32_t mtu, const struct vb_packet *packet) VB_MUST_USE;

#endif
