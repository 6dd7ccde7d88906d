/* SPDX-License-Identifier: BSD-2-Clause */
/* What a forked child may not do with a device that its parent opened. */
#include "verbs/verbs.h"

int vb_refuse_inherited(struct ibv_context *pub, const char *call)
{
	if (vb_likely(!vb_is_inherited(pub)))
		return 0;
	vb_explain(
		call,
		"the device was opened before fork(), so its objects are the parent's: open it again in the child");
	return -EIO;
}

static int inherited_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	*bad = wr;
	return -vb_refuse_inherited(qp->context, "ibv_post_send");
}

static int inherited_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	*bad = wr;
	return -vb_refuse_inherited(qp->context, "ibv_post_recv");
}

static int inherited_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	*bad = wr;
	return -vb_refuse_inherited(srq->context, "ibv_post_srq_recv");
}

static int inherited_post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad)
{
	*bad = wr;
	return -vb_refuse_inherited(srq->context, "ibv_post_srq_ops");
}

static int inherited_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	return -vb_refuse_inherited(cq->context, "ibv_req_notify_cq");
}

static int inherited_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	return vb_refuse_inherited(cq->context, "ibv_poll_cq");
}

void vb_ops_disable(struct verbs_context *ext)
{
	ext->context.ops.poll_cq = inherited_poll_cq;
	ext->context.ops.req_notify_cq = inherited_req_notify_cq;
	ext->context.ops.post_srq_recv = inherited_post_srq_recv;
	ext->post_srq_ops = inherited_post_srq_ops;
	ext->context.ops.post_send = inherited_post_send;
	ext->context.ops.post_recv = inherited_post_recv;
}
