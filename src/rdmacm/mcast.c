/* SPDX-License-Identifier: BSD-2-Clause */
/* The public calls about multicast groups (id/group.c). */
#include "rdmacm/calls.h"
#include "rdmacm/id/id.h"

static int check_join(const char *call, const struct vb_cma_id *id, const struct sockaddr *sa,
		      struct vb_cma_addr *addr)
{
	char text[VB_CMA_TEXT];

	if (vb_cma_addr_parse(sa, addr)) {
		vb_explain(call, "the address is NULL or no IP address");
		return -EINVAL;
	}
	if (!vb_ip_is_multicast(&addr->ip)) {
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

static int join(const char *call, struct rdma_cm_id *pub, const struct sockaddr *sa, bool sends_only,
		void *context)
{
	struct vb_cma_id *id = vb_cma_id_of(pub);
	struct vb_cma_addr addr;
	int err = check_join(call, id, sa, &addr);

	if (err)
		return vb_cma_result(err);
	bool sync = id->sync;
	err = vb_cma_group_join(id, call, &addr, sends_only, context);
	if (err)
		return vb_cma_result(err);
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

VB_EXPORT int rdma_leave_multicast(struct rdma_cm_id *pub, struct sockaddr *sa)
{
	struct vb_cma_addr addr;
	char text[VB_CMA_TEXT];

	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!pub || vb_cma_addr_parse(sa, &addr))
		return vb_cma_fail(EINVAL, "id or address is NULL, or the address is no IP address");
	int err = vb_cma_group_leave(vb_cma_id_of(pub), &addr);
	if (err == -EADDRNOTAVAIL)
		return vb_cma_fail(-err, "the id is no member of %s", vb_cma_addr_text(&addr, text));
	return vb_cma_result(err);
}
