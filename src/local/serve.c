/* SPDX-License-Identifier: BSD-2-Clause */
#include "local/serve.h"

#include <errno.h>
#include <string.h>

#include "adapter/device/device.h"
#include "adapter/queues/observer.h"
#include "base/log.h"
#include "local/copy.h"
#include "local/cut.h"
#include "local/doorbell.h"
#include "local/reach.h"
#include "local/ring.h"
#include "wire/timers.h"

/* ---- refusing ---- */

/* The requester's fault, or time: this QP goes on. */
static enum step fail(struct failure *f, enum ibv_wc_status nak, const char *why)
{
	*f = (struct failure){ .nak = nak, .why = why };
	return STEP_FAIL;
}

enum step vb_serve_refuse(struct failure *f, int err, const char *why)
{
	const struct vb_refusal *refusal = vb_refusal_of(vb_nak_of(err));
	*f = (struct failure){ .nak = refusal->requester, .refusal = refusal, .why = why };
	return STEP_FAIL;
}

/* For the requester the message is done. */
enum step vb_serve_refuse_invalidation(struct failure *f, const char *why)
{
	vb_serve_refuse(f, -EINVAL, why);
	f->nak = IBV_WC_SUCCESS;
	return STEP_FAIL;
}

/* ---- epochs of the requester ---- */

/* Has a message of the requester's last epoch begun? The PSNs of its next one begin anew. */
static bool has_begun(const struct vb_local_qp *l)
{
	return atomic_load(&l->resp.next) || l->cur.done || l->execution.have_rwqe;
}

static bool is_connected_to_us(const struct vb_local_qp *l, uint32_t mode)
{
	return vb_serve_is_bound(l) && atomic_load(&vb_theirs_of(l)->dest_qpn) == l->qp->qpn &&
	       !vb_mode_is_other_service(mode, atomic_load(&l->mine->mode));
}

/*
 * Another epoch's ring lies elsewhere, but is as large: looks without a lock may be at the last one's, and
 * are hints.
 */
static bool take_ring(struct vb_local_qp *l)
{
	const struct vb_shm_qp *t = vb_theirs_of(l);
	uint32_t mask = atomic_load(&t->ring_mask), bytes = atomic_load(&t->entry_bytes);
	if (bytes < VB_ENTRY_MIN_BYTES || bytes > VB_ENTRY_MAX_BYTES || bytes % VB_CACHE_LINE ||
	    mask & (mask + 1) || mask >= 2 * VB_MAX_WR)
		return false;
	const uint8_t *ring = vb_peer_range(l->peer, atomic_load(&t->ring), (uint64_t)(mask + 1) * bytes);
	bool is_first = !atomic_load(&l->resp.ring);
	if (!ring || (!is_first && (mask != l->resp.ring_mask || bytes != l->resp.entry_bytes)))
		return false;
	if (is_first) {
		l->resp.ring_mask = mask;
		l->resp.entry_bytes = bytes;
	}
	atomic_store(&l->resp.ring, ring);
	return true;
}

/* A QP that serves nobody is not polled: polls would not see the next requester begin. */
void vb_serve_end(struct vb_local_qp *l)
{
	atomic_store(&l->resp.serving, false); /* first: nobody begins to poll it after that */
	vb_doorbell_poll_end_of(l);
}

/* The last epoch ended in the middle of a message. */
static void refuse_epoch(struct vb_local_qp *l, uint32_t epoch)
{
	vb_serve_end(l);
	l->resp.their_epoch = epoch;
	atomic_store(&l->mine->ack, vb_shm_ack(0, epoch, IBV_WC_REM_OP_ERR));
	vb_explain("responder",
		   "QP 0x%06x: QP 0x%06x was reset in the middle of a message, and this one was not",
		   l->qp->qpn, l->their_qpn);
	vb_peer_ring(l->peer, l->their_qpn);
}

/*
 * Takes up a requester that is bound, from its first entry on. A requester that was reset is taken up anew,
 * unless the reset came in the middle of a message.
 */
static __attribute__((noinline)) bool take_up(struct vb_local_qp *l, uint32_t mode)
{
	uint32_t epoch = vb_mode_epoch(mode);
	if (epoch == l->resp.their_epoch || !is_connected_to_us(l, mode))
		return false;
	if (has_begun(l)) {
		refuse_epoch(l, epoch);
		return false;
	}
	if (!take_ring(l))
		return false;
	/* what has waited for a receive has gone with its epoch */
	atomic_store_explicit(&l->resp.active, false, memory_order_relaxed);
	vb_serve_have_receive(l);
	l->resp.their_epoch = epoch;
	/* pairs with vb_responder_is_called and vb_responder_has_news */
	atomic_store_explicit(&l->resp.serving, true, memory_order_release);
	return true;
}

bool vb_serve_may(struct vb_local_qp *l)
{
	uint32_t mode = atomic_load_explicit(&vb_theirs_of(l)->mode, memory_order_acquire);
	bool requests = mode & VB_SHM_REQUESTS;
	if (vb_is_cut_by(l->peer))
		return false;
	bool is_serving = atomic_load_explicit(&l->resp.serving, memory_order_relaxed);
	if (vb_likely(is_serving && requests) && vb_likely(vb_mode_epoch(mode) == l->resp.their_epoch))
		return true;
	/* An epoch that has ended does not come back: polls find nothing in its ring any more. */
	if (is_serving)
		vb_serve_end(l);
	bool is_new = requests && take_up(l, mode);
	/* the caller may have looked at the last epoch's ring */
	if (is_new && is_serving)
		vb_progress_schedule(l->qp);
	return is_new && !is_serving;
}

/* ---- receives ---- */

/* A request counts once, however long it waits. */
static void count_starved(struct vb_local_qp *l)
{
	uint32_t at = atomic_load_explicit(&l->resp.next, memory_order_relaxed) + 1;
	l->starved += l->starved_at != at;
	l->starved_at = at;
}

/*
 * No receive is posted: wait for one, as long as the requester's rnr_retry and this QP's min_rnr_timer say.
 */
enum step vb_serve_not_ready(struct vb_local_qp *l, struct failure *f)
{
	unsigned retries = atomic_load(&vb_theirs_of(l)->rnr_retry);
	count_starved(l);
	if (vb_unlikely(vb_observer != NULL))
		vb_observer->starved(
			l->qp, retries >= 7 ? UINT64_MAX :
					      retries * vb_rnr_timer_ns(vb_qp_attr(l->qp, min_rnr_timer)));
	if (retries >= 7)
		return STEP_WAIT;
	if (!retries || atomic_load(&l->resp.rnr_expired))
		return fail(f, IBV_WC_RNR_RETRY_EXC_ERR, "no receive was posted in time");
	if (!l->resp.rnr_armed) {
		l->resp.rnr_armed = true;
		vb_timer_set(&l->rnr,
			     vb_now_ns() + retries * vb_rnr_timer_ns(vb_qp_attr(l->qp, min_rnr_timer)));
	}
	return STEP_WAIT;
}

void vb_serve_rnr_fired(struct vb_timer *timer, uint64_t now_ns)
{
	struct vb_local_qp *l = timer->arg;
	atomic_store(&l->resp.rnr_expired, true);
	vb_progress_schedule(l->qp);
}

enum step vb_serve_have_receive(struct vb_local_qp *l)
{
	if (vb_unlikely(l->resp.rnr_armed)) {
		vb_timer_cancel(&l->rnr);
		l->resp.rnr_armed = false;
		atomic_store(&l->resp.rnr_expired, false);
	}
	return STEP_DONE;
}

bool vb_serve_takes_receive_first(const struct vb_local_qp *l)
{
	return l->cur.opcode == IBV_WR_RDMA_WRITE_WITH_IMM &&
	       l->cur.length <= vb_mtu_bytes(l->qp->attr.path_mtu);
}

struct vb_received vb_serve_received(const struct vb_local_qp *l)
{
	const struct vb_entry_copy *r = &l->cur;
	bool has_imm = r->opcode == IBV_WR_SEND_WITH_IMM || r->opcode == IBV_WR_RDMA_WRITE_WITH_IMM,
	     invalidates = r->opcode == IBV_WR_SEND_WITH_INV;
	return (struct vb_received){
		.bytes = r->length,
		.tail_value = r->imm,
		.tail = has_imm	    ? VB_TAIL_IMM :
			invalidates ? VB_TAIL_INVALIDATE :
				      VB_TAIL_NONE,
		.is_write = r->opcode == IBV_WR_RDMA_WRITE_WITH_IMM,
		.solicited = r->flags & VB_SHM_SOLICITED,
	};
}

/* ---- payload ---- */

/*
 * The requester's list, as it is in its ring now: what it makes of it between two steps is checked as at the
 * first.
 */
static struct vb_sg_list their_list(const struct vb_local_qp *l, struct ibv_sge *pieces)
{
	const struct vb_entry_copy *r = &l->cur;
	return (struct vb_sg_list){ .sge = memcpy(pieces, r->payload, r->nsge * sizeof(*pieces)),
				    .n = r->nsge,
				    .pd = atomic_load(&vb_theirs_of(l)->pd) };
}

uint64_t vb_serve_slice(struct vb_local_qp *l)
{
	const struct vb_entry_copy *r = &l->cur;
	uint64_t rest = r->length - r->done;
	if (r->flags & VB_SHM_STAGED) {
		uint64_t ready = r->opcode == IBV_WR_RDMA_READ ? vb_stream_room(l, VB_STREAM_RESPONSE) :
								 vb_stream_available(l, VB_STREAM_REQUEST);
		return ready == UINT64_MAX ? ready : vb_min_u64(rest, ready);
	}
	return vb_min_u64(rest, VB_SLICE_BYTES);
}

static enum step pulled(int err, struct failure *f)
{
	if (vb_likely(!err))
		return STEP_DONE;
	return err == -EFAULT ? STEP_UNMAPPED : vb_serve_refuse(f, -EINVAL, "the peer's byte stream is malformed");
}

enum step vb_serve_pull(struct vb_local_qp *l, const struct vb_ranges *ours, struct failure *f)
{
	struct vb_entry_copy *r = &l->cur;
	struct ibv_sge pieces[VB_MAX_SGE];
	struct vb_ranges from;
	if (r->flags & VB_SHM_STAGED)
		return pulled(vb_stream_take(l, VB_STREAM_REQUEST, ours), f);
	if (r->flags & VB_SHM_INLINE) {
		vb_ranges_of_bytes(&from, r->payload + r->done, ours->bytes);
		return pulled(vb_ranges_copy(ours, &from), f);
	}
	enum vb_key_fault fault =
		vb_peer_list(&from, l->peer, their_list(l, pieces), l->cur.done, ours->bytes, false);
	if (fault != VB_KEY_OK)
		return fail(f, IBV_WC_LOC_PROT_ERR, vb_key_fault_text(fault));
	int err = vb_copy_in(l->peer, ours, &from);
	if (vb_likely(!err || err == -EAGAIN))
		return err ? STEP_MORE : STEP_DONE;
	if (!vb_ranges_are_mapped(ours, true))
		return STEP_UNMAPPED;
	return fail(f, IBV_WC_LOC_PROT_ERR, vb_key_fault_text(VB_KEY_UNMAPPED));
}

/* After a slice: finished, or to be continued. Rings if the peer's stream has moved. */
enum step vb_serve_moved(struct vb_local_qp *l, uint64_t bytes)
{
	struct vb_entry_copy *r = &l->cur;
	r->done += bytes;
	if ((r->flags & VB_SHM_STAGED) && bytes)
		vb_peer_ring(l->peer, l->their_qpn);
	if (r->done == r->length)
		return STEP_DONE;
	return r->flags & VB_SHM_STAGED ? STEP_WAIT : STEP_MORE;
}

static enum step stage_response(struct vb_local_qp *l, const struct vb_ranges *from, struct failure *f)
{
	int err = from->bytes ? vb_stream_put(l, VB_STREAM_RESPONSE, from) : 0;
	if (err == -EFAULT)
		return STEP_UNMAPPED;
	return err ? fail(f, IBV_WC_REM_OP_ERR, "out of memory") : STEP_DONE;
}

enum step vb_serve_push(struct vb_local_qp *l, const struct vb_ranges *ours, struct failure *f)
{
	const struct vb_entry_copy *r = &l->cur;
	struct ibv_sge pieces[VB_MAX_SGE];
	struct vb_ranges to;
	if (r->flags & VB_SHM_STAGED)
		return stage_response(l, ours, f);
	enum vb_key_fault fault =
		vb_peer_list(&to, l->peer, their_list(l, pieces), l->cur.done, ours->bytes, true);
	if (fault != VB_KEY_OK)
		return fail(f, IBV_WC_LOC_PROT_ERR, vb_key_fault_text(fault));
	int err = vb_copy_out(l->peer, &to, ours);
	if (vb_likely(!err || err == -EAGAIN))
		return err ? STEP_MORE : STEP_DONE;
	return vb_ranges_are_mapped(ours, false) ?
		       fail(f, IBV_WC_LOC_PROT_ERR, vb_key_fault_text(VB_KEY_UNMAPPED)) :
		       STEP_UNMAPPED;
}

struct vb_atomic vb_serve_atomic(const struct vb_local_qp *l)
{
	const struct vb_entry_copy *r = &l->cur;
	bool adds = r->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	return (struct vb_atomic){ .addr = r->remote_addr,
				   .rkey = r->rkey,
				   .kind = adds ? VB_REQ_FETCH_ADD : VB_REQ_COMPARE_SWAP,
				   .swap_or_add = adds ? r->compare_add : r->swap,
				   .compare = r->compare_add };
}

void vb_serve_found(struct vb_local_qp *l, uint64_t found)
{
	atomic_store_explicit(&l->mine->atomics[l->atomics_executed++ % VB_SHM_ATOMICS], found,
			      memory_order_relaxed);
}
