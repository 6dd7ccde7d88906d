/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/queues/execute.h"

#include <errno.h>
#include <string.h>

#include "adapter/memory/arena.h"
#include "adapter/memory/flush.h"
#include "adapter/memory/ranges.h"
#include "adapter/refusal.h"
#include "adapter/queues/tags.h"
#include "adapter/watcher.h"
#include "adapter/memory/window.h"
#include "adapter/xrc/xrc_remote.h"
#include "base/log.h"
#include "host/memory/touch.h"

/* ---- the requester's memory ---- */

void vb_payload_fail(struct vb_sqe *sqe, enum vb_key_fault fault, unsigned bad)
{
	const struct ibv_sge *sge = &sqe->sge[bad];
	vb_explain("requester",
		   "send wr_id 0x%llx, scatter/gather entry %u (address 0x%llx, length %u, lkey 0x%x): %s",
		   (unsigned long long)sqe->wr_id, bad, (unsigned long long)sge->addr, sge->length, sge->lkey,
		   vb_key_fault_text(fault));
	vb_sqe_fail(sqe, IBV_WC_LOC_PROT_ERR, bad);
}

static bool carries_list(const struct vb_sqe *sqe)
{
	switch (sqe->opcode) {
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_FLUSH:
		return false;
	default:
		return !(sqe->flags & IBV_SEND_INLINE);
	}
}

bool vb_payload_is_readable(const struct vb_qp *qp, struct vb_sqe *sqe)
{
	struct vb_ranges list;
	unsigned bad;
	if (!carries_list(sqe) ||
	    (sqe->nsge == 1 && vb_likely(vb_key_find(sqe->sge, 0, qp->pd->number) != NULL)))
		return true;
	enum vb_key_fault fault = vb_ranges_of_list(&list, vb_arena, qp->pd->number, sqe->sge, sqe->nsge, 0,
						    sqe->length, 0, &bad);
	if (vb_unlikely(fault != VB_KEY_OK))
		vb_payload_fail(sqe, fault, bad);
	return fault == VB_KEY_OK;
}

static bool copy_listed(struct vb_qp *qp, struct vb_sqe *sqe, uint64_t offset, void *bytes, size_t n,
			bool into_list)
{
	struct vb_ranges list, flat;
	unsigned bad;
	vb_ranges_of_bytes(&flat, bytes, n);
	unsigned held = vb_memory_hold();
	enum vb_key_fault fault = vb_ranges_of_list(&list, vb_arena, qp->pd->number, sqe->sge, sqe->nsge,
						    offset, n, into_list ? IBV_ACCESS_LOCAL_WRITE : 0, &bad);
	if (vb_likely(fault == VB_KEY_OK) &&
	    vb_unlikely(vb_ranges_copy(into_list ? &list : &flat, into_list ? &flat : &list)))
		fault = VB_KEY_UNMAPPED;
	vb_memory_release(held);
	if (vb_unlikely(fault != VB_KEY_OK))
		vb_payload_fail(sqe, fault, bad);
	return fault == VB_KEY_OK;
}

bool vb_payload_gather(struct vb_qp *qp, struct vb_sqe *sqe, uint64_t offset, void *to, size_t bytes)
{
	if (!(sqe->flags & IBV_SEND_INLINE))
		return copy_listed(qp, sqe, offset, to, bytes, false);
	memcpy(to, sqe->inline_data + offset, bytes);
	return true;
}

bool vb_payload_place(struct vb_qp *qp, struct vb_sqe *sqe, uint64_t offset, const void *from, size_t bytes)
{
	return copy_listed(qp, sqe, offset, (void *)(uintptr_t)from, bytes, true);
}

/* ---- the responder's memory ---- */

static int refuse(struct vb_execution *x, int err, const char *why)
{
	x->why = why;
	return err;
}

static bool take(struct vb_qp *qp, const struct vb_packet *packet, struct vb_rwqe *out)
{
	if (vb_likely(!qp->tags) || packet->row->operation != VB_OP_SEND)
		return vb_receive_take(qp, out);
	return vb_tags_take(qp, packet->payload, packet->payload_bytes, packet->row->flags.last, out);
}

static int receive_take(void *ctx, const struct vb_packet *packet)
{
	struct vb_execution *x = ctx;
	if (!take(x->qp, packet, &x->rwqe)) {
		if (vb_unlikely(vb_watcher != NULL))
			vb_watcher->starved(x->qp, UINT64_MAX); /* it is the peer that knows */
		return -EAGAIN;
	}
	x->have_rwqe = true;
	x->receive_status = IBV_WC_SUCCESS;
	return 0;
}

static int refuse_receive(struct vb_execution *x, int err, enum ibv_wc_status status, const char *why)
{
	x->receive_status = status;
	return refuse(x, err, why);
}

static int place(struct vb_execution *x, uint64_t offset, const void *bytes, size_t len)
{
	struct vb_ranges to, from;
	unsigned bad;
	if (offset + len > x->rwqe.length)
		return refuse_receive(x, -EMSGSIZE, IBV_WC_LOC_LEN_ERR,
				      "the message is longer than the receive buffer");
	vb_ranges_of_bytes(&from, bytes, len);
	unsigned held = vb_memory_hold();
	enum vb_key_fault fault = vb_ranges_of_list(&to, vb_arena, x->rwqe.pd, x->rwqe.sge, x->rwqe.nsge,
						    offset, len, IBV_ACCESS_LOCAL_WRITE, &bad);
	if (vb_likely(fault == VB_KEY_OK) && vb_unlikely(vb_ranges_copy(&to, &from)))
		fault = VB_KEY_UNMAPPED;
	vb_memory_release(held);
	if (vb_likely(fault == VB_KEY_OK))
		return 0;
	const struct vb_rwqe *w = &x->rwqe;
	const struct ibv_sge *sge = &w->sge[bad < w->nsge ? bad : 0];
	return refuse_receive(
		x, -EIO, IBV_WC_LOC_PROT_ERR,
		fault == VB_KEY_UNMAPPED ?
			vb_ranges_unmapped_story(w->pd, w->sge, w->nsge, IBV_ACCESS_LOCAL_WRITE) :
			vb_key_story(fault, sge->lkey, sge->addr, sge->length,
				     VB_KEY_LOCAL | IBV_ACCESS_LOCAL_WRITE, w->pd));
}

/* Headers are in the first packet: every other one has as much as fits. */
static int receive_place(void *ctx, uint64_t offset, const void *bytes, size_t len)
{
	struct vb_execution *x = ctx;
	uint64_t skip = vb_unlikely(x->qp->tags != NULL) ? vb_tags_skip(x->qp) : 0;
	if (vb_likely(!skip))
		return place(x, offset, bytes, len);
	if (skip == UINT64_MAX)
		return 0;
	if (offset)
		return place(x, offset - skip, bytes, len);
	return place(x, 0, (const uint8_t *)bytes + skip, len - skip);
}

static void receive_done(void *ctx, const struct vb_received *r)
{
	struct vb_execution *x = ctx;
	bool imm = r->tail == VB_TAIL_IMM;
	struct vb_cqe e = {
		.wr_id = x->rwqe.wr_id,
		.opcode = r->is_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
		.byte_len = (uint32_t)r->bytes,
		.imm = r->tail_value,
		.wc_flags = imm ? IBV_WC_WITH_IMM : r->tail == VB_TAIL_INVALIDATE ? IBV_WC_WITH_INV : 0,
		.src_qp = x->qp->attr.dest_qp_num,
		.solicited = r->solicited,
	};
	if (vb_unlikely(r->is_refused)) {
		x->receive_status = vb_refusal_of(VB_NAK_INVALID_REQUEST)->receive;
		vb_execution_end_receive(x, x->receive_status);
		return;
	}
	x->have_rwqe = false;
	vb_receive_complete(x->qp, &e);
}

/* Is the queue that the request is for another process's? It was selected. */
static bool is_away(const struct vb_execution *x) { return x->qp->xrcd && !x->qp->srq; }

void vb_execution_end_receive(struct vb_execution *x, enum ibv_wc_status status)
{
	if (!x->have_rwqe)
		return;
	x->have_rwqe = false;
	if (vb_unlikely(is_away(x))) {
		vb_xrc_remote_end(x->qp, status);
		return;
	}
	vb_receive_complete(
		x->qp, &(struct vb_cqe){ .wr_id = x->rwqe.wr_id, .status = status, .opcode = IBV_WC_RECV });
}

/* The rights of the queue pair, then key, domain, rights and bounds of the region. Memory is held. */
static int translate(struct vb_execution *x, uint32_t pd, uint32_t rkey, uint64_t addr, uint64_t len,
		     unsigned right, uint64_t *va)
{
	if (!(vb_qp_attr(x->qp, qp_access_flags) & right))
		return refuse(x, -EINVAL, vb_rights_story(x->qp, right));
	if (!len)
		return 0;
	enum vb_key_fault fault =
		vb_key_check(vb_key_table(vb_arena), rkey, addr, len, right, pd, x->qp->qpn, va);
	return vb_likely(fault == VB_KEY_OK) ?
		       0 :
		       refuse(x, -EACCES, vb_key_story(fault, rkey, addr, len, right, pd));
}

static int check(void *ctx, uint32_t rkey, uint64_t addr, uint64_t len, enum vb_access access)
{
	static const unsigned rights[] = {
		[VB_ACCESS_READ] = IBV_ACCESS_REMOTE_READ,
		[VB_ACCESS_WRITE] = IBV_ACCESS_REMOTE_WRITE,
		[VB_ACCESS_ATOMIC] = IBV_ACCESS_REMOTE_ATOMIC,
	};
	uint64_t va;
	struct vb_execution *x = ctx;
	return translate(x, vb_qp_domain(x->qp), rkey, addr, len, rights[access], &va);
}

/* The region's program took its memory away. */
static int refuse_unmapped(struct vb_execution *x, uint32_t rkey, uint64_t addr, uint64_t len, unsigned right)
{
	return refuse(x, -EACCES, vb_key_story(VB_KEY_UNMAPPED, rkey, addr, len, right, vb_qp_domain(x->qp)));
}

/* Of a translated range. */
static void ranges_of_target(struct vb_ranges *out, uint32_t rkey, uint64_t va, size_t bytes)
{
	vb_ranges_of_bytes(out, (void *)(uintptr_t)va, bytes);
	out->on_demand = bytes && vb_key_is_on_demand(vb_key_table(vb_arena), rkey);
}

static int write_data(void *ctx, uint32_t rkey, uint64_t addr, const void *bytes, size_t len)
{
	struct vb_execution *x = ctx;
	struct vb_ranges to, from;
	uint64_t va = 0;
	unsigned held = vb_memory_hold();
	int err = translate(x, vb_qp_domain(x->qp), rkey, addr, len, IBV_ACCESS_REMOTE_WRITE, &va);
	if (!err) {
		ranges_of_target(&to, rkey, va, len);
		vb_ranges_of_bytes(&from, bytes, len);
		err = vb_ranges_copy(&to, &from);
		if (vb_unlikely(err))
			err = refuse_unmapped(x, rkey, addr, len, IBV_ACCESS_REMOTE_WRITE);
	}
	vb_memory_release(held);
	return err;
}

static bool read_away(struct vb_qp *qp, uint32_t srqn, uint32_t rkey, uint64_t address, void *to,
		      size_t bytes)
{
	return !vb_xrc_remote_select(qp, srqn) && !vb_xrc_remote_read(qp, rkey, address, to, bytes);
}

bool vb_execution_read(struct vb_execution *x, uint32_t srqn, uint32_t rkey, uint64_t address, void *to,
		       size_t bytes)
{
	uint32_t pd = x->qp->xrcd ? vb_xrc_pd(x->qp, srqn) : x->qp->pd->number;
	if (vb_unlikely(!pd) && x->qp->xrcd->share)
		return read_away(x->qp, srqn, rkey, address, to, bytes);
	struct vb_ranges from, into;
	uint64_t va = 0;
	unsigned held = vb_memory_hold();
	int err = translate(x, pd, rkey, address, bytes, IBV_ACCESS_REMOTE_READ, &va);
	if (!err) {
		ranges_of_target(&from, rkey, va, bytes);
		vb_ranges_of_bytes(&into, to, bytes);
		err = vb_ranges_copy(&into, &from);
		if (vb_unlikely(err))
			err = refuse_unmapped(x, rkey, address, bytes, IBV_ACCESS_REMOTE_READ);
	}
	vb_memory_release(held);
	return !err;
}

static int atomic(void *ctx, uint32_t rkey, uint64_t addr, uint8_t kind, uint64_t swap_or_add,
		  uint64_t compare, uint64_t *original)
{
	struct vb_execution *x = ctx;
	unsigned right = kind == VB_REQ_ATOMIC_WRITE ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_ATOMIC;
	enum vb_touch_op op = kind == VB_REQ_ATOMIC_WRITE ? VB_TOUCH_STORE :
			      kind == VB_REQ_COMPARE_SWAP ? VB_TOUCH_COMPARE_SWAP :
							    VB_TOUCH_ADD;
	uint64_t va = 0;
	unsigned held = vb_memory_hold();
	int err = translate(x, vb_qp_domain(x->qp), rkey, addr, 8, right, &va);
	if (!err && va % 8)
		err = refuse(x, -EINVAL, "the memory of an atomic is not aligned to 8 bytes");
	else if (!err && vb_touch_atomically((void *)(uintptr_t)va, op, swap_or_add, compare, original))
		err = refuse_unmapped(x, rkey, addr, 8, right);
	vb_memory_release(held);
	return err;
}

static int flush(void *ctx, uint32_t rkey, uint64_t addr, uint64_t len, uint32_t how)
{
	struct vb_execution *x = ctx;
	unsigned rights = vb_flush_rights(vb_flush_placement(how));
	if (!rights || vb_flush_selectivity(how) > IBV_FLUSH_MR)
		return refuse(x, -EINVAL, "a flush to nowhere, or of what is neither a range nor a region");
	if (rights & ~vb_qp_attr(x->qp, qp_access_flags))
		return refuse(x, -EINVAL, vb_rights_story(x->qp, rights));
	enum vb_key_fault fault = vb_flush_check(rkey, addr, len, vb_flush_selectivity(how) == IBV_FLUSH_MR,
						 rights, vb_qp_domain(x->qp), x->qp->qpn);
	return fault == VB_KEY_OK ? 0 : refuse(x, -EACCES, vb_key_fault_text(fault));
}

static int invalidate(void *ctx, uint32_t rkey)
{
	struct vb_execution *x = ctx;
	enum vb_key_fault fault = vb_window_invalidate_remotely(rkey, vb_qp_domain(x->qp), x->qp->qpn);
	if (fault == VB_KEY_ACCESS)
		return refuse(x, -EACCES,
			      "a peer can invalidate a type 2 window, not a region or a type 1 window");
	return fault == VB_KEY_OK ? 0 : refuse(x, -EACCES, vb_key_fault_text(fault));
}

/* Does the message that a receive was taken for go on at that receive's queue? */
static int stay(struct vb_execution *x, uint32_t srqn)
{
	if (x->have_rwqe && srqn != (is_away(x) ? x->away_srqn : x->qp->srq->number))
		return refuse(x, -EINVAL, "a message changes its shared receive queue on the way");
	return 0;
}

static int select_queue(void *ctx, uint32_t srqn)
{
	struct vb_execution *x = ctx;
	int err = stay(x, srqn);
	if (err)
		return err;
	return vb_xrc_select(x->qp, srqn) ?
		       0 :
		       refuse(x, -EINVAL, "the XRC domain has no shared receive queue of this number");
}

void vb_execution_settle(struct vb_execution *x)
{
	if (vb_unlikely(x->qp->xrcd != NULL) && !x->have_rwqe)
		vb_xrc_release(x->qp);
}

const struct vb_responder_ops vb_execution_ops = {
	.select = select_queue,
	.receive_take = receive_take,
	.receive_place = receive_place,
	.receive_done = receive_done,
	.check = check,
	.write = write_data,
	.atomic = atomic,
	.flush = flush,
	.invalidate = invalidate,
};

/*
 * ---- the same for a queue pair of a domain that processes share: each request's queue says whether it is
 * done here ----
 */

static int shared_select(void *ctx, uint32_t srqn)
{
	struct vb_execution *x = ctx;
	int err = stay(x, srqn);
	if (err || vb_xrc_select(x->qp, srqn))
		return err;
	x->away_srqn = srqn;
	err = vb_xrc_remote_select(x->qp, srqn);
	return err ? refuse(x, err,
			    "no process that shares the XRC domain has a shared receive queue of this number") :
		     0;
}

static int away_refused(struct vb_execution *x, int err)
{
	return err ? refuse(x, err, "the process that has the shared receive queue refused it") : 0;
}

static int shared_take(void *ctx, const struct vb_packet *packet)
{
	struct vb_execution *x = ctx;
	if (!is_away(x))
		return receive_take(x, packet);
	int err = vb_xrc_remote_take(x->qp);
	if (err)
		return away_refused(x, err);
	x->have_rwqe = true;
	x->receive_status = IBV_WC_SUCCESS;
	return 0;
}

static int shared_place(void *ctx, uint64_t offset, const void *bytes, size_t len)
{
	struct vb_execution *x = ctx;
	return is_away(x) ?
		       away_refused(x, vb_xrc_remote_place(x->qp, offset, bytes, len, &x->receive_status)) :
		       receive_place(x, offset, bytes, len);
}

static void shared_done(void *ctx, const struct vb_received *r)
{
	struct vb_execution *x = ctx;
	if (!is_away(x) || r->is_refused) {
		receive_done(x, r);
		return;
	}
	x->have_rwqe = false;
	vb_xrc_remote_done(x->qp, r);
}

static int shared_check(void *ctx, uint32_t rkey, uint64_t addr, uint64_t len, enum vb_access access)
{
	struct vb_execution *x = ctx;
	return is_away(x) ? away_refused(x, vb_xrc_remote_check(x->qp, rkey, addr, len, access)) :
			    check(x, rkey, addr, len, access);
}

static int shared_write(void *ctx, uint32_t rkey, uint64_t addr, const void *bytes, size_t len)
{
	struct vb_execution *x = ctx;
	return is_away(x) ? away_refused(x, vb_xrc_remote_write(x->qp, rkey, addr, bytes, len)) :
			    write_data(x, rkey, addr, bytes, len);
}

static int shared_atomic(void *ctx, uint32_t rkey, uint64_t addr, uint8_t kind, uint64_t swap_or_add,
			 uint64_t compare, uint64_t *original)
{
	struct vb_execution *x = ctx;
	if (!is_away(x))
		return atomic(x, rkey, addr, kind, swap_or_add, compare, original);
	return away_refused(x, vb_xrc_remote_atomic(x->qp, rkey, addr, kind, swap_or_add, compare, original));
}

static int shared_invalidate(void *ctx, uint32_t rkey)
{
	struct vb_execution *x = ctx;
	return is_away(x) ? away_refused(x, vb_xrc_remote_invalidate(x->qp, rkey)) : invalidate(x, rkey);
}

const struct vb_responder_ops vb_shared_execution_ops = {
	.select = shared_select,
	.receive_take = shared_take,
	.receive_place = shared_place,
	.receive_done = shared_done,
	.check = shared_check,
	.write = shared_write,
	.atomic = shared_atomic,
	.invalidate = shared_invalidate,
};
