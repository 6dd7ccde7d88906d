/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests for shared receive queues of other processes. What the peer's request moves goes through a buffer
 * of this process, a piece at a time: between the peer and the buffer in a busy section, between the buffer
 * and the queue's process by asking it, in none.
 */
#include <errno.h>
#include <stdlib.h>

#include "adapter/progress/progress.h"
#include "adapter/xrc/xrc_remote.h"
#include "base/nanoseconds.h"
#include "local/capture.h"
#include "local/serve.h"

enum { LOOK_AGAIN_NS = VB_NS_PER_MS }; /* for a receive: its post rings in the other process only */

static const char WHY[] = "the process that has the shared receive queue refused it";

/* err is what the other process has answered, or what is wrong with the request. */
static enum step failed(int err, struct failure *f) { return vb_serve_refuse(f, err, WHY); }

static enum step answered(int err, struct failure *f) { return err ? failed(err, f) : STEP_DONE; }

static enum step need_receive(struct vb_local_qp *l, struct failure *f)
{
	struct vb_execution *x = &l->execution;
	if (x->have_rwqe)
		return STEP_DONE;
	int err = vb_xrc_remote_take(l->qp);
	if (!err) {
		x->have_rwqe = true;
		x->receive_status = IBV_WC_SUCCESS;
		return vb_serve_have_receive(l);
	}
	if (err != -EAGAIN)
		return failed(err, f);
	enum step step = vb_serve_not_ready(l, f);
	if (step == STEP_WAIT)
		vb_timer_set(&l->again, vb_now_ns() + LOOK_AGAIN_NS);
	return step;
}

void vb_xrc_remote_look_again(struct vb_timer *timer, uint64_t now_ns)
{
	struct vb_local_qp *l = timer->arg;
	vb_progress_schedule(l->qp);
}

/* Bytes of the next piece; UINT64_MAX: the peer's byte stream is malformed. */
static uint64_t piece(struct vb_local_qp *l)
{
	uint64_t n = vb_serve_slice(l);
	return n == UINT64_MAX ? n : vb_min_u64(n, sizeof(l->piece->bytes));
}

typedef enum step carrier(struct vb_local_qp *l, const struct vb_ranges *ours, struct failure *f);

/* Between the peer and the buffer. STEP_IDLE: the peer's epoch is over. */
static enum step carry(struct vb_local_qp *l, uint64_t n, carrier *way, struct failure *f)
{
	struct vb_ranges ours;
	if (!n)
		return STEP_DONE;
	vb_ranges_of_bytes(&ours, l->piece->bytes, n);
	vb_busy_begin(l, VB_STREAM_RESPONSE);
	enum step step = vb_serve_may(l) ? way(l, &ours, f) : STEP_IDLE;
	vb_busy_end(l, VB_STREAM_RESPONSE);
	if (step == STEP_DONE)
		vb_show_passed(l, n);
	return step;
}

/* What the peer's byte stream still has, beyond a piece, nobody will ring for. */
static enum step moved(struct vb_local_qp *l, uint64_t n)
{
	enum step step = vb_serve_moved(l, n);
	return step == STEP_WAIT && n == sizeof(l->piece->bytes) ? STEP_MORE : step;
}

static enum step do_send(struct vb_local_qp *l, struct failure *f)
{
	struct vb_entry_copy *r = &l->cur;
	enum step step = need_receive(l, f);
	uint64_t n = step == STEP_DONE ? piece(l) : 0;
	if (n == UINT64_MAX)
		return failed(-EINVAL, f);
	if (step == STEP_DONE)
		step = carry(l, n, vb_serve_pull, f);
	if (step == STEP_DONE && n)
		step = answered(
			vb_xrc_remote_place(l->qp, r->done, l->piece->bytes, n, &l->execution.receive_status),
			f);
	if (step == STEP_DONE)
		step = moved(l, n);
	if (step != STEP_DONE || r->opcode != IBV_WR_SEND_WITH_INV)
		return step;
	return vb_xrc_remote_invalidate(l->qp, r->imm) ? vb_serve_refuse_invalidation(f, WHY) : STEP_DONE;
}

static enum step check(struct vb_local_qp *l, enum vb_access access, struct failure *f)
{
	const struct vb_entry_copy *r = &l->cur;
	return r->done ? STEP_DONE :
			 answered(vb_xrc_remote_check(l->qp, r->rkey, r->remote_addr, r->length, access), f);
}

static enum step do_write(struct vb_local_qp *l, struct failure *f)
{
	struct vb_entry_copy *r = &l->cur;
	if (vb_serve_takes_receive_first(l)) {
		int err = vb_xrc_remote_check(l->qp, 0, 0, 0, VB_ACCESS_WRITE);
		enum step step = err ? failed(err, f) : need_receive(l, f);
		if (step != STEP_DONE)
			return step;
	}
	if (r->done < r->length || !r->length) {
		enum step step = check(l, VB_ACCESS_WRITE, f);
		uint64_t n = step == STEP_DONE ? piece(l) : 0;
		if (n == UINT64_MAX)
			return failed(-EINVAL, f);
		if (step == STEP_DONE)
			step = carry(l, n, vb_serve_pull, f);
		if (step == STEP_DONE && n)
			step = answered(vb_xrc_remote_write(l->qp, r->rkey, r->remote_addr + r->done,
							    l->piece->bytes, n),
					f);
		if (step == STEP_DONE)
			step = moved(l, n);
		if (step != STEP_DONE)
			return step;
	}
	return r->opcode == IBV_WR_RDMA_WRITE ? STEP_DONE : need_receive(l, f);
}

static enum step do_read(struct vb_local_qp *l, struct failure *f)
{
	const struct vb_entry_copy *r = &l->cur;
	enum step step = check(l, VB_ACCESS_READ, f);
	uint64_t n = step == STEP_DONE ? piece(l) : 0;
	if (n == UINT64_MAX)
		return failed(-EINVAL, f);
	if (step == STEP_DONE && n)
		step = answered(
			vb_xrc_remote_read(l->qp, r->rkey, r->remote_addr + r->done, l->piece->bytes, n), f);
	if (step == STEP_DONE)
		step = carry(l, n, vb_serve_push, f);
	return step == STEP_DONE ? moved(l, n) : step;
}

static enum step do_atomic(struct vb_local_qp *l, struct failure *f)
{
	const struct vb_entry_copy *r = &l->cur;
	struct vb_atomic atomic = vb_serve_atomic(l);
	uint64_t found = 0;
	if (r->remote_addr % 8)
		return failed(-EINVAL, f);
	enum step step =
		answered(vb_xrc_remote_check(l->qp, r->rkey, r->remote_addr, 8, VB_ACCESS_ATOMIC), f);
	if (step == STEP_DONE)
		step = answered(vb_xrc_remote_atomic(l->qp, &atomic, &found), f);
	if (step == STEP_DONE)
		vb_serve_found(l, found);
	return step;
}

static enum step execute(struct vb_local_qp *l, struct failure *f)
{
	unsigned opcode = l->cur.opcode;
	if (opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV)
		return do_send(l, f);
	if (opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		return do_write(l, f);
	if (!vb_qp_attr(l->qp, max_dest_rd_atomic) || opcode == IBV_WR_ATOMIC_WRITE || opcode == IBV_WR_FLUSH)
		return failed(-EINVAL, f);
	return opcode == IBV_WR_RDMA_READ ? do_read(l, f) : do_atomic(l, f);
}

enum step vb_xrc_remote_serve(struct vb_local_qp *l, struct failure *f)
{
	int err = vb_xrc_remote_select(l->qp, l->cur.srqn);
	if (!err && !l->piece && !(l->piece = malloc(sizeof(*l->piece))))
		err = -ENOMEM;
	return err ? failed(err, f) : execute(l, f);
}

void vb_xrc_remote_finish(struct vb_local_qp *l)
{
	struct vb_received received = vb_serve_received(l);
	l->execution.have_rwqe = false;
	vb_xrc_remote_done(l->qp, &received);
}
