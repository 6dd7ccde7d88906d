/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast groups. An id is a member of IP groups on its device's interface. A group's GID is its address,
 * as RoCEv2 has it (IPv4: ::ffff:a.b.c.d). A full member also has its QP attached to the group, by the
 * thread that takes the MULTICAST_JOIN. One that joins only to send has neither.
 */
#include <stdlib.h>
#include <string.h>

#include "host/udp/udp.h"
#include "rdmacm/id/id.h"
#include "roce/port.h"

enum { MULTICAST_QPN = 0xffffff };

struct group {
	struct vb_list node;
	/* ties the MULTICAST_JOIN to the membership, which may be over when the event is taken */
	uint64_t serial;
	struct vb_cma_addr addr;
	unsigned ifindex;
	void *context;
	bool sends_only, is_joined, is_attached;
};

static union ibv_gid gid_of(const struct group *g)
{
	union ibv_gid gid;

	memcpy(gid.raw, &g->addr.ip, sizeof(gid.raw));
	return gid;
}

/* ---- joining ---- */

/* Membership of the IP group. */
static int join_group(struct group *g)
{
	int err = vb_roce_open();

	if (!err)
		err = vb_udp_join(&g->addr.ip, g->ifindex);
	g->is_joined = !err;
	return err;
}

static void leave_group(struct group *g)
{
	if (g->is_joined)
		vb_udp_leave(&g->addr.ip, g->ifindex);
	free(g);
}

static int raise_locked(struct vb_cma_id *id, const struct group *g, int status)
{
	enum rdma_cm_event_type type = status ? RDMA_CM_EVENT_MULTICAST_ERROR : RDMA_CM_EVENT_MULTICAST_JOIN;
	struct vb_cma_event *event = vb_cma_event_create(id, type, status);

	if (!event)
		return -ENOMEM;
	struct rdma_ud_param *ud = &event->pub.param.ud;
	ud->private_data = g->context;
	event->group = g->serial;
	if (!status) {
		union ibv_gid mgid = gid_of(g);
		vb_cma_fill_ah(id, &mgid, &ud->ah_attr);
		ud->qp_num = MULTICAST_QPN;
		ud->qkey = RDMA_UDP_QKEY;
	}
	vb_cma_event_queue_locked(event);
	return 0;
}

int vb_cma_group_join(struct vb_cma_id *id, const char *call, const struct vb_cma_addr *addr, bool sends_only,
		      void *context)
{
	static uint64_t last_serial; /* under the lock */
	struct group *g = malloc(sizeof(*g));
	char text[VB_CMA_TEXT];

	if (!g) {
		vb_explain(call, "no memory for the membership");
		return -ENOMEM;
	}
	*g = (struct group){
		.addr = *addr, .ifindex = id->ifindex, .context = context, .sends_only = sends_only
	};
	int err = sends_only ? 0 : join_group(g);
	if (err)
		vb_explain(call, "%s: %s", vb_cma_addr_text(addr, text), strerror(-err));
	vb_cma_lock();
	g->serial = ++last_serial;
	err = raise_locked(id, g, err);
	if (!err)
		vb_list_add_tail(&id->groups, &g->node);
	vb_cma_unlock();
	if (err) {
		leave_group(g);
		vb_explain(call, "no memory for the answer");
	}
	return err;
}

static struct group *find_locked(struct vb_cma_id *id, uint64_t serial)
{
	struct group *g;

	vb_list_for_each(g, &id->groups, node)
		if (g->serial == serial)
			return g;
	return NULL;
}

/* Has the id's QP been attached to the group for one of its memberships? It may have joined several times. */
static bool is_attached_locked(struct vb_cma_id *id, const struct in6_addr *ip)
{
	struct group *g;

	vb_list_for_each(g, &id->groups, node)
		if (g->is_attached && IN6_ARE_ADDR_EQUAL(&g->addr.ip, ip))
			return true;
	return false;
}

/* The id's QP was attached for a group. False: that was left meanwhile, so the QP is detached again. */
static bool keep_attached(struct vb_cma_id *id, uint64_t serial, union ibv_gid *mgid)
{
	struct in6_addr ip;

	memcpy(&ip, mgid, sizeof(ip));
	vb_cma_lock();
	struct group *g = find_locked(id, serial);
	if (g)
		g->is_attached = true;
	bool is_wanted = is_attached_locked(id, &ip);
	vb_cma_unlock();
	if (!is_wanted)
		ibv_detach_mcast(id->pub.qp, mgid, 0);
	return g;
}

bool vb_cma_group_joined(struct vb_cma_event *event)
{
	struct vb_cma_id *id = event->owner;
	union ibv_gid mgid = { 0 };

	vb_cma_lock();
	struct group *g = find_locked(id, event->group);
	bool is_there = g, attaches = g && id->pub.qp && !g->sends_only;
	if (g)
		mgid = gid_of(g);
	vb_cma_unlock();
	if (!attaches)
		return is_there;
	int err = ibv_attach_mcast(id->pub.qp, &mgid, 0);
	if (!err)
		return keep_attached(id, event->group, &mgid);
	event->pub.event = RDMA_CM_EVENT_MULTICAST_ERROR;
	event->pub.status = -err;
	return true;
}

/* ---- leaving ---- */

/* *detaches: the id's QP was attached for it, and for no other membership. */
static struct group *take_by_address(struct vb_cma_id *id, const struct vb_cma_addr *addr, bool *detaches)
{
	struct group *g, *found = NULL;

	vb_cma_lock();
	vb_list_for_each(g, &id->groups, node)
		if (!found && IN6_ARE_ADDR_EQUAL(&g->addr.ip, &addr->ip))
			found = g;
	if (found)
		vb_list_del(&found->node);
	*detaches = found && found->is_attached && !is_attached_locked(id, &addr->ip);
	vb_cma_unlock();
	return found;
}

int vb_cma_group_leave(struct vb_cma_id *id, const struct vb_cma_addr *addr)
{
	bool detaches;
	struct group *g = take_by_address(id, addr, &detaches);

	if (!g)
		return -EADDRNOTAVAIL;
	union ibv_gid mgid = gid_of(g);
	int err = detaches && id->pub.qp ? -ibv_detach_mcast(id->pub.qp, &mgid, 0) : 0;
	leave_group(g);
	return err;
}

/* Those that could not be joined have had their own event, or get it before these. */
void vb_cma_groups_lost_locked(struct vb_cma_id *id)
{
	struct group *g;

	vb_list_for_each(g, &id->groups, node)
		if (g->is_joined || g->sends_only)
			(void)raise_locked(id, g, -ENODEV);
}

/* The program may still have its QP, which stays attached. */
void vb_cma_groups_leave(struct vb_cma_id *id)
{
	struct vb_list *node;

	while ((node = vb_list_pop(&id->groups)))
		leave_group(vb_container_of(node, struct group, node));
}
