/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion counters. What peers do to this process's memory is not counted: within a host they do it
 * themselves, and this process takes no part in it.
 */
#include "adapter/queues/counter.h"

#include <stdlib.h>
#include <string.h>

#include "verbs/verbs.h"

enum { MAX_COUNTERS = 1 << 20 };

struct counter {
	struct ibv_comp_cntr pub;
	struct vb_counter counter;
};

static struct vb_counter *of(struct ibv_comp_cntr *pub)
{
	return &vb_container_of(pub, struct counter, pub)->counter;
}

static atomic_uint counters;

VB_EXPORT int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct ibv_comp_cntr_caps *caps,
					size_t caps_size)
{
	struct ibv_comp_cntr_caps c = { .max_value = UINT64_MAX,
					.max_counters = MAX_COUNTERS,
					.supported_qp_attach_ops = VB_COUNTER_OPS };
	memset(caps, 0, caps_size);
	memcpy(caps, &c, caps_size < sizeof(c) ? caps_size : sizeof(c));
	return 0;
}

static int check(struct ibv_context *context, const struct ibv_comp_cntr_init_attr *attr)
{
	static const char call[] = "ibv_create_comp_cntr";
	int err = vb_refuse_call(context, call);
	if (err)
		return err;
	if (attr->comp_mask || attr->flags)
		vb_explain(call, "comp_mask 0x%x and flags 0x%x: both must be 0", attr->comp_mask,
			   attr->flags);
	else if (attr->type != IBV_COMP_CNTR_TYPE_WRS && attr->type != IBV_COMP_CNTR_TYPE_BYTES)
		vb_explain(call, "type %d: work requests or bytes are counted", (int)attr->type);
	else
		return 0;
	return -EINVAL;
}

VB_EXPORT struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context,
						     struct ibv_comp_cntr_init_attr *attr)
{
	int err = check(context, attr);
	if (err)
		return vb_fail_null(err);
	bool room = atomic_fetch_add(&counters, 1) < MAX_COUNTERS;
	struct counter *c = room ? calloc(1, sizeof(*c)) : NULL;
	if (!c) {
		atomic_fetch_sub(&counters, 1);
		return vb_fail_null(-ENOMEM);
	}
	c->counter.in_bytes = attr->type == IBV_COMP_CNTR_TYPE_BYTES;
	c->pub.context = context;
	vb_verbs_context_hold(context);
	return &c->pub;
}

VB_EXPORT int ibv_destroy_comp_cntr(struct ibv_comp_cntr *pub)
{
	unsigned users = atomic_load(&of(pub)->qps);
	if (users && !vb_is_inherited(pub->context)) {
		vb_explain("ibv_destroy_comp_cntr", "queue pairs still count in it (%u kinds of operations)",
			   users);
		return vb_fail(-EBUSY);
	}
	atomic_fetch_sub(&counters, 1);
	vb_verbs_context_release(pub->context);
	free(vb_container_of(pub, struct counter, pub));
	return 0;
}

/* ---- values: they wrap at 2^64, as max_value says ---- */

VB_EXPORT int ibv_set_comp_cntr(struct ibv_comp_cntr *pub, uint64_t value)
{
	atomic_store(&of(pub)->done, value);
	return 0;
}

VB_EXPORT int ibv_set_err_comp_cntr(struct ibv_comp_cntr *pub, uint64_t value)
{
	atomic_store(&of(pub)->failed, value);
	return 0;
}

VB_EXPORT int ibv_inc_comp_cntr(struct ibv_comp_cntr *pub, uint64_t amount)
{
	atomic_fetch_add(&of(pub)->done, amount);
	return 0;
}

VB_EXPORT int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *pub, uint64_t amount)
{
	atomic_fetch_add(&of(pub)->failed, amount);
	return 0;
}

VB_EXPORT int ibv_read_comp_cntr(struct ibv_comp_cntr *pub, uint64_t *value)
{
	*value = atomic_load(&of(pub)->done);
	return 0;
}

VB_EXPORT int ibv_read_err_comp_cntr(struct ibv_comp_cntr *pub, uint64_t *value)
{
	*value = atomic_load(&of(pub)->failed);
	return 0;
}

/* ---- queue pairs ---- */

VB_EXPORT int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *pub,
				      struct ibv_qp_attach_comp_cntr_attr *attr)
{
	static const char call[] = "ibv_qp_attach_comp_cntr";
	int err = vb_refuse_call(qp->context, call);
	if (!err)
		err = vb_check_same_context(call, qp->context, "the counter", pub->context);
	if (!err && attr->comp_mask)
		err = -EINVAL;
	if (!err && vb_qp_is_away(qp)) {
		vb_explain_limit(call, "the queue pair is another process's");
		return vb_fail(-EOPNOTSUPP);
	}
	if (!err)
		err = vb_qp_attach_counter(vb_shared_qp_of(qp), of(pub), attr->op_mask);
	if (err == -EOPNOTSUPP)
		vb_explain_limit(
			call,
			"op_mask 0x%x: 0x%x can be counted; what a peer reads or writes here it does by itself",
			attr->op_mask, VB_COUNTER_OPS);
	return err ? vb_fail(err) : 0;
}
