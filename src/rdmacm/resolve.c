/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Resolving addresses and routes. Only a neighbour may take time to be found; every other outcome is queued
 * as an event at once.
 */
#include <string.h>

#include "adapter/device/device.h"
#include "rdmacm/agent/channel.h"
#include "rdmacm/calls.h"
#include "rdmacm/id/id.h"

/* ---- resolving an address ---- */

/* An active id's port is only shown: nobody connects to it, so it is not bound. */
static void number_source(struct vb_cma_addr *src)
{
	if (!src->port)
		src->port = vb_cma_port_random();
}

/* A bound source reaches this host and groups even without a route. */
static int choose_source(const struct vb_cma_id *id, const struct vb_cma_addr *dst, struct vb_cma_addr *src,
			 struct vb_route *route)
{
	bool bound = id->src.family && !vb_cma_addr_is_any(&id->src);
	int err = vb_route_find(&dst->ip, dst->scope, bound ? &id->src.ip : NULL, route);

	*src = id->src;
	src->family = dst->family;
	if (err && bound && (vb_ip_is_multicast(&dst->ip) || vb_netif_is_local(&dst->ip))) {
		memset(route, 0, sizeof(*route));
		err = 0;
	}
	if (!bound) {
		src->ip = route->source;
		if (IN6_IS_ADDR_LINKLOCAL(&src->ip))
			/* routes to this host itself use the loopback */
			src->scope = dst->scope ? dst->scope : route->ifindex;
	}
	number_source(src);
	return err;
}

/* The least of this port's MTU, and of the peer's if it is of this host, else of the route's. */
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

	vb_cma_addr_settle(dst);
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

static int bind_for_resolving(struct vb_cma_id *id, const char *call, const struct sockaddr *sa)
{
	struct vb_cma_addr src;
	int err;

	if (vb_cma_id_state(id) != VB_CMA_IDLE || !sa)
		return 0;
	err = vb_cma_parse(call, "source", sa, &src);
	if (err)
		return err;
	if (vb_cma_addr_is_any(&src) && !src.port)
		return 0; /* as if there were none */
	return vb_cma_id_bind(id, call, &src);
}

static int resolve_addr(struct vb_cma_id *id, const char *call, const struct sockaddr *src_sa,
			const struct sockaddr *dst_sa, struct vb_route *route)
{
	struct vb_cma_addr dst;
	int err = vb_cma_parse(call, "destination", dst_sa, &dst);

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
	err = vb_cma_start();
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
