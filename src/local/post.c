/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A post that needs no queue: a request is carried out, or its slot is filled, straight from the work request. Each step makes the checks
 * that the queue's way makes (requester.c), or finds in a cached translation that they were made. What is not plainly so goes through
 * the queue, which refuses or waits as it must.
 */
#include "adapter/show.h"
#include "host/touch.h"
#include "local/cut.h"
#include "local/reach.h"
#include "local/slots.h"
#include "local/translation.h"
#include "local/watch.h"

/* A request's pieces, where this process has them. */
struct pieces {
	int n;
	bool known; /* all by the translation */
	struct {
		void *at;
		uint32_t bytes;
	} of[VB_MAX_SGE];
};

/* Is it the kind of connection that try_post is for, and in its usual state? */
static bool is_usual(const struct vb_local_qp *l)
{
	return l->qp->type == IBV_QPT_RC && !vb_qp_is_shown(l->qp) && vb_theirs_of(l) && l->req.bound && !l->req.waiting &&
	       l->peer->copy != VB_COPY_LINK;
}

/* All of them, or none: nothing is copied before all are allowed. t: a translation that holds, or NULL. */
static inline bool find_pieces(struct pieces *p, const struct vb_local_qp *l, const struct vb_translation *t, const struct ibv_send_wr *wr,
			       unsigned access)
{
	p->n = 0;
	p->known = t != NULL;
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *piece = &wr->sg_list[i];
		void *at = wr->send_flags & IBV_SEND_INLINE ? (void *)(uintptr_t)piece->addr : t ? vb_translation_of_piece(t, piece) : NULL;
		if (vb_unlikely(!piece->length))
			continue;
		if (vb_unlikely(!at)) {
			at = vb_key_find(piece, access, l->qp->pd->number);
			p->known = false;
		}
		if (vb_unlikely(!at))
			return false;
		p->of[p->n].at = at;
		p->of[p->n++].bytes = piece->length;
	}
	return true;
}

/* In order, so that a message's last bytes become visible last. False: memory has gone. */
static inline bool move_pieces(const struct pieces *p, uint8_t *there, bool writes)
{
	for (int i = 0; i < p->n; there += p->of[i++].bytes)
		if (vb_unlikely(writes ? vb_touch_copy(there, p->of[i].at, p->of[i].bytes) : vb_touch_copy(p->of[i].at, there, p->of[i].bytes)))
			return false;
	return true;
}

static inline enum vb_post_result try_send(struct vb_local_qp *l, const struct ibv_send_wr *wr, uint32_t length)
{
	const struct vb_translation *t = vb_translation_holds(l, &l->to_send) ? &l->to_send : NULL;
	struct pieces pieces;
	if (vb_unlikely(!t && !(is_usual(l) && vb_peer_responds(l))) || vb_unlikely(!vb_slot_fits(l->req.slot_bytes, length)))
		return VB_POST_NOT;
	struct vb_shm_slot *slot = vb_slot_ours(l, l->req.published);
	if (vb_unlikely(!find_pieces(&pieces, l, t, wr, 0)) || vb_unlikely(!move_pieces(&pieces, slot->data, true)))
		return VB_POST_NOT;
	slot->length = length;
	vb_slot_post(l, slot, VB_SHM_INLINE | vb_slot_tell_taken(l, slot), IBV_WR_SEND, 0, vb_sq_signals(l->qp, wr->send_flags));
	vb_watch_ring(l);
	if (vb_unlikely(!pieces.known))
		vb_translation_learn_send(l, wr);
	return VB_POST_SENT;
}

/* In a busy section. */
static inline bool move(struct vb_local_qp *l, struct vb_translation *t, const struct ibv_send_wr *wr, uint32_t length, bool writes)
{
	bool holds = vb_translation_holds(l, t);
	const struct ibv_send_wr *w = wr;
	struct pieces pieces;
	if (vb_unlikely(!holds && !is_usual(l)))
		return false;
	uint8_t *there = holds ? vb_translation_of_target(t, w->wr.rdma.rkey, w->wr.rdma.remote_addr, length) : NULL;
	bool known = there;
	if (vb_unlikely(!known))
		there = vb_peer_reach(l, w->wr.rdma.rkey, w->wr.rdma.remote_addr, length, writes);
	if (vb_unlikely(!there) || vb_unlikely(!find_pieces(&pieces, l, holds ? t : NULL, wr, writes ? 0 : IBV_ACCESS_LOCAL_WRITE)) ||
	    vb_unlikely(!move_pieces(&pieces, there, writes)))
		return false;
	if (vb_unlikely(!known || !pieces.known))
		vb_translation_learn_move(l, t, wr, writes);
	return true;
}

static inline enum vb_post_result try_move(struct vb_local_qp *l, struct vb_translation *t, const struct ibv_send_wr *wr, uint32_t length, bool writes)
{
	if (vb_unlikely(length > VB_SLICE_BYTES) || vb_unlikely(!t->is_made && !is_usual(l)))
		return VB_POST_NOT;
	vb_busy_begin(l, VB_STREAM_REQUEST);
	bool done = move(l, t, wr, length, writes);
	vb_busy_end(l, VB_STREAM_REQUEST);
	return vb_likely(done) && vb_likely(!vb_is_cut_by(l->peer)) ? VB_POST_DONE : VB_POST_NOT;
}

/* A peer that waits for a WRITE has the line that it goes to, so that is asked for before everything else. A guess: it is not looked at. */
static inline void fetch_target(const struct vb_translation *t, const struct ibv_send_wr *wr)
{
	vb_fetch_to_write((const void *)((uintptr_t)t->there + (wr->wr.rdma.remote_addr - t->theirs)));
}

__attribute__((flatten)) enum vb_post_result vb_local_try_post(struct vb_qp *qp, const struct ibv_send_wr *wr, uint32_t length)
{
	struct vb_local_qp *l = vb_local_of(qp);
	switch (wr->opcode) {
	case IBV_WR_SEND:
		return try_send(l, wr, length);
	case IBV_WR_RDMA_WRITE:
		fetch_target(&l->to_write, wr);
		return try_move(l, &l->to_write, wr, length, true);
	case IBV_WR_RDMA_READ:
		return try_move(l, &l->to_read, wr, length, false);
	default:
		return VB_POST_NOT;
	}
}
