/* SPDX-License-Identifier: BSD-2-Clause */
/* Attributes of a device and of its only port, number 1. */
#include <stdlib.h>
#include <string.h>

#include "adapter/queues/tags.h"
#include "verbs/verbs.h"
#include "wire/packet.h"

#undef ibv_query_port

static int check_port(const char *call, uint32_t port_num)
{
	if (port_num == 1)
		return vb_fault_call(call, 0);
	vb_explain_limit(call, "port %u was asked for, the device has port 1 only", port_num);
	return -EINVAL;
}

VB_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	int err = vb_fault_call("ibv_query_device", 0);
	if (err)
		return vb_fail(err);
	vb_device_attr(vb_device_of(context), attr);
	return 0;
}

/* No memory is pinned, so paging on demand costs nothing. */
enum {
	UD_ODP = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV,
	UC_ODP = UD_ODP | IBV_ODP_SUPPORT_WRITE,
	XRC_ODP = UC_ODP | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC,
	RC_ODP = XRC_ODP | IBV_ODP_SUPPORT_FLUSH | IBV_ODP_SUPPORT_ATOMIC_WRITE,
};

static const struct ibv_odp_caps odp_caps = {
	.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
	.per_transport_caps = { .rc_odp_caps = RC_ODP, .uc_odp_caps = UC_ODP, .ud_odp_caps = UD_ODP },
};

static const struct ibv_tm_caps tm_caps = {
	.max_rndv_hdr_size = VB_RENDEZVOUS_MAX_BYTES,
	.max_num_tags = VB_MAX_TAGS,
	.flags = IBV_TM_CAP_RC,
	.max_ops = VB_MAX_TAG_OPS,
	.max_sge = VB_MAX_SGE,
};

/* Members that the caller's structure does not have are left out. */
int vb_query_device_ex(struct ibv_context *pub, const struct ibv_query_device_ex_input *input,
		       struct ibv_device_attr_ex *attr, size_t attr_size)
{
	enum { KHZ_OF_NS_CLOCK = 1000000 };
	struct ibv_device_attr_ex a = {
		.completion_timestamp_mask = UINT64_MAX,
		.hca_core_clock = KHZ_OF_NS_CLOCK,
		.phys_port_cnt_ex = 1,
	};
	if ((input && input->comp_mask) || attr_size < sizeof(a.orig_attr))
		return EINVAL;
	int err = vb_fault_call("ibv_query_device_ex", 0);
	if (err)
		return -err;
	vb_device_attr(vb_device_of(pub), &a.orig_attr);
	a.odp_caps = odp_caps;
	a.xrc_odp_caps = XRC_ODP;
	a.tm_caps = tm_caps;
	a.max_dm_size = VB_MAX_DM_BYTES;
	a.rss_caps = (struct ibv_rss_caps){ .supported_qpts = 1u << IBV_QPT_RAW_PACKET,
					    .max_rwq_indirection_tables = 1 << 16,
					    .max_rwq_indirection_table_size = 1 << VB_LOG_RWQ_TABLE,
					    .rx_hash_fields_mask = VB_RX_HASH_FIELDS,
					    .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ };
	a.tso_caps =
		(struct ibv_tso_caps){ .max_tso = VB_MAX_TSO, .supported_qpts = 1u << IBV_QPT_RAW_PACKET };
	a.packet_pacing_caps = (struct ibv_packet_pacing_caps){ .qp_rate_limit_min = VB_MIN_RATE,
								.qp_rate_limit_max = VB_MAX_RATE,
								.supported_qpts = 1u << IBV_QPT_RAW_PACKET };
	a.raw_packet_caps = IBV_RAW_PACKET_CAP_CVLAN_STRIPPING | IBV_RAW_PACKET_CAP_SCATTER_FCS |
			    IBV_RAW_PACKET_CAP_IP_CSUM;
	a.cq_mod_caps =
		(struct ibv_cq_moderation_caps){ .max_cq_count = UINT16_MAX, .max_cq_period = UINT16_MAX };
	a.max_wq_type_rq = a.orig_attr.max_qp;
	a.device_cap_flags_ex = a.orig_attr.device_cap_flags | IBV_DEVICE_RAW_SCATTER_FCS;
	memset(attr, 0, attr_size);
	memcpy(attr, &a, attr_size < sizeof(a) ? attr_size : sizeof(a));
	return 0;
}

/* The clock that completion timestamps have: CLOCK_MONOTONIC in ns. */
int vb_query_rt_values(struct ibv_context *pub, struct ibv_values_ex *values)
{
	if (values->comp_mask & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
		return EINVAL;
	if (values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK)
		values->raw_clock = (struct timespec){ .tv_nsec = (long)vb_now_ns() };
	return 0;
}

int vb_query_port(struct ibv_context *pub, uint8_t port_num, struct ibv_port_attr *attr, size_t attr_size)
{
	struct ibv_port_attr a;
	int err = check_port("ibv_query_port", port_num);
	if (err)
		return vb_fail(err);
	vb_port_attr(vb_device_of(pub), &a);
	memset(attr, 0, attr_size);
	memcpy(attr, &a, attr_size < sizeof(a) ? attr_size : sizeof(a));
	return 0;
}

VB_EXPORT int ibv_query_port_speed(struct ibv_context *context, uint32_t port_num, uint64_t *port_speed)
{
	enum { UNIT_MBPS = 100 };
	int err = check_port("ibv_query_port_speed", port_num);
	if (err)
		return vb_fail(err);
	*port_speed = vb_port_mbps(vb_device_of(context)) / UNIT_MBPS;
	return 0;
}

/* For programs from before port_cap_flags2, whose structure ends with flags. */
VB_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port_num,
			     struct _compat_ibv_port_attr *attr)
{
	return vb_query_port(context, port_num, (struct ibv_port_attr *)attr,
			     offsetof(struct ibv_port_attr, port_cap_flags2));
}
_Static_assert(offsetof(struct ibv_port_attr, port_cap_flags2) == 48, "the old structure's size");

/* ---- GIDs ---- */

VB_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid)
{
	struct in6_addr ip;
	int err = check_port("ibv_query_gid", port_num);
	if (err)
		return vb_fail_minus1(err);
	if (index < 0 || vb_device_gid(vb_device_of(context), (unsigned)index, &ip) == -EINVAL) {
		vb_explain_limit("ibv_query_gid", "index %d is outside the GID table of %d entries", index,
				 VB_GID_TABLE);
		return vb_fail_minus1(-EINVAL);
	}
	memcpy(gid->raw, &ip, sizeof(gid->raw));
	return 0;
}

static void fill_entry(struct vb_device *dev, uint32_t index, const struct in6_addr *ip,
		       struct ibv_gid_entry *entry)
{
	*entry = (struct ibv_gid_entry){
		.gid_index = index,
		.port_num = 1,
		.gid_type = IBV_GID_TYPE_ROCE_V2,
		.ndev_ifindex = dev->ifindex,
	};
	memcpy(entry->gid.raw, ip, sizeof(entry->gid.raw));
}

/* The caller's structure may be larger, of a later version: unknown members are 0. */
static int check_entry_size(size_t entry_size, uint32_t flags)
{
	if (flags)
		return -EOPNOTSUPP;
	return entry_size < sizeof(struct ibv_gid_entry) ? -EINVAL : 0;
}

VB_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
				struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	struct vb_device *dev = vb_device_of(context);
	struct in6_addr ip;
	int err = check_entry_size(entry_size, flags);
	if (!err)
		err = check_port("ibv_query_gid_ex", port_num);
	if (!err)
		err = vb_device_gid(dev, gid_index, &ip);
	if (err)
		return vb_fail(err);
	memset(entry, 0, entry_size);
	fill_entry(dev, gid_index, &ip, entry);
	return 0;
}

VB_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
				       size_t max_entries, uint32_t flags, size_t entry_size)
{
	struct vb_device *dev = vb_device_of(context);
	struct in6_addr table[VB_GID_TABLE];
	size_t n = 0;
	int err = check_entry_size(entry_size, flags);
	if (err)
		return err;
	unsigned used = vb_device_gids(dev, table);
	for (uint32_t i = 0; i < used; i++) {
		if (IN6_IS_ADDR_UNSPECIFIED(&table[i]))
			continue;
		if (n == max_entries) {
			vb_explain("ibv_query_gid_table", "the table has more entries than max_entries (%zu)",
				   max_entries);
			return -EINVAL;
		}
		struct ibv_gid_entry *entry = (struct ibv_gid_entry *)((char *)entries + n++ * entry_size);
		memset(entry, 0, entry_size);
		fill_entry(dev, i, &table[i], entry);
	}
	return (ssize_t)n;
}

/* As provider libraries and tools ask: 0 for InfiniBand and RoCE v1 (also what a hole is), 1 for RoCE v2. */
VB_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned index,
				 unsigned *type);

VB_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned index,
				 unsigned *type)
{
	struct in6_addr ip;
	int err = check_port("ibv_query_gid_type", port_num);
	if (!err)
		err = vb_device_gid(vb_device_of(context), index, &ip);
	if (err && err != -ENODATA)
		return vb_fail_minus1(err);
	*type = err ? 0 : 1;
	return 0;
}
VB_PRIVATE(ibv_query_gid_type);

/* ---- partition keys: the default one, with full membership ---- */

VB_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
	int err = check_port("ibv_query_pkey", port_num);
	if (!err && (index < 0 || index >= VB_PKEYS)) {
		vb_explain_limit("ibv_query_pkey", "index %d is outside the partition key table of %d entry",
				 index, VB_PKEYS);
		err = -EINVAL;
	}
	if (err)
		return vb_fail_minus1(err);
	*pkey = VB_PKEY_DEFAULT;
	return 0;
}

VB_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	if (!check_port("ibv_get_pkey_index", port_num) && pkey == VB_PKEY_DEFAULT)
		return 0;
	return vb_fail_minus1(-EINVAL);
}
