/* SPDX-License-Identifier: BSD-2-Clause */
#include "local/doorbell.h"

#include "adapter/progress/prefetch.h"
#include "adapter/progress/qpn.h"
#include "adapter/queues/queue.h"
#include "base/tuned.h"
#include "local/cut.h"
#include "local/ring.h"
#include "local/ud_ring.h"

/* ---- polled QPs ---- */

/* Under vb_progress_lock. */
static struct vb_local_qp *polled[VB_MOST_POLLED];
static unsigned npolled;

/*
 * vb_progress_lock is held, under which those that are asleep have ended all polling. It costs a fence of all
 * processors to end, so it is not for programs that sleep again and again.
 */
static bool may_poll_locked(const struct vb_local_qp *l)
{
	return npolled < VB_MOST_POLLED && !atomic_load(&vb_arena->asleep) && !vb_progress_is_ticking() &&
	       atomic_load(&l->resp.serving) && (atomic_load(&l->mine->mode) & VB_SHM_RESPONDS) &&
	       !atomic_load(&l->mine->polled);
}

void vb_doorbell_poll_begin(struct vb_local_qp *l)
{
	unsigned hits = atomic_load_explicit(&l->hits, memory_order_relaxed);
	atomic_store_explicit(&l->hits, hits + 1, memory_order_relaxed);
	if (hits < VB_POLLED_AFTER_HITS || !atomic_load_explicit(&vb_arena->fences, memory_order_relaxed) ||
	    !vb_lock_try(&vb_progress_lock))
		return;
	if (may_poll_locked(l)) {
		polled[npolled++] = l;
		atomic_store(&l->mine->polled, 1);
	}
	vb_unlock(&vb_progress_lock);
	atomic_store_explicit(&l->hits, 0, memory_order_relaxed);
}

static bool look_at_polled(void)
{
	bool found = false;
	for (unsigned i = 0; i < npolled; i++) {
		if (!vb_responder_is_called(polled[i]) && !vb_requester_has_news(polled[i]))
			continue;
		vb_progress_schedule_locked(polled[i]->qp);
		found = true;
	}
	return found;
}

void vb_doorbell_poll_end(void)
{
	vb_lock(&vb_progress_lock);
	for (unsigned i = 0; i < npolled; i++)
		atomic_store(&polled[i]->mine->polled, 0);
	if (npolled)
		vb_fence_users();
	while (npolled)
		vb_progress_schedule_locked(polled[--npolled]->qp);
	vb_unlock(&vb_progress_lock);
}

/* True: it was polled. */
static bool end_polling_locked(struct vb_local_qp *l)
{
	for (unsigned i = 0; i < npolled; i++) {
		if (polled[i] != l)
			continue;
		polled[i] = polled[--npolled];
		atomic_store(&l->mine->polled, 0);
		return true;
	}
	return false;
}

void vb_doorbell_poll_end_of(struct vb_local_qp *l)
{
	vb_lock(&vb_progress_lock);
	if (end_polling_locked(l)) {
		vb_fence_users();
		vb_progress_schedule_locked(l->qp);
	}
	vb_unlock(&vb_progress_lock);
}

/* ---- hearing ---- */

enum {
	/* looked at per round, so that a poll costs the same with one peer and with a thousand */
	LISTEN_PEERS = 8,
	BELL_BATCH = 32,
	VAIN_LOOKS = 64, /* for a bell that a thread of the peer is about to write */
	/* a poller, which does not sleep, looks at the lines that peers write once in so many rounds */
	LOOKS_FOR_BELLS = 1024,
};

/*
 * A process may ring on one of two links for QPs that are attached to the other (both connected at the same
 * time).
 */
static void wake_process(uint64_t nonce)
{
	for (unsigned i = 0; i < atomic_load(&vb_npeers); i++) {
		if (vb_peers[i]->nonce != nonce)
			continue;
		vb_peer_wake_qps_locked(vb_peers[i]);
		vb_ud_ring_look_locked(vb_peers[i]);
	}
}

/* With many QPs none is in a near cache: those that several bells name are fetched all at once. */
static void fetch_called(const struct vb_peer *p)
{
	for (uint32_t at = p->heard; at - p->heard < BELL_BATCH; at++) {
		uint64_t bell = atomic_load_explicit(&p->in->bell[at % VB_BELLS], memory_order_relaxed);
		struct vb_qp *qp =
			(uint32_t)(bell >> 32) == at + 1 ? vb_qpn_find((uint32_t)bell & 0xffffff) : NULL;
		if (!qp)
			return;
		vb_prefetch_qp(qp);
		vb_fetch_to_write(&qp->resp_lock);
		vb_fetch_to_write(&qp->rq);
	}
}

static uint64_t next_bell(const struct vb_peer *p)
{
	return atomic_load_explicit(&p->in->bell[p->heard % VB_BELLS], memory_order_acquire);
}

/* Less than 0: it is not there yet; more: it is one of a later lap. */
static int32_t is_ahead_by(const struct vb_peer *p, uint64_t bell)
{
	return (int32_t)((uint32_t)(bell >> 32) - (p->heard + 1));
}

static bool listen_to(struct vb_peer *p)
{
	bool found = false;
	fetch_called(p);
	for (int i = 0; i < BELL_BATCH; i++) {
		uint64_t bell = next_bell(p);
		int32_t ahead = is_ahead_by(p, bell);
		if (ahead < 0)
			break;
		found = true;
		p->vain_looks = 0;
		if (vb_unlikely(ahead > 0)) { /* overtaken by a lap: look at everything instead */
			p->heard = atomic_load(&p->in->tail);
			wake_process(p->nonce);
			break;
		}
		p->heard++;
		uint32_t qpn = (uint32_t)bell & 0xffffff;
		if (vb_unlikely(qpn == VB_BELL_FOR_ALL))
			wake_process(p->nonce);
		struct vb_qp *qp = vb_qpn_find(qpn);
		if (vb_likely(qp != NULL))
			vb_progress_schedule_locked(qp);
	}
	return found;
}

/*
 * A thread of the peer may have taken a position and not have written its bell yet. It may have been stopped
 * in between, so this process stays awake for only some looks. What the bell, and those of other threads
 * behind it, are about is there: all queue pairs are looked at, once for each further bell. When the thread
 * runs again, it writes the bell and then sees that this process sleeps.
 */
static bool look_for_bell(struct vb_peer *p)
{
	uint32_t tail = atomic_load(&p->in->tail);
	if (vb_likely(tail == p->heard))
		return false;
	if (is_ahead_by(p, next_bell(p)) >= 0 || p->vain_looks++ < VAIN_LOOKS)
		return true;
	if (tail == p->overlooked)
		return false;
	p->overlooked = tail;
	wake_process(p->nonce);
	return true;
}

/* Of some peers. */
static void look_for_bells(unsigned npeers)
{
	static unsigned next;
	for (unsigned i = 0; i < npeers && i < LISTEN_PEERS; i++) {
		next = next + 1 < npeers ? next + 1 : 0;
		look_for_bell(vb_peers[next]);
	}
}

bool vb_doorbell_look_locked(void)
{
	static unsigned next, looks;
	bool found = look_at_polled();
	unsigned n = atomic_load_explicit(&vb_npeers, memory_order_relaxed);
	for (unsigned i = 0; i < n && i < LISTEN_PEERS; i++) {
		next = next + 1 < n ? next + 1 : 0;
		found |= listen_to(vb_peers[next]);
	}
	if (vb_unlikely(++looks % LOOKS_FOR_BELLS == 0))
		look_for_bells(n);
	return found;
}

bool vb_doorbell_is_pending(void)
{
	bool pending = false;
	vb_lock(&vb_progress_lock);
	for (unsigned i = 0; i < atomic_load(&vb_npeers) && !pending; i++)
		pending = look_for_bell(vb_peers[i]) || vb_ud_ring_is_waiting_locked(vb_peers[i]);
	vb_unlock(&vb_progress_lock);
	return pending;
}

/* ---- delayed doorbells ---- */

/* Under vb_progress_lock. */
static struct vb_list delayed = VB_LIST_INIT(delayed); /* vb_local_qp.delayed_node */
static atomic_uint ndelayed;

bool vb_doorbell_delay(struct vb_local_qp *l)
{
	vb_lock(&vb_progress_lock);
	bool may = vb_progress_is_ticking();
	if (may) {
		atomic_store(&l->resp.is_bell_delayed, true);
		if (vb_list_is_empty(&l->delayed_node)) {
			vb_list_add_tail(&delayed, &l->delayed_node);
			atomic_fetch_add(&ndelayed, 1);
		}
	}
	vb_unlock(&vb_progress_lock);
	return may;
}

/* With a reference. */
static struct vb_qp *next_delayed(void)
{
	vb_lock(&vb_progress_lock);
	struct vb_list *node = vb_list_pop(&delayed);
	struct vb_qp *qp = node ? vb_container_of(node, struct vb_local_qp, delayed_node)->qp : NULL;
	if (qp) {
		atomic_fetch_sub(&ndelayed, 1);
		vb_qp_ref(qp);
	}
	vb_unlock(&vb_progress_lock);
	return qp;
}

void vb_doorbell_ring_delayed(void)
{
	for (struct vb_qp *qp; vb_unlikely(atomic_load(&ndelayed)) && (qp = next_delayed());) {
		if (atomic_load(&vb_local_of(qp)->resp.is_bell_delayed))
			vb_doorbell_ring(vb_local_of(qp));
		vb_qp_unref(qp);
	}
}

static void end_delay_locked(struct vb_local_qp *l)
{
	if (vb_list_is_empty(&l->delayed_node))
		return;
	vb_list_del(&l->delayed_node);
	atomic_fetch_sub(&ndelayed, 1);
}

/* ---- ends ---- */

void vb_doorbell_forget_locked(struct vb_local_qp *l)
{
	end_polling_locked(l);
	end_delay_locked(l);
}

void vb_doorbell_reset(void)
{
	npolled = 0;
	vb_list_init(&delayed);
	atomic_store(&ndelayed, 0);
}
