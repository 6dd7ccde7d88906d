/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What two processes of one host share, as it lies in their arenas (adapter/memory/arena.h). Each process
 * writes its own arena only and reads its peers'. All of it is hostile input to the reader: load once, check,
 * then use.
 *
 * A connected RC QP and its peer each have a control block (struct vb_shm_qp) and a ring of entries (struct
 * vb_shm_entry):
 *
 *	requester                               responder
 *	writes an entry, its head last ------>  sees tag == expected position + 1, copies the entry,
 *	                                        executes it
 *	sees ack, completes            <------  writes ack: how many it has executed, and why it stopped
 *
 * An entry also carries an ack: how many entries of the opposite direction its writer has executed. So a
 * requester that gets an answer need not read the ack.
 *
 * Datagrams from one process to another lie in a ring of their own (struct vb_shm_datagram), one for each
 * direction of a link.
 *
 * A bell (struct vb_shm_bells) tells a process which of its QPs to look at, and nothing else. After a lost
 * one the process looks at all; a false one costs a look.
 *
 * Epochs: a QP that leaves RESET begins a new epoch. A requester sends once it sees that the QP at the other
 * end responds to it (VB_SHM_RESPONDS; service, dest_qpn and PSNs agree), and names that one's epoch in
 * bound_epoch; a responder serves a requester that is bound to its own epoch, and acks carry the requester's.
 * It takes up another epoch of that requester only if no message of the last one has begun; else the
 * requester binds to no epoch before the next. So nothing of an earlier connection can be taken for one of
 * this. An epoch is over when its QP leaves the path: its number changes first, then its ring, streams and
 * results of atomics become something else. A reader without a busy section looks at the epoch afterwards.
 *
 * Busy: whoever uses the other process's memory or entries for a QP makes its own block's busy odd before it
 * checks that it may, and even again after its last access (one word for its requester, one for its
 * responder). The owner revokes (a key, or by leaving its mode) and then waits for odd values to change.
 * Between making busy odd and checking there is a fence, as between revoking and looking at busy, so either
 * the user sees the revocation or the owner sees busy. Where the owner says that its fences are heavy ones
 * (arena->fences), the user's is a light one (host/memory/fence.h).
 */
#ifndef VB_LOCAL_SHARED_H
#define VB_LOCAL_SHARED_H

#include <infiniband/verbs.h>

#include "adapter/memory/arena.h"

/* mode: epoch << 8 | flags */
enum {
	VB_SHM_RESPONDS = 1, /* RTR and up, but of an XRC initiator: executes the peer's requests */
	VB_SHM_REQUESTS = 2, /* RTS and up: its entries are valid */
	VB_SHM_XRC = 4,      /* an XRC QP: its requests and answers are another service's than RC's */
};

static inline uint32_t vb_mode_epoch(uint32_t mode) { return mode >> 8; }
/* A QP takes what its own service sends, as on a wire. */
static inline bool vb_mode_is_other_service(uint32_t a, uint32_t b) { return (a ^ b) & VB_SHM_XRC; }
/* The epoch that follows; 0 is none. */
static inline uint32_t vb_next_epoch(uint32_t epoch) { return epoch >= 0xffffff ? 1 : epoch + 1; }

enum { VB_SHM_ATOMICS = 16 }; /* results kept: a requester has no more atomics under way */

struct vb_shm_qp {
	/* Configuration: changes when the QP is modified. */
	_Atomic(uint32_t) mode;
	_Atomic(uint32_t) bound_epoch;   /* of the peer's QP that this requester sends to */
	_Atomic(uint32_t) dest_qpn;
	_Atomic(uint32_t) pd;
	_Atomic(uint32_t) access;        /* qp_access_flags */
	_Atomic(uint32_t) psns[2];       /* sq_psn, rq_psn */
	_Atomic(uint32_t) ring_mask;     /* entries - 1 */
	_Atomic(uint64_t) ring;          /* arena offset */
	_Atomic(uint64_t) stages[2];     /* arena offsets of the request and response byte streams, 0: none */
	_Atomic(uint32_t) entry_bytes;
	_Atomic(uint16_t) rd_atomic;     /* max_dest_rd_atomic */
	_Atomic(uint8_t) rnr_retry;
	/* its owner looks at it by itself: entries and acks for it need no bell (local/doorbell.h) */
	_Atomic(uint8_t) polled;
	/* As responder. */
	VB_ALIGNED_LINE _Atomic(uint64_t) ack;
	/* what it was when the last epoch ended: its requester may not have seen it yet */
	_Atomic(uint64_t) last_ack;
	/* Odd while this side uses the other's memory, as requester and as responder. */
	VB_ALIGNED_LINE _Atomic(uint32_t) busy[2];
	/*
	 * Byte streams (link copies only): put by this side, as requester and as responder; taken by this
	 * side from the other's.
	 */
	VB_ALIGNED_LINE _Atomic(uint64_t) put[2];
	VB_ALIGNED_LINE _Atomic(uint64_t) taken[2];
	/* What the n-th atomic that this responder executed had found, at n modulo VB_SHM_ATOMICS. */
	VB_ALIGNED_LINE _Atomic(uint64_t) atomics[VB_SHM_ATOMICS];
	/* For captures alone (local/capture.h). */
	_Atomic(uint64_t) captured;
	/* For checks alone (check/peers.c). */
	_Atomic(uint32_t) path_mtu;      /* enum ibv_mtu */
};
_Static_assert(sizeof(struct vb_shm_qp) <= VB_QP_BLOCK, "fits its place in the arena");
_Static_assert(offsetof(struct vb_shm_qp, ack) == 64 && offsetof(struct vb_shm_qp, busy) == 128, "lines");
_Static_assert(offsetof(struct vb_shm_qp, put) == 192 && offsetof(struct vb_shm_qp, taken) == 256, "lines");
_Static_assert(offsetof(struct vb_shm_qp, atomics) == 320, "lines");

/* captured: position << 32 | 1 << 24 | PSN of the message there. */
static inline uint64_t vb_shm_captured(uint32_t position, uint32_t psn)
{
	return (uint64_t)position << 32 | 1u << 24 | (psn & 0xffffff);
}
static inline bool vb_shm_captured_is_for(uint64_t captured, uint32_t position)
{
	return (captured >> 24 & 1) && captured >> 32 == position;
}
static inline uint32_t vb_shm_captured_psn(uint64_t captured) { return captured & 0xffffff; }

enum vb_stream { VB_STREAM_REQUEST, VB_STREAM_RESPONSE };
enum { VB_STAGE_BYTES = 65536 };

/*
 * ack: consumed (low 32 bits) | epoch << 32 (24 bits) | status << 56. status is an enum ibv_wc_status for the
 * entry at `consumed`.
 */
static inline uint64_t vb_shm_ack(uint32_t consumed, uint32_t epoch, uint8_t status)
{
	return consumed | (uint64_t)(epoch & 0xffffff) << 32 | (uint64_t)status << 56;
}
static inline uint32_t vb_shm_ack_consumed(uint64_t ack) { return (uint32_t)ack; }
static inline uint32_t vb_shm_ack_epoch(uint64_t ack) { return ack >> 32 & 0xffffff; }
static inline uint8_t vb_shm_ack_status(uint64_t ack) { return ack >> 56; }

enum {
	/* Where the payload is: in the entry or in the request stream; else in the ranges of sge. */
	VB_SHM_INLINE = 1,
	VB_SHM_STAGED = 4,
	VB_SHM_SOLICITED = 2,
	VB_SHM_ACKS = 8, /* executed is valid: an ack of the epoch that the entry belongs to */
};

/* head: tag (low 32 bits) | opcode << 32 | flags << 40 | entries in sge << 48; tag: position + 1. */
static inline uint64_t vb_shm_head(uint32_t tag, uint8_t opcode, uint8_t flags, uint8_t nsge)
{
	return tag | (uint64_t)opcode << 32 | (uint64_t)flags << 40 | (uint64_t)nsge << 48;
}
static inline uint32_t vb_shm_head_tag(uint64_t head) { return (uint32_t)head; }
static inline uint8_t vb_shm_head_opcode(uint64_t head) { return head >> 32 & 0xff; }
static inline uint8_t vb_shm_head_flags(uint64_t head) { return head >> 40 & 0xff; }
static inline uint8_t vb_shm_head_nsge(uint64_t head) { return head >> 48 & 0xff; }

struct vb_shm_entry {
	_Atomic(uint64_t) head; /* written last */
	uint32_t length;
	uint32_t imm;
	uint64_t remote_addr;
	uint32_t rkey;
	union {
		uint32_t executed; /* entries of the opposite direction */
		uint32_t srqn;  /* of XRC, whose requester has nothing to acknowledge */
	};
	union {
		uint8_t data[32]; /* and more, up to the entry's end */
		struct ibv_sge sge[2];
		struct {
			uint64_t compare_add, swap;
		} atomic;
	};
};
_Static_assert(sizeof(struct vb_shm_entry) == 64, "a short message takes one cache line");
_Static_assert(offsetof(struct vb_shm_entry, data) == 32, "layout");

enum { VB_ENTRY_MIN_BYTES = 128, VB_ENTRY_MAX_BYTES = 2048 };

/*
 * A ring of bells from one process to another, lossy and self-describing: entry i of lap n holds (position +
 * 1) << 32 | QPN.
 */
enum {
	VB_BELLS = 1024,
	VB_BELL_FOR_ALL = 0, /* no QP's number: look at all that are connected to the ringing process */
};

struct vb_shm_bells {
	_Atomic(uint32_t) tail; /* positions handed out to ringing threads */
	VB_ALIGNED_LINE _Atomic(uint64_t) bell[VB_BELLS];
	/*
	 * arena offset of the ring of datagrams towards the receiver; 0: none yet. A bell for all tells of it
	 */
	_Atomic(uint64_t) ud_ring;
	_Atomic(uint32_t) ud_ring_taken; /* lines that this side has read of the other's */
	/*
	 * this side does not wait for the other any more, and has ended the link (local/cut.h). The other
	 * reads it at each copy
	 */
	VB_ALIGNED_LINE _Atomic(uint32_t) cut;
};

/*
 * A ring of datagrams: VB_UD_RING_LINES cache lines. A record is a head, addressing and a packet from the BTH
 * on, in lines that follow each other; one that would not fit before the ring's end begins at its start, and
 * a head alone says so. The line behind the last record has a head of 0. Positions count lines, modulo 2^32.
 * head: tag << 32 | bytes of the packet, or VB_UD_RING_WRAP; tag: position + 1.
 */
enum { VB_UD_RING_LINES = 1024, VB_UD_RING_BYTES = VB_UD_RING_LINES * VB_CACHE_LINE };
#define VB_UD_RING_WRAP UINT32_MAX

struct vb_shm_datagram {
	_Atomic(uint64_t) head; /* written last */
	struct in6_addr src, dst;
	uint32_t flow_label;
	uint16_t udp_sport;
	uint8_t traffic_class, hop_limit;
	uint8_t packet[];
};
_Static_assert(offsetof(struct vb_shm_datagram, packet) == 48, "layout");

static inline uint64_t vb_ud_ring_head(uint32_t position, uint32_t bytes)
{
	return (uint64_t)(position + 1) << 32 | bytes;
}

/*
 * The first message on a link, from both ends, with the arena's memfd and the eventfds of progress thread and
 * leader.
 */
#define VB_LINK_MAGIC 0x316b6e694c425656ull

struct vb_link_hello {
	uint64_t magic;
	uint32_t version;
	uint32_t first_slot;
	uint64_t nonce;          /* the arena's */
	uint64_t bells;          /* arena offset of the ring towards the receiver */
	uint64_t arena_bytes;
	uint64_t arena_address;  /* where the sender has its arena: its nonce is there for a trial copy */
};
_Static_assert(sizeof(struct vb_link_hello) == 48, "layout");

#endif
