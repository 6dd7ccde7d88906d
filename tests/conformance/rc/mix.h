/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What two ends are to do to each other, drawn from a seed: queue pairs with their queues, and, phase by
 * phase, what each end posts to each of them. Both ends draw the same, so each knows what is to come and with
 * which bytes. Pure: who waits how, and when anything is posted, is not part of it.
 *
 * A course is what one end posts to one queue pair in a phase. An act may wait for messages of the other end
 * (act.after), never in a circle.
 */
#ifndef VB_CONFORMANCE_MIX_H
#define VB_CONFORMANCE_MIX_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	MIX_QPS = 12,
	MIX_ACTS = 400,      /* of a course, at most */
	/* of completion queues: one channel each, and all that belongs to a queue pair is in one of them */
	MIX_GROUPS = 3,
	MIX_CQS = 3,         /* of a group */
	MIX_BYTES = 6 << 20, /* of each end's buffer */
	MIX_SRQ_BYTES = 2048, /* of a receive of a shared queue */
	MIX_SENDS = 64,      /* the deepest queues */
	MIX_PIECES = 3,      /* scatter/gather entries */
};

enum { MESSAGE = 1, PAYLOAD = 2, FETCHES = 4, LOCAL = 8, HAS_IMM = 16 };

/* kind, work request, its completion, how often, properties */
#define MIX_KINDS(X)                                                                                \
	X(SEND, IBV_WR_SEND, IBV_WC_SEND, 30, MESSAGE | PAYLOAD)                                    \
	X(SEND_IMM, IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, 8, MESSAGE | PAYLOAD | HAS_IMM)              \
	X(SEND_INV, IBV_WR_SEND_WITH_INV, IBV_WC_SEND, 2, MESSAGE | PAYLOAD)                        \
	X(WRITE, IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, 20, PAYLOAD)                                 \
	X(WRITE_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, 8, MESSAGE | PAYLOAD | HAS_IMM) \
	X(READ, IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, 12, FETCHES)                                    \
	X(ADD, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD, 4, FETCHES)                           \
	X(SWAP, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, 4, FETCHES)                            \
	X(TALLY, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD, 3, FETCHES) /* to a word that all queue pairs add to */ \
	X(BIND, IBV_WR_BIND_MW, IBV_WC_BIND_MW, 4, LOCAL)                                           \
	X(UNBIND, IBV_WR_LOCAL_INV, IBV_WC_LOCAL_INV, 4, LOCAL)                                     \
	X(DRAIN, 0, 0, 1, 0) /* no request: to SQD, and back when all before it is done */

#define MIX_ENUM(kind, ...) kind,
enum kind { MIX_KINDS(MIX_ENUM) KINDS };

struct kind_facts {
	const char *name;
	enum ibv_wr_opcode wr;
	enum ibv_wc_opcode wc;
	unsigned weight, is;
};
extern const struct kind_facts kinds[KINDS];

struct act {
	enum kind kind;
	bool quiet, solicited, fence, inlined;
	/* a WRITE: through the window that the peer has lent, or a SEND_INV: that ends it */
	bool lent;
	bool again;          /* a READ of what the course has written before */
	unsigned pieces;
	uint32_t len, imm;
	uint64_t at;         /* in the buffer of the end that posts: payload, or where the result goes; */
	uint64_t to;         /* in the other's: receive buffer (without a shared queue), target, source */
	uint64_t seed;       /* of the bytes */
	uint64_t compare, swap, found; /* atomics: found is what must be there, except of TALLY */
	unsigned after;      /* it waits for so many messages of the other direction */
};

struct course {
	unsigned n, nmessages;
	struct act act[MIX_ACTS];
	unsigned message[MIX_ACTS]; /* the acts that take a receive */
	uint64_t word;       /* in the other's buffer: what ADD and SWAP are about */
};

struct mix_qp {
	unsigned group, scq, rcq; /* within the group */
	bool srq;
	unsigned sends, recvs, inline_bytes;
};

struct mix_end {
	struct mix_qp qp[MIX_QPS];
	unsigned groups, cqs, srq_depth;
	unsigned threads;    /* of them each has its own groups, or */
	bool shares;         /* all have all */
};

struct mix {
	uint64_t seed, random;
	/* both ends poll all the time, and answer each other long enough for that to be counted on */
	bool hot;
	unsigned qps, phases, depth; /* depth: max_rd_atomic */
	struct mix_end end[2];       /* the active one, the passive one */
	unsigned unsignaled[MIX_QPS][2]; /* in a row, by now */
	/* Of this phase: [q][d] is posted by end d. */
	unsigned nth;
	struct course course[MIX_QPS][2];
	bool reset[MIX_QPS];         /* before it */
	uint64_t tally_at[2], counter[2]; /* in end's buffer, and what is there in the end */
	uint64_t srq_at[2];
	unsigned srq_messages[2];
	uint64_t used[2];            /* bytes of each end's buffer */
};

void mix_start(struct mix *m, uint64_t seed);
/* Draws the next phase. */
void mix_next(struct mix *m);

#endif
