/* SPDX-License-Identifier: BSD-2-Clause */
/* Posted receives: whether a message fits into each, and whether there are enough. */
#include <stdio.h>

#include "adapter/queues/queue.h"
#include "base/nanoseconds.h"
#include "check/check.h"

enum { GRH_BYTES = 40, LONG_NS = VB_NS_PER_S };

static void check_datagram(const struct vb_qp *qp, const struct ibv_recv_wr *wr)
{
	uint64_t bytes = 0;
	for (int i = 0; i < wr->num_sge; i++)
		bytes += wr->sg_list[i].length;
	if (bytes < GRH_BYTES)
		vb_check_report_here(
			VB_CHECK_RECEIVE_BUFFER, NULL,
			"QP 0x%06x, receive wr_id 0x%llx has %llu bytes: a datagram comes behind %d "
			"bytes of routing header, for which each receive of a UD queue pair needs "
			"room",
			qp->qpn, (unsigned long long)wr->wr_id, (unsigned long long)bytes, GRH_BYTES);
}

void vb_check_receives(const struct vb_qp *qp, const struct vb_srq *srq, const struct ibv_recv_wr *wr)
{
	const struct vb_pd *pd = srq ? srq->pd : qp->pd;
	uint32_t most = srq ? srq->rq.max_sge : qp->rq.max_sge;
	char what[64];
	for (; wr; wr = wr->next) {
		if (wr->num_sge < 0 || (uint32_t)wr->num_sge > most)
			return; /* refused */
		if (srq)
			snprintf(what, sizeof(what), "SRQ, receive wr_id 0x%llx",
				 (unsigned long long)wr->wr_id);
		else
			snprintf(what, sizeof(what), "QP 0x%06x, receive wr_id 0x%llx", qp->qpn,
				 (unsigned long long)wr->wr_id);
		vb_check_list((struct vb_sg_list){ wr->sg_list, (unsigned)wr->num_sge, pd->number },
			      IBV_ACCESS_LOCAL_WRITE, what);
		if (qp && qp->type == IBV_QPT_UD)
			check_datagram(qp, wr);
	}
}

/* ---- too few ---- */

static uint32_t posted_to(const struct vb_qp *qp)
{
	return atomic_load(&(qp->srq ? &qp->srq->rq : &qp->rq)->tail);
}

static bool has_none(const struct vb_qp *qp)
{
	return !vb_rq_waiting(qp->srq ? &qp->srq->rq : &qp->rq);
}

static void wait_for_receive(struct vb_checked_qp *c)
{
	atomic_store(&c->posted_then, posted_to(c->qp));
	vb_timer_set(&c->starving, vb_now_ns() + LONG_NS);
}

/* If a message may wait for ever, it is a mistake only after a while. */
void vb_check_starved(struct vb_qp *qp, uint64_t retry_ns)
{
	struct vb_checked_qp *c = qp->checked;
	bool connected = qp->type == IBV_QPT_RC || qp->type == IBV_QPT_XRC_RECV;
	if (!c || !connected)
		return;
	if (retry_ns != UINT64_MAX)
		vb_check_report(
			VB_CHECK_NO_RECEIVE, NULL, NULL, qp,
			"QP 0x%06x: a message of QP 0x%06x is here, and no receive is posted (%u were, "
			"all are used): it is tried again for %.3f ms, and fails then",
			qp->qpn, qp->attr.dest_qp_num, posted_to(qp), (double)retry_ns / 1e6);
	else if (!atomic_exchange(&c->is_starving, true))
		wait_for_receive(c);
}

/* If there were receives in between, it is another message that waits. */
void vb_check_starving_fired(struct vb_timer *timer, uint64_t now_ns)
{
	struct vb_checked_qp *c = timer->arg;
	struct vb_qp *qp = c->qp;
	enum ibv_qp_state state = atomic_load(&qp->state);
	const struct vb_rq *rq = qp->srq ? &qp->srq->rq : &qp->rq;
	bool waits = (state == IBV_QPS_RTR || state == IBV_QPS_RTS) && has_none(qp) &&
		     atomic_load(&rq->starved);
	if (waits && posted_to(qp) != atomic_load(&c->posted_then)) {
		wait_for_receive(c);
		return;
	}
	atomic_store(&c->is_starving, false);
	if (waits)
		vb_check_report(
			VB_CHECK_NO_RECEIVE, NULL, NULL, qp,
			"QP 0x%06x: a message of QP 0x%06x has waited for a second, and no receive is "
			"posted (%u were, all are used)",
			qp->qpn, qp->attr.dest_qp_num, posted_to(qp));
}
