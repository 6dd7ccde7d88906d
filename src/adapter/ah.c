/* SPDX-License-Identifier: BSD-2-Clause */
/* Address vectors. On RoCE a destination is a GID; LIDs, path bits and static rates mean nothing. */
#include <errno.h>
#include <string.h>

#include "adapter/device.h"
#include "base/log.h"

static int refuse(const char *call, const char *member, const char *why)
{
	vb_explain(call, "%s: %s", member, why);
	return -EINVAL;
}

int vb_ah_check(struct vb_device *dev, const struct ibv_ah_attr *attr, const char *call, struct in6_addr *sgid)
{
	if (attr->port_num != 1)
		return refuse(call, "ah_attr.port_num", "the device has port 1 only");
	if (!attr->is_global)
		return refuse(call, "ah_attr.is_global", "RoCE addresses its peers by GID: set is_global, grh.dgid and grh.sgid_index");
	if (vb_device_gid(dev, attr->grh.sgid_index, sgid))
		return refuse(call, "ah_attr.grh.sgid_index", "the port's GID table has no such entry");
	return 0;
}

int vb_ah_init(struct vb_ah *ah, struct vb_pd *pd, const struct ibv_ah_attr *attr)
{
	int err = vb_ah_check(pd->ctx->device, attr, "ibv_create_ah", &ah->sgid);
	if (err)
		return err;
	ah->pd = pd;
	ah->attr = *attr;
	memcpy(&ah->dgid, attr->grh.dgid.raw, sizeof(ah->dgid));
	ah->is_local = vb_netif_is_local(&ah->dgid) || vb_device_gid_is_local(&ah->dgid);
	atomic_fetch_add(&pd->refs, 1);
	return 0;
}

int vb_ah_fini(struct vb_ah *ah)
{
	atomic_fetch_sub(&ah->pd->refs, 1);
	return 0;
}
