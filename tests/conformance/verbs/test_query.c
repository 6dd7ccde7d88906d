/* SPDX-License-Identifier: BSD-2-Clause */
/* What devices and ports say of themselves, and helpers without state. */
#include "world.h"

#include <arpa/inet.h>

static void device__list(void **state)
{
	int count = -1;
	struct ibv_device **list = ibv_get_device_list(&count);
	assert_non_null(list);
	assert_true(count >= 1);
	assert_null(list[count]);
	assert_string_equal(ibv_get_device_name(list[count - 1]), "vb_lo");
	for (int i = 0; i < count; i++) {
		const void *behind;
		assert_int_equal(list[i]->node_type, IBV_NODE_CA);
		assert_int_equal(list[i]->transport_type, IBV_TRANSPORT_IB);
		assert_true(ibv_get_device_guid(list[i]) != 0);
		assert_true(ibv_get_device_index(list[i]) >= 0);
		assert_memory_equal(list[i]->name, "vb_", 3);
		/* Provider libraries look for their operations there. */
		memcpy(&behind, list[i] + 1, sizeof(behind));
		assert_null(behind);
	}
	ibv_free_device_list(list);
}

static void device__attributes(void **state)
{
	struct world *w = *state;
	struct ibv_device_attr a;
	struct ibv_device_attr_ex ex;
	assert_int_equal(ibv_query_device(w->ctx, &a), 0);
	assert_true(a.max_qp > 1000 && a.max_qp_wr >= 16384 && a.max_sge >= 16 && a.max_cqe >= 65536 &&
		    a.max_mr > 1000);
	assert_true(a.max_qp_rd_atom >= 1 && a.max_qp_init_rd_atom >= 1 &&
		    a.max_res_rd_atom >= a.max_qp_rd_atom);
	assert_int_equal(a.atomic_cap, IBV_ATOMIC_HCA);
	assert_int_equal(a.phys_port_cnt, 1);
	assert_int_equal(a.max_pkeys, 1);
	assert_true(a.max_mw > 1000);
	assert_true(a.node_guid == ibv_get_device_guid(w->ctx->device));
	assert_true(a.device_cap_flags & IBV_DEVICE_RC_RNR_NAK_GEN);
	/* SEND with invalidate and LOCAL_INV */
	assert_true(a.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS);
	assert_true((a.device_cap_flags & IBV_DEVICE_MEM_WINDOW) &&
		    (a.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B));
	assert_false(a.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG);
	assert_errno(0, ibv_query_device_ex(w->ctx, NULL, &ex));
	assert_memory_equal(&ex.orig_attr, &a, sizeof(a));
	assert_int_equal(ex.phys_port_cnt_ex, 1);
	assert_true(ex.max_dm_size > 65536);
	assert_int_equal(ex.odp_caps.general_caps, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
	enum { EVERYBODY = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV,
	       ONE_SIDED = IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC };
	assert_int_equal(ex.odp_caps.per_transport_caps.rc_odp_caps,
			 EVERYBODY | ONE_SIDED | IBV_ODP_SUPPORT_FLUSH | IBV_ODP_SUPPORT_ATOMIC_WRITE);
	assert_int_equal(ex.xrc_odp_caps, EVERYBODY | ONE_SIDED);
	assert_int_equal(ex.odp_caps.per_transport_caps.uc_odp_caps & (EVERYBODY | ONE_SIDED),
			 EVERYBODY | IBV_ODP_SUPPORT_WRITE);
	assert_int_equal(ex.odp_caps.per_transport_caps.ud_odp_caps, EVERYBODY);
	assert_true(ex.device_cap_flags_ex == (a.device_cap_flags | IBV_DEVICE_RAW_SCATTER_FCS));
	assert_true(ex.tso_caps.max_tso &&
		    ibv_is_qpt_supported(ex.tso_caps.supported_qpts, IBV_QPT_RAW_PACKET));
	assert_true(ex.packet_pacing_caps.qp_rate_limit_max &&
		    ibv_is_qpt_supported(ex.packet_pacing_caps.supported_qpts, IBV_QPT_RAW_PACKET));
	struct ibv_query_device_ex_input input = { .comp_mask = 1 };
	assert_errno(EINVAL, ibv_query_device_ex(w->ctx, &input, &ex));
}

static void device__clock(void **state)
{
	struct world *w = *state;
	struct ibv_values_ex one = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK }, two = one;
	assert_errno(0, ibv_query_rt_values_ex(w->ctx, &one));
	assert_errno(0, ibv_query_rt_values_ex(w->ctx, &two));
	assert_true(one.raw_clock.tv_nsec > 0 && two.raw_clock.tv_nsec >= one.raw_clock.tv_nsec);
	one.comp_mask = IBV_VALUES_MASK_RESERVED;
	assert_errno(EINVAL, ibv_query_rt_values_ex(w->ctx, &one));
}

static void port__attributes(void **state)
{
	struct world *w = *state;
	struct ibv_port_attr p;
	assert_int_equal(ibv_query_port(w->ctx, 1, &p), 0);
	assert_int_equal(p.state, IBV_PORT_ACTIVE);
	assert_int_equal(p.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_true(p.active_mtu >= IBV_MTU_256 && p.active_mtu <= p.max_mtu);
	assert_int_equal(p.pkey_tbl_len, 1);
	assert_int_equal(p.lid, 0);
	assert_true(p.flags & IBV_QPF_GRH_REQUIRED);
	assert_int_equal(ibv_query_port(w->ctx, 0, &p), EINVAL);
	assert_int_equal(ibv_query_port(w->ctx, 2, &p), EINVAL);
}

/* The exported function, as programs from before port_cap_flags2 call it, writes the old structure only. */
static void port__old_structure(void **state)
{
	struct world *w = *state;
	struct ibv_port_attr p;
	memset(&p, 0xee, sizeof(p));
	assert_int_equal((ibv_query_port)(w->ctx, 1, (struct _compat_ibv_port_attr *)&p), 0);
	assert_int_equal(p.state, IBV_PORT_ACTIVE);
	assert_int_equal(p.port_cap_flags2, 0xeeee);
}

/* ---- GIDs ---- */

static void gid__table(void **state)
{
	struct world *w = *state;
	struct ibv_port_attr p;
	struct ibv_gid_entry table[256];
	int used = 0;
	assert_int_equal(ibv_query_port(w->ctx, 1, &p), 0);
	ssize_t count = ibv_query_gid_table(w->ctx, table, COUNT(table), 0);
	assert_true(count >= 1);
	for (int i = 0; i < p.gid_tbl_len; i++) {
		union ibv_gid gid, zero = { 0 };
		struct ibv_gid_entry e;
		assert_int_equal(ibv_query_gid(w->ctx, 1, i, &gid), 0);
		if (!memcmp(&gid, &zero, sizeof(gid))) {
			assert_errno(ENODATA, ibv_query_gid_ex(w->ctx, 1, (uint32_t)i, &e, 0));
			continue;
		}
		assert_errno(0, ibv_query_gid_ex(w->ctx, 1, (uint32_t)i, &e, 0));
		assert_memory_equal(&e.gid, &gid, sizeof(gid));
		assert_int_equal(e.gid_index, i);
		assert_int_equal(e.port_num, 1);
		assert_int_equal(e.gid_type, IBV_GID_TYPE_ROCE_V2);
		assert_true(e.ndev_ifindex > 0);
		assert_memory_equal(&table[used], &e, sizeof(e));
		used++;
	}
	assert_int_equal(used, count);
}

static void gid__loopback(void **state)
{
	struct world *w = *state;
	union ibv_gid gid;
	uint8_t v4[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 };
	if (strcmp(ibv_get_device_name(w->ctx->device), "vb_lo"))
		return;
	assert_int_equal(ibv_query_gid(w->ctx, 1, 0, &gid), 0);
	assert_memory_equal(gid.raw, v4, sizeof(v4));
}

static void gid__refused(void **state)
{
	struct world *w = *state;
	struct ibv_port_attr p;
	struct ibv_gid_entry e, table[2];
	union ibv_gid gid;
	assert_int_equal(ibv_query_port(w->ctx, 1, &p), 0);
	assert_minus1_errno(EINVAL, ibv_query_gid(w->ctx, 1, p.gid_tbl_len, &gid));
	assert_minus1_errno(EINVAL, ibv_query_gid(w->ctx, 1, -1, &gid));
	assert_minus1_errno(EINVAL, ibv_query_gid(w->ctx, 2, 0, &gid));
	assert_errno(EINVAL, ibv_query_gid_ex(w->ctx, 1, (uint32_t)p.gid_tbl_len, &e, 0));
	assert_errno(EINVAL, ibv_query_gid_ex(w->ctx, 0, 0, &e, 0));
	assert_errno(EOPNOTSUPP, ibv_query_gid_ex(w->ctx, 1, 0, &e, 1));
	assert_errno(EINVAL, _ibv_query_gid_ex(w->ctx, 1, 0, &e, 0, sizeof(e) - 1));
	assert_int_equal(ibv_query_gid_table(w->ctx, table, 0, 0), -EINVAL);
	assert_int_equal(ibv_query_gid_table(w->ctx, table, 2, 1), -EOPNOTSUPP);
	assert_int_equal(_ibv_query_gid_table(w->ctx, table, 2, 0, 1), -EINVAL);
}

/* A program of a later version has a longer structure. */
static void gid__longer_entries(void **state)
{
	struct world *w = *state;
	struct {
		struct ibv_gid_entry e;
		uint64_t later;
	} table[64];
	memset(table, 0xee, sizeof(table));
	ssize_t count = _ibv_query_gid_table(w->ctx, &table[0].e, COUNT(table), 0, sizeof(*table));
	assert_true(count >= 1);
	for (ssize_t i = 0; i < count; i++) {
		assert_int_equal(table[i].later, 0);
		assert_int_equal(table[i].e.gid_type, IBV_GID_TYPE_ROCE_V2);
	}
}

static void pkey__default_only(void **state)
{
	struct world *w = *state;
	__be16 pkey;
	assert_int_equal(ibv_query_pkey(w->ctx, 1, 0, &pkey), 0);
	assert_int_equal(pkey, 0xffff);
	assert_minus1_errno(EINVAL, ibv_query_pkey(w->ctx, 1, 1, &pkey));
	assert_minus1_errno(EINVAL, ibv_query_pkey(w->ctx, 1, -1, &pkey));
	assert_minus1_errno(EINVAL, ibv_query_pkey(w->ctx, 3, 0, &pkey));
	assert_int_equal(ibv_get_pkey_index(w->ctx, 1, 0xffff), 0);
	assert_int_equal(ibv_get_pkey_index(w->ctx, 1, htons(0x8001)), -1);
}

/* ---- helpers without state ---- */

static void rate__rules(void **state)
{
	/* Rates of 2.5, 5 and 10 Gbit/s lanes are multiples of 2.5 Gbit/s. */
	static const int multiples[] = { 1, 2, 4, 8, 12, 16, 24, 32, 48 };
	for (size_t i = 0; i < COUNT(multiples); i++) {
		enum ibv_rate rate = mult_to_ibv_rate(multiples[i]);
		assert_int_equal(ibv_rate_to_mult(rate), multiples[i]);
		assert_int_equal(ibv_rate_to_mbps(rate), 2500 * multiples[i]);
	}
	for (int rate = IBV_RATE_2_5_GBPS; rate <= IBV_RATE_1200_GBPS; rate++)
		assert_int_equal(mbps_to_ibv_rate(ibv_rate_to_mbps(rate)), rate);
	assert_int_equal(ibv_rate_to_mult(IBV_RATE_MAX), -1);
	assert_int_equal(ibv_rate_to_mbps(99), -1);
	assert_int_equal(mult_to_ibv_rate(3), IBV_RATE_MAX);
	assert_int_equal(mult_to_ibv_rate(0), IBV_RATE_MAX);
	assert_int_equal(mbps_to_ibv_rate(1), IBV_RATE_MAX);
}

static void text__every_value(void **state)
{
	for (int i = 0; i <= IBV_WC_TM_RNDV_INCOMPLETE; i++)
		for (int j = 0; j < i; j++)
			assert_string_not_equal(ibv_wc_status_str(i), ibv_wc_status_str(j));
	for (int i = 0; i <= IBV_EVENT_DEVICE_SPEED_CHANGE; i++)
		for (int j = 0; j < i; j++)
			assert_string_not_equal(ibv_event_type_str(i), ibv_event_type_str(j));
	assert_string_equal(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded");
	assert_string_equal(ibv_port_state_str(IBV_PORT_ACTIVE), "active");
	assert_string_equal(ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter");
	assert_string_equal(ibv_wr_opcode_str(IBV_WR_RDMA_WRITE), "rdma-write");
	assert_string_equal(ibv_wr_opcode_str(IBV_WR_ATOMIC_WRITE), "atomic-write");
	assert_string_equal(ibv_wr_opcode_str(12), "unknown");
	assert_string_equal(ibv_wr_opcode_str(1000), "unknown");
	assert_non_null(ibv_wc_status_str(1000));
	assert_non_null(ibv_wc_status_str(-1));
	assert_non_null(ibv_event_type_str(1000));
	assert_non_null(ibv_port_state_str(1000));
	assert_non_null(ibv_node_type_str(IBV_NODE_UNKNOWN));
}

static void what_the_device_lacks(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = make_qp(w, NULL);
	struct ibv_ece ece = { .vendor_id = 1 };
	union ibv_gid gid = { .raw = { 0xff } };
	assert_errno(EOPNOTSUPP, ibv_set_ece(qp, &ece));
	assert_errno(EOPNOTSUPP, ibv_query_ece(qp, &ece));
	assert_int_equal(ece.vendor_id, 0);
	assert_errno(0, ibv_set_ece(qp, &ece));
	assert_errno(EINVAL, ibv_attach_mcast(qp, &gid, 0));
	assert_errno(EINVAL, ibv_detach_mcast(qp, &gid, 0));
	assert_int_equal(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0), 0);
	assert_errno(0, ibv_fork_init());
	assert_int_equal(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
	assert_errno(0, ibv_destroy_qp(qp));
}

/* A row of the GID table with an IPv6 address; -1: there is none. */
static int ipv6_row(struct world *w)
{
	struct ibv_gid_entry e;
	for (uint32_t i = 0; i < 8; i++)
		if (!ibv_query_gid_ex(w->ctx, 1, i, &e, 0) &&
		    !IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)e.gid.raw))
			return (int)i;
	return -1;
}

static void resolve__mac(void **state)
{
	struct world *w = *state;
	struct ibv_ah_attr a = connect_attr(w, 0).ah_attr;
	uint8_t mac[6], group[6] = { 0x01, 0, 0x5e, 1, 2, 3 };
	uint16_t vid = 0;
	a.grh.dgid = (union ibv_gid){ .raw = { [10] = 0xff, 0xff, 224, 1, 2, 3 } };
	assert_errno(0, ibv_resolve_eth_l2_from_gid(w->ctx, &a, mac, &vid));
	assert_memory_equal(mac, group, 6);
	assert_int_equal(vid, 0xffff);
	a.grh.dgid =
		(union ibv_gid){ .raw = { 0xfe, 0x80, [8] = 0x50, 0x54, 0, 0xff, 0xfe, 0x12, 0x34, 0x56 } };
	if (ipv6_row(w) >= 0) {
		a.grh.sgid_index = (uint8_t)ipv6_row(w);
		assert_errno(0, ibv_resolve_eth_l2_from_gid(w->ctx, &a, mac, NULL));
		assert_int_equal(mac[0], 0x52);
		assert_int_equal(mac[5], 0x56);
	}
	a.is_global = 0;
	assert_errno(-EINVAL, ibv_resolve_eth_l2_from_gid(w->ctx, &a, mac, &vid));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(device__list),
		WORLD_TEST(device__attributes),
		WORLD_TEST(device__clock),
		WORLD_TEST(port__attributes),
		WORLD_TEST(port__old_structure),
		WORLD_TEST(gid__table),
		WORLD_TEST(gid__loopback),
		WORLD_TEST(gid__refused),
		WORLD_TEST(gid__longer_entries),
		WORLD_TEST(pkey__default_only),
		cmocka_unit_test(rate__rules),
		cmocka_unit_test(text__every_value),
		WORLD_TEST(what_the_device_lacks),
		WORLD_TEST(resolve__mac),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
