/* SPDX-License-Identifier: BSD-2-Clause */
/* Checks (check/check.h) around what inline verbs call through tables, with VERBATIM_CHECK set. */
#include "verbs/verbs.h"

/* The same for all devices of a process. */
static struct ibv_context_ops before;

static int post_send(struct ibv_qp *pub, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct vb_qp *qp = vb_qp_of(pub);
	bool single = qp->checked && qp->checked->is_single_threaded;
	if (single)
		vb_check_enter(&qp->checked->user, "ibv_post_send", "the queue pair (of a thread domain)",
			       "ibv_alloc_td");
	int err = before.post_send(pub, wr, bad);
	if (err)
		vb_check_send_refused(qp, err);
	else
		vb_check_room(qp);
	if (single)
		vb_check_leave(&qp->checked->user);
	return err;
}

static int post_recv(struct ibv_qp *pub, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct vb_qp *qp = vb_qp_of(pub);
	if (qp->checked && qp->pd && !qp->srq)
		vb_check_receives(qp, NULL, wr);
	int err = before.post_recv(pub, wr, bad);
	if (!err)
		vb_check_room(qp);
	return err;
}

static int post_srq_recv(struct ibv_srq *pub, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	vb_check_receives(NULL, vb_srq_of(pub), wr);
	return before.post_srq_recv(pub, wr, bad);
}

/* ---- polling ---- */

static struct vb_checked_cq *single_threaded(struct vb_cq *cq)
{
	return cq->checked && cq->checked->is_single_threaded ? cq->checked : NULL;
}

static void note_polled(struct vb_cq *cq)
{
	if (cq->checked)
		atomic_store_explicit(&cq->checked->is_polled, true, memory_order_relaxed);
}

static int poll_cq(struct ibv_cq *pub, int num_entries, struct ibv_wc *wc)
{
	struct vb_checked_cq *single = single_threaded(vb_cq_of(pub));
	if (single)
		vb_check_enter(&single->user, "ibv_poll_cq",
			       "the completion queue (IBV_CREATE_CQ_ATTR_SINGLE_THREADED)", NULL);
	vb_check_cq_used(vb_cq_of(pub));
	int got = before.poll_cq(pub, num_entries, wc);
	if (got > 0)
		note_polled(vb_cq_of(pub));
	if (single)
		vb_check_leave(&single->user);
	return got;
}

static int req_notify_cq(struct ibv_cq *pub, int solicited_only)
{
	vb_check_cq_used(vb_cq_of(pub));
	return before.req_notify_cq(pub, solicited_only);
}

static int (*start_before)(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr);
static void (*end_before)(struct ibv_cq_ex *ex);

static struct vb_cq *of(struct ibv_cq_ex *ex) { return &vb_container_of(ex, struct vb_verbs_cq, ex)->cq; }

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct vb_checked_cq *single = single_threaded(of(ex));
	if (single)
		vb_check_enter(&single->user, "ibv_start_poll",
			       "the completion queue (IBV_CREATE_CQ_ATTR_SINGLE_THREADED)", NULL);
	vb_check_cq_used(of(ex));
	int err = start_before(ex, attr);
	if (!err)
		note_polled(of(ex));
	else if (single)
		vb_check_leave(&single->user);
	return err;
}

static void end_poll(struct ibv_cq_ex *ex)
{
	end_before(ex);
	if (single_threaded(of(ex)))
		vb_check_leave(&of(ex)->checked->user);
}

void vb_checked_cq_ex(struct ibv_cq_ex *ex, bool is_single_threaded)
{
	struct vb_cq *cq = of(ex);
	if (!cq->checked)
		return;
	cq->checked->is_single_threaded = is_single_threaded;
	start_before = ex->start_poll;
	end_before = ex->end_poll;
	ex->start_poll = start_poll;
	ex->end_poll = end_poll;
}

void vb_checked_ops(struct verbs_context *ext)
{
	struct ibv_context_ops *ops = &ext->context.ops;
	vb_check_start();
	before = *ops;
	ops->post_send = post_send;
	ops->post_recv = post_recv;
	ops->post_srq_recv = post_srq_recv;
	ops->poll_cq = poll_cq;
	ops->req_notify_cq = req_notify_cq;
}
