/* SPDX-License-Identifier: BSD-2-Clause */
/* Binding, and resolving addresses and routes. Nothing here takes time, so each result is queued as an event at once. */
#include <string.h>

#include "host/route.h"
#include "rdmacm/cma.h"

/* ---- binding ---- */

/* A reusable address is taken only by the one that listens on it. */
static int take_port(struct vb_cma_id *id, struct vb_cma_addr *addr)
{
	if (!id->reuseaddr)
		return vb_cma_port_bind(id->pub.ps, addr, id->afonly, &id->port);
	if (!addr->port)
		addr->port = vb_cma_port_random();
	return 0;
}

static int bind_checked(struct vb_cma_id *id, const char *call, struct vb_cma_addr *addr)
{
	char text[VB_CMA_TEXT];
	int err = vb_cma_agent_start();

	if (err) {
		vb_explain(call, "no place for this process on the host: %s", strerror(-err));
		return err;
	}
	if (IN6_IS_ADDR_LINKLOCAL(&addr->ip) && !addr->scope) {
		vb_explain(call, "the link-local address %s needs a scope id", vb_cma_addr_text(addr, text));
		return -EINVAL;
	}
	if (!vb_cma_addr_is_any(addr) && !vb_netif_is_local(&addr->ip)) {
		vb_explain(call, "%s is no address of this host", vb_cma_addr_text(addr, text));
		return -EADDRNOTAVAIL;
	}
	vb_cma_id_set_src(id, addr);
	err = vb_cma_addr_is_any(addr) ? 0 : vb_cma_id_attach(id);
	if (err) {
		vb_explain(call, "no RDMA device has the address %s", vb_cma_addr_text(addr, text));
		return err;
	}
	err = take_port(id, addr);
	if (err)
		vb_explain(call, "%s cannot be had: %s", vb_cma_addr_text(addr, text), strerror(-err));
	else
		vb_cma_id_set_src(id, addr);
	return err;
}

static void forget_source(struct vb_cma_id *id)
{
	memset(&id->src, 0, sizeof(id->src));
	memset(&id->pub.route.addr.src_storage, 0, sizeof(id->pub.route.addr.src_storage));
	memset(&id->pub.route.addr.addr, 0, sizeof(id->pub.route.addr.addr));
	id->device = NULL;
	id->pub.verbs = NULL;
	id->pub.pd = NULL;
	id->pub.port_num = 0;
}

int vb_cma_id_bind(struct vb_cma_id *id, const char *call, const struct vb_cma_addr *addr)
{
	struct vb_cma_addr wanted = *addr;

	if (id->state != VB_CMA_IDLE) {
		vb_explain(call, "the id is %s; only a fresh one can be bound", vb_cma_state_text(id->state));
		return -EINVAL;
	}
	int err = bind_checked(id, call, &wanted);
	if (err)
		forget_source(id);
	else
		id->state = VB_CMA_BOUND;
	return err;
}

static int parse(const char *call, const char *which, const struct sockaddr *sa, struct vb_cma_addr *addr)
{
	int err = vb_cma_addr_parse(sa, addr);

	if (err && !sa)
		vb_explain(call, "the %s address is NULL", which);
	else if (err)
		vb_explain(call, "the %s address is of family %d; AF_INET and AF_INET6 are served", which,
			   sa->sa_family);
	return err;
}

static int result(int err)
{
	if (!err)
		return 0;
	errno = -err;
	return -1;
}

VB_EXPORT int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *sa)
{
	struct vb_cma_addr addr;

	if (!id)
		return vb_cma_fail(EINVAL, "id is NULL");
	int err = parse(__func__, "source", sa, &addr);
	return result(err ? err : vb_cma_id_bind(vb_cma_id_of(id), __func__, &addr));
}

/* ---- resolving an address ---- */

/* An active id's port is a name for people to read: nobody connects to it, so it is not taken from anyone. */
static void number_source(struct vb_cma_addr *src)
{
	if (!src->port)
		src->port = vb_cma_port_random();
}

static int choose_source(const struct vb_cma_id *id, const struct vb_cma_addr *dst, struct vb_cma_addr *src)
{
	int err = 0;

	*src = id->src;
	src->family = dst->family;
	if (!id->src.family || vb_cma_addr_is_any(&id->src)) {
		err = vb_route_source(&dst->ip, dst->scope, &src->ip);
		src->scope = IN6_IS_ADDR_LINKLOCAL(&src->ip) ? dst->scope : 0;
	}
	number_source(src);
	return err;
}

/* The unspecified address means this host, as for connect(2). */
static void settle_wildcard(struct vb_cma_addr *dst)
{
	if (!vb_cma_addr_is_any(dst))
		return;
	if (vb_cma_ip_is_v4(&dst->ip)) {
		dst->ip.s6_addr[12] = 127;
		dst->ip.s6_addr[15] = 1;
	} else {
		dst->ip = in6addr_loopback;
	}
}

static int resolve(struct vb_cma_id *id, const char *call, struct vb_cma_addr *dst)
{
	struct vb_cma_addr src;
	char text[VB_CMA_TEXT];

	settle_wildcard(dst);
	int err = choose_source(id, dst, &src);
	if (err) {
		vb_explain(call, "no route to %s: %s", vb_cma_addr_text(dst, text), strerror(-err));
		return err;
	}
	vb_cma_id_set_src(id, &src);
	vb_cma_id_set_dst(id, dst);
	id->dst_is_local = vb_netif_is_local(&dst->ip);
	err = vb_cma_id_attach(id);
	if (err)
		vb_explain(call, "no RDMA device has the source address %s", vb_cma_addr_text(&src, text));
	return err;
}

static int bind_for_resolving(struct vb_cma_id *id, const char *call, const struct sockaddr *sa)
{
	struct vb_cma_addr src;
	int err;

	if (id->state != VB_CMA_IDLE || !sa)
		return 0;
	err = parse(call, "source", sa, &src);
	if (err)
		return err;
	if (vb_cma_addr_is_any(&src) && !src.port)
		return 0; /* asks for nothing */
	return vb_cma_id_bind(id, call, &src);
}

static int resolve_addr(struct vb_cma_id *id, const char *call, const struct sockaddr *src_sa,
			const struct sockaddr *dst_sa)
{
	struct vb_cma_addr dst;
	int err = parse(call, "destination", dst_sa, &dst);

	if (err)
		return err;
	if (id->state != VB_CMA_IDLE && id->state != VB_CMA_BOUND) {
		vb_explain(call, "the id is %s; only a fresh or bound one can be resolved", vb_cma_state_text(id->state));
		return -EINVAL;
	}
	if ((src_sa && src_sa->sa_family != dst_sa->sa_family) ||
	    (id->src.family && !vb_cma_addr_is_any(&id->src) && id->src.family != dst.family)) {
		vb_explain(call, "source and destination are of different address families");
		return -EINVAL;
	}
	err = vb_cma_agent_start();
	if (!err)
		err = bind_for_resolving(id, call, src_sa);
	return err ? err : resolve(id, call, &dst);
}

VB_EXPORT int rdma_resolve_addr(struct rdma_cm_id *pub, struct sockaddr *src, struct sockaddr *dst, int timeout_ms)
{
	if (!pub)
		return vb_cma_fail(EINVAL, "id is NULL");
	struct vb_cma_id *id = vb_cma_id_of(pub);

	(void)timeout_ms; /* the answer is known at once */
	int err = resolve_addr(id, __func__, src, dst);
	if (err)
		return result(err);
	vb_cma_lock();
	id->state = VB_CMA_ADDR_RESOLVED;
	vb_cma_event_raise_locked(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	vb_cma_unlock();
	return vb_cma_complete(id, __func__);
}

/* ---- resolving a route ---- */

VB_EXPORT int rdma_resolve_route(struct rdma_cm_id *pub, int timeout_ms)
{
	if (!pub)
		return vb_cma_fail(EINVAL, "id is NULL");
	struct vb_cma_id *id = vb_cma_id_of(pub);

	(void)timeout_ms;
	if (id->state != VB_CMA_ADDR_RESOLVED)
		return vb_cma_fail(EINVAL, "the id is %s; its address must be resolved first",
				   vb_cma_state_text(id->state));
	if (vb_cma_id_fill_path(id))
		return vb_cma_fail(ENOMEM, "no memory for the path record");
	vb_cma_lock();
	id->state = VB_CMA_ROUTE_RESOLVED;
	vb_cma_event_raise_locked(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	vb_cma_unlock();
	return vb_cma_complete(id, __func__);
}
