/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Execution of incoming SENDs and WRITEs, packet by packet, for RC and UC: does a packet fit its place in a
 * message, is its access permitted, and if so, its execution. The caller passes packets in order.
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
	bool is_refused;	/* that rkey cannot be invalidated: the receive completes with an error */
	bool is_write;		/* a WRITE with immediate data: its bytes are not in the receive */
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

/* An atomic operation on 8 bytes, at a multiple of 8. */
struct vb_atomic {
	uint64_t addr;
	uint32_t rkey;
	uint8_t kind; /* VB_REQ_COMPARE_SWAP, VB_REQ_FETCH_ADD or VB_REQ_ATOMIC_WRITE */
	uint64_t swap_or_add, compare; /* of a VB_REQ_ATOMIC_WRITE swap_or_add is the bytes as they lie */
};

/*
 * A negative return becomes the NAK that vb_nak_of gives; -EAGAIN (receive_take alone) an RNR NAK. UC drops
 * the message instead. A call that fails must have changed nothing that the program can see.
 */
struct vb_responder_ops {
	/*
	 * Takes the next receive for the message of the packet. It stays taken until receive_done or the end
	 * of the connection, or until the message is dropped and receive_lost ends it (UC).
	 */
	int (*receive_take)(void *ctx, const struct vb_packet *packet);
	/* SEND data into the taken receive; -EMSGSIZE beyond its end. */
	int (*receive_place)(void *ctx, uint64_t offset, const void *bytes, size_t len);
	void (*receive_done)(void *ctx, const struct vb_received *received);
	/*
	 * Has the peer this access to the range? len 0: has it such access to anything? That asks for the
	 * queue pair's rights, without a key.
	 */
	int (*check)(void *ctx, uint32_t rkey, uint64_t addr, uint64_t len, enum vb_access access);
	/* WRITE data; repeats the check. */
	int (*write)(void *ctx, uint32_t rkey, uint64_t addr, const void *bytes, size_t len);
	int (*atomic)(void *ctx, const struct vb_atomic *atomic, uint64_t *original);
	/* RC alone, as are atomics. The message's data have arrived; a failure is no NAK (9.9.3, class J). */
	int (*invalidate)(void *ctx, uint32_t rkey);
	/*
	 * XRC alone, or NULL: the next calls are for this shared receive queue. -EINVAL: there is no such
	 * queue, or a message for another is not complete.
	 */
	int (*select)(void *ctx, uint32_t srqn);
	/*
	 * RC alone, or NULL: flushes bytes that were written, or their region, as vb_flush's value says.
	 * Checks the peer's rights to it.
	 */
	int (*flush)(void *ctx, uint32_t rkey, uint64_t addr, uint64_t len, uint32_t flush);
	/*
	 * UC alone, or NULL: the message that has taken the receive is dropped. True: the receive has
	 * completed with an error. False: it stays taken, and the next message gets it.
	 */
	bool (*receive_lost)(void *ctx);
};

struct vb_message {
	enum { VB_NO_MESSAGE, VB_IN_SEND, VB_IN_WRITE } state;
	bool has_receive;		/* one is taken and not done */
	uint64_t offset;		/* bytes so far */
	uint64_t address;		/* where a WRITE begins, from its first packet */
	uint32_t rkey, length;
};

/* vb_message_execute returns this when the message is complete, and the connection must end behind it. */
enum { VB_MESSAGE_IS_LAST = 1 };

/*
 * packet: a SEND's or WRITE's. A negative errno as in vb_responder_ops: nothing was executed, but a receive
 * may have been taken.
 */
int vb_message_execute(struct vb_message *message, const struct vb_responder_ops *ops, void *ctx,
		       uint32_t mtu, const struct vb_packet *packet) VB_MUST_USE;

#endif
