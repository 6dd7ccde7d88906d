/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The steps of execution as the engines of proto/rc call them. Of a queue pair whose XRC domain is shared, a
 * request may be for a shared receive queue of another process; that process is asked to do it then.
 */
#include <errno.h>

#include "adapter/execution/execute.h"
#include "adapter/memory/hold.h"
#include "adapter/queues/tags.h"
#include "adapter/queues/observer.h"
#include "adapter/xrc/xrc_remote.h"
#include "base/log.h"

/* ---- the shared receive queue that a request is for ---- */

static int remote_result(struct vb_execution *x, int err)
{
	return err ? vb_execution_refuse(x, err, "the process that has the shared receive queue refused it") : 0;
}

int vb_execution_select_here(struct vb_execution *x, uint32_t srqn)
{
	if (!x->qp->xrcd)
		return vb_execution_refuse(x, -EINVAL, "the queue pair receives for no XRC domain");
	if (x->have_rwqe && srqn != (vb_execution_is_remote(x) ? x->remote_srqn : x->qp->srq->number))
		return vb_execution_refuse(x, -EINVAL, "a message changes its shared receive queue on the way");
	return vb_xrc_select(x->qp, srqn) ?
		       0 :
		       vb_execution_refuse(x, -ENOENT, "the XRC domain has no shared receive queue of this number");
}

static int select_queue(void *ctx, uint32_t srqn)
{
	struct vb_execution *x = ctx;
	int err = vb_execution_select_here(x, srqn);
	if (err != -ENOENT)
		return err;
	x->remote_srqn = srqn;
	return vb_xrc_remote_select(x->qp, srqn);
}

void vb_execution_release_queue(struct vb_execution *x)
{
	if (vb_unlikely(x->qp->xrcd != NULL) && !x->have_rwqe)
		vb_srq_release(x->qp);
}

/* ---- receives ---- */

static int take_remotely(struct vb_execution *x)
{
	int err = vb_xrc_remote_take(x->qp);
	if (err)
		return remote_result(x, err);
	x->have_rwqe = true;
	x->receive_status = IBV_WC_SUCCESS;
	return 0;
}

static bool take(struct vb_execution *x, const struct vb_packet *packet)
{
	if (vb_likely(!x->qp->tags) || packet->row->operation != VB_OP_SEND)
		return vb_execution_take(x);
	return vb_execution_take_tagged(x, packet->payload, packet->payload_bytes, packet->row->flags.last);
}

static int receive_take(void *ctx, const struct vb_packet *packet)
{
	struct vb_execution *x = ctx;
	if (vb_execution_is_remote(x))
		return take_remotely(x);
	if (take(x, packet))
		return 0;
	if (vb_unlikely(vb_observer != NULL))
		vb_observer->starved(x->qp, UINT64_MAX); /* only the peer knows how long it retries */
	return -EAGAIN;
}

static int place_held(struct vb_execution *x, uint64_t offset, const void *bytes, size_t len)
{
	struct vb_ranges to, from;
	int err = vb_execution_receive_ranges(x, offset, len, &to);
	if (err)
		return err;
	vb_ranges_of_bytes(&from, bytes, len);
	return vb_unlikely(vb_ranges_copy(&to, &from)) ? vb_execution_receive_is_unmapped(x) : 0;
}

static int place(struct vb_execution *x, uint64_t offset, const void *bytes, size_t len)
{
	int err = vb_execution_fits(x, offset + len);
	if (err)
		return err;
	unsigned held = vb_memory_hold();
	err = place_held(x, offset, bytes, len);
	vb_memory_release(held);
	return err;
}

/* Headers are in the first packet: every other one has as much as fits. */
static int receive_place(void *ctx, uint64_t offset, const void *bytes, size_t len)
{
	struct vb_execution *x = ctx;
	uint64_t skip = vb_unlikely(x->qp->tags != NULL) ? vb_tags_skip(x->qp) : 0;
	if (vb_execution_is_remote(x))
		return remote_result(x, vb_xrc_remote_place(x->qp, offset, bytes, len, &x->receive_status));
	if (vb_likely(!skip))
		return place(x, offset, bytes, len);
	if (skip == UINT64_MAX)
		return 0;
	if (offset)
		return place(x, offset - skip, bytes, len);
	return place(x, 0, (const uint8_t *)bytes + skip, len - skip);
}

static void receive_done(void *ctx, const struct vb_received *received)
{
	struct vb_execution *x = ctx;
	if (!vb_execution_is_remote(x) || received->is_refused) {
		vb_execution_complete(x, received);
		return;
	}
	x->have_rwqe = false;
	vb_xrc_remote_done(x->qp, received);
}

/*
 * Other queue pairs may need the receives of a shared queue more than this one: each is told of at once. A
 * receive that is itself at fault ends the connection.
 */
static bool receive_lost(void *ctx)
{
	struct vb_execution *x = ctx;
	bool is_short = x->receive_status == IBV_WC_LOC_LEN_ERR;
	if (!x->qp->srq || (x->receive_status != IBV_WC_SUCCESS && !is_short))
		return false;
	if (!x->why) /* else whoever refused the message says why */
		vb_explain_limit("receiver",
				 "QP 0x%06x, receive wr_id 0x%llx: a part of its message was lost",
				 x->qp->qpn, (unsigned long long)x->rwqe.wr_id);
	vb_execution_end_receive(x, is_short ? IBV_WC_LOC_LEN_ERR : IBV_WC_REM_INV_REQ_ERR);
	return true;
}

/* ---- memory ---- */

static int check(void *ctx, uint32_t rkey, uint64_t addr, uint64_t len, enum vb_access access)
{
	static const unsigned rights[] = {
		[VB_ACCESS_READ] = IBV_ACCESS_REMOTE_READ,
		[VB_ACCESS_WRITE] = IBV_ACCESS_REMOTE_WRITE,
		[VB_ACCESS_ATOMIC] = IBV_ACCESS_REMOTE_ATOMIC,
	};
	uint64_t va;
	struct vb_execution *x = ctx;
	if (vb_execution_is_remote(x))
		return remote_result(x, vb_xrc_remote_check(x->qp, rkey, addr, len, access));
	struct vb_key_use use = vb_execution_use(x, rkey, addr, len, rights[access]);
	return vb_execution_translate(x, &use, &va);
}

/* Between memory that a request names and bytes of this process. */
static int move(struct vb_execution *x, const struct vb_key_use *use, void *bytes)
{
	struct vb_ranges target, flat;
	uint64_t va = 0;
	bool reads = use->access == IBV_ACCESS_REMOTE_READ;
	unsigned held = vb_memory_hold();
	int err = vb_execution_translate(x, use, &va);
	if (!err) {
		vb_execution_target_ranges(&target, use->key, va, use->length);
		vb_ranges_of_bytes(&flat, bytes, use->length);
		err = vb_ranges_copy(reads ? &flat : &target, reads ? &target : &flat);
		if (vb_unlikely(err))
			err = vb_execution_target_is_unmapped(x, use);
	}
	vb_memory_release(held);
	return err;
}

static int write_data(void *ctx, uint32_t rkey, uint64_t addr, const void *bytes, size_t len)
{
	struct vb_execution *x = ctx;
	if (vb_execution_is_remote(x))
		return remote_result(x, vb_xrc_remote_write(x->qp, rkey, addr, bytes, len));
	struct vb_key_use use = vb_execution_use(x, rkey, addr, len, IBV_ACCESS_REMOTE_WRITE);
	return move(x, &use, (void *)(uintptr_t)bytes);
}

static bool read_remotely(struct vb_qp *qp, uint32_t srqn, uint32_t rkey, uint64_t address, void *to,
		      size_t bytes)
{
	return !vb_xrc_remote_select(qp, srqn) && !vb_xrc_remote_read(qp, rkey, address, to, bytes);
}

bool vb_execution_read(struct vb_execution *x, uint32_t srqn, uint32_t rkey, uint64_t address, void *to,
		       size_t bytes)
{
	uint32_t pd = x->qp->xrcd ? vb_xrc_pd(x->qp, srqn) : x->qp->pd->number;
	if (vb_unlikely(!pd) && x->qp->xrcd->share)
		return read_remotely(x->qp, srqn, rkey, address, to, bytes);
	struct vb_key_use use = vb_execution_use(x, rkey, address, bytes, IBV_ACCESS_REMOTE_READ);
	use.pd = pd;
	return !move(x, &use, to);
}

static int atomic(void *ctx, const struct vb_atomic *atomic, uint64_t *original)
{
	struct vb_execution *x = ctx;
	if (vb_execution_is_remote(x))
		return remote_result(x, vb_xrc_remote_atomic(x->qp, atomic, original));
	unsigned held = vb_memory_hold();
	int err = vb_execution_atomic(x, atomic, original);
	vb_memory_release(held);
	return err;
}

static int flush(void *ctx, uint32_t rkey, uint64_t addr, uint64_t len, uint32_t how)
{
	struct vb_execution *x = ctx;
	if (vb_execution_is_remote(x))
		return remote_result(x, -EINVAL); /* it has no such question */
	return vb_execution_flush(x, rkey, addr, len, vb_flush_placement(how), vb_flush_selectivity(how));
}

static int invalidate(void *ctx, uint32_t rkey)
{
	struct vb_execution *x = ctx;
	return vb_execution_is_remote(x) ? remote_result(x, vb_xrc_remote_invalidate(x->qp, rkey)) :
			    vb_execution_invalidate(x, rkey);
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
	.receive_lost = receive_lost,
};
