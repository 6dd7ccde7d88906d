/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What carries a connected QP's traffic. The adapter keeps the queues; a path takes send queue entries in
 * order from sq.sent on, completes them with vb_sq_complete or vb_qp_fail, and takes receives for what
 * arrives. A QP gets its path on the way to RTR and loses it on the way to RESET, ERR or destruction.
 *
 * All paths have claims, attach, stop, detach, send and run; several have update, unlink, arrived, claim_news
 * (with take_news) and describe. The others are of shared memory, where a peer reads what a post wrote, and
 * writes without a system call: take is UD's, the rest the local path's. The adapter asks by this table what
 * only one path can do, too, because it knows none of them. A path leaves NULL what it has nothing to do for.
 */
#ifndef VB_ADAPTER_PATH_H
#define VB_ADAPTER_PATH_H

#include "adapter/progress/progress.h"
#include "host/inspect.h"

struct vb_packet;
struct vb_prefetch_hint;

enum vb_path_rank { VB_PATH_LOCAL, VB_PATH_WIRE };
enum vb_post_result { VB_POST_NOT /* nothing has happened */,
	VB_POST_SENT /* it waits for the peer's answer */, VB_POST_DONE /* with success */ };
enum vb_claim { VB_CLAIM_NONE, VB_CLAIM_SENDS /* sq.lock is held */, VB_CLAIM_ARRIVALS /* resp_lock is */ };

struct vb_path_ops {
	const char *name;
	enum vb_path_rank rank; /* paths of a lower one are asked first */
	/*
	 * Could this path reach the QP's remote address? Attributes are set, state is still INIT. If so it
	 * may leave in path_state what attach, which follows, takes up; if not, in `declined` what holds as
	 * long as the QP is connected by another path.
	 */
	bool (*claims)(struct vb_qp *qp);
	/*
	 * Takes back what claims has left in `declined`: the QP has left the other path, or did not get it.
	 */
	void (*unclaim)(struct vb_qp *qp);
	/*
	 * INIT to RTR: makes path_state; requests of the peer may be executed from now on. Negative errno:
	 * the transition fails.
	 */
	int (*attach)(struct vb_qp *qp);
	/* RTR to RTS, or attributes changed while connected (access rights, RNR timer, timeouts). */
	void (*update)(struct vb_qp *qp);
	/*
	 * Stops all traffic: from its return on nobody touches memory on this QP's behalf, and no further
	 * completion comes from the path. What the peer had already finished has been completed. sq.lock and
	 * resp_lock are held.
	 */
	void (*stop)(struct vb_qp *qp);
	/*
	 * After stop: nothing new will be queued for the QP from its return on (timers, the peer's end). No
	 * lock held.
	 */
	void (*unlink)(struct vb_qp *qp);
	/* Frees path_state; after unlink, with no progress running on the QP. */
	void (*detach)(struct vb_qp *qp);
	/*
	 * Entries were posted. sq.lock is held; it may be released meanwhile, and the QP may have failed by
	 * the return.
	 */
	void (*send)(struct vb_qp *qp);
	/*
	 * May carry out a request of `length` bytes straight from the work request, before there is an entry
	 * for it: a SEND behind entries that were all handed over, a WRITE or READ behind none, in state RTS,
	 * when there is room for an entry. sq.lock is held.
	 */
	enum vb_post_result (*try_post)(struct vb_qp *qp, const struct ibv_send_wr *wr, uint32_t length);
	/* Where the next post of this kind will look, beyond path_state, for hint->there. sq.lock is held. */
	void (*hint_prefetch)(struct vb_qp *qp, enum ibv_wr_opcode opcode, struct vb_prefetch_hint *hint);
	/* A receive was posted for a starved responder. No lock held. */
	void (*receive)(struct vb_qp *qp);
	/*
	 * Goes on with work that vb_progress_schedule has queued, of which rendezvous are a part
	 * (vb_tags_run). No lock held; path_state stays.
	 */
	void (*run)(struct vb_qp *qp);
	/*
	 * A packet for the QP has come, by UDP or an inbox: hostile input. True: the QP has an answer to
	 * send, for which run is called at the end of the batch, so that one answers many packets. As run.
	 */
	bool (*arrived)(struct vb_qp *qp, const struct vb_inbox_msg *msg, const struct vb_packet *packet);
	/*
	 * Several QPs are about to be run: what this one will look at is fetched into the cache meanwhile. As
	 * run.
	 */
	void (*fetch)(struct vb_qp *qp);
	/*
	 * Has something happened to the QP? If so, takes its sq.lock or resp_lock, which keeps the QP, unless
	 * that one is held. If not, this costs a few loads. A CQ's lock is held, under which path_state
	 * stays.
	 */
	enum vb_claim (*claim_news)(struct vb_qp *qp);
	/* Takes what was claimed, and releases it; the CQ's lock is not held. */
	void (*take_news)(struct vb_qp *qp, enum vb_claim claim);
	/*
	 * Looks for arrivals; true if there were some. Holds vb_progress_lock. Calls vb_progress_schedule for
	 * the QPs concerned.
	 */
	bool (*poll)(void);
	/*
	 * Takes what others have put into shared memory, for any QP; true if there was something. No lock
	 * held. One path's at most, and asked only once vb_path_takes is set.
	 */
	bool (*take)(void);
	/* arena->asleep was set: peers must ring from now on. Queues what they did before without ringing. */
	void (*sleep)(void);
	/*
	 * The program waits, or has not come back for a tick: rings what was delayed
	 * (vb_progress_is_ticking).
	 */
	void (*ring_delayed)(void);
	/*
	 * Is there anything that a poll would find? Asked after arena->asleep was set, before the thread
	 * sleeps.
	 */
	bool (*is_pending)(void);
	/*
	 * What there is to say of the connection: peer_pid, copy, again, retries. A reference is held, no
	 * lock.
	 */
	void (*describe)(struct vb_qp *qp, struct vb_record_qp *record);
	/*
	 * Adds what the path has counted (adapter/inspection/counts.h). path_state stays; traffic may go on
	 * meanwhile.
	 */
	void (*count)(const struct vb_qp *qp, struct vb_counts *counts);
};

/*
 * The RoCE port's input and output, which all QPs share. Threads that poll drive it, and the progress thread.
 */
struct vb_path_io {
	/* Takes what has arrived; true if there was something. No lock held. */
	bool (*pump)(void);
	/*
	 * Shall the progress thread wake up for arrivals? Not while a program polls. True: it wakes up in any
	 * case, so nobody needs the poller's polls.
	 */
	bool (*set_wakeup)(bool wake);
	/* A hint: a thread is in the middle of taking arrivals, or of sending. */
	bool (*is_busy)(void);
	/* A hint: something has arrived that nobody has taken yet. */
	bool (*has_arrivals)(void);
};

/* Set once, by a constructor. */
void vb_path_set_io(const struct vb_path_io *io);
/*
 * Takes what has arrived in shared memory and from the network. While messages keep coming through shared
 * memory, most polls skip the network.
 */
bool vb_path_pump(void);
/*
 * Something has come, or been done, through shared memory: threads that poll look at the network more rarely
 * for a while.
 */
extern atomic_bool vb_path_shm_news;
static inline void vb_path_note_shm(void)
{
	if (vb_unlikely(!atomic_load_explicit(&vb_path_shm_news, memory_order_relaxed)))
		atomic_store_explicit(&vb_path_shm_news, true, memory_order_relaxed);
}
extern atomic_bool vb_path_takes;
/* How many more polls between rounds look for arrivals in shared memory. */
extern atomic_uint vb_path_shm_polls;
bool vb_path_take_expected(void); /* nothing in a forked child, until it has a path that takes */
/* For polls between two rounds: looks at shared memory alone, and only if something came there lately. */
static inline bool vb_path_peek(void)
{
	return vb_unlikely(atomic_load_explicit(&vb_path_shm_polls, memory_order_relaxed)) &&
	       vb_path_take_expected();
}

bool vb_path_set_wakeup(bool wake);
bool vb_path_is_busy(void);
bool vb_path_has_arrivals(void);

/* One of a QP's locks, for claim_news. A QP leaves its path under both, so it cannot while one is held. */
static inline bool vb_path_claim(struct vb_qp *qp, struct vb_lock *lock)
{
	if (vb_unlikely(!vb_lock_try(lock))) {
		vb_progress_retry(qp);
		return false;
	}
	if (vb_likely(atomic_load_explicit(&qp->path, memory_order_relaxed) != NULL))
		return true;
	vb_unlock(lock);
	return false;
}

/* Called by constructors, in any order. At most 8. */
void vb_path_register(struct vb_path_ops *path);
/* Each of them, so that a tool can put itself in front of some of its functions; before any is used. */
void vb_path_change_all(void (*change)(struct vb_path_ops *path));
const struct vb_path_ops *vb_path_choose(struct vb_qp *qp);
void vb_path_unclaim(struct vb_qp *qp);
bool vb_path_poll_all(void);
void vb_path_sleep(void);
void vb_path_ring_delayed(void);
bool vb_path_is_pending(void);

#endif
