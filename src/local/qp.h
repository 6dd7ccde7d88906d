/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A QP's half of a local connection. The requester half (under qp->sq.lock) turns send queue entries into
 * entries of the shared ring, or executes one-sided operations itself while nothing is queued ahead; the
 * responder half (under qp->resp_lock) executes the entries of the peer. Formats and rules of the shared
 * memory: local/shared.h.
 */
#ifndef VB_LOCAL_QP_H
#define VB_LOCAL_QP_H

#include "adapter/memory/busy.h"
#include "adapter/memory/key.h"
#include "adapter/progress/path.h"
#include "adapter/execution/execute.h"
#include "adapter/xrc/xrc_protocol.h"
#include "host/memory/fence.h"
#include "local/peer.h"

enum {
	/* moved at a time, so that no call blocks for long and no lock is held for long */
	VB_SLICE_BYTES = 1 << 20,
	VB_SERVE_BATCH = 64,      /* entries executed in one go */
};

/* The entry that the responder works on, copied out of the peer's memory. */
struct vb_entry_copy {
	uint8_t opcode, flags, nsge;
	uint32_t length, imm, rkey, srqn;
	uint64_t remote_addr, compare_add, swap;
	/*
	 * in the peer's ring: what is inline, or else the requester's list, which every step copies and
	 * checks
	 */
	const uint8_t *payload;
	uint64_t done;                /* bytes moved so far */
};

/* The first bytes of a request for another process's queue, kept for a capture (capture.c). */
struct vb_passed {
	uint64_t bytes;
	uint32_t at; /* the request's ring position */
	uint8_t data[];
};

/* What is on its way to or from another process's queue (xrc_remote.c). */
struct vb_piece {
	uint8_t bytes[VB_XRC_DATA_BYTES];
};

/* local/translation.h */
struct vb_translation {
	uint32_t our_generation, their_generation;
	uint32_t lkey;
	uint32_t our_bytes;   /* of the known part of the local region; 0: none is known */
	uint64_t ours;        /* where that begins, in requests and in this process */
	/* requests in a row with these keys that found nothing here, modulo 256 */
	uint8_t streak;
	bool is_made;
};

/* Of requests that also name memory of the peer. */
struct vb_remote_translation {
	struct vb_translation local;
	uint32_t rkey;
	uint32_t their_bytes; /* of the known part of the remote region; 0: none is known */
	uint64_t theirs;      /* where that begins in requests, */
	uint8_t *there;       /* and in this process */
};

/*
 * What a message looks at comes first, in two cache lines: with many QPs each line that is not in a near
 * cache costs as much as the rest.
 */
struct vb_local_qp {
	struct vb_qp *qp;
	struct vb_peer *peer;                       /* NULL: nobody is there */
	struct vb_shm_qp *mine;
	_Atomic(const struct vb_shm_qp *) theirs;   /* set once the peer is UP */
	uint32_t their_qpn;
	uint32_t epoch;                             /* of this QP, 24 bits */

	struct {
		uint8_t *ring;
		_Atomic(uint64_t) seen_ack;         /* the peer's ack when it was last looked at */
		uint16_t entry_bytes;
		uint16_t fetches_out;               /* READs and atomics published and not completed */
		bool bound;
		/* a WRITE was this side's own stores, and no READ came since (vb_order_read) */
		bool has_stored;
		bool waiting;                       /* give_up runs: the peer's QP does not respond */
		/* not all that was posted is complete. False positives; set before an entry is seen */
		atomic_bool pending;
		uint32_t published;
		_Atomic(uint32_t) acked;
		/*
		 * after the last entry whose ack something depends on: a completion, what is posted behind it
		 */
		_Atomic(uint32_t) awaited;
		/* the ack that came with the peer's last entry; written under resp_lock */
		_Atomic(uint32_t) piggybacked_ack;
		_Atomic(uint32_t) bound_epoch;
		/* polls since the last entry; one in how many reads the peer's ack (local/doorbell.h) */
		_Atomic(uint8_t) ack_polls, ack_interval;
		/* bytes of the oldest entry that this side has moved itself */
		uint64_t moved;
	} req;

	struct {
		_Atomic(const uint8_t *) ring;      /* NULL: no requester was taken up yet */
		_Atomic(uint32_t) next;             /* the peer's ring position to execute */
		_Atomic(uint32_t) their_epoch;      /* the one that was taken up last; 0: none was */
		uint16_t ring_mask, entry_bytes;
		/* the peer's requester of their_epoch is bound to us, and was not refused */
		atomic_bool serving;
		atomic_bool active;                 /* there is a request that is worked on, cur, */
		atomic_bool waits;                  /* which cannot go on by itself */
		/* the request is for a queue of another process, and so is the receive (xrc_remote.c) */
		bool is_remote;
		bool rnr_armed;
		atomic_bool rnr_expired;
		atomic_bool is_bell_delayed;        /* an ack's (local/doorbell.h) */
	} resp;

	/* Here begins what not every message needs. */
	struct vb_remote_translation to_write;
	atomic_uint hits;                           /* news that polls have found, towards its being polled */
	uint32_t starved_at;                        /* the request that was counted last: its position + 1 */
	struct vb_translation to_send, to_receive;  /* a line */
	struct vb_remote_translation to_read;
	struct vb_entry_copy cur;
	uint32_t atomics_taken;                     /* results, as requester */
	uint32_t atomics_out;                       /* atomics published and not acked */
	uint32_t atomics_executed;
	/* bytes of the entry that is being staged that have gone into the request stream */
	uint64_t staged;
	uint32_t staging;                           /* its ring position */
	atomic_bool expired;                        /* give_up has */

	/*
	 * For a capture (local/capture.h): the requester's part under sq.lock, the responder's under
	 * resp_lock.
	 */
	struct {
		unsigned req_serial, resp_serial;   /* of the capture that the numbers are of */
		bool is_fresh;                      /* the responder does not know it yet */
		uint32_t first;                     /* ring position */
		/* of the next message, and of the next in the ring to be answered */
		uint32_t psn, answered_psn, msn;
		uint32_t expected, served;
		struct vb_passed *passed;           /* of a request for another process's queue */
	} capture;

	struct vb_timer give_up, rnr, again;        /* again: for a receive of another process's queue */
	struct vb_piece *piece;                     /* NULL: nothing went through it yet */
	struct vb_list node;                        /* in peer->qps */
	struct vb_list attached_node;               /* in local.c's list of all, */
	uint64_t number;                            /* in the order of these, from 1 */
	struct vb_list delayed_node;                /* in doorbell.c's list */
	enum vb_peer_end end;                       /* under vb_progress_lock */
	/* Statistics. sq.lock protects what was received, resp_lock the others. */
	uint64_t naks_received, rnr_received, naks_sent, starved;
	uint8_t *stage[2];                          /* our byte streams, or NULL */
	/* that was cut while it read our ring or a stream (a reference), or NULL; */
	struct vb_peer *reader;
	const _Atomic(uint32_t) *read_in;           /* its two busy words, */
	uint32_t read_since[2];                     /* and what they were */
	/* Last: there is memory for the entries that a receive can have. */
	struct vb_execution execution;
};
_Static_assert(offsetof(struct vb_local_qp, to_write) == 2 * VB_CACHE_LINE &&
	       offsetof(struct vb_local_qp, to_send) == 3 * VB_CACHE_LINE, "lines");
_Static_assert(VB_ENTRY_MAX_BYTES <= UINT16_MAX && 2 * VB_MAX_WR - 1 <= UINT16_MAX,
	       "rings are described in 16 bits");

static inline struct vb_local_qp *vb_local_of(const struct vb_qp *qp) { return qp->path_state; }

/* ---- requester.c: sq.lock is held ---- */

/* Sends what has been posted. */
void vb_requester_send(struct vb_local_qp *l);
/* The peer responds in this mode: is it to us? Then the requester is bound to the epoch that the mode has. */
bool vb_requester_bind(struct vb_local_qp *l, uint32_t mode);
/*
 * Can a look do nothing, since nothing is under way and the peer responds as before? Without locks; what is
 * posted meanwhile its post looks after.
 */
bool vb_requester_is_idle(struct vb_local_qp *l);
/* Acks, then whatever can go out. */
void vb_requester_look(struct vb_local_qp *l);
/* Completes what the peer has acknowledged; false if the QP failed over it. */
bool vb_requester_take_acks(struct vb_local_qp *l);
/* The same when the QP is being stopped: nothing fails over it. */
void vb_requester_take_last_acks(struct vb_local_qp *l);
/*
 * Something else than a completion waits for the acks of what was published: polls look for them. sq.lock is
 * held.
 */
void vb_requester_await_acks(struct vb_local_qp *l);
/* Completes what a piggybacked ack covers; nothing fails over it. */
void vb_requester_take_piggybacked_ack(struct vb_local_qp *l);
void vb_requester_give_up(struct vb_timer *timer, uint64_t now_ns);

/* ---- post.c ---- */

/* struct vb_path_ops.try_post */
enum vb_post_result vb_local_try_post(struct vb_qp *qp, const struct ibv_send_wr *wr, uint32_t length);

/* ---- responder.c: resp_lock is held ---- */

/* What executing the peer's requests has led to beyond completions. */
struct vb_verdict {
	bool more;      /* look again soon */
	bool broken;    /* this QP must go to the error state */
	int event;      /* raise with it; -1: none */
};

struct vb_verdict vb_responder_serve(struct vb_local_qp *l);
/* Is there something to execute, or has it to be tried? Without locks: a hint. */
bool vb_responder_has_news(const struct vb_local_qp *l);
/* Fetches the entries that are next, and the receive, into the cache. Without locks. */
void vb_responder_fetch(const struct vb_local_qp *l);

/* ---- shared by both ---- */

/*
 * Looks the peer's control block up once its link is UP; false: not known yet. Any thread that holds a
 * reference or a lock of the QP.
 */
bool vb_local_find_theirs(struct vb_local_qp *l);

/* Will the revoker, on either side, make the fence that the user leaves out? */
static inline bool vb_busy_is_light(const struct vb_local_qp *l)
{
	return vb_fence_is_light() && atomic_load_explicit(&l->peer->arena->fences, memory_order_relaxed);
}

/* Half: VB_STREAM_REQUEST as requester, VB_STREAM_RESPONSE as responder. */
static inline void vb_busy_begin(struct vb_local_qp *l, enum vb_stream half)
{
	_Atomic(uint32_t) *busy = &l->mine->busy[half];
	/* Before all that the section looks at: pairs with vb_fence_users. */
	if (vb_likely(vb_busy_is_light(l)))
		vb_busy_word_begin_lightly(busy);
	else
		vb_busy_word_begin_fully(busy);
}

static inline void vb_busy_end(struct vb_local_qp *l, enum vb_stream half)
{
	vb_busy_word_end(&l->mine->busy[half]);
}

#endif
