/* SPDX-License-Identifier: BSD-2-Clause */
/* Express: straight from a work request with one entry, before there is an entry in the send queue (struct vb_path_ops). */
#include "adapter/show.h"
#include "base/copy.h"
#include "host/touch.h"
#include "local/cut.h"
#include "local/permit.h"
#include "local/reach.h"
#include "local/slots.h"
#include "local/watch.h"

static void *piece_of(struct vb_local_qp *l, const struct ibv_send_wr *wr, unsigned access)
{
	const struct ibv_sge *s = wr->sg_list;
	return wr->send_flags & IBV_SEND_INLINE ? (void *)(uintptr_t)s->addr : vb_key_find(s, access, l->qp->pd->number);
}

static inline void *reach(struct vb_local_qp *l, uint32_t rkey, uint64_t addr, uint64_t length, bool writes)
{
	uint64_t va;
	if (vb_unlikely(!vb_peer_responds(l) || !vb_peer_grants(l, rkey, addr, length, writes ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ, &va)) ||
	    vb_unlikely(!writes && !atomic_load_explicit(&vb_theirs_of(l)->rd_atomic, memory_order_relaxed)))
		return NULL;
	return vb_peer_memory(l, rkey, va, length, writes);
}

void *vb_express_reach(struct vb_local_qp *l, uint32_t rkey, uint64_t addr, uint64_t length, bool writes)
{
	return reach(l, rkey, addr, length, writes);
}

/* As move_whole. */
static bool express_whole(struct vb_local_qp *l, const struct ibv_send_wr *wr, bool writes)
{
	uint64_t length = wr->sg_list->length;
	void *theirs = reach(l, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, length, writes);
	void *ours = piece_of(l, wr, writes ? 0 : IBV_ACCESS_LOCAL_WRITE);
	if (vb_unlikely(!ours || !theirs))
		return false;
	return !(writes ? vb_touch_copy(theirs, ours, length) : vb_touch_copy(ours, theirs, length));
}

/* Else the kernel is asked to copy, beside which a few steps are nothing. A hint. */
static bool is_at_hand(const struct vb_local_qp *l, uint32_t rkey)
{
	const struct vb_key *k = vb_key_at(vb_key_table(l->peer->arena), rkey);
	uint64_t segment = atomic_load_explicit(&k->segment, memory_order_relaxed);
	return l->peer->copy == VB_COPY_SAME || (segment && segment != VB_KEY_NO_SEGMENT);
}

static enum vb_express express_move(struct vb_local_qp *l, const struct ibv_send_wr *wr, bool writes)
{
	if (!is_at_hand(l, wr->wr.rdma.rkey) || wr->sg_list->length > VB_SLICE_BYTES)
		return VB_EXPRESS_NOT;
	vb_busy_begin(l, VB_STREAM_REQUEST);
	if (!writes)
		vb_sq_order_read(&l->qp->sq);
	bool done = express_whole(l, wr, writes);
	vb_busy_end(l, VB_STREAM_REQUEST);
	done = done && !vb_is_cut_by(l->peer);
	if (vb_likely(done))
		vb_shortcut_learn(l, wr);
	return done ? VB_EXPRESS_DONE : VB_EXPRESS_NOT;
}

/* As publish, of a SEND whose payload is there. */
static inline void express_slot(struct vb_local_qp *l, const struct ibv_send_wr *wr, const void *payload)
{
	struct vb_shm_slot *slot = vb_slot_ours(l, l->req.published);
	vb_copy_ordered(slot->data, payload, wr->sg_list->length);
	slot->length = wr->sg_list->length;
	vb_slot_post(l, slot, VB_SHM_INLINE | vb_slot_tell_taken(l, slot), IBV_WR_SEND, 0, vb_sq_signals(l->qp, wr->send_flags));
	vb_watch_ring(l);
}

static enum vb_express express_send(struct vb_local_qp *l, const struct ibv_send_wr *wr)
{
	const void *payload = vb_slot_fits(l->req.slot_bytes, wr->sg_list->length) && vb_peer_responds(l) ? piece_of(l, wr, 0) : NULL;
	if (vb_unlikely(!payload))
		return VB_EXPRESS_NOT;
	express_slot(l, wr, payload);
	vb_permit_learn_to_send(l, wr);
	return VB_EXPRESS_SENT;
}

/* Of what express asks, all but the payload was so when the permit was made. */
__attribute__((flatten)) bool vb_express_repeat(struct vb_local_qp *l, const struct ibv_send_wr *wr)
{
	const struct ibv_sge *piece = wr->sg_list;
	if (vb_unlikely(!vb_permit_holds(l, &l->to_send))) {
		l->qp->sq.repeats = false;
		return false;
	}
	if (!piece->length || !vb_slot_fits(l->req.slot_bytes, piece->length) ||
	    !((wr->send_flags & IBV_SEND_INLINE) || vb_permit_covers(&l->to_send, piece)))
		return false;
	express_slot(l, wr, (const void *)(uintptr_t)piece->addr);
	return true;
}

__attribute__((flatten)) enum vb_express vb_express_post(struct vb_local_qp *l, const struct ibv_send_wr *wr)
{
	if (vb_unlikely(l->qp->type != IBV_QPT_RC || vb_qp_is_shown(l->qp) || !wr->sg_list->length || !vb_theirs_of(l) || !l->req.bound ||
			l->req.waiting || l->peer->copy == VB_COPY_LINK))
		return VB_EXPRESS_NOT;
	if (wr->opcode == IBV_WR_SEND)
		return express_send(l, wr);
	return wr->opcode == IBV_WR_RDMA_WRITE ? express_move(l, wr, true) : express_move(l, wr, false);
}
