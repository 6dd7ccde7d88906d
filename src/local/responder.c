/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder half: executes the entries of the peer's ring in order, as a NIC's responder executes
 * packets. One request is worked on at a time; it may take several looks (slices of a long copy, waiting for
 * a receive or for the byte stream). Statuses are those that the specification gives the requester for the
 * NAK that this responder would send.
 */
#include <errno.h>
#include <string.h>

#include "adapter/queues/completion.h"
#include "adapter/queues/tags.h"
#include "adapter/queues/observer.h"
#include "adapter/xrc/xrc_remote.h"
#include "base/log.h"
#include "host/memory/touch.h"
#include "local/capture.h"
#include "local/copy.h"
#include "local/cut.h"
#include "local/doorbell.h"
#include "local/reach.h"
#include "local/serve.h"
#include "local/ring.h"
#include "local/translation.h"
#include "wire/timers.h"

static enum step fail_request(struct failure *f, const char *why) { return vb_serve_refuse(f, -EINVAL, why); }

/* What a step of the execution has returned. */
static enum step outcome(const struct vb_local_qp *l, int err, struct failure *f)
{
	return vb_likely(!err) ? STEP_DONE : vb_serve_refuse(f, err, l->execution.why);
}

/* ---- the next request ---- */

static bool is_known(unsigned opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV ||
	       opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
	       vb_wr_fetches(opcode) || opcode == IBV_WR_ATOMIC_WRITE || opcode == IBV_WR_FLUSH;
}

static bool is_sane(const struct vb_local_qp *l, const struct vb_entry_copy *r)
{
	uint32_t room = l->resp.entry_bytes - offsetof(struct vb_shm_entry, data);
	bool reads = r->opcode == IBV_WR_RDMA_READ;
	if (!is_known(r->opcode) || r->length > VB_MAX_MSG)
		return false;
	if (r->opcode == IBV_WR_ATOMIC_WRITE && (r->length != 8 || !(r->flags & VB_SHM_INLINE)))
		return false;
	if (r->flags & VB_SHM_INLINE)
		return r->length <= room && !reads;
	if (r->flags & VB_SHM_STAGED)
		return l->peer->copy == VB_COPY_LINK;
	return r->nsge <= VB_MAX_SGE && r->nsge * sizeof(struct ibv_sge) <= room &&
	       (l->peer->copy != VB_COPY_LINK || !r->length);
}

/* Acks for our requester, if both are of one epoch. */
static void note_piggybacked_ack(struct vb_local_qp *l, unsigned flags, uint32_t executed)
{
	uint32_t epoch = atomic_load_explicit(&l->resp.their_epoch, memory_order_relaxed);
	if ((flags & VB_SHM_ACKS) && epoch == atomic_load_explicit(&l->req.bound_epoch, memory_order_relaxed))
		/* behind the peer's head: another thread may complete by it */
		atomic_store_explicit(&l->req.piggybacked_ack, executed, memory_order_release);
}

/* -EINVAL: it is neither this process's, nor can it be another's. */
static int select_queue(struct vb_local_qp *l, uint32_t srqn)
{
	l->resp.is_remote = !vb_xrc_select(l->qp, srqn);
	return l->resp.is_remote && !l->qp->xrcd->share ? -EINVAL : 0;
}

static enum step find_queue(struct vb_local_qp *l, struct failure *f)
{
	return select_queue(l, l->cur.srqn) ?
		       fail_request(f, "the XRC domain has no shared receive queue of this number") :
		       STEP_DONE;
}

/* The queue that the request waits at may have been destroyed. */
static bool has_lost_queue(const struct vb_local_qp *l)
{
	return l->qp->xrcd && !l->qp->srq && !l->resp.is_remote;
}

/* Copies the entry out of the peer's memory; STEP_DONE: there is one. */
static enum step fetch(struct vb_local_qp *l, struct failure *f)
{
	struct vb_entry_copy *r = &l->cur;
	uint32_t next = atomic_load_explicit(&l->resp.next, memory_order_relaxed);
	const struct vb_shm_entry *s = vb_entry_theirs(l, next);
	uint64_t head = atomic_load_explicit(&s->head, memory_order_acquire);
	if (vb_shm_head_tag(head) != next + 1)
		return STEP_IDLE;
	const volatile struct vb_shm_entry *v = s; /* each field is loaded once */
	r->opcode = vb_shm_head_opcode(head);
	r->flags = vb_shm_head_flags(head);
	r->nsge = vb_shm_head_nsge(head);
	r->length = v->length;
	r->imm = v->imm;
	r->remote_addr = v->remote_addr;
	r->rkey = v->rkey;
	if (vb_unlikely(l->qp->xrcd != NULL))
		r->srqn = v->srqn;
	else
		note_piggybacked_ack(l, r->flags, v->executed);
	r->done = 0;
	r->payload = s->data;
	if (!is_sane(l, r))
		return fail_request(f, "the peer's work request is malformed");
	if (vb_unlikely(l->qp->xrcd != NULL) && find_queue(l, f) == STEP_FAIL)
		return STEP_FAIL;
	if (vb_wr_is_atomic(r->opcode) || r->opcode == IBV_WR_FLUSH) {
		r->compare_add = v->atomic.compare_add;
		r->swap = v->atomic.swap;
	}
	atomic_store_explicit(&l->resp.active, true, memory_order_relaxed);
	return STEP_DONE;
}

/* ---- receives ---- */

static enum step need_receive(struct vb_local_qp *l, struct failure *f)
{
	struct vb_execution *x = &l->execution;
	if (x->have_rwqe)
		return STEP_DONE;
	return vb_likely(vb_execution_take(x)) ? vb_serve_have_receive(l) : vb_serve_not_ready(l, f);
}

/* ---- the operations ---- */

/*
 * The message's next bytes to where they belong; its first `skip` bytes, which have been moved, do not count
 * there.
 */
static inline enum step place_next(struct vb_local_qp *l, uint64_t skip, struct failure *f)
{
	struct vb_entry_copy *r = &l->cur;
	struct vb_ranges to;
	int err = vb_execution_fits(&l->execution, r->length - skip);
	uint64_t n = vb_serve_slice(l);
	if (!err && n == UINT64_MAX)
		return fail_request(f, "the peer's byte stream is malformed");
	if (!err)
		err = vb_execution_receive_ranges(&l->execution, r->done - skip, n, &to);
	enum step step = outcome(l, err, f);
	if (step == STEP_DONE && n)
		step = vb_serve_pull(l, &to, f);
	return step == STEP_DONE ? vb_serve_moved(l, n) : step;
}

/* ---- messages to a receiver that matches tags: their beginning says where they go ---- */

static enum step bring_head(struct vb_local_qp *l, uint8_t *head, uint64_t bytes, struct failure *f)
{
	struct vb_entry_copy *r = &l->cur;
	struct vb_ranges to;
	while (r->done < bytes) {
		uint64_t n = vb_serve_slice(l);
		if (n == UINT64_MAX)
			return fail_request(f, "the peer's byte stream is malformed");
		if (!n)
			return STEP_WAIT;
		n = vb_min_u64(n, bytes - r->done);
		vb_ranges_of_bytes(&to, head + r->done, n);
		enum step step = vb_serve_pull(l, &to, f);
		if (step != STEP_DONE)
			return step;
		vb_serve_moved(l, n);
	}
	return STEP_DONE;
}

static enum step place_head(struct vb_local_qp *l, uint8_t *head, uint64_t bytes, uint64_t skip,
			    struct failure *f)
{
	struct vb_ranges to, from;
	int err = vb_execution_fits(&l->execution, l->cur.length - skip);
	if (!err)
		err = vb_execution_receive_ranges(&l->execution, 0, bytes - skip, &to);
	if (err)
		return outcome(l, err, f);
	vb_ranges_of_bytes(&from, head + skip, bytes - skip);
	return vb_ranges_copy(&to, &from) ? STEP_UNMAPPED : STEP_DONE;
}

static enum step do_tagged_send(struct vb_local_qp *l, struct failure *f)
{
	struct vb_qp *qp = l->qp;
	struct vb_entry_copy *r = &l->cur;
	uint8_t *head = vb_tag_receiver_head(qp);
	uint64_t bytes = vb_min_u64(r->length, VB_RENDEZVOUS_MAX_BYTES);
	bool whole = bytes == r->length, is_new = !l->execution.have_rwqe;
	enum step step = bring_head(l, head, bytes, f);
	if (step != STEP_DONE)
		return step;
	if (is_new && !vb_execution_take_tagged(&l->execution, head, bytes, whole))
		return vb_serve_not_ready(l, f);
	uint64_t skip = vb_tags_skip(qp);
	if (is_new)
		step = vb_serve_have_receive(l);
	if (skip == UINT64_MAX)
		return STEP_DONE;
	if (is_new)
		step = place_head(l, head, bytes, skip, f);
	return step == STEP_DONE ? place_next(l, skip, f) : step;
}

static enum step do_send(struct vb_local_qp *l, struct failure *f)
{
	if (vb_unlikely(l->qp->tags != NULL))
		return do_tagged_send(l, f);
	enum step step = need_receive(l, f);
	return step == STEP_DONE ? place_next(l, 0, f) : step;
}

static enum step do_send_invalidate(struct vb_local_qp *l, struct failure *f)
{
	enum step step = do_send(l, f);
	if (step == STEP_DONE && vb_execution_invalidate(&l->execution, l->cur.imm))
		return vb_serve_refuse_invalidation(f, l->execution.why);
	return step;
}

/* The request's target. */
static struct vb_key_use use_of(const struct vb_local_qp *l, unsigned right)
{
	const struct vb_entry_copy *r = &l->cur;
	return vb_execution_use(&l->execution, r->rkey, r->remote_addr, r->length, right);
}

/* Finds where the request's target is in this process, for its next slice. */
static enum step target(struct vb_local_qp *l, unsigned right, uint64_t *va, struct failure *f)
{
	struct vb_key_use use = use_of(l, right);
	return outcome(l, vb_execution_translate(&l->execution, &use, va), f);
}

static enum step do_write_data(struct vb_local_qp *l, struct failure *f)
{
	struct vb_entry_copy *r = &l->cur;
	struct vb_ranges to;
	uint64_t va = 0;
	enum step step = target(l, IBV_ACCESS_REMOTE_WRITE, &va, f);
	if (step != STEP_DONE || r->done == r->length)
		return step;
	uint64_t n = vb_serve_slice(l);
	if (n == UINT64_MAX)
		return fail_request(f, "the peer's byte stream is malformed");
	vb_execution_target_ranges(&to, r->rkey, va + r->done, n);
	step = n ? vb_serve_pull(l, &to, f) : STEP_DONE;
	return step == STEP_DONE ? vb_serve_moved(l, n) : step;
}

static enum step do_short_write_with_immediate(struct vb_local_qp *l, struct failure *f)
{
	enum step step = outcome(l, vb_execution_check_right(&l->execution, IBV_ACCESS_REMOTE_WRITE), f);
	if (step == STEP_DONE)
		step = need_receive(l, f);
	return step == STEP_DONE ? do_write_data(l, f) : step;
}

static enum step do_write(struct vb_local_qp *l, struct failure *f)
{
	if (vb_serve_takes_receive_first(l))
		return do_short_write_with_immediate(l, f);
	enum step step = do_write_data(l, f);
	if (step != STEP_DONE || l->cur.opcode == IBV_WR_RDMA_WRITE)
		return step;
	return need_receive(l, f);
}

static enum step do_read(struct vb_local_qp *l, struct failure *f)
{
	struct vb_entry_copy *r = &l->cur;
	struct vb_ranges from;
	uint64_t va = 0;
	enum step step = target(l, IBV_ACCESS_REMOTE_READ, &va, f);
	if (step != STEP_DONE || r->done == r->length)
		return step;
	uint64_t n = vb_serve_slice(l);
	if (n == UINT64_MAX)
		return fail_request(f, "the peer's byte stream is malformed");
	/* others see what the requests before it have stored: as vb_order_read */
	atomic_thread_fence(memory_order_seq_cst);
	vb_execution_target_ranges(&from, r->rkey, va + r->done, n);
	step = vb_serve_push(l, &from, f);
	return step == STEP_DONE ? vb_serve_moved(l, n) : step;
}

static enum step do_atomic_write(struct vb_local_qp *l, struct failure *f)
{
	const struct vb_entry_copy *r = &l->cur;
	struct vb_atomic atomic = { .rkey = r->rkey, .addr = r->remote_addr, .kind = VB_REQ_ATOMIC_WRITE };
	uint64_t found;
	memcpy(&atomic.swap_or_add, r->payload, sizeof(atomic.swap_or_add));
	return outcome(l, vb_execution_atomic(&l->execution, &atomic, &found), f);
}

static enum step do_atomic(struct vb_local_qp *l, struct failure *f)
{
	struct vb_atomic atomic = vb_serve_atomic(l);
	uint64_t found;
	int err = vb_execution_atomic(&l->execution, &atomic, &found);
	if (!err)
		vb_serve_found(l, found);
	return outcome(l, err, f);
}

static enum step do_flush(struct vb_local_qp *l, struct failure *f)
{
	const struct vb_entry_copy *r = &l->cur;
	return outcome(l,
		       vb_execution_flush(&l->execution, r->rkey, r->remote_addr, r->compare_add,
					  vb_flush_placement(r->swap), vb_flush_selectivity(r->swap)),
		       f);
}

static bool is_send(unsigned opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV;
}

static enum step fail_unmapped(struct vb_local_qp *l, struct failure *f)
{
	const struct vb_entry_copy *r = &l->cur;
	struct vb_execution *x = &l->execution;
	struct vb_key_use use = use_of(l, r->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ :
									  IBV_ACCESS_REMOTE_WRITE);
	return outcome(l,
		       is_send(r->opcode) ?
			       vb_execution_receive_is_unmapped(x) :
			       vb_execution_target_is_unmapped(x, &use),
		       f);
}

static enum step execute(struct vb_local_qp *l, struct failure *f)
{
	unsigned opcode = l->cur.opcode;
	if (vb_unlikely(l->resp.is_remote))
		return STEP_REMOTE;
	if (is_send(opcode))
		return opcode == IBV_WR_SEND_WITH_INV ? do_send_invalidate(l, f) : do_send(l, f);
	if (opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		return do_write(l, f);
	if (!vb_qp_attr(l->qp, max_dest_rd_atomic))
		return fail_request(f, "READ or atomic to a queue pair whose max_dest_rd_atomic is 0");
	if (opcode == IBV_WR_ATOMIC_WRITE)
		return do_atomic_write(l, f);
	if (opcode == IBV_WR_FLUSH)
		return do_flush(l, f);
	return opcode == IBV_WR_RDMA_READ ? do_read(l, f) : do_atomic(l, f);
}

/* ---- results ---- */

static void complete_receive(struct vb_local_qp *l)
{
	struct vb_received received = vb_serve_received(l);
	vb_execution_complete(&l->execution, &received);
}

/* The entry at resp.next is executed. */
static inline void acknowledge(struct vb_local_qp *l)
{
	uint32_t next = atomic_load_explicit(&l->resp.next, memory_order_relaxed) + 1;
	atomic_store_explicit(&l->mine->ack, vb_shm_ack(next, l->resp.their_epoch, 0), memory_order_release);
	/*
	 * Behind the ack, and pairs with vb_entry_piggyback_ack: a peer that has an entry's ack finds no
	 * older one in the control block. Another thread may be posting.
	 */
	atomic_store_explicit(&l->resp.next, next, memory_order_release);
}

/* The ack goes first: the sender has it before this side's program can answer the message. */
static void finish(struct vb_local_qp *l)
{
	vb_show_served(l, IBV_WC_SUCCESS);
	atomic_store_explicit(&l->resp.active, false, memory_order_relaxed);
	acknowledge(l);
	if (l->execution.have_rwqe && vb_unlikely(l->resp.is_remote))
		vb_xrc_remote_finish(l);
	else if (l->execution.have_rwqe)
		complete_receive(l);
	if (vb_unlikely(l->qp->xrcd != NULL))
		vb_srq_release(l->qp);
	if (vb_unlikely(!l->qp->comm_est))
		vb_qp_established(l->qp);
}

/* Of what is wrong with the requester's own memory its own process says more. */
static void explain_refusal(const struct vb_local_qp *l, const struct failure *f)
{
	const struct vb_entry_copy *r = &l->cur;
	const struct vb_execution *x = &l->execution;
	const struct vb_rwqe *w = &x->rwqe;
	if (f->nak == IBV_WC_LOC_PROT_ERR)
		return;
	if (f->nak == IBV_WC_RNR_RETRY_EXC_ERR)
		vb_explain_limit("responder", "QP 0x%06x, request of QP 0x%06x: %s", l->qp->qpn, l->their_qpn,
				 f->why);
	else if (x->have_rwqe && x->receive_status != IBV_WC_SUCCESS)
		vb_explain(
			"receiver",
			"QP 0x%06x, receive wr_id 0x%llx, %llu bytes: a message of QP 0x%06x, %u bytes: %s",
			l->qp->qpn, (unsigned long long)w->wr_id, (unsigned long long)w->length, l->their_qpn,
			r->length, f->why);
	else
		vb_explain("responder",
			   "QP 0x%06x, request of QP 0x%06x (address 0x%llx, length %u, rkey 0x%x): %s",
			   l->qp->qpn, l->their_qpn, (unsigned long long)r->remote_addr,
			   vb_wr_is_atomic(r->opcode) ? 8 : r->length, r->rkey, f->why);
}

/* The connection ends here: the ack says why, if the peer is to know; no further request is executed. */
static void finish_failed(struct vb_local_qp *l, const struct failure *f, struct vb_verdict *v)
{
	uint32_t next = atomic_load_explicit(&l->resp.next, memory_order_relaxed),
		 epoch = l->resp.their_epoch;
	struct vb_execution *x = &l->execution;
	bool is_reported = x->have_rwqe && f->refusal; /* by the receive's completion */
	l->naks_sent += vb_is_nak(f->nak);
	explain_refusal(l, f);
	vb_show_served(l, f->nak);
	if (f->refusal && x->receive_status == IBV_WC_SUCCESS)
		x->receive_status = f->refusal->receive;
	atomic_store_explicit(&l->resp.active, false, memory_order_relaxed);
	l->to_receive.is_made = false;
	vb_serve_end(l);
	v->broken = f->refusal != NULL;
	v->event = f->refusal && !is_reported ? f->refusal->event : -1;
	atomic_store_explicit(&l->mine->ack, vb_shm_ack(next + (f->nak == IBV_WC_SUCCESS), epoch, f->nak),
			      memory_order_release);
}

/* False: another thread has the send queue. */
static bool take_piggybacked_ack(struct vb_local_qp *l)
{
	if (!vb_lock_try(&l->qp->sq.lock)) {
		vb_progress_retry(l->qp);
		return false;
	}
	vb_requester_take_piggybacked_ack(l);
	vb_unlock(&l->qp->sq.lock);
	return true;
}

/* A send completes before the receive of the answer to it. */
static inline bool complete_by_piggybacked_ack(struct vb_local_qp *l)
{
	return !vb_requester_has_piggybacked_ack(l) || take_piggybacked_ack(l);
}

/* A receive that a message goes to. */
struct destination {
	uint64_t wr_id;
	const struct ibv_sge *sge;
	uint32_t nsge;
};

/*
 * Finds the next receive. It stays in the queue pair's own queue, but is taken from a shared one: then
 * serve_any goes on with it if the caller gives up. False: there is none.
 */
static inline bool find_receive(struct vb_local_qp *l, struct destination *d)
{
	struct vb_execution *x = &l->execution;
	if (vb_likely(!l->qp->srq)) {
		const struct vb_receive *r = vb_receive_peek(l->qp);
		if (vb_likely(r != NULL))
			*d = (struct destination){ r->wr_id, r->sge, r->nsge };
		return r;
	}
	if (vb_unlikely(!x->have_rwqe && !vb_execution_take(x)))
		return false;
	*d = (struct destination){ x->rwqe.wr_id, x->rwqe.sge, x->rwqe.nsge };
	return true;
}

static inline void pass_receive(struct vb_local_qp *l)
{
	if (vb_likely(!l->qp->srq))
		vb_receive_pass(l->qp);
	else
		l->execution.have_rwqe = false;
}

/* Where a piece of a receive is; the first one is learned. holds: the translation of receives does. */
static inline void *find_piece(struct vb_local_qp *l, const struct ibv_sge *piece, bool holds, bool is_first)
{
	void *known = holds ? vb_translation_of_piece(&l->to_receive, piece) : NULL;
	if (vb_likely(known != NULL))
		return known;
	void *found = vb_key_find(piece, IBV_ACCESS_LOCAL_WRITE, vb_receive_domain(l->qp));
	if (found && is_first)
		vb_translation_learn_receive(l, piece);
	return found;
}

/* Where each piece that the message needs is. False: one is not simply there, or there is no room. */
static bool find_pieces(struct vb_local_qp *l, const struct destination *d, uint32_t length, bool holds,
			void *at[VB_MAX_SGE])
{
	for (uint32_t i = 0; length && i < d->nsge; i++) {
		uint32_t part = vb_min_u32(length, d->sge[i].length);
		at[i] = part ? find_piece(l, &d->sge[i], holds, i == 0) : NULL;
		if (part && !at[i])
			return false;
		length -= part;
	}
	return !length;
}

/* Out of line: else one piece would pay for the registers that many need. */
static __attribute__((noinline)) bool scatter_many(struct vb_local_qp *l, const struct destination *d,
						   const uint8_t *from, uint32_t length, bool holds)
{
	void *at[VB_MAX_SGE];
	if (!find_pieces(l, d, length, holds, at))
		return false;
	for (uint32_t i = 0; length; i++) {
		uint32_t part = vb_min_u32(length, d->sge[i].length);
		if (part && vb_touch_copy(at[i], from, part))
			return false;
		from += part;
		length -= part;
	}
	return true;
}

/*
 * In order: the last bytes become visible last. False: the receive is too short, or a piece is not simply
 * there; then nothing has been written, unless memory is not mapped.
 */
static inline bool scatter(struct vb_local_qp *l, const struct destination *d, const uint8_t *from,
			   uint32_t length, bool holds)
{
	if (vb_unlikely(!d->nsge || length > d->sge->length))
		return scatter_many(l, d, from, length, holds);
	void *to = find_piece(l, d->sge, holds, true);
	return vb_likely(to != NULL) && vb_likely(!vb_touch_copy(to, from, length));
}

/* Does a small SEND to this QP take its bytes and a completion, and nothing else? */
static bool is_plain(const struct vb_local_qp *l)
{
	const struct vb_qp *qp = l->qp;
	return qp->type == IBV_QPT_RC && qp->comm_est && !qp->counts_receives && !qp->tags &&
	       !l->execution.have_rwqe && !vb_qp_is_captured(qp);
}

static inline bool is_send_with_payload(uint64_t head)
{
	unsigned opcode = vb_shm_head_opcode(head);
	return (opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM) &&
	       (vb_shm_head_flags(head) & VB_SHM_INLINE);
}

/* The peer's entry at resp.next, as resp_lock's holder sees it. vb_entry_has_come looks without the lock. */
struct arrival {
	const struct vb_shm_entry *entry;
	uint64_t head;
	bool has_come;
};

static inline struct arrival look_at_next(const struct vb_local_qp *l)
{
	uint32_t next = atomic_load_explicit(&l->resp.next, memory_order_relaxed);
	const struct vb_shm_entry *s = vb_entry_theirs(l, next);
	uint64_t head = atomic_load_explicit(&s->head, memory_order_acquire);
	return (struct arrival){ s, head, vb_shm_head_tag(head) == next + 1 };
}

/*
 * The fast path of a SEND whose payload is in the entry. Returns false, having done nothing, if the request
 * is of another kind, must wait or must fail. `holds`: the translation of receives is still valid.
 */
static inline bool serve_small_send(struct vb_local_qp *l, const struct arrival *a, bool holds)
{
	const struct vb_shm_entry *s = a->entry;
	uint64_t head = a->head;
	unsigned flags = vb_shm_head_flags(head);
	struct destination d;
	if (!a->has_come || !is_send_with_payload(head) || !(holds || is_plain(l)))
		return false;
	/* each field is loaded once, and not while the entry may be written */
	const volatile struct vb_shm_entry *v = s;
	uint32_t length = v->length, imm = v->imm;
	if (!length || !vb_entry_fits(l->resp.entry_bytes, length))
		return false;
	note_piggybacked_ack(l, flags, v->executed);
	if (vb_unlikely(!complete_by_piggybacked_ack(l)) || vb_unlikely(!find_receive(l, &d)))
		return false;
	if (vb_unlikely(!scatter(l, &d, s->data, length, holds)))
		return false; /* serve_any finds the same, and refuses */
	if (vb_is_cut_by(l->peer))
		return false;
	acknowledge(l);
	struct vb_qp *qp = l->qp;
	struct vb_cqe *e = vb_cq_open(qp->recv_cq);
	*e = (struct vb_cqe){ .wr_id = d.wr_id,
			      .qp = qp,
			      .opcode = IBV_WC_RECV,
			      .byte_len = length,
			      .imm = imm,
			      .wc_flags = vb_shm_head_opcode(head) == IBV_WR_SEND ? 0 : IBV_WC_WITH_IMM,
			      .is_recv = 1,
			      .is_srq = qp->srq != NULL,
			      .srq = qp->srq,
			      .src_qp = l->their_qpn,
			      .solicited = (flags & VB_SHM_SOLICITED) != 0 };
	pass_receive(l);
	vb_traffic_add(&qp->received, length);
	vb_cq_close(qp->recv_cq, e);
	return true;
}

static enum step serve_any(struct vb_local_qp *l, struct failure *f)
{
	enum step step = STEP_DONE;
	if (!atomic_load_explicit(&l->resp.active, memory_order_relaxed))
		step = fetch(l, f);
	else if (vb_unlikely(has_lost_queue(l)))
		step = find_queue(l, f);
	if (step == STEP_DONE)
		step = vb_likely(complete_by_piggybacked_ack(l)) ? execute(l, f) : STEP_MORE;
	if (vb_unlikely(step == STEP_UNMAPPED))
		step = fail_unmapped(l, f);
	if (vb_is_cut_by(l->peer))
		return STEP_IDLE;
	if (step == STEP_DONE)
		finish(l);
	return step;
}

/* *bytes: those that it has moved are added. */
static inline enum step serve_one(struct vb_local_qp *l, const struct arrival *a, bool holds,
				  struct failure *f, uint64_t *bytes)
{
	if (vb_likely(!atomic_load_explicit(&l->resp.active, memory_order_relaxed)) &&
	    vb_likely(serve_small_send(l, a, holds)))
		return STEP_DONE;
	enum step step = serve_any(l, f);
	*bytes += l->cur.length;
	return step;
}

/* Does the epoch go on? A translation that holds says so. */
static inline bool may_serve(struct vb_local_qp *l, bool holds)
{
	return vb_likely(holds) || vb_serve_may(l);
}

/*
 * In a busy section, whose end revokers await, and a peer in this process before it frees its ring. So once
 * the section has begun, the check that the epoch goes on makes the ring safe to read.
 */
static inline enum step serve_some(struct vb_local_qp *l, struct failure *f, unsigned *served)
{
	enum step step;
	uint64_t bytes = 0;
	bool holds = vb_translation_holds(l, &l->to_receive);
	struct arrival a = { .has_come = false };
	if (!may_serve(l, holds))
		return STEP_IDLE;
	if (vb_likely(atomic_load_explicit(&l->resp.serving, memory_order_relaxed)))
		a = look_at_next(l);
	while ((step = serve_one(l, &a, holds, f, &bytes)) == STEP_DONE) {
		++*served;
		a = look_at_next(l);
		if (!a.has_come)
			break;
		if (*served == VB_SERVE_BATCH || bytes >= VB_SLICE_BYTES || vb_requester_has_news(l))
			return STEP_MORE;
		if (!may_serve(l, holds))
			return STEP_IDLE;
	}
	return step;
}

/* Executes what there is, up to a bound: STEP_MORE beyond. *served: entries. */
static enum step serve_batch(struct vb_local_qp *l, struct failure *f, unsigned *served)
{
	*served = 0;
	vb_busy_begin(l, VB_STREAM_RESPONSE);
	enum step step = serve_some(l, f, served);
	vb_busy_end(l, VB_STREAM_RESPONSE);
	return step;
}

static enum step serve_remote(struct vb_local_qp *l, struct failure *f, unsigned *served)
{
	enum step step = vb_xrc_remote_serve(l, f);
	if (vb_is_cut_by(l->peer))
		return STEP_IDLE;
	if (step != STEP_DONE)
		return step;
	finish(l);
	++*served;
	return vb_entry_has_come(l) ? STEP_MORE : STEP_DONE;
}

struct vb_verdict vb_responder_serve(struct vb_local_qp *l)
{
	struct vb_verdict v = { .event = -1 };
	struct failure f;
	unsigned n;
	if (!(atomic_load(&l->mine->mode) & VB_SHM_RESPONDS))
		return v;
	enum step step = serve_batch(l, &f, &n);
	if (vb_unlikely(step == STEP_REMOTE))
		step = serve_remote(l, &f, &n);
	if (step == STEP_FAIL)
		finish_failed(l, &f, &v);
	if (vb_unlikely(step == STEP_FAIL))
		vb_peer_ring(l->peer, l->their_qpn);
	else if (n)
		vb_doorbell_ring_for_ack(l);
	atomic_store_explicit(&l->resp.waits, step == STEP_WAIT, memory_order_relaxed);
	v.more = step == STEP_MORE;
	return v;
}

bool vb_responder_has_news(const struct vb_local_qp *l)
{
	if (!atomic_load_explicit(&l->resp.serving, memory_order_acquire))
		return vb_serve_is_bound(l);
	return atomic_load_explicit(&l->resp.active, memory_order_relaxed) || vb_entry_has_come(l);
}

void vb_responder_fetch(const struct vb_local_qp *l)
{
	uint32_t next = atomic_load_explicit(&l->resp.next, memory_order_relaxed);
	if (!atomic_load_explicit(&l->resp.serving, memory_order_acquire))
		return;
	vb_fetch(vb_entry_theirs(l, next));
	vb_fetch(vb_entry_theirs(l, next + 1));
	if (l->qp->rq.entries)
		vb_fetch(vb_receive_at(&l->qp->rq,
				       atomic_load_explicit(&l->qp->rq.head, memory_order_relaxed)));
}
