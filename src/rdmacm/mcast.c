/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast: an id is a member of IP groups on its device's interface. A group's GID is its address, as
 * RoCEv2 has it (IPv4: ::ffff:a.b.c.d). A full member also has its QP attached to the group, in the thread
 * that takes the news; who joins to send only has neither.
 */
#include <stdlib.h>
#include <string.h>

#include "host/udp/udp.h"
#include "rdmacm/cma.h"
#include "roce/port.h"

enum { MULTICAST_QPN = 0xffffff };

struct group {
	struct vb_list node;
	/* ties the news of joining to the membership, which may be over when the news is taken */
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

static int check_join(const char *call, const struct vb_cma_id *id, const struct sockaddr *sa,
		      struct vb_cma_addr *addr)
{
	char text[VB_CMA_TEXT];

	if (vb_cma_addr_parse(sa, addr)) {
		vb_explain(call, "the address is NULL or no IP address");
		return -EINVAL;
	}
	if (!vb_cma_ip_is_multicast(&addr->ip)) {
		vb_explain(call, "%s is no multicast address", vb_cma_addr_text(addr, text));
		return -EINVAL;
	}
	if (id->device && vb_cma_is_datagram(id))
		return 0;
	vb_explain(call, id->device ?
				 "the id is of a connected port space; groups are for RDMA_PS_UDP" :
				 "the id is bound to no device yet: resolve or bind it to an address first");
	return -EINVAL;
}

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

static int tell_locked(struct vb_cma_id *id, const struct group *g, int status)
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

static int join(const char *call, struct rdma_cm_id *pub, const struct sockaddr *sa, bool sends_only,
		void *context)
{
	static uint64_t last_serial; /* under the lock */
	struct vb_cma_id *id = vb_cma_id_of(pub);
	struct vb_cma_addr addr;
	char text[VB_CMA_TEXT];
	int err = check_join(call, id, sa, &addr);

	if (err)
		return vb_cma_result(err);
	struct group *g = malloc(sizeof(*g));
	if (!g) {
		vb_explain(call, "no memory for the membership");
		return vb_cma_result(-ENOMEM);
	}
	*g = (struct group){
		.addr = addr, .ifindex = id->ifindex, .context = context, .sends_only = sends_only
	};
	err = sends_only ? 0 : join_group(g);
	if (err)
		vb_explain(call, "%s: %s", vb_cma_addr_text(&addr, text), strerror(-err));
	bool sync = id->sync;
	vb_cma_lock();
	g->serial = ++last_serial;
	err = tell_locked(id, g, err);
	if (!err)
		vb_list_add_tail(&id->groups, &g->node);
	vb_cma_unlock();
	if (err) {
		leave_group(g);
		vb_explain(call, "no memory for the answer");
		return vb_cma_result(err);
	}
	return sync ? vb_cma_complete(id, call) : 0;
}

VB_EXPORT int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!id)
		return vb_cma_fail(EINVAL, "id is NULL");
	return join(__func__, id, addr, false, context);
}

VB_EXPORT int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr,
				     void *context)
{
	const uint32_t needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;

	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!id)
		return vb_cma_fail(EINVAL, "id is NULL");
	if (!attr || attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED ||
	    (attr->comp_mask & needed) != needed || attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return vb_cma_fail(EINVAL, "address and join flags must both be given");
	return join(__func__, id, attr->addr, attr->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
		    context);
}

/* ---- the news is taken ---- */

static struct group *find_locked(struct vb_cma_id *id, uint64_t serial)
{
	struct group *g;

	vb_list_for_each(g, &id->groups, node)
		if (g->serial == serial)
			return g;
	return NULL;
}

bool vb_cma_group_joined(struct vb_cma_event *event)
{
	struct vb_cma_id *id = event->owner;

	vb_cma_lock();
	struct group *g = find_locked(id, event->group);
	vb_cma_unlock();
	if (!g)
		return false;
	if (!id->pub.qp || g->sends_only)
		return true;
	union ibv_gid mgid = gid_of(g);
	int err = ibv_attach_mcast(id->pub.qp, &mgid, 0);
	g->is_attached = !err;
	if (err) {
		event->pub.event = RDMA_CM_EVENT_MULTICAST_ERROR;
		event->pub.status = -err;
	}
	return true;
}

/* ---- leaving ---- */

static struct group *take_by_address(struct vb_cma_id *id, const struct vb_cma_addr *addr)
{
	struct group *g, *found = NULL;

	vb_cma_lock();
	vb_list_for_each(g, &id->groups, node)
		if (!found && memcmp(&g->addr.ip, &addr->ip, sizeof(addr->ip)) == 0)
			found = g;
	if (found)
		vb_list_del(&found->node);
	vb_cma_unlock();
	return found;
}

VB_EXPORT int rdma_leave_multicast(struct rdma_cm_id *pub, struct sockaddr *sa)
{
	struct vb_cma_addr addr;
	char text[VB_CMA_TEXT];

	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!pub || vb_cma_addr_parse(sa, &addr))
		return vb_cma_fail(EINVAL, "id or address is NULL, or the address is no IP address");
	struct vb_cma_id *id = vb_cma_id_of(pub);
	struct group *g = take_by_address(id, &addr);
	if (!g)
		return vb_cma_fail(EADDRNOTAVAIL, "the id is no member of %s", vb_cma_addr_text(&addr, text));
	union ibv_gid mgid = gid_of(g);
	int err = g->is_attached && pub->qp ? ibv_detach_mcast(pub->qp, &mgid, 0) : 0;
	leave_group(g);
	return vb_cma_result(-err);
}

/* Those that were only asked for have had their own news, or have it before these. */
void vb_cma_groups_lost_locked(struct vb_cma_id *id)
{
	struct group *g;

	vb_list_for_each(g, &id->groups, node)
		if (g->is_joined || g->sends_only)
			(void)tell_locked(id, g, -ENODEV);
}

/* A QP that is still there belongs to the program and stays attached. */
void vb_cma_groups_leave(struct vb_cma_id *id)
{
	struct vb_list *node;

	while ((node = vb_list_pop(&id->groups)))
		leave_group(vb_container_of(node, struct group, node));
}
