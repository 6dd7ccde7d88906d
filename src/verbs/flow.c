/* SPDX-License-Identifier: BSD-2-Clause */
/* Flow steering to raw packet queue pairs, and counters. What rules mean is in roce/raw.h. */
#include <stdlib.h>
#include <string.h>

#include "roce/raw.h"
#include "verbs/verbs.h"

enum { MAX_COUNTERS = 16 };

struct counters {
	struct ibv_counters pub;
	struct vb_flow_counters values;
	pthread_mutex_t lock;
	unsigned used;
	struct {
		uint32_t index;
		enum ibv_counter_description what;
	} points[MAX_COUNTERS];
};

struct flow {
	struct ibv_flow pub;
	struct vb_flow flow;
};

static const char call[] = "ibv_create_flow";

/* ---- rules ---- */

static size_t size_of(enum ibv_flow_spec_type type)
{
	switch ((unsigned)type) {
	case IBV_FLOW_SPEC_ETH:
		return sizeof(struct ibv_flow_spec_eth);
	case IBV_FLOW_SPEC_IPV4:
		return sizeof(struct ibv_flow_spec_ipv4);
	case IBV_FLOW_SPEC_IPV4_EXT:
		return sizeof(struct ibv_flow_spec_ipv4_ext);
	case IBV_FLOW_SPEC_IPV6:
		return sizeof(struct ibv_flow_spec_ipv6);
	case IBV_FLOW_SPEC_TCP:
	case IBV_FLOW_SPEC_UDP:
		return sizeof(struct ibv_flow_spec_tcp_udp);
	case IBV_FLOW_SPEC_ACTION_TAG:
		return sizeof(struct ibv_flow_spec_action_tag);
	case IBV_FLOW_SPEC_ACTION_DROP:
		return sizeof(struct ibv_flow_spec_action_drop);
	case IBV_FLOW_SPEC_ACTION_COUNT:
		return sizeof(struct ibv_flow_spec_counter_action);
	}
	return 0;
}

static int refuse(int err, const char *why)
{
	if (err == -EOPNOTSUPP)
		vb_explain_limit(call, "%s", why);
	else
		vb_explain(call, "%s", why);
	return err;
}

/*
 * Programs put specifications directly behind each other, so they are aligned to 4. *bytes: to the next one.
 */
static int add_spec(struct vb_flow *flow, const uint8_t *at, size_t *bytes)
{
	struct ibv_flow_spec spec;
	memcpy(&spec.hdr, at, sizeof(spec.hdr));
	size_t size = size_of(spec.hdr.type);
	*bytes = spec.hdr.size;
	if (!size)
		return refuse(
			-EOPNOTSUPP,
			"a specification is of a type that this device has not: Ethernet, IPv4, IPv6, TCP, UDP, tag, drop and count it has");
	if (spec.hdr.size < size)
		return refuse(-EINVAL, "a specification's size is less than its type has");
	memcpy(&spec, at, size);
	if (spec.hdr.type == IBV_FLOW_SPEC_ACTION_DROP) {
		flow->drops = true;
		return 0;
	}
	if (spec.hdr.type == IBV_FLOW_SPEC_ACTION_TAG) {
		flow->tag = spec.flow_tag.tag_id;
		return 0;
	}
	if (spec.hdr.type == IBV_FLOW_SPEC_ACTION_COUNT) {
		if (!spec.flow_count.counters)
			return refuse(-EINVAL, "a rule cannot count without counters");
		flow->counters = &vb_container_of(spec.flow_count.counters, struct counters, pub)->values;
		return 0;
	}
	if (flow->nspecs == VB_FLOW_MAX_SPECS)
		return refuse(-EINVAL, "too many specifications");
	memcpy(&flow->specs[flow->nspecs++], &spec, size);
	return 0;
}

/* The specifications follow the head. Their number counts; programs do not keep the head's size right. */
static int add_specs(struct vb_flow *flow, const struct ibv_flow_attr *attr)
{
	const uint8_t *at = (const uint8_t *)(attr + 1);
	for (unsigned i = 0; i < attr->num_of_specs; i++) {
		size_t bytes;
		int err = add_spec(flow, at, &bytes);
		if (err)
			return err;
		at += bytes;
	}
	return 0;
}

static int check(struct ibv_qp *qp, const struct ibv_flow_attr *attr)
{
	int err = vb_refuse_call(qp->context, call);
	if (err)
		return err;
	if (qp->qp_type != IBV_QPT_RAW_PACKET)
		return refuse(
			-EINVAL,
			"rules steer frames to raw packet queue pairs; a UD queue pair gets what is sent to its number");
	if (attr->comp_mask || attr->port != 1)
		return refuse(-EINVAL, "comp_mask must be 0 and port 1");
	if (attr->type > IBV_FLOW_ATTR_SNIFFER)
		return refuse(-EINVAL, "unknown type of rule");
	if (attr->flags & ~(uint32_t)IBV_FLOW_ATTR_FLAGS_DONT_TRAP)
		return refuse(
			-EOPNOTSUPP,
			"rules are for frames that come in (IBV_FLOW_ATTR_FLAGS_EGRESS and unknown flags)");
	if (attr->type != IBV_FLOW_ATTR_NORMAL && attr->num_of_specs)
		return refuse(-EINVAL, "only a normal rule has specifications");
	return 0;
}

struct ibv_flow *vb_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr)
{
	int err = check(qp, attr);
	struct flow *f = err ? NULL : calloc(1, sizeof(*f));
	if (!f)
		return vb_fail_null(err ? err : -ENOMEM);
	f->flow = (struct vb_flow){ .qp = vb_qp_of(qp), .type = attr->type, .priority = attr->priority,
				    .lets_others = attr->flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP };
	err = add_specs(&f->flow, attr);
	if (!err)
		err = vb_flow_add(&f->flow);
	if (err) {
		free(f);
		return vb_fail_null(err);
	}
	if (f->flow.counters)
		atomic_fetch_add(&f->flow.counters->refs, 1);
	f->pub.context = qp->context;
	return &f->pub;
}

int vb_destroy_flow(struct ibv_flow *pub)
{
	struct flow *f = vb_container_of(pub, struct flow, pub);
	if (!vb_is_inherited(pub->context))
		vb_flow_remove(&f->flow);
	if (f->flow.counters)
		atomic_fetch_sub(&f->flow.counters->refs, 1);
	free(f);
	return 0;
}

/* ---- counters ---- */

static struct counters *counters_of(struct ibv_counters *pub)
{
	return vb_container_of(pub, struct counters, pub);
}

struct ibv_counters *vb_create_counters(struct ibv_context *context, struct ibv_counters_init_attr *attr)
{
	int err = attr->comp_mask ? -EINVAL : vb_refuse_call(context, "ibv_create_counters");
	struct counters *c = err ? NULL : calloc(1, sizeof(*c));
	if (!c)
		return vb_fail_null(err ? err : -ENOMEM);
	pthread_mutex_init(&c->lock, NULL);
	c->pub.context = context;
	vb_verbs_context_hold(context);
	return &c->pub;
}

int vb_destroy_counters(struct ibv_counters *pub)
{
	struct counters *c = counters_of(pub);
	if (atomic_load(&c->values.refs)) {
		vb_explain("ibv_destroy_counters", "rules still count in it");
		return EBUSY;
	}
	vb_verbs_context_release(pub->context);
	pthread_mutex_destroy(&c->lock);
	free(c);
	return 0;
}

/* Only before any rule counts in the set. */
int vb_attach_counters_point_flow(struct ibv_counters *pub, struct ibv_counter_attach_attr *attr,
				  struct ibv_flow *flow)
{
	struct counters *c = counters_of(pub);
	int err = 0;
	if (attr->comp_mask ||
	    (attr->counter_desc != IBV_COUNTER_PACKETS && attr->counter_desc != IBV_COUNTER_BYTES))
		return EINVAL;
	if (flow) {
		vb_explain_limit(
			"ibv_attach_counters_point_flow",
			"counters are attached to a rule by its IBV_FLOW_SPEC_ACTION_COUNT (flow: NULL)");
		return EOPNOTSUPP;
	}
	pthread_mutex_lock(&c->lock);
	if (atomic_load(&c->values.refs))
		err = EBUSY;
	else if (c->used == MAX_COUNTERS)
		err = ENOMEM;
	for (unsigned i = 0; i < c->used && !err; i++)
		if (c->points[i].index == attr->index)
			err = EINVAL;
	if (!err) {
		c->points[c->used].index = attr->index;
		c->points[c->used++].what = attr->counter_desc;
	}
	pthread_mutex_unlock(&c->lock);
	return err;
}

int vb_read_counters(struct ibv_counters *pub, uint64_t *values, uint32_t n, uint32_t flags)
{
	struct counters *c = counters_of(pub);
	if (flags & ~(uint32_t)IBV_READ_COUNTERS_ATTR_PREFER_CACHED)
		return EINVAL;
	memset(values, 0, n * sizeof(*values));
	pthread_mutex_lock(&c->lock);
	for (unsigned i = 0; i < c->used; i++)
		if (c->points[i].index < n)
			values[c->points[i].index] =
				atomic_load(c->points[i].what == IBV_COUNTER_BYTES ? &c->values.bytes :
										     &c->values.packets);
	pthread_mutex_unlock(&c->lock);
	return 0;
}
