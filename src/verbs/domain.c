/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Protection domains, thread domains and parent domains. A parent domain is a further handle on a protection
 * domain, with allocators for the memory of queues. A thread domain promises that one thread at a time uses
 * what is made with it: then ibv_wr_start and ibv_start_poll take no lock between the program's threads. The
 * queues' own locks stay, because the adapter's thread works on queues too.
 */
#include <stdlib.h>
#include <string.h>

#include "verbs/verbs.h"

/* ---- protection domains ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list domains = VB_LIST_INIT(domains); /* that can be imported; under lock */

static void enlist(struct vb_verbs_pd *pd)
{
	pthread_mutex_lock(&lock);
	vb_list_add_tail(&domains, &pd->node);
	pthread_mutex_unlock(&lock);
}

static void delist(struct vb_verbs_pd *pd)
{
	pthread_mutex_lock(&lock);
	vb_list_del(&pd->node);
	pthread_mutex_unlock(&lock);
}

/* A forked child has none of its parent's. */
static void forget(void)
{
	struct vb_verbs_pd *pd;
	pthread_mutex_init(&lock, NULL);
	vb_list_for_each(pd, &domains, node)
		vb_list_del(&pd->node);
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}

VB_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct vb_verbs_context *c = vb_verbs_context_of(context);
	int err = vb_refuse_call(context, "ibv_alloc_pd");
	if (err)
		return vb_fail_null(err);
	struct vb_verbs_pd *pd = calloc(1, sizeof(*pd));
	if (!pd)
		return vb_fail_null(-ENOMEM);
	vb_pd_init(&pd->pd, &c->ctx);
	pd->pub.context = context;
	pd->pub.handle = pd->pd.number;
	enlist(pd);
	vb_verbs_context_hold(context);
	return &pd->pub;
}

static void parent_domain_fini(struct vb_verbs_pd *pd)
{
	atomic_fetch_sub(&vb_pd_of(pd->parent.pd)->refs, 1);
	if (pd->parent.td)
		atomic_fetch_sub(&vb_container_of(pd->parent.td, struct vb_verbs_td, pub)->refs, 1);
}

VB_EXPORT int ibv_dealloc_pd(struct ibv_pd *pub)
{
	int fault = vb_fault_call("ibv_dealloc_pd", 0);
	if (fault)
		return vb_fail(fault);
	struct vb_verbs_pd *pd = vb_container_of(pub, struct vb_verbs_pd, pub);
	if (!vb_is_inherited(pub->context)) {
		unsigned users = atomic_load(&pd->pd.refs);
		int err = vb_pd_fini(&pd->pd);
		if (err) {
			vb_explain(
				"ibv_dealloc_pd",
				"%u memory regions, windows, queues, address handles and parent domains still use it",
				users);
			return vb_fail(err);
		}
		delist(pd);
		if (pd->parent.pd)
			parent_domain_fini(pd);
	}
	vb_verbs_context_release(pub->context);
	free(pd);
	return 0;
}

static bool exists_locked(uint32_t handle)
{
	struct vb_verbs_pd *pd;
	vb_list_for_each(pd, &domains, node)
		if (pd->pub.handle == handle)
			return true;
	return false;
}

/* A further handle on a domain of this process. */
VB_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	int err = vb_refuse_call(context, "ibv_import_pd");
	if (err)
		return vb_fail_null(err);
	pthread_mutex_lock(&lock);
	bool exists = exists_locked(handle);
	pthread_mutex_unlock(&lock);
	if (!exists) {
		vb_explain("ibv_import_pd", "there is no protection domain of handle %u in this process",
			   handle);
		return vb_fail_null(-ENOENT);
	}
	struct vb_verbs_pd *pd = calloc(1, sizeof(*pd));
	if (!pd)
		return vb_fail_null(-ENOMEM);
	vb_pd_init_alias(&pd->pd, &vb_verbs_context_of(context)->ctx, handle);
	vb_list_init(&pd->node);
	pd->pub.context = context;
	pd->pub.handle = handle;
	vb_verbs_context_hold(context);
	return &pd->pub;
}

VB_EXPORT void ibv_unimport_pd(struct ibv_pd *pub)
{
	struct vb_verbs_pd *pd = vb_container_of(pub, struct vb_verbs_pd, pub);
	unsigned users = atomic_load(&pd->pd.refs);
	if (users && !vb_is_inherited(pub->context)) {
		vb_explain("ibv_unimport_pd",
			   "%u objects that were made with the handle still exist: it stays", users);
		return;
	}
	vb_verbs_context_release(pub->context);
	free(pd);
}

/* ---- thread domains ---- */

struct ibv_td *vb_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	int err = vb_refuse_call(context, "ibv_alloc_td");
	if (!err && attr->comp_mask) {
		vb_explain("ibv_alloc_td", "comp_mask is 0x%x: it must be 0", attr->comp_mask);
		err = -EINVAL;
	}
	if (err)
		return vb_fail_null(err);
	struct vb_verbs_td *td = calloc(1, sizeof(*td));
	if (!td)
		return vb_fail_null(-ENOMEM);
	td->pub.context = context;
	vb_verbs_context_hold(context);
	return &td->pub;
}

int vb_dealloc_td(struct ibv_td *pub)
{
	struct vb_verbs_td *td = vb_container_of(pub, struct vb_verbs_td, pub);
	unsigned users = atomic_load(&td->refs);
	if (users && !vb_is_inherited(pub->context)) {
		vb_explain("ibv_dealloc_td", "%u parent domains still use it", users);
		return vb_fail(-EBUSY);
	}
	vb_verbs_context_release(pub->context);
	free(td);
	return 0;
}

/* ---- parent domains ---- */

static struct vb_verbs_pd *of(struct vb_pd *pd) { return vb_container_of(pd, struct vb_verbs_pd, pd); }

/* The only kind of memory that the adapter asks for. */
enum { QUEUE = 0 };

static void *take(struct vb_pd *pd, size_t bytes, size_t alignment)
{
	struct vb_verbs_pd *own = of(pd);
	void *p = own->parent.alloc(&own->pub, own->parent.pd_context, bytes, alignment, QUEUE);
	return p == IBV_ALLOCATOR_USE_DEFAULT ? VB_USE_DEFAULT : p;
}

static void give(struct vb_pd *pd, void *memory)
{
	struct vb_verbs_pd *own = of(pd);
	own->parent.free(&own->pub, own->parent.pd_context, memory, QUEUE);
}

static int check(struct ibv_context *context, const struct ibv_parent_domain_init_attr *attr)
{
	static const char call[] = "ibv_alloc_parent_domain";
	/* The last one is for machines that hide memory from devices. Nothing is hidden from this device. */
	enum { KNOWN = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT |
		       IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC };
	int err = vb_refuse_call(context, call);
	if (err)
		return err;
	if (attr->comp_mask & ~(uint32_t)KNOWN)
		vb_explain_limit(call, "comp_mask 0x%x: this device knows 0x%x only", attr->comp_mask, KNOWN);
	else if (!attr->pd)
		vb_explain(call, "a parent domain needs a protection domain (pd is NULL)");
	else if (vb_container_of(attr->pd, struct vb_verbs_pd, pub)->parent.pd)
		vb_explain(call, "pd is a parent domain itself");
	else if ((attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) && (!attr->alloc || !attr->free))
		vb_explain(call, "IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS is set, alloc or free is NULL");
	else
		return vb_check_same_context(call, context, "pd", attr->pd->context);
	return -EINVAL;
}

struct ibv_pd *vb_alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
	int err = check(context, attr);
	if (!err && attr->td)
		err = vb_check_same_context("ibv_alloc_parent_domain", context, "td", attr->td->context);
	if (err)
		return vb_fail_null(err);
	struct vb_verbs_pd *pd = calloc(1, sizeof(*pd));
	if (!pd)
		return vb_fail_null(-ENOMEM);
	struct vb_pd *protection = vb_pd_of(attr->pd);
	vb_pd_init_alias(&pd->pd, protection->ctx, protection->number);
	vb_list_init(&pd->node);
	pd->parent.pd = attr->pd; /* older programs have not the members that comp_mask does not name */
	pd->parent.td = attr->td;
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		pd->parent.pd_context = attr->pd_context;
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
		pd->parent.alloc = attr->alloc;
		pd->parent.free = attr->free;
		pd->pd.take = take;
		pd->pd.give = give;
	}
	pd->pub.context = context;
	pd->pub.handle = attr->pd->handle;
	atomic_fetch_add(&protection->refs, 1);
	if (attr->td)
		atomic_fetch_add(&vb_container_of(attr->td, struct vb_verbs_td, pub)->refs, 1);
	vb_verbs_context_hold(context);
	return &pd->pub;
}

bool vb_is_single_threaded(struct ibv_pd *pd)
{
	return pd && vb_container_of(pd, struct vb_verbs_pd, pub)->parent.td;
}
