/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "adapter/object.h"
#include "adapter/progress/progress.h"
#include "adapter/progress/qpn.h"
#include "adapter/queues/cq_events.h"
#include "adapter/queues/queue.h"
#include "adapter/start.h"
#include "host/ipc/capture.h"

/*
 * Queue pairs that lose completions cannot go on: a receiver would take messages of which its program never
 * hears. In the progress thread, which holds no lock of theirs.
 */
static void break_users(struct vb_timer *timer, uint64_t now_ns)
{
	const struct vb_cq *cq = timer->arg;
	uint64_t cursor = 0;
	for (struct vb_qp *qp; vb_qpn_next(&cursor, &qp);) {
		if (!qp)
			continue;
		if ((qp->send_cq == cq || qp->recv_cq == cq) && vb_qp_listens(qp))
			vb_qp_break(qp, -1);
		vb_qp_unref(qp);
	}
}

static void mark_captured(void *cq, bool is_captured) { vb_cq_mark(cq, VB_CQ_CAPTURED, is_captured); }

int vb_cq_init(struct vb_cq *cq, struct vb_context *ctx, struct vb_channel *channel, struct vb_pd *pd,
	       uint32_t cqe)
{
	if (!cqe || cqe > VB_MAX_CQE)
		return -EINVAL;
	int err = vb_adapter_open();
	if (err)
		return err;
	memset(cq, 0, sizeof(*cq));
	uint32_t entries = vb_pow2_at_least(cqe);
	err = vb_queue_memory_take(&cq->memory, pd, entries * sizeof(*cq->ring));
	if (err)
		return err;
	cq->ring = cq->memory.at;
	cq->pd = pd;
	if (pd)
		atomic_fetch_add(&pd->refs, 1);
	cq->ctx = ctx;
	cq->channel = channel;
	cq->mask = entries - 1;
	cq->capacity = cqe;
	vb_lock_init(&cq->lock);
	vb_cq_events_init(cq);
	cq->overrun = (struct vb_timer){ .fire = break_users, .arg = cq };
	if (channel)
		atomic_fetch_add(&channel->refs, 1);
	vb_registry_add(VB_REGISTRY_CQS, &cq->registered);
	vb_capture_follow(mark_captured, cq);
	return 0;
}

int vb_cq_fini(struct vb_cq *cq)
{
	if (atomic_load(&cq->refs))
		return -EBUSY;
	vb_registry_remove(&cq->registered);
	vb_async_forget(cq->ctx, &cq->async);
	vb_timer_cancel(&cq->overrun);
	vb_cq_events_fini(cq);
	if (cq->channel)
		atomic_fetch_sub(&cq->channel->refs, 1);
	vb_queue_memory_give(&cq->memory, cq->pd);
	if (cq->pd)
		atomic_fetch_sub(&cq->pd->refs, 1);
	return 0;
}
