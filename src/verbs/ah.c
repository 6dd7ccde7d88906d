/* SPDX-License-Identifier: BSD-2-Clause */
/* Address handles, and how to make one for the sender of a datagram. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/inet.h"
#include "verbs/verbs.h"

VB_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	int err = vb_refuse_call(pd->context, "ibv_create_ah");
	if (err)
		return vb_fail_null(err);
	struct vb_ah *ah = calloc(1, sizeof(*ah));
	if (!ah)
		return vb_fail_null(-ENOMEM);
	err = vb_ah_init(ah, vb_pd_of(pd), attr);
	if (err) {
		free(ah);
		return vb_fail_null(err);
	}
	ah->pub.context = pd->context;
	ah->pub.pd = pd;
	return &ah->pub;
}

VB_EXPORT int ibv_destroy_ah(struct ibv_ah *pub)
{
	int fault = vb_fault_call("ibv_destroy_ah", 0);
	if (fault)
		return vb_fail(fault);
	struct vb_ah *ah = vb_ah_of(pub);
	if (!vb_is_inherited(pub->context))
		vb_ah_fini(ah);
	free(ah);
	return 0;
}

/* ---- the 40 bytes before a datagram ---- */

struct route {
	union ibv_gid src, dst;
	uint32_t flow_label;
	uint8_t traffic_class;
};

static void map_v4(union ibv_gid *gid, const uint8_t v4[4])
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, v4, 4);
}

/*
 * RoCEv2 over IPv4 puts the IPv4 header into the last 20 bytes (annex A17.4.5.2). What a receive has before
 * them is zeros (vb_ud_grh), and an IPv6 header begins with its version.
 */
static bool is_v4_header(const uint8_t h[20])
{
	return h[0] == 0x45 && vb_inet_fold(vb_inet_sum(0, h, 20)) == 0xffff;
}

static int parse_grh(const struct ibv_grh *grh, struct route *r)
{
	enum { V4_OFFSET = 20, V4_TOS = 1, V4_SRC = 12, V4_DST = 16 };
	const uint8_t *v4 = (const uint8_t *)grh + V4_OFFSET;
	uint32_t first = ntohl(grh->version_tclass_flow);
	if (first >> 28 == 6) {
		r->src = grh->sgid;
		r->dst = grh->dgid;
		r->flow_label = first & 0xfffff;
		r->traffic_class = (uint8_t)(first >> 20);
		return 0;
	}
	if (!is_v4_header(v4))
		return -EINVAL;
	map_v4(&r->src, v4 + V4_SRC);
	map_v4(&r->dst, v4 + V4_DST);
	r->flow_label = 0;
	r->traffic_class = v4[V4_TOS];
	return 0;
}

static int find_gid(struct vb_device *dev, const union ibv_gid *gid)
{
	struct in6_addr table[VB_GID_TABLE];
	unsigned used = vb_device_gids(dev, table);
	for (unsigned i = 0; i < used; i++)
		if (!IN6_IS_ADDR_UNSPECIFIED(&table[i]) && !memcmp(&table[i], gid->raw, sizeof(table[i])))
			return (int)i;
	return -ENOENT;
}

VB_EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
				  struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	static const char call[] = "ibv_init_ah_from_wc";
	struct route r;
	memset(attr, 0, sizeof(*attr));
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->src_path_bits = wc->dlid_path_bits;
	attr->port_num = port_num;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	if (parse_grh(grh, &r)) {
		vb_explain(call, "the 40 bytes before the datagram are neither an IPv6 nor an IPv4 header");
		return vb_fail_minus1(-EINVAL);
	}
	int index = find_gid(vb_device_of(context), &r.dst);
	if (index < 0) {
		vb_explain(call, "the datagram's destination is in no entry of the GID table");
		return vb_fail_minus1(index);
	}
	attr->is_global = 1;
	attr->grh.dgid = r.src;
	attr->grh.sgid_index = (uint8_t)index;
	attr->grh.flow_label = r.flow_label;
	attr->grh.traffic_class = r.traffic_class;
	attr->grh.hop_limit = 0xff;
	return 0;
}

VB_EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
					       uint8_t port_num)
{
	struct ibv_ah_attr attr;
	if (ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr))
		return NULL;
	return ibv_create_ah(pd, &attr);
}

/* ---- Ethernet addresses ---- */

/*
 * Of multicast groups, of this device's own addresses, and of link-local addresses made from a MAC (EUI-64).
 */
static bool mac_of(struct vb_device *dev, const union ibv_gid *gid, uint8_t mac[ETHERNET_LL_SIZE])
{
	const uint8_t *g = gid->raw;
	const struct in6_addr *ip = (const struct in6_addr *)g;
	if (IN6_IS_ADDR_MULTICAST(ip)) {
		const uint8_t to[] = { 0x33, 0x33, g[12], g[13], g[14], g[15] };
		memcpy(mac, to, sizeof(to));
	} else if (vb_ip_is_multicast(ip)) {
		const uint8_t to[] = { 0x01, 0x00, 0x5e, g[13] & 0x7f, g[14], g[15] };
		memcpy(mac, to, sizeof(to));
	} else if (find_gid(dev, gid) >= 0) {
		pthread_mutex_lock(&dev->lock);
		memcpy(mac, dev->netif.mac, ETHERNET_LL_SIZE);
		pthread_mutex_unlock(&dev->lock);
	} else if (IN6_IS_ADDR_LINKLOCAL(ip) && g[11] == 0xff && g[12] == 0xfe) {
		const uint8_t to[] = { g[8] ^ 2, g[9], g[10], g[13], g[14], g[15] };
		memcpy(mac, to, sizeof(to));
	} else {
		return false;
	}
	return true;
}

/*
 * The adapter addresses by IP and leaves neighbours to the kernel: others' MACs are not known here. The call
 * returns negative errno values, unlike others.
 */
VB_EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
					  uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	struct in6_addr sgid;
	int err = vb_ah_check(vb_device_of(context), attr, "ibv_resolve_eth_l2_from_gid", &sgid);
	if (err)
		return -vb_fail(err);
	if (!mac_of(vb_device_of(context), &attr->grh.dgid, eth_mac)) {
		vb_explain_limit(
			"ibv_resolve_eth_l2_from_gid",
			"the destination's Ethernet address is the kernel's business: packets go by IP");
		return -vb_fail(-EOPNOTSUPP);
	}
	if (vid)
		*vid = 0xffff; /* no VLAN tag */
	return 0;
}
