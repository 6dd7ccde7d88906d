/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One end that carries out a plan (mix.h). mix_work.c posts the acts, and compares what completes with them
 * one by one; test_mix.c decides who does so when, and how it is waited for.
 */
#ifndef VB_CONFORMANCE_MIX_RUN_H
#define VB_CONFORMANCE_MIX_RUN_H

#include "mix.h"
#include "rc.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MIX_BATCH = 8 }; /* posted, or polled, at once */

/* One queue pair at this end. `done` and `given` are of this phase. */
struct side {
	struct ibv_qp *qp;
	const struct mix_qp *plan;
	struct ibv_mw *own, *lent;
	uint32_t own_rkey, lent_rkey, peers_rkey; /* the last: of the window that the peer has lent */
	struct course *out, *in;
	unsigned posted, done; /* of out; the last completion told that all before `done` are */
	unsigned told;         /* messages among the posted */
	unsigned places, carried; /* in the send queue that are taken; by the phase before */
	unsigned given, taken; /* receives: posted, completed; of in's messages */
	unsigned seen;         /* of in, up to the last message that has come */
	bool draining, posts_meanwhile;
	atomic_bool drained;
};

struct group {
	pthread_mutex_t lock;  /* of its sides and queues */
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq[MIX_CQS];
	unsigned first_cq;
	atomic_bool is_over;   /* nothing is left of the phase */
};

struct party {
	struct end *e;
	struct mix *m;
	const struct mix_end *plan;
	struct side side[MIX_QPS];
	struct group group[MIX_GROUPS];
	pthread_mutex_t srq_lock;
	unsigned srq_given;
	bool srq_used[MIX_QPS * MIX_ACTS];
	unsigned eagerness;    /* one step in so many posts */
	int way;               /* to wait (test_mix.c: WAYS), */
	bool sticks_to_it;     /* else any other now and then */
	atomic_uint draining;
	pthread_mutex_t events_lock;
	uint64_t random;
};

extern atomic_ulong mix_steps; /* of all kinds: stands still in a stall */

static inline unsigned d_of(const struct party *p) { return p->e->passive; }
static inline unsigned nth_of(const struct party *p, const struct side *s) { return (unsigned)(s - p->side); }

/* What the end has come to, on standard error. */
void mix_tell(const struct party *p);

/* Which seed a failed check belongs to. */
#define MUST(p, condition)                                     \
	do {                                                   \
		if (!(condition)) {                            \
			mix_tell(p);                         \
			CHECK(condition);                      \
		}                                              \
	} while (0)
#define MUST_EQ(p, got, want)                                              \
	do {                                                               \
		long long is_ = (long long)(got), must_ = (long long)(want); \
		if (is_ != must_)                                          \
			mix_tell(p);                                     \
		CHECK_EQ(is_, must_);                                      \
	} while (0)

/* ---- the group's lock is held ---- */

/* May this act be posted, beside `more` others that are not yet? */
bool mix_may_post(const struct side *s, unsigned i, unsigned more);
/* One at least, which may. builds: by ibv_wr_start. */
void mix_post(struct party *p, struct side *s, unsigned most, bool builds);
/* The next act, which is a DRAIN. */
void mix_drain(struct party *p, struct side *s, bool posts_meanwhile);
void mix_look_whether_drained(struct party *p, struct side *s);
/* Receives. */
bool mix_may_give(const struct side *s);
void mix_give(struct party *p, struct side *s);
void mix_take(struct party *p, struct group *g, unsigned cq, const struct ibv_wc *wc);
/* What the acts up to this one have written is there. */
void mix_check_writes(struct party *p, struct side *s, unsigned until);

/* ---- no lock held ---- */

void mix_give_shared(struct party *p, unsigned n);
/* All of the buffer: for windows. */
struct ibv_mw_bind_info mix_own_window(struct party *p);
void mix_verify(struct party *p, uint64_t at, size_t n, uint64_t seed);

#endif
