/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requester half: takes the send queue's entries in order. While nothing is queued ahead, it executes
 * WRITE and READ itself; everything else, and whatever comes behind it, goes to the peer's responder through
 * the ring. So between sq.head and sq.sent there are only ring entries, and the order of effects is the order
 * of posting. A one-sided operation that the target would refuse goes through the ring too: the target's
 * responder then refuses it, with all that this means there.
 */
#include <errno.h>
#include <string.h>

#include "adapter/execution/refusal.h"
#include "adapter/queues/completion.h"
#include "adapter/queues/payload.h"
#include "adapter/queues/status.h"
#include "base/copy.h"
#include "base/log.h"
#include "host/memory/touch.h"
#include "local/capture.h"
#include "local/copy.h"
#include "local/cut.h"
#include "local/doorbell.h"
#include "local/mapped.h"
#include "local/reach.h"
#include "local/ring.h"
#include "wire/timers.h"

/* ---- is the peer's QP there? ---- */

bool vb_local_find_theirs(struct vb_local_qp *l)
{
	if (vb_likely(vb_theirs_of(l) != NULL))
		return true;
	if (!l->peer || atomic_load(&l->peer->state) != VB_PEER_UP)
		return false;
	atomic_store(&l->theirs, vb_peer_block(l->peer, l->their_qpn));
	return vb_theirs_of(l) != NULL;
}

/*
 * The peer's queue pair has taken messages of another epoch of this one, and expects those that follow them,
 * until its own next epoch begins.
 */
static bool expects_another(const struct vb_local_qp *l)
{
	uint64_t ack = atomic_load(&vb_theirs_of(l)->ack);
	return vb_shm_ack_consumed(ack) && vb_shm_ack_epoch(ack) != l->epoch;
}

bool vb_requester_bind(struct vb_local_qp *l, uint32_t mode)
{
	const struct vb_shm_qp *t = vb_theirs_of(l);
	if (atomic_load(&t->dest_qpn) != l->qp->qpn || atomic_load(&t->psns[1]) != l->qp->attr.sq_psn ||
	    vb_mode_is_other_service(mode, atomic_load(&l->mine->mode)) || expects_another(l))
		return false;
	l->req.bound = true;
	atomic_store_explicit(&l->req.bound_epoch, vb_mode_epoch(mode), memory_order_relaxed);
	atomic_store(&l->mine->bound_epoch, vb_mode_epoch(mode));
	return true;
}

static const char *why_silent(struct vb_local_qp *l)
{
	const struct vb_shm_qp *t = vb_theirs_of(l);
	if (!l->peer)
		return "nobody at the remote GID and QP number: no such process on this host";
	if (!t || atomic_load(&t->dest_qpn) != l->qp->qpn)
		return "the remote queue pair does not exist or is connected to another one";
	uint32_t mode = atomic_load(&t->mode);
	if (!(mode & VB_SHM_RESPONDS))
		return "the remote queue pair answers nothing: it is in RESET, INIT or ERR, or of type XRC_SEND";
	if (vb_mode_is_other_service(mode, atomic_load(&l->mine->mode)))
		return "one of the queue pairs is of an XRC type, the other is not";
	if (l->req.bound)
		return "the remote queue pair was reset";
	return atomic_load(&t->psns[1]) != l->qp->attr.sq_psn ?
		       "the remote rq_psn is not this sq_psn" :
		       "the remote queue pair was not reset with this one: it expects what follows the "
		       "messages that it has taken";
}

/* The peer's QP does not respond: after all retries the oldest request fails, as on a wire. */
static void wait_for_peer(struct vb_local_qp *l)
{
	const struct ibv_qp_attr *a = &l->qp->attr;
	if (l->req.waiting)
		return;
	l->req.waiting = true;
	vb_timer_set(&l->give_up, vb_now_ns() + (a->retry_cnt + 1u) * vb_transport_timer_ns(a->timeout));
}

static void stop_waiting(struct vb_local_qp *l)
{
	if (vb_likely(!l->req.waiting))
		return;
	l->req.waiting = false;
	vb_timer_cancel(&l->give_up);
	atomic_store(&l->expired, false);
}

void vb_requester_give_up(struct vb_timer *timer, uint64_t now_ns)
{
	struct vb_local_qp *l = timer->arg;
	atomic_store(&l->expired, true);
	vb_progress_schedule(l->qp);
}

/* Has the oldest request failed before the peer hears of it? Then so has the QP. */
static bool fails_here(struct vb_local_qp *l)
{
	const struct vb_sq *sq = &l->qp->sq;
	struct vb_sqe *sqe = vb_sq_at(sq, sq->sent);
	if (sq->head != sq->sent || sq->sent == sq->tail)
		return false;
	if (sqe->status == VB_SQE_PENDING && vb_payload_is_readable(l->qp, sqe))
		return false;
	vb_qp_fail(l->qp, sqe->status, vb_wc_status_text(sqe->status));
	return true;
}

/* False: the QP has failed or goes on waiting. */
static bool is_ready(struct vb_local_qp *l)
{
	if (vb_likely(vb_local_find_theirs(l) && vb_peer_responds(l))) {
		stop_waiting(l);
		return true;
	}
	if (fails_here(l))
		return false;
	if (!vb_qp_attr(l->qp, timeout))
		stop_waiting(l); /* for ever, whatever the timeout was before */
	else if (l->req.waiting && atomic_load(&l->expired))
		vb_qp_fail(l->qp, IBV_WC_RETRY_EXC_ERR, why_silent(l));
	else
		wait_for_peer(l);
	return false;
}

/* ---- executing here ---- */

enum here { HERE_DONE, HERE_MORE, HERE_FAILED, HERE_NOT };

static enum here fail_sqe(struct vb_sqe *sqe, enum vb_key_fault fault, unsigned bad)
{
	vb_payload_fail(sqe, fault, bad);
	return HERE_FAILED;
}

static enum here fail_unmapped(struct vb_local_qp *l, struct vb_sqe *sqe)
{
	vb_payload_fail_unmapped(l->qp, sqe);
	return HERE_FAILED;
}

/* This side's one piece of memory of an operation; NULL: it is more, or something is special about it. */
static void *piece_here(struct vb_local_qp *l, struct vb_sqe *sqe, unsigned access)
{
	if (sqe->flags & IBV_SEND_INLINE)
		return sqe->inline_data;
	if (vb_unlikely(sqe->nsge != 1))
		return NULL;
	return vb_key_find(sqe->sge, access, l->qp->pd->number);
}

/* Fast path: from one piece to another, at once. False: move_slice has to do it. */
static bool move_whole(struct vb_local_qp *l, struct vb_sqe *sqe, uint64_t va)
{
	bool writes = sqe->opcode == IBV_WR_RDMA_WRITE;
	void *ours = piece_here(l, sqe, writes ? 0 : IBV_ACCESS_LOCAL_WRITE),
	     *theirs = vb_peer_memory(l, sqe->rkey, va, sqe->length, writes);
	if (vb_unlikely(!ours || !theirs || sqe->length > VB_SLICE_BYTES))
		return false;
	return !vb_peer_copy(l->peer, writes ? theirs : ours, writes ? ours : theirs, sqe->length);
}

static enum here move_slice(struct vb_local_qp *l, struct vb_sqe *sqe, uint64_t va)
{
	bool writes = sqe->opcode == IBV_WR_RDMA_WRITE;
	uint64_t n = vb_min_u64(sqe->length - l->req.moved, VB_SLICE_BYTES);
	struct vb_ranges ours, theirs;
	if (writes && !l->req.moved && n < sqe->length && vb_unlikely(!vb_payload_is_readable(l->qp, sqe)))
		return HERE_FAILED;
	vb_peer_bytes(&theirs, l->peer, sqe->rkey, va + l->req.moved, n, writes);
	theirs.on_demand = vb_key_is_on_demand(vb_key_table(l->peer->arena), sqe->rkey);
	if (sqe->flags & IBV_SEND_INLINE) {
		vb_ranges_of_bytes(&ours, sqe->inline_data, n);
	} else {
		enum vb_key_fault fault =
			vb_ranges_of_list(&ours, vb_arena, vb_sg_list_of_send(l->qp, sqe), l->req.moved, n,
					  writes ? 0 : IBV_ACCESS_LOCAL_WRITE);
		if (vb_unlikely(fault != VB_KEY_OK))
			return fail_sqe(sqe, fault, ours.bad);
	}
	int err = writes ? vb_copy_out(l->peer, &theirs, &ours) : vb_copy_in(l->peer, &ours, &theirs);
	if (vb_unlikely(err == -EAGAIN))
		return HERE_MORE;
	if (vb_unlikely(err))
		return vb_ranges_are_mapped(&ours, !writes) ? HERE_NOT : fail_unmapped(l, sqe);
	l->req.moved += n;
	return l->req.moved == sqe->length ? HERE_DONE : HERE_MORE;
}

static enum here move(struct vb_local_qp *l, struct vb_sqe *sqe, unsigned access)
{
	uint64_t va = 0;
	enum here h = HERE_NOT;
	if (!sqe->length)
		return HERE_NOT;
	if (access == IBV_ACCESS_REMOTE_READ)
		vb_order_read(l);
	else
		l->req.has_stored = true;
	vb_busy_begin(l, VB_STREAM_REQUEST);
	if (vb_peer_responds(l) && vb_peer_grants(l, sqe->rkey, sqe->remote_addr, sqe->length, access, &va))
		h = vb_likely(move_whole(l, sqe, va)) ? HERE_DONE : move_slice(l, sqe, va);
	vb_busy_end(l, VB_STREAM_REQUEST);
	return vb_is_cut_by(l->peer) ? HERE_NOT : h;
}

static bool is_one_sided(const struct vb_sqe *sqe)
{
	return sqe->opcode == IBV_WR_RDMA_WRITE || sqe->opcode == IBV_WR_RDMA_READ;
}

static enum here execute_here(struct vb_local_qp *l, struct vb_sqe *sqe)
{
	/* of XRC, the responder knows the domain */
	if (l->peer->copy == VB_COPY_LINK || vb_unlikely(l->qp->type != IBV_QPT_RC || !vb_peer_leaves_it(l)))
		return HERE_NOT;
	if (sqe->opcode == IBV_WR_RDMA_WRITE)
		return move(l, sqe, IBV_ACCESS_REMOTE_WRITE);
	if (sqe->opcode == IBV_WR_RDMA_READ &&
	    atomic_load_explicit(&vb_theirs_of(l)->rd_atomic, memory_order_relaxed))
		return move(l, sqe, IBV_ACCESS_REMOTE_READ);
	return HERE_NOT;
}

/* ---- the ring ---- */

/*
 * Copies the payload into the entry; false: a local key is wrong, which is noted in the
 * send queue's entry. In a busy section.
 */
static bool gather(struct vb_local_qp *l, struct vb_sqe *sqe, struct vb_shm_entry *entry)
{
	struct vb_ranges from, to;
	if (vb_unlikely(!sqe->length))
		return true;
	if (sqe->flags & IBV_SEND_INLINE) {
		vb_copy_ordered(entry->data, sqe->inline_data, sqe->length);
		return true;
	}
	const void *piece = piece_here(l, sqe, 0);
	if (vb_likely(piece != NULL) && vb_likely(!vb_touch_copy(entry->data, piece, sqe->length)))
		return true;
	enum vb_key_fault fault =
		vb_ranges_of_list(&from, vb_arena, vb_sg_list_of_send(l->qp, sqe), 0, sqe->length, 0);
	if (vb_unlikely(fault != VB_KEY_OK)) {
		fail_sqe(sqe, fault, from.bad);
		return false;
	}
	vb_ranges_of_bytes(&to, entry->data, sqe->length);
	if (vb_likely(!vb_ranges_copy(&to, &from)))
		return true;
	fail_unmapped(l, sqe);
	return false;
}

/*
 * Where the payload is, as flags of the entry; the payload or its ranges are put there. -1: a local key is
 * wrong.
 */
static int place_payload(struct vb_local_qp *l, struct vb_sqe *sqe, struct vb_shm_entry *entry)
{
	bool outgoing = !vb_wr_fetches(sqe->opcode);
	int staged = l->peer->copy == VB_COPY_LINK ? VB_SHM_STAGED : 0;
	if (vb_wr_is_atomic(sqe->opcode) || sqe->opcode == IBV_WR_FLUSH) {
		entry->atomic.compare_add = sqe->compare_add;
		entry->atomic.swap = sqe->swap;
		return staged;
	}
	if (outgoing && vb_entry_fits(l->req.entry_bytes, sqe->length))
		return gather(l, sqe, entry) ? VB_SHM_INLINE : -1;
	if (vb_unlikely(!vb_payload_is_readable(l->qp, sqe)))
		return -1;
	if (!staged)
		memcpy(entry->sge, sqe->sge, sqe->nsge * sizeof(*entry->sge));
	return staged;
}

static bool publish(struct vb_local_qp *l, struct vb_sqe *sqe)
{
	struct vb_shm_entry *entry = vb_entry_ours(l, l->req.published);
	vb_busy_begin(l, VB_STREAM_REQUEST);
	int flags = place_payload(l, sqe, entry);
	vb_busy_end(l, VB_STREAM_REQUEST);
	if (vb_unlikely(flags < 0))
		return false;
	flags |= (int)vb_entry_finish(l, entry, vb_sqe_srqn(l->qp, sqe), sqe->flags);
	entry->length = vb_wr_is_atomic(sqe->opcode) ? 0 : sqe->length;
	entry->imm = sqe->imm;
	entry->remote_addr = sqe->remote_addr;
	entry->rkey = sqe->rkey;
	l->atomics_out += vb_wr_is_atomic(sqe->opcode);
	l->req.fetches_out += vb_wr_fetches(sqe->opcode);
	vb_show_published(l, sqe);
	vb_entry_post(l, entry, (unsigned)flags, sqe->opcode, flags & VB_SHM_INLINE ? 0 : sqe->nsge,
		     vb_wr_fetches(sqe->opcode) || vb_sq_signals(l->qp, sqe->flags));
	return true;
}

static uint32_t acked(const struct vb_local_qp *l)
{
	return atomic_load_explicit(&l->req.acked, memory_order_relaxed);
}

/* ---- the request stream ---- */

static bool is_staged(const struct vb_local_qp *l, uint32_t position, const struct vb_sqe *sqe)
{
	uint64_t head = atomic_load_explicit(&vb_entry_ours(l, position)->head, memory_order_relaxed);
	return (vb_shm_head_flags(head) & VB_SHM_STAGED) && !vb_wr_fetches(sqe->opcode);
}

/* The send queue entry at a ring position that is not acknowledged yet. */
static struct vb_sqe *sqe_at_ring(struct vb_local_qp *l, uint32_t position)
{
	return vb_sq_at(&l->qp->sq, l->qp->sq.head + (position - acked(l)));
}

/* Puts what fits of one entry; true: all of it has been put. In a busy section. */
static bool stage_entry(struct vb_local_qp *l, struct vb_sqe *sqe, bool *put)
{
	struct vb_ranges from;
	uint64_t room = vb_stream_room(l, VB_STREAM_REQUEST);
	if (room == UINT64_MAX)
		return false;
	uint64_t n = vb_min_u64(room, sqe->length - l->staged);
	if (!n)
		return l->staged == sqe->length;
	enum vb_key_fault fault = VB_KEY_OK;
	if (sqe->flags & IBV_SEND_INLINE)
		vb_ranges_of_bytes(&from, sqe->inline_data + l->staged, n);
	else
		fault = vb_ranges_of_list(&from, vb_arena, vb_sg_list_of_send(l->qp, sqe), l->staged, n, 0);
	if (fault != VB_KEY_OK) {
		fail_sqe(sqe, fault, from.bad);
		return false;
	}
	int err = vb_stream_put(l, VB_STREAM_REQUEST, &from);
	if (err == -EFAULT)
		fail_unmapped(l, sqe);
	else if (err)
		vb_sqe_fail(sqe, IBV_WC_LOC_QP_OP_ERR);
	if (err)
		return false;
	*put = true;
	l->staged += n;
	return l->staged == sqe->length;
}

/* Fills the request stream for the published entries in order. True: the peer should look. */
static bool stage(struct vb_local_qp *l)
{
	bool put = false;
	if (l->peer->copy != VB_COPY_LINK)
		return false;
	/* messages that were their entries have passed it, however many */
	if (l->staging - acked(l) > l->req.published - acked(l)) {
		l->staging = acked(l);
		l->staged = 0;
	}
	vb_busy_begin(l, VB_STREAM_REQUEST);
	for (; l->staging != l->req.published; l->staging++, l->staged = 0) {
		struct vb_sqe *sqe = sqe_at_ring(l, l->staging);
		if (is_staged(l, l->staging, sqe) && !stage_entry(l, sqe, &put))
			break;
	}
	vb_busy_end(l, VB_STREAM_REQUEST);
	return put;
}

/* ---- sending ---- */

/* A fenced entry waits for the READs and atomics before it, an atomic for its place among those in flight. */
static bool must_wait(struct vb_local_qp *l, const struct vb_sqe *sqe)
{
	unsigned depth = vb_min_u32(vb_qp_attr(l->qp, max_rd_atomic), VB_SHM_ATOMICS);
	if (vb_unlikely(sqe->flags & IBV_SEND_FENCE) && l->req.fetches_out)
		return true;
	return vb_wr_is_atomic(sqe->opcode) && l->atomics_out >= depth;
}

/* One entry on its way. False: no more now. */
static bool send_one(struct vb_local_qp *l, bool *published)
{
	struct vb_sq *sq = &l->qp->sq;
	struct vb_sqe *sqe = vb_sq_at(sq, sq->sent);
	bool oldest = sq->head == sq->sent;
	enum here h = HERE_NOT;
	if (vb_unlikely(vb_sqe_is_local(sqe)))
		return oldest && vb_sq_execute(l->qp);
	if (vb_likely(sqe->status == VB_SQE_PENDING) && oldest) {
		h = execute_here(l, sqe);
		sq->begun = h == HERE_MORE && l->req.moved;
	}
	if (h == HERE_DONE) {
		vb_show_executed_here(l, sqe);
		l->req.moved = 0;
		sq->sent++;
		vb_sq_complete(l->qp);
		return true;
	}
	if (h == HERE_MORE) {
		vb_progress_schedule(l->qp);
		return false;
	}
	if (vb_likely(sqe->status == VB_SQE_PENDING)) {
		if (must_wait(l, sqe))
			return false;
		if (oldest) /* else `moved` counts what has come of the oldest request, a READ */
			l->req.moved = 0;
		if (publish(l, sqe)) {
			sq->sent++;
			*published = true;
			return true;
		}
	}
	if (oldest)
		vb_qp_fail(l->qp, sqe->status, vb_wc_status_text(sqe->status));
	return false;
}

void vb_requester_await_acks(struct vb_local_qp *l)
{
	atomic_store_explicit(&l->req.awaited, l->req.published, memory_order_relaxed);
}

static bool may_start(const struct vb_qp *qp)
{
	return atomic_load_explicit(&qp->state, memory_order_relaxed) == IBV_QPS_RTS;
}

/*
 * What has been published goes on its way, whatever else may begin: its bytes through the stream, and the
 * bell for them.
 */
static void go_on(struct vb_local_qp *l, bool published)
{
	struct vb_sq *sq = &l->qp->sq;
	if (stage(l))
		vb_peer_ring(l->peer, l->their_qpn);
	else if (published)
		vb_doorbell_ring(l);
	struct vb_sqe *oldest = vb_sq_at(sq, sq->head);
	if (vb_unlikely(sq->head != sq->sent && oldest->status != VB_SQE_PENDING))
		vb_qp_fail(l->qp, oldest->status, vb_wc_status_text(oldest->status));
}

/* In SQD: ends what has begun. */
static void finish(struct vb_local_qp *l)
{
	struct vb_sq *sq = &l->qp->sq;
	bool published = false;
	if (atomic_load(&l->qp->state) != IBV_QPS_SQD || !vb_sq_is_busy(sq) || !is_ready(l))
		return;
	if (sq->begun)
		send_one(l, &published);
	if (atomic_load(&l->qp->state) != IBV_QPS_SQD)
		return; /* it failed */
	if (published)
		vb_requester_await_acks(l); /* for the end of draining */
	go_on(l, published);
}

/* Entries that are this side's alone need no peer. True: nothing is left to be sent. */
static bool executes_all(struct vb_qp *qp)
{
	struct vb_sq *sq = &qp->sq;
	bool any = false;
	while (sq->sent != sq->tail && sq->head == sq->sent && vb_sqe_is_local(vb_sq_at(sq, sq->sent))) {
		if (!vb_sq_execute(qp))
			return true;
		any = true;
	}
	return any && sq->head == sq->tail;
}

void vb_requester_send(struct vb_local_qp *l)
{
	struct vb_sq *sq = &l->qp->sq;
	bool published = false;
	atomic_store_explicit(&l->req.pending, true, memory_order_relaxed);
	if (vb_unlikely(!l->req.bound))
		/* pairs with the peer, who begins to respond and then rings: vb_requester_is_idle */
		atomic_thread_fence(memory_order_seq_cst);
	if (vb_unlikely(!may_start(l->qp))) {
		finish(l);
		return;
	}
	if (vb_unlikely(executes_all(l->qp)) || !is_ready(l))
		return;
	if (vb_unlikely(sq->head != sq->sent && sq->sent != sq->tail &&
			is_one_sided(vb_sq_at(sq, sq->sent))) &&
	    !vb_requester_take_acks(l))
		return;
	/* A long copy by this side comes in slices: what follows it waits. */
	while (sq->sent != sq->tail && send_one(l, &published))
		;
	if (!may_start(l->qp))
		return; /* it failed */
	if (vb_unlikely(sq->sent != sq->tail))
		vb_requester_await_acks(l);
	go_on(l, published);
}

/* ---- acks ---- */

/*
 * Is the responder still in the epoch that this requester is bound to? If so, the results that the caller
 * has read before are that epoch's. Once the epoch has ended, the responder uses their memory for something
 * else, and the request gets no answer.
 */
static bool in_bound_epoch(const struct vb_local_qp *l)
{
	atomic_thread_fence(memory_order_acquire); /* pairs with close_block in local.c */
	return vb_mode_epoch(atomic_load_explicit(&vb_theirs_of(l)->mode, memory_order_relaxed)) ==
	       l->req.bound_epoch;
}

/* Scatters what an atomic found; false: the buffer is wrong, or it cannot be known any more. */
static bool take_atomic(struct vb_local_qp *l, struct vb_sqe *sqe)
{
	uint64_t found = atomic_load_explicit(&vb_theirs_of(l)->atomics[l->atomics_taken % VB_SHM_ATOMICS],
					      memory_order_relaxed);
	if (!in_bound_epoch(l))
		return false;
	l->atomics_taken++;
	l->atomics_out--;
	return vb_payload_place(l->qp, sqe, 0, &found, sizeof(found));
}

/* The next n bytes of the response stream to where the READ wants them. In a busy section. */
static int take_piece(struct vb_local_qp *l, struct vb_sqe *sqe, uint64_t n)
{
	struct vb_ranges to;
	enum vb_key_fault fault = vb_ranges_of_list(&to, vb_arena, vb_sg_list_of_send(l->qp, sqe),
						    l->req.moved, n, IBV_ACCESS_LOCAL_WRITE);
	if (fault == VB_KEY_OK)
		return vb_stream_take(l, VB_STREAM_RESPONSE, &to);
	fail_sqe(sqe, fault, to.bad);
	return -EACCES;
}

/* Takes what has come of a READ through the response stream; true: all of it. */
static bool take_response(struct vb_local_qp *l, struct vb_sqe *sqe)
{
	uint64_t available = vb_stream_available(l, VB_STREAM_RESPONSE),
		 n = vb_min_u64(available, sqe->length - l->req.moved);
	if (!n)
		return l->req.moved == sqe->length;
	vb_busy_begin(l, VB_STREAM_REQUEST);
	int err = available == UINT64_MAX ? -EPROTO : take_piece(l, sqe, n);
	vb_busy_end(l, VB_STREAM_REQUEST);
	if (err == -EACCES || !in_bound_epoch(l))
		return false;
	if (err == -EFAULT)
		return fail_unmapped(l, sqe), false;
	if (err)
		return vb_sqe_fail(sqe, IBV_WC_BAD_RESP_ERR), false;
	l->req.moved += n;
	vb_peer_ring(l->peer, l->their_qpn);
	return l->req.moved == sqe->length;
}

/*
 * Is the oldest ring entry, a READ or atomic that the responder may or may not have finished, finished on
 * this side too?
 */
static bool is_fetched(struct vb_local_qp *l, struct vb_sqe *sqe, bool acked)
{
	if (sqe->opcode == IBV_WR_RDMA_READ && l->peer->copy == VB_COPY_LINK)
		return take_response(l, sqe) && acked;
	if (!acked)
		return false;
	return !vb_wr_is_atomic(sqe->opcode) || take_atomic(l, sqe);
}

/* What a responder may say; anything else is no answer. */
static enum ibv_wc_status status_of_nak(unsigned status)
{
	switch (status) {
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
	case IBV_WC_LOC_PROT_ERR:
		return status;
	default:
		return IBV_WC_BAD_RESP_ERR;
	}
}

static bool fail_by(struct vb_local_qp *l, enum ibv_wc_status status)
{
	vb_qp_fail(l->qp, status, vb_wc_status_text(status));
	return false;
}

static bool fail_by_nak(struct vb_local_qp *l, enum ibv_wc_status status)
{
	l->naks_received += vb_is_nak(status);
	l->rnr_received += status == IBV_WC_RNR_RETRY_EXC_ERR;
	return fail_by(l, status);
}

/*
 * The ack of the epoch that we are bound to. That epoch may have ended, and the next one begun, since we last
 * looked.
 */
static uint64_t ack_of_epoch(struct vb_local_qp *l)
{
	const struct vb_shm_qp *t = vb_theirs_of(l);
	uint64_t ack = atomic_load_explicit(&t->ack, memory_order_acquire);
	uint32_t epoch = vb_mode_epoch(atomic_load_explicit(&t->mode, memory_order_acquire));
	atomic_store_explicit(&l->req.seen_ack, ack, memory_order_relaxed);
	if (vb_likely(epoch == l->req.bound_epoch))
		return ack;
	return epoch == vb_next_epoch(l->req.bound_epoch) ?
		       atomic_load_explicit(&t->last_ack, memory_order_acquire) :
		       0;
}

static bool is_possible(const struct vb_local_qp *l, uint32_t done)
{
	return done - acked(l) <= l->req.published - acked(l);
}

/*
 * What the responder says: how many ring entries it has executed, and why it stopped (0: it has not). False:
 * nonsense.
 */
static bool read_ack(struct vb_local_qp *l, uint32_t *done, uint8_t *status)
{
	uint64_t ack = ack_of_epoch(l);
	*done = acked(l);
	*status = 0;
	if (!l->req.bound || vb_shm_ack_epoch(ack) != l->epoch)
		return true;
	*done = vb_shm_ack_consumed(ack);
	*status = vb_shm_ack_status(ack);
	return is_possible(l, *done);
}

static void complete_until(struct vb_local_qp *l, uint32_t done)
{
	struct vb_sq *sq = &l->qp->sq;
	for (uint32_t position = acked(l); sq->head != sq->sent; position++) {
		struct vb_sqe *sqe = vb_sq_at(sq, sq->head);
		bool is_fetch = vb_unlikely(vb_wr_fetches(sqe->opcode));
		if (is_fetch ? !is_fetched(l, sqe, position != done) : position == done)
			break;
		vb_show_acknowledged(l, sqe, IBV_WC_SUCCESS);
		atomic_store_explicit(&l->req.acked, position + 1, memory_order_relaxed);
		l->req.moved = 0;
		l->req.fetches_out -= is_fetch;
		vb_sq_complete_likely_send(l->qp, sqe);
	}
	if (sq->head == sq->tail)
		atomic_store_explicit(&l->req.pending, false, memory_order_relaxed);
}

void vb_requester_take_last_acks(struct vb_local_qp *l)
{
	uint32_t done;
	uint8_t status;
	if (read_ack(l, &done, &status))
		complete_until(l, done);
	/* what is flushed waits for no ack: polls look for none */
	atomic_store_explicit(&l->req.awaited, acked(l), memory_order_relaxed);
}

__attribute__((flatten)) bool vb_requester_take_acks(struct vb_local_qp *l)
{
	struct vb_sq *sq = &l->qp->sq;
	uint32_t done;
	uint8_t status;
	if (vb_unlikely(!read_ack(l, &done, &status)))
		return fail_by(l, IBV_WC_BAD_RESP_ERR);
	/* else the entry that has come carries the same ack */
	if (done != acked(l) && !vb_responder_is_called(l))
		vb_ack_came_by_itself(l);
	complete_until(l, done);
	if (sq->head == sq->sent)
		return true;
	uint8_t own = vb_sq_at(sq, sq->head)->status;
	if (vb_unlikely(own != VB_SQE_PENDING))
		return fail_by(l, own);
	if (!status || done != acked(l))
		return true;
	vb_show_acknowledged(l, vb_sq_at(sq, sq->head), status);
	return fail_by_nak(l, status_of_nak(status));
}

__attribute__((flatten)) void vb_requester_take_piggybacked_ack(struct vb_local_qp *l)
{
	/* pairs with note_piggybacked_ack */
	uint32_t done = atomic_load_explicit(&l->req.piggybacked_ack, memory_order_acquire);
	if (!is_possible(l, done))
		return;
	if (done != acked(l))
		vb_ack_came_piggybacked(l);
	complete_until(l, done);
	/* What the ack says by then. */
	atomic_store_explicit(&l->req.seen_ack, vb_shm_ack(acked(l), l->epoch, 0), memory_order_relaxed);
	/* The next request waits for this ack. It may fail, so it is not executed here. */
	if (vb_unlikely(l->qp->sq.sent != l->qp->sq.tail))
		vb_progress_schedule(l->qp);
}

void vb_requester_look(struct vb_local_qp *l)
{
	struct vb_sq *sq = &l->qp->sq;
	if (vb_theirs_of(l) && !vb_requester_take_acks(l))
		return;
	if (sq->head != sq->tail || (l->req.waiting && atomic_load(&l->expired)))
		vb_requester_send(l);
}

/*
 * Safe without a lock: `pending` is set before any ack and its bell, and a peer that stops responding always
 * rings. Byte streams have bells of their own.
 */
bool vb_requester_is_idle(struct vb_local_qp *l)
{
	/* Sequentially consistent, behind the bell: pairs with the fence of vb_requester_send. */
	if (atomic_load(&l->req.pending) || l->peer->copy == VB_COPY_LINK)
		return false;
	uint32_t mode = atomic_load_explicit(&vb_theirs_of(l)->mode, memory_order_acquire);
	uint32_t bound = atomic_load_explicit(&l->req.bound_epoch, memory_order_relaxed); /* 0: not yet */
	return (mode & VB_SHM_RESPONDS) && (!bound || bound == vb_mode_epoch(mode));
}
