/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues. */
#include <stdlib.h>

#include "adapter/queues/tags.h"
#include "verbs/faulty_ops.h"
#include "verbs/verbs.h"

static void explain_create(const char *call, int err, const struct ibv_srq_attr *attr)
{
	if (err == -ENOMEM)
		vb_explain_limit(call, "no memory for %u requests", attr->max_wr);
	else
		vb_explain(call,
			   "max_wr %u, max_sge %u: the device has 1 to %u (max_srq_wr) and at most %u (max_srq_sge)",
			   attr->max_wr, attr->max_sge, VB_MAX_WR, VB_MAX_SGE);
}

static void explain_modify(int err, const struct ibv_srq_attr *attr, int mask)
{
	static const char call[] = "ibv_modify_srq";
	if (err == -ENOMEM)
		vb_explain_limit(call, "no memory for %u requests", attr->max_wr);
	else if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		vb_explain(call, "srq_attr_mask 0x%x: there are IBV_SRQ_MAX_WR and IBV_SRQ_LIMIT",
			   (unsigned)mask);
	else if (mask & IBV_SRQ_MAX_WR)
		vb_explain(call,
			   "max_wr %u: the device has 1 to %u (max_srq_wr); the requests that wait, or are not polled, "
			   "and the limit must fit into it",
			   attr->max_wr, VB_MAX_WR);
	else
		vb_explain(call, "srq_limit %u is more than max_wr", attr->srq_limit);
}

static struct ibv_srq *create(struct ibv_pd *pd, void *srq_context, struct ibv_srq_attr *attr,
			      const char *call)
{
	struct ibv_srq_attr granted = { .max_wr = attr->max_wr, .max_sge = attr->max_sge };
	int err = vb_refuse_call(pd->context, call);
	if (err)
		return vb_fail_null(err);
	struct vb_verbs_srq *srq = calloc(1, sizeof(*srq));
	if (!srq)
		return vb_fail_null(-ENOMEM);
	err = vb_srq_init(&srq->srq, vb_pd_of(pd), &granted);
	if (err) {
		explain_create(call, err, attr);
		free(srq);
		return vb_fail_null(err);
	}
	attr->max_wr = granted.max_wr;
	attr->max_sge = granted.max_sge;
	srq->pub.context = pd->context;
	srq->pub.srq_context = srq_context;
	srq->pub.pd = pd;
	return &srq->pub;
}

VB_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	return create(pd, init->srq_context, &init->attr, "ibv_create_srq");
}

/* No call of the program's, which a fault could refuse. errno is `err`. */
static struct ibv_srq *take_back(struct ibv_srq *pub, int err)
{
	struct vb_verbs_srq *srq = vb_container_of(pub, struct vb_verbs_srq, pub);
	vb_srq_fini(&srq->srq);
	free(srq);
	return vb_fail_null(err);
}

static int check_xrc(struct ibv_context *pub, const struct ibv_srq_init_attr_ex *init)
{
	static const char call[] = "ibv_create_srq_ex";
	if (!(init->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) || !init->xrcd ||
	    !(init->comp_mask & IBV_SRQ_INIT_ATTR_CQ) || !init->cq) {
		vb_explain(
			call,
			"an XRC shared receive queue needs a domain and a completion queue (IBV_SRQ_INIT_ATTR_XRCD, _CQ)");
		return -EINVAL;
	}
	int err = vb_check_same_context(call, pub, "the XRC domain", init->xrcd->context);
	return err ? err : vb_check_same_context(call, pub, "the completion queue", init->cq->context);
}

static struct ibv_srq *make_xrc(struct ibv_srq *srq, const struct ibv_srq_init_attr_ex *init)
{
	int err = vb_xrc_srq_join(vb_srq_of(srq), vb_xrcd_of(init->xrcd), vb_cq_of(init->cq));
	if (!err)
		return srq;
	vb_srq_of(srq)->xrcd = NULL; /* it is no XRC SRQ */
	return take_back(srq, err);
}

static int check_tm(struct ibv_context *pub, const struct ibv_srq_init_attr_ex *init)
{
	static const char call[] = "ibv_create_srq_ex";
	if (!(init->comp_mask & IBV_SRQ_INIT_ATTR_TM) || !(init->comp_mask & IBV_SRQ_INIT_ATTR_CQ) ||
	    !init->cq) {
		vb_explain(
			call,
			"a shared receive queue that matches tags needs a completion queue and tm_cap (IBV_SRQ_INIT_ATTR_CQ, _TM)");
		return -EINVAL;
	}
	return vb_check_same_context(call, pub, "the completion queue", init->cq->context);
}

static struct ibv_srq *make_tm(struct ibv_srq *srq, const struct ibv_srq_init_attr_ex *init)
{
	int err = vb_tags_init(vb_srq_of(srq), vb_cq_of(init->cq), &init->tm_cap);
	return err ? take_back(srq, err) : srq;
}

static int check_type(struct ibv_context *pub, const struct ibv_srq_init_attr_ex *init,
		      enum ibv_srq_type type)
{
	switch (type) {
	case IBV_SRQT_BASIC:
		return 0;
	case IBV_SRQT_XRC:
		return check_xrc(pub, init);
	case IBV_SRQT_TM:
		return check_tm(pub, init);
	}
	vb_explain("ibv_create_srq_ex", "srq_type %d does not exist", (int)type);
	return -EINVAL;
}

static struct ibv_srq *make_typed(struct ibv_srq *srq, const struct ibv_srq_init_attr_ex *init,
				  enum ibv_srq_type type)
{
	switch (type) {
	case IBV_SRQT_BASIC:
		break;
	case IBV_SRQT_XRC:
		return make_xrc(srq, init);
	case IBV_SRQT_TM:
		return make_tm(srq, init);
	}
	return srq;
}

struct ibv_srq *vb_create_srq_ex(struct ibv_context *pub, struct ibv_srq_init_attr_ex *init)
{
	static const char call[] = "ibv_create_srq_ex";
	enum { KNOWN = IBV_SRQ_INIT_ATTR_RESERVED - 1 };
	enum ibv_srq_type type = init->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? init->srq_type : IBV_SRQT_BASIC;
	if (init->comp_mask & ~(uint32_t)KNOWN) {
		vb_explain_limit(call, "comp_mask 0x%x: this device knows 0x%x only", init->comp_mask, KNOWN);
		return vb_fail_null(-EOPNOTSUPP);
	}
	if (!(init->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !init->pd) {
		vb_explain(call, "a protection domain is needed (IBV_SRQ_INIT_ATTR_PD in comp_mask, and pd)");
		return vb_fail_null(-EINVAL);
	}
	int err = vb_check_same_context(call, pub, "the protection domain", init->pd->context);
	if (!err)
		err = check_type(pub, init, type);
	if (err)
		return vb_fail_null(err);
	struct ibv_srq *srq = create(init->pd, init->srq_context, &init->attr, call);
	return srq ? make_typed(srq, init, type) : NULL;
}

int vb_post_srq_ops(struct ibv_srq *pub, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad)
{
	if (vb_srq_of(pub)->tags)
		return vb_tags_post(vb_srq_of(pub), wr, bad);
	vb_explain("ibv_post_srq_ops", "the shared receive queue does not match tags (IBV_SRQT_TM)");
	*bad = wr;
	return EINVAL;
}

VB_EXPORT int ibv_modify_srq(struct ibv_srq *pub, struct ibv_srq_attr *attr, int mask)
{
	int err = vb_refuse_call(pub->context, "ibv_modify_srq");
	if (err)
		return vb_fail(err);
	err = vb_srq_modify(vb_srq_of(pub), attr, mask);
	if (!err)
		return 0;
	explain_modify(err, attr, mask);
	return vb_fail(err);
}

VB_EXPORT int ibv_query_srq(struct ibv_srq *pub, struct ibv_srq_attr *attr)
{
	int err = vb_refuse_call(pub->context, "ibv_query_srq");
	if (err)
		return vb_fail(err);
	vb_srq_query(vb_srq_of(pub), attr);
	return 0;
}

VB_EXPORT int ibv_destroy_srq(struct ibv_srq *pub)
{
	int fault = vb_fault_call("ibv_destroy_srq", 0);
	if (fault)
		return vb_fail(fault);
	struct vb_verbs_srq *srq = vb_container_of(pub, struct vb_verbs_srq, pub);
	unsigned users = atomic_load(&srq->srq.refs);
	if (vb_faults_on && (!users || srq->srq.xrcd)) /* else the queue stays */
		vb_fault_forget_srq(pub);
	if (vb_check_enabled && !vb_is_inherited(pub->context))
		vb_check_srq_end(&srq->srq);
	int err = vb_is_inherited(pub->context) ? 0 : vb_srq_fini(&srq->srq);
	if (err) {
		vb_explain("ibv_destroy_srq", "%u queue pairs still use it", users);
		return vb_fail(err);
	}
	free(srq);
	return 0;
}
