/* SPDX-License-Identifier: BSD-2-Clause */
/* Multicast: not carried yet, so that joining is refused (EOPNOTSUPP) and no id is ever a member. */
#include "rdmacm/cma.h"

static int refuse_join(const char *call, const struct rdma_cm_id *pub, const struct sockaddr *sa)
{
	struct vb_cma_addr addr;

	if (!pub || vb_cma_addr_parse(sa, &addr) || !pub->verbs) {
		vb_explain(call, "it takes an id that is bound to a device, and a multicast address");
		errno = EINVAL;
	} else {
		vb_explain(call, "multicast is not carried yet");
		errno = EOPNOTSUPP;
	}
	return -1;
}

VB_EXPORT int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	(void)context;
	return refuse_join(__func__, id, addr);
}

VB_EXPORT int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr, void *context)
{
	const uint32_t needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;

	(void)context;
	if (!attr || attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED || (attr->comp_mask & needed) != needed ||
	    attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return vb_cma_fail(EINVAL, "address and join flags must both be given");
	return refuse_join(__func__, id, attr->addr);
}

VB_EXPORT int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *sa)
{
	struct vb_cma_addr addr;

	if (!id || vb_cma_addr_parse(sa, &addr))
		return vb_cma_fail(EINVAL, "id or address is NULL, or the address is no IP address");
	return vb_cma_fail(EADDRNOTAVAIL, "the id is no member of that group");
}
