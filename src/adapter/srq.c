/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "adapter/queues/queue.h"
#include "adapter/queues/tags.h"
#include "adapter/xrc_server.h"

int vb_srq_init(struct vb_srq *srq, struct vb_pd *pd, struct ibv_srq_attr *attr)
{
	if (attr->max_wr > VB_MAX_WR || attr->max_sge > VB_MAX_SGE || !attr->max_wr ||
	    attr->srq_limit > attr->max_wr)
		return -EINVAL;
	memset(srq, 0, sizeof(*srq));
	if (!attr->max_sge)
		attr->max_sge = 1;
	int err = vb_rq_init(&srq->rq, pd, attr->max_wr, attr->max_sge);
	if (err)
		return err;
	srq->ctx = pd->ctx;
	srq->pd = pd;
	vb_list_init(&srq->starved);
	atomic_fetch_add(&pd->refs, 1);
	vb_registry_add(VB_REGISTRY_SRQS, &srq->registered);
	return 0;
}

int vb_xrc_srq_join(struct vb_srq *srq, struct vb_xrcd *xrcd, struct vb_cq *cq)
{
	srq->xrcd = xrcd;
	srq->cq = cq;
	int err = vb_xrc_number_take(srq);
	if (err)
		return err;
	err = xrcd->share ? vb_xrc_server_number(xrcd->share, VB_XRC_QUEUES, srq->number) : 0;
	if (err) {
		vb_xrc_number_drop(srq);
		return err;
	}
	atomic_fetch_add(&xrcd->refs, 1);
	atomic_fetch_add(&cq->refs, 1);
	return 0;
}

int vb_srq_fini(struct vb_srq *srq)
{
	if (srq->xrcd ? !vb_xrc_srq_leave(srq) : atomic_load(&srq->refs) != 0)
		return -EBUSY;
	vb_registry_remove(&srq->registered);
	vb_async_forget(srq->ctx, &srq->async);
	if (srq->tags)
		vb_tags_fini(srq);
	vb_rq_fini(&srq->rq);
	atomic_fetch_sub(&srq->pd->refs, 1);
	return 0;
}
