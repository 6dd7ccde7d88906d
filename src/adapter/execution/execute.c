/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/execution/execute.h"

#include <errno.h>

#include "adapter/memory/arena.h"
#include "adapter/memory/window.h"
#include "adapter/queues/tags.h"
#include "adapter/execution/refusal.h"
#include "adapter/queues/observer.h"
#include "adapter/xrc/xrc_remote.h"
#include "base/log.h"
#include "host/memory/touch.h"

void vb_execution_explain(const struct vb_execution *x, const char *otherwise)
{
	const struct vb_qp *qp = x->qp;
	const struct vb_rwqe *w = &x->rwqe;
	const char *why = x->why ? x->why : otherwise;
	if (x->have_rwqe && x->receive_status != IBV_WC_SUCCESS)
		vb_explain("receiver",
			   "QP 0x%06x, receive wr_id 0x%llx, %llu bytes: a message of QP 0x%06x: %s", qp->qpn,
			   (unsigned long long)w->wr_id, (unsigned long long)w->length, qp->attr.dest_qp_num,
			   why);
	else
		vb_explain("responder", "QP 0x%06x, request of QP 0x%06x: %s", qp->qpn, qp->attr.dest_qp_num,
			   why);
}

/* ---- the receive ---- */

static bool note_taken(struct vb_execution *x, bool taken)
{
	if (taken) {
		x->have_rwqe = true;
		x->receive_status = IBV_WC_SUCCESS;
	}
	return taken;
}

bool vb_execution_take(struct vb_execution *x) { return note_taken(x, vb_receive_take(x->qp, &x->rwqe)); }

bool vb_execution_take_tagged(struct vb_execution *x, const void *head, size_t bytes, bool whole)
{
	return note_taken(x, vb_tags_take(x->qp, head, bytes, whole, &x->rwqe));
}

static int refuse_receive(struct vb_execution *x, int err, enum ibv_wc_status status, const char *why)
{
	x->receive_status = status;
	return vb_execution_refuse(x, err, why);
}

int vb_execution_fits(struct vb_execution *x, uint64_t bytes)
{
	return vb_likely(bytes <= x->rwqe.length) ?
		       0 :
		       refuse_receive(x, -EMSGSIZE, IBV_WC_LOC_LEN_ERR,
				      "the message is longer than the receive buffer");
}

int vb_execution_receive_ranges(struct vb_execution *x, uint64_t offset, uint64_t bytes,
				struct vb_ranges *out)
{
	struct vb_sg_list list = vb_sg_list_of_receive(&x->rwqe);
	enum vb_key_fault fault =
		vb_ranges_of_list(out, vb_arena, list, offset, bytes, IBV_ACCESS_LOCAL_WRITE);
	if (vb_likely(fault == VB_KEY_OK))
		return 0;
	struct vb_key_use use = vb_key_use_of_sge(&list.sge[out->bad < list.n ? out->bad : 0],
						  IBV_ACCESS_LOCAL_WRITE, list.pd);
	return refuse_receive(x, -EIO, IBV_WC_LOC_PROT_ERR, vb_key_explain(fault, &use));
}

int vb_execution_receive_is_unmapped(struct vb_execution *x)
{
	return refuse_receive(
		x, -EIO, IBV_WC_LOC_PROT_ERR,
		vb_ranges_explain_unmapped(vb_sg_list_of_receive(&x->rwqe), IBV_ACCESS_LOCAL_WRITE));
}

void vb_execution_complete(struct vb_execution *x, const struct vb_received *r)
{
	bool imm = r->tail == VB_TAIL_IMM;
	struct vb_cqe e = {
		.wr_id = x->rwqe.wr_id,
		.opcode = r->is_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
		.byte_len = (uint32_t)r->bytes,
		.imm = r->tail_value,
		.wc_flags = imm				  ? IBV_WC_WITH_IMM :
			    r->tail == VB_TAIL_INVALIDATE ? IBV_WC_WITH_INV :
							    0,
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

void vb_execution_end_receive(struct vb_execution *x, enum ibv_wc_status status)
{
	if (!x->have_rwqe)
		return;
	x->have_rwqe = false;
	if (vb_execution_is_remote(x)) {
		vb_xrc_remote_end(x->qp, status);
		return;
	}
	vb_receive_complete(
		x->qp, &(struct vb_cqe){ .wr_id = x->rwqe.wr_id, .status = status, .opcode = IBV_WC_RECV });
}

/* ---- the memory that a request names ---- */

/* Why the queue pair's own access flags refuse a peer. Out of line: what is allowed does not pay for it. */
static __attribute__((noinline)) const char *explain_rights(const struct vb_qp *qp, unsigned access)
{
	return vb_observer ? vb_observer->explain_rights(qp, access) :
			     "the target queue pair's qp_access_flags do not allow it";
}

int vb_execution_check_right(struct vb_execution *x, unsigned right)
{
	return vb_likely(vb_qp_attr(x->qp, qp_access_flags) & right) ?
		       0 :
		       vb_execution_refuse(x, -EINVAL, explain_rights(x->qp, right));
}

int vb_execution_translate(struct vb_execution *x, const struct vb_key_use *use, uint64_t *va)
{
	int err = vb_execution_check_right(x, use->access);
	if (err || !use->length)
		return err;
	enum vb_key_fault fault = vb_key_check(vb_key_table(vb_arena), use, va);
	return vb_likely(fault == VB_KEY_OK) ? 0 :
					       vb_execution_refuse(x, -EACCES, vb_key_explain(fault, use));
}

void vb_execution_target_ranges(struct vb_ranges *out, uint32_t rkey, uint64_t va, uint64_t bytes)
{
	vb_ranges_of_bytes(out, (void *)(uintptr_t)va, bytes);
	out->on_demand = bytes && vb_key_is_on_demand(vb_key_table(vb_arena), rkey);
}

int vb_execution_target_is_unmapped(struct vb_execution *x, const struct vb_key_use *use)
{
	return vb_execution_refuse(x, -EACCES, vb_key_explain(VB_KEY_UNMAPPED, use));
}

/* ---- whole operations ---- */

int vb_execution_atomic(struct vb_execution *x, const struct vb_atomic *atomic, uint64_t *original)
{
	bool stores = atomic->kind == VB_REQ_ATOMIC_WRITE;
	bool swaps = atomic->kind == VB_REQ_COMPARE_SWAP;
	enum vb_touch_op op = stores ? VB_TOUCH_STORE : swaps ? VB_TOUCH_COMPARE_SWAP : VB_TOUCH_ADD;
	struct vb_key_use use =
		vb_execution_use(x, atomic->rkey, atomic->addr, sizeof(*original),
				 stores ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_ATOMIC);
	uint64_t va = 0;
	if (atomic->addr % 8)
		return vb_execution_refuse(x, -EINVAL, "the address of an atomic is not a multiple of 8");
	int err = vb_execution_translate(x, &use, &va);
	if (err)
		return err;
	if (va % 8)
		return vb_execution_refuse(x, -EINVAL, "the memory of an atomic is not aligned to 8 bytes");
	return vb_touch_atomically((void *)(uintptr_t)va, op, atomic->swap_or_add, atomic->compare,
				   original) ?
		       vb_execution_target_is_unmapped(x, &use) :
		       0;
}

/* The rights that a placement (enum ibv_placement_type) needs; 0: there is no such placement. */
static unsigned flush_rights(unsigned placement)
{
	if (!placement || placement & ~(unsigned)(IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT))
		return 0;
	return (placement & IBV_FLUSH_GLOBAL ? IBV_ACCESS_FLUSH_GLOBAL : 0) |
	       (placement & IBV_FLUSH_PERSISTENT ? IBV_ACCESS_FLUSH_PERSISTENT : 0);
}

/*
 * FLUSH asks that the peer's earlier writes be globally visible, or persistent. They are visible already,
 * since requests execute in order and memory is coherent: only the rights need a check. No region has the
 * right for persistence.
 */
int vb_execution_flush(struct vb_execution *x, uint32_t rkey, uint64_t addr, uint64_t length,
		       unsigned placement, unsigned level)
{
	unsigned rights = flush_rights(placement);
	const struct vb_key *table = vb_key_table(vb_arena);
	uint64_t va;
	if (!rights || level > IBV_FLUSH_MR)
		return vb_execution_refuse(x, -EINVAL, "a flush to nowhere, or of what is neither a range nor a region");
	if (rights & ~vb_qp_attr(x->qp, qp_access_flags))
		return vb_execution_refuse(x, -EINVAL, explain_rights(x->qp, rights));
	struct vb_key_use use = vb_execution_use(x, rkey, addr, length, rights);
	if (level == IBV_FLUSH_MR) {
		use.addr = atomic_load_explicit(&vb_key_at(table, rkey)->iova, memory_order_relaxed);
		use.length = 0;
	}
	enum vb_key_fault fault = vb_key_check(table, &use, &va);
	return fault == VB_KEY_OK ? 0 : vb_execution_refuse(x, -EACCES, vb_key_explain(fault, &use));
}

int vb_execution_invalidate(struct vb_execution *x, uint32_t rkey)
{
	enum vb_key_fault fault = vb_window_invalidate_remotely(rkey, vb_qp_domain(x->qp), x->qp->qpn);
	if (fault == VB_KEY_ACCESS)
		return vb_execution_refuse(x, -EACCES,
			      "a peer can invalidate a type 2 window, not a region or a type 1 window");
	return fault == VB_KEY_OK ? 0 : vb_execution_refuse(x, -EACCES, vb_key_fault_text(fault));
}
