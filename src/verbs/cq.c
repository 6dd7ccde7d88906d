/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues as ibv_create_cq makes them. */
#include <stdlib.h>

#include "base/nanoseconds.h"
#include "verbs/verbs.h"

/* ---- creation and destruction ---- */

static int check_cq(struct ibv_context *pub, uint32_t cqe, const struct ibv_comp_channel *channel,
		    uint32_t comp_vector, const char *call)
{
	int err = vb_refuse_call(pub, call);
	if (!err && channel)
		err = vb_check_same_context(call, pub, "the completion channel", channel->context);
	if (err)
		return err;
	if (!cqe || cqe > VB_MAX_CQE) {
		vb_explain(call, "%u entries were asked for, the device has 1 to %u (max_cqe)", cqe,
			   VB_MAX_CQE);
		return -EINVAL;
	}
	if (comp_vector >= (uint32_t)pub->num_comp_vectors) {
		vb_explain(call, "comp_vector is %u, the device has 0 to %d", comp_vector,
			   pub->num_comp_vectors - 1);
		return -EINVAL;
	}
	return 0;
}

struct vb_verbs_cq *vb_make_cq(struct ibv_context *pub, uint32_t cqe, void *cq_context,
			       struct ibv_comp_channel *channel, uint32_t comp_vector, struct ibv_pd *parent,
			       const char *call)
{
	struct vb_channel *ch = channel ? &vb_container_of(channel, struct vb_verbs_channel, pub)->ch : NULL;
	int err = check_cq(pub, cqe, channel, comp_vector, call);
	if (err)
		return vb_fail_null(err);
	struct vb_verbs_cq *cq = calloc(1, sizeof(*cq));
	if (!cq)
		return vb_fail_null(-ENOMEM);
	err = vb_cq_init(&cq->cq, &vb_verbs_context_of(pub)->ctx, ch, parent ? vb_pd_of(parent) : NULL, cqe);
	if (err) {
		vb_explain_limit(call, "no memory for %u entries", cqe);
		free(cq);
		return vb_fail_null(err);
	}
	cq->pub.context = pub;
	cq->pub.channel = channel;
	cq->pub.cq_context = cq_context;
	cq->pub.cqe = (int)cq->cq.capacity;
	pthread_mutex_init(&cq->poll_lock, NULL);
	vb_verbs_context_hold(pub);
	if (vb_check_enabled)
		vb_check_cq_begin(&cq->cq);
	return cq;
}

VB_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				       struct ibv_comp_channel *channel, int comp_vector)
{
	struct vb_verbs_cq *cq = vb_make_cq(context, cqe < 0 ? 0 : (uint32_t)cqe, cq_context, channel,
					    (uint32_t)comp_vector, NULL, "ibv_create_cq");
	return cq ? &cq->pub : NULL;
}

VB_EXPORT int ibv_resize_cq(struct ibv_cq *pub, int cqe)
{
	struct vb_cq *cq = vb_cq_of(pub);
	int err = vb_refuse_call(pub->context, "ibv_resize_cq");
	if (err)
		return vb_fail(err);
	if (vb_check_enabled)
		vb_check_release_all_sends();
	err = vb_cq_resize(cq, cqe < 0 ? 0 : (uint32_t)cqe);
	if (err == -ENOMEM)
		vb_explain_limit("ibv_resize_cq", "no memory for %d entries", cqe);
	else if (err == -EINVAL)
		vb_explain("ibv_resize_cq",
			   "cannot have %d entries: 1 to %u are possible, and those that wait must fit", cqe,
			   VB_MAX_CQE);
	if (err)
		return vb_fail(err);
	pub->cqe = (int)cq->capacity;
	return 0;
}

int vb_modify_cq(struct ibv_cq *pub, struct ibv_modify_cq_attr *attr)
{
	int err = vb_refuse_call(pub->context, "ibv_modify_cq");
	if (err)
		return -err;
	if (attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE) {
		vb_explain_limit("ibv_modify_cq", "attr_mask 0x%x: this device knows IBV_CQ_ATTR_MODERATE",
				 attr->attr_mask);
		return EOPNOTSUPP;
	}
	if (attr->attr_mask & IBV_CQ_ATTR_MODERATE)
		vb_cq_moderate(vb_cq_of(pub), attr->moderate.cq_count,
			       (uint64_t)attr->moderate.cq_period * VB_NS_PER_US);
	return 0;
}

VB_EXPORT int ibv_destroy_cq(struct ibv_cq *pub)
{
	int fault = vb_fault_call("ibv_destroy_cq", 0);
	if (fault)
		return vb_fail(fault);
	struct vb_verbs_cq *cq = vb_container_of(pub, struct vb_verbs_cq, pub);
	if (!vb_is_inherited(pub->context)) {
		unsigned users = atomic_load(&cq->cq.refs);
		if (vb_check_enabled)
			vb_check_cq_end(&cq->cq);
		int err = vb_cq_fini(&cq->cq);
		if (err) {
			vb_explain("ibv_destroy_cq", "queue pairs still use it (%u send or receive queues)",
				   users);
			return vb_fail(err);
		}
		pthread_mutex_destroy(&cq->poll_lock);
		vb_check_cq_gone(cq->cq.checked);
	}
	vb_verbs_context_release(pub->context);
	free(cq);
	return 0;
}

/* ---- polling ---- */

int vb_poll_cq(struct ibv_cq *pub, int num_entries, struct ibv_wc *wc)
{
	return num_entries > 0 ? vb_cq_poll_wc(vb_cq_of(pub), (uint32_t)num_entries, wc) : 0;
}
