/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A post that needs no queue: a request is carried out, or its entry is filled, straight from the work
 * request. Each step makes the checks that the queue's way makes (requester.c), or finds in a cached
 * translation that they were made. What is not plainly so goes through the queue, which refuses or waits as
 * it must.
 */
#include "adapter/inspection/packet_view.h"
#include "host/memory/touch.h"
#include "local/cut.h"
#include "local/doorbell.h"
#include "local/reach.h"
#include "local/ring.h"
#include "local/translation.h"

/* Is the connection in its usual state? */
static bool is_usual(const struct vb_local_qp *l)
{
	return !vb_qp_is_captured(l->qp) && vb_theirs_of(l) && l->req.bound && !l->req.waiting;
}

/* May this side carry out one-sided operations? Of XRC, the responder knows the domain. */
static bool executes(const struct vb_local_qp *l)
{
	return l->qp->type == IBV_QPT_RC && is_usual(l) && l->peer->copy != VB_COPY_LINK;
}

/* A request that is being carried out. */
struct attempt {
	struct vb_local_qp *l;
	const struct ibv_send_wr *wr;
	const struct vb_translation *t; /* one that holds, or NULL */
	bool missed;                    /* something was not found in it */
};

static __attribute__((noinline)) void *find_by_key(const struct vb_local_qp *l, const struct ibv_sge *piece,
						   unsigned access)
{
	return vb_key_find(piece, access, l->qp->pd->number);
}

/* Where a piece of this process's memory is; NULL: it is not simply there. */
static inline void *find_piece(struct attempt *a, const struct ibv_sge *piece, unsigned access)
{
	if (a->wr->send_flags & IBV_SEND_INLINE)
		return (void *)(uintptr_t)piece->addr;
	void *known = vb_likely(a->t != NULL) ? vb_translation_of_piece(a->t, piece) : NULL;
	if (vb_likely(known != NULL))
		return known;
	a->missed = true;
	return find_by_key(a->l, piece, access);
}

/* Are all pieces but the first allowed? Nothing is written before that is known. */
static inline bool may_read_the_rest(struct attempt *a)
{
	for (int i = 1; vb_unlikely(i < a->wr->num_sge); i++)
		if (a->wr->sg_list[i].length && !find_piece(a, &a->wr->sg_list[i], 0))
			return false;
	return true;
}

/*
 * Between the pieces, in order, and `there`: a message's last bytes become visible last. False: it takes the
 * queue's way.
 */
static inline bool copy_pieces(struct attempt *a, uint8_t *there, bool writes)
{
	if (vb_unlikely(writes && !may_read_the_rest(a)))
		return false;
	for (int i = 0; i < a->wr->num_sge; i++) {
		const struct ibv_sge *piece = &a->wr->sg_list[i];
		if (vb_unlikely(!piece->length))
			continue;
		void *at = find_piece(a, piece, writes ? 0 : IBV_ACCESS_LOCAL_WRITE);
		if (vb_unlikely(!at) || vb_unlikely(vb_peer_copy(a->l->peer, writes ? there : at,
							       writes ? at : there, piece->length)))
			return false;
		there += piece->length;
	}
	return true;
}

/* Into the entry. False: the piece is not simply there. */
static inline bool gather_piece(struct attempt *a, const struct ibv_sge *piece, uint8_t **to)
{
	uint32_t length = piece->length;
	if (vb_unlikely(!length))
		return true;
	void *at = find_piece(a, piece, 0);
	if (vb_unlikely(!at) || vb_unlikely(vb_touch_copy(*to, at, length)))
		return false;
	*to += length;
	return true;
}

/*
 * All but the first. Out of line, as what follows: else one piece would pay for the registers that many need.
 */
static __attribute__((noinline)) bool gather_rest(struct vb_local_qp *l, const struct ibv_send_wr *wr,
						  const struct vb_translation *t, uint8_t *to)
{
	struct vb_translation known = t ? *t : (struct vb_translation){ 0 }; /* in registers */
	struct attempt a = { l, wr, &known };
	const struct ibv_sge *piece = wr->sg_list + 1, *end = wr->sg_list + wr->num_sge;
	for (; piece < end; piece++)
		if (vb_unlikely(!gather_piece(&a, piece, &to)))
			return false;
	return true;
}

/* The responder takes the bytes from there. */
static __attribute__((noinline)) bool put_list(struct vb_local_qp *l, const struct ibv_send_wr *wr,
					       const struct vb_translation *t, struct ibv_sge *to)
{
	struct attempt a = { l, wr, t };
	const struct ibv_sge *piece = wr->sg_list, *end = piece + wr->num_sge;
	for (; piece < end; piece++) {
		if (vb_likely(piece->length) && vb_unlikely(!find_piece(&a, piece, 0)))
			return false;
		vb_sge_copy(to++, piece);
	}
	return true;
}

/*
 * The pieces into the entry, or their list. Nobody sees the entry yet: nothing is left behind where a piece
 * is not simply there.
 */
static inline enum vb_post_result try_send(struct vb_local_qp *l, const struct ibv_send_wr *wr,
					   uint32_t length)
{
	struct attempt a = { l, wr, vb_translation_holds(l, &l->to_send) ? &l->to_send : NULL };
	if (vb_unlikely(!a.t && !(is_usual(l) && vb_peer_responds(l))))
		return VB_POST_NOT;
	struct vb_shm_entry *entry = vb_entry_ours(l, l->req.published);
	unsigned flags = VB_SHM_INLINE, nsge = 0;
	entry->length = length;
	entry->imm = wr->imm_data;
	if (vb_likely(vb_entry_fits(l->req.entry_bytes, length))) {
		uint8_t *to = entry->data;
		if (vb_unlikely(!gather_piece(&a, wr->sg_list, &to)) ||
		    (wr->num_sge > 1 && vb_unlikely(!gather_rest(l, wr, a.t, to))))
			return VB_POST_NOT;
	} else {
		if (vb_unlikely(l->peer->copy == VB_COPY_LINK) ||
		    vb_unlikely(!put_list(l, wr, a.t, entry->sge)))
			return VB_POST_NOT;
		flags = 0;
		nsge = wr->num_sge;
	}
	flags |= vb_entry_finish(l, entry, wr->qp_type.xrc.remote_srqn, wr->send_flags);
	vb_entry_post(l, entry, flags, wr->opcode, nsge, vb_sq_signals(l->qp, wr->send_flags));
	vb_doorbell_ring(l);
	if (vb_unlikely(!a.t || a.missed))
		vb_translation_learn_send(l, wr);
	return VB_POST_SENT;
}

static __attribute__((noinline)) uint8_t *reach_target(const struct attempt *a, uint32_t length, bool writes)
{
	if (!a->t && !executes(a->l))
		return NULL;
	return vb_peer_reach(a->l, a->wr->wr.rdma.rkey, a->wr->wr.rdma.remote_addr, length, writes);
}

static inline uint8_t *find_target(struct attempt *a, const struct vb_remote_translation *t,
				   uint32_t length, bool writes)
{
	uint32_t rkey = a->wr->wr.rdma.rkey;
	uint64_t addr = a->wr->wr.rdma.remote_addr;
	uint8_t *known = vb_likely(a->t != NULL) ? vb_translation_of_target(t, rkey, addr, length) : NULL;
	if (vb_likely(known != NULL))
		return known;
	a->missed = true;
	return reach_target(a, length, writes);
}

/* In a busy section. */
static inline bool move(struct vb_local_qp *l, struct vb_remote_translation *t,
			const struct ibv_send_wr *wr, uint32_t length, bool writes)
{
	struct attempt a = { l, wr, vb_translation_holds(l, &t->local) ? &t->local : NULL };
	uint8_t *there = find_target(&a, t, length, writes);
	if (vb_unlikely(!there) || vb_unlikely(!copy_pieces(&a, there, writes)))
		return false;
	if (vb_unlikely(a.missed))
		vb_translation_learn_move(l, t, wr, writes);
	return true;
}

static inline enum vb_post_result try_move(struct vb_local_qp *l, struct vb_remote_translation *t,
					   const struct ibv_send_wr *wr, uint32_t length, bool writes)
{
	if (vb_unlikely(length > VB_SLICE_BYTES) || vb_unlikely(!t->local.is_made && !executes(l)))
		return VB_POST_NOT;
	if (writes)
		l->req.has_stored = true;
	else
		vb_order_read(l);
	vb_busy_begin(l, VB_STREAM_REQUEST);
	bool done = move(l, t, wr, length, writes);
	vb_busy_end(l, VB_STREAM_REQUEST);
	return vb_likely(done) && vb_likely(!vb_is_cut_by(l->peer)) ? VB_POST_DONE : VB_POST_NOT;
}

/* The peer's word. NULL: the peer does not grant it, or this process has not mapped it. In a busy section. */
static inline _Atomic(uint64_t) *find_word(struct vb_local_qp *l, uint32_t rkey, uint64_t addr)
{
	uint64_t va;
	if (vb_unlikely(!vb_peer_allows(l, rkey, addr, sizeof(uint64_t), IBV_ACCESS_REMOTE_ATOMIC, &va)))
		return NULL;
	void *word = vb_mapped_at(l->peer, rkey, va, sizeof(uint64_t), true);
	if (vb_unlikely(!word))
		vb_mapped_miss(l->peer, rkey, sizeof(uint64_t));
	return word;
}

static inline int carry_out(const struct vb_local_qp *l, const struct ibv_send_wr *wr,
			    _Atomic(uint64_t) *word, uint64_t *found)
{
	bool adds = wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	uint64_t compare_add = wr->wr.atomic.compare_add;
	return vb_touch_atomically_unless(&l->peer->in->cut, word,
					  adds ? VB_TOUCH_ADD : VB_TOUCH_COMPARE_SWAP,
					  adds ? compare_add : wr->wr.atomic.swap, compare_add, found);
}

/*
 * Nothing can undo the operation, so everything that may fail comes first: the buffer is written once before,
 * with its own contents. If the program unmaps the buffer in between, it gets a success without the value, as
 * from an adapter that has pinned the pages. In a busy section.
 */
static inline bool fetch(struct vb_local_qp *l, const struct ibv_send_wr *wr)
{
	uint64_t found;
	_Atomic(uint64_t) *word = find_word(l, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr);
	void *ours = find_by_key(l, wr->sg_list, IBV_ACCESS_LOCAL_WRITE);
	if (vb_unlikely(!word || !ours) || vb_unlikely(vb_touch_copy(ours, ours, sizeof(found))) ||
	    vb_unlikely(carry_out(l, wr, word, &found)))
		return false;
	int unmapped = vb_touch_copy(ours, &found, sizeof(found));
	(void)unmapped;
	return true;
}

/* An atomic on a word of the peer that this process has mapped. */
static inline enum vb_post_result try_fetch(struct vb_local_qp *l, const struct ibv_send_wr *wr,
					    uint32_t length)
{
	if (vb_unlikely(wr->num_sge != 1 || length != sizeof(uint64_t)) ||
	    vb_unlikely(wr->wr.atomic.remote_addr % sizeof(uint64_t)) ||
	    vb_unlikely(!executes(l) || !l->peer->mapped))
		return VB_POST_NOT;
	l->req.has_stored = true;
	vb_busy_begin(l, VB_STREAM_REQUEST);
	bool done = fetch(l, wr);
	vb_busy_end(l, VB_STREAM_REQUEST);
	return vb_likely(done) && vb_likely(!vb_is_cut_by(l->peer)) ? VB_POST_DONE : VB_POST_NOT;
}

/*
 * A peer that waits for a WRITE has the line that it goes to, so that is asked for before everything else. A
 * guess: it is not looked at.
 */
static inline void fetch_target(const struct vb_remote_translation *t, const struct ibv_send_wr *wr)
{
	vb_fetch_to_write((const void *)((uintptr_t)t->there + (wr->wr.rdma.remote_addr - t->theirs)));
}

__attribute__((flatten)) enum vb_post_result vb_local_try_post(struct vb_qp *qp, const struct ibv_send_wr *wr,
							       uint32_t length)
{
	struct vb_local_qp *l = vb_local_of(qp);
	switch (wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return try_send(l, wr, length);
	case IBV_WR_RDMA_WRITE:
		fetch_target(&l->to_write, wr);
		return try_move(l, &l->to_write, wr, length, true);
	case IBV_WR_RDMA_READ:
		return try_move(l, &l->to_read, wr, length, false);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return try_fetch(l, wr, length);
	default:
		return VB_POST_NOT;
	}
}
