/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program with one device, over the fake host: a protection domain, a completion queue, memory in zones,
 * and queue pairs. It keeps account of what it has posted, and of what anybody may do to its memory.
 *
 *	zone       registered for           in the domain   may change
 *	OPEN       everything               the queue pairs'  at any time
 *	READABLE   remote reads             the queue pairs'  never
 *	RECEIVES   local writes             the queue pairs'  where a receive is or was posted
 *	ANSWERS    local writes             the queue pairs'  where the answer of a READ or atomic may come
 *	SOURCES    local reads              the queue pairs'  never
 *	FOREIGN    everything               another           never
 *	SECRET     not                                        never; and it may not leave
 * Between the zones, and around them, lies more of the secret.
 */
#ifndef VB_RIG_H
#define VB_RIG_H

#include "adapter/object.h"
#include "fuzz.h"

enum rig_zone { OPEN, READABLE, RECEIVES, ANSWERS, SOURCES, FOREIGN, SECRET, ZONES };

enum { ZONE_BYTES = 8192, MAX_POSTED = 64, RIG_QPS = 5 };

struct rig_qp {
	struct vb_qp qp;
	bool exists;
	/* since the last reset; work requests are numbered in this order */
	uint64_t sends, sends_done, receives, receives_done;
};

struct rig {
	struct vb_context ctx;
	struct vb_pd pd, other_pd;
	struct vb_cq cq;
	struct vb_mr mrs[ZONES];
	struct rig_qp qps[RIG_QPS];
	unsigned successes;	/* completions of that kind so far */
};

extern struct rig rig;

void rig_set_up(void);
/* All queue pairs go first; each one's completions must be complete by then. */
void rig_tear_down(void);

struct rig_qp *rig_add_qp(enum ibv_qp_type type);
void rig_remove_qp(struct rig_qp *q);
/* RESET to INIT to RTR to RTS, as far as it goes. address: of the other end, IPv4. */
int rig_connect(struct rig_qp *q, uint32_t address, uint32_t dest_qpn, uint8_t rnr_retry);
int rig_move(struct rig_qp *q, enum ibv_qp_state state);

/* Posts, the rest of the request taken from the input. */
void rig_post_send(struct rig_qp *q, struct fuzz_input *in, struct ibv_ah *ah, uint32_t qpn);
void rig_post_receive(struct rig_qp *q, struct fuzz_input *in);
/* A message from one to the other, of two that have nothing to do with any peer. */
void rig_talk(struct rig_qp *left, struct rig_qp *right);
/* Deregisters a zone and registers it again, under another key. */
void rig_register_again(enum rig_zone zone);
uint8_t *rig_at(enum rig_zone zone);

/* Takes completions: in order, each once, of known statuses. */
void rig_poll(void);
/* That no memory was written that may not be. */
void rig_check_memory(void);
/* Is any of the secret in there? */
bool rig_is_secret(const void *bytes, size_t len);
/* What fake.touched is to be: the memory that is read for a peer, or written. */
void rig_touched(const void *at, size_t bytes, bool written);
void rig_left(const void *bytes, size_t len);

#endif
