/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Binding, and resolving addresses and routes. Only a neighbour may take time to be found; all else is queued
 * as an event at once.
 */
#include <string.h>

#include "adapter/device/device.h"
#include "rdmacm/cma.h"

/* ---- binding ---- */

/* A reusable address is taken only by the one that listens on it. */
static int take_port(struct vb_cma_id *id, struct vb_cma_addr *addr)
{
	if (addr->port && !vb_may_bind_port(addr->port))
		return -EACCES;
	if (!id->reuseaddr)
		return vb_cma_port_bind(id->pub.ps, addr, id->afonly, &id->port);
	if (!addr->port)
		addr->port = vb_cma_port_random();
	return 0;
}

static void set_source(struct vb_cma_id *id, const struct vb_cma_addr *addr)
{
	vb_cma_lock();
	vb_cma_id_set_src_locked(id, addr);
	vb_cma_unlock();
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
	set_source(id, addr);
	err = vb_cma_addr_is_any(addr) ? 0 : vb_cma_id_attach(id);
	if (err) {
		vb_explain(call, "no RDMA device has the address %s: %s", vb_cma_addr_text(addr, text),
			   strerror(-err));
		return err;
	}
	err = take_port(id, addr);
	if (err)
		vb_explain(call, "%s cannot be had: %s", vb_cma_addr_text(addr, text), strerror(-err));
	else
		set_source(id, addr);
	return err;
}

static void leave_device_locked(struct vb_cma_id *id)
{
	memset(&id->pub.route.addr.addr, 0, sizeof(id->pub.route.addr.addr));
	id->device = NULL;
	id->pub.verbs = NULL;
	id->pub.pd = NULL;
	id->pub.port_num = 0;
}

static void forget_source_locked(struct vb_cma_id *id)
{
	memset(&id->src, 0, sizeof(id->src));
	memset(&id->pub.route.addr.src_storage, 0, sizeof(id->pub.route.addr.src_storage));
	leave_device_locked(id);
}

int vb_cma_id_bind(struct vb_cma_id *id, const char *call, const struct vb_cma_addr *addr)
{
	struct vb_cma_addr wanted = *addr;

	if (vb_cma_id_state(id) != VB_CMA_IDLE) {
		vb_explain(call, "the id is %s; only a fresh one can be bound", vb_cma_id_state_text(id));
		return -EINVAL;
	}
	int err = bind_checked(id, call, &wanted);
	vb_cma_lock();
	if (err)
		forget_source_locked(id);
	else
		id->state = VB_CMA_BOUND;
	vb_cma_unlock();
	return err;
}

static int parse(const char *call, const char *which, const struct sockaddr *sa, struct vb_cma_addr *addr)
{
	int err = vb_cma_addr_parse(sa, addr);

	if (err && !sa)
		vb_explain(call, "the %s address is NULL", which);
	else if (err)
		vb_explain(call, "the %s address is of family %d; AF_INET, AF_INET6 and AF_IB are served",
			   which, sa->sa_family);
	return err;
}

VB_EXPORT int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *sa)
{
	struct vb_cma_addr addr;

	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!id)
		return vb_cma_fail(EINVAL, "id is NULL");
	int err = parse(__func__, "source", sa, &addr);
	err = err ? err : vb_cma_id_bind(vb_cma_id_of(id), __func__, &addr);
	if (!err && vb_cma_addrinfo_is_host(sa)) {
		vb_cma_lock();
		leave_device_locked(vb_cma_id_of(id));
		vb_cma_unlock();
	}
	return vb_cma_result(err);
}

/* ---- resolving an address ---- */

/* An active id's port is a name for people to read: nobody connects to it, so it is not taken from anyone. */
static void number_source(struct vb_cma_addr *src)
{
	if (!src->port)
		src->port = vb_cma_port_random();
}

/* A bound source is a way to this host and to groups even where the routing table has none. */
static int choose_source(const struct vb_cma_id *id, const struct vb_cma_addr *dst, struct vb_cma_addr *src,
			 struct vb_route *route)
{
	bool bound = id->src.family && !vb_cma_addr_is_any(&id->src);
	int err = vb_route_find(&dst->ip, dst->scope, bound ? &id->src.ip : NULL, route);

	*src = id->src;
	src->family = dst->family;
	if (err && bound && (vb_cma_ip_is_multicast(&dst->ip) || vb_netif_is_local(&dst->ip))) {
		memset(route, 0, sizeof(*route));
		err = 0;
	}
	if (!bound) {
		src->ip = route->source;
		if (IN6_IS_ADDR_LINKLOCAL(&src->ip))
			/* to this host itself routes go by the loopback */
			src->scope = dst->scope ? dst->scope : route->ifindex;
	}
	number_source(src);
	return err;
}

/* The most that both ends, or what is known of the path, can carry. */
static enum ibv_mtu path_mtu(enum ibv_mtu ours, const struct vb_cma_addr *dst, const struct vb_route *route)
{
	struct vb_cma_source peer;
	enum ibv_mtu theirs = ours;

	if (!vb_cma_device_find(dst, &peer))
		theirs = peer.mtu;
	else if (route->mtu)
		theirs = vb_mtu_for(route->mtu);
	return theirs < ours ? theirs : ours;
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

/* A link-local address is on the link that is named, else on that of the source. */
static int settle_scope(const struct vb_cma_id *id, const char *call, struct vb_cma_addr *dst)
{
	char text[VB_CMA_TEXT];

	if (!IN6_IS_ADDR_LINKLOCAL(&dst->ip))
		return 0;
	if (!dst->scope)
		dst->scope = id->src.scope;
	if (dst->scope)
		return 0;
	vb_explain(call, "the link-local address %s needs a scope id, or a source that has one",
		   vb_cma_addr_text(dst, text));
	return -EINVAL;
}

static int resolve(struct vb_cma_id *id, const char *call, struct vb_cma_addr *dst, struct vb_route *route)
{
	struct vb_cma_addr src;
	char text[VB_CMA_TEXT];

	settle_wildcard(dst);
	int err = settle_scope(id, call, dst);
	if (err)
		return err;
	err = choose_source(id, dst, &src, route);
	if (err) {
		vb_explain(call, "no route to %s: %s", vb_cma_addr_text(dst, text), strerror(-err));
		return err;
	}
	id->asked_src = id->src;
	vb_cma_lock();
	vb_cma_id_set_src_locked(id, &src);
	vb_cma_id_set_dst_locked(id, dst);
	vb_cma_unlock();
	err = vb_cma_id_attach(id);
	if (!err) {
		id->mtu = path_mtu(id->mtu, dst, route);
		return 0;
	}
	vb_explain(call, "no RDMA device has the source address %s: %s", vb_cma_addr_text(&src, text),
		   strerror(-err));
	vb_cma_id_unresolve(id);
	return err;
}

void vb_cma_id_unresolve(struct vb_cma_id *id)
{
	struct vb_cma_addr asked = id->asked_src;

	vb_cma_lock();
	if (!asked.family || vb_cma_addr_is_any(&asked))
		forget_source_locked(id);
	if (asked.family)
		vb_cma_id_set_src_locked(id, &asked);
	vb_cma_unlock();
}

static int bind_for_resolving(struct vb_cma_id *id, const char *call, const struct sockaddr *sa)
{
	struct vb_cma_addr src;
	int err;

	if (vb_cma_id_state(id) != VB_CMA_IDLE || !sa)
		return 0;
	err = parse(call, "source", sa, &src);
	if (err)
		return err;
	if (vb_cma_addr_is_any(&src) && !src.port)
		return 0; /* asks for nothing */
	return vb_cma_id_bind(id, call, &src);
}

static int resolve_addr(struct vb_cma_id *id, const char *call, const struct sockaddr *src_sa,
			const struct sockaddr *dst_sa, struct vb_route *route)
{
	struct vb_cma_addr dst;
	int err = parse(call, "destination", dst_sa, &dst);

	if (err)
		return err;
	enum vb_cma_state state = vb_cma_id_state(id);
	if (state != VB_CMA_IDLE && state != VB_CMA_BOUND) {
		vb_explain(call, "the id is %s; only a fresh or bound one can be resolved",
			   vb_cma_state_text(state));
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
	return err ? err : resolve(id, call, &dst, route);
}

VB_EXPORT int rdma_resolve_addr(struct rdma_cm_id *pub, struct sockaddr *src, struct sockaddr *dst,
				int timeout_ms)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!pub)
		return vb_cma_fail(EINVAL, "id is NULL");
	struct vb_cma_id *id = vb_cma_id_of(pub);
	struct vb_route route;

	int err = resolve_addr(id, __func__, src, dst, &route);
	if (err)
		return vb_cma_result(err);
	bool sync = id->sync, known = vb_netif_is_local(&id->dst.ip) || vb_route_is_ready(&route);
	vb_cma_lock();
	err = known ? vb_cma_id_resolved_locked(id, 0) :
		      vb_cma_neighbour_await_locked(id, &route, timeout_ms);
	vb_cma_unlock();
	if (err) {
		vb_cma_id_unresolve(id);
		return vb_cma_fail(-err, "no memory for the answer");
	}
	return sync ? vb_cma_complete(id, __func__) : 0;
}

int vb_cma_id_resolved_locked(struct vb_cma_id *id, int status)
{
	int err = vb_cma_event_raise_locked(
		id, status ? RDMA_CM_EVENT_ADDR_ERROR : RDMA_CM_EVENT_ADDR_RESOLVED, status);

	if (err)
		return err;
	if (!status)
		id->state = VB_CMA_ADDR_RESOLVED;
	else
		id->state = id->asked_src.family ? VB_CMA_BOUND : VB_CMA_IDLE;
	return 0;
}

int vb_cma_id_route_resolved(struct vb_cma_id *id)
{
	int err = vb_cma_id_fill_path(id);

	if (err)
		return err;
	vb_cma_lock();
	err = vb_cma_event_raise_locked(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	if (!err)
		id->state = VB_CMA_ROUTE_RESOLVED;
	vb_cma_unlock();
	return err;
}

/* ---- resolving a route ---- */

VB_EXPORT int rdma_resolve_route(struct rdma_cm_id *pub, int timeout_ms)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!pub)
		return vb_cma_fail(EINVAL, "id is NULL");
	struct vb_cma_id *id = vb_cma_id_of(pub);

	(void)timeout_ms; /* the route came with the address */
	enum vb_cma_state state = vb_cma_id_state(id);
	if (state != VB_CMA_ADDR_RESOLVED)
		return vb_cma_fail(EINVAL, "the id is %s; its address must be resolved first",
				   vb_cma_state_text(state));
	bool sync = id->sync;
	if (vb_cma_id_route_resolved(id))
		return vb_cma_fail(ENOMEM, "no memory for the path record or the answer");
	return sync ? vb_cma_complete(id, __func__) : 0;
}
