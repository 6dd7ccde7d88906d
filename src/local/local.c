/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The local path: how the adapter sees connections between processes of one host (adapter/progress/path.h).
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/device/device.h"
#include "adapter/memory/hold.h"
#include "adapter/progress/path.h"
#include "adapter/inspection/counts.h"
#include "adapter/inspection/inspect.h"
#include "adapter/progress/prefetch.h"
#include "adapter/progress/qpn.h"
#include "adapter/queues/tags.h"
#include "adapter/xrc/xrc_remote.h"
#include "base/log.h"
#include "base/nanoseconds.h"
#include "host/loop/activity.h"
#include "host/memory/lines.h"
#include "local/copy.h"
#include "local/cut.h"
#include "local/doorbell.h"
#include "local/mapped.h"
#include "local/serve.h"
#include "local/ring.h"

enum { RETRY_FREE_NS = 500 * VB_NS_PER_MS /* between two looks whether a cut peer still reads a ring */ };

/* ---- the choice of path ---- */

static bool is_on_this_host(const struct vb_qp *qp)
{
	struct in6_addr gid;
	memcpy(&gid, &qp->attr.ah_attr.grh.dgid, sizeof(gid));
	return vb_netif_is_local(&gid) || vb_device_gid_is_local(&gid);
}

/*
 * An RC connection to a process of this host to which there is a link. Both ends choose the same path,
 * whatever either of them lacks (local/peer.h).
 */
static bool claims(struct vb_qp *qp)
{
	uint32_t slot = qp->attr.dest_qp_num >> VB_SLOT_SHIFT;
	bool reliable =
		qp->type == IBV_QPT_RC || qp->type == IBV_QPT_XRC_SEND || qp->type == IBV_QPT_XRC_RECV;
	if (!reliable || vb_local_is_off() || !is_on_this_host(qp))
		return false;
	struct vb_peer *peer = vb_peer_choose(slot);
	if (peer)
		qp->path_state = peer;
	else
		qp->declined = (uint16_t)slot;
	return peer;
}

static void unclaim(struct vb_qp *qp)
{
	if (!qp->declined)
		return;
	vb_peer_decline_no_more(qp->declined);
	qp->declined = 0;
}

/* ---- attach and detach ---- */

/* vb_local_qp.attached_node, under vb_progress_lock */
static struct vb_list attached = VB_LIST_INIT(attached);
static uint64_t last_number; /* likewise */

static uint32_t entry_bytes_for(const struct vb_sq *sq)
{
	uint32_t gather = sq->max_sge * sizeof(struct ibv_sge);
	uint32_t payload = gather > sq->max_inline ? gather : sq->max_inline;
	uint32_t bytes = vb_align_up(offsetof(struct vb_shm_entry, data) + payload, VB_CACHE_LINE);
	return bytes > VB_ENTRY_MIN_BYTES ? bytes : VB_ENTRY_MIN_BYTES;
}
_Static_assert(offsetof(struct vb_shm_entry, data) + VB_MAX_INLINE <= VB_ENTRY_MAX_BYTES,
	       "any inline data fits");
_Static_assert(offsetof(struct vb_shm_entry, data) + VB_MAX_SGE * sizeof(struct ibv_sge) <=
		       VB_ENTRY_MAX_BYTES,
	       "any list fits");

static size_t ring_bytes(const struct vb_local_qp *l)
{
	return (size_t)(l->qp->sq.mask + 1) * l->req.entry_bytes;
}

/* A clean control block; mode stays without flags, so nobody uses it yet. */
static void open_block(struct vb_local_qp *l)
{
	struct vb_shm_qp *m = l->mine;
	uint32_t epoch = vb_mode_epoch(atomic_load(&m->mode));
	l->epoch = epoch ? epoch : vb_next_epoch(epoch);
	atomic_store(&m->mode, l->epoch << 8);
	atomic_store(&m->bound_epoch, 0);
	atomic_store(&m->polled, 0);
	atomic_store(&m->dest_qpn, l->their_qpn);
	atomic_store(&m->pd, l->qp->pd ? l->qp->pd->number : 0);
	atomic_store(&m->ring, vb_arena_offset(l->req.ring));
	atomic_store(&m->ring_mask, l->qp->sq.mask);
	atomic_store(&m->entry_bytes, l->req.entry_bytes);
	atomic_store(&m->captured, 0); /* it names a position, and these begin anew */
	for (int i = 0; i < 2; i++) {
		atomic_store(&m->stages[i], 0);
		atomic_store(&m->put[i], 0);
		atomic_store(&m->taken[i], 0);
	}
}

/*
 * The epoch is over: the next one begins. What this one showed may become something else after that
 * (in_bound_epoch in requester.c).
 */
static void close_block(struct vb_local_qp *l)
{
	struct vb_shm_qp *m = l->mine;
	/* In this order: a requester that finds the ack gone finds the new epoch, and then the last ack. */
	atomic_store(&m->last_ack, atomic_load(&m->ack));
	atomic_store(&m->mode, vb_next_epoch(l->epoch) << 8);
	atomic_store(&m->ack, 0);
	/* before anybody writes there: pairs with in_bound_epoch */
	atomic_thread_fence(memory_order_release);
}

static void join(struct vb_local_qp *l)
{
	vb_lock(&vb_progress_lock);
	l->number = ++last_number;
	vb_list_add_tail(&attached, &l->attached_node);
	if (l->peer)
		vb_list_add_tail(&l->peer->qps, &l->node);
	vb_unlock(&vb_progress_lock);
}

/* Takes over the peer that claims() has found. NULL: it has died since, and retries will run out. */
static struct vb_peer *claimed_peer(struct vb_qp *qp)
{
	struct vb_peer *peer = qp->path_state;
	qp->path_state = NULL;
	if (atomic_load(&peer->state) != VB_PEER_DEAD)
		return peer;
	vb_peer_put(peer);
	return NULL;
}

/* Entries that a receive for this QP can have. */
static uint32_t most_entries(const struct vb_qp *qp)
{
	if (qp->xrcd)
		return VB_MAX_SGE;
	return qp->srq ? qp->srq->rq.max_sge : qp->rq.max_sge;
}

static size_t local_qp_bytes(const struct vb_qp *qp)
{
	return offsetof(struct vb_local_qp, execution.rwqe.sge) + most_entries(qp) * sizeof(struct ibv_sge);
}

static struct vb_local_qp *make(const struct vb_qp *qp)
{
	struct vb_local_qp *l = vb_lines_take(local_qp_bytes(qp));
	return l ? memset(l, 0, local_qp_bytes(qp)) : NULL;
}

/* What a QP needs of the arena; NULL: there is no memory for it. */
static struct vb_local_qp *make_with_ring(struct vb_qp *qp)
{
	uint64_t block = vb_qpn_block(qp->qpn);
	struct vb_local_qp *l = vb_arena_open(block, VB_QP_BLOCK) ? NULL : make(qp);
	if (!l)
		return NULL;
	l->qp = l->execution.qp = qp;
	l->their_qpn = qp->attr.dest_qp_num;
	l->mine = vb_arena_at(block);
	l->req.entry_bytes = entry_bytes_for(&qp->sq);
	uint64_t ring = vb_arena_alloc(ring_bytes(l));
	if (!ring) {
		vb_lines_give(l, local_qp_bytes(qp));
		return NULL;
	}
	l->req.ring = vb_arena_at(ring);
	return l;
}

static int attach(struct vb_qp *qp)
{
	struct vb_peer *peer = claimed_peer(qp);
	struct vb_local_qp *l = make_with_ring(qp);
	if (!l) {
		if (peer)
			vb_peer_put(peer);
		return -ENOMEM;
	}
	l->peer = peer;
	l->give_up = (struct vb_timer){ .fire = vb_requester_give_up, .arg = l };
	l->rnr = (struct vb_timer){ .fire = vb_serve_rnr_fired, .arg = l };
	l->again = (struct vb_timer){ .fire = vb_xrc_remote_look_again, .arg = l };
	vb_list_init(&l->node);
	vb_list_init(&l->attached_node);
	vb_list_init(&l->delayed_node);
	qp->path_state = l;
	open_block(l);
	join(l);
	return 0;
}

static void unlink_qp(struct vb_qp *qp)
{
	struct vb_local_qp *l = vb_local_of(qp);
	vb_lock(&vb_progress_lock);
	vb_list_del(&l->node);
	vb_list_del(&l->attached_node);
	vb_unlock(&vb_progress_lock);
	vb_timer_cancel(&l->give_up);
	vb_timer_cancel(&l->rnr);
	vb_timer_cancel(&l->again);
}

/*
 * What a queue pair had in the arena. A peer that was stopped while it read there reads on when it runs
 * again, until it looks whether it was cut: so what it reads is freed later.
 */
struct arena_blocks {
	struct block {
		uint64_t offset;
		size_t bytes; /* 0: there is none */
	} blocks[3];
	struct vb_peer *reader;
	const _Atomic(uint32_t) *read_in;
	uint32_t read_since[2];
	struct vb_timer timer;
};

static struct arena_blocks blocks_of(struct vb_local_qp *l)
{
	struct arena_blocks r = { .blocks = { { vb_arena_offset(l->req.ring), ring_bytes(l) } },
			     .reader = l->reader,
			     .read_in = l->read_in,
			     .read_since = { l->read_since[0], l->read_since[1] } };
	for (int i = 0; i < 2; i++)
		if (l->stage[i])
			r.blocks[1 + i] = (struct block){ vb_arena_offset(l->stage[i]), VB_STAGE_BYTES };
	return r;
}

static void free_blocks(const struct arena_blocks *r)
{
	for (unsigned i = 0; i < VB_ARRAY_LEN(r->blocks); i++)
		if (r->blocks[i].bytes)
			vb_arena_free(r->blocks[i].offset, r->blocks[i].bytes);
	if (r->reader)
		vb_peer_put(r->reader);
}

static bool are_read(const struct arena_blocks *r)
{
	bool is_open = false;
	for (int i = 0; i < 2; i++)
		is_open |= r->read_since[i] % 2 && atomic_load(&r->read_in[i]) == r->read_since[i];
	return is_open && vb_process_activity(r->reader->pid) != VB_ACTIVITY_UNKNOWN;
}

static void free_unless_read(struct vb_timer *timer, uint64_t now_ns)
{
	struct arena_blocks *r = timer->arg;
	if (are_read(r)) {
		vb_timer_set(timer, now_ns + RETRY_FREE_NS);
		return;
	}
	free_blocks(r);
	free(r);
}

/* Without memory for the timer, they stay allocated. */
static void free_later(const struct arena_blocks *now)
{
	struct arena_blocks *r = malloc(sizeof(*r));
	if (!r)
		return;
	*r = *now;
	r->timer = (struct vb_timer){ .fire = free_unless_read, .arg = r };
	vb_timer_set(&r->timer, vb_now_ns() + RETRY_FREE_NS);
}

static void detach(struct vb_qp *qp)
{
	struct vb_local_qp *l = vb_local_of(qp);
	struct arena_blocks r = blocks_of(l);
	close_block(l);
	if (vb_unlikely(r.reader != NULL))
		free_later(&r);
	else
		free_blocks(&r);
	if (l->peer)
		vb_peer_put(l->peer);
	qp->path_state = NULL;
	free(l->piece);
	free(l->capture.passed);
	vb_lines_give(l, local_qp_bytes(qp));
}

/* ---- states ---- */

static void ring_peer(struct vb_local_qp *l)
{
	if (l->peer)
		vb_peer_ring(l->peer, l->their_qpn);
}

/* sq.lock is held. */
static void update(struct vb_qp *qp)
{
	struct vb_local_qp *l = vb_local_of(qp);
	struct vb_shm_qp *m = l->mine;
	enum ibv_qp_state state = atomic_load(&qp->state);
	uint32_t mode = l->epoch << 8 | (qp->type == IBV_QPT_RC ? 0 : VB_SHM_XRC);
	/* an XRC initiator has no responder (annex A14): to a peer that asks it is silent, as on a wire */
	if (qp->type != IBV_QPT_XRC_SEND)
		mode |= VB_SHM_RESPONDS;
	atomic_store(&m->access, vb_qp_attr(qp, qp_access_flags));
	atomic_store(&m->psns[0], qp->attr.sq_psn);
	atomic_store(&m->psns[1], qp->attr.rq_psn);
	atomic_store(&m->rnr_retry, qp->attr.rnr_retry);
	atomic_store(&m->rd_atomic, vb_qp_attr(qp, max_dest_rd_atomic));
	atomic_store(&m->path_mtu, qp->attr.path_mtu);
	if (state == IBV_QPS_RTR)
		atomic_store(&m->mode, mode);
	else if (state == IBV_QPS_RTS || state == IBV_QPS_SQD)
		atomic_store(&m->mode, mode | VB_SHM_REQUESTS);
	vb_arena_next_generation(); /* it may grant less, or hold back what is posted */
	if (state == IBV_QPS_SQD)
		vb_requester_await_acks(l);
	ring_peer(l);
}

/*
 * A QP that may be in busy sections. Of the QP at the other end, if that may be in busy sections, too, its
 * control block and its process.
 */
struct pair {
	struct vb_local_qp *l;
	const struct vb_shm_qp *theirs;
	struct vb_peer *peer; /* a reference */
};

/*
 * Looks for the other end's block if this side does not know it yet: the other end may be at work all the
 * same. vb_progress_lock is held.
 */
static struct pair find_pair_locked(struct vb_local_qp *l)
{
	struct pair p = { .l = l, .theirs = atomic_load(&l->theirs) };
	if (p.theirs) {
		p.peer = l->peer;
		atomic_fetch_add(&p.peer->refs, 1);
	} else {
		p.theirs = vb_peers_find_block(l->their_qpn, &p.peer);
	}
	return p;
}

static void put_pair(const struct pair *p)
{
	if (p->peer)
		vb_peer_put(p->peer);
}

static bool await_theirs(const struct pair *p, uint64_t deadline_ns)
{
	return !p->theirs || (vb_cut_or_await(&p->theirs->busy[VB_STREAM_REQUEST], p->peer, deadline_ns) &&
			      vb_cut_or_await(&p->theirs->busy[VB_STREAM_RESPONSE], p->peer, deadline_ns));
}

static bool await_pair(const struct pair *p, uint64_t deadline_ns)
{
	const struct vb_shm_qp *mine = p->l->mine;
	return vb_cut_or_await(&mine->busy[VB_STREAM_REQUEST], NULL, deadline_ns) &&
	       vb_cut_or_await(&mine->busy[VB_STREAM_RESPONSE], NULL, deadline_ns) &&
	       await_theirs(p, deadline_ns);
}

/*
 * A peer that was cut in the middle of a section goes on with it when it runs again. What it reads stays
 * until then: entries and a stream as responder, the other stream as requester.
 */
static void put_or_note_reader(struct vb_local_qp *l, const struct pair *p)
{
	const _Atomic(uint32_t) *busy = p->theirs ? p->theirs->busy : NULL;
	uint32_t since[2] = { busy ? atomic_load(&busy[0]) : 0, busy ? atomic_load(&busy[1]) : 0 };
	if (vb_likely((since[0] | since[1]) % 2 == 0 || l->reader || !atomic_load(&p->peer->is_cut))) {
		put_pair(p);
		return;
	}
	l->reader = p->peer;
	l->read_in = busy;
	memcpy(l->read_since, since, sizeof(since));
}

/* The receive that is taken, if one is. */
static void end_receive(struct vb_local_qp *l)
{
	struct vb_execution *x = &l->execution;
	vb_execution_end_receive(x, x->receive_status ? x->receive_status : IBV_WC_WR_FLUSH_ERR);
}

/* sq.lock and resp_lock are held, so this side is in no busy section. */
static void stop(struct vb_qp *qp)
{
	struct vb_local_qp *l = vb_local_of(qp);
	atomic_store(&l->mine->mode, l->epoch << 8);
	vb_fence_users();
	atomic_store(&l->resp.serving, false); /* a poll finds no more requests here */
	vb_lock(&vb_progress_lock);
	vb_doorbell_forget_locked(l);
	struct pair p = find_pair_locked(l);
	vb_unlock(&vb_progress_lock);
	await_theirs(&p, UINT64_MAX);
	put_or_note_reader(l, &p);
	if (atomic_load(&l->theirs))
		vb_requester_take_last_acks(l);
	end_receive(l);
	ring_peer(l);
}

/* ---- traffic ---- */

static void path_send(struct vb_qp *qp)
{
	vb_requester_send(vb_local_of(qp));
}

/* Releases resp_lock. After that the QP may be freed, unless the caller holds a reference. */
static void serve_and_unlock(struct vb_qp *qp)
{
	struct vb_verdict v = { .event = -1 };
	if (atomic_load_explicit(&qp->state, memory_order_relaxed) != IBV_QPS_ERR &&
	    atomic_load_explicit(&qp->path, memory_order_relaxed))
		v = vb_responder_serve(vb_local_of(qp));
	if (vb_unlikely(v.broken))
		vb_qp_ref(qp);
	else if (vb_unlikely(v.more))
		vb_progress_schedule(qp);
	vb_unlock(&qp->resp_lock);
	if (vb_unlikely(v.broken)) {
		vb_qp_break(qp, v.event);
		vb_qp_unref(qp);
	}
}

static void serve(struct vb_qp *qp)
{
	if (vb_lock_try(&qp->resp_lock))
		serve_and_unlock(qp);
	else
		vb_progress_retry(qp);
}

/* sq.lock is held, and released. */
static void request_and_unlock(struct vb_qp *qp)
{
	enum ibv_qp_state state = atomic_load(&qp->state);
	if (state == IBV_QPS_RTS || state == IBV_QPS_SQD)
		vb_requester_look(vb_local_of(qp));
	vb_unlock(&qp->sq.lock);
}

/* False: another thread has the send queue, and the QP is queued again. */
static bool request(struct vb_qp *qp)
{
	if (!vb_lock_try(&qp->sq.lock)) {
		vb_progress_retry(qp);
		return false;
	}
	request_and_unlock(qp);
	return true;
}

/* Takes the last acks of a peer that has died, and executes what it had sent. */
static void drain(struct vb_qp *qp)
{
	struct vb_local_qp *l = vb_local_of(qp);
	if (!atomic_load(&l->theirs))
		return;
	vb_lock(&qp->sq.lock);
	request_and_unlock(qp);
	vb_lock(&qp->resp_lock);
	serve_and_unlock(qp);
}

/* What the dead process had acknowledged and sent counts at once. */
static void peer_died(struct vb_peer *p, bool was_up)
{
	for (struct vb_qp *qp; (qp = vb_peer_next_qp(p, VB_PEER_DRAINED));) {
		drain(qp);
		vb_qp_unref(qp);
	}
	vb_ud_ring_end(p, was_up);
}

/*
 * The caller has a hold on the QP, so path_state stays. Acks come before what arrived, but are looked at
 * after it was seen: so a send completes before the receive of the answer to it.
 */
static void run(struct vb_qp *qp)
{
	struct vb_local_qp *l = vb_local_of(qp);
	if (vb_unlikely(qp->tags != NULL))
		vb_tags_run(qp);
	bool is_there = vb_local_find_theirs(l), arrived = is_there && vb_responder_has_news(l);
	if (((is_there && vb_requester_is_idle(l)) || request(qp)) && arrived)
		serve(qp);
}

static enum vb_claim claim_news(struct vb_qp *qp)
{
	struct vb_local_qp *l = vb_local_of(qp);
	if (!atomic_load_explicit(&l->theirs, memory_order_acquire))
		return VB_CLAIM_NONE;
	if (vb_requester_has_news(l))
		return vb_path_claim(qp, &qp->sq.lock) ? VB_CLAIM_SENDS : VB_CLAIM_NONE;
	return vb_responder_is_called(l) && vb_path_claim(qp, &qp->resp_lock) ? VB_CLAIM_ARRIVALS :
										VB_CLAIM_NONE;
}

static void take_news(struct vb_qp *qp, enum vb_claim claim)
{
	vb_doorbell_note_news(vb_local_of(qp));
	if (claim == VB_CLAIM_ARRIVALS) {
		serve_and_unlock(qp);
		return;
	}
	bool arrived = vb_responder_is_called(vb_local_of(qp));
	if (arrived)
		vb_qp_ref(qp);
	request_and_unlock(qp);
	if (arrived) {
		serve(qp);
		vb_qp_unref(qp);
	}
}

static void receive(struct vb_qp *qp)
{
	vb_qp_ref(qp);
	run(qp);
	vb_qp_unref(qp);
}

/* ---- prefetching ---- */

/* For its requester, or else its responder: what an ack, or an entry, is about. */
static void fetch(struct vb_qp *qp)
{
	struct vb_local_qp *l = vb_local_of(qp);
	const struct vb_shm_qp *t = atomic_load_explicit(&l->theirs, memory_order_relaxed);
	if (vb_unlikely(!t))
		return;
	vb_fetch(&t->mode);
	if (atomic_load_explicit(&l->req.pending, memory_order_relaxed)) {
		vb_fetch(&t->ack);
		vb_fetch_to_write(&qp->sq);
	}
	vb_fetch(&l->mine->mode);
	vb_fetch_to_write(&l->mine->ack);
	vb_fetch_to_write(l->mine->busy);
	vb_fetch(&l->to_receive);
	vb_responder_fetch(l);
}

static void hint_prefetch(struct vb_qp *qp, enum ibv_wr_opcode opcode, struct vb_prefetch_hint *hint)
{
	struct vb_local_qp *l = vb_local_of(qp);
	vb_prefetch_note(&hint->written[0], l);
	if (opcode != IBV_WR_SEND) {
		vb_prefetch_note(&hint->written[1], opcode == IBV_WR_RDMA_WRITE ? &l->to_write : &l->to_read);
		vb_prefetch_note(&hint->written[2], l->mine->busy);
		vb_prefetch_note(&hint->written[3], NULL);
		vb_prefetch_note(&hint->read, NULL);
		return;
	}
	vb_prefetch_note(&hint->written[1], (const char *)l + VB_CACHE_LINE);
	vb_prefetch_note(&hint->written[2], &l->to_send);
	vb_prefetch_note(&hint->written[3], vb_sq_at(&qp->sq, qp->sq.tail));
	vb_prefetch_note(&hint->written[4], vb_entry_ours(l, l->req.published));
	vb_prefetch_note(&hint->read, atomic_load_explicit(&l->theirs, memory_order_relaxed));
}

/* ---- quiescence ---- */

enum { BUSY_BATCH = 64 };

static bool is_busy(const struct vb_shm_qp *block)
{
	return (atomic_load(&block->busy[0]) | atomic_load(&block->busy[1])) & 1;
}

/*
 * Finds the next busy pairs after number *behind, at most BUSY_BATCH, and sets *behind to the last one's
 * number. The caller gets references to the QPs. The search never goes back: a pair that has been awaited may
 * look busy for ever.
 */
static unsigned find_busy(struct pair *busy, uint64_t *behind)
{
	struct vb_local_qp *l;
	unsigned n = 0;
	vb_lock(&vb_progress_lock);
	vb_list_for_each(l, &attached, attached_node) {
		const struct vb_shm_qp *t = atomic_load(&l->theirs);
		if (n == BUSY_BATCH)
			break;
		if (l->number <= *behind)
			continue;
		if (t && !is_busy(l->mine) && !is_busy(t))
			continue;
		struct pair p = find_pair_locked(l);
		if (is_busy(l->mine) || (p.theirs && is_busy(p.theirs))) {
			vb_qp_ref(l->qp);
			busy[n++] = p;
			*behind = l->number;
		} else {
			put_pair(&p);
		}
	}
	vb_unlock(&vb_progress_lock);
	return n;
}

static bool quiesce(uint64_t deadline_ns)
{
	struct pair busy[BUSY_BATCH];
	bool quiet = true;
	uint64_t behind = 0;
	unsigned n;
	vb_fence_users();
	do {
		n = find_busy(busy, &behind);
		for (unsigned i = 0; i < n; i++) {
			quiet = quiet && await_pair(&busy[i], deadline_ns);
			vb_qp_unref(busy[i].l->qp);
			put_pair(&busy[i]);
		}
	} while (quiet && n == BUSY_BATCH);
	return quiet;
}

static const char *copy_name(const struct vb_peer *peer)
{
	switch (peer->copy) {
	case VB_COPY_SAME:
		return "same process";
	case VB_COPY_PROCESS_VM:
		return peer->mapped ? "mapped" : "process_vm";
	case VB_COPY_LINK:
		return "link";
	}
	return "";
}

static void describe(struct vb_qp *qp, struct vb_record_qp *record)
{
	const struct vb_local_qp *l = vb_local_of(qp);
	if (!l || !l->peer || atomic_load(&l->peer->state) != VB_PEER_UP)
		return;
	record->peer_pid = l->peer->fd < 0 ? vb_copy_self() : l->peer->pid;
	VB_RECORD_NAME(record->copy, copy_name(l->peer));
}

/* A NIC cuts messages up. Exact if all of a kind fit a packet, or fill theirs. */
static uint64_t packets_of(uint64_t requests, uint64_t bytes, uint32_t mtu)
{
	return vb_max_u64(requests, (bytes + mtu - 1) / mtu);
}

static void count(const struct vb_qp *qp, struct vb_counts *c)
{
	const struct vb_local_qp *l = vb_local_of(qp);
	enum ibv_mtu path_mtu = vb_qp_attr(qp, path_mtu);
	uint32_t mtu = vb_mtu_bytes(path_mtu ? path_mtu : IBV_MTU_4096);
	for (unsigned i = VB_TRAFFIC_NONE + 1; i < VB_TRAFFIC_KINDS; i++) {
		struct vb_traffic done = vb_qp_done_on_path(qp, i);
		c->shared += done.requests;
		c->shared_bytes += done.bytes;
		c->shared_packets += packets_of(done.requests, done.bytes, mtu);
	}
	c->naks_received += vb_count_read(&l->naks_received);
	c->rnr_received += vb_count_read(&l->rnr_received);
	c->naks_sent += vb_count_read(&l->naks_sent);
	c->rnr_sent += vb_count_read(&l->starved);
}

static struct vb_path_ops local_path = {
	.name = "local",
	.rank = VB_PATH_LOCAL,
	.claims = claims,
	.unclaim = unclaim,
	.attach = attach,
	.update = update,
	.stop = stop,
	.unlink = unlink_qp,
	.detach = detach,
	.send = path_send,
	.try_post = vb_local_try_post,
	.hint_prefetch = hint_prefetch,
	.receive = receive,
	.run = run,
	.fetch = fetch,
	.claim_news = claim_news,
	.take_news = take_news,
	.poll = vb_doorbell_look_locked,
	.sleep = vb_doorbell_poll_end,
	.ring_delayed = vb_doorbell_ring_delayed,
	.is_pending = vb_doorbell_is_pending,
	.describe = describe,
	.count = count,
};

/* A forked child has no QPs. */
static void forget(void)
{
	vb_list_init(&attached);
	vb_doorbell_reset();
}

__attribute__((constructor)) static void offer(void)
{
	vb_host_at_fork(forget);
	vb_memory_set_peers(quiesce);
	vb_peer_set_death_handler(peer_died);
	vb_path_register(&local_path);
}
