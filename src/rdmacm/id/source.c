/* SPDX-License-Identifier: BSD-2-Clause */
/* An id's addresses, the device that has the source address, and what a resolution changes of them. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "rdmacm/agent/channel.h"
#include "rdmacm/id/id.h"

void vb_cma_id_set_src_locked(struct vb_cma_id *id, const struct vb_cma_addr *addr)
{
	id->src = *addr;
	if (!id->src.port_space)
		id->src.port_space = (uint16_t)id->pub.ps;
	vb_cma_addr_format(&id->src, &id->pub.route.addr.src_storage);
}

void vb_cma_id_set_dst_locked(struct vb_cma_id *id, const struct vb_cma_addr *addr)
{
	id->dst = *addr;
	if (!id->dst.port_space)
		id->dst.port_space = (uint16_t)id->pub.ps;
	vb_cma_addr_format(&id->dst, &id->pub.route.addr.dst_storage);
}

static void set_gid(union ibv_gid *gid, const struct vb_cma_addr *addr)
{
	if (addr->family && !vb_cma_addr_is_any(addr))
		memcpy(gid->raw, &addr->ip, sizeof(gid->raw));
}

static void attach_locked(struct vb_cma_id *id, const struct vb_cma_source *source)
{
	struct rdma_ib_addr *ib = &id->pub.route.addr.addr.ibaddr;

	id->device = source->device;
	id->gid_index = source->gid_index;
	id->ifindex = source->ifindex;
	id->mtu = source->mtu;
	id->pub.verbs = source->device->verbs;
	id->pub.port_num = source->port_num;
	if (!id->pub.pd)
		id->pub.pd = source->device->pd;
	set_gid(&ib->sgid, &id->src);
	set_gid(&ib->dgid, &id->dst);
	ib->pkey = htobe16(VB_PKEY_DEFAULT);
}

int vb_cma_id_attach(struct vb_cma_id *id)
{
	struct vb_cma_source source;
	int err = vb_cma_device_find(&id->src, &source);

	if (err == -ENODEV) { /* the address may be so new that the kernel has not told of it yet */
		vb_netif_expire();
		err = vb_cma_device_find(&id->src, &source);
	}
	if (err)
		return err;
	vb_cma_lock();
	attach_locked(id, &source);
	vb_cma_unlock();
	return 0;
}

void vb_cma_id_detach_locked(struct vb_cma_id *id)
{
	memset(&id->pub.route.addr.addr, 0, sizeof(id->pub.route.addr.addr));
	id->device = NULL;
	id->pub.verbs = NULL;
	id->pub.pd = NULL;
	id->pub.port_num = 0;
}

void vb_cma_id_forget_source_locked(struct vb_cma_id *id)
{
	memset(&id->src, 0, sizeof(id->src));
	memset(&id->pub.route.addr.src_storage, 0, sizeof(id->pub.route.addr.src_storage));
	vb_cma_id_detach_locked(id);
}

/* ---- the outcomes of resolutions ---- */

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

void vb_cma_id_unresolve(struct vb_cma_id *id)
{
	struct vb_cma_addr asked = id->asked_src;

	vb_cma_lock();
	if (!asked.family || vb_cma_addr_is_any(&asked))
		vb_cma_id_forget_source_locked(id);
	if (asked.family)
		vb_cma_id_set_src_locked(id, &asked);
	vb_cma_unlock();
}

int vb_cma_id_set_path(struct vb_cma_id *id, const struct vb_cm_path *path)
{
	enum { EXACTLY = 2 };
	struct rdma_route *route = &id->pub.route;

	if (!route->path_rec)
		route->path_rec = malloc(sizeof(*route->path_rec));
	if (!route->path_rec)
		return -ENOMEM;
	*route->path_rec = (struct ibv_sa_path_rec){
		.flow_label = htobe32(path->flow_label),
		.hop_limit = path->hop_limit,
		.traffic_class = path->traffic_class,
		.reversible = 1,
		.numb_path = 1,
		.pkey = htobe16(path->pkey),
		.sl = path->sl,
		.mtu_selector = EXACTLY,
		.mtu = path->mtu,
		.rate_selector = EXACTLY,
		.rate = path->rate,
		.packet_life_time_selector = EXACTLY,
		.packet_life_time = path->packet_lifetime,
	};
	memcpy(route->path_rec->sgid.raw, path->local_gid, sizeof(path->local_gid));
	memcpy(route->path_rec->dgid.raw, path->remote_gid, sizeof(path->remote_gid));
	route->num_paths = 1;
	return 0;
}

int vb_cma_id_route_resolved(struct vb_cma_id *id)
{
	struct vb_cm_path path = { .pkey = VB_PKEY_DEFAULT,
				   .mtu = (uint8_t)id->mtu,
				   .rate = IBV_RATE_MAX,
				   .traffic_class = id->tos,
				   .hop_limit = VB_HOP_LIMIT,
				   .packet_lifetime = VB_CMA_PACKET_LIFETIME };

	memcpy(path.local_gid, &id->src.ip, sizeof(path.local_gid));
	memcpy(path.remote_gid, &id->dst.ip, sizeof(path.remote_gid));
	int err = vb_cma_id_set_path(id, &path);
	if (err)
		return err;
	vb_cma_lock();
	err = vb_cma_event_raise_locked(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	if (!err)
		id->state = VB_CMA_ROUTE_RESOLVED;
	vb_cma_unlock();
	return err;
}
