/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * VERBATIM_CHECK: mistakes of the program that an adapter lets pass, or answers with a number. Each finding
 * is a sentence that names the object, the place in the program and the page to read (verbatim-checks(7) has
 * them all).
 *
 * While it is off, the hot path has none of it. Opening a device wraps what inline verbs call through tables
 * (verbs/checked_ops.c), starting wraps the paths' tables once (sends.c), and other verbs test
 * vb_check_enabled.
 *
 * While it is on, a send waits until the program polls, for 1 ms at most, as it would in a queue of hardware.
 * Nothing has been done with the request by then, so a change of its buffer between post and completion is a
 * mistake, and is seen.
 *
 * A finding is certain: what may be right is not reported. The same sentence, apart from its numbers, is
 * reported once for a place (or an object, where no place is known), and counted from then on. So many are
 * remembered; that there are more is reported, too.
 *
 * Threading: any. A QP and a CQ own their side records (vb_qp.checked, vb_cq.checked); the QP's is under its
 * sq.lock. The tables of keys and of findings have locks of their own, under which no other is taken.
 */
#ifndef VB_CHECK_CHECK_H
#define VB_CHECK_CHECK_H

#include "adapter/memory/ranges.h"
#include "adapter/object.h"
#include "check/words.h"
#include "host/trace.h"

/* Set before the first device is opened, and constant. */
extern bool vb_check_enabled;

/* ---- setting.c ---- */

/* Before a device is opened. */
void vb_check_start(void);

/* ---- report.c ---- */

/* Before the first report: which checks count, and whether a finding ends the program. */
void vb_check_choose(const bool on[VB_CHECK_COUNT], bool ends_program);
/* A place in the program, and what it did there: "posted", "registered". */
struct vb_place {
	const char *did;
	const struct vb_trace *trace;
};

/*
 * Reports a finding. page NULL: the check's. place NULL: no place of the program is known. object: what the
 * finding is about, if it has no place. errno is kept.
 */
void vb_check_report(enum vb_check check, const char *page, const struct vb_place *place, const void *object,
		     const char *fmt, ...) __attribute__((cold, format(printf, 5, 6)));
/* A place of the program in words, such as "main (send.c:42)". */
void vb_check_place_text(const struct vb_trace *trace, char *text, size_t size);
/* The same where the calling thread is now. */
void vb_check_report_here(enum vb_check check, const char *page, const char *fmt, ...)
	__attribute__((cold, format(printf, 3, 4)));
/* A request failed, for a reason that the adapter knows. */
void vb_check_send_failed(struct vb_qp *qp, const struct vb_sqe *sqe, enum ibv_wc_status status,
			  const char *why);
/* Did verbatim's librdmacm do it, on its own? */
bool vb_check_is_internal(const struct vb_trace *trace);
/* What vb_explain says (base/log.h). */
void vb_check_explained(const char *call, const char *sentence);

/* ---- held.c ---- */

/* The queue pair runs when the program polls, arms or waits, or after 1 ms. sq.lock is held. */
void vb_check_hold(struct vb_checked_qp *checked);
/* Before the queue pair is destroyed. */
void vb_check_hold_no_more(struct vb_checked_qp *checked);
/* Must the calling thread leave the queue pair alone? Only the progress thread must, while it is held. */
bool vb_check_is_held(struct vb_checked_qp *checked);
/* The program polls, arms or waits, or the time is over: all that are held run. */
void vb_check_run_held(void);

/* ---- sends.c ---- */

struct vb_posted {
	uint64_t sum;      /* of the bytes that are sent */
	bool is_summed;
	struct vb_trace at;
};

struct vb_checked_qp {
	/* by position, as many as the send queue has slots; made with the first post */
	struct vb_posted *posted;
	/*
	 * likewise, but by the program's requests alone, without the adapter's own entries (VB_SQE_OWN): how
	 * many requests with a completion came before
	 */
	uint32_t *signals_before;
	uint32_t seen;            /* positions up to here are noted, */
	uint32_t compared;        /* and up to here were compared and released */
	uint32_t signals, own;    /* requests with a completion, and own entries, of all that are noted */
	uint32_t most;            /* completions that were under way at once */
	atomic_bool is_compared_to_peer;
	atomic_bool is_starving;  /* the timer runs */
	atomic_uint posted_then;  /* receives, when it was set */
	struct vb_timer starving;
	struct vb_list held;      /* held.c */
	atomic_bool is_due;       /* it was held, and is scheduled */
	struct vb_qp *qp;
	/* when a post found the queue full whose completions were never polled; 0: none has */
	_Atomic(uint64_t) full_since;
	atomic_uint user;         /* the thread that posts now (threads.c) */
	bool is_single_threaded;
};

/* Wraps the paths, so that sends are held. */
void vb_check_hold_all_sends(void);
/* Sends what is held, before the queue pair changes its state. */
void vb_check_release_sends(struct vb_qp *qp);
/* The same for all queue pairs, before something depends on how many completions wait. */
void vb_check_release_all_sends(void);
/* If the peer is a process of this host: do both sides' attributes agree? A reference is held, no lock. */
void vb_check_compare_to_peer(struct vb_qp *qp);
/* Is the peer's queue pair known to be there? */
bool vb_check_peer_responds(struct vb_qp *qp);
/* Where the request at this position was posted; NULL: not noted. sq.lock is held. */
const struct vb_trace *vb_check_posted_at(const struct vb_qp *qp, uint32_t position);
/* Signaled requests that are posted and not polled. sq.lock is held. */
uint32_t vb_check_awaited(const struct vb_qp *qp);

/* Before a region is deregistered, or registered anew: do sends under way use it? */
void vb_check_key_end(const struct vb_mr *mr, bool is_anew);

/* ---- queues.c: objects are made and destroyed ---- */

void vb_check_qp_begin(struct vb_qp *qp, bool is_single_threaded);
/* After a transition to RESET. */
void vb_check_qp_reset(struct vb_qp *qp);
/* Before it is destroyed, and once it is. */
void vb_check_qp_end(struct vb_qp *qp);
void vb_check_qp_gone(struct vb_checked_qp *checked);

struct vb_checked_cq {
	atomic_bool is_polled; /* a poll has found something */
	/* vb_lock_self of the thread that polled or armed it last; 0: none has */
	_Atomic(uintptr_t) last_user;
	atomic_uint user;
	bool is_single_threaded;
	struct vb_trace made;
};

void vb_check_cq_begin(struct vb_cq *cq);
/* Before it is destroyed, as below. */
void vb_check_cq_end(struct vb_cq *cq);
void vb_check_srq_end(struct vb_srq *srq);
void vb_check_cq_gone(struct vb_checked_cq *checked);
/* After a post to one of the queue pair's queues. */
void vb_check_room(struct vb_qp *qp);
/* A post of sends was refused with this errno value. */
void vb_check_send_refused(struct vb_qp *qp, int err);
/* A completion queue has overrun. */
void vb_check_cq_overran(struct vb_cq *cq, const struct vb_qp *qp);

/* ---- events.c ---- */

/* Of a thread in ibv_get_cq_event. */
struct vb_check_wait {
	struct vb_timer timer;
	struct vb_channel *channel;
	uintptr_t thread; /* its vb_lock_self */
	bool was_stuck;   /* at the last look */
	struct vb_trace at;
};

/* The calling thread polls or arms it. */
void vb_check_cq_used(struct vb_cq *cq);
/* Before the calling thread waits, and afterwards; the end is for pthread_cleanup_push, too. */
void vb_check_wait_begin(struct vb_check_wait *wait, struct vb_channel *channel);
void vb_check_wait_end(void *wait);

/* ---- receives.c ---- */

/* Before they are posted. srq: NULL for the queue pair's own queue, else qp is. */
void vb_check_receives(const struct vb_qp *qp, const struct vb_srq *srq, const struct ibv_recv_wr *wr);
void vb_check_starved(struct vb_qp *qp, uint64_t retry_ns);
void vb_check_starving_fired(struct vb_timer *timer, uint64_t now_ns);

/* ---- keys.c: what keys stand for, and the last ones stood for ---- */

void vb_check_key_made(const struct vb_mr *mr);
/* Once it is deregistered. */
void vb_check_key_gone(uint32_t key);
const char *vb_check_key_story(enum vb_key_fault fault, const struct vb_key_use *use);
const char *vb_check_rights_story(const struct vb_qp *qp, unsigned access);
/* Is each entry of a list valid for these rights? If not, reports a finding, which begins with `what`. */
bool vb_check_list(struct vb_sg_list list, unsigned access, const char *what);

/* ---- threads.c ---- */

/* Around a call that one thread at a time has promised to make. */
void vb_check_enter(atomic_uint *user, const char *call, const char *object, const char *page);
void vb_check_leave(atomic_uint *user);

#endif
