/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Address vectors. On RoCE a destination is a GID; LIDs, path bits and static rates mean nothing. But with
 * VERBATIM_LINK=infiniband a port has a LID, by which programs that know LIDs alone reach their peers on the
 * same port.
 */
#include <errno.h>
#include <string.h>

#include "adapter/device/device.h"
#include "base/inet.h"
#include "base/log.h"

enum { MAX_SL = 15 };

static int refuse(const char *call, const char *member, const char *why)
{
	vb_explain(call, "%s: %s", member, why);
	return -EINVAL;
}

/* The index of the first entry with an IPv4 address, or with another one; -1: there is none. */
static int first_gid(struct vb_device *dev, bool ipv4, struct in6_addr *gid)
{
	struct in6_addr table[VB_GID_TABLE];
	unsigned used = vb_device_gids(dev, table);
	for (unsigned i = 0; i < used; i++)
		if (!IN6_IS_ADDR_UNSPECIFIED(&table[i]) && vb_ip_is_v4(&table[i]) == ipv4) {
			*gid = table[i];
			return (int)i;
		}
	return -1;
}

/* By the first IPv4 address, which the wire is sure to have; else by the first entry. */
static uint8_t own_gid(struct vb_device *dev, struct in6_addr *gid)
{
	int i = first_gid(dev, true, gid);
	if (i >= 0)
		return (uint8_t)i;
	vb_device_gid(dev, 0, gid);
	return 0;
}

static bool is_own_lid(const struct vb_device *dev, const struct ibv_ah_attr *attr)
{
	return !attr->is_global && attr->dlid && attr->dlid == vb_device_lid(dev);
}

void vb_ah_complete(struct vb_device *dev, struct ibv_ah_attr *attr)
{
	struct in6_addr gid;
	if (!is_own_lid(dev, attr))
		return;
	attr->grh = (struct ibv_global_route){ .sgid_index = own_gid(dev, &gid), .hop_limit = VB_HOP_LIMIT };
	memcpy(&attr->grh.dgid, &gid, sizeof(gid));
}

static int check_lid(const struct vb_device *dev, const struct ibv_ah_attr *attr, const char *call)
{
	if (!vb_link_is_infiniband())
		return refuse(call, "ah_attr.is_global",
			      "RoCE addresses its peers by GID: set is_global, grh.dgid and grh.sgid_index");
	if (!is_own_lid(dev, attr))
		return refuse(
			call, "ah_attr.dlid",
			"only the port's own LID leads anywhere; others are addressed by GID (is_global)");
	return 0;
}

/* The unspecified address, of either kind. */
static bool is_nowhere(const union ibv_gid *gid)
{
	static const struct in6_addr any_v4 = { .s6_addr = { [10] = 0xff, 0xff } };
	const struct in6_addr *ip = (const struct in6_addr *)gid;
	return IN6_IS_ADDR_UNSPECIFIED(ip) || IN6_ARE_ADDR_EQUAL(ip, &any_v4);
}

/* Are both an IPv4 address, or neither? To a group, packets go by an address of the group's kind. */
static bool settle_kind(struct vb_device *dev, struct in6_addr *sgid, const union ibv_gid *dgid)
{
	const struct in6_addr *ip = (const struct in6_addr *)dgid;
	bool ipv4 = vb_ip_is_v4(ip);
	if (vb_ip_is_v4(sgid) == ipv4)
		return true;
	return vb_ip_is_multicast(ip) && first_gid(dev, ipv4, sgid) >= 0;
}

int vb_ah_check(struct vb_device *dev, const struct ibv_ah_attr *attr, const char *call,
		struct in6_addr *sgid)
{
	if (attr->port_num != 1)
		return refuse(call, "ah_attr.port_num", "the device has port 1 only");
	int err = attr->is_global ? 0 : check_lid(dev, attr, call);
	if (err)
		return err;
	if (vb_device_gid(dev, attr->grh.sgid_index, sgid))
		return refuse(call, "ah_attr.grh.sgid_index", "the port's GID table has no such entry");
	if (is_nowhere(&attr->grh.dgid))
		return refuse(call, "ah_attr.grh.dgid", "it is all zeros: no destination has this GID");
	if (!settle_kind(dev, sgid, &attr->grh.dgid))
		return refuse(call, "ah_attr.grh",
			      "one of the GIDs of sgid_index and dgid is an IPv4 address, the other is not");
	if (attr->static_rate &&
	    (attr->static_rate < IBV_RATE_2_5_GBPS || attr->static_rate > IBV_RATE_1200_GBPS))
		return refuse(call, "ah_attr.static_rate", "not an enum ibv_rate value");
	if (attr->sl > MAX_SL)
		return refuse(call, "ah_attr.sl", "service levels go from 0 to 15");
	return 0;
}

int vb_ah_init(struct vb_ah *ah, struct vb_pd *pd, const struct ibv_ah_attr *attr)
{
	ah->attr = *attr;
	vb_ah_complete(pd->ctx->device, &ah->attr);
	int err = vb_ah_check(pd->ctx->device, &ah->attr, "ibv_create_ah", &ah->sgid);
	if (err)
		return err;
	ah->pd = pd;
	memcpy(&ah->dgid, ah->attr.grh.dgid.raw, sizeof(ah->dgid));
	ah->is_local = vb_netif_is_local(&ah->dgid) || vb_device_gid_is_local(&ah->dgid);
	atomic_fetch_add(&pd->refs, 1);
	return 0;
}

int vb_ah_fini(struct vb_ah *ah)
{
	atomic_fetch_sub(&ah->pd->refs, 1);
	return 0;
}
