/* SPDX-License-Identifier: BSD-2-Clause */
/* Binding ids to addresses of this host. */
#include <endian.h>
#include <string.h>

#include "host/net/privilege.h"
#include "rdmacm/agent/channel.h"
#include "rdmacm/calls.h"
#include "rdmacm/id/id.h"

/* A reusable address is taken only by the one that listens on it. */
static int take_port(struct vb_cma_id *id, struct vb_cma_addr *addr)
{
	if (addr->port && !vb_may_bind_port(addr->port))
		return -EACCES;
	if (!id->reuseaddr)
		return vb_cma_port_bind(id->pub.ps, addr, id->afonly, &id->port);
	if (!addr->port)
		return vb_cma_port_reserve(id->pub.ps, addr, id->afonly, &id->reservation);
	return vb_cma_port_is_held(id->pub.ps, addr, id->afonly) ? -EADDRINUSE : 0;
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
	int err = vb_cma_start();

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
		vb_cma_id_forget_source_locked(id);
	else
		id->state = VB_CMA_BOUND;
	vb_cma_unlock();
	return err;
}

int vb_cma_parse(const char *call, const char *which, const struct sockaddr *sa, struct vb_cma_addr *addr)
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
	int err = vb_cma_parse(__func__, "source", sa, &addr);
	err = err ? err : vb_cma_id_bind(vb_cma_id_of(id), __func__, &addr);
	if (!err && vb_cma_addrinfo_is_host(sa)) {
		vb_cma_lock();
		vb_cma_id_detach_locked(vb_cma_id_of(id));
		vb_cma_unlock();
	}
	return vb_cma_result(err);
}

VB_EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return id ? htobe16(vb_cma_id_of(id)->src.port) : 0;
}

VB_EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return id ? htobe16(vb_cma_id_of(id)->dst.port) : 0;
}
